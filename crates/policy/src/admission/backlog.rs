//! Whether a queue stands, or only a burst goes through it.
//!
//! A burst fills a queue and leaves; a standing queue does not empty, delays everybody and helps
//! nobody. An instant does not tell them apart and neither does utilisation. The *least* wait of
//! an interval does (van Jacobson's observation behind CoDel): a queue that was empty once within
//! it has a least wait of zero.
//!
//! ```text
//! strain    = wait of the oldest / its target, in thousandths, at each departure
//! target    = min(500 ms, a quarter of the patience)
//! least     = the least strain of an interval of 100 ms
//! backlog   from   two intervals in a row with least > 1, the second not below the two before it
//!           until  two intervals in a row with least ≤ ½
//! shed      who waited longer than the target, for an interval; from then on twice the target
//! ```
//!
//! - **A least below the last one is a burst that drains**, and no backlog. It is compared with
//!   two intervals, because one of them alone may be low by chance.
//! - **A tenant's own queue** is too short a look: with 30 requests a second the wait of its oldest
//!   is a matter of chance. It does not begin to stand while all of its priority together drain,
//!   which is told by what they cost, now and at the end of the two intervals before.
//! - **While nothing leaves** there is nothing to compare: a stall of 600 ms is not yet a backlog.
//!   After 1 s without a departure the age of the oldest counts.
//! - **Once it stands**, what is served is the newest, so the wait of the *oldest* is looked at. It
//!   is kept at twice the target by shedding, and falls to half of it when the queue empties by
//!   itself. Shedding to the target and leaving below it would flap: shed, it looks healthy.

use crate::time::Timestamp;

/// What one queue, of a tenant or of a class, came to lately. 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    /// When the interval is over, in nanoseconds.
    ends: u64,
    /// When somebody left last, or when it began.
    left_at: u64,
    /// The least strain of the interval; [`UNKNOWN`] if nobody left.
    least: u32,
    /// Those of the two intervals before, the last first.
    before: [u32; 2],
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy,
    /// In the first interval of a backlog.
    Found,
    Standing {
        /// Intervals in a row, up to the last, in which it was low.
        low: u8,
    },
}

impl Backlog {
    /// Of a queue that is empty so far.
    pub(super) fn new(now: Timestamp) -> Self {
        let now = now.as_nanos();
        Self {
            ends: end_of(now),
            left_at: now,
            least: UNKNOWN,
            before: [UNKNOWN; 2],
            state: State::Healthy,
        }
    }

    /// Whether there is more than a burst: the newest goes first, and the oldest are shed.
    pub(super) const fn stands(&self) -> bool {
        !matches!(self.state, State::Healthy)
    }

    /// Whether an entry so strained is shed.
    pub(super) const fn sheds(&self, strain: u32) -> bool {
        match self.state {
            State::Healthy => false,
            State::Found => strain > TARGET,
            State::Standing { .. } => strain > TARGET_STANDING,
        }
    }

    /// Whether there is an interval to be judged.
    pub(super) const fn is_over(&self, now: Timestamp) -> bool {
        now.as_nanos() >= self.ends
    }

    /// Somebody leaves, and the queue's oldest was so strained; or it is empty, which is 0.
    pub(super) fn observe(&mut self, now: Timestamp, strain: u32) {
        if self.is_over(now) {
            self.roll(now, Some(strain), true);
        }
        self.least = self.least.min(strain);
        self.left_at = self.left_at.max(now.as_nanos());
    }

    /// Judges the interval if it is over. `oldest`: the strain of who waits longest; `None` if
    /// nobody waits. `may_begin`: whether a backlog may be found.
    pub(super) fn roll(&mut self, now: Timestamp, oldest: Option<u32>, may_begin: bool) {
        if !self.is_over(now) {
            return;
        }
        let now = now.as_nanos();
        let nothing_leaves = now.saturating_sub(self.left_at) >= STUCK;
        let least = match (self.least, oldest) {
            (_, None) => 0,
            (UNKNOWN, Some(strain)) if nothing_leaves => strain,
            (least, Some(_)) => least,
        };
        self.state = self.judge(least, may_begin);
        self.before = [least, self.before[0]];
        self.least = UNKNOWN;
        self.ends = end_of(now);
    }

    fn judge(&self, least: u32, may_begin: bool) -> State {
        let [last, before_last] = self.before;
        let is_above = |least: u32| least != UNKNOWN && least > TARGET;
        let is_low = least <= TARGET_LEFT;
        let drains = least < last || (before_last != UNKNOWN && least < before_last);
        match self.state {
            State::Healthy if may_begin && is_above(least) && is_above(last) && !drains => {
                State::Found
            }
            State::Healthy => State::Healthy,
            State::Standing { low } if is_low && low + 1 == LOW_MAX => State::Healthy,
            State::Standing { low } if is_low => State::Standing { low: low + 1 },
            State::Found if is_low => State::Standing { low: 1 },
            State::Found | State::Standing { .. } => State::Standing { low: 0 },
        }
    }
}

