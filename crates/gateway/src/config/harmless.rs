//! Which values errors and warnings may repeat: those that are known to be harmless.
//!
//! Known is a value by its key. Under a key that is in no list here, so under a misspelt one too,
//! every value is `***`; of a path only a path is shown, of an address no user, no path and no
//! query, wherever it stands. A value with variables is shown as it stands in the file, `${NAME}`,
//! never as what the variable holds. A key is shown where it looks like one.

use std::cmp::Reverse;

use super::decode::{Notes, joined};
use super::mask::MASK;
use super::node::{Kind, Node};
use super::raw::Named;
use super::report::{Place, shortened};

/// A key or a value of the file, and whether it may be shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) place: Place,
    pub(super) shown: bool,
}

/// What may be shown of the value that stands under a field of ours.
pub(super) fn value(field: &str, text: &str) -> String {
    shown(field, text).map_or_else(|| MASK.to_owned(), |shown| shortened(&shown))
}

/// The same in full, where something may be shown.
fn shown(field: &str, text: &str) -> Option<String> {
    let key = last_key(field);
    // More than one line, or a header with its name: whatever should be here, it is not.
    let is_one = !text.contains('\n') && !text.contains(": ");
    let is_header = field.contains("_headers.set.");
    let is_harmless = HARMLESS.contains(&key)
        || field.ends_with("timeouts.body")
        || field.ends_with("per_key.key");
    if is_variable(text) {
        Some(text.to_owned())
    } else if !is_one || is_header || is_upstream(field) {
        None
    } else if is_address(field) || is_harmless && text.contains("://") {
        Some(without_path(text))
    } else if TARGETS.contains(&key) {
        Some(without_query(text))
    } else if FILES.contains(&key) && !field.contains("per_key.") {
        text.starts_with(['/', '.', '$']).then(|| text.to_owned())
    } else if NAMES.contains(&key) {
        is_name(text).then(|| text.to_owned())
    } else {
        (is_harmless && !text.contains(['@', '?'])).then(|| text.to_owned())
    }
}

/// Whether the field holds addresses, of which no user is shown, wherever they came from.
pub(super) fn is_address(field: &str) -> bool {
    ADDRESSES.contains(&last_key(field))
}

/// What may be shown of a key of a map, in `path`.
pub(super) fn key(path: &str, key: &str) -> String {
    // Names of upstreams are names, even wrong ones, but for addresses.
    let is_upstream = path == "upstreams" && !key.contains([':', '/', '?', '@']);
    let shown = is_upstream || is_name(key) || is_variable(key);
    if shown { shortened(key) } else { MASK.to_owned() }
}

/// Names of upstreams that may not be shown, and what is shown in their place.
pub(super) fn hidden_names<T>(upstreams: &Named<T>) -> Vec<(String, &'static str)> {
    let names = upstreams.0.iter().map(|(name, _)| name);
    let mut hidden: Vec<_> = names.filter(|name| key("upstreams", name) == MASK).collect();
    // One may be in another.
    hidden.sort_by_key(|name| Reverse(name.len()));
    hidden.into_iter().map(|name| (name.clone(), MASK)).collect()
}

/// The field, without the name of a header that is none.
pub(super) fn field(field: &str) -> String {
    match field.split_once("_headers.set.") {
        Some((begin, name)) if !is_name(name) => format!("{begin}_headers.set.{MASK}"),
        _ => field.to_owned(),
    }
}

/// Whether it is a key that our files have.
pub(super) fn is_key_of_ours(key: &str) -> bool {
    KEYS.iter().copied().any(|keys| keys.contains(&key))
}

/// All keys and values of a file.
pub(super) fn spans(node: &Node, notes: &Notes, text: &str) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut walk = Walk { notes, text, spans: &mut spans };
    walk.node(node, "", true);
    spans
}

struct Walk<'a> {
    notes: &'a Notes,
    text: &'a str,
    spans: &'a mut Vec<Span>,
}

impl Walk<'_> {
    /// `known`: no key on the way here is another's.
    fn node(&mut self, node: &Node, path: &str, known: bool) {
        match &node.kind {
            Kind::Empty => {}
            Kind::Scalar(text) => {
                let known = known && self.notes.is_written(path);
                self.add(node.place, text, known && shown(path, text).as_ref() == Some(text));
            }
            Kind::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.node(item, &format!("{path}[{i}]"), known);
                }
            }
            Kind::Map(entries) => {
                let is_section = known && !is_secret(path);
                for entry in entries {
                    // A key that has nothing may be a value whose key was forgotten.
                    let is_alone = matches!(entry.value.kind, Kind::Empty);
                    let shown = key(path, &entry.key) == entry.key
                        && (is_section && !is_alone || is_key_of_ours(&entry.key));
                    self.add(entry.key_place, &entry.key, shown);
                    // A key with a dot could make the path of another field.
                    let below = joined(path, &entry.key);
                    let is_ours = !entry.key.contains(['.', '[']) && self.notes.is_written(&below);
                    self.node(&entry.value, &below, known && is_ours);
                }
            }
        }
    }

    fn add(&mut self, place: Option<Place>, value: &str, shown: bool) {
        let Some(place) = place else { return };
        let written = self.text.get(place.start..place.start + place.len).unwrap_or_default();
        let is_it = written.trim().trim_matches(['\'', '"']) == value;
        self.spans.push(Span { place, shown: shown && is_it });
    }
}

