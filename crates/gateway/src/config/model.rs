//! The configuration after every check: what the rest of the gateway reads.
//!
//! Built by the parser next door or by [`GatewayConfig::for_upstream`] alone, and so valid.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::grpc::Grpc;
use super::listen::ListenAddress;
use super::rate::Rates;
use super::tls::{ListenerTls, UpstreamTls};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use seawall::Credential;
use seawall_policy::{
    BreakerOptions, BudgetOptions, BulkheadOptions, DoorOptions, HedgeOptions, RetryOptions,
    RetryParams, SpreadOptions, StackConfig, StopReason,
};

use super::admin::AdminAccess;
use super::balance::Sharing;
use super::credentials::CredentialFile;
use super::edits::HeaderEdits;
use super::health::HealthCheck;
use super::host_header::HostHeader;
use super::matching::{Conditions, PathMatch};
use super::rules::Rules;

/// Everything `seawall run` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Where requests come in; at least one.
    pub listeners: Vec<Listener>,
    /// Where operators look in.
    pub admin: SocketAddr,
    /// Who may ask there.
    pub admin_access: AdminAccess,
    /// The protected services; routes and endpoints refer to them by index.
    pub upstreams: Vec<Upstream>,
    /// In order of precedence as matched: see the page of configuration.
    pub routes: Vec<Route>,
    /// Bounds on what a peer may make us hold.
    pub limits: Limits,
    /// The phases between SIGTERM and exit.
    pub drain: Drain,
    /// Names of the headers we read and write.
    pub headers: HeaderNames,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// A file that switches retries off while it says so; watched.
    pub kill_switch: Option<PathBuf>,
    /// Where all this was read.
    pub origin: super::Origin,
}

/// One listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it listens.
    pub address: ListenAddress,
    /// Peers that may state tenant, priority, cost, attempt number, deadline and forwarded-for.
    pub trusted_peers: Vec<PeerRange>,
    /// Whether unnamed loopback peers may state a deadline, for their own request. Default true.
    pub trust_loopback_deadline: bool,
    /// Who is let in. Default: everybody.
    pub door: DoorOptions,
    /// Bits of an IPv6 address that tell callers apart at the door. Default 64.
    pub ipv6_prefix: u8,
    /// Whose connections begin with a header of the PROXY protocol. Default: nobody's.
    pub proxies: Option<Vec<PeerRange>>,
    /// The field in which trusted peers say who a request is from. Default: none.
    pub client_header: Option<HeaderName>,
    /// What becomes of callers that do not take what is sent to them.
    pub slow_readers: SlowReaders,
    /// TLS, if it is spoken here.
    pub tls: Option<ListenerTls>,
    /// Wait for the first byte, and for a whole request head. Default 10 s each.
    pub first_byte_timeout: Duration,
    /// See `first_byte_timeout`.
    pub head_timeout: Duration,
    /// Keep-alive idle time. Default 75 s.
    pub idle_timeout: Duration,
    /// Age after which a connection is told to close, jittered ×0.9–1.1. Default 1 h.
    pub max_age: Duration,
}

/// What becomes of callers that do not take what is sent to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowReaders {
    /// How long they may take nothing. Default: as long as the most patient upstream may be idle;
    /// of a tunnel, its own upstream.
    pub stall: Option<Duration>,
    /// How many are closed in a time. Default 100 a second.
    pub close_rate: SpreadOptions,
    /// Bytes that the kernel may hold for the caller of a tunnel. Default: as it likes.
    pub send_buffer: Option<usize>,
}

/// A range of peer addresses (CIDR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRange {
    /// Any address of the range.
    pub network: IpAddr,
    /// Leading bits that count.
    pub prefix: u8,
}

impl PeerRange {
    /// Whether `peer` lies in the range; an IPv4-mapped IPv6 peer counts as its IPv4 address.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.network, peer.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(peer)) => {
                let kept = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                network.to_bits() & kept == peer.to_bits() & kept
            }
            (IpAddr::V6(network), IpAddr::V6(peer)) => {
                let kept = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                network.to_bits() & kept == peer.to_bits() & kept
            }
            _ => false,
        }
    }
}

