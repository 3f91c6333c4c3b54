//! A fleet in a box: discrete events on virtual time, over the production decisions.
//!
//! | module | what |
//! |---|---|
//! | `engine` | the clock and the queue of events, ordered by (time, entity, the entity's counter) |
//! | `draw` | randomness as a function of (seed, entity, purpose, n) |
//! | `span`, `rate` | how long things take, and how often they come |
//! | `server` | workers with a queue |
//! | `station` | one server and those who come to it, for which there are formulas |
//! | [`exact`] | those formulas |
//! | `stats` | histograms, levels, and means with their intervals |
//! | `seeds` | a run for every seed, over threads |
//!
//! Equal seeds give equal runs, event for event, whatever the number of threads and however the
//! crate was built: logarithms come from `libm`, order from the events' own keys, and nothing reads
//! a clock, the hash order of a map, or another entity's randomness.
//!
//! Before the simulator is believed about a fleet, it has to agree with the queues whose answers
//! are known: `tests/queues.rs`.

mod draw;
mod engine;
pub mod exact;
mod rate;
mod seeds;
mod server;
mod span;
mod station;
mod stats;

pub use draw::{Draw, Draws, Purpose};
pub use engine::{Engine, Entity, Event, Model};
pub use rate::Rate;
pub use seeds::over_seeds;
pub use server::{Arrived, Server};
pub use span::Span;
pub use station::{Measured, Source, Station};
pub use stats::{Interval, Level, Mean, Times};
