//! A credential from a file: sent with every attempt, and read again when it is rejected.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use http::{Method, Request};
use seawall_gateway::GatewayConfig;

use crate::reloads::{Place, start};
use crate::support::*;

/// An upstream that takes only this token.
async fn guarded(token: &'static str) -> (SocketAddr, Arrivals) {
    Upstream::scripted(Protocol::Http1, move |_, arrival| {
        let is_known = carried(arrival) == Some(format!("Bearer {token}").as_str());
        answer(if is_known { 200 } else { 401 }, "")
    })
    .await
}

fn keys(file: &Path, more: &str) -> String {
    format!("credentials: {{file: '{}'{more}}}", file.display())
}

fn carried(arrival: &Arrival) -> Option<&str> {
    arrival.header("authorization")
}

fn all_carried(arrivals: &Arrivals) -> Vec<String> {
    arrivals.lock().unwrap().iter().filter_map(carried).map(str::to_owned).collect()
}

fn carrying(token: &str) -> Request<Body> {
    let mut request = get("/");
    request.headers_mut().insert("authorization", token.parse().unwrap());
    request
}

/// Refreshes that ended with another one, with the same, and not.
async fn refreshes(gateway: &Gateway) -> [u64; 3] {
    let metrics = gateway.metrics().await;
    ["renewed", "unchanged", "failed"]
        .map(|result| metrics.count("seawall_credential_refreshes_total", &[("result", result)]))
}

#[tokio::test]
async fn a_rejected_token_is_read_again_and_the_call_made_once_more_with_the_new_one() {
    let place = Place::new();
    let file = place.at("token");
    fs::write(&file, "old\n").unwrap();
    let (upstream, arrivals) = guarded("new").await;
    let gateway = Setup::new(upstream).upstream(&keys(&file, "")).upstream("retry: off");
    let gateway = gateway.start().await;
    fs::write(&file, " new\n").unwrap();
    let answered = gateway.send(post("/", full("once"))).await;
    assert_eq!((answered.status, answered.header("seawall-attempts")), (200, Some("2")));
    assert_eq!(gateway.get("/").await.status, 200);
    assert_eq!(all_carried(&arrivals), ["Bearer old", "Bearer new", "Bearer new"]);
    let bodies: Vec<_> =
        arrivals.lock().unwrap().iter().map(|arrival| arrival.body.clone()).collect();
    assert_eq!(bodies, ["once", "once", ""]);
    assert_eq!(refreshes(&gateway).await, [1, 0, 0]);
}

