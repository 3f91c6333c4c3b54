//! The running gateway: what is shared by all requests, built once from the configuration.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use seawall::{AuditEvent, Clock, HttpClassify, KillSwitch, Stack, ThreadRng};
use seawall_policy::{
    BreakerState, BulkheadOptions, ConfigError, ReturnPath, Rng, StackParams, Transition, Verdict,
};

use crate::access_log::AccessLog;
use crate::calendar::Calendar;
use crate::config::{self, GatewayConfig, HostHeader, Protocol};
use crate::diagnostics::{Diagnostics, Topic};
use crate::headers::Fields;
use crate::lines;
use crate::live::Live;
use crate::metrics::{Metrics, RouteLabels, Shape, UpstreamLabels};
use crate::route::{self, RouteTable};
use crate::tls::{TlsStore, UpstreamTls};
use crate::unmatched::Unmatched;
use crate::upload::{ReplayBytes, RequestBody};
use crate::upstream::{Place, Pool, PoolProtocol, PoolSettings, Resolver};

/// Shared by all requests.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) config: GatewayConfig,
    pub(crate) clock: Clock,
    pub(crate) calendar: Calendar,
    pub(crate) routes: RouteTable,
    pub(crate) fields: Fields,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: AccessLog,
    /// Requests that have yet to leave their line in it.
    pub(crate) live: Live,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) resolver: Resolver,
    /// Certificates and sessions of both sides.
    pub(crate) tls: Arc<TlsStore>,
    pub(crate) rules: HttpClassify,
    pub(crate) kill_switch: KillSwitch,
    /// What uploads hold for another attempt.
    pub(crate) replay: ReplayBytes,
    /// Errors that no rule matches.
    pub(crate) unmatched: Arc<Unmatched>,
    /// How late our answers leave, for the margin on stated deadlines.
    return_path: Mutex<ReturnPath>,
}

/// A protected service at work.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: config::Upstream,
    pub(crate) stack: Stack,
    pub(crate) pool: Pool<RequestBody>,
    pub(crate) endpoint_names: Vec<String>,
    /// Whom a request is for by the endpoint it goes to, if that decides.
    pub(crate) hosts: Option<Arc<[HeaderValue]>>,
    /// Index of the route of each lane.
    pub(crate) lanes: Vec<usize>,
}

