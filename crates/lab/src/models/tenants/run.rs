//! Jobs of tenants under way: they come, wait, are worked on, end.

use std::time::Duration;

use seawall_policy::Timestamp;

use super::Tenants;
use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::server::{Arrived, Coming, Next, Server};
use crate::stats::Times;

pub(super) struct Run<'a> {
    model: &'a Tenants,
    draws: Draws,
    /// Those to whom events happen: who comes, and the workers.
    source: Entity,
    host: Entity,
    server: Server<u32>,
    jobs: Vec<Job>,
    /// The group of each tenant, and how many jobs of it have come.
    tenants: Vec<(usize, u64)>,
    pub(super) first: Sum,
    pub(super) beside: Sum,
    /// The least wait of those that were begun, in each tenth of a second.
    least: Vec<Option<Duration>>,
    /// When any was shed.
    shed_at: Vec<Timestamp>,
}

/// What came of a group's jobs that came after the warm-up and ended.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) ended: u64,
    /// In time.
    pub(super) good: u64,
    /// Turned away while they were waited for.
    pub(super) shed: u64,
    /// How long those in time took.
    pub(super) times: Times,
}

#[derive(Clone, Copy)]
struct Job {
    came: Timestamp,
    tenant: u32,
    has_ended: bool,
}

/// What happens, and to which tenant or job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Comes,
    Look,
    Done,
}

impl What {
    const ALL: [Self; 3] = [Self::Comes, Self::Look, Self::Done];

