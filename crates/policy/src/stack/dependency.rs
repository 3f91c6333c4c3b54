//! The state of all policies of one dependency, behind admit, record and release.
//!
//! One lock of the edge guards a whole [`Dependency`]; it is held for no await and twice per
//! attempt: once to admit, once to record how it ended (a streamed body adds the release of its
//! slot). Endpoints and lanes are indices: an endpoint is one address of the dependency, a lane is
//! one route that uses it. The breaker is per endpoint and lane; the bulkhead has one limit for
//! all and one per lane; the budget is one.
//!
//! | event | breaker of the lane | breakers of the endpoint's other lanes |
//! |---|---|---|
//! | connect or TLS error | failure | failure |
//! | timeout, slow call, reset, 502, 503, 504 | failure | – |
//! | anything else answered | success | – |

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::StackParams;
use crate::balance;
use crate::breaker::{
    Breaker, BreakerParams, BreakerPermit, BreakerState, Transition, WindowCounts,
};
use crate::budget::Budget;
use crate::bulkhead::{Admission, Bulkhead, Claim, Ticket};
use crate::estimate::{Fit, ScoutPass, ServiceTimes};
use crate::outcome::{Cause, Outcome, Signal};
use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::time::Timestamp;

/// All policies of one dependency. See the module.
#[derive(Debug)]
pub struct Dependency {
    endpoints: Vec<Endpoint>,
    lanes: Vec<Lane>,
    bulkhead: Bulkhead,
    /// Made when the first parameters with a budget are seen.
    budget: Option<Budget>,
    scout: ScoutPass,
    /// Slots of calls whose caller left, by the time at which they are given up. Bounded by the
    /// bulkhead's limit: each holds a slot of it.
    held: BTreeMap<HeldCall, Slot>,
    next_held: u64,
    retries_off_until: Timestamp,
    counters: Counters,
    /// The latest breaker transitions not yet collected, oldest dropped at [`MOST_TRANSITIONS`].
    transitions: VecDeque<LoggedTransition>,
}

#[derive(Debug)]
struct Endpoint {
    in_flight: u32,
    /// One a lane.
    breakers: Vec<Breaker>,
}

#[derive(Debug)]
struct Lane {
    times: ServiceTimes,
}

/// What an admitted call occupies.
#[derive(Clone, Copy, Debug)]
struct Slot {
    endpoint: usize,
    lane: usize,
    kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    /// No bulkhead was configured when it was admitted.
    Unlimited,
    Bulkhead,
    Stream,
}

/// The right to make one attempt. Comes back through [`Dependency::release`] or
/// [`Dependency::abandon`], exactly once.
#[derive(Debug)]
#[must_use = "a permit that is not released holds its slot for ever"]
pub struct Permit {
    slot: Slot,
    /// Taken when the outcome is recorded; `None` from the start without a breaker.
    breaker: Option<BreakerPermit>,
    recorded: bool,
    granted: Timestamp,
    slow_at: Timestamp,
    paid: bool,
    sent: bool,
}

impl Permit {
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

    /// When it was granted; service times are measured from here.
    #[must_use]
    pub const fn granted(&self) -> Timestamp {
        self.granted
    }

    /// When the attempt counts as slow; [`Timestamp::MAX`] once it does, or if nothing watches.
    #[must_use]
    pub const fn slow_at(&self) -> Timestamp {
        self.slow_at
    }

