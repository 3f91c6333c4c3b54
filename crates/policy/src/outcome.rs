//! Decides what an ended attempt says: about retrying it, and about the dependency.
//!
//! The two questions have different answers, and mixing them is the commonest fault in the field:
//! a `404` is final for the caller and a sign of health for the breaker; a refused connection is
//! safe to retry and a sign of illness; a caller that left says nothing at all.
//!
//! | class | what is known | retried | breaker | budget |
//! |---|---|---|---|---|
//! | success | answered | no | success | deposits |
//! | refused here | we refused, nothing was sent | no | ignore | – |
//! | not processed | proven: no work was begun | any method | failure¹ | – |
//! | rejected | the dependency decided against it | no² | success | deposits |
//! | overloaded | it asks for less | 429 any method, else idempotent or keyed | failure⁴ | – |
//! | unknown | it may have been executed | idempotent or keyed | failure³ | – |
//! | cancelled | the caller left, or another attempt was faster | no | ignore | – |
//!
//! ¹ a message handed back, REFUSED_STREAM and GOAWAY are *ignore*: a closing connection is not a
//!   sick dependency. ² 409 with a usable Retry-After, if keyed. ³ cut by the caller's deadline
//!   before the slow threshold: *ignore*, also when the next hop cut it and says `deadline-passed`.
//! ⁴ 429 and a conflict: success, it works.

mod signals;

use crate::grpc::GrpcCode;
use crate::retry_after::RetryAfter;

pub use signals::{AnswerSignals, Problem};

/// What is known about an ended attempt. See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Answered as asked.
    Success,
    /// Refused by a policy of this process; nothing was sent.
    RefusedHere,
    /// Proven not to have been processed.
    NotProcessed,
    /// Answered with a decision against the request.
    Rejected,
    /// Answered with "not now".
    Overloaded,
    /// May or may not have been executed.
    Unknown,
    /// The caller left first.
    Cancelled,
}

impl Class {
    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RefusedHere => "refused_here",
            Self::NotProcessed => "not_processed",
            Self::Rejected => "rejected",
            Self::Overloaded => "overloaded",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The event an outcome was classified from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An answer with this status.
    Status(u16),
    /// A gRPC call that ended with this code.
    Grpc(GrpcCode),
    /// A call outside HTTP that returned a value.
    Answered,
    /// An error the user's rules call final (a business error).
    BusinessError,
    /// Outside HTTP: the dependency said that it takes no work now, and did none.
    Unavailable,
    /// Outside HTTP: the work was undone in favour of somebody else's (a deadlock, two transactions
    /// that cannot be put in an order).
    Conflict,
    /// The name did not resolve, or not in time.
    Dns,
    /// The connection was refused.
    ConnectRefused,
    /// The connection could not be made for another reason.
    ConnectFailed,
    /// The connection, or the protocol's preface on it, was not made in time.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The transport gave the message back before a byte of it was written.
    HandedBack,
    /// HTTP/2 REFUSED_STREAM.
    RefusedStream,
    /// HTTP/2 GOAWAY with a last stream id below ours.
    GoAway,
    /// No answer within the attempt timeout.
    AttemptTimeout,
    /// The caller's deadline, or the total timeout, ended the attempt before its own timeout.
    DeadlineCut,
    /// The connection closed before the response head, after sending.
    Closed,
    /// The connection or stream was reset before the response head, after sending.
    Reset,
    /// The answer was not valid in its protocol.
    Malformed,
    /// The caller left.
    CallerLeft,
    /// Another attempt of the call, in flight at the same time, answered first.
    Outrun,
    /// The request body failed or stalled on its way from the caller; says nothing about the
    /// dependency.
    UploadFailed,
    /// An error that no rule matches.
    Unmatched,
    /// The breaker is open.
    BreakerOpen,
    /// More would be sent to the dependency than its rate allows.
    RateLimited,
    /// The call's key has used up its own rate.
    QuotaExceeded,
    /// The bulkhead is full.
    BulkheadFull,
    /// No connection was to be had in time.
    CheckoutTimeout,
    /// The deadline had passed, or could not be met, before anything was sent.
    DeadlinePassed,
    /// The limit on long-lived streams is reached.
    StreamsFull,
}

