//! The handshake of a caller: bounded in time and in number, and answered where it is none.
//!
//! Two timers run, as for a request: one until the first byte, one from then until the handshake
//! is done. Whoever speaks HTTP to a port that speaks TLS gets a short answer that says so.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsStream};

use super::server::{HandshakeResult, ListenerTls};
use crate::wire::Wire;

/// How far a connection came.
#[derive(Debug)]
pub(crate) enum Shaken {
    /// TLS is spoken.
    Done(Wire),
    /// No byte came in time.
    Silent,
    /// The peer closed before it said anything.
    Ended,
    /// There will be no TLS; the result is counted.
    Failed,
}

/// Shakes hands with a caller.
pub(crate) async fn shake(
    mut socket: Wire,
    peer: IpAddr,
    tls: &ListenerTls,
    clock: &Clock,
    first_byte_timeout: Duration,
    timeout: Duration,
) -> Shaken {
    let mut first = BytesMut::with_capacity(READ_FIRST);
    let until = clock.instant(clock.now().after(first_byte_timeout));
    match timeout_at(until, socket.read_buf(&mut first)).await {
        Err(_) => return Shaken::Silent,
        Ok(Ok(0)) => return Shaken::Ended,
        Ok(Err(_)) => {
            tls.count(HandshakeResult::Closed);
            return Shaken::Failed;
        }
        Ok(Ok(_)) => {}
    }
    let first_byte: Timestamp = clock.now();
    if first.first() != Some(&HANDSHAKE) {
        tls.count(HandshakeResult::NotTls);
        refuse(socket, &first).await;
        return Shaken::Failed;
    }
    let shaking = async {
        let _place = tls.places.take(first_byte, peer).await;
        let acceptor = TlsAcceptor::from(tls.config());
        acceptor.accept(socket.unread(first)).into_fallible().await
    };
    let shaken = timeout_at(clock.instant(first_byte.after(timeout)), shaking).await;
    let (result, shaken) = match shaken {
        Err(_) => (HandshakeResult::Timeout, Shaken::Failed),
        Ok(Err((error, wire))) => {
            tls.count(HandshakeResult::of(&error));
            // So that the alert is read: closed with bytes unread, the socket would reset.
            linger(wire).await;
            return Shaken::Failed;
        }
        Ok(Ok(stream)) => {
            let wire = Wire::from(TlsStream::Server(stream));
            let resumed = wire.facts().is_some_and(|facts| facts.resumed);
            let result = if resumed { HandshakeResult::Resumed } else { HandshakeResult::Full };
            (result, Shaken::Done(wire))
        }
    };
    tls.count(result);
    shaken
}

/// Tells a peer that speaks HTTP that this is the wrong port; closes on any other.
async fn refuse(mut socket: Wire, first: &[u8]) {
    let is_text = first.iter().take(3).all(u8::is_ascii_uppercase);
    if is_text && !matches!(timeout(LINGER, socket.write_all(ANSWER)).await, Ok(Ok(()))) {
        return;
    }
    linger(socket).await;
}

/// Ends our side, and reads and throws away what still comes, for a second at most.
async fn linger(mut socket: impl AsyncRead + AsyncWrite + Unpin) {
    let ended = async {
        socket.shutdown().await?;
        let mut scrap = [0; 1024];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut scrap).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        Ok::<_, io::Error>(())
    };
    // However it ends, the socket is closed now.
    let _ = timeout(LINGER, ended).await;
}

/// The first byte of a handshake. Source: RFC 8446 section 5.1.
const HANDSHAKE: u8 = 22;
/// Most of a hello.
const READ_FIRST: usize = 512;
const ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 39\r\n\r\nthis port speaks TLS; ask by https://.\n";
/// How long a peer has to close after we did.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes of a peer we no longer listen to.
const LINGER_BYTES: usize = 64 * 1024;