    /// Says that the first byte is about to leave. From here on a lost permit is a lost call.
    pub const fn mark_sent(&mut self) {
        self.sent = true;
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
    /// begins.
    pub fn restart(&mut self, now: Timestamp, params: &StackParams) {
        self.granted = now;
        if self.slow_at != Timestamp::MAX {
            self.slow_at = slow_at(now, params);
        }
    }

    /// Takes the payment for a retry back out, for another attempt to carry.
    pub(super) const fn take_paid(&mut self) -> bool {
        core::mem::replace(&mut self.paid, false)
    }

    pub(super) const fn pay(&mut self) {
        self.paid = true;
    }
}

/// The answer to [`Dependency::admit`].
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
    until: Timestamp,
    number: u64,
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
    /// Calls that lost their caller after sending.
    pub abandoned: u64,
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

/// An endpoint as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Attempts in flight.
    pub in_flight: u32,
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

impl Dependency {
    /// The policies of a dependency with that many endpoints and lanes, at least one of each.
    #[must_use]
    pub fn new(endpoints: usize, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        let endpoint =
            |_| Endpoint { in_flight: 0, breakers: (0..lanes).map(|_| Breaker::new()).collect() };
        Self {
            endpoints: (0..endpoints.max(1)).map(endpoint).collect(),
            lanes: (0..lanes).map(|_| Lane { times: ServiceTimes::new() }).collect(),
            bulkhead: Bulkhead::new(lanes),
            budget: None,
            scout: ScoutPass::new(),
            held: BTreeMap::new(),
            next_held: 0,
            retries_off_until: Timestamp::ZERO,
            counters: Counters::default(),
            transitions: VecDeque::new(),
        }
    }

    /// Asks for the right to make one attempt in `lane`, waiting for a slot at the latest until
    /// `until`. Endpoints for which `avoid` says yes are taken only if no other admits.
    pub fn admit(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        until: Timestamp,
        avoid: impl Fn(usize) -> bool,
        rng: &mut impl Rng,
    ) -> Admitted {
        if let Err(rejection) = self.check_breakers(now, params, lane) {
            return Admitted::Rejected(rejection);
        }
        let Some(bulkhead) = &params.bulkhead else {
            return self.grant(now, params, lane, SlotKind::Unlimited, avoid, rng);
        };
        match self.bulkhead.try_acquire(now, bulkhead, lane, until) {
            Admission::Admitted(()) => {
                self.grant(now, params, lane, SlotKind::Bulkhead, avoid, rng)
            }
            Admission::Queued(ticket, until) => Admitted::Queued(ticket, until),
            Admission::Rejected => self.reject_full(),
        }
    }

    /// Asks again for what [`Admitted::Queued`] promised. The breakers are asked again too: they
    /// may have opened during the wait.
    pub fn claim(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        ticket: Ticket,
        avoid: impl Fn(usize) -> bool,
        rng: &mut impl Rng,
    ) -> Admitted {
        match self.bulkhead.claim(now, ticket) {
            Claim::Waiting(until) => Admitted::Queued(ticket, until),
            Claim::Expired => self.reject_full(),
            Claim::Admitted => self.grant(now, params, lane, SlotKind::Bulkhead, avoid, rng),
        }
    }

    /// Gives a ticket back: its caller left.
    pub fn cancel(&mut self, now: Timestamp, params: &StackParams, ticket: Ticket) {
        if let Some(bulkhead) = &params.bulkhead {
            self.bulkhead.cancel(now, bulkhead, ticket);
        }
    }

    /// Tickets decided since the last call: the edge wakes their owners.
    pub fn pop_woken(&mut self) -> Option<Ticket> {
        self.bulkhead.pop_woken()
    }

    /// Records that the attempt is still in flight at its slow threshold.
    pub fn on_slow(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
        rng: &mut impl Rng,
    ) {
        permit.slow_at = Timestamp::MAX;
        if let (Some(breaker_params), Some(breaker)) = (&params.breaker, &mut permit.breaker) {
            let Slot { endpoint, lane, .. } = permit.slot;
            let transition =
                self.breaker(endpoint, lane).on_slow(now, breaker_params, breaker, rng);
            self.log(now, endpoint, lane, transition);
        }
    }

