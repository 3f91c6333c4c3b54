//! Which route takes a request, and what it makes of its head.

use http::Request;

use crate::support::*;

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn put(path: &str) -> Request<Body> {
    Request::builder().method("PUT").uri(path).body(full("")).unwrap()
}

#[tokio::test]
async fn method_and_fields_choose_the_route_and_another_method_is_answered_405() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream)
        .route("name: read, path_prefix: /orders, methods: [GET, HEAD]")
        .route("name: write, path_prefix: /orders, methods: [POST]")
        .route(
            "name: canary, path_prefix: /orders, methods: [GET], \
             headers: [{name: X-Version, prefix: '2.'}]",
        )
        .start()
        .await;
    for (request, route) in [
        (get("/orders/1"), "read"),
        (with(get("/orders/1"), "x-version", "2.1"), "canary"),
        (with(get("/orders/1"), "x-version", "3"), "read"),
        (post("/orders", full("")), "write"),
    ] {
        assert_eq!(gateway.send(request).await.status, 200);
        assert_eq!(gateway.line().await["route"], route);
    }
    for protocol in BOTH {
        let refused = gateway.send_over(protocol, put("/orders")).await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, POST")));
        assert_eq!(refused.header("seawall-problem"), Some("method-not-allowed"));
    }
    let missing = gateway.send(put("/other")).await;
    assert_eq!((missing.status, missing.header("allow")), (404, None));
    assert_eq!(arrivals.lock().unwrap().len(), 4, "what was refused was not sent");
}

#[tokio::test]
async fn a_prefix_is_stripped_or_replaced_and_the_query_stays() {
    for protocol in BOTH {
        let (upstream, arrivals) = Upstream::scripted(protocol, |_, _| answer(200, "")).await;
        let gateway = Setup::new(upstream)
            .speaks(protocol)
            .route("path_prefix: /api, strip_prefix: true")
            .route("path_prefix: /old, prefix_rewrite: /new/place")
            .route("path: /health, prefix_rewrite: /internal/health")
            .start()
            .await;
        for (path, seen) in [
            ("/api/orders/1?q=%2Fapi&x", "/orders/1?q=%2Fapi&x"),
            ("/api", "/"),
            ("/old/x?", "/new/place/x?"),
            ("/health?full", "/internal/health?full"),
        ] {
            assert_eq!(gateway.get(path).await.status, 200);
            assert_eq!(gateway.line().await["path"], path.split('?').next().unwrap());
            assert_eq!(arrivals.lock().unwrap().last().unwrap().path, seen);
        }
        assert_eq!(gateway.get("/api/../x").await.status, 400);
    }
}

#[tokio::test]
async fn fields_are_set_and_removed_on_both_ways_of_a_route() {
    let script = |_, _: &Arrival| {
        let mut response = answer(200, "");
        response.headers_mut().insert("server", "old/1".parse().unwrap());
        response.headers_mut().append("x-frame-options", "one".parse().unwrap());
        response.headers_mut().append("x-frame-options", "two".parse().unwrap());
        response
    };
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, script).await;
    let gateway = Setup::new(upstream)
        .upstream("breaker: {mode: normal}")
        .route(
            "path_prefix: /a, request_headers: {set: {Authorization: 'Bearer ${NONE:-sesame}'}, \
             remove: [Cookie]}, response_headers: {set: {X-Frame-Options: DENY}, remove: [Server]}",
        )
        .route("path_prefix: /b")
        .route(
            "path_prefix: /c, max_body: 1B, \
             response_headers: {set: {X-Frame-Options: DENY, Content-Type: text/plain}}",
        )
        .start()
        .await;
    let request = with(with(get("/a"), "cookie", "a=b"), "authorization", "Basic x");
    let changed = gateway.send(request).await;
    assert_eq!(changed.header("x-frame-options"), Some("DENY"));
    assert_eq!(changed.header("server"), None);
    {
        let arrivals = arrivals.lock().unwrap();
        assert_eq!(arrivals[0].header("authorization"), Some("Bearer sesame"));
        assert_eq!(arrivals[0].header("cookie"), None);
    }
    let untouched = gateway.send(with(get("/b"), "cookie", "a=b")).await;
    assert_eq!(untouched.header("server"), Some("old/1"));
    assert_eq!(arrivals.lock().unwrap()[1].header("cookie"), Some("a=b"));
    let problem = gateway.send(post("/c", full("too long"))).await;
    assert_eq!((problem.status, problem.header("x-frame-options")), (413, Some("DENY")));
    assert_eq!(problem.header("content-type"), Some("application/problem+json"));
}

