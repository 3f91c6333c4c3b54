//! What answers mean where their status does not say it.

use http::Response;

use crate::support::*;

/// An answer in JSON.
fn json(status: u16, body: Body) -> Response<Body> {
    let mut response = answer(status, "");
    *response.body_mut() = body;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

const BUSY: &str = r#"{"error": {"code": 5031}, "text": "later"}"#;
const RULES: &str = "rules: [{name: busy, status: [2xx], body: {pointer: /error/code, \
                     equals: [5031]}, means: overloaded}, {headers: [{name: X-Error, \
                     exact: input}], means: rejected}]";
const QUICK: &str = "retry: {backoff: {base: 1ms, cap: 1ms}}, breaker: {min_calls: 5}";

#[tokio::test]
async fn an_answer_200_with_a_code_for_busy_is_retried_where_that_is_harmless() {
    for protocol in BOTH {
        let script =
            |before, _: &Arrival| json(200, full(if before % 2 == 0 { BUSY } else { "{}" }));
        let (upstream, arrivals) = Upstream::scripted(protocol, script).await;
        let setup = Setup::new(upstream).speaks(protocol).upstream(RULES).upstream(QUICK);
        let gateway = setup.start().await;
        let retried = gateway.get("/").await;
        assert_eq!((retried.status, retried.text().as_str()), (200, "{}"));
        assert_eq!(retried.header("seawall-attempts"), Some("2"));
        let not_repeated = gateway.send(post("/", full("x"))).await;
        assert_eq!((not_repeated.status, not_repeated.text().as_str()), (200, BUSY));
        assert_eq!(arrivals.lock().unwrap().len(), 3);
        let busy = [("upstream", "up"), ("rule", "busy")];
        let met = |metrics: &Metrics| metrics.count("seawall_rules_met_total", &busy) == 2;
        let metrics = gateway.until(met).await;
        let overloaded = [("upstream", "up"), ("class", "overloaded")];
        assert_eq!(metrics.count("seawall_outcomes_total", &overloaded), 2);
    }
}

#[tokio::test]
async fn codes_for_busy_open_the_breaker_and_a_flood_of_422_does_not() {
    let script = |_, arrival: &Arrival| match arrival.path.as_str() {
        "/busy" => json(200, full(BUSY)),
        _ => json(422, full(r#"{"error": {"code": 5031}}"#)),
    };
    let (upstream, _) = Upstream::scripted(Protocol::Http1, script).await;
    let gateway =
        Setup::new(upstream).upstream(RULES).upstream(QUICK).upstream("max_connections: 9");
    let gateway = gateway.start().await;
    for _ in 0..30 {
        assert_eq!(gateway.send(post("/wrong", full(""))).await.status, 422);
    }
    let mut opened = 0;
    for _ in 0..60 {
        opened += u32::from(gateway.send(post("/busy", full(""))).await.status == 503);
    }
    assert!(opened > 0, "half of the calls had failed by then");
    let refused = gateway.send(post("/wrong", full(""))).await;
    assert_eq!(refused.header("seawall-problem"), Some("dependency-unavailable"));
}

#[tokio::test]
async fn a_rule_makes_a_failure_of_the_callers_own_no_failure() {
    let script = |_, _: &Arrival| {
        let mut response = answer(503, "");
        response.headers_mut().insert("x-error", "input".parse().unwrap());
        response
    };
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, script).await;
    let gateway = Setup::new(upstream).upstream(RULES).upstream(QUICK).start().await;
    for _ in 0..10 {
        assert_eq!(gateway.get("/").await.header("x-error"), Some("input"));
    }
    assert_eq!(arrivals.lock().unwrap().len(), 10, "none was retried, and no breaker opened");
}

#[tokio::test]
async fn what_was_read_for_a_rule_goes_on_as_it_came() {
    for (caller, protocol) in PAIRS {
        let mut upstream = Upstream::start(protocol).await;
        let setup = Setup::new(upstream.address).speaks(protocol).upstream(RULES);
        let gateway = setup.start().await;
        for length in [0, 1, 65_536, 65_537, 300_000] {
            let (frames, body) = streamed();
            let sent = pattern(length);
            let (answered, ()) = tokio::join!(gateway.send_over(caller, get("/")), async {
                upstream.next().await.answer(json(200, body));
                for part in sent.chunks(10_000) {
                    frames.data(part.to_vec()).await;
                }
                let mut trailers = http::HeaderMap::new();
                trailers.insert("x-sum", "7".parse().unwrap());
                if protocol == Protocol::H2c {
                    frames.trailers(trailers).await;
                }
                drop(frames);
            });
            assert!(answered.body == sent, "{caller:?} {protocol:?} {length}");
            if (caller, protocol) == (Protocol::H2c, Protocol::H2c) {
                assert_eq!(answered.trailers.unwrap()["x-sum"], "7");
            }
        }
    }
}

#[tokio::test]
async fn a_slow_body_is_judged_without_and_one_that_breaks_off_is_a_failed_attempt() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let setup = Setup::new(upstream.address).upstream(RULES).upstream(QUICK);
    let gateway = setup.upstream("timeouts: {attempt: 400ms}").start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let (frames, body) = streamed();
    let (head, ()) = tokio::join!(caller.open(get("/")), async {
        upstream.next().await.answer(json(200, body));
        frames.data("{\"error\": ").await;
    });
    assert_eq!(head.status(), 200);
    let (whole, ()) = tokio::join!(Answer::read(head), async {
        frames.data("{\"code\": 5031}}").await;
        drop(frames);
    });
    assert_eq!(whole.text(), "{\"error\": {\"code\": 5031}}");
    assert_eq!(whole.header("seawall-attempts"), Some("1"));

    let (answered, ()) = tokio::join!(gateway.get("/"), async {
        let (frames, body) = streamed();
        upstream.next().await.answer(json(200, body));
        frames.data("{").await;
        frames.fail().await;
        upstream.next().await.answer(json(200, full("{}")));
    });
    assert_eq!(answered.text(), "{}");
    assert_eq!(answered.header("seawall-attempts"), Some("2"));
}
