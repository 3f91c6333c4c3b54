//! What a gRPC answer means, by its code.
//!
//! | field | read as |
//! |---|---|
//! | `grpc-status` | the code; one that is none of the seventeen is *unknown* |
//! | `grpc-retry-pushback-ms` | digits: exactly when to try again; else, or twice: never |
//! | those of [`HttpClassify`](crate::HttpClassify) | as there, where no pushback came |
//!
//! A code in the head is an answer that is all head (Trailers-Only): nothing of it has gone to the
//! caller, and the call can be made again. A code among the trailers comes when that is too late.

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Response, StatusCode};
use seawall_policy::{
    AnswerSignals, Cause, GrpcCode, GrpcCodes, Outcome, Problem, RetryAfter, parse_pushback,
};

use crate::classify::{Classify, ErrorCause, HttpClassify, Summary, TransportErrors};

/// Whether these are the fields of a gRPC message: `application/grpc`, with a subtype after `+`
/// or a parameter. gRPC-Web is another protocol.
#[must_use]
pub fn is_grpc(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let Some((kind, rest)) = kind.split_at_checked(APPLICATION_GRPC.len()) else { return false };
    let ends = rest.first().is_none_or(|next| matches!(next, b'+' | b';' | b' '));
    kind.eq_ignore_ascii_case(APPLICATION_GRPC) && ends
}

/// A `grpc-status` as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcStatusRead(Option<GrpcCode>);

impl GrpcStatusRead {
    /// The code, if it is one of the seventeen.
    #[must_use]
    pub const fn known(self) -> Option<GrpcCode> {
        self.0
    }

    /// The code a caller takes it for.
    #[must_use]
    pub fn code(self) -> GrpcCode {
        self.0.unwrap_or(GrpcCode::Unknown)
    }
}

/// The status among `fields`, which are a head's or the trailers; nothing if there is none.
#[must_use]
pub fn read_grpc_status(fields: &HeaderMap) -> Option<GrpcStatusRead> {
    fields.get(GRPC_STATUS).map(|value| GrpcStatusRead(GrpcCode::parse(value.as_bytes())))
}

/// Classifies a gRPC answer by its code, and an error by `M`.
///
/// As the rules of a [`SeawallLayer`](crate::SeawallLayer) it sees heads alone: a code in the head
/// decides, a head without one is a success, and one that is not gRPC at all is classified by its
/// HTTP status. Where the whole result is at hand, [`GrpcClassify::outcome`] takes its code and
/// its trailers.
#[derive(Clone, Debug)]
pub struct GrpcClassify<M = TransportErrors> {
    http: HttpClassify<M>,
    retry_on: GrpcCodes,
}

impl GrpcClassify {
    /// With [`TransportErrors`], and the codes tried again that the table of
    /// [`GrpcCode::class`] gives.
    #[must_use]
    pub fn new() -> Self {
        Self::with_errors(TransportErrors)
    }
}

impl Default for GrpcClassify {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> GrpcClassify<M> {
    /// With rules of your own for errors: a closure `Fn(&E) -> Cause`, or an [`ErrorCause`].
    #[must_use]
    pub fn with_errors(errors: M) -> Self {
        Self { http: HttpClassify::with_errors(errors), retry_on: GrpcCodes::default() }
    }

    /// Declares it safe to repeat a call that ended with one of `codes`, whatever the call is.
    #[must_use]
    pub fn retry_on(self, codes: impl IntoIterator<Item = GrpcCode>) -> Self {
        Self { retry_on: codes.into_iter().collect(), ..self }
    }

    /// What a call means that ended with `code`, and with these fields beside it.
    #[must_use]
    pub fn outcome(&self, code: GrpcCode, fields: &HeaderMap) -> Outcome {
        let outcome = Outcome::of_grpc(code, self.signals(code, fields));
        match self.retry_on.contains(code) {
            true => outcome.declared_retryable(),
            false => outcome,
        }
    }

    /// What a head means: by its code, or that it has none yet, or by its HTTP status.
    #[must_use]
    pub fn of_head<B>(&self, response: &Response<B>) -> Outcome {
        let status = response.status();
        if status != StatusCode::OK || !is_grpc(response.headers()) {
            return Outcome::of_status(status.as_u16(), self.http.signals(response.headers()));
        }
        match read_grpc_status(response.headers()) {
            Some(read) => self.outcome(read.code(), response.headers()),
            None => Outcome::of_status(status.as_u16(), AnswerSignals::NONE),
        }
    }

    /// What an end of the transport means: to its caller a connection that breaks is UNAVAILABLE,
    /// so who declares this code declares that, too.
    #[cfg(feature = "tonic")]
    pub(crate) fn of_end(&self, cause: Cause) -> Outcome {
        let outcome = Outcome::of(cause);
        let breaks = matches!(cause, Cause::Closed | Cause::Reset);
        match breaks && self.retry_on.contains(GrpcCode::Unavailable) {
            true => outcome.declared_retryable(),
            false => outcome,
        }
    }

    /// What an HTTP answer means that is not gRPC.
    #[cfg(feature = "tonic")]
    pub(crate) fn of_http(&self, status: u16, fields: &HeaderMap) -> Outcome {
        Outcome::of_status(status, self.http.signals(fields))
    }

