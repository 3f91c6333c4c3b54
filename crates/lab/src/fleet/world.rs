//! The fleet under way: what there is, and what each event means.

use std::collections::BTreeMap;

use seawall_policy::{Cause, HeldCall, Operation, Outcome, Permit, Ticket, Timestamp};

use super::arrivals::Counter;
use super::door::Stage;
use super::hosts::{Site, sites};
use super::ledger::{Ledger, Place};
use super::nested::Life;
use super::plain::Plain;
use super::policies::Policies;
use super::report::Report;
use super::routes::Link;
use super::story::Story;
use super::{Fleet, Sharing};
use crate::baselines::Known;
use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::fault::Trouble;
use crate::slots::Slots;

/// Everything there is.
pub(super) struct World<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) draws: Draws,
    pub(super) clients: Vec<Client>,
    /// Of clients that do not stay; else empty.
    pub(super) lives: Vec<Life>,
    pub(super) policies: Policies,
    /// Calls that have begun and not ended.
    pub(super) calls: Slots<Ongoing>,
    /// The same of a baseline, and what it knows.
    pub(super) plain: Slots<Plain>,
    pub(super) known: Vec<Known>,
    /// Attempts that somebody still knows of.
    pub(super) flights: Slots<Flight>,
    /// Calls that wait for a slot of their dependency, and since when.
    pub(super) waiting: BTreeMap<(u32, Ticket), (u32, Timestamp)>,
    /// When a dependency is looked at next for the sake of those.
    pub(super) looks: BTreeMap<u32, Timestamp>,
    /// All servers, service by service.
    pub(super) sites: Vec<Site>,
    /// Where the servers of each service begin.
    pub(super) first_sites: Vec<u32>,
    /// Whose time it is when a fault begins or ends.
    weather: Entity,
    /// Whether any client ever stands still.
    has_stalls: bool,
    pub(super) ledger: Ledger,
    /// What is told of it, if anybody asks.
    pub(super) story: Option<Story>,
    pub(super) counter: Counter,
}

/// 24 bytes beside its policies.
pub(super) struct Client {
    pub(super) entity: Entity,
    /// Calls it has begun.
    pub(super) begun: u32,
    /// When the last one began.
    pub(super) last: Timestamp,
}

/// What is settled about a call before its first attempt, and about an attempt with its call.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) link: Link,
    /// The client that it is for in the end, whose draws it uses from here on.
    pub(super) origin: u32,
    /// Which of that client's calls that is.
    pub(super) number: u32,
    pub(super) draws: u64,
    /// What it is about.
    pub(super) key: u32,
    /// The attempt that is being worked on and needs it; [`NOBODY`] of a client's own.
    pub(super) maker: u32,
}

/// A call that is going on.
pub(super) struct Ongoing {
    pub(super) operation: Operation,
    pub(super) made: Made,
    pub(super) begun: Timestamp,
    /// When a tick is due; others are stale.
    pub(super) tick_at: Timestamp,
    /// When its maker leaves.
    pub(super) leaves_at: Timestamp,
    /// Attempts sent, redispatches and hedges too.
    pub(super) sent: u32,
    /// What is in flight: one attempt, and a hedge beside it.
    pub(super) flights: [Option<u32>; 2],
}

/// An attempt: on the client's side until its permit has come back and nothing is held for it, on
/// the servers' side until nothing more will come of it.
pub(super) struct Flight {
    /// With its own draws.
    pub(super) made: Made,
    /// In which of its lives its caller sent it.
    pub(super) life: u32,
    /// Which attempt of its call it is, from 0.
    pub(super) nth: u32,
    /// [`NOBODY`], once the call's maker has left.
    pub(super) call: u32,
    pub(super) site: u32,
    pub(super) permit: Option<Permit>,
    /// A baseline waits for it.
    pub(super) is_plain: bool,
    pub(super) held: Option<HeldCall>,
    pub(super) deadline: Timestamp,
    pub(super) cut_by_call: bool,
    pub(super) hedge_at: Timestamp,
    /// When it is given up that its caller is let in.
    pub(super) connect_at: Timestamp,
    /// When a timer is due; others are stale.
    pub(super) timer_at: Timestamp,
    /// When the servers' side could know that nobody waits any longer.
    pub(super) gone_at: Timestamp,
    /// Something will still come of it.
    pub(super) is_alive: bool,
    pub(super) outcome: Outcome,
    /// Milliseconds that its server was told are left; [`u32::MAX`]: as long as it takes.
    pub(super) told: u32,
    /// Until when that is, by its server's clock.
    pub(super) until: Timestamp,
    /// What its server has to do with it.
    pub(super) stage: Stage,
    /// When its work will have been done; other ends are stale.
    pub(super) finish_at: Timestamp,
    /// The pauses of its server that its end takes account of.
    pub(super) paused: u64,
    /// Its place among what its server works on.
    pub(super) place: u32,
    /// The call that its server makes for it now; [`NOBODY`] if none.
    pub(super) calling: u32,
    /// Which of those comes next.
    pub(super) step: u32,
}

