//! What a caller goes through before its first request to a server: a place among those that are
//! accepted, TLS, a login, a subscription. Workers of their own do that, so that those who are in
//! are not kept waiting by those who come.
//!
//! Whoever has come through is in until the server restarts or the sessions are reset. What is done
//! for somebody who has left meanwhile is done for nobody: that caller begins anew.

use std::collections::BTreeMap;
use std::time::Duration;

use seawall_policy::Timestamp;

use super::world::{What, World};
use crate::draw::Purpose;
use crate::engine::Engine;
use crate::server::{Arrived, Coming, Next, Queue, Server};
use crate::span::Span;

/// What is before a server.
#[derive(Clone, Debug)]
pub struct Door {
    /// How many are let in at once, from 1.
    pub workers: u32,
    /// Where the others wait.
    pub queue: Queue,
    /// What it takes to let one in, all of it: TLS, login, subscription.
    pub costs: Vec<Span>,
    /// How often messages go back and forth before the request is sent.
    pub trips: u32,
}

/// What a worker has to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The work it asks for.
    Work,
    /// To let its caller in.
    Door,
    /// To turn it away.
    Away,
}

/// The door of one server.
pub(super) struct Doorway {
    pub(super) server: Server<u32>,
    /// What its refusals have cost and nobody has worked off yet.
    pub(super) owed: Duration,
    /// Who is in, a bit for each caller.
    inside: Vec<u64>,
    /// Until when those are wanted that are before the door.
    until: BTreeMap<u32, Timestamp>,
}

impl Doorway {
    pub(super) fn new(door: &Door, callers: u32) -> Self {
        Self {
            server: Server::new(door.workers, &door.queue),
            owed: Duration::ZERO,
            inside: vec![0; callers as usize / 64 + 1],
            until: BTreeMap::new(),
        }
    }

    fn is_in(&self, caller: u32) -> bool {
        self.inside[caller as usize / 64] >> (caller % 64) & 1 == 1
    }

    fn let_in(&mut self, caller: u32) {
        self.inside[caller as usize / 64] |= 1 << (caller % 64);
    }

    fn throw_out(&mut self, caller: u32) {
        self.inside[caller as usize / 64] &= !(1 << (caller % 64));
    }

    /// Everybody is out; who was waiting.
    pub(super) fn close(&mut self) -> Vec<u32> {
        self.inside.fill(0);
        self.until.clear();
        self.server.clear()
    }
}

