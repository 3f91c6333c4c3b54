//! HTTP/1.1 upgrades: a tunnel of bytes, counted among the streams.

use std::time::Duration;

use seawall::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: k\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                      Upgrade: websocket\r\nX-Kept: 1\r\n\r\n";

/// A tunnel through the gateway, with the head that opened it.
async fn open(gateway: &Gateway, upstream: &RawUpstream) -> (RawCaller, RawConn, String) {
    let mut caller = gateway.raw().await;
    caller.write(ASK).await;
    let mut served = upstream.accept().await;
    let asked = served.head().await.to_lowercase();
    assert!(asked.contains("upgrade: websocket\r\n"), "{asked}");
    assert!(asked.contains("connection: upgrade\r\n"), "{asked}");
    assert!(asked.contains("sec-websocket-key: k\r\n"), "{asked}");
    served.write(SWITCH).await;
    let head = caller.head().await;
    (caller, served, head)
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_way_ends_by_itself() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let (mut caller, mut served, head) = open(&gateway, &upstream).await;
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["upgrade: websocket", "connection: upgrade", "x-kept: 1", "seawall-attempts: 1"] {
        assert!(head.contains(&format!("{line}\r\n")), "{head}");
    }
    caller.write("ping").await;
    assert_eq!(served.read_exact(4).await, b"ping");
    served.write("pong!").await;
    assert_eq!(caller.read_until(b"!").await, "pong!");
    within(caller.socket.shutdown()).await.unwrap();
    assert!(served.rest().await.is_empty(), "the caller's end arrives");
    served.write("last").await;
    drop(served);
    assert_eq!(caller.rest().await, "last", "the other way went on");
    let line = gateway.line().await;
    assert_eq!(line["completion_reason"], "complete");
    assert_eq!(line["status"], 101);
    assert_eq!((line["bytes_in"].as_u64(), line["bytes_out"].as_u64()), (Some(4), Some(9)));
}

#[tokio::test]
async fn what_the_caller_sends_with_its_request_is_the_tunnels_first() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let mut caller = gateway.raw().await;
    caller.write(format!("{ASK}early")).await;
    let mut served = upstream.accept().await;
    served.head().await;
    served.write(format!("{SWITCH}first")).await;
    assert_eq!(served.read_exact(5).await, b"early");
    caller.head().await;
    assert_eq!(caller.read_until(b"first").await, "first");
}

#[tokio::test]
async fn a_tunnel_counts_as_a_stream_and_leaves_the_bulkhead_free() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address)
        .upstream("bulkhead: {limit: 1, queue: 0, max_streams: 1}, max_connections: 1")
        .start()
        .await;
    let (caller, served, _) = open(&gateway, &upstream).await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_streams_in_flight", &[]), 1);
    assert_eq!(metrics.count("seawall_bulkhead_in_flight", &[]), 0);
    // Another call finds its place and a connection.
    let asked = tokio::spawn({
        let mut other = gateway.caller(Protocol::Http1).await;
        async move { other.send(get("/")).await }
    });
    let mut plain = upstream.accept().await;
    plain.head().await;
    plain.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(within(asked).await.unwrap().status, 200);
    // Another tunnel does not.
    let mut refused = gateway.raw().await;
    refused.write(ASK).await;
    plain.head().await;
    plain.write(SWITCH).await;
    let head = refused.head().await.to_lowercase();
    assert!(head.starts_with("http/1.1 503 "), "{head}");
    assert!(head.contains("seawall-problem: overloaded\r\n"), "{head}");
    assert!(head.contains("retry-after: "), "{head}");
    assert!(!head.contains("seawall-retry"), "{head}");
    assert!(plain.rest().await.is_empty(), "its connection closes");
    gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    let refused = [("reason", "streams_full")];
    assert_eq!(gateway.metrics().await.count("seawall_refused_total", &refused), 1);
    drop((caller, served));
    gateway.until(|metrics| metrics.count("seawall_streams_in_flight", &[]) == 0).await;
}

