//! Writes every family of the table, in its order, into an exposition.

mod health;
mod hedges;
mod listeners;
mod refreshes;
mod standings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use seawall::Clock;
use seawall_policy::Timestamp;

use super::family::{Family, Kind, Origin, Row};
use super::labels::POOL_STATES;
use super::process::Process;
use super::snapshot::{ListenerView, PoolView, UpstreamSnapshot};
use super::table::TABLE;
use super::window::real;
use super::{BOUNDS, Metrics, Snapshot, Source, secured};
use crate::reload::Reloaded;

/// The text a scrape gets.
#[derive(Debug)]
pub(crate) struct Exposition {
    registry: Registry,
}

/// A format of that text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Prometheus,
}

impl Format {
    /// The content type to answer with.
    #[must_use]
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The counters of the configuration in force, and who keeps the rest of its state.
pub(crate) type Present = (Arc<Metrics>, Arc<dyn Source>);

/// What the collector reads.
struct Exposed {
    present: Box<dyn Fn() -> Present + Send + Sync>,
    clock: Clock,
    started_seconds: f64,
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exposed").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Exposition {
    /// Shows `metrics`, and what `source` keeps. The moment of this call is shown as the start.
    #[cfg(test)]
    pub(crate) fn new(metrics: Arc<Metrics>, source: Arc<dyn Source>, clock: Clock) -> Self {
        Self::of(move || (Arc::clone(&metrics), Arc::clone(&source)), clock)
    }

    /// Shows what `present` gives at each scrape. The moment of this call is shown as the start.
    #[must_use]
    pub(crate) fn of(present: impl Fn() -> Present + Send + Sync + 'static, clock: Clock) -> Self {
        let present = Box::new(present);
        let started_seconds = Duration::from_millis(clock.unix_millis()).as_secs_f64();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Exposed { present, clock, started_seconds }));
        Self { registry }
    }

    /// The text of one scrape. Reads three small files of the system; not for the request path.
    #[must_use]
    pub(crate) fn render(&self, format: Format) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = match format {
            Format::OpenMetrics => {
                prometheus_client::encoding::text::encode(&mut text, &self.registry)
            }
            Format::Prometheus => {
                prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)
            }
        };
        text
    }
}

/// Values of a family's labels, in the table's order.
pub(super) type Values<'a> = Vec<&'a str>;

/// A number of the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

impl From<bool> for Number {
    fn from(on: bool) -> Self {
        Self::Whole(u64::from(on))
    }
}

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.clock.now();
        let (metrics, source) = (self.present)();
        metrics.tick(now);
        metrics.settle();
        let mut snapshot = Snapshot {
            listeners: vec![ListenerView::default(); metrics.shape.listeners.len()],
            upstreams: vec![UpstreamSnapshot::default(); metrics.shape.upstreams.len()],
            ..Snapshot::default()
        };
        source.collect(&mut snapshot);
        let (snapshot, metrics) = (&snapshot, &*metrics);
        let scrape = Scrape { exposed: self, metrics, snapshot, process: Process::read(), now };
        TABLE.iter().try_for_each(|row| scrape.family(row, &mut encoder))
    }
}

/// One scrape.
pub(super) struct Scrape<'a> {
    exposed: &'a Exposed,
    metrics: &'a Metrics,
    pub(super) snapshot: &'a Snapshot,
    process: Process,
    now: Timestamp,
}

impl<'a> Scrape<'a> {
    fn family(&self, row: &Row, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let unit = row.unit.map(|unit| match unit {
            "seconds" => Unit::Seconds,
            "bytes" => Unit::Bytes,
            other => Unit::Other(other.to_owned()),
        });
        let kind = match row.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let help = format!("{}.", row.help);
        let mut family = encoder.encode_descriptor(row.stem, &help, unit.as_ref(), kind)?;
        match row.origin {
            Origin::Own => self.own(row, &mut family),
            Origin::Given => self
                .given(row.family)
                .into_iter()
                .try_for_each(|(values, number)| sample(row, &values, number, &mut family)),
        }
    }

