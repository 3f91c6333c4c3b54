//! Work whose caller left, or no longer waits.

use std::time::Duration;

use seawall::Clock;

use crate::support::*;

/// Opens a request and leaves once the upstream has it.
async fn abandon(gateway: &Gateway, upstream: &mut Upstream, from: Protocol) -> Call {
    let mut caller = gateway.caller(from).await;
    let open = tokio::spawn(async move { caller.try_open(get("/")).await });
    let call = upstream.next().await;
    open.abort();
    assert!(within(open).await.is_err());
    let line = gateway.line().await;
    assert_eq!(line["completion_reason"], "caller_left");
    assert_eq!(line["stop_reason"], "caller_left");
    assert_eq!(line["status"], serde_json::Value::Null);
    assert_eq!(line["attempts"], 1);
    assert!(line["endpoint"].is_string());
    assert!(line["execution_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(line["response_flags"], "DC");
    call
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_of_an_answer_ends_it() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move { (caller.open(get("/")).await, caller) });
        let (down, body) = streamed();
        upstream.next().await.answer(http::Response::new(body));
        let (response, caller) = within(open).await.unwrap();
        down.data("half").await;
        gateway.until(|metrics| in_flight(metrics) == 1).await;
        drop((response, caller));
        down.closed().await;
        let line = gateway.line().await;
        assert_eq!(line["completion_reason"], "caller_left", "{from:?} {to:?}");
        assert_eq!((&line["status"], &line["stop_reason"]), (&200.into(), &"answered".into()));
        gateway.until(|metrics| in_flight(metrics) == 0).await;
    }
}

fn in_flight(metrics: &Metrics) -> u64 {
    metrics.count("seawall_bulkhead_in_flight", &[])
}

/// Attempts nobody waited for, and those that still go on.
fn abandoned(metrics: &Metrics) -> (u64, u64) {
    let total = metrics.count("seawall_abandoned_total", &[]);
    (total, metrics.count("seawall_abandoned_in_flight", &[]))
}

#[tokio::test]
async fn over_http_1_the_call_runs_on_and_is_recorded_at_its_real_end() {
    for from in BOTH {
        let mut upstream = Upstream::start(Protocol::Http1).await;
        let gateway = Setup::new(upstream.address).start().await;
        let call = abandon(&gateway, &mut upstream, from).await;
        let metrics = gateway.until(|metrics| abandoned(metrics) == (1, 1)).await;
        assert_eq!(in_flight(&metrics), 1, "the slot stays with the call");
        let view = gateway.admin(http::Method::GET, "/upstreams", "").await.text();
        let view: serde_json::Value = serde_json::from_str(&view).unwrap();
        assert_eq!(view[0]["abandoned"], 1, "{view}");
        assert_eq!(metrics.count("seawall_outcomes_total", &[]), 0);
        call.answer(answer(200, "for nobody"));
        let metrics = gateway.until(|metrics| in_flight(metrics) == 0).await;
        assert_eq!(metrics.count("seawall_outcomes_total", &[("class", "success")]), 1);
        assert_eq!(metrics.count("seawall_stop_reasons_total", &[("reason", "caller_left")]), 1);
        assert_eq!(metrics.count("seawall_requests_total", &[("code_class", "none")]), 1);
        assert_eq!(abandoned(&metrics), (1, 0));
        // Its connection serves again.
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move { caller.send(get("/")).await });
        let call = upstream.next().await;
        assert_eq!(call.connection, 0);
        call.answer(answer(200, ""));
        within(open).await.unwrap();
    }
}

#[tokio::test]
async fn over_http_2_the_call_is_reset_and_counted() {
    for from in BOTH {
        let mut upstream = Upstream::start(Protocol::H2c).await;
        let gateway = Setup::new(upstream.address).speaks(Protocol::H2c).start().await;
        let mut call = abandon(&gateway, &mut upstream, from).await;
        call.left().await;
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "caller_left")]), 1);
        assert_eq!(metrics.count("seawall_abandoned_total", &[("upstream", "up")]), 1);
        gateway.until(|metrics| in_flight(metrics) == 0).await;
    }
}

#[tokio::test]
async fn a_reset_reaches_the_upstream_within_50_ms_of_the_callers_leaving() {
    let clock = Clock::new();
    for from in BOTH {
        let upstream = RawUpstream::bind().await;
        let gateway = Setup::new(upstream.address).speaks(Protocol::H2c).start().await;
        let mut best = Duration::MAX;
        // The shortest of a few: how late a busy machine lets anyone run is not ours.
        for try_ in 0..5 {
            let mut caller = gateway.caller(from).await;
            let open = tokio::spawn(async move { caller.try_open(get("/")).await });
            let mut conn = upstream.accept().await;
            let stream = conn.h2_request().await;
            let left = clock.now();
            open.abort();
            let (reset, reason) = conn.h2_reset().await;
            best = best.min(clock.now().since(left));
            assert_eq!((reset, reason), (stream, CANCEL), "{from:?} {try_}");
            drop(conn);
            assert_eq!(gateway.line().await["completion_reason"], "caller_left");
        }
        assert!(best <= Duration::from_millis(50), "{from:?}: {best:?}");
    }
}

