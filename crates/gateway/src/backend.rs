//! What the admin port and the metrics are told about the running gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use seawall::{Change, Scope};
use tokio::sync::watch;

use crate::admin::{
    self, AdminBackend, BreakerChange, EndpointBreakerView, EndpointView, QueueView, Readiness,
    Reloading, RetriesChange, RetriesState, RetriesView, SwitchView, UnknownUpstream, UpstreamView,
};
use crate::config::{AdminAccess, Protocol};
use crate::credentials::Proof;
use crate::gateway::{Gateway, Offered, Upstream, millis};
use crate::metrics::{
    BreakerView, BulkheadView, ConfigView, Exposition, Format, ListenerView, PoolView, Present,
    Snapshot, Source, UpstreamSnapshot,
};
use crate::queues::queues;
use crate::reload::{Reloader, Status};
use crate::server::{
    Answers, CloseReason, ConnectionGauges, DrainPhase, DrainView, Server, overflows, waiting,
};
use crate::tls::CertificateView;

/// The gateway as operators see it.
#[derive(Debug)]
pub(crate) struct Backend {
    reloader: Arc<Reloader>,
    drain: watch::Receiver<DrainView>,
    connections: Arc<ConnectionGauges>,
    answers: Arc<Answers>,
    listening: AtomicBool,
    unauthorized: Arc<AtomicU64>,
    exposition: Exposition,
}

/// The part of it that a scrape asks.
#[derive(Debug)]
struct Scraped {
    gateway: Arc<Gateway>,
    reloads: Status,
    unauthorized: u64,
    drain: watch::Receiver<DrainView>,
    connections: Arc<ConnectionGauges>,
}

impl Backend {
    pub(crate) fn new(reloader: &Arc<Reloader>, server: &Server) -> Arc<Self> {
        let (of, drain, connections) = (Arc::clone(reloader), server.drain_view(), server.gauges());
        let unauthorized = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&unauthorized);
        let present = move || -> Present {
            let gateway = of.gateway();
            let metrics = Arc::clone(&gateway.metrics);
            let (drain, connections) = (drain.clone(), Arc::clone(&connections));
            let (reloads, unauthorized) = (of.status(), counted.load(Relaxed));
            let scraped = Scraped { gateway, reloads, unauthorized, drain, connections };
            (metrics, Arc::new(scraped))
        };
        Arc::new(Self {
            exposition: Exposition::of(present, reloader.gateway().clock),
            reloader: Arc::clone(reloader),
            drain: server.drain_view(),
            connections: server.gauges(),
            answers: server.answers(),
            listening: AtomicBool::new(false),
            unauthorized,
        })
    }

    /// The listeners are up: a request would be taken.
    pub(crate) fn set_listening(&self) {
        self.listening.store(true, Relaxed);
    }
}

impl AdminBackend for Backend {
    fn access(&self) -> AdminAccess {
        self.reloader.gateway().config.admin_access.clone()
    }

    fn count_unauthorized(&self) {
        self.unauthorized.fetch_add(1, Relaxed);
    }

    fn ready(&self) -> Readiness {
        if self.drain.borrow().phase != DrainPhase::Serving {
            return Readiness::Draining;
        }
        match self.listening.load(Relaxed) {
            true => Readiness::Ready,
            false => Readiness::Starting,
        }
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let gateway = self.reloader.gateway();
        gateway.upstreams.iter().map(|at| upstream_view(&gateway, at)).collect()
    }

    fn queues(&self) -> Vec<QueueView> {
        let server = (&*self.connections, &*self.answers);
        queues(&self.reloader.gateway(), server, self.reloader.max_connections())
    }

