//! HTTP/1.1: what an exchange leaves behind, and what its failures say.

use std::io;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use seawall_policy::Cause;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::*;
use crate::upstream::error::SendError;
use crate::upstream::{PoolProtocol, PoolSettings};

fn http1() -> PoolSettings {
    settings(PoolProtocol::Http1, 4)
}

/// Sends a request, lets `play` act as the peer after its head, and returns the failure.
async fn failure(
    body: TestBody,
    play: impl AsyncFnOnce(&mut PeerConn),
) -> (SendError<TestBody>, Peer) {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    let error = bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (sent, ()) = tokio::join!(lease.send(post(body)), async {
            conn.head().await.unwrap();
            play(&mut conn).await;
            drop(conn);
        });
        pool.until(|stats| stats.open == 0).await;
        sent.unwrap_err()
    })
    .await;
    (error, peer)
}

#[tokio::test]
async fn a_close_after_the_request_is_closed_and_nothing_is_sent_again() {
    let (error, peer) = failure(empty(), async |_| {}).await;
    assert_eq!(error.cause, Cause::Closed);
    assert!(error.handed_back.is_none());
    assert!(!peer.has_another().await);
}

#[tokio::test]
async fn a_head_that_breaks_off_is_closed() {
    let (error, _) = failure(empty(), async |conn| conn.send(b"HTTP/1.1 200 O").await).await;
    assert_eq!(error.cause, Cause::Closed);
}

#[tokio::test]
async fn a_reset_after_the_request_is_reset() {
    let (error, _) = failure(empty(), async |conn| {
        socket2::SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    assert_eq!(error.cause, Cause::Reset);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_malformed() {
    let (error, _) = failure(empty(), async |conn| {
        conn.send(b"220 mail.example ESMTP\r\n\r\n").await;
        conn.ended().await;
    })
    .await;
    assert_eq!(error.cause, Cause::Malformed);
}

const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

#[tokio::test]
async fn interim_answers_without_end_are_malformed_and_close_the_connection() {
    let (error, _) = failure(empty(), async |conn| {
        // Each on its own, and no more than it takes.
        for _ in 0..33 {
            conn.send(HINTS).await;
        }
        conn.ended().await;
    })
    .await;
    assert_eq!(error.cause, Cause::Malformed);
}

#[tokio::test]
async fn thirty_two_interim_answers_are_passed_over_each_time() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let plays = async {
            let mut conn = peer.accept().await;
            for _ in 0..2 {
                conn.head().await.unwrap();
                conn.send(&HINTS.repeat(32)).await;
                conn.answer("done").await;
            }
        };
        let asks = async {
            assert_eq!(exchange(&pool, 0).await, "done");
            assert_eq!(exchange(&pool, 0).await, "done");
        };
        tokio::join!(asks, plays);
    })
    .await;
}

#[tokio::test]
async fn a_head_beyond_the_limit_is_malformed() {
    let (error, _) = failure(empty(), async |conn| {
        conn.send(b"HTTP/1.1 200 OK\r\nx: ").await;
        let filler = [b'x'; 64 * 1024];
        // It closes before it has read everything.
        let _ = conn.stream.write_all(&filler).await;
        conn.ended().await;
    })
    .await;
    assert_eq!(error.cause, Cause::Malformed);
}

#[tokio::test]
async fn a_request_body_that_fails_is_an_upload_failure() {
    let (frames, body) = endless();
    let (error, _) = failure(body, async |conn| {
        frames.send(Err(io::Error::other("the caller left"))).unwrap();
        conn.ended().await;
    })
    .await;
    assert_eq!(error.cause, Cause::UploadFailed);
}

#[tokio::test]
async fn a_connection_closed_while_idle_hands_back_or_fails_and_never_sends_again() {
    for _ in 0..20 {
        let peer = Peer::bind().await;
        let pool = pool(http1(), &[peer.port]);
        bounded(async {
            drop(pool.lease(0, LONG).await.unwrap());
            let mut conn = peer.accept().await;
            let lease = pool.lease(0, LONG).await.unwrap();
            assert!(lease.is_reused());
            conn.stream.shutdown().await.unwrap();
            let error = lease.send(post(full("once"))).await.unwrap_err();
            assert_eq!(error.handed_back.is_some(), error.cause == Cause::HandedBack);
            assert!(
                matches!(error.cause, Cause::HandedBack | Cause::Closed | Cause::Reset),
                "{error:?}"
            );
            let arrived = conn.head().await.is_some();
            assert!(!(arrived && error.cause == Cause::HandedBack));
            assert!(!peer.has_another().await);
            pool.until(|stats| stats.open == 0).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_on_a_connection_known_closed_is_handed_back_whole() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        drop(peer.accept().await);
        pool.until(|stats| stats.open == 0).await;
        let error = lease.send(post(full("once"))).await.unwrap_err();
        assert_eq!(error.cause, Cause::HandedBack);
        let body = error.handed_back.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "once");
    })
    .await;
}

