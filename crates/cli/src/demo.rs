//! Demo
mod gateway;
mod load;
mod upstream;

pub use gateway::GatewayProcess;
pub use load::{
    Answer, Call, Client, Failure, Figures, Ledger, Load, LoadOptions, PlainRetry, Protocol,
    Spacing, get,
};
pub use upstream::{
    Arrival, Attempts, Behaviour, BodySeen, Capacity, Ending, Journal, Latency, Upstream,
};
