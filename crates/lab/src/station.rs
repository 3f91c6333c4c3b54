//! One server and those who come to it: the queues whose answers are known exactly.
//!
//! No client here has a policy: it waits as long as it takes. That is what [`exact`](crate::exact)
//! has formulas for, and what the simulator is held against before anything is believed that it
//! says about a fleet.

use std::time::Duration;

use seawall_policy::Timestamp;

use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::rate::Rate;
use crate::server::{Arrived, Coming, Next, Queue, Server};
use crate::span::Span;
use crate::stats::{Level, Mean, Times};

/// Who comes.
#[derive(Clone, Debug)]
pub enum Source {
    /// Somebody new each time, at random, whoever is there already.
    Open(Rate),
    /// The same ones: each thinks, asks, waits for the answer, thinks again.
    Closed {
        /// How many.
        clients: u32,
        /// How long they think.
        think: Span,
    },
    /// The same ones, each with a beat of its own: the next job comes this long after the last
    /// one came, or at its answer if that is later.
    Serial {
        /// How many.
        clients: u32,
        /// From one job to the next.
        between: Span,
    },
}

/// A queue to be simulated.
#[derive(Clone, Debug)]
pub struct Station {
    /// Who comes.
    pub source: Source,
    /// How long a job takes.
    pub service: Span,
    /// How many are worked on at once.
    pub workers: u32,
    /// What is before them. Nobody says how long a job is wanted.
    pub queue: Queue,
    /// Whoever waited longer for the answer does not take it, and asks again at once; as long as
    /// new jobs come. `None`: every answer is taken.
    pub patience: Option<Duration>,
    /// Jobs that come before it is measured.
    pub warm_up: u64,
    /// Jobs that are measured.
    pub jobs: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From coming to being taken up, of the jobs that were taken, in seconds.
    pub wait: Mean,
    /// From coming to the answer.
    pub sojourn: Times,
    /// The mean of it in seconds, exactly.
    pub mean_sojourn: f64,
    /// Jobs that were refused or dropped, of all that came.
    pub refused: u64,
    /// Answers that came too late and were asked for again.
    pub again: u64,
    /// Jobs that came in a second, without those refused.
    pub per_second: f64,
    /// Jobs inside, averaged over time.
    pub inside: f64,
    /// Workers that had something to do, averaged over time.
    pub busy: f64,
    /// Events that were simulated.
    pub events: u64,
    /// A digest of everything that happened.
    pub digest: u64,
}

impl Station {
    /// Simulates it until every measured job has been answered.
    #[must_use]
    pub fn run(&self, seed: u64) -> Measured {
        let mut run = Run::new(self, Draws::new(seed));
        let mut engine = Engine::new();
        run.begin(&mut engine);
        engine.run_until(Timestamp::MAX, &mut run);
        let seconds = run.ended.since(run.begun).as_secs_f64();
        let refused = run.refused;
        Measured {
            wait: run.wait,
            mean_sojourn: run.mean_sojourn.mean(),
            sojourn: run.sojourn,
            refused,
            again: run.again,
            per_second: (self.jobs - refused) as f64 / seconds,
            inside: run.mean_inside,
            busy: run.mean_busy,
            events: engine.handled(),
            digest: engine.digest(),
        }
    }
}

struct Job {
    number: u64,
    client: u32,
    came: Timestamp,
}

struct Run<'a> {
    station: &'a Station,
    draws: Draws,
    server: Server<Job>,
    /// Whoever comes; one for all of an open source. The server is the entity after them.
    clients: Vec<Client>,
    host: Entity,
    /// What is being worked on, by its place.
    working: Vec<Option<Job>>,
    free: Vec<u32>,
    came: u64,
    begun: Timestamp,
    ended: Timestamp,
    inside: Level,
    busy: Level,
    mean_inside: f64,
    mean_busy: f64,
    wait: Mean,
    sojourn: Times,
    mean_sojourn: Mean,
    refused: u64,
    again: u64,
}

struct Client {
    entity: Entity,
    /// Jobs it has begun to think of.
    thought: u64,
    came: Timestamp,
}

impl<'a> Run<'a> {
    fn new(station: &'a Station, draws: Draws) -> Self {
        let clients = match station.source {
            Source::Open(_) => 1,
            Source::Closed { clients, .. } | Source::Serial { clients, .. } => clients,
        };
        let client = |id| Client { entity: Entity::new(id), thought: 0, came: Timestamp::ZERO };
        Self {
            station,
            draws,
            server: Server::new(station.workers, &station.queue),
            clients: (0..clients).map(client).collect(),
            host: Entity::new(clients),
            working: (0..station.workers).map(|_| None).collect(),
            free: (0..station.workers).rev().collect(),
            came: 0,
            begun: Timestamp::ZERO,
            ended: Timestamp::ZERO,
            inside: Level::default(),
            busy: Level::default(),
            mean_inside: 0.0,
            mean_busy: 0.0,
            wait: Mean::default(),
            sojourn: Times::new(),
            mean_sojourn: Mean::default(),
            refused: 0,
            again: 0,
        }
    }

