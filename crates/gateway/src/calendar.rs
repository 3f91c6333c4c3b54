//! Tells what the calendar showed at a time of the monotonic clock, so that a request reads one
//! clock.
//!
//! What lies between the two is measured ten times a second. A step of the system's time, and time
//! that the machine slept through, during which the monotonic clock stands, are therefore told up
//! to 100 ms too late; and whoever is told a time sees both clocks' rounding to whole milliseconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use seawall_policy::Timestamp;

/// The calendar, as far as the monotonic clock tells it.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// Milliseconds since the Unix epoch at the monotonic clock's zero, which may lie before it:
    /// modulo 2⁶⁴.
    zero: AtomicU64,
}

impl Calendar {
    /// A calendar that shows `unix_millis` at `now`.
    pub(crate) fn new(now: Timestamp, unix_millis: u64) -> Self {
        Self { zero: AtomicU64::new(zero(now, unix_millis)) }
    }

    /// Follows the system's time, but for a millisecond: that is rounding.
    pub(crate) fn adjust(&self, now: Timestamp, unix_millis: u64) {
        let zero = zero(now, unix_millis);
        let apart = zero.wrapping_sub(self.zero.load(Relaxed));
        if apart.min(apart.wrapping_neg()) > ROUNDING {
            self.zero.store(zero, Relaxed);
        }
    }

    /// Milliseconds since the Unix epoch at `at`.
    pub(crate) fn unix_millis(&self, at: Timestamp) -> u64 {
        self.zero.load(Relaxed).wrapping_add(millis(at))
    }
}

fn zero(now: Timestamp, unix_millis: u64) -> u64 {
    unix_millis.wrapping_sub(millis(now))
}

const fn millis(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

/// In milliseconds.
const ROUNDING: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn time_is_told_from_the_monotonic_clock_alone() {
        let calendar = Calendar::new(at(3_600_000), 1_800_000_000_000);
        assert_eq!(calendar.unix_millis(at(3_600_000)), 1_800_000_000_000);
        assert_eq!(calendar.unix_millis(at(3_600_250)), 1_800_000_000_250);
        assert_eq!(calendar.unix_millis(at(3_599_000)), 1_799_999_999_000);
    }

    #[test]
    fn a_step_either_way_and_a_sleep_are_followed_and_rounding_is_not() {
        let calendar = Calendar::new(at(1_000), 50_000);
        for (now, shown, told) in [
            (1_100, 50_101, 50_100),
            (1_200, 50_199, 50_200),
            (1_300, 50_302, 50_302),
            (1_400, 20_000, 20_000),
            (1_500, 9_000_000, 9_000_000),
        ] {
            calendar.adjust(at(now), shown);
            assert_eq!(calendar.unix_millis(at(now)), told, "{now}");
        }
    }

    #[test]
    fn a_calendar_before_the_clock_itself_is_told_too() {
        let calendar = Calendar::new(at(3_600_000), 5);
        assert_eq!(calendar.unix_millis(at(3_600_001)), 6);
    }
}
