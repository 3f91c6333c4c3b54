//! Decides when a connection that has to end may end, so that those which have to end together do
//! not come back together.
//!
//! Ten thousand readers that stall in the same second (a link that was down, a page that hung) are
//! ten thousand new connections in the second in which they are closed: the herd is made by the
//! cure. So endings are booked: each gets the next place of a schedule that runs at a rate, and a
//! moment within that place that is drawn for it.
//!
//! ```text
//! place = max(now, next)         next = place + period / limit
//! until = place + U(0, period / limit)
//! ```
//!
//! Who is alone ends at once. Who recovers before its moment leaves its place empty; nothing is
//! kept of anybody. A schedule that is full for the next five minutes takes nobody more: who comes
//! then gets a moment drawn from those five minutes, so that no wait, and no memory that waits with
//! it, is without a bound; the rate is exceeded by as many.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `limit` per `period` | 100 in 1 s | 1 or more, in over 0 s up to 1 day | seawall-design |
//! | longest wait | 5 min | fixed | seawall-design |
//! | told to come again | 3 to 8 whole seconds | fixed | seawall-design |
//!
//! Known bad cases: the schedule is of each listener and each process, so a fleet ends as many
//! times more; a rate above that at which callers can come back spreads too little.

use core::time::Duration;

use crate::error::ConfigError;
use crate::rate::{RateOptions, RateParams};
use crate::rng::Rng;
use crate::time::Timestamp;

/// The options of a schedule of endings, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadOptions {
    /// How many in each `period`; 1 or more.
    pub limit: u32,
    /// In how long; over zero, up to a day.
    pub period: Duration,
}

impl Default for SpreadOptions {
    fn default() -> Self {
        Self { limit: ENDINGS, period: Duration::from_secs(1) }
    }
}

/// Checked [`SpreadOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadParams {
    options: SpreadOptions,
    /// From one place to the next.
    step: Duration,
}

impl SpreadParams {
    /// Checks the options.
    ///
    /// # Errors
    /// A limit or a period out of its range.
    pub fn new(options: SpreadOptions) -> Result<Self, ConfigError> {
        let SpreadOptions { limit, period } = options;
        RateParams::new(RateOptions { limit, period, burst: 1 })?;
        Ok(Self { options, step: period / limit })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> SpreadOptions {
        self.options
    }
}

impl Default for SpreadParams {
    fn default() -> Self {
        let options = SpreadOptions::default();
        Self { options, step: options.period / options.limit }
    }
}

/// A schedule of endings. 8 bytes; parameters are passed to each call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    /// Where the next free place begins.
    next: Timestamp,
}

impl Spread {
    /// A schedule without an entry.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: Timestamp::ZERO }
    }

    /// When one more may end; not before `now`. O(1).
    pub fn book(&mut self, now: Timestamp, params: &SpreadParams, rng: &mut impl Rng) -> Timestamp {
        let place = self.next.max(now);
        if place.since(now) > WAIT_MAX {
            return now.after(rng.duration_between(Duration::ZERO, WAIT_MAX));
        }
        self.next = place.after(params.step);
        place.after(rng.duration_between(Duration::ZERO, params.step))
    }
}

/// In how many seconds somebody who is refused or closed is told to come again: 3 to 8, drawn.
pub fn come_again(rng: &mut impl Rng) -> u64 {
    COME_AGAIN_MIN + rng.below(COME_AGAIN_SPAN)
}

/// In a second. Source: seawall-design.
const ENDINGS: u32 = 100;
/// Seconds. Source: seawall-design.
const COME_AGAIN_MIN: u64 = 3;
/// So many different numbers of them. Source: seawall-design.
const COME_AGAIN_SPAN: u64 = 6;
/// Source: seawall-design.
const WAIT_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::rng::SplitMix64;

    fn params(limit: u32, seconds: u64) -> SpreadParams {
        let period = Duration::from_secs(seconds);
        SpreadParams::new(SpreadOptions { limit, period }).unwrap()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO.after(Duration::from_secs(3600) + Duration::from_millis(ms))
    }

    #[test]
    fn who_is_alone_ends_within_one_place_of_the_schedule() {
        let (mut spread, mut rng, params) = (Spread::new(), SplitMix64::new(1), params(100, 1));
        for n in 0..50 {
            let until = spread.book(at(n * 1_000), &params, &mut rng);
            assert!((at(n * 1_000)..=at(n * 1_000 + 10)).contains(&until), "{n}");
        }
    }

    #[test]
    fn ten_thousand_that_stall_together_end_at_the_rate_and_none_before_now() {
        let (mut spread, mut rng, params) = (Spread::new(), SplitMix64::new(2), params(100, 1));
        let ends: Vec<_> = (0..10_000).map(|_| spread.book(at(0), &params, &mut rng)).collect();
        for second in 0..100 {
            let within =
                |end: &&Timestamp| (at(second * 1_000)..at(second * 1_000 + 1_000)).contains(*end);
            let count = ends.iter().filter(within).count();
            assert!((98..=102).contains(&count), "{count} in second {second}");
        }
        // Not all at the beginning of their place.
        let in_place = |end: &Timestamp| end.since(at(0)).as_millis() % 10;
        let late = ends.iter().filter(|end| in_place(end) >= 5).count();
        assert!((4_500..5_500).contains(&late), "{late}");
    }

    #[test]
    fn a_full_schedule_bounds_the_wait_and_gives_moments_of_its_whole_length() {
        let (mut spread, mut rng, params) = (Spread::new(), SplitMix64::new(3), params(1, 1));
        let ends: Vec<_> = (0..10_000).map(|_| spread.book(at(0), &params, &mut rng)).collect();
        let longest = ends.iter().max().unwrap().since(at(0));
        assert!(longest <= WAIT_MAX + Duration::from_secs(2), "{longest:?}");
        let drawn = &ends[302..];
        let early = drawn.iter().filter(|end| end.since(at(0)) < WAIT_MAX / 2).count();
        assert!((4_600..5_100).contains(&early), "{early} of {}", drawn.len());
        // It is emptied by time.
        let later = spread.book(at(400_000), &params, &mut rng);
        assert!(later.since(at(400_000)) <= Duration::from_secs(1));
    }

    #[test]
    fn another_rate_holds_for_who_comes_then_and_an_earlier_now_is_no_panic() {
        let (mut spread, mut rng) = (Spread::new(), SplitMix64::new(4));
        for _ in 0..10 {
            spread.book(at(0), &params(1, 1), &mut rng);
        }
        let next = spread.book(at(0), &params(1_000, 1), &mut rng);
        assert!((at(10_000)..=at(10_001)).contains(&next), "behind those that have a place");
        assert!(spread.book(Timestamp::ZERO, &params(1, 1), &mut rng) <= at(10_000));
        for (limit, period) in [(0, 1), (1, 0), (1, 90_000)] {
            let options = SpreadOptions { limit, period: Duration::from_secs(period) };
            assert!(SpreadParams::new(options).is_err(), "{limit} in {period} s");
        }
        assert_eq!(SpreadParams::new(SpreadOptions::default()), Ok(SpreadParams::default()));
    }
}
