//! Makes the answer of a call: the upstream's, the route's fallback, or a problem of ours.
//!
//! An upstream's answer passes with its body untouched. Only an answer we make carries
//! `application/problem+json`, a `Seawall-Problem` code, who is at fault and whether anything was
//! sent. Refusals say when to come back, jittered, so that the refused do not return together.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use seawall::ThreadRng;
use seawall_policy::{Cause, Class, Done, Outcome, RetryAfter, StopReason, retry_after_passed_on};

use crate::access_log::Completion;
use crate::body::Body;
use crate::config::{Fallback, FallbackOn, Route};
use crate::exchange::Exchange;
use crate::grpc;
use crate::headers::{Answered, SEAWALL_DEGRADED, SEAWALL_PROBLEM};
use crate::metrics;
use crate::quota::Quota;
use crate::refusal::Refusal;
use crate::server::TooManyRequests;

/// A problem of ours, on its way to the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemAnswer {
    pub(crate) status: StatusCode,
    /// The value of `Seawall-Problem` and of `code`.
    pub(crate) code: &'static str,
    pub(crate) detail: &'static str,
    /// Who is at fault: upstream, downstream or internal.
    pub(crate) source: &'static str,
    /// Whether the upstream may have executed it.
    pub(crate) maybe_sent: bool,
    /// Seconds to wait, already jittered.
    pub(crate) retry_after: Option<u64>,
    pub(crate) stop: bool,
    pub(crate) attempts: u32,
    /// The share that was used up, if it was that.
    pub(crate) quota: Option<Quota>,
}

impl ProblemAnswer {
    /// A request that is not ours to forward.
    pub(crate) const fn downstream(
        status: StatusCode,
        code: &'static str,
        detail: &'static str,
    ) -> Self {
        Self {
            status,
            code,
            detail,
            source: "downstream",
            maybe_sent: false,
            retry_after: None,
            stop: false,
            attempts: 0,
            quota: None,
        }
    }

    /// A request turned away before any policy saw it.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let (code, detail) = match refusal {
            Refusal::Malformed(detail) => ("malformed-request", detail),
            Refusal::Connect => ("connect-not-supported", "this is no forward proxy"),
            Refusal::UnknownCoding => ("unknown-transfer-coding", "only chunked is understood"),
            Refusal::UnknownExpectation => ("unknown-expectation", "only 100-continue can be met"),
            Refusal::TooManyFields => ("too-many-fields", "the head has too many fields"),
            Refusal::Loop => ("loop-detected", "the request passed through here too often"),
        };
        Self::downstream(refusal.status(), code, detail)
    }

    /// A body larger than its route allows.
    pub(crate) const fn too_large() -> Self {
        Self::downstream(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "the request body is larger than its route allows",
        )
    }

    /// A request that came when the drain had no time left for it.
    pub(crate) fn draining() -> Self {
        Self {
            source: "internal",
            retry_after: Some(retry_after_passed_on(Duration::from_secs(1), &mut ThreadRng)),
            ..Self::downstream(StatusCode::SERVICE_UNAVAILABLE, "draining", "going away")
        }
    }

    /// A request more than its caller's address may make.
    pub(crate) fn too_many(refused: TooManyRequests) -> Self {
        let detail = "the caller's address has used up its share of requests";
        let wait = retry_after_passed_on(refused.retry_after, &mut ThreadRng);
        Self {
            retry_after: Some(wait),
            quota: Some(Quota { name: "address", rate: refused.rate }),
            ..Self::downstream(StatusCode::TOO_MANY_REQUESTS, "quota-exceeded", detail)
        }
    }

    /// A call that gave no answer.
    pub(crate) fn of_call(done: &Done, owner: bool) -> Self {
        let (status, code, detail, source) = meaning(done);
        let class = done.outcome.class();
        let stop = owner && done.stop.says_stop(&done.outcome);
        // The code alone tells some callers to stop, so it goes with the header.
        let gave_up = source == "upstream" || done.outcome.cause() == Cause::BreakerOpen;
        let code = if stop && gave_up { "dependency-unavailable" } else { code };
        let asked = match done.outcome.retry_after() {
            RetryAfter::Wait(wait) | RetryAfter::Slot(wait) | RetryAfter::Pushback(wait) => {
                Some(wait)
            }
            _ => None,
        };
        let wait = done.retry_after.or(asked).or(match status {
            StatusCode::SERVICE_UNAVAILABLE => Some(Duration::from_secs(1)),
            _ => None,
        });
        Self {
            status,
            code,
            detail,
            source,
            maybe_sent: class == Class::Unknown,
            retry_after: wait.map(|wait| retry_after_passed_on(wait, &mut ThreadRng)),
            stop,
            attempts: done.attempts,
            quota: None,
        }
    }

    /// Builds the answer and hands the exchange to its body.
    pub(crate) fn answer(self, mut exchange: Box<Exchange>) -> Response<Body> {
        if exchange.grpc.is_some() {
            return grpc::refuse(&self, exchange);
        }
        let text = serde_json::json!({
            "title": self.status.canonical_reason().unwrap_or("problem"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
            "source": self.source,
            "sent": if self.maybe_sent { "maybe" } else { "nothing" },
            "request_id": exchange.request_id().to_str().unwrap_or_default(),
        });
        let body = Bytes::from(text.to_string());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(&SEAWALL_PROBLEM, HeaderValue::from_static(self.code));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(quota) = self.quota {
            quota.tell(&mut headers, self.retry_after.unwrap_or_default());
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static(ALLOWED));
        }
        let answered = Answered {
            version: None,
            switches: false,
            attempts: self.attempts,
            stop: self.stop,
            request_id: &exchange.request_id(),
        };
        exchange.gateway.fields.to_downstream(&mut headers, &answered);
        edit(&exchange, &mut headers);
        exchange.status = self.status.as_u16();
        exchange.completion.get_or_insert(Completion::Refused);
        let mut response = Response::new(Body::full(body, exchange));
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }
}

