//! gRPC over TLS on both sides, and the mechanisms that are for several endpoints.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use crate::grpc::{answered, call, fields, status, trailers_only, unary, with};
use crate::support::*;

/// A CA, and the files of what it signs.
struct Secured {
    ca: Ca,
    folder: Folder,
}

impl Secured {
    fn new() -> Self {
        Self { ca: Ca::new(), folder: Folder::new() }
    }

    /// TLS in front of an upstream that speaks gRPC; its URL.
    async fn front(&self, upstream: std::net::SocketAddr) -> (TlsFront, String) {
        let front = TlsFront::start(upstream, &self.ca.issue(&["localhost"]), &["h2"], None).await;
        let url = format!("https://localhost:{}", front.address.port());
        (front, url)
    }

    /// A gateway with TLS on both sides, in front of these.
    fn setup(&self, urls: &[String]) -> Setup {
        let roots = self.folder.write("ca.pem", &self.ca.pem());
        let files = self.folder.write_leaf("server", &self.ca.issue(&["localhost"]));
        let setup = Setup::at(&urls[0]).speaks(Protocol::H2c);
        let setup = urls[1..].iter().fold(setup, |setup, url| setup.and_at(url));
        setup.upstream(&format!("tls: {{ca: {roots}}}")).listener(&format!("tls: {{{files}}}"))
    }

    async fn caller(&self, gateway: &Gateway) -> Caller {
        let client = Arc::new(tls_client(&self.ca, &["h2"], None));
        let stream = tls_connect(gateway.address, &client, "localhost").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Caller::over(stream, Protocol::H2c).await
    }
}

fn ok() -> HeaderMap {
    fields(&[("grpc-status", "0"), ("grpc-message", "well"), ("details-bin", "AAEC/w")])
}

#[tokio::test]
async fn over_tls_on_both_sides_times_and_trailers_pass_and_a_status_is_tried_again() {
    let secured = Secured::new();
    let (plain, arrivals) = Upstream::scripted(Protocol::H2c, |n, _| match n {
        1 => trailers_only("14", &[]),
        _ => answered(ok()),
    })
    .await;
    let (front, url) = secured.front(plain).await;
    let setup = secured.setup(&[url]).route("path_prefix: /, grpc: {idempotent: true}");
    let gateway = setup.upstream("retry: {backoff: {base: 1ms, cap: 1ms}}").start().await;
    let mut caller = secured.caller(&gateway).await;
    for attempts in ["1", "2"] {
        let answer = caller.send(with(unary("/t.T/Do"), "grpc-timeout", "5S")).await;
        assert_eq!(status(&answer), "0");
        assert_eq!(answer.trailers, Some(ok()));
        assert_eq!(answer.header("seawall-attempts"), Some(attempts));
        assert_eq!(gateway.line().await["grpc_status"], 0);
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 3);
    for arrival in arrivals.iter() {
        assert_eq!(arrival.header("x-forwarded-proto"), Some("https"));
        assert_eq!(arrival.header("te"), Some("trailers"));
        assert!(arrival.header("grpc-timeout").is_some());
    }
    assert_eq!(arrivals[2].header("grpc-previous-rpc-attempts"), Some("1"));
    assert_eq!(front.handshakes.lock().unwrap().len(), 1, "one connection for all");
}

#[tokio::test]
async fn over_tls_a_stream_flows_both_ways_and_one_whose_caller_cancels_is_reset() {
    let secured = Secured::new();
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let (_front, url) = secured.front(upstream.address).await;
    let gateway = secured.setup(&[url]).start().await;
    let mut caller = secured.caller(&gateway).await;
    let (up, body) = streamed();
    up.data("ask").await;
    let open = tokio::spawn(async move {
        let response = caller.open(call("/t.T/Chat", body)).await;
        (caller, response)
    });
    let (mut asked, reply) = upstream.next().await.split();
    let next = async |body: &mut hyper::body::Incoming| {
        let frame = within(http_body_util::BodyExt::frame(body)).await.unwrap();
        frame.map(|frame| frame.into_data().unwrap())
    };
    assert_eq!(next(&mut asked).await.unwrap(), "ask");
    let (down, body) = streamed();
    reply.answer(crate::grpc::opened(body));
    let (caller, response) = within(open).await.unwrap();
    let mut response = response.into_body();
    for _ in 0..3 {
        down.data("told").await;
        assert_eq!(next(&mut response).await.unwrap(), "told");
        up.data("more").await;
        assert_eq!(next(&mut asked).await.unwrap(), "more");
    }
    drop(up);
    while let Some(frame) = within(http_body_util::BodyExt::frame(&mut asked)).await {
        assert!(frame.unwrap().into_data().unwrap().is_empty());
    }
    down.trailers(ok()).await;
    drop(down);
    let last = within(http_body_util::BodyExt::frame(&mut response)).await.unwrap().unwrap();
    assert_eq!(last.into_trailers().unwrap(), ok());
    assert_eq!(gateway.line().await["completion_reason"], "complete");
    // And one whose caller leaves while nothing was told.
    let mut caller = caller;
    let (_up, body) = streamed();
    let open = tokio::spawn(async move { drop(caller.try_open(call("/t.T/Chat", body)).await) });
    let mut arrived = upstream.next().await;
    open.abort();
    arrived.left().await;
    assert_eq!(gateway.line().await["completion_reason"], "caller_left");
}

