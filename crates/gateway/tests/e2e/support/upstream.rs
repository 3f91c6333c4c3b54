//! Upstreams that a test plays: request by request, by a script, or byte by byte.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::{Body, Protocol, full, within};

/// An answer with a status and a body.
pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// An upstream; each request comes to the test as a [`Call`].
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    calls: mpsc::UnboundedReceiver<Call>,
}

/// A request at the upstream that waits for its answer. Dropped unanswered, its connection breaks.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: Request<Incoming>,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    reply: oneshot::Sender<Response<Body>>,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.request.headers().get_all(name).iter();
        let first = values.next();
        assert!(values.next().is_none(), "{name} came twice");
        first.map(|value| value.to_str().unwrap())
    }

    /// Answers without reading on.
    pub(crate) fn answer(self, response: Response<Body>) -> Request<Incoming> {
        assert!(self.reply.send(response).is_ok(), "the gateway still waits");
        self.request
    }

    /// Answers and keeps the body to be read.
    pub(crate) fn split(self) -> (Incoming, Reply) {
        (self.request.into_body(), Reply(self.reply))
    }

    /// Waits until the gateway no longer waits.
    pub(crate) async fn left(&mut self) {
        within(self.reply.closed()).await;
    }

    /// Answers, if the gateway still waits.
    pub(crate) fn try_answer(self, response: Response<Body>) -> Request<Incoming> {
        let _ = self.reply.send(response);
        self.request
    }

    /// Says nothing until the gateway no longer waits.
    pub(crate) async fn ignore(mut self) {
        self.left().await;
    }

    /// Reads the request to its end.
    pub(crate) async fn read(self) -> (Arrival, Reply) {
        self.try_read().await.expect("the request is whole")
    }

    /// As [`Call::read`], unless it breaks off.
    pub(crate) async fn try_read(self) -> hyper::Result<(Arrival, Reply)> {
        let (parts, body) = self.request.into_parts();
        let collected = within(body.collect()).await?;
        let arrival = Arrival {
            method: parts.method.to_string(),
            path: parts.uri.path_and_query().unwrap().to_string(),
            headers: parts.headers,
            trailers: collected.trailers().cloned(),
            body: collected.to_bytes(),
            connection: self.connection,
        };
        Ok((arrival, Reply(self.reply)))
    }
}

/// What is still to be answered.
#[derive(Debug)]
pub(crate) struct Reply(oneshot::Sender<Response<Body>>);

impl Reply {
    pub(crate) fn answer(self, response: Response<Body>) {
        assert!(self.0.send(response).is_ok(), "the gateway still waits");
    }

    /// Answers, if the gateway still waits.
    pub(crate) fn try_answer(self, response: Response<Body>) {
        let _ = self.0.send(response);
    }
}

/// A request that came, whole.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) connection: usize,
}

impl Arrival {
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        assert!(values.next().is_none(), "{name} came twice");
        first.map(|value| value.to_str().unwrap())
    }
}

/// The requests that came so far.
pub(crate) type Arrivals = Arc<Mutex<Vec<Arrival>>>;

impl Upstream {
    pub(crate) async fn start(protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        tokio::spawn(accept(listener, protocol, sender));
        Self { address, calls }
    }

    /// The next request.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Call> {
        let next = within(self.calls.recv());
        async move { next.await.expect("the upstream runs") }
    }

    /// The next request, however long it takes; nothing once the upstream is gone.
    pub(crate) async fn poll_next(&mut self) -> Option<Call> {
        self.calls.recv().await
    }

    /// Whether a request came that was not taken yet.
    pub(crate) fn has_another(&mut self) -> bool {
        !self.calls.is_empty()
    }

    /// An upstream that reads each request to its end and answers as `script` says, which is told
    /// how many came before.
    pub(crate) async fn scripted(
        protocol: Protocol,
        script: impl Fn(usize, &Arrival) -> Response<Body> + Send + 'static,
    ) -> (SocketAddr, Arrivals) {
        let mut upstream = Self::start(protocol).await;
        let address = upstream.address;
        let arrivals = Arrivals::default();
        let seen = Arc::clone(&arrivals);
        tokio::spawn(async move {
            while let Some(call) = upstream.calls.recv().await {
                let (arrival, reply) = call.read().await;
                let response = {
                    let mut seen = seen.lock().unwrap();
                    let response = script(seen.len(), &arrival);
                    seen.push(arrival);
                    response
                };
                // A caller may have left.
                let _ = reply.0.send(response);
            }
        });
        (address, arrivals)
    }
}

