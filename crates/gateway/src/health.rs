//! Asks the endpoints of an upstream whether they are well, and tells the policies.
//!
//! A check is a request of its own over a connection of its own: the connections of calls may all
//! be taken just when it matters. One task an upstream asks all its endpoints, each in its own
//! rhythm with jitter, at most one check of each at a time. After a reload the checks begin anew,
//! and what they know of an endpoint that stays goes on. The first check of an endpoint decides
//! alone; from then on it takes as many in a row as are configured. Until then, and without
//! checks, an endpoint is well. What is not well is avoided as long as something else is.
//!
//! The answer is judged by its status, or as gRPC has it; a redirect is not followed, and at most
//! 16 KiB of a body are read.

mod grpc;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, Uri, Version};
use http_body_util::Full;
use parking_lot::Mutex;
use seawall::{Clock, Stack, ThreadRng};
use seawall_policy::{Rng, Timestamp};
use serde::Serialize;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::config::{self, HealthCheck, HostHeader, Probe, Protocol};
use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::{Offered, place};
use crate::tls::UpstreamTls;
use crate::upstream::{Pool, PoolProtocol, PoolSettings, Resolver, Wanted};

/// The checks of one upstream, and what they know.
#[derive(Debug)]
pub(crate) struct Health {
    check: HealthCheck,
    protocol: Protocol,
    scheme: Scheme,
    /// Whom the checks are for, by endpoint.
    hosts: Vec<HeaderValue>,
    pool: Pool<Full<Bytes>>,
    /// In the order of the configuration, as the hosts and the places of the pool.
    endpoints: Vec<Offered>,
    judges: Vec<Mutex<Judge>>,
    stack: Stack,
    clock: Clock,
    task: Mutex<Option<AbortHandle>>,
}

/// What the checks of an endpoint came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HealthView {
    /// True before the first check.
    pub(crate) healthy: bool,
    /// Checks that passed since the start, and that failed.
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Why the latest check that failed did.
    pub(crate) last_failure: Option<String>,
}

