//! The only reader of real time and real entropy.
//!
//! Everything below decides with the [`Timestamp`] it is handed. A [`Clock`] follows tokio's
//! clock, so a test on paused time drives the whole chain without waiting.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use seawall_policy::{Rng, Timestamp, WallTime};
use tokio::time::Instant;

/// Reads the monotonic clock as time since the clock was made, and the calendar.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin lies one hour back, so that times before its making can be told.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Now, on the monotonic clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn now(&self) -> Timestamp {
        count();
        ORIGIN.after(Instant::now().saturating_duration_since(self.origin))
    }

    /// Now, on the calendar.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn wall(&self) -> WallTime {
        count();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallTime::from_unix_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }

    /// Milliseconds since the Unix epoch, for log lines.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one reader")]
    pub fn unix_millis(&self) -> u64 {
        count();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// How often clocks and calendars were read on this thread, for tests that count it.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn reads() -> u64 {
        READS.with(std::cell::Cell::get)
    }

    /// The instant to sleep until so that `at` has been reached.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        let delay = at.since(ORIGIN).min(FAR);
        self.origin + delay
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Real entropy, from a generator of this thread seeded by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadRng;

impl Rng for ThreadRng {
    fn next_u64(&mut self) -> u64 {
        fastrand::u64(..)
    }
}

/// The reading at the moment a clock is made: an hour, so that "before the start" exists.
const ORIGIN: Timestamp = Timestamp::from_millis(3_600_000);
/// The farthest a sleep can be asked for; tokio's timer saturates near two years.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Notes a reading where tests count them.
fn count() {
    #[cfg(any(test, feature = "testing"))]
    READS.with(|reads| reads.set(reads.get() + 1));
}

#[cfg(any(test, feature = "testing"))]
std::thread_local! {
    static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleep_until_a_timestamp_ends_when_the_clock_shows_it() {
        let clock = Clock::new();
        let at = clock.now().after(Duration::from_millis(250));
        tokio::time::sleep_until(clock.instant(at)).await;
        assert_eq!(clock.now(), at);
    }

    #[tokio::test(start_paused = true)]
    async fn a_point_that_is_never_reached_can_be_slept_for() {
        let clock = Clock::new();
        assert!(clock.instant(Timestamp::MAX) > clock.instant(clock.now()));
    }
}
