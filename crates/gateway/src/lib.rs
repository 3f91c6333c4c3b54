//! The gateway.

mod authority;
mod refusal;
mod route;

pub use authority::Authority;
pub use refusal::Refusal;
pub use route::{BadPath, RouteTable};
