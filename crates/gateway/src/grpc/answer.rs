//! Answers of ours to gRPC calls: all head (Trailers-Only), with a code, a message, and when to
//! come back.
//!
//! | what happened | code |
//! |---|---|
//! | refused here: breaker, bulkhead, pool, drain; the upstream could not be reached, or broke off | UNAVAILABLE |
//! | a deadline or a timeout passed | DEADLINE_EXCEEDED |
//! | no route, no such method of HTTP | UNIMPLEMENTED |
//! | larger than allowed | RESOURCE_EXHAUSTED |
//! | the request's body broke off or stalled | CANCELLED |
//! | a request that cannot be read, or runs in a circle | INTERNAL |
//! | an HTTP answer in place of a gRPC one | by its status, as its caller would |

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use seawall::{GrpcCode, ThreadRng};
use seawall_policy::{Cause, Done, RetryAfter, Rng as _, retry_after_passed_on};

use super::{GRPC_PUSHBACK, GRPC_STATUS, trailers_only};
use crate::access_log::Completion;
use crate::answer::ProblemAnswer;
use crate::body::Body;
use crate::exchange::Exchange;
use crate::headers::{Answered, SEAWALL_PROBLEM};
use crate::quota::Quota;

/// What a caller is told in place of an answer of the upstream.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) code: GrpcCode,
    pub(crate) message: &'a str,
    pub(crate) problem: &'static str,
    /// Whole seconds to wait.
    pub(crate) wait: Option<u64>,
    pub(crate) stop: bool,
    pub(crate) attempts: u32,
    /// The share that was used up, if it was that.
    pub(crate) quota: Option<Quota>,
}

/// Answers a problem of ours.
pub(crate) fn refuse(problem: &ProblemAnswer, exchange: Box<Exchange>) -> Response<Body> {
    let ended = exchange.done.map(|done| done.outcome.cause());
    let code = match ended {
        Some(Cause::Grpc(code)) if problem.source == "upstream" => code,
        _ => code_of(problem.status, problem.code),
    };
    let told = Told {
        code,
        message: problem.detail,
        problem: problem.code,
        wait: problem.retry_after,
        stop: problem.stop,
        attempts: problem.attempts,
        quota: problem.quota,
    };
    told.answer(exchange)
}

/// Answers in place of an HTTP answer that is none of gRPC.
pub(crate) fn not_grpc(
    status: StatusCode,
    done: &Done,
    stop: bool,
    exchange: Box<Exchange>,
) -> Response<Body> {
    let message = match status {
        StatusCode::OK => "the upstream's answer is not gRPC".to_owned(),
        other => format!("the upstream answered with HTTP status {}", other.as_u16()),
    };
    let wait = match done.outcome.retry_after() {
        RetryAfter::Wait(wait) | RetryAfter::Slot(wait) => {
            Some(retry_after_passed_on(wait, &mut ThreadRng))
        }
        _ => None,
    };
    let told = Told {
        code: GrpcCode::of_http_status(status.as_u16()),
        message: &message,
        problem: "upstream-not-grpc",
        wait,
        stop,
        attempts: done.attempts,
        quota: None,
    };
    told.answer(exchange)
}

impl Told<'_> {
    /// Builds the answer and hands the exchange to its body.
    pub(crate) fn answer(self, mut exchange: Box<Exchange>) -> Response<Body> {
        let mut headers = trailers_only(self.code, self.message);
        headers.insert(&SEAWALL_PROBLEM, HeaderValue::from_static(self.problem));
        push_back(&mut headers, self.stop, self.wait);
        if let Some(quota) = self.quota {
            quota.tell(&mut headers, self.wait.unwrap_or_default());
        }
        let answered = Answered {
            version: None,
            switches: false,
            attempts: self.attempts,
            stop: self.stop,
            request_id: &exchange.request_id(),
        };
        exchange.gateway.fields.to_downstream(&mut headers, &answered);
        exchange.status = StatusCode::OK.as_u16();
        if let Some(call) = &mut exchange.grpc {
            call.code = Some(self.code);
        }
        exchange.completion.get_or_insert(Completion::Refused);
        let mut response = Response::new(Body::full(Bytes::new(), exchange));
        *response.headers_mut() = headers;
        response
    }
}

