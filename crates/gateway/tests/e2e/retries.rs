//! What is sent again, and with which bytes.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use seawall::Clock;

use crate::support::*;

/// Answers 503 to the first `failures` requests.
fn failing(failures: usize) -> impl Fn(usize, &Arrival) -> Response<Body> + Send + 'static {
    move |before, _| answer(if before < failures { 503 } else { 200 }, "")
}

fn keyed(mut request: http::Request<Body>) -> http::Request<Body> {
    request.headers_mut().insert("idempotency-key", "\"k 1\"".parse().unwrap());
    request
}

#[tokio::test]
async fn a_get_and_a_keyed_post_are_retried_and_a_plain_post_is_not() {
    for (request, attempts) in
        [(get("/"), 2), (keyed(post("/", full("hello"))), 2), (post("/", full("hello")), 1)]
    {
        let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, failing(1)).await;
        let gateway = Setup::new(upstream).start().await;
        let what = format!("{:?}", request.headers());
        let answered = gateway.send(request).await;
        assert_eq!(answered.status, if attempts == 2 { 200 } else { 503 }, "{what}");
        assert_eq!(answered.header("seawall-attempts"), Some(attempts.to_string().as_str()));
        let line = gateway.line().await;
        assert_eq!(line["attempts"], attempts);
        let stop = if attempts == 2 { "answered" } else { "not_retryable" };
        assert_eq!(line["stop_reason"], stop);
        let arrivals = arrivals.lock().unwrap().clone();
        assert_eq!(arrivals.len(), attempts);
        let keys: Vec<_> = arrivals.iter().map(|it| it.header("idempotency-key")).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "passed byte for byte");
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_first_attempts_total", &[("upstream", "up")]), 1);
        assert_eq!(metrics.count("seawall_retries_total", &[]), attempts as u64 - 1);
    }
}

#[tokio::test]
async fn a_replay_is_the_same_to_the_byte_with_and_without_length_and_with_trailers() {
    let body = pattern(60_000);
    for (from, to) in PAIRS {
        for streams in [false, true] {
            let (upstream, arrivals) = Upstream::scripted(to, failing(1)).await;
            let gateway = Setup::new(upstream).speaks(to).start().await;
            let mut caller = gateway.caller(from).await;
            let (up, streaming) = streamed();
            let sent = if streams { streaming } else { full(body.clone()) };
            let mut request = keyed(post("/", sent));
            request.headers_mut().insert("trailer", "x-sum".parse().unwrap());
            let open = tokio::spawn(async move { caller.send(request).await });
            if streams {
                // Small frames and large ones.
                for part in [&body[..10], &body[10..10_000], &body[10_000..]] {
                    up.data(Bytes::copy_from_slice(part)).await;
                }
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-sum", "1".parse().unwrap());
                up.trailers(trailers).await;
            }
            drop(up);
            assert_eq!(within(open).await.unwrap().status, 200);
            let arrivals = arrivals.lock().unwrap();
            assert_eq!(arrivals.len(), 2);
            for arrival in arrivals.iter() {
                assert!(arrival.body == body, "{from:?} {to:?}");
                assert_eq!(arrival.trailers.is_some(), streams, "{from:?} {to:?}");
                let length = if streams { None } else { Some("60000") };
                assert_eq!(arrival.header("content-length"), length);
            }
        }
    }
}

#[tokio::test]
async fn a_body_larger_than_the_replay_buffer_is_sent_once() {
    for (size, attempts, stop) in [(65_536, 2, "answered"), (65_537, 1, "body_too_large")] {
        let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, failing(1)).await;
        let gateway = Setup::new(upstream).start().await;
        let answered = gateway.send(keyed(post("/", full(pattern(size))))).await;
        assert_eq!(answered.header("seawall-attempts"), Some(attempts.to_string().as_str()));
        assert_eq!(answered.header("seawall-retry"), None, "a layer above may hold the body");
        assert_eq!(gateway.line().await["stop_reason"], stop);
        assert_eq!(arrivals.lock().unwrap().len(), attempts);
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_stop_reasons_total", &[("reason", stop)]), 1);
    }
}

