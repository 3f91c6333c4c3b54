//! Which endpoint takes the next attempt, if any does, and whether the attempt is worth sending.

use core::time::Duration;

use super::terms::{Admitted, Permit, Rejection, Slot, SlotKind};
use super::{Avoid, Dependency, Endpoint, FULL_RETRY_AFTER};
use crate::breaker::BreakerState;
use crate::estimate::Fit;
use crate::outcome::Cause;
use crate::rng::Rng;
use crate::stack::StackParams;
use crate::time::Timestamp;

/// Whether an attempt is worth sending in the time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stack) enum Fitting {
    /// It could be answered, or not enough is known.
    Fits,
    /// It cannot, but it may go as this second's scout.
    AsScout,
    /// It cannot.
    CannotFit,
}

impl Dependency {
    /// Whether some endpoint that `avoid` does not name would admit a call of `lane` at `at`.
    pub(in crate::stack) fn would_admit(
        &self,
        at: Timestamp,
        params: &StackParams,
        lane: usize,
        avoid: impl Fn(usize) -> bool,
    ) -> bool {
        (0..self.endpoints.len()).any(|index| !avoid(index) && self.admits(at, params, index, lane))
    }

    /// Whether an attempt that has `remaining` left is worth sending. Takes nothing.
    pub(in crate::stack) fn fitting(
        &mut self,
        now: Timestamp,
        lane: usize,
        remaining: Duration,
    ) -> Fitting {
        if remaining.is_zero() {
            return Fitting::CannotFit;
        }
        if self.lanes[lane].times.fits(now, remaining) != Fit::CannotFit {
            return Fitting::Fits;
        }
        if self.scout.clone().try_take(now) { Fitting::AsScout } else { Fitting::CannotFit }
    }

    /// The attempt that goes now is this second's scout.
    pub(in crate::stack) fn take_scout(&mut self, now: Timestamp) {
        self.counters.scouts += u64::from(self.scout.try_take(now));
    }

    pub(super) fn admits(
        &self,
        at: Timestamp,
        params: &StackParams,
        endpoint: usize,
        lane: usize,
    ) -> bool {
        let endpoint = &self.endpoints[endpoint];
        endpoint.retired.is_none()
            && endpoint.breakers[lane].would_admit(at, &self.knobs(at, params))
    }

    /// Rejects if every endpoint's breaker rejects, with the time until the first lets probes
    /// through.
    pub(super) fn check_breakers(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
    ) -> Result<(), Rejection> {
        if self.would_admit(now, params, lane, |_| false) {
            return Ok(());
        }
        self.counters.breaker_rejections += 1;
        // With all probes out, the end of their lease is the worst case and not worth naming.
        let guess = now.after(params.breaker.options().open_base);
        let opens = |endpoint: &Endpoint| {
            if endpoint.retired.is_some() {
                return None;
            }
            let breaker = &endpoint.breakers[lane];
            let deadline = breaker.next_deadline(&params.breaker)?;
            let is_probing = breaker.state() == BreakerState::HalfOpen;
            Some(if is_probing { deadline.min(guess) } else { deadline })
        };
        let first = self.endpoints.iter().filter_map(opens).min();
        let retry_after = first.map_or(FULL_RETRY_AFTER, |until| now.until(until));
        Err(Rejection { cause: Cause::BreakerOpen, retry_after })
    }

    /// Picks an endpoint for a slot that is already taken, and gives the slot back if none admits.
    pub(super) fn grant(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        kind: SlotKind,
        avoid: impl Avoid,
        rng: &mut impl Rng,
    ) -> Admitted {
        let chosen = self.choose(now, params, lane, &avoid, rng);
        let Some(endpoint) = chosen else { return self.refuse_slot(now, params, lane, kind) };
        self.roll_breaker(now, params, endpoint, lane);
        let knobs = self.knobs(now, params);
        let Ok(breaker) = self.breaker(endpoint, lane).try_acquire(now, &knobs) else {
            return self.refuse_slot(now, params, lane, kind);
        };
        self.endpoints[endpoint].in_flight += 1;
        self.active += 1;
        self.lanes[lane].permits += 1;
        let outlier = self.begin_conduct(now, params, endpoint, lane);
        let limited = match kind {
            SlotKind::Bulkhead => self.begin_limited(now, params),
            _ => None,
        };
        let slot = Slot { endpoint, lane, kind, is_limited: limited.is_some() };
        let mut permit = Permit::new(now, params, slot, breaker, outlier).finding(self.active);
        permit.limit = limited;
        Admitted::Permit(permit)
    }

    /// The breakers closed the door while the call waited for its slot.
    fn refuse_slot(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        kind: SlotKind,
    ) -> Admitted {
        if kind == SlotKind::Bulkhead {
            self.bulkhead.release(now, params.slots(), lane);
        }
        let open = Rejection { cause: Cause::BreakerOpen, retry_after: FULL_RETRY_AFTER };
        Admitted::Rejected(self.check_breakers(now, params, lane).err().unwrap_or(open))
    }

    /// Counts and makes the refusal of a full bulkhead.
    pub(in crate::stack) fn reject_full(&mut self) -> Admitted {
        self.counters.bulkhead_rejections += 1;
        Admitted::Rejected(Rejection { cause: Cause::BulkheadFull, retry_after: FULL_RETRY_AFTER })
    }
}