    /// A family of our own counters: every combination of its labels' values.
    fn own(&self, row: &Row, family: &mut MetricEncoder<'_>) -> fmt::Result {
        let metrics = self.metrics;
        for series in 0..metrics.series(row.family) {
            let Some(values) = metrics.values(row, series) else { continue };
            match row.kind {
                Kind::Histogram => {
                    let histogram = metrics.histogram(row.family, series);
                    let buckets: Vec<_> = BOUNDS
                        .iter()
                        .map(|bound| bound.as_secs_f64())
                        .chain([f64::INFINITY])
                        .zip(histogram.buckets)
                        .collect();
                    let labels = pairs(row, &values);
                    family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                        histogram.sum.as_secs_f64(),
                        histogram.buckets.iter().sum(),
                        &buckets,
                        None,
                    )?;
                }
                Kind::Counter | Kind::Gauge | Kind::Info => {
                    let count = metrics.count(row.family, series);
                    // Eighteen a route, most of which speak no gRPC.
                    if count == 0 && row.family == Family::GrpcResponses {
                        continue;
                    }
                    let count = Number::Whole(count);
                    sample(row, &values, count, family)?;
                }
            }
        }
        Ok(())
    }

    /// A family that others keep, or that is made of what they keep.
    fn given(&self, family: Family) -> Vec<(Values<'a>, Number)> {
        let snapshot = self.snapshot;
        match family {
            Family::BreakerState => self.breakers(),
            Family::EndpointStanding => self.standings(),
            Family::Ejections | Family::EjectedRatio => self.ejections(family),
            Family::HedgesRefused => self.hedges_refused(),
            Family::CredentialRefreshes => self.refreshes(),
            Family::PoolConnections => self.pool_connections(),
            Family::UnmatchedErrors => self.named(|upstream| &upstream.unmatched),
            Family::EndpointHealthy => self.healthy(),
            Family::HealthChecks => self.health_checks(),
            Family::RulesMet => self.named(|upstream| &upstream.rules_met),
            Family::AccessLogDropped => one(Number::Whole(snapshot.access_log_dropped)),
            Family::DownstreamClosed => self.closed(),
            Family::DownstreamRefused => self.refused(),
            Family::ListenBacklog => self.backlogs(),
            Family::ListenOverflows => known(snapshot.listen_overflows.map(|[full, _]| full)),
            Family::ListenDrops => known(snapshot.listen_overflows.map(|[_, lost]| lost)),
            Family::TlsHandshakes
            | Family::TlsHandshakesInProgress
            | Family::TlsCertificateEnd
            | Family::TlsReloads
            | Family::TlsReloadFailing
            | Family::UpstreamTlsHandshakes
            | Family::DnsLookups
            | Family::DnsStale => secured::values(self, family),
            Family::DownstreamConnections
            | Family::DownstreamOpened
            | Family::DownstreamAnswered
            | Family::AddressesEvicted
            | Family::AcceptErrors => self.per_listener(family),
            Family::Draining => one(snapshot.draining.into()),
            Family::SwitchesActive => super::labels::SWITCHES
                .into_iter()
                .zip(snapshot.switches)
                .map(|(kind, count)| (vec![kind], Number::Whole(count)))
                .collect(),
            Family::AdminUnauthorized => one(Number::Whole(snapshot.admin_unauthorized)),
            Family::ConfigReloads => Reloaded::LABELS
                .into_iter()
                .zip(snapshot.config.reloads)
                .map(|(result, count)| (vec![result], Number::Whole(count)))
                .collect(),
            Family::ConfigLastReload => one(snapshot.config.last_reload_successful.into()),
            Family::ConfigSince => {
                let since = Duration::from_millis(snapshot.config.in_force_since_unix_ms);
                one(Number::Real(since.as_secs_f64()))
            }
            Family::ConfigInfo => vec![(vec![snapshot.config.hash.as_str()], Number::Whole(1))],
            Family::Build => vec![(vec![env!("CARGO_PKG_VERSION")], Number::Whole(1))],
            Family::ProcessOpenFiles => known(self.process.open_files),
            Family::ProcessMaxFiles => known(self.process.max_files),
            Family::ProcessResidentMemory => known(self.process.resident_bytes),
            Family::ProcessStart => one(Number::Real(self.exposed.started_seconds)),
            _ => self.per_upstream(family),
        }
    }

    fn per_upstream(&self, family: Family) -> Vec<(Values<'a>, Number)> {
        let each = |(index, upstream): (usize, &UpstreamSnapshot)| {
            let number = match family {
                Family::RetryRatio => Number::Real(self.metrics.retry_ratio(self.now, index)),
                Family::BudgetBalance => Number::Real(real(upstream.budget_millitokens?) / 1e3),
                Family::BudgetExhausted => Number::Whole(upstream.budget_exhausted),
                Family::RateAvailable => Number::Whole(upstream.rate_available?.into()),
                Family::RateKeysEvicted => Number::Whole(upstream.rate_keys_evicted?),
                Family::HedgesWon => Number::Whole(upstream.hedges?.0),
                Family::RetriesOff => upstream.retries_off.into(),
                Family::PoolWaiting => Number::Whole(upstream.pool.waiting),
                Family::PoolConnects => Number::Whole(upstream.pool.connects),
                Family::PoolConnectErrors => Number::Whole(upstream.pool.connect_errors),
                Family::PoolReused => Number::Whole(upstream.pool.reused),
                Family::BulkheadInFlight => Number::Whole(upstream.bulkhead.in_flight),
                Family::BulkheadLimit => Number::Whole(upstream.bulkhead.limit),
                Family::BulkheadWaiting => Number::Whole(upstream.bulkhead.waiting),
                Family::Abandoned => Number::Whole(upstream.bulkhead.abandoned_total),
                Family::AbandonedInFlight => Number::Whole(upstream.bulkhead.abandoned),
                Family::StreamsInFlight => Number::Whole(upstream.bulkhead.streams),
                _ => return None,
            };
            Some((vec![self.upstream(index)?], number))
        };
        self.snapshot.upstreams.iter().enumerate().filter_map(each).collect()
    }

    fn pool_connections(&self) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        for (index, upstream) in self.snapshot.upstreams.iter().enumerate() {
            let Some(name) = self.upstream(index) else { continue };
            let PoolView { idle, busy, connecting, .. } = upstream.pool;
            for (state, count) in POOL_STATES.iter().zip([idle, busy, connecting]) {
                samples.push((vec![name, *state], Number::Whole(count)));
            }
        }
        samples
    }

    /// Counts that each upstream keeps under names.
    fn named(
        &self,
        of: impl Fn(&'a UpstreamSnapshot) -> &'a [(String, u64)],
    ) -> Vec<(Values<'a>, Number)> {
        let mut samples = Vec::new();
        for (index, upstream) in self.snapshot.upstreams.iter().enumerate() {
            let Some(name) = self.upstream(index) else { continue };
            let counts = of(upstream).iter();
            samples.extend(
                counts.map(|(which, count)| (vec![name, which.as_str()], Number::Whole(*count))),
            );
        }
        samples
    }

    pub(super) fn upstream(&self, index: usize) -> Option<&'a str> {
        self.metrics.shape.upstreams.get(index).map(|known| known.upstream.as_str())
    }
}

