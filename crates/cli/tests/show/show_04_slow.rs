//! An upstream at 1.1 × the attempt timeout: every attempt is cut just before its answer. The
//! worst case for retries, because all of the work is done and none of it is seen.

use std::time::Duration;

use seawall_cli::demo::{Arrival, Behaviour, LoadOptions, Protocol};

use crate::harness::{EVER, PATIENCE, request, show, upstream_of};

#[test]
fn an_upstream_just_too_slow_gets_no_more_than_budget_and_bulkhead_allow() {
    show("4 · upstream at 1.1 × the attempt timeout", async |stage| {
        let upstream = upstream_of(stage, Behaviour::ok().after(Duration::from_millis(330))).await;
        let gateway = stage
            .configured(&format!(
                "upstreams: {{only: {{endpoints: [\"{}\"], breaker: off, bulkhead: {{limit: 20}}, \
                 timeouts: {{attempt: 300ms, total: 2s}}, retry: {{max_attempts: 3}}}}}}\n",
                upstream.url()
            ))
            .await;
        let client = gateway.client(Protocol::Http1);
        let time = stage.seconds(5.0, 20.0);
        let options = LoadOptions::new(100, PATIENCE);
        let all = stage.load_for(time, &client, options, "/quotes").await.all();
        let attempts = upstream.journal().attempts(EVER.0, EVER.1);
        let peak = upstream.journal().peak();
        stage.tell(
            "GET at 100/s",
            format!(
                "{} calls, {} attempts for {} of them, {peak} at most in flight (20 allowed)",
                all.sent, attempts.all, attempts.first
            ),
        );
        // Two tokens to start with, a tenth of one per success, and there was none.
        assert_eq!(all.good, 0, "{}", all.describe());
        assert!(attempts.all - attempts.first <= 2, "{attempts:?}");
        assert!(peak <= 20, "{peak}");
        assert!(attempts.first > 0);

        upstream.journal().reset_peak();
        let mark = upstream.journal().len();
        for order in 0..10 {
            let post = request("POST", &format!("/orders/{order}"), "buy", &[]);
            let answer = client.send(post, PATIENCE).await.unwrap();
            assert_eq!(answer.status, 504);
        }
        let orders = || upstream.journal().since(mark);
        let executed = || orders().iter().filter(|order| order.executed).count();
        stage.until("the last order to be executed", PATIENCE, || executed() >= 10).await;
        assert!(orders().len() == 10 && orders().iter().all(Arrival::is_first));
        assert_eq!(executed(), 10);
        stage.tell("POST without key", "10 orders, 10 attempts, each executed once");
    });
}
