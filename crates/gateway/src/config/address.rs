//! Addresses: what is listened on, what is called, and when the two are the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::model::{EndpointAddress, PeerRange};

/// Reads an address to bind: literal, with a port.
///
/// # Errors
/// What to give instead, as it fits after "give".
pub fn parse_bind(text: &str) -> Result<SocketAddr, String> {
    if text.contains('%') {
        return Err("an address without a zone, like [::]:8080".to_owned());
    }
    let hint = match text.rsplit_once(':') {
        Some(("", port)) if is_port(port) => format!(", like 127.0.0.1:{port} or 0.0.0.0:{port}"),
        Some(("localhost", port)) if is_port(port) => format!(", like 127.0.0.1:{port}"),
        None if is_port(text) => format!(", like 127.0.0.1:{text}"),
        None if text.parse::<IpAddr>().is_ok() => format!(", like {text}:8080"),
        _ if text.parse::<Ipv6Addr>().is_ok() => format!(", like [{text}]:8080"),
        _ => ", like 127.0.0.1:8080 or [::1]:8080".to_owned(),
    };
    text.parse().map_err(|_| format!("a literal address and a port{hint}"))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Reads a range of peers: `10.0.0.0/8`, or one address.
pub(super) fn parse_range(text: &str) -> Result<PeerRange, String> {
    let allowed = || "a range of addresses, like 10.0.0.0/8, or one address".to_owned();
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let network: IpAddr = address.parse().map_err(|_| allowed())?;
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let digits = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
    let prefix = match prefix {
        None => bits,
        Some(text) => Some(text)
            .filter(digits)
            .and_then(|text| text.parse().ok())
            .filter(|prefix| *prefix <= bits)
            .ok_or_else(|| format!("a prefix of 0 to {bits} bits"))?,
    };
    Ok(PeerRange { network, prefix })
}

/// Reads an upstream's endpoint.
pub(super) fn parse_endpoint(text: &str) -> Result<EndpointAddress, String> {
    let allowed = || {
        "a URL like http://127.0.0.1:9000, https://orders.internal or unix:/run/orders.sock"
            .to_owned()
    };
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map(EndpointAddress::Unix);
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(allowed)?;
    let tls = scheme.eq_ignore_ascii_case("https");
    if !tls && !scheme.eq_ignore_ascii_case("http") {
        return Err(allowed());
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err("a URL without a user; credentials are not sent from here".to_owned());
    }
    if authority.contains(['/', '?', '#']) {
        return Err("a URL without a path; a request's path goes on as it came".to_owned());
    }
    if authority.starts_with('[') && authority.contains('%') {
        return Err("an address without a zone; zones are of one host alone".to_owned());
    }
    let (host, port) = split_port(authority).ok_or_else(allowed)?;
    let port = match port {
        None if tls => 443,
        None => 80,
        Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => text
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| "a port from 1 to 65535".to_owned())?,
        Some(_) => return Err(allowed()),
    };
    if !is_host(host) {
        return Err(allowed());
    }
    if is_number_in_disguise(host) {
        return Err(
            "an address as four numbers, like 127.0.0.1, or a name that does not end in a \
                    number"
                .to_owned(),
        );
    }
    Ok(EndpointAddress::Tcp { host: host.to_ascii_lowercase(), port, tls })
}

/// Reads what follows `unix:`: an absolute path, after two slashes more or not.
pub(super) fn parse_unix(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("//").unwrap_or(text);
    if !path.starts_with('/') || path.contains('\0') {
        return Err("the absolute path of a socket, like unix:/run/orders.sock".to_owned());
    }
    if path.len() > SOCKET_PATH_MAX {
        return Err(format!("a path of at most {SOCKET_PATH_MAX} bytes; sockets have no longer"));
    }
    Ok(PathBuf::from(path))
}

/// Host without brackets, and the text after its colon.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        return match rest {
            "" => Some((host, None)),
            _ => Some((host, Some(rest.strip_prefix(':')?))),
        };
    }
    match authority.split_once(':') {
        None => Some((authority, None)),
        Some((_, port)) if port.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
    }
}

/// A literal address without brackets, or a name.
pub(super) fn is_host(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || is_name(host)
}

