//! The clients' side where it is a baseline: sends, waits, and asks [`baselines`] whether again.
//!
//! [`baselines`]: crate::baselines

use seawall_policy::{Cause, Class, Done, Outcome, Rng, StopReason, Timestamp};

use super::Calls;
use super::world::{Flight, What, World};
use crate::draw::Purpose;
use crate::engine::Engine;

/// A call of a baseline that is going on.
pub(super) struct Plain {
    client: u32,
    number: u32,
    pub(super) begun: Timestamp,
    tick_at: Timestamp,
    leaves_at: Timestamp,
    sent: u32,
    flight: Option<u32>,
}

impl World<'_> {
    pub(super) fn plain_begins(&mut self, engine: &mut Engine, client: u32, number: u32) {
        let begun = engine.now();
        let place = self.policies.of(client) as usize;
        if let Some(baseline) = &self.fleet.baseline {
            self.known[place].on_call(baseline);
        }
        let (tick_at, leaves_at) = (Timestamp::MAX, self.leaving(engine, client, number));
        let plain = Plain { client, number, begun, tick_at, leaves_at, sent: 0, flight: None };
        let slot = self.plain.put(plain);
        let entity = &mut self.clients[client as usize].entity;
        engine.schedule(leaves_at, entity, What::Leave.of(slot));
        self.plain_sends(engine, slot);
    }

    fn plain_sends(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(baseline) = &self.fleet.baseline else { return };
        let timeout = now.after(baseline.timeout());
        let Some(call) = self.plain.get_mut(slot) else { return };
        self.ledger.attempt(now, call.begun, call.sent == 0);
        let mut flight = Flight::new(call.client, slot, call.number, call.sent);
        call.sent += 1;
        // Of several servers any, by the draws that are the attempt's own.
        let mut draw = self.draws.stream(call.client, Purpose::Choice).at(flight.draws);
        let site = draw.below(self.fleet.servers.into());
        flight.site = u32::try_from(site).unwrap_or(0);
        (flight.is_plain, flight.deadline, flight.timer_at) = (true, timeout, timeout);
        let client = call.client;
        let flight = self.flights.put(flight);
        call.flight = Some(flight);
        let entity = &mut self.clients[client as usize].entity;
        engine.schedule(timeout, entity, What::Timer.of(flight));
        self.depart(engine, flight);
    }

    pub(super) fn plain_leaves(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        if self.plain.get(slot).is_none_or(|call| call.leaves_at != now) {
            return;
        }
        let Some(call) = self.plain.take(slot) else { return };
        if let Some(place) = call.flight
            && let Some(flight) = self.flights.get_mut(place)
        {
            flight.is_plain = false;
            self.notice(engine, place);
            self.forget(place);
        }
        self.ledger.left(call.begun);
        if !matches!(self.fleet.calls, Calls::Open(_)) {
            self.next_call(engine, call.client);
        }
    }

    pub(super) fn plain_timer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        if !flight.is_plain || flight.timer_at != now {
            return;
        }
        flight.is_plain = false;
        let call = flight.call;
        self.notice(engine, slot);
        self.forget(slot);
        self.plain_ended(engine, call, Outcome::of(Cause::AttemptTimeout));
    }

    pub(super) fn plain_answer(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (call, outcome) = (flight.call, flight.outcome);
        let is_awaited = std::mem::take(&mut flight.is_plain);
        flight.is_alive = false;
        self.forget(slot);
        if is_awaited {
            self.plain_ended(engine, call, outcome);
        }
    }

    fn plain_ended(&mut self, engine: &mut Engine, slot: u32, outcome: Outcome) {
        let now = engine.now();
        let Some(baseline) = &self.fleet.baseline else { return };
        let Some(call) = self.plain.get_mut(slot) else { return };
        call.flight = None;
        let is_good = outcome.class() == Class::Success;
        let place = self.policies.of(call.client) as usize;
        let mut draw = self.draws.stream(call.client, Purpose::Policy);
        draw = draw.at((u64::from(call.number) * 128 + u64::from(call.sent)) * 4);
        let again = &mut self.known[place];
        let wait = if is_good { None } else { again.again(baseline, call.sent, &mut draw) };
        if let Some(wait) = wait {
            call.tick_at = now.after(wait);
            let entity = &mut self.clients[call.client as usize].entity;
            engine.schedule(call.tick_at, entity, What::Tick.of(slot));
            return;
        }
        let Some(call) = self.plain.take(slot) else { return };
        let stop = if is_good { StopReason::Answered } else { StopReason::Exhausted };
        let (attempts, redispatches, hedges, retry_after) = (call.sent, 0, 0, None);
        let done = Done { outcome, attempts, redispatches, hedges, stop, retry_after };
        self.ledger.done(now, call.begun, &done);
        if !matches!(self.fleet.calls, Calls::Open(_)) {
            self.next_call(engine, call.client);
        }
    }

    pub(super) fn plain_ticks(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        if let Some(call) = self.plain.get_mut(slot).filter(|call| call.tick_at == now) {
            call.tick_at = Timestamp::MAX;
            self.plain_sends(engine, slot);
        }
    }
}
