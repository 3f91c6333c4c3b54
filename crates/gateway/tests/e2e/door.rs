//! Who is let in, who is not, and that refusing costs next to nothing.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

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

#[tokio::test]
async fn an_address_that_comes_again_and_again_takes_no_place_from_the_others() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let of_each = "per_address: {connection_rate: 1/h, connection_burst: 2}";
    let setup = Setup::new(upstream).listener(&rated(5, "")).listener(of_each);
    let gateway = setup.start().await;
    let greedy = || from(&gateway, [127, 0, 0, 9]);
    let mut in_it = Vec::new();
    for _ in 0..2 {
        in_it.push(served(greedy().await).await.expect("within its own burst"));
    }
    for _ in 0..50 {
        assert!(is_reset(greedy().await).await);
    }
    for other in 10..13 {
        let one = served(from(&gateway, [127, 0, 0, other]).await).await;
        in_it.push(one.expect("nothing was taken of what all share"));
    }
    assert!(is_reset(from(&gateway, [127, 0, 0, 20]).await).await, "now all of it is taken");
    let metrics = gateway.metrics().await;
    let counts = ["address_rate", "accept_rate", "address_connections"];
    assert_eq!(counts.map(|reason| refused(&metrics, reason)), [50, 1, 0]);
    assert_eq!(opened(&metrics), 5);
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_a_trusted_peer_as_many_as_it_wants() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let limits =
        "trusted_peers: [127.0.0.2], accept: {refuse: answer}, per_address: {connections: 2}";
    let gateway = Setup::new(upstream).listener(limits).start().await;
    let known = "addresses of callers with connections";
    let mut open = Vec::new();
    for from_address in [9, 9, 10, 2, 2, 2, 2] {
        let socket = from(&gateway, [127, 0, 0, from_address]).await;
        open.push(served(socket).await.expect("there is room"));
    }
    assert_eq!(crate::observed::depth(&gateway, known).await, 2);
    let mut told = RawCaller { socket: from(&gateway, [127, 0, 0, 9]).await };
    told.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = told.head().await;
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.contains("seawall-problem: quota-exceeded\r\n"), "{head}");
    // One that ends makes room for the next.
    drop(open.remove(0));
    within(async { while served(from(&gateway, [127, 0, 0, 9]).await).await.is_none() {} }).await;
    drop(open);
    gateway.until(|it| it.count("seawall_downstream_connections", &[]) == 0).await;
    assert_eq!(crate::observed::depth(&gateway, known).await, 0, "who has none is forgotten");
}

#[tokio::test]
async fn requests_of_an_address_beyond_its_rate_are_told_how_many_and_when() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let of_each = "per_address: {request_rate: 120/h, request_burst: 2}";
    let gateway = Setup::new(upstream).listener(of_each).start().await;
    for protocol in BOTH {
        let mut caller = Caller::over(from(&gateway, [127, 0, 0, 9]).await, protocol).await;
        if protocol == Protocol::Http1 {
            for _ in 0..2 {
                assert_eq!(caller.send(get("/")).await.status, 200);
                gateway.line().await;
            }
        }
        let told = caller.send(get("/")).await;
        assert_eq!(told.status, 429);
        assert_eq!(told.header("seawall-problem"), Some("quota-exceeded"));
        assert_eq!(told.header("ratelimit-policy"), Some("\"address\";q=120;w=3600"));
        let seconds: u64 = told.header("retry-after").unwrap().parse().unwrap();
        assert!((30..=34).contains(&seconds), "{seconds}");
        let left = format!("\"address\";r=0;t={seconds}");
        assert_eq!(told.header("ratelimit"), Some(&*left));
        let line = gateway.line().await;
        assert_eq!(
            (&line["status"], &line["response_flags"]),
            (&429.into(), &"RL".into()),
            "{line}"
        );
    }
    assert_eq!(arrivals.lock().unwrap().len(), 2);
    let other = Caller::over(from(&gateway, [127, 0, 0, 10]).await, Protocol::Http1).await;
    assert_eq!({ other }.send(get("/")).await.status, 200, "another has its own");
    let of_it = [("reason", "address_rate")];
    assert_eq!(gateway.metrics().await.count("seawall_refused_total", &of_it), 2);
}

/// A connection from this address of loopback.
async fn from(gateway: &Gateway, address: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    within(socket.connect(gateway.address)).await.unwrap()
}

/// The connection, once a request on it was answered well; nothing if it was not.
async fn served(mut socket: TcpStream) -> Option<TcpStream> {
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.ok()?;
    let mut begin = [0; 12];
    within(socket.read_exact(&mut begin)).await.ok()?;
    (begin == *b"HTTP/1.1 200").then_some(socket)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_waits_in_the_kernel_is_on_the_list_of_queues_and_in_the_metrics() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).top("limits: {max_connections: 1}").start().await;
    let queue = format!("kernel backlog of {}", "127.0.0.1:0");
    let held = served(connect(&gateway).await).await.unwrap();
    let waiting = [connect(&gateway).await, connect(&gateway).await];
    assert_eq!(crate::observed::depth(&gateway, &queue).await, 2);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_listen_backlog", &[]), 2);
    // Of the whole machine, whatever else runs there.
    assert!(
        metrics.count("seawall_listen_drops_total", &[])
            >= metrics.count("seawall_listen_overflows_total", &[])
    );
    drop((held, waiting));
    gateway.until(|metrics| metrics.count("seawall_listen_backlog", &[]) == 0).await;
}
