//! Breakers that an operator forces.

use http::Method;

use crate::support::*;

#[tokio::test]
async fn forced_open_traffic_stops_and_returns_by_itself() {
    let (upstream, arrivals) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).start().await;
    assert_eq!(gateway.get("/").await.status, 200);
    let force = "/breakers?upstream=up&mode=forced_open&ttl=1s&who=kim&reason=drill";
    let told = gateway.admin(Method::PUT, force, "").await;
    assert_eq!(told.status, 200);
    let listed: serde_json::Value = serde_json::from_str(&told.text()).unwrap();
    assert_eq!(
        (&listed[0]["kind"], &listed[0]["mode"]),
        (&"breaker".into(), &"forced_open".into())
    );
    assert_eq!((&listed[0]["upstream"], &listed[0]["reason"]), (&"up".into(), &"drill".into()));
    assert!(listed[0]["by"].as_str().unwrap().starts_with("kim (127.0.0.1:"), "{listed}");
    assert!((1..=1_000).contains(&listed[0]["ends_in_ms"].as_u64().unwrap()), "{listed}");
    assert_eq!(gateway.get("/").await.status, 503);
    assert_eq!(arrivals.lock().unwrap().len(), 1, "nothing was sent");
    let active = |it: &Metrics| it.count("seawall_switches_active", &[("kind", "breaker")]);
    assert_eq!(active(&gateway.metrics().await), 1);
    // Its time ends it.
    gateway.until(|it| active(it) == 0).await;
    assert_eq!(gateway.get("/").await.status, 200);
    assert_eq!(gateway.admin(Method::GET, "/switches", "").await.text(), "[]\n");
}

#[tokio::test]
async fn a_switch_is_lifted_before_its_time_and_retries_are_listed_beside_it() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "ok")).await;
    let gateway = Setup::new(upstream).upstream("breaker: off").start().await;
    for (path, status) in [
        ("/breakers?upstream=up&mode=forced_open&ttl=1h", 503),
        ("/breakers?upstream=up&mode=metrics_only", 200),
        ("/breakers?upstream=up&mode=forced_open", 503),
        ("/breakers?upstream=up&mode=normal", 200),
    ] {
        assert_eq!(gateway.admin(Method::PUT, path, "").await.status, 200, "{path}");
        assert_eq!(gateway.get("/").await.status, status, "{path}");
    }
    gateway.admin(Method::PUT, "/retries?state=off&ttl=1h", "").await;
    let listed = gateway.admin(Method::GET, "/switches", "").await.text();
    assert!(
        listed.starts_with("[{\"kind\":\"retries\",\"upstream\":\"up\",\"mode\":\"off\""),
        "{listed}"
    );
}
