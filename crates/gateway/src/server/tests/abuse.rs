//! HTTP/2 peers that make work for us without wanting anything.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

// By name: what a server calls a peer is in the other list.
use super::frames::{Peer, *};
use super::*;

/// A server whose requests never end, the number it took, and whether it trusts its peers.
fn hanging(trusted: bool) -> (Running, Arc<AtomicUsize>) {
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let handler = move |_: Request<Incoming>, _: ConnInfo| {
        count.fetch_add(1, SeqCst);
        std::future::pending::<Response<Full<Bytes>>>()
    };
    let listener = ListenerOptions { is_trusted: Arc::new(move |_| trusted), ..unhurried() };
    (start(ServerOptions::default(), listener, handler), taken)
}

/// Sends pieces until the server closes; whether it did before all of them were sent and answered.
async fn is_closed_by(peer: &mut Peer, pieces: impl Iterator<Item = Vec<u8>>) -> bool {
    let (mut from, mut to) = peer.0.split();
    let mut sink = Vec::new();
    let write = async {
        for piece in pieces {
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = write => unreachable!(),
        read = tokio::time::timeout(BOUND, from.read_to_end(&mut sink)) => read.is_ok(),
    }
}

fn stream(number: u32) -> u32 {
    2 * number + 1
}

#[tokio::test]
async fn a_burst_of_streams_reset_at_once_ends_the_connection() {
    let (running, taken) = hanging(false);
    let mut peer = Peer::connect(&running, &[]).await;
    let burst: Vec<u8> =
        (0..500).flat_map(|n| [get(stream(n)), reset(stream(n))].concat()).collect();
    assert!(is_closed_by(&mut peer, [burst].into_iter()).await);
    assert!(taken.load(SeqCst) <= 150, "{}", taken.load(SeqCst));
    running.closed(CloseReason::Abuse, 1).await;
    assert_eq!(running.gauges.requests(), 0);
}

#[tokio::test]
async fn a_hundred_abandoned_requests_are_put_up_with_and_one_more_ends_a_strangers_connection() {
    let (running, taken) = hanging(false);
    let mut peer = Peer::connect(&running, &[]).await;
    for number in 0..100 {
        peer.send(&get(stream(number))).await;
        assert!(peer.round_trip().await);
        peer.send(&reset(stream(number))).await;
    }
    assert!(peer.round_trip().await);
    peer.send(&get(stream(100))).await;
    peer.round_trip().await;
    peer.send(&reset(stream(100))).await;
    while peer.next().await.is_some() {}
    assert_eq!(taken.load(SeqCst), 101);
    running.closed(CloseReason::Abuse, 1).await;
    assert_eq!(running.gauges.requests_abandoned_total(), 101);
}

#[tokio::test]
async fn a_trusted_peer_that_abandons_too_much_gets_goaway_and_keeps_its_streams() {
    let (running, _) = hanging(true);
    let mut peer = Peer::connect(&running, &[]).await;
    peer.send(&get(1)).await;
    for number in 1..=101 {
        peer.send(&get(stream(number))).await;
        assert!(peer.round_trip().await);
        peer.send(&reset(stream(number))).await;
    }
    let received = peer.next_of(&[GOAWAY]).await.unwrap();
    assert_eq!(received.code(), 0);
    assert!(peer.round_trip().await);
    assert_eq!(running.gauges.requests(), 1);
    assert_eq!(running.gauges.active(), 1);
}

#[tokio::test]
async fn a_header_block_of_endless_continuations_ends_the_connection() {
    let (running, taken) = hanging(false);
    let mut peer = Peer::connect(&running, &[]).await;
    let begin = [frame(HEADERS, END_STREAM, 1, &GET_BLOCK)];
    let more = (0..100_000).map(|_| frame(CONTINUATION, 0, 1, &[]));
    assert!(is_closed_by(&mut peer, begin.into_iter().chain(more)).await);
    assert_eq!(taken.load(SeqCst), 0);
    running.closed(CloseReason::Abuse, 1).await;
}

#[tokio::test]
async fn a_header_list_of_60_kib_is_served_and_one_of_70_reaches_no_handler() {
    // Literal fields without indexing, each of 4 KiB and a little.
    let field = [&[0_u8, 1, b'x', 0x7f, 0x81, 0x1f][..], &[b'y'; 4096]].concat();
    for (fields, expected) in [(14, 1), (17, 0)] {
        let (running, taken) = hanging(false);
        let mut peer = Peer::connect(&running, &[]).await;
        peer.send(&frame(HEADERS, END_STREAM, 1, &GET_BLOCK)).await;
        let block = field.repeat(fields);
        for part in block.chunks(16_384) {
            peer.send(&frame(CONTINUATION, 0, 1, part)).await;
        }
        peer.send(&frame(CONTINUATION, END_HEADERS, 1, &[])).await;
        // Answered, reset or cut, as h2 chooses; in any case read by then.
        peer.round_trip().await;
        assert_eq!(taken.load(SeqCst), expected, "{fields}");
    }
}

#[tokio::test]
async fn floods_of_frames_that_carry_nothing_end_the_connection() {
    let settings = [0, 4, 0, 1, 0, 0];
    for (name, flood) in [
        ("PING", frame(PING, 0, 0, b"12345678")),
        ("SETTINGS", frame(SETTINGS, 0, 0, &settings)),
        ("empty SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", frame(8, 0, 0, &1_u32.to_be_bytes())),
        ("unknown", frame(0xfa, 0, 0, &[])),
    ] {
        let (running, _) = hanging(false);
        let mut peer = Peer::connect(&running, &[]).await;
        let flood = flood.repeat(100);
        assert!(is_closed_by(&mut peer, (0..1000).map(|_| flood.clone())).await, "{name}");
        running.closed(CloseReason::Abuse, 1).await;
    }
}

#[tokio::test]
async fn a_flood_whose_answers_are_not_read_ends_by_the_stall() {
    let handler = |_, _| std::future::pending::<Response<Full<Bytes>>>();
    let options = ServerOptions { write_stall: SOON, ..ServerOptions::default() };
    let running = start(options, unhurried(), handler);
    let mut peer = Peer::connect(&running, &[]).await;
    let ping = frame(PING, 0, 0, b"12345678").repeat(100);
    within(async {
        while running.gauges.active() > 0 || running.gauges.accepted_total() == 0 {
            let _ = tokio::time::timeout(SOON, peer.0.write_all(&ping)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_data_flood_ends_the_connection() {
    let (running, _) = hanging(false);
    let mut peer = Peer::connect(&running, &[]).await;
    let begin = [frame(HEADERS, END_HEADERS, 1, &GET_BLOCK)];
    let flood = frame(DATA, 0, 1, &[]).repeat(100);
    let more = (0..1000).map(|_| flood.clone());
    assert!(is_closed_by(&mut peer, begin.into_iter().chain(more)).await);
    running.closed(CloseReason::Abuse, 1).await;
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_as_not_processed() {
    let handler = |_, _| std::future::pending::<Response<Full<Bytes>>>();
    let options = ServerOptions { h2_streams: 2, ..ServerOptions::default() };
    let running = start(options, unhurried(), handler);
    let mut peer = Peer::connect(&running, &[]).await;
    for number in 0..3 {
        peer.send(&get(stream(number))).await;
    }
    let received = peer.next_of(&[RST_STREAM, GOAWAY]).await.unwrap();
    assert_eq!((received.kind, received.stream, received.code()), (RST_STREAM, 5, 7));
    assert!(peer.round_trip().await);
    assert_eq!(running.gauges.requests(), 2);
}
