//! The port where operators and probes look in.
//!
//! | path | method | answer |
//! |---|---|---|
//! | `/` | GET | this list |
//! | `/livez`, `/healthz` | GET | 200 while the process works, in a drain too |
//! | `/ready` | GET | 200; 503 until the listeners are up, and from the first moment of a drain |
//! | `/metrics` | GET | OpenMetrics or Prometheus text, by `Accept` |
//! | `/upstreams` | GET | JSON, or an aligned table with `?format=text` |
//! | `/queues` | GET | JSON: every queue with its bound, and what happens there |
//! | `/retries` | GET | JSON: whether retries are on, per upstream |
//! | `/config_dump` | GET | JSON: the configuration in force, defaults filled in, secrets hidden |
//! | `/breakers` | PUT | `?upstream=…&mode=forced_open`, `disabled`, `metrics_only` or `normal`; optional `ttl` (10m), `who`, `reason` |
//! | `/switches`, `/breakers` | GET | JSON: what is switched, by whom, and how long still |
//! | `/reload` | POST | reads the configuration again; 422 with what is wrong, and nothing changed; 503 if it takes longer than eight seconds |
//! | `/retries` | PUT | `?state=off&ttl=10m` or `?state=on`, optional `upstream` and `reason` |
//!
//! It is bound before the listeners, so that a probe is answered from the start, and it has
//! nothing in common with them: a full gateway still answers here. One request a connection, at
//! most 64 connections (more wait in the system's backlog), five seconds for a request head and
//! ten in all.
//!
//! A page in somebody's browser can reach loopback too. So a request with an `Origin`, or for a
//! host that is neither loopback nor the address it came to (a name rebound by its owner), is
//! refused, and only loopback peers may change anything.
//!
//! With a token (`admin.token`) everything but `/livez`, `/healthz` and `/ready` asks for it:
//! `Authorization: Bearer …`, else 401; `/metrics` too, unless `admin.open_metrics` says otherwise.
//! Who shows it may change things from anywhere, and on an address that is not loopback any `Host`
//! is answered.

mod answer;
mod guard;
mod query;
mod switches;
mod table;
mod views;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::diagnostics::{Diagnostics, Topic};
use crate::server::{self, BACKLOG};

pub(crate) use self::switches::{BreakerChange, SwitchView};
pub(crate) use self::views::{
    AdminBackend, ConfigView, EndpointBreakerView, EndpointView, QueueView, Readiness, Reloading,
    RetriesChange, RetriesState, RetriesView, UnknownUpstream, UpstreamView,
};

/// The bound port.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: TcpListener,
    address: SocketAddr,
}

/// What an answer is made from.
#[derive(Clone, Debug)]
struct Desk {
    backend: Arc<dyn AdminBackend>,
    diagnostics: Diagnostics,
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Desk {
    /// What the port itself can hold.
    fn queues(&self) -> [QueueView; 2] {
        let connections = self.connections.load(Relaxed) as u64;
        [
            QueueView {
                name: "admin connections".to_owned(),
                bound: CONNECTIONS as u64,
                depth: Some(connections),
                oldest_ms: None,
                when_full: "accepting pauses; those that come wait in the kernel backlog",
            },
            QueueView {
                name: format!("kernel backlog of admin {}", self.address),
                bound: u64::from(BACKLOG.unsigned_abs()),
                depth: None,
                oldest_ms: None,
                when_full: "the kernel leaves the peer's SYN unanswered",
            },
        ]
    }
}

/// One of the connections there are places for.
#[derive(Debug)]
struct Seat {
    connections: Arc<AtomicUsize>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Seat {
    fn take(desk: &Desk, place: Option<OwnedSemaphorePermit>) -> Self {
        desk.connections.fetch_add(1, Relaxed);
        Self { connections: Arc::clone(&desk.connections), _place: place }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
struct Ends {
    peer: SocketAddr,
    local: SocketAddr,
}

impl Admin {
    /// Takes the port; port 0 takes a free one.
    ///
    /// # Errors
    /// The address is taken or not ours.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = server::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address that was bound.
    #[must_use]
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` ends, and then gives what is being answered a second.
    pub(crate) async fn serve(
        self,
        backend: Arc<dyn AdminBackend>,
        diagnostics: Diagnostics,
        stop: impl Future<Output = ()>,
    ) {
        let connections = Arc::default();
        let desk = Desk { backend, diagnostics, address: self.address, connections };
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            while connections.try_join_next().is_some() {}
            let next = async {
                // The semaphore is never closed.
                let place = places.clone().acquire_owned().await.ok();
                (self.listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                next = next => next,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let desk = desk.clone();
                    let seat = Seat::take(&desk, place);
                    connections.spawn(async move {
                        let _seat = seat;
                        serve_connection(stream, peer, desk).await;
                    });
                }
                Err(error) => {
                    let message = "admin accept failed";
                    desk.diagnostics.error(Topic::Connection, message, &[("error", &error)]);
                    // Most likely no descriptor is left; at once it would fail again.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        // What is not done by then is cut, as the process is about to end.
        let _ = tokio::time::timeout(LAST_ANSWERS, ended).await;
    }
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, desk: Desk) {
    let Ok(local) = stream.local_addr() else { return };
    let ends = Ends { peer, local };
    let service = service_fn(move |request: Request<Incoming>| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(answer::answer(&desk, ends, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Whether it ended well or in time interests the peer alone.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

/// Connections at once. Source: seawall-design.
const CONNECTIONS: usize = 64;
/// Wait for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A whole connection, its answer written.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request head; hyper takes no smaller buffer.
const HEAD_BYTES: usize = 8192;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For answers under way at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
