//! Fields for one connection: what they are, and the few that are written anew for the next one.

use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, COOKIE, DATE, FORWARDED, HOST, ORIGIN, RETRY_AFTER, SET_COOKIE,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::{SCANNED, has, remove_all};

/// The upgrade a request asks for, to be forwarded: the protocols of `Upgrade` if the request is
/// a GET over HTTP/1.1 without a body whose `Connection` says so. HTTP/2 without TLS and TLS itself
/// are left out: they concern this connection, and we answer for both.
#[must_use]
pub(crate) fn upgrade_of(
    fields: &HeaderMap,
    method: &Method,
    version: Version,
) -> Option<HeaderValue> {
    let may = version == Version::HTTP_11
        && method == Method::GET
        && !has(fields, &TRANSFER_ENCODING)
        && fields.get(CONTENT_LENGTH).is_none_or(|length| length == "0")
        && list(fields, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    if !may {
        return None;
    }
    let mut kept = String::new();
    for protocol in list(fields, &UPGRADE).filter(|protocol| !is_own_protocol(protocol)) {
        if !kept.is_empty() {
            kept.push_str(", ");
        }
        kept.push_str(protocol);
    }
    if kept.is_empty() { None } else { HeaderValue::try_from(kept).ok() }
}

/// Whether the caller takes trailers.
pub(super) fn wants_trailers(fields: &HeaderMap) -> bool {
    has(fields, &TE) && list(fields, &TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// Removes the fields for one connection. A token of `Connection` that names a protected field or
/// one that `is_own` is passed over.
pub(super) fn remove(fields: &mut HeaderMap, is_own: impl Fn(&HeaderName) -> bool) {
    let mut lines: Vec<HeaderValue> = Vec::new();
    if has(fields, &CONNECTION)
        && let http::header::Entry::Occupied(connection) = fields.entry(CONNECTION)
    {
        lines.extend(connection.remove_entry_mult().1);
    }
    for token in lines.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','))
    {
        let Some(name) = named(fields, token.trim()) else { continue };
        if !is_protected(&name) && !is_own(&name) {
            fields.remove(name);
        }
    }
    remove_all(fields, [&KEEP_ALIVE, &PROXY_CONNECTION, &TE, &TRANSFER_ENCODING, &UPGRADE]);
}

/// The field that a token of `Connection` names, if there is one: nearly always the token is
/// `keep-alive` or `close` and there is none.
fn named(fields: &HeaderMap, token: &str) -> Option<HeaderName> {
    if fields.keys_len() > SCANNED {
        return HeaderName::from_bytes(token.as_bytes()).ok();
    }
    fields.keys().find(|name| name.as_str().eq_ignore_ascii_case(token)).cloned()
}

/// Writes what the next connection needs: `TE: trailers`, an upgrade, and on HTTP/1.1 the
/// `Connection` that goes with them.
pub(super) fn restore(
    fields: &mut HeaderMap,
    onward: Version,
    trailers: bool,
    upgrade: Option<&HeaderValue>,
) {
    let upgrade = upgrade.filter(|_| onward == Version::HTTP_11);
    if trailers {
        fields.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(upgrade) = upgrade {
        fields.insert(UPGRADE, upgrade.clone());
    }
    if onward == Version::HTTP_11 {
        match (trailers, upgrade.is_some()) {
            (true, true) => fields.insert(CONNECTION, HeaderValue::from_static("te, upgrade")),
            (true, false) => fields.insert(CONNECTION, HeaderValue::from_static("te")),
            (false, true) => fields.insert(CONNECTION, HeaderValue::from_static("upgrade")),
            (false, false) => None,
        };
    }
}

/// Puts the cookies of an HTTP/2 request, which may come on a line each, on the one line that
/// HTTP/1.1 has for them. Source: RFC 9113 section 8.2.3.
pub(super) fn join_cookies(fields: &mut HeaderMap) {
    let mut lines = fields.get_all(COOKIE).iter();
    if lines.next().is_none() || lines.next().is_none() {
        return;
    }
    let mut joined = Vec::new();
    for line in fields.get_all(COOKIE) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(line.as_bytes());
    }
    if let Ok(line) = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)) {
        fields.insert(COOKIE, line);
    }
}

/// Whether a field means something from end to end or frames the message, so that no
/// `Connection` may take it away.
pub(super) fn is_protected(name: &HeaderName) -> bool {
    PROTECTED.contains(name)
        || PROTECTED_BY_NAME.contains(&name.as_str())
        || name.as_str().starts_with("x-forwarded-")
        || name.as_str().starts_with("seawall-")
}

/// The elements of a list over all its lines; lines that are no text have none.
fn list<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    fields
        .get_all(name)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

fn is_own_protocol(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or(protocol);
    ["h2c", "h2", "http", "tls"].iter().any(|own| name.eq_ignore_ascii_case(own))
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROTECTED: [HeaderName; 17] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    AUTHORIZATION,
    CACHE_CONTROL,
    COOKIE,
    SET_COOKIE,
    ACCEPT,
    DATE,
    FORWARDED,
    ORIGIN,
    RETRY_AFTER,
    TRAILER,
    VIA,
    HeaderName::from_static("content-digest"),
];
const PROTECTED_BY_NAME: [&str; 7] = [
    "idempotency-key",
    "traceparent",
    "tracestate",
    "baggage",
    "grpc-timeout",
    "grpc-retry-pushback-ms",
    "x-real-ip",
];