#[tokio::test]
async fn while_an_upload_flows_only_the_idle_limit_applies() {
    let clock = Clock::new();
    for (protocol, first) in [(BOTH[0], 70_000), (BOTH[1], 70_000), (BOTH[0], 1), (BOTH[1], 1)] {
        let mut upstream = Upstream::start(protocol).await;
        let gateway = Setup::new(upstream.address)
            .speaks(protocol)
            .upstream("timeouts: {attempt: 200ms, total: 300ms, connect: 100ms, checkout: 100ms}")
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { caller.send(post("/", body)).await });
        up.data(pattern(first)).await;
        let (mut request, reply) = upstream.next().await.split();
        let began = clock.now();
        let mut frames = 0;
        while clock.now().since(began) < Duration::from_millis(500) {
            up.data("x").await;
            let _ = within(http_body_util::BodyExt::frame(&mut request)).await.unwrap().unwrap();
            frames += 1;
        }
        assert!(frames > 0 && !open.is_finished(), "both times passed long ago");
        drop(up);
        // From its end the attempt's time counts.
        let ended = clock.now();
        let answered = within(open).await.unwrap();
        assert_eq!(answered.status, 504);
        assert!(clock.now().since(ended) >= Duration::from_millis(190));
        let line = gateway.line().await;
        assert_eq!((&line["cause"], &line["attempts"]), (&"attempt_timeout".into(), &1.into()));
        drop((request, reply));
    }
}

#[tokio::test]
async fn the_clocks_start_at_the_end_of_an_upload_that_announced_its_length() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("timeouts: {attempt: 100ms, total: 1s, connect: 100ms, checkout: 100ms}")
            .start()
            .await;
        let mut caller = gateway.caller(from).await;
        let request = post("/", full(pattern(200_000)));
        let open = tokio::spawn(async move { caller.send(request).await });
        let (arrival, reply) = upstream.next().await.read().await;
        assert_eq!(arrival.body.len(), 200_000);
        assert_eq!(within(open).await.unwrap().status, 504, "{from:?} {to:?}");
        drop(reply);
    }
}

#[tokio::test]
async fn an_upload_that_the_upstream_does_not_read_ends_by_the_idle_limit() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).upstream("timeouts: {idle: 100ms}").start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let request = post("/", full(vec![1; 64 << 20]));
    let open = tokio::spawn(async move { caller.send(request).await });
    let served = upstream.accept().await;
    let answered = within(open).await.unwrap();
    assert_eq!(answered.status, 504);
    assert_eq!(answered.header("seawall-problem"), Some("dependency-unavailable"));
    let line = gateway.line().await;
    assert_eq!(line["cause"], "attempt_timeout");
    drop(served);
}

#[tokio::test]
async fn a_409_is_retried_only_if_keyed_and_asked_to() {
    for (has_key, retry_after, attempts) in
        [(true, Some("1"), 2), (true, None, 1), (false, Some("1"), 1)]
    {
        let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, move |before, _| {
            let mut response = answer(if before == 0 { 409 } else { 200 }, "");
            if let Some(wait) = retry_after {
                response.headers_mut().insert("retry-after", wait.parse().unwrap());
            }
            response
        })
        .await;
        let gateway = Setup::new(upstream).start().await;
        let request = post("/", full("x"));
        let request = if has_key { keyed(request) } else { request };
        let answered = gateway.send(request).await;
        assert_eq!(answered.status, if attempts == 2 { 200 } else { 409 });
        assert_eq!(arrivals.lock().unwrap().len(), attempts);
    }
}

#[tokio::test]
async fn a_lost_answer_is_retried_for_keyed_requests_alone() {
    for (has_key, attempts) in [(true, 2), (false, 1)] {
        let mut upstream = Upstream::start(Protocol::Http1).await;
        let gateway = Setup::new(upstream.address).start().await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let request = post("/", full("x"));
        let request = if has_key { keyed(request) } else { request };
        let open = tokio::spawn(async move { caller.send(request).await });
        let (_, reply) = upstream.next().await.read().await;
        drop(reply);
        if has_key {
            let (arrival, reply) = upstream.next().await.read().await;
            assert_eq!(arrival.header("x-retry-attempt"), Some("2"));
            reply.answer(answer(200, ""));
        }
        let answered = within(open).await.unwrap();
        assert_eq!(answered.status, if has_key { 200 } else { 502 });
        assert_eq!(answered.header("seawall-attempts"), Some(attempts.to_string().as_str()));
        let stop = answered.header("seawall-retry");
        assert_eq!(stop, if has_key { None } else { Some("no") }, "it may have been executed");
        let causes = gateway.metrics().await;
        assert_eq!(causes.count("seawall_causes_total", &[("cause", "closed")]), 1);
        assert!(!upstream.has_another());
    }
}

