//! The configuration changes while requests flow.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::Method;
use seawall_gateway::GatewayConfig;
use serde_json::Value;

use crate::support::*;

/// A directory of its own, gone with the test.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("seawall-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(&place).unwrap();
        Self(place)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) async fn start(file: &Path) -> Gateway {
    let (config, _) = GatewayConfig::load(file).unwrap_or_else(|errors| panic!("{errors}"));
    Gateway::start(config).await
}

/// An upstream that answers with its name.
async fn named(name: &'static str) -> SocketAddr {
    Upstream::scripted(Protocol::Http1, move |_, _| answer(200, name)).await.0
}

#[tokio::test]
async fn endpoints_and_routes_change_and_their_counts_go_on() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let (one, two) = (named("one").await, named("two").await);
    let before = Setup::new(one).route("path_prefix: /, name: all");
    fs::write(&file, before.yaml()).unwrap();
    let gateway = start(&file).await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    for _ in 0..5 {
        assert_eq!(caller.send(get("/")).await.text(), "one");
    }
    let after = Setup::new(two)
        .route("path_prefix: /orders, name: orders, total: 3s")
        .route("path_prefix: /, name: all");
    fs::write(&file, after.yaml()).unwrap();
    let told = gateway.reload().await;
    assert_eq!(told.status, 200, "{}", told.text());
    // The same connection sees the new configuration.
    assert_eq!(caller.send(get("/")).await.text(), "two");
    assert_eq!(caller.send(get("/orders")).await.text(), "two");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_first_attempts_total", &[("route", "all")]), 6);
    assert_eq!(metrics.count("seawall_first_attempts_total", &[("route", "orders")]), 1);
    assert_eq!(metrics.count("seawall_config_reloads_total", &[("result", "applied")]), 1);
    // The connection to the endpoint that is gone is gone too.
    gateway.until(|it| it.count("seawall_pool_connections", &[("state", "idle")]) == 1).await;
    let upstreams = gateway.admin(Method::GET, "/upstreams", "").await.text();
    assert!(upstreams.contains(&two.to_string()) && !upstreams.contains(&one.to_string()));
    // And back: what was there before goes on.
    fs::write(&file, before.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    assert_eq!(caller.send(get("/orders")).await.text(), "one");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_first_attempts_total", &[("route", "all")]), 7);
    for _ in 0..8 {
        let line = gateway.line().await;
        let wanted = if line["route"] == "orders" || line["endpoint"] == two.to_string() {
            two
        } else {
            one
        };
        assert_eq!(line["endpoint"], wanted.to_string());
    }
}

