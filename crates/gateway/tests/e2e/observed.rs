//! What operators see, held against what happened.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;

#[tokio::test]
async fn the_counts_are_those_of_the_upstream() {
    for (from, to) in PAIRS {
        let (upstream, arrivals) = Upstream::scripted(to, |before, _| {
            answer([200, 503, 200, 503, 503, 404, 200][before % 7], "body")
        })
        .await;
        let gateway = Setup::new(upstream).speaks(to).upstream("breaker: off").start().await;
        let mut caller = gateway.caller(from).await;
        let mut attempts = 0;
        let mut bytes = 0;
        for _ in 0..20 {
            let answered = caller.send(get("/path?secret")).await;
            let sent: usize = answered.header("seawall-attempts").unwrap().parse().unwrap();
            attempts += sent;
            let line = gateway.line().await;
            assert_eq!(line["attempts"], sent);
            assert_eq!(line["status"], answered.status);
            assert_eq!(line["path"], "/path");
            bytes += line["bytes_out"].as_u64().unwrap();
        }
        let arrived = arrivals.lock().unwrap().len();
        assert_eq!((attempts, bytes), (arrived, 80));
        let metrics = gateway.metrics().await;
        let first = metrics.count("seawall_first_attempts_total", &[]);
        let retries = metrics.count("seawall_retries_total", &[]);
        assert_eq!((first, first + retries), (20, arrived as u64));
        assert_eq!(metrics.count("seawall_outcomes_total", &[]), arrived as u64);
        assert_eq!(metrics.count("seawall_requests_total", &[]), 20);
        assert_eq!(metrics.count("seawall_stop_reasons_total", &[]), 20);
        for (stage, count) in
            [("queue", 20), ("checkout", arrived), ("upstream_head", 20), ("total", 20)]
        {
            let labels = [("stage", stage), ("route", "/")];
            let seen = metrics.count("seawall_stage_duration_seconds_count", &labels);
            assert_eq!(seen, count as u64, "{stage}");
        }
        assert_eq!(metrics.count("seawall_bulkhead_in_flight", &[]), 0);
    }
}

#[tokio::test]
async fn a_line_tells_the_whole_story() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |before, _| {
        answer(if before == 0 { 503 } else { 201 }, "made")
    })
    .await;
    let gateway = Setup::new(upstream)
        .trusted()
        .route("path_prefix: /things, name: things, total: 7s")
        .start()
        .await;
    let mut request = post("/things?secret=1", full("hello"));
    for (name, value) in
        [("idempotency-key", "k"), ("x-request-id", "r-1"), ("x-remaining-ms", "5000")]
    {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    gateway.send_over(Protocol::H2c, request).await;
    let line = gateway.line().await;
    let expected = serde_json::json!({
        "request_id": "r-1",
        "method": "POST",
        "host": "test",
        "path": "/things",
        "protocol": "HTTP/2",
        "status": 201,
        "route": "things",
        "upstream": "up",
        "endpoint": upstream.to_string(),
        "attempts": 2,
        "redispatches": 0,
        "hedges": 0,
        "stop_reason": "answered",
        "cause": "status",
        "configured_timeout_ms": 7000.0,
        "completion_reason": "complete",
        "degraded": false,
        "bytes_in": 5,
        "bytes_out": 4,
        "response_flags": "",
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&line[field], value, "{field}");
    }
    let of = |field: &str| line[field].as_f64().unwrap();
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(of("execution_ms") > 0.0 && of("execution_ms") <= of("total_ms"));
    assert!(of("remaining_budget_ms") < 5000.0 && of("remaining_budget_ms") > 3000.0);
}

#[tokio::test]
async fn connections_of_callers_count_by_listener_and_by_how_they_ended() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |_, _| answer(200, "")).await;
    let gateway = Setup::new(upstream).start().await;
    let mut caller = gateway.caller(Protocol::Http1).await;
    caller.send(get("/")).await;
    let open = |metrics: &Metrics| metrics.count("seawall_downstream_connections", &[]);
    let ended = |metrics: &Metrics, reason| {
        metrics.count("seawall_downstream_connections_closed_total", &[("reason", reason)])
    };
    assert_eq!(open(&gateway.metrics().await), 1);
    drop(caller);
    gateway.until(|metrics| open(metrics) == 0 && ended(metrics, "ended") == 1).await;
    let mut raw = gateway.raw().await;
    raw.write("banana\r\n\r\n").await;
    raw.rest().await;
    let metrics = gateway.until(|metrics| ended(metrics, "malformed") == 1).await;
    assert_eq!(metrics.count("seawall_downstream_connections_opened_total", &[]), 2);
    assert_eq!(metrics.count("seawall_accept_errors_total", &[]), 0);
}