impl Cause {
    /// The label used in metrics and logs; statuses share one, their number is a field of its own.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Grpc(_) => "grpc",
            Self::Answered => "answered",
            Self::BusinessError => "business_error",
            Self::Unavailable => "unavailable",
            Self::Conflict => "conflict",
            Self::Dns => "dns",
            Self::ConnectRefused => "connect_refused",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls => "tls",
            Self::HandedBack => "handed_back",
            Self::RefusedStream => "refused_stream",
            Self::GoAway => "goaway",
            Self::AttemptTimeout => "attempt_timeout",
            Self::DeadlineCut => "deadline_cut",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
            Self::CallerLeft => "caller_left",
            Self::Outrun => "outrun",
            Self::UploadFailed => "upload_failed",
            Self::Unmatched => "unmatched",
            Self::BreakerOpen => "breaker_open",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::BulkheadFull => "bulkhead_full",
            Self::CheckoutTimeout => "checkout_timeout",
            Self::DeadlinePassed => "deadline_passed",
            Self::StreamsFull => "streams_full",
        }
    }

    /// The class of an event that is not an answer; answers go through [`Outcome::of_status`].
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Status(status) => class_of_status(status),
            Self::Grpc(code) => code.class(),
            Self::Answered => Class::Success,
            Self::BusinessError => Class::Rejected,
            Self::Conflict => Class::Overloaded,
            Self::Unavailable
            | Self::Dns
            | Self::ConnectRefused
            | Self::ConnectFailed
            | Self::ConnectTimeout
            | Self::Tls
            | Self::HandedBack
            | Self::RefusedStream
            | Self::GoAway => Class::NotProcessed,
            Self::AttemptTimeout
            | Self::DeadlineCut
            | Self::Closed
            | Self::Reset
            | Self::Malformed
            | Self::Unmatched => Class::Unknown,
            Self::CallerLeft | Self::Outrun | Self::UploadFailed => Class::Cancelled,
            Self::BreakerOpen
            | Self::RateLimited
            | Self::QuotaExceeded
            | Self::BulkheadFull
            | Self::CheckoutTimeout
            | Self::DeadlinePassed
            | Self::StreamsFull => Class::RefusedHere,
        }
    }

    /// Whether the endpoint could not be reached, or takes no work at all, which concerns every
    /// route to it.
    #[must_use]
    pub const fn is_connect_error(self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Dns
                | Self::ConnectRefused
                | Self::ConnectFailed
                | Self::ConnectTimeout
                | Self::Tls
        )
    }
}

/// What an outcome means to a mechanism that watches the dependency's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The dependency works.
    Success,
    /// The dependency does not.
    Failure,
    /// Nothing was learned.
    Ignore,
}

/// An ended attempt, classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    class: Class,
    cause: Cause,
    signals: AnswerSignals,
    declared: bool,
    awaits_status: bool,
}

impl Outcome {
    /// Classifies an answer by its status and what came with it.
    #[must_use]
    pub const fn of_status(status: u16, signals: AnswerSignals) -> Self {
        Self::new(Cause::Status(status), signals)
    }

    /// Classifies an event that is not an answer.
    #[must_use]
    pub const fn of(cause: Cause) -> Self {
        Self::new(cause, AnswerSignals::NONE)
    }

    /// Classifies a gRPC call by its code and what came with it.
    #[must_use]
    pub const fn of_grpc(code: GrpcCode, signals: AnswerSignals) -> Self {
        Self::new(Cause::Grpc(code), signals)
    }

    const fn new(cause: Cause, signals: AnswerSignals) -> Self {
        Self { class: cause.class(), cause, signals, declared: false, awaits_status: false }
    }

    /// The same outcome, which somebody has declared safe to try again whatever the method.
    #[must_use]
    pub const fn declared_retryable(self) -> Self {
        Self { declared: true, ..self }
    }

    /// The same answer, of which only the head is known: what it says about the dependency comes
    /// at its end. The call is over for its retries; nothing is learned but the time it took.
    #[must_use]
    pub const fn awaiting_status(self) -> Self {
        Self { awaits_status: true, ..self }
    }

    /// The same outcome in another class: a rule of the user on status, header and body code.
    #[must_use]
    pub const fn with_class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// What is known.
    #[must_use]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// What happened.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// When the server would like to be asked again.
    #[must_use]
    pub const fn retry_after(&self) -> RetryAfter {
        self.signals.retry_after
    }

    /// Whether the server said that nobody should try again: the header decides, and both codes
    /// that mean "stop" stand in for it.
    #[must_use]
    pub const fn says_stop(&self) -> bool {
        self.signals.stop
            || matches!(
                self.signals.problem,
                Some(Problem::DependencyUnavailable | Problem::OverloadedDoNotRetry)
            )
    }

    /// Whether somebody has declared it safe to try again whatever the method.
    #[must_use]
    pub const fn is_declared_retryable(&self) -> bool {
        self.declared
    }

    /// Whether what it says about the dependency comes later.
    #[must_use]
    pub const fn awaits_status(&self) -> bool {
        self.awaits_status
    }

    /// What a breaker makes of it.
    #[must_use]
    pub const fn breaker_signal(&self) -> Signal {
        if matches!(self.signals.problem, Some(Problem::DeadlinePassed)) {
            return Signal::Ignore;
        }
        match self.class {
            Class::Success | Class::Rejected => Signal::Success,
            Class::RefusedHere | Class::Cancelled => Signal::Ignore,
            Class::NotProcessed if self.cause.is_connect_error() => Signal::Failure,
            Class::NotProcessed => Signal::Ignore,
            Class::Overloaded
                if matches!(
                    self.cause,
                    Cause::Status(429) | Cause::Conflict | Cause::Grpc(GrpcCode::ResourceExhausted)
                ) =>
            {
                Signal::Success
            }
            Class::Unknown if matches!(self.cause, Cause::DeadlineCut) => Signal::Ignore,
            Class::Overloaded | Class::Unknown => Signal::Failure,
        }
    }

