//! Every timer of a connection, and what else ends it.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use seawall_policy::{SpreadOptions, SpreadParams};
use tokio::sync::mpsc;

use super::frames::{DATA, END_STREAM, GOAWAY, HEADERS, Peer, RST_STREAM, frame, get, reset};
use super::*;

type H2Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// An HTTP/2 client and the end of its connection.
async fn h2_client(running: &Running) -> (H2Sender, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(running.connect().await);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    (sender, tokio::spawn(connection))
}

async fn h2_get(sender: &mut H2Sender) -> StatusCode {
    let request = Request::get("http://a/").body(Full::default()).unwrap();
    within(sender.send_request(request)).await.unwrap().status()
}

#[tokio::test]
async fn a_silent_peer_ends_by_the_first_byte_timer() {
    let listener = ListenerOptions { first_byte_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    assert_eq!(read_to_end(&mut running.connect().await).await, "");
    running.closed(CloseReason::FirstByte, 1).await;
}

#[tokio::test]
async fn a_head_that_is_not_whole_ends_by_the_head_timer() {
    let listener = ListenerOptions { head_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    let heads: [&[u8]; 4] = [b"G", b"GET / HTTP/1.1\r\nHost: a\r\n", b"PRI * HT", b"\r\n"];
    for head in heads {
        let mut socket = running.connect().await;
        socket.write_all(head).await.unwrap();
        assert_eq!(read_to_end(&mut socket).await, "");
    }
    running.closed(CloseReason::Head, 4).await;
}

#[tokio::test]
async fn a_head_that_trickles_ends_by_the_head_timer_also_on_a_used_connection() {
    let listener = ListenerOptions { head_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    assert!(read_answer(&mut socket).await.ends_with("hello"));
    // The head timer does not run between requests.
    tokio::time::sleep(SOON * 3).await;
    socket.write_all(GET).await.unwrap();
    assert!(read_answer(&mut socket).await.ends_with("hello"));
    let (mut from, mut to) = socket.into_split();
    let trickle = async {
        for byte in GET.iter().cycle() {
            if *byte == b'\n' || to.write_all(&[*byte]).await.is_err() {
                continue;
            }
            tokio::time::sleep(SOON / 10).await;
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = trickle => unreachable!(),
        read = within(from.read_to_end(&mut rest)) => drop(read),
    }
    assert!(rest.is_empty());
    running.closed(CloseReason::Head, 1).await;
}

#[tokio::test]
async fn an_idle_connection_ends_by_the_idle_timer() {
    let listener = ListenerOptions { idle_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    assert!(read_to_end(&mut socket).await.ends_with("hello"));
    running.closed(CloseReason::Idle, 1).await;
}

#[tokio::test]
async fn an_idle_http_2_connection_gets_goaway() {
    let listener = ListenerOptions { idle_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    let (mut sender, connection) = h2_client(&running).await;
    assert_eq!(h2_get(&mut sender).await, StatusCode::OK);
    within(connection).await.unwrap().unwrap();
    running.closed(CloseReason::Idle, 1).await;
}

#[tokio::test]
async fn a_request_in_flight_stops_the_idle_timer() {
    let listener = ListenerOptions { idle_timeout: SOON, ..unhurried() };
    let slow = |_, _| async {
        tokio::time::sleep(SOON * 4).await;
        Response::new(Full::<Bytes>::from("hello"))
    };
    let running = start(ServerOptions::default(), listener, slow);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    assert!(read_to_end(&mut socket).await.ends_with("hello"));
    let (mut sender, connection) = h2_client(&running).await;
    assert_eq!(h2_get(&mut sender).await, StatusCode::OK);
    within(connection).await.unwrap().unwrap();
    running.closed(CloseReason::Idle, 2).await;
}

#[tokio::test]
async fn an_old_connection_is_closed_with_its_next_answer() {
    let listener = ListenerOptions { max_age: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, hello);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    assert!(!read_answer(&mut socket).await.contains("connection: close"));
    tokio::time::sleep(SOON * 2).await;
    socket.write_all(GET).await.unwrap();
    assert!(read_to_end(&mut socket).await.contains("connection: close"));
    let (_sender, connection) = h2_client(&running).await;
    within(connection).await.unwrap().unwrap();
    running.closed(CloseReason::Age, 2).await;
}

/// A body without end, and word of its being dropped.
struct Endless {
    _dropped: mpsc::UnboundedSender<()>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 16_384])))))
    }
}

/// A handler of endless answers, and the end of word that each was dropped.
#[expect(clippy::type_complexity, reason = "a handler has no name")]
fn endless() -> (
    impl Fn(Request<Incoming>, ConnInfo) -> std::future::Ready<Response<Endless>> + Clone,
    mpsc::UnboundedReceiver<()>,
) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let handler =
        move |_, _| std::future::ready(Response::new(Endless { _dropped: sender.clone() }));
    (handler, receiver)
}

