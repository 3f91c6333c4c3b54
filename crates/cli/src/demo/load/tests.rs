use super::client::H2_CONNECTIONS;
use super::*;
use crate::demo::until;
use crate::demo::upstream::{Arrival, Behaviour, Ending, Upstream};

#[tokio::test]
async fn a_hanging_service_delays_no_call_and_every_caller_leaves_in_time() {
    let clock = Clock::new();
    let upstream = Upstream::start(clock).await.unwrap();
    upstream.set(Behaviour::ok().ending(Ending::Hang));
    let client = Client::new(upstream.address(), Protocol::Http1);
    let options = LoadOptions::new(200, Duration::from_millis(250));
    let load = Load::start(clock, clock.now(), client, options, |_| get("/"));
    until(|| upstream.journal().len() >= 40).await;
    assert!(upstream.journal().peak() > 30, "the load waited for answers");
    let ledger = load.stop().await;
    let all = ledger.all();
    assert!(all.sent >= 40 && all.good == 0);
    assert_eq!(all.failures.get(&Failure::Left), Some(&all.sent));
    assert!(ledger.calls().iter().all(|call| call.latency() >= Duration::from_millis(250)));
}

#[tokio::test]
async fn a_call_without_a_place_fails_instead_of_being_left_out() {
    let clock = Clock::new();
    let upstream = Upstream::start(clock).await.unwrap();
    upstream.set(Behaviour::ok().ending(Ending::Hang));
    let client = Client::new(upstream.address(), Protocol::H2c);
    let options =
        LoadOptions { concurrency: 5, ..LoadOptions::new(1000, Duration::from_millis(300)) };
    let load = Load::start(clock, clock.now(), client, options, |_| get("/"));
    until(|| load.within(Timestamp::ZERO, Timestamp::MAX).sent >= 20).await;
    let failures = load.stop().await.all().failures;
    assert_eq!(failures.get(&Failure::Left), Some(&5));
    assert!(failures[&Failure::Overflow] >= 20);
}

#[tokio::test]
async fn the_plain_client_makes_three_numbered_attempts() {
    let clock = Clock::new();
    let upstream = Upstream::start(clock).await.unwrap();
    upstream.set(Behaviour::status(503));
    let client = Client::new(upstream.address(), Protocol::Http1);
    let retry = PlainRetry {
        max_attempts: 3,
        delay: Duration::from_millis(5),
        timeout: Duration::from_secs(1),
    };
    let options =
        LoadOptions { retry: Some(retry), ..LoadOptions::new(100, Duration::from_secs(5)) };
    let load = Load::start(clock, clock.now(), client, options, |n| get(&format!("/{n}")));
    until(|| upstream.journal().len() >= 30).await;
    let all = load.stop().await.all();
    assert_eq!(all.status(503), all.sent);
    let attempts = upstream.journal().attempts(Timestamp::ZERO, Timestamp::MAX);
    assert_eq!((attempts.first, attempts.all), (all.sent, 3 * all.sent));
    assert!((attempts.amplification() - 3.0).abs() < 1e-9);
    let numbered = |arrival: &Arrival| u64::from(arrival.attempt.unwrap()) == arrival.nth;
    assert!(upstream.journal().since(0).iter().all(numbered));
}

#[tokio::test]
async fn kept_alive_connections_are_used_again() {
    let clock = Clock::new();
    let upstream = Upstream::start(clock).await.unwrap();
    for (protocol, most) in [(Protocol::Http1, 1), (Protocol::H2c, H2_CONNECTIONS as u64)] {
        let client = Client::new(upstream.address(), protocol);
        for _ in 0..20 {
            client.send(get("/"), Duration::from_secs(5)).await.unwrap();
        }
        assert_eq!(client.connects(), most);
    }
}
