//! Reads what gRPC says in numbers: the code a call ended with, the time it may take, and when it
//! may be tried again.
//!
//! A gRPC call is answered with HTTP 200 whatever became of it; what became of it is a code among
//! the trailers. The classes are those of the HTTP statuses the codes stand for:
//!
//! | code | class | tried again | breaker |
//! |---|---|---|---|
//! | 0 OK | success | no | success |
//! | 14 UNAVAILABLE | overloaded | where repeating is harmless | failure |
//! | 8 RESOURCE_EXHAUSTED | overloaded | where repeating is harmless¹ | success |
//! | 4 DEADLINE_EXCEEDED | unknown | where repeating is harmless | failure² |
//! | 10 ABORTED | rejected | with a key and a pushback | success |
//! | every other one | rejected | no | success |
//!
//! ¹ Differs from 429: servers also say it of an answer that is too large to send, when the work
//!   is done. ² *ignore* where the caller's deadline was what ended it. Source: grpc-status-codes.
//!
//! | value | form | source |
//! |---|---|---|
//! | `grpc-timeout` | 1 to 8 digits and a unit of H, M, S, m, u, n; nothing else | grpc-http2 |
//! | `grpc-retry-pushback-ms` | digits: wait exactly so long; anything else: never | grpc-a6 |

use core::time::Duration;

use crate::outcome::Class;
use crate::retry_after::decimal;

/// What became of a gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrpcCode {
    /// 0: as asked.
    Ok,
    /// 1: the caller, or somebody on the way, gave it up.
    Cancelled,
    /// 2: an error without a better name, and any code that is none of these.
    Unknown,
    /// 3: the request is wrong in itself.
    InvalidArgument,
    /// 4: the time was up, whatever was done.
    DeadlineExceeded,
    /// 5: there is no such thing.
    NotFound,
    /// 6: there is one already.
    AlreadyExists,
    /// 7: this caller may not.
    PermissionDenied,
    /// 8: a quota, a limit or a size was reached.
    ResourceExhausted,
    /// 9: the system is not in the state it would have to be in.
    FailedPrecondition,
    /// 10: lost a race; to be begun again from above.
    Aborted,
    /// 11: past the end.
    OutOfRange,
    /// 12: no such method.
    Unimplemented,
    /// 13: something that must not happen.
    Internal,
    /// 14: not now.
    Unavailable,
    /// 15: lost for good.
    DataLoss,
    /// 16: who is calling is not known.
    Unauthenticated,
}

