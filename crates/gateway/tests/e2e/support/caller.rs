//! The caller's side of a connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri, request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Body, Protocol, full, within};

/// A GET without a body; [`Caller::send`] adds who it is for.
pub(crate) fn get(path: &str) -> Request<Body> {
    request::Builder::new().uri(path).body(full("")).unwrap()
}

/// A POST.
pub(crate) fn post(path: &str, body: Body) -> Request<Body> {
    request::Builder::new().method("POST").uri(path).body(body).unwrap()
}

/// A connection to the gateway.
pub(crate) enum Caller {
    Http1(http1::SendRequest<Body>),
    H2c(http2::SendRequest<Body>),
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr, protocol: Protocol) -> Self {
        let socket = within(TcpStream::connect(address)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self::over(socket, protocol).await
    }

    /// Over a connection that is there.
    pub(crate) async fn over(
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        protocol: Protocol,
    ) -> Self {
        let io = TokioIo::new(io);
        match protocol {
            Protocol::Http1 => {
                let (sender, connection) = within(http1::handshake(io)).await.unwrap();
                tokio::spawn(async move { drop(connection.with_upgrades().await) });
                Self::Http1(sender)
            }
            Protocol::H2c => {
                let shake = http2::handshake(TokioExecutor::new(), io);
                let (sender, connection) = within(shake).await.unwrap();
                tokio::spawn(async move { drop(connection.await) });
                Self::H2c(sender)
            }
        }
    }

    /// Sends it and waits for the head. A request without a host is for `test`.
    pub(crate) async fn open(&mut self, request: Request<Body>) -> Response<Incoming> {
        within(self.try_open(request)).await.expect("there is an answer")
    }

    /// As [`Caller::open`], for as long as it takes; dropped, the caller has left.
    pub(crate) async fn try_open(
        &mut self,
        mut request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        let named = request.headers().get("host").cloned();
        let host = named.unwrap_or_else(|| "test".parse().unwrap());
        match self {
            Self::Http1(sender) => {
                request.headers_mut().insert("host", host);
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::H2c(sender) => {
                request.headers_mut().remove("host");
                let path = request.uri().path_and_query().unwrap();
                let uri = format!("http://{}{path}", host.to_str().unwrap());
                *request.uri_mut() = uri.parse::<Uri>().unwrap();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
        let response = self.open(request).await;
        Answer::read(response).await
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let collected = within(body.collect()).await.expect("the body is whole");
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            trailers: collected.trailers().cloned(),
            body: collected.to_bytes(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The field's one value, or nothing.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        assert!(values.next().is_none(), "{name} came twice");
        first.map(|value| value.to_str().unwrap())
    }
}

/// A connection to the gateway, byte by byte.
#[derive(Debug)]
pub(crate) struct RawCaller {
    pub(crate) socket: TcpStream,
}

impl RawCaller {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { socket: within(TcpStream::connect(address)).await.unwrap() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.socket.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Reads up to the end of a head.
    pub(crate) async fn head(&mut self) -> String {
        self.read_until(b"\r\n\r\n").await
    }

    /// Reads up to and with `end`, byte by byte so that nothing more is taken.
    pub(crate) async fn read_until(&mut self, end: &[u8]) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end) {
            let byte = within(self.socket.read_u8()).await;
            read.push(byte.unwrap_or_else(|error| {
                panic!("{error} after {:?}", String::from_utf8_lossy(&read))
            }));
        }
        String::from_utf8(read).unwrap()
    }

    /// Everything until the gateway closes.
    pub(crate) async fn rest(&mut self) -> String {
        let mut read = Vec::new();
        // A reset is an end, too.
        let _ = within(self.socket.read_to_end(&mut read)).await;
        String::from_utf8_lossy(&read).into_owned()
    }
}
