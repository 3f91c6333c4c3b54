//! One whole call as a machine without I/O.
//!
//! The edge that drives it sends, sleeps and wakes, and decides nothing:
//! 1. [`Operation::begin`], and from then on [`Operation::on_event`], yield a [`Step`].
//! 2. [`Step::Send`]: make the attempt before its deadline, then report [`Event::Ended`].
//!    At its [`hedge_at`](Attempt::hedge_at), if it is still out, report [`Event::HedgeDue`], which
//!    may yield a second attempt to be made beside it.
//! 3. [`Step::WaitUntil`]: report [`Event::Tick`] then, or earlier when
//!    [`Operation::ticket`] is woken. A tick too early yields the same step again.
//! 4. [`Step::Fly`]: nothing new; go on with what is in flight.
//! 5. [`Step::Refresh`]: what is still in flight has lost. Have the credential refreshed and report
//!    [`Event::Refreshed`], at that time at the latest.
//! 6. [`Step::Done`]: the call is over. What is still in flight has lost and is cancelled: dropped,
//!    and its permit abandoned. Or the caller leaves: [`Operation::caller_left`].
//!
//! While an attempt is being made, the edge also
//! - marks its permit as sent ([`Permit::mark_sent`]) just before the first byte may leave,
//! - calls [`Dependency::on_slow`] at [`Permit::slow_at`], which then moves on,
//! - reports [`Event::Ended`] with `AttemptTimeout` at the attempt's deadline, or [`Event::Cut`]
//!   if the deadline is the call's own, and hands the permit to [`Dependency::abandon`]. If
//!   nothing was sent by then, it says what was waited for instead: `CheckoutTimeout`,
//!   `ConnectTimeout`, or, cut by the call, `DeadlinePassed`;
//! - when the caller leaves, drops the operation and abandons the permit, or keeps it and lets
//!   [`Dependency::record`] and [`Dependency::release`] have it at the attempt's real end.
//!
//! A retry is paid for when it is decided, so that waiting retries count, and the payment comes
//! back if it is never made: the caller left, the breaker opened meanwhile, or we refused it
//! ourselves. A retry that could not connect was made and has cost its price. The last attempt's
//! outcome is what the call returns, with the reason it stopped; a refusal of ours is the outcome
//! only where nothing was ever sent.

mod follow;
mod hedging;
mod refreshing;
mod refused;
mod terms;
mod tried;

use core::time::Duration;

use super::StackParams;
use super::dependency::{Admitted, Dependency, Fitting, Permit, Purpose};
use crate::bulkhead::Ticket;
use crate::outcome::{Cause, Outcome};
use crate::retry::StopReason;
use crate::rng::Rng;
use crate::time::Timestamp;

pub use terms::{Attempt, Call, Done, Event, Step};

use hedging::Flights;
use refreshing::Refresh;
use tried::{Others, Tried};

/// One whole call. See the module.
#[derive(Debug)]
pub struct Operation {
    call: Call,
    begun: Timestamp,
    deadline: Timestamp,
    phase: Phase,
    attempts: u32,
    redispatches: u32,
    tried: Tried,
    flights: Flights,
    last: Option<Outcome>,
    previous_delay: Duration,
    /// Attempts made when the backoff last began anew.
    backoff_begun: u32,
    /// When the attempt being made, or waited for, began.
    attempt_begun: Timestamp,
    /// A retry was paid for and not yet sent.
    paid: bool,
    /// The attempt being made is a redispatch.
    redispatching: bool,
    refresh: Refresh,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Waiting out a backoff.
    BackingOff(Timestamp),
    /// Waiting for another credential.
    Refreshing(Timestamp),
    /// Waiting for a slot.
    Queued(Ticket, Timestamp),
    /// The edge is making the attempt.
    Sent,
    Done(Done),
}

impl Operation {
    /// A call that is to begin at `now`.
    #[must_use]
    pub fn new(now: Timestamp, call: Call) -> Self {
        Self {
            call,
            begun: now,
            deadline: Timestamp::MAX,
            phase: Phase::BackingOff(now),
            attempts: 0,
            redispatches: 0,
            tried: Tried::default(),
            flights: Flights::default(),
            last: None,
            previous_delay: Duration::ZERO,
            backoff_begun: 0,
            attempt_begun: now,
            paid: false,
            redispatching: false,
            refresh: Refresh::Unasked,
        }
    }

    /// Begins it, once.
    pub fn start(
        &mut self,
        dependency: &mut Dependency,
        params: &StackParams,
        rng: &mut impl Rng,
    ) -> Step {
        self.deadline = self.call.ends(self.begun, params);
        self.attempt(self.begun, dependency, params, rng)
    }

