use http::HeaderName;
use http::uri::PathAndQuery;
use proptest::prelude::*;
use seawall::{HeaderCondition, HeaderTest};

use super::*;

/// Host, path and conditions of a route; a path that ends with `$` is a whole one.
type Given<'a> = (Option<&'a str>, &'a str, Conditions);

fn table_of(routes: &[Given<'_>]) -> RouteTable {
    let paths: Vec<_> = routes
        .iter()
        .map(|(_, path, _)| match path.strip_suffix('$') {
            Some(path) => PathMatch::Exact(path.to_owned()),
            None => PathMatch::Prefix((*path).to_owned()),
        })
        .collect();
    let keys = routes.iter().zip(&paths);
    RouteTable::new(keys.map(|((host, _, conditions), path)| Key {
        host: *host,
        path,
        conditions,
        rewrites: false,
    }))
}

fn table(routes: &[(Option<&str>, &str)]) -> RouteTable {
    let any = Conditions::default;
    table_of(&routes.iter().map(|&(host, path)| (host, path, any())).collect::<Vec<_>>())
}

fn find(table: &RouteTable, host: &str, path: &str) -> Result<Option<usize>, BadPath> {
    let found = table.find(host, path, &Method::GET, &HeaderMap::new())?;
    Ok(match found {
        Found::Route(index) => Some(index),
        Found::OtherMethods | Found::Nothing => None,
    })
}

#[track_caller]
fn check(table: &RouteTable, host: &str, path: &str, expected: Option<usize>) {
    assert_eq!(find(table, host, path), Ok(expected), "{host} {path}");
}

fn methods(methods: &[Method]) -> Conditions {
    Conditions { methods: methods.to_vec(), headers: Vec::new() }
}

fn version(value: &str) -> Conditions {
    let name = HeaderName::from_static("x-version");
    let test = HeaderTest::Exact(value.to_owned());
    Conditions { headers: vec![HeaderCondition { name, test }], ..Conditions::default() }
}

#[test]
fn an_exact_host_goes_before_any_host_and_falls_through_to_it() {
    let table = table(&[(None, "/"), (Some("a.example"), "/orders"), (None, "/orders/1")]);
    check(&table, "a.example", "/orders/1", Some(1));
    check(&table, "a.example", "/other", Some(0));
    check(&table, "b.example", "/orders/1", Some(2));
    check(&table, "", "/orders/1", Some(2));
    check(&table, "b.example", "/orders", Some(0));
}

#[test]
fn the_longest_prefix_wins_whatever_the_order_they_were_given_in() {
    for routes in
        [[(None, "/a"), (None, "/a/b"), (None, "/")], [(None, "/"), (None, "/a/b"), (None, "/a")]]
    {
        let table = table(&routes);
        let index = |prefix| routes.iter().position(|&(_, known)| known == prefix);
        check(&table, "h", "/a/b/c", index("/a/b"));
        check(&table, "h", "/a/bc", index("/a"));
        check(&table, "h", "/b", index("/"));
    }
}

#[test]
fn a_prefix_matches_whole_segments_only() {
    for prefix in ["/orders", "/orders/"] {
        let table = table(&[(None, prefix)]);
        check(&table, "h", "/orders", Some(0));
        check(&table, "h", "/orders/", Some(0));
        check(&table, "h", "/orders/1", Some(0));
        check(&table, "h", "/ordersX", None);
        check(&table, "h", "/order", None);
        check(&table, "h", "/Orders", None);
        check(&table, "h", "/", None);
        check(&table, "h", "*", None);
    }
}

#[test]
fn of_two_equal_routes_the_earlier_one_wins() {
    let table = table(&[(Some("h"), "/a"), (Some("H:80"), "/a/")]);
    check(&table, "h", "/a", Some(0));
}

#[test]
fn hosts_match_without_case_port_and_final_dot() {
    let table = table(&[(Some("A.Example"), "/"), (Some("[::1]"), "/"), (Some("b.example"), "/")]);
    for host in ["a.example", "A.EXAMPLE", "a.example:8080", "a.example.", "a.example.:80"] {
        check(&table, host, "/", Some(0));
    }
    check(&table, "[::1]:8080", "/", Some(1));
    check(&table, "[::1]", "/", Some(1));
    check(&table, "b.example", "/", Some(2));
    check(&table, "xa.example", "/", None);
    check(&table, "a.example.org", "/", None);
}

#[test]
fn many_hosts_are_all_found() {
    let hosts: Vec<String> = (0..100).rev().map(|n| format!("host{n}.example")).collect();
    let table = table(&hosts.iter().map(|host| (Some(host.as_str()), "/")).collect::<Vec<_>>());
    for (at, host) in hosts.iter().enumerate() {
        check(&table, host, "/x", Some(at));
    }
}

const AMBIGUOUS: [&str; 26] = [
    "/orders/../admin",
    "/orders/./x",
    "/..",
    "/.",
    "/orders/..",
    "/orders/%2e%2e/admin",
    "/orders/%2E%2e/admin",
    "/orders/.%2E/admin",
    "/orders/%2e",
    "/orders/..;/admin",
    "/orders/..;x=1/admin",
    "/orders/.;/admin",
    "/orders%2fadmin",
    "/orders%2Fadmin",
    "/orders%5c..%5cadmin",
    "/orders%5Cadmin",
    "/orders\\admin",
    "//orders",
    "/orders//admin",
    "/orders/%",
    "/orders/%2",
    "/orders/%zz",
    "/orders/%2g",
    "/orders//",
    "/;/orders",
    "/;x=1/orders",
];

const PLAIN: [&str; 14] = [
    "/orders/...",
    "/orders/.../x",
    "/orders/..a",
    "/orders/a..",
    "/orders/.well-known",
    "/orders/%2e%2ea",
    "/orders/%20",
    "/orders/%252e%252e",
    "/orders/a.b/c",
    "/orders/;a",
    "/orders/",
    "/orders/%C3%A9",
    "/orders/a%3b",
    "/",
];

#[test]
fn a_path_with_two_readings_is_refused_where_a_route_depends_on_the_path() {
    let table = table(&[(None, "/"), (None, "/orders")]);
    for path in AMBIGUOUS {
        assert_eq!(find(&table, "h", path), Err(BadPath), "{path}");
    }
    for path in PLAIN {
        assert!(find(&table, "h", path).is_ok(), "{path}");
    }
}

#[test]
fn what_follows_a_semicolon_gets_around_no_route_and_is_left_alone_elsewhere() {
    let routes = ["/", "/a", "/a/b$", "/c/$", "/d;v=1", "/d"].map(|path| (None, path));
    let table = table(&routes);
    for path in ["/a;x", "/a;", "/a;x/b", "/a/b;x", "/%61;x", "/a;x;y=/z", "/c/;x", "/d;v=2"] {
        assert_eq!(find(&table, "h", path), Err(BadPath), "{path}");
    }
    for (path, route) in [
        ("/x;a/b", 0),
        ("/;a", 0),
        ("/a%3bx", 0),
        ("/a/c;x", 1),
        ("/a/c;x/b", 1),
        ("/a/b/;x", 1),
        // Written so in the file.
        ("/d;v=1/x", 4),
    ] {
        check(&table, "h", path, Some(route));
    }
    // Nobody's own routes are asked about another's segments.
    let table = self::table(&[(Some("a.example"), "/"), (None, "/a")]);
    check(&table, "a.example", "/a;x", Some(0));
    assert_eq!(find(&table, "b.example", "/a;x"), Err(BadPath));
}

#[test]
fn a_path_passes_untouched_where_no_route_depends_on_it() {
    let table = table(&[(None, "/"), (Some("a.example"), "/orders"), (Some("b.example"), "/")]);
    for path in AMBIGUOUS.into_iter().chain(PLAIN) {
        check(&table, "other.example", path, Some(0));
        check(&table, "b.example", path, Some(2));
    }
    assert_eq!(find(&table, "a.example", "/x/../orders"), Err(BadPath));
}

#[test]
fn an_escaped_unreserved_character_does_not_get_around_a_route() {
    let table = table(&[(None, "/"), (None, "/orders")]);
    check(&table, "h", "/%6frders/1", Some(1));
    check(&table, "h", "/%6Frder%73", Some(1));
    check(&table, "h", "/orders%20", Some(0));
    check(&table, "h", "/%256frders", Some(0));
}

#[test]
fn a_prefix_matches_however_it_escapes_what_needs_no_escape() {
    let table = table(&[(None, "/%7Euser"), (None, "/~user/%61%2Db"), (None, "/a%20b")]);
    for path in ["/~user", "/%7Euser/x", "/%7euser"] {
        check(&table, "h", path, Some(0));
    }
    check(&table, "h", "/~user/a-b", Some(1));
    check(&table, "h", "/a%20b", Some(2));
}

#[test]
fn a_whole_path_goes_before_a_prefix_and_takes_nothing_below_it() {
    let table = table(&[(None, "/a"), (None, "/a$"), (None, "/a/b/$"), (None, "/$"), (None, "/")]);
    check(&table, "h", "/a", Some(1));
    check(&table, "h", "/%61", Some(1));
    check(&table, "h", "/a/", Some(0));
    check(&table, "h", "/a/b", Some(0));
    check(&table, "h", "/a/b/", Some(2));
    check(&table, "h", "/a/b/c", Some(0));
    check(&table, "h", "/", Some(3));
    check(&table, "h", "/x", Some(4));
    check(&table, "h", "*", Some(4));
}

#[test]
fn what_a_condition_refuses_falls_through_to_the_next_route() {
    let routes: [Given<'_>; 5] = [
        (Some("a"), "/x", methods(&[Method::POST])),
        (Some("a"), "/", version("2")),
        (None, "/x/y", version("1")),
        (None, "/x", methods(&[Method::GET, Method::HEAD])),
        (None, "/", version("3")),
    ];
    let table = table_of(&routes);
    let find = |host, path, method: &Method, value: &'static str| {
        let mut fields = HeaderMap::new();
        if !value.is_empty() {
            fields.insert("x-version", http::HeaderValue::from_static(value));
        }
        table.find(host, path, method, &fields)
    };
    let (get, post, put) = (&Method::GET, &Method::POST, &Method::PUT);
    assert_eq!(find("a", "/x", post, ""), Ok(Found::Route(0)));
    assert_eq!(find("a", "/x", get, "2"), Ok(Found::Route(1)));
    assert_eq!(find("a", "/x/y", get, "1"), Ok(Found::Route(2)));
    assert_eq!(find("a", "/x/y", get, ""), Ok(Found::Route(3)));
    assert_eq!(find("b", "/z", put, "3"), Ok(Found::Route(4)));
    assert_eq!(find("b", "/z", put, ""), Ok(Found::Nothing), "no method would help");
    assert_eq!(find("a", "/x", put, ""), Ok(Found::OtherMethods));
    assert_eq!(find("b", "/x/y", put, "1"), Ok(Found::Route(2)));
    let allowed = table.methods("a", "/x", &HeaderMap::new());
    assert_eq!(allowed, [&Method::POST, &Method::GET, &Method::HEAD]);
}

