//! Decides whether a call could still be answered within the time that is left.
//!
//! An attempt that is sent and cannot come back in time costs the dependency the same as one that
//! can, and the caller gets nothing: under overload such attempts are what keeps it overloaded.
//! Refusing them needs an estimate, and an estimate can lock a dependency out: the calls it
//! refuses are the samples it lacks. Hence three rules: it refuses only on enough young samples, a
//! call that was given up counts as "at least this slow" (with 50 ms callers in front of a 200 ms
//! dependency there are no other samples), and one call a second goes out regardless, so that a
//! recovery is seen.
//!
//! ```text
//! informative = completed samples + censored ones that lasted at least 7/8 of what is left
//! cannot fit  : informative ≥ 20 and completed within what is left ≤ 5 % of informative
//! ```
//!
//! Samples are counted in logarithmic buckets, four per octave from 65 µs to 69 s, so an edge is
//! at most 25 % above a sample. Rounding favours the caller: the whole bucket that holds *what is
//! left* counts as within it. Six generations of 5 s hold the samples of the last 25 to 30 s.
//! Fewer and longer generations do not do: with two of 15 s, 15 of the scouts' samples are left
//! after a turn, the estimate knows too little, and the whole fleet is let through every 15 s.
//!
//! | value | default | source |
//! |---|---|---|
//! | least samples | 20 | seawall-defaults |
//! | oldest sample | 30 s | seawall-defaults |
//! | share within at which nothing is refused | over 5 % | seawall-defaults |
//! | scouts per upstream | 1/s | seawall-defaults |
//!
//! Known bad cases: fewer than about 4 calls a second (too few scouts to keep refusing; little
//! harm); calls of very different cost on one route; after a fast dependency turns slow, up to 30 s
//! pass until the fast samples have left.

mod few;
mod histogram;

use alloc::boxed::Box;
use core::time::Duration;

use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

use few::Few;
use histogram::{Histogram, Sample};

/// Whether a call could be answered within what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fit {
    /// Fewer than 20 informative samples younger than 30 s: send it.
    Unknown,
    /// More than 5 % of the informative samples were answered within it: send it.
    Fits,
    /// At most 5 % were: refuse it, unless it is the scout.
    CannotFit,
}

/// How long the calls of one route took lately. 40 bytes, and 2,600 on the heap from the twentieth
/// sample until the last has left, never more. A record is O(1), a question reads the counters of
/// what took longer than what is left.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    samples: Samples,
    /// Number of the newest generation, counted from the clock's origin.
    newest: u64,
}

#[derive(Clone, Debug)]
enum Samples {
    /// Too few to say anything: what is idle, as most of a large fleet is, stays small.
    Few(Few),
    /// From the twentieth sample on, until the last has left.
    Many(Box<Histogram>),
}

impl ServiceTimes {
    /// No samples.
    #[must_use]
    pub const fn new() -> Self {
        Self { samples: Samples::Few(Few::NONE), newest: 0 }
    }

    /// Records a call that was answered after `elapsed`.
    pub fn record(&mut self, now: Timestamp, elapsed: Duration) {
        self.add(now, Sample::completed(elapsed));
    }

    /// Records a call that had no answer after `elapsed`, when it was given up.
    pub fn record_at_least(&mut self, now: Timestamp, elapsed: Duration) {
        self.add(now, Sample::censored(elapsed));
    }

    /// Whether a call could be answered within `remaining`.
    #[must_use]
    pub fn fits(&mut self, now: Timestamp, remaining: Duration) -> Fit {
        self.turn(now);
        let Samples::Many(histogram) = &self.samples else { return Fit::Unknown };
        let (within, informative) = histogram.within(nanos(remaining));
        if informative < SAMPLES_MIN {
            Fit::Unknown
        } else if u64::from(within) * WITHIN_ONE_IN <= u64::from(informative) {
            Fit::CannotFit
        } else {
            Fit::Fits
        }
    }

