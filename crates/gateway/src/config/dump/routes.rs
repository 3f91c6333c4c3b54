//! What is shown of a route.

use seawall_policy::GrpcCode;
use serde_json::{Value, json};

use super::super::edits::HeaderEdits;
use super::super::grpc::{Grpc, GrpcStreaming};
use super::super::matching::{Conditions, PathMatch};
use super::super::model::{Fallback, FallbackOn, GatewayConfig, Route};
use super::policies::{off, retry};
use super::upstreams::condition;
use super::{MASK, time};
use crate::units::format_size;

/// A route with what it takes from its upstream, and what one request on it can cost.
pub(super) fn route(config: &GatewayConfig, route: &Route) -> Value {
    let Route {
        name,
        host,
        path,
        conditions: Conditions { methods, headers },
        upstream,
        // Counted from the order of the routes.
        lane: _,
        rewrite,
        request_headers,
        response_headers,
        total,
        attempt,
        idempotent,
        retry,
        owns_retries,
        retry_after_verbatim,
        max_body,
        grpc,
        fallback,
    } = route;
    let worst = config.worst_case(route);
    let upstream = config.upstreams.get(*upstream);
    let retries = retry
        .as_ref()
        .map(seawall_policy::RetryParams::options)
        .or(upstream.and_then(|upstream| upstream.retry.as_ref()));
    let time_of = |own: &Option<_>, of: fn(&super::super::UpstreamTimeouts) -> _| {
        own.or(upstream.map(|upstream| of(&upstream.timeouts))).map(time)
    };
    let (prefix, exact) = match path {
        PathMatch::Prefix(path) => (Some(path), None),
        PathMatch::Exact(path) => (None, Some(path)),
    };
    json!({
        "name": name,
        "host": host,
        "path_prefix": prefix,
        "path": exact,
        "methods": methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "headers": headers.iter().map(condition).collect::<Vec<_>>(),
        "upstream": upstream.map(|upstream| &upstream.name),
        "strip_prefix": rewrite.as_ref().map(String::is_empty),
        "prefix_rewrite": rewrite.as_ref().filter(|to| !to.is_empty()),
        "request_headers": edits(request_headers),
        "response_headers": edits(response_headers),
        "total": time_of(total, |timeouts| timeouts.total),
        "attempt": time_of(attempt, |timeouts| timeouts.attempt),
        "idempotent": idempotent,
        "retry": off(retries, self::retry),
        "retry_owner": if *owns_retries { "self" } else { "caller" },
        "retry_after": if *retry_after_verbatim { "verbatim" } else { "jittered" },
        "max_body": max_body.map(format_size),
        "grpc": self::grpc(grpc),
        "fallback": fallback.as_ref().map(self::fallback),
        "at_most": worst.map(|worst| json!({
            "attempts": worst.attempts,
            "time": time(worst.time),
        })),
    })
}

/// Values that are set may be credentials.
fn edits(edits: &HeaderEdits) -> Value {
    let HeaderEdits { set, remove } = edits;
    let set: serde_json::Map<_, _> =
        set.iter().map(|(name, _)| (name.to_string(), MASK.into())).collect();
    json!({"set": set, "remove": remove.iter().map(http::HeaderName::as_str).collect::<Vec<_>>()})
}

fn grpc(grpc: &Grpc) -> Value {
    let Grpc { idempotent, retry_on, streaming } = grpc;
    let codes = GrpcCode::ALL.iter().filter(|code| retry_on.contains(**code));
    json!({
        "idempotent": idempotent,
        "retry_on": codes.map(|code| code.as_str()).collect::<Vec<_>>(),
        "streaming": match streaming {
            GrpcStreaming::Auto => "auto",
            GrpcStreaming::Always => "true",
            GrpcStreaming::Never => "false",
        },
    })
}

fn fallback(fallback: &Fallback) -> Value {
    let Fallback { on, status, content_type, body: _ } = fallback;
    let on = on.iter().map(|on| match on {
        FallbackOn::Failure => "failure".to_owned(),
        FallbackOn::Stopped(reason) => reason.as_str().to_owned(),
        FallbackOn::Status(status) => status.to_string(),
    });
    json!({
        "on": on.collect::<Vec<_>>(),
        "status": status.as_u16(),
        "content_type": String::from_utf8_lossy(content_type.as_bytes()),
        "body": MASK,
    })
}
