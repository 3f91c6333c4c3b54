//! Sockets of this host, on both sides.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use seawall_gateway::GatewayConfig;
use tokio::net::{UnixListener, UnixStream};

use crate::support::*;

/// Passes what comes to a socket on to a port.
async fn front(path: &str, port: std::net::SocketAddr) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(port).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
}

async fn call(path: &str, protocol: Protocol) -> Caller {
    Caller::over(within(UnixStream::connect(path)).await.unwrap(), protocol).await
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn requests_pass_from_socket_to_socket_and_peers_are_loopback() {
    let folder = Folder::new();
    for (from, to) in PAIRS {
        let name = format!("{from:?}-{to:?}");
        let [near, far] = ["near", "far"].map(|end| folder.path(&format!("{name}-{end}")));
        let (upstream, arrivals) = Upstream::scripted(to, |_, _| answer(200, "ok")).await;
        front(&far, upstream).await;
        let gateway = Setup::at(&format!("unix:{far}"))
            .speaks(to)
            .listens(&format!("unix:{near}"))
            .listener("socket_mode: 0600")
            .start()
            .await;
        let mut caller = call(&near, from).await;
        let mut request = post("/", full("body"));
        request.headers_mut().insert("x-remaining-ms", "5000".parse().unwrap());
        request.headers_mut().insert("x-tenant", "somebody".parse().unwrap());
        request.headers_mut().insert("forwarded", "for=192.0.2.1".parse().unwrap());
        let answer = caller.send(request).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        {
            let arrivals = arrivals.lock().unwrap();
            assert_eq!(arrivals[0].header("x-forwarded-for"), Some("127.0.0.1"));
            let forwarded = arrivals[0].header("forwarded").unwrap();
            assert!(forwarded.starts_with("for=127.0.0.1;"), "{forwarded}");
            assert_eq!(arrivals[0].header("x-tenant"), None, "whoever is not named states nothing");
            let left: u64 = arrivals[0].header("x-remaining-ms").unwrap().parse().unwrap();
            assert!(left < 5_000, "loopback may state a deadline");
        }
        let line = gateway.line().await;
        assert_eq!(line["peer"], "unix");
        assert_eq!(line["endpoint"], format!("unix:{far}"));
        drop(caller);
        gateway.drain();
        gateway.drain();
        gateway.ended().await;
        assert!(!Path::new(&near).exists(), "the file goes with the listener");
    }
}

#[tokio::test]
async fn peers_are_named_as_loopback_is_and_tls_is_spoken_if_it_is_asked_for() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let path = folder.path("tls");
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let gateway = Setup::new(upstream)
        .listens(&format!("unix:{path}"))
        .listener(&format!("tls: {{{files}}}"))
        .trusted()
        .start()
        .await;
    let config = Arc::new(tls_client(&ca, &["h2"], None));
    let stream = within(UnixStream::connect(&path)).await.unwrap();
    let stream = tls_over(stream, &config, "localhost").await.unwrap();
    let mut request = get("/");
    request.headers_mut().insert("x-tenant", "somebody".parse().unwrap());
    assert_eq!(Caller::over(stream, Protocol::H2c).await.send(request).await.text(), "ok");
    assert_eq!(gateway.line().await["peer"], "unix");
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals[0].header("x-forwarded-proto"), Some("https"));
    assert_eq!(arrivals[0].header("x-tenant"), Some("somebody"));
}

