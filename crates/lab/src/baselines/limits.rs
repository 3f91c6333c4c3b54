//! Other people's concurrency limits: how many calls may be in flight, by the times that the last
//! ones took. One update a window, as published; demand is always above the limit.
//!
//! | rule | what it does with a window's time | from, to |
//! |---|---|---|
//! | gradient2 | L = 0.8 L + 0.2 (g L + 4), g = 1.5 · long-time mean / time, within ½ to 1; the mean over 600 windows, the first 10 averaged, falls by 5 % a window while it is twice the time | 20, 200 |
//! | vegas | q = ⌈L (1 − least / time)⌉ queued: + 6 lg L up to lg L, + lg L below 3 lg L, − lg L above 6 lg L; the least time is forgotten every U(½, 1) · 30 L windows | 1, 1,000 |
//! | aimd | + 1; × 0.9 once a call takes over 5 s | 20, 200 |
//! | envoy | L = g L + √L, g = 1.25 · least / time, within ½ to 2; the least is measured every 600 windows, and after 5 at the floor, with 3 calls in flight until 50 have ended | 3, 1,000 |
//! | envoy-unpinned | the same, the least measured with what is in flight anyway | 3, 1,000 |
//!
//! Source: netflix-limits, envoy-adaptive-concurrency.

use crate::draw::Draw;

/// A published rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitRule {
    Gradient2,
    Vegas,
    Aimd,
    /// Whether it measures with three calls in flight.
    Envoy {
        pins: bool,
    },
}

/// What a rule knows. Times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct LimitState {
    rule: LimitRule,
    limit: f64,
    windows: u32,
    /// The long-time mean, or the least time.
    known: Option<f64>,
    /// When that is measured again.
    due: f64,
    /// Windows at the floor, one after the other.
    at_floor: u32,
    /// Calls that have ended while it is measured; `None`: it is not.
    measuring: Option<f64>,
}

impl LimitState {
    pub(crate) const fn new(rule: LimitRule) -> Self {
        Self { rule, limit: 20.0, windows: 0, known: None, due: 0.0, at_floor: 0, measuring: None }
    }

    /// Calls that may be in flight.
    pub(crate) const fn limit(&self) -> f64 {
        if self.measuring.is_some() { ENVOY_FLOOR } else { self.limit }
    }

    /// A window in which calls took that time, and as many ended.
    pub(crate) fn window(&mut self, time: f64, ended: f64, draw: &mut Draw) {
        self.windows += 1;
        match self.rule {
            LimitRule::Gradient2 => self.gradient2(time),
            LimitRule::Vegas => self.vegas(time, draw),
            LimitRule::Aimd => {
                let next = if time > 5.0 { self.limit * 0.9 } else { self.limit + 1.0 };
                self.limit = next.floor().clamp(20.0, 200.0);
            }
            LimitRule::Envoy { pins } => self.envoy(time, ended, pins, draw),
        }
    }

    /// Takes the time of calls under load for that of calls without.
    pub(crate) const fn learn(&mut self, time: f64) {
        self.known = Some(time);
    }

    fn gradient2(&mut self, time: f64) {
        let long = self.known.unwrap_or(0.0);
        let n = f64::from(self.windows);
        let share = if self.windows <= 10 { 1.0 / n } else { 2.0 / 601.0 };
        let mut long = long + (time - long) * share;
        if long > 2.0 * time {
            long *= 0.95;
        }
        self.known = Some(long);
        let gradient = (1.5 * long / time).clamp(0.5, 1.0);
        let next = self.limit * gradient + 4.0;
        self.limit = (0.8 * self.limit + 0.2 * next).clamp(20.0, 200.0);
    }

