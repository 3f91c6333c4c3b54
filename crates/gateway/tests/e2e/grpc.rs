//! gRPC: trailers, times, statuses and pushbacks, both ways.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use seawall::Clock;

use crate::reloads::Place;
use crate::support::*;

/// A request with this message.
pub(crate) fn call(path: &str, body: Body) -> Request<Body> {
    let mut request = post(path, body);
    let fields = request.headers_mut();
    fields.insert("content-type", HeaderValue::from_static("application/grpc+proto"));
    fields.insert("te", HeaderValue::from_static("trailers"));
    request
}

pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// A message as it is framed.
pub(crate) fn message(bytes: &[u8]) -> Bytes {
    let length = u32::try_from(bytes.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], bytes].concat().into()
}

pub(crate) fn unary(path: &str) -> Request<Body> {
    call(path, full(message(b"ask")))
}

pub(crate) fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), value.parse().unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// A head as every gRPC answer has it.
pub(crate) fn opened(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.headers_mut() = fields(&[("content-type", "application/grpc+proto")]);
    response
}

/// An answer that is all head.
pub(crate) fn trailers_only(status: &str, more: &[(&'static str, &str)]) -> Response<Body> {
    let mut response = opened(full(""));
    response.headers_mut().insert("grpc-status", status.parse().unwrap());
    response.headers_mut().extend(fields(more));
    response
}

/// An answer of one message and these trailers.
pub(crate) fn answered(trailers: HeaderMap) -> Response<Body> {
    let body = http_body_util::Full::new(message(b"told"));
    let body = body.with_trailers(async move { Some(Ok(trailers)) });
    opened(body.map_err(|never| match never {}).boxed_unsync())
}

fn setup(upstream: std::net::SocketAddr) -> Setup {
    Setup::new(upstream).speaks(Protocol::H2c)
}

/// One call through the gateway.
async fn ask(gateway: &Gateway, request: Request<Body>) -> Answer {
    gateway.send_over(Protocol::H2c, request).await
}

/// The status a caller reads, wherever it stands.
#[track_caller]
pub(crate) fn status(answer: &Answer) -> &str {
    assert_eq!(answer.status, 200);
    let head = answer.headers.get("grpc-status");
    let trailers = answer.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    assert!(head.is_none() || trailers.is_none(), "one status");
    head.or(trailers).expect("a status").to_str().unwrap()
}

#[tokio::test]
async fn trailers_pass_both_ways_byte_for_byte() {
    let said = fields(&[
        ("grpc-status", "0"),
        ("grpc-message", "all%20well"),
        ("details-bin", "AAEC/w"),
        ("x-cost", "7"),
    ]);
    let reply = said.clone();
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, move |_, _| answered(reply.clone())).await;
    let gateway = setup(upstream).start().await;
    let sent = fields(&[("x-checksum", "abc"), ("more-bin", "/w==")]);
    let trailers = sent.clone();
    let body = http_body_util::Full::new(message(b"ask"));
    let body = body.with_trailers(async move { Some(Ok(trailers)) });
    let request = call("/t.T/Do", body.map_err(|never| match never {}).boxed_unsync());
    let answer = ask(&gateway, with(request, "key-bin", "AQID")).await;
    assert_eq!(answer.body, message(b"told"));
    assert_eq!(answer.trailers, Some(said));
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    assert_eq!(arrival.trailers, Some(sent));
    assert_eq!(arrival.header("key-bin"), Some("AQID"));
    assert_eq!(arrival.header("te"), Some("trailers"));
    assert_eq!(arrival.header("grpc-timeout"), None, "nobody stated one");
    assert_eq!(arrival.header("grpc-previous-rpc-attempts"), None);
    assert_eq!(gateway.line().await["grpc_status"], 0);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_grpc_responses_total", &[("code", "ok")]), 1);
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "grpc")]), 1);
    assert_eq!(metrics.count("seawall_outcomes_total", &[("class", "success")]), 1);
}

