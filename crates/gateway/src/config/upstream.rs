//! Checks of the protected services and the policies around them.

use std::time::Duration;

use seawall_policy::{
    BreakerMode, BreakerOptions, BreakerParams, BulkheadOptions, BulkheadParams, Ratio,
    RetryOptions,
};

use super::address::parse_endpoint;
use super::advice::peak;
use super::budget::budget;
use super::health::health_check;
use super::host_header::host_header;
use super::model::{EndpointAddress, HeaderNames, OnAbandon, Protocol, Upstream, UpstreamTimeouts};
use super::rate::rates;
use super::raw::{Named, RawBreaker, RawBulkhead, RawTimeouts, RawUpstream, Switch};
use super::report::Finding;
use super::retry::{self, Most};
use super::scope::{Checker, Scope};
use super::{DAY, HOUR, MILLISECOND, harmless, hedge, rules, tls};
use crate::units::format_duration;

/// The upstreams in the order of the file.
pub(super) fn upstreams(
    checker: &mut Checker,
    raw: &Named<RawUpstream>,
    names: &HeaderNames,
) -> Vec<Upstream> {
    let mut top = checker.scope("");
    if raw.0.is_empty() {
        let help = "name at least one service: `upstreams: {orders: {endpoints: [http://…]}}`";
        top.missing("upstreams", help);
    }
    let endpoints: usize = raw.0.iter().map(|(_, upstream)| upstream.endpoints.len()).sum();
    for (count, most, what) in
        [(raw.0.len(), MAX_UPSTREAMS, "upstreams"), (endpoints, MAX_ENDPOINTS, "endpoints")]
    {
        if count > most {
            top.refuse("upstreams", &format!("{count} {what}"), format!("at most {most}"));
        }
    }
    let read = raw.0.iter().take(MAX_UPSTREAMS);
    read.map(|(name, raw)| upstream(checker.scope(format!("upstreams.{name}")), name, raw, names))
        .collect()
}

fn upstream(mut scope: Scope<'_>, name: &str, raw: &RawUpstream, names: &HeaderNames) -> Upstream {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) || name.starts_with('_') {
        let allowed = "1 to 64 letters, digits, `-` and `_`, and not `_` first";
        let shown = harmless::key("upstreams", name);
        scope.refuse_whole(Finding::refused(scope.whole(), &shown, allowed));
    }
    let endpoints = endpoints(&mut scope, &raw.endpoints);
    let protocols = [("http1", Protocol::Http1), ("h2", Protocol::H2c), ("h2c", Protocol::H2c)];
    let ends = [("finish", OnAbandon::Finish), ("cancel", OnAbandon::Cancel)];
    let protocol = scope.choice("protocol", &raw.protocol, &protocols).unwrap_or(Protocol::Http1);
    let tls = tls::upstream(scope.inner("tls"), raw.tls.as_ref(), &endpoints);
    if tls.is_some() && raw.protocol.as_deref() == Some("h2c") {
        scope.refuse("protocol", "h2c", "h2; h2c is HTTP/2 without TLS, and endpoints are https");
    }
    let timeouts = timeouts(scope.inner("timeouts"), &raw.timeouts);
    let retry = switch(scope.inner("retry"), &raw.retry, |scope, raw| {
        retry::retry(scope, raw, RetryOptions::default())
    });
    let budget = switch(scope.inner("retry_budget"), &raw.retry_budget, budget);
    let asked = raw.timeouts.attempt.is_some().then_some(timeouts.attempt);
    let hedge = hedge::read(&mut scope, raw, retry, timeouts.attempt);
    let breaker = switch(scope.inner("breaker"), &raw.breaker, |scope, raw| {
        breaker(scope, raw, &timeouts, asked)
    });
    let rate = raw.rate.as_ref().map(|raw| rates(scope.inner("rate"), raw));
    let bulkhead = bulkhead(scope.inner("bulkhead"), &raw.bulkhead, timeouts.attempt);
    let connections = scope.count("max_connections", &raw.max_connections, 1..=MOST_CALLS);
    let connections = connections.unwrap_or(bulkhead.limit + bulkhead.limit / 10);
    peak(&mut scope, raw, budget);
    let most = Most { attempt: timeouts.attempt, total: timeouts.total, retry };
    most.advise(&mut scope, "timeouts.total", budget.is_some());
    Upstream {
        name: name.to_owned(),
        credentials: super::credentials::read(&mut scope, raw, &endpoints, names),
        endpoints,
        protocol,
        tls,
        max_connections: connections as usize,
        host_header: host_header(&mut scope, &raw.host_header),
        timeouts,
        retry,
        budget,
        hedge,
        breaker,
        rate: rate.unwrap_or_default(),
        bulkhead,
        sharing: super::Sharing::read(&mut scope, raw),
        rules: rules::rules(&mut scope, &raw.rules),
        health_check: health_check(&mut scope, &raw.health_check, raw.endpoints.len(), protocol),
        on_abandon: scope.choice("on_abandon", &raw.on_abandon, &ends),
        send_deadline: scope.flag("send_deadline", &raw.send_deadline).unwrap_or(true),
    }
}

