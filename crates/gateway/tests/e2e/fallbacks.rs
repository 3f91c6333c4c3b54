//! Static answers in place of failures, and what they are not: successes.

use crate::support::*;

const BODY: &str = "status: 203, content_type: text/plain, body: instead";

#[tokio::test]
async fn a_fallback_stands_in_for_what_it_names_and_for_nothing_else() {
    for (on, status, stands_in) in [
        ("failure", 503, true),
        ("failure", 502, true),
        ("failure", 504, true),
        ("failure", 200, false),
        ("failure", 404, false),
        ("failure", 429, false),
        ("failure", 500, false),
        ("exhausted", 503, true),
        ("budget", 503, false),
        ("404", 404, true),
        ("404", 503, false),
        ("429", 429, true),
    ] {
        let (upstream, _) =
            Upstream::scripted(Protocol::Http1, move |_, _| answer(status, "upstream")).await;
        let gateway =
            Setup::new(upstream).route(&format!("fallback: {{on: [{on}], {BODY}}}")).start().await;
        let answered = gateway.get("/").await;
        let line = gateway.line().await;
        let what = format!("{on} {status}");
        if !stands_in {
            assert_eq!((answered.status, answered.text().as_str()), (status, "upstream"), "{what}");
            assert_eq!(answered.header("seawall-degraded"), None);
            assert_eq!(line["degraded"], false);
            continue;
        }
        assert_eq!((answered.status, answered.text().as_str()), (203, "instead"), "{what}");
        assert_eq!(answered.header("content-type"), Some("text/plain"));
        let reason = line["stop_reason"].as_str().unwrap();
        assert_eq!(answered.header("seawall-degraded"), Some(reason));
        assert_eq!(answered.header("seawall-retry"), None);
        assert_eq!(line["degraded"], true);
        assert_eq!(line["completion_reason"], "fallback");
        assert!(line["response_flags"].as_str().unwrap().contains("FB"));
        assert_eq!(gateway.metrics().await.count("seawall_degraded_total", &[("route", "/")]), 1);
    }
}

#[tokio::test]
async fn refusals_and_lost_connections_are_failures_too() {
    let refusing = RawUpstream::refusing().await;
    for keys in ["breaker: {mode: forced_open}", "retry: off"] {
        let gateway = Setup::new(refusing)
            .upstream(keys)
            .route(&format!("fallback: {{on: [failure], {BODY}}}"))
            .start()
            .await;
        assert_eq!(gateway.get("/").await.text(), "instead");
    }
    let gateway = Setup::new(refusing)
        .upstream("breaker: {mode: forced_open}")
        .route(&format!("fallback: {{on: [breaker_open], {BODY}}}"))
        .start()
        .await;
    assert_eq!(gateway.get("/").await.header("seawall-degraded"), Some("breaker_open"));
}

#[tokio::test]
async fn a_fallback_is_no_success_for_the_breaker_and_keeps_the_connection() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::Http1, |_, _| answer(503, pattern(10_000))).await;
    let gateway = Setup::new(upstream)
        .upstream("retry: off, breaker: {min_calls: 5, open: {base: 1m, cap: 1m}}")
        .route(&format!("fallback: {{on: [failure], {BODY}}}"))
        .start()
        .await;
    for _ in 0..10 {
        assert_eq!(gateway.get("/").await.text(), "instead");
        gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 5, "then the breaker opened");
    assert!(arrivals.iter().all(|arrival| arrival.connection == 0));
}
