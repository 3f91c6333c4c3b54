//! Counts what happens, and shows it to Prometheus.
//!
//! Recording is on the path of every request, so it neither hashes nor allocates nor locks: the
//! labels are laid out once, when the configuration is known, and from then on a series is a
//! number and a count is one relaxed addition to a counter of this thread's shard. The shards are
//! summed at a scrape. What others already keep (breakers, balances, pools) is not counted twice
//! but asked for at the scrape, through a [`Source`].
//!
//! Names, kinds, units and meanings stand in one table; `docs/metrics.md` is made from it.
//!
//! Series are bounded by the configuration: no label takes a value from the network.

mod causes;
mod codes;
mod collect;
mod family;
mod labels;
mod process;
mod secured;
mod shards;
mod snapshot;
mod succession;
mod table;
mod window;

use std::time::Duration;

use parking_lot::Mutex;
use seawall_policy::{BreakerState, Cause, Class, GrpcCode, StopReason, Timestamp};

use self::family::{Family, Kind, Origin, Row};
use self::labels::Label;
use self::shards::Shards;
use self::succession::Predecessor;
use self::table::TABLE;
use self::window::{Totals, Window};

pub(crate) use self::collect::{Exposition, Format, Present};
pub(crate) use self::labels::{IgnoredBecause, IgnoredHeader, IgnoredHeaders, Refusal, Stage};
pub(crate) use self::snapshot::{
    BreakerView, BulkheadView, ConfigView, ListenerView, PoolView, Snapshot, Source,
    UpstreamSnapshot,
};

/// What the labels of the configuration are. Names differ from each other within a kind, and none
/// is `_none`, which marks what has none: a written name does not begin with an underscore, and a
/// route's default name holds a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The routes, by index.
    pub routes: Vec<RouteLabels>,
    /// The upstreams, by index.
    pub upstreams: Vec<UpstreamLabels>,
    /// The listeners, by number: their addresses; empty for one that is gone.
    pub listeners: Vec<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteLabels {
    /// Its name.
    pub route: String,
    /// Index of its upstream in [`Shape::upstreams`].
    pub upstream: usize,
}

/// An upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamLabels {
    /// Its name.
    pub upstream: String,
    /// Its endpoints, by number, as `host:port`; empty for a number that is not in use.
    pub endpoints: Vec<String>,
}

impl Shape {
    fn upstream_of(&self, route: usize) -> Option<&UpstreamLabels> {
        self.upstreams.get(self.routes.get(route)?.upstream)
    }

    /// Endpoints of the upstream that has the most.
    fn most_endpoints(&self) -> usize {
        self.upstreams.iter().map(|upstream| upstream.endpoints.len()).max().unwrap_or(0)
    }
}

/// All counters. An index that the [`Shape`] does not have counts nothing; `None` for a route
/// counts under `_none`, where a request matched no route.
#[derive(Debug)]
pub(crate) struct Metrics {
    shape: Shape,
    blocks: [Block; TABLE.len()],
    cells: Shards,
    window: Mutex<Window>,
    /// Of configurations that are over, and may still be counted in.
    before: Mutex<Vec<Predecessor>>,
}

/// Where a family's counters lie.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    base: usize,
    series: usize,
}

/// A histogram as read.
#[derive(Debug)]
struct Histogram {
    /// Not cumulative; the last is above every bound.
    buckets: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

impl Metrics {
    /// Lays out all series of `shape` at zero.
    #[must_use]
    pub(crate) fn new(shape: Shape) -> Self {
        let mut blocks = [Block::default(); TABLE.len()];
        let mut cells = 0;
        for (block, row) in blocks.iter_mut().zip(TABLE) {
            if row.origin == Origin::Own {
                let series = row.labels.iter().map(|label| label.count(&shape)).product();
                *block = Block { base: cells, series };
                cells += series * if row.kind == Kind::Histogram { CELLS } else { 1 };
            }
        }
        Self {
            shape,
            blocks,
            cells: Shards::new(cells),
            window: Mutex::default(),
            before: Mutex::default(),
        }
    }

