//! What is simulated that is no fleet of callers: each model a file of its own, with the section
//! of a scenario that describes it, the names of its numbers, and a run.
//!
//! A scenario is of one [`Kind`], by the section it has; its thresholds name the numbers of that
//! kind. Nothing outside a model's file and the list of [`KINDS`] knows of the model.

mod cache;
mod chain;
mod contention;
mod fanout;
mod limits;
mod overload;
mod queue;
mod refresh;
mod sharding;
mod tenants;

use std::fmt;
use std::sync::Arc;

use seawall_policy::ConfigError;

use crate::scenario::{Read, Section, Unit};

pub use contention::{Contended, Contention};

/// A kind of model, as scenarios know it.
pub(crate) struct Kind {
    /// The section that describes it.
    pub(crate) section: &'static str,
    /// Other sections that it takes.
    pub(crate) beside: &'static [&'static str],
    /// What is measured, by the words of a threshold and with its unit.
    pub(crate) numbers: &'static [(&'static str, Unit)],
    /// Reads one out of a file that has no other sections than these.
    pub(crate) read: fn(&Section<'_>) -> Read<Arc<dyn Setup>>,
}

/// Every kind.
pub(crate) const KINDS: &[&Kind] = &[
    &cache::KIND,
    &chain::KIND,
    &contention::KIND,
    &fanout::KIND,
    &limits::KIND,
    &overload::KIND,
    &queue::KIND,
    &refresh::KIND,
    &sharding::KIND,
    &tenants::KIND,
];

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("section", &self.section).finish_non_exhaustive()
    }
}

/// A model, checked and ready to be run with any seed.
pub(crate) trait Setup: fmt::Debug + Send + Sync {
    /// Simulates it once.
    fn run(&self, seed: u64) -> Numbers;

    /// The same with so many clients; `None` if it has none whose number could be another.
    ///
    /// # Errors
    /// More or fewer than it can have.
    fn with_clients(&self, clients: u32) -> Result<Option<Arc<dyn Setup>>, ConfigError> {
        let _ = clients;
        Ok(None)
    }
}

/// A digest of what happens to a model that has no engine; equal for equal runs.
#[derive(Clone, Copy, Debug, Default)]
struct Digest(u64);

impl Digest {
    const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(DIGEST);
    }

    const fn sum(self) -> u64 {
        self.0
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    /// What was measured, in the order of [`Kind::numbers`]; times in seconds.
    pub(crate) values: Vec<f64>,
    /// Events that were simulated.
    pub(crate) events: u64,
    /// A digest of everything that happened.
    pub(crate) digest: u64,
}

/// Odd, with its bits well mixed. Source: own choice (digits of pi).
const DIGEST: u64 = 0x517C_C1B7_2722_0A95;
