//! SIGTERM under load with a balancer that goes on sending for three seconds after the gateway
//! has said that it is not ready: nobody notices.

use std::time::Duration;

use seawall_cli::demo::{Behaviour, LoadOptions, Protocol};

use crate::harness::{EVER, PATIENCE, Stage, show, upstream_of};

#[test]
fn a_drain_loses_no_request_of_either_protocol() {
    show("9 · SIGTERM under 500 requests/s of HTTP/1.1 and of h2c", async |stage| {
        let rounds = stage.pick(2, 20);
        let (mut sent, mut moved, mut longest) = (0, 0, Duration::ZERO);
        for number in 1..=rounds {
            let (calls, others, drain) = round(stage, number).await;
            sent += calls;
            moved += others;
            longest = longest.max(drain);
        }
        stage.tell("rounds", format!("{rounds}, exit code 0 each time"));
        stage.tell("calls", format!("{sent}, none failed, none executed twice"));
        stage.tell("not taken by a closing connection", format!("{moved}, sent on another one"));
        stage.tell("SIGTERM to exit", format!("{longest:.1?} at most (27 s allowed)"));
        assert!(longest <= Duration::from_secs(27));
    });
}

/// Calls sent, those that a closing connection did not take, and the time from SIGTERM to exit.
async fn round(stage: &Stage, number: u32) -> (u64, u64, Duration) {
    let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(10))).await;
    let mut gateway = stage.gateway(&upstream.url()).await;
    let options = LoadOptions::new(500, PATIENCE);
    let sides = [(Protocol::Http1, "/http1"), (Protocol::H2c, "/h2c")].map(|(protocol, path)| {
        let client = gateway.client(protocol);
        (path, stage.load(&client, options, path), client)
    });
    stage.pass(Duration::from_secs(1)).await;
    assert_eq!(gateway.admin("/ready").await, Some(200));

    let begin = stage.clock.now();
    gateway.process.terminate();
    // The balancer looks every 100 ms and stops sending three seconds after it has seen it.
    while gateway.admin("/ready").await == Some(200) {
        assert!(stage.clock.now().since(begin) < Duration::from_secs(2), "still ready");
        stage.pass(Duration::from_millis(100)).await;
    }
    stage.pass(Duration::from_secs(3)).await;
    let (mut sent, mut moved) = (0, 0);
    for (path, load, client) in sides {
        let all = load.stop().await.all();
        assert_eq!(all.good, all.sent, "round {number}, {path}: {}", all.describe());
        sent += all.sent;
        moved += client.moved();
    }
    let attempts = upstream.journal().attempts(EVER.0, EVER.1);
    assert_eq!((attempts.all, attempts.first), (sent, sent), "round {number}");
    let status = gateway.process.wait(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0), "round {number}:\n{}", gateway.process.said());
    (sent, moved, stage.clock.now().since(begin))
}
