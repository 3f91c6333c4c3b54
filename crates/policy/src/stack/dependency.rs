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
//!
//! A reload swaps the parameters of a dependency in use. What a call took under the old ones comes
//! back under the new: a mechanism that is switched off goes on taking back what it gave out, so
//! that it finds nothing leaked when it is switched on again. Endpoints and lanes come and go by
//! [`Dependency::reshape`], which gives no number away that anything still names.

mod admission;
mod feedback;
mod forcing;
mod hedging;
mod limiting;
mod money;
mod rates;
mod release;
mod reshape;
mod standing;
mod terms;
mod views;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::StackParams;
use crate::breaker::{Breaker, Transition};
use crate::budget::Budget;
use crate::bulkhead::{Admission, Bulkhead, Claim, Ticket};
use crate::estimate::{ScoutPass, ServiceTimes};
use crate::limit::Limit;
use crate::outcome::Cause;
use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::time::Timestamp;

pub(super) use admission::Fitting;
pub(super) use money::Payment;
pub use reshape::Reshaped;
pub use standing::{Avoid, Standing};
pub use terms::{
    Admitted, Counters, EndpointView, HeldCall, LaneView, LoggedTransition, LoggedVerdict, Permit,
    Purpose, Rejection,
};

use hedging::Hedging;
use rates::Rates;
use standing::{Endpoint, Looks};
use terms::{Slot, SlotKind};

/// All policies of one dependency. See the module.
#[derive(Debug)]
pub struct Dependency {
    endpoints: Vec<Endpoint>,
    lanes: Vec<Lane>,
    bulkhead: Bulkhead,
    /// Made for the first call under parameters with a limit.
    limit: Option<Box<Limit>>,
    /// Made when the first parameters with a budget are seen.
    budget: Option<Budget>,
    rates: Option<Box<Rates>>,
    /// Payments that came back while there was no budget, for when there is one again. At most
    /// the retries that waited when it was switched off.
    refunds_owed: u32,
    /// Made when the first parameters with a hedge are seen.
    hedging: Option<Box<Hedging>>,
    /// Calls in flight but for streams: how many a call finds says how busy the dependency is.
    active: u32,
    scout: ScoutPass,
    /// Slots of calls whose caller left, by the time at which they are given up. Bounded by the
    /// bulkhead's limit, each holds a slot of it; without one by [`MOST_HELD`].
    held: BTreeMap<HeldCall, Slot>,
    next_held: u64,
    /// Calls that run on without their caller, and with their permit.
    orphans: usize,
    retries_off_until: Timestamp,
    forced: Option<forcing::Forced>,
    counters: Counters,
    /// The latest breaker transitions not yet collected, oldest dropped at [`MOST_TRANSITIONS`].
    transitions: VecDeque<LoggedTransition>,
    /// Made when the first parameters that compare endpoints are seen.
    looks: Option<Box<Looks>>,
}

#[derive(Debug)]
struct Lane {
    times: ServiceTimes,
    /// A call this long is slow beside the others of the lane; [`Duration::MAX`] until that is
    /// known.
    slow_after: Duration,
    /// Permits that are out, and calls that are held without theirs.
    permits: u32,
    /// Since when no call begins in it.
    retired: Option<Timestamp>,
}

impl Lane {
    fn new() -> Self {
        Self { times: ServiceTimes::new(), slow_after: Duration::MAX, permits: 0, retired: None }
    }
}

impl Dependency {
    /// The policies of a dependency with that many endpoints and lanes, at least one of each. A
    /// lane named elsewhere must be below `lanes`.
    #[must_use]
    pub fn new(endpoints: usize, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        Self {
            endpoints: (0..endpoints.max(1)).map(|_| Endpoint::new(lanes)).collect(),
            lanes: (0..lanes).map(|_| Lane::new()).collect(),
            bulkhead: Bulkhead::new(0),
            limit: None,
            budget: None,
            rates: None,
            refunds_owed: 0,
            hedging: None,
            active: 0,
            scout: ScoutPass::new(),
            held: BTreeMap::new(),
            next_held: 0,
            orphans: 0,
            retries_off_until: Timestamp::ZERO,
            forced: None,
            counters: Counters::default(),
            transitions: VecDeque::new(),
            looks: None,
        }
    }

    /// Asks for the right to make one attempt in `lane`, waiting for a slot at the latest until
    /// `until`. Which endpoint it goes to: see [`Standing`] and [`Avoid`].
    pub fn admit(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        until: Timestamp,
        avoid: impl Avoid,
        rng: &mut impl Rng,
    ) -> Admitted {
        if let Err(rejection) = self.check_breakers(now, params, lane) {
            return Admitted::Rejected(rejection);
        }
        let Some(bulkhead) = &params.bulkhead else {
            return self.grant(now, params, lane, SlotKind::Unlimited, avoid, rng);
        };
        self.stay_within_limit(params);
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
        avoid: impl Avoid,
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
        self.bulkhead.cancel(now, params.slots(), ticket);
    }

