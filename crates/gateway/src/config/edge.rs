//! Checks of what faces callers and operators: listeners, admin, limits, drain, headers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::address::{parse_range, reaches};
use super::listen::{ListenAddress, listen_address};
use super::model::{AccessLog, Drain, HeaderNames, Limits, Listener, PeerRange, Upstream};
use super::raw::{RawDrain, RawHeaders, RawLimits, RawListener};
use super::report::Finding;
use super::scope::{Checker, Scope};
use super::{DAY, MILLISECOND, door, slow_readers, tls};
use crate::units::{format_duration, parse_duration};

/// The listeners; one on loopback if none is written.
pub(super) fn listeners(checker: &mut Checker, raw: &[RawListener]) -> Vec<Listener> {
    let implied = [RawListener::default()];
    let raw = if raw.is_empty() { &implied } else { raw };
    if raw.len() > MAX_LISTENERS {
        let allowed = format!("at most {MAX_LISTENERS}");
        checker.scope("").refuse("listeners", &format!("{} listeners", raw.len()), allowed);
    }
    let read = raw.iter().take(MAX_LISTENERS).enumerate();
    read.map(|(i, raw)| listener(checker.scope(format!("listeners[{i}]")), raw)).collect()
}

fn listener(mut scope: Scope<'_>, raw: &RawListener) -> Listener {
    if raw.address.is_none() && !scope.path("").starts_with("listeners[0]") {
        scope.missing("address", "only the first listener has a default");
    }
    let address = listen_address(&mut scope, &raw.address, &raw.socket_mode);
    let trust_loopback_deadline =
        scope.flag("trust_loopback_deadline", &raw.trust_loopback_deadline).unwrap_or(true);
    let trusted_peers = ranges(&mut scope, "trusted_peers", &raw.trusted_peers);
    let proxies =
        raw.proxy_protocol.as_ref().map(|it| door::proxies(scope.inner("proxy_protocol"), it));
    let client_header = door::client_header(&mut scope, raw);
    let slow_readers = slow_readers::slow_readers(scope.inner("slow_readers"), &raw.slow_readers);
    let (door, ipv6_prefix) = door::door(&mut scope, raw);
    let tls = raw.tls.as_ref().and_then(|raw| tls::listener(scope.inner("tls"), raw));
    let mut times = scope.inner("timeouts");
    let mut time =
        |key, raw, default| times.duration(key, raw, MILLISECOND..=DAY).unwrap_or(default);
    Listener {
        address: address.unwrap_or(ListenAddress::Tcp(LISTEN)),
        trusted_peers,
        trust_loopback_deadline,
        door,
        ipv6_prefix,
        proxies,
        client_header,
        slow_readers,
        tls,
        first_byte_timeout: time("first_byte", &raw.timeouts.first_byte, FIRST_BYTE),
        head_timeout: time("head", &raw.timeouts.head, HEAD),
        idle_timeout: time("idle", &raw.timeouts.idle, KEEP_ALIVE_IDLE),
        max_age: time("max_age", &raw.timeouts.max_age, MAX_AGE),
    }
}

/// Ranges of addresses, under a key.
pub(super) fn ranges(scope: &mut Scope<'_>, key: &str, raw: &[String]) -> Vec<PeerRange> {
    let mut read = Vec::new();
    for (i, text) in raw.iter().take(MAX_PEERS).enumerate() {
        read.extend(scope.read(&format!("{key}[{i}]"), &Some(text.clone()), parse_range));
    }
    if raw.len() > MAX_PEERS {
        let count = format!("{} ranges", raw.len());
        scope.refuse(key, &count, format!("at most {MAX_PEERS}"));
    }
    read
}

/// Refuses two sockets on one port.
pub(super) fn distinct_sockets(checker: &mut Checker, listeners: &[Listener], admin: SocketAddr) {
    for (i, listener) in listeners.iter().enumerate() {
        let path = format!("listeners[{i}].address");
        if checker.notes.has_failed(&path) {
            continue;
        }
        let earlier = listeners[..i].iter().position(|it| it.address.meets(&listener.address));
        let other = if let Some(earlier) = earlier {
            format!("listeners[{earlier}].address")
        } else if listener.address.meets(&ListenAddress::Tcp(admin)) {
            "admin.address".to_owned()
        } else {
            continue;
        };
        let shown = listener.address.to_string();
        let place = checker.notes.is_written(&other).then(|| checker.notes.place(&other));
        let allowed = format!("an address that {other} does not take");
        let finding = Finding::refused(&path, &shown, allowed);
        checker.scope("").refuse_with(&path, finding.beside("the other socket", place.flatten()));
    }
}

