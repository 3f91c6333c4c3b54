//! What the rules for hyper and reqwest say of errors that a server on the loopback provokes.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use reqwest::dns::{Name, Resolve, Resolving};
use seawall::{CallOptions, Cause, Classify as _, ErrorCause as _, HttpClassify, HyperErrors};
use seawall::{ReqwestErrors, Stack, StackConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server that answers each connection's first bytes with these and closes; its URL, and how
/// many it took.
async fn server(answer: &'static [u8]) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let taken = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Relaxed);
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer).await;
        }
    });
    (url, taken)
}

async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().retry(reqwest::retry::never()).no_proxy()
}

async fn failure(client: reqwest::Client, url: &str) -> reqwest::Error {
    match client.get(url).send().await.and_then(reqwest::Response::error_for_status) {
        Ok(response) => response.bytes().await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_reqwest_throws_has_its_cause() {
    let mut provoked = Vec::new();
    for (answer, cause) in [
        (&b""[..], Cause::Closed),
        (b"HTTP/1.1 200 OK\r\n", Cause::Closed),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Cause::Malformed),
        (b"HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n", Cause::Status(503)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", Cause::Closed),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", Cause::BusinessError),
    ] {
        provoked.push((server(answer).await.0, cause));
    }
    provoked.push((nobody().await, Cause::ConnectRefused));
    provoked.push(("http://".to_owned(), Cause::BusinessError));
    for (url, cause) in provoked {
        let error = failure(client().build().unwrap(), &url).await;
        assert_eq!(ReqwestErrors.cause(&error), cause, "{error:?}");
    }
}

struct NoNames;

impl Resolve for NoNames {
    fn resolve(&self, _: Name) -> Resolving {
        Box::pin(async { Err(Box::from("no such name") as Box<dyn Error + Send + Sync>) })
    }
}

#[tokio::test]
async fn a_name_that_does_not_resolve_and_both_timeouts_of_reqwest_are_told_apart() {
    let unknown = client().dns_resolver(Arc::new(NoNames)).build().unwrap();
    let error = failure(unknown, "http://nobody.invalid/").await;
    assert_eq!(ReqwestErrors.cause(&error), Cause::Dns, "{error:?}");

    // Takes the connection and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}/", listener.local_addr().unwrap());
    let hasty = client().timeout(Duration::from_millis(50)).build().unwrap();
    let error = failure(hasty, &silent).await;
    assert_eq!(ReqwestErrors.cause(&error), Cause::AttemptTimeout, "{error:?}");

    // Its queue is full, so the next connect is not answered.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let _first = tokio::net::TcpStream::connect(address).await.unwrap();
    let hasty = client().connect_timeout(Duration::from_millis(50)).build().unwrap();
    let error = failure(hasty, &format!("http://{address}/")).await;
    assert_eq!(ReqwestErrors.cause(&error), Cause::ConnectTimeout, "{error:?}");
}

#[tokio::test]
async fn a_stack_retries_what_reqwest_lost_only_where_a_second_execution_is_harmless() {
    let (url, taken) = server(b"").await;
    let client = client().build().unwrap();
    let rules = HttpClassify::with_errors(ReqwestErrors);
    let classify = |result: &Result<_, _>| rules.classify(result.as_ref());
    for (options, attempts) in
        [(CallOptions::unsafe_to_repeat(), 1), (CallOptions::idempotent(), 2)]
    {
        let stack = Stack::new("orders", &StackConfig::http()).unwrap();
        taken.store(0, Relaxed);
        let report = stack.call(options, classify, |_attempt| client.post(&url).send()).await;
        assert_eq!((report.attempts, taken.load(Relaxed)), (attempts, attempts));
    }
}

#[tokio::test]
async fn what_hypers_client_throws_has_its_cause() {
    let client = |connector| {
        legacy::Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .build::<_, Full<Bytes>>(connector)
    };
    for (url, cause) in [
        (nobody().await, Cause::ConnectRefused),
        (server(b"").await.0, Cause::Closed),
        (server(b"SSH-2.0-OpenSSH_9.2\r\n").await.0, Cause::Malformed),
        // No name is that long: nobody is asked.
        (format!("http://{}/", "a".repeat(64)), Cause::Dns),
    ] {
        let error = client(HttpConnector::new()).get(url.parse().unwrap()).await.unwrap_err();
        assert_eq!(HyperErrors.cause(&error), cause, "{error:?}");
    }
    let half = server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.0;
    let response = client(HttpConnector::new()).get(half.parse().unwrap()).await.unwrap();
    let error = response.into_body().collect().await.unwrap_err();
    assert_eq!(HyperErrors.cause(&error), Cause::Closed, "{error:?}");
}

/// A server that answers every stream of HTTP/2 with this reset, or leaves.
async fn h2_server(reset: Option<h2::Reason>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                match reset {
                    Some(reason) => respond.send_reset(reason),
                    None => connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM),
                }
            }
        }
    });
    url
}

#[tokio::test]
async fn of_http2_only_a_refused_stream_is_proven_unprocessed() {
    let client = legacy::Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build::<_, Full<Bytes>>(HttpConnector::new());
    for (reset, cause) in [
        (Some(h2::Reason::REFUSED_STREAM), Cause::RefusedStream),
        (Some(h2::Reason::INTERNAL_ERROR), Cause::Reset),
        (None, Cause::Reset),
    ] {
        let url = h2_server(reset).await;
        let error = client.get(url.parse().unwrap()).await.unwrap_err();
        assert_eq!(HyperErrors.cause(&error), cause, "{error:?}");
    }
}
