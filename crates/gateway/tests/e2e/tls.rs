//! TLS of callers: what is served, what is refused, and that both are bounded and counted.

use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

/// A gateway for `localhost` with more keys under `tls`, in front of an upstream that echoes.
async fn secured(ca: &Ca, folder: &Folder, more: &str) -> (Gateway, Arrivals) {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let setup = Setup::new(upstream).listener(&format!("tls: {{{files}{more}}}"));
    let setup = setup.listener("timeouts: {first_byte: 300ms, head: 300ms}");
    (setup.start().await, arrivals)
}

fn client(ca: &Ca, alpn: &[&str]) -> Arc<ClientConfig> {
    Arc::new(tls_client(ca, alpn, None))
}

/// Waits until handshakes with this result were counted.
async fn counted(gateway: &Gateway, result: &str, count: u64) {
    let wanted = [("result", result)];
    gateway.until(|metrics| metrics.count("seawall_tls_handshakes_total", &wanted) == count).await;
}

#[tokio::test]
async fn alpn_chooses_the_protocol_and_the_upstream_is_told_the_scheme() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, arrivals) = secured(&ca, &folder, "").await;
    for (alpn, chosen, protocol) in [
        (&["h2", "http/1.1"][..], Some("h2"), Protocol::H2c),
        (&["http/1.1"][..], Some("http/1.1"), Protocol::Http1),
        (&[][..], None, Protocol::Http1),
        (&[][..], None, Protocol::H2c),
    ] {
        let stream = tls_connect(gateway.address, &client(&ca, alpn), "localhost").await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes));
        let mut caller = Caller::over(stream, protocol).await;
        for _ in 0..2 {
            assert_eq!(caller.send(get("/")).await.text(), "ok");
        }
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 8);
    assert!(arrivals.iter().all(|it| it.header("x-forwarded-proto") == Some("https")));
}

#[tokio::test]
async fn the_best_protocol_is_the_listeners_and_none_in_common_is_refused() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, _) = secured(&ca, &folder, ", alpn: [http/1.1]").await;
    let both = client(&ca, &["h2", "http/1.1"]);
    let stream = tls_connect(gateway.address, &both, "localhost").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let refused = tls_connect(gateway.address, &client(&ca, &["h2"]), "localhost").await;
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("NoApplicationProtocol"), "the alert is read: {told}");
    counted(&gateway, "alpn", 1).await;
}

#[tokio::test]
async fn an_old_version_is_refused_where_a_new_one_is_asked_for() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, _) = secured(&ca, &folder, ", min_version: 1.3").await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let old = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(ca.roots())
        .with_no_client_auth();
    tls_connect(gateway.address, &Arc::new(old), "localhost").await.unwrap_err();
    counted(&gateway, "protocol", 1).await;
    tls_connect(gateway.address, &client(&ca, &[]), "localhost").await.unwrap();
    counted(&gateway, "full", 1).await;
}

#[tokio::test]
async fn a_certificate_is_chosen_by_name_and_the_first_is_for_all_others() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let second = folder.write_leaf("second", &ca.issue(&["*.second.test"]));
    let more = format!(", certificates: [{{{second}}}]");
    let (gateway, _) = secured(&ca, &folder, &more).await;
    let client = client(&ca, &[]);
    for (name, served) in [("localhost", true), ("a.second.test", true), ("other.test", false)] {
        let stream = tls_connect(gateway.address, &client, name).await;
        assert_eq!(stream.is_ok(), served, "{name}");
    }
    counted(&gateway, "refused_by_peer", 1).await;
}

