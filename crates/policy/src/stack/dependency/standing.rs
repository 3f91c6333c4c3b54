//! How endpoints stand beside each other, and which of them takes an attempt.
//!
//! | standing | why | gets traffic |
//! |---|---|---|
//! | available | nothing speaks against it | its share; after a return, a growing part of it |
//! | unhealthy | its health checks fail ([`Dependency::set_health`]) | only if no other may be used |
//!
//! The breaker has its say before all of this: an endpoint whose breaker rejects gets nothing. Of
//! the rest, those in the best standing are used, so where all are unhealthy all get traffic:
//! a check that is wrong about everything does no harm. An attempt avoids the endpoints that its
//! call has tried, as long as another in the same standing is there; a redispatch goes to a worse
//! one rather than back ([`Avoid`]).

use alloc::vec::Vec;

use super::Dependency;
use crate::balance::{self, Balance, LoadEstimate};
use crate::breaker::Breaker;
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
    /// Its health checks fail.
    Unhealthy,
}

impl Standing {
    /// Best first.
    pub const ALL: [Self; 2] = [Self::Available, Self::Unhealthy];

    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
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

/// One endpoint, for all lanes.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) in_flight: u32,
    /// One a lane.
    pub(super) breakers: Vec<Breaker>,
    /// Since when it is offered to no call.
    pub(super) retired: Option<Timestamp>,
    pub(super) load: LoadEstimate,
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
            healthy: true,
            back_since: Timestamp::ZERO,
        }
    }

    /// Begins with a part of its share, as slow start says.
    pub(super) const fn start_slowly(&mut self, now: Timestamp) {
        self.back_since = now;
    }

    pub(super) const fn standing(&self) -> Standing {
        if self.healthy { Standing::Available } else { Standing::Unhealthy }
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
        let mut pick = |worst: Standing, others_only: bool| {
            let share = |index: usize| {
                let endpoint = &self.endpoints[index];
                let is_in = endpoint.standing() <= worst
                    && !(others_only && avoid.avoids(index))
                    && self.admits(now, params, index, lane);
                if is_in { endpoint.share(now, params) } else { Ratio::ZERO }
            };
            let cost = |index: usize| self.endpoints[index].cost(now, params);
            balance::choose(share, self.endpoints.len(), cost, rng)
        };
        let mut tiers = Standing::ALL.into_iter();
        if avoid.at_any_price() {
            return tiers
                .find_map(|worst| pick(worst, true))
                .or_else(|| Standing::ALL.into_iter().find_map(|worst| pick(worst, false)));
        }
        tiers.find_map(|worst| pick(worst, true).or_else(|| pick(worst, false)))
    }
}
