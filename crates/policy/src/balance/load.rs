//! Estimates what one more call costs an endpoint: the time its calls take, times those in flight.
//!
//! Counting calls in flight sees a slow endpoint only once calls have piled up on it; an estimate
//! of their time sees it after one. The estimate follows a slower answer at once and a faster one
//! slowly (hence *peak*), because the harm of a slow endpoint is worse than that of an idle one.
//!
//! An endpoint that fails fast would be the favourite of such a rule, and so would one that turns
//! everything down. So neither a failure nor a rejection (4xx) lowers the estimate, and the share
//! of recent failures multiplies it:
//!
//! ```text
//! answer      : time = took, if longer; else took + (time − took) · 2^(−since / half_life)
//! failure     : failing += (1 − failing) / 4      answer: failing −= failing / 16
//! cost        = time · (in flight + 1) · (1 + 20 · failing)
//! ```
//!
//! Time and failing also fade by their half-life while nothing is in flight, so an endpoint that
//! nobody chooses is tried again; with one call in flight the full estimate counts until that
//! call has ended. One failure makes an endpoint cost six times what it did, a run of four fifteen
//! times, and a dozen answers make up for one. An endpoint that has not answered yet costs nothing,
//! and with a call in flight more than any that has. Times within a quarter of each other count as
//! equal, or with little in flight the better one would have all calls.
//!
//! | value | default | source |
//! |---|---|---|
//! | half-life | 7 s | finagle-peak-ewma (10 s to 1/e) |
//! | weight of failures | 20 | own choice |
//!
//! Known bad cases: with next to nothing in flight an endpoint that was slow takes about a minute
//! to have its share back. Calls of very different length on different routes share one estimate;
//! it is the same mix on every endpoint, so the comparison holds, with noise.

use core::time::Duration;

use crate::time::{Timestamp, nanos};

/// What is known of the calls to one endpoint. Twenty-four bytes; all of it O(1).
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadEstimate {
    /// Time of a call in nanoseconds; 0 until the first answer.
    time: u64,
    /// Share of recent calls that failed, in parts of [`FULL`].
    failing: u32,
    /// When the latest call ended.
    updated: Timestamp,
}

impl LoadEstimate {
    /// Nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self { time: 0, failing: 0, updated: Timestamp::ZERO }
    }

    /// A call was answered after `took`.
    pub fn on_answer(&mut self, now: Timestamp, took: Duration) {
        let since = now.since(self.updated);
        let took = nanos(took).max(1);
        let above = self.time.saturating_sub(took);
        self.time = took.saturating_add(faded(above, since));
        let failing = self.faded_failing(since);
        self.failing = failing - failing.div_ceil(FORGIVES);
        self.updated = self.updated.max(now);
    }

    /// A call failed after `took`.
    pub fn on_failure(&mut self, now: Timestamp, took: Duration) {
        if self.time > 0 {
            self.time = self.time.max(nanos(took));
        }
        let failing = self.faded_failing(now.since(self.updated));
        self.failing = failing + (FULL - failing).div_ceil(BLAMES);
        self.updated = self.updated.max(now);
    }

    /// A call was turned down after `took`, which says that the endpoint is there and not how long
    /// its work takes. As the first that is known of it, it speaks against it.
    pub fn on_rejection(&mut self, now: Timestamp, took: Duration) {
        if self.time > 0 {
            self.on_at_least(now, took);
        } else {
            self.on_failure(now, took);
        }
    }

    /// A call has taken this long already, and has no answer yet or will never have one.
    pub fn on_at_least(&mut self, now: Timestamp, age: Duration) {
        if nanos(age) > self.time {
            self.time = nanos(age);
            self.updated = self.updated.max(now);
        }
    }

    /// What one more call would cost; only to be compared.
    #[must_use]
    pub fn cost(&self, now: Timestamp, in_flight: u32) -> u64 {
        let idle = if in_flight == 0 { now.since(self.updated) } else { Duration::ZERO };
        let failing = self.faded_failing(idle);
        let time = match self.time {
            0 if in_flight == 0 && failing < SUSPECT => 0,
            0 => UNKNOWN,
            known => coarse(faded(known, idle)),
        };
        let calls = u128::from(in_flight) + 1;
        let penalty = u128::from(FULL) + u128::from(WEIGHT) * u128::from(failing);
        let cost = (u128::from(time) * calls).saturating_mul(penalty) / u128::from(FULL);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// How long a call takes, as far as it is known, before any fading.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        (self.time > 0).then(|| Duration::from_nanos(self.time))
    }

    fn faded_failing(&self, since: Duration) -> u32 {
        u32::try_from(faded(u64::from(self.failing), since)).unwrap_or(0)
    }
}

/// What is left of `value` after `since`: half after each half-life, on a straight line between.
fn faded(value: u64, since: Duration) -> u64 {
    let (since, half_life) = (nanos(since), nanos(HALF_LIFE));
    let halvings = u32::try_from(since / half_life).unwrap_or(u32::MAX);
    let Some(left) = value.checked_shr(halvings) else { return 0 };
    let gone = u128::from(left) * u128::from(since % half_life) / u128::from(2 * half_life);
    left - u64::try_from(gone).unwrap_or(left)
}

