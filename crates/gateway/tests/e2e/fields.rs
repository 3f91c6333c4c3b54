//! Which requests go where, and what becomes of their heads.

use crate::support::*;

async fn echo(protocol: Protocol) -> (std::net::SocketAddr, Arrivals) {
    Upstream::scripted(protocol, |_, arrival| answer(200, arrival.path.clone())).await
}

#[tokio::test]
async fn routes_go_by_host_then_by_whole_segments() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream)
        .route("host: a.example, path_prefix: /orders, name: orders")
        .route("path_prefix: /reports, name: reports")
        .start()
        .await;
    for (host, path, route) in [
        ("a.example", "/orders", Some("orders")),
        ("A.Example:80", "/orders/1?q=/../x", Some("orders")),
        ("a.example", "/reports/1", Some("reports")),
        ("b.example", "/reports", Some("reports")),
        ("a.example", "/ordersX", None),
        ("b.example", "/orders", None),
    ] {
        for protocol in BOTH {
            let mut request = get(path);
            request.headers_mut().insert("host", host.parse().unwrap());
            let answer = gateway.send_over(protocol, request).await;
            let line = gateway.line().await;
            assert_eq!(line["route"].as_str(), route, "{host} {path}");
            match route {
                Some(_) => {
                    assert_eq!((answer.status, answer.text().as_str()), (200, path));
                    let arrival = arrivals.lock().unwrap().pop().unwrap();
                    assert_eq!(arrival.header("host"), Some(host));
                    assert_eq!(line["completion_reason"], "complete");
                }
                None => {
                    assert_eq!(answer.status, 404);
                    assert_eq!(answer.header("seawall-problem"), Some("no-route"));
                    assert_eq!(answer.header("seawall-attempts"), Some("0"));
                    assert_eq!(answer.header("seawall-retry"), None);
                    assert_eq!(line["completion_reason"], "refused");
                    assert_eq!(line["response_flags"], "NR");
                    assert_eq!(line["request_id"].as_str(), answer.header("x-request-id"));
                    assert_eq!(line["request_id"].as_str().unwrap().len(), 32);
                }
            }
        }
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "no_route")]), 4);
    assert_eq!(metrics.count("seawall_requests_total", &[("route", "_none")]), 4);
}

#[tokio::test]
async fn a_path_that_can_be_read_in_two_ways_is_refused_where_routes_match_on_paths() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let strict = Setup::new(upstream).route("path_prefix: /a").start().await;
    let lax = Setup::new(upstream).start().await;
    for path in ["/a/../b", "/a%2fb", "/a%5Cb", "//a", "/a/%2e%2e/b"] {
        let refused = strict.get(path).await;
        assert_eq!(
            (refused.status, refused.header("seawall-problem")),
            (400, Some("ambiguous-path"))
        );
        assert_eq!(strict.line().await["response_flags"], "DPE");
        assert!(arrivals.lock().unwrap().is_empty());
        assert_eq!(lax.get(path).await.text(), path);
        arrivals.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn an_absolute_target_replaces_the_host() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).start().await;
    let mut caller = gateway.raw().await;
    caller
        .write("GET http://a.example/x?y HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n")
        .await;
    assert!(caller.rest().await.starts_with("HTTP/1.1 200"));
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    assert_eq!((arrival.path.as_str(), arrival.header("host")), ("/x?y", Some("a.example")));
}

#[tokio::test]
async fn a_request_of_http_1_0_without_host_is_for_the_endpoint() {
    for protocol in BOTH {
        let (upstream, arrivals) = echo(protocol).await;
        let gateway = Setup::new(upstream).speaks(protocol).start().await;
        let mut caller = gateway.raw().await;
        caller.write("GET /x HTTP/1.0\r\n\r\n").await;
        assert!(caller.rest().await.starts_with("HTTP/1.0 200"));
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        assert_eq!(arrival.path, "/x");
        if protocol == Protocol::Http1 {
            assert_eq!(arrival.header("host"), Some(upstream.to_string().as_str()));
        }
        assert_eq!(gateway.line().await["host"], serde_json::Value::Null);
    }
}

