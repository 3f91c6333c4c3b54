//! The bytes of a connection on their way in and out: what was read before its protocol was known
//! comes first, heads and frames are noticed, and a peer that takes nothing is given up.
//!
//! A socket that is closed with bytes unread resets the connection, and the peer may lose what we
//! sent last: the answer to an upload that was refused, or the last answers before GOAWAY. So the
//! end is said first, and what still comes is read and thrown away until the peer has closed, for
//! at most a second. Source: RFC 9112 section 9.6.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, sleep_until};

use super::frames::FrameScanner;
use super::gauges::CloseReason;
use super::state::{ConnGuard, ConnState, DownstreamProtocol};
use crate::wire::Progress;

/// What bounds the bytes on their way out.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoLimits {
    /// How long a write may make no progress.
    pub(super) stall: Duration,
    /// Bytes that the kernel may hold of a tunnel, if that is bounded.
    pub(super) tunnel_buffer: Option<usize>,
}

/// A connection's socket with what is known of it.
#[derive(Debug)]
pub(super) struct ConnIo<S: Progress> {
    socket: S,
    /// Read before the protocol was known; comes again.
    replay: BytesMut,
    scanner: Option<FrameScanner>,
    state: Arc<ConnState>,
    limits: IoLimits,
    /// Runs while a write makes none.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether `stalled` is running; the timer itself is kept for the next time.
    is_stalled: bool,
    /// Whether it has a place among those that end.
    is_booked: bool,
    /// What the socket had taken when it began to run.
    taken: u64,
    /// Whether our side has ended.
    is_shut: bool,
    /// Runs from the end of our side until that of the peer's.
    lingering: Option<Pin<Box<Sleep>>>,
    _guard: ConnGuard,
}

impl<S: Progress> ConnIo<S> {
    pub(super) fn new(
        socket: S,
        replay: BytesMut,
        state: Arc<ConnState>,
        limits: IoLimits,
        guard: ConnGuard,
    ) -> Self {
        let scanner = (state.protocol == DownstreamProtocol::Http2)
            .then(|| FrameScanner::new(state.clock.now()));
        Self {
            socket,
            replay,
            scanner,
            state,
            limits,
            stalled: None,
            is_stalled: false,
            is_booked: false,
            taken: 0,
            is_shut: false,
            lingering: None,
            _guard: guard,
        }
    }

    fn on_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state.on_bytes();
        let Some(scanner) = &mut self.scanner else { return Ok(()) };
        scanner.on_read(self.state.clock.now(), bytes).map_err(|flood| {
            self.state.reason.set(CloseReason::Abuse);
            io::Error::other(flood)
        })
    }
}

impl<S: Progress> Drop for ConnIo<S> {
    fn drop(&mut self) {
        if self.state.resets.load(SeqCst) {
            self.socket.forget_at_close();
        }
    }
}

impl<S: Progress> ConnIo<S> {
    /// Bounds, once, what the kernel holds of a tunnel.
    fn bound_tunnel(&mut self) {
        if self.limits.tunnel_buffer.is_some()
            && self.state.is_upgraded()
            && let Some(bytes) = self.limits.tunnel_buffer.take()
        {
            self.socket.bound_send_buffer(bytes);
        }
    }

    /// Passes on what a write came to, or gives up if it came to nothing for too long.
    fn on_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(written) = written else { return self.on_stall(cx).map(Err) };
        self.is_stalled = false;
        if let (Ok(bytes), Some(scanner)) = (&written, &mut self.scanner) {
            scanner.on_write(*bytes);
        }
        Poll::Ready(written)
    }

    /// Gives up if nothing was taken for too long, and it is its turn to end. Whoever carries a
    /// tunnel has limits of its own.
    fn on_stall(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.state.carried.load(SeqCst) {
            return Poll::Pending;
        }
        let taken = self.socket.taken();
        let clock = self.state.clock;
        let limit = self.limits.stall;
        let deadline = || clock.instant(clock.now().after(limit));
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep_until(deadline())));
        if !self.is_stalled || self.taken != taken {
            timer.as_mut().reset(deadline());
            (self.is_stalled, self.is_booked, self.taken) = (true, false, taken);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if !self.is_booked {
            self.is_booked = true;
            timer.as_mut().reset(clock.instant(self.state.door.book_end(clock.now())));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.state.reason.set(CloseReason::Stall);
        self.state.resets.store(true, SeqCst);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }
}

impl<S: AsyncRead + Progress + Unpin> AsyncRead for ConnIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        if this.replay.has_remaining() {
            let length = this.replay.len().min(buffer.remaining());
            buffer.put_slice(&this.replay.split_to(length));
            if this.replay.is_empty() {
                this.replay = BytesMut::new();
            }
        } else if Pin::new(&mut this.socket).poll_read(cx, buffer)?.is_pending() {
            return Poll::Pending;
        }
        if buffer.filled().len() > before {
            this.on_read(&buffer.filled()[before..])?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Progress + Unpin> AsyncWrite for ConnIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.bound_tunnel();
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.on_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.on_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Over TLS a write is done when it is encrypted, and this is where it waits.
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed),
            Poll::Pending => self.on_stall(cx).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_shut {
            let shut = Pin::new(&mut this.socket).poll_shutdown(cx)?;
            this.is_shut = shut.is_ready();
            if this.is_shut && this.state.is_upgraded() {
                // Whoever took it over still reads.
                return Poll::Ready(Ok(()));
            }
        }
        let timer = this.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        if !this.is_shut {
            return timer.as_mut().poll(cx).map(Ok);
        }
        let mut scrap = [0; 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut scrap);
            match Pin::new(&mut this.socket).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return timer.as_mut().poll(cx).map(Ok),
            }
        }
    }
}

/// How long a peer has to close after we did.
const LINGER: Duration = Duration::from_secs(1);
