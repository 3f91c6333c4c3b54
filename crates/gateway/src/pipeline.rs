//! What happens to one request: read its head, find its route, call its upstream, answer.
//!
//! ```text
//! head in ─▶ authority, framing ─▶ route ─▶ fields, stated deadline ─▶ Stack::drive ─▶ answer
//!   503         400 405 417 431     400 404        508                      │
//!                                                           per attempt: checkout ─▶ send
//! ```
//!
//! The clock is read when the head has come in, by the driver when the upstream's has, and when the
//! answer has ended; a wait, for a slot, a connection or a retry, costs one reading more. Decisions
//! are the policy's; this file only carries.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use hyper::body::Incoming;
use seawall::CallShared;
use seawall_policy::{Call, RateKey, Safety, Timestamp, parse_remaining};

use crate::answer::{self, ProblemAnswer};
use crate::authority::Authority;
use crate::body::Body;
use crate::client::note_client;
use crate::conclude::conclude;
use crate::config::{HostHeader, Protocol, Route};
use crate::credentials::Proof;
use crate::exchange::Exchange;
use crate::forwards::count_hop;
use crate::gateway::{Gateway, Upstream};
use crate::grpc;
use crate::headers::{Inbound, Stated, check_framing, has, upgrade_of};
use crate::metrics::{self, IgnoredBecause, IgnoredHeader, IgnoredHeaders};
use crate::outbound::{Abandon, Outbound};
use crate::quota::rate_key;
use crate::refusal::Refusal;
use crate::route::{Found, rewritten};
use crate::server::{ConnInfo, Peer};
use crate::upload::{Upload, UploadLimits};

/// Answers one request.
pub(crate) async fn handle_request(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    connection: ConnInfo,
) -> Response<Body> {
    let (mut parts, incoming) = request.into_parts();
    let mut exchange = Exchange::new(Arc::clone(&gateway), connection, &parts);
    let plan = match plan(&gateway, &mut parts, &mut exchange) {
        Ok(plan) => plan,
        Err(Here::Problem(problem)) => return problem.answer(exchange),
        Err(Here::Options) => return answer::options(exchange),
        Err(Here::Method(allowed)) => return answer::other_methods(&allowed, exchange),
    };
    let route = &gateway.config.routes[plan.route];
    let upstream = &gateway.upstreams[route.upstream];
    let shared = CallShared::new();
    let limits = UploadLimits {
        replay: gateway.config.limits.replay_bytes,
        max: route.max_body,
        idle: upstream.config.timeouts.idle,
    };
    exchange.upload =
        Upload::new(incoming, Arc::clone(&shared), gateway.clock, limits, gateway.replay.clone());
    exchange.called = true;
    let downstream = plan.upgrades.then(|| hyper::upgrade::on(upgradable(&mut parts)));
    let call = plan.call(route, gateway.lane(plan.route));
    let proof = upstream.proof_for(&parts.headers);
    let outbound = Arc::new(Outbound {
        method: parts.method,
        uri: plan.target,
        headers: parts.headers,
        upload: exchange.upload.clone(),
        shared: Arc::clone(&shared),
        pool: upstream.pool.clone(),
        clock: gateway.clock,
        rules: upstream.rules.clone(),
        rules_met: Arc::clone(&upstream.rules_met),
        metrics: Arc::clone(&gateway.metrics),
        unmatched: Arc::clone(&gateway.unmatched),
        route: plan.route,
        upstream: route.upstream,
        checkout: upstream.config.timeouts.checkout,
        caller_attempt: exchange.caller_attempt.unwrap_or(1),
        margin: gateway.margin(),
        stated: exchange.deadline,
        hosts: upstream.hosts.clone(),
        names: upstream.config.send_deadline.then(|| gateway.config.headers.clone()),
        protocol: upstream.config.protocol,
        grpc: plan.grpc,
        credential: proof.map(|proof| proof.header().clone()),
        progress: Arc::clone(&exchange.progress),
    });
    if plan.upgrades {
        outbound.shared.forbid_hedge();
    }
    let abandon = Abandon { finish: upstream.finishes_abandoned(), outbound: &outbound };
    let called = proof
        .map_or(&upstream.stack, Proof::stack)
        .drive_from(exchange.arrival, call, &shared, abandon, |context| {
            Arc::clone(&outbound).attempt(context)
        })
        .await;
    conclude(&gateway, route, upstream, exchange, called, downstream)
}

