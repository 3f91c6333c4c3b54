//! An upstream that hangs without an error, and callers that leave before any timeout of ours:
//! nobody ever reports a failure, and still the breaker has to open. And the reverse: callers too
//! impatient for a healthy upstream must not open it.

use std::time::Duration;

use seawall_cli::demo::{Behaviour, Ending, LoadOptions, Protocol};

use crate::harness::{EVER, PATIENCE, request, show, upstream_of};

#[test]
fn a_hang_is_seen_though_every_caller_leaves_before_the_timeout() {
    show("5 · a hang, and callers that leave after 450 ms", async |stage| {
        let rate = stage.pick(100, 300);
        let upstream = upstream_of(stage, Behaviour::ok().ending(Ending::Hang)).await;
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], \
                 timeouts: {{attempt: 800ms, total: 2s}}, breaker: {{slow: 400ms}}, \
                 bulkhead: {{limit: 150}}}}}}\n",
                upstream.url()
            ))
            .await;
        let client = gateway.client(Protocol::Http1);
        let load = stage.load(&client, LoadOptions::new(rate, Duration::from_millis(450)), "/");
        // It opens some 0.4 s after the 20th call and stays open for at least 1.4 s.
        stage.pass(Duration::from_millis(1500)).await;
        let sent = upstream.journal().len();
        let openings = gateway.openings().await;
        stage.pass(stage.seconds(4.0, 20.0)).await;
        let all = load.stop().await.all();
        let peak = upstream.journal().peak();
        let allowed = 20 + usize::try_from(rate).unwrap() * 2 / 5;
        stage.tell(
            format!("{rate} calls/s"),
            format!("{sent} calls sent before the breaker opened ({allowed} allowed)"),
        );
        stage.tell(
            "afterwards",
            format!(
                "{} calls, {} reached the upstream, {peak} at most in flight (150 allowed)",
                all.sent,
                upstream.journal().len()
            ),
        );
        assert!(openings >= 1.0, "still closed");
        // 20 ms of the schedule for the way there and back, and for a busy machine.
        assert!(sent <= allowed + usize::try_from(rate).unwrap() / 50, "{sent} > {allowed}");
        assert!(sent >= 20, "{sent}");
        assert!(peak <= 150, "{peak}");
    });
}

#[test]
fn impatient_callers_do_not_open_the_breaker_of_a_healthy_upstream() {
    show("5 · a healthy upstream of 20 ms, and callers of 15 ms", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(20))).await;
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], \
                 timeouts: {{attempt: 800ms, total: 2s}}, breaker: {{slow: 400ms}}}}}}\n",
                upstream.url()
            ))
            .await;
        let time = stage.seconds(4.0, 20.0);
        let stating = gateway.client(Protocol::Http1);
        let stated = stage.load_of(&stating, LoadOptions::new(100, PATIENCE), |number| {
            request("GET", &format!("/stated?call={number}"), "", &[("x-remaining-ms", "15")])
        });
        let leaving = gateway.client(Protocol::Http1);
        let options = LoadOptions::new(100, Duration::from_millis(15));
        let left = stage.load(&leaving, options, "/left");
        stage.pass(time).await;
        let (stated, left) = (stated.stop().await.all(), left.stop().await.all());
        let openings = gateway.openings().await;
        stage.tell("15 ms stated", stated.describe());
        stage.tell("hung up after 15 ms", left.describe());
        let reached = upstream.journal().attempts(EVER.0, EVER.1);
        stage.tell(
            "reached the upstream",
            format!("{} calls; breaker opened {openings} times", reached.all),
        );
        assert!(openings < 1.0);
        let patient = gateway.client(Protocol::Http1);
        let options = LoadOptions::new(50, PATIENCE);
        let after =
            stage.load_for(Duration::from_secs(1), &patient, options, "/patient").await.all();
        assert_eq!(after.good, after.sent, "{}", after.describe());
    });
}