async fn accept(listener: TcpListener, protocol: Protocol, calls: mpsc::UnboundedSender<Call>) {
    for connection in 0.. {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let calls = calls.clone();
        let service = service_fn(move |request| {
            let (reply, answered) = oneshot::channel();
            let call = Call { request, connection, reply };
            let taken = calls.send(call).is_ok();
            async move {
                let no_answer = || io::Error::other("no answer");
                if !taken {
                    return Err(no_answer());
                }
                answered.await.map_err(|_| no_answer())
            }
        });
        let io = TokioIo::new(socket);
        tokio::spawn(async move {
            match protocol {
                Protocol::Http1 => {
                    let connection = http1::Builder::new().serve_connection(io, service);
                    drop(connection.with_upgrades().await);
                }
                Protocol::H2c => {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(io, service).await);
                }
            }
        });
    }
}

/// A listener whose connections the test plays byte by byte.
#[derive(Debug)]
pub(crate) struct RawUpstream {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl RawUpstream {
    pub(crate) async fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    #[track_caller]
    pub(crate) fn accept(&self) -> impl Future<Output = RawConn> {
        let accepted = within(self.listener.accept());
        async move { RawConn { socket: accepted.await.unwrap().0 } }
    }

    /// An address where nobody listens.
    pub(crate) async fn refusing() -> SocketAddr {
        Self::bind().await.address
    }
}

/// One such connection.
#[derive(Debug)]
pub(crate) struct RawConn {
    pub(crate) socket: TcpStream,
}

impl RawConn {
    /// Reads a request's head.
    pub(crate) async fn head(&mut self) -> String {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            read.push(within(self.socket.read_u8()).await.expect("a head comes"));
        }
        String::from_utf8(read).unwrap()
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.socket.write_all(bytes.as_ref())).await.unwrap();
    }

    pub(crate) async fn read_exact(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        within(self.socket.read_exact(&mut bytes)).await.unwrap();
        bytes
    }

    /// Takes an HTTP/2 connection up and reads until a request is whole; its stream.
    pub(crate) async fn h2_request(&mut self) -> u32 {
        assert!(self.read_exact(24).await.starts_with(b"PRI * HTTP/2.0"));
        self.write([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await;
        loop {
            let frame = self.h2_frame().await;
            match frame.kind {
                SETTINGS if frame.flags & ACK == 0 => {
                    self.write([0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).await;
                }
                HEADERS | DATA if frame.flags & END_STREAM != 0 => return frame.stream,
                _ => {}
            }
        }
    }

    /// Reads until a stream is reset; which, and why.
    pub(crate) async fn h2_reset(&mut self) -> (u32, u32) {
        loop {
            let frame = self.h2_frame().await;
            if frame.kind == RST_STREAM {
                return (frame.stream, u32::from_be_bytes(frame.payload.try_into().unwrap()));
            }
        }
    }

    async fn h2_frame(&mut self) -> H2Frame {
        let head = self.read_exact(9).await;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = self.read_exact(length).await;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        H2Frame { kind: head[3], flags: head[4], stream, payload }
    }

    /// Waits until the gateway closes; what came before.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        let _ = within(self.socket.read_to_end(&mut read)).await;
        read
    }
}

struct H2Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Kinds and flags of frames. Source: RFC 9113, section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
