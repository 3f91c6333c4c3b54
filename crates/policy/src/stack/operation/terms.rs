//! What an operation is told and says: calls, events, steps and ends.

use core::time::Duration;

use crate::outcome::{Outcome, Safety};
use crate::rate::RateKey;
use crate::retry::{RetryParams, StopReason};
use crate::stack::{Permit, StackParams};
use crate::time::Timestamp;

/// What is known of a call when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The lane (route) it runs in.
    pub lane: usize,
    /// Whether a second execution is harmless.
    pub safety: Safety,
    /// Whether this layer owns the retries of the path.
    pub owner: bool,
    /// When our answer must leave for the caller to have it in time. `None`: it did not say.
    pub deadline: Option<Timestamp>,
    /// In place of the dependency's total time.
    pub total: Option<Duration>,
    /// Whose call it is, where a limit holds for each key. `None`: only the limit of all holds.
    pub rate_key: Option<RateKey>,
    /// In place of the dependency's time for one attempt.
    pub attempt_timeout: Option<Duration>,
    /// In place of the dependency's retries.
    pub retry: Option<RetryParams>,
    /// How long a refresh of its credential may take, if the other side rejects it. `None`: it
    /// carries none that could be refreshed, and a 401 is final.
    pub refresh: Option<Duration>,
}

impl Call {
    /// When it is given up: the earlier of what the caller stated and what we allow from `now` on.
    pub(super) fn ends(&self, now: Timestamp, params: &StackParams) -> Timestamp {
        let total = self.total.or(params.total);
        let own = total.map_or(Timestamp::MAX, |total| now.after(total));
        self.deadline.map_or(own, |stated| stated.min(own))
    }
}

/// What the edge does next.
#[derive(Debug)]
pub enum Step {
    /// Make this attempt.
    Send(Attempt),
    /// Report a tick then.
    WaitUntil(Timestamp),
    /// Go on with the attempts in flight.
    Fly,
    /// The credential was rejected: drop what is still in flight, and report whether there is
    /// another one, at this time at the latest.
    Refresh(Timestamp),
    /// The call is over.
    Done(Done),
}

/// One attempt to be made.
#[derive(Debug)]
#[must_use = "its permit holds a slot"]
pub struct Attempt {
    /// 1 for the first; a redispatch keeps the number of the attempt it stands in for.
    pub number: u32,
    /// When it is given up.
    pub deadline: Timestamp,
    /// Whether the deadline is the call's own, before the attempt timeout: being cut there says
    /// nothing about the dependency.
    pub cut_by_call: bool,
    /// When to report [`Event::HedgeDue`], if it has not ended by then.
    pub hedge_at: Option<Timestamp>,
    /// The right to make it; names the endpoint.
    pub permit: Permit,
}

/// What happened to the edge.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time passed, or the ticket was woken.
    Tick,
    /// The attempt has taken as long as it is given alone.
    HedgeDue {
        /// Whether the request can be sent a second time now, byte for byte.
        replayable: bool,
    },
    /// What [`Step::Refresh`] asked for has ended.
    Refreshed {
        /// Whether there is a credential other than the one that was rejected.
        is_fresh: bool,
    },
    /// The call's own deadline came before the attempt's end. The edge abandons the attempt, which
    /// is recorded when it really ends, or is cancelled.
    Cut,
    /// The attempt ended. The slot stays with the permit until the edge releases it.
    Ended {
        /// The attempt's permit.
        permit: &'a mut Permit,
        /// How it ended.
        outcome: Outcome,
        /// Whether the request can be sent again, byte for byte.
        replayable: bool,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The last attempt's outcome; our refusal only if nothing was sent.
    pub outcome: Outcome,
    /// Attempts that were sent, hedges among them.
    pub attempts: u32,
    /// Other endpoints tried at once, beside the attempts.
    pub redispatches: u32,
    /// Attempts made beside another one.
    pub hedges: u32,
    /// Why it ended.
    pub stop: StopReason,
    /// After a refusal of ours: when it is worth asking again.
    pub retry_after: Option<Duration>,
}
