//! A ratio as an exact integer: millionths.
//!
//! Floats quantise silently; the field's best-known retry budget turns 60 % into 100 %. A
//! [`Ratio`] is a count of millionths, compared by cross-multiplication, so what is written is
//! what happens, and a value that does not fit is an error rather than a nearby number.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use alloc::string::ToString;

use crate::error::ConfigError;
use crate::time::nanos;

/// An exact ratio in millionths, from 0 to 4,294.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio(u32);

impl Ratio {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const ONE: Self = Self(Self::SCALE);
    /// Units in the whole.
    pub const SCALE: u32 = 1_000_000;

    /// `millionths` / 1,000,000.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        Self(millionths)
    }

    /// `percent` / 100; stops at 429,496 %.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Self {
        Self(percent.saturating_mul(Self::SCALE / 100))
    }

    /// The number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// Whether `part` is at least this share of `whole`: `part / whole >= self` without division.
    /// A share of nothing is never reached.
    #[must_use]
    pub fn is_reached(self, part: u64, whole: u64) -> bool {
        whole > 0
            && u128::from(part) * u128::from(Self::SCALE) >= u128::from(whole) * u128::from(self.0)
    }

    /// This share of `whole`, rounded down; stops at `u64::MAX`.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0) / u128::from(Self::SCALE);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// This share of `whole` at a nanosecond's grain.
    #[must_use]
    pub fn of_duration(self, whole: Duration) -> Duration {
        Duration::from_nanos(self.of(nanos(whole)))
    }
}

impl FromStr for Ratio {
    type Err = ConfigError;

    /// Reads `20%`, `12.5%` or `0.125`; at most six decimals (four in per cent), nothing rounded.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refused = || {
            ConfigError::new(
                "ratio",
                text.to_string(),
                "a number such as 0.2 or a percentage such as 20%, exact to a millionth",
            )
        };
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, Self::SCALE / 100),
            None => (text, Self::SCALE),
        };
        millionths(number.trim(), scale).map(Self).ok_or_else(refused)
    }
}

/// Reads a plain decimal as a count of `1 / scale`; nothing if a digit would be lost.
fn millionths(number: &str, scale: u32) -> Option<u32> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return None;
    }
    let mut total = whole.parse::<u32>().ok()?.checked_mul(scale)?;
    let mut unit = scale;
    for digit in decimals.bytes().map(|byte| u32::from(byte - b'0')) {
        if digit > 0 && !unit.is_multiple_of(10) {
            return None;
        }
        unit /= 10;
        total = total.checked_add(digit * unit)?;
    }
    Some(total)
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let rest = alloc::format!("{rest:04}");
        write!(f, "{whole}.{}%", rest.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_percentages_and_decimals_exactly() {
        for (text, expected) in
            [("20%", 200_000), ("12.5%", 125_000), ("0.125", 125_000), ("1", 1_000_000), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Ratio::from_millionths(expected)), "{text}");
        }
    }

    #[test]
    fn refuses_what_it_would_have_to_round_or_guess() {
        for text in ["", "%", ".", "-1", "1e3", "0.1234567", "0.00001%", "5000", "NaN", "1,5", "5."]
        {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_ratio_is_realised_as_written(
            millionths in 0..=1_000_000_u32,
            whole in 1..1_000_000_000_u64,
        ) {
            let ratio = Ratio::from_millionths(millionths);
            let share = ratio.of(whole);
            prop_assert!(share == 0 || !ratio.is_reached(share - 1, whole));
            prop_assert!(ratio.is_reached(share + 1, whole));
        }

        #[test]
        fn what_is_displayed_reads_back(millionths: u32) {
            let ratio = Ratio::from_millionths(millionths);
            prop_assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }
    }
}
