//! How endpoints stand beside each other, and which of them takes an attempt.
//!
//! | standing | why | gets traffic |
//! |---|---|---|
//! | available | nothing speaks against it | its share; after a return, a growing part of it |
//! | probing | it was ejected, and its time is up | a few probes |
//! | ejected | it is worse than the others ([`OutlierOptions`]) | only if no other may be used |
//! | unhealthy | its health checks fail ([`Dependency::set_health`]) | only if no other may be used |
//!
//! The breaker has its say before all of this: an endpoint whose breaker rejects gets nothing. Of
//! the rest, those in the best standing are used: an ejected endpoint before an unhealthy one, and
//! where all are unhealthy all get traffic: a check that is wrong about everything does no harm.
//! An attempt avoids the endpoints that its call has tried, as long as another in the same
//! standing is there; a redispatch goes to a worse one rather than back ([`Avoid`]).
//!
//! [`OutlierOptions`]: crate::OutlierOptions

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::terms::LoggedVerdict;
use super::{Dependency, MOST_TRANSITIONS};
use crate::balance::{self, Balance, LoadEstimate};
use crate::breaker::Breaker;
use crate::outlier::{
    Conduct, EjectionReason, Judged, OutlierParams, OutlierPermit, Outliers, Verdict,
};
use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::stack::StackParams;
use crate::time::Timestamp;

/// How an endpoint stands beside the others; better ones come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing speaks against it.
    #[default]
    Available,
    /// It was ejected, its time is up, and it gets probes.
    Probing,
    /// It is worse than the others.
    Ejected,
    /// Its health checks fail.
    Unhealthy,
}

impl Standing {
    /// Best first.
    pub const ALL: [Self; 4] = [Self::Available, Self::Probing, Self::Ejected, Self::Unhealthy];

    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Probing => "probing",
            Self::Ejected => "ejected",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// Which endpoints an attempt would rather not go to. Any `Fn(usize) -> bool` is one.
pub trait Avoid {
    /// Whether it would rather not go to this one.
    fn avoids(&self, endpoint: usize) -> bool;

    /// Whether it would rather go to one in worse standing than to one it avoids. Default: no.
    fn at_any_price(&self) -> bool {
        false
    }
}

impl<F: Fn(usize) -> bool> Avoid for F {
    fn avoids(&self, endpoint: usize) -> bool {
        self(endpoint)
    }
}

/// The looks at the endpoints beside each other, and what came of them.
#[derive(Debug, Default)]
pub(super) struct Looks {
    outliers: Outliers,
    /// The latest ejections and returns not yet collected, oldest dropped at [`MOST_TRANSITIONS`].
    verdicts: VecDeque<LoggedVerdict>,
}

/// One endpoint, for all lanes.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) in_flight: u32,
    /// One a lane.
    pub(super) breakers: Vec<Breaker>,
    /// Since when it is offered to no call.
    pub(super) retired: Option<Timestamp>,
    pub(super) load: LoadEstimate,
    pub(super) conduct: Conduct,
    /// Said by health checks; without them true.
    healthy: bool,
    /// When it came back, or was added to others; [`Timestamp::ZERO`] if it was there before.
    back_since: Timestamp,
}

impl Endpoint {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            in_flight: 0,
            breakers: (0..lanes).map(|_| Breaker::new()).collect(),
            retired: None,
            load: LoadEstimate::new(),
            conduct: Conduct::new(),
            healthy: true,
            back_since: Timestamp::ZERO,
        }
    }

    /// Begins with a part of its share, as slow start says.
    pub(super) const fn start_slowly(&mut self, now: Timestamp) {
        self.back_since = now;
    }

    pub(super) fn standing(&self, now: Timestamp, params: &StackParams) -> Standing {
        match () {
            () if !self.healthy => Standing::Unhealthy,
            () if params.outlier.is_none() => Standing::Available,
            () if self.conduct.ejected_until(now).is_some() => Standing::Ejected,
            () if self.conduct.is_probing(now) => Standing::Probing,
            () => Standing::Available,
        }
    }

    /// In which of [`TIERS`] it is: with a probe to give, among the best.
    fn tier(&self, now: Timestamp, params: &StackParams) -> Standing {
        match &params.outlier {
            _ if !self.healthy => Standing::Unhealthy,
            Some(outlier) if !self.conduct.has_room(now, outlier) => Standing::Ejected,
            _ => Standing::Available,
        }
    }

    /// The part of its share it gets.
    fn share(&self, now: Timestamp, params: &StackParams) -> Ratio {
        match &params.slow_start {
            Some(slow_start) if self.back_since > Timestamp::ZERO => {
                slow_start.share(now.since(self.back_since))
            }
            _ => Ratio::ONE,
        }
    }

    fn cost(&self, now: Timestamp, params: &StackParams) -> u64 {
        match params.balance {
            Balance::LeastRequest => u64::from(self.in_flight),
            Balance::PeakEwma => self.load.cost(now, self.in_flight),
        }
    }
}

