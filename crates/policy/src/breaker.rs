//! Decides whether a call may go to one endpoint, from the share of its recent calls that failed
//! or were slow.
//!
//! Calls to an endpoint that is down cost the caller its timeout, and the endpoint the room it
//! needs to come back. A breaker stops them, and lets a few probes find out when they may resume.
//! It does not retry or balance and knows nothing of HTTP: what a failure is was decided before
//! ([`Outcome::breaker_signal`](crate::Outcome::breaker_signal)).
//!
//! ```text
//!             failure ratio, slow ratio, failures in a row
//!   closed ─────────────────────────────────────────────────▶ open ◀──┐
//!      ▲                                                       │ timer│ probe failed or slow,
//!      │                                                       ▼      │ endpoint unreachable
//!      └──────────────────────────────────────────────── half-open ───┘
//!                       probes succeeded                   ▲    │ lease passed with all probes out
//!                                                          └────┘
//! ```
//!
//! - **Closed.** It opens when the window holds `calls >= min_calls` and
//!   `failures / calls >= failure_ratio` or `slow / calls >= slow_ratio`, compared in integers,
//!   looked at after every recording; or when failures came in a row, `consecutive_failures` of
//!   them, the last at least `consecutive_span` after the first. A call still in flight at the
//!   slow threshold is counted as slow at once ([`Breaker::on_slow`]), so a hang is seen after the
//!   threshold and not after the timeout. A slow success is a success.
//! - **Open** for `min(open_cap, open_base · 2^(trips − 1)) · U(0.7, 1.0)`, `trips` being the
//!   openings since it last closed.
//! - **Half-open** by the clock, lazily. At most `probes` are out or have succeeded; when that
//!   many have succeeded it closes and forgets window, run and trips. An ignored probe gives its
//!   slot back. When all slots are taken and nothing was issued for `probe_lease`, the probes that
//!   are out count as lost and a new half-open begins.
//! - **Generation.** Every transition begins one. A permit carries the one it was issued in, and
//!   the result of an older one changes nothing at all.
//! - **Modes without rejection** (metrics-only, retries-off) go through the same states: open ends
//!   by the clock, then every call is a probe, without the limit; the first `probes` successes
//!   close it if no failure came before them, and the first failure opens it again.
//!
//! Its own rejections never enter the window. Defaults are in [`BreakerOptions`]; memory is fixed.
//!
//! Known bad cases: below about two calls a second only the run of failures can open it. One
//! breaker over unequal endpoints opens for all of them; keep one per endpoint. Half-open waits
//! for calls to come: an endpoint without traffic stays half-open.

mod params;
mod terms;
#[cfg(test)]
mod tests;
mod window;

use core::time::Duration;

use crate::rng::Rng;
use crate::time::Timestamp;

pub use params::{BreakerMode, BreakerOptions, BreakerParams};
pub use terms::{BreakerOpen, BreakerPermit, BreakerState, Transition, Trigger};
pub use window::WindowCounts;

use window::History;

/// The breaker of one endpoint (and route): 10 buckets of three counters and a few words.
#[derive(Debug, Default)]
pub struct Breaker {
    /// What happened since it last closed, as far as the window reaches.
    history: History,
    state: State,
    /// Counts transitions.
    generation: u64,
    /// Openings since it last closed; at least 1 unless closed.
    trips: u32,
    /// The latest time seen; an earlier `now` is taken for this one.
    latest: Timestamp,
}

/// What each state needs, and nothing else.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    Open {
        until: Timestamp,
    },
    HalfOpen {
        /// Probes issued and neither returned nor lost.
        out: u32,
        succeeded: u32,
        /// When the last probe was issued, or half-open began.
        issued: Timestamp,
    },
}

impl Breaker {
    /// A closed breaker with an empty window.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether [`try_acquire`](Self::try_acquire) would give a permit at `now`; changes nothing.
    #[must_use]
    pub fn would_admit(&self, now: Timestamp, params: &BreakerParams) -> bool {
        match params.mode() {
            BreakerMode::ForcedOpen => false,
            BreakerMode::Disabled | BreakerMode::MetricsOnly | BreakerMode::RetriesOff => true,
            BreakerMode::Normal => self.has_room(now, params),
        }
    }

