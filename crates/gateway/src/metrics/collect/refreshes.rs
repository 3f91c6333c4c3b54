//! The family of credentials that were refreshed.

use seawall::RefreshResult;

use super::{Number, Scrape, Values};

impl<'a> Scrape<'a> {
    pub(super) fn refreshes(&self) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        let known = self.metrics.shape.upstreams.iter();
        for (labels, upstream) in known.zip(&self.snapshot.upstreams) {
            let Some(counts) = upstream.refreshes else { continue };
            for (result, count) in RefreshResult::ALL.into_iter().zip(counts) {
                let values = vec![labels.upstream.as_str(), result.as_str()];
                samples.push((values, Number::Whole(count)));
            }
        }
        samples
    }
}
