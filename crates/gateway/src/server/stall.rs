//! Ends an HTTP/2 stream whose peer takes nothing of its answer.
//!
//! A peer that stops reading its socket is seen where bytes are written. One that keeps reading
//! but never opens the window of a stream is not: hyper waits for the window and does not poll the
//! body. So the body notes when it was ready, and the task of the stream ends itself when the body
//! was not asked again for the limit. Dropping the task resets the stream; its neighbours go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use seawall_policy::Timestamp;
use tokio::time::{Sleep, sleep_until};

use super::state::ConnState;

/// Since when the peer could take more of an answer and did not.
#[derive(Debug, Default)]
pub(super) struct StreamStall(AtomicU64);

impl StreamStall {
    /// The body was asked.
    pub(super) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// The body gave something, and waits to be asked again.
    pub(super) fn wait_from(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Relaxed);
    }

    fn since(&self) -> Option<Timestamp> {
        match self.0.load(Relaxed) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }
}

/// Runs the streams of one HTTP/2 connection, each with its limit.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    pub(super) state: Arc<ConnState>,
    /// How long a peer may take nothing.
    pub(super) limit: Duration,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        // hyper asks the service and hands the stream over without a pause in between.
        let stall = self.state.next_stall.lock().take();
        let limit = self.limit;
        let state = Arc::clone(&self.state);
        tokio::spawn(StreamTask { stream, stall, limit, state, timer: None, booked: None });
    }
}

pin_project! {
    /// A stream's task that ends when its peer stalls.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        stall: Option<Arc<StreamStall>>,
        limit: Duration,
        state: Arc<ConnState>,
        timer: Option<Pin<Box<Sleep>>>,
        // Since when it stalls that has a place among those that end, and when that is.
        booked: Option<(Timestamp, Timestamp)>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = this.stall.as_ref().and_then(|stall| stall.since()) else {
            *this.timer = None;
            return Poll::Pending;
        };
        let clock = this.state.clock;
        let ends = this.booked.filter(|(booked, _)| *booked == since).map(|(_, ends)| ends);
        let at = clock.instant(ends.unwrap_or_else(|| since.after(*this.limit)));
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        ready!(timer.as_mut().poll(cx));
        if ends.is_some() {
            return Poll::Ready(());
        }
        // It stalls: it ends in its turn.
        let ends = this.state.door.book_end(clock.now());
        *this.booked = Some((since, ends));
        timer.as_mut().reset(clock.instant(ends));
        timer.as_mut().poll(cx)
    }
}