    fn vegas(&mut self, time: f64, draw: &mut Draw) {
        if self.known.is_none() || f64::from(self.windows) >= self.due {
            self.known = Some(time);
            let wait = (0.5 + 0.5 * draw.unit()) * 30.0 * self.limit;
            self.due = f64::from(self.windows) + wait;
            return;
        }
        let least = self.known.unwrap_or(time).min(time);
        self.known = Some(least);
        let step = libm::log10(self.limit).max(1.0);
        let queued = (self.limit * (1.0 - least / time)).ceil();
        let by = match queued {
            few if few <= step => 6.0 * step,
            some if some < 3.0 * step => step,
            many if many > 6.0 * step => -step,
            _ => 0.0,
        };
        self.limit = (self.limit + by).clamp(1.0, 1_000.0);
    }

    fn envoy(&mut self, time: f64, ended: f64, pins: bool, draw: &mut Draw) {
        if let Some(before) = self.measuring {
            let all = before + ended;
            self.measuring = (all < ENVOY_SAMPLES).then_some(all);
            if self.measuring.is_none() {
                self.measured(time, draw);
            }
            return;
        }
        let is_due = self.known.is_none() || f64::from(self.windows) >= self.due;
        if is_due || self.at_floor >= 5 {
            match pins {
                true => self.measuring = Some(0.0),
                false => self.measured(time, draw),
            }
            return;
        }
        let least = self.known.unwrap_or(time);
        let gradient = (1.25 * least / time).clamp(0.5, 2.0);
        let next = gradient * self.limit + libm::sqrt(self.limit);
        self.limit = next.clamp(ENVOY_FLOOR, 1_000.0);
        let is_at_floor = self.limit <= ENVOY_FLOOR;
        self.at_floor = if is_at_floor { self.at_floor + 1 } else { 0 };
    }

    /// The least time is known anew; the next measurement is 60 s off, a tenth of that jittered.
    fn measured(&mut self, time: f64, draw: &mut Draw) {
        self.known = Some(time);
        self.at_floor = 0;
        self.due = f64::from(self.windows) + 600.0 * (1.0 + 0.1 * draw.unit());
    }
}

/// Calls in flight while the least time is measured, and the least limit.
const ENVOY_FLOOR: f64 = 3.0;
/// Calls that the least time is measured of.
const ENVOY_SAMPLES: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn after(rule: LimitRule, windows: u32, time: impl Fn(f64) -> f64) -> f64 {
        let mut state = LimitState::new(rule);
        let mut draw = Draws::new(1).stream(0, Purpose::Policy);
        for _ in 0..windows {
            state.window(time(state.limit()), 10.0, &mut draw);
        }
        state.limit()
    }

    #[test]
    fn each_rule_does_with_one_window_what_is_published() {
        let near = |measured: f64, expected: f64| {
            assert!((measured - expected).abs() < 1e-9, "{measured}, not {expected}");
        };
        // 0.8 · 20 + 0.2 · (20 + 4).
        near(after(LimitRule::Gradient2, 1, |_| 0.1), 20.8);
        near(after(LimitRule::Aimd, 1, |_| 0.1), 21.0);
        near(after(LimitRule::Aimd, 1, |_| 5.1), 20.0);
        // The first window is the least, the second finds nothing queued: + 6 lg 20.
        near(after(LimitRule::Vegas, 2, |_| 0.1), 20.0 + 6.0 * 20.0_f64.log10());
        // The first window measures; from the second on 1.25 · 20 + √20.
        near(after(LimitRule::Envoy { pins: false }, 2, |_| 0.1), 25.0 + 20.0_f64.sqrt());
        near(after(LimitRule::Envoy { pins: true }, 2, |_| 0.1), 3.0);
    }

    #[test]
    fn times_that_never_change_let_every_limit_grow_to_its_end() {
        for (rule, most) in [
            (LimitRule::Gradient2, 200.0),
            (LimitRule::Vegas, 1_000.0),
            (LimitRule::Aimd, 200.0),
            (LimitRule::Envoy { pins: true }, 1_000.0),
            (LimitRule::Envoy { pins: false }, 1_000.0),
        ] {
            let limit = after(rule, 500, |_| 0.05);
            assert!((limit - most).abs() < 1e-9, "{rule:?}: {limit}");
        }
    }
}