/// Answers a request that routes would take with one of the `allowed` methods.
pub(crate) fn other_methods(allowed: &str, exchange: Box<Exchange>) -> Response<Body> {
    let detail = "no route takes this method";
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let problem = ProblemAnswer::downstream(status, "method-not-allowed", detail);
    let mut response = problem.answer(exchange);
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

/// What the request's route does to the fields of an answer, of one made here.
fn edit(exchange: &Exchange, headers: &mut HeaderMap) {
    let route = exchange.route.and_then(|index| exchange.gateway.config.routes.get(index));
    if let Some(route) = route {
        route.response_headers.apply_to_own(headers);
    }
}

/// Answers an OPTIONS that may go no further than here.
pub(crate) fn options(mut exchange: Box<Exchange>) -> Response<Body> {
    let mut headers = HeaderMap::new();
    headers.insert(ALLOW, HeaderValue::from_static(ALLOWED));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
    let answered = Answered {
        version: None,
        switches: false,
        attempts: 0,
        stop: false,
        request_id: &exchange.request_id(),
    };
    exchange.gateway.fields.to_downstream(&mut headers, &answered);
    exchange.status = StatusCode::OK.as_u16();
    exchange.completion = Some(Completion::Refused);
    let mut response = Response::new(Body::full(Bytes::new(), exchange));
    *response.headers_mut() = headers;
    response
}

/// What a call that gave no answer is called towards its caller.
fn meaning(done: &Done) -> (StatusCode, &'static str, &'static str, &'static str) {
    match (done.stop, done.outcome.cause()) {
        (_, Cause::UploadFailed) => {
            (StatusCode::BAD_REQUEST, "upload-failed", "the request body broke off", "downstream")
        }
        (_, Cause::BreakerOpen) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "breaker-open",
            "the breaker of every endpoint is open",
            "internal",
        ),
        (_, Cause::BulkheadFull | Cause::StreamsFull) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "as many calls as allowed are in flight",
            "internal",
        ),
        (_, Cause::RateLimited) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "rate-limited",
            "as much as the upstream takes in this time was sent",
            "internal",
        ),
        (_, Cause::QuotaExceeded) => (
            StatusCode::TOO_MANY_REQUESTS,
            "quota-exceeded",
            "the caller has used up its share of what may be sent",
            "downstream",
        ),
        (_, Cause::CheckoutTimeout) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "checkout-timeout",
            "no connection to the upstream was free in time",
            "internal",
        ),
        (_, Cause::DeadlinePassed | Cause::DeadlineCut) | (StopReason::Deadline, _) => (
            StatusCode::GATEWAY_TIMEOUT,
            "deadline-passed",
            "no answer before the deadline",
            "internal",
        ),
        (_, Cause::AttemptTimeout) => (
            StatusCode::GATEWAY_TIMEOUT,
            "upstream-timeout",
            "the upstream did not answer in time",
            "upstream",
        ),
        (_, cause) if matches!(cause.class(), Class::NotProcessed) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "upstream-unreachable",
            "the upstream could not be reached",
            "upstream",
        ),
        // Too long to be kept while a retry was waited for that then was not made.
        (_, cause @ (Cause::Status(_) | Cause::Grpc(_))) => {
            let detail = "the upstream answered with an error";
            (status_of(cause), "upstream-failed", detail, "upstream")
        }
        _ => (
            StatusCode::BAD_GATEWAY,
            "upstream-broke",
            "the upstream broke off before its answer",
            "upstream",
        ),
    }
}