    /// Records how the attempt ended: for the breakers, the budget and the estimate. Only the
    /// first outcome of a permit counts. The slot stays taken until the release.
    pub fn record(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
        outcome: &Outcome,
        rng: &mut impl Rng,
    ) {
        if core::mem::replace(&mut permit.recorded, true) {
            return;
        }
        if now >= permit.slow_at {
            self.on_slow(now, params, permit, rng);
        }
        self.record_time(now, permit, outcome);
        if outcome.deposits()
            && let Some(budget_params) = &params.budget
        {
            self.budget.get_or_insert_with(|| Budget::new(now, budget_params));
            if let Some(budget) = &mut self.budget {
                budget.deposit(now, budget_params);
            }
        }
        if let (Some(breaker_params), Some(breaker)) = (&params.breaker, permit.breaker.take()) {
            self.record_health(now, breaker_params, permit, breaker, outcome, rng);
        }
    }

    /// Frees the slot: the call has really ended. A permit that was never sent gives back
    /// everything, its payment too.
    pub fn release(&mut self, now: Timestamp, params: &StackParams, mut permit: Permit) {
        self.settle_unrecorded(now, params, &mut permit);
        self.free(now, params, permit.slot);
    }

    /// Moves the call from the bulkhead to the separate count of long-lived streams.
    ///
    /// # Errors
    /// The streams are full; the call keeps its slot and should be ended.
    pub fn to_stream(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
    ) -> Result<(), Rejection> {
        let (Some(bulkhead), SlotKind::Bulkhead) = (&params.bulkhead, permit.slot.kind) else {
            return Ok(());
        };
        if self.bulkhead.to_stream(now, bulkhead, permit.slot.lane) {
            permit.slot.kind = SlotKind::Stream;
            return Ok(());
        }
        Err(Rejection { cause: Cause::StreamsFull, retry_after: FULL_RETRY_AFTER })
    }

    /// The caller left, or no longer waits, and the call may still be executed: its slot stays
    /// taken until it really ends ([`Dependency::end_held`]) or until its age reaches
    /// max(3 × p99, 2 × its age now), at most twice the attempt timeout. What it took so far is
    /// recorded as "at least this slow". A permit that was never sent is released at once.
    pub fn abandon(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        mut permit: Permit,
        rng: &mut impl Rng,
    ) -> Option<HeldCall> {
        if !permit.sent {
            self.release(now, params, permit);
            return None;
        }
        if !permit.is_recorded() {
            self.record(now, params, &mut permit, &Outcome::of(Cause::CallerLeft), rng);
        }
        self.counters.abandoned += 1;
        let age = now.since(permit.granted);
        let known = self.lanes[permit.slot.lane].times.quantile(now, P99).unwrap_or_default();
        let mut patience = known.saturating_mul(3).max(age.saturating_mul(2));
        if let Some(timeout) = params.attempt_timeout {
            patience = patience.min(timeout.saturating_mul(2));
        }
        let until = permit.granted.after(patience);
        if until <= now {
            self.free(now, params, permit.slot);
            return None;
        }
        let held = HeldCall { until, number: self.next_held };
        self.next_held += 1;
        self.held.insert(held, permit.slot);
        Some(held)
    }

    /// The abandoned call has really ended; does nothing if it was given up before.
    pub fn end_held(&mut self, now: Timestamp, params: &StackParams, held: HeldCall) {
        if let Some(slot) = self.held.remove(&held) {
            self.free(now, params, slot);
        }
    }

    /// When [`Dependency::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let held = self.held.keys().next().map(|held| held.until);
        [held, self.bulkhead.next_deadline()].into_iter().flatten().min()
    }

