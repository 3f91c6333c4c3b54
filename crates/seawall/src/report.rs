//! What a call gives back: the result, and how it came about.

use std::time::Duration;

use seawall_policy::{Class, Outcome, StopReason};

use crate::call::Called;
use crate::client::Tried;
use crate::seal::Changed;

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
    /// An attempt was not the operation that had been opened; it was not sent.
    #[error("the attempt changed the operation's {0}")]
    Changed(Changed),
    /// The last attempt's own error, intact.
    #[error("the call failed")]
    Inner(#[source] E),
}

impl<E> Error<E> {
    /// The last attempt's own error, if that is what it is.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Rejected { .. } | Self::Elapsed | Self::Changed(_) => None,
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
    /// Attempts made beside another one.
    pub hedges: u32,
    /// Why the call ended.
    pub stop: StopReason,
    /// The last attempt's outcome.
    pub outcome: Outcome,
}

impl<T, E> Report<T, E> {
    /// The report of a call that was driven; its slot is freed here.
    pub(crate) fn of(called: Called<Tried<T, E>>) -> Self {
        let Called { value, done, slot, ended, .. } = called;
        if let Some(slot) = slot {
            slot.end(ended);
        }
        let result = match value.and_then(|tried| tried.result) {
            Some(result) => result.map_err(Error::Inner),
            // Our refusal is the outcome only where no attempt has one.
            None if done.outcome.class() == Class::RefusedHere => {
                Err(Error::Rejected { reason: done.stop, retry_after: done.retry_after })
            }
            None => Err(Error::Elapsed),
        };
        Self {
            result,
            attempts: done.attempts,
            redispatches: done.redispatches,
            hedges: done.hedges,
            stop: done.stop,
            outcome: done.outcome,
        }
    }
}
