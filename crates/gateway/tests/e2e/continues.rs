//! `Expect: 100-continue` is ours to meet, and only for a request that was admitted.

use crate::support::*;

const ASK: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

#[tokio::test]
async fn the_100_comes_once_the_upstream_reads_and_the_expectation_stays_here() {
    for protocol in BOTH {
        let (upstream, arrivals) =
            Upstream::scripted(protocol, |_, arrival| answer(200, arrival.body.clone())).await;
        let gateway = Setup::new(upstream).speaks(protocol).start().await;
        let mut caller = gateway.raw().await;
        for _ in 0..2 {
            caller.write(ASK).await;
            assert_eq!(caller.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
            caller.write("hello").await;
            assert!(caller.head().await.starts_with("HTTP/1.1 200 "));
            assert_eq!(caller.read_until(b"hello").await, "hello");
        }
        let arrivals = arrivals.lock().unwrap();
        assert_eq!(arrivals[0].header("expect"), None);
        assert_eq!(arrivals[0].header("content-length"), Some("5"));
    }
}

#[tokio::test]
async fn a_request_that_is_not_admitted_gets_its_answer_without_100() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway =
        Setup::new(upstream.address).upstream("bulkhead: {limit: 1, wait: 1ms}").start().await;
    let mut first = gateway.caller(Protocol::Http1).await;
    let first = tokio::spawn(async move { first.send(get("/")).await });
    let held = upstream.next().await;
    let mut caller = gateway.raw().await;
    caller.write(ASK).await;
    let head = caller.head().await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    held.answer(answer(200, ""));
    within(first).await.unwrap();
    assert!(!upstream.has_another());
    gateway.line().await;
    assert_eq!(gateway.line().await["bytes_in"], 0);
}

#[tokio::test]
async fn an_open_breaker_answers_without_100() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).upstream("breaker: {mode: forced_open}").start().await;
    let mut caller = gateway.raw().await;
    caller.write(ASK).await;
    let head = caller.head().await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.to_lowercase().contains("seawall-problem: dependency-unavailable\r\n"), "{head}");
    assert!(arrivals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_body_that_announces_to_be_too_large_is_refused_without_100() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).route("max_body: 4B").start().await;
    let mut caller = gateway.raw().await;
    caller.write(ASK).await;
    let head = caller.head().await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert!(arrivals.lock().unwrap().is_empty());
}
