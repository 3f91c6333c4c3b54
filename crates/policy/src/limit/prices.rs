//! What calls cost that began with about the same number in flight.
//!
//! By Little's law, calls in flight divided by the time that each takes is how many end in a
//! second. Of calls that fail too, what counts is how many *good* ones end: the price of a good
//! call is the time that calls, good or not, had places for each good one. Calls in flight over
//! that price is goodput, whatever the shares of refusals and give-ups; and a refusal that comes in
//! no time makes nothing cheaper.

use super::{LimitOutcome, LimitSample};
use crate::time::nanos;

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prices {
    pub(super) calls: u32,
    pub(super) good: u32,
    pub(super) dropped: u32,
    in_flight: f64,
    time: f64,
    squares: f64,
}

impl Prices {
    pub(super) fn add(&mut self, in_flight: u32, time: f64, outcome: LimitOutcome) {
        self.calls += 1;
        self.good += u32::from(outcome == LimitOutcome::Success);
        self.dropped += u32::from(outcome == LimitOutcome::Dropped);
        self.in_flight += f64::from(in_flight);
        self.time += time;
        self.squares += time * time;
    }

    /// Takes the calls of others in.
    pub(super) fn merge(&mut self, others: &Self) {
        self.calls += others.calls;
        self.good += others.good;
        self.dropped += others.dropped;
        self.in_flight += others.in_flight;
        self.time += others.time;
        self.squares += others.squares;
    }

    /// Whether the price of others could be this one: by a tenth, or four standard errors.
    pub(super) fn is_like(&self, others: &Self) -> bool {
        let off = others.price() / self.price() - 1.0;
        let spread = self.spread().max(others.spread());
        let error = self.uncertainty(spread) + others.uncertainty(spread);
        self.good == 0 || others.good == 0 || off * off <= 0.01 + 16.0 * error
    }

    /// Halves what is known, so that what comes weighs more.
    pub(super) fn fade(&mut self) {
        if self.calls < FADES {
            return;
        }
        self.calls /= 2;
        self.good /= 2;
        self.dropped /= 2;
        self.in_flight /= 2.0;
        self.time /= 2.0;
        self.squares /= 2.0;
    }

    /// Of a good call, in nanoseconds of a place; infinite if there is none.
    pub(super) fn price(&self) -> f64 {
        if self.good == 0 { f64::INFINITY } else { self.time / f64::from(self.good) }
    }

    /// Share of calls that were answered.
    pub(super) fn goodness(&self) -> f64 {
        f64::from(self.good) / f64::from(self.calls.max(1))
    }

    /// How many were in flight in the mean.
    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight / f64::from(self.calls.max(1))
    }

    /// The square of how much calls differ, as a share of their mean.
    pub(super) fn spread(&self) -> f64 {
        if self.time <= 0.0 {
            return 0.0;
        }
        let mean = self.time / f64::from(self.calls);
        (self.squares / f64::from(self.calls) / (mean * mean) - 1.0).max(0.0)
    }

    /// The square of how far off the price may be, as a share of it (one standard error), if calls
    /// differ by so much.
    pub(super) fn uncertainty(&self, spread: f64) -> f64 {
        if self.good == 0 {
            return f64::INFINITY;
        }
        let (calls, good) = (f64::from(self.calls), f64::from(self.good));
        (spread + (calls - good) / good) / calls
    }

    /// Share of calls that were dropped.
    pub(super) fn drops(&self) -> f64 {
        f64::from(self.dropped) / f64::from(self.calls.max(1))
    }
}

/// What a call takes nowadays, about: a moving mean, in nanoseconds; zero until one has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Typical(f64);

impl Typical {
    pub(super) const fn nanos(self) -> f64 {
        self.0
    }

    /// Takes a sample in, and gives its time as it counts: at most eight times what is typical, so
    /// that a rare slow call weighs no more than that.
    pub(super) fn count(&mut self, sample: LimitSample) -> f64 {
        let time = nanos(sample.latency) as f64;
        if self.0 <= 0.0 {
            self.0 = if sample.outcome == LimitOutcome::Dropped { 0.0 } else { time };
            return time;
        }
        let time = time.min(self.0 * MOST);
        let counts = match sample.outcome {
            LimitOutcome::Success => true,
            // Less than what is typical says nothing: it would have taken longer.
            LimitOutcome::GaveUp => time > self.0,
            LimitOutcome::Dropped | LimitOutcome::Ignore => false,
        };
        if counts {
            self.0 += (time - self.0) / LAST;
        }
        time
    }
}

/// Source: own choice.
const FADES: u32 = 256;
/// Source: own choice.
const MOST: f64 = 8.0;
/// Calls that a moving mean is of, about. Source: own choice.
const LAST: f64 = 32.0;