#[tokio::test]
async fn the_dump_is_of_what_is_in_force_after_a_reload_and_after_a_refused_one() {
    let place = Place::new();
    let (file, token) = (place.at("seawall.yaml"), place.at("token"));
    fs::write(&token, "s3cret-one").unwrap();
    let keys = format!("credentials: {{file: '{}'}}", token.display());
    let setup = Setup::new(named("one").await)
        .upstream(&keys)
        .route("path_prefix: /, request_headers: {set: {X-Key: s3cret-two}}");
    fs::write(&file, setup.yaml()).unwrap();
    let gateway = start(&file).await;
    let dump = async || -> Value {
        let told = gateway.admin(Method::GET, "/config_dump", "").await;
        assert_eq!((told.status, told.header("content-type")), (200, Some("application/json")));
        assert!(!told.text().contains("s3cret"), "{}", told.text());
        serde_json::from_str(&told.text()).unwrap()
    };
    let attempt = "/config/upstreams/up/timeouts/attempt";
    let first = dump().await;
    assert_eq!(first["file"], file.display().to_string());
    assert_eq!(first.pointer(attempt).unwrap(), "12s", "the default");
    let file_of_token = first.pointer("/config/upstreams/up/credentials/file").unwrap();
    assert_eq!(file_of_token, &token.display().to_string());
    assert_eq!(first["generation"], 1);
    assert!(first["in_force_since_unix_ms"].as_u64().unwrap() > 0);
    // Another one is in force.
    fs::write(&file, setup.clone().upstream("timeouts: {attempt: 3s}").yaml()).unwrap();
    let reloaded: Value = serde_json::from_str(&gateway.reload().await.text()).unwrap();
    let second = dump().await;
    assert_eq!(second.pointer(attempt).unwrap(), "3s");
    assert_eq!((&second["generation"], &second["hash"]), (&2.into(), &reloaded["hash"]));
    assert_ne!(second["hash"], first["hash"]);
    // One that is wrong changes nothing, and the same again makes no other.
    fs::write(&file, setup.clone().upstream("timeouts: {attempt: 4}").yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 422);
    assert_eq!(dump().await, second);
    fs::write(&file, setup.upstream("timeouts: {attempt: 3s}").yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    assert_eq!(dump().await, second);
    let refused = gateway.admin(Method::POST, "/config_dump", "").await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn an_open_breaker_stays_open_and_a_balance_is_kept() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let (upstream, arrivals) =
        Upstream::scripted(Protocol::Http1, |_, _| answer(503, "down")).await;
    let keys = "breaker: {min_calls: 4, open: {base: 1h, cap: 1h}}";
    let setup = Setup::new(upstream).upstream(keys);
    fs::write(&file, setup.yaml()).unwrap();
    let gateway = start(&file).await;
    let open = |it: &Metrics| it.count("seawall_breaker_state", &[]) == 2;
    for _ in 0..20 {
        gateway.get("/").await;
        if open(&gateway.metrics().await) {
            break;
        }
    }
    let sent = arrivals.lock().unwrap().len();
    let balance = gateway.metrics().await.count("seawall_retry_budget_balance_tokens", &[]);
    // Another timeout, another endpoint in front of it, another route: the breaker is known by
    // its endpoint and its route.
    let other = named("other").await;
    let changed = Setup::new(upstream)
        .upstream(keys)
        .upstream("timeouts: {attempt: 3s}")
        .route("path_prefix: /other, name: other")
        .route("path_prefix: /");
    fs::write(&file, changed.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    assert_eq!(gateway.get("/").await.status, 503);
    assert_eq!(arrivals.lock().unwrap().len(), sent, "nothing was sent");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_breaker_state", &[("route", "/")]), 2);
    assert_eq!(metrics.count("seawall_breaker_state", &[("route", "other")]), 0);
    assert_eq!(metrics.count("seawall_retry_budget_balance_tokens", &[]), balance);
    fs::write(&file, changed.endpoint(other).yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    assert_eq!(gateway.get("/").await.text(), "other");
    assert_eq!(arrivals.lock().unwrap().len(), sent);
}

#[tokio::test]
async fn what_is_in_flight_ends_under_the_configuration_it_began_under() {
    for (from, to) in PAIRS {
        let place = Place::new();
        let file = place.at("seawall.yaml");
        let mut old = Upstream::start(to).await;
        let (new, _) = Upstream::scripted(to, |_, _| answer(200, "new")).await;
        fs::write(&file, Setup::new(old.address).speaks(to).yaml()).unwrap();
        let gateway = start(&file).await;
        let mut caller = gateway.caller(from).await;
        let waiting = tokio::spawn(async move { caller.send(get("/")).await.text() });
        let call = old.next().await;
        fs::write(&file, Setup::new(new).speaks(to).yaml()).unwrap();
        assert_eq!(gateway.reload().await.status, 200);
        assert_eq!(gateway.send_over(from, get("/")).await.text(), "new");
        call.answer(answer(200, "old"));
        assert_eq!(within(waiting).await.unwrap(), "old");
        gateway.line().await;
        let line = gateway.line().await;
        assert_eq!(line["endpoint"], old.address.to_string());
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.count("seawall_requests_total", &[]), 2);
        assert_eq!(metrics.count("seawall_bulkhead_in_flight", &[]), 0);
    }
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_what_and_where() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let setup = Setup::new(named("one").await);
    fs::write(&file, setup.yaml()).unwrap();
    let gateway = start(&file).await;
    fs::write(&file, setup.clone().top("limitz: {head: 1KiB}").yaml()).unwrap();
    let told = gateway.reload().await;
    assert_eq!(told.status, 422);
    let checked = GatewayConfig::load(&file).unwrap_err().to_string();
    assert_eq!(told.text(), format!("{checked}\n"));
    assert!(checked.contains("did you mean `limits`?") && checked.contains(":5:"), "{checked}");
    assert_eq!(gateway.get("/").await.text(), "one");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_config_reloads_total", &[("result", "applied")]), 0);
    // On a busy machine it is noticed by itself, too.
    assert!(metrics.count("seawall_config_reloads_total", &[("result", "refused")]) >= 1);
    assert_eq!(metrics.count("seawall_config_last_reload_successful", &[]), 0);
    // As it was: nothing to do, and all is well again.
    fs::write(&file, setup.yaml()).unwrap();
    assert!(gateway.reload().await.text().contains("unchanged"));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.count("seawall_config_last_reload_successful", &[]), 1);
    assert_eq!(metrics.count("seawall_config_reloads_total", &[("result", "unchanged")]), 1);
}

#[tokio::test]
async fn a_file_that_is_gone_too_large_or_no_file_is_refused_and_nothing_happens() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let setup = Setup::new(named("one").await);
    fs::write(&file, setup.yaml()).unwrap();
    let gateway = start(&file).await;
    let refused = async |why: &str| {
        let told = gateway.reload().await;
        assert_eq!(told.status, 422);
        assert!(told.text().contains(why), "{}", told.text());
        assert_eq!(gateway.get("/").await.text(), "one");
    };
    fs::remove_file(&file).unwrap();
    refused("cannot be read: No such file").await;
    fs::create_dir(&file).unwrap();
    refused("cannot be read: not a file").await;
    fs::remove_dir(&file).unwrap();
    fs::write(&file, format!("{}#{}\n", setup.yaml(), "x".repeat(1 << 20))).unwrap();
    refused("larger than 1MiB").await;
    fs::write(&file, b"version: \xff\n").unwrap();
    refused("not UTF-8").await;
    fs::write(&file, "").unwrap();
    refused("version").await;
    fs::write(&file, setup.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
}

#[tokio::test]
async fn what_needs_a_restart_is_refused_by_its_name() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let setup = Setup::new(named("one").await);
    fs::write(&file, setup.yaml()).unwrap();
    let gateway = start(&file).await;
    let admin = "admin: {address: 127.0.0.1:0}";
    fs::write(&file, setup.yaml().replace(admin, "admin: {address: '[::1]:0'}")).unwrap();
    let told = gateway.reload().await;
    assert_eq!(told.status, 422);
    let wanted = "admin.address: [::1]:0 in place of 127.0.0.1:0 needs a restart\n";
    assert_eq!(told.text(), wanted);
    // A port that is taken: nothing of the file comes into force.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let held = std::net::TcpListener::bind(taken).unwrap();
    let listeners = format!("listeners: [{{address: {taken}}}]");
    let elsewhere = setup.yaml().replace("listeners: [{address: 127.0.0.1:0}]", &listeners);
    fs::write(&file, &elsewhere).unwrap();
    let told = gateway.reload().await;
    assert!(told.text().starts_with(&format!("listen on {taken}: ")), "{}", told.text());
    assert_eq!(gateway.get("/").await.text(), "one");
    drop(held);
}