impl Gateway {
    /// Builds everything that needs no socket. To be called on the runtime that will serve.
    pub(crate) fn new(
        config: GatewayConfig,
        access_log: AccessLog,
        diagnostics: Diagnostics,
        clock: Clock,
    ) -> Result<Arc<Self>, ConfigError> {
        let resolver = Resolver::new(LOOKUPS, RESOLVED_FOR, clock);
        let tls = TlsStore::load(&config, diagnostics.clone(), clock)?;
        let upstreams = config
            .upstreams
            .iter()
            .enumerate()
            .map(|(index, upstream)| {
                let shared = (&resolver, tls.upstream(index).cloned(), clock);
                Upstream::new(&config, index, upstream, shared)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let kill_switch = audited(diagnostics.clone());
        for upstream in &upstreams {
            kill_switch.attach(&upstream.stack)?;
        }
        let routes = RouteTable::new(config.routes.iter().map(|route| route::Key {
            host: route.host.as_deref(),
            path: &route.path,
            conditions: &route.conditions,
            rewrites: route.rewrite.is_some(),
        }));
        let shape = shape(&config, &upstreams);
        let unmatched = Unmatched::new(shape.upstreams.clone(), diagnostics.clone());
        Ok(Arc::new(Self {
            routes,
            fields: Fields::new(config.headers.clone(), &pseudonym(&mut ThreadRng))?,
            metrics: Arc::new(Metrics::new(shape)),
            upstreams,
            access_log,
            live: Live::default(),
            diagnostics,
            resolver,
            tls,
            rules: HttpClassify::new(),
            kill_switch,
            replay: ReplayBytes::default(),
            unmatched: Arc::new(unmatched),
            clock,
            calendar: Calendar::new(clock.now(), clock.unix_millis()),
            return_path: Mutex::new(ReturnPath::new()),
            config,
        }))
    }

    /// What is kept back of a stated deadline for our answer's way to the caller.
    pub(crate) fn margin(&self) -> Duration {
        self.return_path.lock().margin()
    }

    /// An answer that was due at a deadline left so much later.
    pub(crate) fn record_lateness(&self, lateness: Duration) {
        self.return_path.lock().record(lateness);
    }

    /// Every 100 ms: frees what is due, and counts and tells what the breakers did.
    pub(crate) fn housekeep(&self) {
        let now = self.clock.now();
        self.calendar.adjust(now, self.clock.unix_millis());
        self.metrics.tick(now);
        self.resolver.refresh(now);
        for upstream in &self.upstreams {
            upstream.stack.housekeep();
            upstream.collect_transitions(self);
        }
    }
}

impl Upstream {
    fn new(
        config: &GatewayConfig,
        index: usize,
        upstream: &config::Upstream,
        (resolver, tls, clock): (&Resolver, Option<Arc<UpstreamTls>>, Clock),
    ) -> Result<Self, ConfigError> {
        let lanes: Vec<_> = config
            .routes
            .iter()
            .enumerate()
            .filter(|(_, route)| route.upstream == index)
            .map(|(index, _)| index)
            .collect();
        let endpoints = upstream.endpoints.len();
        let params = StackParams::new(&upstream.stack_config())
            .map_err(|refused| refused.under(&format!("upstreams.{}", upstream.name)))?;
        let stack = Stack::with_topology(
            upstream.name.as_str(),
            params,
            clock,
            endpoints,
            lanes.len().max(1),
        );
        let places = upstream.endpoints.iter().map(place).collect();
        let settings = pool_settings(upstream);
        let hosts = upstream.endpoints.iter().filter_map(config::EndpointAddress::authority);
        Ok(Self {
            hosts: (upstream.host_header == HostHeader::Endpoint).then(|| hosts.collect()),
            endpoint_names: upstream.endpoints.iter().map(ToString::to_string).collect(),
            pool: Pool::with_tls(settings, places, tls, resolver.clone(), clock),
            config: upstream.clone(),
            stack,
            lanes,
        })
    }

    /// Whom a request asks for that names nobody.
    pub(crate) fn host_name(&self) -> &str {
        let tcp = |at: &&String| !at.starts_with("unix:");
        self.endpoint_names.first().filter(tcp).map_or("localhost", String::as_str)
    }

    /// Whether an attempt whose caller left runs on.
    pub(crate) fn finishes_abandoned(&self) -> bool {
        match (self.config.on_abandon, self.config.protocol) {
            (Some(config::OnAbandon::Finish), _) | (None, Protocol::Http1) => true,
            (Some(config::OnAbandon::Cancel), _) | (None, Protocol::H2c) => false,
        }
    }

    fn collect_transitions(&self, gateway: &Gateway) {
        while let Some(logged) = self.stack.with(|dependency, _, _| dependency.pop_transition()) {
            let to = logged.transition.to;
            if let Some(route) = self.lanes.get(logged.lane) {
                gateway.metrics.breaker_changed(*route, logged.endpoint, to);
            }
            let route = self.lanes.get(logged.lane).and_then(|at| gateway.config.routes.get(*at));
            let whose: [(&str, &(dyn Display + Sync)); 3] = [
                ("upstream", &self.config.name),
                ("endpoint", &self.endpoint_names[logged.endpoint]),
                ("route", &route.map_or("", |route| route.name.as_str())),
            ];
            tell_moved(&gateway.diagnostics, &whose, logged.transition);
        }
        while let Some(logged) = self.stack.with(|dependency, _, _| dependency.pop_verdict()) {
            let Some(endpoint) = self.endpoint_names.get(logged.endpoint) else { continue };
            let whose: [(&str, &(dyn Display + Sync)); 2] =
                [("upstream", &self.config.name), ("endpoint", endpoint)];
            tell_verdict(&gateway.diagnostics, &whose, logged.verdict);
        }
    }
}

/// Somebody should look at a breaker that opens; the rest is news.
fn tell_moved(
    diagnostics: &Diagnostics,
    whose: &[(&str, &(dyn Display + Sync))],
    moved: Transition,
) {
    let (from, to, trigger) = (moved.from.as_str(), moved.to.as_str(), moved.trigger.as_str());
    let how: [(&str, &(dyn Display + Sync)); 3] =
        [("from", &from), ("to", &to), ("trigger", &trigger)];
    let pairs: Vec<_> = whose.iter().chain(&how).copied().collect();
    if moved.to == BreakerState::Open {
        diagnostics.warn(Topic::Breaker, "breaker moved", &pairs);
    } else {
        diagnostics.info(Topic::Breaker, "breaker moved", &pairs);
    }
}

/// Somebody should look at an endpoint that is worse than the others.
fn tell_verdict(
    diagnostics: &Diagnostics,
    whose: &[(&str, &(dyn Display + Sync))],
    verdict: Verdict,
) {
    match verdict {
        Verdict::Returned => diagnostics.info(Topic::Endpoint, "endpoint is back", whose),
        Verdict::Ejected(reason, time) => {
            let (reason, time) = (reason.as_str(), format!("{} ms", millis(time)));
            let why: [(&str, &(dyn Display + Sync)); 2] = [("reason", &reason), ("for", &time)];
            let pairs: Vec<_> = whose.iter().chain(&why).copied().collect();
            diagnostics.warn(Topic::Endpoint, "endpoint ejected", &pairs);
        }
    }
}

/// A kill switch whose record goes to the diagnostics.
fn audited(diagnostics: Diagnostics) -> KillSwitch {
    KillSwitch::new(move |line| {
        let until = line.until_unix_ms().map_or(String::new(), |until| {
            let mut text = Vec::new();
            lines::utc(&mut text, until);
            String::from_utf8_lossy(&text).into_owned()
        });
        let message = match line.event {
            AuditEvent::Off { .. } => "retries switched off",
            AuditEvent::On => "retries switched on",
            AuditEvent::Expired => "retries on again: their time off is over",
            AuditEvent::Refused { allowed } => {
                let pairs: [(&str, &(dyn Display + Sync)); 3] =
                    [("by", &line.who), ("said", &line.reason), ("allowed", &allowed)];
                diagnostics.warn(Topic::Retries, "kill switch not understood", &pairs);
                return;
            }
        };
        let mut pairs: Vec<(&str, &(dyn Display + Sync))> = vec![("upstream", &line.scope)];
        let texts = [("until", &until), ("by", &line.who), ("reason", &line.reason)];
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            pairs.push((key, text));
        }
        diagnostics.warn(Topic::Retries, message, &pairs);
    })
}

fn place(endpoint: &config::EndpointAddress) -> Place {
    match endpoint {
        config::EndpointAddress::Tcp { host, port, .. } => {
            Place::Tcp { host: host.clone(), port: *port }
        }
        config::EndpointAddress::Unix(path) => Place::Unix(path.clone()),
    }
}

fn pool_settings(upstream: &config::Upstream) -> PoolSettings {
    let protocol = match upstream.protocol {
        Protocol::Http1 => PoolProtocol::Http1,
        Protocol::H2c => PoolProtocol::H2c,
    };
    let BulkheadOptions { limit, .. } = upstream.bulkhead;
    let settings = PoolSettings::new(protocol, upstream.max_connections);
    PoolSettings {
        connect_timeout: upstream.timeouts.connect,
        max_waiting: limit as usize,
        settle: settings.settle.min(upstream.timeouts.idle),
        ..settings
    }
}

fn shape(config: &GatewayConfig, upstreams: &[Upstream]) -> Shape {
    let labels = |upstream: &Upstream| UpstreamLabels {
        upstream: upstream.config.name.clone(),
        endpoints: upstream.endpoint_names.clone(),
    };
    let route =
        |route: &config::Route| RouteLabels { route: route.name.clone(), upstream: route.upstream };
    Shape {
        routes: config.routes.iter().map(route).collect(),
        upstreams: upstreams.iter().map(labels).collect(),
        listeners: config.listeners.iter().map(|at| at.address.to_string()).collect(),
    }
}

/// Our name in `Via`, of this instance alone: several in a row are no circle.
fn pseudonym(rng: &mut impl Rng) -> String {
    format!("seawall-{:08x}", rng.next_u64() >> 32)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Lookups at once. Source: seawall-design.
const LOOKUPS: usize = 8;
/// How long a good answer is used without asking again. Source: seawall-design.
const RESOLVED_FOR: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall::{Change, Scope, StackConfig};

    use super::*;
    use crate::lines::tests::Page;

    #[tokio::test]
    async fn a_breaker_that_opens_is_a_warning_and_one_that_closes_is_news() {
        use seawall_policy::{BreakerState::*, Trigger};
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
        for (from, to) in [(Closed, Open), (HalfOpen, Open), (Open, HalfOpen), (HalfOpen, Closed)] {
            let moved = Transition { from, to, trigger: Trigger::FailureRatio };
            tell_moved(&diagnostics, &[("upstream", &"orders")], moved);
        }
        assert!(diagnostics.close().await);
        let text = page.text();
        let levels = ["WARN", "WARN", "INFO", "INFO"];
        assert_eq!(text.lines().count(), levels.len(), "{text}");
        for (line, level) in text.lines().zip(levels) {
            assert!(
                line.contains(&format!(" {level} breaker moved upstream=orders from=")),
                "{line}"
            );
        }
    }

    #[tokio::test]
    async fn a_line_about_a_switch_holds_no_empty_pairs() {
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
        let switch = audited(diagnostics.clone());
        let stack = Stack::new("orders", &StackConfig::http()).unwrap();
        switch.attach(&stack).unwrap();
        let off = Change::Off { ttl: Duration::from_secs(60) };
        switch.set(Scope::Named("orders".to_owned()), off, "127.0.0.1:5", "storm").unwrap();
        switch.set(Scope::All, Change::On, "127.0.0.1:5", "").unwrap();
        assert!(diagnostics.close().await);
        let text = page.text();
        let [off, on] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {text}") };
        assert!(off.contains(" WARN retries switched off upstream=orders until=20"), "{off}");
        assert!(off.ends_with("Z by=127.0.0.1:5 reason=storm"), "{off}");
        assert!(on.ends_with(" WARN retries switched on upstream=all by=127.0.0.1:5"), "{on}");
    }
}
