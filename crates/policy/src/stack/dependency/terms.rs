//! What a dependency hands out and reports: permits, rejections, counts and views.

use core::time::Duration;

use super::rates::Taken;
use super::standing::Standing;
use crate::breaker::{BreakerPermit, BreakerState, Transition, WindowCounts};
use crate::bulkhead::Ticket;
use crate::hedge::HedgeRefusal;
use crate::limit::{LimitOutcome, LimitPermit};
use crate::outcome::Cause;
use crate::outlier::{OutlierPermit, Verdict};
use crate::stack::StackParams;
use crate::time::Timestamp;

/// What an admitted call occupies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) endpoint: usize,
    pub(super) lane: usize,
    pub(super) kind: SlotKind,
    /// It counts for the limit.
    pub(super) is_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// No bulkhead was configured when it was admitted.
    Unlimited,
    Bulkhead,
    Stream,
    /// Given back before its permit.
    Vacated,
}

/// What an attempt is in its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The first.
    First,
    /// A later one, after one that failed.
    Retry,
    /// In place of one that never reached its endpoint.
    Redispatch,
    /// A later one, beside one that takes long.
    Hedge,
}

/// The right to make one attempt. Comes back through [`release`](super::Dependency::release)
/// or [`abandon`](super::Dependency::abandon), exactly once.
#[derive(Debug)]
#[must_use = "a permit that is not released holds its slot for ever"]
pub struct Permit {
    pub(super) slot: Slot,
    /// Taken when the outcome is recorded.
    pub(super) breaker: Option<BreakerPermit>,
    /// Taken then too; nothing where outliers were not looked for.
    pub(super) outlier: Option<OutlierPermit>,
    pub(super) recorded: bool,
    /// Its caller left, and it runs on.
    pub(super) orphaned: bool,
    pub(super) granted: Timestamp,
    /// From when its age counts while it is in flight.
    pub(super) watched: Timestamp,
    /// Whether its breaker knows that it is slow.
    pub(super) told_breaker: bool,
    slow_at: Timestamp,
    /// Calls in flight when it was granted, itself included.
    pub(super) found: u32,
    purpose: Purpose,
    /// When its head came, where its status comes later.
    head: Option<Timestamp>,
    /// Of the rates.
    pub(super) rate: Taken,
    /// The time the attempt has; of its call, or of the dependency.
    pub(super) timeout: Option<Duration>,
    /// Taken when it comes back.
    pub(super) limit: Option<LimitPermit>,
    /// What the limit is to be told then.
    pub(super) ended: Option<LimitOutcome>,
    paid: bool,
    /// A hedge, paid for from the allowance of hedges.
    allowed: bool,
    sent: bool,
}

impl Permit {
    pub(super) fn new(
        now: Timestamp,
        params: &StackParams,
        slot: Slot,
        breaker: BreakerPermit,
        outlier: Option<OutlierPermit>,
    ) -> Self {
        let mut permit = Self {
            slot,
            breaker: Some(breaker),
            outlier,
            recorded: false,
            orphaned: false,
            granted: now,
            watched: now,
            told_breaker: false,
            slow_at: Timestamp::MAX,
            found: 1,
            purpose: Purpose::First,
            head: None,
            rate: Taken::default(),
            timeout: params.attempt_timeout,
            limit: None,
            ended: None,
            paid: false,
            allowed: false,
            sent: false,
        };
        permit.watch(now, params);
        permit
    }

    /// Says how many calls were in flight when it was granted, itself included.
    pub(super) const fn finding(mut self, in_flight: u32) -> Self {
        self.found = in_flight;
        self
    }

    /// Its head came, and its status comes later: what is judged of its time is known.
    pub(super) const fn answered(&mut self, now: Timestamp) {
        (self.head, self.slow_at) = (Some(now), Timestamp::MAX);
    }

    pub(super) const fn has_answered(&self) -> bool {
        self.head.is_some()
    }

    /// The time it took: to its head, if that has come, else until now.
    pub(super) fn elapsed(&self, now: Timestamp) -> Duration {
        self.head.unwrap_or(now).since(self.granted)
    }

    /// Counts its age from `since`, and sets when to ask about it next.
    pub(super) fn watch(&mut self, since: Timestamp, params: &StackParams) {
        self.watched = since;
        let breaker = params.slow.filter(|_| !self.told_breaker);
        let outlier = self.outlier.as_ref().and_then(OutlierPermit::slow_after);
        let next = breaker.into_iter().chain(outlier).min();
        self.slow_at = next.map_or(Timestamp::MAX, |age| since.after(age));
    }

    /// The endpoint to send to.
    #[must_use]
    pub const fn endpoint(&self) -> usize {
        self.slot.endpoint
    }

    /// The lane it was admitted in.
    #[must_use]
    pub const fn lane(&self) -> usize {
        self.slot.lane
    }

