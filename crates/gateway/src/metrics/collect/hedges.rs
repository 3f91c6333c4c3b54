//! The family of hedges that were refused.

use seawall_policy::HedgeRefusal;

use super::{Number, Scrape, Values};

impl<'a> Scrape<'a> {
    pub(super) fn hedges_refused(&self) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        let known = self.metrics.shape.upstreams.iter();
        for (labels, upstream) in known.zip(&self.snapshot.upstreams) {
            let Some((_, refused)) = upstream.hedges else { continue };
            for (reason, count) in HedgeRefusal::ALL.into_iter().zip(refused) {
                let values = vec![labels.upstream.as_str(), reason.as_str()];
                samples.push((values, Number::Whole(count)));
            }
        }
        samples
    }
}
