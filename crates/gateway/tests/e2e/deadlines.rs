//! The caller's time, as it comes in and as it goes on.

use std::time::Duration;

use seawall::Clock;

use crate::support::*;

fn stating(path: &str, remaining: &str) -> http::Request<Body> {
    let mut request = get(path);
    request.headers_mut().insert("x-remaining-ms", remaining.parse().unwrap());
    request
}

#[tokio::test]
async fn what_is_sent_on_is_never_more_than_what_came_in() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).start().await;
    for (stated, most) in [("500", 495), ("5000", 4995), ("9999999999", 11_995)] {
        assert_eq!(gateway.send(stating("/", stated)).await.status, 200);
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        let sent: u64 = arrival.header("x-remaining-ms").unwrap().parse().unwrap();
        assert!(sent <= most && sent + 400 > most, "{stated}: {sent}");
        let line = gateway.line().await;
        assert!(line["remaining_budget_ms"].as_f64().unwrap() > 0.0);
    }
}

#[tokio::test]
async fn a_caller_without_time_is_refused_and_nothing_is_sent() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).start().await;
    for stated in ["0", "1", "5"] {
        let answered = gateway.send(stating("/", stated)).await;
        assert_eq!(answered.status, 504, "{stated}");
        assert_eq!(answered.header("seawall-problem"), Some("deadline-passed"));
        assert_eq!(answered.header("seawall-retry"), Some("no"));
        assert_eq!(answered.header("seawall-attempts"), Some("0"));
        let line = gateway.line().await;
        assert_eq!(
            (&line["stop_reason"], &line["cause"]),
            (&"deadline".into(), &"deadline_passed".into())
        );
        assert_eq!(line["response_flags"], "DL");
        assert_eq!(line["remaining_budget_ms"], 0.0);
    }
    assert!(arrivals.lock().unwrap().is_empty());
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_deadline_exceeded_before_send_total", &[]), 3);
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "deadline_passed")]), 3);
    assert_eq!(metrics.count("seawall_first_attempts_total", &[]), 0);
}

#[tokio::test]
async fn garbage_is_ignored_and_counted() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).start().await;
    for stated in ["", "-1", "1.5", "banana", "99999999999", "5s"] {
        assert_eq!(gateway.send(stating("/", stated)).await.status, 200, "{stated}");
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        let sent: u64 = arrival.header("x-remaining-ms").unwrap().parse().unwrap();
        assert!((11_000..=11_995).contains(&sent), "ours alone, less the way back: {sent}");
        assert_eq!(gateway.line().await["remaining_budget_ms"], serde_json::Value::Null);
    }
    let labels = [("header", "remaining"), ("reason", "malformed")];
    assert_eq!(gateway.metrics().await.count("seawall_ignored_headers_total", &labels), 6);
}

#[tokio::test]
async fn the_504_leaves_before_the_callers_time_is_over() {
    let clock = Clock::new();
    for protocol in BOTH {
        let mut upstream = Upstream::start(protocol).await;
        let gateway = Setup::new(upstream.address).speaks(protocol).start().await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let began = clock.now();
        let open = tokio::spawn(async move { caller.send(stating("/", "1000")).await });
        let mut call = upstream.next().await;
        let answered = within(open).await.unwrap();
        let took = clock.now().since(began);
        // Five milliseconds are kept back; a busy machine gets a little more.
        assert!(took < Duration::from_millis(1100), "{took:?}");
        let line = gateway.line().await;
        assert!(line["remaining_budget_ms"].as_f64().unwrap() < 5.0);
        assert_eq!(answered.status, 504);
        assert_eq!(answered.header("seawall-problem"), Some("deadline-passed"));
        assert_eq!(answered.header("seawall-attempts"), Some("1"));
        assert_eq!(line["cause"], "deadline_cut");
        assert_eq!(line["completion_reason"], "timeout");
        let problem: serde_json::Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(problem["sent"], "maybe");
        let causes = gateway.metrics().await;
        assert_eq!(causes.count("seawall_causes_total", &[("cause", "deadline_cut")]), 1);
        if protocol == Protocol::H2c {
            call.left().await;
        }
    }
}