impl GrpcCode {
    /// All of them, by their number.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of a number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Reads `grpc-status`; nothing for what is none of the seventeen, which a caller takes for
    /// [`GrpcCode::Unknown`].
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        Self::of_number(decimal(value)?)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// The label used in metrics, logs and configurations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::FailedPrecondition => "failed_precondition",
            Self::Aborted => "aborted",
            Self::OutOfRange => "out_of_range",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::DataLoss => "data_loss",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// What is known of an attempt that ended with it. See the module's table.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Ok => Class::Success,
            Self::Unavailable | Self::ResourceExhausted => Class::Overloaded,
            Self::DeadlineExceeded => Class::Unknown,
            _ => Class::Rejected,
        }
    }

    /// What stands for an HTTP answer without a code, as the side that asked reads it.
    /// Source: grpc-http-mapping.
    #[must_use]
    pub const fn of_http_status(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

/// A set of codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcCodes(u32);

impl GrpcCodes {
    /// Whether it holds the code.
    #[must_use]
    pub const fn contains(self, code: GrpcCode) -> bool {
        self.0 & (1 << code.number()) != 0
    }
}

impl FromIterator<GrpcCode> for GrpcCodes {
    fn from_iter<I: IntoIterator<Item = GrpcCode>>(codes: I) -> Self {
        Self(codes.into_iter().fold(0, |set, code| set | 1 << code.number()))
    }
}

/// Reads `grpc-timeout`: 1 to 8 digits and a unit, nothing around them.
///
/// Zero, which the grammar has no room for, is a caller whose time is over; it is read as that.
#[must_use]
pub fn parse_grpc_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let number = decimal(digits)?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The number and the unit to send a time in: milliseconds, microseconds if it is less than one,
/// and coarser units for what milliseconds have no room for. Rounded down, so never more time than
/// there is; nothing where nothing is left.
#[must_use]
pub fn grpc_timeout_to_send(left: Duration) -> Option<(u64, char)> {
    let fits = |number: u128| u64::try_from(number).ok().filter(|number| *number <= NUMBER_MAX);
    let seconds = u128::from(left.as_secs());
    let (number, unit) = match () {
        () if left < Duration::from_millis(1) => (fits(left.as_micros())?, 'u'),
        () if let Some(millis) = fits(left.as_millis()) => (millis, 'm'),
        () if let Some(seconds) = fits(seconds) => (seconds, 'S'),
        () if let Some(minutes) = fits(seconds / 60) => (minutes, 'M'),
        () => (fits(seconds / 3600).unwrap_or(NUMBER_MAX), 'H'),
    };
    (number > 0).then_some((number, unit))
}

/// Reads `grpc-retry-pushback-ms`: how long to wait exactly, zero included; nothing if it says
/// never to try again, which everything but plain digits does.
#[must_use]
pub fn parse_pushback(value: &[u8]) -> Option<Duration> {
    decimal(value).map(Duration::from_millis)
}

/// Source: grpc-http2.
const DIGITS_MAX: usize = 8;
/// The largest number of so many digits. Source: grpc-http2.
const NUMBER_MAX: u64 = 99_999_999;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{AnswerSignals, Outcome, Signal};
    use proptest::prelude::*;
    use std::format;

    #[test]
    fn every_code_has_its_number_its_name_and_its_class() {
        for (number, code) in (0_u16..).zip(GrpcCode::ALL) {
            assert_eq!(code.number(), number);
            assert_eq!(GrpcCode::parse(format!("{number}").as_bytes()), Some(code));
            let same_name = GrpcCode::ALL.iter().filter(|other| other.as_str() == code.as_str());
            assert_eq!(same_name.count(), 1, "{code:?}");
            let (class, signal) = match number {
                0 => (Class::Success, Signal::Success),
                4 => (Class::Unknown, Signal::Failure),
                8 => (Class::Overloaded, Signal::Success),
                14 => (Class::Overloaded, Signal::Failure),
                _ => (Class::Rejected, Signal::Success),
            };
            let outcome = Outcome::of_grpc(code, AnswerSignals::default());
            assert_eq!((outcome.class(), outcome.breaker_signal()), (class, signal), "{code:?}");
        }
        for garbage in ["", "17", "-1", "1 ", " 1", "1.0", "banana", "99999999999999999999999"] {
            assert_eq!(GrpcCode::parse(garbage.as_bytes()), None, "{garbage:?}");
        }
    }

    #[test]
    fn an_answer_without_a_code_is_read_by_its_http_status() {
        for (status, code) in [
            (400, GrpcCode::Internal),
            (401, GrpcCode::Unauthenticated),
            (403, GrpcCode::PermissionDenied),
            (404, GrpcCode::Unimplemented),
            (429, GrpcCode::Unavailable),
            (502, GrpcCode::Unavailable),
            (503, GrpcCode::Unavailable),
            (504, GrpcCode::Unavailable),
            (200, GrpcCode::Unknown),
            (500, GrpcCode::Unknown),
            (302, GrpcCode::Unknown),
        ] {
            assert_eq!(GrpcCode::of_http_status(status), code, "{status}");
        }
    }

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        let millis = Duration::from_millis;
        for (value, time) in [
            ("1H", millis(3_600_000)),
            ("2M", millis(120_000)),
            ("3S", millis(3000)),
            ("4m", millis(4)),
            ("5000u", millis(5)),
            ("6000000n", millis(6)),
            ("0m", Duration::ZERO),
            ("00000001S", millis(1000)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(parse_grpc_timeout(value.as_bytes()), Some(time), "{value}");
        }
        for garbage in [
            "",
            "m",
            "1",
            "100000000m",
            "-1m",
            "+1m",
            "1.5S",
            "1 m",
            " 1m",
            "1m ",
            "1s",
            "1h",
            "1ms",
            "mm",
            "banana",
            "1\u{b5}",
            "٣m",
        ] {
            assert_eq!(parse_grpc_timeout(garbage.as_bytes()), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_time_is_sent_in_milliseconds_unless_they_say_too_little_or_too_much() {
        for (nanos, sent) in [
            (0, None),
            (999, None),
            (1_999, Some((1, 'u'))),
            (999_999, Some((999, 'u'))),
            (1_999_999, Some((1, 'm'))),
            (99_999_999_999_999, Some((99_999_999, 'm'))),
            (100_000_000_000_000, Some((100_000, 'S'))),
        ] {
            assert_eq!(grpc_timeout_to_send(Duration::from_nanos(nanos)), sent, "{nanos}");
        }
        let seconds = |seconds| grpc_timeout_to_send(Duration::from_secs(seconds));
        assert_eq!(seconds(100_000_000), Some((1_666_666, 'M')));
        assert_eq!(seconds(100_000_000 * 60), Some((1_666_666, 'H')));
        assert_eq!(grpc_timeout_to_send(Duration::MAX), Some((99_999_999, 'H')));
    }

    #[test]
    fn a_pushback_of_anything_but_digits_means_never() {
        for (value, wait) in [("0", 0), ("25", 25), ("007", 7)] {
            assert_eq!(parse_pushback(value.as_bytes()), Some(Duration::from_millis(wait)));
        }
        for never in ["", "-1", "+1", "1.5", " 1", "1s", "banana"] {
            assert_eq!(parse_pushback(never.as_bytes()), None, "{never:?}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: GrpcCodes = [GrpcCode::Ok, GrpcCode::Unauthenticated].into_iter().collect();
        let held = GrpcCode::ALL.iter().filter(|code| set.contains(**code));
        assert_eq!(held.count(), 2);
        assert!(set.contains(GrpcCode::Unauthenticated) && !set.contains(GrpcCode::Unknown));
    }

    proptest! {
        #[test]
        fn a_time_that_was_sent_is_read_back_and_never_longer(nanos in any::<u64>()) {
            let left = Duration::from_nanos(nanos);
            if let Some((number, unit)) = grpc_timeout_to_send(left) {
                let read = parse_grpc_timeout(format!("{number}{unit}").as_bytes()).unwrap();
                prop_assert!(read <= left);
                let grain = left / 1000;
                prop_assert!(left - read <= grain.max(Duration::from_millis(1)));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let _ = parse_grpc_timeout(&bytes);
            let _ = parse_pushback(&bytes);
            let _ = GrpcCode::parse(&bytes);
        }
    }
}