/// What is decided about a request before any policy sees it.
struct Plan {
    route: usize,
    target: Uri,
    safety: Safety,
    /// When our answer must leave for a caller that stated a deadline.
    deadline: Option<Timestamp>,
    upgrades: bool,
    grpc: Option<grpc::Outgoing>,
    /// Whose rate it takes from.
    rate_key: Option<RateKey>,
}

impl Plan {
    fn call(&self, route: &Route, lane: usize) -> Call {
        Call {
            lane,
            safety: self.safety,
            owner: route.owns_retries,
            deadline: self.deadline,
            total: route.total,
            rate_key: self.rate_key,
            attempt_timeout: route.attempt,
            retry: route.retry,
            // The stack knows its credential.
            refresh: None,
        }
    }
}

/// How a request is answered that goes no further.
enum Here {
    Problem(ProblemAnswer),
    /// An OPTIONS that was for this hop.
    Options,
    /// Routes take only these methods.
    Method(String),
}

impl From<ProblemAnswer> for Here {
    fn from(problem: ProblemAnswer) -> Self {
        Self::Problem(problem)
    }
}

/// Reads the head, and turns its fields into those that go on.
fn plan(
    gateway: &Gateway,
    parts: &mut http::request::Parts,
    exchange: &mut Exchange,
) -> Result<Plan, Here> {
    let mut ignored = IgnoredHeaders::default();
    let ids = gateway.fields.ids(&mut parts.headers, &mut ignored, &mut seawall::ThreadRng);
    exchange.ids = Some(ids);
    gateway.metrics.ignored_headers(ignored);
    let leaves_at = exchange.connection.drain().in_flight_until;
    if leaves_at <= exchange.arrival {
        exchange.refusal = Some(metrics::Refusal::Draining);
        return Err(ProblemAnswer::draining().into());
    }
    note_client(&mut parts.headers, exchange);
    if let Some(caller) = limited(exchange) {
        exchange.connection.ask(caller).map_err(|refused| {
            exchange.refusal = Some(metrics::Refusal::AddressRate);
            ProblemAnswer::too_many(refused)
        })?;
    }
    let refuse = |exchange: &mut Exchange, refusal| {
        exchange.refusal = Some(match refusal {
            Refusal::TooManyFields => metrics::Refusal::HeadTooLarge,
            _ => metrics::Refusal::BadRequest,
        });
        ProblemAnswer::refused(refusal)
    };
    let authority = Authority::of(parts).map_err(|refusal| refuse(exchange, refusal))?;
    exchange.authority.clone_from(&authority);
    check_framing(&parts.headers, parts.version, gateway.config.limits.head_fields)
        .map_err(|refusal| refuse(exchange, refusal))?;
    check_hops(parts, exchange)?;
    let index = route_of(gateway, parts, authority.as_ref(), exchange)?;
    exchange.route = Some(index);
    let route = &gateway.config.routes[index];
    check_announced(route, &parts.headers).inspect_err(|_| {
        exchange.refusal = Some(metrics::Refusal::BodyTooLarge);
    })?;
    let upstream = &gateway.upstreams[route.upstream];
    let upgrade = upgrade_of(&parts.headers, &parts.method, parts.version)
        .filter(|_| upstream.config.protocol == Protocol::Http1);
    let keyed = is_keyed(&parts.headers);
    let stated = forward_fields(gateway, upstream, parts, exchange, upgrade.as_ref())
        .map_err(|refusal| refuse(exchange, refusal))?;
    route.request_headers.apply(&mut parts.headers);
    exchange.deadline = earlier(
        read_deadline(gateway, exchange, &stated),
        grpc::read_timeout(gateway, exchange, &stated),
    );
    let deadline = exchange.deadline.unwrap_or(Timestamp::MAX).min(leaves_at);
    let deadline = (deadline != Timestamp::MAX).then_some(deadline);
    let safety = match route.idempotent {
        true => Safety::Idempotent,
        false => Safety::of_method(parts.method.as_str(), keyed),
    };
    let grpc = exchange.grpc.as_ref();
    let grpc = grpc.map(|call| grpc::Outgoing::new(route.grpc, call.deadline));
    let peer = exchange.client.unwrap_or_else(|| exchange.connection.peer().ip());
    let rate_key = rate_key(&upstream.stack, &upstream.config, &parts.headers, peer);
    Ok(Plan {
        route: index,
        target: target(&parts.uri, authority, route, upstream, &mut parts.headers),
        safety: grpc.as_ref().map_or(safety, |grpc| grpc::safety(safety, &grpc.rules)),
        deadline,
        upgrades: upgrade.is_some(),
        grpc,
        rate_key,
    })
}

