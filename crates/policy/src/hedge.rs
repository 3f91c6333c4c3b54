//! Decides whether a call that takes long may be sent a second time while the first is still out.
//!
//! Of a hundred calls that answer a page, the slowest decides, and one slow call in a hundred makes
//! two pages in three slow. A second copy, sent once most calls would have been answered, is slow
//! only if both are: `S(t)` becomes `S(t) · S(t − d)`. That helps against slowness by chance, a
//! pause or a lost packet, and does harm where the dependency is slow because it is full: there
//! every copy makes the next call slower. So a hedge must be
//!
//! - *safe*: an idempotent method, or one that carries a key;
//! - *ours*: this layer owns the retries, they are switched on, and an attempt is left, since a
//!   hedge is an attempt, with a number of its own, and `max_attempts` counts it;
//! - *possible*: the body is complete and kept, the answer would come before the deadline, and
//!   another endpoint than the first takes it at once (or the same, if that is allowed);
//! - *harmless*: the dependency is not busy, by the share of the bulkhead's limit in flight and by
//!   [what can be told from the times](crate::utilisation::Utilisation);
//! - *paid for*: from the retry budget, and from an allowance of `max_extra` per first attempt.
//!
//! The first final answer wins and the other attempt is cancelled: that says nothing to breaker and
//! budget, and counts in the estimate as "at least this slow". An answer worth a retry waits for
//! the other attempt; so does a 409 to one of two keyed requests, which may mean just the other.
//!
//! The delay is a quantile of the last 25 to 30 s, read from the histogram of the
//! [estimate](crate::ServiceTimes) at most four times a second, and between that one comparison a
//! call. It is rounded up to the edge of its bucket, so a little fewer calls pass it than its name
//! says.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `delay` | p98 | p50 to p99.9, or a fixed time | tail-at-scale |
//! | `delay_min` | 1 ms | any | seawall-defaults |
//! | `max_extra` | 2 % of the first attempts | above 0 to 100 % | tail-at-scale |
//! | `max_load` | 80 % | above 0 to 100 % | seawall-design |
//! | `same_endpoint` | no | | seawall-design |
//!
//! Known bad cases: slowness that all endpoints share is paid for and not cured. A delay past which
//! more calls come than `max_extra` pays for spends the allowance on those that would have been
//! answered soon, not on the slowest.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::budget::{BudgetOptions, BudgetParams, SuccessBudget};
use crate::error::ConfigError;
use crate::estimate::ServiceTimes;
use crate::ratio::Ratio;
use crate::time::Timestamp;

/// How long the first attempt is given alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeDelay {
    /// This share of the recent calls would have been answered. Nothing is hedged while fewer than
    /// 20 are known.
    Quantile(Ratio),
    /// A fixed time.
    Fixed(Duration),
}

/// When a second attempt in parallel is worth its price, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeOptions {
    /// How long the first attempt is given alone; default p98. A quantile is within 50 % to
    /// 99.9 %, a time above zero.
    pub delay: HedgeDelay,
    /// The least such time, whatever the quantile says; default 1 ms.
    pub delay_min: Duration,
    /// Hedges per first attempt, above 0 and at most 100 %; default 2 %. Up to ten are saved up
    /// while none is needed.
    pub max_extra: Ratio,
    /// The load from which on nothing is hedged, above 0 and at most 100 %; default 80 %. At 100 %
    /// only a full bulkhead stands in the way.
    pub max_load: Ratio,
    /// Whether a hedge may go to the endpoint of the first attempt where no other takes it: for
    /// one address with several servers behind it. Default no.
    pub same_endpoint: bool,
}

impl Default for HedgeOptions {
    fn default() -> Self {
        Self {
            delay: HedgeDelay::Quantile(DELAY),
            delay_min: DELAY_MIN,
            max_extra: MAX_EXTRA,
            max_load: MAX_LOAD,
            same_endpoint: false,
        }
    }
}

/// Checked [`HedgeOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeParams {
    options: HedgeOptions,
    /// What `max_extra` pays, as a budget of its own.
    allowance: BudgetParams,
}

