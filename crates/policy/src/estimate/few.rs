//! So few samples that they decide nothing, in as many bytes.

use super::SAMPLES_MIN;
use super::histogram::{GENERATIONS, Sample};

/// One sample less than it takes to say anything. 25 bytes.
#[derive(Clone, Debug)]
pub(super) struct Few {
    /// Oldest first.
    samples: [Sample; MOST],
    /// How many of them each generation has, oldest first.
    counts: [u8; GENERATIONS],
}

impl Few {
    pub(super) const NONE: Self = Self { samples: [Sample::NONE; MOST], counts: [0; GENERATIONS] };

    /// Adds one to the newest generation; `false` if there is no room.
    pub(super) fn push(&mut self, sample: Sample) -> bool {
        let count = self.count(0) as usize;
        let Some(place) = self.samples.get_mut(count) else { return false };
        *place = sample;
        self.counts[GENERATIONS - 1] += 1;
        true
    }

    /// Each with the generations that began after its own.
    pub(super) fn each(&self, mut tell: impl FnMut(u64, Sample)) {
        let mut samples = self.samples.iter();
        for (age, count) in (0..GENERATIONS as u64).rev().zip(self.counts) {
            samples.by_ref().take(count.into()).for_each(|sample| tell(age, *sample));
        }
    }

    /// How many are left when `passed` generations more have begun.
    pub(super) fn count(&self, passed: u64) -> u32 {
        self.counts[oldest(passed)..].iter().map(|count| u32::from(*count)).sum()
    }

    /// Begins `passed` generations, and forgets those that are too old by then.
    pub(super) fn grow_older(&mut self, passed: u64) {
        let gone = self.count(0) - self.count(passed);
        self.samples.rotate_left(gone as usize);
        let passed = oldest(passed);
        self.counts.rotate_left(passed);
        self.counts[GENERATIONS - passed..].fill(0);
    }
}

/// Which generation is the oldest that counts after so many more.
fn oldest(passed: u64) -> usize {
    usize::try_from(passed).unwrap_or(GENERATIONS).min(GENERATIONS)
}

const MOST: usize = SAMPLES_MIN as usize - 1;
