//! The knobs of a breaker: as given, and as checked.

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::rng::Rng;

/// What a breaker does with its judgement; an operator's switch, kept apart from its state.
///
/// The judgement goes on below every mode except [`Disabled`](Self::Disabled), so switching back
/// to [`Normal`](Self::Normal) continues from what was learned meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BreakerMode {
    /// Rejects while open, admits probes while half-open.
    #[default]
    Normal,
    /// Rejects every call. Calls already out are still recorded, and timers still run.
    ForcedOpen,
    /// Admits every call and records none; a probe that returns gives its slot back.
    Disabled,
    /// Records and moves through the states, but admits every call.
    MetricsOnly,
    /// Admits every call, but [`Breaker::retries_allowed`](super::Breaker::retries_allowed) is
    /// false wherever a normal breaker would reject.
    RetriesOff,
}

impl BreakerMode {
    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::ForcedOpen => "forced_open",
            Self::Disabled => "disabled",
            Self::MetricsOnly => "metrics_only",
            Self::RetriesOff => "retries_off",
        }
    }
}

/// The knobs of a breaker as a user gives them; [`BreakerParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Length of one of the window's ten buckets; more than zero. The window covers between nine
    /// and ten of them. Default 1 s.
    pub bucket: Duration,
    /// Calls the window must hold before a ratio is looked at; at least 1. Default 20.
    pub min_calls: u32,
    /// Share of the window's calls that failed at which it opens; above 0 %, up to 100 %.
    /// Default 50 %.
    pub failure_ratio: Ratio,
    /// Failures in a row that open it however few calls the window holds; 0 turns this off.
    /// Default 20.
    pub consecutive_failures: u32,
    /// Time that must lie between the first and the last failure of such a run, so that one burst
    /// in one moment is not taken for an outage; zero asks for none. Default 1 s.
    pub consecutive_span: Duration,
    /// A call that takes this long is slow, whether it ended or not; more than zero. `None` (the
    /// default) judges by failures alone. Whoever knows the attempt timeout sets half of it.
    pub slow: Option<Duration>,
    /// Share of the window's calls that were slow at which it opens; above 0 %, up to 100 %.
    /// Without effect while `slow` is off. Default 50 %.
    pub slow_ratio: Ratio,
    /// How long it stays open the first time, before jitter; more than zero. Doubles with each
    /// opening until it has closed again. Default 2 s.
    pub open_base: Duration,
    /// The longest it stays open, before jitter; at least `open_base`. Default 10 s.
    pub open_cap: Duration,
    /// Probes that must succeed before it closes, and the most that may be out; at least 1.
    /// Default 5.
    pub probes: u32,
    /// After how long without news all probes that are out count as lost; more than zero. Shorter
    /// than the attempt timeout, it discards the results of honest slow probes. Default 12 s.
    pub probe_lease: Duration,
    /// What is done with the judgement. Default [`BreakerMode::Normal`].
    pub mode: BreakerMode,
}

impl BreakerOptions {
    /// For a bridge to a venue, with few calls and a slow recovery: a window of 60 s, open for
    /// 10 s each time.
    #[must_use]
    pub fn bridge() -> Self {
        Self {
            bucket: BRIDGE_BUCKET,
            open_base: BRIDGE_OPEN,
            open_cap: BRIDGE_OPEN,
            ..Self::default()
        }
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            bucket: BUCKET,
            min_calls: MIN_CALLS,
            failure_ratio: FAILURE_RATIO,
            consecutive_failures: CONSECUTIVE_FAILURES,
            consecutive_span: CONSECUTIVE_SPAN,
            slow: None,
            slow_ratio: SLOW_RATIO,
            open_base: OPEN_BASE,
            open_cap: OPEN_CAP,
            probes: PROBES,
            probe_lease: PROBE_LEASE,
            mode: BreakerMode::Normal,
        }
    }
}

/// Checked knobs. Any number of breakers share one; swapping it keeps their state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BreakerParams(BreakerOptions);