    /// Begins a call at `now`. Where it is to stay, [`Operation::new`] and [`Operation::start`]
    /// make it without moving it.
    pub fn begin(
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        call: Call,
        rng: &mut impl Rng,
    ) -> (Self, Step) {
        let mut operation = Self::new(now, call);
        let step = operation.start(dependency, params, rng);
        (operation, step)
    }

    /// Takes in an event and says what follows.
    pub fn on_event(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        event: Event<'_>,
        rng: &mut impl Rng,
    ) -> Step {
        match (self.phase, event) {
            (Phase::Done(done), _) => Step::Done(done),
            (Phase::BackingOff(until), Event::Tick) if now < until => Step::WaitUntil(until),
            (Phase::BackingOff(_), Event::Tick) => self.attempt(now, dependency, params, rng),
            (Phase::Queued(ticket, _), Event::Tick) => {
                self.claim(now, dependency, params, ticket, rng)
            }
            (Phase::Sent, Event::Ended { permit, outcome, replayable }) => {
                dependency.record(now, params, permit, &outcome, rng);
                self.take_back(now, dependency, params, permit, &outcome);
                if !permit.is_sent() {
                    // A redispatch must not wait for the slot of the attempt it stands in for.
                    dependency.vacate(now, params, permit);
                }
                match self.land(dependency, permit, outcome) {
                    Some(last) => self.follow(now, dependency, params, &last, replayable, rng),
                    None => Step::Fly,
                }
            }
            (Phase::Sent, Event::HedgeDue { replayable }) => {
                match self.hedge(now, dependency, params, replayable, rng) {
                    Some(hedge) => Step::Send(hedge),
                    None => Step::Fly,
                }
            }
            (Phase::Sent, Event::Cut) => {
                let (reason, cause) = (StopReason::Deadline, Cause::DeadlineCut);
                self.last = Some(Outcome::of(cause));
                self.finish(now, dependency, params, reason, cause, None)
            }
            (Phase::Refreshing(_), Event::Refreshed { is_fresh }) => {
                self.refreshed(now, dependency, params, is_fresh, rng)
            }
            (Phase::Refreshing(until), Event::Tick) if now >= until => {
                self.refreshed(now, dependency, params, false, rng)
            }
            (Phase::Refreshing(until), _) => Step::Refresh(until),
            (Phase::BackingOff(until) | Phase::Queued(_, until), _) => Step::WaitUntil(until),
            (Phase::Sent, Event::Tick | Event::Refreshed { .. }) => Step::Fly,
        }
    }

    /// The caller left while nothing was being sent: gives back its place in the queue and the
    /// payment. (While an attempt is being made, its permit is the edge's to abandon.)
    pub fn caller_left(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
    ) {
        if let Phase::Queued(ticket, _) = self.phase {
            dependency.cancel(now, params, ticket);
        }
        if !matches!(self.phase, Phase::Done(_)) {
            self.finish(now, dependency, params, StopReason::CallerLeft, Cause::CallerLeft, None);
        }
    }

    /// The ticket whose waking is to be reported as a tick, while the call is queued.
    #[must_use]
    pub const fn ticket(&self) -> Option<Ticket> {
        match self.phase {
            Phase::Queued(ticket, _) => Some(ticket),
            _ => None,
        }
    }

    /// When the call is given up.
    #[must_use]
    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The upload has ended at `now`: the total and the attempt timeout start again, within
    /// what the caller stated. Returns the attempt's new deadline and whether it is the call's.
    pub fn restart_clocks(&mut self, now: Timestamp, params: &StackParams) -> (Timestamp, bool) {
        self.deadline = self.call.ends(now, params);
        self.attempt_begun = now;
        self.attempt_deadline(params)
    }

    /// Tries to begin the next attempt.
    fn attempt(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        rng: &mut impl Rng,
    ) -> Step {
        let lane = self.call.lane;
        if self.is_switched_off(now, dependency, params) {
            return self.switched_off(now, dependency, params);
        }
        let fitting = dependency.fitting(now, lane, now.until(self.deadline));
        if fitting == Fitting::CannotFit {
            return self.too_late(now, dependency, params);
        }
        if let Err(rejection) = dependency.check_rate(now, params, lane, self.call.rate_key) {
            return self.rejected(now, dependency, params, rejection);
        }
        self.attempt_begun = now;
        let (until, _) = self.attempt_deadline(params);
        let avoid = Others { tried: self.tried, at_any_price: self.redispatching };
        let admitted = dependency.admit(now, params, lane, until, avoid, rng);
        self.admitted(now, dependency, params, admitted, fitting)
    }

