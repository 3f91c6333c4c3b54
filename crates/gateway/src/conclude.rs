//! From a finished call to its answer: the upstream's while it flows, one that was kept, the
//! route's fallback, or a problem of ours.
//!
//! A stream without an end moves out of the bulkhead at its head, and an upgrade becomes a tunnel.

use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version};
use seawall::{Answer as _, Called, GrpcStatusRead, SlotGuard, read_grpc_status};
use seawall_policy::{Done, StopReason};

use crate::access_log::Completion;
use crate::answer::{
    ProblemAnswer, completion_of, degraded, fallback_of, jitter_retry_after, refusal_of,
};
use crate::body::Body;
use crate::config::{GrpcStreaming, Route};
use crate::exchange::Exchange;
use crate::gateway::{Gateway, Upstream};
use crate::grpc;
use crate::headers::Answered;
use crate::metrics::{self, Stage};
use crate::outbound::{Attempted, Reply};
use crate::quota::Quota;
use crate::upgrade;
use crate::upload::UploadError;
use crate::upstream::UpstreamBody;

/// Makes the answer of a finished call.
pub(crate) fn conclude(
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
    if let Some(answer) = value.as_ref().filter(|value| !matches!(value.reply, Reply::None)) {
        exchange.progress.answer(answer.place, answer.endpoint);
    }
    count(gateway, route, &exchange, &done);
    // A fallback is an HTTP answer, which a gRPC caller cannot read.
    if let Some(fallback) = fallback_of(route, &done).filter(|_| exchange.grpc.is_none()) {
        read_aside(value, slot);
        return degraded(fallback, &done, exchange);
    }
    let value = match grpc_stand_in(value, exchange.grpc.is_some()) {
        Ok(value) => value,
        Err(status) => {
            let stop = route.owns_retries && done.stop.says_stop(&done.outcome);
            return grpc::not_grpc(status, &done, stop, exchange);
        }
    };
    match value.map(|value| value.reply) {
        Some(Reply::Flowing(response)) => {
            flowing(gateway, route, upstream, exchange, response, slot, &done, downstream)
        }
        Some(Reply::Kept(response)) => {
            let (mut parts, body) = response.into_parts();
            finish_fields(gateway, route, &mut exchange, &mut parts, &done);
            exchange.status = parts.status.as_u16();
            Response::from_parts(parts, Body::full(body, exchange))
        }
        Some(Reply::None) | None => broken(route, upstream, exchange, &done),
    }
}

/// The status of an HTTP answer that no gRPC caller could read, in whose place one is made.
fn grpc_stand_in(value: Option<Attempted>, is_grpc: bool) -> Result<Option<Attempted>, StatusCode> {
    let is_readable = |reply: &Reply| match reply {
        Reply::Flowing(response) => {
            grpc::is_answer(response).then_some(()).ok_or(response.status())
        }
        Reply::Kept(response) => grpc::is_answer(response).then_some(()).ok_or(response.status()),
        Reply::None => Ok(()),
    };
    if let (true, Some(value)) = (is_grpc, &value) {
        is_readable(&value.reply)?;
    }
    Ok(value)
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
    exchange: &mut Exchange,
    parts: &mut http::response::Parts,
    done: &Done,
) {
    if !route.retry_after_verbatim {
        jitter_retry_after(&mut parts.headers, &done.outcome);
    }
    let stop = route.owns_retries && done.stop.says_stop(&done.outcome);
    let answered = Answered {
        version: Some(parts.version),
        switches: parts.status == StatusCode::SWITCHING_PROTOCOLS,
        attempts: done.attempts,
        stop,
        request_id: &exchange.request_id(),
    };
    gateway.fields.to_downstream(&mut parts.headers, &answered);
    if let Some(call) = &mut exchange.grpc {
        call.code = read_grpc_status(&parts.headers).and_then(GrpcStatusRead::known);
        if stop {
            grpc::stop_answer(&mut parts.headers);
        }
    }
    route.response_headers.apply(&mut parts.headers);
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
    let grpc = exchange.grpc.as_ref().filter(|_| done.outcome.awaits_status());
    let grpc = grpc.map(|call| grpc::Outgoing::new(route.grpc, call.deadline));
    let streams = grpc.is_some() && route.grpc.streaming == GrpcStreaming::Always;
    if switches || streams || is_event_stream(response.headers()) {
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
    finish_fields(gateway, route, &mut exchange, &mut parts, done);
    exchange.status = parts.status.as_u16();
    if let (Some(downstream), Some(onward)) = (downstream, onward) {
        let is_websocket = parts
            .headers
            .get(UPGRADE)
            .is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let idle = upstream.config.timeouts.idle;
        upgrade::spawn(downstream, onward, slot, exchange, (idle, is_websocket));
        return Response::from_parts(parts, Body::empty());
    }
    let timeouts = &upstream.config.timeouts;
    let grpc = grpc.map(|call| Box::new(grpc::Flow::new(call, exchange.upload.clone())));
    let body = Body::upstream(body, slot, timeouts.idle, timeouts.body, grpc, exchange);
    Response::from_parts(parts, body)
}

/// Server-sent events flow for as long as the caller listens.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}

/// A call that gave no answer of the upstream.
fn broken(
    route: &Route,
    upstream: &Upstream,
    mut exchange: Box<Exchange>,
    done: &Done,
) -> Response<Body> {
    exchange.completion = Some(completion_of(done));
    let upload = exchange.upload.as_ref().and_then(|upload| upload.broken());
    match upload {
        Some(UploadError::TooLarge) => {
            exchange.refusal = Some(metrics::Refusal::BodyTooLarge);
            exchange.completion = Some(Completion::Refused);
            ProblemAnswer::too_large().answer(exchange)
        }
        Some(UploadError::Stalled) => {
            exchange.completion = Some(Completion::Timeout);
            let detail = "the request body stalled";
            let status = StatusCode::REQUEST_TIMEOUT;
            ProblemAnswer::downstream(status, "upload-stalled", detail).answer(exchange)
        }
        _ => {
            let quota = Quota::of_call(&upstream.config, done);
            let problem = ProblemAnswer::of_call(done, route.owns_retries);
            ProblemAnswer { quota, ..problem }.answer(exchange)
        }
    }
}