    /// Frees slots whose time is up, expires waiters, and lets open breakers go half-open. Calls
    /// too many do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp, params: &StackParams) {
        while let Some(entry) = self.held.first_entry()
            && entry.key().until <= now
        {
            let slot = entry.remove();
            self.free(now, params, slot);
        }
        if let Some(bulkhead) = &params.bulkhead {
            self.bulkhead.handle_timeout(now, bulkhead);
        }
        let Some(breaker_params) = &params.breaker else { return };
        for endpoint in 0..self.endpoints.len() {
            for lane in 0..self.lanes.len() {
                let transition = self.breaker(endpoint, lane).handle_timeout(now, breaker_params);
                self.log(now, endpoint, lane, transition);
            }
        }
    }

    /// Switches retries off until `until`; [`Timestamp::ZERO`] switches them on,
    /// [`Timestamp::MAX`] leaves them off.
    pub const fn switch_retries_off(&mut self, until: Timestamp) {
        self.retries_off_until = until;
    }

    /// Until when retries are switched off by an operator, if they are.
    #[must_use]
    pub fn retries_off_until(&self, now: Timestamp) -> Option<Timestamp> {
        (now < self.retries_off_until).then_some(self.retries_off_until)
    }

    /// What was decided since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Breaker transitions since they were last collected, oldest first; at most the latest 256.
    pub fn pop_transition(&mut self) -> Option<LoggedTransition> {
        self.transitions.pop_front()
    }

    /// The bulkhead, for its gauges.
    #[must_use]
    pub const fn bulkhead(&self) -> &Bulkhead {
        &self.bulkhead
    }

    /// The budget's balance in thousandths of a token, if there is a budget and it was used.
    #[must_use]
    pub fn budget_millitokens(&self) -> Option<u64> {
        self.budget.as_ref().map(Budget::balance_millitokens)
    }

    /// Calls that go on without their caller.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// An endpoint, seen from a lane. `None` if either does not exist.
    #[must_use]
    pub fn endpoint_view(
        &self,
        now: Timestamp,
        params: &StackParams,
        endpoint: usize,
        lane: usize,
    ) -> Option<EndpointView> {
        let endpoint = self.endpoints.get(endpoint)?;
        let breaker = endpoint.breakers.get(lane)?;
        Some(EndpointView {
            in_flight: endpoint.in_flight,
            breaker: breaker.state(),
            open_until: params
                .breaker
                .as_ref()
                .filter(|_| breaker.state() == BreakerState::Open)
                .and_then(|params| breaker.next_deadline(params)),
            counts: params
                .breaker
                .as_ref()
                .map(|params| breaker.counts(now, params))
                .unwrap_or_default(),
        })
    }

    /// A lane. `None` if it does not exist.
    #[must_use]
    pub fn lane_view(&self, now: Timestamp, lane: usize) -> Option<LaneView> {
        let times = &self.lanes.get(lane)?.times;
        Some(LaneView {
            in_flight: self.bulkhead.in_flight_of(lane),
            p99: times.quantile(now, P99),
        })
    }

    /// Whether some endpoint that `avoid` does not name would admit a call of `lane` at `at`.
    pub(super) fn would_admit(
        &self,
        at: Timestamp,
        params: &StackParams,
        lane: usize,
        avoid: impl Fn(usize) -> bool,
    ) -> bool {
        (0..self.endpoints.len()).any(|index| !avoid(index) && self.admits(at, params, index, lane))
    }

    /// Whether neither the operator nor a breaker in its retries-off mode forbids retries.
    pub(super) fn retries_on(&self, now: Timestamp, params: &StackParams, lane: usize) -> bool {
        let allowed = |endpoint: &Endpoint| match &params.breaker {
            Some(params) => endpoint.breakers[lane].retries_allowed(now, params),
            None => true,
        };
        self.retries_off_until(now).is_none() && self.endpoints.iter().any(allowed)
    }

    /// Pays for one retry. Without a budget it is free.
    pub(super) fn withdraw(&mut self, now: Timestamp, params: &StackParams) -> bool {
        let Some(budget_params) = &params.budget else { return true };
        let budget = self.budget.get_or_insert_with(|| Budget::new(now, budget_params));
        let paid = budget.try_withdraw(now, budget_params);
        if !paid {
            self.counters.budget_exhausted += 1;
        }
        paid
    }

    /// Gives a payment back: the retry was never sent.
    pub(super) fn refund(&mut self, now: Timestamp, params: &StackParams) {
        if let (Some(budget_params), Some(budget)) = (&params.budget, &mut self.budget) {
            budget.refund(now, budget_params);
        }
    }

    /// Whether an attempt that has `remaining` left may go: always, unless the estimate knows
    /// that it cannot fit and this second's scout is already out. `peek` does not take the scout.
    pub(super) fn may_fit(
        &mut self,
        now: Timestamp,
        lane: usize,
        remaining: Duration,
        peek: bool,
    ) -> bool {
        if self.lanes[lane].times.fits(now, remaining) != Fit::CannotFit {
            return true;
        }
        let scout = !peek && self.scout.try_take(now);
        self.counters.scouts += u64::from(scout);
        scout
    }

    pub(super) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn breaker(&mut self, endpoint: usize, lane: usize) -> &mut Breaker {
        &mut self.endpoints[endpoint].breakers[lane]
    }

    fn admits(&self, at: Timestamp, params: &StackParams, endpoint: usize, lane: usize) -> bool {
        let breaker = &self.endpoints[endpoint].breakers[lane];
        params.breaker.as_ref().is_none_or(|params| breaker.would_admit(at, params))
    }

    /// Rejects if every endpoint's breaker rejects, with the time until the first lets probes
    /// through.
    fn check_breakers(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
    ) -> Result<(), Rejection> {
        if self.would_admit(now, params, lane, |_| false) {
            return Ok(());
        }
        self.counters.breaker_rejections += 1;
        let opens = |endpoint: &Endpoint| {
            params.breaker.as_ref().and_then(|params| endpoint.breakers[lane].next_deadline(params))
        };
        let first = self.endpoints.iter().filter_map(opens).min();
        let retry_after = first.map_or(FULL_RETRY_AFTER, |until| now.until(until));
        Err(Rejection { cause: Cause::BreakerOpen, retry_after })
    }

    /// Picks an endpoint for a slot that is already taken, and gives the slot back if none admits.
    fn grant(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        kind: SlotKind,
        avoid: impl Fn(usize) -> bool,
        rng: &mut impl Rng,
    ) -> Admitted {
        let pick = |usable: &dyn Fn(usize) -> bool, rng: &mut _| {
            let in_flight = |index: usize| self.endpoints[index].in_flight;
            balance::choose(usable, self.endpoints.len(), in_flight, rng)
        };
        let admits = |index| self.admits(now, params, index, lane);
        let chosen = pick(&|index| !avoid(index) && admits(index), rng)
            .or_else(|| pick(&|index| admits(index), rng));
        let Some(endpoint) = chosen else { return self.refuse_slot(now, params, lane, kind) };
        let breaker = match &params.breaker {
            Some(breaker_params) => {
                let transition = self.breaker(endpoint, lane).handle_timeout(now, breaker_params);
                self.log(now, endpoint, lane, transition);
                match self.breaker(endpoint, lane).try_acquire(now, breaker_params) {
                    Ok(permit) => Some(permit),
                    Err(_) => return self.refuse_slot(now, params, lane, kind),
                }
            }
            None => None,
        };
        self.endpoints[endpoint].in_flight += 1;
        Admitted::Permit(Permit {
            slot: Slot { endpoint, lane, kind },
            breaker,
            recorded: false,
            granted: now,
            slow_at: slow_at(now, params),
            paid: false,
            sent: false,
        })
    }

    /// The breakers closed the door while the call waited for its slot.
    fn refuse_slot(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        kind: SlotKind,
    ) -> Admitted {
        if let (SlotKind::Bulkhead, Some(bulkhead)) = (kind, &params.bulkhead) {
            self.bulkhead.release(now, bulkhead, lane);
        }
        let open = Rejection { cause: Cause::BreakerOpen, retry_after: FULL_RETRY_AFTER };
        Admitted::Rejected(self.check_breakers(now, params, lane).err().unwrap_or(open))
    }

    fn reject_full(&mut self) -> Admitted {
        self.counters.bulkhead_rejections += 1;
        Admitted::Rejected(Rejection { cause: Cause::BulkheadFull, retry_after: FULL_RETRY_AFTER })
    }

    /// Adds a sample to the estimate: the time of an answer, or "at least this slow" for a call
    /// that was cut. What was refused or never processed tells nothing about service time.
    fn record_time(&mut self, now: Timestamp, permit: &Permit, outcome: &Outcome) {
        let elapsed = now.since(permit.granted);
        let times = &mut self.lanes[permit.slot.lane].times;
        match outcome.cause() {
            Cause::Status(429 | 502 | 503 | 504) => {}
            Cause::Status(_) | Cause::Answered | Cause::BusinessError => {
                times.record(now, elapsed);
            }
            Cause::AttemptTimeout | Cause::DeadlineCut | Cause::CallerLeft if permit.sent => {
                times.record_at_least(now, elapsed);
            }
            _ => {}
        }
    }

    fn record_health(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        permit: &Permit,
        breaker: BreakerPermit,
        outcome: &Outcome,
        rng: &mut impl Rng,
    ) {
        let Slot { endpoint, lane, .. } = permit.slot;
        let elapsed = now.since(permit.granted);
        let own = self.breaker(endpoint, lane);
        let transition = match outcome.breaker_signal() {
            Signal::Success => own.on_success(now, params, breaker, elapsed, rng),
            Signal::Failure => own.on_failure(now, params, breaker, elapsed, rng),
            Signal::Ignore => {
                own.on_ignore(now, params, breaker);
                None
            }
        };
        self.log(now, endpoint, lane, transition);
        if outcome.cause().is_connect_error() {
            for other in (0..self.lanes.len()).filter(|other| *other != lane) {
                let transition = self.breaker(endpoint, other).on_unreachable(now, params, rng);
                self.log(now, endpoint, other, transition);
            }
        }
    }

    /// A permit that ends without an outcome gives back its probe, and its payment if nothing was
    /// sent.
    fn settle_unrecorded(&mut self, now: Timestamp, params: &StackParams, permit: &mut Permit) {
        if let Some(breaker) = permit.breaker.take()
            && let Some(breaker_params) = &params.breaker
        {
            let Slot { endpoint, lane, .. } = permit.slot;
            self.breaker(endpoint, lane).on_ignore(now, breaker_params, breaker);
        }
        if !permit.sent && permit.take_paid() {
            self.refund(now, params);
        }
    }

    fn free(&mut self, now: Timestamp, params: &StackParams, slot: Slot) {
        let endpoint = &mut self.endpoints[slot.endpoint];
        endpoint.in_flight = endpoint.in_flight.saturating_sub(1);
        match (slot.kind, &params.bulkhead) {
            (SlotKind::Bulkhead, Some(bulkhead)) => {
                self.bulkhead.release(now, bulkhead, slot.lane);
            }
            (SlotKind::Stream, _) => self.bulkhead.release_stream(),
            _ => {}
        }
    }

    fn log(&mut self, at: Timestamp, endpoint: usize, lane: usize, transition: Option<Transition>) {
        let Some(transition) = transition else { return };
        if self.transitions.len() == MOST_TRANSITIONS {
            self.transitions.pop_front();
        }
        self.transitions.push_back(LoggedTransition { at, endpoint, lane, transition });
    }
}

/// When a call granted at `granted` counts as slow.
fn slow_at(granted: Timestamp, params: &StackParams) -> Timestamp {
    params.slow.map_or(Timestamp::MAX, |slow| granted.after(slow))
}

/// Bound on uncollected transitions; the edge collects every 100 ms.
const MOST_TRANSITIONS: usize = 256;
/// When to ask again after a refusal that names no time of its own. Source: seawall-design (half
/// of the first open time).
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);
const P99: Ratio = Ratio::from_percent(99);