fn micros(timeout: &str) -> u64 {
    let (number, unit) = timeout.split_at(timeout.len() - 1);
    let number: u64 = number.parse().unwrap();
    number * [("u", 1), ("m", 1_000), ("S", 1_000_000)].iter().find(|it| it.0 == unit).unwrap().1
}

#[tokio::test]
async fn a_stated_timeout_goes_on_smaller_and_ours_only_to_calls_that_do_not_stream() {
    let ok = fields(&[("grpc-status", "0")]);
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, move |_, _| answered(ok.clone())).await;
    let gateway = setup(upstream)
        .route("path_prefix: /auto.T")
        .route("path_prefix: /unary.T, grpc: {streaming: false}")
        .start()
        .await;
    for (path, stated, most, least) in [
        ("/auto.T/Do", Some("2S"), 1_995_000, 1_000_000),
        ("/auto.T/Do", Some("1H"), 3_599_995_000, 3_590_000_000),
        ("/auto.T/Do", Some("300m"), 295_000, 1),
        ("/unary.T/Do", Some("2S"), 1_995_000, 1_000_000),
        ("/unary.T/Do", Some("1H"), 11_995_000, 11_000_000),
        ("/unary.T/Do", None, 11_995_000, 11_000_000),
    ] {
        let request = match stated {
            Some(stated) => with(unary(path), "grpc-timeout", stated),
            None => unary(path),
        };
        assert_eq!(status(&ask(&gateway, request).await), "0");
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        let sent = micros(arrival.header("grpc-timeout").unwrap());
        assert!((least..=most).contains(&sent), "{path} {stated:?}: {sent}");
    }
}

