//! The gateway.

mod config;
mod units;

pub use config::{
    AccessLog, ConfigErrors, Drain, EndpointAddress, Fallback, FallbackOn, GatewayConfig,
    HeaderNames, Limits, Listener, OnAbandon, PeerRange, Protocol, Route, Upstream,
    UpstreamTimeouts, Warning, WorstCase, parse_bind,
};
pub use units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};
