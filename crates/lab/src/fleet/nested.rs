//! The calls that a server makes for the request it works on.
//!
//! Each is a call like a client's, run by the policies of the server's process; its worker waits
//! for its end. What the policies say at that end is what the request's caller is told.

use seawall_policy::{AnswerSignals, Call, Cause, Class, Done, Outcome, Rng as _, Timestamp};

use super::caller::CALL;
use super::hosts::status_of;
use super::routes::{Choice, Link};
use super::service::Pick;
use super::world::{ALL_DRAWS, Flight, Made, NOBODY, World};
use super::{Fleet, Host};
use crate::draw::{Draw, Purpose, mix};
use crate::engine::Engine;

impl World<'_> {
    /// What is settled about a client's call, the one of this number.
    pub(super) fn made(&self, id: u32, number: u32) -> Made {
        let at = OF_CALLS + u64::from(number) * 2;
        let draw = |n| self.draws.stream(id, Purpose::Choice).at(at + n);
        let key = self.fleet.keys.as_ref().map_or(0, |keys| keys.draw(&mut draw(0)));
        let route = match self.policies.routes.of_clients() {
            [only] => only.route,
            several => one_of(several, &mut draw(1)),
        };
        let link = Link { caller: id, route };
        Made { link, origin: id, number, draws: u64::from(number) * ALL_DRAWS, key, maker: NOBODY }
    }

    pub(super) fn host(&self, site: usize) -> &Host {
        &self.fleet.services[self.sites[site].service as usize].host
    }

    /// Whether a caller cuts the attempts of a call that nobody waits for.
    pub(super) fn cancels(&self, caller: u32) -> bool {
        match caller.checked_sub(self.fleet.clients) {
            None => self.fleet.cancels,
            Some(site) => {
                let service = self.sites[site as usize].service;
                self.fleet.services[service as usize].cancels
            }
        }
    }

    pub(super) fn calls_others(&self, site: usize) -> bool {
        self.policies.routes.step(self.sites[site].service, 0).is_some()
    }

    /// The server an attempt goes to, whose policies have chosen an endpoint.
    pub(super) fn server(&self, attempt: Made, endpoint: usize) -> u32 {
        let route = self.policies.routes.get(attempt.link.route);
        let first = self.first_sites[route.target as usize];
        if !route.is_one_name() {
            return first + u32::try_from(endpoint).unwrap_or(0);
        }
        first + self.behind_name(attempt, route.target)
    }

    /// The server, counted from 0, that something behind a service's name chooses.
    pub(super) fn behind_name(&self, attempt: Made, service: u32) -> u32 {
        let service = &self.fleet.services[service as usize];
        if service.servers == 1 {
            return 0;
        }
        if service.pick == Pick::Key {
            return attempt.key % service.servers;
        }
        let mut draw = self.draws.stream(attempt.origin, Purpose::Choice).at(attempt.draws);
        u32::try_from(draw.below(service.servers.into())).unwrap_or(0)
    }

    /// Whether anybody waits for an attempt's answer, up to whoever made the first call.
    pub(super) fn is_awaited(&self, attempt: &Flight) -> bool {
        let mut flight = attempt;
        loop {
            if !flight.is_out() || flight.call == NOBODY {
                return false;
            }
            match self.flights.get(flight.made.maker) {
                Some(maker) => flight = maker,
                None => return true,
            }
        }
    }

    /// A request that is worked on makes the next of its calls, or is done.
    pub(super) fn call_on(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (above, step, site) = (flight.made, flight.step, flight.site as usize);
        let until = flight.until;
        let (service, is_gone) = (self.sites[site].service, flight.gone_at <= engine.now());
        let Some(choices) = self.policies.routes.step(service, step) else {
            self.worked(engine, slot, status_of(200));
            return;
        };
        if is_gone && self.fleet.services[service as usize].host.notices {
            self.given_up(engine, slot);
            return;
        }
        flight.step += 1;
        let draws = below(above.draws, step);
        let mut draw = self.draws.stream(above.origin, Purpose::Choice).at(draws + 1);
        let caller = self.sites[site].entity.id();
        let link = Link { caller, route: one_of(choices, &mut draw) };
        let made = Made { link, draws, maker: slot, ..above };
        self.ledger.call(engine.now(), self.counted(link));
        self.tell(engine.now(), made, |world| {
            format!("a call to {} is made for it", world.called(made))
        });
        let is_told = self.fleet.services[service as usize].deadlines;
        let deadline = Some(until).filter(|until| is_told && *until != Timestamp::MAX);
        let safety = self.fleet.safety.unwrap_or(CALL.safety);
        let call = Call { deadline, safety, ..CALL };
        let (call, step) = self.make(engine, made, Timestamp::MAX, call);
        if let Some(flight) = self.flights.get_mut(slot) {
            flight.calling = call;
        }
        self.step(engine, call, step);
    }

    /// A call that a request was waiting for has ended.
    pub(super) fn returned(&mut self, engine: &mut Engine, slot: u32, done: &Done) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.calling = NOBODY;
        if done.outcome.class() == Class::Success {
            self.call_on(engine, slot);
            return;
        }
        let service = self.sites[flight.site as usize].service;
        let says_stop = self.fleet.services[service as usize].says_stop;
        self.worked(engine, slot, passed_on(done, says_stop));
    }

    /// It is heard that nobody waits for a request any longer. One that is waiting for its own call
    /// ends; that call's attempts run on without it.
    pub(super) fn gone(&mut self, engine: &mut Engine, place: u32, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        if flight.site != place || flight.gone_at != now || flight.calling == NOBODY {
            return;
        }
        let call = std::mem::replace(&mut flight.calling, NOBODY);
        self.walk_away(engine, call);
        self.given_up(engine, slot);
    }

    /// The process of a request is no more, and with it the call that the request waited for.
    pub(super) fn cut_short(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let call = std::mem::replace(&mut flight.calling, NOBODY);
        let Some(call) = self.calls.take(call) else { return };
        if let Some(ticket) = call.operation.ticket() {
            self.waiting.remove(&(self.policies.of(call.made.link), ticket));
        }
        self.ledger.left(self.counted(call.made.link), call.begun);
        for place in call.flights.into_iter().flatten() {
            let Some(flight) = self.flights.get_mut(place) else { continue };
            (flight.call, flight.permit) = (NOBODY, None);
            self.notice(engine, place);
            self.forget(place);
        }
    }
}

