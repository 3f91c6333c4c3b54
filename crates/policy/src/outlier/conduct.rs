//! What is known of one endpoint: its last calls, whether it is out, and how often it was.

use core::time::Duration;

use super::Verdict;
use super::params::OutlierParams;
use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::time::Timestamp;

/// What a call carries for its endpoint's judgement.
#[derive(Debug)]
#[must_use = "a probe that is not returned is never replaced"]
pub struct OutlierPermit {
    generation: u32,
    /// A call this long is slow.
    slow_after: Duration,
    slow_counted: bool,
}

impl OutlierPermit {
    /// After how long the call is slow, while it does not count as that yet.
    #[must_use]
    pub fn slow_after(&self) -> Option<Duration> {
        (!self.slow_counted && self.slow_after < Duration::MAX).then_some(self.slow_after)
    }

    /// Whether a call of this length is slow.
    fn is_slow(&self, elapsed: Duration) -> bool {
        self.slow_after < Duration::MAX && elapsed >= self.slow_after
    }
}

/// Shares of an endpoint's calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) failed: Ratio,
    pub(super) slow: Ratio,
}

/// One endpoint. See the module above.
#[derive(Debug, Default)]
pub struct Conduct {
    /// A bit for each of the last calls, the latest lowest.
    failed: u32,
    slow: u32,
    /// How many bits count, up to 32.
    calls: u32,
    /// Looks in a row that found it worse, up to [`STRIKES`].
    strikes: u8,
    /// Whether a call was recorded since the last strike was decided.
    is_fresh: bool,
    /// Ejections in a row, fewer after healthy times.
    level: u32,
    /// Counts ejections and the beginnings of probing.
    generation: u32,
    state: State,
    /// When the latest call was recorded.
    latest: Timestamp,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Active {
        /// When it came back, or its level last sank.
        since: Timestamp,
    },
    Ejected {
        until: Timestamp,
    },
    Probing {
        /// Probes issued and not returned.
        out: u32,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Active { since: Timestamp::ZERO }
    }
}

impl Conduct {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it may have a call as if nothing had been: it is active, or has a probe to give.
    #[must_use]
    pub fn has_room(&self, now: Timestamp, params: &OutlierParams) -> bool {
        match self.state {
            State::Active { .. } => true,
            State::Ejected { until } => now >= until,
            State::Probing { out } => out.saturating_add(self.calls) < params.options().probes,
        }
    }

