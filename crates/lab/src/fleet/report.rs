//! What came of a run.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::heat::Heat;
use super::ledger::{Counts, Second, Turned};
use super::rush::Rush;
use crate::stats::Times;

/// The calls to one service, by whoever makes them, and what its servers did.
#[derive(Clone, Debug)]
pub struct OfService {
    /// What it is called.
    pub name: String,
    /// Sums after the warm-up.
    pub counts: Counts,
    /// What its servers turned away.
    pub turned: Turned,
    /// Every second from time zero.
    pub seconds: Vec<Second>,
    /// From the begin of a call to its answer, of those answered.
    pub times: Times,
    /// How often a breaker before it opened, over all callers and the whole run.
    pub opened: u64,
    /// How often a server of it died, likewise.
    pub died: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Sums after the warm-up.
    pub counts: Counts,
    /// What servers turned away.
    pub turned: Turned,
    /// Every second from time zero.
    pub seconds: Vec<Second>,
    /// How each client fared, where all call until they are answered once.
    pub rush: Rush,
    /// How long calls took, by the second of their answer.
    pub heat: Heat,
    /// Each service for itself, if there are several: then all else here is about the calls of
    /// clients, but that what arrived and was worked on is that of all servers.
    pub services: Vec<OfService>,
    /// From the begin of a call to its answer, of those answered.
    pub times: Times,
    /// How old the calls are that were still going on at the end.
    pub cut_off: Times,
    /// How long the longest call took to its end, whatever that was, or had taken when the run
    /// ended. One that was left had no end.
    pub longest: Duration,
    /// How often a breaker opened, over all clients and the whole run.
    pub opened: u64,
    /// How often a server was ejected, likewise.
    pub ejected: u64,
    /// How often a server died of its load.
    pub died: u64,
    /// How attempts came to the servers.
    pub arrivals: Arrivals,
    /// Events handled.
    pub events: u64,
    /// A digest of all events in their order.
    pub digest: u64,
}

impl Report {
    /// Attempts per call of which any was sent.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        ratio(self.counts.attempts, self.counts.sent)
    }

    /// The share of calls that were answered, of all that began and are not cut off. One that was
    /// left was not answered.
    #[must_use]
    pub fn success(&self) -> f64 {
        let Counts { good, failed, left, .. } = self.counts;
        ratio(good, good + failed + left)
    }

    /// The share of what nobody waited for any more that was dropped and not begun; 1 of none.
    #[must_use]
    pub fn unstarted(&self) -> f64 {
        let Turned { dropped, dropped_awaited, begun_for_nobody, .. } = self.turned;
        let spared = dropped - dropped_awaited;
        if spared + begun_for_nobody == 0 { 1.0 } else { ratio(spared, spared + begun_for_nobody) }
    }

    /// Sums of the seconds in `from..until`.
    #[must_use]
    pub fn between(&self, from: usize, until: usize) -> Second {
        sum(&self.seconds, from, until)
    }
}

impl OfService {
    /// Sums of the seconds in `from..until`.
    #[must_use]
    pub fn between(&self, from: usize, until: usize) -> Second {
        sum(&self.seconds, from, until)
    }
}

fn sum(seconds: &[Second], from: usize, until: usize) -> Second {
    let until = until.min(seconds.len());
    let seconds = seconds.get(from..until).unwrap_or_default();
    seconds.iter().fold(Second::default(), |sum, second| sum.with(*second, |a, b| a + b))
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