#[tokio::test]
async fn a_side_that_breaks_ends_the_other_at_once() {
    for caller_breaks in [true, false] {
        let upstream = RawUpstream::bind().await;
        let gateway = Setup::new(upstream.address).start().await;
        let (mut caller, mut served, _) = open(&gateway, &upstream).await;
        let reset = |socket: &tokio::net::TcpStream| socket.set_zero_linger().unwrap();
        let reason = if caller_breaks {
            reset(&caller.socket);
            drop(caller);
            served.rest().await;
            "caller_left"
        } else {
            reset(&served.socket);
            drop(served);
            caller.rest().await;
            "upstream_broke"
        };
        assert_eq!(gateway.line().await["completion_reason"], reason);
    }
}

#[tokio::test]
async fn a_refused_upgrade_is_an_answer_like_any_other() {
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::Http1, |_, _| answer(400, "no such protocol")).await;
    let gateway = Setup::new(upstream).start().await;
    let mut caller = gateway.raw().await;
    for _ in 0..2 {
        caller.write(ASK).await;
        let head = caller.head().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        assert_eq!(caller.read_until(b"protocol").await, "no such protocol");
    }
    assert_eq!(arrivals.lock().unwrap()[0].header("upgrade"), Some("websocket"));
}

#[tokio::test]
async fn an_upgrade_nobody_asked_for_is_a_fault_of_the_upstream() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).start().await;
    let asked = tokio::spawn({
        let mut caller = gateway.caller(Protocol::Http1).await;
        async move { caller.send(post("/", full(""))).await }
    });
    let mut served = upstream.accept().await;
    served.head().await;
    served.write(SWITCH).await;
    let answered = within(asked).await.unwrap();
    assert_eq!(answered.status, 502);
    assert_eq!(answered.header("seawall-problem"), Some("dependency-unavailable"));
    assert!(served.rest().await.is_empty());
    let line = gateway.line().await;
    assert_eq!(line["completion_reason"], "upstream_broke");
    assert_eq!(line["cause"], "malformed");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "malformed")]), 1);
    assert_eq!(metrics.count("seawall_causes_total", &[("cause", "answered")]), 0);
}

#[tokio::test]
async fn a_silent_tunnel_ends_by_the_idle_limit() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address).upstream("timeouts: {idle: 50ms}").start().await;
    let (mut caller, mut served, _) = open(&gateway, &upstream).await;
    assert_eq!(caller.rest().await, "");
    assert!(served.rest().await.is_empty());
    assert_eq!(gateway.line().await["completion_reason"], "timeout");
}

#[tokio::test]
async fn a_tunnel_is_closed_when_the_time_of_what_is_in_flight_is_over() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address)
        .top("drain: {accept: 0s, in_flight: 200ms, close: 5s}")
        .start()
        .await;
    let (mut caller, mut served, _) = open(&gateway, &upstream).await;
    caller.write("ping").await;
    served.read_exact(4).await;
    let clock = Clock::new();
    let began = clock.now();
    gateway.drain();
    assert_eq!(caller.rest().await, "");
    let open = clock.now().since(began);
    assert!(open >= Duration::from_millis(200), "not after a quarter: {open:?}");
    assert!(served.rest().await.is_empty());
    let line = gateway.line().await;
    assert_eq!(line["completion_reason"], "drained");
    assert_eq!(line["bytes_in"], 4);
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (1, 0));
}

#[tokio::test]
async fn a_tunnel_that_ends_during_the_drain_is_not_cut() {
    let upstream = RawUpstream::bind().await;
    let gateway = Setup::new(upstream.address)
        .top("drain: {accept: 0s, in_flight: 8s, close: 8s}")
        .start()
        .await;
    let (mut caller, mut served, _) = open(&gateway, &upstream).await;
    gateway.drain();
    gateway.until(|metrics| metrics.count("seawall_draining", &[]) == 1).await;
    caller.write("ping").await;
    served.read_exact(4).await;
    drop(served);
    assert_eq!(caller.rest().await, "");
    drop(caller);
    assert_eq!(gateway.line().await["bytes_in"], 4);
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (0, 0));
}

#[tokio::test]
async fn over_http_2_nothing_is_upgraded() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::H2c, |_, _| answer(200, "plain")).await;
    let gateway = Setup::new(upstream).speaks(Protocol::H2c).start().await;
    let mut caller = gateway.raw().await;
    caller.write(ASK).await;
    assert!(caller.head().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(arrivals.lock().unwrap()[0].header("upgrade"), None);
    let mut byte = [0];
    assert_eq!(within(caller.socket.read(&mut byte)).await.unwrap(), 1);
}