    fn retries(&self) -> Vec<RetriesView> {
        let gateway = self.reloader.gateway();
        let offs = gateway.kill_switch.list();
        let view = |upstream: &Upstream| {
            let name = &upstream.config.name;
            let off = offs
                .iter()
                .filter(|off| match &off.scope {
                    Scope::All => true,
                    Scope::Named(named) => named == name,
                })
                .max_by_key(|off| off.left);
            let switched_by = match (off, &upstream.config.retry) {
                (Some(off), _) if off.who.starts_with("file ") => Some("file"),
                (Some(_), _) => Some("admin"),
                (None, None) => Some("config"),
                (None, Some(_)) => None,
            };
            RetriesView {
                upstream: name.clone(),
                state: if switched_by.is_some() { "off" } else { "on" },
                switched_by,
                on_again_in_ms: off.map(|off| millis(off.left)),
                by: off.map(|off| off.who.clone()),
                reason: off.map(|off| off.reason.clone()).filter(|reason| !reason.is_empty()),
            }
        };
        gateway.upstreams.iter().map(view).collect()
    }

    fn set_retries(
        &self,
        upstream: Option<&str>,
        change: RetriesChange,
    ) -> Result<(), UnknownUpstream> {
        let scope = upstream.map_or(Scope::All, |name| Scope::Named(name.to_owned()));
        let to = match change.state {
            RetriesState::On => Change::On,
            RetriesState::Off(ttl) => Change::Off { ttl },
        };
        let reason = change.reason.unwrap_or_default();
        // The port has checked the time; what is left to refuse is the name.
        let set =
            self.reloader.gateway().kill_switch.set(scope, to, &change.by.to_string(), &reason);
        set.map_err(|_| UnknownUpstream)
    }

    fn switches(&self) -> Vec<SwitchView> {
        let gateway = self.reloader.gateway();
        let now = gateway.clock.now();
        let breakers =
            gateway.switches.list(now).into_iter().map(|(upstream, forced)| SwitchView {
                kind: "breaker",
                upstream,
                mode: forced.mode.as_str(),
                ends_in_ms: Some(millis(now.until(forced.until))),
                by: Some(forced.by),
                reason: Some(forced.reason).filter(|reason| !reason.is_empty()),
            });
        let off = |view: &RetriesView| view.switched_by.is_some_and(|by| by != "config");
        let retries = self.retries().into_iter().filter(off).map(|view| SwitchView {
            kind: "retries",
            upstream: view.upstream,
            mode: view.state,
            ends_in_ms: view.on_again_in_ms,
            by: view.by,
            reason: view.reason,
        });
        breakers.chain(retries).collect()
    }

    fn force_breakers(&self, upstream: &str, change: BreakerChange) -> Result<(), UnknownUpstream> {
        let gateway = self.reloader.gateway();
        let named = gateway.upstreams.iter().find(|known| known.config.name == upstream);
        let named = named.ok_or(UnknownUpstream)?;
        let BreakerChange { mode, ttl, by, reason } = change;
        let (now, said) = (gateway.clock.now(), (&*by, &*reason));
        gateway.switches.set(named, now, (mode, ttl), said, &gateway.diagnostics);
        Ok(())
    }

    fn reload(&self, by: SocketAddr) -> Reloading {
        let reloader = Arc::clone(&self.reloader);
        Box::pin(async move {
            let reloaded = reloader.reload(&by.to_string()).await;
            let hash = reloader.gateway().config.origin.hash().to_owned();
            (reloaded, hash)
        })
    }

    fn config(&self) -> admin::ConfigView {
        let (gateway, status) = (self.reloader.gateway(), self.reloader.status());
        let origin = &gateway.config.origin;
        admin::ConfigView {
            file: origin.file().map(|file| file.display().to_string()),
            hash: origin.hash().to_owned(),
            generation: status.generation(),
            in_force_since_unix_ms: status.in_force_since,
            config: gateway.config.dump(),
        }
    }

    fn render_metrics(&self, format: Format) -> String {
        self.exposition.render(format)
    }
}

