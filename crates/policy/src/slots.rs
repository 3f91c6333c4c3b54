//! Decides when each refused caller may come again, so that all of them are back as fast as they
//! can be served, each at its second attempt.
//!
//! A server that refuses ten thousand callers at nine o'clock knows what none of them does: that
//! there are ten thousand. Backoff has each of them guess, and the guesses come too early, or leave
//! the server idle. A wait that is the same for all is an appointment for all. So each one gets a
//! slot of its own, in a schedule that runs at the rate the server can serve, and a token that
//! says so.
//!
//! ```text
//! first slot   now + lead                        the caller of this says what is inside still
//! each slot    the one before + 1 / rate         up to now + window; beyond, none is given out
//! kept         from slot − early to slot + late, once, with its token
//! ```
//!
//! - **While a slot lies ahead**, who comes without a token waits behind all of them and gets the
//!   next slot: nobody overtakes. When none does, everybody goes on, and nothing is remembered.
//! - **A token** is the slot's time and number and a seal ([`SealKey`]) on both. Nothing is kept of
//!   a caller: a slot is two counts and a bit in the tenth of a second that it falls into, which is
//!   forgotten `late` after its end.
//! - **Slots that are not kept** are free again then: as many newcomers go on at once as slots were
//!   missed, at most those of a tenth of a second together, so that a pause never ends in a burst.
//!
//! | who comes | gets |
//! |---|---|
//! | in time, the first time | to go on |
//! | too early | the same slot again, and the same token |
//! | too late, its slot has been given on | what a newcomer gets |
//! | with a token that was used (a replay, or a copy) | what a newcomer gets |
//! | with a token that was never made here: forged, damaged, of another route or another process | what a newcomer gets |
//!
//! So no token is worth more than coming once, at its time, and none makes anything worse. A caller
//! that sends none is a newcomer each time; it goes on when slots are missed, its own among them.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `limit` per `period` | none | 1 or more, at most 100,000/s, at least one an hour | seawall-design |
//! | `window` | 5 min | 1 s to 1 h | seawall-defaults |
//! | `early` | 100 ms | 0 to 10 s | seawall-defaults |
//! | `late` | 1 s | 0 to 1 min | seawall-defaults |
//!
//! Bounds: ten entries for each second of the window, and one bit for each slot of those that can
//! be kept now. O(1), and O(entries passed) after a pause.
//!
//! Known bad cases: a rate above what can be served brings callers back to be refused again; the
//! callers of a network that stalls come in a burst of at most `rate` × (`early` + `late`) when it
//! lets go; with several processes behind one address a slot holds only where it was given out; who
//! asks most often has most slots, so quotas for each caller go before.

mod book;
#[cfg(test)]
mod tests;
mod token;

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::siphash::SealKey;
use crate::time::{Timestamp, nanos};

pub use token::SlotToken;

use book::{Book, Kept, TENTH};

/// The options of reserved slots, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsOptions {
    /// Slots in each `period`: what can be served, or a little less.
    pub limit: u32,
    /// In how long. `limit` / `period` is at most 100,000 a second and at least one an hour.
    pub period: Duration,
    /// How far ahead slots are given out; 1 s to 1 h. Beyond, callers are refused without one.
    pub window: Duration,
    /// How much before its time a slot may be kept; 0 to 10 s. Clocks are not exact.
    pub early: Duration,
    /// How long after its time it is held; 0 to 1 min. Until then a slot that is missed is lost.
    pub late: Duration,
}

impl SlotsOptions {
    /// So many in each `period`, and the defaults.
    #[must_use]
    pub const fn new(limit: u32, period: Duration) -> Self {
        Self { limit, period, window: WINDOW, early: EARLY, late: LATE }
    }
}

/// Checked [`SlotsOptions`]. Swapping them keeps every slot that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsParams {
    options: SlotsOptions,
    /// From slot to slot, rounded up to a nanosecond: never faster than asked.
    step: Duration,
    /// Slots missed that may be taken at once.
    burst: u32,
}

impl SlotsParams {
    /// Checks the options.
    ///
    /// # Errors
    /// The first option outside its range.
    pub fn new(options: SlotsOptions) -> Result<Self, ConfigError> {
        let SlotsOptions { limit, period, window, early, late } = options;
        let step = nanos(period).div_ceil(limit.max(1).into());
        let least = nanos(STEP_MIN).saturating_mul(limit.into());
        if limit == 0 || nanos(period) < least || step > nanos(STEP_MAX) {
            let value = format!("{limit} in {period:?}");
            return Err(ConfigError::new("rate", value, "from 1/h to 100000/s"));
        }
        let checks = [
            ("window", window, WINDOW_MIN..=WINDOW_MAX, "1s to 1h"),
            ("early", early, Duration::ZERO..=EARLY_MAX, "0s to 10s"),
            ("late", late, Duration::ZERO..=LATE_MAX, "0s to 1m"),
        ];
        for (field, value, range, allowed) in checks {
            if !range.contains(&value) {
                return Err(ConfigError::new(field, format!("{value:?}"), allowed));
            }
        }
        let burst = u32::try_from(TENTH / step).unwrap_or(u32::MAX).max(1);
        Ok(Self { options, step: Duration::from_nanos(step), burst })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> SlotsOptions {
        self.options
    }

    /// How long so many take at the rate.
    #[must_use]
    pub fn time_of(&self, count: u32) -> Duration {
        self.step.saturating_mul(count)
    }
}

/// A slot that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When to come.
    pub at: Timestamp,
    /// What to bring.
    pub token: SlotToken,
}

/// What a caller without a slot is told, beside when.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Go on.
    Open(Came),
    /// Come at this time: a slot of its own, or the same one again.
    At(Slot),
    /// The window is full, or the slot would be after the caller's deadline: none is given out.
    Full,
}

