//! How many calls the dependency can take, learned from those that end: the limit moves within the
//! bulkhead, which stays the ceiling and holds the queue.
//!
//! A call counts from its grant until its slot is free, bodies included, as that is how long it has
//! a place; its outcome is the one that was recorded. One that is held for a caller who left tells
//! "at least so long" when the caller leaves, and nothing more.

use super::Dependency;
use super::terms::Permit;
use crate::limit::{Limit, LimitOutcome, LimitPermit, LimitSample};
use crate::outcome::{Cause, Class, Outcome};
use crate::stack::StackParams;
use crate::time::Timestamp;

use alloc::boxed::Box;

impl Dependency {
    /// The limit that moves within the bulkhead's, once it was needed.
    #[must_use]
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_deref()
    }

    /// A call takes a place in flight.
    pub(super) fn begin_limited(
        &mut self,
        now: Timestamp,
        params: &StackParams,
    ) -> Option<LimitPermit> {
        let knobs = params.limit.as_ref()?;
        let limit = self.limit.get_or_insert_with(|| Box::new(Limit::new(now, knobs)));
        let permit = limit.acquire(now, knobs);
        self.stay_within_limit(params);
        Some(permit)
    }

    /// Tells the limit what became of a call whose permit comes back.
    pub(super) fn learn_limit(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
    ) {
        let (Some(taken), Some(outcome)) = (permit.limit.take(), permit.ended.take()) else {
            return;
        };
        if let (Some(limit), Some(knobs)) = (&mut self.limit, &params.limit) {
            let latency = now.since(permit.granted);
            limit.learn(now, knobs, &taken, LimitSample { latency, outcome });
            self.stay_within_limit(params);
        }
    }

    /// A call that took a place has left it.
    pub(super) fn leave_limited(&mut self, now: Timestamp, params: &StackParams) {
        if let Some(limit) = &mut self.limit {
            limit.leave(now);
        }
        self.stay_within_limit(params);
    }

    /// Lets the bulkhead grant as many as the limit says, or, without one, as its own.
    pub(super) fn stay_within_limit(&mut self, params: &StackParams) {
        let within = match (&self.limit, &params.limit) {
            (Some(limit), Some(knobs)) => limit.limit(knobs),
            _ => u32::MAX,
        };
        self.bulkhead.stay_within(within);
    }
}

/// What an outcome says to a limit.
pub(super) fn for_limit(outcome: &Outcome, is_sent: bool) -> LimitOutcome {
    match outcome.cause() {
        Cause::RefusedStream => LimitOutcome::Dropped,
        Cause::Conflict => LimitOutcome::Ignore,
        _ if outcome.class() == Class::Overloaded => LimitOutcome::Dropped,
        Cause::Status(_) | Cause::Grpc(_) | Cause::Answered | Cause::BusinessError => {
            LimitOutcome::Success
        }
        Cause::AttemptTimeout
        | Cause::DeadlineCut
        | Cause::CallerLeft
        | Cause::Outrun
        | Cause::Closed
        | Cause::Reset
            if is_sent =>
        {
            LimitOutcome::GaveUp
        }
        _ => LimitOutcome::Ignore,
    }
}
