//! How far a call has come, for the line of a request whose caller left meanwhile.
//!
//! While a call runs, its attempts are the driver's, and a caller that leaves takes the driver
//! along. What is left then is what the attempts wrote down here.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use seawall_policy::Timestamp;

/// Shared by a request and its attempts.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Number of the attempt that was sent last; 0 before.
    attempts: AtomicU32,
    /// The endpoint it went to, plus one; 0 before.
    endpoint: AtomicUsize,
    /// When the first byte of the first attempt left, in nanoseconds of the clock; 0 before.
    sent: AtomicU64,
    /// Nanoseconds spent waiting for connections.
    waited: AtomicU64,
    /// Attempts begun, redispatches among them.
    begun: AtomicU32,
    /// A bit for each whose outcome was counted. The sixty-fourth and later ones share the last; a
    /// call makes at most 20.
    counted: AtomicU64,
}

impl Progress {
    /// Notes that an attempt begins; its place among all of them.
    pub(crate) fn begin(&self) -> u32 {
        self.begun.fetch_add(1, Relaxed)
    }

    /// Notes that an attempt's first byte leaves.
    pub(crate) fn send(&self, now: Timestamp, attempt: u32, endpoint: usize) {
        let _ = self.sent.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
        self.attempts.store(attempt, Relaxed);
        self.endpoint.store(endpoint + 1, Relaxed);
    }

    /// Notes a wait for a connection.
    pub(crate) fn wait(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(nanos, Relaxed);
    }

    /// Whether the outcome of the attempt at `place` is still to be counted; only once.
    pub(crate) fn count(&self, place: u32) -> bool {
        let bit = 1 << place.min(63);
        self.counted.fetch_or(bit, Relaxed) & bit == 0
    }

    /// As [`Progress::count`], of the attempt that began last.
    pub(crate) fn count_last(&self) -> bool {
        let begun = self.begun.load(Relaxed);
        begun > 0 && self.count(begun - 1)
    }

    /// Attempts sent.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Relaxed)
    }

    /// Where the last attempt went.
    pub(crate) fn endpoint(&self) -> Option<usize> {
        self.endpoint.load(Relaxed).checked_sub(1)
    }

    /// When the first byte of the first attempt left.
    pub(crate) fn sent(&self) -> Option<Timestamp> {
        match self.sent.load(Relaxed) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    /// Time spent waiting for connections, over all attempts.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_counted_once_and_only_of_attempts_that_began() {
        let progress = Progress::default();
        assert!(!progress.count_last(), "none has begun");
        assert_eq!((progress.begin(), progress.begin()), (0, 1));
        assert!(progress.count_last());
        assert!(!progress.count(1));
        assert!(progress.count(0));
        assert!(!progress.count(0));
    }

    #[test]
    fn the_first_byte_is_the_first_attempts_and_the_endpoint_the_lasts() {
        let progress = Progress::default();
        assert_eq!((progress.sent(), progress.endpoint(), progress.attempts()), (None, None, 0));
        progress.send(Timestamp::from_millis(5), 1, 0);
        progress.send(Timestamp::from_millis(9), 2, 3);
        assert_eq!(progress.sent(), Some(Timestamp::from_millis(5)));
        assert_eq!((progress.endpoint(), progress.attempts()), (Some(3), 2));
    }
}
