use http::Request;

use super::*;
use http::Method;

fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for &(name, value) in lines {
        fields.append(name, HeaderValue::from_str(value).unwrap());
    }
    fields
}

fn authority() -> Authority {
    let request = Request::get("/").header("host", "a.example:80").body(()).unwrap();
    Authority::of(&request.into_parts().0).unwrap().unwrap()
}

fn untrusted() -> Inbound<'static> {
    Inbound {
        version: Version::HTTP_11,
        onward: Version::HTTP_11,
        peer: IpAddr::from([192, 0, 2, 1]),
        secure: false,
        trusted: false,
        trusted_for_deadline: false,
        authority: None,
        grpc: false,
        upgrade: None,
    }
}

fn trusted() -> Inbound<'static> {
    Inbound { trusted: true, ..untrusted() }
}

fn sent(lines: &[(&'static str, &str)], inbound: &Inbound<'_>) -> (HeaderMap, Stated) {
    let mut map = fields(lines);
    let stated = Fields::new(HeaderNames::default(), "seawall")
        .unwrap()
        .to_upstream(&mut map, inbound)
        .unwrap();
    (map, stated)
}

/// The lines that go on for a request that came in with `lines`, without those added to all.
#[track_caller]
fn check(lines: &[(&'static str, &str)], inbound: &Inbound<'_>, expected: &[(&str, &str)]) {
    let (map, _) = sent(lines, inbound);
    let added = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via", "x-request-id"];
    let mut kept: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .filter(|(name, _)| !added.contains(name))
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, expected, "{lines:?}");
}

#[track_caller]
fn check_list(
    name: &str,
    lines: &[(&'static str, &str)],
    inbound: &Inbound<'_>,
    expected: &[&str],
) {
    let (map, _) = sent(lines, inbound);
    let found: Vec<_> = map.get_all(name).iter().map(|line| line.to_str().unwrap()).collect();
    assert_eq!(found, expected, "{name} of {lines:?}");
}

#[test]
fn fields_for_one_connection_do_not_go_on() {
    check(
        &[
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-second,, "),
            ("x-private", "1"),
            ("x-second", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "Basic x"),
            ("expect", "100-continue"),
            ("http2-settings", "AAA"),
            ("accept", "*/*"),
        ],
        &untrusted(),
        &[("accept", "*/*")],
    );
}

#[test]
fn connection_cannot_take_away_what_others_rely_on() {
    let named = "host, content-length, Authorization, cookie, x-tenant, x-forwarded-for, \
                 x-request-id, traceparent, idempotency-key, via, content-type, x y";
    let lines = [
        ("authorization", "Bearer x"),
        ("content-length", "5"),
        ("content-type", "text/plain"),
        ("cookie", "a=b"),
        ("host", "a.example"),
        ("idempotency-key", "k"),
        ("traceparent", "t"),
        ("x-tenant", "gold"),
    ];
    let mut asked = lines.to_vec();
    asked.push(("x-forwarded-for", "198.51.100.7"));
    asked.push(("x-request-id", "r-1"));
    asked.push(("via", "1.1 front"));
    let mut map = fields(&asked);
    map.append("connection", HeaderValue::from_static(named));
    let stated = Fields::new(HeaderNames::default(), "seawall")
        .unwrap()
        .to_upstream(&mut map, &trusted())
        .unwrap();
    for (name, value) in lines {
        assert_eq!(map[name], value);
    }
    assert_eq!(stated.tenant.unwrap(), "gold");
    assert_eq!(map["x-request-id"], "r-1");
    assert_eq!(map["x-forwarded-for"], "198.51.100.7, 192.0.2.1");
    assert_eq!(map.get_all("via").iter().count(), 2);
    assert!(!map.contains_key("connection"));
}

#[test]
fn te_trailers_goes_on_with_the_connection_option_http_1_1_wants() {
    let lines = [("te", "gzip;q=0.5, Trailers"), ("connection", "te")];
    check(&lines, &untrusted(), &[("connection", "te"), ("te", "trailers")]);
    let onward = Inbound { onward: Version::HTTP_2, ..untrusted() };
    check(&lines, &onward, &[("te", "trailers")]);
}

#[test]
fn an_upgrade_goes_on_to_http_1_1_alone() {
    let websocket = HeaderValue::from_static("websocket");
    let lines = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", "k")];
    let inbound = Inbound { upgrade: Some(&websocket), ..untrusted() };
    check(
        &lines,
        &inbound,
        &[("connection", "upgrade"), ("sec-websocket-key", "k"), ("upgrade", "websocket")],
    );
    let inbound = Inbound { onward: Version::HTTP_2, ..inbound };
    check(&lines, &inbound, &[("sec-websocket-key", "k")]);
}

#[test]
fn an_upgrade_is_asked_for_by_a_get_over_http_1_1_that_names_it_in_connection() {
    let check = |lines: &[(&'static str, &str)], method, version, expected: Option<&str>| {
        let found = upgrade_of(&fields(lines), &method, version);
        assert_eq!(found.as_ref().map(|found| found.to_str().unwrap()), expected, "{lines:?}");
    };
    let one = Version::HTTP_11;
    let websocket = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
    check(&websocket, Method::GET, one, Some("websocket"));
    check(&websocket, Method::POST, one, None);
    check(&websocket, Method::GET, Version::HTTP_10, None);
    check(&websocket, Method::GET, Version::HTTP_2, None);
    check(&[("upgrade", "websocket")], Method::GET, one, None);
    check(&[("connection", "upgrade")], Method::GET, one, None);
    for (body, value, expected) in [
        ("content-length", "5", None),
        ("content-length", "0", Some("websocket")),
        ("transfer-encoding", "chunked", None),
    ] {
        let lines = [websocket.as_slice(), &[(body, value)]].concat();
        check(&lines, Method::GET, one, expected);
    }
    for (asked, expected) in [
        ("h2c", None),
        ("H2C", None),
        ("HTTP/2.0", None),
        ("TLS/1.0", None),
        ("h2c, websocket", Some("websocket")),
        ("websocket, h2c, foo/1", Some("websocket, foo/1")),
    ] {
        check(&[("connection", "upgrade"), ("upgrade", asked)], Method::GET, one, expected);
    }
}

const STATED: [(&str, &str); 5] = [
    ("x-cost", "3"),
    ("x-priority", "high"),
    ("x-remaining-ms", "800"),
    ("x-retry-attempt", "2"),
    ("x-tenant", "gold"),
];

const STATED_HEADERS: [IgnoredHeader; 5] = [
    IgnoredHeader::Remaining,
    IgnoredHeader::Attempt,
    IgnoredHeader::Tenant,
    IgnoredHeader::Priority,
    IgnoredHeader::Cost,
];

#[test]
fn trust_fields_of_an_untrusted_peer_are_removed_and_state_nothing() {
    check(&STATED, &untrusted(), &[]);
    let mut ignored = IgnoredHeaders::default();
    for header in STATED_HEADERS {
        ignored.add(header, IgnoredBecause::Untrusted);
    }
    assert_eq!(sent(&STATED, &untrusted()).1, Stated { ignored, ..Stated::default() });
}

#[test]
fn what_an_untrusted_peer_says_about_forwarding_is_noted_as_ignored() {
    let mut ignored = IgnoredHeaders::default();
    ignored.add(IgnoredHeader::Forwarded, IgnoredBecause::Untrusted);
    for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
        assert_eq!(sent(&[(name, "a")], &untrusted()).1.ignored, ignored, "{name}");
        assert_eq!(sent(&[(name, "a")], &trusted()).1.ignored, IgnoredHeaders::default());
    }
}

#[test]
fn cookies_of_http_2_go_on_as_one_line_on_http_1_alone() {
    let lines = [("cookie", "a=1"), ("cookie", "b=2")];
    let inbound = Inbound { version: Version::HTTP_2, ..untrusted() };
    check(&lines, &inbound, &[("cookie", "a=1; b=2")]);
    check(&lines[..1], &inbound, &[("cookie", "a=1")]);
    check(&lines, &Inbound { onward: Version::HTTP_2, ..inbound }, &lines);
    check(&lines, &untrusted(), &lines);
}

#[test]
fn on_http_2_the_host_is_left_to_the_authority() {
    let authority = authority();
    let inbound = Inbound { authority: Some(&authority), ..untrusted() };
    check(&[("host", "b.example")], &inbound, &[("host", "a.example:80")]);
    let onward = Inbound { onward: Version::HTTP_2, ..inbound };
    check(&[("host", "b.example")], &onward, &[]);
}

#[test]
fn a_peer_trusted_for_the_deadline_states_the_deadline_alone() {
    let inbound = Inbound { trusted_for_deadline: true, ..untrusted() };
    check(&STATED, &inbound, &[]);
    let stated = sent(&STATED, &inbound).1;
    assert_eq!(stated.remaining.unwrap(), "800");
    assert_eq!((stated.attempt, stated.tenant, stated.priority, stated.cost), Default::default());
}

#[test]
fn a_trusted_peer_states_everything_and_only_deadline_and_attempt_are_taken_out() {
    check(&STATED, &trusted(), &[("x-cost", "3"), ("x-priority", "high"), ("x-tenant", "gold")]);
    let stated = sent(&STATED, &trusted()).1;
    let expected =
        ["800", "2", "gold", "high", "3"].map(|text| Some(HeaderValue::from_static(text)));
    let found = [stated.remaining, stated.attempt, stated.tenant, stated.priority, stated.cost];
    assert_eq!(found, expected);
}

#[test]
fn a_trust_field_that_came_twice_states_nothing_and_goes() {
    let lines = [("x-tenant", "gold"), ("x-tenant", "silver"), ("x-cost", "1")];
    check(&lines, &trusted(), &[("x-cost", "1")]);
    let mut ignored = IgnoredHeaders::default();
    ignored.add(IgnoredHeader::Tenant, IgnoredBecause::Repeated);
    let stated = sent(&lines, &trusted()).1;
    assert_eq!((stated.tenant, stated.ignored), (None, ignored));
}

#[test]
fn a_twin_written_with_underscores_does_not_get_past_the_check_of_its_original() {
    let lines = [
        ("x_tenant", "gold"),
        ("x-remaining_ms", "1"),
        ("x_forwarded_for", "10.0.0.1"),
        ("content_length", "5"),
        ("transfer_encoding", "chunked"),
        ("my_field", "kept"),
    ];
    check(&lines, &untrusted(), &[("my_field", "kept")]);
    check(&lines, &trusted(), &[("my_field", "kept")]);
}

#[test]
fn renamed_trust_fields_are_the_ones_that_count() {
    let names =
        HeaderNames { tenant: HeaderName::from_static("my_tenant"), ..HeaderNames::default() };
    let settings = Fields::new(names, "seawall").unwrap();
    for (inbound, kept) in [(untrusted(), false), (trusted(), true)] {
        let mut map = fields(&[("my_tenant", "gold"), ("x-tenant", "plain")]);
        let stated = settings.to_upstream(&mut map, &inbound).unwrap();
        assert_eq!(map.contains_key("my_tenant"), kept);
        assert_eq!(stated.tenant.is_some(), kept);
        assert_eq!(map["x-tenant"], "plain");
    }
}

#[test]
fn forwarded_for_is_replaced_for_untrusted_and_appended_for_trusted_peers() {
    let name = "x-forwarded-for";
    let lines = [(name, "198.51.100.7"), (name, "198.51.100.8, 198.51.100.9")];
    check_list(name, &lines, &untrusted(), &["192.0.2.1"]);
    let all = "198.51.100.7, 198.51.100.8, 198.51.100.9, 192.0.2.1";
    check_list(name, &lines, &trusted(), &[all]);
    check_list(name, &[], &trusted(), &["192.0.2.1"]);
    let mapped = Inbound { peer: "::ffff:192.0.2.9".parse().unwrap(), ..untrusted() };
    check_list(name, &[], &mapped, &["192.0.2.9"]);
}

#[test]
fn forwarded_is_written_only_where_the_request_had_it() {
    let host = authority();
    let lines = [("forwarded", "for=198.51.100.7")];
    let untrusted = Inbound { authority: Some(&host), ..untrusted() };
    let trusted = Inbound { authority: Some(&host), ..trusted() };
    let own = "for=192.0.2.1;host=\"a.example:80\";proto=http";
    check_list("forwarded", &[], &trusted, &[]);
    check_list("forwarded", &lines, &untrusted, &[own]);
    check_list("forwarded", &lines, &trusted, &[&format!("for=198.51.100.7, {own}")]);
    let peer = "2001:db8::1".parse().unwrap();
    let inbound = Inbound { peer, authority: None, ..untrusted };
    check_list("forwarded", &lines, &inbound, &["for=\"[2001:db8::1]\";proto=http"]);
}

#[test]
fn forwarded_scheme_and_host_are_those_a_trusted_peer_stated_or_our_own() {
    let host = authority();
    let lines = [("x-forwarded-proto", "https"), ("x-forwarded-host", "front.example")];
    let untrusted = Inbound { authority: Some(&host), ..untrusted() };
    let trusted = Inbound { authority: Some(&host), ..trusted() };
    check_list("x-forwarded-proto", &lines, &untrusted, &["http"]);
    check_list("x-forwarded-host", &lines, &untrusted, &["a.example:80"]);
    check_list("x-forwarded-proto", &lines, &trusted, &["https"]);
    check_list("x-forwarded-host", &lines, &trusted, &["front.example"]);
    check_list("x-forwarded-proto", &[], &trusted, &["http"]);
    check_list("x-forwarded-host", &[], &trusted, &["a.example:80"]);
}

#[test]
fn host_goes_on_as_the_effective_authority_was_received() {
    let host = authority();
    let inbound = Inbound { authority: Some(&host), ..untrusted() };
    check_list("host", &[("host", "replaced.example")], &inbound, &["a.example:80"]);
    check_list("host", &[], &inbound, &["a.example:80"]);
}

#[test]
fn via_says_in_which_version_a_message_came() {
    let lines = [("via", "1.0 fred")];
    check_list("via", &lines, &untrusted(), &["1.0 fred", "1.1 seawall"]);
    for (version, line) in [(Version::HTTP_2, "2.0 seawall"), (Version::HTTP_10, "1.0 seawall")] {
        check_list("via", &[], &Inbound { version, ..untrusted() }, &[line]);
    }
}

#[test]
fn the_fifth_pass_goes_through_and_the_sixth_is_refused() {
    let settings = Fields::new(HeaderNames::default(), "seawall").unwrap();
    let mut map = fields(&[("via", "1.1 other (seawall), HTTP/1.1 Seawall, 2.0 seawall (x)")]);
    for passes in 2..=4 {
        assert_eq!(settings.via.passes(&map), passes);
        assert!(settings.to_upstream(&mut map, &untrusted()).is_ok());
    }
    let found = settings.to_upstream(&mut map, &untrusted());
    assert_eq!(found, Err(Refusal::Loop));
}

#[test]
fn a_pseudonym_is_a_token() {
    for (pseudonym, valid) in [("seawall", true), ("a-b.c_1", true), ("", false), ("a b", false)] {
        assert_eq!(Fields::new(HeaderNames::default(), pseudonym).is_ok(), valid, "{pseudonym:?}");
    }
}

fn answered(lines: &[(&'static str, &str)], answered: &Answered<'_>) -> Vec<(String, String)> {
    let mut map = fields(lines);
    Fields::new(HeaderNames::default(), "seawall").unwrap().to_downstream(&mut map, answered);
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let mut found: Vec<_> =
        map.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    found.sort_unstable();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn an_answer_loses_what_was_for_one_connection_and_says_what_happened() {
    let id = HeaderValue::from_static("r-1");
    let answer = Answered {
        version: Some(Version::HTTP_11),
        switches: false,
        attempts: 2,
        stop: false,
        request_id: &id,
    };
    let lines = [
        ("connection", "close, x-hop, content-type"),
        ("content-type", "text/plain"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-authenticate", "Basic"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("seawall-attempts", "9"),
        ("seawall-retry", "no"),
        ("x-request-id", "upstream's"),
    ];
    let expected = [
        ("content-type", "text/plain"),
        ("seawall-attempts", "2"),
        ("seawall-retry", "no"),
        ("via", "1.1 seawall"),
        ("x-request-id", "r-1"),
    ];
    assert_eq!(answered(&lines, &answer), pairs(&expected));
}

#[test]
fn stop_is_said_only_when_asked_and_an_answer_of_ours_has_no_via() {
    let id = HeaderValue::from_static("r-1");
    let answer =
        Answered { version: None, switches: false, attempts: 0, stop: true, request_id: &id };
    let mut expected =
        vec![("seawall-attempts", "0"), ("seawall-retry", "no"), ("x-request-id", "r-1")];
    assert_eq!(answered(&[], &answer), pairs(&expected));
    expected.remove(1);
    assert_eq!(answered(&[], &Answered { stop: false, ..answer }), pairs(&expected));
}

#[test]
fn a_switch_of_protocols_keeps_its_upgrade() {
    let id = HeaderValue::from_static("r-1");
    let answer = Answered {
        version: Some(Version::HTTP_11),
        switches: true,
        attempts: 1,
        stop: false,
        request_id: &id,
    };
    let lines = [("connection", "Upgrade, x-hop"), ("upgrade", "websocket"), ("x-hop", "1")];
    let expected = [
        ("connection", "upgrade"),
        ("seawall-attempts", "1"),
        ("upgrade", "websocket"),
        ("via", "1.1 seawall"),
        ("x-request-id", "r-1"),
    ];
    assert_eq!(answered(&lines, &answer), pairs(&expected));
}

#[test]
fn a_number_is_written_in_decimal_whatever_its_size() {
    for given in [0, 1, 9, 10, 11, 25_000, u64::MAX] {
        assert_eq!(number(given), given.to_string());
    }
}
