//! Who gets a connection, and when.

use std::time::Duration;

use seawall::Clock;
use seawall_policy::Cause;

use super::support::*;
use crate::upstream::error::CheckoutError;
use crate::upstream::stats::PoolStats;
use crate::upstream::{Lease, PoolProtocol};

fn http1(max_connections: usize) -> crate::upstream::PoolSettings {
    settings(PoolProtocol::Http1, max_connections)
}

async fn served(pool: &TestPool, lease: Lease<TestBody>) -> String {
    let text = text(lease.send(get(empty())).await.unwrap()).await;
    pool.until(|stats| stats.in_use == 0 && stats.dialing == 0).await;
    text
}

#[tokio::test]
async fn the_connection_used_last_is_reused_first() {
    let peer = Peer::bind().await;
    let pool = pool(http1(8), &[peer.port]);
    let _ = peer.serve();
    bounded(async {
        let first = pool.lease(0, LONG).await.unwrap();
        let second = pool.lease(0, LONG).await.unwrap();
        assert!(!first.is_reused());
        let one = text(first.send(get(empty())).await.unwrap()).await;
        pool.until(|stats| stats.idle == 1).await;
        let two = text(second.send(get(empty())).await.unwrap()).await;
        assert_ne!(one, two);
        pool.until(|stats| stats.idle == 2).await;
        let again = pool.lease(0, LONG).await.unwrap();
        assert!(again.is_reused());
        assert_eq!(served(&pool, again).await, two);
        let stats = pool.stats();
        assert_eq!((stats.connects_total, stats.reused_total, stats.open), (2, 1, 2));
    })
    .await;
}

#[tokio::test]
async fn a_lease_dropped_unsent_goes_back() {
    let peer = Peer::bind().await;
    let pool = pool(http1(8), &[peer.port]);
    let requests = peer.serve();
    drop(bounded(pool.lease(0, LONG)).await.unwrap());
    let stats = pool.stats();
    assert_eq!((stats.idle, stats.in_use, stats.open), (1, 0, 1));
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_connection_idle_for_four_seconds_is_reused_and_a_moment_later_is_not() {
    let peer = Peer::bind().await;
    let pool = pool(http1(8), &[peer.port]);
    let _ = peer.serve();
    let lease = pool.lease(0, LONG).await.unwrap();
    tokio::time::pause();
    drop(lease);
    tokio::time::advance(Duration::from_secs(4)).await;
    let lease = pool.lease(0, LONG).await.unwrap();
    assert!(lease.is_reused());
    drop(lease);
    tokio::time::advance(Duration::from_millis(4_001)).await;
    tokio::time::resume();
    let lease = pool.lease(0, LONG).await.unwrap();
    assert!(!lease.is_reused());
    assert_eq!(text(lease.send(get(empty())).await.unwrap()).await, "1");
    pool.until(|stats| stats.closed.expired == 1).await;
}

#[tokio::test]
async fn the_sweep_closes_what_nobody_asks_for() {
    let peer = Peer::bind().await;
    let pool = pool(http1(8), &[peer.port]);
    let _ = peer.serve();
    assert_eq!(exchange(&pool, 0).await, "0");
    pool.until(|stats| stats.idle == 1).await;
    tokio::time::pause();
    let stats = pool.until(|stats| stats.open == 0).await;
    assert_eq!((stats.closed.expired, stats.idle), (1, 0));
}

#[tokio::test]
async fn waiters_are_served_in_order_of_arrival() {
    let peer = Peer::bind().await;
    let pool = pool(http1(1), &[peer.port]);
    let _ = peer.serve();
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut first = Box::pin(pool.lease(0, LONG));
        let mut second = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut first).await);
        assert!(pends(&mut second).await);
        assert_eq!((pool.stats().waiting, pool.stats().open), (2, 1));
        drop(lease);
        assert!(pends(&mut second).await);
        drop(first.await.unwrap());
        assert!(second.await.unwrap().is_reused());
    })
    .await;
}

#[tokio::test]
async fn a_waiter_gives_up_when_its_time_is_over_and_not_before() {
    let peer = Peer::bind().await;
    let pool = pool(http1(1), &[peer.port]);
    let lease = pool.lease(0, LONG).await.unwrap();
    tokio::time::pause();
    let clock = Clock::new();
    let start = clock.now();
    let error = pool.lease(0, Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.cause(), Cause::CheckoutTimeout);
    assert!(is_about(start.until(clock.now()), 1_000));
    assert_eq!(pool.stats().waiting, 0);
    drop(lease);
}