/// Rounded down to four steps an octave, so that those that hardly differ take turns.
fn coarse(time: u64) -> u64 {
    let below = time.max(1).ilog2().saturating_sub(2);
    time >> below << below
}

/// Source: finagle-peak-ewma (decays to 1/e in 10 s).
const HALF_LIFE: Duration = Duration::from_secs(7);
/// The whole of [`LoadEstimate::failing`].
const FULL: u32 = 1 << 16;
/// A failure moves the share this part of the way up. Source: own choice.
const BLAMES: u32 = 4;
/// An answer moves it this part of the way down: one failure is made good by a dozen answers.
/// Source: own choice.
const FORGIVES: u32 = 16;
/// An endpoint that fails everything costs 21 times its time, more than its failures can be faster
/// than answers that are worth having. Source: own choice.
const WEIGHT: u32 = 20;
/// Failing more than this, an endpoint that never answered is no longer tried first.
const SUSPECT: u32 = FULL / 8;
/// What an endpoint that never answered is taken to need: an hour, more than any that did.
const UNKNOWN: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// An endpoint that answered in `took` ten times a second for a minute.
    fn steady(took: u64) -> LoadEstimate {
        let mut load = LoadEstimate::new();
        for n in 0..600 {
            load.on_answer(at(n * 100), millis(took));
        }
        load
    }

    #[test]
    fn a_slower_answer_counts_at_once_and_a_faster_one_by_half_in_seven_seconds() {
        let mut load = steady(10);
        load.on_answer(at(60_000), millis(200));
        assert_eq!(load.time(), Some(millis(200)));
        load.on_answer(at(67_000), millis(10));
        assert_eq!(load.time(), Some(millis(105)));
        load.on_answer(at(200_000), millis(10));
        assert!(load.time().unwrap() < millis(11));
    }

    #[test]
    fn calls_in_flight_multiply_the_time() {
        let load = steady(10);
        let alone = load.cost(at(60_000), 0);
        assert!(alone > 7 * nanos(millis(1)) && alone <= nanos(millis(10)));
        assert_eq!(load.cost(at(60_000), 3), 4 * steady(10).cost(at(59_900), 0));
        assert!(load.cost(at(60_000), 3) < steady(50).cost(at(60_000), 1));
    }

    #[test]
    fn an_endpoint_that_fails_in_a_millisecond_costs_more_than_one_that_answers_in_ten() {
        let (well, mut sick) = (steady(10), steady(10));
        for n in 0..4 {
            sick.on_failure(at(60_000 + n), millis(1));
        }
        assert!(sick.cost(at(60_004), 0) > 10 * well.cost(at(60_004), 0));
        // One that turns everything down hardly less than before.
        let mut wrong = steady(10);
        for n in 0..100 {
            wrong.on_rejection(at(60_000 + n), millis(1));
        }
        assert!(wrong.cost(at(60_100), 0) >= well.cost(at(60_100), 0));
        let mut born_wrong = LoadEstimate::new();
        born_wrong.on_rejection(at(60_000), millis(1));
        assert!(born_wrong.cost(at(60_001), 0) > well.cost(at(60_001), 100));
        // One that never answered, too.
        let mut born_sick = LoadEstimate::new();
        assert_eq!(born_sick.cost(at(60_000), 0), 0, "tried at once");
        assert!(born_sick.cost(at(60_000), 1) > well.cost(at(60_000), 1), "but by one call");
        born_sick.on_failure(at(60_001), millis(1));
        assert!(born_sick.cost(at(60_002), 0) > well.cost(at(60_002), 100));
    }

    #[test]
    fn one_failure_is_made_good_by_answers_and_a_failing_endpoint_is_tried_again_after_a_while() {
        let mut load = steady(10);
        let before = load.cost(at(60_000), 0);
        load.on_failure(at(60_000), millis(1));
        assert!(load.cost(at(60_000), 0) > 5 * before);
        for n in 0..60 {
            load.on_answer(at(60_010 + n * 10), millis(10));
        }
        assert!(load.cost(at(60_610), 0) < before + before / 5, "{load:?}");

        let mut failing = steady(10);
        for n in 0..100 {
            failing.on_failure(at(60_000 + n), millis(1));
        }
        assert!(failing.cost(at(60_100), 0) > 18 * before);
        assert!(failing.cost(at(60_100 + 21_000), 0) < before / 2);
        assert!(failing.cost(at(60_100 + 21_000), 1) > 18 * before, "until that call has ended");
    }

    #[test]
    fn no_length_or_count_overflows() {
        let mut load = LoadEstimate::new();
        load.on_answer(Timestamp::MAX, Duration::MAX);
        load.on_failure(at(0), Duration::MAX);
        assert_eq!(load.cost(Timestamp::MAX, u32::MAX), u64::MAX);
        load.on_answer(at(0), Duration::ZERO);
        load.on_at_least(at(0), Duration::MAX);
        assert_eq!(load.cost(at(0), u32::MAX), u64::MAX);
    }
}
