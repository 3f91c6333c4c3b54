//! Who is let in, who is not, and that refusing costs next to nothing.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::support::*;

/// As many as `burst` come in at once, and then nobody for an hour.
fn rated(burst: u32, more: &str) -> String {
    format!("accept: {{rate: 1/h, burst: {burst}{more}}}")
}

async fn connect(gateway: &Gateway) -> TcpStream {
    within(TcpStream::connect(gateway.address)).await.unwrap()
}

/// Whether the connection ends by a reset, with nothing said before.
async fn is_reset(mut socket: TcpStream) -> bool {
    let mut read = Vec::new();
    let ended = within(socket.read_to_end(&mut read)).await;
    ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset) && read.is_empty()
}

fn refused(metrics: &Metrics, reason: &str) -> u64 {
    metrics.count("seawall_downstream_connections_refused_total", &[("reason", reason)])
}

fn opened(metrics: &Metrics) -> u64 {
    metrics.count("seawall_downstream_connections_opened_total", &[])
}

#[tokio::test]
async fn beyond_the_rate_connections_are_reset_and_those_that_are_in_stay() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).listener(&rated(3, "")).start().await;
    let mut callers = Vec::new();
    for protocol in [Protocol::Http1, Protocol::H2c, Protocol::Http1] {
        callers.push(gateway.caller(protocol).await);
        assert_eq!(callers.last_mut().unwrap().send(get("/")).await.status, 200);
    }
    for _ in 0..5 {
        assert!(is_reset(connect(&gateway).await).await);
    }
    let metrics = gateway.metrics().await;
    assert_eq!((opened(&metrics), refused(&metrics, "accept_rate")), (3, 5));
    assert_eq!(metrics.count("seawall_downstream_refusals_answered_total", &[]), 0);
    assert_eq!(metrics.count("seawall_downstream_connections", &[]), 3, "no place is held");
    for caller in &mut callers {
        assert_eq!(caller.send(get("/")).await.text(), "ok");
    }
}

#[tokio::test]
async fn who_is_refused_costs_no_handshake() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let (ca, folder) = (Ca::new(), Folder::new());
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let setup = Setup::new(upstream).listener(&format!("tls: {{{files}}}"));
    let gateway = setup.listener(&rated(1, "")).start().await;
    let client = Arc::new(tls_client(&ca, &["http/1.1"], None));
    let stream = tls_connect(gateway.address, &client, "localhost").await.unwrap();
    let mut caller = Caller::over(stream, Protocol::Http1).await;
    for _ in 0..20 {
        let failed = tls_connect(gateway.address, &client, "localhost").await.unwrap_err();
        assert!(!failed.to_string().contains("Alert"), "nobody there speaks TLS: {failed}");
    }
    let metrics = gateway.metrics().await;
    assert_eq!(refused(&metrics, "accept_rate"), 20);
    assert_eq!(metrics.count("seawall_tls_handshakes_total", &[]), 1, "all results together");
    assert_eq!(caller.send(get("/")).await.text(), "ok");
}

#[tokio::test]
async fn in_plain_text_a_refusal_can_be_an_answer_that_says_when_to_come_again() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).listener(&rated(1, ", refuse: answer")).start().await;
    assert_eq!(gateway.get("/").await.status, 200);
    gateway.line().await;
    for request in [get("/"), post("/", full(pattern(10_000)))] {
        let told = gateway.send(request).await;
        assert_eq!(told.status, 503);
        let seconds: u64 = told.header("retry-after").unwrap().parse().unwrap();
        assert!((3..=8).contains(&seconds), "{seconds}");
        assert_eq!(told.header("connection"), Some("close"));
        assert_eq!(told.header("seawall-problem"), Some("overloaded"));
        assert_eq!(told.header("content-type"), Some("application/problem+json"));
        let body: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
        assert_eq!((&body["status"], &body["sent"]), (&503.into(), &"nothing".into()));
    }
    let metrics = gateway.metrics().await;
    assert_eq!((opened(&metrics), refused(&metrics, "accept_rate")), (1, 2));
    assert_eq!(metrics.count("seawall_downstream_refusals_answered_total", &[]), 2);
    assert_eq!(arrivals.lock().unwrap().len(), 1);
    gateway.drain();
    let (_, lines) = gateway.ended_with_lines().await;
    assert!(lines.is_empty(), "who is refused leaves none: {lines:?}");
}

#[tokio::test]
async fn who_cannot_read_an_answer_or_does_not_listen_is_reset() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).listener(&rated(1, ", refuse: answer")).start().await;
    assert_eq!(gateway.get("/").await.status, 200);
    let begins: [&[u8]; 4] = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01", b"\r\n", b""];
    for begin in begins {
        let mut caller = gateway.raw().await;
        caller.write(begin).await;
        assert!(is_reset(caller.socket).await, "{begin:?}");
    }
    // Who does not close its side once it is told has a second.
    let mut caller = gateway.raw().await;
    caller.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(caller.rest().await.starts_with("HTTP/1.1 503 "));
    let answering = "refusals of callers being answered";
    within(async { while crate::observed::depth(&gateway, answering).await > 0 {} }).await;
    assert_eq!(refused(&gateway.metrics().await, "accept_rate"), 5);
}

#[tokio::test]
async fn so_many_are_answered_at_once_and_the_others_are_reset() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).listener(&rated(1, ", refuse: answer")).start().await;
    assert_eq!(gateway.get("/").await.status, 200);
    // They say nothing, and so each holds its place.
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(connect(&gateway).await);
    }
    let metrics = gateway.until(|metrics| refused(metrics, "accept_rate") == 64).await;
    assert_eq!(metrics.count("seawall_downstream_refusals_answered_total", &[]), 64);
    assert!(is_reset(connect(&gateway).await).await);
    let metrics = gateway.metrics().await;
    assert_eq!(refused(&metrics, "accept_rate"), 65);
    assert_eq!(metrics.count("seawall_downstream_refusals_answered_total", &[]), 64);
}