#[tokio::test]
async fn a_stranger_states_no_deadline() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).listener("trust_loopback_deadline: false").start().await;
    assert_eq!(gateway.send(stating("/", "0")).await.status, 200);
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    let sent: u64 = arrival.header("x-remaining-ms").unwrap().parse().unwrap();
    assert!((11_000..=11_995).contains(&sent), "{sent}");
    let labels = [("header", "remaining"), ("reason", "untrusted")];
    assert_eq!(gateway.metrics().await.count("seawall_ignored_headers_total", &labels), 1);
}

#[tokio::test]
async fn a_retry_that_would_come_too_late_is_not_made() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| {
        let mut response = answer(503, "");
        response.headers_mut().insert("retry-after", "1".parse().unwrap());
        response
    })
    .await;
    let gateway = Setup::new(upstream).start().await;
    let answered = gateway.send(stating("/", "900")).await;
    assert_eq!(answered.status, 503);
    assert_eq!(answered.header("seawall-retry"), Some("no"));
    assert_eq!(gateway.line().await["stop_reason"], "deadline");
    assert_eq!(arrivals.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_attempt_whose_time_is_up_while_it_connects_was_not_sent() {
    // The peer takes the connection and never says that it speaks HTTP/2.
    let mute = RawUpstream::bind().await;
    for checkout in ["100ms", "30ms"] {
        let gateway = Setup::new(mute.address)
            .speaks(Protocol::H2c)
            .upstream(&format!(
                "timeouts: {{connect: 100ms, attempt: 100ms, checkout: {checkout}}}"
            ))
            .upstream("retry: {redispatches: 0}")
            .start()
            .await;
        // Not to be repeated, and repeated all the same.
        let answered = gateway.send(post("/", full("once"))).await;
        assert_eq!(answered.status, 503, "{checkout}");
        assert_eq!(answered.header("seawall-attempts"), Some("2"));
        let line = gateway.line().await;
        assert_eq!(line["cause"], "connect_timeout", "{checkout}");
        let metrics = gateway.metrics().await;
        let timeouts = metrics.count("seawall_causes_total", &[("cause", "connect_timeout")]);
        assert_eq!((timeouts, metrics.count("seawall_causes_total", &[])), (2, 2));
        assert_eq!(metrics.count("seawall_abandoned_total", &[]), 0);
    }
}

#[tokio::test]
async fn an_attempt_whose_time_is_up_in_the_line_for_a_connection_is_a_checkout_timeout() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("timeouts: {connect: 100ms, attempt: 200ms, checkout: 200ms}")
        .upstream("max_connections: 1, bulkhead: {limit: 2}, retry: off")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let (down, body) = streamed();
    let open = tokio::spawn(async move { (caller.open(get("/")).await, caller) });
    upstream.next().await.answer(http::Response::new(body));
    let _flows = within(open).await.unwrap();
    let answered = gateway.get("/").await;
    assert_eq!(answered.header("seawall-problem"), Some("checkout-timeout"));
    assert_eq!(gateway.line().await["cause"], "checkout_timeout");
    drop(down);
}

#[tokio::test]
async fn a_callers_haste_while_it_connects_is_its_own() {
    let mute = RawUpstream::bind().await;
    // Also where the call's time ends in the same moment as ours for a connection.
    for (total, checkout) in [("50ms", "1s"), ("50ms", "50ms")] {
        let gateway = Setup::new(mute.address)
            .speaks(Protocol::H2c)
            .upstream(&format!("timeouts: {{checkout: {checkout}}}"))
            .route(&format!("path_prefix: /, total: {total}"))
            .start()
            .await;
        assert_eq!(gateway.get("/").await.status, 504);
        let line = gateway.line().await;
        assert_eq!(
            (&line["cause"], &line["stop_reason"]),
            (&"deadline_passed".into(), &"deadline".into())
        );
    }
}
