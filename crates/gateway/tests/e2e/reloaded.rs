//! What a reload has changed acts, and what was there goes on.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use rustls::{ClientConfig, HandshakeKind};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::reloads::{Place, start};
use crate::support::*;

/// A gateway that follows a file.
struct Following {
    _place: Place,
    file: PathBuf,
    gateway: Gateway,
}

impl Following {
    async fn start(setup: &Setup) -> Self {
        let place = Place::new();
        let file = place.at("seawall.yaml");
        fs::write(&file, setup.yaml()).unwrap();
        let gateway = start(&file).await;
        Self { _place: place, file, gateway }
    }

    /// Puts this in force, once. On a busy machine the change may be noticed before it is told of.
    async fn reload(&self, setup: &Setup) {
        let before = applied(&self.gateway).await;
        fs::write(&self.file, setup.yaml()).unwrap();
        let told = self.gateway.reload().await;
        assert_eq!(told.status, 200, "{}", told.text());
        assert_eq!(applied(&self.gateway).await, before + 1, "{}", told.text());
    }
}

/// How many other configurations were put in force.
async fn applied(gateway: &Gateway) -> u64 {
    gateway.metrics().await.count("seawall_config_reloads_total", &[("result", "applied")])
}

/// Under the phases it began with this would take 27 s.
#[tokio::test]
async fn a_drain_has_the_phases_of_the_last_reload() {
    let upstream = RawUpstream::bind().await;
    let setup = Setup::new(upstream.address);
    let it = Following::start(&setup).await;
    let mut caller = it.gateway.raw().await;
    caller.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut served = upstream.accept().await;
    served.head().await;
    it.reload(&setup.top("drain: {accept: 20ms, in_flight: 20ms, close: 20ms}")).await;
    it.gateway.drain();
    let ended = it.gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (1, 1));
}

#[tokio::test]
async fn limits_of_heads_hold_for_the_connections_that_come_then() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let setup = Setup::new(upstream);
    let it = Following::start(&setup).await;
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(20));
    let ask = async |caller: &mut RawCaller| {
        caller.write(&request).await;
        let head = caller.head().await;
        if head.starts_with("HTTP/1.1 200 ") {
            caller.read_until(b"ok").await;
        }
        head[9..12].to_owned()
    };
    let mut kept = it.gateway.raw().await;
    assert_eq!(ask(&mut kept).await, "200");
    it.reload(&setup.clone().top("limits: {head_fields: 10, h2_streams: 7}")).await;
    assert_eq!(ask(&mut it.gateway.raw().await).await, "431");
    assert_eq!(streams(&it.gateway).await, 7);
    // A lower number of fields is looked at with each request.
    assert_eq!(ask(&mut kept).await, "431");
    it.reload(&setup).await;
    assert_eq!(ask(&mut it.gateway.raw().await).await, "200");
    assert_eq!(streams(&it.gateway).await, 256);
    // What the parser was told stays, for as long as its connection.
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(30_000));
    let mut old = it.gateway.raw().await;
    assert_eq!(ask(&mut old).await, "200");
    it.reload(&setup.top("limits: {head: 16KiB}")).await;
    for (caller, status) in [(&mut old, " 200 "), (&mut it.gateway.raw().await, " 431 ")] {
        caller.write(&long).await;
        let head = caller.head().await;
        assert!(head.contains(status), "{head}");
    }
}

/// How many streams a connection of HTTP/2 is granted.
async fn streams(gateway: &Gateway) -> u32 {
    let mut caller = gateway.raw().await;
    caller.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await;
    let mut conn = RawConn { socket: caller.socket };
    let head = conn.read_exact(9).await;
    assert_eq!(head[3], 4, "SETTINGS");
    let settings = conn.read_exact(usize::from(head[2])).await;
    let granted = settings.chunks(6).find(|pair| pair[..2] == [0, 3]).unwrap();
    u32::from_be_bytes(granted[2..].try_into().unwrap())
}

