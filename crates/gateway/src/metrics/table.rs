//! The one table of metric families: name, kind, unit, labels, meaning.
//!
//! The scrape, the storage and `docs/metrics.md` are all made from it.

use super::family::{Family, Kind, Origin, Row};
use super::labels::Label;

const OWN_COUNTER: (Kind, Origin) = (Kind::Counter, Origin::Own);
const OWN_HISTOGRAM: (Kind, Origin) = (Kind::Histogram, Origin::Own);
const COUNTER: (Kind, Origin) = (Kind::Counter, Origin::Given);
const GAUGE: (Kind, Origin) = (Kind::Gauge, Origin::Given);
const INFO: (Kind, Origin) = (Kind::Info, Origin::Given);

const ROUTE: &[Label] = &[Label::Route];
const CALLS: &[Label] = &[Label::Route, Label::RouteUpstream];
const UPSTREAM: &[Label] = &[Label::Upstream];
const LISTENER: &[Label] = &[Label::Listener];

/// In the order of [`Family`].
pub(super) const TABLE: &[Row] = &[
    Row::new(
        Family::Requests,
        "seawall_requests",
        OWN_COUNTER,
        &[Label::Route, Label::CodeClass],
        "Requests answered, by the class of the status the caller got; none where the caller left \
         before one",
    ),
    Row::new(
        Family::GrpcResponses,
        "seawall_grpc_responses",
        OWN_COUNTER,
        &[Label::Route, Label::RouteUpstream, Label::GrpcCode],
        "gRPC calls ended, by the code their caller got; other: none of the seventeen, or none \
         before the caller left; a series is there once it has counted",
    ),
    Row::new(
        Family::FirstAttempts,
        "seawall_first_attempts",
        OWN_COUNTER,
        CALLS,
        "First attempts sent upstream",
    ),
    Row::new(
        Family::Retries,
        "seawall_retries",
        OWN_COUNTER,
        CALLS,
        "Attempts after the first, each paid from the retry budget",
    ),
    Row::new(
        Family::Redispatches,
        "seawall_redispatches",
        OWN_COUNTER,
        CALLS,
        "Requests moved to another endpoint after one that never took them; not retries",
    ),
    Row::new(
        Family::Hedges,
        "seawall_hedges",
        OWN_COUNTER,
        CALLS,
        "Second attempts sent beside one that took long, each paid from the retry budget too; not \
         retries",
    ),
    Row::new(
        Family::HedgesWon,
        "seawall_hedges_won",
        COUNTER,
        UPSTREAM,
        "Hedges whose answer was the call's; absent where nothing is hedged",
    ),
    Row::new(
        Family::HedgesRefused,
        "seawall_hedges_refused",
        COUNTER,
        &[Label::Upstream, Label::HedgeRefusal],
        "Hedges that were due and not sent, by why; absent where nothing is hedged",
    ),
    Row::new(
        Family::CredentialRefreshes,
        "seawall_credential_refreshes",
        COUNTER,
        &[Label::Upstream, Label::RefreshResult],
        "Times the credential was read again after a 401, by what came of it; absent where there \
         is none",
    ),
    Row::new(
        Family::RetryRatio,
        "seawall_retry_ratio",
        GAUGE,
        UPSTREAM,
        "Retries over first attempts in the last 10 seconds; amplification is one more",
    ),
    Row::new(
        Family::BudgetBalance,
        "seawall_retry_budget_balance",
        GAUGE,
        UPSTREAM,
        "Retries the budget could pay for now; absent where the budget is off",
    )
    .unit("tokens"),
    Row::new(
        Family::BudgetExhausted,
        "seawall_retry_budget_exhausted",
        COUNTER,
        UPSTREAM,
        "Retries that were wanted and not sent because the budget was empty",
    ),
    Row::new(
        Family::RetriesOff,
        "seawall_retries_off",
        GAUGE,
        UPSTREAM,
        "1 while an operator has switched the retries of the upstream off",
    ),
    Row::new(
        Family::RateAvailable,
        "seawall_rate_available",
        GAUGE,
        UPSTREAM,
        "Attempts that could be sent now before the rate refuses; absent where there is no rate",
    ),
    Row::new(
        Family::RateKeysEvicted,
        "seawall_rate_keys_evicted",
        COUNTER,
        UPSTREAM,
        "Keys that were forgotten while they owed something, because more keys owed at once than \
         there is room for; absent where keys have no rate",
    ),
    Row::new(
        Family::StopReasons,
        "seawall_stop_reasons",
        OWN_COUNTER,
        &[Label::Route, Label::StopReason],
        "Calls by the reason they ended",
    ),
    Row::new(
        Family::DeadlineBeforeSend,
        "seawall_deadline_exceeded_before_send",
        OWN_COUNTER,
        ROUTE,
        "Calls whose deadline had passed, or could not be met, before anything was sent",
    ),
    Row::new(
        Family::CallerAttempts,
        "seawall_caller_attempts",
        OWN_COUNTER,
        &[Label::Listener, Label::CallerAttempt],
        "Requests by the attempt number their caller stated; a share above 1 means that layers \
         above retry too",
    ),
    Row::new(
        Family::IgnoredHeaders,
        "seawall_ignored_headers",
        OWN_COUNTER,
        &[Label::Header, Label::HeaderReason],
        "Headers that were not obeyed, by what they mean",
    ),
    Row::new(
        Family::Outcomes,
        "seawall_outcomes",
        OWN_COUNTER,
        &[Label::Upstream, Label::Class],
        "Attempts by the class of their outcome",
    ),
    Row::new(
        Family::Causes,
        "seawall_causes",
        OWN_COUNTER,
        &[Label::Upstream, Label::Cause],
        "Attempts by what ended them; status is any answer",
    ),
    Row::new(
        Family::UnmatchedErrors,
        "seawall_unmatched_errors",
        COUNTER,
        &[Label::Upstream, Label::ErrorKind],
        "Errors of attempts that no rule matches, by kind; standard error tells of each kind once",
    ),
    Row::new(
        Family::RulesMet,
        "seawall_rules_met",
        COUNTER,
        &[Label::Upstream, Label::Rule],
        "Answers of an upstream whose meaning one of its rules decided",
    ),
    Row::new(
        Family::BreakerState,
        "seawall_breaker_state",
        GAUGE,
        &[Label::Route, Label::RouteUpstream, Label::Endpoint],
        "0 closed (traffic flows), 1 half-open (probes only), 2 open (traffic is rejected)",
    ),
    Row::new(
        Family::BreakerTransitions,
        "seawall_breaker_transitions",
        OWN_COUNTER,
        &[Label::Route, Label::RouteUpstream, Label::Endpoint, Label::BreakerTo],
        "Changes of a breaker into each state",
    ),
    Row::new(
        Family::EndpointStanding,
        "seawall_endpoint_standing",
        GAUGE,
        &[Label::Upstream, Label::Endpoint],
        "0 available, 1 probing (it was ejected, and gets a few calls), 2 ejected (worse than the \
         others), 3 unhealthy (its checks fail)",
    ),
    Row::new(
        Family::Ejections,
        "seawall_ejections",
        COUNTER,
        &[Label::Upstream, Label::EjectionReason],
        "Ejections of endpoints, by why; probes: it was out, and its probes were no better",
    ),
    Row::new(
        Family::EjectedRatio,
        "seawall_ejected_ratio",
        GAUGE,
        UPSTREAM,
        "Share of the endpoints that are ejected or probing; absent where outliers are not ejected",
    ),
    Row::new(
        Family::PoolConnections,
        "seawall_pool_connections",
        GAUGE,
        &[Label::Upstream, Label::PoolState],
        "Upstream connections by what they do",
    ),
    Row::new(
        Family::PoolWaiting,
        "seawall_pool_waiting",
        GAUGE,
        UPSTREAM,
        "Calls waiting for a connection",
    ),
    Row::new(
        Family::PoolWait,
        "seawall_pool_wait",
        OWN_HISTOGRAM,
        UPSTREAM,
        "How long calls waited for a connection, those that gave up included",
    )
    .unit("seconds"),
    Row::new(
        Family::PoolConnects,
        "seawall_pool_connects",
        COUNTER,
        UPSTREAM,
        "Upstream connections made",
    ),
    Row::new(
        Family::PoolConnectErrors,
        "seawall_pool_connect_errors",
        COUNTER,
        UPSTREAM,
        "Upstream connections that could not be made",
    ),
    Row::new(
        Family::PoolReused,
        "seawall_pool_reused",
        COUNTER,
        UPSTREAM,
        "Calls that got an existing connection",
    ),
    Row::new(
        Family::BulkheadInFlight,
        "seawall_bulkhead_in_flight",
        GAUGE,
        UPSTREAM,
        "Calls in flight, abandoned ones included",
    ),
    Row::new(
        Family::BulkheadLimit,
        "seawall_bulkhead_limit",
        GAUGE,
        UPSTREAM,
        "As many calls as may be in flight",
    ),
    Row::new(
        Family::BulkheadWaiting,
        "seawall_bulkhead_waiting",
        GAUGE,
        UPSTREAM,
        "Calls waiting for a place in the bulkhead",
    ),
    Row::new(
        Family::BulkheadWait,
        "seawall_bulkhead_wait",
        OWN_HISTOGRAM,
        UPSTREAM,
        "How long calls waited for a place in the bulkhead, those that were refused included",
    )
    .unit("seconds"),
    Row::new(
        Family::StreamsInFlight,
        "seawall_streams_in_flight",
        GAUGE,
        UPSTREAM,
        "Upgrades, event streams and streaming calls, which have a limit of their own",
    ),
    Row::new(
        Family::Abandoned,
        "seawall_abandoned",
        COUNTER,
        UPSTREAM,
        "Attempts sent that nobody waited for any longer: their caller had left, the call's deadline had passed, or their own time was up",
    ),
    Row::new(
        Family::AbandonedInFlight,
        "seawall_abandoned_in_flight",
        GAUGE,
        UPSTREAM,
        "Such attempts that still hold a place: those that run on, and those given up whose end is not known",
    ),
    Row::new(
        Family::Refused,
        "seawall_refused",
        OWN_COUNTER,
        &[Label::Route, Label::Refusal],
        "Requests answered here without sending anything upstream",
    ),
    Row::new(
        Family::Degraded,
        "seawall_degraded",
        OWN_COUNTER,
        ROUTE,
        "Requests answered with the route's fallback",
    ),
    Row::new(
        Family::StageDuration,
        "seawall_stage_duration",
        OWN_HISTOGRAM,
        &[Label::Route, Label::Stage],
        "Time a request spent in each stage, up to its last attempt's",
    )
    .unit("seconds"),
    Row::new(
        Family::DownstreamConnections,
        "seawall_downstream_connections",
        GAUGE,
        LISTENER,
        "Connections of callers now",
    ),
    Row::new(
        Family::DownstreamOpened,
        "seawall_downstream_connections_opened",
        COUNTER,
        LISTENER,
        "Connections of callers accepted",
    ),
    Row::new(
        Family::DownstreamRefused,
        "seawall_downstream_connections_refused",
        COUNTER,
        &[Label::Listener, Label::DoorRefusal],
        "Connections of callers that were not let in, by why; neither opened nor closed, and in no \
         line of the log",
    ),
    Row::new(
        Family::DownstreamAnswered,
        "seawall_downstream_refusals_answered",
        COUNTER,
        LISTENER,
        "Those of them that were answered; the others were reset",
    ),
    Row::new(
        Family::AddressesEvicted,
        "seawall_addresses_evicted",
        COUNTER,
        LISTENER,
        "Addresses of callers that were forgotten while they owed something of a rate, because more \
         owed at once than there is room for",
    ),
    Row::new(
        Family::DownstreamClosed,
        "seawall_downstream_connections_closed",
        COUNTER,
        &[Label::Listener, Label::CloseReason],
        "Connections of callers ended, by why; `malformed`: a head that is no request, which no \
         count of requests and no access line shows",
    ),
    Row::new(
        Family::AcceptErrors,
        "seawall_accept_errors",
        COUNTER,
        LISTENER,
        "Connections that could not be accepted (mostly: no file descriptor left)",
    ),
    Row::new(
        Family::ListenBacklog,
        "seawall_listen_backlog",
        GAUGE,
        LISTENER,
        "Connections that the kernel holds and nobody has accepted yet; absent for a unix: socket, \
         and where it is not told",
    ),
    Row::new(
        Family::ListenOverflows,
        "seawall_listen_overflows",
        COUNTER,
        &[],
        "Connections for which a full backlog had no room, of all listeners of the network \
         namespace since the system started; absent where it is not told",
    ),
    Row::new(
        Family::ListenDrops,
        "seawall_listen_drops",
        COUNTER,
        &[],
        "Connections lost before anybody could accept them, those among them; absent where it is \
         not told",
    ),
    Row::new(
        Family::TlsHandshakes,
        "seawall_tls_handshakes",
        COUNTER,
        &[Label::Listener, Label::Handshake],
        "Handshakes of callers by how they ended; `full` and `resumed` are the good ones. Only for \
         listeners with TLS",
    ),
    Row::new(
        Family::TlsHandshakesInProgress,
        "seawall_tls_handshakes_in_progress",
        GAUGE,
        &[],
        "Handshakes of callers under way; absent where no listener has TLS",
    ),
    Row::new(
        Family::TlsCertificateEnd,
        "seawall_tls_certificate_not_after",
        GAUGE,
        &[Label::Certificate],
        "When a certificate in use ends, since the Unix epoch, by its file",
    )
    .unit("seconds"),
    Row::new(
        Family::TlsReloads,
        "seawall_tls_reloads",
        COUNTER,
        &[Label::Renewal],
        "Times files of TLS had changed, by whether they could be used",
    ),
    Row::new(
        Family::TlsReloadFailing,
        "seawall_tls_reload_failing",
        GAUGE,
        &[],
        "1 while files of TLS have changed and cannot be used; the last good ones are in use",
    ),
    Row::new(
        Family::UpstreamTlsHandshakes,
        "seawall_upstream_tls_handshakes",
        COUNTER,
        &[Label::Upstream, Label::UpstreamHandshake],
        "Handshakes with upstreams by how they ended; standard error says why. Only for upstreams \
         with TLS",
    ),
    Row::new(
        Family::DnsLookups,
        "seawall_dns_lookups",
        COUNTER,
        &[Label::Lookup],
        "Names of endpoints looked up, by whether there was an answer",
    ),
    Row::new(
        Family::DnsStale,
        "seawall_dns_stale_answers",
        COUNTER,
        &[],
        "Connections made by an answer past its time because the resolver failed or was silent",
    ),
    Row::new(
        Family::AccessLogDropped,
        "seawall_access_log_dropped",
        COUNTER,
        &[],
        "Access log lines dropped because the reader of standard output was slower",
    ),
    Row::new(
        Family::Draining,
        "seawall_draining",
        GAUGE,
        &[],
        "1 from the first moment of a drain",
    ),
    Row::new(
        Family::AdminUnauthorized,
        "seawall_admin_unauthorized",
        COUNTER,
        &[],
        "Requests to the admin port that were refused for want of its token, or for a wrong one",
    ),
    Row::new(
        Family::SwitchesActive,
        "seawall_switches_active",
        GAUGE,
        &[Label::SwitchKind],
        "Upstreams whose breakers or retries an operator has switched for a while",
    ),
    Row::new(
        Family::ConfigReloads,
        "seawall_config_reloads",
        COUNTER,
        &[Label::ReloadResult],
        "Reloads of the configuration, by what became of them; refused: nothing changed",
    ),
    Row::new(
        Family::EndpointHealthy,
        "seawall_endpoint_healthy",
        GAUGE,
        &[Label::Upstream, Label::Endpoint],
        "1 if the endpoint is well by its checks, 0 if it is avoided; absent without checks",
    ),
    Row::new(
        Family::HealthChecks,
        "seawall_health_checks",
        COUNTER,
        &[Label::Upstream, Label::Endpoint, Label::CheckResult],
        "Checks of endpoints; absent without checks",
    ),
    Row::new(
        Family::ConfigLastReload,
        "seawall_config_last_reload_successful",
        GAUGE,
        &[],
        "0 if the last reload was refused; 1 before the first",
    ),
    Row::new(
        Family::ConfigSince,
        "seawall_config_in_force_since_timestamp",
        GAUGE,
        &[],
        "When the configuration in force was put there, since the Unix epoch",
    )
    .unit("seconds"),
    Row::new(
        Family::ConfigInfo,
        "seawall_config",
        INFO,
        &[Label::Hash],
        "The configuration in force, by a hash of its text",
    ),
    Row::new(Family::Build, "seawall_build", INFO, &[Label::Version], "The version that runs"),
    Row::new(Family::ProcessOpenFiles, "process_open_fds", GAUGE, &[], "Open file descriptors"),
    Row::new(
        Family::ProcessMaxFiles,
        "process_max_fds",
        GAUGE,
        &[],
        "As many file descriptors as may be open; absent where there is no limit",
    ),
    Row::new(
        Family::ProcessResidentMemory,
        "process_resident_memory",
        GAUGE,
        &[],
        "Memory of the process that is not swapped out",
    )
    .unit("bytes"),
    Row::new(
        Family::ProcessStart,
        "process_start_time",
        GAUGE,
        &[],
        "When the gateway started, since the Unix epoch",
    )
    .unit("seconds"),
];
