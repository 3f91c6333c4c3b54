//! What a pool shows of itself.

use std::time::Duration;

/// A snapshot of a pool. Totals count since the pool was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStats {
    /// Sockets that count against `max_connections`, dials included.
    pub open: usize,
    /// Of these, dials in progress.
    pub dialing: usize,
    /// Of these, closing but not gone.
    pub closing: usize,
    /// Of these, without an exchange and ready for one.
    pub idle: usize,
    /// Exchanges under way or leased: connections on HTTP/1.1, streams on HTTP/2.
    pub in_use: usize,
    /// Sockets that left the pool and still exist: tunnels and long streams.
    pub detached: usize,
    /// Checkouts that wait.
    pub waiting: usize,
    /// How long the first of them has waited.
    pub waiting_longest: Duration,
    /// Connections made.
    pub connects_total: u64,
    /// Dials that failed.
    pub connect_errors_total: u64,
    /// Checkouts served by a connection that had served before.
    pub reused_total: u64,
    /// Checkouts refused because too many wait.
    pub refused_total: u64,
    /// Connections that ended, by reason.
    pub closed: ClosedTotals,
    /// The same for each endpoint, in the order given.
    pub endpoints: Vec<EndpointStats>,
}

/// Connections that ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClosedTotals {
    /// The peer closed, or the transport or protocol failed.
    pub peer: u64,
    /// HTTP/2: the peer had sent GOAWAY.
    pub going_away: u64,
    /// Idle for too long, or idle while its peer allowed no stream.
    pub expired: u64,
    /// Idle, closed in favour of another endpoint.
    pub evicted: u64,
    /// The exchange on it was dropped before its end.
    pub abandoned: u64,
    /// Left the pool with its exchange.
    pub detached: u64,
}

/// One endpoint's share of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointStats {
    /// Sockets, dials included.
    pub open: usize,
    /// Dials in progress.
    pub dialing: usize,
    /// Connections without an exchange and ready for one.
    pub idle: usize,
    /// Checkouts that wait.
    pub waiting: usize,
}
