//! One attempt: on its way, timed, given up, answered; its permit goes back as the policy asks.

use std::time::Duration;

use seawall_policy::{
    Attempt, Cause, Event, HeldCall, Outcome, Permit, ReturnPath, Timestamp, remaining_to_send,
};

use super::story::of_outcome;
use super::world::{Flight, Made, What, World};
use crate::draw::Purpose;
use crate::engine::Engine;

impl World<'_> {
    pub(super) fn send(&mut self, engine: &mut Engine, slot: u32, attempt: Attempt) {
        let now = engine.now();
        let Attempt { deadline, cut_by_call, hedge_at, mut permit, .. } = attempt;
        let Some(call) = self.calls.get_mut(slot) else { return };
        permit.mark_sent();
        let (made, begun, sent) = (call.made, call.begun, call.sent);
        call.sent += 1;
        self.ledger.attempt(now, self.counted(made.link), made.origin, begun, sent == 0);
        let life = self.policies.life(made.link.caller);
        let mut flight = Flight::new(made, life, slot, sent);
        flight.site = self.server(flight.made, permit.endpoint());
        flight.permit = Some(permit);
        (flight.deadline, flight.cut_by_call) = (deadline, cut_by_call);
        flight.hedge_at = hedge_at.unwrap_or(Timestamp::MAX);
        flight.connect_at = self.connecting(now, flight.site, made.link.caller);
        let flight = self.flights.put(flight);
        let flights = self.calls.get_mut(slot).map(|call| &mut call.flights);
        if let Some(free) = flights.and_then(|all| all.iter_mut().find(|place| place.is_none())) {
            *free = Some(flight);
        }
        self.set_timer(engine, flight);
        self.depart(engine, flight);
    }

    /// Sends an attempt's request on its way.
    pub(super) fn depart(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (made, site) = (flight.made, flight.site as usize);
        if flight.deadline != Timestamp::MAX {
            // Less than a millisecond is none.
            let left = remaining_to_send(engine.now(), flight.deadline, MARGIN, None).unwrap_or(0);
            flight.told = u32::try_from(left).unwrap_or(u32::MAX);
        }
        let ways = self.ways(site, made.link.caller);
        let travels = self.travels(made, OUT).map(|delay| delay * ways);
        self.tell_of(engine.now(), slot, |_, _| match travels {
            Some(_) => "is sent".to_owned(),
            None => "is sent, and lost on the way".to_owned(),
        });
        match travels {
            Some(delay) => {
                let entity = &mut self.sites[site].entity;
                engine.schedule(engine.now().after(delay), entity, What::Request.of(slot));
            }
            None => self.ends_in_nothing(slot),
        }
    }

    /// Sets the attempt's timer to what is due first.
    pub(super) fn set_timer(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let Some(permit) = &flight.permit else { return };
        let due = permit.slow_at().min(flight.deadline).min(flight.hedge_at);
        let next = due.min(flight.connect_at);
        flight.timer_at = next;
        let caller = flight.made.link.caller;
        self.schedule(engine, next, caller, What::Timer.of(slot));
    }

    pub(super) fn timer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot).filter(|flight| flight.timer_at == now)
        else {
            return;
        };
        if flight.life != self.policies.life(flight.made.link.caller) {
            flight.permit = None;
            self.forget(slot);
            return;
        }
        if flight.permit.is_none() {
            return;
        }
        if now >= flight.deadline {
            self.out_of_time(engine, slot);
            return;
        }
        if now >= flight.connect_at {
            self.not_connected(engine, slot);
            return;
        }
        let call = flight.call;
        let is_hedge_due = now >= flight.hedge_at;
        if is_hedge_due {
            flight.hedge_at = Timestamp::MAX;
        }
        if let Some(permit) = flight.permit.as_mut().filter(|permit| now >= permit.slow_at()) {
            self.policies.with(now, flight.made.link, |dependency, params, rng| {
                dependency.on_slow(now, params, permit, rng);
            });
        }
        self.set_timer(engine, slot);
        if is_hedge_due {
            self.report_event(engine, call, Event::HedgeDue { replayable: true });
        }
    }

    fn out_of_time(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (call, cut) = (flight.call, flight.cut_by_call);
        let Some(permit) = flight.permit.take() else { return };
        self.tell_of(engine.now(), slot, |_, _| {
            let why = if cut { "the call is out of time" } else { "timed out" };
            format!("is given up: {why}")
        });
        if cut {
            self.leave(call, slot);
            self.report_event(engine, call, Event::Cut);
            self.abandon(engine, slot, permit);
        } else {
            self.over(engine, slot, permit, Outcome::of(Cause::AttemptTimeout), true);
        }
    }

    /// An attempt's caller was not let in in time: nothing was sent.
    fn not_connected(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let Some(mut permit) = flight.permit.take() else { return };
        self.tell_of(engine.now(), slot, |_, _| "is given up: no connection in time".to_owned());
        permit.mark_unsent();
        self.notice(engine, slot);
        self.over(engine, slot, permit, Outcome::of(Cause::ConnectTimeout), false);
    }

    /// An attempt has ended for its call; `goes_on` if perhaps not for the server.
    fn over(
        &mut self,
        engine: &mut Engine,
        slot: u32,
        mut permit: Permit,
        outcome: Outcome,
        goes_on: bool,
    ) {
        let now = engine.now();
        let Some(flight) = self.flights.get(slot) else { return };
        let (call, link) = (flight.call, flight.made.link);
        self.leave(call, slot);
        let ongoing = self.calls.get_mut(call);
        let step = self.policies.with(now, link, |dependency, params, rng| match ongoing {
            Some(ongoing) => {
                let event = Event::Ended { permit: &mut permit, outcome, replayable: true };
                Some(ongoing.operation.on_event(now, dependency, params, event, rng))
            }
            None => {
                dependency.record(now, params, &mut permit, &outcome, rng);
                None
            }
        });
        if goes_on {
            self.abandon(engine, slot, permit);
        } else {
            self.policies.with(now, link, |dependency, params, _| {
                dependency.release(now, params, permit);
            });
            self.forget(slot);
        }
        if let Some(step) = step {
            self.step(engine, call, step);
        }
    }

    /// The call no longer has this attempt.
    fn leave(&mut self, call: u32, flight: u32) {
        if let Some(call) = self.calls.get_mut(call) {
            let mine = call.flights.iter_mut().find(|known| **known == Some(flight));
            mine.into_iter().for_each(|known| *known = None);
        }
    }

    /// Gives an attempt up: its slot is held by the policy's rules, and the server goes on.
    pub(super) fn abandon(&mut self, engine: &mut Engine, slot: u32, permit: Permit) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let link = flight.made.link;
        let held: Option<HeldCall> = self.policies.with(now, link, |dependency, params, rng| {
            dependency.abandon(now, params, permit, rng)
        });
        flight.held = held;
        self.notice(engine, slot);
        self.housekeep(engine, link);
        self.forget(slot);
    }

    /// Nobody waits for an attempt any longer, which its server may hear one delay later.
    pub(super) fn notice(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let delay = self.travels(flight.made, NOTICE);
        let (Some(delay), Some(flight)) = (delay, self.flights.get_mut(slot)) else { return };
        flight.gone_at = engine.now().after(delay);
        let (at, site) = (flight.gone_at, flight.site as usize);
        // Only one that waits for an answer itself can do anything about it.
        if self.host(site).notices && self.calls_others(site) {
            engine.schedule(at, &mut self.sites[site].entity, What::Gone.of(slot));
        }
    }

    /// Whatever is to be known of an attempt's end is there.
    pub(super) fn answer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.is_alive = false;
        let (link, outcome) = (flight.made.link, flight.outcome);
        if flight.life != self.policies.life(link.caller) {
            // Whoever sent it is no more.
            (flight.permit, flight.held) = (None, None);
        }
        if let Some(held) = flight.held.take() {
            self.policies.with(now, link, |dependency, params, _| {
                dependency.end_held(now, params, held);
            });
        }
        let Some(flight) = self.flights.get_mut(slot) else { return };
        match flight.permit.take() {
            Some(mut permit) => {
                self.tell_of(now, slot, |_, _| format!("is answered: {}", of_outcome(&outcome)));
                if outcome.cause() == Cause::ConnectRefused {
                    permit.mark_unsent();
                }
                self.over(engine, slot, permit, outcome, false);
            }
            None => self.forget(slot),
        }
    }

    /// Nothing more will come of an attempt, and nobody is told.
    pub(super) fn ends_in_nothing(&mut self, slot: u32) {
        if let Some(flight) = self.flights.get_mut(slot) {
            flight.is_alive = false;
        }
        self.forget(slot);
    }

    /// Frees an attempt's place if neither side knows of it any longer. What is held for one of
    /// which nothing more comes is given up by time.
    pub(super) fn forget(&mut self, slot: u32) {
        let is_known = |flight: &Flight| flight.is_alive || flight.is_out();
        if self.flights.get(slot).is_some_and(|flight| !is_known(flight)) {
            self.flights.free(slot);
        }
    }

    /// How long a message of an attempt travels, by the draws that are its own; `None` if it is
    /// lost.
    pub(super) fn travels(&self, made: Made, message: u64) -> Option<Duration> {
        let draws = self.draws.stream(made.origin, Purpose::Network);
        let mut draw = draws.at(made.draws + message);
        let network = &self.fleet.network;
        if network.loss > 0.0 && draw.happens(network.loss) {
            return None;
        }
        Some(network.delay.draw(&mut draw))
    }
}

/// What is kept back for the answer's way home, where nothing was measured.
const MARGIN: Duration = ReturnPath::new().margin();
/// Which of its draws a message takes: the request, the answer, the word that nobody waits.
const OUT: u64 = 0;
pub(super) const BACK: u64 = 4;
const NOTICE: u64 = 8;
