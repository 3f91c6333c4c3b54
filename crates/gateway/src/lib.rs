//! The gateway.

mod authority;
mod headers;
mod refusal;
mod route;

pub use authority::Authority;
pub use headers::{
    Answered, FieldNames, Fields, Ids, Inbound, Stated, TraceContext, check_framing, upgrade_of,
};
pub use refusal::Refusal;
pub use route::{BadPath, RouteTable};
