//! What a request gets while the gateway goes away.

use std::time::Duration;

use http::Method;
use seawall::Clock;

use crate::support::*;

#[tokio::test]
async fn a_drain_is_told_at_once_and_serves_on_until_its_end() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream)
        .top("drain: {accept: 200ms, in_flight: 200ms, close: 1s}")
        .start()
        .await;
    let ready = async |status| {
        within(async { while gateway.admin(Method::GET, "/ready", "").await.status != status {} })
            .await;
    };
    ready(200).await;
    let mut kept = gateway.caller(Protocol::Http1).await;
    assert_eq!(kept.send(get("/")).await.status, 200);
    gateway.drain();
    ready(503).await;
    assert_eq!(gateway.metrics().await.count("seawall_draining", &[]), 1);
    assert_eq!(gateway.admin(Method::GET, "/livez", "").await.status, 200);
    assert_eq!(gateway.get("/").await.status, 200, "it still accepts");
    let last = kept.send(get("/")).await;
    assert_eq!(last.status, 200, "and connections that are open may ask");
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (0, 0));
    assert_eq!(arrivals.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_request_admitted_during_the_drain_has_its_end_as_deadline() {
    let clock = Clock::new();
    for protocol in BOTH {
        let mut upstream = Upstream::start(protocol).await;
        let gateway = Setup::new(upstream.address)
            .speaks(protocol)
            .top("drain: {accept: 100ms, in_flight: 300ms, close: 2s}")
            .start()
            .await;
        let mut before = gateway.caller(Protocol::Http1).await;
        let before = tokio::spawn(async move { before.send(get("/before")).await });
        let first = upstream.next().await;
        let mut during = gateway.caller(Protocol::Http1).await;
        let began = clock.now();
        gateway.drain();
        gateway.until(|metrics| metrics.count("seawall_draining", &[]) == 1).await;
        let during = tokio::spawn(async move { during.send(get("/during")).await });
        let second = upstream.next().await;
        let sent: u64 = second.header("x-remaining-ms").unwrap().parse().unwrap();
        assert!(sent <= 400, "{sent}");
        let answered = within(during).await.unwrap();
        assert_eq!(answered.status, 504);
        assert!(clock.now().since(began) < Duration::from_millis(1000));
        assert!(!before.is_finished(), "one from before has its own time");
        first.answer(answer(200, ""));
        assert_eq!(within(before).await.unwrap().status, 200);
        let ended = gateway.ended().await;
        assert_eq!((ended.connections_cut, ended.requests_cut), (0, 0));
    }
}

#[tokio::test]
async fn a_request_that_comes_when_no_time_is_left_is_refused() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .top("drain: {accept: 0s, in_flight: 0s, close: 5s}")
        .start()
        .await;
    let mut busy = gateway.caller(Protocol::Http1).await;
    let busy = tokio::spawn(async move { busy.send(get("/")).await });
    let held = upstream.next().await;
    // Half a head keeps a connection open into the last phase.
    let mut late = gateway.raw().await;
    late.write("GET / HTTP/1.1\r\nHost: a\r\n").await;
    gateway.until(|metrics| metrics.count("seawall_downstream_connections", &[]) == 2).await;
    gateway.drain();
    gateway.until(|metrics| metrics.count("seawall_draining", &[]) == 1).await;
    late.write("\r\n").await;
    let head = late.rest().await.to_lowercase();
    assert!(head.starts_with("http/1.1 503 "), "{head}");
    for line in ["seawall-problem: draining\r\n", "retry-after: ", "connection: close\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(!head.contains("seawall-retry"), "another instance may take it: {head}");
    assert_eq!(gateway.line().await["response_flags"], "DR");
    held.answer(answer(200, ""));
    assert_eq!(within(busy).await.unwrap().status, 200);
    assert!(!upstream.has_another());
    gateway.ended().await;
}

#[tokio::test]
async fn what_does_not_end_is_cut_and_said_to_be() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address)
        .top("drain: {accept: 0s, in_flight: 20ms, close: 20ms}")
        .start()
        .await;
    let mut caller = gateway.raw().await;
    caller.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = upstream.accept().await;
    served.head().await;
    gateway.drain();
    gateway.drain();
    let line = gateway.line().await;
    assert_eq!(
        (&line["completion_reason"], &line["response_flags"]),
        (&"drained".into(), &"DR".into())
    );
    assert!(line["stop_reason"].is_null() && line["cause"].is_null(), "{line}");
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (1, 1));
    assert_eq!(caller.rest().await, "");
}

/// The process ends as soon as the drain does: what is not in the log by then is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cut_has_its_line_before_the_end() {
    for round in 0..20 {
        let upstream = RawUpstream::bind().await;
        let gateway = Setup::new(upstream.address)
            .top("drain: {accept: 0s, in_flight: 1ms, close: 1ms}")
            .start()
            .await;
        let mut caller = gateway.raw().await;
        caller.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab").await;
        let mut served = upstream.accept().await;
        served.head().await;
        gateway.drain();
        let (ended, lines) = gateway.ended_with_lines().await;
        assert_eq!(ended.requests_cut, 1, "{round}");
        assert_eq!(lines.len(), 1, "{round}");
        assert_eq!(lines[0]["completion_reason"], "drained", "{round}");
    }
}