/// A section that is there with its defaults unless it is `off`.
fn switch<T: Default, C>(
    scope: Scope<'_>,
    raw: &Option<Switch<T>>,
    check: impl FnOnce(Scope<'_>, &T) -> C,
) -> Option<C> {
    match raw {
        Some(Switch::Off) => None,
        Some(Switch::On(raw)) => Some(check(scope, raw)),
        None => Some(check(scope, &T::default())),
    }
}

fn endpoints(scope: &mut Scope<'_>, raw: &[String]) -> Vec<EndpointAddress> {
    if raw.is_empty() {
        scope.missing("endpoints", "list at least one URL, like http://127.0.0.1:9000");
    }
    let mut endpoints = Vec::new();
    for (i, text) in raw.iter().take(MAX_ENDPOINTS).enumerate() {
        let key = format!("endpoints[{i}]");
        let Some(endpoint) = scope.read(&key, &Some(text.clone()), parse_endpoint) else {
            continue;
        };
        if endpoints.contains(&endpoint) {
            scope.refuse(&key, text, "each endpoint once");
        }
        if endpoints.first().is_some_and(|first| first.is_tls() != endpoint.is_tls()) {
            let allowed = "an endpoint as the first is: all of an upstream's with TLS, or none";
            scope.refuse(&key, text, allowed);
        }
        endpoints.push(endpoint);
    }
    endpoints
}

fn timeouts(mut scope: Scope<'_>, raw: &RawTimeouts) -> UpstreamTimeouts {
    let mut time = |key, raw| scope.duration(key, raw, MILLISECOND..=DAY);
    let total = time("total", &raw.total).unwrap_or(TOTAL);
    // A default gives way to what somebody wrote; two written ones must agree.
    let attempt = time("attempt", &raw.attempt).unwrap_or(ATTEMPT.min(total));
    let timeouts = UpstreamTimeouts {
        connect: time("connect", &raw.connect).unwrap_or(CONNECT.min(attempt)),
        checkout: time("checkout", &raw.checkout).unwrap_or(CHECKOUT.min(attempt)),
        attempt,
        total,
        idle: time("idle", &raw.idle).unwrap_or(IDLE),
        body: time("body", &raw.body),
    };
    scope.at_most(("attempt", timeouts.attempt), ("total", timeouts.total));
    scope.at_most(("connect", timeouts.connect), ("attempt", timeouts.attempt));
    scope.at_most(("checkout", timeouts.checkout), ("attempt", timeouts.attempt));
    timeouts
}

fn breaker(
    mut scope: Scope<'_>,
    raw: &RawBreaker,
    timeouts: &UpstreamTimeouts,
    asked: Option<Duration>,
) -> BreakerOptions {
    let bridge = scope.choice("preset", &raw.preset, &[("bridge", BreakerOptions::bridge())]);
    let default = bridge.unwrap_or_default();
    let modes = MODES.map(|mode| (mode.as_str(), mode));
    let window = scope.duration("window", &raw.window, WINDOW_MIN..=HOUR);
    let slow = scope.duration("slow", &raw.slow, MILLISECOND..=DAY);
    let over_zero = Ratio::from_millionths(1);
    let mut open = scope.inner("open");
    let base = open.duration("base", &raw.open.base, MILLISECOND..=HOUR);
    let base = base.unwrap_or(default.open_base);
    let cap = open.duration("cap", &raw.open.cap, MILLISECOND..=HOUR);
    let cap = cap.unwrap_or(default.open_cap.max(base));
    open.at_most(("base", base), ("cap", cap));
    let read = BreakerOptions {
        bucket: window.map_or(default.bucket, |window| window / WINDOW_BUCKETS),
        min_calls: scope
            .count("min_calls", &raw.min_calls, 1..=MOST_CALLS)
            .unwrap_or(default.min_calls),
        failure_ratio: scope
            .ratio("failure_ratio", &raw.failure_ratio, over_zero)
            .unwrap_or(default.failure_ratio),
        consecutive_failures: scope
            .count("consecutive_failures", &raw.consecutive_failures, 0..=MOST_CALLS)
            .unwrap_or(default.consecutive_failures),
        slow: slow.or(asked.map(|attempt| attempt / 2)),
        slow_ratio: scope
            .ratio("slow_ratio", &raw.slow_ratio, over_zero)
            .unwrap_or(default.slow_ratio),
        open_base: base,
        open_cap: cap,
        probes: scope.count("probes", &raw.probes, 1..=1_000).unwrap_or(default.probes),
        // An honest probe has ended by then.
        probe_lease: timeouts.attempt,
        mode: scope.choice("mode", &raw.mode, &modes).unwrap_or(default.mode),
        ..default
    };
    if slow.is_some_and(|slow| slow > timeouts.attempt) {
        let limit = format_duration(timeouts.attempt);
        let allowed = format!("at most timeouts.attempt ({limit}); a call ends there");
        scope.refuse("slow", raw.slow.as_deref().unwrap_or_default(), allowed);
    }
    if raw.slow_ratio.is_some() && read.slow.is_none() && scope.is_sound("slow") {
        let message = "needs `slow`: without it only a call that timed out is slow, and that is a \
                       failure already";
        let finding = Finding::new(scope.path("slow_ratio"), message);
        let help = "set breaker.slow, or timeouts.attempt, half of which is then slow";
        scope.refuse_with("slow_ratio", finding.help(help));
    }
    let keys = [("bucket", "window"), ("open_base", "open.base"), ("open_cap", "open.cap")];
    let refused = BreakerParams::new(read).err();
    checked(&mut scope, read, refused, &keys)
}

fn bulkhead(mut scope: Scope<'_>, raw: &RawBulkhead, attempt: Duration) -> BulkheadOptions {
    let limit = scope.count("limit", &raw.limit, 1..=MOST_CALLS);
    let default = limit.map_or_else(BulkheadOptions::gateway, BulkheadOptions::with_limit);
    let limit = default.limit;
    let lane_limit = scope.count("per_route", &raw.per_route, 1..=MOST_CALLS);
    let wait = scope.duration("wait", &raw.wait, Duration::ZERO..=HOUR);
    let queue = scope.count("queue", &raw.queue, 0..=QUEUE_MAX);
    let streams = scope.count("max_streams", &raw.max_streams, 0..=MOST_CALLS);
    let read = BulkheadOptions {
        limit,
        lane_limit,
        wait: wait.unwrap_or(default.wait.min(attempt)),
        queue: queue.unwrap_or(default.queue),
        max_streams: streams.unwrap_or(default.max_streams),
    };
    if lane_limit.is_some_and(|lane| lane > limit) && scope.is_sound("limit") {
        let value = raw.per_route.as_deref().unwrap_or_default();
        scope.refuse("per_route", value, format!("at most limit ({limit})"));
    }
    if read.wait > attempt {
        let allowed = format!("at most timeouts.attempt ({})", format_duration(attempt));
        scope.refuse("wait", &format_duration(read.wait), allowed);
    }
    checked(&mut scope, read, BulkheadParams::new(read).err(), &[("lane_limit", "per_route")])
}

/// The options, with what their policy still refuses.
pub(super) fn checked<T>(
    scope: &mut Scope<'_>,
    options: T,
    refused: Option<seawall_policy::ConfigError>,
    keys: &[(&str, &str)],
) -> T {
    if let Some(error) = refused {
        scope.refuse_by_policy(&error, keys);
    }
    options
}

const MODES: [BreakerMode; 5] = [
    BreakerMode::Normal,
    BreakerMode::ForcedOpen,
    BreakerMode::Disabled,
    BreakerMode::MetricsOnly,
    BreakerMode::RetriesOff,
];
/// Source: seawall-design.
const MAX_UPSTREAMS: usize = 256;
/// Of all upstreams together. Source: seawall-design.
const MAX_ENDPOINTS: usize = 1_024;
/// More than a process can have in flight. Source: seawall-design.
pub(super) const MOST_CALLS: u32 = 1_000_000;
/// Source: seawall-design.
const CONNECT: Duration = Duration::from_secs(2);
/// Source: seawall-design.
const CHECKOUT: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const ATTEMPT: Duration = Duration::from_secs(12);
/// Source: seawall-design.
const TOTAL: Duration = Duration::from_secs(25);
/// Source: seawall-design.
const IDLE: Duration = Duration::from_secs(60);
/// Buckets of a breaker's window. Source: hystrix-breaker.
pub(super) const WINDOW_BUCKETS: u32 = 10;
/// Ten buckets of 10 ms. Source: seawall-design.
const WINDOW_MIN: Duration = Duration::from_millis(100);
/// Calls that may wait. Source: seawall-design.
const QUEUE_MAX: u32 = 65_536;
