//! What may be sent to an upstream in a time: in all, and of each key.

use http::Request;

use crate::support::*;

fn from_account(account: &str) -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert("x-account", account.parse().unwrap());
    request
}

#[tokio::test]
async fn what_is_beyond_the_rate_is_refused_here_with_the_time_to_come_back() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).upstream("rate: {limit: 2/h, burst: 2}").start().await;
    assert_eq!(gateway.metrics().await.count("seawall_rate_available", &[]), 2);
    for _ in 0..2 {
        assert_eq!(gateway.get("/").await.status, 200);
        gateway.line().await;
    }
    let refused = gateway.get("/").await;
    assert_eq!((refused.status, refused.header("seawall-problem")), (503, Some("rate-limited")));
    assert_eq!(refused.header("ratelimit"), None, "it is nobody's share");
    assert_eq!(refused.header("seawall-retry"), None);
    assert_eq!(refused.header("seawall-attempts"), Some("0"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1795..=1981).contains(&wait), "half an hour and up to a tenth: {wait}");
    let line = gateway.line().await;
    assert_eq!(
        (&line["stop_reason"], &line["response_flags"]),
        (&"rate_limited".into(), &"RL".into())
    );
    assert_eq!(arrivals.lock().unwrap().len(), 2);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_rate_available", &[]), 0);
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "rate_limited")]), 1);
}

#[tokio::test]
async fn retries_take_from_the_rate_too_and_one_beyond_it_hands_up_the_answer() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(503, "no")).await;
    let gateway = Setup::new(upstream)
        .upstream("rate: {limit: 1/h, burst: 2}, retry: {max_attempts: 5, backoff: {base: 1ms, cap: 1ms}}")
        .start()
        .await;
    let answered = gateway.get("/").await;
    assert_eq!((answered.status, answered.text().as_str()), (503, "no"));
    assert_eq!(answered.header("seawall-attempts"), Some("2"));
    assert_eq!(gateway.line().await["stop_reason"], "rate_limited");
    assert_eq!(arrivals.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn each_account_has_its_own_rate_and_those_without_a_name_share_one() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let keys = "rate: {per_key: {key: 'header:X-Account', limit: 1/h, burst: 1}}";
    let gateway = Setup::new(upstream).upstream(keys).start().await;
    for (account, status) in [("a", 200), ("a", 429), ("b", 200), ("b", 429), ("a", 429)] {
        let answered = gateway.send(from_account(account)).await;
        assert_eq!(answered.status, status, "{account}");
        if status == 429 {
            assert_eq!(answered.header("seawall-problem"), Some("quota-exceeded"));
            assert_eq!(answered.header("seawall-retry"), None);
            let seconds = answered.header("retry-after").unwrap();
            assert_eq!(answered.header("ratelimit-policy"), Some("\"key\";q=1;w=3600"));
            let left = format!("\"key\";r=0;t={seconds}");
            assert_eq!(answered.header("ratelimit"), Some(&*left));
        } else {
            assert_eq!(answered.header("ratelimit"), None);
        }
    }
    assert_eq!(gateway.get("/").await.status, 200);
    assert_eq!(gateway.get("/").await.status, 429, "nobody in particular is one, too");
    // What begins with the same 256 bytes is one.
    let long = "x".repeat(256);
    assert_eq!(gateway.send(from_account(&format!("{long}1"))).await.status, 200);
    assert_eq!(gateway.send(from_account(&format!("{long}2"))).await.status, 429);
    assert_eq!(arrivals.lock().unwrap().len(), 4);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_refused_total", &[("reason", "quota_exceeded")]), 5);
    assert_eq!(metrics.count("seawall_rate_keys_evicted_total", &[]), 0);
}

#[tokio::test]
async fn the_tenant_of_a_peer_that_is_not_trusted_is_nobody() {
    let tenant = |tenant: &str| {
        let mut request = get("/");
        request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
        request
    };
    for trusted in [false, true] {
        let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
        let keys = "rate: {per_key: {key: 'header:X-Tenant', limit: 1/h, burst: 1}}";
        let setup = Setup::new(upstream).upstream(keys);
        let gateway = if trusted { setup.trusted() } else { setup }.start().await;
        assert_eq!(gateway.send(tenant("a")).await.status, 200);
        let second = if trusted { 200 } else { 429 };
        assert_eq!(gateway.send(tenant("b")).await.status, second, "trusted: {trusted}");
    }
}

#[tokio::test]
async fn every_connection_of_a_peer_is_that_peer() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let keys = "rate: {per_key: {key: peer, limit: 1/h, burst: 2}}";
    let gateway = Setup::new(upstream).upstream(keys).start().await;
    for status in [200, 200, 429, 429] {
        assert_eq!(gateway.get("/").await.status, status);
    }
}
