//! For how much of the time a limit is reached.
//!
//! Of calls that begin, not every one finds the limit reached even where all wait: of eight that
//! end together, only the last that takes their place does. The time tells.

use crate::time::Timestamp;

/// A stretch of time, and how much of it the limit was reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    began: Timestamp,
    begun: u32,
    in_flight: u32,
    /// Since when it is reached, if it is.
    since: Option<Timestamp>,
    nanos: u128,
}

impl Full {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { began: now, begun: 0, in_flight: 0, since: None, nanos: 0 }
    }

    /// Begins anew, with a limit that may be another.
    pub(super) fn begin(&mut self, now: Timestamp, level: u32) {
        let since = (self.in_flight >= level).then_some(now);
        *self = Self { since, in_flight: self.in_flight, ..Self::new(now) };
    }

    pub(super) fn on_begin(&mut self, now: Timestamp, in_flight: u32, level: u32) {
        self.begun = self.begun.saturating_add(1);
        self.on_change(now, in_flight, level);
    }

    pub(super) fn on_leave(&mut self, now: Timestamp, in_flight: u32, level: u32) {
        self.on_change(now, in_flight, level);
    }

    fn on_change(&mut self, now: Timestamp, in_flight: u32, level: u32) {
        self.in_flight = in_flight;
        match self.since {
            None if in_flight >= level => self.since = Some(now),
            Some(since) if in_flight < level => {
                self.nanos += now.since(since).as_nanos();
                self.since = None;
            }
            None | Some(_) => {}
        }
    }

    /// Calls that have begun in it.
    pub(super) const fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether it was reached for one part in `one_in` of the time, or more.
    pub(super) fn is_reached(&self, now: Timestamp, one_in: u32) -> bool {
        let last = self.since.map_or(0, |since| now.since(since).as_nanos());
        (self.nanos + last) * u128::from(one_in) >= now.since(self.began).as_nanos()
    }
}
