//! The servers' side: takes requests in, works on them, answers; and what faults do to that.

use std::time::Duration;

use seawall_policy::{AnswerSignals, Cause, Outcome, Timestamp};

use super::caller::BACK;
use super::world::{What, World};
use super::{Fleet, Work};
use crate::draw::Purpose;
use crate::engine::{Engine, Entity};
use crate::fault::{Condition, Trouble};
use crate::server::{Arrived, Server};

/// One server.
pub(super) struct Site {
    pub(super) entity: Entity,
    server: Server<u32>,
    condition: Condition,
    /// What it works on.
    working: Vec<u32>,
    /// What its network holds back, in the order it was sent in.
    held_back: Vec<u32>,
    paused_until: Timestamp,
    /// Nanoseconds of all pauses, to the end of the present one.
    paused: u64,
}

impl Site {
    pub(super) fn new(entity: Entity, fleet: &Fleet) -> Self {
        let server = match fleet.host.work {
            Work::Queue { workers, room, .. } => Server::new(workers, room),
            Work::Crowd { .. } => Server::new(u32::MAX, None),
        };
        Self {
            entity,
            server,
            condition: Condition::GOOD,
            working: Vec::new(),
            held_back: Vec::new(),
            paused_until: Timestamp::ZERO,
            paused: 0,
        }
    }
}

impl World<'_> {
    /// A request reaches its server, or what is before it.
    pub(super) fn request(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        let (client, draws, place) = (flight.client, flight.draws, flight.site as usize);
        let condition = self.sites[place].condition;
        if condition.holds {
            self.sites[place].held_back.push(slot);
            return;
        }
        if condition.is_silent {
            self.ends_in_nothing(slot);
            return;
        }
        if condition.refuses {
            self.reply(engine, slot, Outcome::of(Cause::ConnectRefused));
            return;
        }
        self.ledger.second(engine.now()).arrived += 1;
        if let Some((share, status)) = condition.errors
            && self.draws.stream(client, Purpose::Fault).at(draws).happens(share)
        {
            self.reply(engine, slot, status_of(status));
            return;
        }
        match self.sites[place].server.arrive(slot) {
            Arrived::Begun(slot) => self.work(engine, slot),
            Arrived::Queued => {}
            Arrived::Refused(slot) => self.reply(engine, slot, status_of(503)),
        }
    }

    /// A worker takes a request up.
    fn work(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let site = &mut self.sites[flight.site as usize];
        let takes = match &self.fleet.host.work {
            Work::Queue { service, .. } => service
                .draw(&mut self.draws.stream(flight.client, Purpose::Service).at(flight.draws)),
            Work::Crowd { base, each } => {
                let inside = u32::try_from(site.server.inside()).unwrap_or(u32::MAX);
                base.saturating_add(each.saturating_mul(inside))
            }
        };
        let takes = takes.mul_f64(site.condition.slow);
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
        let (at, is_waited_for) = (flight.place as usize, flight.is_awaited());
        site.working.swap_remove(at);
        if let Some(moved) = site.working.get(at).and_then(|moved| self.flights.get_mut(*moved)) {
            moved.place = u32::try_from(at).unwrap_or(u32::MAX);
        }
        let second = self.ledger.second(now);
        *(if is_waited_for { &mut second.worked } else { &mut second.wasted }) += 1;
        self.reply(engine, slot, status_of(200));
        let next = self.sites[place as usize].server.finish();
        self.go_on(engine, place as usize, next);
    }

    /// Works on what was taken up, or on the next if nobody waits for it and that was noticed, and
    /// then on more if there are workers.
    fn go_on(&mut self, engine: &mut Engine, place: usize, mut next: Option<u32>) {
        while let Some(slot) = next {
            let gone_at = self.flights.get(slot).map(|flight| flight.gone_at);
            if self.fleet.host.notices && gone_at.is_some_and(|at| at <= engine.now()) {
                self.ends_in_nothing(slot);
                next = self.sites[place].server.finish();
                continue;
            }
            self.work(engine, slot);
            next = self.sites[place].server.take_up();
        }
    }

    /// Sends an answer back.
    fn reply(&mut self, engine: &mut Engine, slot: u32, outcome: Outcome) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.outcome = outcome;
        let (client, draws) = (flight.client, flight.draws);
        match self.travels(client, draws + BACK) {
            Some(delay) => {
                let entity = &mut self.clients[client as usize].entity;
                engine.schedule(engine.now().after(delay), entity, What::Answer.of(slot));
            }
            None => self.ends_in_nothing(slot),
        }
    }

    /// A fault begins or ends.
    pub(super) fn weather(&mut self, engine: &mut Engine, number: u32) {
        let now = engine.now();
        let Some(fault) = self.fleet.faults.get(number as usize) else { return };
        for id in (0..self.fleet.servers).filter(|id| fault.hits(*id)) {
            let place = id as usize;
            let site = &mut self.sites[place];
            site.condition = Condition::of(&self.fleet.faults, id, now);
            if let Work::Queue { workers, .. } = self.fleet.host.work {
                site.server.resize(site.condition.workers.unwrap_or(workers));
            }
            match fault.trouble() {
                Trouble::Pause if now == fault.from() => {
                    let longer = site.paused_until.max(now).until(fault.until());
                    site.paused += u64::try_from(longer.as_nanos()).unwrap_or(u64::MAX);
                    site.paused_until = site.paused_until.max(fault.until());
                }
                Trouble::Restart if now == fault.from() => self.close_all(engine, place),
                Trouble::Hold if !site.condition.holds => {
                    for slot in std::mem::take(&mut site.held_back) {
                        self.request(engine, slot);
                    }
                }
                Trouble::Capacity(_) => {
                    let next = site.server.take_up();
                    self.go_on(engine, place, next);
                }
                _ => {}
            }
        }
    }

    /// Everything inside ends without an answer.
    fn close_all(&mut self, engine: &mut Engine, place: usize) {
        let site = &mut self.sites[place];
        let mut inside = std::mem::take(&mut site.working);
        inside.extend(site.server.clear());
        for slot in inside {
            if let Some(flight) = self.flights.get_mut(slot) {
                flight.finish_at = Timestamp::MAX;
            }
            self.reply(engine, slot, Outcome::of(Cause::Closed));
        }
    }
}

const fn status_of(status: u16) -> Outcome {
    Outcome::of_status(status, AnswerSignals::NONE)
}