#[tokio::test]
async fn a_start_takes_the_place_of_the_dead_alone() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let setup = Setup::new(upstream).listens(&format!("unix:{path}"));
    let refused = async || {
        let (config, _) = GatewayConfig::parse(&setup.yaml(), "test").unwrap();
        let started = within(seawall_gateway::start(config, std::io::sink())).await;
        started.unwrap_err().to_string()
    };
    // As a killed process leaves it.
    drop(UnixListener::bind(&path).unwrap());
    let gateway = setup.start().await;
    let told = refused().await;
    assert!(told.starts_with(&format!("listen on unix:{path}: ")), "{told}");
    assert!(told.ends_with("is another process using it?"), "{told}");
    assert_eq!(call(&path, Protocol::Http1).await.send(get("/")).await.text(), "ok");
    gateway.drain();
    gateway.drain();
    gateway.ended().await;
    fs::write(&path, "kept").unwrap();
    assert!(refused().await.ends_with("what is there is no socket, and stays"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    fs::remove_dir_all(Path::new(&path).parent().unwrap()).unwrap();
    assert!(refused().await.ends_with("is the folder of the socket there?"));
}

#[tokio::test]
async fn a_reload_keeps_moves_and_reopens_sockets_and_loses_nothing() {
    for protocol in BOTH {
        let folder = Folder::new();
        let file = folder.path("seawall.yaml");
        let (one, other) = (folder.path("one"), folder.path("other"));
        let mut upstream = Upstream::start(protocol).await;
        let setup = Setup::new(upstream.address).speaks(protocol);
        let at = |path: &str| setup.clone().listens(&format!("unix:{path}"));
        let write = |setup: Setup| fs::write(&file, setup.yaml()).unwrap();
        write(at(&one).listener("socket_mode: 0600"));
        let (config, _) = GatewayConfig::load(Path::new(&file)).unwrap();
        let gateway = Gateway::start(config).await;
        // On a busy machine the change may have been noticed before.
        let reloaded = async || {
            let told = gateway.reload().await;
            assert_eq!(told.status, 200, "{}", told.text());
        };
        let mut kept = call(&one, protocol).await;
        assert_eq!(mode(&one), 0o600);

        // The same socket with other permissions and another limit: the connection goes on.
        write(at(&one).listener("socket_mode: 0660, timeouts: {idle: 74s}"));
        reloaded().await;
        assert_eq!(mode(&one), 0o660);
        let waiting = tokio::spawn(async move { (kept.send(get("/")).await.text(), kept) });
        let call_of_one = upstream.next().await;

        // It moves while a request is under way, and what was there is gone.
        write(at(&other));
        reloaded().await;
        assert!(!Path::new(&one).exists());
        let mut moved = call(&other, protocol).await;
        let second = tokio::spawn(async move { moved.send(get("/")).await.text() });
        upstream.next().await.answer(answer(200, "second"));
        assert_eq!(within(second).await.unwrap(), "second");
        call_of_one.answer(answer(200, "first"));
        assert_eq!(within(waiting).await.unwrap().0, "first");

        // And back at once, which needs the first to be closed for good.
        for path in [&one, &other, &one] {
            write(at(path));
            reloaded().await;
            assert!(Path::new(path).exists());
        }
        // What cannot be opened changes nothing.
        fs::write(&other, "kept").unwrap();
        write(at(&other));
        let told = gateway.reload().await;
        assert_eq!(told.status, 422);
        assert!(told.text().contains("no socket, and stays"), "{}", told.text());
        let mut last = call(&one, protocol).await;
        let last = tokio::spawn(async move { last.send(get("/")).await.text() });
        upstream.next().await.answer(answer(200, "last"));
        assert_eq!(within(last).await.unwrap(), "last");
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    }
}

#[tokio::test]
async fn a_drain_serves_what_is_there_and_takes_the_socket_away() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address)
        .listens(&format!("unix:{path}"))
        .top("drain: {accept: 300ms, in_flight: 5s, close: 1s}")
        .start()
        .await;
    let mut early = call(&path, Protocol::Http1).await;
    let early = tokio::spawn(async move { early.send(get("/early")).await.text() });
    let first = upstream.next().await;
    gateway.drain();
    gateway.until(|metrics| metrics.count("seawall_draining", &[]) == 1).await;
    let mut late = call(&path, Protocol::Http1).await;
    let late = tokio::spawn(async move { late.send(get("/late")).await.text() });
    let second = upstream.next().await;
    // The next phase: nobody can come any more, and those who are there have their answer.
    within(async {
        while UnixStream::connect(&path).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!Path::new(&path).exists());
    first.answer(answer(200, "one"));
    second.answer(answer(200, "two"));
    assert_eq!(within(early).await.unwrap(), "one");
    assert_eq!(within(late).await.unwrap(), "two");
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (0, 0));
}