    fn signals(&self, code: GrpcCode, fields: &HeaderMap) -> AnswerSignals {
        if code == GrpcCode::Ok {
            return AnswerSignals::NONE;
        }
        let signals = self.http.signals(fields);
        let mut said = fields.get_all(PUSHBACK).iter();
        match (said.next().map(|value| parse_pushback(value.as_bytes())), said.next()) {
            (None, _) => signals,
            (Some(Some(wait)), None) => {
                AnswerSignals { retry_after: RetryAfter::Pushback(wait), ..signals }
            }
            (Some(_), _) => AnswerSignals { stop: true, ..signals },
        }
    }
}

impl<B, Err, M: ErrorCause<Err>> Classify<Response<B>, Err> for GrpcClassify<M> {
    fn classify(&self, result: Result<&Response<B>, &Err>) -> Outcome {
        match result {
            Ok(response) => self.of_head(response),
            Err(error) => self.http.outcome_of_error(error),
        }
    }

    fn annotate(&self, response: &mut Response<B>, summary: &Summary) {
        response.extensions_mut().insert(*summary);
    }
}

/// The outcome of an attempt whose other side was told when its caller stops waiting. That this
/// time was up is no sign of illness.
pub(crate) fn in_callers_time(outcome: Outcome) -> Outcome {
    match outcome.cause() {
        Cause::AttemptTimeout => Outcome::of(Cause::DeadlineCut),
        Cause::Grpc(code @ GrpcCode::DeadlineExceeded) => {
            let signals = AnswerSignals {
                retry_after: outcome.retry_after(),
                stop: outcome.says_stop(),
                problem: Some(Problem::DeadlinePassed),
            };
            let passed = Outcome::of_grpc(code, signals);
            if outcome.is_declared_retryable() { passed.declared_retryable() } else { passed }
        }
        _ => outcome,
    }
}

const APPLICATION_GRPC: &[u8] = b"application/grpc";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;
    use seawall_policy::Class;

    fn head(status: u16, fields: &[(&'static str, &'static str)]) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response.headers_mut().append(*name, http::HeaderValue::from_static(value));
        }
        response
    }

    fn of(status: u16, fields: &[(&'static str, &'static str)]) -> Outcome {
        let result: Result<&Response<()>, &io::Error> = Ok(&head(status, fields));
        GrpcClassify::new().classify(result)
    }

    const GRPC: (&str, &str) = ("content-type", "application/grpc+proto");

    #[test]
    fn only_grpc_itself_is_taken_for_it() {
        for (value, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+json", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/grp", false),
            ("text/html", false),
            ("", false),
        ] {
            assert_eq!(
                is_grpc(head(200, &[("content-type", value)]).headers()),
                expected,
                "{value}"
            );
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn a_code_in_the_head_decides_and_a_head_without_one_is_a_success() {
        let unavailable = of(200, &[GRPC, ("grpc-status", "14")]);
        assert_eq!(unavailable.cause(), Cause::Grpc(GrpcCode::Unavailable));
        assert_eq!(unavailable.class(), Class::Overloaded);
        assert_eq!(of(200, &[GRPC, ("grpc-status", "77")]).cause(), Cause::Grpc(GrpcCode::Unknown));
        assert_eq!(of(200, &[GRPC]).class(), Class::Success);
    }

    #[test]
    fn what_is_not_grpc_is_classified_by_its_http_status() {
        let unavailable = of(503, &[("content-type", "text/html"), ("retry-after", "7")]);
        assert_eq!(unavailable.cause(), Cause::Status(503));
        assert_eq!(unavailable.retry_after(), RetryAfter::Wait(Duration::from_secs(7)));
        assert_eq!(of(404, &[]).class(), Class::Rejected);
    }

    #[test]
    fn a_pushback_says_when_or_never_and_goes_before_a_retry_after() {
        let said = |fields: &[(&'static str, &'static str)]| {
            let all: Vec<_> =
                [GRPC, ("grpc-status", "14")].into_iter().chain(fields.iter().copied()).collect();
            of(200, &all)
        };
        let name = "grpc-retry-pushback-ms";
        let exact = said(&[(name, "250"), ("retry-after", "30")]);
        assert_eq!(exact.retry_after(), RetryAfter::Pushback(Duration::from_millis(250)));
        assert!(!exact.says_stop());
        for never in [&[(name, "-1")][..], &[(name, "soon")], &[(name, "5"), (name, "6")]] {
            assert!(said(never).says_stop(), "{never:?}");
        }
        assert!(said(&[("seawall-retry", "no")]).says_stop());
        assert!(!said(&[]).says_stop());
    }

    #[test]
    fn a_declared_code_is_retryable_and_no_other() {
        let rules = GrpcClassify::new().retry_on([GrpcCode::Aborted]);
        let none = HeaderMap::new();
        assert!(rules.outcome(GrpcCode::Aborted, &none).is_declared_retryable());
        assert!(!rules.outcome(GrpcCode::Unavailable, &none).is_declared_retryable());
    }

    #[test]
    fn an_error_is_classified_as_with_http() {
        let error = io::Error::from(io::ErrorKind::ConnectionRefused);
        let result: Result<&Response<()>, _> = Err(&error);
        assert_eq!(GrpcClassify::new().classify(result).cause(), Cause::ConnectRefused);
    }
}
