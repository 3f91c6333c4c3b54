//! Connections of the embedded upstream: protocol by its first bytes, and ways to end badly.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use seawall::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

use super::{Shared, respond};

/// What a request can do to its connection.
pub(super) struct Connection {
    pub(super) number: u64,
    close: Notify,
    reset: Arc<AtomicBool>,
}

impl Connection {
    /// Ends the connection without another byte; never returns.
    pub(super) async fn close<T>(&self) -> T {
        self.close.notify_one();
        std::future::pending().await
    }

    /// The end of the connection, when it comes, is an RST.
    pub(super) fn reset_when_dropped(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, number: u64, shared: Arc<Shared>) {
    let mut cut_all = shared.cut_all.subscribe();
    tokio::select! {
        () = speak(stream, number, shared) => {}
        _ = cut_all.changed() => {}
    }
}

async fn speak(stream: TcpStream, number: u64, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(is_h2) = begins_with_preface(&stream, shared.clock).await else { return };
    let reset = Arc::new(AtomicBool::new(false));
    let connection =
        Arc::new(Connection { number, close: Notify::new(), reset: Arc::clone(&reset) });
    let service = {
        let (shared, connection) = (Arc::clone(&shared), Arc::clone(&connection));
        service_fn(move |request| respond(Arc::clone(&shared), Arc::clone(&connection), request))
    };
    let io = TokioIo::new(Socket { stream, reset });
    let serving = async {
        // An error here is the peer's departure or a cut of our own; neither is news.
        let _ = if is_h2 {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(1000)
                .serve_connection(io, service)
                .await
        } else {
            hyper::server::conn::http1::Builder::new().serve_connection(io, service).await
        };
    };
    tokio::select! {
        () = serving => {}
        () = connection.close.notified() => {}
    }
}

/// Looks at the first bytes without taking them.
async fn begins_with_preface(stream: &TcpStream, clock: Clock) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI";
    let mut first = [0; 3];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if seen == PREFACE.len() || first[..seen] != PREFACE[..seen] {
            return Ok(first == PREFACE);
        }
        let soon = clock.now().after(Duration::from_millis(1));
        tokio::time::sleep_until(clock.instant(soon)).await;
    }
}

/// A socket that may end in an RST.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            // A FIN first would turn the RST into an ordinary end.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An answer's body.
pub(super) struct Reply {
    piece: Bytes,
    pieces: u64,
    gap: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Reply {
    pub(super) fn full(body: Bytes) -> Self {
        let pieces = u64::from(!body.is_empty());
        Self { piece: body, pieces, gap: Duration::ZERO, wait: None }
    }

    pub(super) fn slow(body: Bytes, pieces: u64, gap: Duration) -> Self {
        Self { piece: body, pieces, gap, wait: None }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pieces == 0 {
            return Poll::Ready(None);
        }
        if !self.gap.is_zero() {
            let gap = self.gap;
            let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(gap)));
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        self.pieces -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces == 0
    }

    fn size_hint(&self) -> SizeHint {
        let piece = u64::try_from(self.piece.len()).unwrap_or(u64::MAX);
        piece.checked_mul(self.pieces).map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
