//! Our own rule: the limit stands a little above the knee, the number in flight from which on more
//! bring no more. It is looked for by trials, not remembered.
//!
//! **A trial** compares two levels of calls in flight, a few round trips apart, by the price of a
//! good call (see `limit/prices.rs`). Below the knee a call costs the same at both. Above it, it
//! costs more in proportion to how many more are in flight: as many end, and the rest wait.
//!
//! ```text
//! r = price at the higher level / price at the lower      q = higher level / lower level
//! slope = (r − 1) / (q − 1)      0: both below the knee; 1: both above it; between: it is between
//! knee  = higher level / r                      exact if the lower level is at or below the knee
//! limit = headroom · knee
//! ```
//!
//! A dependency that became slower is slower at both levels, so it changes nothing; a time without
//! load that could be too old, or learned under load, is nowhere in it. It takes both sides of the
//! knee to see it: the lower level is 0.84 of the knee. That is all that a trial costs, for about
//! one round trip in sixteen while nothing changes, and callers wait for it in the queue in front.
//!
//! - **When.** Only while callers wait: the limit is reached for half of the time or longer. A
//!   trial ends when it is sure: one standard error of r below 12 %, or r three errors off what it
//!   would be where the limit stands right. With few samples the limit is frozen.
//! - **Doubt.** Where calls differ much (exponential times), r is known to 10 % at best. The limit
//!   then stands two standard errors higher, up to 1.6 times the knee: a little too high lets calls
//!   wait a little, too low refuses some. While it hardly moves, earlier samples are kept.
//! - **Up.** If a call costs the same at both levels, the next trial is the limit itself against
//!   1.5 times as many, then twice, for as long as that is so.
//! - **Down.** If it costs more in proportion, both are above the knee, and the next lower level is
//!   lower by a quarter, then a half, then by 70 %. Above the knee that costs nothing, as the
//!   dependency never runs out of work.
//! - **Changes of speed.** If calls suddenly cost three times as much, or a third, or more than in
//!   proportion, the two levels were not of the same dependency: the trial begins anew.
//! - **Drops.** If calls are dropped at the higher level and not at the lower, the lower is the
//!   limit, and it is not raised for 5 s, twice as long each time that it comes to the same, up to
//!   a minute. If fewer than one in ten is good, the limit shrinks to 0.7 of itself: nothing is
//!   lost by it, and where all calls time out no growth is possible.
//!
//! **While nobody waits**, there is nothing to limit. The limit floats to twice the most that were
//! in flight in the last 2.5 to 5 s (never below 8, and frozen if fewer than 64 calls have begun),
//! so that a burst finds room, and an avalanche does not find a thousand places. From its start it
//! stands at `max` until that is known; if meanwhile calls take longer the more others they find
//! (the slope of a regression), it comes down to 1.25 times what is in flight, and trials begin.
//! If those are dropped that find many others, it comes down to nine tenths of that.
//!
//! Known bad cases: trials need samples. With exponential times about 200 calls make a step of a
//! limit that is nearly right, so a dependency that does one call in a second is learned within
//! minutes. Failures for load that have nothing to do with it, on more than nine calls of ten,
//! shrink the limit to `min`. Of a dependency with several knees (a cache in front of a disk) the
//! first is found. Another client's load moves the knee.

mod float;
mod full;
mod open;
mod trial;
mod verdict;

use core::time::Duration;

use super::prices::Typical;
use super::{LimitParams, LimitSample};
use crate::time::Timestamp;

use float::{Float, Trend, ceil};
use full::Full;
use open::Hold;
use trial::{Side, Trial};
use verdict::{Move, Verdict};

pub(super) use trial::Stamp;

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody waits: the limit floats.
    Open,
    /// A trial, at its higher level.
    High,
    /// A trial, at its lower level.
    Low,
}

/// See the module. Nothing is on the heap.
#[derive(Clone, Debug)]
pub(super) struct Knee {
    /// The limit, before rounding.
    limit: f64,
    /// The one in force: lower in the low phase of a trial.
    level: u32,
    phase: Phase,
    phase_began: Timestamp,
    /// For how much of the time the limit is reached.
    full: Full,
    trial: Trial,
    /// Round trips between two low phases.
    rounds: u32,
    /// How far down the next low phase goes.
    stage: usize,
    /// Trials in a row in which more in flight brought more.
    raised: u32,
    /// The price at the limit when a trial last ended; zero if that is too long ago.
    settled: f64,
    typical: Typical,
    float: Float,
    trend: Trend,
    hold: Hold,
}

impl Knee {
    pub(super) fn new(now: Timestamp, params: &LimitParams) -> Self {
        Self {
            limit: f64::from(params.initial()),
            level: params.initial(),
            phase: Phase::Open,
            phase_began: now,
            full: Full::new(now),
            trial: Trial::new(now, params.headroom()),
            rounds: 1,
            stage: 0,
            raised: 0,
            settled: 0.0,
            typical: Typical::default(),
            float: Float::new(now),
            trend: Trend::default(),
            hold: Hold::NONE,
        }
    }