/// Whose share of requests it takes from: a peer that is trusted speaks for many, and may say for
/// whom.
fn limited(exchange: &Exchange) -> Option<IpAddr> {
    match exchange.connection.peer() {
        Peer::Tcp(peer) if !exchange.connection.is_trusted() => Some(peer.ip()),
        Peer::Tcp(_) | Peer::Unix => exchange.client,
    }
}

/// The route of a request, or the answer to one that has none.
fn route_of(
    gateway: &Gateway,
    parts: &http::request::Parts,
    authority: Option<&Authority>,
    exchange: &mut Exchange,
) -> Result<usize, Here> {
    let host = authority.map_or("", Authority::host);
    let (path, fields) = (parts.uri.path(), &parts.headers);
    let found = gateway.routes.find(host, path, &parts.method, fields);
    exchange.refusal = match found {
        Ok(Found::Route(index)) => return Ok(index),
        Ok(_) => Some(metrics::Refusal::NoRoute),
        Err(_) => Some(metrics::Refusal::BadRequest),
    };
    Err(match found {
        Ok(Found::OtherMethods) => {
            let methods = gateway.routes.methods(host, path, fields);
            let methods: Vec<_> = methods.into_iter().map(Method::as_str).collect();
            Here::Method(methods.join(", "))
        }
        Ok(_) => {
            let detail = "no route matches host and path";
            ProblemAnswer::downstream(StatusCode::NOT_FOUND, "no-route", detail).into()
        }
        Err(_) => {
            let detail = "the path can be read in two ways";
            ProblemAnswer::downstream(StatusCode::BAD_REQUEST, "ambiguous-path", detail).into()
        }
    })
}

/// Answers here what may go no further: OPTIONS with what can be asked, TRACE with a refusal,
/// because what it would reflect may hold what the caller's page must not read.
fn check_hops(parts: &mut http::request::Parts, exchange: &mut Exchange) -> Result<(), Here> {
    if count_hop(&parts.method, &mut parts.headers) {
        return Ok(());
    }
    if parts.method == Method::OPTIONS {
        return Err(Here::Options);
    }
    exchange.refusal = Some(metrics::Refusal::BadRequest);
    let detail = "a TRACE is not reflected here";
    Err(ProblemAnswer::downstream(StatusCode::METHOD_NOT_ALLOWED, "trace-not-reflected", detail)
        .into())
}

/// Rewrites the fields for the upstream and reads what the peer may state.
fn forward_fields(
    gateway: &Gateway,
    upstream: &Upstream,
    parts: &mut http::request::Parts,
    exchange: &mut Exchange,
    upgrade: Option<&HeaderValue>,
) -> Result<Stated, Refusal> {
    let listener = exchange.connection.listener();
    let peer = exchange.connection.peer().ip();
    let inbound = Inbound {
        version: parts.version,
        onward: match upstream.config.protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::H2c => Version::HTTP_2,
        },
        peer,
        secure: exchange.connection.tls().is_some(),
        trusted: exchange.connection.is_trusted(),
        trusted_for_deadline: trusts_deadline(gateway, listener, peer),
        authority: exchange.authority.as_ref(),
        grpc: exchange.grpc.is_some(),
        upgrade,
    };
    let stated = gateway.fields.to_upstream(&mut parts.headers, &inbound)?;
    gateway.metrics.ignored_headers(stated.ignored);
    exchange.caller_attempt = stated.attempt.as_ref().and_then(|value| {
        let ignore = |because| gateway.metrics.ignored_header(IgnoredHeader::Attempt, because);
        read_attempt(value).map_err(ignore).ok()
    });
    let by_grpc = grpc::read_attempt(gateway, &stated);
    exchange.caller_attempt = exchange.caller_attempt.max(by_grpc);
    gateway.metrics.caller_attempt(listener, exchange.caller_attempt.unwrap_or(1));
    Ok(stated)
}