#[tokio::test]
async fn clients_show_a_certificate_where_they_must_and_a_bad_one_is_refused_in_any_case() {
    let (ca, clients, strangers) = (Ca::new(), Ca::new(), Ca::new());
    let (good, bad) = (clients.issue(&["me"]), strangers.issue(&["me"]));
    for auth in ["required", "optional"] {
        let folder = Folder::new();
        let file = folder.write("clients.pem", &clients.pem());
        let more = format!(", client_ca: {file}, client_auth: {auth}");
        let (gateway, arrivals) = secured(&ca, &folder, &more).await;
        for (shown, is_served) in [(Some(&good), true), (Some(&bad), false), (None, false)] {
            let is_served = is_served || shown.is_none() && auth == "optional";
            let config = Arc::new(tls_client(&ca, &["http/1.1"], shown));
            let served = async {
                let mut stream = tls_connect(gateway.address, &config, "localhost").await?;
                stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
                let mut text = String::new();
                within(stream.read_to_string(&mut text)).await?;
                Ok::<_, std::io::Error>(text)
            };
            let served = served.await;
            assert_eq!(served.is_ok(), is_served, "{auth} {:?} {served:?}", shown.is_some());
        }
        let refused = if auth == "required" { 2 } else { 1 };
        counted(&gateway, "client_certificate", refused).await;
        let passed = arrivals.lock().unwrap().len() as u64;
        assert_eq!(passed, 3 - refused);
    }
}

#[tokio::test]
async fn http_on_a_port_of_tls_is_told_so_and_garbage_is_closed() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, arrivals) = secured(&ca, &folder, "").await;
    let mut caller = gateway.raw().await;
    caller.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let told = caller.rest().await;
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("speaks TLS"), "{told}");
    let (_, body) = told.split_once("\r\n\r\n").unwrap();
    assert!(told.contains(&format!("content-length: {}\r\n", body.len())), "{told}");
    counted(&gateway, "not_tls", 1).await;
    let mut caller = gateway.raw().await;
    caller.write([0x80, 0x2e, 1, 0, 2]).await;
    assert_eq!(caller.rest().await, "");
    counted(&gateway, "not_tls", 2).await;
    // A record that is none, and one larger than a record may be.
    for garbage in [&b"\x16\x03\x01\x00\x04\x01\x00\x00\x00"[..], b"\x16\x03\x03\xff\xffxxxxxxxx"] {
        let mut caller = gateway.raw().await;
        caller.write(garbage).await;
        caller.rest().await;
    }
    counted(&gateway, "protocol", 2).await;
    let closed = [("reason", "handshake")];
    gateway.until(|it| it.count("seawall_downstream_connections_closed_total", &closed) == 4).await;
    assert!(arrivals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_hello_in_single_bytes_is_served_and_one_that_stops_ends_in_time() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, _) = secured(&ca, &folder, "").await;
    // Through a front that passes on one byte at a time.
    let (mut near, far) = tokio::io::duplex(1);
    let target = gateway.address;
    let socket = within(tokio::net::TcpStream::connect(target)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    tokio::spawn(async move {
        let mut socket = socket;
        let _ = tokio::io::copy_bidirectional(&mut near, &mut socket).await;
    });
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(client(&ca, &["http/1.1"]));
    let stream = within(connector.connect(name, far)).await.unwrap();
    assert_eq!(Caller::over(stream, Protocol::Http1).await.send(get("/")).await.text(), "ok");

    let mut silent = gateway.raw().await;
    let mut stuck = gateway.raw().await;
    stuck.write(b"\x16\x03\x01\x01\x00\x01").await;
    let seen = |it: &Metrics| it.count("seawall_tls_handshakes_in_progress", &[]) == 1;
    gateway.until(seen).await;
    assert_eq!((silent.rest().await, stuck.rest().await), (String::new(), String::new()));
    counted(&gateway, "timeout", 1).await;
    for (reason, count) in [("first_byte", 1), ("handshake", 1)] {
        let closed = [("reason", reason)];
        gateway
            .until(|it| it.count("seawall_downstream_connections_closed_total", &closed) == count)
            .await;
    }
    gateway.until(|it| it.count("seawall_tls_handshakes_in_progress", &[]) == 0).await;
    let left = gateway.raw().await;
    drop(left);
    let mut left = gateway.raw().await;
    left.write(b"\x16\x03").await;
    drop(left);
    counted(&gateway, "closed", 1).await;
}

