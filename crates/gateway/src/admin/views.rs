//! What the admin port asks the gateway, and what it tells.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;

use super::switches::{BreakerChange, SwitchView};
use crate::config::AdminAccess;
use crate::health::HealthView;
use crate::metrics::Format;
use crate::reload::Reloaded;

/// Whoever knows the gateway's state. Every method but [`AdminBackend::reload`] answers at once.
pub(crate) trait AdminBackend: Send + Sync + std::fmt::Debug + 'static {
    /// Who may ask.
    fn access(&self) -> AdminAccess;
    /// Counts a request without the token.
    fn count_unauthorized(&self);
    /// Whether traffic should come.
    fn ready(&self) -> Readiness;
    /// The upstreams, in the order of the configuration.
    fn upstreams(&self) -> Vec<UpstreamView>;
    /// Every queue there is, but those of the admin port.
    fn queues(&self) -> Vec<QueueView>;
    /// Whether retries are on, per upstream.
    fn retries(&self) -> Vec<RetriesView>;
    /// Switches the retries of one upstream, or of all.
    ///
    /// # Errors
    /// There is no such upstream.
    fn set_retries(
        &self,
        upstream: Option<&str>,
        change: RetriesChange,
    ) -> Result<(), UnknownUpstream>;
    /// What is switched now.
    fn switches(&self) -> Vec<SwitchView>;
    /// Forces the breakers of an upstream.
    ///
    /// # Errors
    /// There is no such upstream.
    fn force_breakers(&self, upstream: &str, change: BreakerChange) -> Result<(), UnknownUpstream>;
    /// Reads the configuration again, for who asks.
    fn reload(&self, by: SocketAddr) -> Reloading;
    /// The configuration in force.
    fn config(&self) -> ConfigView;
    /// The text of a scrape.
    fn render_metrics(&self, format: Format) -> String;
}

/// The configuration in force, secrets hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ConfigView {
    /// Where it was read; nothing where it came from the command line alone.
    pub file: Option<String>,
    /// Tells texts of the file apart.
    pub hash: String,
    /// 1 at the start, and one more with each reload that was applied.
    pub generation: u64,
    /// Since when, in milliseconds since the Unix epoch.
    pub in_force_since_unix_ms: u64,
    /// Every value, defaults filled in, under the keys of the file.
    pub config: serde_json::Value,
}

/// A reload under way: what becomes of it, and the hash of what is in force then.
pub(crate) type Reloading = Pin<Box<dyn Future<Output = (Reloaded, String)> + Send>>;

/// Whether traffic should come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Not yet: the listeners are not up.
    Starting,
    /// It should.
    Ready,
    /// No longer.
    Draining,
}

impl Readiness {
    /// The word that `/ready` answers.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// An upstream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct UpstreamView {
    /// Its name.
    pub name: String,
    /// `http1` or `h2c`.
    pub protocol: &'static str,
    /// By what its endpoints are compared: `least_request` or `peak_ewma`.
    pub balance: &'static str,
    /// Calls in flight, abandoned ones included.
    pub in_flight: u64,
    /// As many as may be.
    pub limit: u64,
    /// Calls waiting for a place.
    pub waiting: u64,
    /// Long-lived streams, counted apart.
    pub streams: u64,
    /// Calls nobody waits for that still hold a place.
    pub abandoned: u64,
    /// Whether retries are on.
    pub retries_on: bool,
    /// Retries the budget could pay for now; nothing where it is off.
    pub retry_budget_balance_tokens: Option<f64>,
    /// Its endpoints.
    pub endpoints: Vec<EndpointView>,
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct EndpointView {
    /// `host:port`.
    pub endpoint: String,
    /// `available`, `probing`, `ejected` or `unhealthy`.
    pub standing: &'static str,
    /// Until it gets probes; nothing unless it is ejected.
    pub back_in_ms: Option<u64>,
    /// Calls in flight.
    pub in_flight: u64,
    /// Connections without a call.
    pub connections_idle: u64,
    /// Connections with one.
    pub connections_busy: u64,
    /// What its checks came to; nothing where there are none.
    pub health: Option<HealthView>,
    /// Its breakers, one a route; empty where they are off.
    pub breakers: Vec<EndpointBreakerView>,
}

/// The breaker of an endpoint for a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct EndpointBreakerView {
    /// The route's name.
    pub route: String,
    /// `closed`, `half_open` or `open`.
    pub state: &'static str,
    /// Calls in its window.
    pub calls: u64,
    /// Failures among them.
    pub failures: u64,
    /// Until probes are let through; nothing unless it is open.
    pub probes_in_ms: Option<u64>,
}

/// A queue, or something else that holds work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct QueueView {
    /// What it is, and whose.
    pub name: String,
    /// As many as may be in it.
    pub bound: u64,
    /// As many as do; nothing where only the kernel, or each connection by itself, knows.
    pub depth: Option<u64>,
    /// How long the oldest has waited, where that is known and one waits.
    pub oldest_ms: Option<u64>,
    /// What happens to the next one at the bound.
    pub when_full: &'static str,
}

/// The retries of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RetriesView {
    /// Its name.
    pub upstream: String,
    /// `on` or `off`.
    pub state: &'static str,
    /// What switched them off: `admin`, `file` or `config`.
    pub switched_by: Option<&'static str>,
    /// Until they are on again by themselves.
    pub on_again_in_ms: Option<u64>,
    /// Who asked for it: an address, or `file ` and a path.
    pub by: Option<String>,
    /// Why, as they said.
    pub reason: Option<String>,
}

/// A switch of retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetriesChange {
    /// To what.
    pub state: RetriesState,
    /// Who asks.
    pub by: SocketAddr,
    /// Why, as they say; at most 256 characters.
    pub reason: Option<String>,
}

/// What retries are switched to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetriesState {
    /// As configured.
    On,
    /// Off for this long, at most a day.
    Off(Duration),
}

/// There is no upstream of the name given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such upstream")]
pub(crate) struct UnknownUpstream;