#[tokio::test]
async fn a_retry_that_is_refused_here_returns_the_first_answer_with_its_body() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("bulkhead: {limit: 1, wait: 20ms}, retry: {backoff: {base: 200ms, jitter: none}}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/first")).await });
    let first = upstream.next().await;
    assert_eq!(first.connection, 0);
    let mut response = answer(503, "the first answer");
    response.headers_mut().insert("x-kept", "1".parse().unwrap());
    first.answer(response);
    // Another takes the only place during the wait, on the same connection.
    let mut other = gateway.caller(Protocol::Http1).await;
    gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    let other = tokio::spawn(async move { other.send(get("/other")).await });
    let held = upstream.next().await;
    assert_eq!((held.request.uri().path(), held.connection), ("/other", 0));
    let answered = within(open).await.unwrap();
    assert_eq!((answered.status, answered.text().as_str()), (503, "the first answer"));
    assert_eq!(answered.header("x-kept"), Some("1"));
    assert_eq!(answered.header("seawall-attempts"), Some("1"));
    assert_eq!(answered.header("seawall-retry"), None, "only this hop is full");
    let line = gateway.line().await;
    assert_eq!((&line["stop_reason"], &line["status"]), (&"bulkhead_full".into(), &503.into()));
    held.answer(answer(200, ""));
    assert_eq!(within(other).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_retry_that_finds_no_connection_returns_the_first_answer_too() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("max_connections: 1, timeouts: {checkout: 30ms}")
        .upstream("retry: {backoff: {base: 200ms, jitter: none}}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/first")).await });
    upstream.next().await.answer(answer(503, "the first answer"));
    gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    let mut other = gateway.caller(Protocol::Http1).await;
    let other = tokio::spawn(async move { other.send(get("/other")).await });
    let held = upstream.next().await;
    assert_eq!(held.connection, 0);
    let answered = within(open).await.unwrap();
    assert_eq!((answered.status, answered.text().as_str()), (503, "the first answer"));
    assert_eq!(answered.header("seawall-attempts"), Some("1"));
    assert_eq!(gateway.line().await["stop_reason"], "checkout_timeout");
    held.answer(answer(200, ""));
    assert_eq!(within(other).await.unwrap().status, 200);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_retries_total", &[]), 0);
}

#[tokio::test]
async fn a_retry_takes_over_an_upload_that_was_answered_before_its_end() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { caller.send(keyed(post("/", body))).await });
        up.data("first ").await;
        let (mut request, reply) = upstream.next().await.split();
        let _ = within(http_body_util::BodyExt::frame(&mut request)).await.unwrap().unwrap();
        reply.answer(answer(503, "not now"));
        let again = upstream.next().await;
        up.data("second").await;
        drop(up);
        let (arrival, reply) = again.read().await;
        assert_eq!(arrival.body, "first second", "{from:?} {to:?}");
        reply.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().status, 200);
        let cut = within(http_body_util::BodyExt::frame(&mut request)).await;
        assert!(cut.is_none_or(|frame| frame.is_err()), "the first one ends");
    }
}

#[tokio::test]
async fn an_answer_too_long_to_keep_is_told_by_its_status() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("bulkhead: {limit: 1, wait: 20ms}, retry: {backoff: {base: 200ms, jitter: none}}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.send(get("/first")).await });
    upstream.next().await.answer(answer(503, pattern(65_537)));
    let mut other = gateway.caller(Protocol::Http1).await;
    gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    let other = tokio::spawn(async move { other.send(get("/other")).await });
    let held = upstream.next().await;
    let answered = within(open).await.unwrap();
    assert_eq!(answered.status, 503);
    assert_eq!(answered.header("seawall-problem"), Some("upstream-failed"));
    held.answer(answer(200, ""));
    within(other).await.unwrap();
}

#[tokio::test]
async fn a_refused_connection_goes_to_another_endpoint_outside_attempts_and_budget() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, failing(0)).await;
    let gateway = Setup::new(RawUpstream::refusing().await)
        .endpoint(upstream)
        .upstream("retry_budget: {initial: 0, ratio: 0%}")
        .start()
        .await;
    let mut redispatched = 0;
    for _ in 0..10 {
        let answered = gateway.send(post("/", full("once"))).await;
        assert_eq!(answered.status, 200);
        assert_eq!(answered.header("seawall-attempts"), Some("1"));
        let line = gateway.line().await;
        assert_eq!(line["endpoint"], upstream.to_string());
        redispatched += line["redispatches"].as_u64().unwrap();
    }
    assert_eq!(arrivals.lock().unwrap().len(), 10);
    let metrics = gateway.metrics().await;
    assert!(redispatched > 0, "ten picks of two");
    assert_eq!(metrics.count("seawall_redispatches_total", &[]), redispatched);
    assert_eq!(metrics.count("seawall_retries_total", &[]), 0);
    assert_eq!(metrics.count("seawall_first_attempts_total", &[]), 10);
    let refused = [("cause", "connect_refused")];
    assert_eq!(metrics.count("seawall_causes_total", &refused), redispatched);
}

