//! Decides how long a server's Retry-After asks to wait, and how it is passed on.
//!
//! Servers write it in two forms, carelessly: `0`, `-5`, `1.5`, dates in the past, two fields that
//! disagree. Taken at its word, `0` is a retry storm and `999999` a hung task; obeyed exactly, it
//! brings a whole fleet back in one instant. So a value is either usable, and then never undercut,
//! or it is known to have been there and leads to ordinary backoff with a floor.
//!
//! | field | read as |
//! |---|---|
//! | `30`, ` 30 ` | wait 30 s |
//! | a digit string beyond `u64` | wait `u64::MAX` s: too long for anyone, so the caller stops |
//! | a date in any of HTTP's three forms, ahead of the response's `Date` (else of our clock) | wait the difference |
//! | `0`, `-5`, `+5`, `1.5`, a date not ahead, nothing, anything else | unusable |
//! | several fields | the longest usable one |
//! | `Seawall-Slot-Ms: 1500` | a reserved slot, kept exactly |
//!
//! | value | default | source |
//! |---|---|---|
//! | spread above a wait | U(0, max(1 s, 10 %)) | [`wait`] |
//! | spread of a value passed on | 0 to max(1, 10 %) whole seconds | [`passed_on`] |
//!
//! Known bad case: a server without a `Date` whose clock is off by more than the wait; its date is
//! then measured against our clock and may look past (unusable) or long (the caller stops).

use core::time::Duration;

use crate::rng::Rng;
use crate::time::WallTime;

/// What a server said about asking again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryAfter {
    /// It said nothing.
    #[default]
    Absent,
    /// It said something that means no usable wait: zero, negative, past, empty or garbage.
    Unusable,
    /// Wait at least this long; never zero.
    Wait(Duration),
    /// A reserved slot (`Seawall-Slot-Ms`): wait exactly this long; never zero.
    Slot(Duration),
    /// A gRPC server's pushback: wait exactly this long, which may be no time at all, and begin
    /// the backoff anew after that.
    Pushback(Duration),
}

impl RetryAfter {
    /// Reads the `Retry-After` fields of a response; of several the longest usable one wins.
    ///
    /// A date is measured against `date`, the response's own `Date` field, if that can be read,
    /// else against `wall`, the time here.
    #[must_use]
    pub fn parse<'a>(
        values: impl IntoIterator<Item = &'a [u8]>,
        date: Option<&[u8]>,
        wall: WallTime,
    ) -> Self {
        values.into_iter().fold(Self::Absent, |found, value| {
            match (found, asked(value, date, wall)) {
                (Self::Wait(longest), Some(wait)) => Self::Wait(longest.max(wait)),
                (Self::Wait(longest), None) => Self::Wait(longest),
                (_, Some(wait)) => Self::Wait(wait),
                (_, None) => Self::Unusable,
            }
        })
    }

    /// Reads `Seawall-Slot-Ms`: whole milliseconds until the reserved slot.
    ///
    /// Nothing for zero or garbage: there is no slot to keep, and `Retry-After` decides. A number
    /// beyond `u64` stops there.
    #[must_use]
    pub fn parse_slot(value: &[u8]) -> Option<Self> {
        decimal(value.trim_ascii())
            .filter(|millis| *millis > 0)
            .map(|millis| Self::Slot(Duration::from_millis(millis)))
    }
}

/// The wait for a `Retry-After` of `value`: it plus U(0, max(1 s, 10 %)), so that a fleet told the
/// same number does not come back in one instant, and nobody earlier than asked.
#[must_use]
pub fn wait(value: Duration, rng: &mut impl Rng) -> Duration {
    let spread = SPREAD_MIN.max(value / SPREAD_DIVISOR);
    rng.duration_between(value, value.saturating_add(spread))
}

/// The whole seconds under which an upstream's `Retry-After` of `value` leaves: rounded up, plus a
/// whole number from 0 to max(1, 10 %). Never below `value` and never 0, which would mean "now".
#[must_use]
pub fn passed_on(value: Duration, rng: &mut impl Rng) -> u64 {
    let partial = u64::from(value.subsec_nanos() > 0);
    let seconds = value.as_secs().saturating_add(partial).max(1);
    let spread = SPREAD_MIN.as_secs().max(seconds / u64::from(SPREAD_DIVISOR));
    seconds.saturating_add(rng.below(spread.saturating_add(1)))
}