impl BreakerParams {
    /// Checks `options`.
    ///
    /// # Errors
    ///
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: BreakerOptions) -> Result<Self, ConfigError> {
        for (field, value) in [
            ("bucket", options.bucket),
            ("slow", options.slow.unwrap_or(Duration::MAX)),
            ("open_base", options.open_base),
            ("probe_lease", options.probe_lease),
        ] {
            if value.is_zero() {
                return Err(ConfigError::new(field, "0s", "more than zero"));
            }
        }
        for (field, value) in [("min_calls", options.min_calls), ("probes", options.probes)] {
            if value == 0 {
                return Err(ConfigError::new(field, value, "at least 1"));
            }
        }
        for (field, value) in
            [("failure_ratio", options.failure_ratio), ("slow_ratio", options.slow_ratio)]
        {
            if value == Ratio::ZERO || value > Ratio::ONE {
                return Err(ConfigError::new(field, value, "more than 0% and at most 100%"));
            }
        }
        if options.open_base > options.open_cap {
            return Err(ConfigError::new(
                "open_cap",
                format!("{:?}", options.open_cap),
                format!("at least open_base ({:?})", options.open_base),
            ));
        }
        Ok(Self(options))
    }

    /// The same knobs in another mode.
    #[must_use]
    pub fn with_mode(mut self, mode: BreakerMode) -> Self {
        self.0.mode = mode;
        self
    }

    /// Every knob, as checked.
    #[must_use]
    pub const fn options(&self) -> &BreakerOptions {
        &self.0
    }

    /// What is done with the judgement.
    #[must_use]
    pub const fn mode(&self) -> BreakerMode {
        self.0.mode
    }

    /// How long a call may take before it is slow; `None` if slowness is not judged.
    #[must_use]
    pub const fn slow(&self) -> Option<Duration> {
        self.0.slow
    }

    /// Whether a call of this length is slow.
    pub(super) fn is_slow(&self, elapsed: Duration) -> bool {
        self.0.slow.is_some_and(|slow| elapsed >= slow)
    }

    /// How long to stay open for the `trips`-th time in a row, drawn with jitter.
    pub(super) fn open_for(&self, trips: u32, rng: &mut impl Rng) -> Duration {
        let doublings = 2_u32.saturating_pow(trips.saturating_sub(1));
        let longest = self.0.open_base.saturating_mul(doublings).min(self.0.open_cap);
        rng.duration_between(OPEN_JITTER_LOW.of_duration(longest), longest)
    }
}

/// Source: hystrix-breaker (10 buckets of 1 s).
const BUCKET: Duration = Duration::from_secs(1);
/// Source: hystrix-breaker.
const MIN_CALLS: u32 = 20;
/// Source: hystrix-breaker.
const FAILURE_RATIO: Ratio = Ratio::from_percent(50);
/// Source: finagle-failure-accrual. Differs: 20 instead of 5, because a run may be one burst.
const CONSECUTIVE_FAILURES: u32 = 20;
/// Source: finagle-failure-accrual. Differs: it asks for no span.
const CONSECUTIVE_SPAN: Duration = Duration::from_secs(1);
/// Source: resilience4j-breaker. Differs: 50 % instead of 100 %, which one fast error page in the
/// window would hold off for ever.
const SLOW_RATIO: Ratio = Ratio::from_percent(50);
/// Source: hystrix-breaker. Differs: 2 s instead of 5 s, because it grows.
const OPEN_BASE: Duration = Duration::from_secs(2);
/// Source: finagle-failure-accrual. Differs: 10 s instead of 300 s; five probes cost little.
const OPEN_CAP: Duration = Duration::from_secs(10);
/// The jitter is applied after the cap, so a fleet stays spread there.
///
/// Source: finagle-failure-accrual. Differs: 70 to 100 % instead of 50 to 100 %.
const OPEN_JITTER_LOW: Ratio = Ratio::from_percent(70);
/// Source: resilience4j-breaker. Differs: 5 instead of 10, and all of them must succeed.
const PROBES: u32 = 5;
/// Source: polly-breaker (a hung probe is replaced after one more break). Differs: the gateway's
/// attempt timeout, by which an honest probe has ended.
const PROBE_LEASE: Duration = Duration::from_secs(12);
/// Source: seawall-design (preset `bridge`).
const BRIDGE_BUCKET: Duration = Duration::from_secs(6);
/// Source: seawall-design (preset `bridge`).
const BRIDGE_OPEN: Duration = Duration::from_secs(10);
