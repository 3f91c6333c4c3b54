//! Endpoints that are asked whether they are well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::Method;

use crate::reloads::{self, Place};
use crate::support::*;

/// An upstream whose checks are answered with the status that is set, and calls with 200 and its
/// name.
async fn endpoint(
    protocol: Protocol,
    name: &'static str,
) -> (SocketAddr, Arc<AtomicUsize>, Arrivals) {
    let status = Arc::new(AtomicUsize::new(200));
    let set = Arc::clone(&status);
    let script = move |_, arrival: &Arrival| match arrival.path.as_str() {
        "/healthz?deep" => answer(u16::try_from(set.load(SeqCst)).unwrap(), "x".repeat(40_000)),
        _ => answer(200, name),
    };
    let (address, arrivals) = Upstream::scripted(protocol, script).await;
    (address, status, arrivals)
}

fn calls(arrivals: &Arrivals) -> usize {
    arrivals.lock().unwrap().iter().filter(|it| it.path != "/healthz?deep").count()
}

fn arrivals(arrivals: &Arrivals) -> usize {
    arrivals.lock().unwrap().len()
}

const CHECK: &str = "health_check: {path: '/healthz?deep', interval: 20ms, timeout: 20ms, \
                     unhealthy: 2, healthy: 2}";

fn healthy(address: SocketAddr, value: u64) -> impl Fn(&Metrics) -> bool {
    let endpoint = address.to_string();
    move |metrics| metrics.count("seawall_endpoint_healthy", &[("endpoint", &endpoint)]) == value
}

#[tokio::test]
async fn an_endpoint_that_is_not_well_gets_no_calls_until_it_is_well_again() {
    for protocol in BOTH {
        let (one, status, ones) = endpoint(protocol, "one").await;
        let (two, _, twos) = endpoint(protocol, "two").await;
        let setup = Setup::new(one).endpoint(two).speaks(protocol).upstream(CHECK);
        let gateway = setup.start().await;
        // The first check decides alone, so one that fails must not be the first.
        let endpoint = one.to_string();
        let passed = [("endpoint", &*endpoint), ("result", "passed")];
        gateway.until(|metrics| metrics.count("seawall_health_checks_total", &passed) >= 1).await;
        status.store(500, SeqCst);
        gateway.until(healthy(one, 0)).await;
        let before = calls(&ones);
        for _ in 0..20 {
            assert_eq!(gateway.get("/").await.text(), "two");
        }
        assert_eq!((calls(&ones), calls(&twos)), (before, 20));
        let view = gateway.admin(Method::GET, "/upstreams", "").await.text();
        let view: serde_json::Value = serde_json::from_str(&view).unwrap();
        let seen = &view[0]["endpoints"][0]["health"];
        assert_eq!(
            (&seen["healthy"], &seen["last_failure"]),
            (&false.into(), &"status 500".into())
        );
        status.store(204, SeqCst);
        gateway.until(healthy(one, 1)).await;
        while gateway.get("/").await.text() != "one" {}
        let check = ones.lock().unwrap()[0].clone();
        assert_eq!(
            (check.method.as_str(), check.header("user-agent")),
            ("GET", Some("Seawall-Health-Check"))
        );
        let failed = [("endpoint", &*one.to_string()), ("result", "failed")];
        assert!(gateway.metrics().await.count("seawall_health_checks_total", &failed) >= 2);
    }
}

#[tokio::test]
async fn where_no_endpoint_is_well_all_get_calls() {
    let (one, status, _) = endpoint(Protocol::Http1, "one").await;
    status.store(302, SeqCst);
    let refusing = RawUpstream::refusing().await;
    let setup = Setup::new(one).endpoint(refusing).upstream(CHECK);
    let gateway = setup.start().await;
    gateway.until(healthy(one, 0)).await;
    gateway.until(healthy(refusing, 0)).await;
    for _ in 0..10 {
        assert_eq!(gateway.get("/").await.text(), "one", "a redirect is no pass, and no death");
    }
}

