//! SIGTERM under load with a balancer that goes on sending for three seconds after the gateway
//! has said that it is not ready: nobody notices.

use std::time::Duration;

use seawall_cli::demo::{LoadOptions, Protocol};

use crate::harness::{PATIENCE, Stage, show, upstream_of};
use seawall_cli::demo::Behaviour;

#[test]
fn a_drain_loses_no_request_of_either_protocol() {
    show("9 · SIGTERM under 500 requests/s of HTTP/1.1 and of h2c", async |stage| {
        let rounds = stage.pick(2, 20);
        let (mut sent, mut longest) = (0, Duration::ZERO);
        for number in 1..=rounds {
            let (calls, drain) = round(stage, number).await;
            sent += calls;
            longest = longest.max(drain);
        }
        stage.tell("rounds", format!("{rounds}, {sent} calls, 0 failed, exit code 0 each time"));
        stage.tell("SIGTERM to exit", format!("{longest:.1?} at most (27 s allowed)"));
        assert!(longest <= Duration::from_secs(27));
    });
}

/// Calls sent and the time from SIGTERM to exit.
async fn round(stage: &Stage, number: u32) -> (u64, Duration) {
    let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(10))).await;
    let mut gateway = stage.gateway(&upstream.url()).await;
    let options = LoadOptions::new(500, PATIENCE);
    let loads = [Protocol::Http1, Protocol::H2c]
        .map(|protocol| stage.load(&gateway.client(protocol), options, "/orders"));
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
    let mut sent = 0;
    for (load, protocol) in loads.into_iter().zip(["HTTP/1.1", "h2c"]) {
        let all = load.stop().await.all();
        assert_eq!(all.good, all.sent, "round {number}, {protocol}: {}", all.describe());
        sent += all.sent;
    }
    let status = gateway.process.wait(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0), "round {number}:\n{}", gateway.process.said());
    (sent, stage.clock.now().since(begin))
}
