//! Callers behind a proxy: who they are is said in a header of their connection, or of a request.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

async fn behind(more: &str) -> (Gateway, Arrivals) {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let setup = Setup::new(upstream).listener("proxy_protocol: {from: [127.0.0.1, 127.0.0.2]}");
    let setup = setup.listener("timeouts: {first_byte: 300ms}").listener(more);
    (setup.start().await, arrivals)
}

async fn from(gateway: &Gateway, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    within(socket.connect(gateway.address)).await.unwrap()
}

fn line(client: SocketAddr) -> Vec<u8> {
    let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
    let here = if client.is_ipv4() { "127.0.0.1" } else { "::1" };
    format!("PROXY {family} {} {here} {} 443\r\n", client.ip(), client.port()).into_bytes()
}

fn binary(client: SocketAddr) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    match client {
        SocketAddr::V4(client) => {
            header.extend([0x21, 0x11, 0, 12 + 4]);
            header.extend(client.ip().octets());
            header.extend([127, 0, 0, 1]);
        }
        SocketAddr::V6(client) => {
            header.extend([0x21, 0x21, 0, 36 + 4]);
            header.extend(client.ip().octets());
            header.extend([0; 16]);
        }
    }
    header.extend(client.port().to_be_bytes());
    header.extend([1, 187]);
    // A TLV that is skipped.
    header.extend([4, 0, 1, 7]);
    header
}

/// How an answer begins, or nothing if the connection ends before.
async fn status(socket: &mut TcpStream) -> Option<String> {
    let mut begin = [0; 12];
    within(socket.read_exact(&mut begin)).await.ok()?;
    Some(String::from_utf8_lossy(&begin[9..]).into_owned())
}

fn refused(metrics: &Metrics, reason: &str) -> u64 {
    metrics.count("seawall_downstream_connections_refused_total", &[("reason", reason)])
}

#[tokio::test]
async fn the_client_that_the_proxy_names_is_the_peer_in_the_log_and_upstream() {
    let (gateway, arrivals) = behind("").await;
    for client in ["192.0.2.7:4711", "[2001:db8::7]:4711"] {
        let client: SocketAddr = client.parse().unwrap();
        for header in [line(client), binary(client)] {
            for step in [1, header.len() - 1, usize::MAX] {
                let mut socket = from(&gateway, 2).await;
                socket.set_nodelay(true).unwrap();
                let all = [&header[..], GET.as_bytes()].concat();
                // Byte by byte, in two, and in one with the request.
                for part in all.chunks(step.min(all.len())) {
                    socket.write_all(part).await.unwrap();
                    if step == 1 {
                        tokio::task::yield_now().await;
                    }
                }
                assert_eq!(status(&mut socket).await.as_deref(), Some("200"));
                assert_eq!(gateway.line().await["peer"], client.to_string());
                let arrival = arrivals.lock().unwrap().pop().unwrap();
                assert_eq!(arrival.header("x-forwarded-for"), Some(&*client.ip().to_string()));
            }
        }
    }
}

#[tokio::test]
async fn the_header_comes_before_tls() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let (gateway, _) = behind(&format!("tls: {{{files}}}")).await;
    for alpn in [&["http/1.1"][..], &["h2"]] {
        let mut socket = from(&gateway, 1).await;
        socket.write_all(&binary("192.0.2.7:4711".parse().unwrap())).await.unwrap();
        let client = Arc::new(tls_client(&ca, alpn, None));
        let stream = tls_over(socket, &client, "localhost").await.unwrap();
        let protocol = if alpn[0] == "h2" { Protocol::H2c } else { Protocol::Http1 };
        let mut caller = Caller::over(stream, protocol).await;
        assert_eq!(caller.send(get("/")).await.text(), "ok");
        assert_eq!(gateway.line().await["peer"], "192.0.2.7:4711");
    }
}