pub(super) fn one(number: Number) -> Vec<(Values<'static>, Number)> {
    vec![(Vec::new(), number)]
}

pub(super) fn known(number: Option<u64>) -> Vec<(Values<'static>, Number)> {
    number.map(|number| (Vec::new(), Number::Whole(number))).into_iter().collect()
}

fn pairs<'a>(row: &Row, values: &Values<'a>) -> Vec<(&'static str, &'a str)> {
    row.labels.iter().map(|label| label.name()).zip(values.iter().copied()).collect()
}

fn sample(
    row: &Row,
    values: &Values<'_>,
    number: Number,
    family: &mut MetricEncoder<'_>,
) -> fmt::Result {
    let labels = pairs(row, values);
    if row.kind == Kind::Info {
        return family.encode_info(&labels);
    }
    if labels.is_empty() {
        return value(row.kind, number, family);
    }
    value(row.kind, number, &mut family.encode_family(&labels)?)
}

fn value(kind: Kind, number: Number, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match (kind, number) {
        (Kind::Counter, Number::Whole(count)) => {
            encoder.encode_counter::<NoLabelSet, u64, f64>(&count, None)
        }
        (Kind::Counter, Number::Real(count)) => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(&count, None)
        }
        (_, Number::Whole(level)) => encoder.encode_gauge(&level),
        (_, Number::Real(level)) => encoder.encode_gauge(&level),
    }
}
