//! Bounds on bodies: how large, how slow, how long.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;

use crate::support::*;

#[tokio::test]
async fn one_field_too_many_is_refused_with_a_problem_a_line_and_a_count() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut caller = gateway.raw().await;
    caller.write(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(100))).await;
    let head = caller.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 431 "), "{head}");
    assert!(head.contains("seawall-problem: too-many-fields\r\n"), "{head}");
    assert_eq!(gateway.line().await["status"], 431);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "head_too_large")]), 1);
    assert_eq!(metrics.count("seawall_requests_total", &[("route", "_none")]), 1);
}

#[tokio::test]
async fn a_body_larger_than_its_route_allows_is_told_413() {
    for (from, to) in PAIRS {
        let (upstream, arrivals) = Upstream::scripted(to, |_, _| answer(200, "")).await;
        let gateway = Setup::new(upstream).speaks(to).route("max_body: 10B").start().await;
        assert_eq!(gateway.send_over(from, post("/", full(pattern(10)))).await.status, 200);
        gateway.line().await;
        let announced = gateway.send_over(from, post("/", full(pattern(11)))).await;
        assert_eq!(announced.status, 413);
        assert_eq!(announced.header("seawall-problem"), Some("body-too-large"));
        let line = gateway.line().await;
        assert_eq!((&line["attempts"], &line["response_flags"]), (&0.into(), &"BL".into()));
        assert_eq!(arrivals.lock().unwrap().len(), 1, "nothing was sent");
    }
}

#[tokio::test]
async fn one_that_does_not_say_is_counted_while_it_flows() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).route("max_body: 10B").start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { (caller.send(post("/", body)).await, caller) });
        up.data(pattern(10)).await;
        let (mut request, _reply) = upstream.next().await.split();
        assert_eq!(within(request.frame()).await.unwrap().unwrap().into_data().unwrap().len(), 10);
        up.data("x").await;
        let (answered, _caller) = within(open).await.unwrap();
        assert_eq!(answered.status, 413, "{from:?} {to:?}");
        assert_eq!(answered.header("seawall-problem"), Some("body-too-large"));
        assert_eq!(answered.header("seawall-retry"), None);
        assert!(within(request.frame()).await.unwrap().is_err(), "the upstream sees no whole body");
        let line = gateway.line().await;
        assert_eq!(line["completion_reason"], "refused");
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_refused_total", &[("reason", "body_too_large")]), 1);
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "upload_failed")]), 1);
    }
}

#[tokio::test]
async fn an_upload_that_stalls_is_told_408() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("timeouts: {idle: 80ms}")
            .start()
            .await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { (caller.send(post("/", body)).await, caller) });
        up.data("half").await;
        let (mut request, _reply) = upstream.next().await.split();
        let _ = within(request.frame()).await.unwrap().unwrap();
        let (answered, _caller) = within(open).await.unwrap();
        assert_eq!(
            (answered.status, answered.header("seawall-problem")),
            (408, Some("upload-stalled"))
        );
        assert!(within(request.frame()).await.unwrap().is_err(), "{from:?} {to:?}");
        assert_eq!(gateway.line().await["completion_reason"], "timeout");
        drop(up);
    }
}

/// An upstream that reads each request beside the others and answers those that are whole.
async fn healthy(protocol: Protocol) -> std::net::SocketAddr {
    let mut upstream = Upstream::start(protocol).await;
    let address = upstream.address;
    tokio::spawn(async move {
        while let Some(call) = upstream.poll_next().await {
            tokio::spawn(async move {
                if let Ok((_, reply)) = call.try_read().await {
                    reply.try_answer(answer(200, ""));
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn callers_that_stall_with_small_uploads_leave_the_breaker_of_a_healthy_upstream_closed() {
    for to in BOTH {
        let upstream = healthy(to).await;
        let gateway = Setup::new(upstream)
            .speaks(to)
            .upstream(
                "timeouts: {attempt: 200ms, total: 1s, connect: 200ms, checkout: 200ms, idle: 1s}",
            )
            .start()
            .await;
        let mut stalled = Vec::new();
        for _ in 0..25 {
            let mut caller = gateway.raw().await;
            caller.write("POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nab").await;
            stalled.push(caller);
        }
        for mut caller in stalled {
            let head = caller.head().await.to_lowercase();
            assert!(head.starts_with("http/1.1 408 "), "{to:?}: {head}");
            assert!(head.contains("seawall-problem: upload-stalled\r\n"));
            assert_eq!(gateway.get("/").await.status, 200, "{to:?}");
        }
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "upload_failed")]), 25);
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "attempt_timeout")]), 0);
        assert_eq!(metrics.count("seawall_breaker_transitions_total", &[]), 0);
    }
}

