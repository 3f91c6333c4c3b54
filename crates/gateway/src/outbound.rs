//! One attempt: a connection from the pool, the request on it, and what the answer means.

mod request;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use seawall::{Answer, AttemptContext, CallShared, Clock, HttpClassify, OnAbandon};
use seawall_policy::{Cause, Outcome, Purpose, RetryAfter, Timestamp};
use tokio::time::timeout;

use crate::config::{HeaderNames, Protocol};
use crate::gateway::Places;
use crate::grpc::Outgoing;
use crate::metrics::{IgnoredBecause, IgnoredHeader, Metrics, Stage};
use crate::progress::Progress;
use crate::unmatched::Unmatched;
use crate::upload::{RequestBody, Upload};
use crate::upstream::{Lease, Pool, SendError, UpstreamBody, Wanted};

/// A request as every attempt of its call sends it.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) upload: Option<Arc<Upload>>,
    pub(crate) shared: Arc<CallShared>,
    pub(crate) pool: Pool<RequestBody>,
    pub(crate) clock: Clock,
    pub(crate) rules: HttpClassify,
    /// How often each rule of the upstream decided.
    pub(crate) rules_met: Arc<[AtomicU64]>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) unmatched: Arc<Unmatched>,
    pub(crate) route: usize,
    pub(crate) upstream: usize,
    pub(crate) checkout: Duration,
    /// The attempt number the caller stated, if it may.
    pub(crate) caller_attempt: u32,
    /// What is kept back of a time limit of ours for the answer's way to the caller.
    pub(crate) margin: Duration,
    /// When our answer must leave by the caller's word; the margin is off it already.
    pub(crate) stated: Option<Timestamp>,
    /// Whom it is for by endpoint; `None`: the request says so itself.
    pub(crate) hosts: Option<Places>,
    /// Names of the fields to state deadline and attempt in; `None`: do not.
    pub(crate) names: Option<HeaderNames>,
    pub(crate) protocol: Protocol,
    /// What makes it a gRPC call.
    pub(crate) grpc: Option<Outgoing>,
    /// The field that carries the credential of its upstream, if it does not carry its own.
    pub(crate) credential: Option<HeaderName>,
    pub(crate) progress: Arc<Progress>,
}

/// How an attempt ended, and what it left.
#[derive(Debug)]
pub(crate) struct Attempted {
    pub(crate) place: u32,
    pub(crate) endpoint: usize,
    outcome: Outcome,
    replayable: bool,
    /// What the upstream may still be reading.
    upload: Option<Arc<Upload>>,
    pub(crate) reply: Reply,
}

/// What an attempt left to answer with.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The upstream's answer, its body still on the connection.
    Flowing(Response<UpstreamBody>),
    /// The upstream's answer, read to its end.
    Kept(Response<Bytes>),
    /// No answer.
    None,
}