/// A client, or one of those that come after it in its place.
#[derive(Clone, Copy, Default)]
pub(super) struct Life {
    /// Calls it has begun.
    begun: u32,
    /// Calls it waits for.
    ongoing: u32,
}

impl Life {
    /// Of all clients, if they do not stay.
    pub(super) fn of(fleet: &Fleet) -> Vec<Self> {
        let count = fleet.lives.map_or(0, |_| fleet.clients);
        vec![Self::default(); count as usize]
    }
}

impl World<'_> {
    /// A client begins a call; perhaps the first of another client in its place.
    pub(super) fn begins_in_life(&mut self, id: u32) {
        let Some(most) = self.fleet.lives else { return };
        let life = &mut self.lives[id as usize];
        let is_over = life.begun >= most && life.ongoing == 0;
        if is_over {
            *life = Life::default();
        }
        life.begun += 1;
        life.ongoing += 1;
        if is_over {
            self.policies.renew(id);
            self.forget_known(id);
        }
    }

    /// A client's call has ended, or is waited for no longer.
    pub(super) fn ends_in_life(&mut self, id: u32) {
        if let Some(life) = self.lives.get_mut(id as usize) {
            life.ongoing -= 1;
        }
    }
}

/// What the caller of a request is told whose server's own call has failed: an upstream's answer as
/// it is, or what a gateway says where it has none. Whether to try again is told with it.
fn passed_on(done: &Done, says_stop: bool) -> Outcome {
    let outcome = &done.outcome;
    let gave_up = says_stop && done.stop.says_stop(outcome);
    let status = match outcome.cause() {
        Cause::Status(status) => status,
        Cause::QuotaExceeded => 429,
        Cause::AttemptTimeout | Cause::DeadlineCut | Cause::DeadlinePassed => 504,
        cause if matches!(cause.class(), Class::RefusedHere | Class::NotProcessed) => 503,
        _ => 502,
    };
    let stop = gave_up || outcome.says_stop();
    Outcome::of_status(status, AnswerSignals { stop, ..AnswerSignals::NONE })
}

/// One of these, as often as its share says.
fn one_of(choices: &[Choice], draw: &mut Draw) -> u32 {
    let [first, others @ ..] = choices else { return 0 };
    if others.is_empty() {
        return first.route;
    }
    let sum: f64 = choices.iter().map(|choice| choice.share).sum();
    let mut left = draw.unit() * sum;
    let chosen = choices.iter().find(|choice| {
        left -= choice.share;
        left <= 0.0
    });
    chosen.unwrap_or(first).route
}

/// Where the draws of a call begin that an attempt with these draws makes at a step: anywhere, as
/// there is no room for a tree, and so far apart that no two of a run meet.
fn below(draws: u64, step: u32) -> u64 {
    (mix(draws.wrapping_add(u64::from(step) + 1)) | NESTED) & !(ALL_DRAWS - 1)
}

/// Where the draws of clients' calls about what they call begin: beyond those of any attempt.
const OF_CALLS: u64 = 1 << 62;
/// A bit that no client's own call has in its draws.
const NESTED: u64 = 1 << 63;
