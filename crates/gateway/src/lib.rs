//! The gateway.

mod access_log;
mod admin;
mod diagnostics;
mod lines;
mod metrics;
mod units;

pub use access_log::{AccessLine, AccessLog, Completion};
pub use admin::{
    Admin, AdminBackend, EndpointBreakerView, EndpointView, QueueView, Readiness, RetriesChange,
    RetriesState, RetriesView, UnknownUpstream, UpstreamView,
};
pub use diagnostics::{Diagnostics, Level, Topic};
pub use metrics::{
    BreakerState, BreakerView, BulkheadView, CloseReason, Exposition, Format, IgnoredBecause,
    IgnoredHeader, Metrics, PoolView, Refusal, RouteLabels, Shape, Snapshot, Source, Stage,
    UpstreamLabels, UpstreamSnapshot,
mod config;

pub use config::{
    AccessLog, ConfigErrors, Drain, EndpointAddress, Fallback, FallbackOn, GatewayConfig,
    HeaderNames, Limits, Listener, OnAbandon, PeerRange, Protocol, Route, Upstream,
    UpstreamTimeouts, Warning, WorstCase, parse_bind,
};
pub use units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};
mod authority;
mod body;
mod headers;
mod refusal;
mod route;
mod server;

pub use authority::Authority;
pub use body::{IdleBody, IdleBodyError};
pub use headers::{
    Answered, FieldNames, Fields, Ids, Inbound, Stated, TraceContext, check_framing, upgrade_of,
};
pub use refusal::Refusal;
pub use route::{BadPath, RouteTable};
mod upstream;

pub use upstream::{
    CheckoutError, ClosedTotals, ConnectError, EndpointStats, Lease, Pool, PoolProtocol,
    PoolSettings, PoolStats, RequestBody, ResolveError, Resolver, ResolverStats, SendError,
    UploadError, UpstreamBody, classify,
pub use server::{
    CloseReason, ConnInfo, ConnectionGauges, DownstreamProtocol, DrainPhase, DrainPhases,
    DrainReport, DrainSignal, DrainTrigger, DrainView, ListenerOptions, Server, ServerOptions,
    bind, drain_signal, max_connections_default, raise_file_limit,
};
