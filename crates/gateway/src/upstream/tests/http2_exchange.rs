//! HTTP/2 by prior knowledge: streams, limits, and what the peer's refusals prove.

use std::time::Duration;

use h2::Reason;
use http_body_util::BodyExt;
use seawall_policy::Cause;

use super::support::*;
use crate::upstream::error::SendError;
use crate::upstream::{PoolProtocol, PoolSettings};

fn h2c(max_connections: usize) -> PoolSettings {
    settings(PoolProtocol::H2c, max_connections)
}

const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const HEADERS: u8 = 1;
const MILLI: Duration = Duration::from_millis(1);
/// SETTINGS_MAX_CONCURRENT_STREAMS = 0.
const NO_STREAM: [u8; 6] = [0, 3, 0, 0, 0, 0];
/// SETTINGS_MAX_CONCURRENT_STREAMS = 1.
const ONE_STREAM: [u8; 6] = [0, 3, 0, 0, 0, 1];

#[tokio::test]
async fn a_burst_shares_one_connection() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(8), &[peer.port]);
    let mut streams = serve_h2(peer, 250);
    bounded(async {
        let leases = futures_util::future::join_all((0..100).map(|_| pool.lease(0, LONG))).await;
        let sends = leases.into_iter().map(|lease| lease.unwrap().send(h2_get(empty())));
        let answers = tokio::spawn(futures_util::future::join_all(sends));
        for _ in 0..100 {
            streams.recv().await.unwrap().answer(true);
        }
        assert!(answers.await.unwrap().into_iter().all(|answer| answer.is_ok()));
        let stats = pool.until(|stats| stats.in_use == 0).await;
        assert_eq!((stats.connects_total, stats.open, stats.idle), (1, 1, 1));
    })
    .await;
}

#[tokio::test]
async fn beyond_the_peers_limit_a_second_connection_opens_before_anyone_queues() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(2), &[peer.port]);
    let _streams = serve_h2(peer, 2);
    bounded(async {
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(pool.lease(0, LONG).await.unwrap());
        }
        let stats = pool.stats();
        assert_eq!((stats.open, stats.in_use, stats.connects_total), (2, 4, 2));
        let mut waits = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut waits).await);
        assert_eq!(pool.stats().waiting, 1);
        leases.pop();
        drop(waits.await.unwrap());
        assert_eq!(pool.stats().in_use, 3);
    })
    .await;
}

#[tokio::test]
async fn our_own_cap_holds_where_the_peer_has_none() {
    let peer = Peer::bind().await;
    let pool = pool(PoolSettings { h2_streams: 1, ..h2c(1) }, &[peer.port]);
    bounded(async {
        let (lease, _conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        let mut waits = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut waits).await);
        drop(lease.unwrap());
        drop(waits.await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_raised_limit_serves_the_waiters() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&ONE_STREAM).await;
            conn
        });
        let _lease = lease.unwrap();
        let mut waits = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut waits).await);
        conn.send_frame(SETTINGS, &[0, 3, 0, 0, 0, 2]).await;
        drop(waits.await.unwrap());
    })
    .await;
}

/// The connections that a peer sees that sends these SETTINGS, and maybe a GOAWAY, while so many
/// checkouts wait for this long.
async fn dials_of_a_roomless_peer(
    checkouts: usize,
    wait: Duration,
    settings: &[u8],
    leaves: bool,
) -> usize {
    let peer = Peer::bind().await;
    let pool = pool(h2c(64), &[peer.port]);
    let mut conns = Vec::new();
    let plays = async {
        loop {
            let mut conn = peer.accept().await;
            conn.h2_preface(settings).await;
            if leaves {
                conn.send_frame(GOAWAY, &[0; 8]).await;
            }
            conns.push(conn);
        }
    };
    let asks = futures_util::future::join_all((0..checkouts).map(|_| pool.lease(0, wait)));
    let answers = bounded(async {
        tokio::select! {
            answers = asks => answers,
            () = plays => unreachable!(),
        }
    })
    .await;
    for answer in answers {
        let cause = answer.unwrap_err().cause();
        // One whose GOAWAY came with its SETTINGS may never have counted as a connection.
        let is_gone = leaves && cause == Cause::ConnectFailed;
        assert!(cause == Cause::CheckoutTimeout || is_gone, "{cause:?}");
    }
    assert!(pool.stats().open <= 2, "one without room, and one that is closing");
    conns.len()
}