/// Reads a date in any of HTTP's three forms: IMF-fixdate, RFC 850, asctime.
///
/// A two-digit year is the latest that puts the date at most 50 years after `wall`. Names are
/// case-sensitive; the weekday must be one but is not held against the date. Second 60, a leap
/// second, is the first second of the next minute.
///
/// Source: RFC 9110, section 5.6.7.
#[must_use]
pub fn parse_http_date(bytes: &[u8], wall: WallTime) -> Option<WallTime> {
    let text = bytes.trim_ascii();
    imf_fixdate(text)
        .or_else(|| rfc_850(text, wall))
        .or_else(|| asctime(text))
        .map(WallTime::from_unix_seconds)
}

/// A plain decimal, stopping at `u64::MAX`; nothing unless it is one or more digits.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    digits.then(|| {
        bytes.iter().fold(0_u64, |number, digit| {
            number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        })
    })
}

/// The wait one field asks for; nothing if it is unusable.
fn asked(value: &[u8], date: Option<&[u8]>, wall: WallTime) -> Option<Duration> {
    let seconds = decimal(value.trim_ascii()).or_else(|| {
        let target = parse_http_date(value, wall)?;
        let start = date.and_then(|date| parse_http_date(date, wall)).unwrap_or(wall);
        let ahead = target.as_unix_seconds().saturating_sub(start.as_unix_seconds());
        u64::try_from(ahead).ok()
    })?;
    (seconds > 0).then_some(Duration::from_secs(seconds))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &[u8]) -> Option<i64> {
    let mut rest = Cursor(text);
    rest.name(&WEEKDAYS)?;
    rest.literal(b", ")?;
    let day = rest.number(2)?;
    rest.literal(b" ")?;
    let month = rest.name(&MONTHS)?;
    rest.literal(b" ")?;
    let year = rest.number(4)?;
    rest.literal(b" ")?;
    let second = rest.time_of_day()?;
    rest.literal(b" GMT")?;
    rest.end()?;
    unix_seconds(year, month, day, second)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc_850(text: &[u8], wall: WallTime) -> Option<i64> {
    let mut rest = Cursor(text);
    rest.name(&WEEKDAYS_LONG)?;
    rest.literal(b", ")?;
    let day = rest.number(2)?;
    rest.literal(b"-")?;
    let month = rest.name(&MONTHS)?;
    rest.literal(b"-")?;
    let short_year = rest.number(2)?;
    rest.literal(b" ")?;
    let second = rest.time_of_day()?;
    rest.literal(b" GMT")?;
    rest.end()?;

    // The mean year is off by less than one, so no candidate lies above `near + 51`.
    let wall = wall.as_unix_seconds();
    let newest = 1970 + wall.div_euclid(MEAN_YEAR_SECONDS) + 51;
    let year = newest - (newest - short_year).rem_euclid(100);
    let too_far = unix_seconds_unchecked(year - 50, month, day, second)? > wall;
    unix_seconds(if too_far { year - 100 } else { year }, month, day, second)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &[u8]) -> Option<i64> {
    let mut rest = Cursor(text);
    rest.name(&WEEKDAYS)?;
    rest.literal(b" ")?;
    let month = rest.name(&MONTHS)?;
    rest.literal(b" ")?;
    let day = if rest.literal(b" ").is_some() { rest.number(1)? } else { rest.number(2)? };
    rest.literal(b" ")?;
    let second = rest.time_of_day()?;
    rest.literal(b" ")?;
    let year = rest.number(4)?;
    rest.end()?;
    unix_seconds(year, month, day, second)
}

/// What is left of a text to read; every step takes its part or nothing.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn literal(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// The place of the name that comes next, counted from 1.
    fn name(&mut self, names: &[&str]) -> Option<i64> {
        (1..).zip(names).find_map(|(place, name)| self.literal(name.as_bytes()).map(|()| place))
    }

    /// A number of exactly `digits` digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        i64::try_from(decimal(number)?).ok()
    }

    /// `08:49:37` as seconds since midnight.
    fn time_of_day(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        self.literal(b":")?;
        let minute = self.number(2)?;
        self.literal(b":")?;
        let second = self.number(2)?;
        let valid = hour <= 23 && minute <= 59 && second <= 60;
        valid.then_some(hour * 3600 + minute * 60 + second)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Seconds since 1970 of a date that exists; `second` counts from midnight.
fn unix_seconds(year: i64, month: i64, day: i64, second: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=longest).contains(&day).then(|| unix_seconds_unchecked(year, month, day, second))?
}