#[tokio::test]
async fn small_uploads_that_trickle_in_are_answered_and_are_not_slow() {
    for to in BOTH {
        let (upstream, arrivals) = Upstream::scripted(to, |_, _| answer(200, "")).await;
        // Slow at 400 ms; one slow call would open it.
        let gateway = Setup::new(upstream)
            .speaks(to)
            .upstream("timeouts: {attempt: 800ms, total: 1s, connect: 500ms, checkout: 500ms}")
            .upstream("breaker: {min_calls: 1, slow_ratio: 1%}")
            .start()
            .await;
        let mut callers = Vec::new();
        for _ in 0..5 {
            let mut caller = gateway.raw().await;
            let head =
                "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 13\r\n\r\n";
            caller.write(head).await;
            callers.push(caller);
        }
        for _ in 0..13 {
            for caller in &mut callers {
                caller.write("z").await;
            }
            tokio::time::sleep(Duration::from_millis(90)).await;
        }
        for mut caller in callers {
            assert!(caller.rest().await.starts_with("HTTP/1.1 200 "), "{to:?}");
        }
        assert!(arrivals.lock().unwrap().iter().all(|arrival| arrival.body == "z".repeat(13)));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_breaker_transitions_total", &[]), 0, "{to:?}");
    }
}

#[tokio::test]
async fn a_stated_deadline_ends_a_stalled_upload_and_says_nothing_about_the_upstream() {
    let upstream = healthy(Protocol::Http1).await;
    let gateway = Setup::new(upstream)
        .upstream("timeouts: {attempt: 100ms, total: 1s, connect: 100ms, checkout: 100ms}")
        .upstream("breaker: {min_calls: 1, failure_ratio: 1%, slow_ratio: 1%}")
        .start()
        .await;
    let mut caller = gateway.raw().await;
    caller
        .write("POST / HTTP/1.1\r\nhost: a\r\nx-remaining-ms: 300\r\ncontent-length: 9\r\n\r\nab")
        .await;
    let head = caller.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    assert!(head.contains("seawall-problem: deadline-passed\r\n"), "{head}");
    assert_eq!(gateway.line().await["cause"], "deadline_cut");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_breaker_transitions_total", &[]), 0);
}

#[tokio::test]
async fn an_answer_that_stalls_is_broken_off_by_the_idle_limit() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("timeouts: {idle: 80ms}")
            .start()
            .await;
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move { (caller.open(get("/")).await, caller) });
        let (down, body) = streamed();
        upstream.next().await.answer(Response::new(body));
        let (response, _caller) = within(open).await.unwrap();
        down.data("half").await;
        let mut body = response.into_body();
        assert_eq!(within(body.frame()).await.unwrap().unwrap().into_data().unwrap(), "half");
        assert!(within(body.frame()).await.unwrap().is_err(), "{from:?} {to:?}");
        down.closed().await;
        assert_eq!(gateway.line().await["completion_reason"], "timeout");
        gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    }
}

#[tokio::test]
async fn an_answer_that_never_ends_is_broken_off_by_the_total_for_bodies() {
    for to in BOTH {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("timeouts: {body: 100ms}")
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { (caller.open(get("/")).await, caller) });
        let (down, body) = streamed();
        upstream.next().await.answer(Response::new(body));
        let (response, _caller) = within(open).await.unwrap();
        let sending =
            tokio::spawn(
                async move { while down.try_data(Bytes::from_static(&[1; 65_536])).await {} },
            );
        let mut body = response.into_body();
        let broken = within(async {
            loop {
                match body.frame().await {
                    Some(Ok(_)) => {}
                    end => return end,
                }
            }
        });
        assert!(broken.await.unwrap().is_err());
        within(sending).await.unwrap();
        assert_eq!(gateway.line().await["completion_reason"], "timeout");
    }
}
