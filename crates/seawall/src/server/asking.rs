//! Who asks, how much it matters, what it costs, and until when it is of use.
//!
//! | field | read as | else |
//! |---|---|---|
//! | `X-Priority` | `critical`, `default`, `sheddable` or `background`, in any case | default |
//! | `X-Tenant` | a name; only a hash of it is kept | nobody's |
//! | `X-Cost` | 1 to 1,000; more is 1,000 | 1 |
//! | `X-Remaining-Ms`, and `grpc-timeout` of a gRPC request | the sooner of both | the layer's patience |

use http::header::HeaderName;
use http::{HeaderMap, Request};
use seawall_policy::{Ask, Priority, Tenant, Timestamp, parse_grpc_timeout, parse_remaining};

use super::gate::ServerGate;
use crate::grpc::is_grpc;

/// Says of a request what the queue has to know.
pub trait Asking<B> {
    /// `arrival`: when it came, by the gate's clock. The gate makes a [`Tenant`] of a name
    /// ([`ServerGate::tenant`]). Called before anything is decided, so it has to be cheap.
    fn ask(&self, request: &Request<B>, arrival: Timestamp, gate: &ServerGate) -> Ask;
}

/// Every closure `Fn(&Request<B>, Timestamp, &ServerGate) -> Ask` is such a description.
impl<B, F: Fn(&Request<B>, Timestamp, &ServerGate) -> Ask> Asking<B> for F {
    fn ask(&self, request: &Request<B>, arrival: Timestamp, gate: &ServerGate) -> Ask {
        self(request, arrival, gate)
    }
}

/// What requests say of themselves, if they are believed. What is no such value counts as not
/// said.
///
/// | field | read as | else |
/// |---|---|---|
/// | `X-Priority` | `critical`, `default`, `sheddable`, `background` | default |
/// | `X-Tenant` | a name; only a hash of it is kept | nobody's |
/// | `X-Cost` | 1 to 1,000 | 1 |
/// | `X-Remaining-Ms`, and `grpc-timeout` of a gRPC request | the sooner of both | patience |
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpAsking {
    is_trusting: bool,
}

impl HttpAsking {
    /// Believes nothing: all callers are alike.
    #[must_use]
    pub const fn new() -> Self {
        Self { is_trusting: false }
    }

    /// Believes what requests say.
    #[must_use]
    pub const fn trusting() -> Self {
        Self { is_trusting: true }
    }
}

impl<B> Asking<B> for HttpAsking {
    fn ask(&self, request: &Request<B>, arrival: Timestamp, gate: &ServerGate) -> Ask {
        let plain = Ask::new(Timestamp::MAX);
        if !self.is_trusting {
            return plain;
        }
        let fields = request.headers();
        Ask {
            priority: priority(fields),
            tenant: tenant(fields, gate),
            cost: cost(fields).unwrap_or(plain.cost),
            until: until(fields, arrival),
            ..plain
        }
    }
}

fn priority(fields: &HeaderMap) -> Priority {
    let said = fields.get(PRIORITY).map_or(&b""[..], |value| value.as_bytes().trim_ascii());
    let names = ["critical", "default", "sheddable", "background"];
    let named = names.iter().zip(Priority::ALL);
    let found = named.into_iter().find(|(name, _)| said.eq_ignore_ascii_case(name.as_bytes()));
    found.map_or(Priority::Default, |(_, priority)| priority)
}

fn tenant(fields: &HeaderMap, gate: &ServerGate) -> Tenant {
    let name = fields.get(TENANT).map_or(&b""[..], |value| value.as_bytes().trim_ascii());
    if name.is_empty() { Tenant::NOBODY } else { gate.tenant(name) }
}

fn cost(fields: &HeaderMap) -> Option<u32> {
    let cost: u32 = fields.get(COST)?.to_str().ok()?.trim().parse().ok()?;
    (cost > 0).then_some(cost)
}

fn until(fields: &HeaderMap, arrival: Timestamp) -> Timestamp {
    let remaining = fields.get(REMAINING_MS).and_then(|value| parse_remaining(value.as_bytes()));
    let timeout = fields.get(GRPC_TIMEOUT).filter(|_| is_grpc(fields));
    let timeout = timeout.and_then(|value| parse_grpc_timeout(value.as_bytes()));
    let soonest = remaining.into_iter().chain(timeout).min();
    soonest.map_or(Timestamp::MAX, |left| arrival.after(left))
}

const PRIORITY: HeaderName = HeaderName::from_static("x-priority");
const TENANT: HeaderName = HeaderName::from_static("x-tenant");
const COST: HeaderName = HeaderName::from_static("x-cost");
const REMAINING_MS: HeaderName = HeaderName::from_static("x-remaining-ms");
/// Source: grpc-http2.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
