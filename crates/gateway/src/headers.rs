//! Decides which fields of a message go on to the next hop, and what this hop adds.
//!
//! Towards the upstream: fields meant for one connection go (`Connection` and what it names,
//! `Keep-Alive`, `Proxy-Connection`, `TE` but for `trailers`, `Transfer-Encoding`, `Upgrade` unless
//! an upgrade is forwarded, `Proxy-Authorization`, `Expect: 100-continue`); trust fields stay only
//! where the peer may state them; `X-Forwarded-*` and `Via` are added; the request gets an id.
//! Towards the caller: the same fields for one connection go; `Seawall-Attempts`, `Seawall-Retry`,
//! the request id and `Via` are added. Source: RFC 9110 sections 7.6 and 10.1, RFC 7239.
//!
//! A `Connection` field is the caller's, so it must not take away what someone behind the caller
//! relies on (`Connection: X-Forwarded-For` would hide who asked, `Connection: Content-Length`
//! where the body ends). A token that names a field with a meaning end to end, one of ours, or one
//! that frames the message is passed over: the field stays and the token goes.
//!
//! A field written with `_` for `-` reaches many programs under the same name (CGI has one name
//! for both). Such a twin of a field that is protected here is removed from every peer.

mod connection;
mod framing;
mod ids;
mod via;

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use seawall_policy::{ConfigError, Rng};

pub(crate) use connection::upgrade_of;
pub(crate) use framing::check_framing;
pub(crate) use ids::Ids;

use crate::authority::Authority;
use crate::config::HeaderNames;
use crate::grpc::{GRPC_ATTEMPTS, GRPC_TIMEOUT};
use crate::lines;
use crate::metrics::{IgnoredBecause, IgnoredHeader, IgnoredHeaders};
use crate::refusal::Refusal;
use via::ViaToken;

/// What a request's peer and connections are, as far as its fields depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound<'a> {
    /// The version the request came in.
    pub version: Version,
    /// The version it goes on in.
    pub onward: Version,
    /// The peer of the connection it came on.
    pub peer: IpAddr,
    /// Whether that connection is spoken on with TLS.
    pub secure: bool,
    /// Whether the peer may state tenant, priority, cost, attempt number and forwarded-for.
    pub trusted: bool,
    /// Whether the peer may state a deadline; a trusted peer may in any case.
    pub trusted_for_deadline: bool,
    /// Whom it is for, if it said so.
    pub authority: Option<&'a Authority>,
    /// Whether it is a gRPC call, whose own fields state time and attempt, too.
    pub grpc: bool,
    /// The upgrade to forward, from [`upgrade_of`].
    pub upgrade: Option<&'a HeaderValue>,
}

/// What a peer stated and was allowed to state. A field that came twice states nothing; what was
/// stated in vain is in `ignored`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stated {
    /// Milliseconds the caller still waits, unparsed.
    pub remaining: Option<HeaderValue>,
    /// Which attempt this is, unparsed.
    pub attempt: Option<HeaderValue>,
    /// How long a gRPC call may take, unparsed.
    pub grpc_timeout: Option<HeaderValue>,
    /// How many attempts of a gRPC call were made before, unparsed.
    pub grpc_attempts: Option<HeaderValue>,
    /// The tenant.
    pub tenant: Option<HeaderValue>,
    /// The priority, unparsed.
    pub priority: Option<HeaderValue>,
    /// The cost, unparsed.
    pub cost: Option<HeaderValue>,
    /// Fields that were not obeyed, and why.
    pub ignored: IgnoredHeaders,
}

/// What an answer gets on its way back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    /// The version the upstream answered in; `None` for an answer we made.
    pub version: Option<Version>,
    /// Whether it switches protocols (101): then `Upgrade` stays.
    pub switches: bool,
    /// Attempts sent for it; 0 if none.
    pub attempts: u32,
    /// Whether to say `Seawall-Retry: no`. An upstream's own stop passes in any case.
    pub stop: bool,
    /// The id of the request.
    pub request_id: &'a HeaderValue,
}

/// Rewrites the fields of requests and answers; made once per configuration.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    names: HeaderNames,
    via: ViaToken,
}

impl Fields {
    /// `pseudonym` is this instance's name in `Via`: a token that no other hop has.
    ///
    /// # Errors
    ///
    /// If `pseudonym` is no token.
    pub(crate) fn new(names: HeaderNames, pseudonym: &str) -> Result<Self, ConfigError> {
        Ok(Self { names, via: ViaToken::new(pseudonym)? })
    }