    /// Asks for the right to make one call.
    ///
    /// An open time or a lease that is over ends here too, without a report. Who reports every
    /// transition calls [`handle_timeout`](Self::handle_timeout) with the same `now` first.
    ///
    /// # Errors
    ///
    /// [`BreakerOpen`] if the call must not be made; nothing was recorded.
    pub fn try_acquire(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
    ) -> Result<BreakerPermit, BreakerOpen> {
        self.handle_timeout(now, params);
        let now = self.latest;
        let rejects = match params.mode() {
            BreakerMode::ForcedOpen => return Err(BreakerOpen { until: Timestamp::MAX }),
            BreakerMode::Disabled => return Ok(self.permit(false)),
            BreakerMode::MetricsOnly | BreakerMode::RetriesOff => false,
            BreakerMode::Normal => true,
        };
        let options = params.options();
        match &mut self.state {
            State::Closed => Ok(self.permit(false)),
            State::Open { until } if rejects => Err(BreakerOpen { until: *until }),
            State::Open { .. } => Ok(self.permit(false)),
            State::HalfOpen { out, succeeded, issued } => {
                if rejects && is_full(*out, *succeeded, options.probes) {
                    let lease_end = issued.after(options.probe_lease);
                    return Err(BreakerOpen { until: lease_end.min(now.after(options.open_base)) });
                }
                *out = out.saturating_add(1);
                *issued = now;
                Ok(self.permit(true))
            }
        }
    }

    /// A call ended well after `elapsed`, which may still have been slow.
    pub fn on_success(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        permit: BreakerPermit,
        elapsed: Duration,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        self.on_end(now, params, permit, false, elapsed, rng)
    }

    /// A call failed after `elapsed`; if that is slow, it counts as both.
    pub fn on_failure(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        permit: BreakerPermit,
        elapsed: Duration,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        self.on_end(now, params, permit, true, elapsed, rng)
    }

    /// A call taught nothing, or was never made. A probe gives its slot back; nothing is recorded
    /// (a slow mark made before stays). The knobs are taken only so that feedback looks alike.
    pub fn on_ignore(&mut self, now: Timestamp, _params: &BreakerParams, permit: BreakerPermit) {
        self.clamp(now);
        if permit.generation == self.generation {
            self.return_probe(&permit);
        }
    }

    /// A call is still in flight at the slow threshold: one slow call, recorded now and only once.
    ///
    /// Its end adds neither a call nor a slow one again; if it fails, it adds the failure. Without
    /// effect if slowness is not judged.
    pub fn on_slow(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        permit: &mut BreakerPermit,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        let now = self.clamp(now);
        let is_late = permit.generation != self.generation;
        let is_judged = params.slow().is_some() && params.mode() != BreakerMode::Disabled;
        if is_late || !is_judged || permit.slow_counted {
            return None;
        }
        permit.slow_counted = true;
        self.history.on_slow(now, params.options().bucket);
        match self.state {
            State::Closed => self.trip_if_due(now, params, rng),
            State::HalfOpen { .. } if permit.is_probe => {
                Some(self.open(now, Trigger::ProbeSlow, params, rng))
            }
            State::HalfOpen { .. } | State::Open { .. } => None,
        }
    }

    /// Another route to the same endpoint could not connect: one failed call while closed, the end
    /// of half-open, nothing new while open.
    pub fn on_unreachable(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        if params.mode() == BreakerMode::Disabled {
            return None;
        }
        self.handle_timeout(now, params);
        let now = self.latest;
        match self.state {
            State::Open { .. } => None,
            State::HalfOpen { .. } => Some(self.open(now, Trigger::Unreachable, params, rng)),
            State::Closed => {
                self.history.on_end(now, params.options().bucket, true, true, false);
                self.trip_if_due(now, params, rng)
            }
        }
    }

    /// Whether a call that is a retry may be made, beside what
    /// [`try_acquire`](Self::try_acquire) says: false only in mode retries-off, wherever a normal
    /// breaker would reject a call.
    #[must_use]
    pub fn retries_allowed(&self, now: Timestamp, params: &BreakerParams) -> bool {
        params.mode() != BreakerMode::RetriesOff || self.has_room(now, params)
    }

    /// When the state changes by itself: the end of the open time, or of the lease of probes that
    /// hold every slot.
    #[must_use]
    pub fn next_deadline(&self, params: &BreakerParams) -> Option<Timestamp> {
        let options = params.options();
        match self.state {
            State::Closed => None,
            State::Open { until } => Some(until),
            State::HalfOpen { out, succeeded, issued } => {
                is_full(out, succeeded, options.probes).then(|| issued.after(options.probe_lease))
            }
        }
    }