/// Says never, or when: a wait of whole seconds is spread over the next one, so that the refused
/// do not come back together.
fn push_back(headers: &mut HeaderMap, stop: bool, wait: Option<u64>) {
    let pushback = match (stop, wait) {
        (true, _) => HeaderValue::from_static("-1"),
        (false, Some(seconds)) => {
            HeaderValue::from(seconds.saturating_mul(1_000) + ThreadRng.below(1_000))
        }
        (false, None) => return,
    };
    headers.insert(GRPC_PUSHBACK, pushback);
}

/// Says never on an answer of the upstream that is all head, where this hop gave up.
pub(crate) fn stop_answer(headers: &mut HeaderMap) {
    if headers.get(GRPC_STATUS).is_some_and(|status| status != "0") {
        headers.insert(GRPC_PUSHBACK, HeaderValue::from_static("-1"));
    }
}

fn code_of(status: StatusCode, problem: &str) -> GrpcCode {
    match (status.as_u16(), problem) {
        (_, "upload-failed" | "upload-stalled") => GrpcCode::Cancelled,
        (504, _) => GrpcCode::DeadlineExceeded,
        (429 | 502 | 503, _) => GrpcCode::Unavailable,
        (404 | 405 | 417 | 501, _) => GrpcCode::Unimplemented,
        (413 | 431, _) => GrpcCode::ResourceExhausted,
        (401, _) => GrpcCode::Unauthenticated,
        (403, _) => GrpcCode::PermissionDenied,
        (400 | 508, _) => GrpcCode::Internal,
        _ => GrpcCode::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_code() {
        for (status, problem, code) in [
            (503, "breaker-open", GrpcCode::Unavailable),
            (503, "overloaded", GrpcCode::Unavailable),
            (503, "draining", GrpcCode::Unavailable),
            (502, "upstream-broke", GrpcCode::Unavailable),
            (504, "deadline-passed", GrpcCode::DeadlineExceeded),
            (504, "upstream-timeout", GrpcCode::DeadlineExceeded),
            (404, "no-route", GrpcCode::Unimplemented),
            (413, "body-too-large", GrpcCode::ResourceExhausted),
            (431, "too-many-fields", GrpcCode::ResourceExhausted),
            (400, "upload-failed", GrpcCode::Cancelled),
            (408, "upload-stalled", GrpcCode::Cancelled),
            (400, "malformed-request", GrpcCode::Internal),
            (508, "loop-detected", GrpcCode::Internal),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(code_of(status, problem), code, "{problem}");
        }
    }

    #[test]
    fn a_stop_goes_before_a_wait_and_a_wait_is_spread_upward() {
        let said = |stop, wait| {
            let mut headers = HeaderMap::new();
            push_back(&mut headers, stop, wait);
            headers.get(GRPC_PUSHBACK).map(|value| value.to_str().unwrap().parse::<i64>().unwrap())
        };
        assert_eq!(said(true, Some(3)), Some(-1));
        assert_eq!(said(false, None), None);
        for _ in 0..50 {
            assert!((3_000..4_000).contains(&said(false, Some(3)).unwrap()));
        }
        assert!(said(false, Some(0)).unwrap() >= 0);
    }

    #[test]
    fn only_an_answer_that_is_all_head_and_failed_is_told_to_stop() {
        for (status, told) in [(None, false), (Some("0"), false), (Some("14"), true)] {
            let mut headers = HeaderMap::new();
            if let Some(status) = status {
                headers.insert(GRPC_STATUS, HeaderValue::from_static(status));
            }
            stop_answer(&mut headers);
            assert_eq!(headers.contains_key(GRPC_PUSHBACK), told, "{status:?}");
        }
    }
}