impl Ongoing {
    /// Whether a client made it, and no server.
    pub(super) const fn is_of_client(&self) -> bool {
        self.made.maker == NOBODY
    }
}

impl World<'_> {
    /// Something happens to a caller.
    pub(super) fn schedule(&mut self, engine: &mut Engine, at: Timestamp, caller: u32, what: u32) {
        let entity = match self.clients.get_mut(caller as usize) {
            Some(client) => &mut client.entity,
            None => &mut self.sites[(caller - self.fleet.clients) as usize].entity,
        };
        engine.schedule(at, entity, what);
    }

    /// Where calls to the end of this route are counted.
    pub(super) fn counted(&self, link: Link) -> Place {
        let service = self.policies.routes.get(link.route).target;
        Place { service, is_of_client: link.caller < self.fleet.clients }
    }

    /// When the maker of a call that begins now leaves.
    pub(super) fn leaving(&self, engine: &Engine, id: u32, number: u32) -> Timestamp {
        let Some(patience) = &self.fleet.patience else { return Timestamp::MAX };
        let draws = u64::from(number) * CALL_DRAWS + CALL_DRAWS / 2;
        let mut draw = self.draws.stream(id, Purpose::Arrival).at(draws);
        engine.now().after(patience.draw(&mut draw))
    }
}

impl Flight {
    /// The attempt of a call, its `sent`th counted from 0, before it is sent anywhere.
    pub(super) fn new(made: Made, life: u32, call: u32, sent: u32) -> Self {
        let draws = made.draws + u64::from(sent) * DRAWS;
        Self {
            made: Made { draws, ..made },
            life,
            nth: sent,
            call,
            site: 0,
            permit: None,
            is_plain: false,
            held: None,
            deadline: Timestamp::MAX,
            cut_by_call: false,
            hedge_at: Timestamp::MAX,
            connect_at: Timestamp::MAX,
            timer_at: Timestamp::MAX,
            gone_at: Timestamp::MAX,
            is_alive: true,
            outcome: Outcome::of(Cause::Answered),
            told: u32::MAX,
            until: Timestamp::MAX,
            stage: Stage::Work,
            finish_at: Timestamp::MAX,
            paused: 0,
            place: 0,
            calling: NOBODY,
            step: 0,
        }
    }

    /// Whether its client will take an answer.
    pub(super) const fn is_out(&self) -> bool {
        self.permit.is_some() || self.is_plain
    }
}

/// What happens to a client or to a server: the upper four bits of an event's word, with a slot in
/// the others.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// A client's next call begins.
    Begin,
    /// The wait of a call is over.
    Tick,
    /// Whoever made a call leaves.
    Leave,
    /// An attempt is slow, to be hedged, or out of time.
    Timer,
    /// An attempt's answer is there.
    Answer,
    /// Something held by a dependency is due.
    Housekeep,
    /// A request reaches its server.
    Request,
    /// Its work is done.
    Finish,
    /// Time has passed for a server's queue.
    Turn,
    /// A fault begins or ends.
    Weather,
    /// A server hears that nobody waits for a request any longer.
    Gone,
}

impl What {
    const ALL: [Self; 11] = [
        Self::Begin,
        Self::Tick,
        Self::Leave,
        Self::Timer,
        Self::Answer,
        Self::Housekeep,
        Self::Request,
        Self::Finish,
        Self::Turn,
        Self::Weather,
        Self::Gone,
    ];

    pub(super) const fn of(self, slot: u32) -> u32 {
        (self as u32) << SLOT_BITS | slot
    }
}

