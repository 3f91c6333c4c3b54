//! The knobs of outlier ejection: as given, and as checked.

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::rng::Rng;

/// The knobs of outlier ejection as a user gives them; [`OutlierParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierOptions {
    /// Between two looks at all endpoints; more than zero. Three of them in a row must find an
    /// endpoint worse. Default 1 s.
    pub interval: Duration,
    /// Of its last 32 calls, as many as an endpoint must have had to be compared; 1 to 32.
    /// Default 20.
    pub min_calls: u32,
    /// By how much its share of failures must lie above the mean of the others; above 0 %, up to
    /// 100 %, which only one that fails everything reaches while the others fail nothing.
    /// Default 30 %.
    pub failure_excess: Ratio,
    /// The same for slow calls. Default 50 %.
    pub slow_excess: Ratio,
    /// How many times as long as usual a slow call takes; at least 2. Default 3.
    pub slow_factor: u32,
    /// A shorter call is never slow; zero asks for nothing. Default 10 ms.
    pub slow_floor: Duration,
    /// The first ejection, before jitter; more than zero. Doubles with each in a row. Default 10 s.
    pub ejection_base: Duration,
    /// The longest, before jitter; at least `ejection_base`. Default 60 s.
    pub ejection_cap: Duration,
    /// Share of all endpoints that may be out, rounded down, but one may always be and the last
    /// never; above 0 %, up to 100 %. Default 50 %.
    pub max_ejected: Ratio,
    /// Calls that decide on a return, and the most that may be out; 1 to 32. Default 5.
    pub probes: u32,
}

impl Default for OutlierOptions {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            min_calls: MIN_CALLS,
            failure_excess: FAILURE_EXCESS,
            slow_excess: SLOW_EXCESS,
            slow_factor: SLOW_FACTOR,
            slow_floor: SLOW_FLOOR,
            ejection_base: EJECTION_BASE,
            ejection_cap: EJECTION_CAP,
            max_ejected: MAX_EJECTED,
            probes: PROBES,
        }
    }
}

/// Checked knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutlierParams(OutlierOptions);

impl OutlierParams {
    /// Checks `options`.
    ///
    /// # Errors
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: OutlierOptions) -> Result<Self, ConfigError> {
        for (field, value) in
            [("interval", options.interval), ("ejection_base", options.ejection_base)]
        {
            if value.is_zero() {
                return Err(ConfigError::new(field, "0s", "more than zero"));
            }
        }
        for (field, value) in [("min_calls", options.min_calls), ("probes", options.probes)] {
            if !(1..=u32::BITS).contains(&value) {
                return Err(ConfigError::new(field, value, "1 to 32"));
            }
        }
        for (field, value) in [
            ("failure_excess", options.failure_excess),
            ("slow_excess", options.slow_excess),
            ("max_ejected", options.max_ejected),
        ] {
            if value == Ratio::ZERO || value > Ratio::ONE {
                return Err(ConfigError::new(field, value, "more than 0% and at most 100%"));
            }
        }
        if options.slow_factor < 2 {
            return Err(ConfigError::new("slow_factor", options.slow_factor, "at least 2"));
        }
        if options.ejection_base > options.ejection_cap {
            return Err(ConfigError::new(
                "ejection_cap",
                format!("{:?}", options.ejection_cap),
                format!("at least ejection_base ({:?})", options.ejection_base),
            ));
        }
        Ok(Self(options))
    }

    /// Every knob, as checked.
    #[must_use]
    pub const fn options(&self) -> &OutlierOptions {
        &self.0
    }

    /// When a call is slow where calls usually take `usual`.
    #[must_use]
    pub fn slow_after(&self, usual: Duration) -> Duration {
        usual.saturating_mul(self.0.slow_factor).max(self.0.slow_floor)
    }

    /// How many of `count` endpoints may be out.
    #[must_use]
    pub fn most_out(&self, count: usize) -> usize {
        let share = usize::try_from(self.0.max_ejected.of(count as u64)).unwrap_or(count);
        share.max(1).min(count.saturating_sub(1))
    }

    /// The `level`-th ejection in a row, before jitter.
    pub(super) fn longest_ejection(&self, level: u32) -> Duration {
        let doublings = 2_u32.saturating_pow(level.saturating_sub(1));
        self.0.ejection_base.saturating_mul(doublings).min(self.0.ejection_cap)
    }

    /// How long the `level`-th ejection in a row lasts, drawn with jitter.
    pub(super) fn ejection(&self, level: u32, rng: &mut impl Rng) -> Duration {
        let longest = self.longest_ejection(level);
        rng.duration_between(JITTER_LOW.of_duration(longest), longest)
    }
}

/// Source: envoy-outlier. Differs: 1 s instead of 10 s, because three looks must agree.
const INTERVAL: Duration = Duration::from_secs(1);
/// Source: own choice: as many as a breaker asks for; of 32, so that half of them is a fact.
const MIN_CALLS: u32 = 20;
/// Source: own choice: of 32 calls, where half fail everywhere, three deviations and more.
const FAILURE_EXCESS: Ratio = Ratio::from_percent(30);
/// Source: own choice: the median of the endpoint is then `slow_factor` times the usual.
const SLOW_EXCESS: Ratio = Ratio::from_percent(50);
/// Source: own choice: with exponential times, an eighth of the calls of a healthy endpoint.
const SLOW_FACTOR: u32 = 3;
/// Source: own choice: below it the scheduler of a busy machine decides.
const SLOW_FLOOR: Duration = Duration::from_millis(10);
/// Source: envoy-outlier. Differs: 10 s instead of 30 s, because a few probes decide on the return.
const EJECTION_BASE: Duration = Duration::from_secs(10);
/// Source: envoy-outlier. Differs: 60 s instead of 300 s, for the same reason.
const EJECTION_CAP: Duration = Duration::from_secs(60);
/// Source: envoy-outlier. Differs: 50 % instead of 10 %, because only the difference from the
/// others ejects.
const MAX_EJECTED: Ratio = Ratio::from_percent(50);
/// Source: own choice: as many as close a breaker.
const PROBES: u32 = 5;
/// Applied after the cap, so that a fleet of callers stays spread there. Source: own choice: as the
/// breaker's.
const JITTER_LOW: Ratio = Ratio::from_percent(70);