/// Whatever the protocols, and said of gRPC too; ten times what it may take, for a busy machine.
#[tokio::test]
async fn on_abandon_cancel_ends_the_call_at_the_upstream_and_says_why() {
    let clock = Clock::new();
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let setup = Setup::new(upstream.address).speaks(to).upstream("on_abandon: cancel");
        let gateway = setup.start().await;
        let mut caller = gateway.caller(from).await;
        let open = tokio::spawn(async move { caller.try_open(get("/")).await });
        let mut call = upstream.next().await;
        let left = clock.now();
        open.abort();
        call.left().await;
        let took = clock.now().since(left);
        assert!(took <= Duration::from_millis(500), "{from:?} {to:?}: {took:?}");
        let line = gateway.line().await;
        assert_eq!(line["completion_reason"], "caller_left", "{from:?} {to:?}");
        assert_eq!((&line["stop_reason"], &line["attempts"]), (&"caller_left".into(), &1.into()));
        assert_eq!(line["response_flags"], "DC");
        let metrics = gateway.until(|metrics| abandoned(metrics) == (1, 0)).await;
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "caller_left")]), 1);
        assert_eq!(metrics.count("seawall_causes_total", &[]), 1, "{from:?} {to:?}");
        assert_eq!(metrics.count("seawall_outcomes_total", &[("class", "cancelled")]), 1);
        assert_eq!(metrics.count("seawall_breaker_transitions_total", &[]), 0);
    }
}

#[tokio::test]
async fn a_grpc_call_that_is_cancelled_is_reset_at_the_upstream_with_that_reason() {
    let clock = Clock::new();
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).speaks(Protocol::H2c).start().await;
    let mut caller = gateway.caller(Protocol::H2c).await;
    let request = crate::grpc::unary("/t.T/Do");
    let open = tokio::spawn(async move { caller.try_open(request).await });
    let mut conn = upstream.accept().await;
    let stream = conn.h2_request().await;
    let left = clock.now();
    open.abort();
    assert_eq!(conn.h2_reset().await, (stream, CANCEL));
    let took = clock.now().since(left);
    assert!(took <= Duration::from_millis(500), "{took:?}");
    let line = gateway.line().await;
    assert_eq!(
        (&line["completion_reason"], &line["stop_reason"]),
        (&"caller_left".into(), &"caller_left".into())
    );
    assert_eq!(line["grpc_status"], serde_json::Value::Null);
}

/// Source: RFC 9113, section 7.
const CANCEL: u32 = 8;

#[tokio::test]
async fn an_upload_that_is_incomplete_is_cut() {
    for (from, to) in PAIRS {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address).speaks(to).start().await;
        let mut caller = gateway.caller(from).await;
        let (up, body) = streamed();
        let open = tokio::spawn(async move { caller.try_open(post("/", body)).await });
        up.data("half").await;
        let mut call = upstream.next().await;
        let frame = within(http_body_util::BodyExt::frame(call.request.body_mut())).await;
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "half");
        open.abort();
        let _ = within(open).await;
        let broken = within(http_body_util::BodyExt::frame(call.request.body_mut())).await;
        assert!(broken.unwrap().is_err(), "{from:?} {to:?}");
        assert_eq!(gateway.line().await["completion_reason"], "caller_left");
        drop(up);
    }
}

#[tokio::test]
async fn an_attempt_lost_with_half_an_upload_is_cut_and_not_sent_again_in_part() {
    for to in BOTH {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("retry: {backoff: {base: 200ms, jitter: none}}")
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let (up, body) = streamed();
        let mut request = post("/", body);
        request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        let open = tokio::spawn(async move { caller.send(request).await });
        up.data("first ").await;
        let (mut cut, reply) = upstream.next().await.split();
        let mut frame = within(http_body_util::BodyExt::frame(&mut cut)).await;
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "first ");
        drop(reply);
        gateway.until(|metrics| in_flight(metrics) == 0).await;
        // More than is kept, during the wait: nobody may take it from the second attempt.
        up.data(pattern(100_000)).await;
        frame = within(http_body_util::BodyExt::frame(&mut cut)).await;
        assert!(frame.is_none_or(|frame| frame.is_err()), "{to:?}");
        drop(up);
        let (arrival, reply) = upstream.next().await.read().await;
        assert!(arrival.body[..6] == *b"first " && arrival.body[6..] == pattern(100_000));
        reply.answer(answer(200, ""));
        assert_eq!(within(open).await.unwrap().header("seawall-attempts"), Some("2"));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "status")]), 1);
    }
}

