//! Decides how many calls may be in flight to a dependency, from what more of them bring.
//!
//! A fixed limit has to be known, and is wrong from the day on which the dependency changes. Too
//! low, it refuses what could be served; too high, it is a queue in the wrong place: behind it
//! every call waits, and the work of those who gave up is done all the same. A limit that finds
//! itself has one question to answer: are calls slow because they are too many, or because the
//! dependency is slow? Published rules compare with a time "without load" that they learned at some
//! other moment, and are wrong as soon as it is: see the table in `docs/overload.md`.
//!
//! - [`Knee`](LimitRule::Knee), the default, remembers no such time. While callers wait, it
//!   compares two numbers in flight with each other, a few round trips apart: if calls take longer
//!   in the proportion in which there are more of them, more do not get more done. See
//!   `limit/knee.rs`.
//! - [`Aimd`](LimitRule::Aimd), [`Vegas`](LimitRule::Vegas), [`Gradient2`](LimitRule::Gradient2):
//!   as published, with some of their faults mended, for those who know them. See
//!   `limit/published.rs`.
//! - [`Fixed`](LimitRule::Fixed): `max`.
//!
//! What all of them hear: a call that was answered, how long it took and how many were in flight
//! when it began; a call that was given up took *at least* so long; a call that the dependency
//! refused for load (429, 503, a refused stream) is a drop, and its time is no time of a call. A
//! call that says nothing (it was never sent, it was the caller's fault) is not heard of.
//!
//! [`Partitions`] divides a limit: shares that are guaranteed, and lent while they are idle.
//!
//! Bounds: `min` to `max`; one number in flight. Everything is O(1), nothing allocates. A permit of
//! an earlier rule (a reload) counts down what is in flight and is no sample.
//!
//! Known bad cases: calls of very different cost share one number. Rules other than `Knee` that
//! learn under load: their own docs. Where a dependency works on for callers that left and nobody
//! holds their permits until it has ended, what is in flight is not what is counted.

mod knee;
mod params;
mod partitions;
mod prices;
mod published;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::time::Timestamp;

pub use params::{LimitOptions, LimitParams, LimitRule};
pub use partitions::{Partitions, PartitionsParams};

use knee::{Knee, Stamp};
use published::Published;

/// What became of a call, for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOutcome {
    /// It was answered.
    Success,
    /// It says nothing of the dependency: never sent, or not its doing.
    Ignore,
    /// The dependency refused it because of load.
    Dropped,
    /// Nobody waited for its end: it takes at least as long as it has taken.
    GaveUp,
}

/// What a call that has ended tells a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSample {
    /// From its admission to its end; of [`GaveUp`](LimitOutcome::GaveUp) to when it was given up.
    pub latency: Duration,
    /// How it ended.
    pub outcome: LimitOutcome,
}

/// The right to be in flight. Comes back through [`Limit::complete`] or [`Limit::release`],
/// exactly once.
#[derive(Debug)]
#[must_use = "a permit that does not come back is in flight for ever"]
pub struct LimitPermit {
    generation: u32,
    /// How many were in flight when it was given, itself included.
    in_flight: u32,
    stamp: Stamp,
}

impl LimitPermit {
    /// How many were in flight when it was given, itself included.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

/// How many calls may be in flight, and how many are.
#[derive(Clone, Debug)]
pub struct Limit {
    state: State,
    in_flight: u32,
    /// Goes up when the rule is another, so that calls of the earlier one are no samples.
    generation: u32,
    latest: Timestamp,
    samples: u64,
    /// Times that the limit was raised, and lowered.
    moves: (u64, u64),
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for a dependency, and the large one is the default"
)]
enum State {
    Fixed,
    Published(Published),
    Knee(Knee),
}

impl State {
    fn new(now: Timestamp, params: &LimitParams) -> Self {
        match params.rule() {
            LimitRule::Fixed => Self::Fixed,
            LimitRule::Aimd | LimitRule::Vegas | LimitRule::Gradient2 => {
                Self::Published(Published::new(now, params))
            }
            LimitRule::Knee => Self::Knee(Knee::new(now, params)),
        }
    }

    const fn is_of(&self, rule: LimitRule) -> bool {
        match self {
            Self::Fixed => matches!(rule, LimitRule::Fixed),
            Self::Knee(_) => matches!(rule, LimitRule::Knee),
            Self::Published(published) => published.is_of(rule),
        }
    }
}