impl Outbound {
    /// Makes one attempt.
    pub(crate) async fn attempt(self: Arc<Self>, context: AttemptContext) -> Attempted {
        let place = context.sequence();
        let began = context.granted();
        let (lease, now) = self.pool.checkout(self.wanted(&context)).await;
        let waited = now.since(began);
        self.progress.wait(waited);
        self.metrics.pool_wait(self.upstream, waited);
        self.metrics.stage(Some(self.route), Stage::Checkout, waited);
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                if error.cause() != Cause::CheckoutTimeout {
                    self.count(context.purpose());
                }
                return self.ended(&context, error.cause());
            }
        };
        self.count(context.purpose());
        let request = self.request(&context, now);
        context.mark_sent();
        let _unended = Unended { outbound: &self, place };
        self.progress.send(now, place, context.number(), context.endpoint());
        match self.send(lease, request, context.endpoint()).await {
            // Nothing in it is an answer; dropped, it closes its connection.
            Ok(response) if self.is_unasked_upgrade(&response) => {
                self.ended(&context, Cause::Malformed)
            }
            Ok(response) => self.answered(response, &context).await,
            Err((cause, is_handed_back)) => {
                if is_handed_back {
                    context.mark_unsent();
                }
                self.ended(&context, cause)
            }
        }
    }

    /// A wait for a connection that uses up the attempt's own time is the wait's failure, so it
    /// ends just before the attempt does. One that the call's deadline cuts is none, so it goes on
    /// until just after.
    fn wanted(&self, context: &AttemptContext) -> Wanted {
        let now = context.granted();
        let (most, until) = match context.is_cut_by_call() {
            true => (context.deadline().after(TIMER_GRAIN), Timestamp::MAX),
            false => {
                let until = context.deadline().before(TIMER_GRAIN);
                (until, until)
            }
        };
        let wait = self.checkout.min(now.until(most));
        Wanted { endpoint: context.endpoint(), now, wait, until }
    }

    /// Sends the request, and gives up an upload of which the upstream takes nothing.
    async fn send(
        &self,
        lease: Lease<RequestBody>,
        request: Request<RequestBody>,
        endpoint: usize,
    ) -> Result<Response<UpstreamBody>, (Cause, bool)> {
        let sent = lease.send(request);
        let sent = match &self.upload {
            None => sent.await,
            Some(upload) => tokio::select! {
                biased;
                sent = sent => sent,
                () = upload.unread() => return Err((Cause::AttemptTimeout, false)),
            },
        };
        sent.map_err(|error| self.failed(&error, endpoint))
    }

    /// The cause of an exchange's failure, and whether the request is back unsent.
    fn failed(&self, error: &SendError<RequestBody>, endpoint: usize) -> (Cause, bool) {
        let breaks_upload = self.upload.as_ref().is_some_and(|upload| upload.broken().is_some());
        if let (Cause::Unmatched, Some(source), false) = (error.cause, &error.source, breaks_upload)
        {
            self.unmatched.record(self.upstream, endpoint, source);
        }
        (error.cause, error.handed_back.is_some())
    }

    fn count(&self, purpose: Purpose) {
        match purpose {
            Purpose::First => self.metrics.first_attempt(self.route),
            Purpose::Retry => self.metrics.retry(self.route),
            Purpose::Redispatch => self.metrics.redispatch(self.route),
            Purpose::Hedge => {
                self.progress.hedge();
                self.metrics.hedge(self.route);
            }
        }
    }

    /// Counts an attempt whose time was up, once.
    fn count_timeout(&self, place: u32) {
        if self.progress.count(place) {
            let cause = Cause::AttemptTimeout;
            self.metrics.outcome(self.upstream, cause.class(), cause);
        }
    }

    /// Whether the upstream switched protocols though the request asked for none.
    fn is_unasked_upgrade(&self, response: &Response<UpstreamBody>) -> bool {
        response.status() == StatusCode::SWITCHING_PROTOCOLS && !self.headers.contains_key(UPGRADE)
    }

    async fn answered(
        &self,
        response: Response<UpstreamBody>,
        context: &AttemptContext,
    ) -> Attempted {
        let place = context.sequence();
        let (outcome, response) = match &self.grpc {
            Some(grpc) => (grpc.of_head(&response, context.is_cut_by_call()), response),
            None => match self.judged(response, context).await {
                Ok(judged) => (judged.outcome, judged.response),
                Err(cause) => return self.ended(context, cause),
            },
        };
        // One whose status is to come is counted when it has, if somebody is left to read it.
        let is_all = !outcome.awaits_status() || self.progress.runs_on(place);
        if is_all && self.progress.count(place) {
            self.metrics.outcome(self.upstream, outcome.class(), outcome.cause());
        }
        if outcome.retry_after() == RetryAfter::Unusable {
            self.metrics.ignored_header(IgnoredHeader::RetryAfter, IgnoredBecause::Malformed);
        }
        let replayable = self.shared.is_replayable();
        let upload = self.upload.clone();
        let (endpoint, reply) = (context.endpoint(), Reply::Flowing(response));
        Attempted { place, endpoint, outcome, replayable, upload, reply }
    }

    fn ended(&self, context: &AttemptContext, cause: Cause) -> Attempted {
        let place = context.sequence();
        let cause = match &self.upload {
            Some(upload) if upload.broken().is_some() => Cause::UploadFailed,
            _ => cause,
        };
        if self.progress.count(place) {
            self.metrics.outcome(self.upstream, cause.class(), cause);
        }
        Attempted {
            place,
            endpoint: context.endpoint(),
            outcome: self
                .grpc
                .as_ref()
                .map_or_else(|| Outcome::of(cause), |grpc| grpc.of_end(cause)),
            replayable: self.shared.is_replayable(),
            upload: None,
            reply: Reply::None,
        }
    }
}

/// An attempt that was sent. If it runs on without its caller and is then given up, its own time
/// was over.
struct Unended<'a> {
    outbound: &'a Outbound,
    place: u32,
}

impl Drop for Unended<'_> {
    fn drop(&mut self) {
        let Self { outbound, place } = self;
        if outbound.progress.runs_on(*place) {
            outbound.count_timeout(*place);
        }
    }
}

impl Answer for Attempted {
    fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn is_replayable(&self) -> bool {
        self.replayable
    }

