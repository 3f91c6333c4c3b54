//! How often a request makes the gateway look at a clock.
//!
//! Everything runs on the test's one thread, the gateway's own ticks among it: ten times a second
//! they add readings to one request in many. So each is measured, and the one in the middle counts.

use seawall::Clock;

use crate::support::*;

const REQUESTS: usize = 31;

/// The readings of one request among many on a connection that was used before, by way of a
/// connection that was too.
async fn check(gateway: &Gateway, request: impl Fn() -> http::Request<Body>, readings: u64) {
    let mut caller = gateway.caller(Protocol::Http1).await;
    let mut counts = Vec::new();
    for _ in 0..=REQUESTS {
        let before = Clock::reads();
        assert_eq!(caller.send(request()).await.status, 200);
        assert_eq!(gateway.line().await["completion_reason"], "complete");
        counts.push(Clock::reads() - before);
    }
    let mut warm = counts.split_off(1);
    warm.sort_unstable();
    assert_eq!(warm[REQUESTS / 2], readings, "{warm:?}, after {counts:?}");
}

#[tokio::test]
async fn a_whole_request_reads_the_clock_at_most_four_times() {
    // Its head in, the upstream's head in, the answer's end.
    for body in ["", "hello"] {
        let (upstream, _) =
            Upstream::scripted(Protocol::Http1, move |_, _| answer(200, body)).await;
        let gateway = Setup::new(upstream).start().await;
        check(&gateway, || get("/"), 3).await;
    }
}

#[tokio::test]
async fn a_retry_costs_a_reading_for_each_of_its_events() {
    let (upstream, _) = Upstream::scripted(Protocol::Http1, |before, _| {
        answer(if before % 2 == 0 { 503 } else { 200 }, "hello")
    })
    .await;
    let gateway = Setup::new(upstream)
        .upstream("retry: {backoff: {base: 1ms, jitter: none}}, retry_budget: off, breaker: off")
        .start()
        .await;
    // Beyond the three: the first answer's head, the end of its body, which frees the connection,
    // the moment it is kept, which frees the slot, and the end of the wait.
    check(&gateway, || get("/"), 7).await;
}
