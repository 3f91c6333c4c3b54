//! What follows an ended attempt: a retry that is wanted, useful and paid for, or the end.

use core::time::Duration;

use super::{Operation, Phase, Step};
use crate::outcome::{Cause, Class, Outcome};
use crate::retry::{self, Decision, Facts, StopReason};
use crate::retry_after::RetryAfter;
use crate::rng::Rng;
use crate::stack::StackParams;
use crate::stack::dependency::{Dependency, Fitting, Payment, Permit, Purpose};
use crate::time::Timestamp;

impl Operation {
    /// Keeps the outcome, and takes back what an attempt that we refused, or whose caller left,
    /// before anything was sent has not used: its payment and, if we refused it, its number.
    pub(super) fn take_back(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        permit: &mut Permit,
        outcome: &Outcome,
    ) {
        let refused_here = outcome.class() == Class::RefusedHere;
        if self.last.is_none() || !refused_here {
            self.last = Some(*outcome);
        }
        let was_made = !refused_here && outcome.class() != Class::Cancelled;
        let (paid, allowed) = (permit.take_paid(), permit.take_allowance());
        if permit.is_sent() || was_made {
            return;
        }
        if allowed {
            let payment = if paid { Payment::Paid } else { Payment::Free };
            dependency.refund_hedge(now, params, payment);
        } else {
            self.paid |= paid;
        }
        if !refused_here {
            return;
        }
        *dependency.counters_mut().attempts_mut(permit.purpose()) -= 1;
        match permit.purpose() {
            Purpose::Redispatch => self.redispatches -= 1,
            Purpose::Hedge => {
                self.attempts -= 1;
                self.flights.take_back();
            }
            _ => self.attempts -= 1,
        }
    }

    /// Decides what follows an ended attempt.
    pub(super) fn follow(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        outcome: &Outcome,
        replayable: bool,
        rng: &mut impl Rng,
    ) -> Step {
        // Most calls end here, and what only a retry has to know need not be found out.
        if let Some(reason) = retry::final_by_class(outcome) {
            return self.finish(now, dependency, params, reason, outcome.cause(), None);
        }
        let tried = self.tried;
        let lane = self.call.lane;
        let facts = Facts {
            attempts: self.charged(),
            backoff_steps: self.charged().saturating_sub(self.backoff_begun),
            redispatches: self.redispatches,
            other_endpoint: dependency
                .would_admit(now, params, lane, |endpoint| tried.contains(endpoint)),
            safety: self.call.safety,
            owner: self.call.owner,
            retries_on: dependency.retries_on(now, params, lane),
            replayable,
            may_refresh: self.may_refresh(),
            remaining: now.until(self.deadline),
            previous_delay: self.previous_delay,
        };
        let retry = self.call.retry;
        match retry::decide(retry.as_ref().or(params.retry.as_ref()), outcome, &facts, rng) {
            Decision::Stop(reason) => {
                self.finish(now, dependency, params, reason, outcome.cause(), None)
            }
            Decision::Refresh => self.ask_refresh(now),
            Decision::Redispatch => {
                self.redispatching = true;
                self.attempt(now, dependency, params, rng)
            }
            Decision::RetryAfter(delay) => {
                let step = self.back_off(now, dependency, params, delay);
                if matches!(outcome.retry_after(), RetryAfter::Pushback(_)) {
                    (self.backoff_begun, self.previous_delay) = (self.charged(), Duration::ZERO);
                }
                step
            }
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
        } else if dependency.fitting(now, lane, at.until(self.deadline)) != Fitting::Fits {
            Some(StopReason::Deadline)
        } else {
            match dependency.withdraw(now, params) {
                Payment::Refused => Some(StopReason::Budget),
                payment => {
                    self.paid = payment == Payment::Paid;
                    None
                }
            }
        };
        if let Some(reason) = refused {
            return self.finish(now, dependency, params, reason, Cause::DeadlinePassed, None);
        }
        self.redispatching = false;
        self.previous_delay = delay;
        self.phase = Phase::BackingOff(at);
        Step::WaitUntil(at)
    }
}
