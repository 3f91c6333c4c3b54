//! The families of the checks of endpoints.

use super::{Number, Scrape, Values};
use crate::health::HealthView;
use crate::metrics::labels::CHECK_RESULTS;

impl<'a> Scrape<'a> {
    pub(super) fn healthy(&self) -> Vec<(Values<'a>, Number)> {
        let each = |(names, view): ([&'a str; 2], &HealthView)| {
            (names.to_vec(), Number::Whole(u64::from(view.healthy)))
        };
        self.checked().map(each).collect()
    }

    pub(super) fn health_checks(&self) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        for ([upstream, endpoint], view) in self.checked() {
            for (result, count) in CHECK_RESULTS.iter().zip([view.passed, view.failed]) {
                samples.push((vec![upstream, endpoint, *result], Number::Whole(count)));
            }
        }
        samples
    }

    /// The endpoints that are checked, with the names of upstream and endpoint.
    fn checked(&self) -> impl Iterator<Item = ([&'a str; 2], &'a HealthView)> + use<'a, '_> {
        let known = self.metrics.shape.upstreams.iter();
        known.zip(&self.snapshot.upstreams).flat_map(|(known, upstream)| {
            upstream.health.iter().filter_map(|(number, view)| {
                let endpoint = known.endpoints.get(*number)?;
                Some(([known.upstream.as_str(), endpoint.as_str()], view))
            })
        })
    }
}
