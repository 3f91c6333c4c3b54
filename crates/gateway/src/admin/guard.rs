//! Who may ask what.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use seawall_policy::ConfigError;

use super::answer::{Refusal, shown, shown_value};
use super::{Desk, Ends};

/// What a request has shown of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// The token.
    Known,
    /// Nothing.
    Unknown,
}

/// Lets a request in, or says why not.
pub(super) fn admit(desk: &Desk, ends: Ends, head: &Parts) -> Result<Caller, Refusal> {
    let access = desk.backend.access();
    let serves_others = access.token.is_some() && !is_loopback(desk.address);
    check_origin(&head.headers, head.uri.host(), ends, serves_others)?;
    let Some(token) = &access.token else { return Ok(Caller::Unknown) };
    let bearer = bearer(&head.headers);
    if bearer.is_some_and(|given| token.is(given)) {
        return Ok(Caller::Known);
    }
    let is_open = match head.uri.path() {
        "/livez" | "/healthz" | "/ready" => true,
        "/metrics" => access.open_metrics,
        _ => false,
    };
    // A wrong one is told even where none is asked for.
    if is_open && bearer.is_none() {
        return Ok(Caller::Unknown);
    }
    desk.backend.count_unauthorized();
    let value = if bearer.is_some() { "a wrong token" } else { "nothing" };
    let allowed = "Bearer and the token of this admin port";
    Err(Refusal::of(StatusCode::UNAUTHORIZED, ConfigError::new("authorization", value, allowed)))
}

/// The token that a request shows. More than one header shows none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| token.trim_ascii())
}

/// Refuses what a browser was made to send: see the module above. Behind a token, on an address
/// that others reach, any host may be meant: a page has no token to send.
fn check_origin(
    headers: &HeaderMap,
    target: Option<&str>,
    ends: Ends,
    serves_others: bool,
) -> Result<(), Refusal> {
    if let Some(origin) = headers.get(ORIGIN) {
        let error = ConfigError::new("origin", shown_value(origin), "no Origin header");
        return Err(Refusal::of(StatusCode::FORBIDDEN, error));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        let error = ConfigError::new("host", headers.get_all(HOST).iter().count(), "one Host");
        return Err(Refusal::of(StatusCode::BAD_REQUEST, error));
    };
    if serves_others {
        return Ok(());
    }
    let authority = host.to_str().ok().and_then(|host| host.parse::<http::uri::Authority>().ok());
    let named = authority.as_ref().map(http::uri::Authority::host);
    // A target in absolute form names a host of its own, which counts as well.
    if named.is_some_and(|host| is_ours(host, ends))
        && target.is_none_or(|host| is_ours(host, ends))
    {
        return Ok(());
    }
    let shown = target.map_or_else(|| shown_value(host), shown);
    let allowed = "localhost, a loopback address or the address connected to";
    Err(Refusal::of(StatusCode::FORBIDDEN, ConfigError::new("host", shown, allowed)))
}

/// Whether a host can only mean this machine, or is the address the peer connected to.
fn is_ours(host: &str, ends: Ends) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().map(IpAddr::V6).ok(),
        None => host.parse::<IpAddr>().ok(),
    };
    address.is_some_and(|address| {
        let address = address.to_canonical();
        address.is_loopback() || address == ends.local.ip().to_canonical()
    })
}

/// Without a token only this machine may change anything.
pub(super) fn check_peer(ends: Ends, caller: Caller) -> Result<(), Refusal> {
    if caller == Caller::Known || is_loopback(ends.peer) {
        return Ok(());
    }
    let error = ConfigError::new("peer", ends.peer, "a loopback peer to change anything");
    Err(Refusal::of(StatusCode::FORBIDDEN, error))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The scheme, in any case, and the space behind it.
const BEARER: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn ends(local: &str) -> Ends {
        Ends { peer: "192.0.2.9:5".parse().unwrap(), local: local.parse().unwrap() }
    }

    #[test]
    fn the_address_connected_to_is_ours_and_its_neighbour_is_not() {
        let at = ends("[::ffff:192.0.2.1]:9901");
        assert!(is_ours("192.0.2.1", at));
        assert!(!is_ours("192.0.2.2", at));
        let at = ends("[2001:db8::1]:9901");
        assert!(is_ours("[2001:db8:0::1]", at));
        assert!(!is_ours("[2001:db8::2]", at) && !is_ours("2001:db8::1]", at));
    }

    #[test]
    fn only_a_loopback_peer_or_a_token_may_change_anything() {
        for (peer, is_loopback) in [
            ("127.0.0.1:5", true),
            ("[::1]:5", true),
            ("[::ffff:127.0.0.1]:5", true),
            ("192.0.2.1:5", false),
            ("[2001:db8::1]:5", false),
        ] {
            let ends = Ends { peer: peer.parse().unwrap(), local: "127.0.0.1:1".parse().unwrap() };
            assert_eq!(check_peer(ends, Caller::Unknown).is_ok(), is_loopback, "{peer}");
            assert!(check_peer(ends, Caller::Known).is_ok(), "{peer}");
        }
    }

    #[test]
    fn a_bearer_is_one_header_of_that_scheme() {
        let shown = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        for value in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef "] {
            assert_eq!(shown(&[value]).as_deref(), Some(TOKEN.as_bytes()), "{value}");
        }
        assert_eq!(shown(&["Basic MDEyMzQ="]), None);
        assert_eq!(shown(&["Bearer"]), None);
        assert_eq!(shown(&[]), None);
        assert_eq!(shown(&["Bearer 0123456789abcdef", "Bearer x"]), None);
    }
}
