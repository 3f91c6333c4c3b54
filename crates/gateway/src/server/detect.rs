//! Decides from its first bytes which protocol a connection speaks.
//!
//! An HTTP/2 peer begins with a preface no HTTP/1.1 request begins with. The first byte that
//! differs decides for HTTP/1.1, the whole preface for HTTP/2; both get all bytes again. Two timers
//! run: one until the first byte, one from then until the decision.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout_at;

use super::gauges::CloseReason;
use super::state::DownstreamProtocol;

/// What the first bytes said.
#[derive(Debug)]
pub(super) struct Detected {
    pub(super) protocol: DownstreamProtocol,
    /// Everything read so far.
    pub(super) read: BytesMut,
    /// When the first byte came.
    pub(super) first_byte: Timestamp,
}

/// Reads until the protocol is known.
///
/// # Errors
///
/// Why there is no protocol: no byte in time, no decision in time, the peer left or failed.
pub(super) async fn detect(
    socket: &mut (impl AsyncRead + Unpin),
    clock: &Clock,
    first_byte_timeout: Duration,
    head_timeout: Duration,
) -> Result<Detected, CloseReason> {
    let mut read = BytesMut::with_capacity(READ_AT_ONCE);
    let mut deadline = clock.now().after(first_byte_timeout);
    let mut first_byte = None;
    loop {
        let received = timeout_at(clock.instant(deadline), socket.read_buf(&mut read)).await;
        match received {
            Err(_) if first_byte.is_some() => return Err(CloseReason::Head),
            Err(_) => return Err(CloseReason::FirstByte),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(Err(_)) => return Err(CloseReason::Failed),
            // Cut short, `PRI * HT` is a broken request like any other.
            Ok(Ok(0)) if read.is_empty() => return Err(CloseReason::Ended),
            Ok(Ok(_)) => {}
        }
        let first_byte = *first_byte.get_or_insert_with(|| {
            let now = clock.now();
            deadline = now.after(head_timeout);
            now
        });
        let ended = matches!(received, Ok(Ok(0)));
        if let Some(protocol) = decide(&read, ended) {
            return Ok(Detected { protocol, read, first_byte });
        }
        read.reserve(READ_AT_ONCE);
    }
}

fn decide(read: &[u8], ended: bool) -> Option<DownstreamProtocol> {
    if read.starts_with(PREFACE) {
        Some(DownstreamProtocol::Http2)
    } else if ended || !PREFACE.starts_with(read) {
        Some(DownstreamProtocol::Http1)
    } else {
        None
    }
}

/// What an HTTP/2 peer begins with. Source: RFC 9113 section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough for most request lines; held by every connection that has not spoken yet.
const READ_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const FIRST_BYTE: Duration = Duration::from_secs(10);
    const HEAD: Duration = Duration::from_secs(7);

    /// What is found out about a peer that sends `pieces`, a second apart, and then stays or
    /// leaves; and after how many seconds.
    async fn found(pieces: &[&[u8]], leaves: bool) -> (Result<(bool, Vec<u8>), CloseReason>, u64) {
        let clock = Clock::new();
        let start = clock.now();
        let (mut peer, mut socket) = tokio::io::duplex(1024);
        let peer = async {
            for piece in pieces {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if peer.write_all(piece).await.is_err() {
                    break;
                }
            }
            if !leaves {
                std::future::pending::<()>().await;
            }
            drop(peer);
            std::future::pending::<()>().await;
        };
        let detected = tokio::select! {
            biased;
            detected = detect(&mut socket, &clock, FIRST_BYTE, HEAD) => detected,
            () = peer => unreachable!(),
        };
        let found = detected.map(|detected| {
            (detected.protocol == DownstreamProtocol::Http2, detected.read.to_vec())
        });
        (found, clock.now().since(start).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_byte_that_differs_decides_for_http_1() {
        for pieces in [
            vec![b"GET".as_slice()],
            vec![b"P".as_slice(), b"O"],
            vec![b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r".as_slice(), b"x"],
            vec![b"\r".as_slice()],
        ] {
            let (found, after) = found(&pieces, false).await;
            assert_eq!(found, Ok((false, pieces.concat())));
            assert_eq!(after, u64::try_from(pieces.len()).unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_preface_decides_for_http_2_however_it_is_cut() {
        for cut in 1..PREFACE.len() {
            let (head, tail) = PREFACE.split_at(cut);
            let (found, after) = found(&[head, &[tail, b"more"].concat()], false).await;
            assert_eq!(found, Ok((true, [PREFACE, b"more"].concat())));
            assert_eq!(after, 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_by_the_first_byte_timer() {
        assert_eq!(found(&[], false).await, (Err(CloseReason::FirstByte), 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_preface_ends_by_the_head_timer_from_its_first_byte() {
        assert_eq!(found(&[b"PRI * HT"], false).await, (Err(CloseReason::Head), 8));
        let slow: Vec<&[u8]> = PREFACE.chunks(1).collect();
        assert_eq!(found(&slow, false).await, (Err(CloseReason::Head), 8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_leaves_has_ended_or_is_read_as_http_1() {
        assert_eq!(found(&[], true).await, (Err(CloseReason::Ended), 0));
        assert_eq!(found(&[b"PRI"], true).await, (Ok((false, b"PRI".to_vec())), 1));
    }
}
