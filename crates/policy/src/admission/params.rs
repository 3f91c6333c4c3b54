//! The knobs of an admission queue: as given, and as checked.

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::rate::{KeyedRateOptions, KeyedRateParams};
use crate::time::nanos;

/// The knobs of an admission queue as a user gives them; [`AdmissionParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionOptions {
    /// Requests that may wait at once; 1 to 131,072. Default 1,024. About 200 bytes each when they
    /// wait, kept for the next.
    pub queue: u32,
    /// How much of what is left of critical requests goes to default, sheddable and background
    /// ones, beside each other, while all wait; 1 to 1,000 each. Default 64, 8 and 1.
    pub weights: [u32; 3],
    /// The wait that a standing queue may come to, if a quarter of the patience is not less; 1 ms
    /// to 10 s. Default 500 ms.
    pub target: Duration,
    /// How long a request is waited for that has no deadline of its own, and the longest that any
    /// waits; 1 ms to 1 h. Default 25 s, which is a gateway's total timeout.
    pub patience: Duration,
    /// How much each tenant may enter in a time, by cost. `None` (the default): no limit.
    pub tenant_rate: Option<KeyedRateOptions>,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            queue: QUEUE,
            weights: WEIGHTS,
            target: TARGET,
            patience: PATIENCE,
            tenant_rate: None,
        }
    }
}

/// Checked knobs. Swapping them keeps everything that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionParams {
    options: AdmissionOptions,
    tenant_rate: Option<KeyedRateParams>,
}

impl AdmissionParams {
    /// Checks `options`.
    ///
    /// # Errors
    ///
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: AdmissionOptions) -> Result<Self, ConfigError> {
        if !(1..=QUEUE_MAX).contains(&options.queue) {
            return Err(ConfigError::new("queue", options.queue, "1 to 131072"));
        }
        for (weight, of) in options.weights.into_iter().zip(["default", "sheddable", "background"])
        {
            if !(1..=CLASS_WEIGHT_MAX).contains(&weight) {
                return Err(ConfigError::new(format!("weights.{of}"), weight, "1 to 1000"));
            }
        }
        let time = |field, value: Duration, most: Duration, allowed| {
            let is_allowed = (TIME_MIN..=most).contains(&value);
            is_allowed.then_some(()).ok_or_else(|| {
                let value = format!("{value:?}");
                ConfigError::new(field, value, allowed)
            })
        };
        time("target", options.target, TARGET_MAX, "1ms to 10s")?;
        time("patience", options.patience, PATIENCE_MAX, "1ms to 1h")?;
        let rate = options.tenant_rate.map(KeyedRateParams::new).transpose();
        let tenant_rate = rate.map_err(|error| error.under("tenant_rate"))?;
        Ok(Self { options, tenant_rate })
    }

    /// Every knob, as checked.
    #[must_use]
    pub const fn options(&self) -> &AdmissionOptions {
        &self.options
    }

    pub(super) const fn tenant_rate(&self) -> Option<&KeyedRateParams> {
        self.tenant_rate.as_ref()
    }

    /// The weight of a class beside the others, critical ones having none.
    pub(super) const fn weight(&self, class: usize) -> u32 {
        self.options.weights[class.saturating_sub(1)]
    }

    /// The wait from which on a request is strained, in nanoseconds, at least 1.
    pub(super) fn target(&self, patience: Duration) -> u64 {
        nanos(self.options.target.min(patience / PATIENCE_PART)).max(1)
    }
}

/// As many as a gateway's upstream has in flight. Source: seawall-design.
const QUEUE: u32 = 1_024;
/// Source: seawall-design (100,000, and room).
const QUEUE_MAX: u32 = 131_072;
/// Source: seawall-defaults: of what is left, 88 %, 11 % and 1 %.
const WEIGHTS: [u32; 3] = [64, 8, 1];
/// Source: seawall-design.
const CLASS_WEIGHT_MAX: u32 = 1_000;
/// Source: seawall-defaults.
const TARGET: Duration = Duration::from_millis(500);
/// Source: seawall-design.
const TARGET_MAX: Duration = Duration::from_secs(10);
/// The target is a quarter of the patience. Source: seawall-defaults (docs/overload.md).
const PATIENCE_PART: u32 = 4;
/// Source: seawall-design (the total timeout of a gateway's call).
const PATIENCE: Duration = Duration::from_secs(25);
/// Within what the wheel of timers holds. Source: seawall-design.
const PATIENCE_MAX: Duration = Duration::from_secs(3_600);
const TIME_MIN: Duration = Duration::from_millis(1);