    /// A request has its answer; `status` is 0 where the caller left before one.
    pub(crate) fn request(&self, route: Option<usize>, status: u16) {
        let class = labels::code_class(status);
        self.add_pair(Family::Requests, self.route(route), Label::CodeClass, class);
    }

    /// A gRPC call has ended; `code` is what its caller got, if it is one of the seventeen.
    pub(crate) fn grpc_response(&self, route: Option<usize>, code: Option<GrpcCode>) {
        let code = codes::grpc_code(code);
        self.add_pair(Family::GrpcResponses, self.route(route), Label::GrpcCode, code);
    }

    /// A first attempt is sent.
    pub(crate) fn first_attempt(&self, route: usize) {
        self.add(Family::FirstAttempts, route);
    }

    /// A later attempt is sent.
    pub(crate) fn retry(&self, route: usize) {
        self.add(Family::Retries, route);
    }

    /// A second attempt is sent beside another.
    pub(crate) fn hedge(&self, route: usize) {
        self.add(Family::Hedges, route);
    }

    /// A request goes to another endpoint.
    pub(crate) fn redispatch(&self, route: usize) {
        self.add(Family::Redispatches, route);
    }

    /// A call has ended.
    pub(crate) fn stopped(&self, route: usize, reason: StopReason) {
        self.add(Family::StopReasons, route * StopReason::ALL.len() + reason.index());
    }

    /// A call's deadline had passed, or could not be met, before anything was sent.
    pub(crate) fn deadline_before_send(&self, route: usize) {
        self.add(Family::DeadlineBeforeSend, route);
    }

    /// A request came that stated its attempt number (or none: 1).
    pub(crate) fn caller_attempt(&self, listener: usize, attempt: u32) {
        let attempt = labels::caller_attempt(attempt);
        self.add_pair(Family::CallerAttempts, listener, Label::CallerAttempt, attempt);
    }

    /// Headers of a request were not obeyed.
    pub(crate) fn ignored_headers(&self, headers: IgnoredHeaders) {
        for series in headers.series() {
            self.add(Family::IgnoredHeaders, series);
        }
    }

    /// A header was not obeyed.
    pub(crate) fn ignored_header(&self, header: IgnoredHeader, because: IgnoredBecause) {
        let (header, because) = (header as usize, because as usize);
        self.add_pair(Family::IgnoredHeaders, header, Label::HeaderReason, because);
    }

    /// An attempt has ended.
    pub(crate) fn outcome(&self, upstream: usize, class: Class, cause: Cause) {
        self.add_pair(Family::Outcomes, upstream, Label::Class, labels::class(class));
        self.add_pair(Family::Causes, upstream, Label::Cause, labels::cause(cause));
    }

    /// The breaker of an endpoint for a route has changed; the endpoint is an index among those of
    /// the route's upstream.
    pub(crate) fn breaker_changed(&self, route: usize, endpoint: usize, to: BreakerState) {
        let known = self.shape.upstream_of(route);
        if known.is_some_and(|upstream| endpoint < upstream.endpoints.len()) {
            let place = route * self.shape.most_endpoints() + endpoint;
            let to = labels::breaker_state(to);
            self.add_pair(Family::BreakerTransitions, place, Label::BreakerTo, to);
        }
    }

    /// A call waited for a connection.
    pub(crate) fn pool_wait(&self, upstream: usize, waited: Duration) {
        self.observe(Family::PoolWait, upstream, waited);
    }

    /// A call waited for a place in the bulkhead.
    pub(crate) fn bulkhead_wait(&self, upstream: usize, waited: Duration) {
        self.observe(Family::BulkheadWait, upstream, waited);
    }

    /// A request was answered here without sending anything.
    pub(crate) fn refused(&self, route: Option<usize>, reason: Refusal) {
        self.add_pair(Family::Refused, self.route(route), Label::Refusal, reason as usize);
    }

    /// A request was answered with its route's fallback.
    pub(crate) fn degraded(&self, route: usize) {
        self.add(Family::Degraded, route);
    }

