//! The attempts of a call that are in flight: one, or two while a hedge is among them.

use std::future::Future;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use seawall_policy::{Cause, Class, Event, Outcome, Step};
use tokio::time::timeout_at;

use super::{Answer, Brought, Driver, Landed, catch_up};
use crate::attempt::CallShared;
use crate::flight::{Flown, InFlight, OnAbandon};
use crate::stack::SlotGuard;

/// Which of the attempts in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    First,
    Hedge,
}

impl<F, A> Driver<'_, F, A>
where
    F: Future,
    F::Output: Answer + Send,
    A: OnAbandon<F>,
{
    /// Takes in an attempt to be polled: alone, or beside the one in flight.
    pub(super) fn launch(&mut self, flight: InFlight<F>, generation: u64) {
        self.hedged |= self.flight.is_some();
        let leg = if self.flight.is_none() { Leg::First } else { Leg::Hedge };
        self.generations[leg as usize] = generation;
        *self.place(leg) = Some(flight);
    }

    /// Polls what is in flight to an end, a deadline or a hedge's time, and asks what follows.
    pub(super) fn poll_flights(
        &mut self,
        cx: &mut Context<'_>,
        shared: &CallShared,
    ) -> Poll<Landed<F::Output>> {
        loop {
            let (leg, flown) = ready!(self.poll_legs(cx));
            match flown {
                Flown::Answer(answer) => return Poll::Ready(self.land(leg, answer)),
                Flown::UploadEnded => self.restart(leg),
                Flown::HedgeDue(now) => {
                    let event = Event::HedgeDue { replayable: shared.is_hedgeable() };
                    match self.report(now, event) {
                        Step::Fly => {}
                        next => {
                            self.next = next;
                            return Poll::Ready(Landed::On);
                        }
                    }
                }
                Flown::Deadline => return Poll::Ready(self.time_out(leg, shared)),
            }
        }
    }

    fn poll_legs(&mut self, cx: &mut Context<'_>) -> Poll<(Leg, Flown<F::Output>)> {
        if let Some(flight) = &mut self.flight
            && let Poll::Ready(flown) = flight.poll(cx)
        {
            return Poll::Ready((Leg::First, flown));
        }
        match &mut self.hedge {
            Some(hedge) => hedge.poll(cx).map(|flown| (Leg::Hedge, flown)),
            None if self.flight.is_none() => Poll::Ready((Leg::First, Flown::Deadline)),
            None => Poll::Pending,
        }
    }

    const fn place(&mut self, leg: Leg) -> &mut Option<InFlight<F>> {
        match leg {
            Leg::First => &mut self.flight,
            Leg::Hedge => &mut self.hedge,
        }
    }

    /// The upload has ended: starts the clocks again at its end.
    fn restart(&mut self, leg: Leg) {
        let now = self.now;
        let Some(flight) = self.place(leg) else { return };
        let Some(ended) = flight.lease().settle(now) else { return };
        let params = self.stack.params();
        let (deadline, cut_by_call) = self.operation.restart_clocks(ended, &params);
        if let Some(flight) = self.place(leg) {
            flight.extend(deadline, cut_by_call);
            flight.restart_hedge(ended);
        }
    }

    /// The attempt was answered.
    fn land(&mut self, leg: Leg, answer: F::Output) -> Landed<F::Output> {
        let now = self.stack.clock().now();
        let outcome = answer.outcome();
        let replayable = answer.is_replayable();
        let whole = answer.is_whole();
        let mut flight = self.place(leg).take();
        if let Some(ended) = flight.as_mut().and_then(|flight| flight.lease().settle(now)) {
            // What may follow has its time from there on.
            self.operation.restart_clocks(ended, &self.stack.params());
        }
        let Some(mut permit) = flight.and_then(|mut flight| flight.lease().take()) else {
            self.next = self.report(now, Event::Cut);
            return Landed::Again { kept: Some(answer) };
        };
        let granted = permit.granted();
        let mut kept = None;
        self.now = now;
        let next = self.stack.with(|dependency, params, rng| {
            catch_up(now, dependency, params);
            let event = Event::Ended { permit: &mut permit, outcome, replayable };
            let next = self.operation.on_event(now, dependency, params, event, rng);
            if whole && matches!(next, Step::Done(_)) {
                dependency.release(now, params, permit);
            } else {
                kept = Some(permit);
            }
            next
        });
        if outcome.is_unauthenticated() {
            // Whether it is waited for or not: for those that follow.
            let rejected = self.generations[leg as usize];
            self.refreshing = self.stack.credentials().map(|known| known.refresh(rejected));
        }
        let slot = kept.map(|permit| SlotGuard::new(self.stack.clone(), permit));
        self.settle(next, &outcome, Some(Brought { answer, slot, granted }))
    }

    /// Deals with what an ended attempt has brought, by what follows it.
    fn settle(
        &mut self,
        next: Step,
        outcome: &Outcome,
        brought: Option<Brought<F::Output>>,
    ) -> Landed<F::Output> {
        if matches!(next, Step::Fly) {
            self.aside = brought;
            self.next = next;
            return Landed::On;
        }
        if matches!(next, Step::Refresh(_)) {
            self.cancel_other();
        }
        let refused_here = outcome.class() == Class::RefusedHere;
        // What we refused ourselves does not stand for what the other attempt has brought.
        let (brought, refused_here) = match self.aside.take() {
            Some(aside) if refused_here => (Some(aside), false),
            _ => (brought, refused_here),
        };
        match (next, brought) {
            (Step::Done(done), Some(Brought { answer, slot, granted })) => {
                self.cancel_other();
                Landed::Over { answer, refused_here, done, slot, granted }
            }
            (
                next @ (Step::WaitUntil(_) | Step::Refresh(_)),
                Some(Brought { answer, slot, .. }),
            ) if self.operation.ticket().is_none() => {
                self.next = next;
                Landed::Aside { answer, slot }
            }
            // Redispatched: it never reached an endpoint, so there is no connection to let go of.
            (next, brought) => {
                self.next = next;
                Landed::Again { kept: brought.map(|brought| brought.answer) }
            }
        }
    }

    /// Lets an answer let go of its connection; what is kept of it. No permit and no ticket is held
    /// across this wait but the answer's own.
    pub(super) async fn set_aside(&mut self, answer: F::Output) -> Option<F::Output> {
        let at = if let Step::WaitUntil(at) = self.next { at } else { self.now };
        let due = at.max(self.now.after(SET_ASIDE)).min(self.operation.deadline());
        let due = self.stack.clock().instant(due);
        timeout_at(due, answer.set_aside()).await.ok().flatten()
    }

    /// The other attempt has lost: it is dropped where it stands, whatever happens to those whose
    /// caller leaves, and its slot is freed when it is given up.
    fn cancel_other(&mut self) {
        let now = self.now;
        for mut lost in [self.flight.take(), self.hedge.take()].into_iter().flatten() {
            lost.give_up(now);
        }
    }

    /// The attempt's time is up: its own timeout is recorded, the call's deadline is not, and the
    /// attempt itself goes to the abandoned.
    fn time_out(&mut self, leg: Leg, shared: &CallShared) -> Landed<F::Output> {
        let now = self.stack.clock().now();
        let mut flight = self.place(leg).take();
        let cut = flight.as_ref().is_none_or(InFlight::is_cut_by_call);
        let mut sent = true;
        let mut own = Cause::AttemptTimeout;
        if let Some(flight) = &mut flight {
            flight.lease().settle(now);
            (sent, own) = (flight.lease().is_sent(), flight.lease().cause_of_timeout());
        }
        let outcome = Outcome::of(if cut { Cause::DeadlinePassed } else { own });
        let event = match flight.as_mut().and_then(|flight| flight.lease().permit()) {
            Some(permit) if !(sent && cut) => {
                Event::Ended { permit, outcome, replayable: shared.is_replayable() }
            }
            _ => Event::Cut,
        };
        let outcome = match &event {
            Event::Ended { .. } => outcome,
            _ => Outcome::of(Cause::DeadlineCut),
        };
        let next = self.report(now, event);
        if let Some(mut flight) = flight {
            if !cut {
                flight.give_up(now);
            }
            self.on_abandon.abandon(flight);
        }
        if matches!(next, Step::Done(_)) {
            // Cut with its call, it is the caller's leaving for it too.
            for other in [self.flight.take(), self.hedge.take()].into_iter().flatten() {
                self.on_abandon.abandon(other);
            }
        }
        self.settle(next, &outcome, None)
    }
}

/// How long an answer may take to let go of its connection, if its retry is not later.
const SET_ASIDE: Duration = Duration::from_millis(100);
