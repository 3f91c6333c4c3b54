//! Decides whom a request is for: its one authority, or a refusal.
//!
//! A request can name its host in the target, in `:authority` and in `Host`, and readers who pick
//! different ones route the same bytes to different places. Here there is one answer: the
//! authority of an absolute-form target replaces `Host`; on HTTP/2 `:authority` and `Host` must
//! agree; on HTTP/1.1 there must be exactly one `Host` in any case. Every host seen is held
//! against the grammar, also one that is then replaced. Source: RFC 9110 section 7.2,
//! RFC 9112 sections 3.2 and 3.3, RFC 9113 section 8.3.1.
//!
//! Stricter than the grammar: a host has at most 255 bytes and no comma (a list joined from two
//! `Host` lines would have one), an address in brackets is IPv6 without a zone, and an empty host
//! is no host.

use std::net::Ipv6Addr;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Method, Uri, Version};

use crate::refusal::Refusal;

/// A host and perhaps a port, as the caller wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    value: HeaderValue,
    host_length: usize,
    port: Option<u16>,
}

impl Authority {
    /// Whom a request is for. `None` only for HTTP/1.0 without `Host`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Connect`] for CONNECT; [`Refusal::Malformed`] for a missing, doubled, invalid or
    /// contradictory host, and for a target that is of none of the forms a server accepts.
    pub(crate) fn of(request: &Parts) -> Result<Option<Self>, Refusal> {
        if request.method == Method::CONNECT {
            return Err(Refusal::Connect);
        }
        check_form(request)?;
        let host = host_field(request)?;
        let target = match request.uri.authority() {
            Some(written) => {
                Some(Self::parse(HeaderValue::from_str(written.as_str()).map_err(|_| INVALID)?)?)
            }
            None => None,
        };
        match (request.version, target, host) {
            (Version::HTTP_2, Some(target), Some(host)) if !target.agrees_with(&host) => {
                Err(Refusal::Malformed("`:authority` and Host differ"))
            }
            (Version::HTTP_11, _, None) => Err(Refusal::Malformed("no Host")),
            (_, Some(target), _) => Ok(Some(target)),
            (_, None, Some(host)) => Ok(Some(host)),
            (Version::HTTP_10, None, None) => Ok(None),
            (_, None, None) => Err(Refusal::Malformed("neither `:authority` nor Host")),
        }
    }

    /// The host: a name or an IPv4 address, or an IPv6 address in brackets. Case as received.
    #[must_use]
    pub(crate) fn host(&self) -> &str {
        // A value of this type is ASCII by construction.
        self.value.to_str().map_or("", |text| &text[..self.host_length])
    }

    /// The port, if one was written.
    #[cfg(test)]
    #[must_use]
    pub(crate) const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The bytes as received; go on to the upstream as `Host`.
    #[must_use]
    pub(crate) const fn value(&self) -> &HeaderValue {
        &self.value
    }

    fn parse(value: HeaderValue) -> Result<Self, Refusal> {
        let text = value.to_str().map_err(|_| INVALID)?;
        let host_length = match text.find(']') {
            Some(bracket) => bracket + 1,
            None => text.find(':').unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at(host_length);
        let port = match rest.strip_prefix(':') {
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().map_err(|_| INVALID)?)
            }
            None if rest.is_empty() => None,
            _ => return Err(INVALID),
        };
        if host.len() > HOST_LENGTH_MAX || !is_host(host) {
            return Err(INVALID);
        }
        Ok(Self { host_length, port, value })
    }

    fn agrees_with(&self, other: &Self) -> bool {
        self.host().eq_ignore_ascii_case(other.host()) && self.port == other.port
    }
}

/// The one `Host` field, if there is one.
fn host_field(request: &Parts) -> Result<Option<Authority>, Refusal> {
    let mut fields = request.headers.get_all(HOST).iter();
    let first = fields.next().cloned().map(Authority::parse).transpose()?;
    match fields.next() {
        Some(_) => Err(Refusal::Malformed("more than one Host")),
        None => Ok(first),
    }
}

/// Refuses a target that is neither a path, nor absolute, nor `*` of OPTIONS.
fn check_form(request: &Parts) -> Result<(), Refusal> {
    let uri: &Uri = &request.uri;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(_)) | (None, None) => {}
        // HTTP/2 carries the scheme apart; a request without `:authority` still has one.
        (Some("http" | "https"), None) if request.version == Version::HTTP_2 => {}
        _ => return Err(Refusal::Malformed("target of an unknown form")),
    }
    match uri.path() {
        "*" if request.method != Method::OPTIONS => Err(Refusal::Malformed("target `*`")),
        path if path == "*" || path.starts_with('/') => Ok(()),
        _ => Err(Refusal::Malformed("target without a path")),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    !host.is_empty() && is_name(host.as_bytes())
}

/// A registered name or IPv4 address. Source: RFC 3986 section 3.2.2.
fn is_name(mut rest: &[u8]) -> bool {
    loop {
        rest = match *rest {
            [] => return true,
            [b'%', high, low, ref after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            [byte, ref after @ ..] if byte.is_ascii_alphanumeric() => after,
            [byte, ref after @ ..] if NAME_MARKS.contains(&byte) => after,
            _ => return false,
        };
    }
}

const INVALID: Refusal = Refusal::Malformed("invalid host");
/// Beside letters, digits and escapes. Source: RFC 3986 section 3.2.2. Differs: no comma.
const NAME_MARKS: &[u8] = b"-._~!$&'()*+;=";
/// Bytes of a host. Source: RFC 1035 section 2.3.4.
const HOST_LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests;