#[tokio::test]
async fn a_new_listener_serves_and_one_that_is_gone_ends_when_its_requests_have() {
    for protocol in BOTH {
        let place = Place::new();
        let file = place.at("seawall.yaml");
        let mut upstream = Upstream::start(Protocol::Http1).await;
        let setup = Setup::new(upstream.address);
        fs::write(&file, setup.yaml()).unwrap();
        let gateway = start(&file).await;
        let mut caller = gateway.caller(protocol).await;
        let idle = gateway.caller(protocol).await;
        let waiting = tokio::spawn(async move {
            let response = caller.open(get("/")).await;
            let told = response.headers().get("connection").cloned();
            (Answer::read(response).await.text(), told)
        });
        let call = upstream.next().await;
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listeners = format!("listeners: [{{address: {free}}}]");
        let moved = setup.yaml().replace("listeners: [{address: 127.0.0.1:0}]", &listeners);
        fs::write(&file, moved).unwrap();
        let told = gateway.reload().await;
        assert_eq!(told.status, 200, "{}", told.text());
        let mut fresh = Caller::connect(free, protocol).await;
        let answering = tokio::spawn(async move { fresh.send(get("/")).await.text() });
        upstream.next().await.answer(answer(200, "fresh"));
        assert_eq!(within(answering).await.unwrap(), "fresh");
        call.answer(answer(200, "old"));
        let (text, connection) = within(waiting).await.unwrap();
        assert_eq!(text, "old");
        if protocol == Protocol::Http1 {
            assert_eq!(connection.unwrap(), "close");
        }
        drop(idle);
        // The old port is closed, and its series are gone.
        gateway.until(|it| it.count("seawall_downstream_connections", &[]) <= 1).await;
        assert!(tokio::net::TcpStream::connect(gateway.address).await.is_err());
    }
}