/// Refuses an endpoint that leads back into this process.
pub(super) fn no_loops(
    checker: &mut Checker,
    listeners: &[Listener],
    admin: SocketAddr,
    upstreams: &[Upstream],
) {
    for upstream in upstreams {
        let path = format!("upstreams.{}.endpoints", upstream.name);
        if checker.notes.has_failed_within(&path) {
            continue;
        }
        for (i, endpoint) in upstream.endpoints.iter().enumerate() {
            let listener = listeners.iter().position(|it| it.address.is_reached_by(endpoint));
            let (what, other) = if reaches(endpoint, admin) {
                ("the admin port", "admin.address".to_owned())
            } else if let Some(i) = listener {
                ("a listener of this gateway", format!("listeners[{i}].address"))
            } else {
                continue;
            };
            let place = checker.notes.is_written(&other).then(|| checker.notes.place(&other));
            let shown = endpoint.to_string();
            let key = format!("{path}[{i}]");
            let allowed = format!("another address: this one is {what} ({other})");
            let finding = Finding::refused(&key, &shown, allowed);
            checker.scope("").refuse_with(&key, finding.beside("it is here", place.flatten()));
        }
    }
}

/// Bounds on what a peer may make us hold.
pub(super) fn limits(mut scope: Scope<'_>, raw: &RawLimits, listeners: usize) -> Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let max_connections = scope.count("max_connections", &raw.max_connections, 1..=1_000_000);
    if let Some(count) = max_connections.filter(|count| (*count as usize) < listeners) {
        let path = scope.path("max_connections");
        let allowed = format!("at least the number of listeners, {listeners}");
        let finding = Finding::refused(path, &count.to_string(), allowed);
        let help = "a listener that waits for a connection holds a place for it";
        scope.refuse_with("max_connections", finding.help(help));
    }
    let head = scope.size("head", &raw.head, HEAD_BYTES_MIN..=HEAD_BYTES_MAX);
    let fields = scope.count("head_fields", &raw.head_fields, 1..=1_000);
    let replay = scope.size("replay", &raw.replay, 0..=REPLAY_BYTES_MAX);
    let h2_streams = scope.count("h2_streams", &raw.h2_streams, 1..=10_000);
    Limits {
        max_connections: max_connections.map(|count| count as usize),
        head_bytes: bytes(head.unwrap_or(HEAD_BYTES)),
        head_fields: fields.unwrap_or(HEAD_FIELDS) as usize,
        replay_bytes: bytes(replay.unwrap_or(REPLAY_BYTES)),
        h2_streams: h2_streams.unwrap_or(H2_STREAMS),
    }
}

/// The phases of the drain, held against the grace that whoever stops us gives.
pub(super) fn drain(mut scope: Scope<'_>, raw: &RawDrain, grace: Option<String>) -> Drain {
    let range = Duration::ZERO..=DAY;
    let mut time = |key, raw, default| scope.duration(key, raw, range.clone()).unwrap_or(default);
    let drain = Drain {
        accept: time("accept", &raw.accept, DRAIN_ACCEPT),
        in_flight: time("in_flight", &raw.in_flight, DRAIN_IN_FLIGHT),
        close: time("close", &raw.close, DRAIN_CLOSE),
    };
    let grace = match grace.map(|text| parse_duration(&text)) {
        None => TERMINATION_GRACE,
        Some(Ok(grace)) => grace,
        Some(Err(error)) => {
            let (value, allowed) = (error.value(), error.allowed());
            let finding = Finding::refused(GRACE_VARIABLE, value, allowed);
            scope.refuse_whole(finding.help("it is a variable of the environment"));
            return drain;
        }
    };
    let sum = drain.accept + drain.in_flight + drain.close;
    let sound = ["accept", "in_flight", "close"].iter().all(|key| scope.is_sound(key));
    if sum >= grace && sound {
        let (sum, grace) = (format_duration(sum), format_duration(grace));
        let allowed = format!("phases that sum to less than the termination grace ({grace})");
        let value = format!("accept + in_flight + close = {sum}");
        let finding = Finding::refused(scope.whole(), &value, allowed);
        let help = format!("the grace is {GRACE_VARIABLE} of the environment, 30s if unset");
        scope.refuse_whole(finding.help(help));
    }
    drain
}