    /// The time the attempt has.
    #[must_use]
    pub const fn attempt_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(in crate::stack) const fn limit(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// When it was granted; service times are measured from here.
    #[must_use]
    pub const fn granted(&self) -> Timestamp {
        self.granted
    }

    /// When to call [`Dependency::on_slow`](super::Dependency::on_slow); [`Timestamp::MAX`] once
    /// the attempt counts as slow, or if nothing watches. Moves on while nothing was sent.
    #[must_use]
    pub const fn slow_at(&self) -> Timestamp {
        self.slow_at
    }

    /// Says that the first byte is about to leave. From here on a lost permit is a lost call.
    pub const fn mark_sent(&mut self) {
        self.sent = true;
    }

    /// Takes [`Permit::mark_sent`] back: the transport gave the message back unsent.
    pub const fn mark_unsent(&mut self) {
        self.sent = false;
    }

    /// What it is in its call.
    #[must_use]
    pub const fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether anything may have been sent.
    #[must_use]
    pub const fn is_sent(&self) -> bool {
        self.sent
    }

    /// Whether the outcome was recorded.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Starts its clocks again at `now`: a large upload has ended and the wait for the head
    /// begins, or a connection was had from a pool and the wait for it was not the dependency's.
    pub fn restart(&mut self, now: Timestamp, params: &StackParams) {
        self.granted = now;
        self.watch(now, params);
    }

    /// Takes the payment for a retry back out, for another attempt to carry.
    pub(in crate::stack) const fn take_paid(&mut self) -> bool {
        core::mem::replace(&mut self.paid, false)
    }

    pub(in crate::stack) const fn pay(&mut self) {
        self.paid = true;
    }

    /// As [`Permit::take_paid`], of the allowance of hedges.
    pub(in crate::stack) const fn take_allowance(&mut self) -> bool {
        core::mem::replace(&mut self.allowed, false)
    }

    /// Says what it is in its call.
    pub(in crate::stack) const fn serve(&mut self, purpose: Purpose) {
        self.purpose = purpose;
        self.allowed = matches!(purpose, Purpose::Hedge);
    }
}

/// The answer to [`Dependency::admit`](super::Dependency::admit).
#[derive(Debug)]
pub enum Admitted {
    /// Go.
    Permit(Permit),
    /// Wait for the ticket to be woken, at the latest until then; claim it.
    Queued(Ticket, Timestamp),
    /// Nothing was taken.
    Rejected(Rejection),
}

/// A refusal of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which mechanism refused.
    pub cause: Cause,
    /// When it is worth asking again.
    pub retry_after: Duration,
}

/// The name of a call that goes on without its caller. Orders by the time it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldCall {
    pub(super) until: Timestamp,
    pub(super) number: u64,
}

impl HeldCall {
    /// When its slot is freed at the latest.
    #[must_use]
    pub const fn until(&self) -> Timestamp {
        self.until
    }
}

/// What was decided since the start. Plain counts, under the dependency's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls whose first attempt was admitted to be sent.
    pub first_attempts: u64,
    /// Retries admitted to be sent.
    pub retries: u64,
    /// Redispatches admitted to be sent.
    pub redispatches: u64,
    /// Second attempts in parallel admitted to be sent.
    pub hedges: u64,
    /// Hedges whose answer was the call's, while the first attempt was still out.
    pub hedges_won: u64,
    /// Hedges that were due and not sent, by [`HedgeRefusal::index`].
    pub hedges_refused: [u64; HedgeRefusal::ALL.len()],
    /// Retries not made because the budget was empty.
    pub budget_exhausted: u64,
    /// Attempts not sent because the deadline had passed or could not be met.
    pub deadline_before_send: u64,
    /// Attempts that went although the estimate spoke against it.
    pub scouts: u64,
    /// Refusals by an open breaker.
    pub breaker_rejections: u64,
    /// Refusals by a full bulkhead, at once or after the wait.
    pub bulkhead_rejections: u64,
    /// Refusals because more would have been sent than the rate allows.
    pub rate_rejections: u64,
    /// Refusals because a key has used up its own rate.
    pub quota_rejections: u64,
    /// Attempts that nobody waited for any longer after they were sent: their caller had left, the
    /// call's deadline had passed, or their own time was up.
    pub abandoned: u64,
}

impl Counters {
    /// The count of attempts that are this.
    pub(in crate::stack) const fn attempts_mut(&mut self, purpose: Purpose) -> &mut u64 {
        match purpose {
            Purpose::First => &mut self.first_attempts,
            Purpose::Retry => &mut self.retries,
            Purpose::Redispatch => &mut self.redispatches,
            Purpose::Hedge => &mut self.hedges,
        }
    }
}

/// A breaker's transition with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedTransition {
    /// When.
    pub at: Timestamp,
    /// Of which endpoint.
    pub endpoint: usize,
    /// For which lane.
    pub lane: usize,
    /// From, to, and why.
    pub transition: Transition,
}

/// An ejection, or a return, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedVerdict {
    /// When.
    pub at: Timestamp,
    /// Of which endpoint.
    pub endpoint: usize,
    /// What became of it.
    pub verdict: Verdict,
}

/// An endpoint as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Attempts in flight.
    pub in_flight: u32,
    /// How it stands beside the others, for every lane.
    pub standing: Standing,
    /// Until when it is ejected, if it is.
    pub ejected_until: Option<Timestamp>,
    /// The breaker for the lane asked for.
    pub breaker: BreakerState,
    /// When it lets probes through, if open.
    pub open_until: Option<Timestamp>,
    /// What its window holds.
    pub counts: WindowCounts,
}

/// A lane as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// Calls in flight.
    pub in_flight: u32,
    /// The 99th percentile of recent service times, where enough are known.
    pub p99: Option<Duration>,
}
