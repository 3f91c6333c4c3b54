//! What a result means: the rules by which answers and errors become [`Outcome`]s.
//!
//! Header names, all compared without case:
//!
//! | header | read as |
//! |---|---|
//! | `Retry-After` | seconds or a date; of several fields the longest usable one |
//! | `Date` | what a `Retry-After` date is measured against |
//! | `Seawall-Slot-Ms` | a reserved slot, in milliseconds; goes before `Retry-After` |
//! | `Seawall-Retry` | `no`: nobody should try again |
//! | `Seawall-Problem` | why: `dependency-unavailable`, `overloaded-do-not-retry`, `deadline-passed` |

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use seawall_policy::{AnswerSignals, Cause, Outcome, Problem, RetryAfter, StopReason};

use crate::clock::Clock;
use crate::rules::{BodySeen, HttpRules, Meaning, Ruled};

/// Says what the result of an attempt means.
///
/// Every closure `Fn(Result<&Res, &Err>) -> Outcome` is one.
pub trait Classify<Res, Err> {
    /// The outcome of one attempt.
    fn classify(&self, result: Result<&Res, &Err>) -> Outcome;

    /// Leaves a note on the response of a finished call. Default: none.
    fn annotate(&self, _response: &mut Res, _summary: &Summary) {}
}

impl<Res, Err, F> Classify<Res, Err> for F
where
    F: Fn(Result<&Res, &Err>) -> Outcome,
{
    fn classify(&self, result: Result<&Res, &Err>) -> Outcome {
        self(result)
    }
}

/// How a call came about; [`HttpClassify`] puts it among the response's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Attempts that were sent.
    pub attempts: u32,
    /// Other endpoints tried at once, beside the attempts.
    pub redispatches: u32,
    /// Why the call ended.
    pub stop: StopReason,
    /// The last attempt's outcome.
    pub outcome: Outcome,
}

/// Classifies an HTTP answer by its rules, if it has any, its status and headers (see the module),
/// and an error by `M`.
#[derive(Clone, Debug)]
pub struct HttpClassify<M = TransportErrors> {
    errors: M,
    rules: HttpRules,
    clock: Clock,
}

impl HttpClassify {
    /// With [`TransportErrors`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_errors(TransportErrors)
    }
}

impl Default for HttpClassify {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> HttpClassify<M> {
    /// With rules of your own for errors: a closure `Fn(&E) -> Cause`, or an [`ErrorCause`].
    #[must_use]
    pub fn with_errors(errors: M) -> Self {
        Self { errors, rules: HttpRules::default(), clock: Clock::new() }
    }

    /// With rules on answers whose status does not say what they mean.
    ///
    /// A rule on the body is met only where somebody has the body: [`outcome_of`](Self::outcome_of)
    /// in a closure of your own. The body of an answer that still flows is not looked at.
    ///
    /// ```
    /// use seawall::{HttpClassify, HttpRule, HttpRules, Meaning};
    /// let busy = HttpRule::new(Meaning::Overloaded).status(200..=200).json("/code", ["5031"]);
    /// let rules = HttpClassify::new().with_rules(HttpRules::new([busy])?);
    /// let answer = http::Response::new(bytes::Bytes::from_static(br#"{"code": 5031}"#));
    /// let outcome = rules.outcome_of(answer.status(), answer.headers(), answer.body());
    /// assert_eq!(outcome.class(), seawall::Class::Overloaded);
    /// # Ok::<(), seawall::ConfigError>(())
    /// ```
    #[must_use]
    pub fn with_rules(self, rules: HttpRules) -> Self {
        Self { rules, ..self }
    }

    /// The rules on answers.
    #[must_use]
    pub const fn rules(&self) -> &HttpRules {
        &self.rules
    }