#[tokio::test]
async fn a_waiter_that_leaves_keeps_nothing() {
    let peer = Peer::bind().await;
    let pool = pool(http1(1), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut leaves = Box::pin(pool.lease(0, LONG));
        let mut granted = Box::pin(pool.lease(0, LONG));
        let mut stays = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut leaves).await);
        assert!(pends(&mut granted).await);
        assert!(pends(&mut stays).await);
        drop(leaves);
        assert_eq!(pool.stats().waiting, 2);
        // The second is granted the connection and leaves without ever looking.
        drop(lease);
        assert_eq!(pool.stats().waiting, 1);
        drop(granted);
        assert!(stays.await.unwrap().is_reused());
        assert_eq!(pool.stats().waiting, 0);
    })
    .await;
}

#[tokio::test]
async fn a_dial_outlives_the_checkout_that_asked_for_it() {
    let peer = Peer::bind().await;
    let pool = pool(http1(1), &[peer.port]);
    bounded(async {
        let mut leaves = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut leaves).await);
        assert_eq!(pool.stats().dialing, 1);
        drop(leaves);
        let stats = pool.until(|stats| stats.idle == 1).await;
        assert_eq!((stats.open, stats.dialing, stats.waiting), (1, 0, 0));
        assert!(pool.lease(0, LONG).await.unwrap().is_reused());
    })
    .await;
}

#[tokio::test]
async fn beyond_the_queue_a_checkout_is_refused_at_once() {
    let peer = Peer::bind().await;
    let pool = pool(crate::upstream::PoolSettings { max_waiting: 1, ..http1(1) }, &[peer.port]);
    bounded(async {
        let _lease = pool.lease(0, LONG).await.unwrap();
        let mut waits = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut waits).await);
        let error = pool.lease(0, LONG).await.unwrap_err();
        assert!(matches!(error, CheckoutError::QueueFull));
        assert_eq!(error.cause(), Cause::CheckoutTimeout);
        assert_eq!((pool.stats().waiting, pool.stats().refused_total), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn an_idle_connection_of_another_endpoint_makes_room() {
    let (one, other) = (Peer::bind().await, Peer::bind().await);
    let pool = pool(http1(1), &[one.port, other.port]);
    let _ = (one.serve(), other.serve());
    bounded(async {
        assert_eq!(exchange(&pool, 0).await, "0");
        pool.until(|stats| stats.idle == 1).await;
        assert_eq!(exchange(&pool, 1).await, "0");
        let stats = pool.until(|stats| stats.idle == 1).await;
        assert_eq!((stats.open, stats.closed.evicted), (1, 1));
        assert_eq!((stats.endpoints[0].open, stats.endpoints[1].open), (0, 1));
    })
    .await;
}

/// Endpoint 0 holds the only connection, endpoint 1's waiter came first, endpoint 0's second.
/// The connection is given back after `held`.
async fn two_endpoints_want_one_connection(held: Duration) -> PoolStats {
    let (one, other) = (Peer::bind().await, Peer::bind().await);
    let pool = pool(http1(1), &[one.port, other.port]);
    let lease = pool.lease(0, LONG).await.unwrap();
    tokio::time::pause();
    let mut first = Box::pin(pool.lease(1, Duration::from_secs(10)));
    let mut second = Box::pin(pool.lease(0, Duration::from_secs(10)));
    assert!(pends(&mut first).await);
    assert!(pends(&mut second).await);
    tokio::time::advance(held).await;
    tokio::time::resume();
    drop(lease);
    tokio::join!(async { drop(first.await.unwrap()) }, async { drop(second.await.unwrap()) });
    pool.stats()
}

#[tokio::test]
async fn a_freed_connection_stays_with_its_endpoint_while_others_have_time() {
    let stats = two_endpoints_want_one_connection(Duration::from_millis(4_999)).await;
    // Given to its own endpoint's waiter, then evicted once idle: one dial for the other.
    assert_eq!((stats.connects_total, stats.closed.evicted), (2, 1));
}

#[tokio::test]
async fn a_freed_connection_makes_room_for_a_waiter_that_has_used_half_of_its_time() {
    let stats = two_endpoints_want_one_connection(Duration::from_secs(5)).await;
    // Closed for the other endpoint first, then dialled again: one dial more.
    assert_eq!((stats.connects_total, stats.closed.evicted), (3, 2));
}

#[tokio::test]
async fn the_last_clone_takes_the_idle_connections_along() {
    let peer = Peer::bind().await;
    let pool = pool(http1(2), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        drop(lease);
        let clone = pool.clone();
        drop(pool);
        assert_eq!(clone.stats().idle, 1);
        drop(clone);
        conn.ended().await;
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_closes_an_idle_connection_frees_its_place_at_once() {
    let peer = Peer::bind().await;
    let pool = pool(http1(1), &[peer.port]);
    bounded(async {
        drop(pool.lease(0, LONG).await.unwrap());
        drop(peer.accept().await);
        let stats = pool.until(|stats| stats.open == 0).await;
        assert_eq!((stats.idle, stats.closed.peer), (0, 1));
        assert!(!pool.lease(0, LONG).await.unwrap().is_reused());
    })
    .await;
}
