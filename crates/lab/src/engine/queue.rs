//! A queue of events that stays fast from ten to ten million: a ladder.
//!
//! Events far away lie unsorted. As time comes near, they are dealt into buckets, a bucket that
//! still holds many is dealt into finer ones, and only a bucket of a few hundred is sorted:
//!
//! ```text
//!   now ──────────────────────────────────────────────────────────────▶ time
//!   │ bottom │ finest rung      │ rung 1                │ rung 0        │ top
//!   │ sorted │ ▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯ │ ▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯ │ ▯▯▯▯▯▯▯▯▯▯▯▯▯ │ unsorted
//!   │ + near │
//! ```
//!
//! Each event is moved a few times, always to the end of one of at most 128 buckets, so the cost
//! hardly grows with the number of events, where that of a heap doubles and misses the cache at
//! every level. What is scheduled within the sorted bucket goes into a small heap beside it; a
//! heap that grows large becomes a rung of its own.
//!
//! The order is that of the keys, whatever the buckets are. Source: ladder-queue (Differs: widths
//! are powers of two, at most 128 buckets a rung, and a heap instead of insertion).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A set of keys that gives back its least one. The upper [`TIME_BITS`] of a key are its time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Sorted, the least last. All its times are below `bottom_end`.
    bottom: Vec<u128>,
    /// Whether `bottom` was sorted anew.
    is_new: bool,
    /// What came below `bottom_end` after `bottom` was sorted.
    near: BinaryHeap<Reverse<u128>>,
    /// Where the finest rung goes on, or the top if there is none.
    bottom_end: u64,
    /// Coarsest first. Each ends where the next coarser one goes on.
    rungs: Vec<Rung>,
    top: Vec<u128>,
    len: usize,
    /// Emptied buckets, to be filled again.
    spare: Vec<Vec<u128>>,
}

/// Buckets side by side, each 2^`shift` wide.
#[derive(Debug)]
struct Rung {
    start: u64,
    end: u64,
    shift: u32,
    /// The first bucket that was not taken yet.
    next: usize,
    buckets: Vec<Vec<u128>>,
    len: usize,
}

impl Rung {
    fn position(&self, bucket: usize) -> u64 {
        self.end.min(self.start + ((bucket as u64) << self.shift))
    }

    fn push(&mut self, time: u64, key: u128) {
        let bucket = usize::try_from((time - self.start) >> self.shift).unwrap_or(usize::MAX);
        self.buckets[bucket].push(key);
        self.len += 1;
    }
}

impl Queue {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, key: u128) {
        let time = time_of(key);
        self.len += 1;
        if time < self.bottom_end {
            self.near.push(Reverse(key));
            if self.near.len() > MOST_NEAR {
                self.spread();
            }
            return;
        }
        match self.rungs.iter_mut().rev().find(|rung| time < rung.end) {
            Some(rung) => rung.push(time, key),
            None => self.top.push(key),
        }
    }

    /// The least key, taken out if its time is at most `until`.
    pub(super) fn pop_until(&mut self, until: u64) -> Option<u128> {
        if self.bottom.is_empty() && self.near.is_empty() && !self.refill() {
            return None;
        }
        let near = self.near.peek().map_or(u128::MAX, |near| near.0);
        let bottom = self.bottom.last().copied().unwrap_or(u128::MAX);
        let least = near.min(bottom);
        if time_of(least) > until {
            return None;
        }
        self.len -= 1;
        if near < bottom {
            self.near.pop();
        } else {
            self.bottom.pop();
        }
        Some(least)
    }

    /// The keys that were sorted since this was last asked, the least last.
    pub(super) fn take_sorted(&mut self) -> Option<&[u128]> {
        std::mem::take(&mut self.is_new).then_some(&self.bottom)
    }

    /// Sorts what comes next into `bottom`. False if nothing does.
    fn refill(&mut self) -> bool {
        loop {
            let Some(rung) = self.rungs.last_mut() else {
                return self.sort_top();
            };
            if rung.len == 0 {
                self.bottom_end = rung.end;
                self.rungs.pop().into_iter().for_each(|rung| self.recycle(rung.buckets));
                continue;
            }
            while rung.buckets[rung.next].is_empty() {
                rung.next += 1;
            }
            let (start, shift) = (rung.position(rung.next), rung.shift);
            let mut bucket = std::mem::take(&mut rung.buckets[rung.next]);
            rung.next += 1;
            rung.len -= bucket.len();
            let end = rung.position(rung.next);
            if bucket.len() <= MOST_SORTED || shift == 0 {
                self.bottom_end = end;
                self.sort(bucket);
                return true;
            }
            self.deal(start, end, &mut bucket);
            self.recycle([bucket]);
        }
    }

    /// Turns to what lies far away: into buckets, or, if that is little, at once in order.
    fn sort_top(&mut self) -> bool {
        let mut top = std::mem::take(&mut self.top);
        let times = || top.iter().map(|key| time_of(*key));
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return false };
        if top.len() <= MOST_SORTED {
            self.bottom_end = last + 1;
            self.sort(top);
            return true;
        }
        // Beyond the last there is nothing yet, so what comes there finds its bucket too.
        let span = (last + 1 - first).next_power_of_two();
        self.deal(first, first + span, &mut top);
        self.top = top;
        self.refill()
    }

    fn sort(&mut self, mut keys: Vec<u128>) {
        keys.sort_unstable_by(|a, b| b.cmp(a));
        self.is_new = true;
        let emptied = std::mem::replace(&mut self.bottom, keys);
        self.recycle([emptied]);
    }

    /// Deals keys with times in `start..end` into a new, finest rung that covers that range.
    fn deal(&mut self, start: u64, end: u64, keys: &mut Vec<u128>) {
        let wanted = (keys.len() / PER_BUCKET).next_power_of_two().clamp(2, MOST_BUCKETS);
        let width = (end - start).div_ceil(wanted as u64).next_power_of_two();
        let buckets = (end - start).div_ceil(width);
        let buckets = (0..buckets).map(|_| self.spare.pop().unwrap_or_default()).collect();
        let shift = width.trailing_zeros();
        let mut rung = Rung { start, end, shift, next: 0, buckets, len: 0 };
        for key in keys.drain(..) {
            rung.push(time_of(key), key);
        }
        self.rungs.push(rung);
    }

    /// Turns the sorted bucket and its heap, which has grown large, into a rung.
    fn spread(&mut self) {
        let mut keys = std::mem::take(&mut self.bottom);
        keys.extend(std::mem::take(&mut self.near).into_iter().map(|near| near.0));
        let times = || keys.iter().map(|key| time_of(*key));
        let start = times().min().unwrap_or(self.bottom_end);
        if self.bottom_end - start < 2 {
            // All at one time: there is nothing to spread.
            self.sort(keys);
            return;
        }
        let end = std::mem::replace(&mut self.bottom_end, start);
        self.deal(start, end, &mut keys);
        self.recycle([keys]);
    }

    fn recycle(&mut self, buckets: impl IntoIterator<Item = Vec<u128>>) {
        for mut bucket in buckets {
            if self.spare.len() < MOST_SPARE && bucket.capacity() > 0 {
                bucket.clear();
                self.spare.push(bucket);
            }
        }
    }
}

