use http::Request;

use super::*;

fn request(method: &str, target: &str, version: Version, hosts: &[&str]) -> Parts {
    let mut request = Request::builder().method(method).uri(target).version(version);
    for host in hosts {
        request = request.header(HOST, *host);
    }
    request.body(()).unwrap().into_parts().0
}

/// What became of a request: the forwarded bytes, nothing, or the status of the refusal.
#[track_caller]
fn check(
    method: &str,
    target: &str,
    version: Version,
    hosts: &[&str],
    expected: Result<Option<&str>, u16>,
) {
    let found = Authority::of(&request(method, target, version, hosts));
    let found = match &found {
        Ok(found) => Ok(found.as_ref().map(|found| found.value().to_str().unwrap())),
        Err(refusal) => Err(refusal.status().as_u16()),
    };
    assert_eq!(found, expected, "{method} {target} {version:?} {hosts:?}");
}

#[test]
fn http_1_1_needs_exactly_one_host() {
    let version = Version::HTTP_11;
    check("GET", "/", version, &["a.example"], Ok(Some("a.example")));
    check("GET", "/", version, &[], Err(400));
    check("GET", "/", version, &["a.example", "a.example"], Err(400));
    check("GET", "/", version, &["a.example", "b.example"], Err(400));
    check("GET", "/", version, &[""], Err(400));
}

#[test]
fn http_1_0_may_go_without_host_but_not_with_two() {
    let version = Version::HTTP_10;
    check("GET", "/", version, &[], Ok(None));
    check("GET", "/", version, &["a.example"], Ok(Some("a.example")));
    check("GET", "/", version, &["a.example", "b.example"], Err(400));
}

#[test]
fn the_authority_of_an_absolute_target_replaces_host() {
    let version = Version::HTTP_11;
    check("GET", "http://b.example:81/x", version, &["a.example"], Ok(Some("b.example:81")));
    check("GET", "https://b.example", version, &["a.example"], Ok(Some("b.example")));
    check("GET", "http://b.example/x", version, &[], Err(400));
    check("GET", "http://b.example/x", version, &["a b"], Err(400));
    check("GET", "http://user@b.example/x", version, &["a.example"], Err(400));
    check("GET", "ftp://b.example/x", version, &["a.example"], Err(400));
    check("GET", "http://b.example/x", Version::HTTP_10, &[], Ok(Some("b.example")));
}

#[test]
fn http_2_takes_authority_or_host_and_both_only_if_equal() {
    let version = Version::HTTP_2;
    check("GET", "http://a.example/", version, &[], Ok(Some("a.example")));
    check("GET", "http://a.example/", version, &["A.example"], Ok(Some("a.example")));
    check("GET", "http://a.example/", version, &["b.example"], Err(400));
    check("GET", "http://a.example:80/", version, &["a.example:81"], Err(400));
    check("GET", "http://a.example/", version, &["a.example", "a.example"], Err(400));
    check("GET", "/", version, &["a.example"], Ok(Some("a.example")));
    check("GET", "/", version, &[], Err(400));
    check("GET", "http://user@a.example/", version, &[], Err(400));
}

#[test]
fn connect_is_not_served_and_star_is_for_options_alone() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        check("CONNECT", "a.example:443", version, &["a.example:443"], Err(405));
    }
    check("OPTIONS", "*", Version::HTTP_11, &["a.example"], Ok(Some("a.example")));
    check("GET", "*", Version::HTTP_11, &["a.example"], Err(400));
    check("GET", "a.example:80", Version::HTTP_11, &["a.example"], Err(400));
    check("GET", "orders", Version::HTTP_11, &["a.example"], Err(400));
}

#[test]
fn a_host_is_held_against_the_grammar() {
    let long = "a".repeat(255);
    let valid = [
        ("a", "a", None),
        ("A.Example-1_x~y", "A.Example-1_x~y", None),
        ("a.example:0080", "a.example", Some(80)),
        ("a.example:", "a.example", None),
        ("127.0.0.1:65535", "127.0.0.1", Some(65_535)),
        ("[::1]", "[::1]", None),
        ("[2001:db8::1]:8080", "[2001:db8::1]", Some(8080)),
        ("%61.example", "%61.example", None),
        (long.as_str(), long.as_str(), None),
    ];
    for (written, host, port) in valid {
        let found = Authority::parse(HeaderValue::from_str(written).unwrap()).unwrap();
        assert_eq!((found.host(), found.port()), (host, port));
        assert_eq!(found.value(), written);
    }
    let too_long = "a".repeat(256);
    for written in [
        "",
        ":80",
        "a b",
        " ",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "user@a",
        "a,b",
        "a:b",
        "a:80:80",
        "a:+80",
        "a:-1",
        "a:65536",
        "a:99999999999",
        "[::1",
        "::1",
        "[::1]x",
        "[::1]80",
        "[]",
        "[fe80::1%25eth0]",
        "[v1.x]",
        "a[::1]",
        "a%",
        "a%2",
        "a%zz",
        "a\"b",
        "<a>",
        "a\tb",
        too_long.as_str(),
    ] {
        let found = Authority::parse(HeaderValue::from_bytes(written.as_bytes()).unwrap());
        assert_eq!(found.map_err(Refusal::status), Err(INVALID.status()), "{written:?}");
    }
    assert_eq!(Authority::parse(HeaderValue::from_bytes(b"a\xff").unwrap()), Err(INVALID));
}