#[tokio::test]
async fn what_is_no_request_for_us_is_refused_and_its_connection_closed() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).start().await;
    let host = "Host: a\r\n";
    for (head, status, code) in [
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n", 405, "connect-not-supported"),
        ("GET / HTTP/1.1\r\n", 400, "malformed-request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400, "malformed-request"),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n", 400, "malformed-request"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            501,
            "unknown-transfer-coding",
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n", 417, "unknown-expectation"),
    ] {
        let mut caller = gateway.raw().await;
        caller.write(format!("{head}\r\n")).await;
        let read = caller.head().await.to_lowercase();
        assert!(read.starts_with(&format!("http/1.1 {status} ")), "{head}: {read}");
        assert!(read.contains(&format!("seawall-problem: {code}\r\n")), "{read}");
        assert_eq!(read.contains("allow: get"), status == 405, "{read}");
        assert_eq!(gateway.line().await["cause"], "bad_request");
    }
    let _ = host;
    assert!(arrivals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_request_that_came_through_here_five_times_is_told_508() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).start().await;
    gateway.get("/").await;
    let first = arrivals.lock().unwrap().pop().unwrap();
    let ours = first.header("via").unwrap();
    for (passes, status) in [(4, 200), (5, 508)] {
        let mut request = get("/");
        let via = vec![ours; passes].join(", ");
        request.headers_mut().insert("via", via.parse().unwrap());
        assert_eq!(gateway.send(request).await.status, status);
    }
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    let via = arrival.headers.get_all("via").iter().count();
    assert_eq!(via, 2, "ours is added");
}

#[tokio::test]
async fn six_gateways_in_a_row_are_no_circle() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let mut row = vec![Setup::new(upstream).start().await];
    for _ in 1..6 {
        let next = Setup::new(row.last().unwrap().address).start().await;
        row.push(next);
    }
    assert_eq!(row.last().unwrap().get("/").await.status, 200);
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    let names: std::collections::BTreeSet<_> = arrival.headers.get_all("via").iter().collect();
    assert_eq!(names.len(), 6, "each has a name of its own: {names:?}");
    for name in names {
        let digits = name.to_str().unwrap().strip_prefix("1.1 seawall-").unwrap();
        assert!(digits.len() == 8 && u32::from_str_radix(digits, 16).is_ok(), "{digits}");
    }
}

#[tokio::test]
async fn a_gateway_that_leads_to_itself_ends_the_circle_with_508() {
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Setup::new(relay.local_addr().unwrap()).start().await;
    let back = gateway.address;
    let relaying = tokio::spawn(async move {
        while let Ok((mut from, _)) = relay.accept().await {
            tokio::spawn(async move {
                let mut to = tokio::net::TcpStream::connect(back).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
            });
        }
    });
    let answer = gateway.get("/").await;
    assert_eq!((answer.status, answer.header("seawall-problem")), (508, Some("loop-detected")));
    relaying.abort();
}

#[tokio::test]
async fn options_and_trace_go_as_many_hops_as_they_may() {
    for protocol in BOTH {
        let (upstream, arrivals) = echo(protocol).await;
        let gateway = Setup::new(upstream).speaks(protocol).start().await;
        for (method, status) in [("OPTIONS", 200), ("TRACE", 405)] {
            let asked = |forwards: Option<&str>| {
                let mut request = get("/");
                *request.method_mut() = method.parse().unwrap();
                if let Some(forwards) = forwards {
                    request.headers_mut().insert("max-forwards", forwards.parse().unwrap());
                }
                request
            };
            let here = gateway.send_over(protocol, asked(Some("0"))).await;
            assert_eq!(here.status, status, "{method}");
            assert!(here.header("allow").unwrap().ends_with("OPTIONS"));
            assert_eq!(here.header("seawall-attempts"), Some("0"));
            assert!(arrivals.lock().unwrap().is_empty(), "{method} went on");
            assert_eq!(gateway.line().await["completion_reason"], "refused");
            for (stated, onward) in [(Some("3"), Some("2")), (None, None)] {
                assert_eq!(gateway.send_over(protocol, asked(stated)).await.status, 200);
                let arrival = arrivals.lock().unwrap().pop().unwrap();
                assert_eq!(arrival.header("max-forwards"), onward, "{method}");
                gateway.line().await;
            }
        }
    }
}