#[test]
fn a_path_that_is_rewritten_is_read_in_one_way_only() {
    let path = PathMatch::Prefix("/".to_owned());
    let conditions = Conditions::default();
    let key = Key { host: None, path: &path, conditions: &conditions, rewrites: true };
    let table = RouteTable::new([key].into_iter());
    for path in AMBIGUOUS {
        assert_eq!(find(&table, "h", path), Err(BadPath), "{path}");
    }
}

#[test]
fn the_matched_path_is_replaced_and_the_query_stays_byte_for_byte() {
    let prefix = |path: &str| PathMatch::Prefix(path.to_owned());
    let exact = |path: &str| PathMatch::Exact(path.to_owned());
    for (matched, to, target, expected) in [
        (prefix("/api"), "", "/api/orders/1?a=%2F&b", "/orders/1?a=%2F&b"),
        (prefix("/api"), "", "/api", "/"),
        (prefix("/api"), "", "/api/", "/"),
        (prefix("/api"), "", "/api?x", "/?x"),
        (prefix("/api"), "", "/api/x?", "/x?"),
        (prefix("/api"), "", "/%61p%69/%6f", "/%6f"),
        (prefix("/api"), "/v2", "/api/x", "/v2/x"),
        (prefix("/api"), "/v2", "/api?x=/api", "/v2?x=/api"),
        (prefix("/"), "/v2", "/x", "/v2/x"),
        (prefix("/"), "/v2", "/", "/v2/"),
        (prefix("/"), "/v2", "*", "*"),
        (exact("/a/"), "/b", "/a/?q", "/b?q"),
        (exact("/a"), "", "/a", "/"),
    ] {
        let target = PathAndQuery::from_static(target);
        assert_eq!(rewritten(&target, &matched, to), expected, "{target}");
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_naive_search(
        routes in proptest::collection::vec(
            (proptest::option::of("[ab]"), "(/[ab]{1,2}){0,3}/?"), 0..8),
        host in "[abc]",
        path in "(/[ab]{1,2}){1,4}",
    ) {
        let given: Vec<_> =
            routes.iter().map(|(host, path)| (host.as_deref(), path.as_str())).collect();
        let table = table(&given);
        let naive = routes
            .iter()
            .enumerate()
            .filter(|(_, (known, _))| known.as_ref().is_none_or(|known| *known == host))
            .filter(|(_, (_, prefix))| {
                format!("{path}/").starts_with(&format!("{}/", prefix.trim_end_matches('/')))
            })
            .min_by_key(|(at, (known, prefix))| {
                let length = prefix.trim_end_matches('/').len();
                (known.is_none(), std::cmp::Reverse(length), *at)
            })
            .map(|(at, _)| at);
        prop_assert_eq!(find(&table, &host, &path), Ok(naive));
    }

    #[test]
    fn any_text_gets_an_answer(host in ".{0,20}", path in ".{0,40}") {
        let _ = find(&table(&[(Some("a"), "/x"), (None, "/y")]), &host, &path);
    }
}