    fn begin(&mut self, engine: &mut Engine) {
        for client in 0..self.host.id() {
            self.think(engine, client);
        }
    }

    /// Schedules the client's next job, unless there were enough.
    fn think(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let client = &mut self.clients[id as usize];
        let mut draw = self.draws.stream(id, Purpose::Arrival).at(2 * client.thought);
        client.thought += 1;
        let at = match &self.station.source {
            Source::Open(rate) => rate.after(now, draw.exponential()),
            Source::Closed { think, .. } => now.after(think.draw(&mut draw)),
            Source::Serial { between, .. } => client.came.after(between.draw(&mut draw)).max(now),
        };
        engine.schedule(at, &mut client.entity, COMES);
    }

    fn comes(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let number = self.came;
        if number == self.station.warm_up {
            self.begun = now;
            self.inside.begin(now);
            self.busy.begin(now);
        }
        if number == self.station.warm_up + self.station.jobs {
            self.ended = now;
            self.mean_inside = self.inside.mean(now);
            self.mean_busy = self.busy.mean(now);
        }
        if number >= self.station.warm_up + self.station.jobs {
            return;
        }
        self.came += 1;
        self.clients[id as usize].came = now;
        self.arrives(engine, Job { number, client: id, came: now });
        self.go_on(engine);
        if matches!(self.station.source, Source::Open(_)) {
            self.think(engine, id);
        }
        self.note(now);
    }

    fn arrives(&mut self, engine: &mut Engine, job: Job) {
        match self.server.arrive(engine.now(), Coming::of(job)) {
            Arrived::Begun(job) => self.work(engine, job),
            Arrived::Queued(look_at) => engine.schedule(look_at, &mut self.host, LOOK),
            Arrived::Displaced(job) | Arrived::Refused(job) => self.refuse(engine, &job),
        }
    }

    /// What follows for those that wait.
    fn go_on(&mut self, engine: &mut Engine) {
        while let Some(next) = self.server.next(engine.now()) {
            match next {
                Next::Begun(job) => self.work(engine, job),
                Next::Dropped(job) => self.refuse(engine, &job),
            }
        }
    }

    fn refuse(&mut self, engine: &mut Engine, job: &Job) {
        self.refused += u64::from(self.counts(job));
        self.answered(engine, job.client);
    }

    /// Whether a job is measured.
    fn counts(&self, job: &Job) -> bool {
        job.number >= self.station.warm_up
    }

    fn work(&mut self, engine: &mut Engine, job: Job) {
        let now = engine.now();
        if self.counts(&job) {
            self.wait.add(now.since(job.came).as_secs_f64());
        }
        // By the client and which of its jobs it is, so that it is the same work in any queue.
        let mut draw = match self.station.source {
            Source::Open(_) => self.draws.stream(0, Purpose::Service).at(2 * job.number),
            Source::Closed { .. } | Source::Serial { .. } => {
                let of_client = self.clients[job.client as usize].thought;
                self.draws.stream(job.client, Purpose::Service).at(2 * of_client)
            }
        };
        let takes = self.station.service.draw(&mut draw);
        let Some(place) = self.free.pop() else { return };
        self.working[place as usize] = Some(job);
        engine.schedule(now.after(takes), &mut self.host, place);
    }

    fn finished(&mut self, engine: &mut Engine, place: u32) {
        let now = engine.now();
        let Some(job) = self.working[place as usize].take() else { return };
        self.free.push(place);
        let sojourn: Duration = now.since(job.came);
        let all_came = self.came >= self.station.warm_up + self.station.jobs;
        if !all_came && self.station.patience.is_some_and(|patience| sojourn > patience) {
            self.again += u64::from(self.counts(&job));
            self.server.finish(now, 0);
            self.arrives(engine, Job { came: now, ..job });
            self.go_on(engine);
            self.note(now);
            return;
        }
        if self.counts(&job) {
            self.sojourn.record(sojourn);
            self.mean_sojourn.add(sojourn.as_secs_f64());
        }
        self.server.finish(now, 0);
        self.go_on(engine);
        self.answered(engine, job.client);
        self.note(now);
    }

    fn answered(&mut self, engine: &mut Engine, client: u32) {
        if !matches!(self.station.source, Source::Open(_)) {
            self.think(engine, client);
        }
    }

    fn note(&mut self, now: Timestamp) {
        self.inside.set(now, self.server.inside() as u64);
        self.busy.set(now, self.server.busy().into());
    }
}

impl Model for Run<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        if event.entity != self.host.id() {
            self.comes(engine, event.entity);
        } else if event.what == LOOK {
            self.go_on(engine);
            self.note(engine.now());
        } else {
            self.finished(engine, event.what);
        }
    }
}

/// What happens to a client: its next job comes.
const COMES: u32 = 0;
/// What happens to the server, beside the places where work ends: time has passed for a queue.
const LOOK: u32 = u32::MAX;