impl<'a> World<'a> {
    pub(super) fn new(fleet: &'a Fleet, draws: Draws) -> Self {
        let client = |id| Client { entity: Entity::new(id), begun: 0, last: Timestamp::ZERO };
        let (sites, first_sites) = sites(fleet);
        Self {
            fleet,
            draws,
            clients: (0..fleet.clients).map(client).collect(),
            lives: Life::of(fleet),
            policies: Policies::new(fleet, draws),
            calls: Slots::default(),
            plain: Slots::default(),
            known: known(fleet),
            flights: Slots::default(),
            waiting: BTreeMap::new(),
            counter: Counter::new(sites.len(), fleet),
            looks: BTreeMap::new(),
            sites,
            first_sites,
            weather: Entity::new(u32::MAX),
            has_stalls: fleet.faults.iter().any(|it| matches!(it.trouble(), Trouble::Stall { .. })),
            ledger: Ledger::new(fleet),
            story: None,
        }
    }

    /// Everybody's first call, and all faults.
    pub(super) fn begin(&mut self, engine: &mut Engine) {
        for client in 0..self.fleet.clients {
            self.next_call(engine, client);
        }
        for (fault, number) in self.fleet.faults.iter().zip(0..) {
            engine.schedule(fault.from(), &mut self.weather, What::Weather.of(number));
            engine.schedule(fault.until(), &mut self.weather, What::Weather.of(number));
        }
    }

    pub(super) fn report(&mut self, engine: &Engine) -> Report {
        let calls = self.calls.iter().map(|call| (call.begun, call.made.link));
        for (begun, link) in calls.chain(self.plain.iter().map(|call| (call.begun, call.link()))) {
            let service = self.policies.routes.get(link.route).target;
            let place = Place { service, is_of_client: link.caller < self.fleet.clients };
            self.ledger.cut_off(place, begun, engine.now().since(begun));
        }
        self.ledger.report(engine, &self.policies, self.fleet, self.counter.arrivals())
    }
}

/// What each client of a baseline knows, or all of them together.
fn known(fleet: &Fleet) -> Vec<Known> {
    let count = match fleet.sharing {
        Sharing::Each => fleet.clients as usize,
        Sharing::All => 1,
    };
    let known = |baseline| vec![Known::new(baseline); count];
    fleet.baseline.as_ref().map_or_else(Vec::new, known)
}

impl Model for World<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        let slot = event.what & ((1 << SLOT_BITS) - 1);
        let Some(what) = What::ALL.get((event.what >> SLOT_BITS) as usize) else { return };
        if self.has_stalls
            && let Some(until) = self.stands_still(event.entity, engine.now())
        {
            self.put_off(engine, event, *what, slot, until);
            return;
        }
        let is_plain = self.fleet.baseline.is_some() && event.entity < self.fleet.clients;
        match what {
            What::Begin => self.call_begins(engine, event.entity),
            What::Leave if is_plain => self.plain_leaves(engine, slot),
            What::Leave => self.leaves(engine, slot),
            What::Tick if is_plain => self.plain_ticks(engine, slot),
            What::Timer if is_plain => self.plain_timer(engine, slot),
            What::Answer if is_plain => self.plain_answer(engine, slot),
            What::Tick => self.ticks(engine, slot),
            What::Timer => self.timer(engine, slot),
            What::Answer => self.answer(engine, slot),
            What::Housekeep => self.looks(engine, Link { caller: event.entity, route: slot }),
            What::Request => self.request(engine, slot),
            What::Finish => self.finish(engine, event.entity - self.fleet.clients, slot),
            What::Turn => self.looks_round(engine, (event.entity - self.fleet.clients) as usize),
            What::Gone => self.gone(engine, event.entity - self.fleet.clients, slot),
            What::Weather => self.weather(engine, slot),
        }
        if self.waiting.is_empty() {
            self.policies.none_waits();
        } else {
            self.wake(engine);
        }
    }

    fn touch(&self, entity: u32) -> u64 {
        let client = self.clients.get(entity as usize);
        client.map_or(0, |client| u64::from(client.begun) ^ self.policies.touch(entity))
    }
}

/// Bits of an event's word that name a slot.
const SLOT_BITS: u32 = 28;
/// In place of a call's slot: there is no call.
pub(super) const NOBODY: u32 = u32::MAX;
/// Room for the draws of a call: when it comes, and, in the second half, how long is waited for it.
pub(super) const CALL_DRAWS: u64 = 8;
/// Room for the draws of an attempt, and for the attempts of a call (at most a hundred), so that no
/// two share one.
const DRAWS: u64 = 16;
const ATTEMPTS: u64 = 128;
/// Room for the draws of all attempts of a call.
pub(super) const ALL_DRAWS: u64 = ATTEMPTS * DRAWS;