impl HedgeParams {
    /// Checks the options.
    ///
    /// # Errors
    /// A quantile outside 50 % to 99.9 %, a fixed delay of zero or below `delay_min`, or a share of
    /// zero or above 100 %.
    pub fn new(options: HedgeOptions) -> Result<Self, ConfigError> {
        match options.delay {
            HedgeDelay::Quantile(share) if !(LEAST_DELAY..=MOST_DELAY).contains(&share) => {
                return Err(ConfigError::new("delay", share, "p50 to p99.9, or a time"));
            }
            HedgeDelay::Fixed(delay) if delay.is_zero() => {
                return Err(ConfigError::new("delay", "0", "a time above zero, or p50 to p99.9"));
            }
            HedgeDelay::Fixed(delay) if delay < options.delay_min => {
                let allowed = format!("at least delay_min, which is {:?}", options.delay_min);
                return Err(ConfigError::new("delay", format!("{delay:?}"), allowed));
            }
            HedgeDelay::Quantile(_) | HedgeDelay::Fixed(_) => {}
        }
        for (field, share) in [("max_extra", options.max_extra), ("max_load", options.max_load)] {
            if share == Ratio::ZERO || share > Ratio::ONE {
                return Err(ConfigError::new(field, share, "above 0% and at most 100%"));
            }
        }
        let allowance = BudgetParams::new(BudgetOptions::Seawall(SuccessBudget {
            ratio: options.max_extra,
            initial: 0,
            cap_floor: SAVED_UP,
            reserve_per_second: 0,
        }))?;
        Ok(Self { options, allowance })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> HedgeOptions {
        self.options
    }

    /// A sentence for a person if more calls pass the delay than `max_extra` pays for.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let HedgeOptions { delay, max_extra, .. } = self.options;
        let HedgeDelay::Quantile(share) = delay else { return None };
        let past = Ratio::from_millionths(Ratio::SCALE - share.millionths());
        (past > max_extra).then(|| {
            format!(
                "{past} of the calls pass a delay of {share} of them and max_extra pays for \
                 {max_extra}: it will be spent before the slowest come"
            )
        })
    }

    pub(crate) const fn allowance(&self) -> &BudgetParams {
        &self.allowance
    }
}

/// Why a hedge that was due was not sent. Each is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HedgeRefusal {
    /// Retries are switched off.
    RetriesOff,
    /// Fewer attempts are allowed by now.
    Attempts,
    /// The request body is not complete, or is not kept.
    Body,
    /// It would not be answered before the deadline.
    Deadline,
    /// The dependency is busy.
    Load,
    /// No other endpoint takes it now.
    Endpoint,
    /// It would have to wait for its place, or for its rate.
    Full,
    /// `max_extra` is spent.
    MaxExtra,
    /// The retry budget is empty.
    Budget,
}

impl HedgeRefusal {
    /// Every reason, for tables of metrics.
    pub const ALL: [Self; 9] = [
        Self::RetriesOff,
        Self::Attempts,
        Self::Body,
        Self::Deadline,
        Self::Load,
        Self::Endpoint,
        Self::Full,
        Self::MaxExtra,
        Self::Budget,
    ];

    /// Its place in [`HedgeRefusal::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label used in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetriesOff => "retries_off",
            Self::Attempts => "attempts",
            Self::Body => "body",
            Self::Deadline => "deadline",
            Self::Load => "load",
            Self::Endpoint => "endpoint",
            Self::Full => "full",
            Self::MaxExtra => "max_extra",
            Self::Budget => "budget",
        }
    }
}

/// A quantile of recent times that is asked for at every call: read anew four times a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentQuantile {
    due: Timestamp,
    known: Option<Duration>,
}

impl RecentQuantile {
    /// The quantile as it was at most 250 ms ago.
    pub(crate) fn read(
        &mut self,
        now: Timestamp,
        times: &ServiceTimes,
        share: Ratio,
    ) -> Option<Duration> {
        if now >= self.due {
            self.known = times.quantile(now, share);
            self.due = now.after(REFRESH);
        }
        self.known
    }
}

