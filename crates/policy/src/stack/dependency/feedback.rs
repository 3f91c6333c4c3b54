//! What ended, slow and abandoned attempts teach: the breakers, the budget and the estimate.

use alloc::collections::BTreeMap;

use super::limiting::for_limit;
use super::terms::{HeldCall, Permit, Slot, SlotKind};
use super::{Dependency, MOST_HELD, P99};
use crate::balance::Balance;
use crate::breaker::BreakerPermit;
use crate::grpc::GrpcCode;
use crate::outcome::{Cause, Class, Outcome, Signal};
use crate::outlier::OutlierPermit;
use crate::rng::Rng;
use crate::stack::StackParams;
use crate::time::Timestamp;

impl Dependency {
    /// Records that the attempt is still in flight at one of its slow thresholds: its breaker's, or
    /// what is slow beside the other endpoints. While nothing was sent it waits for something of
    /// ours, and is asked about again one threshold later.
    pub fn on_slow(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
        rng: &mut impl Rng,
    ) {
        if !permit.is_sent() {
            permit.watch(now, params);
            return;
        }
        let Slot { endpoint, lane, .. } = permit.slot;
        let age = now.since(permit.watched);
        if let Some(outlier) = &mut permit.outlier
            && outlier.slow_after().is_some_and(|slow_after| age >= slow_after)
        {
            let end = &mut self.endpoints[endpoint];
            end.conduct.on_slow(now, outlier);
            end.load.on_at_least(now, age);
        }
        let is_slow = params.slow.is_some_and(|slow| age >= slow);
        let is_new = is_slow && !core::mem::replace(&mut permit.told_breaker, true);
        if let Some(breaker) = permit.breaker.as_mut().filter(|_| is_new) {
            let knobs = self.knobs(now, params);
            let breakers = &mut self.endpoints[endpoint].breakers;
            let transition = breakers[lane].on_slow(now, &knobs, breaker, rng);
            self.log(now, endpoint, lane, transition);
        }
        permit.watch(permit.watched, params);
        self.look(now, params, rng);
    }

    /// Records how the attempt ended: for the breakers, the budget and the estimate. Only the
    /// first outcome of a permit counts. The slot stays taken until the release.
    ///
    /// Of an answer whose status comes later, only the time to its head is taken here, and the
    /// outcome that comes with its status is recorded as if it had come then.
    pub fn record(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
        outcome: &Outcome,
        rng: &mut impl Rng,
    ) {
        if permit.recorded {
            return;
        }
        if !permit.has_answered() {
            if now >= permit.slow_at() {
                self.on_slow(now, params, permit, rng);
            }
            self.record_time(now, params, permit, outcome);
        }
        if outcome.awaits_status() {
            permit.answered(now);
            return;
        }
        permit.recorded = true;
        permit.ended = Some(for_limit(outcome, permit.is_sent()));
        if params.balance == Balance::PeakEwma {
            self.record_load(now, permit, outcome);
        }
        self.account(now, params, outcome);
        if let Some(breaker) = permit.breaker.take() {
            self.record_health(now, params, permit, breaker, outcome, rng);
        }
        if let Some(outlier) = permit.outlier.take() {
            self.record_conduct(now, permit, outlier, outcome);
        }
        self.look(now, params, rng);
    }

    /// Records the status at the end of an answer. Where the call was recorded before, since it
    /// streams, a failure at its end is one failed call more; anything else says nothing new.
    pub fn record_status(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &mut Permit,
        outcome: &Outcome,
        rng: &mut impl Rng,
    ) {
        if !permit.recorded {
            self.record(now, params, permit, outcome, rng);
        } else if outcome.breaker_signal() == Signal::Failure {
            let Slot { endpoint, lane, .. } = permit.slot;
            let knobs = self.knobs(now, params);
            let own = self.breaker(endpoint, lane);
            let transition = own.on_unreachable(now, &knobs, rng);
            self.log(now, endpoint, lane, transition);
        }
    }

