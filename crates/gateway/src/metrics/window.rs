//! The share of retries among the calls of the last ten seconds.

use std::collections::VecDeque;
use std::time::Duration;

use seawall_policy::Timestamp;

/// Totals of one upstream at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) first_attempts: u64,
    pub(super) retries: u64,
}

/// Totals of all upstreams, once a second, for ten seconds.
#[derive(Debug, Default)]
pub(super) struct Window {
    kept: VecDeque<(Timestamp, Vec<Totals>)>,
}

impl Window {
    /// Whether a second has passed since totals were last kept.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.kept.back().is_none_or(|(at, _)| now.since(*at) >= STEP)
    }

    /// Keeps `totals`, and forgets what lies before the window but its nearest edge.
    pub(super) fn keep(&mut self, now: Timestamp, totals: Vec<Totals>) {
        self.kept.push_back((now, totals));
        while self.kept.len() > MOST_KEPT
            || self.kept.get(1).is_some_and(|(at, _)| is_past(now, *at))
        {
            self.kept.pop_front();
        }
    }

    /// The same past of other upstreams: `now` names, for each, its index here, if it has one.
    pub(super) fn of(&self, now: &[Option<usize>]) -> Self {
        let known = |kept: &Vec<Totals>, index: &Option<usize>| {
            index.and_then(|index| kept.get(index).copied()).unwrap_or_default()
        };
        let renamed = self
            .kept
            .iter()
            .map(|(at, kept)| (*at, now.iter().map(|index| known(kept, index)).collect()));
        Self { kept: renamed.collect() }
    }

    /// Retries over first attempts since the edge of the window; zero where there were none.
    pub(super) fn ratio(&self, now: Timestamp, upstream: usize, totals: Totals) -> f64 {
        let edge = self.kept.iter().rev().find(|(at, _)| is_past(now, *at));
        let then = edge
            .or_else(|| self.kept.front())
            .and_then(|(_, kept)| kept.get(upstream))
            .copied()
            .unwrap_or_default();
        let first_attempts = totals.first_attempts.saturating_sub(then.first_attempts);
        let retries = totals.retries.saturating_sub(then.retries);
        if first_attempts == 0 { 0.0 } else { real(retries) / real(first_attempts) }
    }
}

fn is_past(now: Timestamp, at: Timestamp) -> bool {
    now.since(at) >= LENGTH
}

/// A count as a float; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "what is shown so stays far below 2^53")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// Length of the window. Source: seawall-design.
const LENGTH: Duration = Duration::from_secs(10);
/// Between two kept totals.
const STEP: Duration = Duration::from_secs(1);
/// Eleven edges of ten seconds, and one that lies before.
const MOST_KEPT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kept: &[(u64, u64, u64)], now: u64, first_attempts: u64, retries: u64) -> f64 {
        let mut window = Window::default();
        for &(second, first_attempts, retries) in kept {
            let at = Timestamp::from_millis(second * 1000);
            if window.is_due(at) {
                window.keep(at, vec![Totals { first_attempts, retries }]);
            }
            assert!(window.kept.len() <= MOST_KEPT);
        }
        window.ratio(Timestamp::from_millis(now * 1000), 0, Totals { first_attempts, retries })
    }

    #[test]
    fn only_the_last_ten_seconds_count() {
        let storm: Vec<_> = (0..=30).map(|s| (s, 100 * s, 50 * s.min(15))).collect();
        let near = |ratio: f64, expected: f64| (ratio - expected).abs() < 1e-9;
        assert!(near(check(&storm[..11], 10, 1000, 500), 0.5));
        assert!(near(check(&storm[..21], 20, 2000, 750), 0.25));
        assert!(near(check(&storm, 30, 3000, 750), 0.0));
    }

    #[test]
    fn without_calls_the_share_is_zero_and_not_undefined() {
        assert!(check(&[], 5, 0, 0).abs() < f64::EPSILON);
        assert!(check(&[(0, 7, 3)], 5, 7, 3).abs() < f64::EPSILON);
    }

    #[test]
    fn a_process_that_is_rarely_looked_at_counts_from_the_last_look() {
        assert!((check(&[(0, 0, 0), (60, 100, 0)], 75, 200, 10) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_steps_back_keeps_nothing_twice() {
        let mut window = Window::default();
        window.keep(Timestamp::from_millis(5000), vec![Totals::default()]);
        assert!(!window.is_due(Timestamp::from_millis(1000)));
        assert!(!window.is_due(Timestamp::from_millis(5999)));
        assert!(window.is_due(Timestamp::from_millis(6000)));
    }
}
