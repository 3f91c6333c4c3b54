//! What a pool is told when it is made: plain values, checked where the configuration is read.

use std::time::Duration;

/// How the endpoints of an upstream are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolProtocol {
    /// HTTP/1.1, one exchange per connection at a time.
    Http1,
    /// HTTP/2: without TLS by prior knowledge, with TLS by ALPN.
    H2c,
}

/// The knobs of a [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSettings {
    /// How the endpoints are spoken to.
    pub protocol: PoolProtocol,
    /// Sockets, all endpoints together, dials included; 1 or more. At the bound an idle
    /// connection of another endpoint makes room, else the checkout waits.
    pub max_connections: usize,
    /// Checkouts that may wait without a dial on its way for them. At zero nobody waits. Beyond it
    /// a checkout is refused at once. Default 1,024.
    pub max_waiting: usize,
    /// Bound on name, TCP, TLS and the preface of HTTP/2 together, all addresses of the name
    /// included. Default 2 s.
    pub connect_timeout: Duration,
    /// Idle HTTP/1.1 connections older than this are closed, not reused. Default 4 s, below the
    /// 5 s at which common servers close.
    pub reuse_idle: Duration,
    /// How long an upload may outlast its answer on HTTP/1.1 before the connection is closed.
    /// Default 10 s.
    pub settle: Duration,
    /// Most streams of ours on one HTTP/2 connection; the peer's own limit if that is lower.
    /// 1 or more. Default 256.
    pub h2_streams: usize,
    /// HTTP/2 connections without a stream for longer than this are closed. Default 60 s.
    pub h2_idle: Duration,
    /// Time between two HTTP/2 pings, idle or not. Default 10 s.
    pub h2_ping_interval: Duration,
    /// Wait for the answer to a ping; without it the connection is closed. Default 5 s.
    pub h2_ping_timeout: Duration,
    /// Bytes of one response head; 8 KiB or more on HTTP/1.1. Default 64 KiB.
    pub response_head_bytes: u32,
    /// Fields of one response head on HTTP/1.1; another number than 100 costs an allocation per
    /// response. Default 100.
    pub response_head_fields: usize,
}

impl PoolSettings {
    /// The defaults, for so many connections.
    #[must_use]
    pub(crate) const fn new(protocol: PoolProtocol, max_connections: usize) -> Self {
        Self {
            protocol,
            max_connections,
            max_waiting: MAX_WAITING,
            connect_timeout: CONNECT_TIMEOUT,
            reuse_idle: REUSE_IDLE,
            settle: SETTLE,
            h2_streams: H2_STREAMS,
            h2_idle: H2_IDLE,
            h2_ping_interval: H2_PING_INTERVAL,
            h2_ping_timeout: H2_PING_TIMEOUT,
            response_head_bytes: RESPONSE_HEAD_BYTES,
            response_head_fields: HYPER_HEAD_FIELDS,
        }
    }

    /// Checkouts that one dial in progress can serve. Before its SETTINGS a peer's limit on
    /// streams is unknown; 100 is the least that is recommended to peers.
    pub(super) fn per_dial(&self) -> usize {
        match self.protocol {
            PoolProtocol::Http1 => 1,
            PoolProtocol::H2c => self.h2_streams.clamp(1, RECOMMENDED_STREAMS),
        }
    }

    /// Time between two looks at the idle lists: often enough that nothing idles for much longer
    /// than it may.
    pub(super) fn sweep_interval(&self) -> Duration {
        let idle = match self.protocol {
            PoolProtocol::Http1 => self.reuse_idle,
            PoolProtocol::H2c => self.h2_idle,
        };
        (idle / 4).max(SWEEP_MIN)
    }
}

/// Source: seawall-design, bulkhead: as many as may be in flight.
const MAX_WAITING: usize = 1_024;
/// Source: seawall-design, timeouts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Source: seawall-design, pool.
const REUSE_IDLE: Duration = Duration::from_secs(4);
/// Source: own choice: as long as a caller's connection is given for a head.
const SETTLE: Duration = Duration::from_secs(10);
/// Source: seawall-design, limits: as many as our own listener grants.
const H2_STREAMS: usize = 256;
/// Source: own choice: the idle time after which a burst's connections are given back.
const H2_IDLE: Duration = Duration::from_secs(60);
/// Source: own choice: with the timeout, a silent peer is noticed within 15 s.
const H2_PING_INTERVAL: Duration = Duration::from_secs(10);
/// See [`H2_PING_INTERVAL`].
const H2_PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Source: seawall-design, limits.
const RESPONSE_HEAD_BYTES: u32 = 64 * 1024;
/// The number of fields hyper parses without an allocation. Source: hyper, `max_headers`.
pub(super) const HYPER_HEAD_FIELDS: usize = 100;
/// Source: RFC 9113, section 6.5.2.
const RECOMMENDED_STREAMS: usize = 100;
/// A sweep more often than this would be work without a use.
const SWEEP_MIN: Duration = Duration::from_millis(10);