#[tokio::test]
async fn checks_need_none_of_the_connections_that_calls_have_taken() {
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let refusing = RawUpstream::refusing().await;
    let setup = Setup::new(upstream.address).endpoint(refusing).upstream("max_connections: 1");
    let gateway = setup.upstream(CHECK).start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let held = async {
        loop {
            let call = upstream.next().await;
            match call.request.uri().path() {
                "/held" => break call,
                _ => drop(call.answer(answer(200, ""))),
            }
        }
    };
    let request = caller.try_open(get("/held"));
    tokio::pin!(request);
    let held = tokio::select! {
        biased;
        held = held => held,
        _ = &mut request => panic!("it is held"),
    };
    // The only connection is taken; checks come all the same.
    for _ in 0..3 {
        let check = upstream.next().await;
        assert_eq!(check.request.uri().path(), "/healthz");
        check.answer(answer(200, ""));
    }
    held.answer(answer(200, ""));
    assert_eq!(within(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn checks_go_on_after_a_reload_with_what_they_knew() {
    let place = Place::new();
    let file = place.at("seawall.yaml");
    let (one, status, ones) = endpoint(Protocol::Http1, "one").await;
    let (two, _, twos) = endpoint(Protocol::Http1, "two").await;
    let (three, ..) = endpoint(Protocol::Http1, "three").await;
    status.store(500, SeqCst);
    let before = Setup::new(one).endpoint(two).upstream(CHECK);
    std::fs::write(&file, before.yaml()).unwrap();
    let gateway = reloads::start(&file).await;
    gateway.until(healthy(one, 0)).await;
    let failed =
        [("endpoint", &*one.to_string()), ("result", "failed")].map(|(k, v)| (k, v.to_owned()));
    let failed = |it: &Metrics| {
        let labels: Vec<_> = failed.iter().map(|(key, value)| (*key, value.as_str())).collect();
        it.count("seawall_health_checks_total", &labels)
    };
    let known = failed(&gateway.metrics().await);
    // Another order, another endpoint, one endpoint less.
    let after = Setup::new(three).endpoint(one).upstream(CHECK);
    std::fs::write(&file, after.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    let metrics = gateway.metrics().await;
    assert!(healthy(one, 0)(&metrics) && failed(&metrics) >= known, "what was known goes on");
    for _ in 0..20 {
        assert_eq!(gateway.get("/").await.text(), "three");
    }
    assert_eq!(calls(&ones), 0);
    gateway.until(|it| failed(it) >= known + 3).await;
    let asked = twos.lock().unwrap().len();
    status.store(200, SeqCst);
    gateway.until(healthy(one, 1)).await;
    assert_eq!(twos.lock().unwrap().len(), asked, "what is gone is asked no more");
    while gateway.get("/").await.text() != "one" {}
    // Without checks everybody is well.
    status.store(500, SeqCst);
    gateway.until(healthy(one, 0)).await;
    std::fs::write(&file, Setup::new(three).endpoint(one).yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    within(async { while gateway.get("/").await.text() != "one" {} }).await;
    let checks = || arrivals(&ones) - calls(&ones);
    let asked = checks();
    for _ in 0..50 {
        gateway.get("/").await;
    }
    assert_eq!(checks(), asked, "nothing is asked any more");
}

#[tokio::test]
async fn a_hanging_check_fails_in_its_time_and_another_port_may_be_asked() {
    let mut hanging = Upstream::start(Protocol::Http1).await;
    let (one, _, ones) = endpoint(Protocol::Http1, "one").await;
    let (two, ..) = endpoint(Protocol::Http1, "two").await;
    let check = format!(
        "health_check: {{path: /alive, interval: 20ms, timeout: 20ms, port: {}}}",
        hanging.address.port()
    );
    let gateway = Setup::new(one).endpoint(two).upstream(&check).start().await;
    tokio::spawn(async move {
        while let Some(call) = hanging.poll_next().await {
            tokio::spawn(call.ignore());
        }
    });
    gateway.until(healthy(one, 0)).await;
    assert_eq!(ones.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_grpc_service_is_asked_by_its_own_protocol() {
    let serving = Arc::new(AtomicUsize::new(1));
    let set = Arc::clone(&serving);
    let script = move |_, arrival: &Arrival| {
        assert_eq!(arrival.header("content-type"), Some("application/grpc"));
        assert_eq!(&arrival.body[..], [0, 0, 0, 0, 4, 10, 2, b'o', b'k']);
        let (frames, body) = streamed();
        let status = u8::try_from(set.load(SeqCst)).unwrap();
        tokio::spawn(async move {
            frames.data(vec![0, 0, 0, 0, 2, 8, status]).await;
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            frames.trailers(trailers).await;
        });
        let mut response = answer(200, "");
        *response.body_mut() = body;
        response
    };
    let (one, arrivals) = Upstream::scripted(Protocol::H2c, script).await;
    let check = "health_check: {grpc_service: ok, interval: 20ms}";
    let gateway = Setup::new(one).speaks(Protocol::H2c).upstream(check).start().await;
    let passed = [("result", "passed")];
    gateway.until(|it| it.count("seawall_health_checks_total", &passed) >= 2).await;
    serving.store(2, SeqCst);
    gateway.until(healthy(one, 0)).await;
    assert_eq!(arrivals.lock().unwrap()[0].path, "/grpc.health.v1.Health/Check");
}
