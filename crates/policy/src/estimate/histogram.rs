//! Samples counted by how long they took, generation by generation.

use core::time::Duration;

use crate::ratio::Ratio;
use crate::time::nanos;

/// One sample: the number of its bucket, and [`CENSORED`] if the call was given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample(u8);

impl Sample {
    /// In the place of one that is not there.
    pub(super) const NONE: Self = Self(0);

    /// A call that was answered after `elapsed`.
    pub(super) fn completed(elapsed: Duration) -> Self {
        Self(u8::try_from(bucket_of(elapsed)).unwrap_or(0))
    }

    /// A call that was given up after `elapsed`.
    pub(super) fn censored(elapsed: Duration) -> Self {
        Self(Self::completed(elapsed).0 | CENSORED)
    }

    const fn bucket(self) -> usize {
        (self.0 & !CENSORED) as usize
    }

    const fn is_censored(self) -> bool {
        self.0 & CENSORED != 0
    }
}

/// The samples of the last generations.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    /// A ring; the generation with number `e` is at `e % GENERATIONS`. Slots not yet reached by
    /// the newest are older, never newer.
    generations: [Generation; GENERATIONS],
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

impl Histogram {
    pub(super) const NONE: Self =
        Self { generations: [Generation::EMPTY; GENERATIONS], all: Totals::NONE };

    pub(super) const fn is_empty(&self) -> bool {
        self.all.all_completed == 0 && self.all.all_censored == 0
    }

    /// Adds one to the generation of this number.
    #[inline]
    pub(super) fn add(&mut self, number: u64, sample: Sample) {
        let slot = slot(number);
        if *self.generations[slot].of(sample) == u16::MAX {
            self.halve(slot);
        }
        *self.generations[slot].of(sample) += 1;
        let bucket = sample.bucket();
        if sample.is_censored() {
            self.all.censored[bucket] += 1;
            self.all.all_censored += 1;
        } else {
            self.all.completed[bucket] += 1;
            self.all.all_completed += 1;
        }
    }

    #[cold]
    fn halve(&mut self, slot: usize) {
        let generation = &mut self.generations[slot];
        self.all.subtract(generation);
        generation.halve();
        self.all.add(generation);
    }

    /// Forgets what was in the places of the latest `passed` generations up to `newest`.
    pub(super) fn forget(&mut self, newest: u64, passed: u64) {
        for number in newest + 1 - passed.min(GENERATIONS as u64)..=newest {
            let generation = &mut self.generations[slot(number)];
            self.all.subtract(generation);
            *generation = Generation::EMPTY;
        }
    }

    /// How many samples were answered within `remaining` nanoseconds, and how many inform of it.
    #[inline]
    pub(super) fn within(&self, remaining: u64) -> (u32, u32) {
        let last_within = bucket_of_nanos(remaining);
        let beyond: u32 = self.all.completed[last_within + 1..].iter().sum();
        let given_up: u32 = if self.all.all_censored == 0 {
            0
        } else {
            let informative = bucket_of_nanos(remaining - remaining / CENSORED_SLACK_DIVISOR);
            self.all.censored[informative..].iter().sum()
        };
        (self.all.all_completed - beyond, self.all.all_completed + given_up)
    }

    /// The end of the bucket that holds this share of `samples`, those of the generations that
    /// still count `passed` after the newest.
    pub(super) fn quantile(
        &self,
        newest: u64,
        passed: u64,
        samples: u32,
        share: Ratio,
    ) -> Option<Duration> {
        let mut below = 0;
        let bucket = (0..BUCKETS).find(|bucket| {
            let counts = |one: &Generation| {
                u32::from(one.completed[*bucket]) + u32::from(one.censored[*bucket])
            };
            below += self.live(newest, passed).map(counts).sum::<u32>();
            below > 0 && share.is_reached(u64::from(below), u64::from(samples))
        });
        bucket.map(upper_edge)
    }

    /// Samples in the generations that still count `passed` after the newest.
    pub(super) fn count(&self, newest: u64, passed: u64) -> u32 {
        self.live(newest, passed).map(|one| sum(&one.completed) + sum(&one.censored)).sum()
    }

    fn live(&self, newest: u64, passed: u64) -> impl Iterator<Item = &Generation> {
        let oldest = (newest + passed + 1).saturating_sub(GENERATIONS as u64);
        (oldest..=newest).map(|number| &self.generations[slot(number)])
    }
}

impl Generation {
    const EMPTY: Self = Self { completed: [0; BUCKETS], censored: [0; BUCKETS] };

    #[inline]
    fn of(&mut self, sample: Sample) -> &mut u16 {
        let counts = if sample.is_censored() { &mut self.censored } else { &mut self.completed };
        &mut counts[sample.bucket()]
    }

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

fn slot(number: u64) -> usize {
    usize::try_from(number % GENERATIONS as u64).unwrap_or(0)
}

fn sum(counts: &[u16]) -> u32 {
    counts.iter().map(|count| u32::from(*count)).sum()
}

/// The bucket that holds `duration`: 0 below the first octave, then `PER_OCTAVE` for each, the
/// last without an upper end.
pub(super) fn bucket_of(duration: Duration) -> usize {
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
pub(super) fn upper_edge(bucket: usize) -> Duration {
    let (octave, quarter) = (bucket / PER_OCTAVE as usize, bucket % PER_OCTAVE as usize);
    let unit = (1_u64 << FIRST_OCTAVE) / u64::from(PER_OCTAVE);
    Duration::from_nanos(((PER_OCTAVE as usize + quarter) as u64 * unit) << octave)
}

/// A call given up up to one part in this many before what is left still informs: callers of one
/// timeout differ by what the network took.
const CENSORED_SLACK_DIVISOR: u64 = 8;

/// Five full ones hold 25 scouts.
pub(super) const GENERATIONS: usize = 6;

/// Buckets in which a duration doubles.
const PER_OCTAVE: u32 = 4;
/// The first octave begins at 2¹⁶ ns, 65.5 µs.
const FIRST_OCTAVE: u32 = 16;
/// Octaves up to 2³⁶ ns, 68.7 s.
const OCTAVES: usize = 20;
/// All octaves and what lies below them; fewer than [`CENSORED`].
pub(super) const BUCKETS: usize = 1 + OCTAVES * PER_OCTAVE as usize;

/// The bit of a call that was given up.
const CENSORED: u8 = 1 << 7;
