//! Many callers on many threads, some of whom leave at every point there is.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use http_body_util::BodyExt;
use seawall_policy::{Rng, SplitMix64};

use super::support::*;
use crate::upstream::stats::PoolStats;
use crate::upstream::{PoolProtocol, PoolSettings};

const CALLERS: u64 = 64;
const CALLS: usize = 40;
const MAX_CONNECTIONS: usize = 5;

/// One caller: leaves a checkout, a lease, a send or a body now and then.
async fn calls(pool: TestPool, mut rng: SplitMix64, protocol: PoolProtocol) {
    for _ in 0..CALLS {
        let dice = rng.next_u64();
        let endpoint = usize::from(dice & 1 == 1);
        let leaves = (dice >> 1) % 8;
        let mut checkout = Box::pin(pool.lease(endpoint, LONG));
        if leaves == 0 {
            let _ = pends(&mut checkout).await;
            continue;
        }
        let Ok(lease) = checkout.await else { panic!("a checkout failed") };
        assert!(pool.stats().open <= MAX_CONNECTIONS);
        if leaves == 1 {
            continue;
        }
        let request = match protocol {
            PoolProtocol::Http1 => get(full("ask")),
            PoolProtocol::H2c => h2_get(full("ask")),
        };
        let mut sent = Box::pin(lease.send(request));
        if leaves == 2 {
            let _ = pends(&mut sent).await;
            continue;
        }
        // A connection can die under a caller only because the peer closed it; none does here.
        let mut body = sent.await.unwrap().into_body();
        if leaves == 3 {
            let _ = body.frame().now_or_never();
            continue;
        }
        assert_eq!(body.collect().await.unwrap().to_bytes(), "answer");
    }
}

async fn soak(protocol: PoolProtocol, ports: &[u16]) -> PoolStats {
    let pool = pool(PoolSettings { h2_streams: 4, ..settings(protocol, MAX_CONNECTIONS) }, ports);
    let callers =
        (0..CALLERS).map(|seed| tokio::spawn(calls(pool.clone(), SplitMix64::new(seed), protocol)));
    let done = tokio::time::timeout(Duration::from_secs(60), join_all(callers)).await.unwrap();
    done.into_iter().for_each(Result::unwrap);
    bounded(pool.until(|stats| stats.in_use + stats.dialing + stats.closing + stats.waiting == 0))
        .await
}

fn check(stats: &PoolStats) {
    assert_eq!(stats.open, stats.idle, "{stats:?}");
    assert!(stats.open <= MAX_CONNECTIONS);
    let closed = stats.closed;
    let ended = closed.peer + closed.evicted + closed.abandoned + closed.expired;
    assert_eq!(stats.connects_total, ended + u64::try_from(stats.open).unwrap(), "{stats:?}");
    assert_eq!(stats.connect_errors_total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http1_loses_no_connection_and_no_place() {
    let mut ports = Vec::new();
    for _ in 0..2 {
        let peer = Peer::bind().await;
        ports.push(peer.port);
        tokio::spawn(async move {
            loop {
                let mut conn = peer.accept().await;
                tokio::spawn(async move {
                    let mut ask = [0; 3];
                    while conn.head().await.is_some() {
                        use tokio::io::AsyncReadExt;
                        if conn.stream.read_exact(&mut ask).await.is_err() {
                            return;
                        }
                        conn.answer("answer").await;
                    }
                });
            }
        });
    }
    check(&soak(PoolProtocol::Http1, &ports).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_loses_no_stream_and_no_place() {
    let mut ports = Vec::new();
    for _ in 0..2 {
        let peer = Peer::bind().await;
        ports.push(peer.port);
        let streams = serve_h2(peer, 4);
        let streams = futures_util::stream::unfold(streams, |mut streams| async move {
            Some((streams.recv().await?, streams))
        });
        tokio::spawn(streams.for_each(|mut stream| async move {
            // The caller may have left.
            if let Ok(mut send) = stream.respond.send_response(http::Response::new(()), false) {
                let _ = send.send_data("answer".into(), true);
            }
        }));
    }
    check(&soak(PoolProtocol::H2c, &ports).await);
}