#[tokio::test]
async fn a_lower_number_of_connections_holds_back_who_comes_and_cuts_nobody() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let setup = Setup::new(upstream);
    let it = Following::start(&setup).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut caller = it.gateway.caller(Protocol::Http1).await;
        assert_eq!(caller.send(get("/open")).await.status, 200);
        open.push(caller);
    }
    it.reload(&setup.clone().top("limits: {max_connections: 2}")).await;
    // The listener holds a place to wait with: one more is taken, and then none.
    let mut third = it.gateway.caller(Protocol::Http1).await;
    assert_eq!(third.send(get("/third")).await.status, 200);
    let mut waiting = it.gateway.caller(Protocol::Http1).await;
    let waits = tokio::spawn(async move { (waiting.send(get("/waits")).await.status, waiting) });
    let count = |it: &Metrics| it.count("seawall_downstream_connections", &[]);
    for caller in &mut open {
        assert_eq!(caller.send(get("/still")).await.status, 200, "nobody is cut");
        assert_eq!(count(&it.gateway.metrics().await), 3);
    }
    let asked = |path: &str| arrivals.lock().unwrap().iter().filter(|it| it.path == path).count();
    assert_eq!((asked("/still"), asked("/waits")), (2, 0));
    drop((open, third));
    assert_eq!(within(waits).await.unwrap().0, 200);
    // And with more places again, more come at once.
    it.reload(&setup).await;
    for _ in 0..4 {
        assert_eq!(it.gateway.get("/").await.status, 200);
    }
}

#[tokio::test]
async fn what_is_kept_of_a_body_is_what_the_last_reload_says() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(503, "")).await;
    let setup = Setup::new(upstream).upstream("breaker: off");
    let it = Following::start(&setup).await;
    let upload = || {
        let mut request = post("/", full(pattern(2_000)));
        request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        request
    };
    let mut caller = it.gateway.caller(Protocol::Http1).await;
    for (limit, stop, attempts) in
        [("64KiB", "exhausted", 2), ("1KiB", "body_too_large", 1), ("4KiB", "exhausted", 2)]
    {
        if limit != "64KiB" {
            it.reload(&setup.clone().top(&format!("limits: {{replay: {limit}}}"))).await;
        }
        assert_eq!(caller.send(upload()).await.status, 503);
        assert_eq!(it.gateway.line().await["stop_reason"], stop, "{limit}");
        assert_eq!(std::mem::take(&mut *arrivals.lock().unwrap()).len(), attempts, "{limit}");
    }
}

#[tokio::test]
async fn what_was_taken_of_an_accept_rate_is_still_taken_after_a_reload() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let open = Setup::new(upstream);
    let rated = open.clone().listener("accept: {rate: 1/h, burst: 2}");
    let it = Following::start(&rated).await;
    let comes_in = async || {
        let mut caller = it.gateway.raw().await;
        // One that is refused may be gone before it has said anything.
        let _ = within(caller.socket.write_all(b"GET / HTTP/1.0\r\n\r\n")).await;
        caller.rest().await.ends_with("ok")
    };
    assert_eq!([comes_in().await, comes_in().await, comes_in().await], [true, true, false]);
    it.reload(&open).await;
    assert!(comes_in().await && comes_in().await, "nobody is counted");
    it.reload(&rated).await;
    assert!(!comes_in().await, "it is where it was");
    it.reload(&open.listener("accept: {rate: 1000/s, burst: 2}")).await;
    within(async { while !comes_in().await {} }).await;
}

/// Whether retries are off, who says so, and why.
async fn retries(gateway: &Gateway) -> (String, String) {
    let told = gateway.admin(Method::GET, "/retries", "").await.text();
    let told: Value = serde_json::from_str(&told).unwrap();
    let word = |key: &str| told[0][key].as_str().unwrap_or_default().to_owned();
    (word("state"), word("reason"))
}

async fn until_retries(gateway: &Gateway, state: &str, reason: &str) {
    let wanted = (state.to_owned(), reason.to_owned());
    within(async { while retries(gateway).await != wanted {} }).await;
}

