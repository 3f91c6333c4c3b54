//! The gateway.

mod metrics;
mod units;

pub use metrics::{
    BreakerState, BreakerView, BulkheadView, CloseReason, Exposition, Format, IgnoredBecause,
    IgnoredHeader, Metrics, PoolView, Refusal, RouteLabels, Shape, Snapshot, Source, Stage,
    UpstreamLabels, UpstreamSnapshot,
};
pub use units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};