impl Health {
    /// To be called on the runtime that will serve; nothing if no checks are configured. Those
    /// `before` it end, and `stack` is told how its endpoints are to be seen from now on.
    pub(crate) fn new(
        upstream: &config::Upstream,
        (stack, offered): (&Stack, &[Offered]),
        (resolver, tls, clock): (&Resolver, Option<Arc<UpstreamTls>>, Clock),
        before: Option<&Self>,
    ) -> Option<Arc<Self>> {
        let judges: Vec<_> = offered.iter().map(|at| Judge::after(before, at)).collect();
        if let Some(before) = before {
            before.end();
        }
        let check = upstream.health_check.clone();
        let now = clock.now();
        stack.with(|dependency, _, _| {
            for (at, judge) in offered.iter().zip(&judges) {
                let healthy = check.is_none() || judge.healthy.unwrap_or(true);
                dependency.set_health(now, at.number, healthy);
            }
        });
        let check = check?;
        let endpoints: Vec<_> = upstream.endpoints.iter().map(|at| check.endpoint(at)).collect();
        let protocol = match upstream.protocol {
            Protocol::Http1 => PoolProtocol::Http1,
            Protocol::H2c => PoolProtocol::H2c,
        };
        let settings = PoolSettings {
            connect_timeout: check.timeout,
            ..PoolSettings::new(protocol, endpoints.len())
        };
        let host = |at: &config::EndpointAddress| match &upstream.host_header {
            HostHeader::Named(host) => Some(host.clone()),
            HostHeader::Keep | HostHeader::Endpoint => at.authority(),
        };
        let unknown = || HeaderValue::from_static("localhost");
        Some(Arc::new(Self {
            hosts: endpoints.iter().map(|at| host(at).unwrap_or_else(unknown)).collect(),
            judges: judges.into_iter().map(Mutex::new).collect(),
            endpoints: offered.to_vec(),
            stack: stack.clone(),
            task: Mutex::default(),
            scheme: if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP },
            pool: Pool::with_tls(
                settings,
                endpoints.iter().map(place).collect(),
                tls,
                resolver.clone(),
                clock,
            ),
            protocol: upstream.protocol,
            check,
            clock,
        }))
    }

    /// What is known of the endpoints, in the order of the configuration. Not to be called while
    /// the stack is held.
    pub(crate) fn views(&self) -> Vec<HealthView> {
        self.judges.iter().map(|judge| judge.lock().view()).collect()
    }

    /// Connections that checks have now.
    pub(crate) fn connections(&self) -> usize {
        self.pool.stats().open
    }

    /// What decides how it asks.
    #[cfg(test)]
    pub(crate) fn knobs(&self) -> String {
        format!("{:?} {:?} {:?} {:?}", self.check, self.protocol, self.hosts, self.pool)
    }

    /// Begins the checks. Whoever reads the diagnostics is told what changes.
    pub(crate) fn begin(self: &Arc<Self>, diagnostics: &Diagnostics) {
        let (health, diagnostics) = (Arc::clone(self), diagnostics.clone());
        let task = tokio::spawn(async move {
            let endpoints = 0..health.judges.len();
            join_all(endpoints.map(|endpoint| health.watch(endpoint, &diagnostics))).await;
        });
        *self.task.lock() = Some(task.abort_handle());
    }

    /// Ends the checks; the stack is told nothing more.
    pub(crate) fn end(&self) {
        for judge in &self.judges {
            judge.lock().is_over = true;
        }
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    async fn watch(&self, endpoint: usize, diagnostics: &Diagnostics) {
        let HealthCheck { interval, .. } = self.check;
        sleep(share(interval.min(FIRST), 0..=1000)).await;
        while self.conclude(endpoint, self.check(endpoint).await.err(), diagnostics) {
            sleep(share(interval, 900..=1100)).await;
        }
    }

    /// Whether there are to be more checks.
    fn conclude(
        &self,
        endpoint: usize,
        failure: Option<String>,
        diagnostics: &Diagnostics,
    ) -> bool {
        let at = &self.endpoints[endpoint];
        let mut judge = self.judges[endpoint].lock();
        if judge.is_over {
            return false;
        }
        if let Some(healthy) = judge.take(failure, &self.check) {
            let now = self.clock.now();
            // The judge is held: nobody takes over between the verdict and its effect.
            self.stack.with(|dependency, _, _| dependency.set_health(now, at.number, healthy));
            let why = judge.last_failure.clone().filter(|_| !healthy);
            drop(judge);
            tell(diagnostics, [&self.stack.name(), &at.name], why.as_deref());
        }
        true
    }

    /// One check, and why it failed if it did.
    async fn check(&self, endpoint: usize) -> Result<(), String> {
        let checked = timeout(self.check.timeout, self.ask(endpoint));
        checked.await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn ask(&self, endpoint: usize) -> Result<(), String> {
        let (now, wait) = (self.clock.now(), self.check.timeout);
        let wanted = Wanted { endpoint, now, wait, until: Timestamp::MAX };
        let (lease, _) = self.pool.checkout(wanted).await;
        let lease = lease.map_err(|error| shortened(&error))?;
        let sent = lease.send(self.request(endpoint)).await;
        let response = sent.map_err(|error| match &error.source {
            Some(source) => shortened(source),
            None => error.cause.as_str().to_owned(),
        })?;
        let Probe::Http { statuses, .. } = &self.check.probe else {
            return grpc::verdict(response).await;
        };
        let status = response.status().as_u16();
        response.into_body().drain(DRAIN_BYTES).await;
        match statuses.iter().any(|range| range.contains(&status)) {
            true => Ok(()),
            false => Err(format!("status {status}")),
        }
    }

    fn request(&self, endpoint: usize) -> Request<Full<Bytes>> {
        let host = &self.hosts[endpoint];
        let mut request = Request::new(Full::default());
        let mut uri = http::uri::Parts::default();
        uri.path_and_query = Some(match &self.check.probe {
            Probe::Http { target, .. } => target.clone(),
            Probe::Grpc { service } => grpc::ask_for(service, &mut request),
        });
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static("Seawall-Health-Check"));
        match self.protocol {
            Protocol::Http1 => {
                headers.insert(HOST, host.clone());
                // The next check is to find out, too, whether a connection can be made.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Protocol::H2c => {
                uri.authority = host.as_bytes().try_into().ok();
                uri.scheme = uri.authority.is_some().then(|| self.scheme.clone());
                *request.version_mut() = Version::HTTP_2;
            }
        }
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        request
    }
}