    /// Until when it is out, if it is.
    #[must_use]
    pub fn ejected_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state {
            State::Ejected { until } if now < until => Some(until),
            _ => None,
        }
    }

    /// Whether only probes go to it, or would.
    #[must_use]
    pub fn is_probing(&self, now: Timestamp) -> bool {
        self.is_out() && self.ejected_until(now).is_none()
    }

    /// A call begins, which is slow when it has taken `slow_after`; [`Duration::MAX`] where that is
    /// not known.
    pub fn begin(&mut self, now: Timestamp, slow_after: Duration) -> OutlierPermit {
        if let State::Ejected { until } = self.state
            && now >= until
        {
            self.change(State::Probing { out: 0 });
        }
        if let State::Probing { out } = &mut self.state {
            *out = out.saturating_add(1);
        }
        OutlierPermit { generation: self.generation, slow_after, slow_counted: false }
    }

    /// The call ended, and says something of the endpoint.
    pub fn on_end(
        &mut self,
        now: Timestamp,
        permit: OutlierPermit,
        failed: bool,
        elapsed: Duration,
    ) {
        if permit.generation != self.generation {
            return;
        }
        if !permit.slow_counted {
            self.count(now, failed, permit.is_slow(elapsed));
        } else if failed {
            // The oldest that was counted as slow is most likely this one.
            let unfailed = self.slow & !self.failed;
            self.failed |= unfailed.checked_ilog2().map_or(0, |bit| 1 << bit);
        }
    }

    /// The call says nothing, or was never made.
    pub const fn on_ignore(&mut self, permit: &OutlierPermit) {
        if permit.generation == self.generation && !permit.slow_counted {
            self.give_back();
        }
    }

    /// The call is still in flight and slow: counted now and only once.
    pub fn on_slow(&mut self, now: Timestamp, permit: &mut OutlierPermit) {
        let is_new = !core::mem::replace(&mut permit.slow_counted, true);
        if is_new && permit.generation == self.generation {
            self.count(now, false, true);
        }
    }

    fn count(&mut self, now: Timestamp, failed: bool, slow: bool) {
        self.give_back();
        if matches!(self.state, State::Ejected { .. }) {
            return;
        }
        self.failed = self.failed << 1 | u32::from(failed);
        self.slow = self.slow << 1 | u32::from(slow);
        self.calls = (self.calls + 1).min(u32::BITS);
        self.is_fresh = true;
        self.latest = self.latest.max(now);
    }

    const fn give_back(&mut self) {
        if let State::Probing { out } = &mut self.state {
            *out = out.saturating_sub(1);
        }
    }

    pub(super) const fn is_out(&self) -> bool {
        !matches!(self.state, State::Active { .. })
    }

    /// What comes with time: probing after the ejection, forgetting, and a lower level.
    pub(super) fn roll(&mut self, now: Timestamp, params: &OutlierParams) {
        match &mut self.state {
            State::Ejected { until } if now >= *until => self.change(State::Probing { out: 0 }),
            State::Active { since }
                if self.level > 0 && now.since(*since) >= params.longest_ejection(self.level) =>
            {
                self.level -= 1;
                *since = now;
            }
            _ => {}
        }
        if !self.is_out() && now.since(self.latest) >= MEMORY {
            self.forget();
        }
    }

    /// Its shares, if it is active and has had calls enough.
    pub(super) fn comparable(&self, params: &OutlierParams) -> Option<Shares> {
        (!self.is_out() && self.calls >= params.options().min_calls).then(|| self.shares())
    }

    /// The shares of its probes, once all have come back.
    pub(super) fn probed(&self, params: &OutlierParams) -> Option<Shares> {
        let is_over = self.calls >= params.options().probes;
        (matches!(self.state, State::Probing { .. }) && is_over).then(|| self.shares())
    }

    /// Its shares, if it has strikes enough to be ejected.
    pub(super) fn struck_out(&self, params: &OutlierParams) -> Option<Shares> {
        self.comparable(params).filter(|_| self.strikes >= STRIKES)
    }

    fn shares(&self) -> Shares {
        let share = |bits: u32| {
            let millionths = bits.count_ones() * Ratio::SCALE / self.calls.max(1);
            Ratio::from_millionths(millionths)
        };
        Shares { failed: share(self.failed), slow: share(self.slow) }
    }

    /// A look found it worse, or not; without new calls it says nothing new.
    pub(super) fn strike(&mut self, is_worse: bool) {
        if !core::mem::replace(&mut self.is_fresh, false) {
            return;
        }
        self.strikes = if is_worse { (self.strikes + 1).min(STRIKES) } else { 0 };
    }

    /// Ejects it; for how long.
    pub(super) fn eject(
        &mut self,
        now: Timestamp,
        params: &OutlierParams,
        rng: &mut impl Rng,
    ) -> Duration {
        self.level = self.level.saturating_add(1);
        let time = params.ejection(self.level, rng);
        self.change(State::Ejected { until: now.after(time) });
        time
    }

    /// Its probes went well.
    pub(super) const fn take_back(&mut self, now: Timestamp) -> Verdict {
        self.state = State::Active { since: now };
        Verdict::Returned
    }

    /// Begins a generation, of which nothing is known yet.
    fn change(&mut self, to: State) {
        self.state = to;
        self.generation = self.generation.wrapping_add(1);
        self.forget();
    }

    const fn forget(&mut self) {
        (self.failed, self.slow, self.calls) = (0, 0, 0);
        (self.strikes, self.is_fresh) = (0, false);
    }
}

/// Looks in a row that must find an endpoint worse. Source: own choice: with a look a second, a
/// pause of less than two seconds is forgiven.
const STRIKES: u8 = 3;
/// Calls are forgotten when none came for this long. Source: own choice.
const MEMORY: Duration = Duration::from_secs(30);