#[tokio::test]
async fn a_response_body_dropped_early_closes_the_connection() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (response, ()) = tokio::join!(lease.send(get(empty())), async {
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await;
        });
        assert_eq!(pool.stats().in_use, 1);
        drop(response.unwrap());
        conn.ended().await;
        let stats = pool.until(|stats| stats.open == 0).await;
        assert_eq!((stats.closed.abandoned, stats.idle), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_send_dropped_before_the_head_closes_the_connection() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let mut sent = Box::pin(lease.send(get(empty())));
        assert!(pends(&mut sent).await);
        conn.head().await.unwrap();
        drop(sent);
        conn.ended().await;
        assert_eq!(pool.until(|stats| stats.open == 0).await.closed.abandoned, 1);
    })
    .await;
}

#[tokio::test]
async fn a_response_without_a_body_gives_the_connection_back() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (response, ()) = tokio::join!(lease.send(get(empty())), async {
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        });
        drop(response.unwrap());
        pool.until(|stats| stats.idle == 1).await;
    })
    .await;
}

#[tokio::test]
async fn connection_close_is_not_reused() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (body, ()) =
            tokio::join!(async { text(lease.send(get(empty())).await.unwrap()).await }, async {
                conn.head().await.unwrap();
                conn.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")
                    .await;
            });
        assert_eq!(body, "ok");
        conn.ended().await;
        let stats = pool.until(|stats| stats.open == 0).await;
        assert_eq!((stats.idle, stats.closed.peer), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn an_early_answer_keeps_the_connection_in_use_until_the_upload_ends() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    let (frames, body) = endless();
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (answer, ()) =
            tokio::join!(async { text(lease.send(post(body)).await.unwrap()).await }, async {
                conn.head().await.unwrap();
                conn.answer("early").await;
            });
        assert_eq!(answer, "early");
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.idle), (1, 0));
        frames.send(Ok("the rest")).unwrap();
        drop(frames);
        pool.until(|stats| stats.idle == 1).await;
    })
    .await;
}

/// The peer answers with 100 bytes; they are drained up to `limit`.
async fn drained(limit: u64) -> (usize, u64) {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (response, ()) = tokio::join!(lease.send(get(empty())), async {
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n").await;
            conn.send(&[b'x'; 99]).await;
        });
        let body = response.unwrap().into_body();
        tokio::join!(body.drain(limit), async {
            // The last byte goes out at its own pace: without it nothing ends by accident.
            let _ = conn.stream.write_all(b"x").await;
        });
        let stats = pool.until(|stats| stats.in_use == 0 && stats.closing == 0).await;
        (stats.idle, stats.closed.abandoned)
    })
    .await
}

#[tokio::test]
async fn draining_up_to_the_limit_saves_the_connection_and_beyond_it_does_not() {
    assert_eq!(drained(100).await, (1, 0));
    assert_eq!(drained(98).await, (0, 1));
}

#[tokio::test]
async fn a_tunnel_takes_its_connection_out_of_the_pool_and_passes_bytes() {
    let peer = Peer::bind().await;
    let pool = pool(settings(PoolProtocol::Http1, 1), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let mut request = get(empty());
        request.headers_mut().insert("connection", "upgrade".parse().unwrap());
        request.headers_mut().insert("upgrade", "echo".parse().unwrap());
        let (response, ()) = tokio::join!(lease.send(request), async {
            conn.head().await.unwrap();
            let answer = b"HTTP/1.1 101 Switching Protocols\r\n\
                           connection: upgrade\r\nupgrade: echo\r\n\r\nhello";
            conn.send(answer).await;
        });
        let mut tunnel = TokioIo::new(hyper::upgrade::on(response.unwrap()).await.unwrap());
        let mut heard = [0; 5];
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        tunnel.write_all(b"world").await.unwrap();
        conn.stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"world");
        let stats = pool.stats();
        assert_eq!((stats.open, stats.detached, stats.idle), (0, 1, 0));
        // Its place is free although the tunnel stands.
        drop(pool.lease(0, LONG).await.unwrap());
        drop(tunnel);
        let stats = pool.until(|stats| stats.detached == 0).await;
        assert_eq!(stats.closed.detached, 1);
    })
    .await;
}

#[tokio::test]
async fn a_body_that_leaves_the_pool_frees_its_place_and_is_not_pooled() {
    let peer = Peer::bind().await;
    let pool = pool(settings(PoolProtocol::Http1, 1), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (response, ()) = tokio::join!(lease.send(get(empty())), async {
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await;
        });
        let mut response = response.unwrap();
        let mut waits = Box::pin(pool.lease(0, LONG));
        assert!(pends(&mut waits).await);
        response.body_mut().leave_pool();
        drop(waits.await.unwrap());
        conn.send(b"done").await;
        assert_eq!(text(response).await, "done");
        conn.ended().await;
        let stats = pool.until(|stats| stats.detached == 0).await;
        assert_eq!((stats.open, stats.idle, stats.closed.detached), (1, 1, 1));
    })
    .await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_frees_the_place() {
    let peer = Peer::bind().await;
    let pool = pool(http1(), &[peer.port]);
    bounded(async {
        let lease = pool.lease(0, LONG).await.unwrap();
        let mut conn = peer.accept().await;
        let (response, ()) = tokio::join!(lease.send(get(empty())), async {
            conn.head().await.unwrap();
            conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha").await;
            drop(conn);
        });
        let error = response.unwrap().into_body().collect().await.unwrap_err();
        assert_eq!(crate::upstream::classify::classify(&error), Cause::Closed);
        pool.until(|stats| stats.open == 0).await;
    })
    .await;
}
