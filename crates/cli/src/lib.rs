//! The library half of the binary: what its subcommands do.

pub mod args;
pub mod check;
mod demo;
pub mod run;
pub mod terminal;

pub use demo::{
    ActFigures, Answer, Arrival, Attempts, Bar, Behaviour, BodySeen, Call, Capacity, Client,
    Ending, Failure, Figures, GatewayProcess, Journal, Latency, Ledger, Load, LoadOptions,
    PlainRetry, Protocol, SideFigures, Spacing, Upstream, Verdict, demo, get,
};
