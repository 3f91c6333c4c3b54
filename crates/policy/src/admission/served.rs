//! How fast the queue is served, and how long its callers wait before they leave.
//!
//! ```text
//! rate    = cost of what was started / time in which somebody waited, over 25 to 30 s
//! learned = the wait that one in ten leavers does not exceed
//! ```
//!
//! Only the time counts in which somebody waited: a queue that is empty does not say how fast it
//! could be served. Of the time between two starts sixteen times the mean or 100 ms count at most,
//! so that a stall is no slowness; but if nothing starts for a second, all of it, from then on.
//! Both figures follow the rule for estimates: without 20 samples younger than 30 s there is none.
//! Leavers are believed if they are one in twenty of those who came, so that a few who close a
//! window do not set everybody's patience.

use core::time::Duration;

use super::backlog::{INTERVAL, STUCK};
use crate::estimate::ServiceTimes;
use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

/// What was started out of the queue lately.
#[derive(Debug)]
pub(super) struct Served {
    generations: [Generation; GENERATIONS],
    /// All of them together.
    sum: Generation,
    /// Number of the newest, counted from the clock's origin.
    newest: u64,
    /// Up to when time has passed.
    at: Timestamp,
    /// Nanoseconds since the last start in which somebody waited, counted with the next.
    gap: u64,
    leavers: ServiceTimes,
    learned: Option<Duration>,
    /// When the patience is looked at again.
    look_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Generation {
    nanos: u64,
    cost: u64,
    started: u64,
    came: u64,
}

impl Generation {
    const NONE: Self = Self { nanos: 0, cost: 0, started: 0, came: 0 };
}

impl Served {
    pub(super) const fn new() -> Self {
        Self {
            generations: [Generation::NONE; GENERATIONS],
            sum: Generation::NONE,
            newest: 0,
            at: Timestamp::ZERO,
            gap: 0,
            leavers: ServiceTimes::new(),
            learned: None,
            look_at: Timestamp::ZERO,
        }
    }

    /// Time has passed; `is_waited`: meanwhile somebody waited.
    pub(super) fn advance(&mut self, now: Timestamp, is_waited: bool) {
        let generation = now.as_nanos() / GENERATION_NANOS;
        let passed = generation.saturating_sub(self.newest);
        if passed > 0 {
            self.forget(passed);
        }
        let elapsed = nanos(now.since(self.at));
        self.at = self.at.max(now);
        if is_waited {
            self.gap = self.gap.saturating_add(elapsed);
        }
    }

    /// Somebody comes.
    pub(super) fn come(&mut self) {
        self.add(Generation { came: 1, ..Generation::NONE });
    }

    /// One that waited is started.
    pub(super) fn start(&mut self, cost: u32) {
        let Generation { nanos, started, .. } = self.sum;
        let most = nanos.checked_div(started).map_or(0, |mean| INTERVAL.max(GAP_MEANS * mean));
        let gap = core::mem::take(&mut self.gap);
        let nanos = if gap < STUCK { gap.min(most) } else { gap };
        // Of the first it is not known how long it took.
        let cost = if started > 0 { u64::from(cost) } else { 0 };
        self.add(Generation { nanos, cost, started: 1, came: 0 });
    }

    /// A caller has left after so long.
    pub(super) fn leave(&mut self, now: Timestamp, waited: Duration) {
        self.leavers.record(now, waited);
    }

    /// How long it takes to start so much; `None` if that is not known.
    pub(super) fn time_for(&self, cost: u64) -> Option<Duration> {
        let Generation { nanos, cost: of_cost, started, .. } = self.sum;
        if started < SAMPLES_MIN {
            return None;
        }
        let nanos = if self.gap < STUCK { nanos } else { nanos.saturating_add(self.gap) };
        let time = u128::from(cost) * u128::from(nanos) / u128::from(of_cost.max(1));
        Some(Duration::from_nanos(u64::try_from(time).unwrap_or(u64::MAX)))
    }

