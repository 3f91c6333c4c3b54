use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONNECTION;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::bind::bind;
use super::*;
use crate::authority::Authority;
use crate::headers::check_framing;

mod abuse;
mod draining;
mod frames;
mod life;
mod malformed;

/// Longer than anything here takes, shorter than anyone's patience.
const BOUND: Duration = Duration::from_secs(10);
/// A timer that must not fire in a test.
const NEVER: Duration = Duration::from_secs(600);
/// A timer that must.
const SOON: Duration = Duration::from_millis(100);

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, what).await.expect("it happens in time")
}

/// A server on loopback.
struct Running {
    address: SocketAddr,
    gauges: Arc<ConnectionGauges>,
    trigger: DrainTrigger,
    view: channel::Receiver<DrainView>,
    task: JoinHandle<DrainReport>,
}

fn unhurried() -> ListenerOptions {
    ListenerOptions {
        first_byte_timeout: NEVER,
        head_timeout: NEVER,
        idle_timeout: NEVER,
        max_age: NEVER,
        ..ListenerOptions::default()
    }
}

fn start<H, F, B>(options: ServerOptions, listener: ListenerOptions, handler: H) -> Running
where
    H: Fn(Request<Incoming>, ConnInfo) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let server = Server::new(options, Clock::new(), 1);
    let (gauges, view) = (server.gauges(), server.drain_view());
    let (trigger, signal) = drain_signal();
    let task = tokio::spawn(server.run(vec![(socket, listener)], handler, signal));
    Running { address, gauges, trigger, view, task }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        let socket = within(TcpStream::connect(self.address)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// Waits until `count` connections have ended for `reason`, and checks that no other has.
    async fn closed(&self, reason: CloseReason, count: u64) {
        within(async {
            while self.gauges.active() > 0 || self.gauges.accepted_total() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        for other in CloseReason::ALL {
            let expected = if other == reason { count } else { 0 };
            assert_eq!(self.gauges.closed(other), expected, "{other:?} beside {reason:?}");
        }
    }

    async fn until(&mut self, phase: DrainPhase) {
        within(self.view.wait_for(|view| view.phase >= phase)).await.unwrap();
    }
}

async fn hello(_: Request<Incoming>, _: ConnInfo) -> Response<Full<Bytes>> {
    Response::new(Full::from("hello"))
}

/// A handler that refuses what must be refused and notes the paths of the rest.
fn noting(
    seen: Arc<Mutex<Vec<String>>>,
) -> impl Fn(
    Request<Incoming>,
    ConnInfo,
) -> futures_util::future::BoxFuture<'static, Response<Full<Bytes>>>
+ Clone
+ Send
+ 'static {
    move |request, _| {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let checked =
                Authority::of(&head).and_then(|_| check_framing(&head.headers, head.version, 100));
            if let Err(refusal) = checked {
                let mut response = Response::new(Full::default());
                *response.status_mut() = refusal.status();
                response.headers_mut().insert(CONNECTION, "close".parse().unwrap());
                return response;
            }
            seen.lock().unwrap().push(head.uri.path().to_owned());
            match body.collect().await {
                Ok(body) => Response::new(Full::from(body.to_bytes())),
                Err(_) => {
                    let mut response = Response::new(Full::default());
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                    response
                }
            }
        })
    }
}

/// Everything a peer sends until it closes.
async fn read_to_end(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset is an end, too.
    let _ = within(socket.read_to_end(&mut read)).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// One answer with a Content-Length, as text; empty if the peer closed instead.
async fn read_answer(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let whole = |read: &[u8]| {
        let text = String::from_utf8_lossy(read).to_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
        (body.len() >= length).then_some(())
    };
    while whole(&read).is_none() {
        match within(socket.read_buf(&mut read)).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    String::from_utf8(read).unwrap()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
