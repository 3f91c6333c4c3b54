//! What is measured, and how sure it is.
//!
//! - [`Mean`]: mean and variance of values as they come. Source: welford.
//! - [`Interval`]: a mean over seeds with its 95 % interval (Student's t). One run is one value:
//!   within a run values depend on each other, and an interval over them would be too narrow.
//! - [`Times`]: a histogram of times to three digits; histograms merge without loss, where
//!   percentiles cannot be averaged.
//! - [`Level`]: the mean of a number over time, such as jobs in a queue.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use seawall_policy::Timestamp;

/// Mean and variance of values as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    n: u64,
    mean: f64,
    /// Sum of squares of the distances from the mean.
    squares: f64,
}

impl Mean {
    /// Takes a value in.
    pub fn add(&mut self, value: f64) {
        self.n += 1;
        let off = value - self.mean;
        self.mean += off / self.n as f64;
        self.squares += off * (value - self.mean);
    }

    /// How many values.
    #[must_use]
    pub const fn n(&self) -> u64 {
        self.n
    }

    /// Their mean; 0 of none.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The variance of what they are a sample of; 0 of fewer than two.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.n < 2 { 0.0 } else { self.squares / (self.n - 1) as f64 }
    }
}

/// A mean over seeds, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % interval; infinite for one seed.
    pub half: f64,
    /// How many seeds.
    pub n: u64,
}

impl Interval {
    /// Of one value a seed.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = Mean::default();
        let mut is_endless = false;
        for value in values {
            is_endless |= value.is_infinite() && value > 0.0;
            sum.add(value);
        }
        // With one that never ends, the mean is no number but that.
        if is_endless {
            return Self { mean: f64::INFINITY, half: f64::INFINITY, n: sum.n };
        }
        let half = match sum.n {
            0 | 1 => f64::INFINITY,
            n => student(n - 1) * libm::sqrt(sum.variance() / n as f64),
        };
        Self { mean: sum.mean, half, n: sum.n }
    }

    /// Whether it lies within the interval.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.mean - value).abs() <= self.half
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        write!(f, "{:.digits$} ± {:.digits$} ({} seeds)", self.mean, self.half, self.n)
    }
}

/// The 97.5th percentile of Student's t. From the table to 30; beyond by its first terms.
fn student(freedom: u64) -> f64 {
    let row = usize::try_from(freedom - 1).unwrap_or(usize::MAX);
    STUDENT.get(row).copied().unwrap_or_else(|| {
        let n = freedom as f64;
        1.959_964 + 2.372_3 / n + 2.822_5 / (n * n)
    })
}

/// A histogram of times, to three digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

impl Times {
    /// Of none so far.
    #[must_use]
    #[expect(clippy::expect_used, reason = "three digits are among those allowed")]
    pub fn new() -> Self {
        Self(Histogram::new(3).expect("three digits are allowed"))
    }

    /// Takes a time in.
    pub fn record(&mut self, time: Duration) {
        let recorded = self.0.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        debug_assert!(recorded.is_ok(), "the histogram grows as it has to");
    }

    /// Takes in all that another one holds.
    pub fn merge(&mut self, other: &Self) {
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok(), "the histogram grows as it has to");
    }

    /// How many.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of them, 0 to 1, does not exceed; zero of none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// The longest.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

/// The mean of a number over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    value: u64,
    since: Timestamp,
    begun: Timestamp,
    /// Value × nanoseconds.
    area: u128,
}

impl Level {
    /// From now on it is this.
    pub fn set(&mut self, now: Timestamp, value: u64) {
        self.area += self.now_held(now);
        (self.value, self.since) = (value, self.since.max(now));
    }

    /// Forgets what was before.
    pub fn begin(&mut self, now: Timestamp) {
        *self = Self { value: self.value, since: now, begun: now, area: 0 };
    }

    /// The mean from the begin until now; its value if no time has passed.
    #[must_use]
    pub fn mean(&self, now: Timestamp) -> f64 {
        let nanos = now.since(self.begun).as_nanos();
        if nanos == 0 {
            return self.value as f64;
        }
        (self.area + self.now_held(now)) as f64 / nanos as f64
    }

    fn now_held(&self, now: Timestamp) -> u128 {
        u128::from(self.value) * now.since(self.since).as_nanos()
    }
}

/// The 97.5th percentile of Student's t for 1 to 30 degrees of freedom. Source: student.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn mean_and_variance_are_those_of_the_values() {
        let mut sum = Mean::default();
        assert_eq!((sum.mean(), sum.variance()), (0.0, 0.0));
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            sum.add(value);
        }
        assert_eq!((sum.n(), sum.mean()), (8, 5.0));
        assert!((sum.variance() - 32.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn nineteen_of_twenty_intervals_contain_the_truth() {
        for seeds in [2_u64, 5, 20, 40] {
            let hits = (0..1_000_u32).filter(|trial| {
                let mut draw = Draws::new(seeds).stream(*trial, Purpose::Choice);
                let values = (0..seeds).map(|_| 3.0 + draw.normal());
                Interval::of(values.collect::<Vec<_>>()).contains(3.0)
            });
            // Five standard deviations: 5 × √(1000 × 0.95 × 0.05).
            let hits = hits.count();
            assert!(hits.abs_diff(950) < 35, "{seeds} seeds: {hits} of 1000");
        }
    }

    #[test]
    fn one_seed_says_nothing_about_how_sure_it_is() {
        assert!(Interval::of([3.0]).half.is_infinite());
        assert!(Interval::of([3.0]).contains(1e9));
        assert_eq!(format!("{:.1}", Interval::of([1.0, 3.0])), "2.0 ± 12.7 (2 seeds)");
    }

    #[test]
    fn merged_histograms_are_the_histogram_of_all() {
        let (mut all, mut parts) = (Times::new(), [Times::new(), Times::new()]);
        let mut draw = Draws::new(1).stream(0, Purpose::Service);
        for n in 0..10_000 {
            let time = Duration::from_secs_f64(draw.exponential());
            all.record(time);
            parts[n % 2].record(time);
        }
        let [mut one, other] = parts;
        one.merge(&other);
        assert_eq!(one.n(), 10_000);
        for share in [0.0, 0.5, 0.99, 0.999, 1.0] {
            assert_eq!(one.quantile(share), all.quantile(share));
        }
        let median = all.quantile(0.5).as_secs_f64();
        assert!((median - core::f64::consts::LN_2).abs() < 0.03, "{median}");
        assert_eq!(Times::new().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_level_is_averaged_over_time_since_it_began() {
        let mut level = Level::default();
        level.set(at(10), 4);
        level.set(at(30), 2);
        assert!((level.mean(at(40)) - 2.5).abs() < 1e-12);
        level.begin(at(40));
        assert!((level.mean(at(40)) - 2.0).abs() < 1e-12);
        level.set(at(50), 0);
        assert!((level.mean(at(60)) - 1.0).abs() < 1e-12);
    }
}
