//! A connection's bytes, whatever carries them: TCP, a unix socket, or TLS over one of the two.
//!
//! Known limit: a caller that ends a TLS connection without saying so (no close_notify) has ended
//! it all the same, because every request says itself how long it is; an upstream that does has
//! broken off, because an answer may last until the end of its connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use rustls::{HandshakeKind, ProtocolVersion};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A connection, what was read of it before anybody knew what to make of it, and how much it took.
#[derive(Debug)]
pub(crate) struct Wire {
    carrier: Carrier,
    before: BytesMut,
    written: u64,
}

#[derive(Debug)]
enum Carrier {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<Wire>>),
}

/// What is known of the TLS of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsFacts {
    /// `1.2` or `1.3`.
    pub(crate) version: &'static str,
    /// Whether the handshake took up an earlier session.
    pub(crate) resumed: bool,
}

/// Something whose progress in writing can be seen though nothing it is asked for is done.
pub(crate) trait Progress {
    /// Grows with every byte that a peer's socket took; may stay at zero where a write that made
    /// progress always says so.
    fn taken(&self) -> u64;

    /// Has the kernel hold so many bytes at most, about, that the peer has not taken.
    fn bound_send_buffer(&self, bytes: usize);

    /// Has the socket be reset when it is closed, instead of what it has being sent on.
    fn forget_at_close(&self);
}

impl Wire {
    fn over(carrier: Carrier) -> Self {
        Self { carrier, before: BytesMut::new(), written: 0 }
    }

    /// The same, of which `bytes` come again, before what was to come again already.
    pub(crate) fn unread(mut self, mut bytes: BytesMut) -> Self {
        bytes.unsplit(self.before);
        self.before = bytes;
        self
    }

    fn tls(&self) -> Option<&TlsStream<Self>> {
        match &self.carrier {
            Carrier::Tls(stream) => Some(stream),
            Carrier::Tcp(_) | Carrier::Unix(_) => None,
        }
    }

    /// What is known of its TLS, if it has any.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        let (_, state) = self.tls()?.get_ref();
        let version = match state.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            _ => "1.3",
        };
        Some(TlsFacts { version, resumed: state.handshake_kind() == Some(HandshakeKind::Resumed) })
    }

    /// The protocol that ALPN chose, if it did.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls()?.get_ref().1.alpn_protocol()
    }

    /// Closes it at once by a reset: what was not sent or not read is thrown away, and nothing of
    /// it stays in the kernel. A socket of this host is closed.
    pub(crate) fn reset(self) {
        self.forget_at_close();
    }

    /// The socket that carries it.
    fn socket(&self) -> SockRef<'_> {
        match &self.carrier {
            Carrier::Tcp(stream) => SockRef::from(stream),
            Carrier::Unix(stream) => SockRef::from(stream),
            Carrier::Tls(stream) => stream.get_ref().0.socket(),
        }
    }

    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written = self.written.wrapping_add(bytes as u64);
        }
        written
    }
}

impl Progress for Wire {
    fn taken(&self) -> u64 {
        // What TLS has encrypted its socket need not have taken.
        self.tls().map_or(self.written, |stream| stream.get_ref().0.written)
    }

    fn bound_send_buffer(&self, bytes: usize) {
        // A bound that is refused leaves the kernel's own.
        let _ = self.socket().set_send_buffer_size(bytes);
    }

    fn forget_at_close(&self) {
        // Where it fails the socket is gone already, or is one of this host, which keeps nothing.
        let _ = self.socket().set_linger(Some(Duration::ZERO));
    }
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Self {
        Self::over(Carrier::Tcp(stream))
    }
}

impl From<UnixStream> for Wire {
    fn from(stream: UnixStream) -> Self {
        Self::over(Carrier::Unix(stream))
    }
}

impl From<TlsStream<Self>> for Wire {
    fn from(stream: TlsStream<Self>) -> Self {
        Self::over(Carrier::Tls(Box::new(stream)))
    }
}

/// Calls the same method of whatever carries it.
macro_rules! carried {
    ($wire:expr, $inner:ident => $call:expr) => {
        match &mut $wire.carrier {
            Carrier::Tcp($inner) => $call,
            Carrier::Unix($inner) => $call,
            Carrier::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.has_remaining() {
            let length = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before.split_to(length));
            if self.before.is_empty() {
                self.before = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let read = ready!(carried!(self, inner => Pin::new(inner).poll_read(cx, buffer)));
        let ends = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        if read.as_ref().is_err_and(ends) && matches!(self.tls(), Some(TlsStream::Server(_))) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = carried!(self, inner => Pin::new(inner).poll_write(cx, bytes));
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = carried!(self, inner => Pin::new(inner).poll_write_vectored(cx, slices));
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        carried!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}