#[tokio::test]
async fn an_attempt_whose_callers_time_is_up_does_not_run_on_with_half_an_upload() {
    for to in BOTH {
        let mut upstream = Upstream::start(to).await;
        let gateway = Setup::new(upstream.address)
            .speaks(to)
            .upstream("timeouts: {attempt: 50ms, total: 5s, connect: 50ms, checkout: 50ms}")
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::H2c).await;
        let (up, body) = streamed();
        let mut request = post("/", body);
        request.headers_mut().insert("x-remaining-ms", "300".parse().unwrap());
        let open = tokio::spawn(async move { (caller.send(request).await, caller) });
        up.data("half").await;
        let (mut request, _reply) = upstream.next().await.split();
        let _ = within(http_body_util::BodyExt::frame(&mut request)).await.unwrap().unwrap();
        let (answered, _caller) = within(open).await.unwrap();
        assert_eq!(answered.status, 504);
        assert_eq!(answered.header("seawall-problem"), Some("deadline-passed"));
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_causes_total", &[("cause", "deadline_cut")]), 1);
        let cut = within(http_body_util::BodyExt::frame(&mut request)).await;
        assert!(cut.unwrap().is_err(), "{to:?}");
        gateway.until(|metrics| in_flight(metrics) == 0).await;
    }
}

#[tokio::test]
async fn an_attempt_that_timed_out_over_http_1_holds_its_slot_until_its_real_end() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .upstream("timeouts: {attempt: 2s, total: 5s}, retry: off, breaker: off")
        .upstream("bulkhead: {limit: 1, wait: 1ms}")
        .route("path_prefix: /, total: 100ms")
        .start()
        .await;
    let answered = tokio::spawn({
        let mut caller = gateway.caller(Protocol::Http1).await;
        async move { caller.send(get("/")).await }
    });
    let call = upstream.next().await;
    assert_eq!(within(answered).await.unwrap().status, 504);
    let metrics = gateway.until(|metrics| abandoned(metrics) == (1, 1)).await;
    assert_eq!(in_flight(&metrics), 1);
    let refused = gateway.get("/").await;
    assert_eq!(refused.header("seawall-problem"), Some("overloaded"));
    call.answer(answer(200, ""));
    let metrics = gateway.until(|metrics| in_flight(metrics) == 0).await;
    assert_eq!(abandoned(&metrics), (1, 0));
    assert!(!upstream.has_another());
}

#[tokio::test]
async fn finish_and_cancel_can_be_chosen() {
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let gateway = Setup::new(upstream.address)
        .speaks(Protocol::H2c)
        .upstream("on_abandon: finish")
        .start()
        .await;
    let call = abandon(&gateway, &mut upstream, Protocol::Http1).await;
    call.answer(answer(200, ""));
    let success =
        |metrics: &Metrics| metrics.count("seawall_outcomes_total", &[("class", "success")]);
    gateway.until(|metrics| success(metrics) == 1 && in_flight(metrics) == 0).await;

    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address).upstream("on_abandon: cancel").start().await;
    let mut call = abandon(&gateway, &mut upstream, Protocol::Http1).await;
    call.left().await;
}

#[tokio::test]
async fn the_line_names_the_endpoint_that_answered_and_not_one_that_did_so_too_late() {
    let mut ends = [Upstream::start(Protocol::Http1).await, Upstream::start(Protocol::Http1).await];
    let gateway = Setup::new(ends[0].address)
        .endpoint(ends[1].address)
        .upstream("timeouts: {connect: 100ms, attempt: 200ms}, retry: {backoff: {base: 1ms}}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let open = tokio::spawn(async move { caller.open(get("/")).await });
    let [one, other] = &mut ends;
    let (late, (answers, address)) = tokio::select! {
        call = one.next() => (call, (other.next().await, other.address)),
        call = other.next() => (call, (one.next().await, one.address)),
    };
    let (down, body) = streamed();
    answers.answer(http::Response::new(body));
    let answer_of_other = within(open).await.unwrap();
    // It ran on, and its connection is free again.
    late.answer(answer(200, "for nobody"));
    let idle = [("state", "idle")];
    gateway.until(|metrics| metrics.count("seawall_pool_connections", &idle) == 1).await;
    drop(down);
    assert_eq!(Answer::read(answer_of_other).await.status, 200);
    let line = gateway.line().await;
    assert_eq!((&line["attempts"], &line["endpoint"]), (&2.into(), &address.to_string().into()));
}
