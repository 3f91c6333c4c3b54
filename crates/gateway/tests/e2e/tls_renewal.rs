//! Certificates that change while the gateway serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustls::{ClientConfig, HandshakeKind};

use crate::support::*;

/// The certificate a fresh connection is shown, and the kind of its handshake.
async fn shown(gateway: &Gateway, client: &Arc<ClientConfig>) -> (Option<Vec<u8>>, HandshakeKind) {
    let stream = tls_connect(gateway.address, client, "localhost").await.unwrap();
    let state = stream.get_ref().1;
    let first = state.peer_certificates().and_then(|chain| chain.first());
    let seen = (first.map(|der| der.to_vec()), state.handshake_kind().unwrap());
    let mut caller = Caller::over(stream, Protocol::Http1).await;
    assert_eq!(caller.send(get("/")).await.text(), "ok");
    seen
}

fn no_sessions(ca: &Ca) -> Arc<ClientConfig> {
    let mut config = tls_client(ca, &[], None);
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

async fn healthy() -> std::net::SocketAddr {
    Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await.0
}

/// Waits until a fresh connection is shown this certificate.
async fn until_shown(gateway: &Gateway, client: &Arc<ClientConfig>, leaf: &Leaf) {
    let wanted = leaf.chain()[0].to_vec();
    within(async {
        while shown(gateway, client).await.0.as_ref() != Some(&wanted) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_new_certificate_costs_no_request_and_no_session() {
    let (ca, folder) = (Ca::new(), Folder::new());
    // As Kubernetes lays secrets out: files link to ..data, which links to a folder.
    let lay = |number: usize, leaf: &Leaf| {
        let data = folder.path(&format!("..{number}"));
        std::fs::create_dir(&data).unwrap();
        std::fs::write(format!("{data}/tls.crt"), &leaf.cert).unwrap();
        std::fs::write(format!("{data}/tls.key"), &leaf.key).unwrap();
        let fresh = folder.path("..data_tmp");
        std::os::unix::fs::symlink(&data, &fresh).unwrap();
        std::fs::rename(&fresh, folder.path("..data")).unwrap();
    };
    let leaves: Vec<_> = (0..3).map(|_| ca.issue(&["localhost"])).collect();
    lay(0, &leaves[0]);
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), folder.path(name)).unwrap();
    }
    let files = format!("cert: {}, key: {}", folder.path("tls.crt"), folder.path("tls.key"));
    let setup = Setup::new(healthy().await).listener(&format!("tls: {{{files}}}"));
    let gateway = Arc::new(setup.start().await);
    let (fresh, resuming) = (no_sessions(&ca), Arc::new(tls_client(&ca, &[], None)));
    shown(&gateway, &resuming).await;
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let load: Vec<_> = [Protocol::Http1, Protocol::H2c]
        .map(|protocol| {
            let (gateway, stop) = (Arc::clone(&gateway), Arc::clone(&stop));
            let (client, sent) = (no_sessions(&ca), Arc::clone(&sent));
            tokio::spawn(async move {
                let stream = tls_connect(gateway.address, &client, "localhost").await.unwrap();
                let mut kept = Caller::over(stream, protocol).await;
                while !stop.load(Ordering::Relaxed) {
                    // One connection goes on through all of it, others come and go.
                    assert_eq!(kept.send(get("/")).await.status, 200);
                    shown(&gateway, &client).await;
                    sent.fetch_add(2, Ordering::Relaxed);
                }
            })
        })
        .into_iter()
        .collect();
    for (number, leaf) in leaves.iter().enumerate().skip(1) {
        lay(number, leaf);
        until_shown(&gateway, &fresh, leaf).await;
        let kind = shown(&gateway, &resuming).await.1;
        assert_eq!(kind, HandshakeKind::Resumed, "sessions outlive the certificate");
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    assert!(sent.load(Ordering::Relaxed) > 0);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_tls_reloads_total", &[("result", "renewed")]), 2);
    assert_eq!(metrics.count("seawall_tls_reloads_total", &[("result", "failed")]), 0);
    let path = folder.path("tls.crt");
    let end = metrics.count("seawall_tls_certificate_not_after_seconds", &[("certificate", &path)]);
    assert_eq!(end, 67_090_118_400, "4096-01-01, which is the default of the tests' certificates");
}

#[tokio::test]
async fn a_bad_pair_changes_nothing_and_shows_until_it_is_mended() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (first, second) = (ca.issue(&["localhost"]), ca.issue(&["localhost"]));
    let files = folder.write_leaf("server", &first);
    let setup = Setup::new(healthy().await).listener(&format!("tls: {{{files}}}"));
    let gateway = setup.start().await;
    let client = no_sessions(&ca);
    assert_eq!(gateway.metrics().await.count("seawall_tls_reload_failing", &[]), 0);
    // A certificate whose key is another's.
    folder.write("server.pem", &second.cert);
    gateway.until(|it| it.count("seawall_tls_reload_failing", &[]) == 1).await;
    assert_eq!(shown(&gateway, &client).await.0, Some(first.chain()[0].to_vec()));
    folder.write("server.key", &second.key);
    until_shown(&gateway, &client, &second).await;
    let metrics = gateway.until(|it| it.count("seawall_tls_reload_failing", &[]) == 0).await;
    assert_eq!(metrics.count("seawall_tls_reloads_total", &[("result", "failed")]), 1);
}

#[tokio::test]
async fn a_session_does_not_outlive_the_trust_it_was_made_under() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let (old, new) = (Ca::new(), Ca::new());
    let files = folder.write_leaf("server", &ca.issue(&["localhost"]));
    let clients = folder.write("clients.pem", &old.pem());
    let setup = Setup::new(healthy().await);
    let setup = setup.listener(&format!("tls: {{{files}, client_ca: {clients}}}"));
    let gateway = setup.start().await;
    let mine = old.issue(&["me"]);
    let client = Arc::new(tls_client(&ca, &[], Some(&mine)));
    assert_eq!(shown(&gateway, &client).await.1, HandshakeKind::Full);
    assert_eq!(shown(&gateway, &client).await.1, HandshakeKind::Resumed);
    folder.write("clients.pem", &new.pem());
    gateway.until(|it| it.count("seawall_tls_reloads_total", &[("result", "renewed")]) == 1).await;
    let mut stream = tls_connect(gateway.address, &client, "localhost").await.unwrap();
    let mut text = Vec::new();
    let told = within(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut text)).await;
    let told = told.unwrap_err().to_string();
    assert!(told.contains("UnknownCA"), "refused by an alert: {told}");
}
