//! Decides whether a connection abandons requests faster than a caller in good faith would.
//!
//! A request that is abandoned costs us its admission and perhaps an attempt upstream, and costs
//! the caller two small frames; HTTP/2 lets one connection repeat that without bound (rapid
//! reset). More than 100 in 10 s is taken for that. Source: CVE-2023-44487.

use std::collections::VecDeque;

use seawall_policy::Timestamp;

/// When the last requests of a connection were abandoned; 101 at most are kept.
#[derive(Debug, Default)]
pub(super) struct AbandonWindow(VecDeque<Timestamp>);

impl AbandonWindow {
    /// Notes an abandoned request and says whether the limit is now exceeded.
    pub(super) fn record(&mut self, now: Timestamp) -> bool {
        while self.0.front().is_some_and(|&first| now.since(first) >= WINDOW) {
            self.0.pop_front();
        }
        if self.0.len() <= ABANDONED_MAX {
            self.0.push_back(now);
        }
        self.0.len() > ABANDONED_MAX
    }
}

/// Abandoned requests within [`WINDOW`] that are put up with.
const ABANDONED_MAX: usize = 100;
const WINDOW: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_in_ten_seconds_are_put_up_with_and_one_more_is_not() {
        let mut window = AbandonWindow::default();
        for _ in 0..100 {
            assert!(!window.record(Timestamp::from_millis(1)));
        }
        assert!(window.record(Timestamp::from_millis(10_000)));
        assert!(window.record(Timestamp::from_millis(10_000)));
    }

    #[test]
    fn what_is_ten_seconds_old_is_forgotten() {
        let mut window = AbandonWindow::default();
        for millis in 0..10_000_u64 {
            // Ten a second are a hundred in ten seconds.
            assert!(!window.record(Timestamp::from_millis(millis * 100)), "{millis}");
        }
        assert!(window.0.len() <= 101);
    }

    #[test]
    fn an_earlier_now_is_no_trouble() {
        let mut window = AbandonWindow::default();
        assert!(!window.record(Timestamp::from_millis(50_000)));
        assert!(!window.record(Timestamp::from_millis(1)));
    }
}
