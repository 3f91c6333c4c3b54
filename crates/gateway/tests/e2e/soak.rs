//! Much at once, with callers that leave and upstreams that fail in every way: nothing leaks, and
//! every attempt and every request is counted exactly once.

use std::time::Duration;

use http::Response;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_leaks_and_everything_is_counted_once() {
    for (from, to) in PAIRS {
        let upstream = Upstream::start(to).await;
        let address = upstream.address;
        tokio::spawn(answer_all(upstream));
        let gateway = Setup::new(address)
            .speaks(to)
            .upstream("timeouts: {attempt: 50ms, total: 200ms, connect: 50ms, checkout: 50ms}")
            .upstream("bulkhead: {limit: 16, wait: 5ms}, breaker: off")
            .upstream("retry: {backoff: {base: 1ms}}, retry_budget: {ratio: 100%, cap: 1000}")
            .start()
            .await;
        let callers = (0..24_u64).map(|seed| tokio::spawn(call(gateway.address, from, seed)));
        for caller in callers.collect::<Vec<_>>() {
            tokio::time::timeout(Duration::from_secs(60), caller).await.unwrap().unwrap();
        }
        let metrics = gateway
            .until(|metrics| {
                let gone = |family| metrics.count(family, &[]) == 0;
                gone("seawall_bulkhead_in_flight")
                    && gone("seawall_bulkhead_waiting")
                    && gone("seawall_streams_in_flight")
                    && gone("seawall_pool_waiting")
                    && gone("seawall_downstream_connections")
                    && metrics.count("seawall_pool_connections", &[("state", "busy")]) == 0
            })
            .await;
        let count = |family| metrics.count(family, &[]);
        let attempts = count("seawall_first_attempts_total")
            + count("seawall_retries_total")
            + count("seawall_redispatches_total");
        let refused = [("cause", "checkout_timeout")];
        let outcomes =
            count("seawall_outcomes_total") - metrics.count("seawall_causes_total", &refused);
        assert_eq!(attempts, outcomes, "{from:?} {to:?}");
        // How many there are depends on how fast the machine is and how soon callers leave.
        assert!(attempts > 100, "too few to tell: {from:?} {to:?} {attempts}");
        let requests = count("seawall_requests_total");
        assert_eq!(requests, count("seawall_stop_reasons_total"));
        for _ in 0..requests {
            gateway.line().await;
        }
    }
}

/// Asks and leaves, now and then in the middle.
async fn call(address: std::net::SocketAddr, from: Protocol, seed: u64) {
    let mut caller = Caller::connect(address, from).await;
    for turn in 0..60 {
        let request = match (seed + turn) % 3 {
            0 => get("/"),
            1 => post("/", full(pattern(100_000))),
            _ => {
                let mut request = post("/", full(pattern(5_000)));
                request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
                request
            }
        };
        let patience = match (seed * 7 + turn) % 4 {
            0 => Duration::from_micros((seed * 131 + turn * 37) % 4_000),
            _ => Duration::from_secs(10),
        };
        let whole = async {
            let response = caller.try_open(request).await?;
            http_body_util::BodyExt::collect(response.into_body()).await.map(drop)
        };
        if !matches!(tokio::time::timeout(patience, whole).await, Ok(Ok(()))) {
            caller = Caller::connect(address, from).await;
        }
    }
}

/// Answers in every way there is.
async fn answer_all(mut upstream: Upstream) {
    for turn in 0.. {
        let Some(call) = upstream.poll_next().await else { return };
        tokio::spawn(async move {
            match turn % 11 {
                0 => drop(call),
                1 => drop(call.try_answer(answer(503, "early"))),
                2 => {
                    let (down, body) = streamed();
                    drop(call.try_answer(Response::new(body)));
                    if down.try_data("half").await {
                        down.fail().await;
                    }
                }
                3 => call.ignore().await,
                _ => {
                    if let Ok((_, reply)) = call.try_read().await {
                        reply.try_answer(answer(200, pattern(20_000)));
                    }
                }
            }
        });
    }
}
