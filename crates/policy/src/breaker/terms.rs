//! What a breaker hands out: permits and rejections, and the words in which it reports.

use crate::time::Timestamp;

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Traffic flows.
    Closed,
    /// Calls are rejected.
    Open,
    /// Probes only.
    HalfOpen,
}

impl BreakerState {
    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Enough of the window's calls failed.
    FailureRatio,
    /// Enough of the window's calls were slow.
    SlowRatio,
    /// Enough calls in a row failed.
    ConsecutiveFailures,
    /// The open time is over.
    Timer,
    /// Enough probes succeeded.
    ProbesSucceeded,
    /// A probe failed.
    ProbeFailed,
    /// A probe was slow.
    ProbeSlow,
    /// All probes were out for longer than their lease.
    LeaseExpired,
    /// Another route found the endpoint unreachable while this one probed.
    Unreachable,
}

impl Trigger {
    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FailureRatio => "failure_ratio",
            Self::SlowRatio => "slow_ratio",
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::Timer => "timer",
            Self::ProbesSucceeded => "probes_succeeded",
            Self::ProbeFailed => "probe_failed",
            Self::ProbeSlow => "probe_slow",
            Self::LeaseExpired => "lease_expired",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A change of state, for logs and metrics. From half-open to half-open when a lease expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The state that ended.
    pub from: BreakerState,
    /// The state that began.
    pub to: BreakerState,
    /// Why.
    pub trigger: Trigger,
}

/// The right to make one call; goes back through exactly one of
/// [`on_success`](super::Breaker::on_success), [`on_failure`](super::Breaker::on_failure) and
/// [`on_ignore`](super::Breaker::on_ignore).
///
/// A lost one can not wedge the breaker (see `probe_lease`), it only delays its recovery.
#[must_use = "a permit that is not given back takes a probe's slot until its lease ends"]
#[derive(Debug)]
pub struct BreakerPermit {
    /// The generation it was issued in.
    pub(super) generation: u64,
    pub(super) is_probe: bool,
    /// Whether the call is in the window already, as a slow one.
    pub(super) slow_counted: bool,
}

impl BreakerPermit {
    /// Whether the call decides about closing.
    #[must_use]
    pub const fn is_probe(&self) -> bool {
        self.is_probe
    }
}

/// The rejection of an open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOpen {
    /// When asking again is worthwhile. While open, the end of the open time: calls before it are
    /// rejected. While half-open with all probes out, a guess: `open_base` from now, or the end
    /// of the lease if that is sooner. [`Timestamp::MAX`] while forced open.
    pub until: Timestamp,
}