#[tokio::test]
async fn a_peer_that_allows_no_stream_is_not_dialed_again_and_again() {
    for checkouts in [1, 50] {
        let dials = dials_of_a_roomless_peer(checkouts, 300 * MILLI, &NO_STREAM, false).await;
        assert_eq!(dials, 1, "{checkouts} checkouts");
    }
    // The second dial comes after a second, and takes the place of the first.
    assert_eq!(dials_of_a_roomless_peer(50, 1_300 * MILLI, &NO_STREAM, false).await, 2);
}

#[tokio::test]
async fn a_peer_that_goes_away_at_once_is_dialed_twice_and_then_left_alone() {
    assert!(dials_of_a_roomless_peer(1, 300 * MILLI, &NO_STREAM, true).await <= 2);
}

#[tokio::test]
async fn room_that_a_peer_grants_late_serves_all_who_wait_for_it() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(64), &[peer.port]);
    bounded(async {
        let waits: Vec<_> = (0..50).map(|_| pool.lease(0, LONG)).collect();
        let plays = async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&NO_STREAM).await;
            let stats = pool.until(|stats| stats.dialing == 0 && stats.waiting == 50).await;
            assert_eq!((stats.open, stats.connects_total), (1, 1));
            conn.send_frame(SETTINGS, &[0, 3, 0, 0, 0, 100]).await;
            conn
        };
        let (leases, _conn) = tokio::join!(futures_util::future::join_all(waits), plays);
        assert!(leases.iter().all(Result::is_ok));
        assert_eq!((pool.stats().in_use, pool.stats().connects_total), (50, 1));
    })
    .await;
}

#[tokio::test]
async fn the_only_place_of_a_pool_is_not_kept_by_a_connection_without_room() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let plays = async {
            let mut first = peer.accept().await;
            first.h2_preface(&NO_STREAM).await;
            let mut second = peer.accept().await;
            second.h2_preface(&ONE_STREAM).await;
            (first, second)
        };
        let (lease, _conns) = tokio::join!(pool.lease(0, LONG), plays);
        drop(lease.unwrap());
    })
    .await;
}

#[tokio::test]
async fn interim_answers_without_end_are_malformed() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let plays = async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn.frame(HEADERS).await.unwrap();
            // `:status: 103` on stream 1, with END_HEADERS.
            let hints = b"\x00\x00\x05\x01\x04\x00\x00\x00\x01\x08\x03103";
            for _ in 0..35 {
                conn.send(hints).await;
            }
            conn.ended().await;
        };
        let asks = async { pool.lease(0, LONG).await.unwrap().send(h2_get(empty())).await };
        let (sent, ()) = tokio::join!(asks, plays);
        assert_eq!(sent.unwrap_err().cause, Cause::Malformed);
    })
    .await;
}

/// One request; the peer resets its stream.
async fn reset_by_peer(reason: Reason) -> Cause {
    let peer = Peer::bind().await;
    let pool = pool(h2c(2), &[peer.port]);
    let mut streams = serve_h2(peer, 100);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let (sent, ()) = tokio::join!(lease.send(h2_get(empty())), async {
            streams.recv().await.unwrap().respond.send_reset(reason);
        });
        let error = sent.unwrap_err();
        assert!(error.handed_back.is_none());
        // The connection lives on, and nothing was sent a second time.
        let stats = pool.until(|stats| stats.in_use == 0).await;
        assert_eq!((stats.open, stats.idle), (1, 1));
        assert!(streams.try_recv().is_err());
        error.cause
    })
    .await
}

#[tokio::test]
async fn a_refused_stream_is_proven_unprocessed_and_other_resets_are_not() {
    assert_eq!(reset_by_peer(Reason::REFUSED_STREAM).await, Cause::RefusedStream);
    assert_eq!(reset_by_peer(Reason::CANCEL).await, Cause::Reset);
    assert_eq!(reset_by_peer(Reason::INTERNAL_ERROR).await, Cause::Reset);
    assert_eq!(reset_by_peer(Reason::ENHANCE_YOUR_CALM).await, Cause::Reset);
}

