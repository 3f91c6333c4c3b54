//! The gateway.

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
pub use server::{
    CloseReason, ConnInfo, ConnectionGauges, DownstreamProtocol, DrainPhase, DrainPhases,
    DrainReport, DrainSignal, DrainTrigger, DrainView, ListenerOptions, Server, ServerOptions,
    bind, drain_signal, max_connections_default, raise_file_limit,
};
