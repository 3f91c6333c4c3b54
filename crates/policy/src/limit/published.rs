//! Rules that others have published, for those who know them, with some of their faults mended.
//!
//! Each is updated once a window: at least 100 ms and ten samples. Its time is the mean of the
//! calls that were answered in it.
//!
//! | rule | a window | mended | kept |
//! |---|---|---|---|
//! | AIMD | × 0.9 if a call was dropped or given up; else + 1 if half of the limit was used | refusals for load are drops, without a timeout of its own | hears of no queue until calls are given up |
//! | Vegas | q = ⌈L (1 − least / time)⌉ wait: + 6 lg L if at most lg L do, + lg L below 3 lg L, − lg L above 6 lg L, or if a call was dropped | the least is that of the last 30 to 60 s, so it rises after the dependency became slower, and it is never reset to one loaded sample | under load for longer than that, it learns the loaded time |
//! | Gradient2 | L = 0.8 L + 0.2 (g L + 4), g = 1.5 · long / time, within ½ to 1; long is a mean over 600 windows, falls by 5 % a window while it is twice the time | a drop or a give-up is × 0.9; grows only if half of the limit was used | the mean is learned under load, so a queue that lasts makes room for itself |
//!
//! In all of them a window with give-ups and without an answer is no reason to grow.
//! Source: netflix-limits.

use core::time::Duration;

use super::{LimitOutcome, LimitParams, LimitRule, LimitSample};
use crate::time::{Timestamp, nanos};

#[derive(Clone, Debug)]
pub(super) struct Published {
    rule: LimitRule,
    limit: f64,
    window: Window,
    /// The mean over many windows; zero before the first.
    long: f64,
    windows: u32,
    /// The least time of this generation and the last.
    least: [f64; 2],
    generation_began: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Timestamp,
    answered: u32,
    /// Dropped, or given up.
    lost: u32,
    time: f64,
    in_flight_most: u32,
}

impl Window {
    const fn new(began: Timestamp) -> Self {
        Self { began, answered: 0, lost: 0, time: 0.0, in_flight_most: 0 }
    }
}

impl Published {
    pub(super) fn new(now: Timestamp, params: &LimitParams) -> Self {
        Self {
            rule: params.rule(),
            limit: f64::from(params.initial()),
            window: Window::new(now),
            long: 0.0,
            windows: 0,
            least: [f64::INFINITY; 2],
            generation_began: now,
        }
    }

    pub(super) const fn is_of(&self, rule: LimitRule) -> bool {
        matches!(
            (self.rule, rule),
            (LimitRule::Aimd, LimitRule::Aimd)
                | (LimitRule::Vegas, LimitRule::Vegas)
                | (LimitRule::Gradient2, LimitRule::Gradient2)
        )
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    pub(super) const fn limit(&self) -> u32 {
        self.limit as u32
    }

    pub(super) fn on_sample(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        in_flight: u32,
        sample: LimitSample,
    ) {
        let window = &mut self.window;
        window.in_flight_most = window.in_flight_most.max(in_flight);
        match sample.outcome {
            LimitOutcome::Success => {
                window.answered += 1;
                window.time += nanos(sample.latency) as f64;
            }
            LimitOutcome::Dropped | LimitOutcome::GaveUp => window.lost += 1,
            LimitOutcome::Ignore => return,
        }
        let samples = window.answered + window.lost;
        if samples < SAMPLES_MIN || now.since(window.began) < WINDOW {
            return;
        }
        let window = core::mem::replace(&mut self.window, Window::new(now));
        let next = self.after(now, &window);
        self.limit = next.clamp(f64::from(params.min()), f64::from(params.max()));
    }

    fn after(&mut self, now: Timestamp, window: &Window) -> f64 {
        let time = window.time / f64::from(window.answered.max(1));
        if window.answered > 0 {
            self.remember(now, time);
        }
        let uses_half = f64::from(window.in_flight_most) * 2.0 >= self.limit;
        let step = f64::from(self.limit().max(1).ilog10().max(1));
        if window.lost > 0 {
            return match self.rule {
                LimitRule::Vegas => self.limit - step,
                _ => self.limit * 0.9,
            };
        }
        match self.rule {
            LimitRule::Vegas => self.vegas(time, step, uses_half),
            LimitRule::Gradient2 if uses_half => {
                let gradient = (1.5 * self.long / time).clamp(0.5, 1.0);
                0.8 * self.limit + 0.2 * (gradient * self.limit + 4.0)
            }
            LimitRule::Aimd if uses_half => self.limit + 1.0,
            _ => self.limit,
        }
    }

    fn vegas(&self, time: f64, step: f64, uses_half: bool) -> f64 {
        let least = self.least[0].min(self.least[1]);
        let waiting = self.limit * (1.0 - least / time);
        if !uses_half {
            self.limit
        } else if waiting <= step {
            self.limit + 6.0 * step
        } else if waiting <= 3.0 * step - 1.0 {
            self.limit + step
        } else if waiting > 6.0 * step {
            self.limit - step
        } else {
            self.limit
        }
    }

    fn remember(&mut self, now: Timestamp, time: f64) {
        if now.since(self.generation_began) >= GENERATION {
            self.generation_began = now;
            self.least = [f64::INFINITY, self.least[0]];
        }
        self.least[0] = self.least[0].min(time);
        self.windows = self.windows.saturating_add(1);
        let share = if self.windows <= WARM_UP {
            1.0 / f64::from(self.windows)
        } else {
            2.0 / (LONG + 1.0)
        };
        self.long += (time - self.long) * share;
        if self.long > 2.0 * time {
            self.long *= 0.95;
        }
    }
}

/// Source: envoy-adaptive-concurrency (updates every 0.1 s).
const WINDOW: Duration = Duration::from_millis(100);
/// Source: netflix-limits (`WindowedLimit`).
const SAMPLES_MIN: u32 = 10;
/// Windows of the long mean. Source: netflix-limits (`Gradient2Limit`).
const LONG: f64 = 600.0;
/// Source: netflix-limits (`Gradient2Limit`).
const WARM_UP: u32 = 10;
/// How long a least time holds, once to twice. Source: seawall-defaults.
const GENERATION: Duration = Duration::from_secs(30);
