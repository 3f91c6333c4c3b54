use std::time::Duration;

use http::Method;

use super::*;
use crate::demo::load::{Client, Failure, Protocol, get};
use crate::demo::until;

const PATIENCE: Duration = Duration::from_secs(5);
const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::H2c];

#[tokio::test]
async fn both_protocols_are_answered_and_recorded() {
    for protocol in BOTH {
        let upstream = Upstream::start(Clock::new()).await.unwrap();
        upstream.set(Behaviour::status(404).field("retry-after", "banana").body("gone"));
        let client = Client::new(upstream.address(), protocol);
        let mut request = get("/a?b=c").map(|_| "four".into());
        *request.method_mut() = Method::POST;
        for (name, value) in
            [("idempotency-key", "k-1"), ("x-retry-attempt", "2"), ("x-remaining-ms", "75")]
        {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let answer = client.send(request, PATIENCE).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (404, &b"gone"[..]));
        assert_eq!(answer.field("retry-after"), Some("banana"));
        let seen = upstream.journal().of_path("/a?b=c");
        assert_eq!(seen.len(), 1, "{protocol:?}");
        assert_eq!((seen[0].key.as_deref(), seen[0].attempt), (Some("k-1"), Some(2)));
        assert_eq!((seen[0].remaining_ms, seen[0].method.as_str()), (Some(75), "POST"));
        assert_eq!(seen[0].body.unwrap().len, 4);
        assert_eq!((seen[0].connection, upstream.journal().in_flight()), (1, 0));
    }
}

#[tokio::test]
async fn a_known_key_replays_the_first_answer_without_a_second_effect() {
    let upstream = Upstream::start(Clock::new()).await.unwrap();
    upstream.script(|arrival| match arrival.nth {
        1 => Behaviour::status(201).keyed().ending(Ending::LostReply),
        _ => Behaviour::ok().keyed(),
    });
    let client = Client::new(upstream.address(), Protocol::Http1);
    let keyed = || {
        let mut request = get("/order");
        request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        request
    };
    assert_eq!(client.send(keyed(), PATIENCE).await.unwrap_err(), Failure::Broken);
    assert_eq!(client.send(keyed(), PATIENCE).await.unwrap().status, 201);
    let executed: Vec<bool> =
        upstream.journal().since(0).iter().map(|arrival| arrival.executed).collect();
    assert_eq!(executed, [true, false]);
}

#[tokio::test]
async fn every_bad_end_is_seen_as_one_and_only_a_lost_reply_has_an_effect() {
    for protocol in BOTH {
        for ending in [Ending::LostReply, Ending::Close, Ending::Reset] {
            let upstream = Upstream::start(Clock::new()).await.unwrap();
            upstream.set(Behaviour::ok().ending(ending));
            let client = Client::new(upstream.address(), protocol);
            let end = client.send(get("/"), PATIENCE).await.unwrap_err();
            assert_eq!(end, Failure::Broken, "{protocol:?} {ending:?}");
            let seen = upstream.journal().since(0);
            assert_eq!(seen.len(), 1);
            assert_eq!(seen[0].executed, matches!(ending, Ending::LostReply));
        }
    }
}

#[tokio::test]
async fn a_hang_lasts_until_the_caller_leaves_and_is_in_flight_until_then() {
    for protocol in BOTH {
        let upstream = Upstream::start(Clock::new()).await.unwrap();
        upstream.set(Behaviour::ok().ending(Ending::Hang));
        let client = Client::new(upstream.address(), protocol);
        let end = client.send(get("/"), Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(end, Failure::Left);
        assert_eq!(upstream.journal().peak(), 1);
        let gone = async {
            while upstream.journal().in_flight() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap();
    }
}

#[tokio::test]
async fn a_stopped_upstream_refuses_and_comes_back_on_the_same_port() {
    let upstream = Upstream::start(Clock::new()).await.unwrap();
    let before = Client::new(upstream.address(), Protocol::Http1);
    assert_eq!(before.send(get("/"), PATIENCE).await.unwrap().status, 200);
    upstream.refuse().await;
    let client = Client::new(upstream.address(), Protocol::Http1);
    assert_eq!(client.send(get("/"), PATIENCE).await.unwrap_err(), Failure::Connect);
    upstream.listen_again().await.unwrap();
    assert_eq!(client.send(get("/"), PATIENCE).await.unwrap().status, 200);
    assert_eq!(upstream.journal().connections(), 2);
}

#[tokio::test]
async fn slots_bound_the_work_and_work_goes_on_without_its_caller() {
    let capacity = Capacity { slots: 1, queue: 1 };
    let upstream = Upstream::start_with(Clock::new(), Some(capacity)).await.unwrap();
    upstream.set(Behaviour::ok().after(Duration::from_millis(100)));
    let client = Client::new(upstream.address(), Protocol::Http1);
    // The first takes the slot and leaves, the second waits behind it, the third is refused.
    let left = client.send(get("/1"), Duration::from_millis(20)).await.unwrap_err();
    assert_eq!(left, Failure::Left);
    let (second, third) = tokio::join!(client.send(get("/2"), PATIENCE), async {
        until(|| upstream.journal().len() >= 2).await;
        client.send(get("/3"), PATIENCE).await
    });
    assert_eq!((second.unwrap().status.as_u16(), third.unwrap().status.as_u16()), (200, 503));
    assert!(upstream.journal().of_path("/1")[0].executed);
}

#[tokio::test]
async fn a_slow_body_arrives_piece_by_piece_and_whole() {
    let upstream = Upstream::start(Clock::new()).await.unwrap();
    let gap = Duration::from_millis(10);
    upstream.set(Behaviour::ok().body("ab").ending(Ending::SlowBody { pieces: 3, gap }));
    for protocol in BOTH {
        let client = Client::new(upstream.address(), protocol);
        let answer = client.send(get("/"), PATIENCE).await.unwrap();
        assert_eq!(&answer.body[..], b"ababab");
    }
}

#[test]
fn exponential_draws_have_mean_one_and_stay_finite() {
    let mut rng = seawall_policy::SplitMix64::new(1);
    let mean = (0..10_000).map(|_| exponential(rng.next_u64())).sum::<f64>() / 10_000.0;
    assert!((0.95..1.05).contains(&mean), "{mean}");
    assert!(exponential(0).is_finite() && exponential(u64::MAX).abs() < 1e-9);
}
