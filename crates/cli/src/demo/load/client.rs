//! A plain HTTP client with a pool of its own and no opinion: it sends once, or says why not.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// How the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one request at a time on each kept-alive connection.
    Http1,
    /// HTTP/2 without TLS, over a few connections.
    H2c,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub fields: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The value of a field, if it is there once and text.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// The connection ended, or broke the protocol, after the request was handed to it.
    Broken,
    /// The caller's patience ended; the connection (HTTP/1.1) or stream (HTTP/2) was cut.
    Left,
    /// The load already had as many calls open as it may.
    Overflow,
}

/// A client of one address. Shared by reference; every request takes a free connection or makes
/// one.
#[derive(Debug)]
pub struct Client {
    target: SocketAddr,
    authority: HeaderValue,
    protocol: Protocol,
    idle: Mutex<VecDeque<H1>>,
    streams: Mutex<Vec<Option<H2>>>,
    connecting: tokio::sync::Mutex<()>,
    turn: AtomicU64,
    connects: AtomicU64,
    moved: AtomicU64,
}

impl Client {
    /// A client of `target`; connects when the first request comes.
    #[must_use]
    pub fn new(target: SocketAddr, protocol: Protocol) -> Arc<Self> {
        let authority = HeaderValue::from_str(&target.to_string())
            .unwrap_or(HeaderValue::from_static("localhost"));
        Arc::new(Self {
            target,
            authority,
            protocol,
            idle: Mutex::default(),
            streams: Mutex::new(vec![None; H2_CONNECTIONS]),
            connecting: tokio::sync::Mutex::default(),
            turn: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        })
    }

    /// Connections made so far.
    #[must_use]
    pub fn connects(&self) -> u64 {
        self.connects.load(Ordering::Relaxed)
    }

    /// Requests that a closing connection did not take, and that went out on another one.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Sends once and reads the whole answer, for at most `patience`; then leaves, which the peer
    /// sees at once. A request that a closing connection did not take goes out on another one, as
    /// with any client: one handed back unsent, and on HTTP/2 one that GOAWAY says was not
    /// processed (RFC 9113, 6.8). Nothing that may have been processed is ever sent again.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<Answer, Failure> {
        let exchange = async {
            match self.protocol {
                Protocol::Http1 => self.send_h1(request).await,
                Protocol::H2c => self.send_h2(request).await,
            }
        };
        tokio::time::timeout(patience, exchange).await.unwrap_or(Err(Failure::Left))
    }

    async fn send_h1(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        *request.version_mut() = Version::HTTP_11;
        if !request.headers().contains_key(HOST) {
            request.headers_mut().insert(HOST, self.authority.clone());
        }
        for _ in 0..HANDED_BACK_MAX {
            let mut connection = match self.take_idle().await {
                Some(connection) => connection,
                None => self.connect_h1().await?,
            };
            let cut = CutOnDrop(Some(connection.task.clone()));
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    let answer = read(response).await?;
                    cut.disarm();
                    self.idle.lock().push_back(connection);
                    return Ok(answer);
                }
                Err(mut error) => request = error.take_message().ok_or(Failure::Broken)?,
            }
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        Err(Failure::Broken)
    }

    async fn send_h2(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.absolute(request.uri());
        for _ in 0..HANDED_BACK_MAX {
            let mut connection = self.stream_connection().await?;
            if connection.sender.ready().await.is_err() {
                continue;
            }
            match connection.sender.try_send_request(request.clone()).await {
                Ok(response) => return read(response).await,
                Err(error) if was_not_taken(&error) => {}
                Err(_) => return Err(Failure::Broken),
            }
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        Err(Failure::Broken)
    }

    fn absolute(&self, uri: &Uri) -> Uri {
        let mut parts = uri.clone().into_parts();
        parts.scheme = Some(Scheme::HTTP);
        if parts.authority.is_none() {
            parts.authority = Authority::try_from(self.authority.as_bytes()).ok();
        }
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The connection used last that is still open.
    async fn take_idle(&self) -> Option<H1> {
        loop {
            let mut connection = self.idle.lock().pop_back()?;
            if connection.sender.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    async fn connect_h1(&self) -> Result<H1, Failure> {
        let io = self.connect().await?;
        let (sender, connection) = http1::handshake(io).await.map_err(|_| Failure::Connect)?;
        let task = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(H1 { sender, task: task.abort_handle() })
    }

    async fn stream_connection(&self) -> Result<H2, Failure> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % H2_CONNECTIONS as u64;
        let turn = usize::try_from(turn).unwrap_or(0);
        if let Some(open) = self.open_stream_connection(turn) {
            return Ok(open);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(open) = self.open_stream_connection(turn) {
            return Ok(open);
        }
        let io = self.connect().await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), io).await.map_err(|_| Failure::Connect)?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let made = H2 { sender };
        self.streams.lock()[turn] = Some(made.clone());
        Ok(made)
    }

    fn open_stream_connection(&self, turn: usize) -> Option<H2> {
        let connections = self.streams.lock();
        connections[turn].as_ref().filter(|open| !open.sender.is_closed()).cloned()
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, Failure> {
        let stream = TcpStream::connect(self.target).await.map_err(|_| Failure::Connect)?;
        let _ = stream.set_nodelay(true);
        self.connects.fetch_add(1, Ordering::Relaxed);
        Ok(TokioIo::new(stream))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for connection in self.idle.get_mut().drain(..) {
            connection.task.abort();
        }
    }
}

#[derive(Debug)]
struct H1 {
    sender: http1::SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

#[derive(Clone, Debug)]
struct H2 {
    sender: http2::SendRequest<Full<Bytes>>,
}

/// Closes a connection whose exchange did not end.
struct CutOnDrop(Option<AbortHandle>);

impl CutOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

async fn read(response: Response<Incoming>) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| Failure::Broken)?.to_bytes();
    Ok(Answer { status: head.status, fields: head.headers, body })
}

/// Whether nothing of it was processed: it came back, or a GOAWAY leaves it out.
fn was_not_taken(error: &TrySendError<Request<Full<Bytes>>>) -> bool {
    let cause = std::error::Error::source(error.error());
    let h2 = cause.and_then(|cause| cause.downcast_ref::<h2::Error>());
    error.message().is_some() || h2.is_some_and(|h2| h2.is_go_away() && h2.is_remote())
}

/// Connections an HTTP/2 client spreads its streams over.
pub(super) const H2_CONNECTIONS: usize = 4;
/// How often a request that was never sent looks for another connection.
const HANDED_BACK_MAX: usize = 5;
