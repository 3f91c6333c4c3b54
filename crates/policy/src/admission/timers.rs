//! When waits end: a wheel of four levels, in steps of a quarter of a millisecond.
//!
//! A wait is put in the slot of its end: within 16 ms on the first level, within 1 s on the
//! second, and so on by 64. Time moves from one filled slot to the next; what is in a slot of a
//! higher level goes down one by one when its time begins, at most once a level. So a wait is put
//! in, taken out and ended at a cost that does not depend on how many there are.

use super::slab::{List, Slab};
use super::waiting::Waiter;
use crate::time::Timestamp;

/// Which of an entry's lists this is.
pub(super) const TIMER: usize = 2;

#[derive(Debug)]
pub(super) struct Timers {
    pub(super) levels: [[List<TIMER>; SLOTS]; LEVELS],
    /// Which slots of a level are not empty.
    pub(super) filled: [u64; LEVELS],
    /// The step up to which every wait has ended.
    at: u64,
}

impl Timers {
    pub(super) const fn new() -> Self {
        Self { levels: [[List::EMPTY; SLOTS]; LEVELS], filled: [0; LEVELS], at: 0 }
    }

    /// The beginning of the step that `time` lies in: ends count in steps.
    pub(super) const fn rounded_down(time: Timestamp) -> Timestamp {
        Timestamp::from_nanos(time.as_nanos() / STEP * STEP)
    }

    pub(super) fn insert(&mut self, entries: &mut Slab<Waiter>, id: u32) {
        let step = (entries[id].until.as_nanos() / STEP).max(self.at);
        let (level, slot) = self.place(step);
        let entry = &mut entries[id];
        entry.timer = u16::try_from(level * SLOTS + slot).unwrap_or(0);
        self.levels[level][slot].push(entries, id);
        self.filled[level] |= 1 << slot;
    }

    pub(super) fn remove(&mut self, entries: &mut Slab<Waiter>, id: u32) {
        let place = usize::from(entries[id].timer);
        let (level, slot) = (place / SLOTS, place % SLOTS);
        self.levels[level][slot].unlink(entries, id);
        if self.levels[level][slot].is_empty() {
            self.filled[level] &= !(1 << slot);
        }
    }

    /// One whose wait ends by `now`, which stays in until it is removed. `None` if there is none,
    /// or if `work` is used up: each entry that goes down a level takes one of it.
    pub(super) fn due(
        &mut self,
        entries: &mut Slab<Waiter>,
        now: Timestamp,
        work: &mut u32,
    ) -> Option<u32> {
        let now = now.as_nanos() / STEP;
        loop {
            let Some((level, slot, begins)) = self.earliest() else {
                self.at = self.at.max(now);
                return None;
            };
            if begins > now {
                self.at = self.at.max(now);
                return None;
            }
            self.at = self.at.max(begins);
            let first = self.levels[level][slot].first()?;
            if level == 0 {
                return Some(first);
            }
            if *work == 0 {
                return None;
            }
            *work -= 1;
            self.remove(entries, first);
            self.insert(entries, first);
        }
    }

    /// When the next wait ends, or no later than that.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let (.., begins) = self.earliest()?;
        Some(Timestamp::from_nanos(begins.saturating_mul(STEP)))
    }

    /// Level and slot of a step that has not passed. What is too far for the wheel waits in its
    /// last slot, and goes round again from there.
    fn place(&self, step: u64) -> (usize, usize) {
        let step = step.min(self.at | LAST);
        let differs = (step ^ self.at) | 1;
        let level = differs.ilog2() as usize / BITS;
        (level, slot_of(step, level))
    }

    /// The filled slot that comes first, and the step it begins at.
    fn earliest(&self) -> Option<(usize, usize, u64)> {
        // Of a slot whose time has begun, something may not have gone down yet.
        let begun =
            (1..LEVELS).rev().find(|&level| self.filled[level] & 1 << self.here(level) != 0);
        if let Some(level) = begun {
            let slot = self.here(level);
            return Some((level, slot, self.begin(level, slot)));
        }
        (0..LEVELS).find_map(|level| {
            let here = self.here(level);
            // Slots before this one have passed; they are empty.
            let ahead = self.filled[level] >> here << here;
            let slot = ahead.trailing_zeros() as usize;
            (ahead != 0).then(|| (level, slot, self.begin(level, slot)))
        })
    }

    /// The slot of the present on a level.
    fn here(&self, level: usize) -> usize {
        slot_of(self.at, level)
    }

    /// The step at which a slot that has not passed begins.
    const fn begin(&self, level: usize, slot: usize) -> u64 {
        let shift = BITS * level;
        let above = self.at >> shift >> BITS << BITS;
        (above | slot as u64) << shift
    }
}

fn slot_of(step: u64, level: usize) -> usize {
    usize::try_from((step >> (BITS * level)) % SLOTS as u64).unwrap_or(0)
}

/// Nanoseconds. Ends of waits are rounded down to it. Source: seawall-design (the timers of the
/// edges count in milliseconds).
const STEP: u64 = 250_000;
const SLOTS: usize = 64;
const BITS: usize = 6;
/// 64⁴ steps: 70 minutes, more than the longest patience.
const LEVELS: usize = 4;
/// The bits of a step within the wheel.
const LAST: u64 = (1 << (BITS * LEVELS)) - 1;