impl Source for Scraped {
    fn collect(&self, snapshot: &mut Snapshot) {
        snapshot.draining = self.drain.borrow().phase != DrainPhase::Serving;
        snapshot.admin_unauthorized = self.unauthorized;
        let retries_off = |upstream: &&Upstream| {
            upstream.stack.with(|it, _, _| it.retries_off_until(self.gateway.clock.now()).is_some())
        };
        let forced = self.gateway.switches.list(self.gateway.clock.now()).len();
        let off = self.gateway.upstreams.iter().filter(retries_off).count();
        snapshot.switches = [forced as u64, off as u64];
        snapshot.access_log_dropped = self.gateway.access_log.dropped();
        collect_tls(&self.gateway, snapshot);
        let listeners = self.connections.listeners();
        let inodes: Vec<_> = listeners.iter().map(|it| it.inode()).collect();
        let backlogs = waiting(&inodes);
        snapshot.listen_overflows = overflows();
        let listeners = listeners.iter().zip(backlogs);
        for (number, ((counts, backlog), into)) in
            listeners.zip(&mut snapshot.listeners).enumerate()
        {
            let index = self.gateway.listeners.iter().position(|known| *known == number);
            let tls = index.and_then(|index| self.gateway.tls.listener(index));
            *into = ListenerView {
                open: counts.active() as u64,
                accepted: counts.accepted(),
                accept_errors: counts.accept_errors(),
                refused: counts.refused(),
                answered: counts.answered(),
                evicted: counts.evicted(),
                backlog,
                closed: CloseReason::ALL.map(|reason| counts.closed(reason)),
                handshakes: tls.map(|tls| tls.counts()),
            };
        }
        snapshot.config = ConfigView {
            reloads: self.reloads.counts,
            last_reload_successful: self.reloads.refused.is_none(),
            in_force_since_unix_ms: self.reloads.in_force_since,
            hash: self.gateway.config.origin.hash().to_owned(),
        };
        let upstreams = self.gateway.upstreams.iter().zip(&mut snapshot.upstreams);
        for (index, (upstream, into)) in upstreams.enumerate() {
            collect_upstream(&self.gateway, upstream, into);
            into.unmatched = self.gateway.unmatched.counts(index);
            into.handshakes = self.gateway.tls.upstream(index).map(|tls| tls.counts());
            let names = upstream.config.rules.names.iter().cloned();
            let met = upstream.rules_met.iter().map(|met| met.load(Relaxed));
            into.rules_met = names.zip(met).collect();
            let numbers = upstream.endpoints.iter().map(|offered| offered.number);
            let views = upstream.health.as_ref().map(|health| health.views());
            into.health = numbers.zip(views.into_iter().flatten()).collect();
        }
    }
}

fn collect_tls(gateway: &Gateway, snapshot: &mut Snapshot) {
    let tls = &gateway.tls;
    snapshot.handshakes = tls.serves().then(|| tls.handshakes().taken as u64);
    let end = |view: CertificateView| Some((view.path, view.not_after?));
    snapshot.certificates = tls.certificates().into_iter().filter_map(end).collect();
    snapshot.tls_reloads = tls.reloads().into();
    snapshot.tls_failing = tls.is_failing();
    let names = gateway.resolver.stats();
    snapshot.lookups = [names.answers_total, names.failures_total];
    snapshot.stale_answers = names.stale_total;
}