/// A name as DNS has them, and with underscores, as container networks do.
pub(super) fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether a resolver would take the name for an address: `127.1`, `2130706433`, `0x7f000001`. No
/// comparison of ours would see through it, and no name of DNS ends in a number.
fn is_number_in_disguise(host: &str) -> bool {
    if host.parse::<IpAddr>().is_ok() {
        return false;
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_hex = |digits: &str| digits.bytes().all(|b| b.is_ascii_hexdigit());
    let hexadecimal =
        last.strip_prefix("0x").or_else(|| last.strip_prefix("0X")).is_some_and(is_hex);
    hexadecimal || last.bytes().all(|b| b.is_ascii_digit())
}

/// Whether two sockets would meet on one port; port 0 meets none.
pub(super) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |wide: IpAddr, narrow: IpAddr| match wide {
        IpAddr::V4(wide) => wide.is_unspecified() && narrow.is_ipv4(),
        // A wildcard of IPv6 takes IPv4 as well.
        IpAddr::V6(wide) => wide.is_unspecified(),
    };
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// Whether a call to `endpoint` arrives at `bound`, as far as the addresses tell. A name other
/// than localhost is not looked up here.
pub(super) fn reaches(endpoint: &EndpointAddress, bound: SocketAddr) -> bool {
    let EndpointAddress::Tcp { host, port, .. } = endpoint else { return false };
    let host = host.trim_end_matches('.');
    let reached: Vec<IpAddr> = if host == "localhost" || host.ends_with(".localhost") {
        vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
    } else {
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            // A call to the wildcard goes to this host.
            Ok(IpAddr::V4(address)) if address.is_unspecified() => vec![Ipv4Addr::LOCALHOST.into()],
            Ok(IpAddr::V6(address)) if address.is_unspecified() => {
                vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]
            }
            Ok(address) => vec![address],
            Err(_) => Vec::new(),
        }
    };
    let local = |address: &IpAddr| address.is_loopback() || *address == bound.ip().to_canonical();
    reached.iter().any(|address| local(address) && overlap(SocketAddr::new(*address, *port), bound))
}

