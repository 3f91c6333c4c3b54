//! Decides how much time the next hop is told it has.
//!
//! Work for a caller that has given up is the fuel of a metastable failure: the queue is full of
//! it, so everyone gives up. The time that is left therefore travels with a request, as a length
//! in milliseconds and never as a point in time, because no two clocks agree. Each hop keeps back
//! what its own way home takes:
//!
//! ```text
//! sent = min(deadline − now − margin, cap), rounded down;  margin = max(5 ms, measured way home)
//! ```
//!
//! | value | default | range | source |
//! |---|---|---|---|
//! | margin | 5 ms | 5 to 100 ms, measured | seawall-defaults |
//! | share of answers that may need more than the margin | 5 % | fixed | seawall-defaults |
//! | digits in the header | – | 1 to 10, so at most 115 days | seawall-defaults |
//!
//! What comes in is ignored if it is not exactly such a number, and the edge counts that.
//! Known bad case: a network slower than 100 ms one way; the margin stops there, and the last hop
//! works up to the difference for nobody.

use core::time::Duration;

use crate::retry_after::decimal;
use crate::time::{Timestamp, nanos};

/// Reads `X-Remaining-Ms`: whole decimal milliseconds, 1 to 10 digits, blanks around it trimmed.
/// `0` is zero: nothing is left. A sign, a fraction, a blank inside, an eleventh digit or nothing
/// at all is garbage: `None`.
#[must_use]
pub fn parse_remaining(value: &[u8]) -> Option<Duration> {
    let digits = value.trim_ascii();
    if digits.len() > DIGITS_MAX {
        return None;
    }
    decimal(digits).map(Duration::from_millis)
}

/// The milliseconds to send on: what is left until `deadline` less `margin`, at most `cap`,
/// rounded down. `None` if that is less than a millisecond: the attempt is not to be sent.
///
/// Never more than [`parse_remaining`] reads; [`Timestamp::MAX`], no deadline, gives the cap.
#[must_use]
pub fn remaining_to_send(
    now: Timestamp,
    deadline: Timestamp,
    margin: Duration,
    cap: Option<Duration>,
) -> Option<u64> {
    let left = now.until(deadline).saturating_sub(margin);
    let left = cap.map_or(left, |cap| left.min(cap));
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(MILLIS_MAX);
    (millis > 0).then_some(millis)
}

/// How long answers take to leave: a running 95th percentile in one integer.
///
/// Fed with the lateness of each answer, the time between its arrival here and its leaving. A
/// sample above the estimate raises it by 19/512, one at or below lowers it by 1/512, so it rests
/// where 19 in 20 are below. A single sample moves it by less than 4 %, however large; from 5 ms to
/// 50 ms takes about 65 late answers, the way back about 1,200 timely ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnPath {
    /// Nanoseconds, `MARGIN_MIN..=MARGIN_MAX`.
    estimate: u64,
}

impl ReturnPath {
    /// An estimate at its least, 5 ms.
    #[must_use]
    pub const fn new() -> Self {
        Self { estimate: MARGIN_MIN }
    }

    /// Records how late one answer left.
    pub fn record(&mut self, lateness: Duration) {
        let step = self.estimate / STEP_DIVISOR;
        let moved = if nanos(lateness) > self.estimate {
            self.estimate + STEPS_UP * step
        } else {
            self.estimate - step
        };
        self.estimate = moved.clamp(MARGIN_MIN, MARGIN_MAX);
    }

    /// What to keep back for the way home, 5 to 100 ms.
    #[must_use]
    pub const fn margin(&self) -> Duration {
        Duration::from_nanos(self.estimate)
    }
}

