//! The gateway from end to end: in this process, over loopback, between a caller and an upstream
//! that each test plays itself. Every wait is for an event and bounded; nothing sleeps.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test binary; panics are verdicts")]

mod abandoned;
mod admin_token;
mod bulkheads;
mod continues;
mod credentials;
mod deadlines;
mod door;
mod draining;
mod fallbacks;
mod fields;
mod grpc;
mod grpc_secured;
mod health;
mod hedges;
mod limits;
mod malformed;
mod observed;
mod proxied;
mod rates;
mod readings;
mod reloaded;
mod reloads;
mod retries;
mod routing;
mod rules;
mod signals;
mod slow_readers;
mod soak;
mod streaming;
mod support;
mod switches;
mod tls;
mod tls_renewal;
mod tls_upstream;
mod unix;
mod upgrades;