/// Without the zero at its end. Source: Linux unix(7), `sun_path`.
const SOCKET_PATH_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_hosts_and_ports_of_http_urls() {
        for (text, host, port) in [
            ("http://127.0.0.1:9000", "127.0.0.1", 9000),
            ("http://127.0.0.1:9000/", "127.0.0.1", 9000),
            ("HTTP://Orders.Internal", "orders.internal", 80),
            ("http://[::1]:9000", "::1", 9000),
            ("http://[::1]", "::1", 80),
            ("http://my_service:1", "my_service", 1),
            ("https://orders.internal", "orders.internal", 443),
            ("https://[::1]:8443/", "::1", 8443),
        ] {
            let tls = text.starts_with("https");
            let expected = EndpointAddress::Tcp { host: host.into(), port, tls };
            assert_eq!(parse_endpoint(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn endpoints_with_more_than_host_and_port_are_refused() {
        for (text, part) in [
            ("", "a URL like"),
            ("127.0.0.1:9000", "a URL like"),
            ("ftp://h:1", "a URL like"),
            ("http://", "a URL like"),
            ("http://:80", "a URL like"),
            ("http://a b:80", "a URL like"),
            ("http://a:b", "a URL like"),
            ("http://a:1:2", "a URL like"),
            ("http://a:+1", "a URL like"),
            ("http://[::1", "a URL like"),
            ("http://[h]:1", "a URL like"),
            ("http://[::1]x", "a URL like"),
            ("http://-a:1", "a URL like"),
            ("http://a:0", "a port"),
            ("http://a:65536", "a port"),
            ("https://", "a URL like"),
            ("http://[fe80::1%eth0]:80", "without a zone"),
            ("http://[fe80::1%25eth0]:80", "without a zone"),
            ("unix:", "the absolute path"),
            ("unix:run/a.sock", "the absolute path"),
            ("unix://run/a.sock", "the absolute path"),
            ("http://a:80/v1", "without a path"),
            ("http://a:80?x", "without a path"),
            ("http://me:secret@a:80", "without a user"),
        ] {
            let allowed = parse_endpoint(text).unwrap_err();
            assert!(allowed.contains(part), "{text}: {allowed}");
        }
    }

    #[test]
    fn an_address_in_disguise_is_no_endpoint_and_a_name_with_digits_is() {
        for host in [
            "127.1",
            "0x7f000001",
            "0X7F.1",
            "2130706433",
            "0177.0.0.1",
            "127.0.0.1.",
            "a.0x",
            "a.9",
        ] {
            let allowed = parse_endpoint(&format!("http://{host}:9901")).unwrap_err();
            assert!(allowed.contains("four numbers"), "{host}: {allowed}");
        }
        for host in ["127.0.0.1", "orders-1", "1.orders", "9a", "0x7g", "[::1]"] {
            assert!(parse_endpoint(&format!("http://{host}:9901")).is_ok(), "{host}");
        }
    }

    #[test]
    fn sockets_of_this_host_are_absolute_paths_a_socket_can_have() {
        for text in ["unix:/run/a.sock", "unix:///run/a.sock"] {
            let expected = EndpointAddress::Unix(PathBuf::from("/run/a.sock"));
            assert_eq!(parse_endpoint(text), Ok(expected.clone()));
            assert_eq!(expected.to_string(), "unix:/run/a.sock");
        }
        assert!(parse_endpoint(&format!("unix:/{}", "a".repeat(106))).is_ok());
        let allowed = parse_endpoint(&format!("unix:/{}", "a".repeat(107))).unwrap_err();
        assert!(allowed.contains("at most 107 bytes"), "{allowed}");
    }

    #[test]
    fn addresses_to_bind_are_literal_and_without_a_zone() {
        assert!(parse_bind("[::]:80").is_ok());
        for (text, part) in [
            ("[fe80::1%2]:80", "without a zone"),
            (":80", "like 127.0.0.1:80 or 0.0.0.0:80"),
            ("localhost:80", "like 127.0.0.1:80"),
            ("::1", "like [::1]:8080"),
        ] {
            let allowed = parse_bind(text).unwrap_err();
            assert!(allowed.contains(part), "{text}: {allowed}");
        }
    }

    #[test]
    fn ranges_are_read_with_the_bits_of_their_family() {
        for (text, prefix) in
            [("10.0.0.0/8", 8), ("10.1.2.3", 32), ("::1", 128), ("fd00::/8", 8), ("0.0.0.0/0", 0)]
        {
            assert_eq!(parse_range(text).unwrap().prefix, prefix, "{text}");
        }
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0/8", "h/8"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
        let range = parse_range("10.1.0.0/16").unwrap();
        assert!(range.contains("10.1.255.1".parse().unwrap()));
        assert!(range.contains("::ffff:10.1.0.1".parse().unwrap()), "mapped");
        assert!(!range.contains("10.2.0.1".parse().unwrap()));
        assert!(!range.contains("::1".parse().unwrap()));
        let all = parse_range("::/0").unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()));
    }

    #[test]
    fn a_call_reaches_a_socket_through_wildcards_and_aliases() {
        for (endpoint, bound, expected) in [
            ("http://127.0.0.1:80", "127.0.0.1:80", true),
            ("http://127.0.0.1:80", "127.0.0.1:81", false),
            ("http://127.0.0.2:80", "127.0.0.1:80", false),
            ("http://127.0.0.2:80", "0.0.0.0:80", true),
            ("http://localhost:80", "127.0.0.1:80", true),
            ("http://localhost.:80", "[::1]:80", true),
            ("http://LOCALHOST:80", "0.0.0.0:80", true),
            ("http://0.0.0.0:80", "127.0.0.1:80", true),
            ("http://[::1]:80", "0.0.0.0:80", false),
            ("http://[::1]:80", "[::]:80", true),
            ("http://127.0.0.1:80", "[::]:80", true),
            ("http://[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("http://192.0.2.1:80", "192.0.2.1:80", true),
            ("http://192.0.2.1:80", "0.0.0.0:80", false),
            ("http://orders:80", "0.0.0.0:80", false),
        ] {
            let reached = reaches(&parse_endpoint(endpoint).unwrap(), bound.parse().unwrap());
            assert_eq!(reached, expected, "{endpoint} {bound}");
        }
    }

    #[test]
    fn sockets_overlap_through_wildcards_but_never_on_port_zero() {
        for (one, other, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "127.0.0.1:80", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let overlapping = overlap(one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(overlapping, expected, "{one} {other}");
        }
    }
}
