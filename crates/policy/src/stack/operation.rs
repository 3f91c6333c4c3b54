//! One whole call as a machine without I/O.
//!
//! The edge that drives it sends, sleeps and wakes, and decides nothing:
//! 1. [`Operation::begin`], and from then on [`Operation::on_event`], yield a [`Step`].
//! 2. [`Step::Send`]: make the attempt before its deadline, then report [`Event::Ended`].
//! 3. [`Step::WaitUntil`]: report [`Event::Tick`] then, or earlier when
//!    [`Operation::ticket`] is woken. A tick too early yields the same step again.
//! 4. [`Step::Done`]: the call is over. Or the caller leaves: [`Operation::caller_left`].
//!
//! A retry is paid for when it is decided, so that waiting retries count, and the payment comes
//! back if it is never sent. The last attempt's outcome is what the call returns, with the reason
//! it stopped; a refusal of ours is the outcome only where nothing was ever sent.

use core::time::Duration;

use super::StackParams;
use super::dependency::{Admitted, Dependency, Permit, Rejection};
use crate::bulkhead::Ticket;
use crate::outcome::{Cause, Class, Outcome, Safety};
use crate::retry::{self, Decision, Facts, StopReason};
use crate::rng::Rng;
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
}

/// What the edge does next.
#[derive(Debug)]
pub enum Step {
    /// Make this attempt.
    Send(Attempt),
    /// Report a tick then.
    WaitUntil(Timestamp),
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
    /// The right to make it; names the endpoint.
    pub permit: Permit,
}

/// What happened to the edge.
#[derive(Debug)]
pub enum Event<'a> {
    /// Time passed, or the ticket was woken.
    Tick,
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
    /// Attempts that were sent.
    pub attempts: u32,
    /// Other endpoints tried at once, beside the attempts.
    pub redispatches: u32,
    /// Why it ended.
    pub stop: StopReason,
    /// After a refusal of ours: when it is worth asking again.
    pub retry_after: Option<Duration>,
}

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
    last: Option<Outcome>,
    previous_delay: Duration,
    /// When the attempt being made, or waited for, began.
    attempt_begun: Timestamp,
    /// A retry was paid for and not yet sent.
    paid: bool,
    /// The attempt being made is a redispatch.
    redispatching: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Waiting out a backoff.
    BackingOff(Timestamp),
    /// Waiting for a slot.
    Queued(Ticket, Timestamp),
    /// The edge is making the attempt.
    Sent,
    Done(Done),
}

impl Operation {
    /// Begins a call at `now`.
    pub fn begin(
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        call: Call,
        rng: &mut impl Rng,
    ) -> (Self, Step) {
        let mut operation = Self {
            call,
            begun: now,
            deadline: deadline(now, &call, params),
            phase: Phase::BackingOff(now),
            attempts: 0,
            redispatches: 0,
            tried: Tried::default(),
            last: None,
            previous_delay: Duration::ZERO,
            attempt_begun: now,
            paid: false,
            redispatching: false,
        };
        let step = operation.attempt(now, dependency, params, rng);
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
                let tried = self.tried;
                let avoid = |endpoint| tried.contains(endpoint);
                let lane = self.call.lane;
                let admitted = dependency.claim(now, params, lane, ticket, avoid, rng);
                self.admitted(now, dependency, params, admitted)
            }
            (Phase::Sent, Event::Ended { permit, outcome, replayable }) => {
                dependency.record(now, params, permit, &outcome, rng);
                self.take_back(dependency, permit, &outcome);
                self.follow(now, dependency, params, &outcome, replayable, rng)
            }
            (Phase::Sent, Event::Cut) => {
                let (reason, cause) = (StopReason::Deadline, Cause::DeadlineCut);
                self.last = Some(Outcome::of(cause));
                self.finish(now, dependency, params, reason, cause, None)
            }
            (Phase::BackingOff(until) | Phase::Queued(_, until), _) => Step::WaitUntil(until),
            (Phase::Sent, Event::Tick) => Step::WaitUntil(self.attempt_deadline(params).0),
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

    /// A large upload has ended at `now`: the total and the attempt timeout start again, within
    /// what the caller stated. Returns the attempt's new deadline and whether it is the call's.
    pub fn restart_clocks(&mut self, now: Timestamp, params: &StackParams) -> (Timestamp, bool) {
        self.deadline = deadline(now, &self.call, params);
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
        let remaining = now.until(self.deadline);
        if remaining.is_zero() || !dependency.may_fit(now, lane, remaining, false) {
            dependency.counters_mut().deadline_before_send += 1;
            let (reason, cause) = (StopReason::Deadline, Cause::DeadlinePassed);
            return self.finish(now, dependency, params, reason, cause, None);
        }
        self.attempt_begun = now;
        let (until, _) = self.attempt_deadline(params);
        let tried = self.tried;
        let avoid = |endpoint| tried.contains(endpoint);
        let admitted = dependency.admit(now, params, lane, until, avoid, rng);
        self.admitted(now, dependency, params, admitted)
    }

    /// Turns an admission into a step.
    fn admitted(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        admitted: Admitted,
    ) -> Step {
        match admitted {
            Admitted::Permit(permit) => Step::Send(self.send(dependency, params, permit)),
            Admitted::Queued(ticket, until) => {
                self.phase = Phase::Queued(ticket, until);
                Step::WaitUntil(until)
            }
            Admitted::Rejected(Rejection { cause, retry_after }) => {
                let reason = match cause {
                    Cause::BreakerOpen => StopReason::BreakerOpen,
                    _ => StopReason::BulkheadFull,
                };
                self.finish(now, dependency, params, reason, cause, Some(retry_after))
            }
        }
    }

