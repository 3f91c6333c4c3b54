//! Decides which endpoints are worse than the others of their dependency, and keeps calls away
//! from them for a while.
//!
//! A health check asks one question a few times a minute, and a process with a full disk, a bad
//! deployment or a sick neighbour goes on answering it. What its callers see is the better witness:
//! one endpoint fails, or is slow, where the others do the same work well. A breaker looks at one
//! endpoint alone and opens at half of its calls; this compares, and so sees less, and never takes
//! a fault of all for a fault of one.
//!
//! - **What is seen**: of each endpoint the last 32 calls, whether they failed and whether they
//!   were slow. Failures are the breaker's, and every 5xx: where all endpoints answer 500 to the
//!   same requests, none differs. Slow is a call that takes, or has taken while still in flight,
//!   `slow_factor` times what 40 % of the route's calls take, all endpoints together, and at least
//!   `slow_floor`. (40 % instead of half: of two endpoints with equal traffic, one slow, the
//!   baseline is the other's.)
//! - **When it is looked at**: every `interval`. An endpoint with `min_calls` of them is compared
//!   with the mean of the others that have as many. If its share of failures lies
//!   `failure_excess` above theirs, or its share of slow calls `slow_excess`, it has a strike;
//!   three looks in a row with a strike, each with new calls, eject it: one pause of a collector
//!   does not.
//! - **How many**: at most `max_ejected` of all endpoints, rounded down, but one may always go, and
//!   the last never. Of two, one may be ejected; a single endpoint never is. Endpoints that health
//!   checks call sick are among those that are out. If more deserve it, the worst go.
//! - **For how long**: `min(cap, base · 2^(n − 1)) · U(0.7, 1.0)`, n being the ejections in a row.
//!   Each healthy time as long as the last of them takes one off n.
//! - **How it returns**: by `probes` calls. If they are as good as the others', it is back, with a
//!   slow start where that is on; else it is out again, for longer. Hung probes count as slow.
//!
//! ```text
//!          three strikes, room left              time is up
//!   active ──────────────────────────▶ ejected ─────────────▶ probing
//!      ▲                                  ▲                    │   │
//!      │                                  └── worse ───────────┘   │
//!      └───────────────────────────────────── as good ─────────────┘
//! ```
//!
//! Defaults are in [`OutlierOptions`]. An endpoint costs 48 bytes; a call O(1); a look one pass
//! over the endpoints, and one more for each that is ejected.
//!
//! Known bad cases: an endpoint with less than `min_calls` in half a minute is not judged; where
//! requests are bound to endpoints by their content, a bad kind of request looks like a bad
//! endpoint; one that wrongly answers 4xx looks well. Where most fail alike, so do the others of
//! each: of ten of which eight fail, none is ejected, and their breakers open.

mod conduct;
mod params;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::time::Timestamp;

pub use conduct::{Conduct, OutlierPermit};
pub use params::{OutlierOptions, OutlierParams};

use conduct::Shares;

/// Why an endpoint was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EjectionReason {
    /// More of its calls failed than of the others'.
    Failures,
    /// More of its calls were slow.
    Slow,
    /// Its probes were worse than the others' calls.
    Probes,
}

impl EjectionReason {
    /// In the order of [`Outliers::ejections`].
    pub const ALL: [Self; 3] = [Self::Failures, Self::Slow, Self::Probes];

    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::Slow => "slow",
            Self::Probes => "probes",
        }
    }
}

/// What became of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is out for this long.
    Ejected(EjectionReason, Duration),
    /// Its probes went well: it is back.
    Returned,
}

/// An endpoint as it is looked at.
pub trait Judged {
    /// What is known of its calls.
    fn conduct(&mut self) -> &mut Conduct;
    /// Whether health checks say that it is well.
    fn is_healthy(&self) -> bool;
    /// Whether calls may go to it at all; it is no endpoint otherwise. Default: yes.
    fn is_offered(&self) -> bool {
        true
    }
}

/// The looks at all endpoints of a dependency.
#[derive(Debug, Default)]
pub struct Outliers {
    due: Timestamp,
    ejections: [u64; EjectionReason::ALL.len()],
}