    /// The caller left, or no longer waits, and the attempt runs on with its permit, to be recorded
    /// at its real end. Counted once; in flight until the permit comes back. One that was never
    /// sent is no call yet: release it.
    pub fn orphan(&mut self, permit: &mut Permit) {
        if !core::mem::replace(&mut permit.orphaned, true) {
            self.orphans += 1;
            self.counters.abandoned += 1;
        }
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
        if !permit.is_sent() {
            self.release(now, params, permit);
            return None;
        }
        // Asked before this call's own sample is in, which says no more than its age.
        let known = self.lanes[permit.slot.lane].times.quantile(now, P99).unwrap_or_default();
        if !permit.is_recorded() {
            self.record(now, params, &mut permit, &Outcome::of(Cause::CallerLeft), rng);
        }
        self.orphan(&mut permit);
        self.orphans -= 1;
        self.learn_limit(now, params, &mut permit);
        let age = now.since(permit.granted);
        let mut patience = known.saturating_mul(3).max(age.saturating_mul(2));
        if let Some(timeout) = permit.timeout {
            patience = patience.min(timeout.saturating_mul(2));
        }
        let until = permit.granted.after(patience);
        let is_full = permit.slot.kind == SlotKind::Unlimited && self.held.len() >= MOST_HELD;
        if until <= now || is_full {
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
        let Some(slot) = self.held.remove(&held) else { return };
        if self.held.is_empty() {
            // An empty map keeps its last node, which is half of what an idle dependency is.
            self.held = BTreeMap::new();
        }
        self.free(now, params, slot);
    }

    /// Adds a sample to the estimate: the time of an answer, or "at least this slow" for a call
    /// that was cut. What was refused or never processed tells nothing about service time.
    fn record_time(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &Permit,
        outcome: &Outcome,
    ) {
        let elapsed = now.since(permit.granted);
        let times = &mut self.lanes[permit.slot.lane].times;
        let was_answered = match outcome.cause() {
            // A refusal is no service, and a failure no service time.
            Cause::Status(_) if !outcome.deposits() => return,
            Cause::Grpc(code) if matches!(code.class(), Class::Overloaded | Class::Unknown) => {
                return;
            }
            Cause::Status(_) | Cause::Grpc(_) | Cause::Answered | Cause::BusinessError => {
                times.record(now, elapsed);
                true
            }
            Cause::AttemptTimeout | Cause::DeadlineCut | Cause::CallerLeft if permit.is_sent() => {
                times.record_at_least(now, elapsed);
                false
            }
            _ => return,
        };
        self.record_utilisation(now, params, permit, elapsed, was_answered);
    }

    /// What the attempt says of the cost of its endpoint. A 429 asks for less, as a failure does,
    /// and a 5xx that is none for the breaker is one here: its speed is not worth having.
    fn record_load(&mut self, now: Timestamp, permit: &Permit, outcome: &Outcome) {
        let elapsed = permit.elapsed(now);
        let load = &mut self.endpoints[permit.slot.endpoint].load;
        match (outcome.breaker_signal(), outcome.cause()) {
            (Signal::Success, _) if outcome.class() == Class::Success => {
                load.on_answer(now, elapsed);
            }
            (Signal::Failure, _)
            | (_, Cause::Status(429) | Cause::Grpc(GrpcCode::ResourceExhausted)) => {
                load.on_failure(now, elapsed);
            }
            (_, cause) if is_server_error(cause) => load.on_failure(now, elapsed),
            (Signal::Success, _) => load.on_rejection(now, elapsed),
            (Signal::Ignore, Cause::DeadlineCut | Cause::CallerLeft) if permit.is_sent() => {
                load.on_at_least(now, elapsed);
            }
            (Signal::Ignore, _) => {}
        }
    }

    /// What the attempt says of its endpoint beside the others: a failure as the breaker sees it,
    /// any 5xx, or a gRPC code that stands for one.
    fn record_conduct(
        &mut self,
        now: Timestamp,
        permit: &Permit,
        outlier: OutlierPermit,
        outcome: &Outcome,
    ) {
        let conduct = &mut self.endpoints[permit.slot.endpoint].conduct;
        let elapsed = permit.elapsed(now);
        let is_server_error = is_server_error(outcome.cause()) && outcome.class() != Class::Success;
        match outcome.breaker_signal() {
            Signal::Ignore => conduct.on_ignore(&outlier),
            Signal::Failure => conduct.on_end(now, outlier, true, elapsed),
            Signal::Success => conduct.on_end(now, outlier, is_server_error, elapsed),
        }
    }

    fn record_health(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        permit: &Permit,
        breaker: BreakerPermit,
        outcome: &Outcome,
        rng: &mut impl Rng,
    ) {
        let Slot { endpoint, lane, .. } = permit.slot;
        let elapsed = permit.elapsed(now);
        let knobs = &*self.knobs(now, params);
        let own = self.breaker(endpoint, lane);
        let transition = match outcome.breaker_signal() {
            Signal::Success => own.on_success(now, knobs, breaker, elapsed, rng),
            Signal::Failure => own.on_failure(now, knobs, breaker, elapsed, rng),
            Signal::Ignore => {
                own.on_ignore(now, knobs, breaker);
                None
            }
        };
        self.log(now, endpoint, lane, transition);
        if outcome.cause().is_connect_error() {
            for other in (0..self.lanes.len()).filter(|other| *other != lane) {
                self.roll_breaker(now, params, endpoint, other);
                let transition = self.breaker(endpoint, other).on_unreachable(now, knobs, rng);
                self.log(now, endpoint, other, transition);
            }
        }
    }
}

const fn is_server_error(cause: Cause) -> bool {
    match cause {
        Cause::Status(status) => matches!(status, 500..=599),
        Cause::Grpc(code) => matches!(
            code,
            GrpcCode::Unknown | GrpcCode::Internal | GrpcCode::DataLoss | GrpcCode::Unimplemented
        ),
        _ => false,
    }
}