/// How it came that somebody goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// No slot lies ahead.
    Free,
    /// It kept its slot.
    InTime,
    /// It takes one that was missed.
    InPlace,
}

/// What became of slots and tokens since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots given out.
    pub given: u64,
    /// Kept.
    pub kept: u64,
    /// Missed, and free for others.
    pub missed: u64,
    /// Missed, and taken by others.
    pub taken: u64,
    /// Times that a caller came too early.
    pub early: u64,
    /// Times that one came too late.
    pub late: u64,
    /// Tokens shown again after they were used.
    pub replayed: u64,
    /// Tokens that were not made here.
    pub foreign: u64,
    /// Callers that were given none: the window was full, or their deadline before it.
    pub none: u64,
}

/// The schedule of one server, or of one kind of its work.
#[derive(Debug)]
pub struct Slots {
    key: SealKey,
    book: Book,
    /// When the next slot is.
    next: Timestamp,
    /// Slots missed that may be taken now; at most a burst.
    missed: u32,
    counts: SlotCounts,
    /// The latest `now` seen.
    latest: Timestamp,
}

impl Slots {
    /// An empty schedule whose tokens only `key` makes. One key for each schedule.
    #[must_use]
    pub fn new(key: SealKey) -> Self {
        Self {
            key,
            book: Book::default(),
            next: Timestamp::ZERO,
            missed: 0,
            counts: SlotCounts::default(),
            latest: Timestamp::ZERO,
        }
    }

    /// A caller comes, with the token it brings, if any. `until` is its own deadline: a slot that
    /// lies behind that is of no use to it and not given out.
    pub fn enter(
        &mut self,
        now: Timestamp,
        params: &SlotsParams,
        token: Option<&[u8]>,
        until: Timestamp,
    ) -> Entry {
        self.settle(now, params);
        if let Some(entry) = token.and_then(|token| self.show(params, token)) {
            return entry;
        }
        if self.next <= self.latest {
            self.missed = 0;
            return Entry::Open(Came::Free);
        }
        if self.missed > 0 {
            self.missed -= 1;
            self.counts.taken += 1;
            return Entry::Open(Came::InPlace);
        }
        self.give_out(params, Duration::ZERO, until).map_or(Entry::Full, Entry::At)
    }

    /// A caller that went on was turned away further in: the slot it gets instead. `lead` is how
    /// long the server needs until it can take up one more.
    pub fn turned_away(
        &mut self,
        now: Timestamp,
        params: &SlotsParams,
        lead: Duration,
        until: Timestamp,
    ) -> Option<Slot> {
        self.settle(now, params);
        self.give_out(params, lead, until)
    }

    /// How far ahead the next slot lies; zero where everybody goes on.
    #[must_use]
    pub const fn ahead(&self, now: Timestamp) -> Duration {
        now.until(self.next)
    }

    /// Tenths of a second that something is kept of; at most ten for each second of the window and
    /// of `late`, and two.
    #[must_use]
    pub fn tenths(&self) -> usize {
        self.book.tenths()
    }

    /// What became of slots and tokens.
    #[must_use]
    pub const fn counts(&self) -> SlotCounts {
        self.counts
    }

    /// What is decided by a token alone; nothing if it makes its bearer a newcomer.
    fn show(&mut self, params: &SlotsParams, token: &[u8]) -> Option<Entry> {
        let Some((at, number)) = token::read(&self.key, token) else {
            self.counts.foreign += 1;
            return None;
        };
        if self.latest.after(params.options.early) < at {
            self.counts.early += 1;
            return Some(Entry::At(Slot { at, token: SlotToken::new(&self.key, at, number) }));
        }
        match self.book.keep(at, number) {
            Kept::First => {
                self.counts.kept += 1;
                Some(Entry::Open(Came::InTime))
            }
            Kept::Again => {
                self.counts.replayed += 1;
                None
            }
            Kept::Gone => {
                self.counts.late += 1;
                None
            }
        }
    }

    fn give_out(&mut self, params: &SlotsParams, lead: Duration, until: Timestamp) -> Option<Slot> {
        let at = self.next.max(self.latest.after(lead)).max(self.latest.after(STEP_MIN));
        if at > self.latest.after(params.options.window) || at >= until {
            self.counts.none += 1;
            return None;
        }
        self.next = at.after(params.step);
        self.counts.given += 1;
        let number = self.book.enter(at);
        Some(Slot { at, token: SlotToken::new(&self.key, at, number) })
    }

    /// Gives on what can be kept no longer.
    fn settle(&mut self, now: Timestamp, params: &SlotsParams) {
        self.latest = self.latest.max(now);
        let missed = self.book.close(self.latest.before(params.options.late));
        self.counts.missed += u64::from(missed);
        self.missed = self.missed.saturating_add(missed).min(params.burst);
    }
}

/// Source: seawall-defaults.
const WINDOW: Duration = Duration::from_secs(300);
/// Source: seawall-defaults.
const EARLY: Duration = Duration::from_millis(100);
/// Source: seawall-defaults.
const LATE: Duration = Duration::from_secs(1);
/// At 100,000 a second. Source: seawall-design.
const STEP_MIN: Duration = Duration::from_micros(10);
/// At one an hour. Source: seawall-design.
const STEP_MAX: Duration = Duration::from_secs(3_600);
/// Source: seawall-design.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const WINDOW_MAX: Duration = Duration::from_secs(3_600);
/// Source: seawall-design.
const EARLY_MAX: Duration = Duration::from_secs(10);
/// Source: seawall-design.
const LATE_MAX: Duration = Duration::from_secs(60);
