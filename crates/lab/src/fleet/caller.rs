//! The clients' side: drives each call's `Operation` as its module asks of an edge.
//!
//! Sends, waits, wakes, reports. What follows from a report is the policy's to say.

use std::time::Duration;

use seawall_policy::{
    Attempt, Call, Cause, Done, Event, HeldCall, Operation, Outcome, Permit, ReturnPath, Safety,
    Step, Timestamp, remaining_to_send,
};

use super::Calls;
use super::world::{Flight, NOBODY, Ongoing, What, World};
use crate::draw::Purpose;
use crate::engine::Engine;

impl World<'_> {
    pub(super) fn call_begins(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let client = &mut self.clients[id as usize];
        let number = client.begun;
        client.begun += 1;
        client.last = now;
        self.ledger.call(now);
        if matches!(self.fleet.calls, Calls::Open(_)) {
            self.next_call(engine, id);
        }
        if self.fleet.baseline.is_some() {
            self.plain_begins(engine, id, number);
            return;
        }
        let (operation, step) = self.policies.with(now, id, |dependency, params, rng| {
            Operation::begin(now, dependency, params, CALL, rng)
        });
        let leaves_at = self.leaving(engine, id, number);
        let call = self.calls.put(Ongoing {
            operation,
            leaves_at,
            client: id,
            number,
            begun: now,
            tick_at: Timestamp::MAX,
            sent: 0,
            flights: [None; 2],
        });
        engine.schedule(leaves_at, &mut self.clients[id as usize].entity, What::Leave.of(call));
        self.step(engine, call, step);
    }

    /// Whoever made the call leaves. What was sent runs on without it, with its permit.
    pub(super) fn leaves(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        if self.calls.get(slot).is_none_or(|call| call.leaves_at != now) {
            return;
        }
        let Some(mut call) = self.calls.take(slot) else { return };
        let client = call.client;
        if let Some(ticket) = call.operation.ticket() {
            self.waiting.remove(&(self.policies.of(client), ticket));
        }
        if call.flights == [None; 2] {
            self.policies.with(now, client, |dependency, params, _| {
                call.operation.caller_left(now, dependency, params);
            });
        }
        for place in call.flights.into_iter().flatten() {
            let Some(flight) = self.flights.get_mut(place) else { continue };
            let Some(permit) = &mut flight.permit else { continue };
            (flight.call, flight.hedge_at) = (NOBODY, Timestamp::MAX);
            if flight.cut_by_call {
                // The call's deadline no longer matters, only the attempt's own time.
                let own = permit.attempt_timeout();
                flight.deadline = own.map_or(Timestamp::MAX, |own| permit.granted().after(own));
                flight.cut_by_call = false;
            }
            self.policies.with(now, client, |dependency, _, _| dependency.orphan(permit));
            self.set_timer(engine, place);
        }
        self.ledger.left(call.begun);
        if !matches!(self.fleet.calls, Calls::Open(_)) {
            self.next_call(engine, client);
        }
    }

    /// Does what the policy says.
    fn step(&mut self, engine: &mut Engine, slot: u32, step: Step) {
        match step {
            Step::Send(attempt) => self.send(engine, slot, attempt),
            Step::WaitUntil(at) | Step::Refresh(at) => {
                let Some(call) = self.calls.get_mut(slot) else { return };
                call.tick_at = at;
                let client = call.client;
                let entity = &mut self.clients[client as usize].entity;
                engine.schedule(at, entity, What::Tick.of(slot));
                if let Some(ticket) = call.operation.ticket() {
                    self.waiting.insert((self.policies.of(client), ticket), slot);
                    self.housekeep(engine, client);
                }
            }
            Step::Fly => {}
            Step::Done(done) => self.done(engine, slot, &done),
        }
    }

    fn send(&mut self, engine: &mut Engine, slot: u32, attempt: Attempt) {
        let now = engine.now();
        let Attempt { deadline, cut_by_call, hedge_at, mut permit, .. } = attempt;
        let Some(call) = self.calls.get_mut(slot) else { return };
        permit.mark_sent();
        self.ledger.attempt(now, call.begun, call.sent == 0);
        let mut flight = Flight::new(call.client, slot, call.number, call.sent);
        call.sent += 1;
        flight.site = u32::try_from(permit.endpoint()).unwrap_or(0);
        flight.permit = Some(permit);
        (flight.deadline, flight.cut_by_call) = (deadline, cut_by_call);
        flight.hedge_at = hedge_at.unwrap_or(Timestamp::MAX);
        let flight = self.flights.put(flight);
        if let Some(free) = call.flights.iter_mut().find(|flight| flight.is_none()) {
            *free = Some(flight);
        }
        self.set_timer(engine, flight);
        self.depart(engine, flight);
    }

    /// Sends an attempt's request on its way.
    pub(super) fn depart(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (client, draws, site) = (flight.client, flight.draws, flight.site as usize);
        if flight.deadline != Timestamp::MAX {
            // Less than a millisecond is none.
            let left = remaining_to_send(engine.now(), flight.deadline, MARGIN, None).unwrap_or(0);
            flight.told = u32::try_from(left).unwrap_or(u32::MAX);
        }
        match self.travels(client, draws + OUT) {
            Some(delay) => {
                let entity = &mut self.sites[site].entity;
                engine.schedule(engine.now().after(delay), entity, What::Request.of(slot));
            }
            None => self.ends_in_nothing(slot),
        }
    }

    /// Sets the attempt's timer to what is due first.
    fn set_timer(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let Some(permit) = &flight.permit else { return };
        let next = permit.slow_at().min(flight.deadline).min(flight.hedge_at);
        flight.timer_at = next;
        let entity = &mut self.clients[flight.client as usize].entity;
        engine.schedule(next, entity, What::Timer.of(slot));
    }

    pub(super) fn timer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot).filter(|flight| flight.timer_at == now)
        else {
            return;
        };
        if flight.permit.is_none() {
            return;
        }
        if now >= flight.deadline {
            self.out_of_time(engine, slot);
            return;
        }
        let call = flight.call;
        let is_hedge_due = now >= flight.hedge_at;
        if is_hedge_due {
            flight.hedge_at = Timestamp::MAX;
        }
        if let Some(permit) = flight.permit.as_mut().filter(|permit| now >= permit.slow_at()) {
            self.policies.with(now, flight.client, |dependency, params, rng| {
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
        if cut {
            self.leave(call, slot);
            self.report_event(engine, call, Event::Cut);
            self.abandon(engine, slot, permit);
        } else {
            self.over(engine, slot, permit, Outcome::of(Cause::AttemptTimeout), true);
        }
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
        let (call, client) = (flight.call, flight.client);
        self.leave(call, slot);
        let ongoing = self.calls.get_mut(call);
        let step = self.policies.with(now, client, |dependency, params, rng| match ongoing {
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
            self.policies.with(now, client, |dependency, params, _| {
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
    fn abandon(&mut self, engine: &mut Engine, slot: u32, permit: Permit) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let client = flight.client;
        let held: Option<HeldCall> = self.policies.with(now, client, |dependency, params, rng| {
            dependency.abandon(now, params, permit, rng)
        });
        flight.held = held;
        self.notice(engine, slot);
        self.housekeep(engine, client);
        self.forget(slot);
    }

    /// Nobody waits for an attempt any longer, which its server may hear one delay later.
    pub(super) fn notice(&mut self, engine: &Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let delay = self.travels(flight.client, flight.draws + NOTICE);
        if let (Some(delay), Some(flight)) = (delay, self.flights.get_mut(slot)) {
            flight.gone_at = engine.now().after(delay);
        }
    }

    /// Whatever is to be known of an attempt's end is there.
    pub(super) fn answer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.is_alive = false;
        let (client, outcome) = (flight.client, flight.outcome);
        if let Some(held) = flight.held.take() {
            self.policies.with(now, client, |dependency, params, _| {
                dependency.end_held(now, params, held);
            });
        }
        let Some(flight) = self.flights.get_mut(slot) else { return };
        match flight.permit.take() {
            Some(mut permit) => {
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
            self.flights.take(slot);
        }
    }

    pub(super) fn ticks(&mut self, engine: &mut Engine, slot: u32) {
        let is_due = |call: &Ongoing| call.tick_at == engine.now();
        if self.calls.get(slot).is_some_and(is_due) {
            self.report_event(engine, slot, Event::Tick);
        }
    }

    fn report_event(&mut self, engine: &mut Engine, slot: u32, event: Event<'_>) {
        let now = engine.now();
        let Some(call) = self.calls.get_mut(slot) else { return };
        let waited = call.operation.ticket();
        let step = self.policies.with(now, call.client, |dependency, params, rng| {
            call.operation.on_event(now, dependency, params, event, rng)
        });
        if let Some(ticket) = waited.filter(|_| call.operation.ticket() != waited) {
            self.waiting.remove(&(self.policies.of(call.client), ticket));
        } else if waited.is_some() && matches!(step, Step::WaitUntil(_)) {
            return;
        }
        self.step(engine, slot, step);
    }

    fn done(&mut self, engine: &mut Engine, slot: u32, done: &Done) {
        let now = engine.now();
        let Some(call) = self.calls.take(slot) else { return };
        self.ledger.done(now, call.begun, done);
        for lost in call.flights.into_iter().flatten() {
            if let Some(permit) = self.flights.get_mut(lost).and_then(|lost| lost.permit.take()) {
                self.abandon(engine, lost, permit);
            }
        }
        if !matches!(self.fleet.calls, Calls::Open(_)) {
            self.next_call(engine, call.client);
        }
    }

    /// Wakes the calls whose tickets are decided.
    pub(super) fn wake(&mut self, engine: &mut Engine, client: u32) {
        while let Some(ticket) = self.policies.pop_woken(client) {
            let key = (self.policies.of(client), ticket);
            if let Some(call) = self.waiting.get(&key).copied() {
                self.report_event(engine, call, Event::Tick);
            }
        }
    }

    /// A slot that is held comes free by time alone: whoever waits for one is looked after then.
    pub(super) fn housekeep(&mut self, engine: &mut Engine, client: u32) {
        let dependency = self.policies.dependency(client);
        if dependency.bulkhead().waiting() > 0
            && dependency.held() > 0
            && let Some(due) = dependency.next_deadline()
        {
            let entity = &mut self.clients[client as usize].entity;
            engine.schedule(due, entity, What::Housekeep.of(0));
        }
    }

    /// How long a message travels, by the draws that are its own; `None` if it is lost.
    pub(super) fn travels(&self, client: u32, draws: u64) -> Option<Duration> {
        let mut draw = self.draws.stream(client, Purpose::Network).at(draws);
        let network = &self.fleet.network;
        if network.loss > 0.0 && draw.happens(network.loss) {
            return None;
        }
        Some(network.delay.draw(&mut draw))
    }
}

/// Every call of every client: repeatable, and this layer owns its retries.
const CALL: Call = Call {
    lane: 0,
    safety: Safety::Idempotent,
    owner: true,
    deadline: None,
    total: None,
    rate_key: None,
    attempt_timeout: None,
    retry: None,
    refresh: None,
};
/// What is kept back for the answer's way home, where nothing was measured.
const MARGIN: Duration = ReturnPath::new().margin();
/// Which of its draws a message takes: the request, the answer, the word that nobody waits.
const OUT: u64 = 0;
pub(super) const BACK: u64 = 4;
const NOTICE: u64 = 8;
