//! Counters go on over a reload: the metrics of the new configuration begin with what those of the
//! old one counted, series by series, and take over what is still counted there.
//!
//! A request counts in the metrics of the configuration it began under, and may end long after a
//! reload. So the old ones stay as long as somebody counts in them, and whatever was added there
//! since the last look is added here: at each tick, and before a scrape. A series is known by its
//! labels; one that the new configuration does not have vanishes with the reload, and begins at
//! zero should it come back.

use std::collections::HashMap;
use std::sync::Arc;

use super::family::{Kind, Origin};
use super::table::TABLE;
use super::{CELLS, Metrics, Shape};

/// Metrics of a configuration that is over, and may still be counted in.
#[derive(Debug)]
pub(super) struct Predecessor {
    metrics: Arc<Metrics>,
    /// Of each of its counters that lives on, its place there and here, and how much was taken
    /// over.
    taken: Vec<(usize, usize, u64)>,
}

impl Metrics {
    /// The metrics of a new configuration; the same ones if its labels are the same.
    pub(crate) fn succeed(old: &Arc<Self>, shape: Shape) -> Arc<Self> {
        if old.shape == shape {
            return Arc::clone(old);
        }
        let new = Self::new(shape);
        let renamed = new.shape.upstreams.iter().map(|upstream| {
            old.shape.upstreams.iter().position(|known| known.upstream == upstream.upstream)
        });
        *new.window.lock() = old.window.lock().of(&renamed.collect::<Vec<_>>());
        let taken = places(old, &new);
        let predecessor = Predecessor { metrics: Arc::clone(old), taken };
        new.before.lock().push(predecessor);
        new.settle();
        Arc::new(new)
    }

    /// Takes over what was counted in the metrics before these since the last time.
    pub(super) fn settle(&self) {
        let mut before = self.before.lock();
        for predecessor in before.iter_mut() {
            predecessor.hand_over(self);
        }
        // Asked after the last look: what counts in them holds them.
        before.retain_mut(|predecessor| {
            let is_over = Arc::strong_count(&predecessor.metrics) == 1
                && predecessor.metrics.before.lock().is_empty();
            if is_over {
                predecessor.hand_over(self);
            }
            !is_over
        });
    }

    /// How many configurations before this one are still counted in, one behind the other.
    #[cfg(test)]
    pub(super) fn predecessors(&self) -> usize {
        let before = self.before.lock();
        before.iter().map(|predecessor| 1 + predecessor.metrics.predecessors()).sum()
    }
}

impl Predecessor {
    fn hand_over(&mut self, to: &Metrics) {
        self.metrics.settle();
        for (from, into, taken) in &mut self.taken {
            let sum = self.metrics.cells.sum(*from);
            if sum != *taken {
                to.cells.add(*into, sum.wrapping_sub(*taken));
                *taken = sum;
            }
        }
    }
}

/// Where each counter of `old` goes on in `new`.
fn places(old: &Metrics, new: &Metrics) -> Vec<(usize, usize, u64)> {
    let mut places = Vec::new();
    for row in TABLE.iter().filter(|row| row.origin == Origin::Own) {
        let series = 0..new.series(row.family);
        let known: HashMap<_, _> =
            series.filter_map(|series| Some((new.values(row, series)?, series))).collect();
        let cells = if row.kind == Kind::Histogram { CELLS } else { 1 };
        for series in 0..old.series(row.family) {
            let Some(values) = old.values(row, series) else { continue };
            let Some(into) = known.get(&values) else { continue };
            let from = old.blocks[row.family as usize].base + series * cells;
            let into = new.blocks[row.family as usize].base + into * cells;
            places.extend((0..cells).map(|cell| (from + cell, into + cell, 0)));
        }
    }
    places
}

/// A name, if the number has one.
pub(super) fn present(name: Option<&String>) -> Option<&str> {
    name.map(String::as_str).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall_policy::{Cause, Class};

    use super::super::family::Family;
    use super::super::{RouteLabels, Stage, UpstreamLabels};
    use super::*;

    fn shape(routes: &[(&str, usize)], upstreams: &[(&str, &[&str])]) -> Shape {
        let route =
            |&(route, upstream): &(&str, usize)| RouteLabels { route: route.to_owned(), upstream };
        let upstream = |&(upstream, endpoints): &(&str, &[&str])| UpstreamLabels {
            upstream: upstream.to_owned(),
            endpoints: endpoints.iter().map(|&at| at.to_owned()).collect(),
        };
        Shape {
            routes: routes.iter().map(route).collect(),
            upstreams: upstreams.iter().map(upstream).collect(),
            listeners: vec!["127.0.0.1:1".to_owned()],
        }
    }

    fn retries(metrics: &Metrics, route: usize) -> u64 {
        metrics.settle();
        metrics.count(Family::Retries, route)
    }

    #[test]
    fn a_series_goes_on_by_its_names_wherever_it_stands_now() {
        let old = Arc::new(Metrics::new(shape(
            &[("a", 0), ("b", 1)],
            &[("one", &["h:1"]), ("two", &["h:2", "h:3"])],
        )));
        for _ in 0..3 {
            old.retry(0);
        }
        old.retry(1);
        old.outcome(1, Class::Success, Cause::Answered);
        old.stage(Some(1), Stage::Total, Duration::from_millis(7));
        let new = Metrics::succeed(
            &old,
            shape(&[("b", 0), ("c", 1)], &[("two", &["h:3"]), ("three", &["h:9"])]),
        );
        assert_eq!(retries(&new, 0), 1, "of b");
        assert_eq!(retries(&new, 1), 0, "c is new");
        // What began before counts on, once.
        old.retry(1);
        old.stage(Some(1), Stage::Total, Duration::from_millis(7));
        assert_eq!((retries(&new, 0), retries(&new, 0)), (2, 2));
        let histogram = new.histogram(Family::StageDuration, Stage::Total as usize);
        assert_eq!(histogram.buckets.iter().sum::<u64>(), 2);
        assert_eq!(histogram.sum, Duration::from_millis(14));
        // Nobody counts in the old one any more.
        assert_eq!(new.predecessors(), 1);
        old.retry(1);
        drop(old);
        assert_eq!(retries(&new, 0), 3);
        assert_eq!(new.predecessors(), 0);
    }

    #[test]
    fn the_same_labels_are_the_same_metrics() {
        let labels = shape(&[("a", 0)], &[("one", &["h:1"])]);
        let old = Arc::new(Metrics::new(labels.clone()));
        assert!(Arc::ptr_eq(&old, &Metrics::succeed(&old, labels)));
    }

    #[test]
    fn a_chain_of_reloads_loses_and_doubles_nothing() {
        let upstreams: [(&str, &[&str]); 1] = [("one", &["h:1"])];
        let names: Vec<_> = (0..5).map(|n| format!("extra{n}")).collect();
        let mut all = vec![Arc::new(Metrics::new(shape(&[("a", 0)], &upstreams)))];
        for name in &names {
            all.last().unwrap().retry(0);
            let next = shape(&[("a", 0), (name, 0)], &upstreams);
            all.push(Metrics::succeed(all.last().unwrap(), next));
        }
        for metrics in &all {
            metrics.retry(0);
        }
        let last = all.pop().unwrap();
        assert_eq!(retries(&last, 0), 11);
        assert_eq!(last.predecessors(), 5);
        drop(all);
        assert_eq!(retries(&last, 0), 11);
        assert_eq!(last.predecessors(), 0);
    }
}