#[tokio::test]
async fn the_file_is_followed_however_it_is_replaced() {
    let place = Place::new();
    let (one, two) = (named("one").await, named("two").await);
    let until = async |gateway: &Gateway, name: &str| {
        within(async {
            while gateway.get("/").await.text() != name {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    // Edited in place; half of it is no incident.
    let file = place.at("seawall.yaml");
    fs::write(&file, Setup::new(one).yaml()).unwrap();
    let gateway = start(&file).await;
    let changed = Setup::new(two).yaml();
    fs::write(&file, &changed[..changed.len() / 2]).unwrap();
    gateway
        .until(|it| it.count("seawall_config_reloads_total", &[("result", "refused")]) == 1)
        .await;
    assert_eq!(gateway.get("/").await.text(), "one");
    fs::write(&file, &changed).unwrap();
    until(&gateway, "two").await;
    // Another file moved over it.
    let beside = place.at("seawall.yaml.new");
    fs::write(&beside, Setup::new(one).yaml()).unwrap();
    fs::rename(&beside, &file).unwrap();
    until(&gateway, "one").await;
    let applied = ("result", "applied");
    assert_eq!(gateway.metrics().await.count("seawall_config_reloads_total", &[applied]), 2);
    // As Kubernetes does it: the file is a link into a link that is moved.
    for (name, upstream) in [("..1", one), ("..2", two)] {
        fs::create_dir(place.at(name)).unwrap();
        fs::write(place.at(name).join("mounted.yaml"), Setup::new(upstream).yaml()).unwrap();
    }
    symlink("..1", place.at("..data")).unwrap();
    symlink("..data/mounted.yaml", place.at("mounted.yaml")).unwrap();
    let mounted = start(&place.at("mounted.yaml")).await;
    assert_eq!(mounted.get("/").await.text(), "one");
    symlink("..2", place.at("..tmp")).unwrap();
    fs::rename(place.at("..tmp"), place.at("..data")).unwrap();
    until(&mounted, "two").await;
}

#[tokio::test]
async fn a_storm_of_reloads_serves_on_and_ends_with_the_last_word() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let (one, two) = (named("one").await, named("two").await);
    fs::write(&file, Setup::new(one).yaml()).unwrap();
    let gateway = start(&file).await;
    let mut caller = gateway.caller(Protocol::H2c).await;
    for round in 0..100 {
        let at = if round % 2 == 0 { two } else { one };
        fs::write(&file, Setup::new(at).yaml()).unwrap();
        let reloads = futures_util::future::join_all((0..4).map(|_| gateway.reload()));
        let (told, answered) = tokio::join!(reloads, caller.send(get("/")));
        assert!(told.iter().all(|told| told.status == 200));
        assert_eq!(answered.status, 200);
    }
    assert_eq!(gateway.get("/").await.text(), "one");
    let metrics = gateway.metrics().await;
    let requests = [("code_class", "2xx")];
    assert_eq!(metrics.count("seawall_requests_total", &requests), 101);
}

#[tokio::test]
async fn a_process_that_leaves_reloads_nothing() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let mut upstream = Upstream::start(Protocol::Http1).await;
    fs::write(&file, Setup::new(upstream.address).yaml()).unwrap();
    let gateway = start(&file).await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let waiting = tokio::spawn(async move { caller.send(get("/")).await.text() });
    let call = upstream.next().await;
    gateway.drain();
    gateway.until(|it| it.count("seawall_draining", &[]) == 1).await;
    fs::write(&file, "nonsense").unwrap();
    let told = gateway.reload().await;
    assert_eq!((told.status, told.text().as_str()), (422, "the process is leaving\n"));
    call.answer(answer(200, "last"));
    assert_eq!(within(waiting).await.unwrap(), "last");
    gateway.drain();
    let ended = gateway.ended().await;
    assert_eq!((ended.connections_cut, ended.requests_cut), (0, 0));
}
