//! Other people's queues: which of those whose turn has come are dropped.
//!
//! | rule | drops | source |
//! |---|---|---|
//! | codel | once the wait has been above `target` for an `interval`: one, and then the next after `interval`/√n each, until it is below | rfc-8289 |
//! | folly | who has waited longer than twice `target`, in an `interval` after one in which nobody waited less than `target` | folly-codel |
//! | m-n | who has waited longer than `m`, if the queue was not empty within `n` before it came; longer than `n`, if it was | queue-m-n |

use std::time::Duration;

use seawall_policy::Timestamp;

/// By which rule a queue drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRule {
    /// RFC 8289.
    Codel {
        /// A wait that is long enough for a busy server.
        target: Duration,
        /// How long it may be exceeded.
        interval: Duration,
    },
    /// As in folly.
    Folly {
        /// A wait that is long enough for a busy server.
        target: Duration,
        /// How long its least is looked at.
        interval: Duration,
    },
    /// As at Facebook.
    MAndN {
        /// The longest wait in a queue that is hardly ever empty.
        m: Duration,
        /// The longest wait in one that is, and how long it may not be.
        n: Duration,
    },
}

impl QueueRule {
    /// When who comes now is dropped at the latest; the queue was last empty then.
    pub(crate) fn until(&self, now: Timestamp, empty_at: Timestamp) -> Timestamp {
        match self {
            Self::Codel { .. } | Self::Folly { .. } => Timestamp::MAX,
            Self::MAndN { m, n } => now.after(if now.since(empty_at) > *n { *m } else { *n }),
        }
    }
}

/// What a rule remembers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueState {
    codel: Codel,
    folly: Folly,
}

/// The names are those of RFC 8289, section 5.3.
#[derive(Clone, Copy, Debug, Default)]
struct Codel {
    first_above_time: Option<Timestamp>,
    dropping: bool,
    drop_next: Timestamp,
    count: u32,
    last_count: u32,
    /// One was dropped: the time of the next is reckoned from the last, if it still has to be.
    advances: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Folly {
    interval_ends: Timestamp,
    least: Duration,
    is_overloaded: bool,
}

impl QueueState {
    /// Whether the one whose turn it is, here since then, is dropped; so many are left behind it.
    pub(crate) fn drops(
        &mut self,
        rule: &QueueRule,
        now: Timestamp,
        since: Timestamp,
        until: Timestamp,
        left: usize,
    ) -> bool {
        let wait = now.since(since);
        match rule {
            QueueRule::Codel { target, interval } => {
                self.codel.drops(now, wait, left, *target, *interval)
            }
            QueueRule::Folly { target, interval } => {
                self.folly.drops(now, wait, *target, *interval)
            }
            QueueRule::MAndN { .. } => now > until,
        }
    }

    /// A worker found nobody.
    pub(crate) const fn on_empty(&mut self) {
        (self.codel.first_above_time, self.codel.dropping) = (None, false);
    }
}

impl Codel {
    fn drops(
        &mut self,
        now: Timestamp,
        wait: Duration,
        left: usize,
        target: Duration,
        interval: Duration,
    ) -> bool {
        let may_drop = self.may_drop(now, wait, left, target, interval);
        let law = |from: Timestamp, count: u32| {
            let root = libm::sqrt(f64::from(count));
            from.after(interval.div_f64(root))
        };
        let advances = std::mem::take(&mut self.advances);
        if self.dropping {
            if !may_drop {
                self.dropping = false;
                return false;
            }
            if advances {
                self.drop_next = law(self.drop_next, self.count);
            }
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.advances = true;
            return true;
        }
        if !may_drop {
            return false;
        }
        let delta = self.count - self.last_count;
        let is_soon = now.since(self.drop_next) < interval * 16;
        self.count = if delta > 1 && is_soon { delta } else { 1 };
        (self.dropping, self.last_count) = (true, self.count);
        self.drop_next = law(now, self.count);
        true
    }

