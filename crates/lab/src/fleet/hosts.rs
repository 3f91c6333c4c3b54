//! The servers' side: takes requests in, works on them, answers; and what faults do to that.

use std::time::Duration;

use seawall_policy::{AnswerSignals, Cause, Outcome, Timestamp};

use super::attempt::BACK;
use super::door::{Doorway, Stage};
use super::entry::Entry;
use super::later::Slots;
use super::story::{millis, of_outcome};
use super::world::{ALL_DRAWS, What, World};
use super::{Fleet, Host, Work};
use crate::draw::Purpose;
use crate::engine::{Engine, Entity};
use crate::fault::Condition;
use crate::server::{Arrived, Coming, Next, Queue, Server};

/// One server.
pub(super) struct Site {
    pub(super) entity: Entity,
    /// Whose server it is, and which of them.
    pub(super) service: u32,
    pub(super) place: u32,
    pub(super) server: Server<u32>,
    pub(super) door: Option<Box<Doorway>>,
    pub(super) condition: Condition,
    pub(super) entry: Option<Box<Entry>>,
    /// What its refusals have cost and nobody has worked off yet.
    owed: Duration,
    slots: Slots,
    /// What it works on.
    working: Vec<u32>,
    /// What its network holds back, in the order it was sent in.
    pub(super) held_back: Vec<u32>,
    pub(super) paused_until: Timestamp,
    /// Nanoseconds of all pauses, to the end of the present one.
    pub(super) paused: u64,
    /// Until when it restarts, having died.
    pub(super) dead_until: Timestamp,
}

impl Site {
    fn new(id: u32, service: u32, place: u32, host: &Host, callers: u32) -> Self {
        let server = match host.work {
            Work::Queue { workers, ref queue, .. } => Server::new(workers, queue),
            Work::Crowd { .. } => Server::new(u32::MAX, &Queue::fifo(None)),
        };
        Self {
            entity: Entity::new(id),
            service,
            place,
            server,
            door: host.door.as_ref().map(|door| Box::new(Doorway::new(door, callers))),
            condition: Condition::GOOD,
            entry: host.entry.map(|rule| Box::new(Entry::new(rule))),
            owed: Duration::ZERO,
            slots: Slots::default(),
            working: Vec::new(),
            held_back: Vec::new(),
            paused_until: Timestamp::ZERO,
            paused: 0,
            dead_until: Timestamp::ZERO,
        }
    }
}

/// Every server, service by service, and where those of each service begin.
pub(super) fn sites(fleet: &Fleet) -> (Vec<Site>, Vec<u32>) {
    let (mut sites, mut firsts) = (Vec::new(), Vec::new());
    let mut id = fleet.clients;
    let callers = id + fleet.services.iter().map(|service| service.servers).sum::<u32>();
    for (service, number) in fleet.services.iter().zip(0..) {
        firsts.push(id - fleet.clients);
        for place in 0..service.servers {
            sites.push(Site::new(id, number, place, &service.host, callers));
            id += 1;
        }
    }
    (sites, firsts)
}