    /// The time within which at least `share` of the samples ended or were given up, rounded up to
    /// the edge of its bucket; at most 69 s, and over 100 % is 100 %. `None` under 20 samples.
    ///
    /// Calls given up count with the time they had lasted, so under many of them it is too low.
    #[must_use]
    pub fn quantile(&self, now: Timestamp, share: Ratio) -> Option<Duration> {
        let Samples::Many(histogram) = &self.samples else { return None };
        let passed = self.passed(now);
        let samples = histogram.count(self.newest, passed);
        if samples < SAMPLES_MIN {
            return None;
        }
        histogram.quantile(self.newest, passed, samples, share.min(Ratio::ONE))
    }

    /// Samples younger than 30 s, completed and given up.
    ///
    /// When one of its counters is full (over 13,000 calls a second of one duration), a generation
    /// halves all of them: shares stay, later calls weigh more, and this number is too low.
    #[must_use]
    pub fn samples(&self, now: Timestamp) -> u32 {
        let passed = self.passed(now);
        match &self.samples {
            Samples::Few(few) => few.count(passed),
            Samples::Many(histogram) => histogram.count(self.newest, passed),
        }
    }

    #[inline]
    fn add(&mut self, now: Timestamp, sample: Sample) {
        self.turn(now);
        match &mut self.samples {
            Samples::Few(_) => self.add_to_few(sample),
            Samples::Many(histogram) => histogram.add(self.newest, sample),
        }
    }

    #[cold]
    fn add_to_few(&mut self, sample: Sample) {
        let Samples::Few(few) = &mut self.samples else { return };
        if !few.push(sample) {
            let mut histogram = Box::new(Histogram::NONE);
            few.each(|age, sample| histogram.add(self.newest - age, sample));
            histogram.add(self.newest, sample);
            self.samples = Samples::Many(histogram);
        }
    }

    /// Begins the generation of `now`, and forgets those that are too old by then. An earlier
    /// `now` is the newest generation's.
    #[inline]
    fn turn(&mut self, now: Timestamp) {
        let passed = self.passed(now);
        if passed > 0 {
            self.begin_generation(passed);
        }
    }

    #[cold]
    fn begin_generation(&mut self, passed: u64) {
        self.newest += passed;
        match &mut self.samples {
            Samples::Few(few) => few.grow_older(passed),
            Samples::Many(histogram) => {
                histogram.forget(self.newest, passed);
                if histogram.is_empty() {
                    self.samples = Samples::Few(Few::NONE);
                }
            }
        }
    }

    /// Generations that have begun by `now` since the newest.
    fn passed(&self, now: Timestamp) -> u64 {
        (now.as_nanos() / GENERATION_NANOS).saturating_sub(self.newest)
    }
}

impl Default for ServiceTimes {
    fn default() -> Self {
        Self::new()
    }
}

/// One call a second per upstream, which goes out whatever the estimate says.
///
/// A pass that is due and not taken at once does not delay the next by more than the call it
/// waited for: with several calls a second there is one pass for each second. Passes do not pile
/// up while nobody calls.
#[derive(Clone, Debug)]
pub struct ScoutPass {
    due: Timestamp,
}

impl ScoutPass {
    /// A pass that is due.
    #[must_use]
    pub const fn new() -> Self {
        Self { due: Timestamp::ZERO }
    }

    /// Takes the pass if it is due.
    #[must_use]
    pub fn try_take(&mut self, now: Timestamp) -> bool {
        if now < self.due {
            return false;
        }
        let in_turn = self.due.after(SCOUT_INTERVAL);
        self.due = if in_turn > now { in_turn } else { now.after(SCOUT_INTERVAL) };
        true
    }
}

impl Default for ScoutPass {
    fn default() -> Self {
        Self::new()
    }
}

/// Informative samples without which nothing is refused. Source: seawall-defaults.
const SAMPLES_MIN: u32 = 20;
/// One in this many answered within what is left, or fewer, means it cannot fit: 5 %.
/// Source: seawall-defaults.
const WITHIN_ONE_IN: u64 = 20;
/// Source: seawall-defaults.
const SCOUT_INTERVAL: Duration = Duration::from_secs(1);
/// Six end before 30 s.
const GENERATION_NANOS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests;
