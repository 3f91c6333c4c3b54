//! The body of an answer on its way to the caller.
//!
//! It holds what ends with it: the call's slot in the bulkhead, the upstream's connection, and the
//! exchange. Dropping the body is the release of all three, however it came to be dropped.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::{Body as HttpBody, Frame, SizeHint};
use seawall::SlotGuard;
use tokio::time::{Sleep, sleep};

use crate::access_log::Completion;
use crate::exchange::Exchange;
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
        exchange: Box<Exchange>,
    ) -> Self {
        let total = total.map(|total| Box::pin(sleep(total)));
        let flow = Flow { body, slot, idle_limit, idle: None, total };
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
            if let Some(slot) = slot {
                slot.end(ended);
            }
        }
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
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Upstream(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let limit = self.idle_limit;
                let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(limit)));
                idle.as_mut().poll(cx).map(|()| Some(Err(BodyError::TimedOut)))
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
            Poll::Ready(Some(Ok(frame))) => self.count(frame),
            Poll::Ready(Some(Err(BodyError::Upstream(_)))) => self.end(Completion::UpstreamBroke),
            Poll::Ready(Some(Err(BodyError::TimedOut))) => self.end(Completion::Timeout),
            Poll::Ready(None) => self.end(Completion::Complete),
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
            self.end(Completion::Complete);
        } else {
            self.release();
        }
    }
}
