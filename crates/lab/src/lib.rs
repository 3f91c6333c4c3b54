//! A fleet in a box: discrete events on virtual time, over the production decisions.
//!
//! | module | what |
//! |---|---|
//! | `engine` | the clock and the queue of events, ordered by (time, entity, the entity's counter) |
//! | `draw` | randomness as a function of (seed, entity, purpose, n) |
//! | `span`, `rate` | how long things take, and how often they come |
//! | `server` | workers with a queue: servers' own kinds, and the policy's |
//! | `station` | one server and those who come to it, for which there are formulas |
//! | [`exact`] | those formulas |
//! | `stats` | histograms, levels, and means with their intervals |
//! | `fleet` | clients, their policies, network and servers, and the report of a run |
//! | [`baselines`] | other people's retries, queues and limits, to compare with |
//! | `fault` | what goes wrong, where and when |
//! | `models` | what is simulated that is no fleet: rows, fan-outs, caches, limits, queues by formula |
//! | `seeds` | a run for every seed, over threads |
//! | `scenario` | files that say what is simulated and what is enough, and the verdict |
//!
//! # No second implementation
//!
//! A client's retries, budget, breaker, bulkhead and choice of a server are those of
//! `seawall-policy`: `fleet/caller.rs`, and `models/fanout.rs` for its leaves, drive its
//! [`Operation`](seawall_policy::Operation) and decide nothing. What the lab models is the
//! rest: time, network, servers, work, faults.
//! `tests/house.rs` fails if it grows a decision of its own. Other people's policies, to compare
//! with, are in the module [`baselines`], and nowhere else.
//!
//! # Before it is believed
//!
//! - It agrees with the queues whose answers are known (`tests/queues.rs`), with the closed form of
//!   attempts a call, and with what each fault has to look like (`fleet/tests.rs`).
//! - Equal seeds give equal reports to the last byte, whatever the number of threads and however
//!   the crate was built: logarithms come from `libm`, order from the events' own keys, and nothing
//!   reads a clock, the order of a hash, or another entity's randomness. The sums in the tests hold
//!   for every build and platform.
//! - Means over seeds come with their interval; what is cut off by the end is counted; goodput is
//!   what was answered while somebody waited.
//!
//! # Its size
//!
//! An event takes 16 bytes. A client takes 28 beside its policies, a call going on a few hundred.
//! The policies of a client that is a process of its own take about 1 kB as long as fewer than 20
//! of its calls are younger than 30 s, and 2.6 kB more from there on; shared by all, they take
//! nothing a client.
//! `cargo bench -p seawall-lab` measures both, and events a second.

pub mod baselines;
mod draw;
mod engine;
pub mod exact;
mod fault;
mod fleet;
mod models;
mod rate;
mod scenario;
mod seeds;
mod server;
mod slots;
mod span;
mod station;
mod stats;

pub use baselines::{EntryRule, QueueRule};
pub use draw::{Draw, Draws, Purpose};
pub use engine::{Engine, Entity, Event, Model};
pub use fault::{Fault, Trouble};
pub use fleet::{
    Arrivals, Asked, Calls, Counts, Dies, Door, Fleet, Form, Heat, Host, Keys, Later, Network,
    OfService, Pick, Refusal, Report, Rush, Second, Service, Sharing, Story, Target, Told, Turned,
    Wait, Work,
};
pub use models::{Contended, Contention};
pub use rate::Rate;
pub use scenario::{
    Course, Fate, FileMistake, KeyForm, Known, Map, MapAxis, Number, Outcome, Over, Plan, Role,
    Row, Scenario, ScenarioError, Seeded, Spot, Verdict, known,
};
pub use seeds::over_seeds;
pub use server::{Arrived, Coming, Discipline, Drop, Fair, Next, Order, Queue, Server, TenantKind};
pub use span::Span;
pub use station::{Measured, Source, Station};
pub use stats::{Interval, Level, Mean, Times};
