//! What came of one run: of the calls of clients, and of each service where there are several.

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
    /// How long calls waited for a slot of a bulkhead, got it or not; not of callers that left.
    pub waits: Times,
    /// How often a breaker before it opened, over all callers and the whole run.
    pub opened: u64,
    /// The most slots of a caller's bulkhead that were taken at once, likewise.
    pub in_use: u32,
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
    /// How long calls waited for a slot of a bulkhead, got it or not; not of callers that left.
    pub waits: Times,
    /// The most slots of one bulkhead that were taken at once.
    pub in_use: u32,
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
        self.counts.amplification()
    }

    /// The share of calls that were answered, of all that began and are not cut off. One that was
    /// left was not answered.
    #[must_use]
    pub fn success(&self) -> f64 {
        self.counts.success()
    }

    /// The share of what nobody waited for any more that was dropped and not begun; 1 of none.
    #[must_use]
    pub fn unstarted(&self) -> f64 {
        self.turned.unstarted()
    }

    /// Sums of the seconds in `from..until`.
    #[must_use]
    pub fn between(&self, from: usize, until: usize) -> Second {
        Second::sum(&self.seconds, from, until)
    }
}

impl OfService {
    /// Sums of the seconds in `from..until`.
    #[must_use]
    pub fn between(&self, from: usize, until: usize) -> Second {
        Second::sum(&self.seconds, from, until)
    }
}

impl Counts {
    /// Attempts per call of which any was sent.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        ratio(self.attempts, self.sent)
    }

    /// The share of calls that were answered, of all that began and are not cut off. One that was
    /// left was not answered.
    #[must_use]
    pub fn success(&self) -> f64 {
        ratio(self.good, self.good + self.failed + self.left)
    }
}

impl Turned {
    /// The share of what nobody waited for any more that was dropped and not begun; 1 of none.
    #[must_use]
    pub fn unstarted(&self) -> f64 {
        let Self { dropped, dropped_awaited, begun_for_nobody, .. } = *self;
        let spared = dropped - dropped_awaited;
        if spared + begun_for_nobody == 0 { 1.0 } else { ratio(spared, spared + begun_for_nobody) }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