    /// Begins half-open if [`next_deadline`](Self::next_deadline) has come.
    pub fn handle_timeout(&mut self, now: Timestamp, params: &BreakerParams) -> Option<Transition> {
        let now = self.clamp(now);
        if now < self.next_deadline(params)? {
            return None;
        }
        let trigger = match self.state {
            State::Open { .. } => Trigger::Timer,
            State::HalfOpen { .. } | State::Closed => Trigger::LeaseExpired,
        };
        Some(self.transition(trigger, State::HalfOpen { out: 0, succeeded: 0, issued: now }))
    }

    /// Where it stands; an open time that is over ends at the next call or timeout.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// What the window holds at `now`; probes are in it too.
    #[must_use]
    pub fn counts(&self, now: Timestamp, params: &BreakerParams) -> WindowCounts {
        self.history.counts(now.max(self.latest), params.options().bucket)
    }

    /// Transitions so far.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Openings since it last closed.
    #[must_use]
    pub const fn trips(&self) -> u32 {
        self.trips
    }

    /// Records the end of a call and draws the consequence.
    fn on_end(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        permit: BreakerPermit,
        failed: bool,
        elapsed: Duration,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        let now = self.clamp(now);
        if permit.generation != self.generation {
            return None;
        }
        if params.mode() == BreakerMode::Disabled {
            self.return_probe(&permit);
            return None;
        }
        let is_new = !permit.slow_counted;
        let slow = params.is_slow(elapsed);
        self.history.on_end(now, params.options().bucket, is_new, failed, slow);
        match &mut self.state {
            State::Closed => self.trip_if_due(now, params, rng),
            State::HalfOpen { out, succeeded, .. } if permit.is_probe => {
                if failed || slow {
                    let trigger = if failed { Trigger::ProbeFailed } else { Trigger::ProbeSlow };
                    return Some(self.open(now, trigger, params, rng));
                }
                *out = out.saturating_sub(1);
                *succeeded = succeeded.saturating_add(1);
                (*succeeded >= params.options().probes)
                    .then(|| self.transition(Trigger::ProbesSucceeded, State::Closed))
            }
            State::HalfOpen { .. } | State::Open { .. } => None,
        }
    }

    /// Opens a closed breaker if its window or its run says so.
    fn trip_if_due(
        &mut self,
        now: Timestamp,
        params: &BreakerParams,
        rng: &mut impl Rng,
    ) -> Option<Transition> {
        let trigger = self.history.verdict(params.options())?;
        Some(self.open(now, trigger, params, rng))
    }

    /// Opens for the next, longer time.
    fn open(
        &mut self,
        now: Timestamp,
        trigger: Trigger,
        params: &BreakerParams,
        rng: &mut impl Rng,
    ) -> Transition {
        let until = now.after(params.open_for(self.trips.saturating_add(1), rng));
        self.transition(trigger, State::Open { until })
    }

    /// The only place that writes `state`.
    fn transition(&mut self, trigger: Trigger, to: State) -> Transition {
        let from = self.state();
        match to {
            State::Open { .. } => self.trips = self.trips.saturating_add(1),
            State::HalfOpen { .. } => {}
            State::Closed => {
                self.trips = 0;
                self.history.clear();
            }
        }
        self.state = to;
        self.generation += 1;
        let is_closed = matches!(to, State::Closed);
        debug_assert!(is_closed == (self.trips == 0), "closed or tripped, not both");
        Transition { from, to: self.state(), trigger }
    }

    /// Whether a normal breaker would admit a call at `now`: it rejects only until a deadline.
    fn has_room(&self, now: Timestamp, params: &BreakerParams) -> bool {
        self.next_deadline(params).is_none_or(|deadline| now.max(self.latest) >= deadline)
    }

    /// A permit of this generation.
    const fn permit(&self, is_probe: bool) -> BreakerPermit {
        BreakerPermit { generation: self.generation, is_probe, slow_counted: false }
    }

    /// Frees the slot of a probe of this generation.
    const fn return_probe(&mut self, permit: &BreakerPermit) {
        if let State::HalfOpen { out, .. } = &mut self.state
            && permit.is_probe
        {
            *out = out.saturating_sub(1);
        }
    }

    /// Takes an earlier `now` for the latest one seen.
    fn clamp(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }
}

/// Whether no probe may be issued. With nothing out one always may, however the limit was lowered.
const fn is_full(out: u32, succeeded: u32, probes: u32) -> bool {
    out > 0 && out.saturating_add(succeeded) >= probes
}
