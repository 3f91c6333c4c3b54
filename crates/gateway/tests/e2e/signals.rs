//! What answers tell callers about trying again: when, and whether at all.

use std::net::SocketAddr;

use http::Response;

use crate::support::*;

/// Always the same answer, with these fields.
async fn always(
    status: u16,
    fields: &'static [(&'static str, &'static str)],
) -> (SocketAddr, Arrivals) {
    Upstream::scripted(Protocol::Http1, move |_, _| with_fields(status, fields)).await
}

fn with_fields(status: u16, fields: &[(&'static str, &'static str)]) -> Response<Body> {
    let mut response = answer(status, "from upstream");
    for (name, value) in fields {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

#[tokio::test]
async fn each_reason_says_stop_or_does_not() {
    const NONE: &[(&str, &str)] = &[];
    const STOP: &[(&str, &str)] = &[("seawall-retry", "no")];
    const CODE: &[(&str, &str)] = &[("seawall-problem", "overloaded-do-not-retry")];
    const LATER: &[(&str, &str)] = &[("retry-after", "120")];
    let post = || post("/", full("x"));
    let get = || get("/");
    for (keys, route, request, status, fields, attempts, reason, stop) in [
        ("", "", get(), 200, NONE, 1, "answered", false),
        ("", "", get(), 404, NONE, 1, "not_retryable", false),
        ("", "", get(), 500, NONE, 1, "not_retryable", false),
        ("", "", get(), 503, NONE, 2, "exhausted", true),
        ("", "", get(), 429, NONE, 2, "exhausted", true),
        ("", "", post(), 502, NONE, 1, "not_retryable", true),
        ("", "", post(), 503, NONE, 1, "not_retryable", false),
        ("", "", get(), 503, STOP, 1, "told_to_stop", true),
        ("", "", get(), 503, CODE, 1, "told_to_stop", true),
        ("", "", get(), 503, LATER, 1, "told_to_stop", true),
        ("retry_budget: {initial: 0}", "", get(), 503, NONE, 1, "budget", true),
        ("retry: off", "", get(), 503, NONE, 1, "exhausted", true),
        ("", "retry_owner: caller", get(), 503, NONE, 1, "not_owner", false),
        ("", "retry_owner: caller", post(), 502, NONE, 1, "not_retryable", false),
        ("", "retry_owner: caller", get(), 503, STOP, 1, "told_to_stop", true),
    ] {
        let (upstream, arrivals) = always(status, fields).await;
        let mut setup = Setup::new(upstream);
        if !keys.is_empty() {
            setup = setup.upstream(keys);
        }
        if !route.is_empty() {
            setup = setup.route(route);
        }
        let gateway = setup.start().await;
        let answered = gateway.send(request).await;
        let what = format!("{keys} {route} {status} {fields:?}");
        assert_eq!(answered.status, status, "{what}");
        assert_eq!(answered.text(), "from upstream", "{what}");
        assert_eq!(answered.header("content-type"), None, "{what}");
        assert_eq!(answered.header("seawall-retry"), stop.then_some("no"), "{what}");
        assert_eq!(answered.header("seawall-attempts"), Some(&*attempts.to_string()), "{what}");
        let code = fields.iter().find(|(name, _)| *name == "seawall-problem");
        assert_eq!(answered.header("seawall-problem"), code.map(|(_, code)| *code), "{what}");
        assert_eq!(gateway.line().await["stop_reason"], reason, "{what}");
        assert_eq!(arrivals.lock().unwrap().len(), attempts, "{what}");
    }
}

#[tokio::test]
async fn an_answer_of_ours_says_what_happened_who_is_at_fault_and_what_was_sent() {
    let refusing = RawUpstream::refusing().await;
    for (owner, code, stop) in
        [("self", "dependency-unavailable", Some("no")), ("caller", "upstream-unreachable", None)]
    {
        let gateway = Setup::new(refusing).route(&format!("retry_owner: {owner}")).start().await;
        let answered = gateway.get("/").await;
        assert_eq!(answered.status, 503);
        assert_eq!(answered.header("seawall-problem"), Some(code));
        assert_eq!(answered.header("seawall-retry"), stop);
        assert!(answered.header("retry-after").is_some());
        let problem: serde_json::Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(problem["code"], code);
        assert_eq!(problem["source"], "upstream");
        assert_eq!(problem["sent"], "nothing");
        assert_eq!(problem["request_id"].as_str(), answered.header("x-request-id"));
        let line = gateway.line().await;
        assert_eq!(line["response_flags"], if owner == "self" { "UF,URX" } else { "UF" });
    }
}

#[tokio::test]
async fn a_retry_after_leaves_spread_out_unless_the_route_says_verbatim() {
    let (upstream, _) = always(503, &[("retry-after", "100")]).await;
    let jittered = Setup::new(upstream).upstream("breaker: off").start().await;
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let answered = jittered.get("/").await;
        let wait: u64 = answered.header("retry-after").unwrap().parse().unwrap();
        assert!((100..=111).contains(&wait), "never earlier than asked: {wait}");
        waits.insert(wait);
    }
    assert!(waits.len() > 1, "{waits:?}");
    let verbatim = Setup::new(upstream).route("retry_after: verbatim").start().await;
    for _ in 0..5 {
        assert_eq!(verbatim.get("/").await.header("retry-after"), Some("100"));
    }
}

#[tokio::test]
async fn of_two_retry_afters_the_longer_leaves_alone() {
    let (upstream, _) = always(503, &[("retry-after", "70"), ("retry-after", "90")]).await;
    let gateway = Setup::new(upstream).start().await;
    let answered = gateway.get("/").await;
    let wait: u64 = answered.header("retry-after").unwrap().parse().unwrap();
    assert!((90..=100).contains(&wait), "{wait}");
    assert_eq!(answered.header("seawall-attempts"), Some("1"));
}

#[tokio::test]
async fn a_retry_after_that_cannot_be_read_passes_and_is_counted() {
    let (upstream, _) = always(503, &[("retry-after", "banana")]).await;
    let gateway = Setup::new(upstream).upstream("retry: off").start().await;
    assert_eq!(gateway.get("/").await.header("retry-after"), Some("banana"));
    let labels = [("header", "retry_after"), ("reason", "malformed")];
    assert_eq!(gateway.metrics().await.count("seawall_ignored_headers_total", &labels), 1);
}

#[tokio::test]
async fn a_reserved_slot_is_waited_for_and_passed_on_as_it_is() {
    let (upstream, arrivals) =
        always(503, &[("seawall-slot-ms", "30"), ("retry-after", "1")]).await;
    let gateway = Setup::new(upstream).start().await;
    let answered = gateway.get("/").await;
    assert_eq!(arrivals.lock().unwrap().len(), 2);
    assert_eq!(answered.header("seawall-slot-ms"), Some("30"));
    assert_eq!(answered.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_chain_of_two_gateways_retries_at_one_layer() {
    let (bottom, arrivals) = always(503, &[]).await;
    let lower = Setup::new(bottom).trusted().start().await;
    let upper = Setup::new(lower.address).start().await;
    let answered = upper.get("/").await;
    assert_eq!((answered.status, answered.text().as_str()), (503, "from upstream"));
    assert_eq!(answered.header("seawall-retry"), Some("no"));
    assert_eq!(arrivals.lock().unwrap().len(), 2);
    assert_eq!(upper.line().await["stop_reason"], "told_to_stop");
    assert_eq!(lower.line().await["stop_reason"], "exhausted");
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals[1].header("x-retry-attempt"), Some("2"));
    assert_eq!(arrivals[0].headers.get_all("via").iter().count(), 2);
}