impl Outliers {
    /// Nobody was looked at.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether [`look`](Self::look) has something to do.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due
    }

    /// Ejections since the start, by reason.
    #[must_use]
    pub const fn ejections(&self) -> [u64; EjectionReason::ALL.len()] {
        self.ejections
    }

    /// Looks at all endpoints if it is time, and tells of each that goes or comes.
    pub fn look<E: Judged>(
        &mut self,
        now: Timestamp,
        params: &OutlierParams,
        endpoints: &mut [E],
        mut tell: impl FnMut(usize, &mut E, Verdict),
        rng: &mut impl Rng,
    ) {
        if !self.is_due(now) {
            return;
        }
        self.due = now.after(params.options().interval);
        let mut fleet = Fleet::default();
        let (mut out, mut count) = (0, 0);
        for endpoint in endpoints.iter_mut().filter(|endpoint| endpoint.is_offered()) {
            count += 1;
            let is_healthy = endpoint.is_healthy();
            let conduct = endpoint.conduct();
            conduct.roll(now, params);
            out += usize::from(!is_healthy || conduct.is_out());
            fleet.add(conduct.comparable(params));
        }
        for (index, endpoint) in offered(endpoints) {
            let conduct = endpoint.conduct();
            if let Some(probes) = conduct.probed(params) {
                let verdict = match fleet.excess(params, probes, None) {
                    Some(_) => self.eject(now, params, conduct, EjectionReason::Probes, rng),
                    None => conduct.take_back(now),
                };
                tell(index, endpoint, verdict);
            } else if let Some(own) = conduct.comparable(params) {
                conduct.strike(fleet.excess(params, own, Some(own)).is_some());
            }
        }
        let most = params.most_out(count);
        while out < most {
            let Some((index, own, reason)) = worst(params, &fleet, endpoints) else { break };
            let verdict = self.eject(now, params, endpoints[index].conduct(), reason, rng);
            tell(index, &mut endpoints[index], verdict);
            fleet.remove(own);
            out += 1;
        }
    }

    fn eject(
        &mut self,
        now: Timestamp,
        params: &OutlierParams,
        conduct: &mut Conduct,
        reason: EjectionReason,
        rng: &mut impl Rng,
    ) -> Verdict {
        self.ejections[reason as usize] += 1;
        Verdict::Ejected(reason, conduct.eject(now, params, rng))
    }
}

/// Those that calls may go to, by number.
fn offered<E: Judged>(endpoints: &mut [E]) -> impl Iterator<Item = (usize, &mut E)> {
    endpoints.iter_mut().enumerate().filter(|(_, endpoint)| endpoint.is_offered())
}

/// The worst of those with enough strikes, if it is still worse than the others.
fn worst<E: Judged>(
    params: &OutlierParams,
    fleet: &Fleet,
    endpoints: &mut [E],
) -> Option<(usize, Shares, EjectionReason)> {
    let mut worst = None;
    let mut most = Ratio::ZERO;
    for (index, endpoint) in offered(endpoints) {
        let conduct = endpoint.conduct();
        if let Some(own) = conduct.struck_out(params)
            && let Some((excess, reason)) = fleet.excess(params, own, Some(own))
            && excess > most
        {
            worst = Some((index, own, reason));
            most = excess;
        }
    }
    worst
}

/// The sums over the endpoints that can be compared.
#[derive(Clone, Copy, Debug, Default)]
struct Fleet {
    count: u64,
    failed: u64,
    slow: u64,
}

impl Fleet {
    fn add(&mut self, shares: Option<Shares>) {
        if let Some(Shares { failed, slow }) = shares {
            self.count += 1;
            self.failed += u64::from(failed.millionths());
            self.slow += u64::from(slow.millionths());
        }
    }

    const fn remove(&mut self, Shares { failed, slow }: Shares) {
        self.count -= 1;
        self.failed -= failed.millionths() as u64;
        self.slow -= slow.millionths() as u64;
    }

    /// By how much `judged` is worse than the mean of the others, if that is too much, and in
    /// what; `own` is its part of the sums. Without others there is only an excess over nothing
    /// for probes.
    fn excess(
        &self,
        params: &OutlierParams,
        judged: Shares,
        own: Option<Shares>,
    ) -> Option<(Ratio, EjectionReason)> {
        let mut others = *self;
        if let Some(own) = own {
            others.remove(own);
            if others.count == 0 {
                return None;
            }
        }
        let options = params.options();
        for (share, sum, allowed, reason) in [
            (judged.failed, others.failed, options.failure_excess, EjectionReason::Failures),
            (judged.slow, others.slow, options.slow_excess, EjectionReason::Slow),
        ] {
            let mean = u32::try_from(sum / others.count.max(1)).unwrap_or(u32::MAX);
            let above = share.millionths().saturating_sub(mean);
            if above >= allowed.millionths() {
                return Some((Ratio::from_millionths(above), reason));
            }
        }
        None
    }
}
