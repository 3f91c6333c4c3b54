//! The labels of the metrics and the values they can take.

use seawall_policy::{BreakerState, Class, StopReason};

use super::causes::CAUSES;
pub(super) use super::causes::cause;

use super::succession::present;
use super::{Shape, codes::GRPC_CODES};
use crate::reload::Reloaded;
use crate::server::CloseReason;
use crate::tls::{HandshakeResult, UpstreamTls};

/// A label of a family. The order of a family's labels is the order of its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Route,
    /// The upstream of the route before it; adds no series.
    RouteUpstream,
    Upstream,
    Endpoint,
    Listener,
    CodeClass,
    GrpcCode,
    CallerAttempt,
    Header,
    HeaderReason,
    StopReason,
    Class,
    Cause,
    ErrorKind,
    Rule,
    CheckResult,
    Refusal,
    Stage,
    CloseReason,
    DoorRefusal,
    BreakerTo,
    EjectionReason,
    HedgeRefusal,
    RefreshResult,
    PoolState,
    Handshake,
    UpstreamHandshake,
    Certificate,
    Renewal,
    Lookup,
    Version,
    ReloadResult,
    SwitchKind,
    Hash,
}

/// What an operator may switch.
pub(super) const SWITCHES: [&str; 2] = ["breaker", "retries"];

impl Label {
    /// Its name on the wire.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::RouteUpstream | Self::Upstream => "upstream",
            Self::Endpoint => "endpoint",
            Self::Listener => "listener",
            Self::CodeClass => "code_class",
            Self::GrpcCode => "code",
            Self::CallerAttempt => "attempt",
            Self::Header => "header",
            Self::HeaderReason
            | Self::StopReason
            | Self::Refusal
            | Self::CloseReason
            | Self::DoorRefusal
            | Self::EjectionReason
            | Self::HedgeRefusal => "reason",
            Self::Class => "class",
            Self::Cause => "cause",
            Self::ErrorKind => "kind",
            Self::Rule => "rule",
            Self::CheckResult => "result",
            Self::Stage => "stage",
            Self::BreakerTo => "to",
            Self::PoolState => "state",
            Self::Handshake
            | Self::UpstreamHandshake
            | Self::Renewal
            | Self::Lookup
            | Self::RefreshResult => "result",
            Self::Certificate => "certificate",
            Self::Version => "version",
            Self::ReloadResult => "result",
            Self::SwitchKind => "kind",
            Self::Hash => "hash",
        }
    }

    /// The values that do not depend on the configuration; empty for the others.
    pub(super) const fn fixed(self) -> &'static [&'static str] {
        match self {
            Self::CodeClass => CODE_CLASSES,
            Self::GrpcCode => &GRPC_CODES,
            Self::CallerAttempt => CALLER_ATTEMPTS,
            Self::Header => IgnoredHeader::LABELS,
            Self::HeaderReason => IgnoredBecause::LABELS,
            Self::Class => CLASSES,
            Self::Cause => CAUSES,
            Self::Refusal => Refusal::LABELS,
            Self::Stage => Stage::LABELS,
            Self::CloseReason => &CloseReason::LABELS,
            Self::DoorRefusal => &DOOR_REFUSALS,
            Self::BreakerTo => BREAKER_STATES,
            Self::EjectionReason => &["failures", "slow", "probes"],
            Self::HedgeRefusal => HEDGE_REFUSALS,
            Self::RefreshResult => REFRESH_RESULTS,
            Self::PoolState => POOL_STATES,
            Self::Handshake => &HandshakeResult::LABELS,
            Self::UpstreamHandshake => &UpstreamTls::LABELS,
            Self::Renewal => RENEWALS,
            Self::Lookup => LOOKUPS,
            Self::ReloadResult => &Reloaded::LABELS,
            Self::SwitchKind => &SWITCHES,
            Self::CheckResult => CHECK_RESULTS,
            _ => &[],
        }
    }

    /// How many values it takes in `shape`; 1 where it adds no series.
    pub(super) fn count(self, shape: &Shape) -> usize {
        match self {
            Self::Route => shape.routes.len() + 1,
            Self::Upstream => shape.upstreams.len(),
            Self::Listener => shape.listeners.len(),
            Self::StopReason => StopReason::ALL.len(),
            Self::Endpoint => shape.most_endpoints(),
            Self::RouteUpstream | Self::Version | Self::Hash => 1,
            _ => self.fixed().len(),
        }
    }

    /// The value at `index` in a series of `route`, which only [`Label::RouteUpstream`] and
    /// [`Label::Endpoint`] look at. Nothing where that route has no such endpoint.
    pub(super) fn value(self, shape: &Shape, index: usize, route: usize) -> Option<&str> {
        match self {
            Self::Route => Some(shape.routes.get(index).map_or(NO_ROUTE, |known| &known.route)),
            Self::RouteUpstream => {
                Some(shape.upstream_of(route).map_or(NO_ROUTE, |known| &known.upstream))
            }
            Self::Endpoint => present(shape.upstream_of(route)?.endpoints.get(index)),
            Self::Upstream => shape.upstreams.get(index).map(|known| known.upstream.as_str()),
            Self::Listener => present(shape.listeners.get(index)),
            Self::StopReason => StopReason::ALL.get(index).map(|reason| reason.as_str()),
            _ => self.fixed().get(index).copied(),
        }
    }
}

