//! What a limit does while nobody waits for it.

use core::time::Duration;

use crate::limit::LimitOutcome;
use crate::time::Timestamp;

/// The most that were in flight lately: twice as many find room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float {
    began: Timestamp,
    /// The most in flight, of this generation and the last.
    peaks: [u32; 2],
    begun: u32,
    /// In this generation somebody waited, or calls took longer the more there were.
    was_loaded: bool,
}

/// Where a limit floats to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// Nowhere.
    Stay,
    /// There, up or down.
    To(u32),
    /// There, if that is down.
    DownTo(u32),
}

impl Float {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { began: now, peaks: [0; 2], begun: 0, was_loaded: false }
    }

    /// After a time in which the limit was reached.
    pub(super) const fn after(now: Timestamp, limit: u32) -> Self {
        Self { began: now, peaks: [limit, 0], begun: 0, was_loaded: true }
    }

    pub(super) fn on_begin(&mut self, in_flight: u32) {
        self.peaks[0] = self.peaks[0].max(in_flight);
        self.begun = self.begun.saturating_add(1);
    }

    pub(super) const fn load(&mut self) {
        self.was_loaded = true;
    }

    /// The most in flight of this generation and the last.
    pub(super) fn peak(&self) -> u32 {
        self.peaks[0].max(self.peaks[1])
    }

    /// Ends a generation if its time has come.
    pub(super) fn turn(&mut self, now: Timestamp) -> Drift {
        if now.since(self.began) < GENERATION {
            return Drift::Stay;
        }
        let to = self.peak().saturating_mul(FLOAT).max(FLOAT_MIN);
        let drift = match (self.begun < BEGUN_MIN, self.was_loaded) {
            (true, _) => Drift::Stay,
            (false, true) => Drift::DownTo(to),
            (false, false) => Drift::To(to),
        };
        *self = Self { peaks: [0, self.peaks[0]], ..Self::new(now) };
        drift
    }
}

/// Whether calls take longer, or are dropped, the more others they find: by regression.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trend {
    calls: f64,
    in_flight: f64,
    in_flight_squares: f64,
    time: f64,
    time_squares: f64,
    both: f64,
    dropped: f64,
    dropped_in_flight: f64,
    dropped_least: f64,
}

impl Trend {
    /// Takes a call in.
    pub(super) fn add(&mut self, in_flight: u32, time: f64, outcome: LimitOutcome) {
        let n = f64::from(in_flight);
        if outcome == LimitOutcome::Dropped {
            self.dropped_least = if self.dropped > 0.0 { self.dropped_least.min(n) } else { n };
            self.dropped += 1.0;
            self.dropped_in_flight += n;
            return;
        }
        if self.calls >= CALLS_MAX {
            *self = Self::default();
        }
        self.calls += 1.0;
        self.in_flight += n;
        self.in_flight_squares += n * n;
        self.time += time;
        self.time_squares += time * time;
        self.both += n * time;
    }

    /// Whether a call takes 0.3 of a per cent longer, or more, for each per cent more in flight:
    /// by three standard errors.
    pub(super) fn is_rising(&self) -> bool {
        let (n, t) = (self.in_flight / self.calls, self.time / self.calls);
        let spread = self.in_flight_squares / self.calls - n * n;
        if self.calls < CALLS_MIN || self.time <= 0.0 || spread < 0.5 {
            return false;
        }
        let both = self.both / self.calls - n * t;
        let rest = (self.time_squares / self.calls - t * t - both * both / spread).max(0.0);
        let above = both / spread * n / t - RISES;
        let error = rest / self.calls / spread * (n / t) * (n / t);
        above > 0.0 && above * above > 9.0 * error
    }

    /// Below where calls begin to be dropped, if it is those that find many others that are: the
    /// mean of at least three lies one and a half standard deviations above that of all calls.
    pub(super) fn drops_at(&self) -> Option<u32> {
        if self.dropped < DROPPED_MIN || self.calls < CALLS_MIN {
            return None;
        }
        let n = self.in_flight / self.calls;
        let spread = self.in_flight_squares / self.calls - n * n;
        let at = self.dropped_in_flight / self.dropped;
        let above = at - n;
        let below = (self.dropped_least - 1.0).max(at * 0.8);
        (above > 0.0 && above * above > 2.25 * spread).then(|| floor(below).max(1))
    }
}

/// What a limit comes down to when calls begin to take longer: a little more than there are.
pub(super) fn loaded(peak: u32) -> u32 {
    ceil(f64::from(peak) * 1.25).max(FLOAT_MIN)
}

pub(super) fn ceil(value: f64) -> u32 {
    let floor = floor(value);
    floor + u32::from(f64::from(floor) < value)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn floor(value: f64) -> u32 {
    value as u32
}

/// Long enough for a peak to be one. Source: seawall-defaults.
const GENERATION: Duration = Duration::from_millis(2_500);
/// Times the peak. Source: seawall-defaults.
const FLOAT: u32 = 2;
/// Source: seawall-defaults.
const FLOAT_MIN: u32 = 8;
/// Calls without which a generation says nothing. Source: own choice.
const BEGUN_MIN: u32 = 64;
/// Source: own choice.
const CALLS_MIN: f64 = 16.0;
/// Source: own choice.
const CALLS_MAX: f64 = 256.0;
/// Source: own choice.
const DROPPED_MIN: f64 = 3.0;
/// 0 where nothing queues, 1 where everything does. Source: seawall-defaults.
const RISES: f64 = 0.3;
