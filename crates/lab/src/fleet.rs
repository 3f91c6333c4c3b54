//! A fleet: clients that call servers over a network, each call run by the policy.
//!
//! ```text
//!   client ── Operation over a Dependency ──▶ network ──▶ server: queue, workers
//!     ▲         (seawall-policy, as in          delay        │ works on, whether or not
//!     │          production)                    loss         │ somebody still waits
//!     └──────────────── answer ◀─────────────────────────────┘
//! ```
//!
//! Whether, when and where an attempt is made is decided by [`seawall_policy::Operation`] alone,
//! and by nothing here: this module sends, waits and counts, as `seawall::Stack::drive` does on the
//! real clock. An attempt that is given up is abandoned, its slot held by the policy's rules, while
//! the server goes on with it; connections are there already.
//!
//! The same seed gives the same calls, network and work under every policy: draws belong to the
//! client, its call and the attempt, not to their order.

mod arrivals;
mod attempt;
mod caller;
mod door;
mod entry;
mod heat;
mod hosts;
mod keys;
mod later;
mod ledger;
mod lines;
mod nested;
mod plain;
mod policies;
mod report;
mod routes;
mod rush;
mod service;
mod story;
mod turns;
mod weather;
mod world;

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{ConfigError, Safety, StackParams, Timestamp};

use crate::baselines::{Baseline, EntryRule};
use crate::draw::Draws;
use crate::engine::Engine;
use crate::fault::{Fault, Trouble};
use crate::rate::Rate;
use crate::server::Queue;
use crate::span::{Span, check};

pub use arrivals::Arrivals;
pub(crate) use arrivals::MOST_APART;
pub(crate) use caller::CALL;
pub use door::Door;
pub use heat::Heat;
pub use keys::Keys;
pub use later::{Form, Later, Wait};
pub use ledger::{Counts, Second, Turned};
pub use report::{OfService, Report};
pub use rush::Rush;
pub use service::{Dies, Pick, Service, Target};
pub use story::{Asked, Story, Told};

use world::World;

/// A fleet to be simulated.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// How many clients; at most 16 million.
    pub clients: u32,
    /// Whom they call: each call one of these, as often as its share says.
    pub to: Vec<Target>,
    /// What their calls are about; `None`: nothing that matters.
    pub keys: Option<Keys>,
    /// After so many calls a client ends, once the last of them has, and another comes in its
    /// place that knows nothing; `None`: it stays.
    pub lives: Option<u32>,
    /// When they call.
    pub calls: Calls,
    /// How long whoever made a call waits for its end before leaving; `None`: as long as it takes.
    /// An attempt that was sent then runs on for nobody, to its end or its own timeout.
    pub patience: Option<Span>,
    /// Whether it does not, and is cut when its caller leaves.
    pub cancels: bool,
    /// How long a client that a server has not let in yet waits for that, where servers have a
    /// door; `None`: as long as an attempt may take. Nothing was sent then.
    pub connect: Option<Duration>,
    /// What a second execution of a client's call would be, where that is counted; `None`:
    /// harmless, and nobody counts.
    pub safety: Option<Safety>,
    /// How each call of a client is made, unless its target says otherwise.
    pub policy: StackParams,
    /// How it is made instead, to compare with.
    pub baseline: Option<Baseline>,
    /// Who shares the state of the policies.
    pub sharing: Sharing,
    /// Whether one budget, breaker and bulkhead stand before all that a client calls, as if it had
    /// one name; otherwise each service has its own.
    pub is_together: bool,
    /// Between clients and servers.
    pub network: Network,
    /// What there is to be called, by clients and by each other. From 1 to 64.
    pub services: Vec<Service>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Calls that begin before are in the series and nowhere else.
    pub warm_up: Timestamp,
    /// No call begins from then on.
    pub calls_until: Timestamp,
    /// When it is over: what is still going on is counted as cut off, with its age.
    pub ends: Timestamp,
}

/// When clients call.
#[derive(Clone, Debug)]
pub enum Calls {
    /// At random, at this rate over the whole fleet, whatever became of the calls before.
    Open(Rate),
    /// Each client has one call at a time: the next begins this long after the last one began, or
    /// at its end if that is later. The first begins within that time.
    Serial(Span),
    /// Each client thinks, calls, waits for the end, thinks again.
    Closed(Span),
    /// At these times, which are in order: the clients take turns, one call each.
    Recorded(Arc<[Timestamp]>),
    /// All clients at one time, each until it has been answered once.
    Once {
        /// When.
        at: Timestamp,
        /// Within how long from then on, evenly; zero: all in one instant.
        over: Duration,
        /// From a call that was not answered to the next.
        again: Span,
        /// How long one that was answered thinks between the calls that it makes from then on;
        /// `None`: it makes no more. Times of calls are then those of these.
        then: Option<Span>,
    },
}

/// Who shares budgets, breakers, bulkheads and what is known of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Every client is a process of its own.
    Each,
    /// All are one, as behind a sidecar.
    All,
}