fn trusts_deadline(gateway: &Gateway, listener: usize, peer: IpAddr) -> bool {
    let loopback = peer.to_canonical().is_loopback();
    let listener = gateway.listener(listener);
    loopback && listener.is_some_and(|listener| listener.trust_loopback_deadline)
}

/// Attempt numbers beyond a thousand are a mistake, not a count.
fn read_attempt(value: &HeaderValue) -> Result<u32, IgnoredBecause> {
    let number = value.to_str().ok().and_then(|value| value.trim().parse().ok());
    let number = number.ok_or(IgnoredBecause::Malformed)?;
    (1..=1000).contains(&number).then_some(number).ok_or(IgnoredBecause::OutOfRange)
}

/// The stated deadline as the time at which our answer must leave.
fn read_deadline(gateway: &Gateway, exchange: &Exchange, stated: &Stated) -> Option<Timestamp> {
    let value = stated.remaining.as_ref()?;
    let Some(remaining) = parse_remaining(value.as_bytes()) else {
        gateway.metrics.ignored_header(IgnoredHeader::Remaining, IgnoredBecause::Malformed);
        return None;
    };
    Some(exchange.arrival.after(remaining.saturating_sub(gateway.margin())))
}

/// The earlier of two times, if any was stated.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Refuses a body that announces to be larger than its route allows; one that does not announce
/// its length is counted while it flows.
fn check_announced(route: &Route, headers: &HeaderMap) -> Result<(), ProblemAnswer> {
    let announced = headers.get(http::header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match (route.max_body, announced) {
        (Some(max), Some(length)) if length > max => Err(ProblemAnswer::too_large()),
        _ => Ok(()),
    }
}

/// Whether the request carries one non-empty `Idempotency-Key`, which is passed byte for byte.
fn is_keyed(headers: &HeaderMap) -> bool {
    let key = has(headers, &IDEMPOTENCY_KEY).then(|| headers.get(IDEMPOTENCY_KEY)).flatten();
    key.is_some_and(|key| !key.as_bytes().trim_ascii().is_empty())
}

/// The target as it goes on: origin form on HTTP/1.1, with scheme and authority on HTTP/2. A
/// request of HTTP/1.0 that named nobody is for the upstream's first endpoint.
fn target(
    uri: &Uri,
    authority: Option<Authority>,
    route: &Route,
    upstream: &Upstream,
    headers: &mut HeaderMap,
) -> Uri {
    let named = match &upstream.config.host_header {
        HostHeader::Named(host) => {
            headers.remove(HOST);
            Some(host.clone())
        }
        // With `endpoint`, each attempt says its own.
        _ => authority.map(|authority| authority.value().clone()),
    };
    let named = named.or_else(|| HeaderValue::from_str(upstream.host_name()).ok());
    let mut onward = http::uri::Parts::default();
    onward.path_and_query = uri.path_and_query().map(|target| match &route.rewrite {
        None => target.clone(),
        Some(to) => rewritten(target, &route.path, to),
    });
    match (upstream.config.protocol, named) {
        (Protocol::H2c, Some(named)) => {
            onward.authority = named.as_bytes().try_into().ok();
            let scheme = match upstream.config.tls {
                None => http::uri::Scheme::HTTP,
                Some(_) => http::uri::Scheme::HTTPS,
            };
            onward.scheme = onward.authority.is_some().then_some(scheme);
        }
        (Protocol::Http1, Some(named)) => {
            headers.entry(HOST).or_insert(named);
        }
        (_, None) => {}
    }
    Uri::from_parts(onward).unwrap_or_else(|_| Uri::from_static("/"))
}

/// A request that owns the upgrade of `parts`, for hyper's way to ask for it.
fn upgradable(parts: &mut http::request::Parts) -> Request<()> {
    let mut request = Request::new(());
    std::mem::swap(request.extensions_mut(), &mut parts.extensions);
    request
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
