//! The gateway.

mod upstream;

pub use upstream::{
    CheckoutError, ClosedTotals, ConnectError, EndpointStats, Lease, Pool, PoolProtocol,
    PoolSettings, PoolStats, RequestBody, ResolveError, Resolver, ResolverStats, SendError,
    UploadError, UpstreamBody, classify,
};
