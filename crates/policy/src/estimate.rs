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

use core::time::Duration;

use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

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

/// How long the calls of one route took lately. 2,608 bytes, never more; a record is O(1), a
/// question reads the counters of what took longer than what is left.
#[derive(Clone, Debug)]
pub struct ServiceTimes {
    /// A ring; the generation with number `e` is at `e % GENERATIONS`. Slots not yet reached by
    /// `newest` are older, never newer.
    generations: [Generation; GENERATIONS],
    /// Number of the newest generation, counted from the clock's origin.
    newest: u64,
    /// The sum of all generations, so that a call that asks does not add them up.
    all: Totals,
}

/// Counters like those of a generation, wide enough for the sum of all of them.
#[derive(Clone, Copy, Debug)]
struct Totals {
    completed: [u32; BUCKETS],
    censored: [u32; BUCKETS],
    /// Always the sum of `completed`.
    all_completed: u32,
    /// Always the sum of `censored`.
    all_censored: u32,
}

#[derive(Clone, Copy, Debug)]
struct Generation {
    /// Calls that ended, by how long they took.
    completed: [u16; BUCKETS],
    /// Calls that were given up, by how long they had lasted.
    censored: [u16; BUCKETS],
}

impl ServiceTimes {
    /// No samples.
    #[must_use]
    pub const fn new() -> Self {
        Self { generations: [Generation::EMPTY; GENERATIONS], newest: 0, all: Totals::NONE }
    }

    /// Records a call that was answered after `elapsed`.
    pub fn record(&mut self, now: Timestamp, elapsed: Duration) {
        self.add(now, bucket_of(elapsed), |counts| &mut counts.completed, |all| &mut all.completed);
        self.all.all_completed += 1;
    }

    /// Records a call that had no answer after `elapsed`, when it was given up.
    pub fn record_at_least(&mut self, now: Timestamp, elapsed: Duration) {
        self.add(now, bucket_of(elapsed), |counts| &mut counts.censored, |all| &mut all.censored);
        self.all.all_censored += 1;
    }

    /// Whether a call could be answered within `remaining`.
    #[must_use]
    pub fn fits(&mut self, now: Timestamp, remaining: Duration) -> Fit {
        self.turn(now);
        let remaining = nanos(remaining);
        let last_within = bucket_of_nanos(remaining);
        let beyond: u32 = self.all.completed[last_within + 1..].iter().sum();
        let given_up: u32 = if self.all.all_censored == 0 {
            0
        } else {
            let informative = bucket_of_nanos(remaining - remaining / CENSORED_SLACK_DIVISOR);
            self.all.censored[informative..].iter().sum()
        };
        let within = self.all.all_completed - beyond;
        let informative = self.all.all_completed + given_up;
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
        let samples = self.samples(now);
        if samples < SAMPLES_MIN {
            return None;
        }
        let share = share.min(Ratio::ONE);
        let mut below = 0;
        let bucket = (0..BUCKETS).find(|bucket| {
            let counts = |one: &Generation| {
                u32::from(one.completed[*bucket]) + u32::from(one.censored[*bucket])
            };
            below += self.live(now).map(counts).sum::<u32>();
            below > 0 && share.is_reached(u64::from(below), u64::from(samples))
        });
        bucket.map(upper_edge)
    }

    /// Samples younger than 30 s, completed and given up.
    ///
    /// When one of its counters is full (over 13,000 calls a second of one duration), a generation
    /// halves all of them: shares stay, later calls weigh more, and this number is too low.
    #[must_use]
    pub fn samples(&self, now: Timestamp) -> u32 {
        self.live(now).map(|one| sum(&one.completed) + sum(&one.censored)).sum()
    }

    fn add(
        &mut self,
        now: Timestamp,
        bucket: usize,
        kind: impl Fn(&mut Generation) -> &mut [u16; BUCKETS],
        all: impl Fn(&mut Totals) -> &mut [u32; BUCKETS],
    ) {
        self.turn(now);
        let generation = &mut self.generations[slot(self.newest)];
        if kind(generation)[bucket] == u16::MAX {
            self.all.subtract(generation);
            generation.halve();
            self.all.add(generation);
        }
        kind(generation)[bucket] += 1;
        all(&mut self.all)[bucket] += 1;
    }

    /// Begins the generation of `now`, and forgets those that are too old by then. An earlier
    /// `now` is the newest generation's.
    fn turn(&mut self, now: Timestamp) {
        let current = generation_number(now).max(self.newest);
        let passed = current - self.newest;
        if passed == 0 {
            return;
        }
        for number in self.newest + 1..=self.newest + passed.min(GENERATIONS as u64) {
            let generation = &mut self.generations[slot(number)];
            self.all.subtract(generation);
            *generation = Generation::EMPTY;
        }
        self.newest = current;
    }

