//! What a trial shows.

use super::trial::Trial;
use crate::limit::prices::Prices;

/// What two levels that were compared say of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing yet.
    Unsure,
    /// Calls are dropped at the higher level and not at the lower.
    Drops,
    /// They cannot both be of the same dependency: its speed has changed in between.
    Changed,
    /// A call costs the same at both.
    Below,
    /// The limit should stand there.
    Move(Move),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) limit: f64,
    /// Both levels are above the knee, and the limit is too: look further down.
    pub(super) is_far: bool,
    /// How far down, at most.
    pub(super) stage_max: usize,
    /// The price at the level that the limit is at, or near.
    pub(super) price: f64,
    /// The samples are too dear to be thrown away.
    pub(super) keeps: bool,
}

impl Verdict {
    /// Judges a trial of a limit that is to stand at `headroom` times the knee.
    pub(super) fn of(trial: &mut Trial, limit: f64, headroom: f64, is_overdue: bool) -> Self {
        let (high, low) = (trial.high, trial.low);
        if high.dropped >= DROPPED_MIN && high.drops() > low.drops() + DROPS && low.calls > 0 {
            return Self::Drops;
        }
        if high.calls < SAMPLES_MIN || low.calls < SAMPLES_MIN / 2 {
            return Self::Unsure;
        }
        let (r, q) = (high.price() / low.price(), high.in_flight() / low.in_flight());
        if q < APART || !r.is_finite() || r <= 0.0 {
            return Self::Unsure;
        }
        let spread = high.spread().max(low.spread());
        trial.is_noisy = spread > NOISY;
        if trial.is_noisy && high.calls.min(low.calls) < SAMPLES_NOISY {
            // A few calls that happen to be alike are not alike.
            return Self::Unsure;
        }
        let share = sqrt(high.uncertainty(spread) + low.uncertainty(spread));
        trial.headroom = (headroom + 2.0 * share).min(HEADROOM_MAX);
        let seen = Seen { r, q, share, error: share * r };
        if seen.is_implausible(high.goodness(), low.goodness()) {
            return Self::Changed;
        }
        // What r is where nothing needs to be done.
        let stays = if trial.is_upward { f64::midpoint(1.0, q) } else { trial.headroom.min(q) };
        let is_clear = (r - stays).abs() > 3.0 * seen.error;
        if share > SURE && !is_clear && !(is_overdue && share < OVERDUE) {
            return Self::Unsure;
        }
        if seen.slope() < BELOW && stays - r > 2.0 * seen.error {
            return Self::Below;
        }
        Self::Move(if trial.is_upward {
            seen.after_raise(&high, &low, trial)
        } else {
            seen.after_dip(&high, limit, trial, is_clear)
        })
    }
}

/// Two levels compared.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Price at the higher level by that at the lower.
    r: f64,
    /// The higher level by the lower.
    q: f64,
    /// How far off r may be, as a share of it.
    share: f64,
    /// The same in its units.
    error: f64,
}

impl Seen {
    /// 0: both levels are below the knee; 1: both are above it.
    fn slope(&self) -> f64 {
        (self.r - 1.0) / (self.q - 1.0)
    }

    /// More in flight cannot cost more than in proportion, unless more of them are given up; nor
    /// less than nothing.
    fn is_implausible(&self, high: f64, low: f64) -> bool {
        let most = 1.0 + IMPLAUSIBLE * (self.q - 1.0);
        self.r - 3.0 * self.error > most && high > 0.9 * low
            || (self.r + 3.0 * self.error) * IMPLAUSIBLE < 1.0
    }

    /// The knee, or, if both levels are above it, the lower.
    fn knee(&self, high: &Prices) -> f64 {
        high.in_flight() / self.r.min(self.q)
    }

    /// The higher level was the new one.
    fn after_raise(&self, high: &Prices, low: &Prices, trial: &Trial) -> Move {
        // Both above the knee: the lower, from which it was raised, was right.
        let (limit, price) = if self.slope() > ABOVE {
            (low.in_flight(), low.price())
        } else {
            (trial.headroom * self.knee(high), high.price())
        };
        Move { limit, is_far: false, stage_max: 0, price, keeps: trial.is_noisy }
    }

    /// The lower level was below the limit for a while.
    fn after_dip(&self, high: &Prices, limit: f64, trial: &Trial, is_clear: bool) -> Move {
        let target = trial.headroom * self.knee(high);
        let is_far = self.slope() > ABOVE && target < limit * 0.95;
        let is_precise = self.share < PRECISE;
        let gain = if is_far && (is_clear || is_precise) || self.share < EXACT { 1.0 } else { 0.5 };
        let doubt = (SURE * SURE / (self.share * self.share)).min(1.0);
        Move {
            limit: limit + gain * doubt * (target - limit),
            is_far,
            stage_max: if is_precise { usize::MAX } else { 1 },
            price: high.price(),
            keeps: trial.is_noisy,
        }
    }
}

/// By Newton's method, to a thousandth or so for what lies between 0.0001 and 10,000.
fn sqrt(value: f64) -> f64 {
    let mut root = f64::midpoint(value, 1.0);
    for _ in 0..8 {
        root = f64::midpoint(root, value / root);
    }
    root
}

/// Source: own choice.
const SAMPLES_MIN: u32 = 8;
/// Of each level, where calls differ. Source: own choice.
const SAMPLES_NOISY: u32 = 32;
/// The square of how much they differ from which on they do. Source: own choice.
const NOISY: f64 = 0.1;
/// Fewer may be chance. Source: own choice.
const DROPPED_MIN: u32 = 3;
/// A higher share of drops. Source: own choice.
const DROPS: f64 = 0.02;
/// Levels nearer to each other tell nothing. Source: own choice.
const APART: f64 = 1.05;
/// One standard error of r at which a trial ends. Source: seawall-defaults.
const SURE: f64 = 0.12;
/// The same for one that has gone on for long: it moves the limit by less. Source: own choice.
const OVERDUE: f64 = 0.3;
/// Source: own choice.
const PRECISE: f64 = 0.05;
/// Source: own choice.
const EXACT: f64 = 0.02;
/// A slope below this is none. Source: seawall-defaults.
const BELOW: f64 = 0.15;
/// A slope above this is a whole one. Source: seawall-defaults.
const ABOVE: f64 = 0.85;
/// Source: own choice.
const IMPLAUSIBLE: f64 = 1.6;
/// Source: seawall-defaults.
const HEADROOM_MAX: f64 = 1.6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_one() {
        for value in [0.000_1, 0.01, 0.5, 1.0, 2.0, 100.0] {
            let root = sqrt(value);
            assert!((root * root - value).abs() < 0.002 * value, "{value}: {root}");
        }
    }
}
