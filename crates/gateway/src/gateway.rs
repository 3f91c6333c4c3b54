//! The running gateway: what is shared by all requests that began under one configuration.

mod succession;
mod told;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use seawall::{Clock, HttpClassify, KillSwitch, Stack, ThreadRng};
use seawall_policy::{BulkheadOptions, ConfigError, ReturnPath, Rng};

use crate::access_log::AccessLog;
use crate::calendar::Calendar;
use crate::config::{self, GatewayConfig, Protocol};
use crate::credentials::Proof;
use crate::diagnostics::Diagnostics;
use crate::headers::Fields;
use crate::health::Health;
use crate::live::Live;
use crate::metrics::{Metrics, RouteLabels, Shape, UpstreamLabels};
use crate::route::RouteTable;
use crate::switches::Switches;
use crate::tls::TlsStore;
use crate::unmatched::Unmatched;
use crate::upload::{ReplayBytes, RequestBody};
use crate::upstream::{Place, Pool, PoolProtocol, PoolSettings, Resolver};

use succession::Prepared;
use told::{audited, tell_moved, tell_verdict};

/// Shared by all requests.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) config: GatewayConfig,
    pub(crate) clock: Clock,
    pub(crate) calendar: Arc<Calendar>,
    pub(crate) routes: RouteTable,
    pub(crate) fields: Fields,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access_log: AccessLog,
    /// Requests that have yet to leave their line in it.
    pub(crate) live: Arc<Live>,
    pub(crate) diagnostics: Diagnostics,
    pub(crate) resolver: Resolver,
    /// Certificates and sessions of both sides.
    pub(crate) tls: Arc<TlsStore>,
    pub(crate) kill_switch: KillSwitch,
    /// Breakers that are forced.
    pub(crate) switches: Arc<Switches>,
    /// What uploads hold for another attempt.
    pub(crate) replay: ReplayBytes,
    /// Errors that no rule matches.
    pub(crate) unmatched: Arc<Unmatched>,
    /// How late our answers leave, for the margin on stated deadlines.
    return_path: Arc<Mutex<ReturnPath>>,
    /// Of each route, the number of its lane.
    lanes: Vec<usize>,
    /// Of each listener, its number.
    pub(crate) listeners: Vec<usize>,
    /// Every listener there was, by number.
    listener_names: Vec<String>,
    /// Our name in `Via`, for the life of the process.
    pseudonym: String,
}

/// A protected service at work.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: config::Upstream,
    pub(crate) stack: Stack,
    pub(crate) pool: Pool<RequestBody>,
    /// What its requests prove themselves with.
    pub(crate) proof: Option<Proof>,
    /// In the order of the configuration.
    pub(crate) endpoints: Vec<Offered>,
    /// Every endpoint by number, whether it is offered or not; the same under all configurations.
    places: Places,
    /// Whom a request is for by the endpoint it goes to, if that decides.
    pub(crate) hosts: Option<Places>,
    /// Whether its endpoints are well, if they are asked.
    pub(crate) health: Option<Arc<Health>>,
    /// What answers mean.
    pub(crate) rules: HttpClassify,
    /// How often each rule on answers decided.
    pub(crate) rules_met: Arc<[AtomicU64]>,
    /// The lane of each of its routes.
    pub(crate) lanes: Vec<Lane>,
    /// Every lane there was, by number.
    lane_names: Vec<String>,
}

/// The endpoints that there were, by number.
pub(crate) type Places = Arc<ArcSwap<Vec<Known>>>;

/// An endpoint that a number stands for, or stood for last.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// `host:port`.
    pub(crate) name: Arc<str>,
    /// Whom a request to it is for.
    pub(crate) host: Option<HeaderValue>,
}

/// An endpoint that calls may go to.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    /// Its number in the stack and the pool, for as long as it lives.
    pub(crate) number: usize,
    /// `host:port`.
    pub(crate) name: Arc<str>,
}

/// The lane of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// Its number in the stack.
    pub(crate) number: usize,
    /// The route, by index.
    pub(crate) route: usize,
}

impl Gateway {
    /// Builds everything that needs no socket. To be called on the runtime that will serve.
    pub(crate) fn new(
        config: GatewayConfig,
        access_log: AccessLog,
        diagnostics: Diagnostics,
        clock: Clock,
    ) -> Result<Arc<Self>, ConfigError> {
        let pseudonym = pseudonym(&mut ThreadRng);
        let Prepared { config, params, fields, routes } = Prepared::new(config, &pseudonym)?;
        let resolver = Resolver::new(LOOKUPS, RESOLVED_FOR, clock);
        let tls = TlsStore::load(&config, diagnostics.clone(), clock)?;
        let upstreams: Vec<_> = params
            .into_iter()
            .enumerate()
            .map(|(index, params)| {
                let shared = (&resolver, tls.upstream(index).cloned(), clock);
                Upstream::new(&config, index, params, shared, &diagnostics)
            })
            .collect();
        let kill_switch = audited(diagnostics.clone());
        for upstream in &upstreams {
            kill_switch.attach(&upstream.stack)?;
        }
        let mut listener_names = Vec::new();
        let addresses: Vec<_> = config.listeners.iter().map(|at| at.address.to_string()).collect();
        let listeners = succession::numbers(&mut listener_names, &addresses);
        let shape = shape(&config, &upstreams, &listener_names, &listeners);
        let unmatched = Unmatched::new(shape.upstreams.clone(), diagnostics.clone());
        Ok(Arc::new(Self {
            routes,
            fields,
            metrics: Arc::new(Metrics::new(shape)),
            lanes: lanes(&config, &upstreams),
            upstreams,
            listeners,
            listener_names,
            access_log,
            live: Arc::default(),
            diagnostics,
            resolver,
            tls,
            kill_switch,
            switches: Arc::default(),
            replay: ReplayBytes::default(),
            unmatched: Arc::new(unmatched),
            clock,
            calendar: Arc::new(Calendar::new(clock.now(), clock.unix_millis())),
            return_path: Arc::new(Mutex::new(ReturnPath::new())),
            pseudonym,
            config,
        }))
    }

