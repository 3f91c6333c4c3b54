//! The gateway of a new configuration takes over what the one before it knows, by name.
//!
//! Everything that can fail is done first, and changes nothing. Then, upstream by upstream and in
//! one step each, parameters, endpoints and lanes change, and all state stays: an upstream is known
//! by its name, an endpoint by its address, a lane by its route's name. A request sees one
//! configuration from its head to its end; those that began before go on under the old one, with
//! the new parameters of its upstream. An upstream that speaks another protocol now, or with other
//! options of TLS, is another upstream: the calls to the old one end where they began.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use seawall::{Clock, HttpClassify, Stack};
use seawall_policy::{ConfigError, DoorParams, SpreadParams, StackParams};

use super::{Gateway, Known, Lane, Offered, Places, Upstream, place, pool_settings, shape};
use crate::access_log::AccessLog;
use crate::config::{self, GatewayConfig, HostHeader};
use crate::credentials::Proof;
use crate::diagnostics::Diagnostics;
use crate::headers::Fields;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::route::{self, RouteTable};
use crate::tls::{TlsStore, UpstreamTls};
use crate::upstream::{Pool, Resolver};

/// A configuration in which nothing can fail any more.
pub(crate) struct Prepared {
    pub(super) config: GatewayConfig,
    pub(super) params: Vec<StackParams>,
    pub(super) fields: Fields,
    pub(super) routes: RouteTable,
}

impl Prepared {
    /// # Errors
    /// What the policies refuse.
    pub(super) fn new(config: GatewayConfig, pseudonym: &str) -> Result<Self, ConfigError> {
        let params = config.upstreams.iter().map(|upstream| {
            StackParams::new(&upstream.stack_config())
                .map_err(|refused| refused.under(&format!("upstreams.{}", upstream.name)))
        });
        let params = params.collect::<Result<_, _>>()?;
        for (index, listener) in config.listeners.iter().enumerate() {
            let under = |refused: ConfigError| refused.under(&format!("listeners[{index}]"));
            DoorParams::new(listener.door).map_err(under)?;
            SpreadParams::new(listener.slow_readers.close_rate).map_err(under)?;
        }
        let routes = RouteTable::new(config.routes.iter().map(|route| route::Key {
            host: route.host.as_deref(),
            path: &route.path,
            conditions: &route.conditions,
            rewrites: route.rewrite.is_some(),
        }));
        let fields = Fields::new(config.headers.clone(), pseudonym)?;
        Ok(Self { config, params, fields, routes })
    }
}

impl Gateway {
    /// Takes a new configuration over, and gives the gateway that it makes of this one. `tls` is
    /// what [`TlsStore::succeed`] made of the configuration: that reads files, this does not.
    ///
    /// # Errors
    /// What the policies refuse; nothing has changed then.
    pub(crate) fn succeed(
        &self,
        config: GatewayConfig,
        tls: Arc<TlsStore>,
        access_log: AccessLog,
    ) -> Result<Arc<Self>, ConfigError> {
        let Prepared { config, params, fields, routes } = Prepared::new(config, &self.pseudonym)?;
        let mut listener_names = self.listener_names.clone();
        let addresses: Vec<_> = config.listeners.iter().map(|at| at.address.to_string()).collect();
        let listeners = numbers(&mut listener_names, &addresses);
        // What is new first: it may be refused.
        let shared = |index| (&self.resolver, tls.upstream(index).cloned(), self.clock);
        let mut fresh = HashMap::new();
        for (index, (upstream, params)) in config.upstreams.iter().zip(&params).enumerate() {
            if self.predecessor(upstream).is_none() {
                let made =
                    Upstream::new(&config, index, params.clone(), shared(index), &self.diagnostics);
                self.kill_switch.attach(&made.stack)?;
                fresh.insert(index, made);
            }
        }
        let mut upstreams = Vec::with_capacity(config.upstreams.len());
        for (index, params) in params.into_iter().enumerate() {
            let made = match fresh.remove(&index) {
                Some(made) => made,
                None => match self.predecessor(&config.upstreams[index]) {
                    Some(old) => {
                        // What its breakers did is told under the names of then.
                        old.collect_transitions(self);
                        old.succeed(&config, index, params, shared(index), &self.diagnostics)
                    }
                    None => Upstream::new(&config, index, params, shared(index), &self.diagnostics),
                },
            };
            upstreams.push(made);
        }
        self.switches.apply(&upstreams);
        // Those that go on ended when they were handed over; these ask what is asked no more.
        self.end_checks();
        let shape = shape(&config, &upstreams, &listener_names, &listeners);
        let unmatched = self.unmatched.succeed(shape.upstreams.clone());
        Ok(Arc::new(Self {
            lanes: super::lanes(&config, &upstreams),
            metrics: Metrics::succeed(&self.metrics, shape),
            unmatched: Arc::new(unmatched),
            config,
            routes,
            fields,
            upstreams,
            listeners,
            listener_names,
            pseudonym: self.pseudonym.clone(),
            clock: self.clock,
            calendar: Arc::clone(&self.calendar),
            access_log,
            live: Arc::clone(&self.live),
            diagnostics: self.diagnostics.clone(),
            resolver: self.resolver.clone(),
            tls,
            kill_switch: self.kill_switch.clone(),
            switches: Arc::clone(&self.switches),
            replay: self.replay.clone(),
            return_path: Arc::clone(&self.return_path),
        }))
    }

