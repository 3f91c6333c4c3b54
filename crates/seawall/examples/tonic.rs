//! A tonic client behind a stack, against a tonic server on the loopback that is unavailable once
//! and says when to come again. Client and server pass bytes; a generated client is called alike.
//!
//! `cargo run -p seawall --example tonic --features tonic`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use seawall::bytes::{Buf as _, BufMut as _, Bytes};
use seawall::http::uri::PathAndQuery;
use seawall::{CallOptions, Clock, Stack, StackConfig, classify_tonic, tonic_request};
use tokio::net::TcpListener;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::UnaryService;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    // Lazy: a server that is not there yet is no reason not to start.
    let endpoint = Endpoint::from_shared(url)?.connect_timeout(Duration::from_millis(200));
    let client = tonic::client::Grpc::new(endpoint.connect_lazy());
    let stack = Stack::new("greeter", &StackConfig::http())?;
    let clock = Clock::new();
    for _ in 0..2 {
        let began = clock.now();
        let report = stack
            .call(CallOptions::idempotent(), classify_tonic, |attempt| {
                let sent = clock.now().since(began);
                println!("attempt {} after {} ms", attempt.number(), sent.as_millis());
                let mut client = client.clone();
                let request = tonic_request(&attempt, Bytes::from_static(b"world"));
                async move {
                    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
                    let path = PathAndQuery::from_static("/hello.Greeter/SayHello");
                    client.unary(request, path, Raw).await
                }
            })
            .await;
        let (attempts, cause) = (report.attempts, report.outcome.cause().as_str());
        let answer: Result<Response<Bytes>, _> = report.result;
        let answer = answer.map(Response::into_inner);
        println!("{answer:?} (attempts {attempts}, {cause}, {})", report.stop.as_str());
        // The second call finds nobody.
        server.abort();
    }
    Ok(())
}

/// Serves one connection.
async fn serve(listener: TcpListener) -> io::Result<()> {
    let calls = AtomicU32::new(0);
    let (stream, _) = listener.accept().await?;
    drop(listener);
    let service = hyper::service::service_fn(|request| {
        let greeter = Greeter { calls: calls.fetch_add(1, Relaxed) + 1 };
        let mut server = tonic::server::Grpc::new(Raw);
        async move { Ok::<_, Infallible>(server.unary(greeter, request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service);
    served.await.map_err(io::Error::other)
}

/// Greets from the second call on; before that it has something else to do for 150 ms.
struct Greeter {
    calls: u32,
}

impl UnaryService<Bytes> for Greeter {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let told = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
        let (time, earlier) = (told("grpc-timeout"), told("grpc-previous-rpc-attempts"));
        println!("  the server was told: time {time:?}, earlier attempts {earlier:?}");
        if self.calls > 1 {
            let greeting = [b"hello, ", request.get_ref().as_ref()].concat();
            return ready(Ok(Response::new(Bytes::from(greeting))));
        }
        let mut fields = MetadataMap::new();
        fields.insert("grpc-retry-pushback-ms", 150.into());
        ready(Err(Status::with_metadata(Code::Unavailable, "starting", fields)))
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