    /// Turns the fields of a request as it came into the fields that go on. `X-Remaining-Ms` and
    /// `X-Retry-Attempt` are always taken out: what goes on is ours to say. The rest of what the
    /// peer was allowed to state stays in place.
    ///
    /// # Errors
    ///
    /// [`Refusal::Loop`] if the request came through here more than four times.
    pub(crate) fn to_upstream(
        &self,
        fields: &mut HeaderMap,
        inbound: &Inbound<'_>,
    ) -> Result<Stated, Refusal> {
        if self.via.passes(fields) > PASSES_MAX {
            return Err(Refusal::Loop);
        }
        self.remove_twins(fields);
        let trailers = connection::wants_trailers(fields);
        connection::remove(fields, |name| self.is_own(name));
        remove_all(fields, [&EXPECT, &PROXY_AUTHORIZATION, &HTTP2_SETTINGS]);
        let mut stated = self.take_stated(fields, inbound);
        connection::restore(fields, inbound.onward, trailers, inbound.upgrade);
        match inbound.authority {
            // There it is `:authority`, and a second place to read it from helps nobody.
            Some(_) if inbound.onward == Version::HTTP_2 => {
                fields.remove(HOST);
            }
            Some(authority) => {
                fields.insert(HOST, authority.value().clone());
            }
            None => {}
        }
        if inbound.version == Version::HTTP_2 && inbound.onward != Version::HTTP_2 {
            connection::join_cookies(fields);
        }
        forward(fields, inbound, &mut stated.ignored);
        self.via.append(fields, inbound.version);
        Ok(stated)
    }

    /// Reads the ids of a request, whatever becomes of it, and leaves in `fields` what goes on.
    pub(crate) fn ids(
        &self,
        fields: &mut HeaderMap,
        ignored: &mut IgnoredHeaders,
        rng: &mut impl Rng,
    ) -> Ids {
        Ids::take(fields, &self.names, ignored, rng)
    }

    /// Turns the fields of an answer into those that go to the caller.
    pub(crate) fn to_downstream(&self, fields: &mut HeaderMap, answered: &Answered<'_>) {
        // Of the two the coding is what was read; the length would cut the body off for the caller.
        if has(fields, &TRANSFER_ENCODING) {
            fields.remove(CONTENT_LENGTH);
        }
        let upgrade = if answered.switches { fields.remove(UPGRADE) } else { None };
        connection::remove(fields, |name| self.is_own(name));
        remove_all(fields, [&PROXY_AUTHENTICATE]);
        if let Some(upgrade) = &upgrade {
            connection::restore(fields, Version::HTTP_11, false, Some(upgrade));
        }
        if let Some(version) = answered.version {
            self.via.append(fields, version);
        }
        fields.insert(SEAWALL_ATTEMPTS, number(answered.attempts));
        if answered.stop {
            fields.insert(SEAWALL_RETRY, HeaderValue::from_static("no"));
        }
        fields.insert(self.names.request_id.clone(), answered.request_id.clone());
    }

    fn take_stated(&self, fields: &mut HeaderMap, inbound: &Inbound<'_>) -> Stated {
        let names = &self.names;
        let for_deadline = inbound.trusted || inbound.trusted_for_deadline;
        let mut ignored = IgnoredHeaders::default();
        let mut take = |name, may, header| allowed(fields, name, may, header, &mut ignored);
        let mut stated = Stated {
            remaining: take(&names.remaining, for_deadline, IgnoredHeader::Remaining),
            attempt: take(&names.attempt, inbound.trusted, IgnoredHeader::Attempt),
            tenant: take(&names.tenant, inbound.trusted, IgnoredHeader::Tenant),
            priority: take(&names.priority, inbound.trusted, IgnoredHeader::Priority),
            cost: take(&names.cost, inbound.trusted, IgnoredHeader::Cost),
            grpc_timeout: None,
            grpc_attempts: None,
            ignored: IgnoredHeaders::default(),
        };
        if inbound.grpc {
            let (timeout, attempts) = (GRPC_TIMEOUT, GRPC_ATTEMPTS);
            stated.grpc_timeout = take(&timeout, for_deadline, IgnoredHeader::GrpcTimeout);
            stated.grpc_attempts = take(&attempts, inbound.trusted, IgnoredHeader::GrpcAttempts);
            fields.remove(timeout);
            fields.remove(attempts);
        }
        stated.ignored = ignored;
        remove_all(fields, [&names.remaining, &names.attempt]);
        stated
    }

    /// Whether a `Connection` field may not take `name` away because it is one of ours.
    fn is_own(&self, name: &HeaderName) -> bool {
        let names = &self.names;
        [
            &names.remaining,
            &names.attempt,
            &names.tenant,
            &names.priority,
            &names.cost,
            &names.request_id,
            &names.correlation_id,
        ]
        .contains(&name)
    }

    /// Removes fields that differ from a protected one only in `_` for `-`.
    fn remove_twins(&self, fields: &mut HeaderMap) {
        if !fields.keys().any(|name| name.as_str().contains('_')) {
            return;
        }
        let twins: Vec<HeaderName> = fields
            .keys()
            .filter(|name| name.as_str().contains('_') && self.is_twin(name))
            .cloned()
            .collect();
        for twin in twins {
            fields.remove(twin);
        }
    }

    fn is_twin(&self, name: &HeaderName) -> bool {
        // A configured name may itself have an underscore.
        if self.is_own(name) {
            return false;
        }
        HeaderName::from_bytes(name.as_str().replace('_', "-").as_bytes()).is_ok_and(|plain| {
            self.is_own(&plain)
                || connection::is_protected(&plain)
                || plain == TRANSFER_ENCODING
                || plain == CONNECTION
                || plain == UPGRADE
                || plain == TE
        })
    }
}

