//! Endpoints and limits that a reload changes.

use super::support::*;
use crate::upstream::{Place, PoolProtocol};

fn at(index: usize, peer: &Peer) -> (usize, Place) {
    (index, Place::Tcp { host: "127.0.0.1".to_owned(), port: peer.port })
}

#[tokio::test]
async fn connections_to_an_endpoint_that_is_gone_end_when_they_are_idle() {
    let (old, new) = (Peer::bind().await, Peer::bind().await);
    let known = settings(PoolProtocol::Http1, 8);
    let pool = pool(known, &[old.port]);
    let (offered, _) = (at(1, &new), at(0, &old));
    let _ = old.serve();
    let at_new = new.serve();
    bounded(async {
        let busy = pool.lease(0, LONG).await.unwrap();
        exchange(&pool, 0).await;
        pool.until(|stats| stats.idle == 1).await;
        pool.reshape(known, &[offered]);
        // The idle one goes at once, the other serves what it was leased for.
        pool.until(|stats| stats.open == 1 && stats.idle == 0).await;
        assert!(!pool.is_quiet(0));
        text(busy.send(get(empty())).await.unwrap()).await;
        pool.until(|stats| stats.open == 0).await;
        assert!(pool.is_quiet(0));
        exchange(&pool, 1).await;
        pool.until(|stats| stats.idle == 1).await;
        assert_eq!(at_new.load(std::sync::atomic::Ordering::SeqCst), 1);
    })
    .await;
}

#[tokio::test]
async fn a_call_that_was_sent_to_an_endpoint_just_before_it_went_is_still_served() {
    let (old, new) = (Peer::bind().await, Peer::bind().await);
    let known = settings(PoolProtocol::Http1, 8);
    let pool = pool(known, &[old.port]);
    pool.reshape(known, &[at(1, &new)]);
    let _ = old.serve();
    bounded(async {
        exchange(&pool, 0).await;
        pool.until(|stats| stats.open == 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_session_to_an_endpoint_that_is_gone_serves_its_streams_and_closes() {
    let (old, new) = (Peer::bind().await, Peer::bind().await);
    let known = settings(PoolProtocol::H2c, 8);
    let pool = pool(known, &[old.port]);
    let offered = at(1, &new);
    let mut streams = serve_h2(old, 100);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let sent = tokio::spawn(lease.send(h2_get(empty())));
        let mut stream = streams.recv().await.unwrap();
        pool.reshape(known, &[offered]);
        assert_eq!(pool.stats().open, 1);
        stream.answer(true);
        text(sent.await.unwrap().unwrap()).await;
        pool.until(|stats| stats.open == 0).await;
        assert!(pool.is_quiet(0));
    })
    .await;
}

#[tokio::test]
async fn a_higher_limit_serves_those_that_wait_at_once() {
    let peer = Peer::bind().await;
    let known = settings(PoolProtocol::Http1, 1);
    let pool = pool(known, &[peer.port]);
    let offered = at(0, &peer);
    let _ = peer.serve();
    bounded(async {
        let first = pool.lease(0, LONG).await.unwrap();
        let mut second = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut second).await);
        pool.reshape(settings(PoolProtocol::Http1, 2), &[offered]);
        drop(second.await.unwrap());
        drop(first);
    })
    .await;
}
