//! What is known of one request, from its head to the end of its answer.
//!
//! Made when a head came in, it goes along by `&mut`, moves into the answer's body, and when that
//! is dropped it becomes the access log line and the counts. So every request leaves exactly one
//! line, also one whose caller left.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Uri, Version};
use seawall_policy::{Cause, Done, GrpcCode, StopReason, Timestamp};

use crate::access_log::{AccessLine, Completion};
use crate::authority::Authority;
use crate::gateway::Gateway;
use crate::grpc::{self, GrpcCall};
use crate::headers::Ids;
use crate::metrics::{Refusal, Stage};
use crate::progress::Progress;
use crate::server::ConnInfo;
use crate::upload::Upload;

/// One request and its answer.
pub(crate) struct Exchange {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) connection: ConnInfo,
    pub(crate) arrival: Timestamp,
    pub(crate) time_unix_ms: u64,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// What is known of it as a gRPC call, if it is one.
    pub(crate) grpc: Option<GrpcCall>,
    pub(crate) version: Version,
    pub(crate) authority: Option<Authority>,
    /// Who it is from, where a trusted proxy said so.
    pub(crate) client: Option<IpAddr>,
    pub(crate) ids: Option<Ids>,
    pub(crate) route: Option<usize>,
    pub(crate) progress: Arc<Progress>,
    /// Whether a call was begun for it.
    pub(crate) called: bool,
    pub(crate) upload: Option<Arc<Upload>>,
    pub(crate) caller_attempt: Option<u32>,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) done: Option<Done>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) queued: Duration,
    /// When the last attempt was granted.
    pub(crate) granted: Option<Timestamp>,
    /// When the answer's head was ready.
    pub(crate) head: Option<Timestamp>,
    /// When the answer's body ended, if that is known; else it is now.
    pub(crate) ended: Option<Timestamp>,
    /// 0 until there is an answer.
    pub(crate) status: u16,
    pub(crate) degraded: bool,
    pub(crate) bytes_out: u64,
    /// Bytes that an upgraded connection carried to the upstream.
    pub(crate) tunnelled_in: u64,
    /// How it ended, once that is known; else its caller left, or the end of a drain cut it.
    pub(crate) completion: Option<Completion>,
}