impl Default for ReturnPath {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds. Source: seawall-defaults.
const MARGIN_MIN: u64 = 5_000_000;
/// Nanoseconds. Source: seawall-defaults.
const MARGIN_MAX: u64 = 100_000_000;
/// The estimate moves in steps of one part in this many.
const STEP_DIVISOR: u64 = 512;
/// Steps up for each step down: 19 against 1 rests at 19 in 20.
const STEPS_UP: u64 = 19;

/// Source: seawall-defaults.
const DIGITS_MAX: usize = 10;
/// The largest number of [`DIGITS_MAX`] digits.
const MILLIS_MAX: u64 = 9_999_999_999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, SplitMix64};
    use proptest::prelude::*;
    use std::format;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn whole_milliseconds_are_read() {
        for (value, millis) in [("0", 0), ("1", 1), ("800", 800), (" 25 ", 25), ("0000000800", 800)]
        {
            assert_eq!(parse_remaining(value.as_bytes()), Some(ms(millis)), "{value:?}");
        }
        assert_eq!(parse_remaining(b"9999999999"), Some(ms(MILLIS_MAX)));
    }

    #[test]
    fn garbage_is_none() {
        for value in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            "8 00",
            "800ms",
            "banana",
            "00000000800",
            "10000000000",
            "18446744073709551616",
            "0x10",
            "1,000",
            "٣",
        ] {
            assert_eq!(parse_remaining(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn what_is_sent_is_what_is_left_less_the_margin_rounded_down() {
        let send = |now: Timestamp, cap| remaining_to_send(now, at(1000), ms(5), cap);
        assert_eq!(send(at(200), None), Some(795));
        assert_eq!(send(Timestamp::from_nanos(200_000_001), None), Some(794));
        assert_eq!(send(at(200), Some(ms(100))), Some(100));
        assert_eq!(send(at(200), Some(ms(900))), Some(795));
        assert_eq!(send(at(994), None), Some(1));
        assert_eq!(send(Timestamp::from_nanos(994_000_001), None), None);
        assert_eq!(send(at(995), None), None);
        assert_eq!(send(at(2000), None), None);
        assert_eq!(send(at(200), Some(Duration::ZERO)), None);
    }

    #[test]
    fn no_deadline_sends_the_cap_or_the_largest_number_that_can_be_read() {
        let send = |cap| remaining_to_send(at(7), Timestamp::MAX, ms(5), cap);
        assert_eq!(send(Some(ms(12_000))), Some(12_000));
        assert_eq!(send(None), Some(MILLIS_MAX));
        assert_eq!(send(Some(Duration::MAX)), Some(MILLIS_MAX));
    }

    fn after(samples: impl IntoIterator<Item = Duration>) -> ReturnPath {
        let mut path = ReturnPath::new();
        samples.into_iter().for_each(|lateness| path.record(lateness));
        path
    }

    #[test]
    fn the_margin_is_five_milliseconds_until_answers_leave_later() {
        assert_eq!(ReturnPath::new().margin(), ms(5));
        assert_eq!(after([ms(1); 1000]).margin(), ms(5));
        assert_eq!(after([ms(5); 1000]).margin(), ms(5));
    }

    #[test]
    fn the_margin_follows_steady_lateness_and_comes_back() {
        let mut path = after([ms(50); 65]);
        assert!(path.margin() >= ms(50) && path.margin() < ms(52), "{path:?}");
        (0..1300).for_each(|_| path.record(ms(1)));
        assert_eq!(path.margin(), ms(5));
    }

    #[test]
    fn one_outlier_moves_the_margin_by_less_than_four_per_cent() {
        assert!(after([Duration::MAX]).margin() < Duration::from_micros(5200));
    }

    #[test]
    fn the_margin_stops_at_a_hundred_milliseconds() {
        assert_eq!(after([Duration::MAX; 1000]).margin(), ms(100));
    }

    #[test]
    fn the_margin_rests_where_nineteen_in_twenty_are_below() {
        let mut rng = SplitMix64::new(11);
        let path = after((0..20_000).map(|_| rng.duration_between(ms(0), ms(40))));
        // The 95th percentile of U(0, 40 ms) is 38 ms.
        assert!(path.margin() > ms(35) && path.margin() < ms(41), "{path:?}");
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read_back_and_never_extends_the_deadline(
            now in any::<u64>(),
            left in any::<u64>(),
            margin in 0..1_000_000_000_u64,
        ) {
            let (now, margin) = (Timestamp::from_nanos(now), Duration::from_nanos(margin));
            let deadline = now.after(Duration::from_nanos(left));
            if let Some(millis) = remaining_to_send(now, deadline, margin, None) {
                prop_assert_eq!(parse_remaining(format!("{millis}").as_bytes()), Some(ms(millis)));
                prop_assert!(ms(millis) + margin <= now.until(deadline));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = parse_remaining(&bytes);
        }

        #[test]
        fn the_margin_keeps_its_bounds(samples in prop::collection::vec(any::<u64>(), 0..200)) {
            let margin = after(samples.into_iter().map(Duration::from_nanos)).margin();
            prop_assert!(margin >= ms(5) && margin <= ms(100));
        }
    }
}
