//! What happens to one request: read its head, find its route, call its upstream, answer.
//!
//! ```text
//! head in ─▶ authority, framing ─▶ route ─▶ fields, stated deadline ─▶ Stack::drive ─▶ answer
//!               400 405 417 431     400 404        508 504                  │
//!                                                           per attempt: checkout ─▶ send
//! ```
//!
//! The clock is read when the head comes in, by the driver at each event, and when the answer
//! leaves. Decisions are the policy's; this file only carries.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use seawall::{Answer as _, CallShared, Called, SlotGuard};
use seawall_policy::{Call, Done, Safety, StopReason, Timestamp, parse_remaining};

use crate::access_log::Completion;
use crate::answer::{
    ProblemAnswer, completion_of, degraded, fallback_of, jitter_retry_after, refusal_of,
};
use crate::authority::Authority;
use crate::body::Body;
use crate::config::{Protocol, Route};
use crate::exchange::Exchange;
use crate::gateway::{Gateway, Upstream};
use crate::headers::{Answered, Inbound, Stated, check_framing, upgrade_of};
use crate::metrics::{self, IgnoredBecause, IgnoredHeader, IgnoredHeaders, Stage};
use crate::outbound::{Abandon, Attempted, Kind, Outbound, Reply};
use crate::refusal::Refusal;
use crate::server::ConnInfo;
use crate::upgrade;
use crate::upload::{Upload, UploadError, UploadLimits};
use crate::upstream::UpstreamBody;

