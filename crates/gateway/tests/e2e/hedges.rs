//! A second attempt beside a slow one: what the two upstreams see of it, and what is counted.

use std::time::Duration;

use http::Request;

use crate::support::*;

/// Two upstreams, and a gateway that hedges after 30 ms whatever it costs.
async fn pair(protocol: Protocol, keys: &str) -> ([Upstream; 2], Gateway) {
    let ends = [Upstream::start(protocol).await, Upstream::start(protocol).await];
    let gateway = Setup::new(ends[0].address)
        .endpoint(ends[1].address)
        .speaks(protocol)
        .upstream(&format!("hedge: {{delay: 30ms, max_extra: 100%, max_load: 100%}}{keys}"))
        .start()
        .await;
    (ends, gateway)
}

/// The next request at either end, and at which.
async fn next(ends: &mut [Upstream; 2]) -> (Call, usize) {
    let [a, b] = ends;
    tokio::select! {
        call = a.next() => (call, 0),
        call = b.next() => (call, 1),
    }
}

fn keyed(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().insert("idempotency-key", "\"k 1\"".parse().unwrap());
    request
}

#[tokio::test]
async fn the_faster_of_two_endpoints_answers_and_the_other_is_left() {
    for protocol in BOTH {
        let (mut ends, gateway) = pair(protocol, "").await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(get("/")).await });
        let (mut slow, first) = next(&mut ends).await;
        assert_eq!(slow.header("x-retry-attempt"), Some("1"));
        let (hedge, second) = next(&mut ends).await;
        assert_ne!(first, second, "it goes to the other endpoint");
        assert_eq!(hedge.header("x-retry-attempt"), Some("2"));
        hedge.answer(answer(200, "from the hedge"));
        let answered = within(open).await.unwrap();
        assert_eq!((answered.status, &answered.body[..]), (200, &b"from the hedge"[..]));
        assert_eq!(answered.header("seawall-attempts"), Some("2"));
        slow.left().await;
        let line = gateway.line().await;
        assert_eq!((&line["attempts"], &line["hedges"]), (&2.into(), &1.into()));
        assert_eq!(line["endpoint"], ends[second].address.to_string());
        assert_eq!(line["stop_reason"], "answered");
        let metrics = gateway.metrics().await;
        let count = |name, labels| metrics.count(name, labels);
        assert_eq!(count("seawall_first_attempts_total", &[]), 1);
        assert_eq!(count("seawall_retries_total", &[]), 0);
        assert_eq!(count("seawall_hedges_total", &[("upstream", "up")]), 1);
        assert_eq!(count("seawall_hedges_won_total", &[]), 1);
        assert_eq!(count("seawall_causes_total", &[("cause", "outrun")]), 1);
        assert_eq!(count("seawall_causes_total", &[]), 2, "each attempt once");
        assert_eq!(count("seawall_outcomes_total", &[("class", "cancelled")]), 1);
        assert_eq!(count("seawall_breaker_transitions_total", &[("to", "open")]), 0);
    }
}

#[tokio::test]
async fn a_failure_of_one_waits_for_the_other_and_the_first_may_still_win() {
    let (mut ends, gateway) = pair(Protocol::Http1, "").await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/")).await });
    let (slow, first) = next(&mut ends).await;
    let (hedge, _) = next(&mut ends).await;
    hedge.answer(answer(503, ""));
    gateway.until(|metrics| metrics.count("seawall_causes_total", &[]) == 1).await;
    slow.answer(answer(200, "late"));
    assert_eq!(within(open).await.unwrap().body, "late");
    let line = gateway.line().await;
    assert_eq!(line["endpoint"], ends[first].address.to_string());
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_hedges_won_total", &[]), 0);
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "outrun")]), 0);
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "status")]), 2);
}

#[tokio::test]
async fn a_keyed_post_is_hedged_with_the_same_key_and_bytes_and_a_plain_one_is_not() {
    for protocol in BOTH {
        let (mut ends, gateway) = pair(protocol, "").await;
        let body = pattern(60_000);
        let mut caller = gateway.caller(Protocol::Http1).await;
        let request = keyed(post("/", full(body.clone())));
        let open = tokio::spawn(async move { caller.send(request).await });
        let (slow, _) = next(&mut ends).await;
        let (slow, _reply) = slow.read().await;
        let (hedge, _) = next(&mut ends).await;
        let (hedge, reply) = hedge.read().await;
        reply.answer(answer(201, ""));
        assert_eq!(within(open).await.unwrap().status, 201);
        for attempt in [&slow, &hedge] {
            assert!(attempt.body == body, "{protocol:?}");
            assert_eq!(attempt.header("idempotency-key"), Some("\"k 1\""));
        }

        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(post("/", full(pattern(9)))).await });
        let (plain, _) = next(&mut ends).await;
        // Far beyond the delay, at which a hedge would have come.
        tokio::time::sleep(Duration::from_millis(150)).await;
        plain.answer(answer(201, ""));
        assert_eq!(within(open).await.unwrap().header("seawall-attempts"), Some("1"));
        assert_eq!(gateway.metrics().await.count("seawall_hedges_total", &[]), 1);
    }
}

#[tokio::test]
async fn a_body_that_still_flows_or_was_not_kept_is_not_hedged() {
    for size in [10, 70_000] {
        let (mut ends, gateway) = pair(Protocol::Http1, "").await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { caller.send(keyed(post("/", body))).await });
        up.data(pattern(size)).await;
        let (call, _) = next(&mut ends).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(gateway.metrics().await.count("seawall_hedges_total", &[]), 0, "it flows");
        drop(up);
        let (_, reply) = call.read().await;
        if size == 10 {
            // Now it is there whole, and 30 ms later a second one goes.
            let (hedge, _) = next(&mut ends).await;
            assert_eq!(hedge.read().await.0.body, pattern(size));
        } else {
            let refused: &[(&str, &str)] = &[("reason", "body")];
            gateway
                .until(|metrics| metrics.count("seawall_hedges_refused_total", refused) == 1)
                .await;
        }
        reply.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_two_attempts_is_counted_for_both() {
    let (mut ends, gateway) = pair(Protocol::H2c, "").await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/")).await });
    let (mut first, _) = next(&mut ends).await;
    let (mut second, _) = next(&mut ends).await;
    open.abort();
    first.left().await;
    second.left().await;
    assert_eq!(gateway.line().await["hedges"], 1);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "caller_left")]), 2);
}

/// The retry has what the attempt before it would have taken while it was waited for.
#[tokio::test]
async fn an_upload_answered_before_its_end_is_not_read_on_while_the_retry_waits() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("retry: {backoff: {base: 300ms, jitter: none}}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let (up, body) = streamed();
    let open = tokio::spawn(async move { caller.send(keyed(post("/", body))).await });
    up.data(pattern(1_000)).await;
    let request = upstream.next().await.answer(answer(503, "later"));
    // It keeps its connection and would take more than is kept for a second attempt.
    let reads = tokio::spawn(async move {
        use http_body_util::BodyExt as _;
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    });
    let rest = tokio::spawn(async move {
        for _ in 0..10 {
            up.data(pattern(20_000)).await;
        }
    });
    let (again, reply) = upstream.next().await.read().await;
    assert_eq!(again.body.len(), 201_000);
    reply.answer(answer(200, ""));
    assert_eq!(within(open).await.unwrap().status, 200);
    within(rest).await.unwrap();
    within(reads).await.unwrap();
    assert_eq!(gateway.line().await["stop_reason"], "answered");
}