    /// The numbers that the listeners of a configuration will have.
    ///
    /// # Errors
    /// There were too many different ones in the life of this process.
    pub(crate) fn listener_numbers(&self, config: &GatewayConfig) -> Result<Vec<usize>, String> {
        let mut names = self.listener_names.clone();
        let addresses: Vec<_> = config.listeners.iter().map(|at| at.address.to_string()).collect();
        let numbers = numbers(&mut names, &addresses);
        match names.len() <= MOST_LISTENERS {
            true => Ok(numbers),
            false => Err(format!(
                "listeners: there were {MOST_LISTENERS} different addresses since the start; \
                 another one needs a restart"
            )),
        }
    }

    /// Who goes on as `upstream`.
    fn predecessor(&self, upstream: &config::Upstream) -> Option<&Upstream> {
        self.upstreams.iter().find(|known| {
            let (known, wanted) = (&known.config, upstream);
            known.name == wanted.name
                && known.protocol == wanted.protocol
                && known.tls == wanted.tls
        })
    }
}

impl Upstream {
    pub(super) fn new(
        config: &GatewayConfig,
        index: usize,
        params: StackParams,
        (resolver, tls, clock): Shared<'_>,
        diagnostics: &Diagnostics,
    ) -> Self {
        let upstream = &config.upstreams[index];
        let routes = routes_of(config, index);
        let (endpoints, lanes) = (upstream.endpoints.len(), routes.len().max(1));
        let stack = Stack::with_topology(&*upstream.name, params, clock, endpoints, lanes);
        let targets = upstream.endpoints.iter().map(place).collect();
        let places: Vec<_> = upstream.endpoints.iter().map(Known::of).collect();
        let numbered = places.iter().map(|place| Arc::clone(&place.name)).enumerate();
        let endpoints: Vec<_> = numbered.map(|(number, name)| Offered { number, name }).collect();
        let checked = (&stack, &*endpoints);
        let health = Health::new(upstream, checked, (resolver, tls.clone(), clock), None);
        let places = Arc::new(ArcSwap::from_pointee(places));
        Self {
            endpoints,
            health,
            hosts: hosts(upstream, &places),
            places,
            pool: Pool::with_tls(pool_settings(upstream), targets, tls, resolver.clone(), clock),
            rules: HttpClassify::new().with_rules(upstream.rules.rules.clone()),
            rules_met: upstream.rules.names.iter().map(|_| AtomicU64::new(0)).collect(),
            proof: Proof::new(upstream, &stack, None, diagnostics),
            config: upstream.clone(),
            stack,
            lanes: routes
                .iter()
                .enumerate()
                .map(|(number, route)| Lane { number, route: *route })
                .collect(),
            lane_names: routes.iter().map(|at| config.routes[*at].name.clone()).collect(),
        }
    }