#[tokio::test]
async fn a_peer_that_never_reads_is_given_up() {
    let options = ServerOptions { write_stall: SOON * 3, ..ServerOptions::default() };
    let (handler, _) = endless();
    let running = start(options, unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    running.closed(CloseReason::Stall, 1).await;
    let mut peer = Peer::connect(&running, &[0, 4, 0x7f, 0xff, 0xff, 0xff]).await;
    peer.send(&frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes())).await;
    peer.send(&get(1)).await;
    running.closed(CloseReason::Stall, 2).await;
}

/// Six that stall at once, at five a second: each in a place of 200 ms of its own.
#[tokio::test]
async fn answers_that_stall_together_end_one_after_the_other_and_by_a_reset() {
    let options = ServerOptions { write_stall: SOON, ..ServerOptions::default() };
    let ends = SpreadOptions { limit: 5, period: Duration::from_secs(1) };
    let ends = SpreadParams::new(ends).unwrap();
    let (handler, _) = endless();
    let listener = ListenerOptions { ends, ..unhurried() };
    let running = start(options, listener.clone(), handler);
    let clock = Clock::new();
    let mut sockets = Vec::new();
    for _ in 0..6 {
        let mut socket = running.connect().await;
        socket.write_all(GET).await.unwrap();
        sockets.push(socket);
    }
    let ended = async |count| {
        within(async {
            while running.gauges.closed(CloseReason::Stall) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        clock.now()
    };
    let first = ended(1).await;
    let took = ended(6).await.since(first);
    assert!(took >= Duration::from_millis(790), "{took:?}");
    let mut read = Vec::new();
    let error = within(sockets[0].read_to_end(&mut read)).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    // Streams of one connection as well.
    let running = start(options, listener, hello);
    let mut peer = Peer::connect(&running, &[0, 4, 0, 0, 0, 0]).await;
    for stream in [1, 3, 5, 7, 9, 11] {
        peer.send(&get(stream)).await;
    }
    peer.next_of(&[RST_STREAM]).await.unwrap();
    let first = clock.now();
    for _ in 0..5 {
        peer.next_of(&[RST_STREAM]).await.unwrap();
    }
    let took = clock.now().since(first);
    assert!(took >= Duration::from_millis(790), "{took:?}");
}

#[tokio::test]
async fn a_stream_without_window_is_reset_alone() {
    let options = ServerOptions { write_stall: SOON, ..ServerOptions::default() };
    let running = start(options, unhurried(), hello);
    let mut peer = Peer::connect(&running, &[0, 4, 0, 0, 0, 0]).await;
    peer.send(&get(1)).await;
    let received = peer.next_of(&[RST_STREAM, GOAWAY]).await.unwrap();
    assert_eq!((received.kind, received.stream), (RST_STREAM, 1));
    assert!(peer.round_trip().await);
    assert_eq!(running.gauges.requests(), 0);
}

#[tokio::test]
async fn a_peer_that_reads_slowly_is_not_given_up() {
    let options = ServerOptions { write_stall: SOON * 3, ..ServerOptions::default() };
    let (handler, _) = endless();
    let running = start(options, unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..20 {
        tokio::time::sleep(SOON / 2).await;
        assert!(within(socket.read(&mut buffer)).await.unwrap() > 0);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_drops_the_handlers_future_and_the_answers_body() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let handler = move |_: Request<Incoming>, _: ConnInfo| {
        let started = started.clone();
        async move {
            started.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(started);
            Response::new(Full::<Bytes>::default())
        }
    };
    let running = start(ServerOptions::default(), unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    within(starts.recv()).await.unwrap();
    assert_eq!(running.gauges.requests(), 1);
    drop(socket);
    running.closed(CloseReason::Failed, 1).await;
    assert_eq!(running.gauges.requests(), 0);

    let mut peer = Peer::connect(&running, &[]).await;
    peer.send(&get(1)).await;
    within(starts.recv()).await.unwrap();
    peer.send(&reset(1)).await;
    assert!(peer.round_trip().await);
    within(async {
        while running.gauges.requests() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(running.gauges.requests_abandoned_total(), 1);

    let (handler, mut dropped) = endless();
    let running = start(ServerOptions::default(), unhurried(), handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    socket.read_exact(&mut [0; 100]).await.unwrap();
    drop(socket);
    // The server holds one sender; the other is gone with the body.
    running.trigger.signal();
    running.trigger.signal();
    within(running.task).await.unwrap();
    assert_eq!(within(dropped.recv()).await, None);
}

#[tokio::test]
async fn an_answer_read_to_its_end_is_not_abandoned() {
    let running = start(ServerOptions::default(), unhurried(), hello);
    let mut peer = Peer::connect(&running, &[]).await;
    for stream in [1, 3, 5] {
        peer.send(&get(stream)).await;
        loop {
            let received = peer.next_of(&[HEADERS, DATA]).await.unwrap();
            if received.flags & END_STREAM != 0 {
                break;
            }
        }
    }
    assert!(peer.round_trip().await);
    assert_eq!(running.gauges.requests(), 0);
    assert_eq!(running.gauges.requests_abandoned_total(), 0);
}

#[tokio::test]
async fn an_upgraded_connection_is_handed_over_and_stays_counted() {
    let handler = |mut request: Request<Incoming>, _| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut socket = TokioIo::new(upgrade.await.unwrap());
            let mut word = [0; 4];
            socket.read_exact(&mut word).await.unwrap();
            socket.write_all(&word).await.unwrap();
        });
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert("connection", "upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", "echo".parse().unwrap());
        response
    };
    let listener = ListenerOptions { idle_timeout: SOON, head_timeout: SOON, ..unhurried() };
    let running = start(ServerOptions::default(), listener, handler);
    let mut socket = running.connect().await;
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut read = [0; 12];
    within(socket.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"HTTP/1.1 101");
    tokio::time::sleep(SOON * 3).await;
    assert_eq!(running.gauges.active(), 1);
    socket.write_all(b"word").await.unwrap();
    assert!(read_to_end(&mut socket).await.ends_with("word"));
    running.closed(CloseReason::Ended, 1).await;
}

#[tokio::test]
async fn the_answer_to_an_upload_nobody_read_arrives_before_the_connection_is_gone() {
    let running = start(ServerOptions::default(), unhurried(), hello);
    for _ in 0..20 {
        let mut socket = running.connect().await;
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
        socket.write_all(head).await.unwrap();
        // The answer is on its way while the body still comes.
        within(socket.readable()).await.unwrap();
        for _ in 0..8 {
            // Linux hands out what came before a reset; that there was none shows here.
            within(socket.write_all(&[b'x'; 125_000])).await.unwrap();
        }
        assert!(read_to_end(&mut socket).await.ends_with("hello"));
    }
}

#[tokio::test]
async fn a_peer_that_does_not_close_after_us_is_waited_for_a_second() {
    let running = start(ServerOptions::default(), unhurried(), hello);
    let mut socket = running.connect().await;
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut socket).await.ends_with("hello"));
    assert_eq!(running.gauges.active(), 1);
    running.closed(CloseReason::Ended, 1).await;
}

#[tokio::test]
async fn an_upgraded_connection_reads_on_after_its_own_end() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let handler = move |mut request: Request<Incoming>, _: ConnInfo| {
        let sender = sender.clone();
        async move {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut socket = TokioIo::new(upgrade.await.unwrap());
                socket.shutdown().await.unwrap();
                let mut read = String::new();
                socket.read_to_string(&mut read).await.unwrap();
                sender.send(read).unwrap();
            });
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response
        }
    };
    let running = start(ServerOptions::default(), unhurried(), handler);
    let mut socket = running.connect().await;
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    assert!(read_to_end(&mut socket).await.starts_with("HTTP/1.1 101"));
    socket.write_all(b"later").await.unwrap();
    drop(socket);
    assert_eq!(within(receiver.recv()).await.unwrap(), "later");
}

