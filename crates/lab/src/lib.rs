//! A fleet in a box: discrete events on virtual time, over the production decisions.
//!
//! | module | what |
//! |---|---|
//! | `engine` | the clock and the queue of events, ordered by (time, entity, the entity's counter) |
//! | `draw` | randomness as a function of (seed, entity, purpose, n) |
//!
//! Equal seeds give equal runs, event for event, whatever the number of threads and however the
//! crate was built: logarithms come from `libm`, order from the events' own keys, and nothing reads
//! a clock, the hash order of a map, or another entity's randomness.

mod draw;
mod engine;

pub use draw::{Draw, Draws, Purpose};
pub use engine::{Engine, Entity, Event, Model};