impl World<'_> {
    /// A request reaches its server, or what is before it.
    pub(super) fn request(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (made, place) = (flight.made, flight.site as usize);
        let told = (flight.told != u32::MAX).then(|| Duration::from_millis(flight.told.into()));
        let until = told.map_or(Timestamp::MAX, |left| now.after(left));
        flight.until = until;
        let condition = self.sites[place].condition;
        if condition.holds {
            self.tell_of(now, slot, |_, _| "is held back by its network".to_owned());
            self.sites[place].held_back.push(slot);
            return;
        }
        self.counter.arrived(now, place);
        if condition.is_silent || self.is_cut(made, place, now) {
            self.tell_of(now, slot, |_, _| "vanishes".to_owned());
            self.ends_in_nothing(slot);
            return;
        }
        if condition.refuses || now < self.sites[place].dead_until {
            self.reply(engine, slot, Outcome::of(Cause::ConnectRefused));
            return;
        }
        self.ledger.arrived(now, self.sites[place].service);
        self.tell_of(now, slot, |world, _| {
            let server = &world.sites[place].server;
            format!("arrives: {} inside, {} of them wait", server.inside(), server.queued())
        });
        if let Some((share, status)) = condition.errors
            && self.draws.stream(made.origin, Purpose::Fault).at(made.draws).happens(share)
        {
            self.turn_away(engine, slot, status);
            return;
        }
        if !self.knocks(engine, slot, until) {
            self.enters(engine, slot, until);
        }
    }

    /// A request of a caller that is in.
    pub(super) fn enters(&mut self, engine: &mut Engine, slot: u32, until: Timestamp) {
        let now = engine.now();
        let Some(flight) = self.flights.get(slot) else { return };
        let (lane, place) = (flight.made.link.caller, flight.site as usize);
        if !self.passes_rule(now, place, slot) {
            self.refuse(engine, slot);
            return;
        }
        let site = &mut self.sites[place];
        match site.server.arrive(now, Coming { job: slot, until, lane }) {
            Arrived::Begun(slot) => self.work(engine, slot),
            Arrived::Queued(look_at) => {
                engine.schedule(look_at, &mut site.entity, What::Turn.of(0));
            }
            Arrived::Displaced(slot) | Arrived::Refused(slot) => self.refuse(engine, slot),
        }
        self.go_on(engine, place);
        let site = &self.sites[place];
        let dies = self.fleet.services[site.service as usize].dies;
        if dies.is_some_and(|dies| site.server.inside() >= dies.at as usize) {
            self.die(engine, place);
        }
    }

    /// A worker takes a request up.
    fn work(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let (site, is_awaited) = (flight.site as usize, self.is_awaited(flight));
        self.has_waited(engine.now(), site, slot);
        self.ledger.turn(engine.now(), self.sites[site].service, is_awaited, true);
        let owed = std::mem::take(&mut self.sites[site].owed);
        let takes = self.work_of(slot) + owed;
        self.tell_of(engine.now(), slot, |_, _| {
            let who = if is_awaited { "" } else { ", for nobody" };
            format!("is worked on{who}: {}", millis(takes))
        });
        self.busy_with(engine, slot, takes);
    }

    /// How long the work on a request takes, begun now.
    pub(super) fn work_of(&self, slot: u32) -> Duration {
        let Some(flight) = self.flights.get(slot) else { return Duration::ZERO };
        let site = &self.sites[flight.site as usize];
        if flight.stage == Stage::Door {
            return self.door_work(slot).mul_f64(site.condition.slow);
        }
        let made = flight.made;
        let takes = match &self.fleet.services[site.service as usize].host.work {
            Work::Queue { service, .. } => {
                service.draw(&mut self.draws.stream(made.origin, Purpose::Service).at(made.draws))
            }
            Work::Crowd { base, each } => {
                let inside = u32::try_from(site.server.inside()).unwrap_or(u32::MAX);
                base.saturating_add(each.saturating_mul(inside))
            }
        };
        takes.mul_f64(site.condition.slow)
    }

    /// A worker has to do with a request for so long.
    pub(super) fn busy_with(&mut self, engine: &mut Engine, slot: u32, takes: Duration) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let site = &mut self.sites[flight.site as usize];
        flight.finish_at = now.max(site.paused_until).after(takes);
        flight.paused = site.paused;
        flight.place = u32::try_from(site.working.len()).unwrap_or(u32::MAX);
        site.working.push(slot);
        engine.schedule(flight.finish_at, &mut site.entity, What::Finish.of(slot));
    }

    /// The work on a request is done, unless there was a pause meanwhile.
    pub(super) fn finish(&mut self, engine: &mut Engine, place: u32, slot: u32) {
        let now = engine.now();
        let site = &mut self.sites[place as usize];
        let Some(flight) = self.flights.get_mut(slot) else { return };
        if flight.site != place || flight.finish_at != now {
            return;
        }
        let pauses = site.paused - flight.paused;
        if pauses > 0 {
            flight.paused = site.paused;
            flight.finish_at = now.after(Duration::from_nanos(pauses));
            engine.schedule(flight.finish_at, &mut site.entity, What::Finish.of(slot));
            return;
        }
        flight.finish_at = Timestamp::MAX;
        match flight.stage {
            Stage::Work => self.call_on(engine, slot),
            Stage::Door => self.is_let_in(engine, slot),
            Stage::Away => {
                let lane = flight.made.link.caller;
                let status = self.host(place as usize).refusal.status;
                self.put_down(slot);
                self.turn_away(engine, slot, status);
                self.lay_down(engine, place as usize, lane);
            }
        }
    }

    /// A request is answered that was worked on; its worker takes up the next.
    pub(super) fn worked(&mut self, engine: &mut Engine, slot: u32, outcome: Outcome) {
        let Some(flight) = self.flights.get(slot) else { return };
        let (place, is_awaited) = (flight.site as usize, self.is_awaited(flight));
        let lane = flight.made.link.caller;
        if lane < self.fleet.clients {
            self.counter.worked(lane, flight.made.draws / ALL_DRAWS);
        }
        self.ledger.worked(engine.now(), self.sites[place].service, is_awaited);
        self.tell_of(engine.now(), slot, |_, _| {
            let who = if is_awaited { "" } else { ", and nobody waits for that" };
            format!("is done{who}: {}", of_outcome(&outcome))
        });
        self.put_down(slot);
        self.reply(engine, slot, outcome);
        self.lay_down(engine, place, lane);
    }

    /// A request is worked on no longer, and nobody hears of it.
    pub(super) fn given_up(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let (place, lane) = (flight.site as usize, flight.made.link.caller);
        self.ledger.worked(engine.now(), self.sites[place].service, false);
        self.put_down(slot);
        self.ends_in_nothing(slot);
        self.lay_down(engine, place, lane);
    }

    /// A worker has nothing to do with a request of this lane any longer.
    fn lay_down(&mut self, engine: &mut Engine, place: usize, lane: u32) {
        self.sites[place].server.finish(engine.now(), lane);
        self.go_on(engine, place);
    }

    /// A request is no longer among those that its server works on.
    pub(super) fn put_down(&mut self, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let at = flight.place as usize;
        let site = &mut self.sites[flight.site as usize];
        site.working.swap_remove(at);
        if let Some(moved) = site.working.get(at).and_then(|moved| self.flights.get_mut(*moved)) {
            moved.place = u32::try_from(at).unwrap_or(u32::MAX);
        }
    }

    /// Time has passed for those that wait, before the door too.
    pub(super) fn looks_round(&mut self, engine: &mut Engine, place: usize) {
        self.door_goes_on(engine, place);
        self.go_on(engine, place);
    }

    /// What follows for those that wait: they are worked on, as far as there are workers, or
    /// dropped, or their turn has come and it was noticed that nobody waits for them.
    pub(super) fn go_on(&mut self, engine: &mut Engine, place: usize) {
        let now = engine.now();
        while let Some(next) = self.sites[place].server.next(now) {
            let (Next::Begun(slot) | Next::Dropped(slot)) = next;
            let Some(flight) = self.flights.get(slot) else { continue };
            if let Next::Dropped(slot) = next {
                self.drop_out(engine, place, slot);
            } else if self.host(place).notices && flight.gone_at <= now {
                let lane = flight.made.link.caller;
                self.has_waited(now, place, slot);
                self.ledger.turn(now, self.sites[place].service, false, false);
                self.tell_of(now, slot, |_, _| "is left out: nobody waits for it".to_owned());
                self.sites[place].server.finish(now, lane);
                self.ends_in_nothing(slot);
            } else {
                self.work(engine, slot);
            }
        }
    }

    /// A request is dropped out of the queue; perhaps not for nothing.
    fn drop_out(&mut self, engine: &mut Engine, place: usize, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let (service, is_awaited) = (self.sites[place].service, self.is_awaited(flight));
        self.has_waited(engine.now(), place, slot);
        self.ledger.turn(engine.now(), service, is_awaited, false);
        self.tell_of(engine.now(), slot, |_, _| "is dropped by the queue".to_owned());
        let refusal = &self.fleet.services[service as usize].host.refusal;
        if refusal.drop_cost > 0.0 {
            let takes = self.work_of(slot).mul_f64(refusal.drop_cost);
            if self.sites[place].server.occupy() {
                if let Some(flight) = self.flights.get_mut(slot) {
                    flight.stage = Stage::Away;
                }
                self.busy_with(engine, slot, takes);
                return;
            }
            self.sites[place].owed += takes;
        }
        self.turn_away(engine, slot, refusal.status);
    }

    /// There is no room for a request.
    pub(super) fn refuse(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let service = self.sites[flight.site as usize].service;
        let (site, is_at_door) = (flight.site as usize, flight.stage == Stage::Door);
        self.ledger.refused(engine.now(), service);
        self.tell_of(engine.now(), slot, |_, _| "is refused: the queue is full".to_owned());
        let refusal = &self.fleet.services[service as usize].host.refusal;
        if refusal.cost > 0.0 {
            let cost = self.work_of(slot).mul_f64(refusal.cost);
            let site = &mut self.sites[site];
            match &mut site.door {
                Some(door) if is_at_door => door.owed += cost,
                _ => site.owed += cost,
            }
        }
        self.turn_away(engine, slot, refusal.status);
    }

    /// Answers a request that is not worked on.
    fn turn_away(&mut self, engine: &mut Engine, slot: u32, status: u16) {
        let now = engine.now();
        let Some(flight) = self.flights.get(slot) else { return };
        let mut signals = AnswerSignals::NONE;
        let (made, place, stage) = (flight.made, flight.site as usize, flight.stage);
        let service = &self.fleet.services[self.sites[place].service as usize];
        if let Some(later) = &service.host.refusal.later {
            let travels = self.travels(made, BACK).unwrap_or_default();
            let (read_at, skew) = (now.after(travels), self.skew(made.link.caller, now));
            let site = &mut self.sites[place];
            let mut draw = self.draws.stream(made.origin, Purpose::Service).at(made.draws + LATER);
            let waiting = match &site.door {
                Some(door) if stage == Stage::Door => door.server.queued(),
                _ => site.server.queued(),
            };
            signals.retry_after =
                later.said(now, read_at, skew, waiting, &mut site.slots, &mut draw);
        }
        self.reply(engine, slot, Outcome::of_status(status, signals));
    }

    /// Sends an answer back.
    fn reply(&mut self, engine: &mut Engine, slot: u32, outcome: Outcome) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.outcome = outcome;
        let (made, place) = (flight.made, flight.site as usize);
        let is_cut = self.is_cut(made, place, engine.now());
        match self.travels(made, BACK).filter(|_| !is_cut) {
            Some(delay) => {
                let at = engine.now().after(delay);
                self.schedule(engine, at, made.link.caller, What::Answer.of(slot));
            }
            None => self.ends_in_nothing(slot),
        }
    }

    /// Everything inside ends without an answer, and what the process knew is gone.
    pub(super) fn close_all(&mut self, engine: &mut Engine, place: usize) {
        let site = &mut self.sites[place];
        site.entry.iter_mut().for_each(|entry| entry.clear());
        let mut inside = std::mem::take(&mut site.working);
        inside.extend(site.server.clear());
        inside.extend(site.door.iter_mut().flat_map(|door| door.close()));
        for slot in inside {
            if let Some(flight) = self.flights.get_mut(slot) {
                flight.finish_at = Timestamp::MAX;
            }
            self.cut_short(engine, slot);
            self.reply(engine, slot, Outcome::of(Cause::Closed));
        }
        let caller = self.sites[place].entity.id();
        self.policies.renew(caller);
    }
}

/// Which of the draws of an attempt's work say when to come again.
const LATER: u64 = 8;

pub(super) const fn status_of(status: u16) -> Outcome {
    Outcome::of_status(status, AnswerSignals::NONE)
}
