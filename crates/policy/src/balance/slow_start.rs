//! Decides how much of its share an endpoint gets that has just come back.
//!
//! A process that has just started has cold caches, no connections and code not yet compiled; a
//! full share of the traffic in its first second makes it slow, and it is ejected again. So its
//! share grows with the time since it came back, linearly:
//!
//! ```text
//! share(t) = max(least, t / window), at most 100 %
//! ```
//!
//! It is a part of what the endpoint would get from [`choose`](super::choose). Where all endpoints
//! are equally new, all shares are equal and nothing is held back.
//!
//! | value | default | source |
//! |---|---|---|
//! | window | 30 s | own choice |
//! | least | 10 % | envoy-slow-start |

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::time::nanos;

/// The knobs of slow start as a user gives them; [`SlowStartParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowStartOptions {
    /// Until its whole share; more than zero. Default 30 s.
    pub window: Duration,
    /// The part it begins with; more than 0 %, up to 100 %, which switches it off. Default 10 %.
    pub least: Ratio,
}

impl Default for SlowStartOptions {
    fn default() -> Self {
        Self { window: WINDOW, least: LEAST }
    }
}

/// Checked knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowStartParams(SlowStartOptions);

impl SlowStartParams {
    /// Checks `options`.
    ///
    /// # Errors
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: SlowStartOptions) -> Result<Self, ConfigError> {
        if options.window.is_zero() {
            return Err(ConfigError::new("window", "0s", "more than zero"));
        }
        if options.least == Ratio::ZERO || options.least > Ratio::ONE {
            let allowed = "more than 0% and at most 100%";
            return Err(ConfigError::new("least", format!("{}", options.least), allowed));
        }
        Ok(Self(options))
    }

    /// The part of its share for an endpoint that came back `since` ago.
    #[must_use]
    pub fn share(&self, since: Duration) -> Ratio {
        let scale = u128::from(Ratio::SCALE);
        let grown = u128::from(nanos(since)) * scale / u128::from(nanos(self.0.window).max(1));
        let grown = u32::try_from(grown).unwrap_or(u32::MAX);
        Ratio::from_millionths(grown).clamp(self.0.least, Ratio::ONE)
    }
}

/// Source: own choice: as long as caches and compilers usually take to warm.
const WINDOW: Duration = Duration::from_secs(30);
/// Source: envoy-slow-start.
const LEAST: Ratio = Ratio::from_percent(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_from_the_least_to_the_whole_and_stays_there() {
        let params = SlowStartParams::default();
        for (seconds, percent) in [(0, 10), (2, 10), (3, 10), (15, 50), (30, 100), (9_999, 100)] {
            let share = params.share(Duration::from_secs(seconds));
            assert_eq!(share, Ratio::from_percent(percent), "after {seconds} s");
        }
        assert_eq!(params.share(Duration::MAX), Ratio::ONE);
    }

    #[test]
    fn options_that_can_never_take_effect_are_refused() {
        let zero = SlowStartOptions { window: Duration::ZERO, ..SlowStartOptions::default() };
        assert_eq!(SlowStartParams::new(zero).unwrap_err().field(), "window");
        for least in [Ratio::ZERO, Ratio::from_percent(101)] {
            let options = SlowStartOptions { least, ..SlowStartOptions::default() };
            assert_eq!(SlowStartParams::new(options).unwrap_err().field(), "least");
        }
    }
}