#[tokio::test]
async fn accepting_pauses_while_every_place_is_taken() {
    let options = ServerOptions { max_connections: 1, ..ServerOptions::default() };
    let running = start(options, unhurried(), hello);
    let mut first = running.connect().await;
    first.write_all(GET).await.unwrap();
    assert!(read_answer(&mut first).await.ends_with("hello"));
    let mut second = running.connect().await;
    second.write_all(GET).await.unwrap();
    let early = tokio::time::timeout(SOON, second.read_u8()).await;
    assert!(early.is_err());
    assert_eq!(running.gauges.active(), 1);
    drop(first);
    assert!(read_answer(&mut second).await.ends_with("hello"));
    assert_eq!(running.gauges.accepted_total(), 2);
}

#[tokio::test]
async fn a_handler_learns_where_its_request_came_from() {
    let handler = |_: Request<Incoming>, conn: ConnInfo| async move {
        let facts = format!(
            "{} {} {} {:?}",
            conn.peer().ip(),
            conn.listener(),
            conn.is_trusted(),
            conn.drain().phase,
        );
        Response::new(Full::<Bytes>::from(facts))
    };
    let listener = ListenerOptions { is_trusted: Arc::new(|ip| ip.is_loopback()), ..unhurried() };
    let running = start(ServerOptions::default(), listener, handler);
    let mut socket = running.connect().await;
    socket.write_all(GET).await.unwrap();
    let peer = socket.local_addr().unwrap().ip();
    let facts = format!("{peer} 0 true Serving");
    assert!(read_answer(&mut socket).await.ends_with(&facts));
}