    /// The number that may be in flight now.
    pub(super) const fn level(&self) -> u32 {
        self.level
    }

    /// The same but for the low phases of trials.
    pub(super) fn limit(&self) -> u32 {
        ceil(self.limit)
    }

    /// A call begins, with so many in flight, itself included.
    pub(super) fn on_begin(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        in_flight: u32,
    ) -> Stamp {
        self.float.on_begin(in_flight);
        self.full.on_begin(now, in_flight, self.level);
        match self.phase {
            Phase::Open => {
                if self.is_full_again(now) {
                    self.begin_trials(now);
                } else {
                    self.drift(now, params);
                }
            }
            Phase::High if self.is_idle(now) => self.open(now),
            Phase::High | Phase::Low => {}
        }
        // Calls that found less than the level tell of another.
        let is_at_level = u64::from(in_flight) * 10 >= u64::from(self.level) * 9;
        let side = match self.phase {
            Phase::High if is_at_level && !self.has_settled(now) => Side::Early,
            Phase::High if is_at_level => Side::High,
            Phase::Low if is_at_level && in_flight <= self.level => Side::Low,
            Phase::Open | Phase::High | Phase::Low => Side::Neither,
        };
        self.trial.stamp(side)
    }

    /// A call has left, and so many are in flight.
    pub(super) fn on_leave(&mut self, now: Timestamp, in_flight: u32) {
        self.full.on_leave(now, in_flight, self.level);
    }

    /// A call has ended, or was given up, that began with so many in flight.
    pub(super) fn on_sample(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        in_flight: u32,
        stamp: Stamp,
        sample: LimitSample,
    ) {
        let time = self.typical.count(sample);
        if self.phase == Phase::Open {
            self.suspect(now, params, in_flight, time, sample.outcome);
            return;
        }
        let is_low = self.phase == Phase::Low;
        self.trial.add(is_low, stamp, in_flight, time, sample.outcome);
        match self.phase {
            _ if self.has_changed() => self.changed(now, 1),
            Phase::Low => self.end_low(now, params),
            Phase::High | Phase::Open => self.end_high(now, params),
        }
    }

    /// Whether calls cost three times as much as when a trial last ended, or a third.
    fn has_changed(&self) -> bool {
        let (now, then) = (self.typical.nanos(), self.settled);
        then > 0.0 && (now > CHANGED * then || CHANGED * now < then)
    }

    /// Whether what began together when the limit was raised is over.
    fn has_settled(&self, now: Timestamp) -> bool {
        !self.trial.is_upward || self.lasted(now, 1)
    }

    fn lasted(&self, now: Timestamp, round_trips: u32) -> bool {
        let nanos = now.since(self.phase_began).as_nanos() as f64;
        nanos >= self.typical.nanos() * f64::from(round_trips)
    }

    /// Ends the high phase if its time has come.
    fn end_high(&mut self, now: Timestamp, params: &LimitParams) {
        if self.trial.high.dropped > 0 && self.trial.is_upward && self.decide(now, params) {
            return;
        }
        let high = &self.trial.high;
        if high.calls < self.trial.samples_of(self.level) || !self.lasted(now, 1) {
            return;
        }
        if high.good * STARVED_ONE_IN < high.calls {
            self.raised = 0;
            self.move_to(now, params, self.limit * STARVED, false);
            self.settled = 0.0;
            return;
        }
        if self.trial.is_upward {
            if !self.decide(now, params) && self.lasted(now, UPWARD_ROUNDS) {
                // It could not be told: as any other trial then.
                self.begin_anew(now);
            }
            return;
        }
        let lasted = now.since(self.phase_began);
        let is_due = lasted >= self.trial.low_took * self.rounds.min(LOW_SHARE)
            && (self.lasted(now, self.rounds)
                || lasted >= HIGH_MAX && self.lasted(now, HIGH_ROUNDS));
        if !is_due || !self.full.is_reached(now, 2) {
            return;
        }
        let Some(level) = self.trial.lower_level(self.limit(), self.stage) else {
            // With one in flight nothing is lower: try two.
            self.raise(now, params);
            return;
        };
        self.phase = Phase::Low;
        self.phase_began = now;
        self.set_level(now, level);
    }

    /// Ends the low phase if its time has come.
    fn end_low(&mut self, now: Timestamp, params: &LimitParams) {
        let trial = &mut self.trial;
        if trial.low_now.calls < trial.samples_of(self.level) && !self.lasted(now, LOW_ROUNDS) {
            return;
        }
        if !self.trial.end_low(now.since(self.phase_began)) {
            self.changed(now, 0);
            return;
        }
        if !self.decide(now, params) {
            // What takes many samples is to take little from callers.
            self.stage = 0;
            self.rounds = (self.rounds * 2).min(ROUNDS_UNSURE);
            self.back_to_high(now);
        }
    }

