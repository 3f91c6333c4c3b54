//! hyper-util's client behind the layer, against a server on the loopback that is unavailable every
//! other time.
//!
//! `cargo run -p seawall --example hyper --features hyper`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::io;

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use seawall::bytes::Bytes;
use seawall::http::Request;
use seawall::{HttpClassify, HttpDescribe, HyperErrors, SeawallLayer, Stack, StackConfig, Summary};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower_layer::Layer as _;
use tower_service::Service as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/price", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    // The stack retries. What the client would send again by itself comes out as `handed_back`.
    let client = Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .build_http::<Full<Bytes>>();
    let stack = Stack::new("prices", &StackConfig::http())?;
    let classify = HttpClassify::with_errors(HyperErrors);
    let mut client = SeawallLayer::new(stack, classify, HttpDescribe::new()).layer(client);

    let response = client.call(Request::get(&url).body(Full::default())?).await?;
    let summary = response.extensions().get::<Summary>().copied();
    let body = response.into_body().collect().await?.to_bytes();
    println!("{:?} after {:?} attempts", body, summary.map(|summary| summary.attempts));

    server.abort();
    let _ = server.await;
    let refused = client.call(Request::get(&url).body(Full::default())?).await;
    println!("with nobody there: {:?}", refused.err().map(|error| error.to_string()));
    Ok(())
}

/// Answers 503, 200, 503, 200, … and closes.
async fn serve(listener: TcpListener) -> io::Result<()> {
    for answer in ["503 Service Unavailable", "200 OK"].iter().cycle() {
        let (mut stream, _) = listener.accept().await?;
        let _ = stream.read(&mut [0; 4096]).await?;
        let head = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 3\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(b"7.5").await?;
    }
    Ok(())
}
