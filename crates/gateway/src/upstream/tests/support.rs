//! Peers and bodies for the tests.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use seawall::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::upstream::{Pool, PoolProtocol, PoolSettings, Resolver, UpstreamBody};

pub(super) type TestBody = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type TestPool = Pool<TestBody>;

/// Longer than anything here takes.
pub(super) const LONG: Duration = Duration::from_secs(10);

/// Fails the test if it takes longer than [`LONG`]; not for paused time.
pub(super) async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, test).await.expect("the test hangs")
}

/// Whether so many milliseconds passed, but for the millisecond tokio's timer rounds up to.
pub(super) fn is_about(time: Duration, millis: u128) -> bool {
    (millis..=millis + 1).contains(&time.as_millis())
}

pub(super) fn settings(protocol: PoolProtocol, max_connections: usize) -> PoolSettings {
    PoolSettings::new(protocol, max_connections)
}

pub(super) fn resolver() -> Resolver {
    Resolver::new(1, Duration::from_secs(5), Clock::new())
}

/// A pool for ports on loopback.
pub(super) fn pool(settings: PoolSettings, ports: &[u16]) -> TestPool {
    let endpoints = ports.iter().map(|port| ("127.0.0.1".to_owned(), *port)).collect();
    Pool::new(settings, endpoints, resolver(), Clock::new())
}

pub(super) fn empty() -> TestBody {
    full("")
}

pub(super) fn full(text: &'static str) -> TestBody {
    Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// A body that goes on until the sender is dropped.
pub(super) fn endless() -> (mpsc::UnboundedSender<io::Result<&'static str>>, TestBody) {
    let (frames, receiver) = mpsc::unbounded_channel::<io::Result<&'static str>>();
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        let frame = receiver.recv().await?;
        Some((frame.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
    });
    (frames, StreamBody::new(stream).boxed_unsync())
}

/// Polls once; whether it goes on.
pub(super) async fn pends<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

pub(super) fn get(body: TestBody) -> Request<TestBody> {
    Request::builder().uri("/").header("host", "test").body(body).unwrap()
}

pub(super) fn post(body: TestBody) -> Request<TestBody> {
    Request::post("/").header("host", "test").body(body).unwrap()
}

pub(super) fn h2_get(body: TestBody) -> Request<TestBody> {
    Request::builder().uri("http://test/").body(body).unwrap()
}

pub(super) async fn text(response: Response<UpstreamBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// One exchange through the pool, and the text of the answer.
pub(super) async fn exchange(pool: &TestPool, endpoint: usize) -> String {
    let lease = pool.lease(endpoint, LONG).await.unwrap();
    text(lease.send(get(empty())).await.unwrap()).await
}

/// A listener whose connections the test plays by hand.
pub(super) struct Peer {
    listener: TcpListener,
    pub(super) port: u16,
}

impl Peer {
    pub(super) async fn bind() -> Self {
        Self::bind_to(Ipv4Addr::LOCALHOST.into()).await
    }

    pub(super) async fn bind_to(ip: IpAddr) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    pub(super) async fn accept(&self) -> PeerConn {
        PeerConn { stream: self.listener.accept().await.unwrap().0 }
    }

    /// Whether a connection waits that nobody has accepted.
    pub(super) async fn has_another(&self) -> bool {
        use futures_util::FutureExt;
        tokio::task::yield_now().await;
        self.listener.accept().now_or_never().is_some()
    }

    /// Answers every request with the number of its connection; counts requests.
    pub(super) fn serve(self) -> Arc<AtomicUsize> {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        tokio::spawn(async move {
            for number in 0.. {
                let mut conn = self.accept().await;
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    while conn.head().await.is_some() {
                        counted.fetch_add(1, Ordering::SeqCst);
                        conn.answer(&number.to_string()).await;
                    }
                });
            }
        });
        requests
    }
}

/// The peer's end of a connection.
pub(super) struct PeerConn {
    pub(super) stream: TcpStream,
}

impl PeerConn {
    /// The next request head; `None` if the connection ended.
    pub(super) async fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.ok()?);
        }
        Some(String::from_utf8(head).unwrap())
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(super) async fn answer(&mut self, text: &str) {
        let length = text.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}");
        // The caller may be gone; a test notices by what it awaits.
        let _ = self.stream.write_all(answer.as_bytes()).await;
    }

    /// Waits for the other side to close or reset.
    pub(super) async fn ended(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest).await, Ok(read) if read > 0) {}
    }

    /// Reads the rest of an HTTP/2 frame until one of this kind has passed; returns its payload.
    pub(super) async fn frame(&mut self, kind: u8) -> Option<Vec<u8>> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut payload).await.ok()?;
            if head[3] == kind {
                return Some(payload);
            }
        }
    }

    /// Reads the client's preface and sends these SETTINGS.
    pub(super) async fn h2_preface(&mut self, settings: &[u8]) {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface).await.unwrap();
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        self.send_frame(4, settings).await;
    }

    /// Sends a frame of the connection (stream 0).
    pub(super) async fn send_frame(&mut self, kind: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.send(&frame).await;
    }
}

/// An HTTP/2 stream as a server of the `h2` crate hands it out.
pub(super) struct H2Stream {
    pub(super) conn: usize,
    pub(super) request: Request<h2::RecvStream>,
    pub(super) respond: h2::server::SendResponse<Bytes>,
}

impl H2Stream {
    pub(super) fn answer(&mut self, end: bool) -> h2::SendStream<Bytes> {
        self.respond.send_response(Response::new(()), end).unwrap()
    }
}

/// Serves HTTP/2 with this limit on streams and hands them to the test.
pub(super) fn serve_h2(peer: Peer, limit: u32) -> mpsc::UnboundedReceiver<H2Stream> {
    let (streams, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for number in 0.. {
            let stream = peer.accept().await.stream;
            let streams = streams.clone();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                builder.max_concurrent_streams(limit);
                let Ok(mut conn) = builder.handshake::<_, Bytes>(stream).await else { return };
                while let Some(Ok((request, respond))) = conn.accept().await {
                    let _ = streams.send(H2Stream { conn: number, request, respond });
                }
            });
        }
    });
    receiver
}
