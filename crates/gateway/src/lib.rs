//! The gateway: stands in front of a service and keeps it useful while everything around it fails.
//!
//! [`GatewayConfig`] is read from a file, with every mistake told at its place, or built for one
//! upstream; [`run`] serves it until it is told to leave, and says in [`Ended`] what had to be cut.
//! Everything between is private: listeners and their timers (`server`), the way of a request
//! (`pipeline`), connections to the upstreams (`upstream`), what operators see (`admin`, `metrics`,
//! `access_log`). Decisions are those of `seawall-policy`, driven by `seawall`; here they are only
//! carried. `ARCHITECTURE.md` draws the way of a request through the modules.
//!
//! ```
//! use seawall_gateway::GatewayConfig;
//! let (config, warnings) = GatewayConfig::for_upstream("http://127.0.0.1:9000", None, None)?;
//! assert_eq!(config.listeners[0].address.to_string(), "127.0.0.1:8080");
//! assert!(warnings.is_empty());
//! # Ok::<(), seawall_gateway::ConfigErrors>(())
//! ```

mod access_log;
mod admin;
mod answer;
mod authority;
mod backend;
mod blocking;
mod body;
mod boot;
mod calendar;
mod client;
mod conclude;
mod config;
mod credentials;
mod diagnostics;
mod exchange;
mod file;
mod forwards;
mod gateway;
mod grpc;
mod headers;
mod health;
mod judge;
mod lines;
mod live;
mod metrics;
mod notify;
mod outbound;
mod pipeline;
mod progress;
mod queues;
mod quota;
mod refusal;
mod reload;
mod route;
mod server;
mod signals;
mod switches;
mod tls;
mod unmatched;
mod upgrade;
mod upload;
mod upstream;
mod wire;

pub use boot::{Ended, RunError, Serving, run, start};
pub use config::{
    AccessLog, AdminAccess, AdminToken, Alpn, CertificateFiles, ClientAuth, Conditions,
    ConfigErrors, CredentialFile, Drain, EndpointAddress, Fallback, FallbackOn, GatewayConfig,
    Grpc, GrpcStreaming, HeaderEdits, HeaderNames, HealthCheck, HostHeader, Limits, ListenAddress,
    Listener, ListenerTls, OnAbandon, Origin, PathMatch, PeerRange, PerKey, Probe, Protocol,
    RateKeyOf, Rates, RootsOf, Route, Rules, Sharing, SlowReaders, TlsVersion, Upstream,
    UpstreamTimeouts, UpstreamTls, Warning, WorstCase, parse_bind,
};
use seawall_policy::units;
pub use seawall_policy::units::{
    Rate, UnitError, format_duration, format_rate, format_size, parse_duration, parse_rate,
    parse_size,
};

/// The JSON Schema (2020-12) of the configuration file. A test makes it from the structs that read
/// the file and the page that describes it.
pub const SCHEMA: &str = include_str!("../../../seawall.schema.json");
