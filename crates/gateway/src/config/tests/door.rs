//! Who a listener lets in.

use seawall_policy::{AddressOptions, DoorOptions, RateOptions};

use super::*;

fn listener_with(keys: &str) -> String {
    format!("{MINIMAL}listeners:\n  - {{address: '127.0.0.1:8080', {keys}}}\n")
}

fn door(keys: &str) -> DoorOptions {
    accepted(&listener_with(keys)).listeners.remove(0).door
}

/// The one finding, in full.
fn said(keys: &str) -> String {
    read(&listener_with(keys)).unwrap_err().to_string()
}

#[test]
fn an_accept_rate_has_a_burst_of_a_second_and_refuses_by_resets() {
    let rate = |limit, seconds, burst| {
        Some(RateOptions { limit, period: Duration::from_secs(seconds), burst })
    };
    for (written, accept, answers) in [
        ("{rate: 500/s}", rate(500, 1, 500), false),
        ("{rate: 90/m, refuse: reset}", rate(90, 60, 1), false),
        ("{rate: 500/s, burst: 50, refuse: answer}", rate(500, 1, 50), true),
    ] {
        let expected = DoorOptions { accept, answers, ..DoorOptions::default() };
        assert_eq!(door(&format!("accept: {written}")), expected, "{written}");
    }
    assert_eq!(door("trusted_peers: []"), DoorOptions::default());
}

#[test]
fn an_accept_rate_that_cannot_be_is_refused_by_its_key_with_what_would_be_allowed() {
    for (keys, field, why) in [
        ("accept: {}", "accept.rate", "is missing"),
        ("per_address: {}", "per_address.connections", "is missing"),
        ("per_address: {ipv6_prefix: 56}", "per_address.connections", "a limit of each address"),
        ("per_address: {connections: 0}", "per_address.connections", "a whole number from 1"),
        ("per_address: {connection_rate: 5}", "per_address.connection_rate", "`5` is not allowed"),
        ("per_address: {request_rate: 5/s, ipv6_prefix: 129}", "per_address.ipv6_prefix", "128"),
        ("per_address: {request_rate: 5/s, ipv6_prefix: 8}", "per_address.ipv6_prefix", "from 16"),
        ("per_address: {request_rate: 5/s, addresses: 0}", "per_address.addresses", "from 1"),
        (
            "per_address: {connections: 5, request_burst: 5}",
            "per_address.request_burst",
            "has no effect without `request_rate`",
        ),
        (
            "accept: {rate: 5/s}, per_address: {connection_rate: 5/s}",
            "per_address.connection_rate",
            "less than the accept rate",
        ),
        (
            "accept: {refuse: answer}, per_address: {request_rate: 5/s}",
            "accept.refuse",
            "where nobody is refused",
        ),
        ("accept: {burst: 5}", "accept.rate", "like `rate: 500/s`"),
        ("accept: {rate: 500}", "accept.rate", "`500` is not allowed"),
        ("accept: {rate: 0/s}", "accept.rate", "`0/s` is not allowed"),
        ("accept: {rate: 5/s, burst: 0}", "accept.burst", "a whole number from 1"),
        ("accept: {rate: 1/h, burst: 1000}", "accept.burst", "30 days"),
        ("accept: {rate: 5/s, refuse: wait}", "accept.refuse", "reset or answer"),
        ("accept: {rates: 5/s}", "accept.rates", "did you mean `rate`?"),
        (
            "accept: {rate: 5/s, refuse: answer}, tls: {cert: /a, key: /b}",
            "accept.refuse",
            "before the handshake",
        ),
    ] {
        let said = said(keys);
        assert!(said.contains(&format!("error: listeners[0].{field}: ")), "{keys}: {said}");
        assert!(said.contains(why), "{keys}: {said}");
        assert!(said.contains("seawall.yaml:6:"), "{keys}: {said}");
    }
}

#[test]
fn limits_of_an_address_arrive_with_their_bursts() {
    let rate = |limit, burst| Some(RateOptions { limit, period: Duration::from_secs(1), burst });
    let limits = "per_address: {connections: 9, connection_rate: 20/s, request_rate: 50/s, \
                  request_burst: 5, ipv6_prefix: 56, addresses: 77}";
    let expected = AddressOptions {
        connections: Some(9),
        connection_rate: rate(20, 20),
        request_rate: rate(50, 5),
        addresses: 77,
    };
    assert_eq!(door(limits).per_address, Some(expected));
    assert_eq!(accepted(&listener_with(limits)).listeners[0].ipv6_prefix, 56);
    let few = door("per_address: {connections: 9}").per_address.unwrap();
    assert_eq!(few, AddressOptions { connections: Some(9), ..AddressOptions::default() });
    let answers = door("accept: {refuse: answer}, per_address: {connections: 9}");
    assert!(answers.answers && answers.accept.is_none());
}

#[test]
fn who_names_callers_is_named_itself() {
    let listener = |keys: &str| accepted(&listener_with(keys)).listeners.remove(0);
    let behind = listener("proxy_protocol: {from: [10.0.0.0/8, '::1']}").proxies.unwrap();
    assert_eq!(behind.len(), 2);
    assert!(behind[0].contains("10.1.2.3".parse().unwrap()));
    let named = listener("trusted_peers: [10.0.0.1], client_header: X-Forwarded-For");
    assert_eq!(named.client_header.unwrap(), "x-forwarded-for");
    for (keys, field, why) in [
        ("proxy_protocol: {}", "proxy_protocol.from", "is missing"),
        ("proxy_protocol: {from: []}", "proxy_protocol.from", "like [10.0.0.0/8]"),
        ("proxy_protocol: {from: [lb.internal]}", "proxy_protocol.from[0]", "a range of addresses"),
        ("client_header: X-Forwarded-For", "client_header", "without `trusted_peers`"),
        ("trusted_peers: [::1], client_header: Forwarded", "client_header", "a list of addresses"),
        ("trusted_peers: [::1], client_header: 'a b'", "client_header", "a list of addresses"),
    ] {
        let said = said(keys);
        assert!(said.contains(&format!("error: listeners[0].{field}: ")), "{keys}: {said}");
        assert!(said.contains(why), "{keys}: {said}");
    }
}

#[test]
fn limits_of_addresses_on_a_socket_are_warned_of_unless_a_proxy_names_them() {
    let with = |keys: &str| {
        let address = "address: 'unix:/run/a.sock', per_address: {request_rate: 5/s}";
        warned(&format!("{MINIMAL}listeners:\n  - {{{address}{keys}}}\n"))
    };
    assert_eq!(with("")[0].0, "listeners[0].per_address");
    assert_eq!(with(", proxy_protocol: {from: [127.0.0.1]}"), []);
    assert_eq!(with(", trusted_peers: [127.0.0.1], client_header: X-Real-Ip"), []);
}