/// As many as pass it are what `max_extra` pays for. Source: tail-at-scale. Differs: it says p95
/// and 5 %; its example of 2 % begins at 10 ms, where 2 % are left.
const DELAY: Ratio = Ratio::from_percent(98);
const LEAST_DELAY: Ratio = Ratio::from_percent(50);
const MOST_DELAY: Ratio = Ratio::from_millionths(999_000);
/// Timers of tokio go off on whole milliseconds. Source: seawall-defaults.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Source: tail-at-scale (2 % more requests took its p99.9 from 1,800 ms to 74 ms).
const MAX_EXTRA: Ratio = Ratio::from_percent(2);
/// Source: seawall-design.
const MAX_LOAD: Ratio = Ratio::from_percent(80);
/// Hedges that are saved up while none is needed. Source: seawall-defaults (the budget's floor).
const SAVED_UP: u32 = 10;
/// How old a quantile may be. Source: seawall-defaults.
const REFRESH: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: HedgeOptions) -> String {
        HedgeParams::new(options).map_or_else(|error| format!("{error}"), |_| String::new())
    }

    #[test]
    fn options_that_can_never_take_effect_are_refused_with_their_range() {
        let fine = HedgeOptions::default();
        assert_eq!(refused(fine), "");
        for share in [499_999, 999_001] {
            let delay = HedgeDelay::Quantile(Ratio::from_millionths(share));
            let text = refused(HedgeOptions { delay, ..fine });
            assert!(text.contains("delay") && text.contains("p50 to p99.9"), "{text}");
        }
        for share in [500_000, 999_000] {
            let delay = HedgeDelay::Quantile(Ratio::from_millionths(share));
            assert_eq!(refused(HedgeOptions { delay, ..fine }), "");
        }
        let delay = HedgeDelay::Fixed(Duration::ZERO);
        assert!(refused(HedgeOptions { delay, ..fine }).contains("a time above zero"));
        let least = Duration::from_millis(30);
        let fixed = |delay| refused(HedgeOptions { delay, delay_min: least, ..fine });
        let text = fixed(HedgeDelay::Fixed(Duration::from_millis(29)));
        assert!(
            text.contains("29ms") && text.contains("at least delay_min, which is 30ms"),
            "{text}"
        );
        assert_eq!(fixed(HedgeDelay::Fixed(least)), "");
        for share in [Ratio::ZERO, Ratio::from_millionths(1_000_001)] {
            let text = refused(HedgeOptions { max_extra: share, ..fine });
            assert!(text.contains("max_extra") && text.contains("at most 100%"), "{text}");
            let text = refused(HedgeOptions { max_load: share, ..fine });
            assert!(text.contains("max_load"), "{text}");
        }
    }

    #[test]
    fn a_delay_that_more_calls_pass_than_are_paid_for_is_warned_of() {
        let advice = |percent, extra| {
            let delay = HedgeDelay::Quantile(Ratio::from_percent(percent));
            let max_extra = Ratio::from_percent(extra);
            let options = HedgeOptions { delay, max_extra, ..HedgeOptions::default() };
            HedgeParams::new(options).unwrap().advice()
        };
        assert_eq!(advice(98, 2), None);
        assert_eq!(advice(95, 5), None);
        assert!(advice(95, 2).unwrap().contains("5% of the calls pass"));
    }

    #[test]
    fn the_quantile_is_read_again_after_250_ms_and_not_before() {
        let mut times = ServiceTimes::new();
        let mut recent = RecentQuantile::default();
        let at = Timestamp::from_millis;
        let median = Ratio::from_percent(50);
        let mut read = |times: &ServiceTimes, now| recent.read(now, times, median);
        assert_eq!(read(&times, at(0)), None);
        (0..100).for_each(|_| times.record(at(0), Duration::from_millis(8)));
        assert_eq!(read(&times, at(249)), None);
        let known = read(&times, at(250)).unwrap();
        assert!(known >= Duration::from_millis(8) && known <= Duration::from_millis(10));
        (0..1000).for_each(|_| times.record(at(251), Duration::from_millis(50)));
        assert_eq!(read(&times, at(499)), Some(known));
        assert!(read(&times, at(500)).unwrap() >= Duration::from_millis(50));
    }

    #[test]
    fn every_reason_stands_at_its_index() {
        for (index, reason) in HedgeRefusal::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index, "{}", reason.as_str());
        }
    }
}