/// Says whether an endpoint of an upstream is well now, or why not.
fn tell(diagnostics: &Diagnostics, [upstream, endpoint]: [Shown<'_>; 2], why: Option<&str>) {
    let whose = [("upstream", upstream), ("endpoint", endpoint)];
    let Some(why) = why else {
        diagnostics.info(Topic::Endpoint, "endpoint is well", &whose);
        return;
    };
    let [upstream, endpoint] = whose;
    diagnostics.warn(Topic::Endpoint, "endpoint is not well", &[upstream, endpoint, ("why", &why)]);
}

type Shown<'a> = &'a (dyn Display + Sync);

/// Turns checks into a verdict.
#[derive(Clone, Debug, Default)]
struct Judge {
    /// Nothing before the first check.
    healthy: Option<bool>,
    /// Checks in a row that spoke against it.
    against: u32,
    passed: u64,
    failed: u64,
    last_failure: Option<String>,
    /// Another one goes on in its place, or nobody.
    is_over: bool,
}

impl Judge {
    /// The one that goes on for an endpoint, if there was one.
    fn after(before: Option<&Health>, at: &Offered) -> Self {
        let known = before.and_then(|before| {
            let same = |known: &Offered| known.number == at.number && known.name == at.name;
            before.judges.get(before.endpoints.iter().position(same)?)
        });
        known.map_or_else(Self::default, |known| {
            let mut known = known.lock();
            let next = known.clone();
            known.is_over = true;
            next
        })
    }

    fn view(&self) -> HealthView {
        HealthView {
            healthy: self.healthy.unwrap_or(true),
            passed: self.passed,
            failed: self.failed,
            last_failure: self.last_failure.clone(),
        }
    }

    /// Takes the result of a check, which failed for a reason or passed; the new verdict if it
    /// differs from what was thought before.
    fn take(&mut self, failure: Option<String>, check: &HealthCheck) -> Option<bool> {
        let passed = failure.is_none();
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.last_failure = failure;
        }
        let Some(healthy) = self.healthy else {
            self.healthy = Some(passed);
            return (!passed).then_some(false);
        };
        if passed == healthy {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if healthy { check.unhealthy } else { check.healthy };
        if self.against < needed {
            return None;
        }
        self.against = 0;
        self.healthy = Some(passed);
        Some(passed)
    }
}

/// A share of `whole` in thousandths, drawn from a range.
fn share(whole: Duration, thousandths: std::ops::RangeInclusive<u32>) -> Duration {
    let width = u64::from(thousandths.end() - thousandths.start()) + 1;
    let drawn = u32::try_from(ThreadRng.next_u64() % width).unwrap_or(0);
    whole.saturating_mul(thousandths.start() + drawn) / 1000
}

/// What goes wrong in a word or a line; a peer may have its part in it.
fn shortened(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    text.chars().filter(|c| !c.is_control()).take(WHY_CHARS).collect()
}

/// The first checks of an upstream are spread over this, or over one interval.
const FIRST: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const DRAIN_BYTES: u64 = 16 * 1024;
/// Source: seawall-design.
const WHY_CHARS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> HealthCheck {
        HealthCheck {
            probe: Probe::Grpc { service: String::new() },
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            healthy: 2,
            unhealthy: 3,
            port: None,
        }
    }

    /// `+` for a check that passes, `-` for one that fails; the verdicts that changed.
    fn verdicts(results: &str) -> Vec<Option<bool>> {
        let mut judge = Judge::default();
        let take = |passed: bool| judge.take((!passed).then(|| "no".to_owned()), &check());
        results.chars().map(|result| result == '+').map(take).collect()
    }

    #[test]
    fn the_first_check_decides_alone_and_later_ones_in_a_row() {
        let (well, ill) = (Some(true), Some(false));
        assert_eq!(verdicts("-++"), [ill, None, well]);
        assert_eq!(verdicts("+--+---"), [None, None, None, None, None, None, ill]);
        assert_eq!(verdicts("+---+-++"), [None, None, None, ill, None, None, None, well]);
    }

    #[test]
    fn intervals_are_spread_by_a_tenth_each_way() {
        let whole = Duration::from_secs(10);
        let drawn: Vec<_> = (0..1000).map(|_| share(whole, 900..=1100)).collect();
        let (least, most) = (*drawn.iter().min().unwrap(), *drawn.iter().max().unwrap());
        assert!(least >= Duration::from_secs(9) && least < Duration::from_millis(9_200));
        assert!(most <= Duration::from_secs(11) && most > Duration::from_millis(10_800));
    }
}