#[tokio::test]
async fn a_timeout_that_cannot_be_read_or_trusted_is_ignored_and_counted() {
    let ok = fields(&[("grpc-status", "0")]);
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, move |_, _| answered(ok.clone())).await;
    let gateway = setup(upstream).start().await;
    for garbage in ["banana", "1", "m", "100000000m", "1.5S", "-1S", "1s"] {
        let answer = ask(&gateway, with(unary("/t.T/Do"), "grpc-timeout", garbage)).await;
        assert_eq!(status(&answer), "0", "{garbage}");
        let arrival = arrivals.lock().unwrap().pop().unwrap();
        assert_eq!(arrival.header("grpc-timeout"), None, "{garbage}");
    }
    let ignored = |because| [("header", "grpc_timeout"), ("reason", because)];
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_ignored_headers_total", &ignored("malformed")), 7);

    let wary = setup(upstream).listener("trust_loopback_deadline: false").start().await;
    let request = with(unary("/t.T/Do"), "grpc-timeout", "1m");
    let request = with(request, "grpc-previous-rpc-attempts", "3");
    assert_eq!(status(&ask(&wary, request).await), "0");
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    assert_eq!(arrival.header("grpc-timeout"), None);
    assert_eq!(arrival.header("grpc-previous-rpc-attempts"), None);
    let metrics = wary.metrics().await;
    assert_eq!(metrics.count("seawall_ignored_headers_total", &ignored("untrusted")), 1);
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_told_so_in_grpc_and_sends_nothing() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, |_, _| trailers_only("0", &[])).await;
    let gateway = setup(upstream).start().await;
    let answer = ask(&gateway, with(unary("/t.T/Do"), "grpc-timeout", "3m")).await;
    assert_eq!(status(&answer), "4");
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert_eq!(answer.header("grpc-message"), Some("no answer before the deadline"));
    assert_eq!(answer.header("grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(answer.header("seawall-problem"), Some("deadline-passed"));
    assert!(answer.body.is_empty() && answer.trailers.is_none());
    assert!(arrivals.lock().unwrap().is_empty());
    let line = gateway.line().await;
    assert_eq!((&line["status"], &line["grpc_status"]), (&200.into(), &4.into()));
}

/// How many attempts a call cost whose upstream is unavailable but for the last.
async fn attempts(route: &str, request: Request<Body>, code: &'static str) -> (usize, Answer) {
    let (upstream, arrivals) = Upstream::scripted(Protocol::H2c, move |n, _| match n {
        0 => trailers_only(code, &[("grpc-message", "busy"), ("detail-bin", "AQ")]),
        _ => answered(fields(&[("grpc-status", "0")])),
    })
    .await;
    let gateway = setup(upstream)
        .upstream("retry: {backoff: {base: 1ms, cap: 1ms}}")
        .route(&format!("path_prefix: /{route}"))
        .start()
        .await;
    let answer = ask(&gateway, request).await;
    let arrivals = arrivals.lock().unwrap();
    let earlier: Vec<_> =
        arrivals.iter().map(|it| it.header("grpc-previous-rpc-attempts")).collect();
    assert_eq!(earlier, [None, Some("1")][..arrivals.len()]);
    (arrivals.len(), answer)
}

#[tokio::test]
async fn a_status_in_the_head_is_tried_again_where_the_route_or_a_key_allows_it() {
    let keyed = || with(unary("/t.T/Do"), "idempotency-key", "k1");
    let plain = || unary("/t.T/Do");
    for (route, request, code, expected) in [
        ("", plain(), "14", 1),
        ("", keyed(), "14", 2),
        (", grpc: {idempotent: true}", plain(), "14", 2),
        (", grpc: {idempotent: true}", plain(), "8", 2),
        (", grpc: {idempotent: true}", plain(), "4", 2),
        (", grpc: {idempotent: true}", plain(), "13", 1),
        (", grpc: {idempotent: true}", plain(), "99", 1),
        (", grpc: {retry_on: [INTERNAL]}", plain(), "13", 2),
        (", grpc: {retry_on: [internal]}", plain(), "14", 1),
    ] {
        let (made, answer) = attempts(route, request, code).await;
        assert_eq!(made, expected, "{route:?} {code}");
        if made == 2 {
            assert_eq!(status(&answer), "0", "{route:?} {code}");
            continue;
        }
        assert_eq!(status(&answer), code);
        assert_eq!(answer.header("grpc-message"), Some("busy"));
        assert_eq!(answer.header("detail-bin"), Some("AQ"));
        assert!(answer.body.is_empty() && answer.trailers.is_none(), "still all head");
    }
}

#[tokio::test]
async fn a_rejected_token_is_read_again_where_the_status_is_in_the_head() {
    let place = Place::new();
    let file = place.at("token");
    std::fs::write(&file, "old").unwrap();
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, |_, arrival| match arrival.header("authorization") {
            Some("Bearer new") => answered(fields(&[("grpc-status", "0")])),
            _ => trailers_only("16", &[]),
        })
        .await;
    let keys = format!("credentials: {{file: '{}'}}", file.display());
    let gateway = setup(upstream).upstream(&keys).start().await;
    std::fs::write(&file, "new").unwrap();
    let answer = ask(&gateway, unary("/orders.Orders/Put")).await;
    assert_eq!((status(&answer), arrivals.lock().unwrap().len()), ("0", 2));
}

#[tokio::test]
async fn a_pushback_is_kept_and_a_negative_one_ends_the_call() {
    let clock = Clock::new();
    for (said, attempts) in [("0", 2), ("120", 2), ("-1", 1), ("soon", 1)] {
        let (upstream, arrivals) = Upstream::scripted(Protocol::H2c, move |n, _| match n {
            0 => trailers_only("14", &[("grpc-retry-pushback-ms", said)]),
            _ => answered(fields(&[("grpc-status", "0")])),
        })
        .await;
        let gateway = setup(upstream)
            .upstream("retry: {backoff: {base: 5s, cap: 5s, jitter: none}}")
            .route("path_prefix: /, grpc: {idempotent: true}")
            .start()
            .await;
        let began = clock.now();
        let answer = ask(&gateway, unary("/t.T/Do")).await;
        let took = clock.now().since(began);
        assert_eq!(arrivals.lock().unwrap().len(), attempts, "{said}");
        if let Ok(wait) = said.parse::<u64>() {
            assert_eq!(status(&answer), "0");
            assert!(took >= Duration::from_millis(wait) && took < Duration::from_secs(4));
        } else {
            assert_eq!(status(&answer), "14");
            // It passes on what was said, and says it itself: this hop was told to stop.
            assert_eq!(answer.header("grpc-retry-pushback-ms"), Some("-1"));
            assert_eq!(gateway.line().await["stop_reason"], "told_to_stop");
        }
    }
}