    const fn of(self, whom: u32) -> u32 {
        whom << 2 | self as u32
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Tenants, draws: Draws) -> Self {
        let groups = model.groups.iter().enumerate();
        let tenants = groups.flat_map(|(at, group)| vec![(at, 0); group.tenants as usize]);
        let tenths = model.ends.as_nanos() / TENTH + 1;
        Self {
            model,
            draws,
            source: Entity::new(0),
            host: Entity::new(1),
            server: Server::new(model.workers, &model.queue),
            jobs: Vec::new(),
            tenants: tenants.collect(),
            first: Sum::default(),
            beside: Sum::default(),
            least: vec![None; usize::try_from(tenths).unwrap_or(0)],
            shed_at: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, engine: &mut Engine) {
        for tenant in 0..u32::try_from(self.tenants.len()).unwrap_or(0) {
            self.next_job(engine, tenant);
        }
    }

    /// From the end of the first tenth of a second in which nobody was begun who had not waited
    /// longer than half a second or a quarter of the first group's patience, until any is shed.
    pub(super) fn reacts(&self) -> Option<Duration> {
        let target = Duration::from_millis(500).min(self.model.groups[0].patience / 4);
        let stands = self.least.iter().position(|least| least.is_some_and(|it| it > target))?;
        let ended = Timestamp::from_nanos((stands as u64 + 1) * TENTH);
        let shed = self.shed_at.iter().find(|at| at.as_nanos() + TENTH > ended.as_nanos())?;
        Some(shed.since(ended))
    }

    fn next_job(&mut self, engine: &mut Engine, tenant: u32) {
        let (group, came) = &mut self.tenants[tenant as usize];
        let mut draw = self.draws.stream(tenant, Purpose::Arrival).at(*came);
        *came += 1;
        let gap = draw.exponential() / self.model.groups[*group].rate;
        let at = engine.now().after(Duration::from_secs_f64(gap));
        engine.schedule(at, &mut self.source, What::Comes.of(tenant));
    }

    fn comes(&mut self, engine: &mut Engine, tenant: u32) {
        let now = engine.now();
        self.next_job(engine, tenant);
        let job = u32::try_from(self.jobs.len()).unwrap_or(0);
        self.jobs.push(Job { came: now, tenant, has_ended: false });
        let until = now.after(self.patience(tenant));
        match self.server.arrive(now, Coming { job, until, lane: tenant }) {
            Arrived::Begun(job) => self.works(engine, job),
            Arrived::Queued(look_at) => {
                engine.schedule(look_at, &mut self.host, What::Look.of(0));
            }
            Arrived::Displaced(job) | Arrived::Refused(job) => self.ends(now, job, true),
        }
        self.goes_on(engine);
    }

    fn goes_on(&mut self, engine: &mut Engine) {
        let now = engine.now();
        while let Some(next) = self.server.next(now) {
            match next {
                Next::Begun(job) => {
                    let waited = now.since(self.jobs[job as usize].came);
                    let tenth = usize::try_from(now.as_nanos() / TENTH).unwrap_or(0);
                    let least = &mut self.least[tenth];
                    *least = Some(least.map_or(waited, |least| least.min(waited)));
                    self.works(engine, job);
                }
                Next::Dropped(job) => self.ends(now, job, true),
            }
        }
    }

    fn works(&mut self, engine: &mut Engine, job: u32) {
        let mut draw = self.draws.stream(0, Purpose::Service).at(job.into());
        let takes = self.model.service.draw(&mut draw);
        let ends = self.without_stalls(engine.now(), takes);
        engine.schedule(ends, &mut self.host, What::Done.of(job));
    }

    /// When work that takes so long is done, the server standing still in between.
    fn without_stalls(&self, begun: Timestamp, takes: Duration) -> Timestamp {
        let Some(stall) = self.model.stall else { return begun.after(takes) };
        let (mut now, mut left) = (begun, takes);
        loop {
            let number = now.since(Timestamp::ZERO).as_nanos() / stall.every.as_nanos();
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let last = Timestamp::ZERO.after(stall.every * number);
            if number > 0 && now < last.after(stall.length) {
                now = last.after(stall.length);
            }
            let next = last.after(stall.every);
            if now.after(left) <= next {
                return now.after(left);
            }
            left -= now.until(next);
            now = next;
        }
    }

    fn ends(&mut self, now: Timestamp, job: u32, is_shed: bool) {
        let Job { came, tenant, has_ended } = &mut self.jobs[job as usize];
        *has_ended = true;
        let (came, tenant) = (*came, *tenant);
        let (took, patience) = (now.since(came), self.patience(tenant));
        // A wait is ended in steps of a quarter of a millisecond.
        let is_waited_for = took + STEP < patience;
        if is_shed && is_waited_for {
            self.shed_at.push(now);
        }
        if came < self.model.warm_up {
            return;
        }
        let sum = self.sum_of(tenant);
        sum.ended += 1;
        sum.shed += u64::from(is_shed && is_waited_for);
        if !is_shed && took <= patience {
            sum.good += 1;
            sum.times.record(took);
        }
    }

    /// Counts those too that are inside at the end, and that nobody waits for any more.
    pub(super) fn close(&mut self) {
        for at in 0..self.jobs.len() {
            let Job { came, tenant, has_ended } = self.jobs[at];
            let is_over = came.after(self.patience(tenant)) < self.model.ends;
            if !has_ended && is_over && came >= self.model.warm_up {
                self.sum_of(tenant).ended += 1;
            }
        }
    }

    fn sum_of(&mut self, tenant: u32) -> &mut Sum {
        let is_first = self.tenants[tenant as usize].0 == 0;
        if is_first { &mut self.first } else { &mut self.beside }
    }

    fn patience(&self, tenant: u32) -> Duration {
        self.model.groups[self.tenants[tenant as usize].0].patience
    }
}

impl Model for Run<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        let whom = event.what >> 2;
        match What::ALL.get((event.what & 3) as usize) {
            Some(What::Comes) => self.comes(engine, whom),
            Some(What::Look) => self.goes_on(engine),
            Some(What::Done) => {
                let now = engine.now();
                let tenant = self.jobs[whom as usize].tenant;
                self.server.finish(now, tenant);
                self.ends(now, whom, false);
                self.goes_on(engine);
            }
            None => {}
        }
    }
}

/// Nanoseconds.
const TENTH: u64 = 100_000_000;
/// In which a queue's timers count. Source: own choice (as in the policy).
const STEP: Duration = Duration::from_micros(250);
