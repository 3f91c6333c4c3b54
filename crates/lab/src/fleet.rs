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

mod caller;
mod heat;
mod hosts;
mod later;
mod ledger;
mod plain;
mod policies;
mod world;

use std::time::Duration;

use seawall_policy::{ConfigError, StackParams, Timestamp};

use crate::baselines::Baseline;
use crate::draw::Draws;
use crate::engine::Engine;
use crate::fault::{Fault, Trouble};
use crate::rate::Rate;
use crate::server::Queue;
use crate::span::{Span, check};

pub use heat::Heat;
pub use later::{Form, Later, Wait};
pub use ledger::{Counts, Report, Second, Turned};

use world::World;

/// A fleet to be simulated.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// How many clients; at most 16 million.
    pub clients: u32,
    /// When they call.
    pub calls: Calls,
    /// How long whoever made a call waits for its end before leaving; `None`: as long as it takes.
    /// An attempt that was sent then runs on for nobody, to its end or its own timeout.
    pub patience: Option<Span>,
    /// How each call is made.
    pub policy: StackParams,
    /// How it is made instead, to compare with.
    pub baseline: Option<Baseline>,
    /// Who shares the state of the policies.
    pub sharing: Sharing,
    /// Between clients and servers.
    pub network: Network,
    /// How many servers, alike; the endpoints of every client's dependency. At most 10,000.
    pub servers: u32,
    /// What each of them is.
    pub host: Host,
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
    /// What turning a request away takes, and what is said then.
    pub refusal: Refusal,
}

/// How a server turns requests away.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// With which status, 400 to 599.
    pub status: u16,
    /// What it takes to refuse one that comes, as a share of its work; 0 to 10. The next to be
    /// worked on takes so much longer.
    pub cost: f64,
    /// What it takes to drop one whose turn has come, likewise; its worker is busy with that.
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
        self.check()?;
        let mut engine = Engine::new();
        let mut world = World::new(self, Draws::new(seed));
        world.begin(&mut engine);
        engine.run_until(self.ends, &mut world);
        Ok(world.report(&engine))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check("clients", self.clients.into(), 1.0, MOST_CLIENTS)?;
        check("servers", self.servers.into(), 1.0, MOST_SERVERS)?;
        check("network.loss", self.network.loss, 0.0, 1.0)?;
        if let Work::Queue { workers: 0, .. } = self.host.work {
            return Err(ConfigError::new("host.workers", 0, "at least 1"));
        }
        let none = |fault: &Fault| fault.trouble() == Trouble::Capacity(0);
        if let Work::Queue { queue: Queue::Policy(..), .. } = self.host.work
            && self.faults.iter().any(none)
        {
            let allowed = "at least 1 before which the policy's queue is";
            return Err(ConfigError::new("fault.workers", 0, allowed));
        }
        let Refusal { cost, drop_cost, later, .. } = &self.host.refusal;
        check("refusal.cost", *cost, 0.0, 10.0)?;
        check("refusal.drop_cost", *drop_cost, 0.0, 10.0)?;
        later.as_ref().map_or(Ok(()), Later::check)?;
        if let Some(server) = self.faults.iter().find_map(Fault::server)
            && server >= self.servers
        {
            let allowed = format!("a server below {}", self.servers);
            return Err(ConfigError::new("fault.server", server, allowed));
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
/// Source: own choice (each is an endpoint of every client's dependency).
const MOST_SERVERS: f64 = 1e4;
/// 24 hours: virtual time itself ends after 78. Source: own choice.
const LAST: Timestamp = Timestamp::from_millis(24 * 3_600_000);

#[cfg(test)]
mod tests;
