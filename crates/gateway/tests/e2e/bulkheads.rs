//! How many calls an upstream and a route may have in flight.

use std::time::Duration;

use seawall::Clock;

use crate::support::*;

#[tokio::test]
async fn a_full_bulkhead_refuses_after_its_wait_and_never_says_stop() {
    let clock = Clock::new();
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address).upstream("bulkhead: {limit: 1}").start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let first = tokio::spawn(async move { caller.send(get("/")).await });
    let held = upstream.next().await;
    let began = clock.now();
    let refused = gateway.get("/").await;
    let took = clock.now().since(began);
    assert!((50..2000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("seawall-problem"), Some("overloaded"));
    assert_eq!(refused.header("seawall-retry"), None);
    assert_eq!(refused.header("seawall-attempts"), Some("0"));
    assert!(refused.header("retry-after").is_some());
    let line = gateway.line().await;
    assert_eq!(line["stop_reason"], "bulkhead_full");
    assert_eq!(line["response_flags"], "UO");
    assert!(line["queue_wait_ms"].as_f64().unwrap() >= 49.0);
    held.answer(answer(200, ""));
    within(first).await.unwrap();
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "bulkhead_full")]), 1);
    assert_eq!(metrics.count("seawall_first_attempts_total", &[]), 1);
    let opened = [("to", "open")];
    assert_eq!(metrics.count("seawall_breaker_transitions_total", &opened), 0);
}

#[tokio::test]
async fn a_call_that_waits_takes_the_slot_that_comes_free() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway =
        Setup::new(upstream.address).upstream("bulkhead: {limit: 1, wait: 5s}").start().await;
    let mut calls = Vec::new();
    for path in ["/first", "/second"] {
        let mut caller = gateway.caller(Protocol::Http1).await;
        calls.push(tokio::spawn(async move { caller.send(get(path)).await }));
        if path == "/first" {
            gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 1).await;
        }
    }
    gateway.until(|metrics| metrics.count("seawall_bulkhead_waiting", &[]) == 1).await;
    let first = upstream.next().await;
    assert!(!upstream.has_another());
    // The slot is held until the answer's body has ended.
    let (down, body) = streamed();
    first.answer(http::Response::new(body));
    down.data("x").await;
    assert_eq!(gateway.metrics().await.count("seawall_bulkhead_waiting", &[]), 1);
    drop(down);
    let second = upstream.next().await;
    assert_eq!(second.request.uri().path(), "/second");
    second.answer(answer(200, ""));
    for call in calls {
        assert_eq!(within(call).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_route_that_hangs_leaves_the_other_alone() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("bulkhead: {limit: 4, wait: 1ms}")
        .route("path_prefix: /reports, name: reports")
        .route("path_prefix: /orders, name: orders")
        .start()
        .await;
    let mut hanging = Vec::new();
    for _ in 0..2 {
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(get("/reports")).await });
        hanging.push((open, upstream.next().await));
    }
    let refused = gateway.get("/reports").await;
    assert_eq!((refused.status, refused.header("seawall-problem")), (503, Some("overloaded")));
    for _ in 0..3 {
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(get("/orders")).await });
        upstream.next().await.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().status, 200);
    }
    for (open, call) in hanging {
        call.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn an_event_stream_moves_out_of_the_bulkhead_and_the_pool() {
    for to in BOTH {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("bulkhead: {limit: 1, wait: 1ms, max_streams: 1}, max_connections: 1")
            .start()
            .await;
        let events = |body| {
            let mut response = http::Response::new(body);
            let kind = "Text/Event-Stream; charset=utf-8";
            response.headers_mut().insert("content-type", kind.parse().unwrap());
            response
        };
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { (caller.open(get("/events")).await, caller) });
        let (down, body) = streamed();
        upstream.next().await.answer(events(body));
        let (response, caller) = within(open).await.unwrap();
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_streams_in_flight", &[]), 1);
        assert_eq!(metrics.count("seawall_bulkhead_in_flight", &[]), 0);
        let mut other = gateway.caller(Protocol::Http1).await;
        let plain = tokio::spawn(async move { other.send(get("/plain")).await });
        upstream.next().await.answer(answer(200, ""));
        assert_eq!(within(plain).await.unwrap().status, 200);
        // As many streams as may be are open.
        let mut other = gateway.caller(Protocol::Http1).await;
        let full = tokio::spawn(async move { other.send(get("/events")).await });
        let (more, body) = streamed();
        upstream.next().await.answer(events(body));
        let refused = within(full).await.unwrap();
        assert_eq!((refused.status, refused.header("seawall-problem")), (503, Some("overloaded")));
        assert_eq!(refused.header("seawall-retry"), None);
        more.closed().await;
        // The caller leaves: the stream ends.
        drop((response, caller));
        down.closed().await;
        gateway.until(|metrics| metrics.count("seawall_streams_in_flight", &[]) == 0).await;
    }
}

#[tokio::test]
async fn a_pool_without_a_free_connection_refuses_after_the_checkout_time() {
    let clock = Clock::new();
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("max_connections: 1, timeouts: {checkout: 60ms}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let first = tokio::spawn(async move { caller.send(get("/")).await });
    let held = upstream.next().await;
    let began = clock.now();
    let refused = gateway.get("/").await;
    assert!(clock.now().since(began) >= Duration::from_millis(59));
    assert_eq!(
        (refused.status, refused.header("seawall-problem")),
        (503, Some("checkout-timeout"))
    );
    assert_eq!(refused.header("seawall-retry"), None);
    let line = gateway.line().await;
    assert_eq!((&line["stop_reason"], &line["attempts"]), (&"checkout_timeout".into(), &0.into()));
    held.answer(answer(200, ""));
    within(first).await.unwrap();
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_first_attempts_total", &[]), 1);
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "checkout_timeout")]), 1);
    let checkout = [("stage", "checkout"), ("route", "/")];
    assert_eq!(metrics.count("seawall_stage_duration_seconds_count", &checkout), 2);
}
