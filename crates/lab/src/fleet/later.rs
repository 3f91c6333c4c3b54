//! What a server says with a refusal about when to come again, as bytes on the wire, which the
//! policy then reads as it reads those of a real server.
//!
//! | form | field | who comes back when |
//! |---|---|---|
//! | seconds | `Retry-After: 10` | counted from each answer |
//! | date | `Retry-After: Fri, 15 Jan 2027 08:00:10 GMT` | all in the same second, whenever they were told |
//! | slots | `Seawall-Slot-Ms: 10250` | each at a time of its own, handed out in turn |

use std::fmt::Write as _;
use std::time::Duration;

use seawall_policy::{ConfigError, RetryAfter, Timestamp, WallTime};

use crate::draw::Draw;
use crate::span::check;

/// When a refusal asks to come again.
#[derive(Clone, Debug, PartialEq)]
pub struct Later {
    /// How long to stay away.
    pub wait: Wait,
    /// The wait is longer or shorter by up to this share of it, at random; 0 to 1.
    pub spread: f64,
    /// How it is said.
    pub form: Form,
}

/// How long to stay away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// Always as long.
    Fixed(Duration),
    /// As long as it takes to work off what waits, at this rate; above 0.
    Backlog(f64),
}

/// How a refusal says when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In whole seconds, rounded up, at least 1.
    Seconds,
    /// As a date, which is of whole seconds, rounded up. The answer has a `Date` of its own to
    /// measure it against, or the client's clock has to do.
    Date {
        /// Whether it has.
        dated: bool,
    },
    /// As a slot of the client's own: never two within the time that one takes at the rate of the
    /// backlog, the first at the end of the wait.
    Slots,
}

/// What a server remembers about the slots it has handed out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slots {
    /// When the next one is free.
    free_at: Timestamp,
}

impl Later {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        check("retry_after.spread", self.spread, 0.0, 1.0)?;
        if let Wait::Backlog(rate) = self.wait {
            check("retry_after.rate", rate, 0.001, 1e9)?;
        }
        let has_rate = matches!(self.wait, Wait::Backlog(_));
        if self.form == Form::Slots && !has_rate {
            return Err(ConfigError::new("retry_after.form", "slots", "slots only with a rate"));
        }
        Ok(())
    }

    /// What a client reads at `read_at`, its clock `skew` seconds ahead, of an answer that is given
    /// now by a server with so many waiting.
    pub(super) fn said(
        &self,
        now: Timestamp,
        read_at: Timestamp,
        skew: i64,
        waiting: usize,
        slots: &mut Slots,
        draw: &mut Draw,
    ) -> RetryAfter {
        let wait = match self.wait {
            Wait::Fixed(wait) => wait,
            Wait::Backlog(rate) => Duration::from_secs_f64(waiting as f64 / rate),
        };
        let wait = match self.spread {
            spread if spread > 0.0 => wait.mul_f64(1.0 + spread * (2.0 * draw.unit() - 1.0)),
            _ => wait,
        };
        let here = wall(read_at, skew);
        match self.form {
            Form::Seconds => {
                let seconds = whole_seconds(wait).max(1).to_string();
                RetryAfter::parse([seconds.as_bytes()], None, here)
            }
            Form::Date { dated } => {
                let then = http_date(EPOCH + seconds_of(now.after(wait), true));
                let date = http_date(EPOCH + seconds_of(now, false));
                let date = dated.then_some(date.as_bytes());
                RetryAfter::parse([then.as_bytes()], date, here)
            }
            Form::Slots => {
                let Wait::Backlog(rate) = self.wait else { return RetryAfter::Absent };
                let slot = slots.free_at.max(now.after(wait));
                slots.free_at = slot.after(Duration::from_secs_f64(1.0 / rate));
                let millis = now.until(slot).as_millis().to_string();
                RetryAfter::parse_slot(millis.as_bytes()).unwrap_or_default()
            }
        }
    }
}