#[tokio::test]
async fn an_upstream_is_told_the_callers_host_its_own_or_a_given_one() {
    for protocol in BOTH {
        for (setting, expected) in [
            ("keep", Some("shop.example")),
            ("endpoint", None),
            ("orders.internal:81", Some("orders.internal:81")),
        ] {
            let mut upstream = Upstream::start(protocol).await;
            let own = upstream.address.to_string();
            let setup = Setup::new(upstream.address).speaks(protocol);
            let gateway = setup.upstream(&format!("host_header: '{setting}'")).start().await;
            let mut caller = gateway.caller(Protocol::Http1).await;
            let request = with(get("/x?y"), "host", "shop.example");
            let (answered, ()) = tokio::join!(caller.send(request), async {
                let call = upstream.next().await;
                let told = match protocol {
                    Protocol::Http1 => call.header("host").map(str::to_owned),
                    Protocol::H2c => call.request.uri().authority().map(ToString::to_string),
                };
                assert_eq!(told.as_deref(), Some(expected.unwrap_or(&own)), "{setting}");
                assert_eq!(call.header("x-forwarded-host"), Some("shop.example"));
                assert_eq!(call.request.uri().path_and_query().unwrap(), "/x?y");
                call.answer(answer(200, ""));
            });
            assert_eq!(answered.status, 200);
        }
    }
}

#[tokio::test]
async fn a_route_retries_by_its_own_rules() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::Http1, |_, arrival| match arrival.path.as_str() {
            "/search" | "/once" | "/up" => answer(503, ""),
            _ => answer(500, ""),
        })
        .await;
    let backoff = "backoff: {base: 1ms, cap: 1ms}";
    let gateway = Setup::new(upstream)
        .upstream(&format!("retry: {{{backoff}}}, retry_budget: {{initial: 10}}"))
        .route("path: /up")
        .route("path: /once, retry: off")
        .route("path: /search, methods: [POST], idempotent: true, retry: {max_attempts: 4}")
        .route("path: /five, retry: {max_attempts: 3, on: [500]}")
        .start()
        .await;
    for (request, status, attempts) in [
        (get("/up"), 503, 2),
        (get("/once"), 503, 1),
        (post("/search", full("q")), 503, 4),
        (get("/five"), 500, 3),
        (post("/five", full("")), 500, 1),
    ] {
        let path = request.uri().path().to_owned();
        let before = arrivals.lock().unwrap().len();
        let answered = gateway.send(request).await;
        assert_eq!(answered.status, status, "{path}");
        assert_eq!(arrivals.lock().unwrap().len() - before, attempts, "{path}");
        assert_eq!(answered.header("seawall-attempts"), Some(attempts.to_string().as_str()));
    }
}

#[tokio::test]
async fn a_route_gives_an_attempt_its_own_time() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("retry: off")
        .route("path: /fast, attempt: 30ms")
        .route("path_prefix: /")
        .start()
        .await;
    let (answered, ()) = tokio::join!(gateway.get("/fast"), async {
        upstream.next().await.ignore().await;
    });
    assert_eq!(answered.status, 504);
    let (answered, ()) = tokio::join!(gateway.get("/slow"), async {
        upstream.next().await.answer(answer(200, ""));
    });
    assert_eq!(answered.status, 200);
}
