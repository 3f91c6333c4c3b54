//! An overload under way: calls come, wait for a credit or not, travel, wait, are worked on.

use std::collections::VecDeque;
use std::time::Duration;

use seawall_policy::{Rng, Timestamp};

use super::{LAST, Overload};
use crate::baselines::Credits;
use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::server::{Arrived, Coming, Next, Server};
use crate::stats::Times;

pub(super) struct Run<'a> {
    model: &'a Overload,
    draws: Draws,
    /// Those to whom events happen: what comes, what travels, the workers, and what is due.
    source: Entity,
    wire: Entity,
    host: Entity,
    clock: Entity,
    server: Server<u32>,
    jobs: Vec<Job>,
    clients: Vec<Client>,
    credits: Option<Credits>,
    /// Since when those wait that wait at the server.
    since: VecDeque<Timestamp>,
    /// The longest wait of those that were taken up since the last tick.
    waited: Duration,
    /// Jobs that were asked for, and those that were answered in time, second by second.
    pub(super) seconds: Vec<(u32, u32)>,
    /// How long the answers of the last seconds took.
    pub(super) times: Times,
}

struct Job {
    came: Timestamp,
    client: u32,
}

#[derive(Clone, Debug, Default)]
struct Client {
    /// Calls that it may have under way, and that it has.
    may: u32,
    out: u32,
    waiting: VecDeque<u32>,
    has_asked: bool,
    /// What it has been told that is still on its way.
    told: VecDeque<u32>,
}

/// What happens, and to which job or client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Comes,
    Arrives,
    Answered,
    Failed,
    GivesUp,
    Asks,
    Told,
    Tick,
    Look,
    Done,
    Dropped,
}

impl What {
    const ALL: [Self; 11] = [
        Self::Comes,
        Self::Arrives,
        Self::Answered,
        Self::Failed,
        Self::GivesUp,
        Self::Asks,
        Self::Told,
        Self::Tick,
        Self::Look,
        Self::Done,
        Self::Dropped,
    ];

    const fn of(self, whom: u32) -> u32 {
        whom << 4 | self as u32
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Overload, draws: Draws) -> Self {
        let seconds = model.ends.since(Timestamp::ZERO).as_secs() + 1;
        let credits =
            model.credits.map(|target| Credits::new(model.clients, model.workers, target));
        Self {
            model,
            draws,
            source: Entity::new(0),
            wire: Entity::new(1),
            host: Entity::new(2),
            clock: Entity::new(3),
            server: Server::new(model.workers, &model.queue),
            jobs: Vec::new(),
            clients: vec![Client::default(); model.clients as usize],
            credits,
            since: VecDeque::new(),
            waited: Duration::ZERO,
            seconds: vec![(0, 0); usize::try_from(seconds).unwrap_or(0)],
            times: Times::new(),
        }
    }

    pub(super) fn begin(&mut self, engine: &mut Engine) {
        self.next_call(engine);
        if self.credits.is_some() {
            engine.schedule(Timestamp::ZERO, &mut self.clock, What::Tick.of(0));
        }
    }

    fn second(&mut self, now: Timestamp) -> &mut (u32, u32) {
        let second = usize::try_from(now.since(Timestamp::ZERO).as_secs()).unwrap_or(0);
        &mut self.seconds[second]
    }

    fn travels(&mut self, engine: &mut Engine, what: u32) {
        engine.schedule(engine.now().after(self.model.trip / 2), &mut self.wire, what);
    }

    fn next_call(&mut self, engine: &mut Engine) {
        let n = self.jobs.len() as u64;
        let mut draw = self.draws.stream(0, Purpose::Arrival).at(n);
        let at = self.model.rate.after(engine.now(), draw.exponential());
        engine.schedule(at, &mut self.source, What::Comes.of(0));
    }

    fn comes(&mut self, engine: &mut Engine) {
        let now = engine.now();
        self.second(now).0 += 1;
        let id = u32::try_from(self.jobs.len()).unwrap_or(0);
        let mut draw = self.draws.stream(0, Purpose::Choice).at(id.into());
        let client = u32::try_from(draw.below(self.model.clients.into())).unwrap_or(0);
        self.jobs.push(Job { came: now, client });
        self.next_call(engine);
        if self.credits.is_none() {
            self.travels(engine, What::Arrives.of(id));
            return;
        }
        self.clients[client as usize].waiting.push_back(id);
        // What is told at that moment is heard first.
        engine.schedule(now.after(self.model.trip), &mut self.clock, What::GivesUp.of(id));
        self.sends(engine, client);
    }

    /// A client sends what it may, and asks if it may send nothing.
    fn sends(&mut self, engine: &mut Engine, id: u32) {
        loop {
            let client = &mut self.clients[id as usize];
            if client.out < client.may
                && let Some(job) = client.waiting.pop_front()
            {
                client.out += 1;
                self.travels(engine, What::Arrives.of(job));
                continue;
            }
            if client.may == 0 && !client.waiting.is_empty() && !client.has_asked {
                client.has_asked = true;
                self.travels(engine, What::Asks.of(id));
            }
            return;
        }
    }