/// What the clock on the wall says, where it is ahead by `skew`.
const fn wall(now: Timestamp, skew: i64) -> WallTime {
    WallTime::from_unix_seconds(EPOCH + seconds_of(now, false) + skew)
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

const fn seconds_of(at: Timestamp, up: bool) -> i64 {
    let nanos = at.as_nanos();
    let up = up && !nanos.is_multiple_of(1_000_000_000);
    (nanos / 1_000_000_000).cast_signed() + up as i64
}

/// The date in the form that HTTP prefers. Source: RFC 9110, section 5.6.7.
fn http_date(unix: i64) -> String {
    let (days, second) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
    // The day of the civil calendar, counted in eras of 400 years from March on.
    // Source: civil-calendar.
    let (era, day) = ((days + 719_468).div_euclid(146_097), (days + 719_468).rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let name = |names: &[&'static str], place: i64| {
        usize::try_from(place).ok().and_then(|place| names.get(place).copied()).unwrap_or("")
    };
    let weekday = name(&WEEKDAYS, (days + 4).rem_euclid(7));
    let month = name(&MONTHS, month - 1);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let mut text = String::with_capacity(29);
    let written =
        write!(text, "{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT");
    debug_assert!(written.is_ok(), "text takes everything");
    text
}

/// When virtual time begins, on the wall: 15 January 2027, 08:00. Source: own choice.
const EPOCH: i64 = 1_800_000_000;
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// What is read 100 ms after it was said at 1.5 s.
    fn read(later: &Later, skew: i64, waiting: usize, slots: &mut Slots) -> RetryAfter {
        let mut draw = Draws::new(1).stream(0, Purpose::Service);
        later.said(at(1_500), at(1_600), skew, waiting, slots, &mut draw)
    }

    fn secs(seconds: u64) -> RetryAfter {
        RetryAfter::Wait(Duration::from_secs(seconds))
    }

    #[test]
    fn dates_are_those_that_the_policy_reads() {
        let wall = WallTime::from_unix_seconds(EPOCH);
        assert_eq!(http_date(EPOCH), "Fri, 15 Jan 2027 08:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        for unix in (0..4_000_000_000).step_by(7_654_321) {
            let read = seawall_policy::parse_http_date(http_date(unix).as_bytes(), wall);
            assert_eq!(read, Some(WallTime::from_unix_seconds(unix)), "{unix}");
        }
    }

    #[test]
    fn seconds_count_from_the_answer_and_a_date_is_the_same_for_all() {
        let fixed =
            |form| Later { wait: Wait::Fixed(Duration::from_millis(9_200)), spread: 0.0, form };
        let mut slots = Slots::default();
        assert_eq!(read(&fixed(Form::Seconds), 500, 0, &mut slots), secs(10));
        // 10.7 s is 11 s; the answer is of second 1, and the clock a fifth of a minute off.
        assert_eq!(read(&fixed(Form::Date { dated: true }), 12, 0, &mut slots), secs(10));
        assert_eq!(read(&fixed(Form::Date { dated: false }), -12, 0, &mut slots), secs(22));
        let past = read(&fixed(Form::Date { dated: false }), 12, 0, &mut slots);
        assert_eq!(past, RetryAfter::Unusable);
    }

    #[test]
    fn a_backlog_is_told_in_time_and_slots_are_handed_out_one_by_one() {
        let backlog = |form| Later { wait: Wait::Backlog(20.0), spread: 0.0, form };
        let mut slots = Slots::default();
        assert_eq!(read(&backlog(Form::Seconds), 0, 90, &mut slots), secs(5));
        assert_eq!(read(&backlog(Form::Seconds), 0, 0, &mut slots), secs(1));
        let slot = |millis| RetryAfter::Slot(Duration::from_millis(millis));
        let told = [(); 3].map(|()| read(&backlog(Form::Slots), 0, 40, &mut slots));
        assert_eq!(told, [slot(2_000), slot(2_050), slot(2_100)]);
        // More wait meanwhile, and the next slot is after them.
        assert_eq!(read(&backlog(Form::Slots), 0, 100, &mut slots), slot(5_000));
    }

    #[test]
    fn a_spread_is_around_the_wait() {
        let later =
            Later { wait: Wait::Fixed(Duration::from_secs(100)), spread: 0.2, form: Form::Seconds };
        let mut slots = Slots::default();
        let mut draw = Draws::new(1).stream(0, Purpose::Service);
        let waits: Vec<u64> = (0..1_000)
            .map(|_| match later.said(at(0), at(0), 0, 0, &mut slots, &mut draw) {
                RetryAfter::Wait(wait) => wait.as_secs(),
                _ => 0,
            })
            .collect();
        assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&81), Some(&120)));
    }
}