    /// How long callers wait at the most, as those have shown who left.
    pub(super) fn learned(&mut self, now: Timestamp) -> Option<Duration> {
        if now >= self.look_at {
            self.look_at = now.after(Duration::from_nanos(INTERVAL));
            let left = self.leavers.samples(now);
            let is_usual = u64::from(left) * LEAVERS_ONE_IN >= self.sum.came;
            let quantile = || self.leavers.quantile(now, LEAVERS);
            self.learned = if is_usual { quantile() } else { None };
        }
        self.learned
    }

    /// Begins a generation, so many after the last, and forgets those that are too old by then.
    fn forget(&mut self, passed: u64) {
        for number in (1..=passed.min(GENERATIONS as u64)).map(|ahead| self.newest + ahead) {
            let old = core::mem::replace(&mut self.generations[place(number)], Generation::NONE);
            self.sum.nanos -= old.nanos;
            self.sum.cost -= old.cost;
            self.sum.started -= old.started;
            self.sum.came -= old.came;
        }
        self.newest += passed;
    }

    fn add(&mut self, more: Generation) {
        for to in [&mut self.generations[place(self.newest)], &mut self.sum] {
            to.nanos += more.nanos;
            to.cost += more.cost;
            to.started += more.started;
            to.came += more.came;
        }
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % GENERATIONS as u64).unwrap_or(0)
}

/// Source: seawall-defaults (as in `estimate.rs`).
const SAMPLES_MIN: u64 = 20;
/// Six end before 30 s.
const GENERATIONS: usize = 6;
const GENERATION_NANOS: u64 = 5_000_000_000;
/// Times the mean. Source: seawall-defaults (ten times as slow is seen at once).
const GAP_MEANS: u64 = 16;
/// Source: seawall-defaults.
const LEAVERS: Ratio = Ratio::from_percent(10);
/// Leavers are one in so many at least. Source: seawall-defaults.
const LEAVERS_ONE_IN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Twenty starts of 2 units, each 10 ms after somebody began to wait, each 100 ms; and one
    /// before them, of which it is not known how long it took.
    fn served() -> Served {
        let mut served = Served::new();
        served.advance(at(0), true);
        served.start(9);
        for number in 1..=20 {
            assert_eq!(served.time_for(1).is_some(), number == 20);
            served.advance(at(number * 100 - 10), false);
            served.advance(at(number * 100), true);
            served.start(2);
        }
        served
    }

    #[test]
    fn a_rate_takes_twenty_starts_and_only_the_time_in_which_somebody_waited() {
        let mut served = served();
        assert_eq!(served.time_for(2), Some(ms(10)));
        assert_eq!(served.time_for(100), Some(ms(500)));
        served.advance(at(29_999), false);
        assert!(served.time_for(1).is_some());
        served.advance(at(30_000), false);
        assert_eq!(served.time_for(1), None, "older than 25 s");
    }

    #[test]
    fn a_stall_is_no_slowness_until_it_has_lasted_for_a_second() {
        let mut served = served();
        served.advance(at(2_999), true);
        assert_eq!(served.time_for(2), Some(ms(10)));
        served.advance(at(3_000), true);
        assert_eq!(served.time_for(2), Some(ms(60)), "1.2 s for twenty");
        let mut short = self::served();
        short.advance(at(2_600), true);
        short.start(2);
        // Sixteen times the mean of 200 ms for 21, and not 600 ms.
        let counted = short.time_for(42).unwrap();
        assert!((ms(351)..ms(353)).contains(&counted), "{counted:?}");
        served.start(2);
        assert_eq!(served.time_for(42), Some(ms(1_200)), "all of it");
    }

    #[test]
    fn patience_is_learned_from_leavers_if_they_are_not_few() {
        let mut served = Served::new();
        (0..400).for_each(|_| served.come());
        (0..19).for_each(|_| served.leave(at(0), ms(150)));
        assert_eq!(served.learned(at(0)), None, "19 of 400");
        served.leave(at(0), ms(1_000));
        assert_eq!(served.learned(at(50)), None, "looked at once in an interval");
        let learned = served.learned(at(100)).unwrap();
        assert!((ms(150)..=ms(188)).contains(&learned), "{learned:?}: the edge of its bucket");
        (0..1).for_each(|_| served.come());
        assert_eq!(served.learned(at(200)), None, "20 of 401");
    }
}
