//! The library half of the binary: what its subcommands do.

mod demo;

pub use demo::{
    ActFigures, Answer, Arrival, Attempts, Bar, Behaviour, BodySeen, Call, Capacity, Client,
    Ending, Failure, Figures, GatewayProcess, Journal, Latency, Ledger, Load, LoadOptions,
    PlainRetry, Protocol, SideFigures, Spacing, Upstream, Verdict, demo, get,
};
