//! Reads and writes durations, sizes and rates as people write them: `1m30s`, `64KiB`, `500/s`.
//!
//! A bare number is refused everywhere. Peers disagree on what it means (seconds here,
//! milliseconds there), and a factor of a thousand in a timeout is not noticed until the outage.
//!
//! | kind | grammar | examples |
//! |---|---|---|
//! | duration | `h`, `m`, `s`, `ms` after whole numbers, larger first, each unit once | `1h30m` |
//! | size | a whole number and `B`, `KiB`, `MiB` or `GiB` | `64KiB` |
//! | rate | a whole number, `/`, and `s`, `m` or `h` | `500/s` |
//!
//! A number of a duration has at most five digits. No sign, no fraction, no space. Differs from
//! gep-2257, whose pattern also takes a unit twice and a smaller unit first: both are more often a
//! slip than a wish.

use core::fmt::Write as _;
use core::num::NonZeroU32;
use core::time::Duration;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use crate::error::ConfigError;

/// A text that is not in the grammar of its kind.
///
/// Displays as ``"`5` is not allowed; give a duration with units, like 800ms, 5s or 1m30s"``.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not allowed; give {allowed}")]
pub struct UnitError {
    value: String,
    allowed: &'static str,
}

impl UnitError {
    fn new(value: &str, allowed: &'static str) -> Self {
        let mut shown: String = value.chars().take(SHOWN_CHARS).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self { value: shown, allowed }
    }

    /// The refused text, cut to 64 characters.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would be allowed, as it fits after "give".
    #[must_use]
    pub const fn allowed(&self) -> &'static str {
        self.allowed
    }

    /// The same refusal as an error of `field`.
    #[must_use]
    pub fn of_field(self, field: impl Into<Cow<'static, str>>) -> ConfigError {
        ConfigError::new(field, self.value, self.allowed)
    }
}

/// How many in how long; at least one, so that a rate is never "nothing at all" by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many; at least 1.
    pub count: NonZeroU32,
    /// In how long: one second, one minute or one hour.
    pub period: Duration,
}

/// Reads a duration. Ranges from zero (`0s`) to `99999h59m…`, in whole milliseconds.
///
/// # Errors
/// A bare number, an unknown unit, a fraction, a sign, a space, a unit twice or out of order, or
/// more than five digits.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let refused = || UnitError::new(text, allowed_duration(text));
    let mut rest = text;
    let mut sum = Duration::ZERO;
    let mut units = DURATION_UNITS.iter();
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or_else(refused)?;
        if rest.len() - after.len() > DURATION_DIGITS {
            return Err(refused());
        }
        let word_len = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (word, next) = after.split_at(word_len);
        // The iterator moves on past each unit, so a repeated or earlier one is not found.
        let &(_, millis) = units.find(|(unit, _)| *unit == word).ok_or_else(refused)?;
        sum += Duration::from_millis(number * millis);
        rest = next;
    }
    if text.is_empty() { Err(refused()) } else { Ok(sum) }
}

/// Writes a duration in the grammar of [`parse_duration`], rounded up to whole milliseconds so
/// that what is not zero never reads as zero. Above 99999 hours it has more digits than are read.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut left = duration.as_nanos().div_ceil(NANOS_PER_MILLI);
    let mut text = String::new();
    for &(unit, millis) in DURATION_UNITS {
        let count = left / u128::from(millis);
        left %= u128::from(millis);
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{count}{unit}");
        }
    }
    if text.is_empty() {
        text.push_str("0s");
    }
    text
}

/// Reads a size in bytes, from `0B` to 2⁶⁴ − 1 bytes.
///
/// # Errors
/// A bare number, an unknown unit (`KB` is one: 1,000 or 1,024?), a fraction, a sign, a space, or
/// more bytes than fit.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let refused = || UnitError::new(text, ALLOWED_SIZE);
    let (number, word) = split_number(text).ok_or_else(refused)?;
    let &(_, bytes) = SIZE_UNITS.iter().find(|(unit, _)| *unit == word).ok_or_else(refused)?;
    number.checked_mul(bytes).ok_or_else(refused)
}

/// Writes a size in the grammar of [`parse_size`], in the largest unit that divides it.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let fits = |&&(_, size): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(size);
    let (unit, size) = SIZE_UNITS.iter().rev().find(fits).copied().unwrap_or(("B", 1));
    format!("{}{unit}", bytes / size)
}

/// Reads a rate, from `1/h` to `4294967295/s`.
///
/// # Errors
/// A bare number, zero, an unknown period, a fraction, a sign or a space.
pub fn parse_rate(text: &str) -> Result<Rate, UnitError> {
    let refused = || UnitError::new(text, ALLOWED_RATE);
    let (number, rest) = split_number(text).ok_or_else(refused)?;
    let count = u32::try_from(number).ok().and_then(NonZeroU32::new).ok_or_else(refused)?;
    let word = rest.strip_prefix('/').ok_or_else(refused)?;
    let &(_, period) = RATE_PERIODS.iter().find(|(unit, _)| *unit == word).ok_or_else(refused)?;
    Ok(Rate { count, period })
}

/// Writes a rate in the grammar of [`parse_rate`]; a period of another length is written out
/// (`5/10s`) and is not read back.
#[must_use]
pub fn format_rate(rate: Rate) -> String {
    match RATE_PERIODS.iter().find(|(_, period)| *period == rate.period) {
        Some((unit, _)) => format!("{}/{unit}", rate.count),
        None => format!("{}/{}", rate.count, format_duration(rate.period)),
    }
}

/// The leading digits as a number, and what follows; nothing without digits or above 2⁶⁴ − 1.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

