//! Holds the connections to one upstream and sends requests over them, each at most once.
//!
//! A request that was handed to the kernel is never sent again from here: whether it may be is a
//! question of its method and of the retry budget, and both live above. What this module owes its
//! caller is proof. A [`SendError`] tells apart what certainly was not processed from what may
//! have been, and hands the request back where not a byte of it left.
//!
//! ```text
//! checkout ─▶ Lease ─send─▶ UpstreamBody ─end─▶ idle list   (HTTP/1.1, last in first out)
//!    │                          └────drop─▶ closed      (HTTP/2: the stream is reset)
//!    └ waits for: a freed connection, a dial, or the end of its time
//! ```
//!
//! Capacity is counted in sockets of all endpoints together. It is taken when a dial begins and
//! given back when the socket is really gone, so a close that takes its time keeps its place.
//! A dial belongs to its endpoint and not to the checkout that asked for it: a caller that leaves
//! meanwhile leaves a warm connection behind.
//!
//! Known limits: over HTTP/2 an upload that outlives its response is not counted as a stream, so
//! the peer's limit may hold back the next stream for that long; a tunnel and a response that
//! left the pool ([`UpstreamBody::leave_pool`]) are counted apart and bounded by the caller; over
//! HTTP/2 interim answers are bounded for one stream at a time, so two streams that flood in turns
//! are ended by the time of their attempts only.

mod addresses;
mod body;
mod classify;
mod conn;
mod connect;
mod error;
mod http1;
mod http2;
mod interim;
mod pool;
mod resolve;
mod settings;
mod socket;
mod state;
mod stats;
mod upload;

pub(crate) use body::UpstreamBody;
pub(crate) use classify::classify;
pub(crate) use connect::Place;
pub(crate) use error::SendError;
pub(crate) use pool::{Lease, Pool, Wanted};
pub(crate) use resolve::Resolver;
pub(crate) use settings::{PoolProtocol, PoolSettings};

#[cfg(test)]
mod tests;
