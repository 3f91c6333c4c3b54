//! gRPC through the gateway: what a call states, what goes on, and what its caller is told.
//!
//! A request is gRPC if it came over HTTP/2 as a POST of `application/grpc`. The gateway reads no
//! message; it reads heads and trailers, and counts messages by their frames' lengths to tell a
//! stream from a single answer.
//!
//! `grpc-timeout` bounds a whole call, where our own times end at the head. So what the caller
//! stated goes on, less what our way back takes, but our own limits only where the route says that
//! its calls do not stream: a server would end a stream by them.

mod answer;
mod flow;

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use seawall::{GrpcClassify, GrpcCode, is_grpc, read_grpc_status};
use seawall_policy::{
    AnswerSignals, Cause, Outcome, Problem, Safety, Timestamp, grpc_timeout_to_send,
    parse_grpc_timeout,
};

use crate::config::{Grpc, GrpcStreaming};
use crate::exchange::Exchange;
use crate::gateway::Gateway;
use crate::headers::Stated;
use crate::metrics::{IgnoredBecause, IgnoredHeader};

pub(crate) use answer::{not_grpc, refuse, stop_answer};
pub(crate) use flow::Flow;

/// What is known of a gRPC call beside its exchange.
#[derive(Debug, Default)]
pub(crate) struct GrpcCall {
    /// When the whole call is over, by the caller's `grpc-timeout`; the margin is off it already.
    pub(crate) deadline: Option<Timestamp>,
    /// The code its caller got, if it is one of the seventeen.
    pub(crate) code: Option<GrpcCode>,
    /// What the status after the head said.
    pub(crate) settled: Option<Outcome>,
}

/// Whether a request is one.
pub(crate) fn is_call(parts: &http::request::Parts) -> bool {
    parts.version == Version::HTTP_2 && parts.method == Method::POST && is_grpc(&parts.headers)
}

/// Whether an answer is one to such a request.
pub(crate) fn is_answer<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::OK && is_grpc(response.headers())
}

/// When our answer must leave by a `grpc-timeout`, which is noted for the whole call, too.
pub(crate) fn read_timeout(
    gateway: &Gateway,
    exchange: &mut Exchange,
    stated: &Stated,
) -> Option<Timestamp> {
    let call = exchange.grpc.as_mut()?;
    let Some(time) = parse_grpc_timeout(stated.grpc_timeout.as_ref()?.as_bytes()) else {
        gateway.metrics.ignored_header(IgnoredHeader::GrpcTimeout, IgnoredBecause::Malformed);
        return None;
    };
    call.deadline = Some(exchange.arrival.after(time.saturating_sub(gateway.margin())));
    call.deadline
}

/// The attempt number that `grpc-previous-rpc-attempts` states.
pub(crate) fn read_attempt(gateway: &Gateway, stated: &Stated) -> Option<u32> {
    let value = stated.grpc_attempts.as_ref()?;
    let earlier = value.to_str().ok().and_then(|value| value.parse::<u32>().ok());
    let because = match earlier {
        Some(earlier) if earlier < MOST_ATTEMPTS => return Some(earlier + 1),
        Some(_) => IgnoredBecause::OutOfRange,
        None => IgnoredBecause::Malformed,
    };
    gateway.metrics.ignored_header(IgnoredHeader::GrpcAttempts, because);
    None
}

/// How safe a call is to make twice: every one is a POST, so only its route or its key says so.
pub(crate) const fn safety(by_method: Safety, rules: &Grpc) -> Safety {
    if rules.idempotent { Safety::Idempotent } else { by_method }
}

/// A call as each attempt of it states it.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) rules: Grpc,
    /// When the whole call is over, by the caller's word.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) classify: GrpcClassify,
}

impl Outgoing {
    pub(crate) fn new(rules: Grpc, deadline: Option<Timestamp>) -> Self {
        let codes = GrpcCode::ALL.into_iter().filter(|code| rules.retry_on.contains(*code));
        Self { rules, deadline, classify: GrpcClassify::new().retry_on(codes) }
    }

    /// States the time and the number of an attempt; `left` are the milliseconds to its head.
    pub(crate) fn stamp(
        &self,
        fields: &mut HeaderMap,
        now: Timestamp,
        left: Option<u64>,
        number: u32,
    ) {
        let by_caller = self.deadline.map(|deadline| now.until(deadline));
        let time = match self.rules.streaming {
            GrpcStreaming::Never => {
                let own = Duration::from_millis(left.unwrap_or(0));
                Some(by_caller.map_or(own, |by_caller| by_caller.min(own)))
            }
            GrpcStreaming::Auto | GrpcStreaming::Always => by_caller,
        };
        if let Some((number, unit)) = time.and_then(grpc_timeout_to_send)
            && let Ok(value) = HeaderValue::try_from(format!("{number}{unit}"))
        {
            fields.insert(GRPC_TIMEOUT, value);
        }
        if number > 1 {
            fields.insert(GRPC_ATTEMPTS, HeaderValue::from(number - 1));
        }
    }

    /// What a head means. A code that says the time was up is no sign of illness where the time
    /// was the caller's.
    pub(crate) fn of_head<B>(&self, response: &Response<B>, is_callers_time: bool) -> Outcome {
        let outcome = self.classify.of_head(response);
        if outcome.cause() == Cause::Grpc(GrpcCode::DeadlineExceeded) && is_callers_time {
            return self.in_callers_time(outcome);
        }
        let answers = is_answer(response) && read_grpc_status(response.headers()).is_none();
        if answers { outcome.awaiting_status() } else { outcome }
    }