#[tokio::test]
async fn ids_are_kept_or_made_and_the_same_at_both_ends() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).start().await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (sent, kept) in [(Some("mine"), true), (Some("not mine"), false), (None, false)] {
        let mut request = get("/");
        let headers = request.headers_mut();
        headers.insert("traceparent", traceparent.parse().unwrap());
        headers.insert("x-correlation-id", "c".parse().unwrap());
        if let Some(sent) = sent {
            headers.insert("x-request-id", sent.parse().unwrap());
        }
        let answer = gateway.send(request).await;
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        let line = gateway.line().await;
        let id = answer.header("x-request-id").unwrap();
        assert_eq!(Some(id) == sent, kept);
        assert_eq!(arrival.header("x-request-id"), Some(id));
        assert_eq!(arrival.header("traceparent"), Some(traceparent));
        assert_eq!(line["request_id"], id);
        assert_eq!(line["correlation_id"], "c");
        assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(line["span_id"], "00f067aa0ba902b7");
    }
    let ignored = gateway.metrics().await;
    let labels = [("header", "request_id"), ("reason", "malformed")];
    assert_eq!(ignored.count("seawall_ignored_headers_total", &labels), 1);
}

#[tokio::test]
async fn fields_for_one_connection_go_and_forwarded_is_written_anew() {
    for (from, to) in PAIRS {
        let (upstream, arrivals) = Upstream::scripted(to, |_, _| {
            let mut response = answer(200, "");
            response.headers_mut().insert("x-kept", "1".parse().unwrap());
            response
        })
        .await;
        let gateway = Setup::new(upstream).speaks(to).start().await;
        let mut request = get("/");
        for (name, value) in [
            ("x-forwarded-for", "198.51.100.7"),
            ("forwarded", "for=198.51.100.7"),
            ("proxy-authorization", "x"),
            ("te", "trailers"),
            ("cookie", "a=1"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        if from == Protocol::Http1 {
            for (name, value) in
                [("connection", "x-mine, te"), ("x-mine", "1"), ("keep-alive", "timeout=5")]
            {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
        } else {
            request.headers_mut().append("cookie", "b=2".parse().unwrap());
        }
        let answer = gateway.send_over(from, request).await;
        assert_eq!(answer.header("x-kept"), Some("1"));
        let version = if to == Protocol::Http1 { "1.1 seawall-" } else { "2.0 seawall-" };
        assert!(answer.header("via").unwrap().starts_with(version));
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        assert_eq!(arrival.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(arrival.header("x-forwarded-proto"), Some("http"));
        assert_eq!(arrival.header("x-forwarded-host"), Some("test"));
        let forwarded = "for=127.0.0.1;host=\"test\";proto=http";
        assert_eq!(arrival.header("forwarded"), Some(forwarded));
        assert_eq!(arrival.header("te"), Some("trailers"));
        for gone in ["x-mine", "keep-alive", "proxy-authorization", "transfer-encoding"] {
            assert_eq!(arrival.header(gone), None, "{from:?} {to:?} {gone}");
        }
        match (from, to) {
            (Protocol::H2c, Protocol::Http1) => {
                assert_eq!(arrival.header("cookie"), Some("a=1; b=2"));
            }
            (Protocol::H2c, Protocol::H2c) => {
                assert_eq!(arrival.headers.get_all("cookie").iter().count(), 2);
            }
            _ => assert_eq!(arrival.header("cookie"), Some("a=1")),
        }
    }
}

#[tokio::test]
async fn only_a_trusted_peer_states_who_it_is_and_which_attempt_it_makes() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let stated = [
        ("x-retry-attempt", "3"),
        ("x-tenant", "gold"),
        ("x-priority", "high"),
        ("x-cost", "2"),
        ("x-forwarded-for", "198.51.100.7"),
    ];
    for trusted in [false, true] {
        let setup = Setup::new(upstream);
        let gateway = if trusted { setup.trusted() } else { setup }.start().await;
        let mut request = get("/");
        for (name, value) in stated {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        gateway.send(request).await;
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        assert_eq!(arrival.header("x-tenant").is_some(), trusted);
        assert_eq!(arrival.header("x-priority").is_some(), trusted);
        assert_eq!(arrival.header("x-cost").is_some(), trusted);
        let number = if trusted { "3" } else { "1" };
        assert_eq!(arrival.header("x-retry-attempt"), Some(number));
        let peers = if trusted { "198.51.100.7, 127.0.0.1" } else { "127.0.0.1" };
        assert_eq!(arrival.header("x-forwarded-for"), Some(peers));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_caller_attempts_total", &[("attempt", number)]), 1);
        let untrusted = [("reason", "untrusted")];
        let ignored = metrics.count("seawall_ignored_headers_total", &untrusted);
        assert_eq!(ignored, if trusted { 0 } else { 5 });
        let line = gateway.line().await;
        assert_eq!(line["caller_attempt"].as_u64(), trusted.then_some(3));
    }
}

#[tokio::test]
async fn an_attempt_number_that_is_none_counts_as_the_first_and_is_counted() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).trusted().start().await;
    for (stated, because) in [
        ("banana", "malformed"),
        ("-1", "malformed"),
        ("0", "out_of_range"),
        ("1001", "out_of_range"),
    ] {
        let mut request = get("/");
        request.headers_mut().insert("x-retry-attempt", stated.parse().unwrap());
        let labels = [("header", "attempt"), ("reason", because)];
        let before = gateway.metrics().await.count("seawall_ignored_headers_total", &labels);
        gateway.send(request).await;
        let after = gateway.metrics().await.count("seawall_ignored_headers_total", &labels);
        assert_eq!(after, before + 1, "{stated}");
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        assert_eq!(arrival.header("x-retry-attempt"), Some("1"));
    }
}

#[tokio::test]
async fn the_attempt_sent_on_is_the_callers_or_ours_whichever_is_higher() {
    for (stated, sent) in [("1", ["1", "2"]), ("2", ["2", "2"]), ("7", ["7", "7"])] {
        let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |before, _| {
            answer(if before == 0 { 503 } else { 200 }, "")
        })
        .await;
        let gateway = Setup::new(upstream).trusted().start().await;
        let mut request = get("/");
        request.headers_mut().insert("x-retry-attempt", stated.parse().unwrap());
        assert_eq!(gateway.send(request).await.status, 200);
        let arrivals = arrivals.lock().unwrap();
        let seen: Vec<_> =
            arrivals.iter().map(|it| it.header("x-retry-attempt").unwrap()).collect();
        assert_eq!(seen, sent, "{stated}");
    }
}

#[tokio::test]
async fn nothing_is_stated_to_an_upstream_that_wants_no_statements() {
    let (upstream, arrivals) = echo(Protocol::Http1).await;
    let gateway = Setup::new(upstream).upstream("send_deadline: false").start().await;
    gateway.get("/").await;
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    assert_eq!(arrival.header("x-remaining-ms"), None);
    assert_eq!(arrival.header("x-retry-attempt"), None);
}