#[tokio::test]
async fn a_status_after_the_head_is_never_tried_again_but_opens_the_breaker() {
    let unavailable = fields(&[("grpc-status", "14")]);
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, move |_, _| answered(unavailable.clone())).await;
    let gateway = setup(upstream)
        .upstream("breaker: {min_calls: 5, open: {base: 30s, cap: 30s}}")
        .route("path_prefix: /, grpc: {idempotent: true}")
        .start()
        .await;
    for _ in 0..5 {
        let answer = ask(&gateway, unary("/t.T/Do")).await;
        assert_eq!((status(&answer), answer.header("seawall-attempts")), ("14", Some("1")));
        assert_eq!(gateway.line().await["cause"], "grpc");
    }
    let refused = ask(&gateway, unary("/t.T/Do")).await;
    assert_eq!(arrivals.lock().unwrap().len(), 5);
    assert_eq!(status(&refused), "14");
    assert_eq!(refused.header("grpc-message"), Some("the breaker of every endpoint is open"));
    assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("-1"));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_outcomes_total", &[("class", "overloaded")]), 5);
    assert_eq!(metrics.count("seawall_grpc_responses_total", &[("code", "unavailable")]), 6);
}

#[tokio::test]
async fn an_answer_that_is_not_grpc_is_told_in_grpc_by_its_status() {
    for (code, kind, expected) in [
        (503, "text/html", "14"),
        (404, "text/html", "12"),
        (401, "text/html", "16"),
        (500, "application/json", "2"),
        (200, "text/html", "2"),
    ] {
        let (upstream, _) = Upstream::scripted(Protocol::H2c, move |_, _| {
            let mut response = answer(code, "<html>");
            response.headers_mut().extend(fields(&[("content-type", kind), ("retry-after", "3")]));
            response
        })
        .await;
        let gateway = setup(upstream).start().await;
        let answer = ask(&gateway, unary("/t.T/Do")).await;
        assert_eq!(status(&answer), expected, "{code}");
        assert!(answer.body.is_empty());
        assert!(answer.header("grpc-message").unwrap().contains("the upstream"), "{code}");
        if code == 503 {
            let pushback: i64 = answer.header("grpc-retry-pushback-ms").unwrap().parse().unwrap();
            assert!(pushback == -1 || pushback >= 3_000, "{pushback}");
        }
    }
}

#[tokio::test]
async fn what_is_refused_before_any_policy_is_told_in_grpc_too() {
    let gateway = setup(RawUpstream::refusing().await).route("path_prefix: /t.T").start().await;
    for (path, expected) in [("/other.T/Do", "12"), ("/t.T/../Do", "13"), ("/t.T/Do", "14")] {
        let answer = ask(&gateway, unary(path)).await;
        assert_eq!(status(&answer), expected, "{path}");
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
    }
    // The same over HTTP/1.1 is no gRPC, and gRPC-Web is none.
    assert_eq!(gateway.send(unary("/other.T/Do")).await.status, 404);
    let web = with(unary("/other.T/Do"), "content-type", "application/grpc-web");
    assert_eq!(ask(&gateway, web).await.status, 404);
}

#[tokio::test]
async fn a_fallback_is_not_for_grpc() {
    let gateway = setup(RawUpstream::refusing().await)
        .route("path_prefix: /, fallback: {on: [failure], body: '[]'}")
        .start()
        .await;
    assert_eq!(gateway.get("/").await.text(), "[]");
    assert_eq!(status(&ask(&gateway, unary("/t.T/Do")).await), "14");
}

async fn next(body: &mut hyper::body::Incoming) -> Option<Bytes> {
    Some(within(body.frame()).await?.unwrap().into_data().unwrap())
}

