//! A tonic server on the loopback that answers as a script says, and keeps what it was sent.

use std::collections::VecDeque;
use std::future::{Ready, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::stream::{Iter, iter};
use http::uri::PathAndQuery;
use http::{HeaderMap, Response as HttpResponse};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use seawall::{Clock, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::ServerStreamingService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// How a call is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Answer,
    /// With a head that is all.
    Refuse(Status),
    /// With a message, and then among the trailers.
    Trail(Status),
    /// With a message, and then nothing.
    Break,
    /// As something that knows nothing of gRPC.
    Http(u16, &'static [(&'static str, &'static str)]),
    Reset(h2::Reason),
    Silence,
}

/// A call as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Timestamp,
    pub(crate) fields: HeaderMap,
}

impl Arrived {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A server; what the script does not say is an answer.
pub(crate) struct Server {
    channel: Channel,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    clock: Clock,
    script: Mutex<VecDeque<Reply>>,
    arrived: Mutex<Vec<Arrived>>,
    arrival: Notify,
}

impl Server {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            clock: Clock::new(),
            script: Mutex::new(script.into_iter().collect()),
            arrived: Mutex::default(),
            arrival: Notify::new(),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let channel = channel(&format!("http://{address}"));
        Self { channel, shared, task }
    }

    /// An attempt of a call.
    pub(crate) async fn unary(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        unary(self.channel.clone(), request).await
    }

    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.shared.arrived.lock().clone()
    }

    pub(crate) async fn arrival(&self) {
        self.shared.arrival.notified().await;
    }

    /// Ends it, with its connections, some time soon.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    /// Ends it, with its connections.
    pub(crate) async fn kill(&mut self) {
        self.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn channel(url: &str) -> Channel {
    let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
    endpoint.connect_timeout(Duration::from_millis(100)).connect_lazy()
}

/// As generated clients make a call.
pub(crate) async fn unary(
    channel: Channel,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    client.unary(request, PathAndQuery::from_static("/test.Test/Unary"), Raw).await
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        let service =
            hyper::service::service_fn(move |request| answer(request, Arc::clone(&shared)));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        connections.spawn(connection);
    }
}

async fn answer(
    request: http::Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<HttpResponse<Body>, h2::Error> {
    let fields = request.headers().clone();
    shared.arrived.lock().push(Arrived { at: shared.clock.now(), fields });
    shared.arrival.notify_one();
    let reply = shared.script.lock().pop_front().unwrap_or(Reply::Answer);
    match reply {
        Reply::Http(status, fields) => {
            let mut response = HttpResponse::new(Body::empty());
            *response.status_mut() = status.try_into().unwrap();
            for (name, value) in fields {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            Ok(response)
        }
        Reply::Break => {
            let body = http_body_util::Full::new(Bytes::from_static(b"\0\0\0\0\x01!"));
            let mut response = HttpResponse::new(Body::new(body));
            response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            Ok(response)
        }
        Reply::Reset(reason) => Err(reason.into()),
        Reply::Silence => pending().await,
        reply => Ok(tonic::server::Grpc::new(Raw).server_streaming(Method(reply), request).await),
    }
}

struct Method(Reply);

impl ServerStreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = Iter<std::vec::IntoIter<Result<Bytes, Status>>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let message = Ok(request.into_inner());
        ready(match self.0.clone() {
            Reply::Refuse(status) => Err(status),
            Reply::Trail(status) => Ok(Response::new(iter(vec![message, Err(status)]))),
            _ => Ok(Response::new(iter(vec![message]))),
        })
    }
}

/// Passes bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
