//! What the metrics are told at a scrape about state that others keep.

use seawall_policy::{BreakerState, DoorRefusal, EjectionReason, HedgeRefusal, Standing};

use crate::credentials::Refreshes;
use crate::health::HealthView;
use crate::reload::Reloaded;
use crate::server::CloseReason;
use crate::tls::{HandshakeResult, UpstreamTls};

/// Whoever keeps that state.
pub(crate) trait Source: Send + Sync + std::fmt::Debug + 'static {
    /// Fills `snapshot`, whose upstreams are in the order given to
    /// [`Metrics::new`](super::Metrics::new), at their defaults.
    fn collect(&self, snapshot: &mut Snapshot);
}

/// State at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Whether the process is going away.
    pub draining: bool,
    /// Breakers and retries that an operator has switched, by upstream.
    pub switches: [u64; 2],
    /// Requests to the admin port without its token since the start.
    pub admin_unauthorized: u64,
    /// Lines of the access log that were dropped since the start.
    pub access_log_dropped: u64,
    /// Handshakes of callers under way, if any listener has TLS.
    pub(crate) handshakes: Option<u64>,
    /// Certificates in use and when they end, in seconds since the Unix epoch.
    pub(crate) certificates: Vec<(String, u64)>,
    /// Files of TLS that were put to use, and that could not be, since the start.
    pub(crate) tls_reloads: [u64; 2],
    /// Whether those of now cannot be.
    pub(crate) tls_failing: bool,
    /// Lookups that brought an answer, and that failed, since the start.
    pub(crate) lookups: [u64; 2],
    /// Answers past their time that were used since the start.
    pub(crate) stale_answers: u64,
    /// Connections that the kernel had no room for, and all that were lost, if it tells.
    pub(crate) listen_overflows: Option<[u64; 2]>,
    /// The configuration in force.
    pub config: ConfigView,
    /// One for each listener.
    pub(crate) listeners: Vec<ListenerView>,
    /// One for each upstream.
    pub upstreams: Vec<UpstreamSnapshot>,
}

/// The configuration in force, and how it came to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigView {
    /// Reloads since the start, by what became of them.
    pub(crate) reloads: [u64; Reloaded::LABELS.len()],
    /// Whether the last one was not refused; true before the first.
    pub(crate) last_reload_successful: bool,
    /// Since when it is in force.
    pub(crate) in_force_since_unix_ms: u64,
    /// What tells its text from others; empty where nothing was written.
    pub(crate) hash: String,
}

/// Connections of callers on one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerView {
    /// Open now.
    pub(crate) open: u64,
    /// Accepted since the start.
    pub(crate) accepted: u64,
    /// Failures to accept since the start.
    pub(crate) accept_errors: u64,
    /// Not let in since the start, by reason.
    pub(crate) refused: [u64; DoorRefusal::ALL.len()],
    /// Those of them that were answered.
    pub(crate) answered: u64,
    /// Addresses that were forgotten while they owed something.
    pub(crate) evicted: u64,
    /// Connections that wait in the kernel, if it tells.
    pub(crate) backlog: Option<u64>,
    /// Ended since the start, by reason.
    pub(crate) closed: [u64; CloseReason::ALL.len()],
    /// Handshakes since the start, by result, if it has TLS.
    pub(crate) handshakes: Option<[u64; HandshakeResult::LABELS.len()]>,
}

/// State of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamSnapshot {
    /// Whether an operator switched its retries off.
    pub retries_off: bool,
    /// Balance of its retry budget in thousandths of a token; nothing where the budget is off.
    pub budget_millitokens: Option<u64>,
    /// Retries not made because the budget was empty, since the start.
    pub budget_exhausted: u64,
    /// Attempts that could be sent now; nothing where there is no rate.
    pub rate_available: Option<u32>,
    /// Keys forgotten while they owed something; nothing where keys have no rate.
    pub rate_keys_evicted: Option<u64>,
    /// Hedges that won and those that were refused, by why; nothing where nothing is hedged.
    pub(crate) hedges: Option<(u64, [u64; HedgeRefusal::ALL.len()])>,
    /// Refreshes of its credential since the start, by result; nothing where it has none.
    pub(crate) refreshes: Option<Refreshes>,
    /// Errors that no rule matches since the start, by kind.
    pub(crate) unmatched: Vec<(String, u64)>,
    /// Answers whose meaning a rule decided since the start, by the rule's name.
    pub(crate) rules_met: Vec<(String, u64)>,
    /// What the checks of its endpoints came to, by number; empty where there are none.
    pub(crate) health: Vec<(usize, HealthView)>,
    /// Its breakers; empty where they are off.
    pub breakers: Vec<BreakerView>,
    /// How its endpoints stand, by number.
    pub standings: Vec<(usize, Standing)>,
    /// Ejections since the start, by reason; nothing where outliers are not ejected.
    pub ejections: Option<[u64; EjectionReason::ALL.len()]>,
    /// Its connections.
    pub pool: PoolView,
    /// Handshakes since the start, by result, if it has TLS.
    pub(crate) handshakes: Option<[u64; UpstreamTls::LABELS.len()]>,
    /// Its calls.
    pub bulkhead: BulkheadView,
}

/// One breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BreakerView {
    /// Index of the route.
    pub route: usize,
    /// Index of the endpoint among its upstream's.
    pub endpoint: usize,
    /// Its state.
    pub state: BreakerState,
}

/// The connections of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolView {
    /// Connections without a call.
    pub idle: u64,
    /// Connections with one.
    pub busy: u64,
    /// Connections being made.
    pub connecting: u64,
    /// Calls that wait for one.
    pub waiting: u64,
    /// Connections made since the start.
    pub connects: u64,
    /// Connections that could not be made since the start.
    pub connect_errors: u64,
    /// Calls that got an existing connection since the start.
    pub reused: u64,
}

/// The calls of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BulkheadView {
    /// Calls in flight.
    pub in_flight: u64,
    /// As many as may be.
    pub limit: u64,
    /// Calls that wait for a place.
    pub waiting: u64,
    /// Calls that lost their caller, or whose time was up, since the start.
    pub(crate) abandoned_total: u64,
    /// Those of them that still hold a place.
    pub(crate) abandoned: u64,
    /// Long-lived streams, which are counted apart.
    pub streams: u64,
}
