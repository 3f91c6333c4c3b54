//! TLS to upstreams: who is trusted, what is shown, and that nothing is sent to anybody else.

use rustls::HandshakeKind;

use crate::support::*;

const ALPN: [(Protocol, &[&str]); 2] =
    [(Protocol::Http1, &["h2", "http/1.1"]), (Protocol::H2c, &["h2", "http/1.1"])];

#[tokio::test]
async fn an_upstream_is_spoken_to_by_name_and_alpn_on_connections_that_are_kept() {
    let ca = Ca::new();
    for (protocol, alpn) in ALPN {
        let folder = Folder::new();
        let (plain, arrivals) = Upstream::scripted(protocol, |_, _| answer(200, "ok")).await;
        let front = TlsFront::start(plain, &ca.issue(&["localhost"]), alpn, None).await;
        let roots = folder.write("ca.pem", &ca.pem());
        let url = format!("https://localhost:{}", front.address.port());
        let setup = Setup::at(&url).speaks(protocol).upstream(&format!("tls: {{ca: {roots}}}"));
        let gateway = setup.start().await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        for _ in 0..3 {
            let answer = caller.send(post("/a?b", full("body"))).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        }
        let handshakes = front.handshakes.lock().unwrap().clone();
        assert_eq!(handshakes, [(Some("localhost".to_owned()), HandshakeKind::Full)], "kept");
        let arrivals = arrivals.lock().unwrap();
        assert!(arrivals.iter().all(|it| it.body == "body" && it.path.ends_with("/a?b")));
        if protocol == Protocol::H2c {
            assert!(arrivals[0].path == "/a?b");
        } else {
            assert_eq!(arrivals[0].header("host"), Some("test"), "as the caller said");
        }
    }
}

#[tokio::test]
async fn the_next_connection_takes_the_session_up() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (plain, _) = Upstream::scripted(Protocol::Http1, |_, _| {
        let mut response = answer(200, "ok");
        response.headers_mut().insert("connection", "close".parse().unwrap());
        response
    })
    .await;
    let front = TlsFront::start(plain, &ca.issue(&["localhost"]), &["http/1.1"], None).await;
    let roots = folder.write("ca.pem", &ca.pem());
    let url = format!("https://localhost:{}", front.address.port());
    let gateway = Setup::at(&url).upstream(&format!("tls: {{ca: {roots}}}")).start().await;
    for _ in 0..3 {
        assert_eq!(gateway.get("/").await.status, 200);
    }
    let kinds: Vec<_> = front.handshakes.lock().unwrap().iter().map(|(_, kind)| *kind).collect();
    let resumed = HandshakeKind::Resumed;
    assert_eq!(kinds, [HandshakeKind::Full, resumed, resumed]);
    let metrics = gateway.metrics().await;
    for (result, count) in [("full", 1), ("resumed", 2), ("failed", 0)] {
        let labels = [("upstream", "up"), ("result", result)];
        assert_eq!(metrics.count("seawall_upstream_tls_handshakes_total", &labels), count);
    }
}

#[tokio::test]
async fn nothing_is_sent_to_an_upstream_that_is_not_who_it_should_be() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let folder = Folder::new();
    let roots = folder.write("ca.pem", &ca.pem());
    let expired = ca.issue_with(&["localhost"], |params| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    for (what, leaf, alpn, protocol) in [
        ("another's certificate", stranger.issue(&["localhost"]), "http/1.1", Protocol::Http1),
        ("another name", ca.issue(&["other.test"]), "http/1.1", Protocol::Http1),
        ("expired", expired, "http/1.1", Protocol::Http1),
        ("no HTTP/2", ca.issue(&["localhost"]), "http/1.1", Protocol::H2c),
    ] {
        let (plain, arrivals) = Upstream::scripted(protocol, |_, _| answer(200, "ok")).await;
        let front = TlsFront::start(plain, &leaf, &[alpn], None).await;
        let url = format!("https://localhost:{}", front.address.port());
        let setup = Setup::at(&url).speaks(protocol).upstream(&format!("tls: {{ca: {roots}}}"));
        let gateway = setup.upstream("retry: {redispatches: 0}").start().await;
        let refused = gateway.send(post("/", full("a secret"))).await;
        assert_eq!(refused.status, 503, "{what}");
        let line = gateway.line().await;
        assert_eq!(line["cause"], "tls", "{what}: {line}");
        let metrics = gateway.metrics().await;
        assert!(metrics.count("seawall_causes_total", &[("cause", "tls")]) >= 1, "{what}");
        let failed = [("result", "failed")];
        assert!(metrics.count("seawall_upstream_tls_handshakes_total", &failed) >= 1, "{what}");
        assert!(arrivals.lock().unwrap().is_empty(), "{what}");
    }
}