/// The same for any day number: days past the month's end run into the next month.
fn unix_seconds_unchecked(year: i64, month: i64, day: i64, second: i64) -> Option<i64> {
    // Years that begin in March have their leap day at the end, and every month's start is then
    // a linear function of its place: 0, 31, 61, 92, …
    let (year, place) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = 365 * year + leap_days + (153 * place + 2) / 5 + day - 1 - DAYS_TO_1970;
    days.checked_mul(86_400)?.checked_add(second)
}

/// Least spread above a wait.
const SPREAD_MIN: Duration = Duration::from_secs(1);
/// The spread of long waits is one part in this many.
const SPREAD_DIVISOR: u32 = 10;

/// The mean Gregorian year, 365.2425 days.
const MEAN_YEAR_SECONDS: i64 = 31_556_952;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

/// Source: RFC 9110, section 5.6.7.
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
/// Source: RFC 9110, section 5.6.7.
const WEEKDAYS_LONG: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Source: RFC 9110, section 5.6.7.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;
    use std::{format, string::String, vec::Vec};

    /// 1994-11-06T08:49:37Z, the RFC's own example.
    const EXAMPLE: i64 = 784_111_777;

    fn at(seconds: i64) -> WallTime {
        WallTime::from_unix_seconds(seconds)
    }

    fn seconds(seconds: u64) -> RetryAfter {
        RetryAfter::Wait(Duration::from_secs(seconds))
    }

    fn parse(values: &[&str]) -> RetryAfter {
        RetryAfter::parse(values.iter().map(|value| value.as_bytes()), None, at(EXAMPLE))
    }

    fn date(text: &str) -> Option<i64> {
        parse_http_date(text.as_bytes(), at(EXAMPLE)).map(WallTime::as_unix_seconds)
    }

    #[test]
    fn whole_seconds_are_read_and_trimmed() {
        assert_eq!(parse(&["1"]), seconds(1));
        assert_eq!(parse(&["30"]), seconds(30));
        assert_eq!(parse(&["999999"]), seconds(999_999));
        assert_eq!(parse(&[" 5 "]), seconds(5));
        assert_eq!(parse(&["\t5"]), seconds(5));
        assert_eq!(parse(&["007"]), seconds(7));
    }

    #[test]
    fn a_number_beyond_u64_is_a_wait_too_long_and_not_garbage() {
        assert_eq!(parse(&["18446744073709551616"]), seconds(u64::MAX));
        assert_eq!(parse(&["100000000000000000000"]), seconds(u64::MAX));
    }

    #[test]
    fn zero_negative_past_empty_and_garbage_are_unusable_and_nothing_is_absent() {
        for value in [
            "0",
            "000",
            "-5",
            "+5",
            "1.5",
            "1e3",
            "",
            " ",
            "banana",
            "5 s",
            "1 2",
            "5, 10",
            "٣",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:36 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            assert_eq!(parse(&[value]), RetryAfter::Unusable, "{value:?}");
        }
        assert_eq!(parse(&[]), RetryAfter::Absent);
    }

    #[test]
    fn of_two_fields_the_longer_usable_one_wins() {
        assert_eq!(parse(&["5", "30"]), seconds(30));
        assert_eq!(parse(&["30", "5"]), seconds(30));
        assert_eq!(parse(&["banana", "5"]), seconds(5));
        assert_eq!(parse(&["5", "banana"]), seconds(5));
        assert_eq!(parse(&["0", ""]), RetryAfter::Unusable);
        assert_eq!(parse(&["5", "Sun, 06 Nov 1994 08:49:47 GMT"]), seconds(10));
    }

    #[test]
    fn a_date_is_measured_against_the_responses_own_date_if_it_can_be_read() {
        let ask = |date: Option<&str>| {
            let value = b"Sun, 06 Nov 1994 08:49:57 GMT".as_slice();
            RetryAfter::parse([value], date.map(str::as_bytes), at(EXAMPLE))
        };
        assert_eq!(ask(None), seconds(20));
        assert_eq!(ask(Some("Sun, 06 Nov 1994 08:44:57 GMT")), seconds(300));
        assert_eq!(ask(Some("Sun, 06 Nov 1994 08:50:00 GMT")), RetryAfter::Unusable);
        assert_eq!(ask(Some("yesterday")), seconds(20));
    }

    #[test]
    fn a_slot_is_whole_milliseconds_and_zero_or_garbage_is_none() {
        let slot = |millis| Some(RetryAfter::Slot(Duration::from_millis(millis)));
        assert_eq!(RetryAfter::parse_slot(b"1500"), slot(1500));
        assert_eq!(RetryAfter::parse_slot(b" 1 "), slot(1));
        assert_eq!(RetryAfter::parse_slot(b"99999999999999999999"), slot(u64::MAX));
        for value in ["0", "", "-1", "1.5", "1s", "banana"] {
            assert_eq!(RetryAfter::parse_slot(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn all_three_forms_of_a_date_are_read() {
        assert_eq!(date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(EXAMPLE));
        assert_eq!(date("Sunday, 06-Nov-94 08:49:37 GMT"), Some(EXAMPLE));
        assert_eq!(date("Sun Nov  6 08:49:37 1994"), Some(EXAMPLE));
        assert_eq!(date("Wed Nov 16 08:49:37 1994"), Some(EXAMPLE + 10 * 86_400));
        assert_eq!(date(" Sun, 06 Nov 1994 08:49:37 GMT "), Some(EXAMPLE));
    }

    #[test]
    fn a_leap_second_is_the_first_second_of_the_next_minute() {
        assert_eq!(date("Sat, 31 Dec 2016 23:59:60 GMT"), date("Sun, 01 Jan 2017 00:00:00 GMT"));
        assert_eq!(date("Sat, 31 Dec 2016 23:59:61 GMT"), None);
    }

    #[test]
    fn dates_that_do_not_exist_or_are_not_written_so_are_refused() {
        for text in [
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Tue, 29 Feb 1994 08:49:37 GMT",
            "Thu, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT+1",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "1994-11-06T08:49:37Z",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
        assert!(date("Tue, 29 Feb 2000 08:49:37 GMT").is_some());
    }

    #[test]
    fn a_two_digit_year_is_never_more_than_fifty_years_ahead() {
        let (from_2026, from_2099) = (at(1_785_542_400), at(4_073_328_000));
        let year = |text: &str, wall| {
            let seconds = parse_http_date(text.as_bytes(), wall).unwrap().as_unix_seconds();
            1970 + seconds.div_euclid(MEAN_YEAR_SECONDS)
        };
        // The wall is 2026-08-01T00:00:00Z: one second decides the century.
        assert_eq!(year("Saturday, 01-Aug-76 00:00:00 GMT", from_2026), 2076);
        assert_eq!(year("Saturday, 01-Aug-76 00:00:01 GMT", from_2026), 1976);
        assert_eq!(year("Saturday, 01-Aug-75 00:00:00 GMT", from_2026), 2075);
        assert_eq!(year("Saturday, 01-Aug-77 00:00:00 GMT", from_2026), 1977);
        assert_eq!(year("Saturday, 01-Aug-26 00:00:00 GMT", from_2026), 2026);
        // The next century is near at its end.
        assert_eq!(year("Saturday, 01-Aug-05 00:00:00 GMT", from_2099), 2105);
    }

    #[test]
    fn a_leap_day_with_a_two_digit_year_needs_a_leap_year() {
        assert!(date("Tuesday, 29-Feb-00 00:00:00 GMT").is_some(), "2000 is one");
        assert!(date("Tuesday, 29-Feb-01 00:00:00 GMT").is_none());
    }

    #[test]
    fn waits_spread_upward_by_a_second_or_a_tenth_and_never_below() {
        let mut rng = SplitMix64::new(1);
        for (value, spread) in [(1, 1000), (10, 1000), (60, 6000)] {
            let value = Duration::from_secs(value);
            let waits: Vec<Duration> = (0..1000).map(|_| wait(value, &mut rng)).collect();
            let (low, high) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            let spread = Duration::from_millis(spread);
            assert!(*low >= value && *low < value + spread / 50, "{low:?}");
            assert!(*high <= value + spread && *high > value + spread / 50 * 49, "{high:?}");
        }
        assert_eq!(wait(Duration::MAX, &mut rng), Duration::MAX);
    }

    #[test]
    fn a_value_passed_on_takes_every_second_of_its_spread_and_none_below() {
        let passed = |millis, seed| {
            let mut rng = SplitMix64::new(seed);
            let value = Duration::from_millis(millis);
            let mut all: Vec<u64> = (0..1000).map(|_| passed_on(value, &mut rng)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(passed(1000, 1), [1, 2]);
        assert_eq!(passed(1001, 2), [2, 3]);
        assert_eq!(passed(0, 3), [1, 2]);
        assert_eq!(passed(30_000, 4), [30, 31, 32, 33]);
        assert_eq!(passed_on(Duration::MAX, &mut SplitMix64::new(5)), u64::MAX);
    }

    /// Counts days one by one from 1970, as nobody would in production.
    fn civil(unix: i64) -> (i64, usize, i64, [i64; 3]) {
        let (mut days, second) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        let leap = |year: i64| year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
        let mut year = 1970;
        while days < 0 {
            year -= 1;
            days += if leap(year) { 366 } else { 365 };
        }
        while days >= if leap(year) { 366 } else { 365 } {
            days -= if leap(year) { 366 } else { 365 };
            year += 1;
        }
        let february = if leap(year) { 29 } else { 28 };
        let mut month = 0;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        (year, month, days + 1, [second / 3600, second / 60 % 60, second % 60])
    }

    fn written(unix: i64, form: usize) -> String {
        let (year, month, day, [hour, minute, second]) = civil(unix);
        let weekday = usize::try_from((unix.div_euclid(86_400) + 3).rem_euclid(7)).unwrap();
        let (short, long) = (WEEKDAYS[weekday], WEEKDAYS_LONG[weekday]);
        let (month, time) = (MONTHS[month], format!("{hour:02}:{minute:02}:{second:02}"));
        match form {
            0 => format!("{short}, {day:02} {month} {year:04} {time} GMT"),
            1 => format!("{long}, {day:02}-{month}-{:02} {time} GMT", year.rem_euclid(100)),
            _ => format!("{short} {month} {day:2} {time} {year:04}"),
        }
    }

    proptest! {
        #[test]
        fn a_written_date_reads_back(
            unix in -62_167_219_200..=253_402_300_799_i64,
            form in prop::sample::select(&[0_usize, 2][..]),
        ) {
            let text = written(unix, form);
            prop_assert_eq!(date(&text), Some(unix), "{}", text);
        }

        #[test]
        fn a_written_two_digit_year_reads_back_within_half_a_century(
            wall in 0..=10_000_000_000_i64,
            ahead in -49 * MEAN_YEAR_SECONDS..=49 * MEAN_YEAR_SECONDS,
        ) {
            let text = written(wall + ahead, 1);
            let read = parse_http_date(text.as_bytes(), at(wall));
            prop_assert_eq!(read, Some(at(wall + ahead)), "{}", text);
        }

        #[test]
        fn no_bytes_and_no_wall_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            own in prop::collection::vec(any::<u8>(), 0..40),
            wall in any::<i64>(),
        ) {
            let _ = RetryAfter::parse([bytes.as_slice()], Some(own.as_slice()), at(wall));
            let _ = RetryAfter::parse_slot(&bytes);
        }

        #[test]
        fn no_near_date_and_no_wall_panic(
            unix in 0..=253_402_300_799_i64,
            form in 0..3_usize,
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            wall in any::<i64>(),
        ) {
            let mut text = written(unix, form).into_bytes();
            let _ = RetryAfter::parse([text.as_slice()], None, at(wall));
            let place = place.index(text.len());
            text[place] = byte;
            let _ = RetryAfter::parse([text.as_slice()], Some(text.as_slice()), at(wall));
        }

        #[test]
        fn a_wait_is_never_earlier_than_asked(millis in any::<u64>(), seed in any::<u64>()) {
            let value = Duration::from_millis(millis);
            let mut rng = SplitMix64::new(seed);
            prop_assert!(wait(value, &mut rng) >= value);
            prop_assert!(Duration::from_secs(passed_on(value, &mut rng)) >= value);
        }
    }
}