    /// Reads a short answer to its end, so that the connection is free during the wait. Of an
    /// upload that is not complete the upstream takes no more: the retry could not have it.
    async fn set_aside(self) -> Option<Self> {
        if let Some(upload) = &self.upload {
            upload.hold();
        }
        let Reply::Flowing(response) = self.reply else { return Some(self) };
        let (parts, body) = response.into_parts();
        if announced(&parts.headers).is_some_and(|length| length > ASIDE_BYTES as u64) {
            return None;
        }
        let limited = Limited::new(body, ASIDE_BYTES).collect();
        let collected = timeout(ASIDE_TIME, limited).await.ok()?.ok()?;
        if collected.trailers().is_some() {
            return None;
        }
        let reply = Reply::Kept(Response::from_parts(parts, collected.to_bytes()));
        Some(Self { reply, ..self })
    }

    /// Reads the answer nobody waits for, up to a limit, so that the connection can be used again.
    async fn run_on(self) {
        if let Reply::Flowing(response) = self.reply {
            let drained = response.into_body().drain(DRAIN_BYTES);
            let _ = timeout(DRAIN_TIME, drained).await;
        }
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// What happens to an attempt whose caller left, or no longer waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandon<'a> {
    /// It runs on, if its upload is complete.
    pub(crate) finish: bool,
    pub(crate) outbound: &'a Outbound,
}

impl<F> OnAbandon<F> for Abandon<'_>
where
    F: Future + Send + 'static,
    F::Output: Answer + Send,
{
    fn abandon(&self, call: seawall::InFlight<F>) {
        let Self { finish, outbound } = *self;
        let place = call.sequence();
        if call.is_given_up() && outbound.progress.was_sent(place) {
            outbound.count_timeout(place);
        }
        if finish && outbound.upload.as_deref().is_none_or(Upload::is_complete) {
            outbound.progress.run_on(place);
            seawall::Finish.abandon(call);
        } else {
            seawall::Cancel.abandon(call);
        }
    }
}

/// Tokio's timers go off on whole milliseconds.
const TIMER_GRAIN: Duration = Duration::from_millis(1);
/// The longest answer kept while a retry is waited for. Source: seawall-design (replay buffer).
const ASIDE_BYTES: usize = 64 * 1024;
/// The longest time to read it. Source: seawall-design.
const ASIDE_TIME: Duration = Duration::from_millis(100);
/// The most that is read of an answer nobody waits for.
const DRAIN_BYTES: u64 = 256 * 1024;
/// The longest time to read it.
const DRAIN_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::Diagnostics;
    use crate::metrics::{Shape, UpstreamLabels};
    use crate::unmatched::tests::hyper_error;
    use crate::upstream::{PoolProtocol, PoolSettings, Resolver};

    /// A request without a body, to be sent nowhere.
    fn outbound() -> Outbound {
        let clock = Clock::new();
        let settings = PoolSettings::new(PoolProtocol::Http1, 1);
        let resolver = Resolver::new(1, Duration::ZERO, clock);
        let diagnostics = Diagnostics::to(std::io::sink(), false, clock).unwrap();
        let upstream = UpstreamLabels { upstream: "up".to_owned(), endpoints: Vec::new() };
        Outbound {
            method: Method::GET,
            uri: Uri::from_static("/"),
            headers: HeaderMap::new(),
            upload: None,
            shared: CallShared::new(),
            pool: Pool::new(settings, vec![("127.0.0.1".to_owned(), 1)], resolver, clock),
            clock,
            rules: HttpClassify::new(),
            rules_met: Arc::default(),
            metrics: Arc::new(Metrics::new(Shape::default())),
            unmatched: Arc::new(Unmatched::new(vec![upstream], diagnostics)),
            route: 0,
            upstream: 0,
            checkout: Duration::ZERO,
            caller_attempt: 1,
            margin: Duration::ZERO,
            stated: None,
            hosts: None,
            names: None,
            protocol: Protocol::Http1,
            grpc: None,
            credential: None,
            progress: Arc::default(),
        }
    }

    #[tokio::test]
    async fn an_error_that_no_rule_matches_is_counted_by_its_kind_and_others_are_not() {
        let outbound = outbound();
        for (kind, cause) in [
            (std::io::ErrorKind::Other, Cause::Unmatched),
            (std::io::ErrorKind::ConnectionReset, Cause::Reset),
        ] {
            let source = hyper_error(kind.into()).await;
            assert_eq!(crate::upstream::classify(&source), cause);
            let error = SendError { cause, handed_back: None, source: Some(source) };
            assert_eq!(outbound.failed(&error, 0), (cause, false));
        }
        let counted = [("io_other_error".to_owned(), 1), ("other".to_owned(), 0)];
        assert_eq!(outbound.unmatched.counts(0), counted);
    }
}
