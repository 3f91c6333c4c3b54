//! The library half of the binary: what its subcommands do.

mod demo;

pub use demo::{
    Answer, Arrival, Attempts, Behaviour, BodySeen, Call, Capacity, Client, Ending, Failure,
    Figures, GatewayProcess, Journal, Latency, Ledger, Load, LoadOptions, PlainRetry, Protocol,
    Spacing, Upstream, get,
};
