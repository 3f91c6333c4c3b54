//! Counters that many threads add to without sharing a cache line.
//!
//! A few shards, each a row of lines of its own; a thread keeps to one shard, and a reader sums
//! all of them. Adding is one relaxed addition. A sum taken while others add may miss what is
//! being added, never what was added before.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A fixed number of counters, split over [`SHARDS`] copies.
#[derive(Debug)]
pub(super) struct Shards {
    shards: [Box<[Line]>; SHARDS],
}

impl Shards {
    /// `cells` counters at zero.
    pub(super) fn new(cells: usize) -> Self {
        let lines = cells.div_ceil(PER_LINE);
        Self { shards: std::array::from_fn(|_| (0..lines).map(|_| Line::default()).collect()) }
    }

    /// Adds to a counter; one that does not exist takes nothing.
    pub(super) fn add(&self, cell: usize, count: u64) {
        let shard = &self.shards[own_shard()];
        if let Some(line) = shard.get(cell / PER_LINE) {
            line.0[cell % PER_LINE].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The sum over all shards.
    pub(super) fn sum(&self, cell: usize) -> u64 {
        self.shards.iter().fold(0, |sum, shard| {
            let line = shard.get(cell / PER_LINE);
            let own = line.map_or(0, |line| line.0[cell % PER_LINE].load(Ordering::Relaxed));
            sum.wrapping_add(own)
        })
    }
}

/// Two cache lines, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; PER_LINE]);

/// The shard of this thread: threads take turns as they first ask.
fn own_shard() -> usize {
    OWN.with(|own| {
        if own.get() == UNSET {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        own.get()
    })
}

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(UNSET) };
}

static NEXT: AtomicUsize = AtomicUsize::new(0);
const UNSET: usize = usize::MAX;
/// Enough that the workers of a machine this runs on rarely share one.
const SHARDS: usize = 8;
const PER_LINE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_of_many_threads_are_summed() {
        let shards = Shards::new(17);
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| (0..1000).for_each(|_| shards.add(16, 1)));
            }
        });
        assert_eq!(shards.sum(16), 12_000);
        assert_eq!(shards.sum(15), 0);
    }

    #[test]
    fn a_counter_that_does_not_exist_takes_nothing() {
        let shards = Shards::new(1);
        shards.add(PER_LINE, 1);
        assert_eq!(shards.sum(PER_LINE), 0);
    }

    #[test]
    fn shards_do_not_share_a_line() {
        assert_eq!(size_of::<Line>(), 128);
        assert_eq!(align_of::<Line>(), 128);
    }
}