#[tokio::test]
async fn a_session_is_taken_up_by_the_next_connection() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (gateway, _) = secured(&ca, &folder, "").await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    for (index, version) in
        [&rustls::version::TLS13, &rustls::version::TLS12].into_iter().enumerate()
    {
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(ca.roots())
            .with_no_client_auth();
        let config = Arc::new(config);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let stream = tls_connect(gateway.address, &config, "localhost").await.unwrap();
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind));
            // Tickets of TLS 1.3 come with the answer.
            let mut caller = Caller::over(stream, Protocol::Http1).await;
            assert_eq!(caller.send(get("/")).await.text(), "ok");
        }
        counted(&gateway, "resumed", index as u64 + 1).await;
    }
}

#[tokio::test]
async fn a_caller_that_takes_nothing_is_given_up_over_tls_as_without() {
    let (upstream, _) =
        Upstream::scripted(Protocol::Http1, |_, _| answer(200, pattern(16 << 20))).await;
    let (ca, folder) = (Ca::new(), Folder::new());
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let setup = Setup::new(upstream).listener(&format!("tls: {{{files}}}"));
    let gateway = setup.upstream("timeouts: {idle: 300ms}").start().await;
    let mut stream = tls_connect(gateway.address, &client(&ca, &[]), "localhost").await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let closed = [("reason", "stall")];
    gateway.until(|it| it.count("seawall_downstream_connections_closed_total", &closed) == 1).await;
    drop(stream);
}

#[tokio::test]
async fn a_tunnel_passes_through_tls_on_both_sides() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let upstream = RawUpstream::bind().await;
    let leaf = ca.issue(&["localhost", "127.0.0.1"]);
    let front = TlsFront::start(upstream.address, &leaf, &["http/1.1"], None).await;
    let roots = folder.write("ca.pem", &ca.pem());
    let files = folder.write_leaf("server", &leaf);
    let setup = Setup::at(&format!("https://{}", front.address))
        .upstream(&format!("tls: {{ca: {roots}}}"))
        .listener(&format!("tls: {{{files}}}"));
    let gateway = setup.start().await;
    let stream =
        tls_connect(gateway.address, &client(&ca, &["http/1.1"]), "localhost").await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    writer
        .write_all(
            b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await
        .unwrap();
    let mut served = upstream.accept().await;
    assert!(served.head().await.to_lowercase().contains("upgrade: websocket"));
    served
        .write(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(reader.read_u8()).await.unwrap());
    }
    writer.write_all(b"ping").await.unwrap();
    assert_eq!(served.read_exact(4).await, b"ping");
    served.write("pong").await;
    let mut pong = [0; 4];
    within(reader.read_exact(&mut pong)).await.unwrap();
    assert_eq!(&pong, b"pong");
    writer.shutdown().await.unwrap();
    assert!(served.rest().await.is_empty(), "the caller's end arrives");
    drop(served);
    let mut rest = Vec::new();
    within(reader.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
    assert_eq!(gateway.line().await["completion_reason"], "complete");
}

#[tokio::test]
async fn a_peer_that_ends_no_handshake_keeps_nobody_else_out() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).listener(&format!("tls: {{{files}}}")).start().await;
    let mut stuck = Vec::new();
    for _ in 0..300 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut socket = within(socket.connect(gateway.address)).await.unwrap();
        socket.write_all(b"\x16\x03\x01").await.unwrap();
        stuck.push(socket);
    }
    let open = |it: &Metrics| it.count("seawall_downstream_connections", &[]) == 300;
    gateway.until(open).await;
    gateway.until(|it| it.count("seawall_tls_handshakes_in_progress", &[]) == 256).await;
    let stream = tls_connect(gateway.address, &client(&ca, &["http/1.1"]), "localhost").await;
    let mut caller = Caller::over(stream.unwrap(), Protocol::Http1).await;
    assert_eq!(caller.send(get("/")).await.text(), "ok");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_tls_handshakes_in_progress", &[]), 256);
}
