//! The shape of a row in the table of metric families.

use super::labels::Label;

/// A family, as its place in [`super::table::TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Requests,
    GrpcResponses,
    FirstAttempts,
    Retries,
    Redispatches,
    Hedges,
    HedgesWon,
    HedgesRefused,
    CredentialRefreshes,
    RetryRatio,
    BudgetBalance,
    BudgetExhausted,
    RetriesOff,
    RateAvailable,
    RateKeysEvicted,
    StopReasons,
    DeadlineBeforeSend,
    CallerAttempts,
    IgnoredHeaders,
    Outcomes,
    Causes,
    UnmatchedErrors,
    RulesMet,
    BreakerState,
    BreakerTransitions,
    EndpointStanding,
    Ejections,
    EjectedRatio,
    PoolConnections,
    PoolWaiting,
    PoolWait,
    PoolConnects,
    PoolConnectErrors,
    PoolReused,
    BulkheadInFlight,
    BulkheadLimit,
    BulkheadWaiting,
    BulkheadWait,
    StreamsInFlight,
    Abandoned,
    AbandonedInFlight,
    Refused,
    Degraded,
    StageDuration,
    DownstreamConnections,
    DownstreamOpened,
    DownstreamRefused,
    DownstreamAnswered,
    AddressesEvicted,
    DownstreamClosed,
    AcceptErrors,
    ListenBacklog,
    ListenOverflows,
    ListenDrops,
    TlsHandshakes,
    TlsHandshakesInProgress,
    TlsCertificateEnd,
    TlsReloads,
    TlsReloadFailing,
    UpstreamTlsHandshakes,
    DnsLookups,
    DnsStale,
    AccessLogDropped,
    Draining,
    AdminUnauthorized,
    SwitchesActive,
    ConfigReloads,
    EndpointHealthy,
    HealthChecks,
    ConfigLastReload,
    ConfigSince,
    ConfigInfo,
    Build,
    ProcessOpenFiles,
    ProcessMaxFiles,
    ProcessResidentMemory,
    ProcessStart,
}

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only rises; `_total` is added to the name.
    Counter,
    Gauge,
    /// Durations in seconds, in [`super::BOUNDS`].
    Histogram,
    /// A constant 1 with labels; `_info` is added to the name.
    Info,
}

/// Who keeps the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Our own counters.
    Own,
    /// Told at the scrape.
    Given,
}

/// One family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) family: Family,
    /// Full name without the suffix of its kind and without its unit.
    pub(super) stem: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: Kind,
    pub(super) origin: Origin,
    pub(super) labels: &'static [Label],
    /// One sentence without its full stop, plain enough for both exposition formats.
    pub(super) help: &'static str,
}

impl Row {
    pub(super) const fn new(
        family: Family,
        stem: &'static str,
        (kind, origin): (Kind, Origin),
        labels: &'static [Label],
        help: &'static str,
    ) -> Self {
        Self { family, stem, unit: None, kind, origin, labels, help }
    }

    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }
}