/// A protected service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in metrics, logs and on the admin port.
    pub name: String,
    /// At least one.
    pub endpoints: Vec<EndpointAddress>,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// TLS, if its endpoints are `https`.
    pub tls: Option<UpstreamTls>,
    /// What its requests prove themselves with, and the first of it. Default: nothing.
    pub credentials: Option<(CredentialFile, Credential)>,
    /// Connections, all endpoints together. Default: the bulkhead's limit plus a tenth.
    pub max_connections: usize,
    /// Whom its requests are for. Default: as received.
    pub host_header: HostHeader,
    /// Time limits of a call.
    pub timeouts: UpstreamTimeouts,
    /// Retries. `None` only by `retry: off`.
    pub retry: Option<RetryOptions>,
    /// The retry budget. `None` only by `retry_budget: off`.
    pub budget: Option<BudgetOptions>,
    /// Second attempts beside slow ones. Default: off.
    pub hedge: Option<HedgeOptions>,
    /// The breaker per endpoint and route. `None` only by `breaker: off`.
    pub breaker: Option<BreakerOptions>,
    /// What may be sent to it in a time. Default: no limit.
    pub rate: Rates,
    /// Calls in flight.
    pub bulkhead: BulkheadOptions,
    /// How its endpoints share its calls.
    pub sharing: Sharing,
    /// What its answers mean where their status does not say it.
    pub rules: Rules,
    /// How its endpoints are asked whether they are well. Default: not.
    pub health_check: Option<HealthCheck>,
    /// What happens to a call whose caller left. `None`: finish on HTTP/1.1, cancel on HTTP/2.
    pub on_abandon: Option<OnAbandon>,
    /// Whether the deadline header and attempt number are sent to it. Default true.
    pub send_deadline: bool,
}

impl Upstream {
    /// The chain in front of it. The total may be overridden by a route, per call.
    pub(crate) fn stack_config(&self) -> StackConfig {
        // Where nobody set a timeout, only a call that has timed out is slow: half of a default of
        // 12 s says nothing about what this upstream's callers call slow.
        let judged = |breaker: BreakerOptions| BreakerOptions {
            slow: breaker.slow.or(Some(self.timeouts.attempt)),
            ..breaker
        };
        StackConfig {
            total: Some(self.timeouts.total),
            retry: self.retry,
            budget: self.budget,
            hedge: self.hedge,
            breaker: self.breaker.map(judged),
            rate: self.rate.all,
            rate_per_key: self.rate.per_key.as_ref().map(|per_key| per_key.options),
            attempt_timeout: Some(self.timeouts.attempt),
            bulkhead: Some(self.bulkhead),
            limit: None,
            checkout: Some(self.timeouts.checkout),
            connect: Some(self.timeouts.connect),
            balance: self.sharing.balance,
            outlier: self.sharing.outlier,
            slow_start: self.sharing.slow_start,
        }
    }
}

/// Where one endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAddress {
    /// A name, resolved at connect time, or a literal address without brackets.
    Tcp {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
        /// Whether TLS is spoken there.
        tls: bool,
    },
    /// A socket of this host.
    Unix(PathBuf),
}

impl EndpointAddress {
    /// Whether TLS is spoken there.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }
}

impl std::fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How an upstream is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one exchange per connection at a time.
    Http1,
    /// HTTP/2: without TLS by prior knowledge, with TLS by ALPN.
    H2c,
}

/// Time limits of a call to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Name, TCP, TLS and the protocol's preface. Default 2 s.
    pub connect: Duration,
    /// Wait for a connection from the pool. Default 1 s.
    pub checkout: Duration,
    /// One attempt, from admission to its response head. Default 12 s.
    pub attempt: Duration,
    /// The whole call, to its response head. Default 25 s.
    pub total: Duration,
    /// Between two frames of a body, either way. Default 60 s.
    pub idle: Duration,
    /// The whole response body. Default none.
    pub body: Option<Duration>,
}

/// What happens to a call whose caller left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAbandon {
    /// It runs on to its end or its own timeout and is recorded then.
    Finish,
    /// It is reset within 50 ms.
    Cancel,
}