#[tokio::test]
async fn a_plain_upstream_is_no_upstream_of_tls_and_a_silent_one_times_out() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let roots = folder.write("ca.pem", &ca.pem());
    let tls = format!("tls: {{ca: {roots}}}");
    let (plain, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let url = format!("https://localhost:{}", plain.port());
    let gateway = Setup::at(&url).upstream(&tls).start().await;
    assert_eq!(gateway.get("/").await.status, 503);
    assert_eq!(gateway.line().await["cause"], "tls");
    assert!(arrivals.lock().unwrap().is_empty());

    let silent = RawUpstream::bind().await;
    let url = format!("https://localhost:{}", silent.address.port());
    let setup = Setup::at(&url).upstream(&tls).upstream("timeouts: {connect: 200ms}");
    let gateway = setup.start().await;
    assert_eq!(gateway.get("/").await.status, 503);
    assert_eq!(gateway.line().await["cause"], "connect_timeout");
}

#[tokio::test]
async fn a_certificate_is_shown_to_an_upstream_that_asks_for_one() {
    let (ca, clients) = (Ca::new(), Ca::new());
    let folder = Folder::new();
    let roots = folder.write("ca.pem", &ca.pem());
    let mine = clients.issue(&["me"]);
    let cert = folder.write("mine.pem", &mine.cert);
    let key = folder.write("mine.key", &mine.key);
    let shown = format!(", client_cert: {cert}, client_key: {key}");
    for (more, is_served) in [(shown.as_str(), true), ("", false)] {
        let (plain, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
        let leaf = ca.issue(&["orders.test"]);
        let front = TlsFront::start(plain, &leaf, &["http/1.1"], Some(&clients)).await;
        let setup = Setup::at(&format!("https://{}", front.address))
            .upstream(&format!("tls: {{ca: {roots}, server_name: orders.test{more}}}"));
        let gateway = setup.start().await;
        let answer = gateway.send(post("/", full("x"))).await;
        let line = gateway.line().await;
        assert_eq!(answer.status == 200, is_served, "{line}");
        assert_eq!(arrivals.lock().unwrap().len(), usize::from(is_served));
        if !is_served {
            // TLS 1.3 tells us only after our side of the handshake: nothing was processed.
            assert_eq!(line["cause"], "tls", "{line}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_lasts_until_the_connection_ends_is_whole_only_if_tls_ended() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let roots = folder.write("ca.pem", &ca.pem());
    let raw = RawUpstream::bind().await;
    let leaf = ca.issue(&["localhost"]);
    let front = TlsFront::start(raw.address, &leaf, &["http/1.1"], None).await;
    let url = format!("https://localhost:{}", front.address.port());
    let gateway = Setup::at(&url).upstream(&format!("tls: {{ca: {roots}}}")).start().await;
    let asked = async { gateway.get("/").await };
    let served = async {
        let mut conn = raw.accept().await;
        conn.head().await;
        conn.write("HTTP/1.1 200 OK\r\n\r\nuntil the end").await;
    };
    let (answer, ()) = tokio::join!(asked, served);
    assert_eq!(answer.text(), "until the end");
}