    /// The same upstream under another configuration; its state goes on.
    fn succeed(
        &self,
        config: &GatewayConfig,
        index: usize,
        params: StackParams,
        shared: Shared<'_>,
        diagnostics: &Diagnostics,
    ) -> Self {
        let upstream = &config.upstreams[index];
        let routes = routes_of(config, index);
        let mut known = Vec::clone(&self.places.load());
        let wanted: Vec<_> = upstream.endpoints.iter().map(Known::of).collect();
        let asked = places(&known, &wanted);
        let wanted_lanes: Vec<_> =
            routes.iter().map(|at| config.routes[*at].name.clone()).collect();
        let asked_lanes = places(&self.lane_names, &wanted_lanes);
        let settings = pool_settings(upstream);
        let made = self.stack.swap(params, |dependency, now| {
            let is_free = |endpoint| self.pool.is_quiet(endpoint);
            let made = dependency.reshape(now, &asked, &asked_lanes, is_free);
            let addresses = upstream.endpoints.iter().map(place);
            let targets: Vec<_> = made.endpoints.iter().copied().zip(addresses).collect();
            // Before a call can be given one of them.
            self.pool.reshape(settings, &targets);
            for (number, place) in made.endpoints.iter().zip(&wanted) {
                put(&mut known, *number, place.clone());
            }
            self.places.store(Arc::new(known));
            made
        });
        let mut lane_names = self.lane_names.clone();
        for (number, name) in made.lanes.iter().zip(wanted_lanes) {
            put(&mut lane_names, *number, name);
        }
        let numbered = made.endpoints.iter().zip(wanted);
        let endpoints: Vec<_> =
            numbered.map(|(&number, place)| Offered { number, name: place.name }).collect();
        let lanes = made.lanes.iter().zip(routes);
        let checked = (&self.stack, &*endpoints);
        Self {
            health: Health::new(upstream, checked, shared, self.health.as_deref()),
            endpoints,
            hosts: hosts(upstream, &self.places),
            places: Arc::clone(&self.places),
            pool: self.pool.clone(),
            rules: HttpClassify::new().with_rules(upstream.rules.rules.clone()),
            rules_met: self.rules_met_as(&upstream.rules.names),
            proof: Proof::new(upstream, &self.stack, self.proof.as_ref(), diagnostics),
            config: upstream.clone(),
            stack: self.stack.clone(),
            lanes: lanes.map(|(&number, route)| Lane { number, route }).collect(),
            lane_names,
        }
    }
}

impl Upstream {
    /// The counts of rules of these names, which go on.
    fn rules_met_as(&self, names: &[String]) -> Arc<[AtomicU64]> {
        if self.config.rules.names == names {
            return Arc::clone(&self.rules_met);
        }
        let known: HashMap<_, _> = self.config.rules.names.iter().zip(&*self.rules_met).collect();
        let met = |name| known.get(name).map_or(0, |met: &&AtomicU64| met.load(Relaxed));
        names.iter().map(|name| AtomicU64::new(met(name))).collect()
    }
}

/// What connections are made with.
type Shared<'a> = (&'a Resolver, Option<Arc<UpstreamTls>>, Clock);

/// The routes to an upstream.
fn routes_of(config: &GatewayConfig, upstream: usize) -> Vec<usize> {
    let routes = config.routes.iter().enumerate();
    routes.filter(|(_, route)| route.upstream == upstream).map(|(index, _)| index).collect()
}

impl Known {
    fn of(at: &config::EndpointAddress) -> Self {
        Self { name: at.to_string().into(), host: at.authority() }
    }
}

impl AsRef<str> for Known {
    /// What an endpoint is known by.
    fn as_ref(&self) -> &str {
        &self.name
    }
}

fn hosts(upstream: &config::Upstream, places: &Places) -> Option<Places> {
    (upstream.host_header == HostHeader::Endpoint).then(|| Arc::clone(places))
}

/// Of each name that is wanted, its number among those that are known; each number once.
fn places<K: AsRef<str>, W: AsRef<str>>(known: &[K], wanted: &[W]) -> Vec<Option<usize>> {
    let mut numbers: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, name) in known.iter().enumerate().rev() {
        numbers.entry(name.as_ref()).or_default().push(number);
    }
    wanted.iter().map(|name| numbers.get_mut(name.as_ref())?.pop()).collect()
}

/// The numbers of `wanted`; what is not known yet gets the next one.
pub(super) fn numbers(known: &mut Vec<String>, wanted: &[String]) -> Vec<usize> {
    let places = places(known, wanted);
    let number = |(place, name): (Option<usize>, &String)| {
        place.unwrap_or_else(|| {
            known.push(name.clone());
            known.len() - 1
        })
    };
    places.into_iter().zip(wanted).map(number).collect()
}

fn put<T>(list: &mut Vec<T>, at: usize, item: T) {
    match list.get_mut(at) {
        Some(place) => *place = item,
        // Numbers are given out without gaps.
        None => list.push(item),
    }
}

/// Addresses of listeners in the life of a process, each counted apart. Source: seawall-design.
const MOST_LISTENERS: usize = 1_024;