/// What lies between.
#[derive(Clone, Debug)]
pub struct Network {
    /// One way.
    pub delay: Span,
    /// The share of messages that never arrive, either way; 0 to 1.
    pub loss: f64,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Host {
    /// How it works.
    pub work: Work,
    /// Whether it hears, one delay later, that nobody waits for a request any longer, and then
    /// does not take it up. One that is being worked on is worked on to its end.
    pub notices: bool,
    /// By whose rule it turns requests away as they come, beside its queue; `None`: by none.
    pub entry: Option<EntryRule>,
    /// What turning a request away takes, and what is said then.
    pub refusal: Refusal,
    /// What callers go through before their first request; `None`: they are in.
    pub door: Option<Door>,
}

/// How a server turns requests away.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// With which status, 400 to 599.
    pub status: u16,
    /// What it takes to refuse one that comes, as a share of its work; 0 to 10. The next to be
    /// worked on takes so much longer.
    pub cost: f64,
    /// What it takes to drop one that waited, likewise: its worker is busy with that, or, if it was
    /// only the end of a wait, the next to be worked on takes so much longer.
    pub drop_cost: f64,
    /// When to come again; also with the errors of a fault.
    pub later: Option<Later>,
}

impl Refusal {
    /// A 503 that costs nothing and says nothing.
    pub const PLAIN: Self = Self { status: 503, cost: 0.0, drop_cost: 0.0, later: None };
}

/// How a server works.
#[derive(Clone, Debug)]
pub enum Work {
    /// Workers with a queue.
    Queue {
        /// How many are worked on at once, from 1.
        workers: u32,
        /// Where the others wait. Whoever is turned away is answered at once.
        queue: Queue,
        /// How long one takes.
        service: Span,
    },
    /// All at once, each the slower the more there are when it comes.
    Crowd {
        /// How long one takes alone.
        base: Duration,
        /// And longer for each that is inside, itself among them.
        each: Duration,
    },
}

impl Fleet {
    /// Simulates it once.
    ///
    /// # Errors
    /// What can never work, by field, value and range.
    pub fn run(&self, seed: u64) -> Result<Report, ConfigError> {
        self.watched(seed, 1, || ())
    }

    /// The same in so many parts of equal virtual time, from 1, after each of which `on_part` is
    /// called. They change nothing of what happens.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn watched(
        &self,
        seed: u64,
        parts: u32,
        on_part: impl FnMut(),
    ) -> Result<Report, ConfigError> {
        self.told(seed, None, (parts, on_part)).map(|(report, _)| report)
    }

    /// The same, and tells what is asked for, so many lines at most.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn tell(&self, seed: u64, asked: Asked, most: usize) -> Result<Story, ConfigError> {
        let story = Story::new(asked, most);
        let (_, told) = self.told(seed, Some(story.clone()), (1, || ()))?;
        Ok(told.unwrap_or(story))
    }

    fn told(
        &self,
        seed: u64,
        story: Option<Story>,
        (parts, mut on_part): (u32, impl FnMut()),
    ) -> Result<(Report, Option<Story>), ConfigError> {
        self.check()?;
        let mut engine = Engine::new();
        let mut world = World::new(self, Draws::new(seed));
        world.story = story;
        world.begin(&mut engine);
        for part in 1..=parts {
            let until = self.ends.as_nanos() / u64::from(parts) * u64::from(part);
            let is_last = part == parts;
            let until = if is_last { self.ends } else { Timestamp::from_nanos(until) };
            engine.run_until(until, &mut world);
            on_part();
        }
        let report = world.report(&engine);
        Ok((report, world.story))
    }

    /// Whether some process may begin anew.
    fn has_lives(&self) -> bool {
        let restarts = self.faults.iter().any(|fault| fault.trouble() == Trouble::Restart);
        self.lives.is_some() || restarts || self.services.iter().any(|it| it.dies.is_some())
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check("clients", self.clients.into(), 1.0, MOST_CLIENTS)?;
        check("network.loss", self.network.loss, 0.0, 1.0)?;
        service::check(self)?;
        for fault in &self.faults {
            let servers = self.services.get(fault.service() as usize).map(|it| it.servers);
            let Some(servers) = servers else {
                let allowed = format!("a service below {}", self.services.len());
                return Err(ConfigError::new("fault.on", fault.service(), allowed));
            };
            let work = &self.services[fault.service() as usize].host.work;
            if let (Work::Queue { queue: Queue::Policy(..), .. }, Trouble::Capacity(0)) =
                (work, fault.trouble())
            {
                let allowed = "at least 1 before which the policy's queue is";
                return Err(ConfigError::new("fault.workers", 0, allowed));
            }
            if let Some(server) = fault.server().filter(|server| *server >= servers) {
                let allowed = format!("a server below {servers}");
                return Err(ConfigError::new("fault.server", server, allowed));
            }
        }
        for (field, time, least) in
            [("calls_until", self.calls_until, self.warm_up), ("ends", self.ends, self.calls_until)]
        {
            if time < least || time > LAST {
                let allowed = format!("a time from {least} to {LAST}");
                return Err(ConfigError::new(field, time, allowed));
            }
        }
        Ok(())
    }
}

/// As many slots as an event can name, with room for the calls of each. Source: own choice.
const MOST_CLIENTS: f64 = 16e6;
/// 24 hours: virtual time itself ends after 78. Source: own choice.
const LAST: Timestamp = Timestamp::from_millis(24 * 3_600_000);

#[cfg(test)]
mod tests;