/// Which requests go where, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its name in metrics and logs; default: host, path and methods as written.
    pub name: String,
    /// Lower-case, without port; `None` matches any.
    pub host: Option<String>,
    /// The path it takes.
    pub path: PathMatch,
    /// What a request must have beside host and path.
    pub conditions: Conditions,
    /// Index into [`GatewayConfig::upstreams`].
    pub upstream: usize,
    /// Index of the route among those of its upstream (its lane in the bulkhead).
    pub lane: usize,
    /// What goes in place of the matched path; empty for nothing. `None`: it stays.
    pub rewrite: Option<String>,
    /// What is done to the fields of a request after those of the hop are in order.
    pub request_headers: HeaderEdits,
    /// The same for an answer, wherever it comes from.
    pub response_headers: HeaderEdits,
    /// Overrides the upstream's total timeout.
    pub total: Option<Duration>,
    /// Overrides the upstream's attempt timeout.
    pub attempt: Option<Duration>,
    /// Whether every request may be executed twice, whatever its method. Default false.
    pub idempotent: bool,
    /// Overrides the upstream's retries.
    pub retry: Option<RetryParams>,
    /// Whether this hop owns the retries. Default true.
    pub owns_retries: bool,
    /// Whether an upstream's Retry-After leaves as it came. Default false: jittered upward.
    pub retry_after_verbatim: bool,
    /// Bound on a request body; larger is answered 413. Default none.
    pub max_body: Option<u64>,
    /// What is known of the gRPC calls it takes.
    pub grpc: Grpc,
    /// A static answer when the call ended for one of its reasons.
    pub fallback: Option<Fallback>,
}

/// A static answer in place of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Answered for these ends of a call.
    pub on: Vec<FallbackOn>,
    /// Default 200.
    pub status: StatusCode,
    /// Default `application/json`.
    pub content_type: HeaderValue,
    /// At most 64 KiB.
    pub body: Bytes,
}

/// What a fallback stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackOn {
    /// Every failure that is not the caller's: any stop reason but *answered*, 502, 503, 504.
    Failure,
    /// One stop reason.
    Stopped(StopReason),
    /// One status of the upstream.
    Status(u16),
}

/// Bounds on what a peer may make us hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Downstream connections; default min(8192, (file limit − 256) / 2), set at start if `None`.
    pub max_connections: Option<usize>,
    /// Bytes of one request head. Default 64 KiB.
    pub head_bytes: usize,
    /// Fields of one request head. Default 100.
    pub head_fields: usize,
    /// Body bytes kept for a second attempt. Default 64 KiB.
    pub replay_bytes: usize,
    /// Concurrent HTTP/2 streams of one connection. Default 256.
    pub h2_streams: u32,
}

/// The phases between SIGTERM and exit. Their sum must stay below the termination grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Not ready but accepting; closes are spread within it. Default 5 s.
    pub accept: Duration,
    /// No longer accepting; what is in flight goes on. Default 20 s.
    pub in_flight: Duration,
    /// Closing what is left. Default 2 s.
    pub close: Duration,
}

/// Names of the headers we read and write; standard ones are not renamable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Milliseconds the caller still waits. Default `X-Remaining-Ms`.
    pub remaining: HeaderName,
    /// Which attempt the caller makes; the first is 1. Default `X-Retry-Attempt`.
    pub attempt: HeaderName,
    /// Default `X-Tenant`.
    pub tenant: HeaderName,
    /// Default `X-Priority`.
    pub priority: HeaderName,
    /// Default `X-Cost`.
    pub cost: HeaderName,
    /// Default `X-Request-Id`.
    pub request_id: HeaderName,
    /// Default `X-Correlation-Id`.
    pub correlation_id: HeaderName,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            remaining: HeaderName::from_static("x-remaining-ms"),
            attempt: HeaderName::from_static("x-retry-attempt"),
            tenant: HeaderName::from_static("x-tenant"),
            priority: HeaderName::from_static("x-priority"),
            cost: HeaderName::from_static("x-cost"),
            request_id: HeaderName::from_static("x-request-id"),
            correlation_id: HeaderName::from_static("x-correlation-id"),
        }
    }
}

/// Where the access log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// JSON lines on standard output.
    Stdout,
    /// Nowhere.
    Off,
}
