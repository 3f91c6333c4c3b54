//! reqwest behind a stack: a read, and an order that must have one effect, against a server on the
//! loopback that is unavailable every other time.
//!
//! `cargo run -p seawall --example reqwest --features reqwest`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::Client;
use seawall::bytes::Bytes;
use seawall::http::Request;
use seawall::{CallOptions, Classify as _, HttpClassify, ReqwestErrors, Stack, StackConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/orders", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    // One owner of the retries: the stack.
    let client = Client::builder()
        .retry(reqwest::retry::never())
        .connect_timeout(Duration::from_millis(200))
        .build()?;
    let stack = Stack::new("orders", &StackConfig::http())?;
    let rules = HttpClassify::with_errors(ReqwestErrors);

    let classify = |result: &Result<_, _>| rules.classify(result.as_ref());
    let read =
        stack.call(CallOptions::idempotent(), classify, |_attempt| client.get(&url).send()).await;
    println!("GET: {} after {} attempts", read.result?.status(), read.attempts);

    // A POST has no second attempt unless it carries a key, and keeps it.
    let order = Request::post(&url).body(Bytes::from_static(b"{\"side\": \"buy\"}"))?;
    let order = stack.operation("order-7", order)?;
    let sent = order
        .send(
            rules.clone(),
            |_attempt, frozen| frozen.to_request(),
            async |_attempt, request| client.execute(request.try_into()?).await,
        )
        .await;
    println!("POST: {} after {} attempts", sent.result?.status(), sent.attempts);

    server.abort();
    let _ = server.await;
    let refused = stack
        .call(CallOptions::unsafe_to_repeat(), classify, |_attempt| client.post(&url).send())
        .await;
    let (cause, stop) = (refused.outcome.cause().as_str(), refused.stop.as_str());
    // The two tokens a budget begins with are spent on the two retries above.
    println!("with nobody there: {cause} after {} attempts, {stop}", refused.attempts);
    Ok(())
}

/// Answers 503, 200, 503, 200, … and closes.
async fn serve(listener: TcpListener) -> io::Result<()> {
    for answer in ["503 Service Unavailable", "200 OK"].iter().cycle() {
        let (mut stream, _) = listener.accept().await?;
        let _ = stream.read(&mut [0; 4096]).await?;
        let head = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
    }
    Ok(())
}