/// Intervals end together, so that a class of one tenant is judged as that one is.
const fn end_of(now: u64) -> u64 {
    (now / INTERVAL + 1).saturating_mul(INTERVAL)
}

/// Nobody left in the interval.
const UNKNOWN: u32 = u32::MAX;
/// In thousandths of an entry's target. Source: seawall-defaults (docs/overload.md).
const TARGET: u32 = 1_000;
/// Source: seawall-defaults (docs/overload.md).
const TARGET_STANDING: u32 = 2_000;
/// Source: seawall-defaults (docs/overload.md).
const TARGET_LEFT: u32 = 500;
/// Source: seawall-defaults (docs/overload.md).
const LOW_MAX: u8 = 2;
/// 100 ms. Source: folly-codel.
pub(super) const INTERVAL: u64 = 100_000_000;
/// 1 s. Source: seawall-defaults.
pub(super) const STUCK: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// Whether it stands after each interval, of which these are the least strains; `None`: nobody
    /// leaves, though one waits that came at 0.
    fn stands(leasts: &[Option<u32>]) -> std::vec::Vec<bool> {
        let mut backlog = Backlog::new(at(0));
        let mut now = 0;
        let each = leasts.iter().map(|least| {
            if let Some(least) = least {
                backlog.observe(at(now + 1), *least + 300);
                backlog.observe(at(now + 50), *least);
            }
            now += 100;
            backlog.roll(at(now), Some(u32::try_from(now * 2).unwrap()), true);
            backlog.stands()
        });
        each.collect()
    }

    #[test]
    fn two_intervals_above_the_target_are_a_backlog_and_one_is_not() {
        assert_eq!(stands(&[Some(1_001), Some(1_000), Some(1_001), Some(1_000)]), [false; 4]);
        assert_eq!(stands(&[Some(1_001), Some(1_001)]), [false, true]);
        assert_eq!(stands(&[Some(500), Some(1_400), Some(3_000)]), [false, false, true]);
    }

    #[test]
    fn a_least_below_that_of_either_interval_before_is_a_burst_that_drains() {
        let drains = [5_000, 4_500, 4_000, 3_500, 3_000].map(Some);
        assert_eq!(stands(&drains), [false; 5]);
        // One that is high by chance is no backlog either: it is below the one before the last.
        let by_chance = [5_000, 4_500, 4_600, 3_500, 3_000].map(Some);
        assert_eq!(stands(&by_chance), [false; 5]);
        let stays = [5_000, 3_000, 3_000, 3_000].map(Some);
        assert_eq!(stands(&stays), [false, false, false, true]);
    }

    #[test]
    fn it_ends_with_two_intervals_of_half_the_target_and_not_before() {
        let leasts = [1_001, 1_002, 500, 501, 500, 0, 501].map(Some);
        let (yes, no) = (true, false);
        assert_eq!(stands(&leasts), [no, yes, yes, yes, yes, no, no]);
    }

    #[test]
    fn while_nothing_leaves_age_counts_after_a_second() {
        let nobody = [None; 12];
        let mut expected = [false; 12];
        // The ages at 1,000 and 1,100 ms are the first two that count.
        (expected[10], expected[11]) = (true, true);
        assert_eq!(stands(&nobody), expected);
    }

    #[test]
    fn intervals_in_which_nobody_waits_end_it() {
        let mut backlog = Backlog::new(at(0));
        for now in [0, 100, 200] {
            backlog.observe(at(now), 2_000);
        }
        assert!(backlog.stands());
        backlog.roll(at(300), None, true);
        assert!(backlog.stands());
        backlog.roll(at(400), None, true);
        assert!(!backlog.stands());
    }

    #[test]
    fn it_sheds_to_the_target_at_first_and_then_to_twice_that() {
        let mut backlog = Backlog::new(at(0));
        assert!(!backlog.sheds(9_000));
        backlog.observe(at(0), 1_200);
        backlog.observe(at(100), 1_200);
        backlog.roll(at(200), Some(1_200), true);
        assert_eq!([1_000, 1_001].map(|strain| backlog.sheds(strain)), [false, true]);
        backlog.roll(at(300), Some(1_000), true);
        assert_eq!([1_001, 2_000, 2_001].map(|strain| backlog.sheds(strain)), [false, false, true]);
    }
}