    /// Asks for the slot it has waited for, which is no use if too little time is left by now.
    fn claim(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        ticket: Ticket,
        rng: &mut impl Rng,
    ) -> Step {
        if self.is_switched_off(now, dependency, params) {
            dependency.cancel(now, params, ticket);
            return self.switched_off(now, dependency, params);
        }
        let avoid = Others { tried: self.tried, at_any_price: self.redispatching };
        let mut admitted = dependency.claim(now, params, self.call.lane, ticket, avoid, rng);
        let mut fitting = Fitting::Fits;
        if let Admitted::Permit(permit) = admitted {
            fitting = dependency.fitting(now, self.call.lane, now.until(self.deadline));
            if fitting == Fitting::CannotFit {
                dependency.release(now, params, permit);
                return self.too_late(now, dependency, params);
            }
            admitted = if now < self.attempt_deadline(params).0 {
                Admitted::Permit(permit)
            } else {
                dependency.release(now, params, permit);
                dependency.reject_full()
            };
        }
        self.admitted(now, dependency, params, admitted, fitting)
    }

    /// Turns an admission into a step.
    fn admitted(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        admitted: Admitted,
        fitting: Fitting,
    ) -> Step {
        match admitted {
            Admitted::Permit(mut permit) => {
                let key = self.call.rate_key;
                if let Err(rejection) = dependency.take_rate(now, params, key, &mut permit) {
                    dependency.release(now, params, permit);
                    return self.rejected(now, dependency, params, rejection);
                }
                if fitting == Fitting::AsScout {
                    dependency.take_scout(now);
                }
                Step::Send(self.send(now, dependency, params, permit))
            }
            Admitted::Queued(ticket, until) => {
                self.phase = Phase::Queued(ticket, until);
                Step::WaitUntil(until)
            }
            Admitted::Rejected(rejection) => self.rejected(now, dependency, params, rejection),
        }
    }

    fn send(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        mut permit: Permit,
    ) -> Attempt {
        self.phase = Phase::Sent;
        self.tried.add(permit.endpoint());
        permit.serve(match (self.redispatching, self.attempts) {
            (true, _) => Purpose::Redispatch,
            (false, 0) => Purpose::First,
            (false, _) => Purpose::Retry,
        });
        if permit.purpose() == Purpose::First {
            dependency.count_first(now, params);
        }
        *dependency.counters_mut().attempts_mut(permit.purpose()) += 1;
        match permit.purpose() {
            Purpose::Redispatch => self.redispatches += 1,
            _ => self.attempts += 1,
        }
        if self.refresh == Refresh::Asked {
            self.refresh = Refresh::Sent;
        }
        if core::mem::take(&mut self.paid) {
            permit.pay();
        }
        permit.limit(self.attempt_timeout(params));
        let (deadline, cut_by_call) = self.attempt_deadline(params);
        let hedge_at = self.take_off(dependency, params, &permit).filter(|at| *at < deadline);
        Attempt { number: self.attempts, deadline, cut_by_call, hedge_at, permit }
    }

    /// Ends the call. `cause` is the outcome only where no attempt has one.
    fn finish(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        stop: StopReason,
        cause: Cause,
        retry_after: Option<Duration>,
    ) -> Step {
        if core::mem::take(&mut self.paid) {
            dependency.refund(now, params);
        }
        let done = Done {
            outcome: self.last.unwrap_or_else(|| Outcome::of(cause)),
            attempts: self.attempts,
            redispatches: self.redispatches,
            hedges: self.flights.hedges(),
            stop,
            retry_after,
        };
        self.phase = Phase::Done(done);
        Step::Done(done)
    }

    /// When the attempt that began at `attempt_begun` is given up, and whether that is because
    /// the whole call is.
    fn attempt_deadline(&self, params: &StackParams) -> (Timestamp, bool) {
        self.deadline_from(self.attempt_begun, params)
    }

    /// The same for an attempt that begins at `begun`.
    fn deadline_from(&self, begun: Timestamp, params: &StackParams) -> (Timestamp, bool) {
        let timeout = self.attempt_timeout(params);
        let own = timeout.map_or(Timestamp::MAX, |timeout| begun.after(timeout));
        (own.min(self.deadline), self.deadline < own)
    }

    fn attempt_timeout(&self, params: &StackParams) -> Option<Duration> {
        self.call.attempt_timeout.or(params.attempt_timeout)
    }

    /// When the call began.
    #[must_use]
    pub const fn begun(&self) -> Timestamp {
        self.begun
    }
}
