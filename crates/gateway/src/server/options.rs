//! The limits of a server and of its listeners.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{DoorParams, SpreadParams};

use super::drain::DrainPhases;
use crate::config::PeerRange;
use crate::quota::IPV6_PREFIX;
use crate::tls::ListenerTls;

/// What is the same for all listeners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerOptions {
    /// Open connections at which accepting pauses; at least 1. Default by
    /// [`max_connections_default`].
    pub max_connections: usize,
    /// Bytes of one request head; beyond, 431. At least 8 KiB are buffered. Default 64 KiB.
    pub head_bytes: usize,
    /// Fields of one HTTP/1.1 request head; beyond, 431. Default 100.
    pub head_fields: usize,
    /// Concurrent HTTP/2 streams of one connection; more are refused. Default 256.
    pub h2_streams: u32,
    /// How long a peer may take nothing of what we have for it. Default 60 s.
    pub write_stall: Duration,
    /// The phases of leaving.
    pub drain: DrainPhases,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            max_connections: 8192,
            head_bytes: 64 * 1024,
            head_fields: 100,
            h2_streams: 256,
            write_stall: Duration::from_secs(60),
            drain: DrainPhases::default(),
        }
    }
}

/// What is told apart by listener.
#[derive(Clone)]
pub(crate) struct ListenerOptions {
    /// Wait for the first byte of a connection. Default 10 s.
    pub first_byte_timeout: Duration,
    /// Wait for a whole request head, from its first byte. Default 10 s.
    pub head_timeout: Duration,
    /// Wait for the next request on a connection. Default 75 s: longer than the 60 s after which
    /// common load balancers close their side first.
    pub idle_timeout: Duration,
    /// Age after which a connection is told to close, jittered × 0.9–1.1. Default 1 h.
    pub max_age: Duration,
    /// Who is let in. Default: everybody.
    pub door: DoorParams,
    /// Bits of an IPv6 address that tell callers apart. Default 64.
    pub ipv6_prefix: u8,
    /// How long a caller may take nothing of what waits for it. Default: `write_stall`.
    pub stall: Option<Duration>,
    /// How those are spread that are closed for it. Default 100 a second.
    pub ends: SpreadParams,
    /// Bytes that the kernel may hold for the caller of a tunnel. Default: as it likes.
    pub send_buffer: Option<usize>,
    /// Whose connections begin with a header of the PROXY protocol; nobody else may connect then.
    /// Default none: connections begin without.
    pub proxies: Option<Arc<[PeerRange]>>,
    /// Which peers are trusted: one that abandons too many requests is told to close and finishes
    /// what it has, instead of being cut. Default none.
    pub is_trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// TLS, if it is spoken here; the handshake ends within `head_timeout` of its first byte.
    /// Default none.
    pub tls: Option<Arc<ListenerTls>>,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            first_byte_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            max_age: Duration::from_secs(3600),
            door: DoorParams::OPEN,
            ipv6_prefix: IPV6_PREFIX,
            stall: None,
            ends: SpreadParams::default(),
            send_buffer: None,
            proxies: None,
            is_trusted: Arc::new(|_| false),
            tls: None,
        }
    }
}

impl fmt::Debug for ListenerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerOptions")
            .field("first_byte_timeout", &self.first_byte_timeout)
            .field("head_timeout", &self.head_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_age", &self.max_age)
            .field("door", &self.door)
            .field("proxies", &self.proxies)
            .field("stall", &self.stall)
            .field("ends", &self.ends)
            .field("send_buffer", &self.send_buffer)
            .field("ipv6_prefix", &self.ipv6_prefix)
            .finish_non_exhaustive()
    }
}
