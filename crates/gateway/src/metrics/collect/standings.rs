//! The families about breakers, and about how endpoints stand beside each other.

use seawall_policy::{EjectionReason, Standing};

use super::{Family, Number, Scrape, Values};
use crate::metrics::labels::breaker_state;
use crate::metrics::snapshot::BreakerView;
use crate::metrics::window::real;

impl<'a> Scrape<'a> {
    pub(super) fn breakers(&self) -> Vec<(Values<'a>, Number)> {
        let shape = &self.metrics.shape;
        let each = |breaker: &BreakerView| {
            let route = shape.routes.get(breaker.route)?;
            let upstream = shape.upstreams.get(route.upstream)?;
            let endpoint = upstream.endpoints.get(breaker.endpoint)?;
            let values = [&route.route, &upstream.upstream, endpoint];
            let state = u64::try_from(breaker_state(breaker.state)).ok()?;
            Some((values.map(String::as_str).to_vec(), Number::Whole(state)))
        };
        self.snapshot
            .upstreams
            .iter()
            .flat_map(|upstream| &upstream.breakers)
            .filter_map(each)
            .collect()
    }

    pub(super) fn standings(&self) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        let known = self.metrics.shape.upstreams.iter();
        for (labels, upstream) in known.zip(&self.snapshot.upstreams) {
            for (number, standing) in &upstream.standings {
                let Some(endpoint) = labels.endpoints.get(*number) else { continue };
                let values = vec![labels.upstream.as_str(), endpoint.as_str()];
                samples.push((values, Number::Whole(level(*standing))));
            }
        }
        samples
    }

    /// Ejections by reason, or the share of endpoints that are out; where outliers are ejected.
    pub(super) fn ejections(&self, family: Family) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        let known = self.metrics.shape.upstreams.iter();
        for (labels, upstream) in known.zip(&self.snapshot.upstreams) {
            let Some(counts) = upstream.ejections else { continue };
            let name = labels.upstream.as_str();
            if family == Family::EjectedRatio {
                let is_out =
                    |at: &&(usize, Standing)| matches!(at.1, Standing::Ejected | Standing::Probing);
                let out = upstream.standings.iter().filter(is_out).count();
                let share = real(out as u64) / real(upstream.standings.len().max(1) as u64);
                samples.push((vec![name], Number::Real(share)));
                continue;
            }
            for (reason, count) in EjectionReason::ALL.into_iter().zip(counts) {
                samples.push((vec![name, reason.as_str()], Number::Whole(count)));
            }
        }
        samples
    }
}

/// The value of the gauge.
const fn level(standing: Standing) -> u64 {
    match standing {
        Standing::Available => 0,
        Standing::Probing => 1,
        Standing::Ejected => 2,
        Standing::Unhealthy => 3,
    }
}
