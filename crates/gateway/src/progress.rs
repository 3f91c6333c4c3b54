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
    /// A bit for each that was sent. The sixty-fourth and later ones share the last; a call makes
    /// at most 20.
    left: AtomicU64,
    /// The same for those that run on without their caller.
    runs_on: AtomicU64,
    /// The same for those whose outcome was counted.
    counted: AtomicU64,
}

impl Progress {
    /// Notes that an attempt begins; its place among all of them.
    pub(crate) fn begin(&self) -> u32 {
        self.begun.fetch_add(1, Relaxed)
    }

    /// Notes that the first byte of the attempt at `place` leaves.
    pub(crate) fn send(&self, now: Timestamp, place: u32, attempt: u32, endpoint: usize) {
        self.left.fetch_or(bit(place), Relaxed);
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
        self.counted.fetch_or(bit(place), Relaxed) & bit(place) == 0
    }

    /// Notes that the attempt that began last runs on without its caller, and says itself how it
    /// ends.
    pub(crate) fn run_on(&self) {
        if let Some(last) = self.begun.load(Relaxed).checked_sub(1) {
            self.runs_on.fetch_or(bit(last), Relaxed);
        }
    }

    /// Whether the attempt at `place` does so.
    pub(crate) fn runs_on(&self, place: u32) -> bool {
        self.runs_on.load(Relaxed) & bit(place) != 0
    }

    /// Whether the attempt that began last does so.
    pub(crate) fn last_runs_on(&self) -> bool {
        self.begun.load(Relaxed).checked_sub(1).is_some_and(|last| self.runs_on(last))
    }

    /// As [`Progress::count`], of the attempt that began last, if it was sent.
    pub(crate) fn count_last(&self) -> bool {
        let begun = self.begun.load(Relaxed);
        begun > 0 && self.left.load(Relaxed) & bit(begun - 1) != 0 && self.count(begun - 1)
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

fn bit(place: u32) -> u64 {
    1 << place.min(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_counted_once_and_the_lasts_only_if_it_was_sent() {
        let progress = Progress::default();
        assert!(!progress.count_last(), "none has begun");
        assert_eq!((progress.begin(), progress.begin()), (0, 1));
        assert!(!progress.count_last(), "the second was not sent");
        progress.send(Timestamp::from_millis(1), 1, 2, 0);
        assert!(progress.count_last());
        assert!(!progress.count(1) && !progress.count_last());
        assert!(progress.count(0));
        assert!(!progress.count(0));
    }

    #[test]
    fn the_first_byte_is_the_first_attempts_and_the_endpoint_the_lasts() {
        let progress = Progress::default();
        assert_eq!((progress.sent(), progress.endpoint(), progress.attempts()), (None, None, 0));
        progress.send(Timestamp::from_millis(5), 0, 1, 0);
        progress.send(Timestamp::from_millis(9), 1, 2, 3);
        assert_eq!(progress.sent(), Some(Timestamp::from_millis(5)));
        assert_eq!((progress.endpoint(), progress.attempts()), (Some(3), 2));
    }
}