#[tokio::test]
async fn a_timeout_counts_as_an_outcome_once_however_the_call_ends() {
    for protocol in BOTH {
        let mut upstream = Upstream::start(protocol).await;
        let gateway = Setup::new(upstream.address)
            .speaks(protocol)
            .upstream("timeouts: {attempt: 60ms, total: 1s, connect: 60ms, checkout: 60ms}")
            .upstream("retry: off, breaker: off")
            .start()
            .await;
        let mut caller = gateway.caller(Protocol::Http1).await;
        let open = tokio::spawn(async move { caller.send(get("/")).await });
        let mut call = upstream.next().await;
        let answered = within(open).await.unwrap();
        assert_eq!(answered.status, 504);
        let causes = |metrics: &Metrics| metrics.count("seawall_causes_total", &[]);
        let metrics = gateway.metrics().await;
        let timeouts = metrics.count("seawall_causes_total", &[("cause", "attempt_timeout")]);
        assert_eq!((timeouts, causes(&metrics)), (1, 1));
        assert_eq!(metrics.count("seawall_abandoned_total", &[]), 1);
        match protocol {
            Protocol::Http1 => {
                call.answer(answer(200, ""));
            }
            Protocol::H2c => call.left().await,
        }
        let free = |metrics: &Metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0;
        assert_eq!(causes(&gateway.until(free).await), 1);
    }
}

/// A name on the list of queues as the page writes it.
fn as_on_the_page(name: &str) -> String {
    let word = |word: &str| match word {
        "up" => "<upstream>".to_owned(),
        "/" | "/b" => "<route>".to_owned(),
        word if word.starts_with("127.0.0.1:") => "<address>".to_owned(),
        word => word.to_owned(),
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

async fn queues(gateway: &Gateway) -> Vec<serde_json::Value> {
    let told = gateway.admin(http::Method::GET, "/queues", "").await;
    serde_json::from_slice(&told.body).unwrap()
}

pub(crate) async fn depth(gateway: &Gateway, name: &str) -> u64 {
    let queues = queues(gateway).await;
    queues.iter().find(|queue| queue["name"] == name).unwrap()["depth"].as_u64().unwrap()
}

#[tokio::test]
async fn the_list_of_queues_is_that_of_the_page_with_its_default_bounds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/queues.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `") && !line.contains(".rs`"));
    let mut written = BTreeMap::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let bound = cells[2].replace(',', "").parse::<u64>().ok();
        written.insert(cells[0].trim_matches('`').to_owned(), (bound, cells[3].to_owned()));
    }
    let mut listed = BTreeMap::new();
    let nowhere = RawUpstream::refusing().await;
    for protocol in BOTH {
        let gateway = Setup::new(nowhere).speaks(protocol).upstream("health_check: {path: /}");
        let gateway = gateway.route("path_prefix: /b");
        let gateway = gateway.route("path_prefix: /").start().await;
        let queues = queues(&gateway).await;
        let names: BTreeSet<_> = queues.iter().map(|queue| queue["name"].as_str()).collect();
        assert_eq!(names.len(), queues.len(), "no name twice");
        for queue in queues {
            let name = as_on_the_page(queue["name"].as_str().unwrap());
            let bound = queue["bound"].as_u64().unwrap();
            assert!(bound > 0 && queue["depth"].as_u64().is_none_or(|depth| depth <= bound));
            let bound = written.get(&name).and_then(|(written, _)| written.map(|_| bound));
            listed.insert(name, (bound, queue["when_full"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(listed, written);
}

#[tokio::test]
async fn what_is_held_shows_on_the_list_of_queues_and_goes() {
    let mut upstream = Upstream::start(Protocol::H2c).await;
    let gateway = Setup::new(upstream.address).speaks(Protocol::H2c).start().await;
    let kept = "bytes of uploads kept for another attempt";
    let all = [kept, "requests of callers", "calls to up", "HTTP/2 streams to up"];
    let mut caller = gateway.caller(Protocol::H2c).await;
    let (up, body) = streamed();
    let open = tokio::spawn(async move { (caller.send(post("/", body)).await, caller) });
    up.data(pattern(1000)).await;
    let (mut request, reply) = upstream.next().await.split();
    let _ = within(http_body_util::BodyExt::frame(&mut request)).await.unwrap().unwrap();
    for (name, held) in all.into_iter().zip([1000, 1, 1, 1]) {
        assert_eq!(depth(&gateway, name).await, held, "{name}");
    }
    assert_eq!(depth(&gateway, "connections of callers").await, 1);
    assert_eq!(depth(&gateway, "connections to up").await, 1);
    assert!(depth(&gateway, "admin connections").await >= 1, "the one that asks");
    // What outgrows the buffer is kept no longer.
    let rest = tokio::spawn(async move {
        up.data(pattern(100_000)).await;
        drop(up);
    });
    let rest_read = within(http_body_util::BodyExt::collect(&mut request)).await;
    assert_eq!(rest_read.unwrap().to_bytes().len(), 100_000);
    within(rest).await.unwrap();
    assert_eq!(depth(&gateway, kept).await, 0);
    reply.answer(answer(200, ""));
    let (_, caller) = within(open).await.unwrap();
    gateway.line().await;
    gateway.until(|metrics| metrics.count("seawall_bulkhead_in_flight", &[]) == 0).await;
    for name in all {
        assert_eq!(depth(&gateway, name).await, 0, "{name}");
    }
    // A short one is let go with its request.
    let mut caller = caller;
    let open = tokio::spawn(async move { caller.send(post("/", full("short"))).await });
    let (arrival, reply) = upstream.next().await.read().await;
    assert_eq!(arrival.body.len(), 5);
    assert_eq!(depth(&gateway, kept).await, 5);
    reply.answer(answer(200, ""));
    within(open).await.unwrap();
    gateway.line().await;
    within(async { while depth(&gateway, kept).await > 0 {} }).await;
}
