//! What is counted: offered, attempts, what arrives, goodput, and what nobody waited for.

use std::fmt;
use std::time::Duration;

use seawall_policy::{Class, Done, StopReason, Timestamp};

use super::heat::Heat;
use super::policies::Policies;
use crate::engine::Engine;
use crate::stats::Times;

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls that began.
    pub offered: u64,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Attempts that reached a server.
    pub arrived: u64,
    /// Calls that were answered: somebody still waited.
    pub good: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// Attempts whose work was done and whose client still waited for it.
    pub worked: u64,
    /// Attempts whose work was done for nobody.
    pub wasted: u64,
}

impl Second {
    /// Each number of this one with that of another.
    #[must_use]
    pub fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: join(self.offered, other.offered),
            attempts: join(self.attempts, other.attempts),
            arrived: join(self.arrived, other.arrived),
            good: join(self.good, other.good),
            failed: join(self.failed, other.failed),
            worked: join(self.worked, other.worked),
            wasted: join(self.wasted, other.wasted),
        }
    }
}

/// Sums over the calls that began after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that began.
    pub calls: u64,
    /// Calls of which at least one attempt was sent.
    pub sent: u64,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Calls that were answered.
    pub good: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// Calls whose maker left before their end.
    pub left: u64,
    /// Calls still going on at the end.
    pub cut_off: u64,
    /// Ended calls by [`StopReason::index`].
    pub stops: [u64; StopReason::ALL.len()],
}

/// What servers turned away, and what they did for nobody, after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Requests refused as they came.
    pub refused: u64,
    /// Requests dropped out of a queue.
    pub dropped: u64,
    /// Those of them that somebody still waited for.
    pub dropped_awaited: u64,
    /// Requests that were taken up although nobody waited for them any more.
    pub begun_for_nobody: u64,
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
    /// How long calls took, by the second of their answer.
    pub heat: Heat,
    /// From the begin of a call to its answer, of those answered.
    pub times: Times,
    /// How old the calls are that were still going on at the end.
    pub cut_off: Times,
    /// How often a breaker opened, over all clients and the whole run.
    pub opened: u64,
    /// How often a server was ejected, likewise.
    pub ejected: u64,
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
        let until = until.min(self.seconds.len());
        let seconds = self.seconds.get(from..until).unwrap_or_default();
        seconds.iter().fold(Second::default(), |sum, second| sum.with(*second, |a, b| a + b))
    }
}

/// All of it as lines of text, the same for the same run to the last byte.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { calls, sent, attempts, good, failed, left, cut_off, stops } = self.counts;
        writeln!(f, "events {} digest {:016x}", self.events, self.digest)?;
        writeln!(f, "calls {calls} sent {sent} attempts {attempts} good {good} failed {failed}")?;
        writeln!(f, "left {left} cut_off {cut_off} oldest {:?}", self.cut_off.longest())?;
        writeln!(f, "opened {} ejected {}", self.opened, self.ejected)?;
        if self.turned != Turned::default() {
            let Turned { refused, dropped, dropped_awaited, begun_for_nobody } = self.turned;
            write!(f, "refused {refused} dropped {dropped} awaited {dropped_awaited} ")?;
            writeln!(f, "begun for nobody {begun_for_nobody}")?;
        }
        for (reason, count) in StopReason::ALL.iter().zip(stops).filter(|(_, count)| *count > 0) {
            writeln!(f, "stop {} {count}", reason.as_str())?;
        }
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            writeln!(f, "time {share} {:?}", self.times.quantile(share))?;
        }
        for (at, second) in self.seconds.iter().enumerate() {
            let Second { offered, attempts, arrived, good, failed, worked, wasted } = second;
            writeln!(f, "{at} {offered} {attempts} {arrived} {good} {failed} {worked} {wasted}")?;
        }
        Ok(())
    }
}

/// Takes down what happens.
pub(super) struct Ledger {
    warm_up: Timestamp,
    counts: Counts,
    turned: Turned,
    seconds: Vec<Second>,
    heat: Heat,
    times: Times,
    cut_off: Times,
}

impl Ledger {
    pub(super) fn new(warm_up: Timestamp, ends: Timestamp) -> Self {
        let seconds = ends.since(Timestamp::ZERO).as_secs() + 1;
        let seconds = usize::try_from(seconds).unwrap_or(0);
        Self {
            warm_up,
            counts: Counts::default(),
            turned: Turned::default(),
            seconds: vec![Second::default(); seconds],
            heat: Heat::new(seconds),
            times: Times::new(),
            cut_off: Times::new(),
        }
    }

    pub(super) fn second(&mut self, now: Timestamp) -> &mut Second {
        let last = self.seconds.len() - 1;
        let second = usize::try_from(now.since(Timestamp::ZERO).as_secs()).unwrap_or(last);
        &mut self.seconds[second.min(last)]
    }

    pub(super) fn call(&mut self, now: Timestamp) {
        self.second(now).offered += 1;
        self.counts.calls += u64::from(now >= self.warm_up);
    }

    /// An attempt of a call that began then; its first or a later one.
    pub(super) fn attempt(&mut self, now: Timestamp, begun: Timestamp, is_first: bool) {
        self.second(now).attempts += 1;
        if begun >= self.warm_up {
            self.counts.attempts += 1;
            self.counts.sent += u64::from(is_first);
        }
    }

    /// A server refuses a request as it comes.
    pub(super) fn refused(&mut self, now: Timestamp) {
        self.turned.refused += u64::from(now >= self.warm_up);
    }

    /// A request's turn has come: it is taken up, or dropped.
    pub(super) fn turn(&mut self, now: Timestamp, is_awaited: bool, is_begun: bool) {
        let counts = u64::from(now >= self.warm_up);
        match (is_begun, is_awaited) {
            (true, true) => {}
            (true, false) => self.turned.begun_for_nobody += counts,
            (false, _) => {
                self.turned.dropped += counts;
                self.turned.dropped_awaited += u64::from(is_awaited) * counts;
            }
        }
    }

    pub(super) fn done(&mut self, now: Timestamp, begun: Timestamp, done: &Done) {
        let is_good = done.outcome.class() == Class::Success;
        let second = self.second(now);
        *(if is_good { &mut second.good } else { &mut second.failed }) += 1;
        if is_good {
            self.heat.record(now, now.since(begun));
        }
        if begun < self.warm_up {
            return;
        }
        self.counts.stops[done.stop.index()] += 1;
        if is_good {
            self.counts.good += 1;
            self.times.record(now.since(begun));
        } else {
            self.counts.failed += 1;
        }
    }

    /// The maker of a call that began then has left.
    pub(super) fn left(&mut self, begun: Timestamp) {
        self.counts.left += u64::from(begun >= self.warm_up);
    }

    pub(super) fn cut_off(&mut self, begun: Timestamp, age: Duration) {
        if begun >= self.warm_up {
            self.counts.cut_off += 1;
            self.cut_off.record(age);
        }
    }

    pub(super) fn report(&self, engine: &Engine, policies: &Policies) -> Report {
        Report {
            counts: self.counts,
            turned: self.turned,
            seconds: self.seconds.clone(),
            heat: self.heat.clone(),
            times: self.times.clone(),
            cut_off: self.cut_off.clone(),
            opened: policies.opened,
            ejected: policies.ejected,
            events: engine.handled(),
            digest: engine.digest(),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
