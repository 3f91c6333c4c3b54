//! The layer over a small HTTP/1.1 client, against a server on the loopback that is unavailable
//! every other time. Shows the key that stays, and a layer that changes it being refused.
//!
//! `cargo run -p seawall --example tower`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use seawall::bytes::Bytes;
use seawall::http::{Request, Response};
use seawall::{SealLayer, SeawallLayer, Stack, StackConfig, Summary};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer as _;
use tower_service::Service;

/// One connection for each request.
#[derive(Clone)]
struct Client(SocketAddr);

impl Service<Request<Bytes>> for Client {
    type Response = Response<()>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<()>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let address = self.0;
        Box::pin(async move {
            let mut head = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri());
            for (name, value) in request.headers() {
                head += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
            }
            head += &format!("content-length: {}\r\n\r\n", request.body().len());
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(request.body()).await?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).await?;
            let status = line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
            let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
            Response::builder().status(status).body(()).map_err(io::Error::other)
        })
    }
}

/// Answers 503, 201, 503, 201, …
async fn serve(listener: TcpListener) -> io::Result<()> {
    for status in ["503 Service Unavailable", "201 Created"].iter().cycle() {
        let (mut stream, _) = listener.accept().await?;
        let mut seen = [0; 1024];
        let read = stream.read(&mut seen).await?;
        let head = String::from_utf8_lossy(&seen[..read]);
        let interesting = ["idempotency-key", "x-retry-attempt", "x-remaining-ms"];
        for line in head.lines().filter(|line| interesting.iter().any(|n| line.starts_with(n))) {
            println!("  arrived: {line}");
        }
        stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await?;
    }
    Ok(())
}

/// A layer as it should not be: it stamps a key of its own on every attempt.
#[derive(Clone)]
struct Restamping<S>(S);

impl<S: Service<Request<Bytes>>> Service<Request<Bytes>> for Restamping<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Bytes>) -> S::Future {
        let attempt = request.headers().get("x-retry-attempt").cloned();
        if let Some(fresh) = attempt {
            request.headers_mut().insert("idempotency-key", fresh);
        }
        self.0.call(request)
    }
}

fn order() -> Result<Request<Bytes>, http::Error> {
    Request::post("/orders").header("idempotency-key", "order-7").body(Bytes::from("{\"id\":7}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = SealLayer.layer(Client(listener.local_addr()?));
    let server = tokio::spawn(serve(listener));
    let layer = SeawallLayer::http(Stack::new("orders", &StackConfig::http())?);

    println!("a keyed POST is retried with its key:");
    let response = layer.layer(client.clone()).call(order()?).await?;
    let summary = response.extensions().get::<Summary>();
    println!("  {} after {:?} attempts", response.status(), summary.map(|s| s.attempts));

    println!("a layer that changes the key is refused before its second attempt is sent:");
    let refused = layer.layer(Restamping(client)).call(order()?).await;
    println!("  {refused:?}");
    server.abort();
    Ok(())
}