impl Exchange {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        connection: ConnInfo,
        parts: &http::request::Parts,
    ) -> Box<Self> {
        let arrival = connection.arrival();
        gateway.live.begin();
        Box::new(Self {
            time_unix_ms: gateway.calendar.unix_millis(arrival),
            gateway,
            connection,
            arrival,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            grpc: grpc::is_call(parts).then(GrpcCall::default),
            version: parts.version,
            authority: None,
            client: None,
            ids: None,
            route: None,
            progress: Arc::default(),
            called: false,
            upload: None,
            caller_attempt: None,
            deadline: None,
            done: None,
            refusal: None,
            queued: Duration::ZERO,
            granted: None,
            head: None,
            ended: None,
            status: 0,
            degraded: false,
            bytes_out: 0,
            tunnelled_in: 0,
            completion: None,
        })
    }

    /// The id that the answer carries; empty only before the head was read.
    pub(crate) fn request_id(&self) -> HeaderValue {
        self.ids.as_ref().map_or_else(|| HeaderValue::from_static("-"), |ids| ids.request.clone())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway.clock.now()
    }

    fn cause(&self) -> Option<Cause> {
        let left = self.left_meanwhile().then_some(Cause::CallerLeft);
        let settled = self.grpc.as_ref().and_then(|call| call.settled);
        settled
            .or(self.done.map(|done| done.outcome))
            .map(|outcome| outcome.cause())
            .filter(|cause| *cause != Cause::Answered)
            .or(left)
    }

    /// Why its call ended, if there was one.
    fn stop_reason(&self) -> Option<StopReason> {
        let left = self.left_meanwhile().then_some(StopReason::CallerLeft);
        self.done.map(|done| done.stop).or(left)
    }

    /// Whether the caller left while the call ran.
    fn left_meanwhile(&self) -> bool {
        self.done.is_none() && self.called && self.completion != Some(Completion::Drained)
    }

    /// Where the last attempt went.
    fn endpoint(&self) -> Option<Arc<str>> {
        let route = self.gateway.config.routes.get(self.route?)?;
        let upstream = self.gateway.upstreams.get(route.upstream)?;
        upstream.endpoint_name(self.progress.endpoint()?)
    }

    fn line<'a>(&'a self, ended: Timestamp, endpoint: Option<&'a str>) -> AccessLine<'a> {
        let route = self.route.and_then(|route| self.gateway.config.routes.get(route));
        let upstream = route.and_then(|route| self.gateway.upstreams.get(route.upstream));
        let ids = self.ids.as_ref();
        let trace = ids.and_then(|ids| ids.trace.as_ref());
        AccessLine {
            time_unix_ms: self.time_unix_ms,
            request_id: ids.map_or(b"-", |ids| ids.request.as_bytes()),
            correlation_id: ids.and_then(|ids| ids.correlation.as_ref()).map(|id| id.as_bytes()),
            trace_id: trace.map(|trace| trace.trace_id().as_bytes()),
            span_id: trace.map(|trace| trace.span_id().as_bytes()),
            peer: self.connection.peer(),
            client: self.client,
            method: self.method.as_str().as_bytes(),
            host: self.authority.as_ref().map(|authority| authority.value().as_bytes()),
            path: self.uri.path().as_bytes(),
            protocol: protocol(self.version),
            status: self.status,
            grpc_status: self.grpc.as_ref().and_then(|call| call.code).map(GrpcCode::number),
            route: route.map(|route| route.name.as_str()),
            upstream: upstream.map(|upstream| upstream.config.name.as_str()),
            endpoint,
            attempts: self.done.map_or_else(|| self.progress.attempts(), |done| done.attempts),
            redispatches: self.done.map_or(0, |done| done.redispatches),
            hedges: self.progress.hedges(),
            caller_attempt: self.caller_attempt,
            stop_reason: self.stop_reason(),
            cause: self.cause(),
            refusal: self.refusal,
            queue_wait: self.queued.saturating_add(self.progress.waited()),
            execution: self.progress.sent().map_or(Duration::ZERO, |sent| ended.since(sent)),
            total: ended.since(self.arrival),
            configured_timeout: route.map(|route| {
                let own = upstream.map(|upstream| upstream.config.timeouts.total);
                route.total.or(own).unwrap_or_default()
            }),
            remaining_budget: self.deadline.map(|deadline| ended.until(deadline)),
            completion: self.completion.unwrap_or(Completion::CallerLeft),
            degraded: self.degraded,
            bytes_in: self.upload.as_ref().map_or(self.tunnelled_in, |upload| upload.seen()),
            bytes_out: self.bytes_out,
        }
    }

    fn count(&self, ended: Timestamp) {
        let metrics = &self.gateway.metrics;
        metrics.request(self.route, self.status);
        if let Some(call) = &self.grpc {
            metrics.grpc_response(self.route, call.code);
        }
        metrics.stage(self.route, Stage::Total, ended.since(self.arrival));
        if let Some(reason) = self.refusal {
            metrics.refused(self.route, reason);
        }
        let Some(route) = self.route else { return };
        if let Some(head) = self.head {
            metrics.stage(Some(route), Stage::Body, ended.since(head));
        }
        if self.degraded {
            metrics.degraded(route);
        }
        if let Some(stop) = self.stop_reason() {
            metrics.stopped(route, stop);
        }
        self.count_rest(route);
    }
}

impl Exchange {
    /// Counts the attempts that were sent and did not end: they were cut with their call, or
    /// another one answered first. One that runs on without its caller counts when it ends; one
    /// whose status came after its head counts here, by that status.
    fn count_rest(&self, route: usize) {
        let rest = self.progress.count_rest(!self.left_meanwhile());
        let others = match self.done.map(|done| done.outcome.cause()) {
            Some(Cause::Status(_) | Cause::Answered | Cause::Grpc(_)) => Some(Cause::Outrun),
            _ => self.cause(),
        };
        let index = self.gateway.config.routes[route].upstream;
        let count = |cause: Option<Cause>| {
            if let Some(cause) = cause {
                self.gateway.metrics.outcome(index, cause.class(), cause);
            }
        };
        if rest.has_answered {
            count(self.cause());
        }
        (0..rest.others).for_each(|_| count(others));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // What is dropped without an end in the last phase of a drain was cut by it.
        let untold =
            if self.connection.is_closing() { Completion::Drained } else { Completion::CallerLeft };
        self.completion.get_or_insert(untold);
        let ended = self.ended.unwrap_or_else(|| self.now());
        self.connection.note_end(ended);
        self.count(ended);
        let endpoint = self.endpoint();
        self.gateway.access_log.log(&self.line(ended, endpoint.as_deref()));
        self.gateway.live.end();
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .field("uri", &self.uri)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