#[tokio::test]
async fn a_kill_switch_that_is_moved_is_heard_where_it_is_and_no_more_where_it_was() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(503, "")).await;
    let place = Place::new();
    let (one, two) = (place.at("one"), place.at("two"));
    let setup = Setup::new(upstream).upstream("breaker: off");
    let at = |file: &PathBuf| setup.clone().top(&format!("kill_switch: {}", file.display()));
    fs::write(&one, "off 10m first").unwrap();
    let it = Following::start(&at(&one)).await;
    until_retries(&it.gateway, "off", "first").await;
    it.gateway.get("/").await;
    assert_eq!(it.gateway.line().await["stop_reason"], "retries_off");
    // There is nothing at the new place, and what the old one said is over with the reload.
    it.reload(&at(&two)).await;
    assert_eq!(retries(&it.gateway).await.0, "on");
    it.gateway.get("/").await;
    assert_eq!(it.gateway.line().await["stop_reason"], "exhausted");
    assert_eq!(arrivals.lock().unwrap().len(), 3);
    fs::write(&one, "off 10m nobody listens").unwrap();
    fs::write(&two, "off 10m second").unwrap();
    until_retries(&it.gateway, "off", "second").await;
    // Moved with what it says, and taken away.
    fs::write(&one, "off 10m third").unwrap();
    it.reload(&at(&one)).await;
    until_retries(&it.gateway, "off", "third").await;
    it.reload(&setup).await;
    assert_eq!(retries(&it.gateway).await.0, "on");
    // What an operator says is not the file's to lift.
    it.gateway.admin(Method::PUT, "/retries?state=off&ttl=1h&reason=drill", "").await;
    it.reload(&at(&two)).await;
    it.reload(&setup).await;
    assert_eq!(retries(&it.gateway).await.0, "off");
}

/// A connection with TLS, the certificate it was shown, and the kind of its handshake.
async fn connected(
    gateway: &Gateway,
    client: &Arc<ClientConfig>,
    protocol: Protocol,
) -> (Caller, Vec<u8>, HandshakeKind) {
    let stream = tls_connect(gateway.address, client, "localhost").await.unwrap();
    let state = stream.get_ref().1;
    let shown = state.peer_certificates().unwrap()[0].to_vec();
    let kind = state.handshake_kind().unwrap();
    let mut caller = Caller::over(stream, protocol).await;
    assert_eq!(caller.send(get("/")).await.text(), "ok");
    (caller, shown, kind)
}

#[tokio::test]
async fn a_listener_of_tls_gets_another_certificate_and_its_connections_stay() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let (ca, folder) = (Ca::new(), Folder::new());
    let (first, second) = (ca.issue(&["localhost"]), ca.issue(&["localhost"]));
    let files = [folder.write_leaf("first", &first), folder.write_leaf("second", &second)];
    let with = |more: &str| Setup::new(upstream).listener(&format!("tls: {{{more}}}"));
    let it = Following::start(&with(&files[0])).await;
    let clients =
        [&["http/1.1"][..], &["h2"][..]].map(|alpn| Arc::new(tls_client(&ca, alpn, None)));
    let mut kept = Vec::new();
    for (client, protocol) in clients.iter().zip(BOTH) {
        let (caller, shown, _) = connected(&it.gateway, client, protocol).await;
        assert_eq!(shown, first.chain()[0].to_vec());
        kept.push(caller);
    }
    // Another key changes: TLS goes on, its sessions too.
    it.reload(&with(&files[0]).route("path_prefix: /, total: 3s")).await;
    let (_, _, kind) = connected(&it.gateway, &clients[0], Protocol::Http1).await;
    assert_eq!(kind, HandshakeKind::Resumed);
    // A certificate that is not there is refused, and nothing changes.
    let nowhere = format!("cert: {0}, key: {0}", folder.path("nowhere.pem"));
    fs::write(&it.file, with(&nowhere).yaml()).unwrap();
    let told = it.gateway.reload().await;
    assert_eq!(told.status, 422);
    assert!(told.text().contains("nowhere.pem"), "{}", told.text());
    it.reload(&with(&files[1])).await;
    for ((client, protocol), caller) in clients.iter().zip(BOTH).zip(&mut kept) {
        let (_, shown, kind) = connected(&it.gateway, client, protocol).await;
        assert_eq!((shown, kind), (second.chain()[0].to_vec(), HandshakeKind::Full));
        assert_eq!(caller.send(get("/")).await.text(), "ok", "{protocol:?} of before");
    }
    // Without TLS, on the same address: the connections of before go on with it.
    it.reload(&Setup::new(upstream)).await;
    assert_eq!(it.gateway.get("/").await.text(), "ok");
    for caller in &mut kept {
        assert_eq!(caller.send(get("/")).await.text(), "ok");
    }
}