impl Limit {
    /// Nothing is in flight, and nothing is known.
    #[must_use]
    pub fn new(now: Timestamp, params: &LimitParams) -> Self {
        Self {
            state: State::new(now, params),
            in_flight: 0,
            generation: 0,
            latest: now,
            samples: 0,
            moves: (0, 0),
        }
    }

    /// Asks for a place in flight; none if there is no room.
    pub fn try_acquire(&mut self, now: Timestamp, params: &LimitParams) -> Option<LimitPermit> {
        self.follow(now, params);
        (self.in_flight < self.limit(params)).then(|| self.begin(params))
    }

    /// Takes a place although there may be no room: for what is let in by another rule
    /// ([`Partitions`]), or was in flight before the limit was switched on.
    pub fn acquire(&mut self, now: Timestamp, params: &LimitParams) -> LimitPermit {
        self.follow(now, params);
        self.begin(params)
    }

    /// A call has ended; one whose caller left ends when it no longer runs.
    pub fn complete(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        permit: LimitPermit,
        sample: LimitSample,
    ) {
        self.learn(now, params, &permit, sample);
        self.leave(now);
        drop(permit);
    }

    /// A call has ended and says nothing.
    pub fn release(&mut self, now: Timestamp, params: &LimitParams, permit: LimitPermit) {
        self.follow(now, params);
        self.leave(now);
        drop(permit);
    }

    /// What a call tells whose place is held on: it was given up and is not known to have ended.
    /// At most one sample a permit.
    pub fn learn(
        &mut self,
        now: Timestamp,
        params: &LimitParams,
        permit: &LimitPermit,
        sample: LimitSample,
    ) {
        self.follow(now, params);
        if permit.generation != self.generation || sample.outcome == LimitOutcome::Ignore {
            return;
        }
        self.samples += 1;
        let (now, before) = (self.latest, self.limit_settled(params));
        match &mut self.state {
            State::Fixed => {}
            State::Published(published) => {
                published.on_sample(now, params, permit.in_flight, sample);
            }
            State::Knee(knee) => {
                knee.on_sample(now, params, permit.in_flight, permit.stamp, sample)
            }
        }
        let after = self.limit_settled(params);
        self.moves.0 += u64::from(after > before);
        self.moves.1 += u64::from(after < before);
    }

    /// How many may be in flight now.
    #[must_use]
    pub fn limit(&self, params: &LimitParams) -> u32 {
        let limit = match &self.state {
            State::Fixed => params.max(),
            State::Published(published) => published.limit(),
            State::Knee(knee) => knee.level(),
        };
        limit.clamp(params.min(), params.max())
    }

    /// How many may be in flight but for the moments in which fewer are tried.
    #[must_use]
    pub fn limit_settled(&self, params: &LimitParams) -> u32 {
        match &self.state {
            State::Knee(knee) => knee.limit().clamp(params.min(), params.max()),
            _ => self.limit(params),
        }
    }

    /// Places that are free.
    #[must_use]
    pub fn available(&self, params: &LimitParams) -> u32 {
        self.limit(params).saturating_sub(self.in_flight)
    }

    /// Calls in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Calls that were samples, since the start.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// How often the limit was raised since the start, and how often lowered.
    #[must_use]
    pub const fn moves(&self) -> (u64, u64) {
        self.moves
    }

    fn begin(&mut self, params: &LimitParams) -> LimitPermit {
        self.in_flight = self.in_flight.saturating_add(1);
        let stamp = match &mut self.state {
            State::Knee(knee) => knee.on_begin(self.latest, params, self.in_flight),
            State::Fixed | State::Published(_) => Stamp::NONE,
        };
        LimitPermit { generation: self.generation, in_flight: self.in_flight, stamp }
    }

    /// One fewer is in flight; its permit is gone.
    pub(crate) fn leave(&mut self, now: Timestamp) {
        self.latest = self.latest.max(now);
        debug_assert!(self.in_flight > 0, "a permit comes back once");
        self.in_flight = self.in_flight.saturating_sub(1);
        if let State::Knee(knee) = &mut self.state {
            knee.on_leave(self.latest, self.in_flight);
        }
    }

    /// Clamps the clock, and begins anew where the rule is another.
    fn follow(&mut self, now: Timestamp, params: &LimitParams) {
        self.latest = self.latest.max(now);
        if !self.state.is_of(params.rule()) {
            self.state = State::new(self.latest, params);
            self.generation = self.generation.wrapping_add(1);
        }
    }
}