    /// A request spent `spent` in `stage`.
    pub(crate) fn stage(&self, route: Option<usize>, stage: Stage, spent: Duration) {
        let stages = const { Label::Stage.fixed().len() };
        let series = self.route(route) * stages + stage as usize;
        self.observe(Family::StageDuration, series, spent);
    }

    /// Keeps the totals of which the retry ratio is made. To be called about once a second, by
    /// the housekeeping task; a call that comes too early does nothing, and a scrape calls it too.
    pub(crate) fn tick(&self, now: Timestamp) {
        let is_due = self.window.lock().is_due(now);
        if is_due {
            self.settle();
        }
        let mut window = self.window.lock();
        if window.is_due(now) {
            let totals = (0..self.shape.upstreams.len()).map(|upstream| self.totals(upstream));
            window.keep(now, totals.collect());
        }
    }

    fn retry_ratio(&self, now: Timestamp, upstream: usize) -> f64 {
        self.window.lock().ratio(now, upstream, self.totals(upstream))
    }

    fn totals(&self, upstream: usize) -> Totals {
        let mut totals = Totals::default();
        for (index, route) in self.shape.routes.iter().enumerate() {
            if route.upstream == upstream {
                totals.first_attempts += self.count(Family::FirstAttempts, index);
                totals.retries += self.count(Family::Retries, index);
            }
        }
        totals
    }

    /// The series number of a route; the last is for requests without one.
    fn route(&self, route: Option<usize>) -> usize {
        route.unwrap_or(self.shape.routes.len())
    }

    fn add_pair(&self, family: Family, first: usize, label: Label, second: usize) {
        let values = label.fixed().len();
        if second < values {
            self.add(family, first * values + second);
        }
    }

    fn add(&self, family: Family, series: usize) {
        if let Some(cell) = self.cell(family, series) {
            self.cells.add(cell, 1);
        }
    }

    fn observe(&self, family: Family, series: usize, spent: Duration) {
        let block = self.blocks[family as usize];
        if series < block.series {
            let first = block.base + series * CELLS;
            let bucket = BOUNDS.partition_point(|bound| *bound < spent);
            self.cells.add(first + bucket, 1);
            let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            self.cells.add(first + BOUNDS.len() + 1, nanos);
        }
    }

    fn cell(&self, family: Family, series: usize) -> Option<usize> {
        let block = self.blocks[family as usize];
        (series < block.series).then_some(block.base + series)
    }

    fn series(&self, family: Family) -> usize {
        self.blocks[family as usize].series
    }

    fn count(&self, family: Family, series: usize) -> u64 {
        self.cells.sum(self.blocks[family as usize].base + series)
    }

    fn histogram(&self, family: Family, series: usize) -> Histogram {
        let first = self.blocks[family as usize].base + series * CELLS;
        Histogram {
            buckets: std::array::from_fn(|bucket| self.cells.sum(first + bucket)),
            sum: Duration::from_nanos(self.cells.sum(first + BOUNDS.len() + 1)),
        }
    }

    /// The values of a series' labels: its number, read as digits of mixed base. Nothing for a
    /// series that only fills the layout up.
    fn values(&self, row: &Row, series: usize) -> Option<Vec<&str>> {
        let mut left = series;
        let mut indices = vec![0; row.labels.len()];
        for (label, index) in row.labels.iter().zip(&mut indices).rev() {
            let count = label.count(&self.shape).max(1);
            *index = left % count;
            left /= count;
        }
        let route = indices.first().copied().unwrap_or(0);
        let of = |(label, index): (&Label, usize)| label.value(&self.shape, index, route);
        row.labels.iter().zip(indices).map(of).collect()
    }
}

/// Upper bounds of the histograms' buckets, each included.
/// Source: seawall-design. Differs: the client's usual 5 ms to 10 s ends before our timeouts do.
const BOUNDS: [Duration; 16] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(15),
    Duration::from_secs(30),
];
/// Counters of one histogram: its buckets, one above them, and the sum in nanoseconds.
const CELLS: usize = BOUNDS.len() + 2;

#[cfg(test)]
mod tests;
