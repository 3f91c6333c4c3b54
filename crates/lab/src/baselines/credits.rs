//! A server that says how many calls each of its clients may have under way: credits, as in
//! Breakwater. Source: breakwater.

use std::collections::VecDeque;
use std::time::Duration;

/// What a server has given out.
#[derive(Clone, Debug)]
pub(crate) struct Credits {
    /// The wait in its queue that it aims at.
    target: Duration,
    total: f64,
    /// By client.
    given: Vec<u32>,
    issued: u64,
    /// Clients that have some.
    active: u32,
    /// Clients that asked and got none, in their order.
    waiting: VecDeque<u32>,
}

impl Credits {
    /// None is given out, and there is one for each worker.
    pub(crate) fn new(clients: u32, workers: u32, target: Duration) -> Self {
        Self {
            target,
            total: workers.into(),
            given: vec![0; clients as usize],
            issued: 0,
            active: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Once in a round trip: one more for each thousand clients while the wait is below the
    /// target, else fewer, by 2 % for each time the target that it is above.
    pub(crate) fn update(&mut self, wait: Duration) {
        let target = self.target.as_secs_f64();
        let wait = wait.as_secs_f64();
        if wait < target {
            self.total += (0.001 * f64::from(self.active)).max(1.0);
        } else {
            self.total *= (1.0 - 0.02 * (wait - target) / target).max(0.5);
        }
        self.total = self.total.max(1.0);
    }

    /// A client is heard of, with so many calls that wait for a credit: how many it may have under
    /// way from now on.
    pub(crate) fn grant(&mut self, client: u32, demand: u32) -> u32 {
        let has = f64::from(self.given[client as usize]);
        let free = self.total - self.issued as f64;
        let over = (free / f64::from(self.active.max(1))).max(1.0);
        let wants = f64::from(demand) + over;
        let most = if free > 0.0 { has + free.ceil() } else { has - 1.0 };
        let now = whole(wants.min(most));
        let before = std::mem::replace(&mut self.given[client as usize], now);
        self.issued = self.issued + u64::from(now) - u64::from(before);
        self.active = self.active + u32::from(now > 0) - u32::from(before > 0);
        now
    }

    /// A client asks that has no credit.
    pub(crate) fn ask(&mut self, client: u32) {
        self.waiting.push_back(client);
    }

    /// The next of those that asked, if there is one for it.
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.total - self.issued as f64 > 0.0 { self.waiting.pop_front() } else { None }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(number: f64) -> u32 {
    number.max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(80);

    #[test]
    fn the_total_grows_by_one_below_the_target_and_shrinks_with_what_is_above() {
        let mut credits = Credits::new(10, 100, TARGET);
        credits.update(Duration::ZERO);
        assert!((credits.total - 101.0).abs() < 1e-9);
        credits.update(TARGET * 2);
        assert!((credits.total - 101.0 * 0.98).abs() < 1e-9);
        credits.update(TARGET * 100);
        assert!((credits.total - 101.0 * 0.98 * 0.5).abs() < 1e-9, "by half at most");
    }

    #[test]
    fn who_is_heard_of_gets_what_it_needs_and_one_more_while_there_is_any() {
        let mut credits = Credits::new(3, 4, TARGET);
        assert_eq!(credits.grant(0, 2), 4, "all are free, and it is alone");
        assert_eq!(credits.grant(1, 5), 0);
        credits.ask(1);
        assert_eq!(credits.next(), None);
        assert_eq!(credits.grant(0, 0), 1, "one less than it had, and no more than one over");
        assert_eq!(credits.next(), Some(1));
        assert_eq!(credits.grant(1, 1), 3);
        assert_eq!((credits.issued, credits.active), (4, 2));
    }
}