/// The status of an answer that was not kept.
fn status_of(cause: Cause) -> StatusCode {
    let Cause::Status(status) = cause else { return StatusCode::BAD_GATEWAY };
    StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// The refusal an ended call counts as, if nothing was sent for it.
pub(crate) const fn refusal_of(done: &Done) -> Option<metrics::Refusal> {
    if done.attempts > 0 {
        return None;
    }
    match done.outcome.cause() {
        Cause::BreakerOpen => Some(metrics::Refusal::BreakerOpen),
        Cause::BulkheadFull => Some(metrics::Refusal::BulkheadFull),
        Cause::RateLimited => Some(metrics::Refusal::RateLimited),
        Cause::QuotaExceeded => Some(metrics::Refusal::QuotaExceeded),
        Cause::StreamsFull => Some(metrics::Refusal::StreamsFull),
        Cause::CheckoutTimeout => Some(metrics::Refusal::CheckoutTimeout),
        Cause::DeadlinePassed => Some(metrics::Refusal::DeadlinePassed),
        _ => None,
    }
}

/// The completion of a call that gave no answer.
pub(crate) const fn completion_of(done: &Done) -> Completion {
    match done.outcome.class() {
        Class::RefusedHere => match done.outcome.cause() {
            Cause::DeadlinePassed => Completion::Timeout,
            _ => Completion::Refused,
        },
        Class::Unknown => match done.outcome.cause() {
            Cause::AttemptTimeout | Cause::DeadlineCut => Completion::Timeout,
            _ => Completion::UpstreamBroke,
        },
        Class::Cancelled => Completion::CallerLeft,
        _ => Completion::UpstreamBroke,
    }
}

/// The route's fallback, if it stands in for how this call ended.
pub(crate) fn fallback_of<'a>(route: &'a Route, done: &Done) -> Option<&'a Fallback> {
    let fallback = route.fallback.as_ref()?;
    let cause = done.outcome.cause();
    let failed = match done.outcome.class() {
        Class::Success | Class::Rejected | Class::Cancelled => false,
        Class::RefusedHere | Class::NotProcessed | Class::Unknown => true,
        Class::Overloaded => cause != Cause::Status(429),
    };
    let stands_in = |on: &FallbackOn| match on {
        FallbackOn::Failure => failed,
        FallbackOn::Stopped(reason) => failed && *reason == done.stop,
        FallbackOn::Status(status) => cause == Cause::Status(*status),
    };
    fallback.on.iter().any(stands_in).then_some(fallback)
}

/// Answers with a fallback, marked in header, log and metric.
pub(crate) fn degraded(
    fallback: &Fallback,
    done: &Done,
    mut exchange: Box<Exchange>,
) -> Response<Body> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, fallback.content_type.clone());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(fallback.body.len()));
    headers.insert(&SEAWALL_DEGRADED, HeaderValue::from_static(done.stop.as_str()));
    let answered = Answered {
        version: None,
        switches: false,
        attempts: done.attempts,
        stop: false,
        request_id: &exchange.request_id(),
    };
    exchange.gateway.fields.to_downstream(&mut headers, &answered);
    edit(&exchange, &mut headers);
    exchange.status = fallback.status.as_u16();
    exchange.degraded = true;
    exchange.completion = Some(Completion::Fallback);
    let mut response = Response::new(Body::full(fallback.body.clone(), exchange));
    *response.status_mut() = fallback.status;
    *response.headers_mut() = headers;
    response
}

/// Replaces an upstream's Retry-After by one jittered upward, in seconds. One that cannot be read
/// passes as it came.
pub(crate) fn jitter_retry_after(headers: &mut HeaderMap, outcome: &Outcome) {
    if !headers.contains_key(RETRY_AFTER) {
        return;
    }
    if let RetryAfter::Wait(wait) = outcome.retry_after() {
        let seconds = retry_after_passed_on(wait, &mut ThreadRng);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// The common methods; any other but CONNECT is passed on, too.
const ALLOWED: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";