    /// The generations young enough to count at `now`.
    fn live(&self, now: Timestamp) -> impl Iterator<Item = &Generation> {
        let current = generation_number(now).max(self.newest);
        let oldest = (current + 1).saturating_sub(GENERATIONS as u64);
        (oldest..=self.newest).map(|number| &self.generations[slot(number)])
    }
}

impl Default for ServiceTimes {
    fn default() -> Self {
        Self::new()
    }
}

impl Generation {
    const EMPTY: Self = Self { completed: [0; BUCKETS], censored: [0; BUCKETS] };

    /// Shares are what matters; rounding up keeps a rare sample from vanishing.
    fn halve(&mut self) {
        let counts = self.completed.iter_mut().chain(&mut self.censored);
        counts.for_each(|count| *count = count.div_ceil(2));
    }
}

impl Totals {
    const NONE: Self =
        Self { completed: [0; BUCKETS], censored: [0; BUCKETS], all_completed: 0, all_censored: 0 };

    fn add(&mut self, one: &Generation) {
        self.each(one, |total, count| *total += count);
    }

    fn subtract(&mut self, one: &Generation) {
        self.each(one, |total, count| *total -= count);
    }

    fn each(&mut self, one: &Generation, change: impl Fn(&mut u32, u32)) {
        change(&mut self.all_completed, sum(&one.completed));
        change(&mut self.all_censored, sum(&one.censored));
        let completed = self.completed.iter_mut().zip(&one.completed);
        let censored = self.censored.iter_mut().zip(&one.censored);
        completed.chain(censored).for_each(|(total, count)| change(total, u32::from(*count)));
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

const fn generation_number(time: Timestamp) -> u64 {
    time.as_nanos() / GENERATION_NANOS
}

fn slot(number: u64) -> usize {
    usize::try_from(number % GENERATIONS as u64).unwrap_or(0)
}

fn sum(counts: &[u16]) -> u32 {
    counts.iter().map(|count| u32::from(*count)).sum()
}

/// The bucket that holds `duration`: 0 below the first octave, then `PER_OCTAVE` for each, the
/// last without an upper end.
fn bucket_of(duration: Duration) -> usize {
    bucket_of_nanos(nanos(duration))
}

fn bucket_of_nanos(nanos: u64) -> usize {
    let Some(octave) = nanos.max(1).ilog2().checked_sub(FIRST_OCTAVE) else {
        return 0;
    };
    // The two bits below the leading one choose the quarter.
    let quarter = (nanos >> (octave + FIRST_OCTAVE - PER_OCTAVE.ilog2())) % u64::from(PER_OCTAVE);
    let bucket = u64::from(1 + octave * PER_OCTAVE) + quarter;
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The first duration above `bucket`.
fn upper_edge(bucket: usize) -> Duration {
    let (octave, quarter) = (bucket / PER_OCTAVE as usize, bucket % PER_OCTAVE as usize);
    let unit = (1_u64 << FIRST_OCTAVE) / u64::from(PER_OCTAVE);
    Duration::from_nanos(((PER_OCTAVE as usize + quarter) as u64 * unit) << octave)
}

/// Informative samples without which nothing is refused. Source: seawall-defaults.
const SAMPLES_MIN: u32 = 20;
/// One in this many answered within what is left, or fewer, means it cannot fit: 5 %.
/// Source: seawall-defaults.
const WITHIN_ONE_IN: u64 = 20;
/// A call given up up to one part in this many before what is left still informs: callers of one
/// timeout differ by what the network took.
const CENSORED_SLACK_DIVISOR: u64 = 8;
/// Source: seawall-defaults.
const SCOUT_INTERVAL: Duration = Duration::from_secs(1);

/// Five full ones hold 25 scouts, six end before 30 s.
const GENERATIONS: usize = 6;
const GENERATION_NANOS: u64 = 5_000_000_000;

/// Buckets in which a duration doubles.
const PER_OCTAVE: u32 = 4;
/// The first octave begins at 2¹⁶ ns, 65.5 µs.
const FIRST_OCTAVE: u32 = 16;
/// Octaves up to 2³⁶ ns, 68.7 s.
const OCTAVES: usize = 20;
/// All octaves and what lies below them.
const BUCKETS: usize = 1 + OCTAVES * PER_OCTAVE as usize;

#[cfg(test)]
mod tests;