/// Whether a single value belongs there that is never shown.
fn is_secret(field: &str) -> bool {
    let is_value = ["equals", "exact", "prefix", "scheme", "token"].contains(&last_key(field));
    is_value || field.ends_with("fallback.body") || field.contains("_headers.set.")
}

/// Whether it is an upstream as a whole, whose name may be that of a key.
fn is_upstream(field: &str) -> bool {
    field.strip_prefix("upstreams.").is_some_and(|name| !name.contains('.'))
}

fn last_key(field: &str) -> &str {
    let key = field.rsplit('.').next().unwrap_or(field);
    key.split('[').next().unwrap_or(key)
}

/// `${NAME}` and nothing else.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

fn is_name(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=NAME_CHARS).contains(&text.len()) && text.bytes().all(is_part)
}

/// An address without what may be a secret in it: its user, its path and its query.
fn without_path(text: &str) -> String {
    if text.starts_with("unix:") {
        return text.to_owned();
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (&text[..scheme.len() + 3], rest),
        None => ("", text),
    };
    // A password may hold any of these, so the user goes first.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let path = if path.len() > 1 { format!("{}{MASK}", &path[..1]) } else { path.to_owned() };
    format!("{scheme}{user}{host}{path}")
}

fn without_query(text: &str) -> String {
    match text.find(['?', '#']) {
        Some(at) => format!("{}{MASK}", &text[..=at]),
        None => text.to_owned(),
    }
}

/// Characters of what may be a name. Source: seawall-design.
const NAME_CHARS: usize = 64;
/// All lists of keys.
const KEYS: [&[&str]; 6] = [ADDRESSES, FILES, TARGETS, NAMES, HARMLESS, SECRETS];
/// Keys of addresses.
const ADDRESSES: &[&str] = &["endpoints", "host_header"];
/// Keys of files.
const FILES: &[&str] = &[
    "ca",
    "cert",
    "client_ca",
    "client_cert",
    "client_key",
    "file",
    "key",
    "kill_switch",
    "token_file",
];
/// Keys of paths of requests.
const TARGETS: &[&str] = &["path", "path_prefix", "prefix_rewrite"];
/// Keys of names.
const NAMES: &[&str] = &[
    "client_header",
    "correlation_id",
    "cost",
    "header",
    "name",
    "priority",
    "remaining",
    "remove",
    "request_id",
    "tenant",
    "upstream",
];
/// Keys of numbers, times, words of ours, and of sections that hold only such.
const HARMLESS: &[&str] = &[
    "accept",
    "access_log",
    "address",
    "addresses",
    "trusted_peers",
    "alpn",
    "attempt",
    "backoff",
    "balance",
    "base",
    "breaker",
    "bulkhead",
    "burst",
    "cap",
    "capacity",
    "checkout",
    "client_auth",
    "close",
    "close_rate",
    "connect",
    "connection_burst",
    "connection_rate",
    "connections",
    "consecutive_failures",
    "content_type",
    "delay",
    "delay_min",
    "drain",
    "ejection",
    "failure_excess",
    "failure_ratio",
    "first_byte",
    "from",
    "grpc",
    "grpc_service",
    "h2_streams",
    "head",
    "head_fields",
    "healthy",
    "hedge",
    "honour_stop",
    "host",
    "idempotent",
    "idle",
    "in_flight",
    "initial",
    "interval",
    "ipv6_prefix",
    "jitter",
    "keys",
    "kind",
    "least",
    "limit",
    "limits",
    "max_age",
    "max_attempts",
    "max_body",
    "max_connections",
    "max_ejected",
    "max_extra",
    "max_load",
    "max_streams",
    "max_tokens",
    "means",
    "methods",
    "min_calls",
    "min_version",
    "mode",
    "on",
    "on_abandon",
    "open",
    "open_metrics",
    "outlier",
    "override",
    "peak_load",
    "per_address",
    "per_route",
    "pointer",
    "port",
    "present",
    "preset",
    "probes",
    "protocol",
    "proxy_protocol",
    "queue",
    "rate",
    "ratio",
    "redispatches",
    "refuse",
    "replay",
    "request_burst",
    "request_rate",
    "reserve",
    "retry",
    "retry_after",
    "retry_after_max",
    "retry_budget",
    "retry_on",
    "retry_owner",
    "same_endpoint",
    "send_buffer",
    "send_deadline",
    "server_name",
    "slow",
    "slow_excess",
    "slow_factor",
    "slow_floor",
    "slow_ratio",
    "slow_readers",
    "slow_start",
    "socket_mode",
    "stall",
    "status",
    "streaming",
    "strip_prefix",
    "timeout",
    "timeouts",
    "token_ratio",
    "total",
    "trust_loopback_deadline",
    "ttl",
    "unhealthy",
    "version",
    "wait",
    "window",
];
/// Keys whose values are never shown, and of sections in which such a value may stand.
const SECRETS: &[&str] = &[
    "admin",
    "body",
    "certificates",
    "credentials",
    "equals",
    "exact",
    "fallback",
    "headers",
    "health_check",
    "listeners",
    "per_key",
    "prefix",
    "request_headers",
    "response_headers",
    "routes",
    "rules",
    "scheme",
    "set",
    "tls",
    "token",
    "upstreams",
];