impl World<'_> {
    /// Whether a caller has to be let in first.
    fn is_out(&self, place: usize, caller: u32) -> bool {
        self.sites[place].door.as_ref().is_some_and(|door| !door.is_in(caller))
    }

    /// How many times as long as a message the way to a server takes.
    pub(super) fn ways(&self, place: usize, caller: u32) -> u32 {
        let door = self.host(place).door.as_ref();
        door.filter(|_| self.is_out(place, caller)).map_or(1, |door| 1 + 2 * door.trips)
    }

    /// When a caller gives up that it is let in; never, if it is in, or waits as long as it takes.
    pub(super) fn connecting(&self, now: Timestamp, site: u32, caller: u32) -> Timestamp {
        let waits = self.fleet.connect.filter(|_| self.is_out(site as usize, caller));
        waits.filter(|_| caller < self.fleet.clients).map_or(Timestamp::MAX, |wait| now.after(wait))
    }

    /// A request stands before the door, if its caller is not in: true, and it is taken care of.
    pub(super) fn knocks(&mut self, engine: &mut Engine, slot: u32, until: Timestamp) -> bool {
        let now = engine.now();
        let Some(flight) = self.flights.get_mut(slot) else { return false };
        let (place, caller) = (flight.site as usize, flight.made.link.caller);
        let site = &mut self.sites[place];
        let Some(door) = site.door.as_mut().filter(|door| !door.is_in(caller)) else {
            return false;
        };
        flight.stage = Stage::Door;
        door.until.insert(slot, until);
        match door.server.arrive(now, Coming { job: slot, until, lane: caller }) {
            Arrived::Begun(slot) => self.lets_in(engine, slot),
            Arrived::Queued(look_at) => {
                engine.schedule(look_at, &mut site.entity, What::Turn.of(0));
            }
            Arrived::Displaced(slot) | Arrived::Refused(slot) => self.not_let_in(engine, slot),
        }
        self.door_goes_on(engine, place);
        true
    }

    fn lets_in(&mut self, engine: &mut Engine, slot: u32) {
        let Some(place) = self.flights.get(slot).map(|flight| flight.site as usize) else { return };
        let owed = self.sites[place].door.as_mut().map(|door| std::mem::take(&mut door.owed));
        let takes = self.work_of(slot) + owed.unwrap_or_default();
        self.busy_with(engine, slot, takes);
    }

    fn not_let_in(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get(slot) else { return };
        if let Some(door) = &mut self.sites[flight.site as usize].door {
            door.until.remove(&slot);
        }
        self.refuse(engine, slot);
    }

    /// What it takes to let the caller of a request in.
    pub(super) fn door_work(&self, slot: u32) -> Duration {
        let Some(flight) = self.flights.get(slot) else { return Duration::ZERO };
        let made = flight.made;
        let mut draw = self.draws.stream(made.origin, Purpose::Choice).at(made.draws + COST);
        let door = self.host(flight.site as usize).door.as_ref();
        door.map_or(Duration::ZERO, |door| door.costs.iter().map(|cost| cost.draw(&mut draw)).sum())
    }

    /// A caller is in, if it still wants to be, and its request goes on.
    pub(super) fn is_let_in(&mut self, engine: &mut Engine, slot: u32) {
        let Some(flight) = self.flights.get_mut(slot) else { return };
        let (place, caller) = (flight.site as usize, flight.made.link.caller);
        flight.stage = Stage::Work;
        let is_wanted = flight.is_out();
        self.put_down(slot);
        let Some(door) = &mut self.sites[place].door else { return };
        let until = door.until.remove(&slot).unwrap_or(Timestamp::MAX);
        door.server.finish(engine.now(), caller);
        if is_wanted {
            door.let_in(caller);
            if let Some(flight) = self.flights.get_mut(slot) {
                flight.connect_at = Timestamp::MAX;
            }
            self.enters(engine, slot, until);
        } else {
            self.ends_in_nothing(slot);
        }
        self.door_goes_on(engine, place);
    }

    /// What follows for those before the door.
    pub(super) fn door_goes_on(&mut self, engine: &mut Engine, place: usize) {
        let notices = self.host(place).notices;
        while let Some(door) = &mut self.sites[place].door
            && let Some(next) = door.server.next(engine.now())
        {
            let (Next::Begun(slot) | Next::Dropped(slot)) = next;
            let Some(flight) = self.flights.get(slot) else { continue };
            if matches!(next, Next::Dropped(_)) {
                self.not_let_in(engine, slot);
            } else if notices && flight.gone_at <= engine.now() {
                door.until.remove(&slot);
                door.server.finish(engine.now(), flight.made.link.caller);
                self.ends_in_nothing(slot);
            } else {
                self.lets_in(engine, slot);
            }
        }
    }

    /// The sessions of these callers at a server are over.
    pub(super) fn reset(&mut self, place: usize, is_hit: impl Fn(&Self, u32) -> bool) {
        let callers = self.fleet.clients;
        let hit: Vec<u32> = (0..callers).filter(|caller| is_hit(self, *caller)).collect();
        if let Some(door) = &mut self.sites[place].door {
            hit.into_iter().for_each(|caller| door.throw_out(caller));
        }
    }
}

/// Which of an attempt's draws say what letting in takes; those before choose a server.
const COST: u64 = 8;
