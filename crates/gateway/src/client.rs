//! Who a request is from where a proxy that is trusted says so in a field.
//!
//! Each proxy appends the address that it was called from, so the list is read from its end: the
//! addresses of proxies that are trusted are passed over, and the first other one is the client's.
//! What stands before that was written by the client itself or by somebody nobody trusts, and says
//! nothing. From a peer that is not trusted the field is not read, and does not go on.
//!
//! Known limits: where every address is a trusted one, or one that cannot be read comes first
//! (`unknown`), there is no client. The field `Forwarded` is not read.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

use crate::exchange::Exchange;
use crate::metrics::{IgnoredBecause, IgnoredHeader};

/// Finds out who the request is from, if its listener names a field for that.
pub(crate) fn note_client(fields: &mut HeaderMap, exchange: &mut Exchange) {
    let (gateway, connection) = (&exchange.gateway, &exchange.connection);
    let Some(listener) = gateway.listener(connection.listener()) else { return };
    let Some(name) = &listener.client_header else { return };
    if connection.is_trusted() {
        let is_trusted = |hop| listener.trusted_peers.iter().any(|range| range.contains(hop));
        exchange.client = client_of(fields, name, is_trusted);
    } else if fields.remove(name).is_some() {
        gateway.metrics.ignored_header(IgnoredHeader::Forwarded, IgnoredBecause::Untrusted);
    }
}

/// The last address that is no trusted one.
fn client_of(
    fields: &HeaderMap,
    name: &HeaderName,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let lines = fields.get_all(name).iter().rev();
    let hops = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    // Unreadable, it is nobody, and so is whoever stands before it.
    let mut read = hops.take(HOPS_MAX).map_while(|hop| address(hop.trim_ascii()));
    read.find(|hop| !is_trusted(*hop))
}

/// An address, with or without brackets and a port.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

/// Proxies one behind the other, and their client. Source: seawall-design.
const HOPS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The client by these lines, where 10.0.0.0/8 is trusted.
    fn client(lines: &[&str]) -> Option<String> {
        let name = HeaderName::from_static("x-forwarded-for");
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(&name, line.parse().unwrap());
        }
        let trusted = |hop: IpAddr| matches!(hop, IpAddr::V4(hop) if hop.octets()[0] == 10);
        client_of(&fields, &name, trusted).map(|client| client.to_string())
    }

    #[test]
    fn the_last_address_that_no_trusted_proxy_has_is_the_clients() {
        for (lines, expected) in [
            (&["192.0.2.7"][..], Some("192.0.2.7")),
            (&["192.0.2.7, 10.0.0.1"], Some("192.0.2.7")),
            (&["192.0.2.7,10.0.0.1 ,\t10.0.0.2"], Some("192.0.2.7")),
            (&["192.0.2.7", "10.0.0.1", "10.0.0.2"], Some("192.0.2.7")),
            (&["192.0.2.7:4711"], Some("192.0.2.7")),
            (&["2001:db8::7"], Some("2001:db8::7")),
            (&["[2001:db8::7]"], Some("2001:db8::7")),
            (&["[2001:db8::7]:4711"], Some("2001:db8::7")),
            (&["::ffff:192.0.2.7"], Some("192.0.2.7")),
            (&["192.0.2.7, ::ffff:10.0.0.1"], Some("192.0.2.7")),
        ] {
            assert_eq!(client(lines).as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn what_a_client_wrote_itself_says_nothing() {
        for before in ["1.1.1.1", "10.0.0.9", "garbage", "1.1.1.1, 10.0.0.9", "", "\"[::1]\""] {
            let line = format!("{before}, 192.0.2.7, 10.0.0.1");
            assert_eq!(client(&[&line]).as_deref(), Some("192.0.2.7"), "{line}");
            assert_eq!(client(&[before, "192.0.2.7", "10.0.0.1"]).as_deref(), Some("192.0.2.7"));
        }
    }

    #[test]
    fn where_nobody_is_named_nobody_is_the_client() {
        let long = format!("192.0.2.7{}", ", 10.0.0.1".repeat(HOPS_MAX));
        let unreadable = ["unknown", "", "192.0.2", "192.0.2.7:", "[2001:db8::7", "a.test", "_x"];
        for line in unreadable.into_iter().chain(["10.0.0.1", "10.0.0.1, 10.0.0.2", &*long]) {
            assert_eq!(client(&[line]), None, "{line}");
            assert_eq!(client(&["192.0.2.7", line, "10.0.0.1"]).is_some(), line.starts_with("10."));
        }
        assert_eq!(client(&[]), None);
        assert_eq!(client(&["192.0.2.7, \u{e9}"]), None);
    }
}
