//! What a route says about its gRPC methods, and the checks of it.

use seawall_policy::{GrpcCode, GrpcCodes};

use super::raw::RawGrpc;
use super::report::{Finding, near_name};
use super::scope::{Scope, did_you_mean};

/// What is known of the gRPC methods of a route, which the wire does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grpc {
    /// Whether they may be executed twice. Default false.
    pub idempotent: bool,
    /// Codes that are tried again whatever the method. Default none.
    pub retry_on: GrpcCodes,
    /// Whether they stream. Default: told from what flows.
    pub streaming: GrpcStreaming,
}

/// Whether the gRPC methods of a route stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrpcStreaming {
    /// A call streams once it shows it: by a second message, or a second without a frame.
    #[default]
    Auto,
    /// All of them do: each counts as a stream from its head on.
    Always,
    /// None does: each is told our own time limit, and keeps its place in the bulkhead.
    Never,
}

/// Reads the section.
pub(super) fn grpc(mut scope: Scope<'_>, raw: &RawGrpc) -> Grpc {
    let mut codes = Vec::new();
    for (i, text) in raw.retry_on.iter().take(GrpcCode::ALL.len()).enumerate() {
        let key = format!("retry_on[{i}]");
        let Some(code) = code(&mut scope, &key, text) else { continue };
        if codes.contains(&code) {
            scope.refuse(&key, text, "each once");
        }
        codes.push(code);
    }
    let streams = [
        ("auto", GrpcStreaming::Auto),
        ("true", GrpcStreaming::Always),
        ("false", GrpcStreaming::Never),
    ];
    let whether = [("true", true), ("false", false)];
    Grpc {
        idempotent: scope.choice("idempotent", &raw.idempotent, &whether).unwrap_or(false),
        retry_on: codes.into_iter().collect(),
        streaming: scope.choice("streaming", &raw.streaming, &streams).unwrap_or_default(),
    }
}

fn code(scope: &mut Scope<'_>, key: &str, text: &str) -> Option<GrpcCode> {
    // What went well is not tried again.
    let mut failures = GrpcCode::ALL.into_iter().filter(|code| *code != GrpcCode::Ok);
    let name = text.to_ascii_lowercase();
    if let Some(code) = failures.clone().find(|code| code.as_str() == name) {
        return Some(code);
    }
    let allowed = "the name of a gRPC code that is a failure, like unavailable";
    let finding = Finding::refused(scope.path(key), text, allowed);
    let near = near_name(&name, failures.by_ref().map(GrpcCode::as_str));
    scope.refuse_with(key, did_you_mean(finding, near));
    None
}
