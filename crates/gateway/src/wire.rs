//! A connection's bytes, whatever carries them: TCP, a unix socket, or TLS over one of the two.
//!
//! Known limit: a caller that ends a TLS connection without saying so (no close_notify) has ended
//! it all the same, because every request says itself how long it is; an upstream that does has
//! broken off, because an answer may last until the end of its connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use rustls::{HandshakeKind, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket, what was read of it before anybody knew what to make of it, and how much it took.
#[derive(Debug)]
pub(crate) struct Base {
    socket: Socket,
    before: BytesMut,
    written: u64,
}

/// The bytes of a connection as HTTP sees them.
#[derive(Debug)]
pub(crate) enum Wire {
    Plain(Base),
    Tls(Box<TlsStream<Base>>),
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
}

impl Base {
    /// `before` comes again.
    pub(crate) const fn new(socket: Socket, before: BytesMut) -> Self {
        Self { socket, before, written: 0 }
    }

    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written = self.written.wrapping_add(bytes as u64);
        }
        written
    }
}

impl Wire {
    /// Without TLS.
    pub(crate) fn plain(socket: Socket) -> Self {
        Self::Plain(Base::new(socket, BytesMut::new()))
    }

    /// What is known of its TLS, if it has any.
    pub(crate) fn facts(&self) -> Option<TlsFacts> {
        let Self::Tls(stream) = self else { return None };
        let (_, state) = stream.get_ref();
        let version = match state.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "1.2",
            _ => "1.3",
        };
        Some(TlsFacts { version, resumed: state.handshake_kind() == Some(HandshakeKind::Resumed) })
    }

    /// The protocol that ALPN chose, if it did.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        let Self::Tls(stream) = self else { return None };
        stream.get_ref().1.alpn_protocol()
    }
}

impl Progress for Wire {
    fn taken(&self) -> u64 {
        match self {
            Self::Plain(base) => base.written,
            Self::Tls(stream) => stream.get_ref().0.written,
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($kind:ident, $this:expr, $one:ident | $other:ident, $inner:ident => $call:expr) => {
        match $this {
            $kind::$one($inner) => $call,
            $kind::$other($inner) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(Self, this, Tcp | Unix, inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        either!(Self, this, Tcp | Unix, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        either!(Self, this, Tcp | Unix, inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(Self, this, Tcp | Unix, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(Self, this, Tcp | Unix, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

impl AsyncRead for Base {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.before.has_remaining() {
            let length = this.before.len().min(buffer.remaining());
            buffer.put_slice(&this.before.split_to(length));
            if this.before.is_empty() {
                this.before = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Base {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.wrote(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, slices);
        this.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(base) => Pin::new(base).poll_read(cx, buffer),
            Self::Tls(stream) => match ready!(Pin::new(&mut **stream).poll_read(cx, buffer)) {
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof
                        && matches!(**stream, TlsStream::Server(_)) =>
                {
                    Poll::Ready(Ok(()))
                }
                read => Poll::Ready(read),
            },
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        either!(Self, this, Plain | Tls, inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        either!(Self, this, Plain | Tls, inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(Self, this, Plain | Tls, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        either!(Self, this, Plain | Tls, inner => Pin::new(inner).poll_shutdown(cx))
    }
}
