//! What is retried and what is not, told by counting what arrives. Budget and breaker are off, so
//! that nothing but the outcome decides.

use std::time::Duration;

use seawall_cli::demo::{Arrival, Behaviour, Ending, LoadOptions, Protocol, get};

use crate::harness::{PATIENCE, Stage, request, show, upstream_of};

/// Upstream and gateway for the counting tables; attempts are cut after 250 ms.
const COUNTING: &str = "timeouts: {attempt: 250ms, total: 2s}, \
     retry: {max_attempts: 3, backoff: {base: 2ms, cap: 4ms}}, \
     retry_budget: off, breaker: off";

#[test]
fn decisions_against_a_request_are_final_and_unknown_ends_are_for_safe_requests_only() {
    show("2 · attempts by outcome", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        upstream.script(by_path);
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], {COUNTING}}}}}\n",
                upstream.url()
            ))
            .await;
        let client = gateway.client(Protocol::Http1);
        let sent = async |method: &str, path: &str, keyed: bool| {
            let key = key_of(path);
            let fields: &[_] = if keyed { &[("idempotency-key", key.as_str())] } else { &[] };
            let body = if method == "GET" { "" } else { "{\"side\":\"buy\"}" };
            let answer = client.send(request(method, path, body, fields), PATIENCE).await.unwrap();
            (answer.status.as_u16(), upstream.journal().of_path(path))
        };

        for status in FINAL {
            let (answered, seen) = sent("GET", &format!("/final/{status}"), false).await;
            assert_eq!((answered, seen.len()), (status, 1), "GET {status}");
        }
        stage.tell("GET answered 4xx, 500, 501, 505", "1 attempt each");

        for (path, status) in [
            ("/post/hang", 504),
            ("/post/lost", 502),
            ("/post/502", 502),
            ("/post/503", 503),
            ("/post/504", 504),
        ] {
            let (answered, seen) = sent("POST", path, false).await;
            assert_eq!((answered, seen.len()), (status, 1), "POST {path}");
        }
        stage.tell("POST without key: timeout, lost reply, 502–504", "1 attempt each");

        for path in ["/get/hang", "/get/lost", "/get/502", "/get/503", "/get/504"] {
            let (_, seen) = sent("GET", path, false).await;
            assert_eq!(seen.len(), 3, "GET {path}");
            let numbers: Vec<_> = seen.iter().map(|arrival| arrival.attempt).collect();
            assert_eq!(numbers, [Some(1), Some(2), Some(3)], "GET {path}");
        }
        stage.tell("GET on the same ends", "3 attempts each, numbered 1 to 3");

        for path in ["/once/503", "/once/lost"] {
            let (answered, seen) = sent("POST", path, true).await;
            assert_eq!(answered, 201, "POST {path}");
            assert_eq!(seen.len(), 2, "POST {path}");
            assert!(seen.iter().all(|arrival| arrival.key == Some(key_of(path))));
            assert_eq!(seen[0].body, seen[1].body);
            assert_eq!(seen[0].body.unwrap().len, 14);
            let effects = seen.iter().filter(|arrival| arrival.executed).count();
            assert_eq!(effects, 1, "POST {path}");
        }
        stage.tell(
            "POST with key: 503, lost reply",
            "2 attempts, equal key and bytes, 1 effect each",
        );
    });
}

/// A key that a parser would be tempted to take apart.
fn key_of(path: &str) -> String {
    format!("{path}, \"1\"; a=b")
}

const FINAL: [u16; 12] = [400, 401, 403, 404, 405, 409, 410, 413, 422, 500, 501, 505];

/// `/final/404`, `/get/hang`, `/once/503`: the last segment says what happens, `once` only once.
fn by_path(arrival: &Arrival) -> Behaviour {
    let again = Behaviour::status(201).keyed();
    if arrival.path.starts_with("/once/") && arrival.nth > 1 {
        return again;
    }
    match arrival.path.rsplit('/').next() {
        Some("hang") => Behaviour::ok().ending(Ending::Hang),
        Some("lost") => again.ending(Ending::LostReply),
        Some(status) => Behaviour::status(status.parse().unwrap_or(200)),
        None => Behaviour::ok(),
    }
}

#[test]
fn a_refused_connection_is_redispatched_whatever_the_method() {
    show("2 · connection refused, two endpoints", async |stage| {
        let (up, down) = (stage.upstream().await, stage.upstream().await);
        down.refuse().await;
        let gateway = stage
            .configured(&format!(
                "upstreams: {{pair: {{endpoints: [\"{}\", \"{}\"], breaker: off}}}}\n",
                up.url(),
                down.url()
            ))
            .await;
        let client = gateway.client(Protocol::Http1);
        for number in 0..40 {
            let post = request("POST", &format!("/orders/{number}"), "x", &[]);
            assert_eq!(client.send(post, PATIENCE).await.unwrap().status, 200);
        }
        let seen = up.journal().since(0);
        assert!(seen.len() == 40 && seen.iter().all(Arrival::is_first));
        let redispatched = gateway.metric("seawall_redispatches_total", &[]).await;
        assert!(redispatched >= 1.0);
        stage.tell("POST without key", format!("40 of 40 answered, {redispatched} redispatched"));
    });
}

#[test]
fn neither_422_nor_a_full_bulkhead_opens_a_breaker() {
    show("2 · what never opens the breaker", async |stage| {
        let refusing = upstream_of(
            stage,
            Behaviour::status(422)
                .field("content-type", "application/problem+json")
                .body("{\"code\":\"insufficient-margin\"}"),
        )
        .await;
        let gateway = stage.gateway(&refusing.url()).await;
        let client = gateway.client(Protocol::Http1);
        let time = stage.seconds(5.0, 60.0);
        let options = LoadOptions::new(300, PATIENCE);
        let load = stage.load_of(&client, options, |number| {
            request("POST", &format!("/orders?call={number}"), "x", &[])
        });
        stage.pass(time).await;
        let all = load.stop().await.all();
        assert_eq!((all.status(422), refusing.journal().len() as u64), (all.sent, all.sent));
        assert!(gateway.openings().await < 1.0);
        stage.tell("422 to 300/s", format!("{} calls, as many attempts, breaker closed", all.sent));
        full_bulkhead(stage).await;
    });
}

async fn full_bulkhead(stage: &Stage) {
    let slow = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(200))).await;
    let gateway = stage
        .configured(&format!(
            "upstreams: {{only: {{endpoints: [\"{}\"], bulkhead: {{limit: 5}}}}}}\n",
            slow.url()
        ))
        .await;
    let client = gateway.client(Protocol::Http1);
    let options = LoadOptions::new(300, PATIENCE);
    let all = stage.load_for(stage.seconds(4.0, 20.0), &client, options, "/").await.all();
    assert_eq!(all.good, slow.journal().len() as u64, "{}", all.describe());
    assert!(all.status(503) > all.sent / 2, "{}", all.describe());
    assert_eq!(slow.journal().peak(), 5);
    assert!(gateway.openings().await < 1.0);
    let told =
        format!("{} of {} calls refused, at most 5 open, breaker closed", all.failed(), all.sent);
    stage.tell("bulkhead of 5 under 300/s of 200 ms", told);
    let answer = client.send(get("/after"), PATIENCE).await.unwrap();
    assert_eq!(answer.status, 200);
}
