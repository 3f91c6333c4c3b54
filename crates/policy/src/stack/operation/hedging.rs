//! Attempts in parallel: when a second one goes, and which of two decides.

use super::{Operation, Phase};
use crate::hedge::{HedgeParams, HedgeRefusal};
use crate::outcome::{Cause, Class, Outcome, Safety};
use crate::rng::Rng;
use crate::stack::dependency::{Admitted, Dependency, Fitting, Payment, Permit, Purpose};
use crate::stack::{Attempt, StackParams};
use crate::time::Timestamp;

/// What is in the air.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flights {
    /// Attempts; two while a hedge is among them.
    count: u32,
    /// Where the one that a hedge would go beside went.
    first: usize,
    /// How one has ended while the other is waited for.
    aside: Option<Outcome>,
    /// Hedges of the whole call.
    hedges: u32,
}

impl Flights {
    pub(super) const fn hedges(&self) -> u32 {
        self.hedges
    }

    /// We refused a hedge ourselves after it had been let go.
    pub(super) const fn take_back(&mut self) {
        self.hedges -= 1;
    }
}

impl Operation {
    /// An attempt goes, alone. When it has been alone for long enough, if it may have company.
    pub(super) fn take_off(
        &mut self,
        dependency: &mut Dependency,
        params: &StackParams,
        permit: &Permit,
    ) -> Option<Timestamp> {
        let hedges = self.flights.hedges;
        self.flights = Flights { count: 1, first: permit.endpoint(), aside: None, hedges };
        let hedge = params.hedge.as_ref()?;
        let now = permit.granted();
        if permit.purpose() == Purpose::First {
            dependency.earn_hedge(now, hedge);
        }
        let may_repeat = self.call.owner && self.call.safety.may_repeat();
        if !may_repeat || self.charged() >= params.max_attempts() {
            return None;
        }
        dependency.hedge_delay(now, hedge, self.call.lane).map(|delay| now.after(delay))
    }

    /// The attempt has been alone for long enough: the one to be made beside it, if there is to be
    /// one.
    pub(super) fn hedge(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        replayable: bool,
        rng: &mut impl Rng,
    ) -> Option<Attempt> {
        let hedge = params.hedge.as_ref().filter(|_| self.flights.count == 1)?;
        let admitted = self
            .may_hedge(now, dependency, params, hedge, replayable)
            .and_then(|payment| self.admit_hedge(now, dependency, params, hedge, payment, rng));
        let mut permit = match admitted {
            Ok(permit) => permit,
            Err(refusal) => {
                dependency.counters_mut().hedges_refused[refusal.index()] += 1;
                return None;
            }
        };
        permit.serve(Purpose::Hedge);
        *dependency.counters_mut().attempts_mut(Purpose::Hedge) += 1;
        self.phase = Phase::Sent;
        self.flights.count += 1;
        self.flights.hedges += 1;
        self.tried.add(permit.endpoint());
        self.attempts += 1;
        permit.limit(self.attempt_timeout(params));
        let (deadline, cut_by_call) = self.deadline_from(now, params);
        Some(Attempt { number: self.attempts, deadline, cut_by_call, hedge_at: None, permit })
    }

    /// Asks everything that forbids a hedge, and pays last.
    fn may_hedge(
        &self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        hedge: &HedgeParams,
        replayable: bool,
    ) -> Result<Payment, HedgeRefusal> {
        let lane = self.call.lane;
        let first = self.flights.first;
        let same_endpoint = hedge.options().same_endpoint;
        let remaining = now.until(self.deadline);
        if !dependency.retries_on(now, params, lane) {
            return Err(HedgeRefusal::RetriesOff);
        }
        if self.charged() >= params.max_attempts() {
            return Err(HedgeRefusal::Attempts);
        }
        if !replayable {
            return Err(HedgeRefusal::Body);
        }
        if dependency.fitting(now, lane, remaining) != Fitting::Fits {
            return Err(HedgeRefusal::Deadline);
        }
        if dependency.is_busy(now, params, hedge) {
            return Err(HedgeRefusal::Load);
        }
        if !dependency.would_admit(now, params, lane, |index| index == first && !same_endpoint) {
            return Err(HedgeRefusal::Endpoint);
        }
        dependency.pay_hedge(now, params, hedge)
    }

    /// Asks for its place, which it does not wait for.
    fn admit_hedge(
        &self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        hedge: &HedgeParams,
        payment: Payment,
        rng: &mut impl Rng,
    ) -> Result<Permit, HedgeRefusal> {
        let (lane, first) = (self.call.lane, self.flights.first);
        let refusal = match dependency.admit(now, params, lane, now, |index| index == first, rng) {
            Admitted::Permit(mut permit)
                if permit.endpoint() != first || hedge.options().same_endpoint =>
            {
                let key = self.call.rate_key;
                if dependency.take_rate(now, params, key, &mut permit).is_ok() {
                    if payment == Payment::Paid {
                        permit.pay();
                    }
                    return Ok(permit);
                }
                dependency.release(now, params, permit);
                HedgeRefusal::Full
            }
            Admitted::Permit(permit) => {
                dependency.release(now, params, permit);
                HedgeRefusal::Endpoint
            }
            Admitted::Queued(ticket, _) => {
                dependency.cancel(now, params, ticket);
                HedgeRefusal::Full
            }
            Admitted::Rejected(_) => HedgeRefusal::Full,
        };
        dependency.refund_hedge(now, params, payment);
        Err(refusal)
    }

    /// An attempt has ended: what the call has to go by now, or nothing while the other attempt
    /// may still bring better.
    pub(super) fn land(
        &mut self,
        dependency: &mut Dependency,
        permit: &Permit,
        outcome: Outcome,
    ) -> Option<Outcome> {
        self.flights.count = self.flights.count.saturating_sub(1);
        let is_final = is_final(&outcome, self.call.safety);
        let is_alone = self.flights.count == 0;
        if is_final && permit.purpose() == Purpose::Hedge {
            dependency.counters_mut().hedges_won += 1;
        }
        if is_final || is_alone {
            let aside = self.flights.aside.take().filter(|_| !is_final);
            // A stop holds whoever said it; a refusal of ours never stands for an answer.
            let decides =
                |aside: &Outcome| aside.says_stop() || outcome.class() == Class::RefusedHere;
            return Some(aside.filter(decides).unwrap_or(outcome));
        }
        self.flights.aside = Some(outcome);
        None
    }
}

/// Whether nothing that the other attempt could bring is worth waiting for.
fn is_final(outcome: &Outcome, safety: Safety) -> bool {
    match (outcome.class(), outcome.cause()) {
        // Of two requests with one key, it may say no more than that the other is under way.
        (Class::Rejected, Cause::Status(409)) => safety != Safety::Keyed,
        (Class::Success | Class::Rejected | Class::Cancelled, _) => true,
        _ => false,
    }
}
