//! The knobs of a limit: as given, and as checked.

use alloc::format;

use crate::error::ConfigError;
use crate::ratio::Ratio;

/// By what a limit moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LimitRule {
    /// Not at all: it is `max`.
    Fixed,
    /// Up by one a window that uses half of it, down by a tenth for one with a drop or a give-up.
    Aimd,
    /// By the calls that wait, reckoned from the least time of the last minute.
    Vegas,
    /// By the ratio of a long mean of times to the last.
    Gradient2,
    /// By what more in flight bring, measured now.
    #[default]
    Knee,
}

impl LimitRule {
    /// Every rule.
    pub const ALL: [Self; 5] = [Self::Fixed, Self::Aimd, Self::Vegas, Self::Gradient2, Self::Knee];

    /// The name in configuration, metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Aimd => "aimd",
            Self::Vegas => "vegas",
            Self::Gradient2 => "gradient2",
            Self::Knee => "knee",
        }
    }
}

/// The knobs of a limit as a user gives them; [`LimitParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOptions {
    /// By what it moves. Default [`LimitRule::Knee`].
    pub rule: LimitRule,
    /// Where it begins; `min` to `max`. `None` (the default): [`Knee`](LimitRule::Knee) at `max`,
    /// as nothing speaks against it yet; the published rules at 20, as published. Not with
    /// [`Fixed`](LimitRule::Fixed).
    pub initial: Option<u32>,
    /// It never goes below; 1 to `max`. Default 1.
    pub min: u32,
    /// It never goes above; up to 1,000,000. Default 1,000.
    pub max: u32,
    /// Times the number at which more in flight stop to bring more, for [`Knee`](LimitRule::Knee);
    /// 105 % to 200 %. More lose less while that number is looked for, and let calls wait longer.
    /// Default 120 %.
    pub headroom: Ratio,
}

impl Default for LimitOptions {
    fn default() -> Self {
        Self { rule: LimitRule::Knee, initial: None, min: MIN, max: MAX, headroom: HEADROOM }
    }
}

/// Checked knobs. Swapping them keeps what is in flight, and, under the same rule, what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitParams(LimitOptions);

impl LimitParams {
    /// Checks `options`.
    ///
    /// # Errors
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: LimitOptions) -> Result<Self, ConfigError> {
        if !(1..=LIMIT_MAX).contains(&options.max) {
            return Err(ConfigError::new("max", options.max, "1 to 1000000"));
        }
        if !(1..=options.max).contains(&options.min) {
            let allowed = format!("1 to max ({})", options.max);
            return Err(ConfigError::new("min", options.min, allowed));
        }
        if let Some(initial) = options.initial {
            if options.rule == LimitRule::Fixed {
                let allowed = "no initial with the rule fixed: the limit is max";
                return Err(ConfigError::new("initial", initial, allowed));
            }
            if !(options.min..=options.max).contains(&initial) {
                let allowed = format!("min ({}) to max ({})", options.min, options.max);
                return Err(ConfigError::new("initial", initial, allowed));
            }
        }
        if !(HEADROOM_MIN..=HEADROOM_MAX).contains(&options.headroom) {
            return Err(ConfigError::new("headroom", options.headroom, "105% to 200%"));
        }
        Ok(Self(options))
    }

    /// Every knob, as checked.
    #[must_use]
    pub const fn options(&self) -> &LimitOptions {
        &self.0
    }

    /// By what it moves.
    #[must_use]
    pub const fn rule(&self) -> LimitRule {
        self.0.rule
    }

    /// It never goes below.
    #[must_use]
    pub const fn min(&self) -> u32 {
        self.0.min
    }

    /// It never goes above.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.0.max
    }

    /// Where it begins.
    pub(super) fn initial(&self) -> u32 {
        let default = match self.0.rule {
            LimitRule::Knee | LimitRule::Fixed => self.0.max,
            LimitRule::Aimd | LimitRule::Vegas | LimitRule::Gradient2 => INITIAL,
        };
        self.0.initial.unwrap_or(default).clamp(self.0.min, self.0.max)
    }

    /// As a factor.
    pub(super) fn headroom(&self) -> f64 {
        f64::from(self.0.headroom.millionths()) / f64::from(Ratio::SCALE)
    }
}

/// Source: own choice (a dependency that does one call at a time exists).
const MIN: u32 = 1;
/// Source: netflix-limits (`VegasLimit`).
const MAX: u32 = 1_000;
/// Of the published rules. Source: netflix-limits.
const INITIAL: u32 = 20;
/// Source: seawall-defaults (compared in `docs/overload.md`).
const HEADROOM: Ratio = Ratio::from_percent(120);
const HEADROOM_MIN: Ratio = Ratio::from_percent(105);
const HEADROOM_MAX: Ratio = Ratio::from_percent(200);
/// As a bulkhead's. Source: seawall-design.
const LIMIT_MAX: u32 = 1_000_000;