/// The time in a key.
const fn time_of(key: u128) -> u64 {
    (key >> (u128::BITS - TIME_BITS)) as u64
}

/// Bits of a key that are its time.
pub(super) const TIME_BITS: u32 = 48;
/// The largest bucket that is sorted as it is, unless it is of one time. Source: lab-engine.
const MOST_SORTED: usize = 512;
/// Keys in a bucket on average, while there are buckets enough. Source: lab-engine.
const PER_BUCKET: usize = 128;
/// More would mean fewer moves, and more ends of buckets than the cache of addresses holds.
/// Source: lab-engine.
const MOST_BUCKETS: usize = 128;
/// The largest heap beside the sorted bucket. Source: lab-engine.
const MOST_NEAR: usize = 4_096;
/// Emptied buckets that are kept.
const MOST_SPARE: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key(time: u64, rest: u64) -> u128 {
        u128::from(time) << (u128::BITS - TIME_BITS) | u128::from(rest)
    }

    /// Plays pushes of so far ahead and pops beside an ordered set; both must agree on every pop.
    fn check(script: impl IntoIterator<Item = (u64, usize)>) {
        let (mut queue, mut naive) = (Queue::default(), BTreeSet::new());
        let (mut now, mut n) = (0, 0);
        let pop = |queue: &mut Queue, naive: &mut BTreeSet<u128>, now: &mut u64| {
            let popped = queue.pop_until(u64::MAX);
            assert_eq!(popped, naive.pop_first());
            *now = popped.map_or(*now, time_of);
            assert_eq!(queue.len(), naive.len());
        };
        for (ahead, pops) in script {
            n += 1;
            let pushed = key((now + ahead).min((1 << TIME_BITS) - 1), n);
            queue.push(pushed);
            naive.insert(pushed);
            (0..pops).for_each(|_| pop(&mut queue, &mut naive, &mut now));
        }
        while !naive.is_empty() {
            pop(&mut queue, &mut naive, &mut now);
        }
        assert_eq!(queue.pop_until(u64::MAX), None);
    }

    /// How far ahead, from now to the end of time, in every order of magnitude.
    fn ahead() -> impl Strategy<Value = u64> {
        (0_u32..TIME_BITS, any::<u64>()).prop_map(|(bits, word)| word & ((1 << bits) - 1))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn keys_come_in_order_whatever_their_times_are(
            script in prop::collection::vec((ahead(), 0_usize..3), 0..5_000),
        ) {
            check(script);
        }

        #[test]
        fn keys_come_in_order_whatever_their_density_is(
            bits in 1_u32..30,
            script in prop::collection::vec((any::<u64>(), 0_usize..3), 0..5_000),
        ) {
            check(script.into_iter().map(|(word, pops)| (word & ((1 << bits) - 1), pops)));
        }
    }

    #[test]
    fn many_at_one_time_and_many_within_the_sorted_bucket_keep_their_order() {
        check((0..20_000).map(|_| (7, 0)));
        // One far away makes the sorted bucket wide; then everything comes into it.
        let far = (0..10).map(|n| (1 << 40 | n, usize::from(n == 9)));
        check(far.chain((0..20_000).map(|n: u64| (n.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF, 0))));
        check(
            (0..10).map(|n| (1 << 20 | n, usize::from(n == 9))).chain((0..20_000).map(|_| (0, 0))),
        );
    }

    #[test]
    fn nothing_after_the_end_is_taken() {
        let mut queue = Queue::default();
        queue.push(key(10, 0));
        assert_eq!(queue.pop_until(9), None);
        queue.push(key(9, 1));
        assert_eq!(queue.pop_until(9), Some(key(9, 1)));
        assert_eq!(queue.pop_until(9), None);
        assert_eq!((queue.pop_until(10), queue.len()), (Some(key(10, 0)), 0));
    }
}