/// The class of a status: `2xx`; 0 (nothing was answered) and impossible ones are `none`.
pub(super) const fn code_class(status: u16) -> usize {
    match status / 100 {
        class @ 1..=5 => class as usize - 1,
        _ => 5,
    }
}

/// The place of a caller's attempt number among [`CALLER_ATTEMPTS`]; 0 counts as the first.
pub(super) const fn caller_attempt(attempt: u32) -> usize {
    match attempt {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        _ => 3,
    }
}

/// The place of a breaker's state among [`BREAKER_STATES`], and the value of its gauge.
pub(super) const fn breaker_state(state: BreakerState) -> usize {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    }
}

/// The place of a class among [`CLASSES`].
pub(super) const fn class(class: Class) -> usize {
    match class {
        Class::Success => 0,
        Class::RefusedHere => 1,
        Class::NotProcessed => 2,
        Class::Rejected => 3,
        Class::Overloaded => 4,
        Class::Unknown => 5,
        Class::Cancelled => 6,
    }
}

/// A part of a request's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Waiting for a place in the bulkhead.
    Queue,
    /// Getting a connection: waiting for one of the pool or making one.
    Checkout,
    /// From sending to the response head of the upstream.
    UpstreamHead,
    /// From the response head to the end of the body.
    Body,
    /// From the request's head in to the end of the answer.
    Total,
}

impl Stage {
    /// In declaration order.
    const LABELS: &'static [&'static str] =
        &["queue", "checkout", "upstream_head", "body", "total"];
}

/// Why a request was answered here instead of being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No route matches.
    NoRoute,
    /// The request is not one we forward (framing, target, host).
    BadRequest,
    /// Its body is larger than the route takes.
    BodyTooLarge,
    /// Its head is larger than we keep.
    HeadTooLarge,
    /// The breaker of every endpoint is open.
    BreakerOpen,
    /// More would have been sent to the upstream than its rate allows.
    RateLimited,
    /// The caller's key has used up its own rate.
    QuotaExceeded,
    /// The caller's address made more requests than it may.
    AddressRate,
    /// The bulkhead is full.
    BulkheadFull,
    /// The limit on long-lived streams is reached.
    StreamsFull,
    /// No connection was to be had in time.
    CheckoutTimeout,
    /// The deadline had passed, or could not be met.
    DeadlinePassed,
    /// It came when the drain had no time left for it.
    Draining,
}

