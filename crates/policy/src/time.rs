//! Time as the policies see it: two numbers handed in from outside.
//!
//! A policy never reads a clock. Whoever drives it reads a monotonic clock once per event and
//! passes a [`Timestamp`]; where a date on the wire needs a calendar, it passes a [`WallTime`].
//! Windows and timers use the monotonic one alone, so a step of the system clock cannot freeze or
//! empty them (Resilience4j's time window stops evicting after a step back; see `docs/sources.md`).

use core::fmt;
use core::time::Duration;

/// A point on this process's monotonic clock, in nanoseconds since an arbitrary origin.
///
/// Arithmetic saturates at both ends: 584 years hold no wrap, and an `earlier` that is later
/// yields zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// A point that is never reached; stands for "no deadline".
    pub const MAX: Self = Self(u64::MAX);

    /// A point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A point `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `delay` later; stops at [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(nanos(delay)))
    }

    /// The point `delay` earlier; stops at [`Timestamp::ZERO`].
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(delay)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until `later`; zero if it has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        later.since(self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A point on the calendar, in whole seconds since 1970-01-01T00:00:00Z; may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// A point `seconds` after (or, negative, before) the Unix epoch.
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Seconds since the Unix epoch.
    #[must_use]
    pub const fn as_unix_seconds(self) -> i64 {
        self.0
    }
}

/// Nanoseconds in `duration`, stopping at `u64::MAX` (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let late = Timestamp::from_nanos(u64::MAX - 1);
        assert_eq!(late.after(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(1).before(Duration::MAX), Timestamp::ZERO);
        assert_eq!(Timestamp::ZERO.since(late), Duration::ZERO);
        assert_eq!(late.until(Timestamp::ZERO), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::MAX);
    }

    #[test]
    fn since_and_after_are_inverse() {
        let start = Timestamp::from_millis(5);
        let end = start.after(Duration::from_millis(7));
        assert_eq!(end.since(start), Duration::from_millis(7));
        assert_eq!(end.before(Duration::from_millis(7)), start);
    }
}