/// Whether there is such a field. A request has a handful of fields and is asked for thirty, nearly
/// all of them in vain: to compare names is several times cheaper than to hash them. A request of
/// many fields is asked by hash.
pub(crate) fn has(fields: &HeaderMap, name: &HeaderName) -> bool {
    match fields.keys_len() {
        0..=SCANNED => fields.keys().any(|key| key == name),
        _ => fields.contains_key(name),
    }
}

/// Removes the fields that are there.
fn remove_all<const N: usize>(fields: &mut HeaderMap, names: [&HeaderName; N]) {
    for name in names {
        if has(fields, name) {
            fields.remove(name);
        }
    }
}

/// A number as a value. Attempts are few, and a digit needs no allocation.
pub(crate) fn number(number: impl Into<u64>) -> HeaderValue {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let number = number.into();
    match usize::try_from(number).ok().and_then(|digit| DIGITS.get(digit)) {
        Some(digit) => HeaderValue::from_static(digit),
        // The conversion of `http` takes two allocations, this takes one.
        None => HeaderValue::from_str(itoa::Buffer::new().format(number))
            .unwrap_or_else(|_| HeaderValue::from(number)),
    }
}

/// The value of `name` if the peer may state it and did so once; otherwise the field is removed.
fn allowed(
    fields: &mut HeaderMap,
    name: &HeaderName,
    may: bool,
    header: IgnoredHeader,
    ignored: &mut IgnoredHeaders,
) -> Option<HeaderValue> {
    if !has(fields, name) {
        return None;
    }
    let mut values = fields.get_all(name).iter();
    let first = values.next()?;
    match values.next() {
        None if may => return Some(first.clone()),
        _ if !may => ignored.add(header, IgnoredBecause::Untrusted),
        _ => ignored.add(header, IgnoredBecause::Repeated),
    }
    fields.remove(name);
    None
}

/// Says who asked, for what host and how: appended to what a trusted peer said, in place of what
/// another said. `Forwarded` is written only where the request had one; scheme and host as a
/// trusted peer stated them stay, since they are those of the first hop.
fn forward(fields: &mut HeaderMap, inbound: &Inbound<'_>, ignored: &mut IgnoredHeaders) {
    let had_forwarded = has(fields, &FORWARDED);
    if !inbound.trusted {
        for name in [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST] {
            if has(fields, &name) && fields.remove(name).is_some() {
                ignored.add(IgnoredHeader::Forwarded, IgnoredBecause::Untrusted);
            }
        }
    }
    let scheme = if inbound.secure { "https" } else { "http" };
    let peer = inbound.peer.to_canonical();
    let mut text = Vec::with_capacity(LONGEST_V4);
    lines::ip(&mut text, peer);
    append_to_list(fields, X_FORWARDED_FOR, text);
    if had_forwarded {
        let mut element = match peer {
            IpAddr::V4(peer) => format!("for={peer}"),
            IpAddr::V6(peer) => format!("for=\"[{peer}]\""),
        };
        if let Some(host) = inbound.authority.and_then(|host| host.value().to_str().ok()) {
            // Quoted: a host with a port or brackets is no token. A host has no quote or backslash.
            let _ = write!(element, ";host=\"{host}\"");
        }
        let _ = write!(element, ";proto={scheme}");
        append_to_list(fields, FORWARDED, element.into_bytes());
    }
    fields.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(scheme));
    if let Some(authority) = inbound.authority {
        fields.entry(X_FORWARDED_HOST).or_insert_with(|| authority.value().clone());
    }
}

/// Joins all lines of the list `name` and `element` into one line.
fn append_to_list(fields: &mut HeaderMap, name: HeaderName, element: Vec<u8>) {
    let mut joined = Vec::new();
    if has(fields, &name) {
        for line in fields.get_all(&name) {
            joined.extend_from_slice(line.as_bytes());
            joined.extend_from_slice(b", ");
        }
    }
    let joined = if joined.is_empty() { element } else { [joined, element].concat() };
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)) {
        fields.insert(name, value);
    }
}

/// Bytes of an IPv4 address as text, at most.
const LONGEST_V4: usize = 15;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
/// On every answer: how many attempts were sent for it.
const SEAWALL_ATTEMPTS: HeaderName = HeaderName::from_static("seawall-attempts");
/// `no`: nobody should try again.
const SEAWALL_RETRY: HeaderName = HeaderName::from_static("seawall-retry");
/// On an answer made by a Seawall: what happened, as a code.
pub(crate) const SEAWALL_PROBLEM: HeaderName = HeaderName::from_static("seawall-problem");
/// On a fallback's answer: the stop reason it stands in for.
pub(crate) const SEAWALL_DEGRADED: HeaderName = HeaderName::from_static("seawall-degraded");
/// Fields up to which names are compared and not hashed.
const SCANNED: usize = 24;
/// Times a request may have passed here before: a gateway and a sidecar on each side make four.
const PASSES_MAX: usize = 4;

#[cfg(test)]
mod tests;
