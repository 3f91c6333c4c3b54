//! Active checks of an upstream's endpoints.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::HOUR;
use super::model::{EndpointAddress, Protocol};
use super::raw::RawHealthCheck;
use super::report::Finding;
use super::rules::statuses;
use super::scope::Scope;

/// How endpoints are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: Probe,
    /// From the end of a check to the next, give or take a tenth. Default 5 s.
    pub interval: Duration,
    /// A check, connection included. Default 1 s.
    pub timeout: Duration,
    /// Checks in a row that must fail before an endpoint is not well. Default 3.
    pub unhealthy: u32,
    /// Checks in a row that must pass before it is well again. Default 2.
    pub healthy: u32,
    /// In place of the endpoints' own; sockets of this host have none.
    pub port: Option<u16>,
}

/// What a check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET.
    Http {
        /// For this.
        target: PathAndQuery,
        /// Statuses that pass. Default 200 to 299.
        statuses: Vec<RangeInclusive<u16>>,
    },
    /// The health service of gRPC.
    Grpc {
        /// For this service; empty for the whole server.
        service: String,
    },
}

impl HealthCheck {
    /// Where the checks of an endpoint go.
    pub(crate) fn endpoint(&self, checked: &EndpointAddress) -> EndpointAddress {
        let mut checked = checked.clone();
        if let (EndpointAddress::Tcp { port, .. }, Some(own)) = (&mut checked, self.port) {
            *port = own;
        }
        checked
    }
}

/// Reads the section, if it is there.
pub(super) fn health_check(
    scope: &mut Scope<'_>,
    raw: &Option<RawHealthCheck>,
    endpoints: usize,
    protocol: Protocol,
) -> Option<HealthCheck> {
    let raw = raw.as_ref()?;
    if endpoints == 1 {
        let message = "of one endpoint only; where all are unwell, all get traffic";
        scope.warn("health_check", message, "it shows in metrics, and nothing else comes of it");
    }
    let mut scope = scope.inner("health_check");
    let probe = probe(&mut scope, raw, protocol);
    let interval = scope.duration("interval", &raw.interval, SHORTEST..=HOUR);
    let interval = interval.unwrap_or(INTERVAL);
    let timeout = scope.duration("timeout", &raw.timeout, SHORTEST..=HOUR);
    let timeout = timeout.unwrap_or(TIMEOUT.min(interval));
    scope.at_most(("timeout", timeout), ("interval", interval));
    let port = scope.read("port", &raw.port, |text| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.ok_or("a port from 1 to 65535")
    });
    Some(HealthCheck {
        probe,
        interval,
        timeout,
        unhealthy: scope.count("unhealthy", &raw.unhealthy, 1..=100).unwrap_or(UNHEALTHY),
        healthy: scope.count("healthy", &raw.healthy, 1..=100).unwrap_or(HEALTHY),
        port,
    })
}

fn probe(scope: &mut Scope<'_>, raw: &RawHealthCheck, protocol: Protocol) -> Probe {
    let Some(service) = &raw.grpc_service else { return http_probe(scope, raw) };
    for (key, is_there) in [("path", raw.path.is_some()), ("status", !raw.status.is_empty())] {
        if is_there {
            let message = "stands beside grpc_service, which has its own";
            scope.refuse_with(key, Finding::new(scope.path(key), message));
        }
    }
    if protocol == Protocol::Http1 {
        let allowed = "no service: gRPC needs `protocol: h2c`";
        scope.refuse("grpc_service", service, allowed);
    }
    let service = scope.read("grpc_service", &raw.grpc_service, |text| {
        let fits = text.len() <= MAX_PATH && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(text.to_owned()) } else { Err("a service like orders.v1.Orders, or ''") }
    });
    Probe::Grpc { service: service.unwrap_or_default() }
}

fn http_probe(scope: &mut Scope<'_>, raw: &RawHealthCheck) -> Probe {
    if raw.path.is_none() {
        scope.missing("path", "say what to ask for, like `path: /healthz`");
    }
    let target = scope.read("path", &raw.path, |text| {
        let visible = text.len() <= MAX_PATH && text.bytes().all(|b| b.is_ascii_graphic());
        let target = PathAndQuery::try_from(text).ok();
        let target = target.filter(|_| visible && text.starts_with('/') && !text.contains('#'));
        target.ok_or("a path with or without a query, like /healthz")
    });
    let statuses = match statuses(scope, &raw.status) {
        none if none.is_empty() => vec![200..=299],
        some => some,
    };
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Probe::Http { target, statuses }
}

/// Source: seawall-design.
const SHORTEST: Duration = Duration::from_millis(10);
/// Source: seawall-design.
const INTERVAL: Duration = Duration::from_secs(5);
/// Source: seawall-design.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const UNHEALTHY: u32 = 3;
/// Source: seawall-design.
const HEALTHY: u32 = 2;
/// Bytes. Source: seawall-design.
const MAX_PATH: usize = 1_024;