fn collect_upstream(gateway: &Gateway, upstream: &Upstream, into: &mut UpstreamSnapshot) {
    let now = gateway.clock.now();
    let limit = u64::from(upstream.config.bulkhead.limit);
    upstream.stack.with(|dependency, params, _| {
        let bulkhead = dependency.bulkhead();
        into.retries_off = dependency.retries_off_until(now).is_some();
        into.budget_millitokens = dependency.budget_millitokens_at(now, params);
        into.rate_available = dependency.rate_available(now, params);
        let keyed = upstream.config.rate.per_key.as_ref();
        into.rate_keys_evicted = keyed.map(|_| dependency.rate_keys_evicted());
        let counters = dependency.counters();
        into.budget_exhausted = counters.budget_exhausted;
        let hedges = (counters.hedges_won, counters.hedges_refused);
        into.hedges = upstream.config.hedge.map(|_| hedges);
        into.bulkhead = BulkheadView {
            in_flight: u64::from(bulkhead.in_flight()),
            limit,
            waiting: u64::from(bulkhead.waiting()),
            abandoned_total: dependency.counters().abandoned,
            abandoned: dependency.abandoned() as u64,
            streams: u64::from(bulkhead.streams()),
        };
        into.ejections = upstream.config.sharing.outlier.map(|_| dependency.ejections());
        let standing = |offered: &Offered| {
            let view = dependency.endpoint_view(now, params, offered.number, 0)?;
            Some((offered.number, view.standing))
        };
        into.standings = upstream.endpoints.iter().filter_map(standing).collect();
        if upstream.config.breaker.is_none() {
            return;
        }
        for endpoint in upstream.endpoints.iter().map(|offered| offered.number) {
            for lane in &upstream.lanes {
                let view = dependency.endpoint_view(now, params, endpoint, lane.number);
                let Some(view) = view else { continue };
                let route = lane.route;
                into.breakers.push(BreakerView { route, endpoint, state: view.breaker });
            }
        }
    });
    into.refreshes = upstream.proof.as_ref().map(Proof::refreshes);
    let pool = upstream.pool.stats();
    into.pool = PoolView {
        idle: pool.idle as u64,
        busy: pool.in_use as u64,
        connecting: pool.dialing as u64,
        waiting: pool.waiting as u64,
        connects: pool.connects_total,
        connect_errors: pool.connect_errors_total,
        reused: pool.reused_total,
    };
}

fn upstream_view(gateway: &Gateway, upstream: &Upstream) -> UpstreamView {
    let now = gateway.clock.now();
    let pool = upstream.pool.stats();
    let health = upstream.health.as_ref().map_or_else(Vec::new, |health| health.views());
    upstream.stack.with(|dependency, params, _| {
        let bulkhead = dependency.bulkhead();
        let health = health.into_iter().map(Some).chain(std::iter::repeat(None));
        let endpoints = upstream.endpoints.iter().zip(health).map(|(offered, health)| {
            let index = offered.number;
            let at = pool.endpoints.get(index);
            let breakers = upstream.lanes.iter().filter_map(|lane| {
                let view = dependency.endpoint_view(now, params, index, lane.number)?;
                Some(EndpointBreakerView {
                    route: gateway.config.routes.get(lane.route)?.name.clone(),
                    state: view.breaker.as_str(),
                    calls: view.counts.calls,
                    failures: view.counts.failures,
                    probes_in_ms: view.open_until.map(|until| millis(now.until(until))),
                })
            });
            let view = dependency.endpoint_view(now, params, index, 0);
            let back = view.and_then(|view| view.ejected_until);
            EndpointView {
                endpoint: offered.name.to_string(),
                standing: view.map_or("", |view| view.standing.as_str()),
                back_in_ms: back.map(|until| millis(now.until(until))),
                in_flight: view.map_or(0, |view| u64::from(view.in_flight)),
                health,
                connections_idle: at.map_or(0, |at| at.idle as u64),
                connections_busy: at.map_or(0, |at| at.open.saturating_sub(at.idle) as u64),
                breakers: if upstream.config.breaker.is_some() {
                    breakers.collect()
                } else {
                    Vec::new()
                },
            }
        });
        UpstreamView {
            name: upstream.config.name.clone(),
            protocol: match upstream.config.protocol {
                Protocol::Http1 => "http1",
                Protocol::H2c if upstream.config.tls.is_some() => "h2",
                Protocol::H2c => "h2c",
            },
            balance: upstream.config.sharing.balance.as_str(),
            in_flight: u64::from(bulkhead.in_flight()),
            limit: u64::from(upstream.config.bulkhead.limit),
            waiting: u64::from(bulkhead.waiting()),
            streams: u64::from(bulkhead.streams()),
            abandoned: dependency.abandoned() as u64,
            retries_on: dependency.retries_off_until(now).is_none(),
            retry_budget_balance_tokens: dependency.budget_millitokens_at(now, params).map(tokens),
            endpoints: endpoints.collect(),
        }
    })
}

#[expect(clippy::cast_precision_loss, reason = "a balance is far below 2^52")]
fn tokens(millitokens: u64) -> f64 {
    millitokens as f64 / 1000.0
}