impl Refusal {
    /// In declaration order.
    const LABELS: &'static [&'static str] = &[
        "no_route",
        "bad_request",
        "body_too_large",
        "head_too_large",
        "breaker_open",
        "rate_limited",
        "quota_exceeded",
        "address_rate",
        "bulkhead_full",
        "streams_full",
        "checkout_timeout",
        "deadline_passed",
        "draining",
    ];

    /// The label used in metrics and logs.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}

/// A request header that was not obeyed, by what it means; its name can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoredHeader {
    /// Time left until the caller's deadline (`X-Remaining-Ms`).
    Remaining,
    /// The caller's attempt number.
    Attempt,
    /// The tenant.
    Tenant,
    /// The priority.
    Priority,
    /// The cost.
    Cost,
    /// The request id.
    RequestId,
    /// The correlation id.
    CorrelationId,
    /// `traceparent`.
    Trace,
    /// `Forwarded` and `X-Forwarded-*`.
    Forwarded,
    /// `Retry-After` of an upstream.
    RetryAfter,
    /// `grpc-timeout`.
    GrpcTimeout,
    /// `grpc-previous-rpc-attempts`.
    GrpcAttempts,
}

impl IgnoredHeader {
    /// In declaration order.
    const LABELS: &'static [&'static str] = &[
        "remaining",
        "attempt",
        "tenant",
        "priority",
        "cost",
        "request_id",
        "correlation_id",
        "trace",
        "forwarded",
        "retry_after",
        "grpc_timeout",
        "grpc_previous_rpc_attempts",
    ];
}

/// Why a header was not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoredBecause {
    /// The peer is not one that may state it.
    Untrusted,
    /// It does not read as what it should be.
    Malformed,
    /// It reads, but lies outside what is allowed.
    OutOfRange,
    /// It came more than once, with different values.
    Repeated,
}

impl IgnoredBecause {
    /// In declaration order.
    const LABELS: &'static [&'static str] = &["untrusted", "malformed", "out_of_range", "repeated"];
}

/// Headers of one request that were not obeyed, each with why. Cheap to pass along: one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IgnoredHeaders(u64);

impl IgnoredHeaders {
    /// Notes one.
    pub(crate) const fn add(&mut self, header: IgnoredHeader, because: IgnoredBecause) {
        self.0 |= 1 << (header as usize * IgnoredBecause::LABELS.len() + because as usize);
    }

    /// Places of what was noted among the series of the family.
    pub(super) fn series(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = (left != 0).then_some(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(lowest)
        })
    }
}

/// Stands where a request matched no route.
pub(super) const NO_ROUTE: &str = "_none";
/// In the order of [`code_class`].
const CODE_CLASSES: &[&str] = &["1xx", "2xx", "3xx", "4xx", "5xx", "none"];
/// In the order of [`caller_attempt`].
const CALLER_ATTEMPTS: &[&str] = &["1", "2", "3", "4+"];
/// In the order of [`class`].
const CLASSES: &[&str] =
    &["success", "refused_here", "not_processed", "rejected", "overloaded", "unknown", "cancelled"];
/// In the order of [`breaker_state`].
pub(super) const BREAKER_STATES: &[&str] = &["closed", "half_open", "open"];
/// In the order of `RefreshResult::ALL`.
const REFRESH_RESULTS: &[&str] = &["renewed", "unchanged", "failed", "timed_out"];
/// In the order of `DoorRefusal::ALL`.
pub(super) const DOOR_REFUSALS: [&str; 5] =
    ["accept_rate", "address_connections", "address_rate", "not_a_proxy", "proxy_header"];
/// In the order of `HedgeRefusal::ALL`.
const HEDGE_REFUSALS: &[&str] = &[
    "retries_off",
    "attempts",
    "body",
    "deadline",
    "load",
    "endpoint",
    "full",
    "max_extra",
    "budget",
];
/// What a check of an endpoint comes to.
pub(super) const CHECK_RESULTS: &[&str] = &["passed", "failed"];
/// In the order of [`super::PoolView`]'s fields.
pub(super) const POOL_STATES: &[&str] = &["idle", "busy", "connecting"];
/// What reading the files of TLS again came to.
pub(super) const RENEWALS: &[&str] = &["renewed", "failed"];
/// How a lookup of a name ended.
pub(super) const LOOKUPS: &[&str] = &["good", "failed"];