    /// Whether the wait has been above the target for an interval. One alone is none's trouble.
    fn may_drop(
        &mut self,
        now: Timestamp,
        wait: Duration,
        left: usize,
        target: Duration,
        interval: Duration,
    ) -> bool {
        if wait < target || left == 0 {
            self.first_above_time = None;
            return false;
        }
        let since = *self.first_above_time.get_or_insert(now.after(interval));
        now >= since
    }
}

impl Folly {
    fn drops(
        &mut self,
        now: Timestamp,
        wait: Duration,
        target: Duration,
        interval: Duration,
    ) -> bool {
        if now > self.interval_ends {
            self.is_overloaded = self.least > target;
            self.interval_ends = now.after(interval);
            self.least = wait;
            // More than one in an interval, before any is dropped.
            return false;
        }
        self.least = self.least.min(wait);
        self.is_overloaded && wait > target * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    const CODEL: QueueRule = QueueRule::Codel { target: ms_const(5), interval: ms_const(100) };

    const fn ms_const(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Which of those whose turn comes at these times, after such a wait, are dropped.
    fn dropped(rule: QueueRule, turns: impl IntoIterator<Item = (u64, u64)>) -> Vec<u64> {
        let mut state = QueueState::default();
        let mut is_dropped = |&(now, wait): &(u64, u64)| {
            state.drops(&rule, at(now), at(now - wait), Timestamp::MAX, 9)
        };
        turns.into_iter().filter(|turn| is_dropped(turn)).map(|(now, _)| now).collect()
    }

    #[test]
    fn codel_drops_after_an_interval_above_the_target_and_then_ever_faster() {
        // Above from 1,000 on; the first is dropped at 1,100. The law: 1,100 + 100, + 100/√2 =
        // 1,270.7, + 100/√3 = 1,328.4, + 100/√4 = 1,378.4, + 100/√5 = 1,423.1.
        let turns = (1_000..1_430).map(|now| (now, 6));
        assert_eq!(dropped(CODEL, turns), [1_100, 1_200, 1_271, 1_329, 1_379, 1_424]);
    }

    #[test]
    fn codel_stops_below_the_target_and_begins_again_where_it_was() {
        let above = |from: u64, until: u64| (from..until).map(|now| (now, 6));
        let turns: Vec<_> =
            above(1_000, 1_400).chain([(1_400, 4)]).chain(above(1_401, 1_700)).collect();
        // Five were dropped (1,100 to 1,379), the count having been 1 at first: it begins at 4,
        // and the next is due after 100/√4.
        assert_eq!(
            dropped(CODEL, turns),
            [1_100, 1_200, 1_271, 1_329, 1_379, 1_501, 1_551, 1_596, 1_637, 1_675]
        );
        // Long after, it begins at 1.
        let turns: Vec<_> =
            above(1_000, 1_400).chain([(1_400, 4)]).chain(above(9_000, 9_201)).collect();
        assert_eq!(dropped(CODEL, turns)[5..], [9_100, 9_200]);
    }

    #[test]
    fn codel_leaves_the_last_one_alone_and_forgets_when_nobody_waits() {
        let mut state = QueueState::default();
        let mut turn =
            |now: u64, left| state.drops(&CODEL, at(now), at(now - 50), Timestamp::MAX, left);
        assert_eq!([turn(1_000, 9), turn(1_100, 0), turn(1_101, 9)], [false; 3]);
        assert!(turn(1_201, 9));
        state.on_empty();
        let mut turn = |now: u64| state.drops(&CODEL, at(now), at(now - 50), Timestamp::MAX, 9);
        assert_eq!([turn(1_300), turn(1_399), turn(1_400)], [false, false, true]);
    }

    #[test]
    fn folly_drops_what_waited_twice_the_target_after_an_interval_that_never_was_below_it() {
        let folly = QueueRule::Folly { target: ms(5), interval: ms(100) };
        let turns = [
            // The first interval ends at 1,100 with a least wait of 6.
            (1_000, 8),
            (1_050, 6),
            (1_100, 30),
            // The first of the next interval is never dropped, nor 10 ms, which is not above 10.
            (1_101, 30),
            (1_102, 30),
            (1_103, 10),
            (1_104, 11),
            (1_105, 4),
            (1_201, 20),
            // Least was 4: not overloaded.
            (1_202, 30),
            (1_203, 30),
        ];
        assert_eq!(dropped(folly, turns), [1_102, 1_104, 1_201]);
    }

    #[test]
    fn m_and_n_give_long_while_the_queue_empties_and_short_when_it_does_not() {
        let rule = QueueRule::MAndN { m: ms(5), n: ms(100) };
        assert_eq!(rule.until(at(1_000), at(900)), at(1_100));
        assert_eq!(rule.until(at(1_001), at(900)), at(1_006));
        let mut state = QueueState::default();
        let mut drops = |now: u64| state.drops(&rule, at(now), at(1_001), at(1_006), 1);
        assert_eq!([drops(1_006), drops(1_007)], [false, true]);
    }
}