/// Answers one request.
pub(crate) async fn handle_request(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
    connection: ConnInfo,
) -> Response<Body> {
    let arrival = gateway.clock.now();
    let (mut parts, incoming) = request.into_parts();
    let mut exchange = Exchange::new(Arc::clone(&gateway), connection, arrival, &parts);
    let plan = match plan(&gateway, &mut parts, &mut exchange) {
        Ok(plan) => plan,
        Err(problem) => return problem.answer(exchange),
    };
    let route = &gateway.config.routes[plan.route];
    let upstream = &gateway.upstreams[route.upstream];
    let shared = CallShared::new();
    let limits = UploadLimits {
        replay: gateway.config.limits.replay_bytes,
        max: route.max_body,
        idle: upstream.config.timeouts.idle,
    };
    exchange.upload = Upload::new(incoming, Arc::clone(&shared), gateway.clock, limits);
    exchange.called = true;
    let downstream = plan.upgrades.then(|| hyper::upgrade::on(upgradable(&mut parts)));
    let call = Call {
        lane: route.lane,
        safety: plan.safety,
        owner: route.owns_retries,
        deadline: plan.deadline,
        total: route.total,
    };
    let outbound = Arc::new(Outbound {
        method: parts.method,
        uri: plan.target,
        headers: parts.headers,
        upload: exchange.upload.clone(),
        shared: Arc::clone(&shared),
        pool: upstream.pool.clone(),
        clock: gateway.clock,
        rules: gateway.rules,
        metrics: Arc::clone(&gateway.metrics),
        route: plan.route,
        upstream: route.upstream,
        checkout: upstream.config.timeouts.checkout,
        caller_attempt: exchange.caller_attempt.unwrap_or(1),
        names: upstream.config.send_deadline.then(|| gateway.config.headers.clone()),
        protocol: upstream.config.protocol,
        progress: Arc::clone(&exchange.progress),
    });
    let abandon =
        Abandon { finish: upstream.finishes_abandoned(), upload: outbound.upload.as_deref() };
    let mut last = 0;
    let called = upstream
        .stack
        .drive(call, shared, abandon, |context| {
            let kind = match context.number() {
                number if number == std::mem::replace(&mut last, number) => Kind::Redispatch,
                1 => Kind::First,
                _ => Kind::Retry,
            };
            Arc::clone(&outbound).attempt(context, kind)
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
}

/// Reads the head, and turns its fields into those that go on.
fn plan(
    gateway: &Gateway,
    parts: &mut http::request::Parts,
    exchange: &mut Exchange,
) -> Result<Plan, ProblemAnswer> {
    let mut ignored = IgnoredHeaders::default();
    let ids = gateway.fields.ids(&mut parts.headers, &mut ignored, &mut seawall::ThreadRng);
    exchange.ids = Some(ids);
    gateway.metrics.ignored_headers(ignored);
    let leaves_at = exchange.connection.drain().in_flight_until;
    if leaves_at <= exchange.arrival {
        exchange.refusal = Some(metrics::Refusal::Draining);
        return Err(ProblemAnswer::draining());
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
    let host = authority.as_ref().map_or("", Authority::host);
    let found = gateway.routes.find(host, parts.uri.path());
    let index = found
        .map_err(|_| {
            exchange.refusal = Some(metrics::Refusal::BadRequest);
            let detail = "the path can be read in two ways";
            ProblemAnswer::downstream(StatusCode::BAD_REQUEST, "ambiguous-path", detail)
        })?
        .ok_or_else(|| {
            exchange.refusal = Some(metrics::Refusal::NoRoute);
            let detail = "no route matches host and path";
            ProblemAnswer::downstream(StatusCode::NOT_FOUND, "no-route", detail)
        })?;
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
    exchange.deadline = read_deadline(gateway, exchange, &stated);
    let deadline = exchange.deadline.unwrap_or(Timestamp::MAX).min(leaves_at);
    let deadline = (deadline != Timestamp::MAX).then_some(deadline);
    Ok(Plan {
        route: index,
        target: target(&parts.uri, authority, upstream, &mut parts.headers),
        safety: Safety::of_method(parts.method.as_str(), keyed),
        deadline,
        upgrades: upgrade.is_some(),
    })
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
        trusted: exchange.connection.is_trusted(),
        trusted_for_deadline: trusts_deadline(gateway, listener, peer),
        authority: exchange.authority.as_ref(),
        upgrade,
    };
    let stated = gateway.fields.to_upstream(&mut parts.headers, &inbound)?;
    gateway.metrics.ignored_headers(stated.ignored);
    exchange.caller_attempt = stated.attempt.as_ref().and_then(|value| {
        let ignore = |because| gateway.metrics.ignored_header(IgnoredHeader::Attempt, because);
        read_attempt(value).map_err(ignore).ok()
    });
    gateway.metrics.caller_attempt(listener, exchange.caller_attempt.unwrap_or(1));
    Ok(stated)
}

fn trusts_deadline(gateway: &Gateway, listener: usize, peer: IpAddr) -> bool {
    let loopback = peer.to_canonical().is_loopback();
    let listener = gateway.config.listeners.get(listener);
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

/// Refuses a body that announces to be larger than its route allows; one that does not announce
/// its length is counted while it flows.
fn check_announced(route: &Route, headers: &HeaderMap) -> Result<(), ProblemAnswer> {
    let announced = headers.get(http::header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match (route.max_body, announced) {
        (Some(max), Some(length)) if length > max => Err(too_large()),
        _ => Ok(()),
    }
}

const fn too_large() -> ProblemAnswer {
    ProblemAnswer::downstream(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body-too-large",
        "the request body is larger than its route allows",
    )
}

/// Whether the request carries one non-empty `Idempotency-Key`, which is passed byte for byte.
fn is_keyed(headers: &HeaderMap) -> bool {
    headers.get("idempotency-key").is_some_and(|key| !key.as_bytes().trim_ascii().is_empty())
}

/// The target as it goes on: origin form on HTTP/1.1, with scheme and authority on HTTP/2. A
/// request of HTTP/1.0 that named nobody is for the upstream's first endpoint.
fn target(
    uri: &Uri,
    authority: Option<Authority>,
    upstream: &Upstream,
    headers: &mut HeaderMap,
) -> Uri {
    let named = authority.map(|authority| authority.value().clone());
    let named = named.or_else(|| HeaderValue::from_str(upstream.endpoint_names.first()?).ok());
    let mut onward = http::uri::Parts::default();
    onward.path_and_query = uri.path_and_query().cloned();
    match (upstream.config.protocol, named) {
        (Protocol::H2c, Some(named)) => {
            onward.authority = named.as_bytes().try_into().ok();
            onward.scheme = onward.authority.is_some().then_some(http::uri::Scheme::HTTP);
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

/// Makes the answer of a finished call.
fn conclude(
    gateway: &Gateway,
    route: &Route,
    upstream: &Upstream,
    mut exchange: Box<Exchange>,
    called: Called<Attempted>,
    downstream: Option<hyper::upgrade::OnUpgrade>,
) -> Response<Body> {
    let Called { value, done, slot, granted, queued, ended } = called;
    exchange.done = Some(done);
    exchange.granted = granted;
    exchange.queued = queued;
    exchange.head = Some(ended);
    exchange.refusal = refusal_of(&done);
    count(gateway, route, &exchange, &done);
    if let Some(fallback) = fallback_of(route, &done) {
        read_aside(value, slot);
        return degraded(fallback, &done, exchange);
    }
    match value.map(|value| value.reply) {
        Some(Reply::Flowing(response)) => {
            flowing(gateway, route, upstream, exchange, response, slot, &done, downstream)
        }
        Some(Reply::Kept(response)) => {
            let (mut parts, body) = response.into_parts();
            finish_fields(gateway, route, &exchange, &mut parts, &done);
            exchange.status = parts.status.as_u16();
            Response::from_parts(parts, Body::full(body, exchange))
        }
        Some(Reply::None) | None => broken(route, exchange, &done),
    }
}

/// Reads an answer that a fallback stands in for to its end, so that its connection can be used
/// again. It holds its slot meanwhile.
fn read_aside(value: Option<Attempted>, slot: Option<SlotGuard>) {
    if let Some(answer) = value.filter(|value| matches!(value.reply, Reply::Flowing(_))) {
        tokio::spawn(async move {
            answer.run_on().await;
            drop(slot);
        });
    }
}

fn count(gateway: &Gateway, route: &Route, exchange: &Exchange, done: &Done) {
    let metrics = &gateway.metrics;
    let Some(index) = exchange.route else { return };
    metrics.bulkhead_wait(route.upstream, exchange.queued);
    metrics.stage(Some(index), Stage::Queue, exchange.queued);
    if let (Some(granted), Some(head)) = (exchange.granted, exchange.head) {
        metrics.stage(Some(index), Stage::UpstreamHead, head.since(granted));
    }
    if done.stop == StopReason::Deadline && done.attempts == 0 {
        metrics.deadline_before_send(index);
    }
    if done.stop == StopReason::Deadline
        && let (Some(deadline), Some(head)) = (exchange.deadline, exchange.head)
    {
        gateway.record_lateness(head.since(deadline));
    }
}

/// The fields of an upstream's answer, as they go to the caller.
fn finish_fields(
    gateway: &Gateway,
    route: &Route,
    exchange: &Exchange,
    parts: &mut http::response::Parts,
    done: &Done,
) {
    if !route.retry_after_verbatim {
        jitter_retry_after(&mut parts.headers, &done.outcome);
    }
    let answered = Answered {
        version: Some(parts.version),
        switches: parts.status == StatusCode::SWITCHING_PROTOCOLS,
        attempts: done.attempts,
        stop: route.owns_retries && done.stop.says_stop(&done.outcome),
        request_id: &exchange.request_id(),
    };
    gateway.fields.to_downstream(&mut parts.headers, &answered);
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
}

/// Passes an answer on while it flows; a stream without an end moves out of the bulkhead.
#[expect(clippy::too_many_arguments, reason = "one call site, each of another kind")]
fn flowing(
    gateway: &Gateway,
    route: &Route,
    upstream: &Upstream,
    mut exchange: Box<Exchange>,
    mut response: Response<UpstreamBody>,
    mut slot: Option<SlotGuard>,
    done: &Done,
    downstream: Option<hyper::upgrade::OnUpgrade>,
) -> Response<Body> {
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switches && downstream.is_none() {
        exchange.completion = Some(Completion::UpstreamBroke);
        let detail = "the upstream switched protocols without being asked";
        let code = "unasked-upgrade";
        let problem = ProblemAnswer {
            source: "upstream",
            maybe_sent: true,
            attempts: done.attempts,
            ..ProblemAnswer::downstream(StatusCode::BAD_GATEWAY, code, detail)
        };
        return problem.answer(exchange);
    }
    if switches || is_event_stream(response.headers()) {
        let moved = slot.as_mut().map_or(Ok(()), SlotGuard::to_stream);
        if moved.is_err() {
            exchange.refusal = Some(metrics::Refusal::StreamsFull);
            let detail = "as many streams as allowed are open";
            let problem = ProblemAnswer {
                source: "internal",
                maybe_sent: true,
                retry_after: Some(1),
                attempts: done.attempts,
                ..ProblemAnswer::downstream(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail)
            };
            return problem.answer(exchange);
        }
        response.body_mut().leave_pool();
    }
    let onward = switches.then(|| hyper::upgrade::on(&mut response));
    let (mut parts, body) = response.into_parts();
    finish_fields(gateway, route, &exchange, &mut parts, done);
    exchange.status = parts.status.as_u16();
    if let (Some(downstream), Some(onward)) = (downstream, onward) {
        upgrade::spawn(downstream, onward, slot, exchange, upstream.config.timeouts.idle);
        return Response::from_parts(parts, Body::empty());
    }
    let timeouts = &upstream.config.timeouts;
    let body = Body::upstream(body, slot, timeouts.idle, timeouts.body, exchange);
    Response::from_parts(parts, body)
}

/// Server-sent events flow for as long as the caller listens.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// A call that gave no answer of the upstream.
fn broken(route: &Route, mut exchange: Box<Exchange>, done: &Done) -> Response<Body> {
    exchange.completion = Some(completion_of(done));
    let upload = exchange.upload.as_ref().and_then(|upload| upload.broken());
    match upload {
        Some(UploadError::TooLarge) => {
            exchange.refusal = Some(metrics::Refusal::BodyTooLarge);
            exchange.completion = Some(Completion::Refused);
            too_large().answer(exchange)
        }
        Some(UploadError::Stalled) => {
            exchange.completion = Some(Completion::Timeout);
            let detail = "the request body stalled";
            let status = StatusCode::REQUEST_TIMEOUT;
            ProblemAnswer::downstream(status, "upload-stalled", detail).answer(exchange)
        }
        _ => ProblemAnswer::of_call(done, route.owns_retries).answer(exchange),
    }
}