#[tokio::test]
async fn whoever_is_no_proxy_is_reset_whatever_it_says() {
    let (gateway, arrivals) = behind("").await;
    let mut socket = from(&gateway, 3).await;
    let all = [&line("192.0.2.7:4711".parse().unwrap())[..], GET.as_bytes()].concat();
    let _ = socket.write_all(&all).await;
    assert_eq!(status(&mut socket).await, None);
    gateway.until(|metrics| refused(metrics, "not_a_proxy") == 1).await;
    assert!(arrivals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_header_that_is_none_or_late_ends_the_connection_and_nothing_goes_on() {
    let (gateway, arrivals) = behind("").await;
    let good = line("192.0.2.7:4711".parse().unwrap());
    let mut count = 0;
    let broken: [&[u8]; 7] = [
        GET.as_bytes(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 99999 443\r\n",
        &[b'P'; 300],
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        // Late: there is no more.
        &good[..good.len() - 1],
    ];
    for begin in broken {
        let mut socket = from(&gateway, 1).await;
        let _ = socket.write_all(begin).await;
        assert_eq!(status(&mut socket).await, None, "{begin:?}");
        count += 1;
        gateway.until(|metrics| refused(metrics, "proxy_header") == count).await;
    }
    // And silence.
    let mut socket = from(&gateway, 1).await;
    assert_eq!(status(&mut socket).await, None);
    let metrics = gateway.until(|metrics| refused(metrics, "proxy_header") == count + 1).await;
    assert_eq!(metrics.count("seawall_downstream_connections_opened_total", &[]), 0);
    let waiting = "connections whose proxy has yet to name the caller";
    assert_eq!(crate::observed::depth(&gateway, waiting).await, 0);
    let held = from(&gateway, 1).await;
    within(async { while crate::observed::depth(&gateway, waiting).await != 1 {} }).await;
    drop(held);
    assert!(arrivals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_proxy_that_speaks_for_itself_is_the_peer() {
    let (gateway, _) = behind("per_address: {connections: 1}").await;
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let mut socket = from(&gateway, 2).await;
        socket.write_all(&[header, GET.as_bytes()].concat()).await.unwrap();
        assert_eq!(status(&mut socket).await.as_deref(), Some("200"));
        let peer = gateway.line().await["peer"].as_str().unwrap().to_owned();
        assert_eq!(peer, socket.local_addr().unwrap().to_string());
        drop(socket);
        gateway.until(|it| it.count("seawall_downstream_connections", &[]) == 0).await;
    }
}

#[tokio::test]
async fn limits_and_trust_are_the_clients_and_not_the_proxys() {
    let trusted = "trusted_peers: [127.0.0.2, 192.0.2.99], accept: {refuse: answer}, \
                   per_address: {connections: 1}";
    let (gateway, arrivals) = behind(trusted).await;
    let say = async |client: &str| {
        let mut socket = from(&gateway, 2).await;
        let header = line(client.parse().unwrap());
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: t\r\n\r\n";
        socket.write_all(&[&header[..], request.as_bytes()].concat()).await.unwrap();
        let status = status(&mut socket).await;
        let tenant = arrivals.lock().unwrap().pop().map(|it| it.header("x-tenant").is_some());
        (status.unwrap(), tenant, socket)
    };
    let (status, tenant, _one) = say("192.0.2.7:1").await;
    assert_eq!((&*status, tenant), ("200", Some(false)), "its proxy is trusted, it is not");
    let (status, tenant, _) = say("192.0.2.7:2").await;
    assert_eq!((&*status, tenant), ("429", None));
    let (status, ..) = say("192.0.2.8:1").await;
    assert_eq!(status, "200");
    let mut kept = Vec::new();
    for port in 1..4 {
        let (status, tenant, socket) = say(&format!("192.0.2.99:{port}")).await;
        assert_eq!((&*status, tenant), ("200", Some(true)));
        kept.push(socket);
    }
}

#[tokio::test]
async fn requests_of_a_trusted_proxy_count_for_the_clients_it_names() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let listener = "trusted_peers: [127.0.0.1, 10.0.0.0/8], client_header: X-Forwarded-For, \
                    per_address: {request_rate: 1/h, request_burst: 1}";
    let gateway = Setup::new(upstream).listener(listener).start().await;
    for protocol in BOTH {
        let mut caller = gateway.caller(protocol).await;
        let mut ask = async |field: Option<&str>| {
            let mut request = get("/");
            if let Some(field) = field {
                request.headers_mut().insert("x-forwarded-for", field.parse().unwrap());
            }
            let status = caller.send(request).await.status;
            (status, gateway.line().await["client"].as_str().map(str::to_owned))
        };
        let own = format!("192.0.2.{}", protocol as u8);
        let client = Some(own.clone());
        assert_eq!(ask(Some(&own)).await, (200, client.clone()));
        let long = format!("1.1.1.1, {own}, 10.0.0.7");
        assert_eq!(ask(Some(&long)).await, (429, client), "what it wrote itself changes nothing");
        for _ in 0..3 {
            assert_eq!(ask(None).await, (200, None), "nobody is named: it speaks for many");
        }
    }
    arrivals.lock().unwrap().clear();
    // From anybody else the field is neither read nor passed on.
    let mut caller = Caller::over(from(&gateway, 9).await, Protocol::Http1).await;
    for (status, client) in [(200, "192.0.2.50"), (429, "192.0.2.51")] {
        let mut request = get("/");
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        assert_eq!(caller.send(request).await.status, status);
        assert!(gateway.line().await["client"].is_null());
    }
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].header("x-forwarded-for"), Some("127.0.0.9"));
}

#[tokio::test]
async fn a_rate_for_each_peer_counts_the_clients_that_a_trusted_proxy_names() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let rate = "rate: {per_key: {key: peer, limit: 1/h, burst: 1}}";
    let listener = "trusted_peers: [127.0.0.1], client_header: X-Real-Ip";
    let setup = Setup::new(upstream).upstream(rate).listener(listener);
    let mut caller = setup.start().await.caller(Protocol::Http1).await;
    for (client, status) in
        [("192.0.2.7", 200), ("192.0.2.8", 200), ("192.0.2.7", 429), ("2001:db8::7", 200)]
    {
        let mut request = get("/");
        request.headers_mut().insert("x-real-ip", client.parse().unwrap());
        assert_eq!(caller.send(request).await.status, status, "{client}");
    }
}