/// One request (stream 1); the peer reads it, sends GOAWAY naming `last_stream`, and closes.
async fn goaway(last_stream: u32) -> SendError<TestBody> {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        let (sent, ()) = tokio::join!(lease.unwrap().send(h2_get(empty())), async {
            conn.frame(HEADERS).await.unwrap();
            let mut payload = last_stream.to_be_bytes().to_vec();
            payload.extend_from_slice(&[0; 4]);
            conn.send_frame(GOAWAY, &payload).await;
            drop(conn);
        });
        let stats = pool.until(|stats| stats.open == 0).await;
        assert_eq!(stats.closed.going_away, 1);
        assert!(!peer.has_another().await);
        sent.unwrap_err()
    })
    .await
}

#[tokio::test]
async fn only_a_stream_above_the_last_id_is_proven_unprocessed() {
    assert_eq!(goaway(0).await.cause, Cause::GoAway);
    let below = goaway(1).await.cause;
    assert!(matches!(below, Cause::Closed | Cause::Reset), "{below:?}");
    let announced = goaway(0x7fff_ffff).await.cause;
    assert!(matches!(announced, Cause::Closed | Cause::Reset), "{announced:?}");
}

#[tokio::test]
async fn after_goaway_the_streams_finish_and_new_ones_take_another_connection() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(2), &[peer.port]);
    bounded(async {
        let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        let mut sent = Box::pin(lease.unwrap().send(h2_get(empty())));
        assert!(pends(&mut sent).await);
        conn.frame(HEADERS).await.unwrap();
        conn.send_frame(GOAWAY, &[0, 0, 0, 1, 0, 0, 0, 0]).await;
        // A ping after it: once it is answered, GOAWAY has been read.
        conn.send_frame(6, &[7; 8]).await;
        conn.frame(6).await.unwrap();
        let (next, mut other) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        assert!(pends(&mut sent).await);
        let mut next = Box::pin(next.unwrap().send(h2_get(empty())));
        assert!(pends(&mut next).await);
        other.frame(HEADERS).await.unwrap();
        // HEADERS on stream 1, END_STREAM and END_HEADERS, `:status: 204` from the static table.
        conn.send(&[0, 0, 1, HEADERS, 5, 0, 0, 0, 1, 0x89]).await;
        assert_eq!(sent.await.unwrap().status(), 204);
        let stats = pool.until(|stats| stats.open == 1).await;
        assert_eq!((stats.closed.going_away, stats.in_use), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_response_body_dropped_early_resets_the_stream_and_its_upload() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let mut streams = serve_h2(peer, 100);
    let (frames, body) = endless();
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let (sent, (mut send, stream)) = tokio::join!(lease.send(h2_get(body)), async {
            let mut stream = streams.recv().await.unwrap();
            (stream.answer(false), stream)
        });
        drop(sent.unwrap());
        let reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::CANCEL);
        // The upload is let go of, too.
        frames.closed().await;
        drop(stream);
        let stats = pool.until(|stats| stats.in_use == 0).await;
        assert_eq!((stats.open, stats.idle), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_send_dropped_before_the_head_resets_the_stream() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let mut streams = serve_h2(peer, 100);
    let (frames, body) = endless();
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut sent = Box::pin(lease.send(h2_get(body)));
        assert!(pends(&mut sent).await);
        let mut stream = streams.recv().await.unwrap();
        drop(sent);
        let reason = std::future::poll_fn(|cx| stream.respond.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::CANCEL);
        frames.closed().await;
        assert_eq!(pool.stats().in_use, 0);
    })
    .await;
}

#[tokio::test]
async fn a_request_body_that_fails_is_an_upload_failure() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let mut streams = serve_h2(peer, 100);
    let (frames, body) = endless();
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let (sent, _stream) = tokio::join!(lease.send(h2_get(body)), async {
            let stream = streams.recv().await.unwrap();
            frames.send(Err(std::io::Error::other("the caller left"))).unwrap();
            stream
        });
        assert_eq!(sent.unwrap_err().cause, Cause::UploadFailed);
    })
    .await;
}

