//! The body of an answer on its way to the caller.
//!
//! It holds what ends with it: the call's slot in the bulkhead, the upstream's connection, and the
//! exchange. Dropping the body is the release of all three, however it came to be dropped.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body::{Body as HttpBody, Frame, SizeHint};
use seawall::SlotGuard;
use tokio::time::{Sleep, sleep};

use crate::access_log::Completion;
use crate::exchange::Exchange;
use crate::grpc;
use crate::upstream::UpstreamBody;

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Body {
    kind: Kind,
    exchange: Option<Box<Exchange>>,
}

#[derive(Debug)]
enum Kind {
    /// Flows from the upstream.
    Upstream(Box<Flow>),
    /// Made or kept here.
    Full(Bytes),
    /// Nothing more.
    Empty,
}

#[derive(Debug)]
struct Flow {
    body: UpstreamBody,
    slot: Option<SlotGuard>,
    idle_limit: Duration,
    /// Made when the upstream first lets us wait.
    idle: Option<Pin<Box<Sleep>>>,
    total: Option<Pin<Box<Sleep>>>,
    grpc: Option<Box<grpc::Flow>>,
}

/// Why an answer ended before its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The upstream broke it off.
    #[error("the upstream broke off its answer")]
    Upstream(#[source] hyper::Error),
    /// Nothing came for the idle limit, or the body took longer than it may.
    #[error("the upstream's answer took too long")]
    TimedOut,
}

impl Body {
    /// An answer that flows from the upstream and holds its slot.
    pub(crate) fn upstream(
        body: UpstreamBody,
        slot: Option<SlotGuard>,
        idle_limit: Duration,
        total: Option<Duration>,
        grpc: Option<Box<grpc::Flow>>,
        exchange: Box<Exchange>,
    ) -> Self {
        let total = total.map(|total| Box::pin(sleep(total)));
        let flow = Flow { body, slot, idle_limit, idle: None, total, grpc };
        Self { kind: Kind::Upstream(Box::new(flow)), exchange: Some(exchange) }
    }

    /// An answer that is here in full. That of a HEAD has no body: hyper leaves it out on
    /// HTTP/1.1 alone.
    pub(crate) fn full(bytes: Bytes, mut exchange: Box<Exchange>) -> Self {
        let bytes = if exchange.method == Method::HEAD { Bytes::new() } else { bytes };
        exchange.completion.get_or_insert(Completion::Complete);
        let kind = if bytes.is_empty() { Kind::Empty } else { Kind::Full(bytes) };
        Self { kind, exchange: Some(exchange) }
    }

    /// No body, and no exchange that ends with it: another holds it.
    pub(crate) const fn empty() -> Self {
        Self { kind: Kind::Empty, exchange: None }
    }

    fn end(&mut self, completion: Completion) {
        if let Some(exchange) = &mut self.exchange {
            exchange.completion.get_or_insert(completion);
        }
        self.release();
    }

    /// Lets go of all that ends with it, at one time.
    fn release(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        if let Kind::Upstream(flow) = std::mem::replace(&mut self.kind, Kind::Empty) {
            let Flow { body, slot, .. } = *flow;
            let ended = body.end().unwrap_or_else(|| exchange.now());
            exchange.ended = Some(ended);
            let settled = exchange.grpc.as_ref().and_then(|call| call.settled);
            match (slot, settled) {
                (Some(slot), Some(outcome)) => slot.end_with(ended, &outcome),
                (Some(slot), None) => slot.end(ended),
                (None, _) => {}
            }
        }
    }

    /// Takes in the trailers of a gRPC answer.
    fn settle(&mut self, trailers: &HeaderMap) {
        let Kind::Upstream(flow) = &self.kind else { return };
        if let (Some(grpc), Some(exchange)) = (&flow.grpc, &mut self.exchange)
            && let Some(call) = &mut exchange.grpc
        {
            let (code, outcome) = grpc.trailers(trailers);
            (call.code, call.settled) = (code, Some(outcome));
        }
    }

    /// A gRPC answer that ended without a status.
    fn settle_without_trailers(&mut self) {
        let unsettled = self.exchange.as_ref().and_then(|exchange| exchange.grpc.as_ref());
        if unsettled.is_some_and(|call| call.settled.is_none()) {
            self.settle(&HeaderMap::new());
        }
    }

    /// A gRPC answer that broke off is given an end its caller can read; another is not.
    fn break_off(&mut self, error: &BodyError) -> Option<Frame<Bytes>> {
        let Kind::Upstream(flow) = &self.kind else { return None };
        let call = self.exchange.as_mut()?.grpc.as_mut()?;
        let grpc = flow.grpc.as_ref()?;
        let cause = match error {
            BodyError::Upstream(error) => Some(crate::upstream::classify(error)),
            BodyError::TimedOut => None,
        };
        let (code, trailers) = grpc::Flow::trailers_of_ours(&error.to_string());
        (call.code, call.settled) = (Some(code), grpc.broke(cause));
        Some(Frame::trailers(trailers))
    }

    fn count(&mut self, frame: &Frame<Bytes>) {
        if let (Some(exchange), Some(data)) = (&mut self.exchange, frame.data_ref()) {
            exchange.bytes_out += data.len() as u64;
        }
    }
}

impl Flow {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.total.as_mut().is_some_and(|total| total.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.idle = None;
                if let (Some(grpc), Some(data)) = (&mut self.grpc, frame.data_ref())
                    && grpc.data(data)
                {
                    grpc.become_stream(&mut self.slot);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Upstream(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.poll_idle(cx).map(|()| Some(Err(BodyError::TimedOut))),
        }
    }

    /// Ready once nothing came for the idle limit.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { idle_limit, idle, grpc, slot, .. } = self;
        let idle = idle.get_or_insert_with(|| {
            let limit = grpc.as_mut().map_or(*idle_limit, |grpc| grpc.patience(*idle_limit));
            Box::pin(sleep(limit))
        });
        loop {
            ready!(idle.as_mut().poll(cx));
            match grpc.as_mut().and_then(|grpc| grpc.waited(*idle_limit, slot)) {
                Some(more) => idle.set(sleep(more)),
                None => return Poll::Ready(()),
            }
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = match &mut self.kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let frame = Frame::data(std::mem::take(bytes));
                self.kind = Kind::Empty;
                Poll::Ready(Some(Ok(frame)))
            }
            Kind::Upstream(flow) => flow.poll(cx),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.settle(trailers);
                }
                self.count(frame);
            }
            Poll::Ready(Some(Err(error))) => {
                let trailers = self.break_off(error);
                self.end(match error {
                    BodyError::Upstream(_) => Completion::UpstreamBroke,
                    BodyError::TimedOut => Completion::Timeout,
                });
                if let Some(trailers) = trailers {
                    return Poll::Ready(Some(Ok(trailers)));
                }
            }
            Poll::Ready(None) => {
                self.settle_without_trailers();
                self.end(Completion::Complete);
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(_) => false,
            Kind::Upstream(flow) => flow.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Upstream(flow) => flow.body.size_hint(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // The server asks no more once the end is known, for example after a HEAD.
        if self.is_end_stream() {
            self.settle_without_trailers();
            self.end(Completion::Complete);
        } else {
            self.release();
        }
    }
}