#[cfg(test)]
mod tests {
    use seawall_policy::{Cause, DoorRefusal, HedgeRefusal};

    use super::*;
    use seawall_policy::GrpcCode;

    #[test]
    fn every_class_and_cause_stands_at_its_own_label() {
        let results = seawall::RefreshResult::ALL.map(seawall::RefreshResult::as_str);
        assert_eq!(REFRESH_RESULTS, results);
        assert_eq!(DOOR_REFUSALS, DoorRefusal::ALL.map(DoorRefusal::as_str));
        assert!(HedgeRefusal::ALL.iter().map(|it| it.as_str()).eq(HEDGE_REFUSALS.iter().copied()));
        for known in [
            Class::Success,
            Class::RefusedHere,
            Class::NotProcessed,
            Class::Rejected,
            Class::Overloaded,
            Class::Unknown,
            Class::Cancelled,
        ] {
            assert_eq!(CLASSES[class(known)], known.as_str());
        }
        for known in [
            Cause::Status(200),
            Cause::Answered,
            Cause::BusinessError,
            Cause::Dns,
            Cause::ConnectRefused,
            Cause::ConnectFailed,
            Cause::ConnectTimeout,
            Cause::Tls,
            Cause::HandedBack,
            Cause::RefusedStream,
            Cause::GoAway,
            Cause::AttemptTimeout,
            Cause::DeadlineCut,
            Cause::Closed,
            Cause::Reset,
            Cause::Malformed,
            Cause::CallerLeft,
            Cause::UploadFailed,
            Cause::Unmatched,
            Cause::BreakerOpen,
            Cause::BulkheadFull,
            Cause::CheckoutTimeout,
            Cause::DeadlinePassed,
            Cause::StreamsFull,
            Cause::Unavailable,
            Cause::Conflict,
            Cause::Grpc(GrpcCode::Unavailable),
            Cause::RateLimited,
            Cause::QuotaExceeded,
            Cause::Outrun,
        ] {
            assert_eq!(CAUSES[cause(known)], known.as_str());
        }
    }

    #[test]
    fn the_gauge_of_a_breaker_rises_with_what_it_rejects() {
        for (state, value) in
            [(BreakerState::Closed, 0), (BreakerState::HalfOpen, 1), (BreakerState::Open, 2)]
        {
            assert_eq!(breaker_state(state), value);
            assert_eq!(BREAKER_STATES[value], state.as_str());
        }
    }

    #[test]
    fn the_last_variant_of_each_enum_has_the_last_label() {
        assert_eq!(Stage::LABELS.len(), Stage::Total as usize + 1);
        assert_eq!(Refusal::LABELS[Refusal::Draining as usize], "draining");
        assert_eq!(Refusal::LABELS.len(), Refusal::Draining as usize + 1);
        assert_eq!(IgnoredHeader::LABELS.len(), IgnoredHeader::GrpcAttempts as usize + 1);
        assert_eq!(IgnoredBecause::LABELS.len(), IgnoredBecause::Repeated as usize + 1);
        // A bit for each header and reason.
        assert!(IgnoredHeader::LABELS.len() * IgnoredBecause::LABELS.len() <= 64);
    }

    #[test]
    fn statuses_and_attempts_fall_into_their_class() {
        for (status, label) in
            [(0, "none"), (99, "none"), (100, "1xx"), (299, "2xx"), (599, "5xx"), (600, "none")]
        {
            assert_eq!(CODE_CLASSES[code_class(status)], label, "{status}");
        }
        for (attempt, label) in [(0, "1"), (1, "1"), (2, "2"), (3, "3"), (4, "4+"), (99, "4+")] {
            assert_eq!(CALLER_ATTEMPTS[caller_attempt(attempt)], label);
        }
    }
}