#[tokio::test]
async fn a_protocol_error_of_the_peer_is_malformed() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        let (sent, ()) = tokio::join!(lease.unwrap().send(h2_get(empty())), async {
            conn.frame(HEADERS).await.unwrap();
            // A WINDOW_UPDATE of the wrong size.
            conn.send_frame(8, &[0]).await;
            conn.ended().await;
        });
        assert_eq!(sent.unwrap_err().cause, Cause::Malformed);
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_stops_answering_pings_is_closed() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
        let mut conn = peer.accept().await;
        conn.h2_preface(&[]).await;
        conn
    });
    tokio::time::pause();
    let (sent, ()) = tokio::join!(lease.unwrap().send(h2_get(empty())), async {
        conn.frame(6).await.unwrap();
    });
    assert_eq!(sent.unwrap_err().cause, Cause::Closed);
    assert_eq!(pool.until(|stats| stats.open == 0).await.closed.peer, 1);
}

#[tokio::test]
async fn a_peer_that_is_silent_while_idle_is_closed_too() {
    let peer = Peer::bind().await;
    let pool = pool(PoolSettings { h2_idle: Duration::from_secs(3_600), ..h2c(1) }, &[peer.port]);
    let (lease, _conn) = tokio::join!(pool.lease(0, LONG), async {
        let mut conn = peer.accept().await;
        conn.h2_preface(&[]).await;
        conn
    });
    drop(lease.unwrap());
    tokio::time::pause();
    assert_eq!(pool.until(|stats| stats.open == 0).await.closed.peer, 1);
}

#[tokio::test]
async fn a_connection_without_streams_is_closed_after_its_idle_time() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let _streams = serve_h2(peer, 100);
    drop(pool.lease(0, LONG).await.unwrap());
    tokio::time::pause();
    assert_eq!(pool.until(|stats| stats.open == 0).await.closed.expired, 1);
}

#[tokio::test]
async fn an_idle_connection_of_another_endpoint_makes_room() {
    let (one, other) = (Peer::bind().await, Peer::bind().await);
    let pool = pool(h2c(1), &[one.port, other.port]);
    let (_one, _other) = (serve_h2(one, 100), serve_h2(other, 100));
    bounded(async {
        let busy = pool.lease(0, LONG).await.unwrap();
        let mut waits = Box::pin(pool.lease(1, LONG));
        assert!(pends(&mut waits).await);
        assert_eq!(pool.stats().closing, 0);
        drop(busy);
        drop(waits.await.unwrap());
        let stats = pool.stats();
        assert_eq!((stats.open, stats.closed.evicted), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_whole_answer_frees_the_stream() {
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    let mut streams = serve_h2(peer, 100);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let (sent, stream) = tokio::join!(lease.send(h2_get(full("ask"))), async {
            let mut stream = streams.recv().await.unwrap();
            stream.answer(false).send_data("answer".into(), true).unwrap();
            stream
        });
        assert_eq!(stream.conn, 0);
        let mut asked = stream.request.into_body();
        assert_eq!(asked.data().await.unwrap().unwrap(), "ask");
        let body = sent.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "answer");
        assert_eq!(pool.stats().in_use, 0);
    })
    .await;
}

#[tokio::test]
async fn what_the_peer_resets_stays_reset_on_the_wire() {
    // A refused stream is not answered with a reset of our own, nor sent again.
    let peer = Peer::bind().await;
    let pool = pool(h2c(1), &[peer.port]);
    bounded(async {
        let (lease, mut conn) = tokio::join!(pool.lease(0, LONG), async {
            let mut conn = peer.accept().await;
            conn.h2_preface(&[]).await;
            conn
        });
        let (sent, ()) = tokio::join!(lease.unwrap().send(h2_get(empty())), async {
            conn.frame(HEADERS).await.unwrap();
            conn.send(&[0, 0, 4, RST_STREAM, 0, 0, 0, 0, 1, 0, 0, 0, 7]).await;
        });
        assert_eq!(sent.unwrap_err().cause, Cause::RefusedStream);
        drop(pool);
        // What follows is the end of the connection, and no HEADERS before it.
        assert!(conn.frame(HEADERS).await.is_none());
    })
    .await;
}
