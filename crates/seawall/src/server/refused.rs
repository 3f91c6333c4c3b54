//! What those are told who are not served: a problem, or a gRPC status that is all head.
//!
//! The texts are constants: a refusal has to cost next to nothing.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use seawall_policy::{
    GrpcCode, Rng as _, Shed, ShedReason, retry_after_passed_on, retry_after_wait,
};

use super::body::AdmittedBody;
use crate::clock::ThreadRng;

/// One kind of refusal.
struct Told {
    status: StatusCode,
    code: &'static str,
    grpc: GrpcCode,
    detail: &'static str,
    problem: &'static str,
}

/// The answer to a request that is not served.
pub(super) fn answer<B>(shed: Shed, speaks_grpc: bool) -> Response<AdmittedBody<B>> {
    let told = match shed.reason {
        ShedReason::OverRate => &QUOTA_EXCEEDED,
        ShedReason::Expired => &DEADLINE_PASSED,
        ShedReason::Closed
        | ShedReason::Rank
        | ShedReason::TooLate
        | ShedReason::Full
        | ShedReason::Standing
        | ShedReason::Evicted => &OVERLOADED,
    };
    let text = if speaks_grpc { "" } else { told.problem };
    let mut response = Response::new(AdmittedBody::refusal(Bytes::from_static(text.as_bytes())));
    let comes_again = shed.reason != ShedReason::Expired;
    let fields = response.headers_mut();
    fields.insert(PROBLEM, HeaderValue::from_static(told.code));
    if speaks_grpc {
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(GRPC_STATUS, HeaderValue::from(told.grpc.number()));
        fields.insert(GRPC_MESSAGE, HeaderValue::from_static(told.detail));
        if comes_again {
            let wait = shed.retry_after.map_or_else(
                || ThreadRng.duration_between(WAIT_MIN, WAIT_MAX),
                |wait| retry_after_wait(wait, &mut ThreadRng),
            );
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            fields.insert(GRPC_PUSHBACK, HeaderValue::from(millis));
        }
        return response;
    }
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    fields.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    if comes_again {
        let seconds = shed.retry_after.map_or_else(
            || {
                let choices = WAIT_MAX.as_secs() - WAIT_MIN.as_secs() + 1;
                WAIT_MIN.as_secs() + ThreadRng.below(choices)
            },
            |wait| retry_after_passed_on(wait, &mut ThreadRng),
        );
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.status_mut() = told.status;
    response
}

const OVERLOADED: Told = Told {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "overloaded",
    grpc: GrpcCode::Unavailable,
    detail: "more waits than can be served in time",
    problem: concat!(
        r#"{"title":"Service Unavailable","status":503,"code":"overloaded","#,
        r#""detail":"more waits than can be served in time","source":"internal","#,
        r#""sent":"nothing"}"#
    ),
};

const QUOTA_EXCEEDED: Told = Told {
    status: StatusCode::TOO_MANY_REQUESTS,
    code: "quota-exceeded",
    grpc: GrpcCode::ResourceExhausted,
    detail: "the caller has used up its share of what is served",
    problem: concat!(
        r#"{"title":"Too Many Requests","status":429,"code":"quota-exceeded","#,
        r#""detail":"the caller has used up its share of what is served","source":"downstream","#,
        r#""sent":"nothing"}"#
    ),
};

const DEADLINE_PASSED: Told = Told {
    status: StatusCode::GATEWAY_TIMEOUT,
    code: "deadline-passed",
    grpc: GrpcCode::DeadlineExceeded,
    detail: "not begun before the deadline",
    problem: concat!(
        r#"{"title":"Gateway Timeout","status":504,"code":"deadline-passed","#,
        r#""detail":"not begun before the deadline","source":"internal","#,
        r#""sent":"nothing"}"#
    ),
};

const PROBLEM: HeaderName = HeaderName::from_static("seawall-problem");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Source: seawall-design.
const WAIT_MIN: Duration = Duration::from_secs(2);
/// Source: seawall-design.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_its_status_and_fields_say() {
        for told in [&OVERLOADED, &QUOTA_EXCEEDED, &DEADLINE_PASSED] {
            let problem: serde_json::Value = serde_json::from_str(told.problem).unwrap();
            assert_eq!(problem["status"], told.status.as_u16());
            assert_eq!(problem["title"], told.status.canonical_reason().unwrap());
            assert_eq!(problem["code"], told.code);
            assert_eq!(problem["detail"], told.detail);
            assert_eq!(problem["sent"], "nothing");
        }
    }
}