#[tokio::test]
async fn a_method_that_is_marked_is_hedged_over_tls_and_one_that_is_not_never() {
    let secured = Secured::new();
    let mut ends = [Upstream::start(Protocol::H2c).await, Upstream::start(Protocol::H2c).await];
    let (_a, first) = secured.front(ends[0].address).await;
    let (_b, second) = secured.front(ends[1].address).await;
    let gateway = secured
        .setup(&[first, second])
        .upstream("hedge: {delay: 30ms, max_extra: 100%, max_load: 100%}")
        .route("path_prefix: /marked.T, grpc: {idempotent: true}")
        .route("path_prefix: /plain.T")
        .start()
        .await;
    let hedges = async || gateway.metrics().await.count("seawall_hedges_total", &[]);
    for (request, hedged) in [
        (unary("/marked.T/Get"), true),
        (unary("/plain.T/Put"), false),
        (with(unary("/plain.T/Put"), "idempotency-key", "k1"), true),
    ] {
        let before = hedges().await;
        let mut caller = secured.caller(&gateway).await;
        let open = tokio::spawn(async move { caller.send(request).await });
        let (mut slow, at) = next(&mut ends).await;
        let (told, attempts) = if hedged {
            let (hedge, other) = next(&mut ends).await;
            assert_ne!(at, other, "it goes to the other endpoint");
            assert_eq!(hedge.header("grpc-previous-rpc-attempts"), Some("1"));
            hedge.answer(answered(ok()));
            let told = within(open).await.unwrap();
            // The one that lost is reset.
            slow.left().await;
            (told, "2")
        } else {
            // Far beyond the delay, at which a hedge would have come.
            tokio::time::sleep(Duration::from_millis(150)).await;
            slow.answer(answered(ok()));
            (within(open).await.unwrap(), "1")
        };
        assert_eq!((status(&told), told.header("seawall-attempts")), ("0", Some(attempts)));
        assert_eq!(told.trailers, Some(ok()));
        assert_eq!(hedges().await - before, u64::from(hedged));
        assert!(ends.iter_mut().all(|end| !end.has_another()));
    }
}

/// The next request at either end, and at which.
async fn next(ends: &mut [Upstream; 2]) -> (Call, usize) {
    let [a, b] = ends;
    tokio::select! {
        call = a.next() => (call, 0),
        call = b.next() => (call, 1),
    }
}

/// A status after the head is known when its answer is over: it is not tried again, and still it
/// tells against its endpoint.
#[tokio::test]
async fn an_endpoint_that_answers_unavailable_in_its_trailers_is_ejected() {
    let mut ends = Vec::new();
    for at in 0..3 {
        ends.push(
            Upstream::scripted(Protocol::H2c, move |_, _| {
                answered(if at == 0 { fields(&[("grpc-status", "14")]) } else { ok() })
            })
            .await,
        );
    }
    let bad = ends[0].0.to_string();
    let setup = Setup::new(ends[0].0).endpoint(ends[1].0).endpoint(ends[2].0);
    let gateway = setup
        .speaks(Protocol::H2c)
        .upstream("breaker: off, outlier: {interval: 100ms, min_calls: 5}")
        .start()
        .await;
    let mut caller = gateway.caller(Protocol::H2c).await;
    let standing =
        |it: &Metrics, at: &str| it.count("seawall_endpoint_standing", &[("endpoint", at)]);
    within(async {
        while standing(&gateway.metrics().await, &bad) != EJECTED {
            for _ in 0..10 {
                caller.send(unary("/t.T/Do")).await;
            }
        }
    })
    .await;
    let before = ends[0].1.lock().unwrap().len();
    for _ in 0..50 {
        assert_eq!(status(&caller.send(unary("/t.T/Do")).await), "0");
    }
    assert_eq!(ends[0].1.lock().unwrap().len(), before, "it gets nothing");
    let metrics = gateway.metrics().await;
    for (end, _) in &ends[1..] {
        assert_eq!(standing(&metrics, &end.to_string()), 0);
    }
    let failed = metrics.count("seawall_grpc_responses_total", &[("code", "unavailable")]);
    assert_eq!(failed, before as u64, "each went up as it was, none was tried again");
}

/// As the page of metrics has it.
const EJECTED: u64 = 2;
