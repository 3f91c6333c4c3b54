//! What a call gives back: the result, and how it came about.

use std::time::Duration;

use seawall_policy::{Done, Outcome, StopReason};

/// Why a call gave no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error<E> {
    /// A policy refused it before anything was sent.
    #[error("refused before sending: {}", .reason.as_str())]
    Rejected {
        /// Which.
        reason: StopReason,
        /// When it is worth asking again.
        retry_after: Option<Duration>,
    },
    /// Its time was up.
    #[error("no answer in time")]
    Elapsed,
    /// The last attempt's own error, intact.
    #[error("the call failed")]
    Inner(#[source] E),
}

impl<E> Error<E> {
    /// The last attempt's own error, if that is what it is.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Rejected { .. } | Self::Elapsed => None,
        }
    }
}

/// A finished call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a report carries the call's result"]
pub struct Report<T, E> {
    /// The value, or why there is none.
    pub result: Result<T, Error<E>>,
    /// Attempts that were sent.
    pub attempts: u32,
    /// Other endpoints tried at once, beside the attempts.
    pub redispatches: u32,
    /// Why the call ended.
    pub stop: StopReason,
    /// The last attempt's outcome.
    pub outcome: Outcome,
}

impl<T, E> Report<T, E> {
    pub(crate) fn new(value: Option<Result<T, E>>, done: &Done) -> Self {
        let result = match value {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(Error::Inner(error)),
            None => Err(match done.stop {
                StopReason::BreakerOpen
                | StopReason::BulkheadFull
                | StopReason::CheckoutTimeout => {
                    Error::Rejected { reason: done.stop, retry_after: done.retry_after }
                }
                StopReason::Deadline if done.attempts == 0 => {
                    Error::Rejected { reason: done.stop, retry_after: None }
                }
                _ => Error::Elapsed,
            }),
        };
        Self {
            result,
            attempts: done.attempts,
            redispatches: done.redispatches,
            stop: done.stop,
            outcome: done.outcome,
        }
    }
}