    fn in_callers_time(&self, outcome: Outcome) -> Outcome {
        let problem = Some(Problem::DeadlinePassed);
        let retry_after = outcome.retry_after();
        let signals = AnswerSignals { retry_after, stop: outcome.says_stop(), problem };
        let code = GrpcCode::DeadlineExceeded;
        match self.rules.retry_on.contains(code) {
            true => Outcome::of_grpc(code, signals).declared_retryable(),
            false => Outcome::of_grpc(code, signals),
        }
    }

    /// What an end without an answer means: to its caller a connection that breaks is UNAVAILABLE,
    /// so a route that declares this code declares that, too.
    pub(crate) fn of_end(&self, cause: Cause) -> Outcome {
        let outcome = Outcome::of(cause);
        let breaks = matches!(cause, Cause::Closed | Cause::Reset);
        match breaks && self.rules.retry_on.contains(GrpcCode::Unavailable) {
            true => outcome.declared_retryable(),
            false => outcome,
        }
    }
}

/// The time a whole call may take. Source: grpc-http2.
pub(crate) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Attempts made before this one. Source: grpc-a6.
pub(crate) const GRPC_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// More are a mistake, not a count.
const MOST_ATTEMPTS: u32 = 1_000;

/// The fields every answer of ours begins with.
fn trailers_only(code: GrpcCode, message: &str) -> HeaderMap {
    let mut fields = status_fields(code, message);
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    fields
}

/// A status, in a head or among trailers.
fn status_fields(code: GrpcCode, message: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(GRPC_STATUS, HeaderValue::from(code.number()));
    let message = percent_encoding::utf8_percent_encode(message, ESCAPED).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        fields.insert(GRPC_MESSAGE, message);
    }
    fields
}

/// What is escaped in `grpc-message`: all but printable ASCII, and the percent sign itself.
/// Source: grpc-http2.
const ESCAPED: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'%');

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(streaming: GrpcStreaming, deadline: Option<u64>) -> Outgoing {
        let rules = Grpc { streaming, ..Grpc::default() };
        Outgoing::new(rules, deadline.map(Timestamp::from_millis))
    }

    fn stamped(streaming: GrpcStreaming, deadline: Option<u64>, left: Option<u64>) -> String {
        let mut fields = HeaderMap::new();
        let now = Timestamp::from_millis(1_000);
        outgoing(streaming, deadline).stamp(&mut fields, now, left, 1);
        assert!(!fields.contains_key(GRPC_ATTEMPTS), "a first attempt has none before it");
        let value = fields.get(GRPC_TIMEOUT).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    }

    #[test]
    fn our_own_limit_is_stated_only_for_calls_that_do_not_stream() {
        use GrpcStreaming::*;
        assert_eq!(stamped(Auto, None, Some(500)), "");
        assert_eq!(stamped(Always, None, Some(500)), "");
        assert_eq!(stamped(Never, None, Some(500)), "500m");
        assert_eq!(stamped(Auto, Some(61_000), Some(500)), "60000m");
        assert_eq!(stamped(Never, Some(61_000), Some(500)), "500m");
        assert_eq!(stamped(Never, Some(1_200), Some(500)), "200m");
    }

    #[test]
    fn attempts_before_this_one_are_stated() {
        let mut fields = HeaderMap::new();
        let now = Timestamp::from_millis(1_000);
        outgoing(GrpcStreaming::Auto, None).stamp(&mut fields, now, None, 3);
        assert_eq!(fields[GRPC_ATTEMPTS], "2");
    }

    #[test]
    fn a_message_is_escaped_and_reads_back() {
        let fields = trailers_only(GrpcCode::Unavailable, "100 % full,\nsorry ✓");
        assert_eq!(fields[GRPC_STATUS], "14");
        assert_eq!(fields[GRPC_MESSAGE], "100 %25 full,%0Asorry %E2%9C%93");
    }

    #[test]
    fn the_callers_own_time_is_not_the_upstreams_illness() {
        let mut response = Response::new(());
        *response.headers_mut() = trailers_only(GrpcCode::DeadlineExceeded, "");
        let outgoing = outgoing(GrpcStreaming::Auto, None);
        let signal = |callers| outgoing.of_head(&response, callers).breaker_signal();
        assert_eq!(signal(true), seawall_policy::Signal::Ignore);
        assert_eq!(signal(false), seawall_policy::Signal::Failure);
    }

    #[test]
    fn a_head_without_a_status_is_judged_later_and_what_is_not_grpc_at_once() {
        let outgoing = outgoing(GrpcStreaming::Auto, None);
        let mut response = Response::new(());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        assert!(outgoing.of_head(&response, false).awaits_status());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let outcome = outgoing.of_head(&response, false);
        assert_eq!((outcome.awaits_status(), outcome.cause()), (false, Cause::Status(503)));
    }

    #[test]
    fn a_broken_connection_is_declared_with_unavailable() {
        let retry_on = [GrpcCode::Unavailable].into_iter().collect();
        let declared = Outgoing::new(Grpc { retry_on, ..Grpc::default() }, None);
        assert!(declared.of_end(Cause::Reset).is_declared_retryable());
        assert!(!declared.of_end(Cause::AttemptTimeout).is_declared_retryable());
        let plain = outgoing(GrpcStreaming::Auto, Some(1));
        assert!(!plain.of_end(Cause::Reset).is_declared_retryable());
    }
}