    /// Tickets decided since the last call: the edge wakes their owners.
    pub fn pop_woken(&mut self) -> Option<Ticket> {
        self.bulkhead.pop_woken()
    }

    /// Frees the slot: the call has really ended. A permit that was never sent gives back
    /// everything, its payment too.
    pub fn release(&mut self, now: Timestamp, params: &StackParams, mut permit: Permit) {
        self.orphans -= usize::from(permit.orphaned);
        self.settle_unrecorded(now, params, &mut permit);
        self.learn_limit(now, params, &mut permit);
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
            permit.limit = None;
            if core::mem::take(&mut permit.slot.is_limited) {
                self.leave_limited(now, params);
            }
            self.active = self.active.saturating_sub(1);
            return Ok(());
        }
        Err(Rejection { cause: Cause::StreamsFull, retry_after: FULL_RETRY_AFTER })
    }

    /// When [`Dependency::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let waits = self.bulkhead.next_deadline();
        let Some((held, _)) = self.held.first_key_value() else { return waits };
        Some(waits.map_or(held.until, |waits| waits.min(held.until)))
    }

    /// Frees slots whose time is up, expires waiters, and lets open breakers go half-open. Calls
    /// too many do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp, params: &StackParams) {
        while let Some((&held, _)) = self.held.first_key_value()
            && held.until <= now
        {
            self.end_held(now, params, held);
        }
        self.stay_within_limit(params);
        self.bulkhead.handle_timeout(now, params.slots());
        for endpoint in 0..self.endpoints.len() {
            for lane in 0..self.lanes.len() {
                self.roll_breaker(now, params, endpoint, lane);
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
        let oldest = self.transitions.pop_front()?;
        if self.transitions.is_empty() {
            // They are rare: none keeps room for the next.
            self.transitions = VecDeque::new();
        }
        Some(oldest)
    }

    /// Breaker transitions that wait to be collected, and as many as may.
    #[must_use]
    pub fn uncollected_transitions(&self) -> (usize, usize) {
        (self.transitions.len(), MOST_TRANSITIONS)
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

    /// What it is at `now`, used or not: for who shows it.
    #[must_use]
    pub fn budget_millitokens_at(&self, now: Timestamp, params: &StackParams) -> Option<u64> {
        let params = params.budget.as_ref()?;
        let at = |budget: &Budget| budget.balance_millitokens_at(now, params);
        Some(self.budget.as_ref().map_or_else(|| at(&Budget::new(now, params)), at))
    }

    /// Calls that were given up and hold their slot.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Calls that nobody waits for and that may still be executed: those that run on, and those
    /// that are [`held`](Self::held).
    #[must_use]
    pub fn abandoned(&self) -> usize {
        self.orphans + self.held.len()
    }

    /// Whether neither the operator nor a breaker in its retries-off mode forbids retries.
    pub(super) fn retries_on(&self, now: Timestamp, params: &StackParams, lane: usize) -> bool {
        let knobs = self.knobs(now, params);
        let allowed = |endpoint: &Endpoint| {
            endpoint.retired.is_none() && endpoint.breakers[lane].retries_allowed(now, &knobs)
        };
        self.retries_off_until(now).is_none() && self.endpoints.iter().any(allowed)
    }

    pub(super) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn breaker(&mut self, endpoint: usize, lane: usize) -> &mut Breaker {
        &mut self.endpoints[endpoint].breakers[lane]
    }

    /// Begins half-open if its time has come, on the record.
    fn roll_breaker(&mut self, now: Timestamp, params: &StackParams, endpoint: usize, lane: usize) {
        let transition = self.breaker(endpoint, lane).handle_timeout(now, &params.breaker);
        self.log(now, endpoint, lane, transition);
    }

    fn log(&mut self, at: Timestamp, endpoint: usize, lane: usize, transition: Option<Transition>) {
        let Some(transition) = transition else { return };
        if self.transitions.len() == MOST_TRANSITIONS {
            self.transitions.pop_front();
        }
        self.transitions.push_back(LoggedTransition { at, endpoint, lane, transition });
    }
}

/// Bound on uncollected transitions; the edge collects every 100 ms.
const MOST_TRANSITIONS: usize = 256;
/// When to ask again after a refusal that names no time of its own. Source: seawall-design (half
/// of the first open time).
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bound on held calls that have no slot of a bulkhead; beyond it a call is given up when its
/// caller leaves. Source: seawall-design.
const MOST_HELD: usize = 4_096;
const P99: Ratio = Ratio::from_percent(99);
