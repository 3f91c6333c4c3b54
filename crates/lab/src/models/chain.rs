//! Tasks that need several calls to one service, one after the other, and are worth nothing if one
//! of them is refused: how many are done, of those that could be.
//!
//! Each task is of one of many users. What the service is told of a call's rank is the user's, the
//! same for all calls of an hour; or drawn anew for each call, which is refusing at random; or
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{Rng, Timestamp, tenant_rank};

use super::{Kind, Numbers, Setup};
use crate::draw::{Draws, Purpose};
use crate::engine::{Engine, Entity, Event, Model};
use crate::rate::Rate;
use crate::scenario::{Read, Section, Unit, queue, span};
use crate::server::{Arrived, Coming, Next, Queue, Server, TenantKind};
use crate::span::Span;

pub(super) const KIND: Kind = Kind {
    section: "chain",
    beside: &[],
    numbers: &[("of_optimum", Unit::Share), ("in_vain", Unit::Share)],
    read,
};

#[derive(Clone, Debug)]
struct Chain {
    users: u32,
    tasks: Rate,
    /// Of the same, a second.
    rate: f64,
    calls: u32,
    workers: u32,
    service: Span,
    /// How long a call is waited for.
    patience: Duration,
    queue: Queue,
    ranks: Ranks,
    warm_up: Timestamp,
    ends: Timestamp,
}

/// Which rank a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranks {
    /// Its user's.
    User,
    /// That of any user, another for each call.
    Call,
    /// None.
    None,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = [
        "users", "tasks", "calls", "workers", "service", "patience", "queue", "ranks", "warm_up",
        "ends",
    ];
    let section = whole.need("chain", &keys)?;
    let service = section.node("service").ok_or_else(|| section.missing("service"))?;
    let workers = section.needed("workers", section.count("workers", 1..=100_000)?)?;
    let users = section.count("users", 1..=1_000_000)?.unwrap_or(USERS);
    let rate = section.needed("tasks", section.per_second("tasks")?)?;
    let ranks = [("user", Ranks::User), ("call", Ranks::Call), ("none", Ranks::None)];
    let ranks = section.choice("ranks", &ranks)?.unwrap_or(Ranks::User);
    let mut queue = queue(&section, workers)?;
    if let Queue::Admission(how) = &mut queue {
        how.tenants = users;
        if ranks != Ranks::None {
            let rank = |user: u32| tenant_rank(&user.to_le_bytes(), 0);
            let kind = |user| TenantKind { rank: rank(user), ..TenantKind::STANDARD };
            how.kinds = (0..users).map(kind).collect();
        }
    }
    let patience = Duration::from_millis(1)..=Duration::from_secs(3_600);
    let warm_up = section.point("warm_up")?.unwrap_or(Timestamp::ZERO);
    let ends = section.needed("ends", section.point("ends")?)?;
    if ends <= warm_up {
        return Err(section.refused("ends", "later than warm_up"));
    }
    Ok(Arc::new(Chain {
        users,
        tasks: Rate::constant(rate).map_err(|error| section.by(&error, "tasks"))?,
        rate,
        calls: section.needed("calls", section.count("calls", 1..=100)?)?,
        workers,
        service: span(service, &section.path("service"))?,
        patience: section.needed("patience", section.duration("patience", patience)?)?,
        queue,
        ranks,
        warm_up,
        ends,
    }))
}

impl Setup for Chain {
    fn run(&self, seed: u64) -> Numbers {
        let mut run = Run {
            chain: self,
            draws: Draws::new(seed),
            source: Entity::new(0),
            host: Entity::new(1),
            server: Server::new(self.workers, &self.queue),
            tasks: BTreeMap::new(),
            came: 0,
            served: 0,
            counted: 0,
            done: 0,
            worked: 0,
            in_vain: 0,
        };
        let mut engine = Engine::new();
        run.next_task(&mut engine);
        engine.run_until(self.ends, &mut run);
        let capacity = f64::from(self.workers) / self.service.mean();
        let optimum = (capacity / (self.rate * f64::from(self.calls))).min(1.0);
        let of_optimum = run.done as f64 / run.counted.max(1) as f64 / optimum;
        let in_vain = run.in_vain as f64 / run.worked.max(1) as f64;
        Numbers {
            values: vec![of_optimum, in_vain],
            events: engine.handled(),
            digest: engine.digest(),
        }
    }
}

/// A chain under way.
struct Run<'a> {
    chain: &'a Chain,
    draws: Draws,
    source: Entity,
    host: Entity,
    server: Server<u32>,
    /// Those under way, by number.
    tasks: BTreeMap<u32, Task>,
    came: u32,
    /// Calls that were begun.
    served: u64,
    /// Tasks that came after the warm-up and have ended, and those of them that were done.
    counted: u64,
    done: u64,
    /// Calls that were worked on for those, and for those that were not done.
    worked: u64,
    in_vain: u64,
}

struct Task {
    came: Timestamp,
    user: u32,
    calls_left: u32,
    called: Timestamp,
}

/// What happens, and to which task.
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

