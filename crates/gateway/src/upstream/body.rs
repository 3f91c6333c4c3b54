//! The response body, and with it the exchange: its end gives the connection back, its drop
//! gives it up.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use seawall_policy::Timestamp;

use super::conn::Held;
use super::upload::Cut;

/// The body of an upstream's answer. Read to its end, the HTTP/1.1 connection is ready for the
/// next exchange; dropped before, the connection is closed, or the HTTP/2 stream reset with
/// CANCEL, its upload included.
pub(crate) struct UpstreamBody {
    /// `None` once dropped early: the stream's reset must be on its way before its place is free.
    inner: Option<Incoming>,
    exchange: Option<Exchange>,
    /// What was read ahead, before the rest.
    front: VecDeque<Frame<Bytes>>,
    /// When it was read to its end.
    ended: Option<Timestamp>,
}

impl UpstreamBody {
    const fn new(inner: Incoming, exchange: Option<Exchange>) -> Self {
        Self { inner: Some(inner), exchange, front: VecDeque::new(), ended: None }
    }

    /// Takes the connection out of the pool: it no longer counts against `max_connections` and
    /// closes with this exchange. For answers that stay open, whose number is bounded elsewhere.
    /// An HTTP/2 stream keeps its place: the peer counts it too.
    pub(crate) fn leave_pool(&mut self) {
        if let Some(exchange) = &self.exchange {
            exchange.held_leave_pool();
        }
    }

    /// Puts what was read in front of the rest, where nothing else was put before.
    pub(crate) fn put_back(&mut self, frames: Vec<Frame<Bytes>>) {
        self.front = frames.into();
    }

    /// Reads the rest, up to `limit` bytes, so that the connection can serve again; beyond that,
    /// or on an error, it is given up. Takes as long as the peer does: bound it in time.
    pub(crate) async fn drain(mut self, limit: u64) {
        let mut read = 0_u64;
        while read <= limit {
            let Some(Ok(frame)) = self.frame().await else { return };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            read = read.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// Drops it; when it was at its end, if it was and the clock was read for it.
    pub(crate) fn end(mut self) -> Option<Timestamp> {
        if self.is_end_stream() {
            self.finish();
        }
        self.ended
    }

    /// The response ended as it should.
    fn finish(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.ended = exchange.finished();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(frame) = self.front.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !inner.is_end_stream() => {}
            Some(Ok(_)) | None => self.finish(),
            Some(Err(_)) => {
                if let Some(exchange) = self.exchange.take() {
                    exchange.failed();
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.front.is_empty() && self.inner.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint);
        let front = self.front.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64);
        match (front.sum(), rest.exact()) {
            (0, _) => rest,
            (front, Some(exact)) => SizeHint::with_exact(front.saturating_add(exact)),
            (_, None) => SizeHint::default(),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.finish();
        }
        // Whatever is left of the exchange is abandoned by its own drop, after the stream.
        self.inner = None;
    }
}

impl fmt::Debug for UpstreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamBody").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// A request on its way, or its answer. Dropped, it abandons the exchange.
pub(super) struct Exchange {
    held: Option<Arc<dyn Held>>,
    pub(super) cut: Option<Arc<Cut>>,
}

impl Exchange {
    pub(super) const fn new(held: Arc<dyn Held>) -> Self {
        Self { held: Some(held), cut: None }
    }

    /// A tunnel takes its connection along; anything else carries the exchange in its body.
    pub(super) fn answered(self, response: Response<Incoming>) -> Response<UpstreamBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.leave_pool();
            return response.map(|body| UpstreamBody::new(body, None));
        }
        response.map(|body| UpstreamBody::new(body, Some(self)))
    }

    /// The response ended. Its upload may go on: the peer decides whether it still reads it.
    fn finished(mut self) -> Option<Timestamp> {
        self.held.take()?.finished()
    }

    pub(super) fn failed(mut self) {
        if let Some(held) = self.held.take() {
            held.failed();
        }
    }

    /// The connection goes its own way.
    fn leave_pool(mut self) {
        if let Some(held) = self.held.take() {
            held.leave_pool();
        }
    }

    fn held_leave_pool(&self) {
        if let Some(held) = &self.held {
            held.leave_pool();
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            if let Some(cut) = &self.cut {
                cut.cut();
            }
            held.abandoned();
        }
    }
}
