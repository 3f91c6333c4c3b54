//! Who a connection comes from where a proxy stands before us and says it first: the PROXY
//! protocol, versions 1 and 2.
//!
//! A balancer that only carries bytes hides who its clients are. So it may begin each connection
//! with a header that names them, and from then on the client is the peer: for the limits of its
//! address, for trust, in the log, and towards upstreams. A header that anybody could write would
//! let anybody be anybody: it is taken from the proxies that are named, and required of them;
//! whoever else connects is reset at once. The whole header has to come within the time for a first
//! byte. One that is broken, longer than it may be, or late ends the connection by a reset.
//!
//! A proxy speaks for itself, as in a health check, where it says LOCAL, UNKNOWN or no address of
//! the internet; then it is the peer.
//!
//! Known limits: what else a header of version 2 says (TLV: names, certificates, a checksum) is
//! skipped unread. A header for datagrams is refused.

mod header;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use seawall::Clock;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout_at;

use self::header::{Read, parse};
use crate::wire::Wire;

/// A connection, and the client that its proxy named; nothing if the proxy speaks for itself.
pub(super) struct Introduced {
    pub(super) socket: Wire,
    pub(super) client: Option<SocketAddr>,
}

/// Reads the header, and resets a connection that has none.
pub(super) async fn introduce(
    mut socket: Wire,
    clock: &Clock,
    limit: Duration,
) -> Option<Introduced> {
    let until = clock.instant(clock.now().after(limit));
    match timeout_at(until, read(&mut socket)).await {
        Ok(Some((rest, client))) => Some(Introduced { socket: socket.unread(rest), client }),
        Ok(None) | Err(_) => {
            socket.reset();
            None
        }
    }
}

/// What came behind the header, and whom it named; nothing if there is none.
async fn read(socket: &mut Wire) -> Option<(BytesMut, Option<SocketAddr>)> {
    let mut begin = BytesMut::with_capacity(READ_AT_ONCE);
    loop {
        // The header is bounded where it is read, before it is whole.
        match parse(&begin).ok()? {
            Read::Whole { length, client } => return Some((begin.split_off(length), client)),
            Read::Part => {}
        }
        begin.reserve(READ_AT_ONCE);
        if socket.read_buf(&mut begin).await.ok()? == 0 {
            return None;
        }
    }
}

/// More than most headers have.
const READ_AT_ONCE: usize = 256;