#[tokio::test]
async fn a_call_moves_to_the_streams_at_its_second_message_or_at_its_head_if_the_route_says_so() {
    for (streaming, moves_at) in [("auto", 2), ("true", 0), ("false", 3)] {
        let mut upstream = Upstream::start(Protocol::H2c).await;
        let gateway = setup(upstream.address)
            .route(&format!("path_prefix: /, grpc: {{streaming: {streaming}}}"))
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::H2c).await;
        let open = tokio::spawn(async move {
            let response = caller.open(unary("/t.T/Watch")).await;
            (caller, response)
        });
        let (down, body) = streamed();
        upstream.next().await.answer(opened(body));
        let (_caller, response) = within(open).await.unwrap();
        let mut response = response.into_body();
        for sent in 0..3 {
            let counts = gateway.metrics().await;
            let streams = u64::from(sent >= moves_at);
            assert_eq!(
                counts.count("seawall_streams_in_flight", &[]),
                streams,
                "{streaming} {sent}"
            );
            assert_eq!(counts.count("seawall_bulkhead_in_flight", &[]), 1 - streams);
            down.data(message(b"event")).await;
            assert_eq!(next(&mut response).await.unwrap(), message(b"event"));
        }
        down.trailers(fields(&[("grpc-status", "0")])).await;
        drop(down);
        let last = within(response.frame()).await.unwrap().unwrap();
        assert_eq!(last.trailers_ref().unwrap()["grpc-status"], "0");
        gateway.until(|counts| counts.count("seawall_streams_in_flight", &[]) == 0).await;
    }
}

#[tokio::test]
async fn a_silent_stream_moves_after_a_second_and_a_full_house_refuses_only_at_the_head() {
    for (streaming, expected) in [("auto", None), ("true", Some("14"))] {
        let mut upstream = Upstream::start(Protocol::H2c).await;
        let gateway = setup(upstream.address)
            .upstream("bulkhead: {max_streams: 1}")
            .route(&format!("path_prefix: /, grpc: {{streaming: {streaming}}}"))
            .start()
            .await;
        let mut open = Vec::new();
        for n in 0..2 {
            let mut caller = gateway.caller(Protocol::H2c).await;
            let opening = tokio::spawn(async move {
                let response = caller.open(unary("/t.T/Watch")).await;
                (caller, response)
            });
            let (down, body) = streamed();
            upstream.next().await.answer(opened(body));
            let (caller, response) = within(opening).await.unwrap();
            if n == 0 {
                gateway.until(|counts| counts.count("seawall_streams_in_flight", &[]) == 1).await;
            }
            open.push((caller, response, down));
        }
        let second = &open[1].1;
        let refused = second.headers().get("grpc-status").map(|value| value.to_str().unwrap());
        assert_eq!(refused, expected, "{streaming}");
    }
}

#[tokio::test]
async fn a_caller_that_cancels_resets_the_stream_at_once() {
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let gateway = setup(upstream.address).start().await;
    let clock = Clock::new();
    let mut caller = gateway.caller(Protocol::H2c).await;
    let (_up, body) = streamed();
    let asked = tokio::spawn(async move { drop(caller.try_open(call("/t.T/Chat", body)).await) });
    let mut arrived = upstream.next().await;
    let began = clock.now();
    asked.abort();
    arrived.left().await;
    let took = clock.now().since(began);
    assert!(took < Duration::from_millis(500), "on a busy machine: {took:?}");
    assert_eq!(gateway.line().await["completion_reason"], "caller_left");
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_a_status() {
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let gateway = setup(upstream.address).start().await;
    let mut caller = gateway.caller(Protocol::H2c).await;
    let open = tokio::spawn(async move {
        let response = caller.open(unary("/t.T/Watch")).await;
        (caller, response)
    });
    let (down, body) = streamed();
    upstream.next().await.answer(opened(body));
    let (_caller, response) = within(open).await.unwrap();
    let mut response = response.into_body();
    down.data(message(b"event")).await;
    assert_eq!(next(&mut response).await.unwrap(), message(b"event"));
    down.fail().await;
    let last = within(response.frame()).await.unwrap().unwrap();
    let trailers = last.into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "14");
    assert_eq!(trailers["grpc-message"], "the upstream broke off its answer");
    let line = gateway.line().await;
    assert_eq!(
        (&line["completion_reason"], &line["grpc_status"]),
        (&"upstream_broke".into(), &14.into())
    );
}

