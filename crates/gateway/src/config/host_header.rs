//! Whom requests to an upstream say they are for.

use std::net::Ipv6Addr;

use http::HeaderValue;

use super::address::is_name;
use super::model::EndpointAddress;
use super::scope::Scope;

/// What a request to an upstream says whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// What the caller said.
    Keep,
    /// The endpoint it goes to.
    Endpoint,
    /// This host, with a port if it has one.
    Named(HeaderValue),
}

/// Whom requests to an upstream are for.
pub(super) fn host_header(scope: &mut Scope<'_>, raw: &Option<String>) -> HostHeader {
    let read = scope.read("host_header", raw, |text| match text {
        "keep" => Ok(HostHeader::Keep),
        "endpoint" => Ok(HostHeader::Endpoint),
        name => named_host(name)
            .map(HostHeader::Named)
            .ok_or("keep, endpoint, or a host like orders.internal or orders.internal:8080"),
    });
    read.unwrap_or(HostHeader::Keep)
}

fn named_host(text: &str) -> Option<HeaderValue> {
    let (host, port) = match text.rfind([':', ']']) {
        Some(at) if text[at..].starts_with(':') => (&text[..at], Some(&text[at + 1..])),
        _ => (text, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    HeaderValue::from_str(text).ok().filter(|_| is_host && is_port)
}

impl EndpointAddress {
    /// Whom a request to it is for.
    pub(crate) fn authority(&self) -> Option<HeaderValue> {
        let Self::Tcp { host, port, tls } = self else {
            return Some(HeaderValue::from_static("localhost"));
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let implied = if *tls { 443 } else { 80 };
        let text = if *port == implied { host } else { format!("{host}:{port}") };
        HeaderValue::try_from(text).ok()
    }
}