#[tokio::test]
async fn what_is_read_again_and_rejected_too_goes_up_after_exactly_two_attempts() {
    let place = Place::new();
    let file = place.at("token");
    fs::write(&file, "old").unwrap();
    let (upstream, arrivals) = guarded("another").await;
    let gateway = Setup::new(upstream).upstream(&keys(&file, "")).start().await;
    fs::write(&file, "new").unwrap();
    let answered = gateway.get("/").await;
    assert_eq!((answered.status, answered.header("seawall-attempts")), (401, Some("2")));
    assert_eq!(all_carried(&arrivals), ["Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn no_other_token_and_the_rejection_goes_up_after_one_attempt() {
    for (content, expected) in
        [(Some("old"), [0, 1, 0]), (Some("\n"), [0, 0, 1]), (None, [0, 0, 1])]
    {
        let place = Place::new();
        let file = place.at("token");
        fs::write(&file, "old").unwrap();
        let (upstream, arrivals) = guarded("new").await;
        let gateway = Setup::new(upstream).upstream(&keys(&file, "")).start().await;
        match content {
            Some(content) => fs::write(&file, content).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let answered = gateway.get("/").await;
        assert_eq!((answered.status, answered.header("seawall-attempts")), (401, Some("1")));
        assert_eq!(all_carried(&arrivals), ["Bearer old"]);
        assert_eq!(refreshes(&gateway).await, expected);
    }
}

#[tokio::test]
async fn rejections_at_once_cause_one_refresh_and_two_attempts_each() {
    const CALLS: usize = 50;
    let place = Place::new();
    let file = place.at("token");
    fs::write(&file, "old").unwrap();
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let gateway = Setup::new(upstream.address).upstream(&keys(&file, "")).start().await;
    fs::write(&file, "new").unwrap();
    let calls = futures_util::future::join_all((0..CALLS).map(|_| gateway.get("/")));
    let played = async {
        let mut held = Vec::new();
        for _ in 0..CALLS {
            held.push(upstream.next().await);
        }
        for call in held {
            assert_eq!(call.header("authorization"), Some("Bearer old"));
            call.answer(answer(401, ""));
        }
        for _ in 0..CALLS {
            let call = upstream.next().await;
            assert_eq!(call.header("authorization"), Some("Bearer new"));
            call.answer(answer(200, ""));
        }
    };
    let (answered, ()) = tokio::join!(calls, played);
    for answered in answered {
        assert_eq!((answered.status, answered.header("seawall-attempts")), (200, Some("2")));
    }
    assert!(!upstream.has_another());
    assert_eq!(refreshes(&gateway).await, [1, 0, 0]);
}

#[tokio::test]
async fn a_requests_own_stays_and_its_rejection_is_final_unless_it_is_overridden() {
    let place = Place::new();
    let file = place.at("token");
    fs::write(&file, "ours").unwrap();
    let theirs = "Bearer theirs";
    for (more, route, status, expected) in [
        ("", "path_prefix: /", 401, theirs),
        (", override: true", "path_prefix: /", 200, "Bearer ours"),
        // What a route sets is the request's own, and what it removes is not.
        ("", "path_prefix: /, request_headers: {set: {Authorization: x}}", 401, "x"),
        ("", "path_prefix: /, request_headers: {remove: [Authorization]}", 200, "Bearer ours"),
    ] {
        let (upstream, arrivals) = guarded("ours").await;
        let gateway = Setup::new(upstream).upstream(&keys(&file, more)).route(route).start().await;
        let answered = gateway.send(carrying(theirs)).await;
        assert_eq!((answered.status, answered.header("seawall-attempts")), (status, Some("1")));
        assert_eq!(all_carried(&arrivals), [expected]);
        assert_eq!(refreshes(&gateway).await, [0; 3]);
    }
}

#[tokio::test]
async fn another_header_carries_the_secret_alone_over_either_protocol() {
    let place = Place::new();
    let file = place.at("key");
    fs::write(&file, "k3y").unwrap();
    for protocol in BOTH {
        let (upstream, arrivals) = Upstream::scripted(protocol, |_, _| answer(200, "")).await;
        let keys = keys(&file, ", header: X-Api-Key");
        let gateway = Setup::new(upstream).speaks(protocol).upstream(&keys).start().await;
        assert_eq!(gateway.send(carrying("theirs")).await.status, 200);
        let arrivals = arrivals.lock().unwrap();
        assert_eq!(arrivals[0].header("x-api-key"), Some("k3y"));
        assert_eq!(carried(&arrivals[0]), Some("theirs"));
    }
}

#[tokio::test]
async fn a_reload_puts_in_force_what_the_file_has_and_keeps_what_it_has_still() {
    let place = Place::new();
    let (file, config) = (place.at("token"), place.at("seawall.yaml"));
    fs::write(&file, "one").unwrap();
    let (upstream, arrivals) = guarded("two").await;
    let setup = Setup::new(upstream).upstream(&keys(&file, ""));
    fs::write(&config, setup.yaml()).unwrap();
    let gateway = start(&config).await;
    fs::write(&file, "two").unwrap();
    assert_eq!(gateway.get("/").await.header("seawall-attempts"), Some("2"));
    // Another configuration with the same credentials: what was read at the rejection stays.
    fs::write(&config, setup.clone().upstream("timeouts: {attempt: 3s}").yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    assert_eq!(gateway.get("/").await.header("seawall-attempts"), Some("1"));
    // The same configuration; only the file has another.
    fs::write(&file, "three").unwrap();
    let told = gateway.reload().await.text();
    assert!(told.contains("\"result\":\"applied\"") && !told.contains("three"), "{told}");
    assert_eq!(gateway.get("/").await.status, 401);
    let expected = ["Bearer one", "Bearer two", "Bearer two", "Bearer three"];
    assert_eq!(all_carried(&arrivals), expected);
    assert_eq!(refreshes(&gateway).await[0], 1, "counts go on");
    // A file that cannot be used refuses the reload, and what is in force stays.
    fs::write(&file, "four\nfive").unwrap();
    let told = gateway.reload().await;
    assert_eq!(told.status, 422);
    let text = told.text();
    assert!(text.contains("upstreams.up.credentials.file"), "{text}");
    assert!(!text.contains("four") && !text.contains("five"), "{text}");
    gateway.get("/").await;
    assert_eq!(all_carried(&arrivals).last().unwrap(), "Bearer three");
}

#[tokio::test]
async fn a_reload_takes_another_file_and_a_call_from_before_never_carries_its_secret() {
    let place = Place::new();
    let (before, after, config) = (place.at("before"), place.at("after"), place.at("seawall.yaml"));
    fs::write(&before, "one").unwrap();
    fs::write(&after, "two").unwrap();
    let mut upstream = Upstream::start(Protocol::Http1).await;
    let setup = Setup::new(upstream.address);
    fs::write(&config, setup.clone().upstream(&keys(&before, "")).yaml()).unwrap();
    let gateway = start(&config).await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    let waiting = tokio::spawn(async move { caller.send(get("/")).await });
    let call = upstream.next().await;
    let moved = setup.clone().upstream(&keys(&after, ", header: X-Key"));
    fs::write(&config, moved.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    // The call from before is rejected, and its own file was renewed.
    fs::write(&before, "one-b").unwrap();
    assert_eq!(call.header("authorization"), Some("Bearer one"));
    call.answer(answer(401, ""));
    let call = upstream.next().await;
    let seen = (call.header("authorization"), call.header("x-key"));
    assert_eq!(seen, (Some("Bearer one-b"), None));
    call.answer(answer(200, ""));
    assert_eq!(waiting.await.unwrap().header("seawall-attempts"), Some("2"));
    // One that begins now has the other secret where it belongs.
    let play = async {
        let call = upstream.next().await;
        let seen = (call.header("authorization"), call.header("x-key"));
        assert_eq!(seen, (None, Some("two")));
        call.answer(answer(401, ""));
    };
    let (answered, ()) = tokio::join!(gateway.get("/"), play);
    assert_eq!(answered.header("seawall-attempts"), Some("1"));
    // That of the call from before came after its counts were taken over.
    assert_eq!(refreshes(&gateway).await, [0, 1, 0]);
    // And without any.
    fs::write(&config, setup.yaml()).unwrap();
    assert_eq!(gateway.reload().await.status, 200);
    let play = async {
        let call = upstream.next().await;
        assert_eq!((call.header("authorization"), call.header("x-key")), (None, None));
        call.answer(answer(401, ""));
    };
    assert_eq!(tokio::join!(gateway.get("/"), play).0.status, 401);
    assert!(!gateway.admin(Method::GET, "/metrics", "").await.text().contains("refreshes_total{"));
}

#[tokio::test]
async fn the_secret_is_shown_to_the_upstream_alone() {
    const SECRET: &str = "s3cret-marker";
    let place = Place::new();
    let (file, config) = (place.at("token"), place.at("seawall.yaml"));
    fs::write(&file, SECRET).unwrap();
    let (upstream, arrivals) = guarded(SECRET).await;
    let setup = Setup::new(upstream).upstream(&keys(&file, ""));
    fs::write(&config, setup.yaml()).unwrap();
    let (parsed, _) = GatewayConfig::load(&config).unwrap();
    let mut shown = format!("{parsed:?}");
    let gateway = start(&config).await;
    let answered = gateway.get("/").await;
    assert_eq!(answered.status, 200);
    shown += &format!("{:?} {}", answered.headers, gateway.line().await);
    // A mistake on the same line as the path of the secret, and one in the secret itself.
    fs::write(&config, setup.upstream("typo: 1").yaml()).unwrap();
    shown += &gateway.reload().await.text();
    fs::write(&file, format!("{SECRET}\n{SECRET}")).unwrap();
    shown += &gateway.reload().await.text();
    for path in ["/", "/metrics", "/upstreams", "/upstreams?format=text", "/queues", "/retries"] {
        let answered = gateway.admin(Method::GET, path, "").await;
        assert_eq!(answered.status, 200, "{path}");
        shown += &answered.text();
    }
    assert!(shown.contains("seawall_credential_refreshes"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(all_carried(&arrivals), [format!("Bearer {SECRET}")]);
}
