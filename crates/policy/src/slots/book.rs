//! Which slots were given out and which were kept, by the tenth of a second they fall into.
//!
//! Slots are given out in the order of their times, so a tenth's slots are numbered as they are
//! given out, and a tenth needs a bit for each only once the first of them is kept.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::time::Timestamp;

/// The tenths from the oldest that can be kept to the latest given out.
#[derive(Debug, Default)]
pub(super) struct Book {
    tenths: VecDeque<Tenth>,
    /// The number, since the clock's origin, of the first.
    first: u64,
}

#[derive(Debug, Default)]
struct Tenth {
    given: u32,
    kept: u32,
    /// A bit for each that was given out, if any was kept.
    bits: Vec<u64>,
}

/// What the book says to somebody who shows a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is kept now.
    First,
    /// It was before.
    Again,
    /// It is in the book no longer.
    Gone,
}

impl Book {
    /// Enters a slot at a time not before that of the one before, and says its number.
    pub(super) fn enter(&mut self, at: Timestamp) -> u32 {
        let number = tenth_of(at);
        if self.tenths.is_empty() {
            self.first = number;
        }
        let place = usize::try_from(number.saturating_sub(self.first)).unwrap_or(0);
        if place >= self.tenths.len() {
            self.tenths.resize_with(place + 1, Tenth::default);
        }
        let tenth = &mut self.tenths[place];
        tenth.given += 1;
        tenth.given - 1
    }

    /// Keeps a slot, if it can be. One that was never entered is gone.
    pub(super) fn keep(&mut self, at: Timestamp, number: u32) -> Kept {
        let place = tenth_of(at).checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(tenth) = place.and_then(|place| self.tenths.get_mut(place)) else {
            return Kept::Gone;
        };
        if number >= tenth.given {
            return Kept::Gone;
        }
        let (word, bit) = (number as usize / BITS, 1_u64 << (number as usize % BITS));
        if word >= tenth.bits.len() {
            tenth.bits.resize((tenth.given as usize).div_ceil(BITS), 0);
        }
        if tenth.bits[word] & bit != 0 {
            return Kept::Again;
        }
        tenth.bits[word] |= bit;
        tenth.kept += 1;
        Kept::First
    }

    /// Closes the tenths that ended by `end`, and says how many of their slots were not kept.
    pub(super) fn close(&mut self, end: Timestamp) -> u32 {
        let mut missed = 0_u32;
        let open = tenth_of(end);
        while self.first < open
            && let Some(tenth) = self.tenths.pop_front()
        {
            missed = missed.saturating_add(tenth.given - tenth.kept);
            self.first += 1;
        }
        missed
    }

    pub(super) fn tenths(&self) -> usize {
        self.tenths.len()
    }
}

const fn tenth_of(at: Timestamp) -> u64 {
    at.as_nanos() / TENTH
}

/// A tenth of a second, in nanoseconds. Source: seawall-design.
pub(super) const TENTH: u64 = 100_000_000;
const BITS: usize = 64;