    /// The lane of a route in its upstream's stack.
    pub(crate) fn lane(&self, route: usize) -> usize {
        self.lanes.get(route).copied().unwrap_or_default()
    }

    /// The listener of that number, if this configuration has it.
    pub(crate) fn listener(&self, number: usize) -> Option<&config::Listener> {
        let index = self.listeners.iter().position(|known| *known == number)?;
        self.config.listeners.get(index)
    }

    /// What is kept back of a stated deadline for our answer's way to the caller.
    pub(crate) fn margin(&self) -> Duration {
        self.return_path.lock().margin()
    }

    /// An answer that was due at a deadline left so much later.
    pub(crate) fn record_lateness(&self, lateness: Duration) {
        self.return_path.lock().record(lateness);
    }

    /// Begins to ask endpoints whether they are well, where that is configured.
    pub(crate) fn begin_checks(&self) {
        for health in self.upstreams.iter().filter_map(|upstream| upstream.health.as_ref()) {
            health.begin(&self.diagnostics);
        }
    }

    /// Ends that.
    pub(crate) fn end_checks(&self) {
        for health in self.upstreams.iter().filter_map(|upstream| upstream.health.as_ref()) {
            health.end();
        }
    }

    /// Every 100 ms: frees what is due, and counts and tells what the breakers did.
    pub(crate) fn housekeep(&self) {
        let now = self.clock.now();
        self.calendar.adjust(now, self.clock.unix_millis());
        self.metrics.tick(now);
        self.resolver.refresh(now);
        self.switches.expire(now, &self.diagnostics);
        for upstream in &self.upstreams {
            upstream.stack.housekeep();
            upstream.collect_transitions(self);
        }
    }
}

impl Upstream {
    /// Whom a request asks for that names nobody.
    pub(crate) fn host_name(&self) -> &str {
        let tcp = |at: &&Offered| !at.name.starts_with("unix:");
        self.endpoints.first().filter(tcp).map_or("localhost", |at| &at.name)
    }

    /// Whether an attempt whose caller left runs on.
    pub(crate) fn finishes_abandoned(&self) -> bool {
        match (self.config.on_abandon, self.config.protocol) {
            (Some(config::OnAbandon::Finish), _) | (None, Protocol::Http1) => true,
            (Some(config::OnAbandon::Cancel), _) | (None, Protocol::H2c) => false,
        }
    }

    /// What the endpoint of that number is called, whether it is offered now or not.
    pub(crate) fn endpoint_name(&self, number: usize) -> Option<Arc<str>> {
        self.places.load().get(number).map(|place| Arc::clone(&place.name))
    }

    fn collect_transitions(&self, gateway: &Gateway) {
        while let Some(logged) = self.stack.with(|dependency, _, _| dependency.pop_transition()) {
            let to = logged.transition.to;
            let lane = self.lanes.iter().find(|lane| lane.number == logged.lane);
            if let Some(lane) = lane {
                gateway.metrics.breaker_changed(lane.route, logged.endpoint, to);
            }
            let route = lane.and_then(|lane| gateway.config.routes.get(lane.route));
            let endpoint = self.endpoint_name(logged.endpoint).unwrap_or_default();
            let whose: [(&str, &(dyn Display + Sync)); 3] = [
                ("upstream", &self.config.name),
                ("endpoint", &endpoint),
                ("route", &route.map_or("", |route| route.name.as_str())),
            ];
            tell_moved(&gateway.diagnostics, &whose, logged.transition);
        }
        while let Some(logged) = self.stack.with(|dependency, _, _| dependency.pop_verdict()) {
            let Some(endpoint) = self.endpoint_name(logged.endpoint) else { continue };
            let whose: [(&str, &(dyn Display + Sync)); 2] =
                [("upstream", &self.config.name), ("endpoint", &endpoint)];
            tell_verdict(&gateway.diagnostics, &whose, logged.verdict);
        }
    }
}

pub(crate) fn place(endpoint: &config::EndpointAddress) -> Place {
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

/// Of each route, the number of its lane.
fn lanes(config: &GatewayConfig, upstreams: &[Upstream]) -> Vec<usize> {
    let mut lanes = vec![0; config.routes.len()];
    for lane in upstreams.iter().flat_map(|upstream| &upstream.lanes) {
        lanes[lane.route] = lane.number;
    }
    lanes
}

fn shape(
    config: &GatewayConfig,
    upstreams: &[Upstream],
    listener_names: &[String],
    listeners: &[usize],
) -> Shape {
    let labels = |upstream: &Upstream| {
        let places = upstream.endpoints.iter().map(|endpoint| endpoint.number + 1).max();
        let mut endpoints = vec![String::new(); places.unwrap_or(0)];
        for endpoint in &upstream.endpoints {
            endpoints[endpoint.number] = endpoint.name.to_string();
        }
        UpstreamLabels { upstream: upstream.config.name.clone(), endpoints }
    };
    let route =
        |route: &config::Route| RouteLabels { route: route.name.clone(), upstream: route.upstream };
    let listener = |(number, name): (usize, &String)| match listeners.contains(&number) {
        true => name.clone(),
        false => String::new(),
    };
    Shape {
        routes: config.routes.iter().map(route).collect(),
        upstreams: upstreams.iter().map(labels).collect(),
        listeners: listener_names.iter().enumerate().map(listener).collect(),
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
        use seawall_policy::{BreakerState::*, Transition, Trigger};
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