impl Run<'_> {
    fn next_task(&mut self, engine: &mut Engine) {
        let mut draw = self.draws.stream(0, Purpose::Arrival).at(self.came.into());
        let at = self.chain.tasks.after(engine.now(), draw.exponential());
        engine.schedule(at, &mut self.source, What::Comes.of(self.came));
    }

    fn comes(&mut self, engine: &mut Engine) {
        let now = engine.now();
        let id = self.came;
        self.came += 1;
        self.next_task(engine);
        let mut draw = self.draws.stream(0, Purpose::Choice).at(id.into());
        let user = u32::try_from(draw.below(self.chain.users.into())).unwrap_or(0);
        let task = Task { came: now, user, calls_left: self.chain.calls, called: now };
        self.tasks.insert(id, task);
        self.calls(engine, id);
    }

    fn calls(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.called = now;
        let n = u64::from(id) * 128 + u64::from(task.calls_left);
        let mut draw = self.draws.stream(1, Purpose::Choice).at(n);
        let lane = match self.chain.ranks {
            Ranks::User | Ranks::None => task.user,
            Ranks::Call => u32::try_from(draw.below(self.chain.users.into())).unwrap_or(0),
        };
        let until = now.after(self.chain.patience);
        match self.server.arrive(now, Coming { job: id, until, lane }) {
            Arrived::Begun(id) => self.works(engine, id),
            Arrived::Queued(at) => engine.schedule(at, &mut self.host, What::Look.of(0)),
            Arrived::Displaced(id) | Arrived::Refused(id) => self.fails(id),
        }
        self.goes_on(engine);
    }

    fn goes_on(&mut self, engine: &mut Engine) {
        while let Some(next) = self.server.next(engine.now()) {
            match next {
                Next::Begun(id) => self.works(engine, id),
                Next::Dropped(id) => self.fails(id),
            }
        }
    }

    fn works(&mut self, engine: &mut Engine, id: u32) {
        let mut draw = self.draws.stream(0, Purpose::Service).at(self.served);
        self.served += 1;
        let ends = engine.now().after(self.chain.service.draw(&mut draw));
        engine.schedule(ends, &mut self.host, What::Done.of(id));
    }

    fn worked(&mut self, engine: &mut Engine, id: u32) {
        self.server.finish(engine.now(), 0);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.calls_left -= 1;
        if engine.now().since(task.called) > self.chain.patience {
            self.fails(id);
        } else if task.calls_left > 0 {
            self.calls(engine, id);
        } else {
            self.ends(id, true);
        }
        self.goes_on(engine);
    }

    fn fails(&mut self, id: u32) {
        self.ends(id, false);
    }

    fn ends(&mut self, id: u32, is_done: bool) {
        let Some(task) = self.tasks.remove(&id) else { return };
        if task.came < self.chain.warm_up {
            return;
        }
        let worked = u64::from(self.chain.calls - task.calls_left);
        self.counted += 1;
        self.done += u64::from(is_done);
        self.worked += worked;
        self.in_vain += if is_done { 0 } else { worked };
    }
}

impl Model for Run<'_> {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        match What::ALL.get((event.what & 3) as usize) {
            Some(What::Comes) => self.comes(engine),
            Some(What::Look) => self.goes_on(engine),
            Some(What::Done) => self.worked(engine, event.what >> 2),
            None => {}
        }
    }
}

/// Source: own choice.
const USERS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    use seawall_policy::AdmissionParams;

    use crate::server::Fair;

    /// Three workers that do 750 calls a second, each task two of them.
    fn numbers(tasks: f64, ranks: Ranks) -> Vec<f64> {
        let users = 1_000;
        let rank = |user: u32| tenant_rank(&user.to_le_bytes(), 0);
        let kind = |user| TenantKind { rank: rank(user), ..TenantKind::STANDARD };
        let kinds = if ranks == Ranks::None { vec![] } else { (0..users).map(kind).collect() };
        let params = AdmissionParams::default();
        let chain = Chain {
            users,
            tasks: Rate::constant(tasks).unwrap(),
            rate: tasks,
            calls: 2,
            workers: 3,
            service: Span::exponential(Duration::from_millis(4)),
            patience: Duration::from_millis(500),
            queue: Queue::Admission(Box::new(Fair { params, tenants: users, kinds })),
            ranks,
            warm_up: Timestamp::from_millis(10_000),
            ends: Timestamp::from_millis(30_000),
        };
        chain.run(1).values
    }

    #[test]
    fn without_overload_all_is_done_whatever_the_rank() {
        for ranks in [Ranks::User, Ranks::Call, Ranks::None] {
            let numbers = numbers(250.0, ranks);
            assert!(numbers[0] > 0.999 && numbers[1] < 1e-9, "{ranks:?} {numbers:?}");
        }
    }

    #[test]
    fn a_rank_for_the_whole_chain_finishes_what_is_begun_and_one_for_each_call_does_not() {
        let [user, call] = [Ranks::User, Ranks::Call].map(|ranks| numbers(750.0, ranks));
        assert!(user[0] > 0.9 && user[1] < 0.1, "{user:?}");
        assert!(call[0] < 0.75 && call[1] > 0.25, "{call:?}");
    }
}