    /// Ends the trial if it is sure; whether it has.
    fn decide(&mut self, now: Timestamp, params: &LimitParams) -> bool {
        let is_overdue = now.since(self.trial.began) > OVERDUE;
        let limit = self.limit;
        match Verdict::of(&mut self.trial, limit, params.headroom(), is_overdue) {
            Verdict::Unsure => {
                let is_long = self.trial.high.calls + self.trial.low.calls > SAMPLES_LONG;
                if is_long {
                    self.begin_anew(now);
                }
                return is_long;
            }
            Verdict::Drops => {
                let lower = self.trial.low.in_flight();
                self.hold.begin(now);
                self.raised = 0;
                self.move_to(now, params, lower, false);
            }
            Verdict::Changed => self.changed(now, 0),
            Verdict::Below => {
                self.settled = self.trial.high.price();
                self.raise(now, params);
            }
            Verdict::Move(Move { limit, is_far, stage_max, price, keeps }) => {
                self.settled = price;
                self.raised = 0;
                let deepest = stage_max.min(Trial::DEEPEST);
                self.stage = if is_far { (self.stage + 1).min(deepest) } else { 0 };
                self.move_to(now, params, limit, keeps);
            }
        }
        true
    }

    /// Both levels were below the knee: the next trial is this limit against a higher one.
    fn raise(&mut self, now: Timestamp, params: &LimitParams) {
        let factor = if self.raised == 0 { RAISE } else { RAISE_MORE };
        let most = f64::from(params.max());
        let next = (self.limit * factor).max(f64::from(self.limit()) + 1.0).min(most);
        self.stage = 0;
        if self.hold.lasts_at(now) || next <= self.limit {
            self.rounds = (self.rounds * 2).min(ROUNDS_CALM);
            self.begin_anew(now);
            return;
        }
        let low = self.trial.high;
        self.raised += 1;
        self.move_to(now, params, next, false);
        self.trial.low = low;
        self.trial.is_upward = true;
    }

    /// Sets the limit and begins the next trial; keeps the samples of this one if it says so and
    /// the limit is about where it was.
    fn move_to(&mut self, now: Timestamp, params: &LimitParams, limit: f64, keeps: bool) {
        let before = self.limit;
        self.limit = limit.clamp(f64::from(params.min()), f64::from(params.max()));
        let is_settled = (self.limit - before).abs() * 10.0 < before;
        self.rounds = if is_settled { (self.rounds * 2).min(ROUNDS_CALM) } else { 1 };
        if keeps && is_settled && !self.trial.is_upward && self.stage == 0 {
            self.trial.began = now;
            self.trial.high.fade();
            self.trial.low.fade();
            self.back_to_high(now);
        } else {
            self.begin_anew(now);
        }
    }

    /// The dependency has another speed: what is known of its prices is worth nothing.
    fn changed(&mut self, now: Timestamp, stage: usize) {
        self.stage = stage;
        self.rounds = 1;
        self.raised = 0;
        self.settled = 0.0;
        self.begin_anew(now);
    }

    fn begin_trials(&mut self, now: Timestamp) {
        self.float.load();
        self.changed(now, 0);
    }

    /// A trial without samples, at its higher level.
    fn begin_anew(&mut self, now: Timestamp) {
        self.trial.begin(now);
        self.back_to_high(now);
    }

    fn back_to_high(&mut self, now: Timestamp) {
        self.phase = Phase::High;
        self.phase_began = now;
        self.set_level(now, self.limit());
    }

    fn set_level(&mut self, now: Timestamp, level: u32) {
        self.level = level;
        self.full.begin(now, level);
    }
}

/// Source: own choice.
const CHANGED: f64 = 3.0;
/// Round trips without a low phase while nothing changes. Source: seawall-defaults.
const ROUNDS_CALM: u32 = 16;
/// The same while a trial is not sure. Source: seawall-defaults.
const ROUNDS_UNSURE: u32 = 8;
/// A high phase lasts that many times as long as the low one. Source: seawall-defaults.
const LOW_SHARE: u32 = 4;
/// A low phase without enough samples. Source: own choice.
const LOW_ROUNDS: u32 = 6;
/// An upward trial that cannot be told. Source: own choice.
const UPWARD_ROUNDS: u32 = 16;
/// A high phase of long round trips: this, or that many. Source: seawall-defaults.
const HIGH_MAX: Duration = Duration::from_secs(2);
/// Source: seawall-defaults.
const HIGH_ROUNDS: u32 = 6;
/// A trial this old is decided on less. Source: seawall-defaults.
const OVERDUE: Duration = Duration::from_secs(3);
/// Source: own choice.
const SAMPLES_LONG: u32 = 4_096;
/// Fewer good calls than one in this many, and the limit shrinks. Source: own choice.
const STARVED_ONE_IN: u32 = 10;
/// Source: own choice.
const STARVED: f64 = 0.7;
/// Source: seawall-defaults.
const RAISE: f64 = 1.5;
/// Source: seawall-defaults.
const RAISE_MORE: f64 = 2.0;
