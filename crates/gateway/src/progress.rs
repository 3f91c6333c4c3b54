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
    /// The highest number of an attempt that was sent; 0 before.
    attempts: AtomicU32,
    /// The endpoint of the last one that was sent or of the one whose answer counts, plus one; 0
    /// before.
    endpoint: AtomicUsize,
    /// The bit of the one whose answer counts; 0 before.
    answered: AtomicU64,
    /// When the first byte of the first attempt left, in nanoseconds of the clock; 0 before.
    sent: AtomicU64,
    /// Nanoseconds spent waiting for connections.
    waited: AtomicU64,
    /// Hedges sent.
    hedges: AtomicU32,
    /// A bit for each that was sent. The sixty-fourth and later ones share the last; a call makes
    /// at most 20.
    left: AtomicU64,
    /// The same for those that run on without their caller.
    runs_on: AtomicU64,
    /// The same for those whose outcome was counted.
    counted: AtomicU64,
}

/// The attempts that nobody has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Whether the one whose answer counts is among them: its status came after its head.
    pub(crate) has_answered: bool,
    /// How many there are beside it.
    pub(crate) others: u32,
}

impl Progress {
    /// Notes that the first byte of the attempt at `place` leaves.
    pub(crate) fn send(&self, now: Timestamp, place: u32, attempt: u32, endpoint: usize) {
        self.left.fetch_or(bit(place), Relaxed);
        let _ = self.sent.compare_exchange(0, now.as_nanos(), Relaxed, Relaxed);
        self.attempts.fetch_max(attempt, Relaxed);
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

    /// Notes that the attempt at `place` runs on without its caller, and says itself how it ends.
    pub(crate) fn run_on(&self, place: u32) {
        self.runs_on.fetch_or(bit(place), Relaxed);
    }

    /// Whether the attempt at `place` does so.
    pub(crate) fn runs_on(&self, place: u32) -> bool {
        self.runs_on.load(Relaxed) & bit(place) != 0
    }

    /// Whether the attempt at `place` was sent.
    pub(crate) fn was_sent(&self, place: u32) -> bool {
        self.left.load(Relaxed) & bit(place) != 0
    }

    /// Those that were sent and not counted, which count from here on; without those that run on,
    /// if they are still to say how they end.
    pub(crate) fn count_rest(&self, running_on: bool) -> Rest {
        let run_on = if running_on { 0 } else { self.runs_on.load(Relaxed) };
        let rest = self.left.load(Relaxed) & !run_on;
        let rest = rest & !self.counted.fetch_or(rest, Relaxed);
        let answered = self.answered.load(Relaxed);
        Rest { has_answered: rest & answered != 0, others: (rest & !answered).count_ones() }
    }

    /// Notes that a hedge is sent.
    pub(crate) fn hedge(&self) {
        self.hedges.fetch_add(1, Relaxed);
    }

    /// Hedges sent.
    pub(crate) fn hedges(&self) -> u32 {
        self.hedges.load(Relaxed)
    }

    /// Notes which attempt gave the answer that counts, and where.
    pub(crate) fn answer(&self, place: u32, endpoint: usize) {
        self.answered.store(bit(place), Relaxed);
        self.endpoint.store(endpoint + 1, Relaxed);
    }

    /// Attempts sent.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Relaxed)
    }

    /// Where the last attempt went, or the one whose answer counts.
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
    fn an_outcome_is_counted_once_and_what_was_never_sent_not_at_all() {
        let progress = Progress::default();
        let rest = |others| Rest { has_answered: false, others };
        assert_eq!(progress.count_rest(true), rest(0), "none was sent");
        progress.send(Timestamp::from_millis(1), 1, 2, 0);
        progress.send(Timestamp::from_millis(2), 2, 3, 0);
        assert!(progress.count(1) && !progress.count(1));
        progress.run_on(2);
        assert_eq!(progress.count_rest(false), rest(0), "the third says itself how it ends");
        assert_eq!(progress.count_rest(true), rest(1));
        assert_eq!(progress.count_rest(true), rest(0));
    }

    #[test]
    fn the_answer_that_counts_is_told_from_the_others_by_its_place() {
        for (counted, rest) in [
            (None, Rest { has_answered: true, others: 2 }),
            (Some(0), Rest { has_answered: true, others: 1 }),
            (Some(1), Rest { has_answered: false, others: 2 }),
        ] {
            let progress = Progress::default();
            for place in 0..3 {
                progress.send(Timestamp::from_millis(1), place, place + 1, 0);
            }
            progress.answer(1, 0);
            assert!(counted.is_none_or(|place| progress.count(place)));
            assert_eq!(progress.count_rest(true), rest, "{counted:?}");
        }
    }

    #[test]
    fn the_first_byte_is_the_first_attempts_and_the_endpoint_the_lasts() {
        let progress = Progress::default();
        assert_eq!((progress.sent(), progress.endpoint(), progress.attempts()), (None, None, 0));
        progress.send(Timestamp::from_millis(5), 0, 1, 0);
        progress.send(Timestamp::from_millis(9), 1, 2, 3);
        assert_eq!(progress.sent(), Some(Timestamp::from_millis(5)));
        assert_eq!((progress.endpoint(), progress.attempts()), (Some(3), 2));
        progress.answer(0, 0);
        assert_eq!(progress.endpoint(), Some(0), "the faster of two");
    }
}
