//! What happens while nobody waits, and after drops.

use core::time::Duration;

use super::float::{Drift, Float, Trend, loaded};
use super::{Knee, Phase};
use crate::limit::{LimitOutcome, LimitParams};
use crate::time::Timestamp;

impl Knee {
    /// While it is open: whether the limit was reached for half of the last round trip or longer.
    pub(super) fn is_full_again(&mut self, now: Timestamp) -> bool {
        if self.full.begun() < FULL_CALLS || !self.lasted(now, 1) {
            return false;
        }
        let is_full = self.full.is_reached(now, 2);
        if !is_full {
            self.phase_began = now;
            self.full.begin(now, self.level);
        }
        is_full
    }

    /// While it is not: whether it is hardly reached any longer, or, for a while, less than half.
    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        let is_told = self.full.begun() >= FULL_CALLS && self.lasted(now, IDLE_ROUNDS);
        is_told && !self.full.is_reached(now, 8)
            || now.since(self.phase_began) > IDLE && !self.full.is_reached(now, 2)
    }

    /// Nobody waits any longer.
    pub(super) fn open(&mut self, now: Timestamp) {
        self.trial.begin(now);
        self.phase = Phase::Open;
        self.phase_began = now;
        self.set_level(now, self.limit());
        self.trend = Trend::default();
        self.float = Float::after(now, self.level);
    }

    /// Lets the limit float.
    pub(super) fn drift(&mut self, now: Timestamp, params: &LimitParams) {
        let to = match self.float.turn(now) {
            Drift::Stay => return,
            Drift::To(to) if self.hold.lasts_at(now) => to.min(self.limit()),
            Drift::To(to) => to,
            Drift::DownTo(to) => to.min(self.limit()),
        };
        self.set_open(now, params, to);
    }

    fn set_open(&mut self, now: Timestamp, params: &LimitParams, limit: u32) {
        let limit = limit.clamp(params.min(), params.max());
        self.limit = f64::from(limit);
        self.set_level(now, limit);
    }

    /// While nobody waits: do calls take longer the more others they find, or are they dropped?
    pub(super) fn suspect(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        in_flight: u32,
        time: f64,
        outcome: LimitOutcome,
    ) {
        self.trend.add(in_flight, time, outcome);
        let drops_at = self.trend.drops_at();
        if drops_at.is_some() {
            self.hold.begin(now);
        } else if !self.trend.is_rising() {
            return;
        }
        self.float.load();
        self.trend = Trend::default();
        let to = drops_at.unwrap_or_else(|| loaded(self.float.peak()));
        if to < self.level {
            self.set_open(now, params, to);
        }
    }
}

/// Not raised until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    until: Timestamp,
    lasts: Duration,
}

impl Hold {
    pub(super) const NONE: Self = Self { until: Timestamp::ZERO, lasts: HOLD_MIN };

    /// Begins after drops; for twice as long if the last one has just ended.
    pub(super) fn begin(&mut self, now: Timestamp) {
        let is_again = now < self.until.after(HOLD_MIN);
        self.lasts = if is_again { (self.lasts * 2).min(HOLD_MAX) } else { HOLD_MIN };
        self.until = now.after(self.lasts);
    }

    pub(super) fn lasts_at(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// Source: seawall-defaults.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// Source: seawall-defaults.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// Source: own choice.
const IDLE: Duration = Duration::from_millis(2_500);
/// Calls without which nobody can be said to wait, or not to. Source: own choice.
const FULL_CALLS: u32 = 16;
/// Source: own choice.
const IDLE_ROUNDS: u32 = 4;