#[tokio::test]
async fn an_endpoint_that_fails_opens_its_own_breaker_and_the_other_serves() {
    let (bad, bad_seen) = Upstream::scripted(Protocol::Http1, failing(usize::MAX)).await;
    let (good, good_seen) = Upstream::scripted(Protocol::Http1, failing(0)).await;
    let gateway = Setup::new(bad)
        .endpoint(good)
        .upstream("retry: off, breaker: {min_calls: 5, open: {base: 1m, cap: 1m}}")
        .start()
        .await;
    let mut failed = 0;
    for _ in 0..60 {
        failed += usize::from(gateway.get("/").await.status == 503);
    }
    let (bad_seen, good_seen) = (bad_seen.lock().unwrap().len(), good_seen.lock().unwrap().len());
    assert_eq!((bad_seen, failed, good_seen), (5, 5, 55));
    let metrics = gateway.until(|metrics| {
        metrics.count("seawall_breaker_transitions_total", &[("to", "open")]) == 1
    });
    let open = [("endpoint", &*bad.to_string()), ("route", "/")];
    assert_eq!(metrics.await.count("seawall_breaker_state", &open), 2);
}

#[tokio::test]
async fn with_every_endpoint_open_the_caller_is_told_when_to_come_back() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, failing(usize::MAX)).await;
    let setup = Setup::new(upstream)
        .upstream("retry: off, breaker: {min_calls: 3, open: {base: 20s, cap: 20s}}");
    for owner in [true, false] {
        arrivals.lock().unwrap().clear();
        let keys = if owner { "retry_owner: self" } else { "retry_owner: caller" };
        let gateway = setup.clone().route(keys).start().await;
        for _ in 0..3 {
            gateway.get("/").await;
            gateway.line().await;
        }
        let mut waits = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let answered = gateway.get("/").await;
            assert_eq!(answered.status, 503);
            let code = if owner { "dependency-unavailable" } else { "breaker-open" };
            assert_eq!(answered.header("seawall-problem"), Some(code));
            assert_eq!(answered.header("seawall-retry"), owner.then_some("no"));
            assert_eq!(answered.header("seawall-attempts"), Some("0"));
            assert_eq!(answered.header("content-type"), Some("application/problem+json"));
            let wait: u64 = answered.header("retry-after").unwrap().parse().unwrap();
            assert!((13..=23).contains(&wait), "{wait}");
            waits.insert(wait);
            let line = gateway.line().await;
            assert_eq!(line["stop_reason"], "breaker_open");
            assert_eq!(line["completion_reason"], "refused");
            assert_eq!(line["response_flags"], "UH");
        }
        assert!(waits.len() > 1, "the refused do not return together: {waits:?}");
        assert_eq!(arrivals.lock().unwrap().len(), 3);
        let refused = [("reason", "breaker_open")];
        assert_eq!(gateway.metrics().await.count("seawall_refused_total", &refused), 10);
    }
}

#[tokio::test]
async fn retries_are_switched_off_and_on_at_the_admin_port() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, failing(usize::MAX)).await;
    let gateway = Setup::new(upstream).upstream("breaker: off").start().await;
    let put = http::Method::PUT;
    let off = gateway.admin(put.clone(), "/retries?state=off&ttl=1m&reason=test", "").await;
    assert_eq!(off.status, 200, "{}", off.text());
    let told: serde_json::Value = serde_json::from_slice(&off.body).unwrap();
    assert!(told[0]["by"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
    assert_eq!((&told[0]["switched_by"], &told[0]["reason"]), (&"admin".into(), &"test".into()));
    let answered = gateway.get("/").await;
    assert_eq!(answered.header("seawall-attempts"), Some("1"));
    assert_eq!(answered.header("seawall-retry"), Some("no"));
    assert_eq!(gateway.line().await["stop_reason"], "retries_off");
    assert_eq!(gateway.metrics().await.count("seawall_retries_off", &[]), 1);
    let on = gateway.admin(put, "/retries?state=on&reason=test", "").await;
    assert_eq!(on.status, 200, "{}", on.text());
    assert_eq!(gateway.get("/").await.header("seawall-attempts"), Some("2"));
    assert_eq!(arrivals.lock().unwrap().len(), 3);
}