/// The names of the headers we read and write.
pub(super) fn headers(mut scope: Scope<'_>, raw: &RawHeaders) -> HeaderNames {
    let mut taken: Vec<(HeaderName, &'static str)> = Vec::new();
    let mut name = |key: &'static str, raw: &Option<String>, default: HeaderName| {
        let read = scope.read(key, raw, |text| {
            let name = text
                .parse::<HeaderName>()
                .map_err(|_| "a header name: letters, digits and hyphens".to_owned())?;
            if is_standard(name.as_str()) {
                return Err("a name that has no meaning of its own yet".to_owned());
            }
            Ok(name)
        });
        let name = read.unwrap_or(default);
        if let Some((_, other)) = taken.iter().find(|(it, _)| *it == name) {
            let finding_key = if scope.is_written(key) { key } else { other };
            let other = if scope.is_written(key) { other } else { key };
            scope.refuse(
                finding_key,
                name.as_str(),
                format!("a name that `{other}` does not have"),
            );
        }
        taken.push((name.clone(), key));
        name
    };
    let default = HeaderNames::default();
    HeaderNames {
        remaining: name("remaining", &raw.remaining, default.remaining),
        attempt: name("attempt", &raw.attempt, default.attempt),
        tenant: name("tenant", &raw.tenant, default.tenant),
        priority: name("priority", &raw.priority, default.priority),
        cost: name("cost", &raw.cost, default.cost),
        request_id: name("request_id", &raw.request_id, default.request_id),
        correlation_id: name("correlation_id", &raw.correlation_id, default.correlation_id),
    }
}

/// Whether the name means something already: to HTTP, or to us.
fn is_standard(name: &str) -> bool {
    STANDARD_HEADERS.contains(&name)
        || STANDARD_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// Where the access log goes.
pub(super) fn access_log(mut scope: Scope<'_>, raw: &Option<String>) -> AccessLog {
    let choices = [("stdout", AccessLog::Stdout), ("off", AccessLog::Off)];
    scope.choice("access_log", raw, &choices).unwrap_or(AccessLog::Stdout)
}

/// The file that switches retries off.
pub(super) fn kill_switch(mut scope: Scope<'_>, raw: &Option<String>) -> Option<PathBuf> {
    scope.read("kill_switch", raw, |text| match text {
        "" => Err("the path of a file"),
        path if path.contains('\0') => Err("the path of a file"),
        path => Ok(PathBuf::from(path)),
    })
}

/// Loopback: nothing is reachable from elsewhere unless somebody asks. Source: seawall-design.
const LISTEN: SocketAddr = SocketAddr::new(LOOPBACK, 8080);
/// Source: envoy-admin (the port of its examples).
pub(super) const ADMIN: SocketAddr = SocketAddr::new(LOOPBACK, 9901);
const LOOPBACK: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Sockets, each with its own accept task. Source: seawall-design.
const MAX_LISTENERS: usize = 64;
/// Ranges, searched in order for each connection. Source: seawall-design.
const MAX_PEERS: usize = 256;
/// Source: seawall-design.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Source: seawall-design.
const HEAD: Duration = Duration::from_secs(10);
/// Source: nginx-keepalive.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(75);
/// Source: seawall-design.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Source: seawall-design.
const HEAD_BYTES: u64 = 64 << 10;
/// The least buffer hyper takes. Source: hyper-http1.
const HEAD_BYTES_MIN: u64 = 8 << 10;
/// Source: seawall-design.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// Source: hyper-http1.
const HEAD_FIELDS: u32 = 100;
/// Source: seawall-design.
const REPLAY_BYTES: u64 = 64 << 10;
/// Source: seawall-design.
const REPLAY_BYTES_MAX: u64 = 16 << 20;
/// Source: seawall-design.
const H2_STREAMS: u32 = 256;
/// Source: seawall-design.
const DRAIN_ACCEPT: Duration = Duration::from_secs(5);
/// Source: seawall-design.
const DRAIN_IN_FLIGHT: Duration = Duration::from_secs(20);
/// Source: seawall-design.
const DRAIN_CLOSE: Duration = Duration::from_secs(2);
/// Source: kubernetes-termination.
const TERMINATION_GRACE: Duration = Duration::from_secs(30);
/// The variable that says how long whoever stops us waits.
pub(super) const GRACE_VARIABLE: &str = "SEAWALL_TERMINATION_GRACE";
/// Names that mean something to HTTP, to gRPC or to us. Source: iana-http-fields.
const STANDARD_HEADERS: &[&str] = &[
    "age",
    "allow",
    "alt-svc",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "grpc-status",
    "grpc-timeout",
    "host",
    "idempotency-key",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "range",
    "referer",
    "retry-after",
    "server",
    "set-cookie",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];
/// Beginnings of such names.
const STANDARD_FAMILIES: &[&str] = &[
    "accept",
    "access-control-",
    "content-",
    "grpc-",
    "if-",
    "proxy-",
    "sec-",
    "seawall-",
    "x-forwarded-",
];