    /// Whether it adds to the retry budget: the dependency answered and did its work.
    #[must_use]
    pub const fn deposits(&self) -> bool {
        matches!(self.class, Class::Success | Class::Rejected)
    }
}

/// The class of an answer. Statuses outside 100..=599 are malformed answers and unknown.
const fn class_of_status(status: u16) -> Class {
    match status {
        100..=399 => Class::Success,
        429 | 503 => Class::Overloaded,
        502 | 504 => Class::Unknown,
        400..=599 => Class::Rejected,
        _ => Class::Unknown,
    }
}

/// Whether a second execution of a request would do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Safety {
    /// Executing it twice is the same as once (RFC 9110, section 9.2.2).
    Idempotent,
    /// Not idempotent by itself, but it carries a non-empty `Idempotency-Key`.
    Keyed,
    /// Neither.
    Unsafe,
}

impl Safety {
    /// The safety of a method, `keyed` if the request carries a non-empty `Idempotency-Key`.
    /// Methods are case-sensitive; an unknown one is unsafe.
    #[must_use]
    pub fn of_method(method: &str, keyed: bool) -> Self {
        match method {
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" => Self::Idempotent,
            _ if keyed => Self::Keyed,
            _ => Self::Unsafe,
        }
    }

    /// Whether a second execution is harmless.
    #[must_use]
    pub const fn may_repeat(self) -> bool {
        matches!(self, Self::Idempotent | Self::Keyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Outcome {
        Outcome::of_status(status, AnswerSignals::default())
    }

    #[test]
    fn every_status_falls_into_its_class() {
        for code in 0..=u16::MAX {
            let expected = match code {
                429 | 503 => Class::Overloaded,
                502 | 504 => Class::Unknown,
                100..=399 => Class::Success,
                400..=599 => Class::Rejected,
                _ => Class::Unknown,
            };
            assert_eq!(status(code).class(), expected, "{code}");
        }
    }

    #[test]
    fn the_breaker_counts_502_503_504_and_never_500_501_429() {
        for code in [502, 503, 504] {
            assert_eq!(status(code).breaker_signal(), Signal::Failure, "{code}");
        }
        for code in [200, 304, 400, 404, 409, 422, 429, 500, 501, 505] {
            assert_eq!(status(code).breaker_signal(), Signal::Success, "{code}");
        }
    }

    #[test]
    fn own_refusals_and_departures_say_nothing_about_the_dependency() {
        for cause in [
            Cause::BreakerOpen,
            Cause::RateLimited,
            Cause::QuotaExceeded,
            Cause::BulkheadFull,
            Cause::CheckoutTimeout,
            Cause::DeadlinePassed,
            Cause::StreamsFull,
            Cause::CallerLeft,
            Cause::UploadFailed,
            Cause::DeadlineCut,
            Cause::HandedBack,
            Cause::RefusedStream,
            Cause::GoAway,
        ] {
            let outcome = Outcome::of(cause);
            assert_eq!(outcome.breaker_signal(), Signal::Ignore, "{cause:?}");
            assert!(!outcome.deposits(), "{cause:?}");
        }
    }

    #[test]
    fn a_deadline_missed_further_down_is_not_the_next_hops_illness() {
        let signals =
            AnswerSignals { problem: Problem::parse(b"deadline-passed"), ..Default::default() };
        let outcome = Outcome::of_status(504, signals);
        assert_eq!(outcome.breaker_signal(), Signal::Ignore);
        assert!(!outcome.says_stop());
    }

    #[test]
    fn unavailable_is_unsent_and_ill_and_a_conflict_is_repeatable_and_healthy() {
        let unavailable = Outcome::of(Cause::Unavailable);
        assert_eq!(unavailable.class(), Class::NotProcessed);
        assert_eq!(unavailable.breaker_signal(), Signal::Failure);
        let conflict = Outcome::of(Cause::Conflict);
        assert_eq!(conflict.class(), Class::Overloaded);
        assert_eq!(conflict.breaker_signal(), Signal::Success);
        assert!(!unavailable.deposits() && !conflict.deposits());
    }

    #[test]
    fn the_header_or_a_stop_code_says_stop_and_an_unknown_code_does_not() {
        let with = |stop, code: &[u8]| {
            Outcome::of_status(
                503,
                AnswerSignals { stop, problem: Problem::parse(code), ..Default::default() },
            )
        };
        assert!(with(true, b"").says_stop());
        assert!(with(false, b"dependency-unavailable").says_stop());
        assert!(with(false, b"overloaded-do-not-retry").says_stop());
        assert!(!with(false, b"banana").says_stop());
    }

    #[test]
    fn only_a_key_makes_an_unsafe_method_repeatable() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            assert_eq!(Safety::of_method(method, false), Safety::Idempotent, "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "LOCK", "get", ""] {
            assert_eq!(Safety::of_method(method, false), Safety::Unsafe, "{method}");
            assert_eq!(Safety::of_method(method, true), Safety::Keyed, "{method}");
        }
    }
}
