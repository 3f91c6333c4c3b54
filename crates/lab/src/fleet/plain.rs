//! The clients' side where it is a baseline: sends, waits, and asks [`baselines`] whether again.
//!
//! [`baselines`]: crate::baselines

use std::time::Duration;

use seawall_policy::{Cause, Class, Done, Outcome, StopReason, Timestamp};

use super::Sharing;
use super::routes::Link;
use super::story::{ended, millis, of_outcome};
use super::world::{Flight, Made, What, World};
use crate::baselines::Known;
use crate::draw::Purpose;
use crate::engine::Engine;

/// A call of a baseline that is going on.
pub(super) struct Plain {
    made: Made,
    number: u32,
    pub(super) begun: Timestamp,
    pub(super) tick_at: Timestamp,
    pub(super) leaves_at: Timestamp,
    sent: u32,
    flight: Option<u32>,
}

impl Plain {
    pub(super) const fn link(&self) -> Link {
        self.made.link
    }
}

impl World<'_> {
    /// Which of what is known is the client's.
    const fn known_by(&self, client: u32) -> usize {
        match self.fleet.sharing {
            Sharing::Each => client as usize,
            Sharing::All => 0,
        }
    }

    /// A client knows nothing any longer.
    pub(super) fn forget_known(&mut self, client: u32) {
        let place = self.known_by(client);
        if let (Some(baseline), Some(known)) = (&self.fleet.baseline, self.known.get_mut(place)) {
            *known = Known::new(baseline);
        }
    }

    pub(super) fn plain_begins(&mut self, engine: &mut Engine, client: u32, number: u32) {
        let begun = engine.now();
        let place = self.known_by(client);
        let Some(baseline) = &self.fleet.baseline else { return };
        self.known[place].on_call(baseline);
        let mut draw = self.draws.stream(client, Purpose::Policy).at(u64::from(number) * OF_CALL);
        let is_sent = self.known[place].sends(begun, baseline, &mut draw);
        let (tick_at, leaves_at) = (Timestamp::MAX, self.leaving(engine, client, number));
        let made = self.made(client, number);
        self.ledger.call(begun, self.counted(made.link));
        self.tell(begun, made, |world| format!("begins: a call to {}", world.called(made)));
        if !is_sent {
            self.kept_back(engine, made, begun);
            return;
        }
        let plain = Plain { made, number, begun, tick_at, leaves_at, sent: 0, flight: None };
        let slot = self.plain.put(plain);
        self.schedule(engine, leaves_at, client, What::Leave.of(slot));
        self.plain_sends(engine, slot);
    }

    /// A call ends as it begins, and nothing was sent.
    fn kept_back(&mut self, engine: &mut Engine, made: Made, begun: Timestamp) {
        let outcome = Outcome::of(Cause::RateLimited);
        let (attempts, redispatches, hedges, retry_after) = (0, 0, 0, None);
        let stop = StopReason::RateLimited;
        let done = Done { outcome, attempts, redispatches, hedges, stop, retry_after };
        self.ledger.done(begun, self.counted(made.link), made.origin, begun, &done);
        self.tell(begun, made, |_| ended(Duration::ZERO, &done));
        self.ends_in_life(made.link.caller);
        self.next_after(engine, made.link.caller, false);
    }

    fn plain_sends(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(baseline) = &self.fleet.baseline else { return };
        let timeout = now.after(baseline.timeout());
        let Some(call) = self.plain.get_mut(slot) else { return };
        let (made, begun, sent) = (call.made, call.begun, call.sent);
        call.sent += 1;
        self.ledger.attempt(now, self.counted(made.link), made.origin, begun, sent == 0);
        let mut flight = Flight::new(made, 0, slot, sent);
        // Of several servers any, by the draws that are the attempt's own.
        let service = self.policies.routes.get(made.link.route).target;
        flight.site = self.first_sites[service as usize] + self.behind_name(flight.made, service);
        (flight.is_plain, flight.deadline, flight.timer_at) = (true, timeout, timeout);
        let flight = self.flights.put(flight);
        if let Some(call) = self.plain.get_mut(slot) {
            call.flight = Some(flight);
        }
        self.schedule(engine, timeout, made.link.caller, What::Timer.of(flight));
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
        let link = call.link();
        self.ledger.left(self.counted(link), call.begun);
        self.tell(now, call.made, |_| "is given up by its caller, who leaves".to_owned());
        self.ends_in_life(link.caller);
        self.next_after(engine, link.caller, false);
    }

    pub(super) fn plain_timer(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        if !flight.is_plain || flight.timer_at != now {
            return;
        }
        flight.is_plain = false;
        let call = flight.call;
        self.tell_of(now, slot, |_, _| "is given up: timed out".to_owned());
        self.notice(engine, slot);
        self.forget(slot);
        self.plain_ended(engine, call, Outcome::of(Cause::AttemptTimeout));
    }

    pub(super) fn plain_answer(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (call, outcome) = (flight.call, flight.outcome);
        let is_awaited = std::mem::take(&mut flight.is_plain);
        flight.is_alive = false;
        if is_awaited {
            let said = |_: &Self, _: &Flight| format!("is answered: {}", of_outcome(&outcome));
            self.tell_of(engine.now(), slot, said);
        }
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
        let client = call.made.origin;
        let place = match self.fleet.sharing {
            Sharing::Each => client as usize,
            Sharing::All => 0,
        };
        let mut draw = self.draws.stream(client, Purpose::Policy);
        draw = draw.at(u64::from(call.number) * OF_CALL + u64::from(call.sent) * OF_ATTEMPT);
        let again = &mut self.known[place];
        if is_good {
            again.on_taken(now);
        }
        let wait = if is_good { None } else { again.again(baseline, call.sent, &mut draw) };
        if let Some(wait) = wait {
            call.tick_at = now.after(wait);
            let made = call.made;
            self.tell(now, made, |_| format!("waits {} before it is tried again", millis(wait)));
            self.schedule(engine, now.after(wait), client, What::Tick.of(slot));
            return;
        }
        let Some(call) = self.plain.take(slot) else { return };
        let stop = if is_good { StopReason::Answered } else { StopReason::Exhausted };
        let (attempts, redispatches, hedges, retry_after) = (call.sent, 0, 0, None);
        let done = Done { outcome, attempts, redispatches, hedges, stop, retry_after };
        self.ledger.done(now, self.counted(call.link()), client, call.begun, &done);
        self.tell(now, call.made, |_| ended(now.since(call.begun), &done));
        self.ends_in_life(client);
        self.next_after(engine, client, is_good);
    }

    pub(super) fn plain_ticks(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        if let Some(call) = self.plain.get_mut(slot).filter(|call| call.tick_at == now) {
            call.tick_at = Timestamp::MAX;
            self.plain_sends(engine, slot);
        }
    }
}

/// Draws of an attempt, and of a call: its first are for whether it is sent, and then those of its
/// attempts.
const OF_ATTEMPT: u64 = 4;
const OF_CALL: u64 = 128 * OF_ATTEMPT;
