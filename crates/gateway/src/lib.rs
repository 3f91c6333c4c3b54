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
    BreakerView, BulkheadView, CloseReason, Exposition, Format, IgnoredBecause, IgnoredHeader,
    Metrics, PoolView, Refusal, RouteLabels, Shape, Snapshot, Source, Stage, UpstreamLabels,
    UpstreamSnapshot,
};
pub use units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};