impl Dependency {
    /// Says what health checks say of an endpoint; without them every endpoint is healthy. One that
    /// is not gets traffic only while no other may be used, and its return begins a slow start.
    /// Does nothing for an endpoint that does not exist.
    pub fn set_health(&mut self, now: Timestamp, endpoint: usize, healthy: bool) {
        let Some(endpoint) = self.endpoints.get_mut(endpoint) else { return };
        if healthy && !endpoint.healthy {
            endpoint.start_slowly(now);
        }
        endpoint.healthy = healthy;
    }

    /// The endpoint for an attempt in `lane`, if the breaker of any admits it.
    pub(super) fn choose(
        &self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        avoid: &impl Avoid,
        rng: &mut impl Rng,
    ) -> Option<usize> {
        if let [only] = &*self.endpoints {
            let is_in = self.admits(now, params, 0, lane) && only.share(now, params) > Ratio::ZERO;
            return is_in.then_some(0);
        }
        let mut pick = |worst: Standing, others_only: bool| {
            let share = |index: usize| {
                let endpoint = &self.endpoints[index];
                let is_in = endpoint.tier(now, params) <= worst
                    && !(others_only && avoid.avoids(index))
                    && self.admits(now, params, index, lane);
                if is_in { endpoint.share(now, params) } else { Ratio::ZERO }
            };
            let cost = |index: usize| self.endpoints[index].cost(now, params);
            balance::choose(share, self.endpoints.len(), cost, rng)
        };
        if avoid.at_any_price() {
            return TIERS
                .into_iter()
                .find_map(|worst| pick(worst, true))
                .or_else(|| TIERS.into_iter().find_map(|worst| pick(worst, false)));
        }
        TIERS.into_iter().find_map(|worst| pick(worst, true).or_else(|| pick(worst, false)))
    }

    /// Ejections since the start, in the order of [`EjectionReason::ALL`].
    #[must_use]
    pub const fn ejections(&self) -> [u64; EjectionReason::ALL.len()] {
        match &self.looks {
            Some(looks) => looks.outliers.ejections(),
            None => [0; EjectionReason::ALL.len()],
        }
    }

    /// Ejections and returns since they were last collected, oldest first; at most the latest 256.
    pub fn pop_verdict(&mut self) -> Option<LoggedVerdict> {
        self.looks.as_mut()?.verdicts.pop_front()
    }

    /// Ejections and returns that wait to be collected, and as many as may.
    #[must_use]
    pub fn uncollected_verdicts(&self) -> (usize, usize) {
        let waiting = self.looks.as_ref().map_or(0, |looks| looks.verdicts.len());
        (waiting, MOST_TRANSITIONS)
    }

    /// What an attempt carries for the judgement of its endpoint.
    pub(super) fn begin_conduct(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        endpoint: usize,
        lane: usize,
    ) -> Option<OutlierPermit> {
        params.outlier.as_ref()?;
        let slow_after = self.lanes[lane].slow_after;
        Some(self.endpoints[endpoint].conduct.begin(now, slow_after))
    }

    /// Looks for outliers if it is time, and at what is usual in each lane.
    #[inline]
    pub(super) fn look(&mut self, now: Timestamp, params: &StackParams, rng: &mut impl Rng) {
        if let Some(outlier) = &params.outlier {
            self.compare(now, outlier, rng);
        }
    }

    fn compare(&mut self, now: Timestamp, outlier: &OutlierParams, rng: &mut impl Rng) {
        let Looks { outliers, verdicts } = &mut **self.looks.get_or_insert_default();
        if !outliers.is_due(now) {
            return;
        }
        for lane in &mut self.lanes {
            let usual = lane.times.quantile(now, USUAL);
            lane.slow_after = usual.map_or(Duration::MAX, |usual| outlier.slow_after(usual));
        }
        let tell = |endpoint, end: &mut Endpoint, verdict| {
            if verdict == Verdict::Returned {
                end.start_slowly(now);
            }
            if verdicts.len() == MOST_TRANSITIONS {
                verdicts.pop_front();
            }
            verdicts.push_back(LoggedVerdict { at: now, endpoint, verdict });
        };
        outliers.look(now, outlier, &mut self.endpoints, tell, rng);
    }
}

impl Judged for Endpoint {
    fn conduct(&mut self) -> &mut Conduct {
        &mut self.conduct
    }

    fn is_healthy(&self) -> bool {
        self.healthy
    }

    fn is_offered(&self) -> bool {
        self.retired.is_none()
    }
}

/// Whom to try in turn.
const TIERS: [Standing; 3] = [Standing::Available, Standing::Ejected, Standing::Unhealthy];
/// Of a lane's recent calls, as many took at most what is usual. Source: own choice: with two
/// endpoints of which one is slow, the other one's time.
const USUAL: Ratio = Ratio::from_percent(40);
