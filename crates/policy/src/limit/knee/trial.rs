//! Two levels of calls in flight, and the samples of each.

use core::time::Duration;

use super::float::floor;
use crate::limit::LimitOutcome;
use crate::limit::prices::Prices;
use crate::time::Timestamp;

/// Which trial a call belongs to, and on which side.
#[derive(Clone, Copy, Debug)]
pub(in crate::limit) struct Stamp {
    trial: u32,
    side: Side,
}

impl Stamp {
    pub(in crate::limit) const NONE: Self = Self { trial: 0, side: Side::Neither };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Neither,
    /// With all those that began when the limit was raised: it counts if it is dropped.
    Early,
    High,
    Low,
}

/// Two levels that are compared.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    number: u32,
    pub(super) began: Timestamp,
    pub(super) high: Prices,
    pub(super) low: Prices,
    /// Of the low phase that is on, and how long the last one took.
    pub(super) low_now: Prices,
    pub(super) low_took: Duration,
    /// The lower level is what the limit was before, known already.
    pub(super) is_upward: bool,
    /// Calls differ so much that few say nothing.
    pub(super) is_noisy: bool,
    /// Times the knee: more, the less that is known.
    pub(super) headroom: f64,
}

impl Trial {
    /// The furthest that a low phase goes down.
    pub(super) const DEEPEST: usize = STAGES.len() - 1;

    pub(super) fn new(now: Timestamp, headroom: f64) -> Self {
        Self {
            number: 0,
            began: now,
            high: Prices::default(),
            low: Prices::default(),
            low_now: Prices::default(),
            low_took: Duration::ZERO,
            is_upward: false,
            is_noisy: true,
            headroom,
        }
    }

    /// Forgets its samples; those that are on their way belong to an earlier one.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.number = self.number.wrapping_add(1);
        self.began = now;
        self.high = Prices::default();
        self.low = Prices::default();
        self.low_now = Prices::default();
        self.is_upward = false;
    }

    pub(super) fn add(
        &mut self,
        is_low: bool,
        stamp: Stamp,
        in_flight: u32,
        time: f64,
        outcome: LimitOutcome,
    ) {
        if stamp.trial != self.number {
            return;
        }
        match stamp.side {
            Side::Early if outcome != LimitOutcome::Dropped => {}
            Side::Early | Side::High => self.high.add(in_flight, time, outcome),
            Side::Low if is_low => self.low_now.add(in_flight, time, outcome),
            Side::Low => self.low.add(in_flight, time, outcome),
            Side::Neither => {}
        }
    }

    /// What a call carries that begins now.
    pub(super) const fn stamp(&self, side: Side) -> Stamp {
        Stamp { trial: self.number, side }
    }

    /// The level of the low phase under a limit; none below one.
    pub(super) fn lower_level(&self, limit: u32, stage: usize) -> Option<u32> {
        let share = LOWER / self.headroom * STAGES[stage];
        let lower = floor(f64::from(limit) * share).clamp(1, limit);
        (lower < limit).then_some(lower)
    }

    /// Samples that end a phase at a level.
    pub(super) fn samples_of(&self, level: u32) -> u32 {
        if self.is_noisy { level.saturating_mul(2).clamp(8, 32) } else { level.clamp(4, 32) }
    }

    /// Ends a low phase that took so long; false if its samples are not of the same dependency as
    /// those of the phases before.
    pub(super) fn end_low(&mut self, took: Duration) -> bool {
        self.low_took = took;
        let now = core::mem::take(&mut self.low_now);
        let is_alike = self.low.is_like(&now);
        self.low.merge(&now);
        is_alike
    }
}

/// The lower level of a trial as a share of the knee, if the limit stands right.
/// Source: seawall-defaults.
const LOWER: f64 = 0.84;
/// The same again while both levels are above the knee. Source: seawall-defaults.
const STAGES: [f64; 4] = [1.0, 0.75, 0.5, 0.3];
