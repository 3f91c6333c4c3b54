//! The servers' side: takes requests in, works on them, answers; and what faults do to that.

use std::time::Duration;

use seawall_policy::{AnswerSignals, Cause, Outcome, Timestamp};

use super::caller::BACK;
use super::later::Slots;
use super::world::{What, World};
use super::{Fleet, Work};
use crate::draw::Purpose;
use crate::engine::{Engine, Entity};
use crate::fault::{Condition, Trouble};
use crate::server::{Arrived, Coming, Next, Queue, Server};

/// One server.
pub(super) struct Site {
    pub(super) entity: Entity,
    server: Server<u32>,
    condition: Condition,
    /// What its refusals have cost and nobody has worked off yet.
    owed: Duration,
    slots: Slots,
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
            Work::Queue { workers, ref queue, .. } => Server::new(workers, queue),
            Work::Crowd { .. } => Server::new(u32::MAX, &Queue::fifo(None)),
        };
        Self {
            entity,
            server,
            condition: Condition::GOOD,
            owed: Duration::ZERO,
            slots: Slots::default(),
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
        let now = engine.now();
        let Some(flight) = self.flights.get(slot) else { return };
        let (client, draws, place) = (flight.client, flight.draws, flight.site as usize);
        let until = match flight.told {
            u32::MAX => Timestamp::MAX,
            told => now.after(Duration::from_millis(told.into())),
        };
        let condition = self.sites[place].condition;
        if condition.holds {
            self.sites[place].held_back.push(slot);
            return;
        }
        if condition.is_silent || self.is_cut(client, place, now) {
            self.ends_in_nothing(slot);
            return;
        }
        if condition.refuses {
            self.reply(engine, slot, Outcome::of(Cause::ConnectRefused));
            return;
        }
        self.ledger.second(now).arrived += 1;
        if let Some((share, status)) = condition.errors
            && self.draws.stream(client, Purpose::Fault).at(draws).happens(share)
        {
            self.turn_away(engine, slot, status);
            return;
        }
        let site = &mut self.sites[place];
        match site.server.arrive(now, Coming { job: slot, until, lane: client }) {
            Arrived::Begun(slot) => self.work(engine, slot),
            Arrived::Queued(look_at) => {
                engine.schedule(look_at, &mut site.entity, What::Turn.of(0));
            }
            Arrived::Displaced(slot) | Arrived::Refused(slot) => self.refuse(engine, slot),
        }
        self.go_on(engine, place);
    }

    /// A worker takes a request up.
    fn work(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        self.ledger.turn(engine.now(), flight.is_awaited(), true);
        let owed = std::mem::take(&mut self.sites[flight.site as usize].owed);
        let takes = self.work_of(slot) + owed;
        self.busy_with(engine, slot, takes);
    }

    /// How long the work on a request takes, begun now.
    fn work_of(&self, slot: u32) -> Duration {
        let Some(flight) = self.flights.get(slot) else { return Duration::ZERO };
        let site = &self.sites[flight.site as usize];
        let takes = match &self.fleet.host.work {
            Work::Queue { service, .. } => service
                .draw(&mut self.draws.stream(flight.client, Purpose::Service).at(flight.draws)),
            Work::Crowd { base, each } => {
                let inside = u32::try_from(site.server.inside()).unwrap_or(u32::MAX);
                base.saturating_add(each.saturating_mul(inside))
            }
        };
        takes.mul_f64(site.condition.slow)
    }

    /// A worker has to do with a request for so long.
    fn busy_with(&mut self, engine: &mut Engine, slot: u32, takes: Duration) {
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
        let (at, is_waited_for) = (flight.place as usize, flight.is_awaited());
        let (client, is_dropped) = (flight.client, flight.is_dropped);
        site.working.swap_remove(at);
        if let Some(moved) = site.working.get(at).and_then(|moved| self.flights.get_mut(*moved)) {
            moved.place = u32::try_from(at).unwrap_or(u32::MAX);
        }
        if is_dropped {
            self.turn_away(engine, slot, self.fleet.host.refusal.status);
        } else {
            let second = self.ledger.second(now);
            *(if is_waited_for { &mut second.worked } else { &mut second.wasted }) += 1;
            self.reply(engine, slot, status_of(200));
        }
        self.sites[place as usize].server.finish(now, client);
        self.go_on(engine, place as usize);
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
            } else if self.fleet.host.notices && flight.gone_at <= now {
                self.ledger.turn(now, false, false);
                self.sites[place].server.finish(now, flight.client);
                self.ends_in_nothing(slot);
            } else {
                self.work(engine, slot);
            }
        }
    }

    /// A request is dropped out of the queue; perhaps not for nothing.
    fn drop_out(&mut self, engine: &mut Engine, place: usize, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        self.ledger.turn(engine.now(), flight.is_awaited(), false);
        let refusal = &self.fleet.host.refusal;
        if refusal.drop_cost > 0.0 {
            flight.is_dropped = true;
            self.sites[place].server.occupy();
            let takes = self.work_of(slot).mul_f64(refusal.drop_cost);
            self.busy_with(engine, slot, takes);
        } else {
            self.turn_away(engine, slot, refusal.status);
        }
    }

    /// There is no room for a request.
    fn refuse(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        self.ledger.refused(engine.now());
        let refusal = &self.fleet.host.refusal;
        if refusal.cost > 0.0 {
            let cost = self.work_of(slot).mul_f64(refusal.cost);
            self.sites[flight.site as usize].owed += cost;
        }
        self.turn_away(engine, slot, refusal.status);
    }

    /// Answers a request that is not worked on.
    fn turn_away(&mut self, engine: &mut Engine, slot: u32, status: u16) {
        let now = engine.now();
        let Some(flight) = self.flights.get(slot) else { return };
        let mut signals = AnswerSignals::NONE;
        if let Some(later) = &self.fleet.host.refusal.later {
            let (client, draws) = (flight.client, flight.draws);
            let travels = self.travels(client, draws + BACK).unwrap_or_default();
            let (read_at, skew) = (now.after(travels), self.skew(client, now));
            let site = &mut self.sites[flight.site as usize];
            let mut draw = self.draws.stream(client, Purpose::Service).at(draws + LATER);
            let waiting = site.server.queued();
            signals.retry_after =
                later.said(now, read_at, skew, waiting, &mut site.slots, &mut draw);
        }
        self.reply(engine, slot, Outcome::of_status(status, signals));
    }

    /// How many seconds a client's clock is ahead.
    fn skew(&self, client: u32, now: Timestamp) -> i64 {
        let clocks = self.fleet.faults.iter().zip(0..).filter(|(fault, _)| fault.is_on(now));
        let ahead = clocks.filter_map(|(fault, number)| match fault.trouble() {
            Trouble::Clock { share, ahead } if self.is_hit(client, number, share) => Some(ahead),
            _ => None,
        });
        ahead.sum()
    }

    /// Whether nothing passes between a client and a server.
    fn is_cut(&self, client: u32, place: usize, now: Timestamp) -> bool {
        let server = u32::try_from(place).unwrap_or(u32::MAX);
        self.sites[place].condition.is_parted
            && self.fleet.faults.iter().zip(0..).any(|(fault, number)| {
                let is_on = fault.is_on(now) && fault.hits(server);
                matches!(fault.trouble(), Trouble::Partition { share }
                    if is_on && self.is_hit(client, number, share))
            })
    }

    /// Whether a client is among this share that the fault of this number hits.
    fn is_hit(&self, client: u32, number: u64, share: f64) -> bool {
        let mut draw = self.draws.stream(client, Purpose::Fault).at(u64::MAX - number);
        draw.happens(share)
    }

    /// Sends an answer back.
    fn reply(&mut self, engine: &mut Engine, slot: u32, outcome: Outcome) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        flight.outcome = outcome;
        let (client, draws, place) = (flight.client, flight.draws, flight.site as usize);
        let is_cut = self.is_cut(client, place, engine.now());
        match self.travels(client, draws + BACK).filter(|_| !is_cut) {
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
                site.server.resize(now, site.condition.workers.unwrap_or(workers));
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
                    self.go_on(engine, place);
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

/// Which of the draws of an attempt's work say when to come again.
const LATER: u64 = 8;

const fn status_of(status: u16) -> Outcome {
    Outcome::of_status(status, AnswerSignals::NONE)
}