/// What to give instead, with the commonest slip, the bare number, answered in kind.
fn allowed_duration(text: &str) -> &'static str {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        "a unit with the number, like 800ms, 5s or 1m30s"
    } else {
        "whole numbers with h, m, s or ms, larger first, like 800ms, 5s or 1m30s"
    }
}

/// Larger first. Source: gep-2257.
const DURATION_UNITS: &[(&str, u64)] = &[("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Digits of one number of a duration. Source: gep-2257.
const DURATION_DIGITS: usize = 5;
/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: u128 = 1_000_000;
/// Smaller first.
const SIZE_UNITS: &[(&str, u64)] =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
const ALLOWED_SIZE: &str = "a whole number with B, KiB, MiB or GiB, like 64KiB";
const RATE_PERIODS: &[(&str, Duration)] = &[
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(3600)),
];
const ALLOWED_RATE: &str = "a whole number from 1 and a period, like 500/s, 100/m or 10/h";
/// Characters of a refused text that an error shows.
const SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn durations_are_read_in_their_units() {
        for (text, expected) in [
            ("0s", ms(0)),
            ("0ms", ms(0)),
            ("1ms", ms(1)),
            ("800ms", ms(800)),
            ("5s", ms(5_000)),
            ("1m30s", ms(90_000)),
            ("1h30m", ms(5_400_000)),
            ("1h2m3s4ms", ms(3_723_004)),
            ("90m", ms(5_400_000)),
            ("1h5ms", ms(3_600_005)),
            ("99999h", Duration::from_secs(99_999 * 3600)),
            ("00005s", ms(5_000)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn durations_out_of_the_grammar_are_refused_by_name() {
        for text in [
            "",
            "5",
            "0",
            "s",
            "ms",
            "5 s",
            " 5s",
            "5s ",
            "+5s",
            "-5s",
            "1.5s",
            "5S",
            "5sec",
            "5us",
            "5ns",
            "1d",
            "1s1s",
            "1s1m",
            "1ms1s",
            "100000s",
            "5s5",
            "1h2m3s4ms5ms",
            "٥s",
            "5s\n",
            "5秒",
            "1_000ms",
            "0x5s",
            "1e3s",
            "inf",
        ] {
            let refused = parse_duration(text).unwrap_err();
            assert_eq!(refused.value(), text);
        }
    }

    #[test]
    fn a_bare_number_is_told_that_its_unit_is_missing() {
        let refused = parse_duration("250").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "`250` is not allowed; give a unit with the number, like 800ms, 5s or 1m30s"
        );
        let named = refused.of_field("timeouts.attempt");
        assert_eq!(named.field(), "timeouts.attempt");
        assert_eq!(named.value(), "250");
    }

    #[test]
    fn a_long_refused_text_is_cut_at_64_characters() {
        let refused = parse_duration(&"é".repeat(65)).unwrap_err();
        assert_eq!(refused.value().chars().count(), 65);
        assert!(refused.value().ends_with('…'));
        assert!(!parse_duration(&"é".repeat(64)).unwrap_err().value().ends_with('…'));
    }

    #[test]
    fn what_is_not_zero_never_reads_as_zero() {
        assert_eq!(format_duration(Duration::ZERO), "0s");
        assert_eq!(format_duration(Duration::from_nanos(1)), "1ms");
        assert_eq!(format_duration(Duration::from_micros(1_500)), "2ms");
        assert_eq!(format_duration(ms(90_000)), "1m30s");
        assert_eq!(format_duration(ms(3_723_004)), "1h2m3s4ms");
        assert_eq!(format_duration(ms(60_000)), "1m");
        assert!(format_duration(Duration::MAX).starts_with("5124095576030431h"));
    }

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, expected) in [
            ("0B", 0),
            ("1B", 1),
            ("64KiB", 65_536),
            ("4MiB", 4_194_304),
            ("2GiB", 2_147_483_648),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "64",
            "KiB",
            "64 KiB",
            "64KB",
            "64kB",
            "64k",
            "64kib",
            "64Kib",
            "1.5MiB",
            "-1B",
            "+1B",
            "1KiB1B",
            "18446744073709551616B",
            "18014398509481984KiB",
            "17179869184GiB",
        ] {
            assert_eq!(parse_size(text).unwrap_err().allowed(), ALLOWED_SIZE, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_divides_them() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1536B"),
            (1 << 30, "1GiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn rates_are_read_with_their_period() {
        for (text, count, seconds) in
            [("500/s", 500, 1), ("1/h", 1, 3600), ("100/m", 100, 60), ("4294967295/s", u32::MAX, 1)]
        {
            let rate = parse_rate(text).unwrap();
            assert_eq!((rate.count.get(), rate.period), (count, Duration::from_secs(seconds)));
            assert_eq!(format_rate(rate), text);
        }
        for text in [
            "",
            "500",
            "0/s",
            "/s",
            "500/",
            "500s",
            "500 /s",
            "500/ s",
            "500/sec",
            "500/10s",
            "1.5/s",
            "-1/s",
            "4294967296/s",
            "5/ms",
            "5//s",
        ] {
            assert_eq!(parse_rate(text).unwrap_err().allowed(), ALLOWED_RATE, "{text}");
        }
        let odd = Rate { count: NonZeroU32::MIN, period: ms(10_000) };
        assert_eq!(format_rate(odd), "1/10s");
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back(millis in 0_u64..359_999_999_999) {
            prop_assert_eq!(parse_duration(&format_duration(ms(millis))), Ok(ms(millis)));
        }

        #[test]
        fn a_written_size_reads_back(bytes: u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,40}|[0-9hms/KMGiB]{0,24}") {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            }
            let _ = (parse_size(&text), parse_rate(&text));
        }
    }
}