    /// The outcome of a whole answer.
    #[must_use]
    pub fn outcome_of(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Outcome {
        self.outcome_of_ruled(
            status,
            headers,
            self.rules.judge(status, headers, BodySeen::Whole(body)),
        )
    }

    /// The outcome of an answer of which the rules say `ruled`.
    #[must_use]
    pub fn outcome_of_ruled(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        ruled: Ruled,
    ) -> Outcome {
        // Only an error says when to come back, and whether to.
        let means = match ruled {
            Ruled::Means(means, _) => Some(means),
            Ruled::ByStatus | Ruled::NeedsBody => None,
        };
        let speaks = match means {
            Some(means) => means != Meaning::Success,
            None => status.is_client_error() || status.is_server_error(),
        };
        let signals = if speaks { self.signals(headers) } else { AnswerSignals::default() };
        let outcome = Outcome::of_status(status.as_u16(), signals);
        means.map_or(outcome, |means| outcome.with_class(means.class()))
    }

    /// What an answer's headers say beside its status.
    #[must_use]
    pub fn signals(&self, headers: &HeaderMap) -> AnswerSignals {
        let value = |name| headers.get(name).map(http::HeaderValue::as_bytes);
        let slot = value(SLOT).and_then(RetryAfter::parse_slot);
        let retry_after = slot.unwrap_or_else(|| {
            if !headers.contains_key(RETRY_AFTER) {
                return RetryAfter::Absent;
            }
            let fields = headers.get_all(RETRY_AFTER).iter().map(http::HeaderValue::as_bytes);
            let date = headers.get(DATE).map(http::HeaderValue::as_bytes);
            RetryAfter::parse(fields, date, self.clock.wall())
        });
        let stop = value(RETRY).is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"no"));
        AnswerSignals { retry_after, stop, problem: value(PROBLEM).and_then(Problem::parse) }
    }
}

impl<M> HttpClassify<M> {
    /// What an error means.
    pub(crate) fn outcome_of_error<E>(&self, error: &E) -> Outcome
    where
        M: ErrorCause<E>,
    {
        Outcome::of(self.errors.cause(error))
    }
}

impl<B, Err, M: ErrorCause<Err>> Classify<http::Response<B>, Err> for HttpClassify<M> {
    fn classify(&self, result: Result<&http::Response<B>, &Err>) -> Outcome {
        match result {
            Ok(response) => {
                let (status, headers) = (response.status(), response.headers());
                let ruled = self.rules.judge(status, headers, BodySeen::Unreadable);
                self.outcome_of_ruled(status, headers, ruled)
            }
            Err(error) => self.outcome_of_error(error),
        }
    }

    fn annotate(&self, response: &mut http::Response<B>, summary: &Summary) {
        response.extensions_mut().insert(*summary);
    }
}

/// Says what an error of a transport means. Every closure `Fn(&E) -> Cause` is one.
pub trait ErrorCause<E> {
    /// The cause to classify by.
    fn cause(&self, error: &E) -> Cause;
}

impl<E, F: Fn(&E) -> Cause> ErrorCause<E> for F {
    fn cause(&self, error: &E) -> Cause {
        self(error)
    }
}

/// Looks for an [`io::Error`] among an error's sources: a refused or unreachable connection was
/// never made, a reset or closed one may have carried the request. Anything else is
/// [`Cause::Unmatched`], hence *unknown*: tried again only where a second execution is harmless.
///
/// This crate writes no log. That an error was unmatched is seen in the cause of the outcome, in
/// [`Report`](crate::Report) or [`Summary`] (`outcome.cause().as_str()` is `unmatched`), beside
/// the error itself, which a call gives back unchanged: count these by the error's type, and give
/// the ones that come a cause of their own with [`HttpClassify::with_errors`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TransportErrors;

impl<E: StdError + 'static> ErrorCause<E> for TransportErrors {
    fn cause(&self, error: &E) -> Cause {
        cause_among_sources(Some(error))
    }
}

/// The cause of the first [`io::Error`] among an error and its sources.
pub(crate) fn cause_among_sources(mut source: Option<&(dyn StdError + 'static)>) -> Cause {
    for _ in 0..MOST_SOURCES {
        let Some(error) = source else { break };
        if let Some(error) = as_io(error) {
            return cause_of_io(error);
        }
        source = error.source();
    }
    Cause::Unmatched
}

/// The I/O error that an error is, or holds in an `Arc`, as clients do whose errors are `Clone`:
/// such an error is of the type `Arc<dyn Error>`, and what it holds is none of its sources.
pub(crate) fn as_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let shared = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>();
    error.downcast_ref().or_else(|| shared?.downcast_ref())
}

/// What an I/O error means where nobody knows whether it came before or after sending.
pub(crate) fn cause_of_io(error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::ConnectRefused,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => Cause::ConnectFailed,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Cause::Reset,
        io::ErrorKind::ConnectionAborted | io::ErrorKind::UnexpectedEof => Cause::Closed,
        io::ErrorKind::InvalidData => Cause::Malformed,
        _ if error.to_string().starts_with(NO_SUCH_NAME) => Cause::Dns,
        _ => Cause::Unmatched,
    }
}