    fn send(
        &mut self,
        dependency: &mut Dependency,
        params: &StackParams,
        mut permit: Permit,
    ) -> Attempt {
        self.phase = Phase::Sent;
        self.tried.add(permit.endpoint());
        let counters = dependency.counters_mut();
        if self.redispatching {
            counters.redispatches += 1;
        } else if self.attempts == 0 {
            counters.first_attempts += 1;
        } else {
            counters.retries += 1;
        }
        if !self.redispatching {
            self.attempts += 1;
        }
        if core::mem::take(&mut self.paid) {
            permit.pay();
        }
        let (deadline, cut_by_call) = self.attempt_deadline(params);
        Attempt { number: self.attempts, deadline, cut_by_call, permit }
    }

    /// Keeps the outcome, and takes back what an attempt that never left has not used: its
    /// payment, and, if we refused it ourselves, its number.
    fn take_back(&mut self, dependency: &mut Dependency, permit: &mut Permit, outcome: &Outcome) {
        let refused_here = outcome.class() == Class::RefusedHere;
        if self.last.is_none() || !refused_here {
            self.last = Some(*outcome);
        }
        if permit.is_sent() {
            return;
        }
        self.paid |= permit.take_paid();
        if refused_here {
            let counters = dependency.counters_mut();
            if self.redispatching {
                counters.redispatches -= 1;
                self.redispatches -= 1;
            } else {
                self.attempts -= 1;
                let count = match self.attempts {
                    0 => &mut counters.first_attempts,
                    _ => &mut counters.retries,
                };
                *count -= 1;
            }
        }
    }

    /// Decides what follows an ended attempt.
    fn follow(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        outcome: &Outcome,
        replayable: bool,
        rng: &mut impl Rng,
    ) -> Step {
        let tried = self.tried;
        let lane = self.call.lane;
        let facts = Facts {
            attempts: self.attempts,
            redispatches: self.redispatches,
            other_endpoint: dependency
                .would_admit(now, params, lane, |endpoint| tried.contains(endpoint)),
            safety: self.call.safety,
            owner: self.call.owner,
            retries_on: dependency.retries_on(now, params, lane),
            replayable,
            remaining: now.until(self.deadline),
            previous_delay: self.previous_delay,
        };
        match retry::decide(params.retry.as_ref(), outcome, &facts, rng) {
            Decision::Stop(reason) => {
                self.finish(now, dependency, params, reason, outcome.cause(), None)
            }
            Decision::Redispatch => {
                self.redispatches += 1;
                self.redispatching = true;
                self.attempt(now, dependency, params, rng)
            }
            Decision::RetryAfter(delay) => self.back_off(now, dependency, params, delay),
        }
    }

    /// Waits before a retry, if it would be admitted, could fit, and can be paid for; the price
    /// is asked last.
    fn back_off(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        delay: Duration,
    ) -> Step {
        let at = now.after(delay);
        let lane = self.call.lane;
        let refused = if !dependency.would_admit(at, params, lane, |_| false) {
            Some(StopReason::BreakerOpen)
        } else if !dependency.may_fit(now, lane, at.until(self.deadline), true) {
            Some(StopReason::Deadline)
        } else if !self.paid && !dependency.withdraw(now, params) {
            Some(StopReason::Budget)
        } else {
            None
        };
        if let Some(reason) = refused {
            return self.finish(now, dependency, params, reason, Cause::DeadlinePassed, None);
        }
        self.paid = true;
        self.redispatching = false;
        self.previous_delay = delay;
        self.phase = Phase::BackingOff(at);
        Step::WaitUntil(at)
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
            stop,
            retry_after,
        };
        self.phase = Phase::Done(done);
        Step::Done(done)
    }

    /// When the attempt that began at `attempt_begun` is given up, and whether that is because
    /// the whole call is.
    fn attempt_deadline(&self, params: &StackParams) -> (Timestamp, bool) {
        let own = params
            .attempt_timeout
            .map_or(Timestamp::MAX, |timeout| self.attempt_begun.after(timeout));
        (own.min(self.deadline), self.deadline < own)
    }

    /// When the call began.
    #[must_use]
    pub const fn begun(&self) -> Timestamp {
        self.begun
    }
}

/// The earlier of what the caller stated and what we allow.
fn deadline(now: Timestamp, call: &Call, params: &StackParams) -> Timestamp {
    let total = call.total.or(params.total);
    let own = total.map_or(Timestamp::MAX, |total| now.after(total));
    call.deadline.map_or(own, |stated| stated.min(own))
}

/// The endpoints tried last, up to eight: a call that has tried more may come back to the first.
#[derive(Clone, Copy, Debug)]
struct Tried {
    endpoints: [usize; 8],
    next: usize,
}

impl Default for Tried {
    fn default() -> Self {
        Self { endpoints: [usize::MAX; 8], next: 0 }
    }
}

impl Tried {
    fn add(&mut self, endpoint: usize) {
        self.endpoints[self.next % self.endpoints.len()] = endpoint;
        self.next += 1;
    }

    fn contains(&self, endpoint: usize) -> bool {
        self.endpoints.contains(&endpoint)
    }
}
