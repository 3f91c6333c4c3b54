//! The families about how endpoints stand beside each other.

use seawall_policy::{EjectionReason, Standing};

use super::{Family, Number, Scrape, Values};
use crate::metrics::window::real;

impl<'a> Scrape<'a> {
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