/// The first error of this type among an error and its sources.
#[cfg(feature = "hyper")]
pub(crate) fn find<'a, E: StdError + 'static>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a E> {
    let mut next = Some(error);
    for _ in 0..MOST_SOURCES {
        let error = next?;
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What an attempt that the engine itself refused means: nothing was sent, it is nobody's failure,
/// and no attempt follows.
pub(crate) fn refused_change() -> Outcome {
    Outcome::of(Cause::UploadFailed).with_class(seawall_policy::Class::RefusedHere)
}

/// How the standard library says that a name did not resolve; such an error has no kind.
const NO_SUCH_NAME: &str = "failed to lookup address information";
/// A chain of sources longer than this is taken for a loop.
const MOST_SOURCES: usize = 16;
const SLOT: &str = "seawall-slot-ms";
const RETRY: &str = "seawall-retry";
const PROBLEM: &str = "seawall-problem";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use seawall_policy::Class;

    fn signals(headers: &[(&'static str, &'static str)]) -> AnswerSignals {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        HttpClassify::new().signals(&map)
    }

    #[test]
    fn a_slot_goes_before_a_retry_after_and_garbage_leaves_it_in_force() {
        let both = signals(&[("retry-after", "30"), ("seawall-slot-ms", "1500")]);
        assert_eq!(both.retry_after, RetryAfter::Slot(Duration::from_millis(1500)));
        let garbage = signals(&[("retry-after", "30"), ("seawall-slot-ms", "banana")]);
        assert_eq!(garbage.retry_after, RetryAfter::Wait(Duration::from_secs(30)));
        assert_eq!(signals(&[]).retry_after, RetryAfter::Absent);
        assert_eq!(signals(&[("retry-after", "banana")]).retry_after, RetryAfter::Unusable);
        let doubled = signals(&[("retry-after", "3"), ("retry-after", "7")]);
        assert_eq!(doubled.retry_after, RetryAfter::Wait(Duration::from_secs(7)));
    }

    #[test]
    fn a_retry_after_date_is_measured_against_the_answers_own_date() {
        let dated = signals(&[
            ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"),
        ]);
        assert_eq!(dated.retry_after, RetryAfter::Wait(Duration::from_secs(10)));
    }

    #[test]
    fn only_no_stops_and_a_known_problem_explains() {
        assert!(signals(&[("seawall-retry", "No")]).stop);
        assert!(!signals(&[("seawall-retry", "yes")]).stop);
        let problem = signals(&[("seawall-problem", "dependency-unavailable")]).problem;
        assert_eq!(problem, Some(Problem::DependencyUnavailable));
    }

    #[test]
    fn an_io_error_deep_among_the_sources_is_found() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let cause = |kind| TransportErrors.cause(&Outer(io::Error::from(kind)));
        assert_eq!(cause(io::ErrorKind::ConnectionRefused), Cause::ConnectRefused);
        assert_eq!(cause(io::ErrorKind::ConnectionReset), Cause::Reset);
        assert_eq!(cause(io::ErrorKind::UnexpectedEof), Cause::Closed);
        assert_eq!(cause(io::ErrorKind::OutOfMemory), Cause::Unmatched);
        assert_eq!(TransportErrors.cause(&std::fmt::Error), Cause::Unmatched);
    }

    #[test]
    fn an_io_error_that_is_shared_among_clones_is_found() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] Arc<dyn StdError + Send + Sync>);
        let refused = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(TransportErrors.cause(&Outer(refused)), Cause::ConnectRefused);
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_was_sent_nothing() {
        // No name is that long: nobody is asked.
        let name = "a".repeat(64);
        let error = tokio::net::lookup_host((name.as_str(), 80)).await.err().unwrap();
        assert_eq!(TransportErrors.cause(&error), Cause::Dns);
    }

    #[test]
    fn an_error_that_no_rule_matches_is_unknown_and_says_so() {
        let rules = HttpClassify::new();
        let result: Result<&http::Response<()>, _> = Err(&std::fmt::Error);
        let outcome = rules.classify(result);
        assert_eq!((outcome.class(), outcome.cause().as_str()), (Class::Unknown, "unmatched"));
    }

    #[test]
    fn a_refused_change_is_no_failure_of_the_dependency() {
        let outcome = refused_change();
        assert_eq!(outcome.class(), Class::RefusedHere);
        assert_eq!(outcome.breaker_signal(), seawall_policy::Signal::Ignore);
        assert!(!outcome.deposits());
    }
}