    fn gives_up(&mut self, id: u32) {
        let client = self.jobs[id as usize].client;
        self.clients[client as usize].waiting.retain(|waiting| *waiting != id);
    }

    fn arrives(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let Job { came, client } = self.jobs[id as usize];
        if self.credits.is_some() {
            self.hears_of(engine, client);
        }
        // An answer is in time that still has its way back.
        let until = came.after(self.model.within.saturating_sub(self.model.trip / 2));
        match self.server.arrive(now, Coming { job: id, until, lane: 0 }) {
            Arrived::Begun(job) => self.works(engine, job),
            Arrived::Queued(look_at) => {
                self.since.push_back(now);
                engine.schedule(look_at, &mut self.host, What::Look.of(0));
            }
            Arrived::Displaced(job) | Arrived::Refused(job) => {
                self.travels(engine, What::Failed.of(job));
            }
        }
        self.goes_on(engine);
    }

    fn goes_on(&mut self, engine: &mut Engine) {
        let now = engine.now();
        while let Some(next) = self.server.next(now) {
            let since = self.since.pop_front().unwrap_or(now);
            self.waited = self.waited.max(now.since(since));
            match next {
                Next::Begun(job) => self.works(engine, job),
                Next::Dropped(job) => {
                    if self.model.drop_cost > 0.0 {
                        self.server.occupy();
                        let takes = self.work_of(job).mul_f64(self.model.drop_cost);
                        engine.schedule(now.after(takes), &mut self.host, What::Dropped.of(0));
                    }
                    self.travels(engine, What::Failed.of(job));
                }
            }
        }
    }

    fn work_of(&self, job: u32) -> Duration {
        let mut draw = self.draws.stream(0, Purpose::Service).at(4 * u64::from(job));
        self.model.service.draw(&mut draw)
    }

    fn works(&mut self, engine: &mut Engine, job: u32) {
        let ends = engine.now().after(self.work_of(job));
        engine.schedule(ends, &mut self.host, What::Done.of(job));
    }

    fn ended(&mut self, engine: &mut Engine, id: u32, is_answered: bool) {
        let now = engine.now();
        let Job { came, client } = self.jobs[id as usize];
        let took = now.since(came);
        if is_answered {
            self.second(now).1 += u32::from(took <= self.model.within);
            if now.after(LAST) >= self.model.ends {
                self.times.record(took);
            }
        }
        if self.credits.is_some() {
            self.clients[client as usize].out -= 1;
            self.sends(engine, client);
        }
    }

    /// The server hears of a client, and tells it how much it may send.
    fn hears_of(&mut self, engine: &mut Engine, client: u32) {
        let Some(credits) = &mut self.credits else { return };
        let known = &mut self.clients[client as usize];
        let demand = u32::try_from(known.waiting.len()).unwrap_or(u32::MAX);
        known.told.push_back(credits.grant(client, demand));
        self.travels(engine, What::Told.of(client));
    }

    fn hands_out(&mut self, engine: &mut Engine) {
        while let Some(client) = self.credits.as_mut().and_then(Credits::next) {
            self.hears_of(engine, client);
        }
    }

    fn told(&mut self, engine: &mut Engine, id: u32) {
        let client = &mut self.clients[id as usize];
        client.may = client.told.pop_front().unwrap_or(0);
        client.has_asked = false;
        self.sends(engine, id);
    }

    fn tick(&mut self, engine: &mut Engine) {
        let now = engine.now();
        let oldest = self.since.front().map_or(Duration::ZERO, |since| now.since(*since));
        let waited = std::mem::take(&mut self.waited).max(oldest);
        if let Some(credits) = &mut self.credits {
            credits.update(waited);
        }
        self.hands_out(engine);
        engine.schedule(now.after(self.model.trip), &mut self.clock, What::Tick.of(0));
    }
}

impl Model for Run<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        let whom = event.what >> 4;
        let Some(what) = What::ALL.get((event.what & 15) as usize) else { return };
        match what {
            What::Comes => self.comes(engine),
            What::Arrives => self.arrives(engine, whom),
            What::Answered => self.ended(engine, whom, true),
            What::Failed => self.ended(engine, whom, false),
            What::GivesUp => self.gives_up(whom),
            What::Asks => {
                if let Some(credits) = &mut self.credits {
                    credits.ask(whom);
                }
                self.hands_out(engine);
            }
            What::Told => self.told(engine, whom),
            What::Tick => self.tick(engine),
            What::Look => self.goes_on(engine),
            What::Done | What::Dropped => {
                self.server.finish(engine.now(), 0);
                if *what == What::Done {
                    self.travels(engine, What::Answered.of(whom));
                }
                self.goes_on(engine);
            }
        }
    }
}