#[tokio::test]
async fn neither_side_is_silent_while_the_other_speaks() {
    let idle = Duration::from_millis(400);
    for upload_speaks in [false, true] {
        let mut upstream = Upstream::start(Protocol::H2c).await;
        let gateway = setup(upstream.address).upstream("timeouts: {idle: 400ms}").start().await;
        let mut caller = gateway.caller(Protocol::H2c).await;
        let (up, body) = streamed();
        up.data(message(b"hello")).await;
        let open = tokio::spawn(async move {
            let response = caller.open(call("/t.T/Chat", body)).await;
            (caller, response)
        });
        let arrived = upstream.next().await;
        let (mut asked, reply) = arrived.split();
        assert_eq!(next(&mut asked).await.unwrap(), message(b"hello"));
        let (down, body) = streamed();
        reply.answer(opened(body));
        let (_caller, response) = within(open).await.unwrap();
        let mut response = response.into_body();
        let mut pace = tokio::time::interval(idle / 4);
        for _ in 0..10 {
            pace.tick().await;
            if upload_speaks {
                up.data(message(b"more")).await;
                assert_eq!(next(&mut asked).await.unwrap(), message(b"more"));
            } else {
                down.data(message(b"event")).await;
                assert_eq!(next(&mut response).await.unwrap(), message(b"event"));
            }
        }
        // Once both are silent, it ends.
        let last = within(response.frame()).await.unwrap().unwrap();
        assert_eq!(last.into_trailers().unwrap()["grpc-status"], "14", "{upload_speaks}");
    }
}

#[tokio::test]
async fn an_upload_larger_than_the_replay_buffer_is_sent_once() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, |_, _| trailers_only("14", &[])).await;
    let gateway = setup(upstream).route("path_prefix: /, grpc: {idempotent: true}").start().await;
    let large = pattern(100_000);
    let answer = ask(&gateway, call("/t.T/Do", full(message(&large)))).await;
    assert_eq!(status(&answer), "14");
    let arrival = {
        let mut arrivals = arrivals.lock().unwrap();
        assert_eq!(arrivals.len(), 1);
        arrivals.remove(0)
    };
    assert_eq!(arrival.body, message(&large));
    assert_eq!(gateway.line().await["stop_reason"], "body_too_large");
}

#[tokio::test]
async fn a_trusted_peers_attempts_are_counted_on() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::H2c, |_, _| trailers_only("0", &[])).await;
    let gateway = setup(upstream).trusted().start().await;
    let request = with(unary("/t.T/Do"), "grpc-previous-rpc-attempts", "2");
    assert_eq!(status(&ask(&gateway, request).await), "0");
    let arrival = arrivals.lock().unwrap().pop().unwrap();
    assert_eq!(arrival.header("grpc-previous-rpc-attempts"), Some("2"));
    assert_eq!(arrival.header("x-retry-attempt"), Some("3"));
    assert_eq!(gateway.line().await["caller_attempt"], 3);
}

#[tokio::test]
async fn a_call_that_runs_on_without_its_caller_counts_by_its_head() {
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let gateway = setup(upstream.address).upstream("on_abandon: finish").start().await;
    let mut caller = gateway.caller(Protocol::H2c).await;
    let open = tokio::spawn(async move { caller.try_open(unary("/a.B/c")).await });
    let (_, reply) = upstream.next().await.read().await;
    open.abort();
    assert_eq!(gateway.line().await["stop_reason"], "caller_left");
    reply.answer(answered(fields(&[("grpc-status", "0")])));
    let causes = |metrics: &Metrics| metrics.count("seawall_causes_total", &[]);
    let metrics = gateway.until(|metrics| causes(metrics) == 1).await;
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "status")]), 1);
}
