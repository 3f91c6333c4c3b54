//! What the parts of one connection know of each other: its bytes, its requests, its timers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

use super::abandon::AbandonWindow;
use super::drain::DrainView;
use super::gauges::{CloseReason, ConnectionGauges, ReasonCell};
use super::stall::StreamStall;

/// How a connection is spoken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownstreamProtocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    Http2,
}

/// What a request's connection is; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConnInfo(pub(super) Arc<ConnState>);

impl ConnInfo {
    /// The address the connection came from.
    #[must_use]
    pub(crate) fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    /// The listener it came to, by its place among those given to the server.
    #[must_use]
    pub(crate) fn listener(&self) -> usize {
        self.0.listener
    }

    /// Whether the listener trusts the peer.
    #[must_use]
    pub(crate) fn is_trusted(&self) -> bool {
        self.0.trusted
    }

    /// Whether and how far the server is leaving.
    #[must_use]
    pub(crate) fn drain(&self) -> DrainView {
        *self.0.drain.borrow()
    }

    /// Waits until the last phase of a drain has come. For those who took the connection over by
    /// an upgrade: the server does not close it, and counts it as cut if it is still there at the
    /// end.
    pub(crate) async fn closing(&self) {
        let closing = |view: &DrainView| view.phase >= super::DrainPhase::Close;
        // The server outlives its connections; should it not, it is closing.
        let _ = self.0.drain.clone().wait_for(closing).await;
    }
}

/// One connection. Shared by its driver, its bytes and its requests.
#[derive(Debug)]
pub(super) struct ConnState {
    pub(super) peer: SocketAddr,
    pub(super) listener: usize,
    pub(super) protocol: DownstreamProtocol,
    pub(super) trusted: bool,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) drain: watch::Receiver<DrainView>,
    /// Wakes the drain when the last request of a connection ended or a connection did.
    pub(super) changed: Arc<Notify>,
    /// Requests whose answer is not wholly handed over.
    in_flight: AtomicU32,
    /// When the last of them ended, or the connection began.
    idle_since: AtomicU64,
    /// When the first byte of a request head came that is not whole yet; 0 if there is none.
    head_since: AtomicU64,
    /// Whether answers on HTTP/1.1 say `Connection: close`.
    closes: AtomicBool,
    /// Whether an answer switched protocols: its bytes are someone else's then.
    upgraded: AtomicBool,
    abandoned: Mutex<AbandonWindow>,
    abuses: AtomicBool,
    /// Wakes the driver.
    driver: AtomicWaker,
    /// The stall of the stream whose request was just taken, on its way to the stream's task.
    pub(super) next_stall: Mutex<Option<Arc<StreamStall>>>,
    pub(super) reason: ReasonCell,
}

/// Counts a connection as open and as one of those there is room for, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnGuard {
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) changed: Arc<Notify>,
    pub(super) listener: usize,
    /// Known once the protocol is.
    pub(super) state: Option<Arc<ConnState>>,
    /// If the protocol never came to be known.
    pub(super) reason: CloseReason,
    pub(super) _room: OwnedSemaphorePermit,
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        let reason = self.state.as_ref().and_then(|state| state.reason.reason());
        self.gauges.on_close(self.listener, reason.unwrap_or(self.reason));
        self.changed.notify_one();
    }
}

/// What a new connection is made of.
#[derive(Debug)]
pub(super) struct ConnParts {
    pub(super) peer: SocketAddr,
    pub(super) listener: usize,
    pub(super) trusted: bool,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) drain: watch::Receiver<DrainView>,
    pub(super) changed: Arc<Notify>,
}

impl ConnState {
    /// A connection whose first byte came at `now`.
    pub(super) fn new(parts: ConnParts, protocol: DownstreamProtocol, now: Timestamp) -> Self {
        let head_since = match protocol {
            DownstreamProtocol::Http1 => now.as_nanos(),
            DownstreamProtocol::Http2 => 0,
        };
        Self {
            peer: parts.peer,
            listener: parts.listener,
            protocol,
            trusted: parts.trusted,
            clock: parts.clock,
            gauges: parts.gauges,
            drain: parts.drain,
            changed: parts.changed,
            in_flight: AtomicU32::new(0),
            idle_since: AtomicU64::new(now.as_nanos()),
            head_since: AtomicU64::new(head_since),
            closes: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            abandoned: Mutex::default(),
            abuses: AtomicBool::new(false),
            driver: AtomicWaker::new(),
            next_stall: Mutex::new(None),
            reason: ReasonCell::new(),
        }
    }

    /// Notes that bytes came in.
    pub(super) fn on_bytes(&self) {
        let begins_head = self.protocol == DownstreamProtocol::Http1
            && self.in_flight.load(SeqCst) == 0
            && self.head_since.load(SeqCst) == 0;
        if begins_head {
            self.head_since.store(self.clock.now().as_nanos(), SeqCst);
        }
    }

    /// Notes that a request head is whole.
    pub(super) fn on_request(&self) {
        self.in_flight.fetch_add(1, SeqCst);
        self.head_since.store(0, SeqCst);
        self.gauges.on_request(self.clock.now());
    }

    /// Notes that a request's answer was handed over whole, or is no longer wanted.
    pub(super) fn on_request_end(&self, abandoned: bool) {
        if abandoned && self.protocol == DownstreamProtocol::Http2 {
            self.on_abandon();
        }
        self.idle_since.store(self.clock.now().as_nanos(), SeqCst);
        self.gauges.on_request_end();
        if self.in_flight.fetch_sub(1, SeqCst) == 1 {
            self.driver.wake();
            if self.drain.borrow().phase > super::DrainPhase::Serving {
                self.changed.notify_one();
            }
        }
    }

    fn on_abandon(&self) {
        self.gauges.on_abandon();
        if self.abandoned.lock().record(self.clock.now()) {
            self.abuses.store(true, SeqCst);
            self.driver.wake();
        }
    }

    /// Registers the driver for what needs it.
    pub(super) fn register(&self, driver: &std::task::Waker) {
        self.driver.register(driver);
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(SeqCst)
    }

    pub(super) fn idle_since(&self) -> Timestamp {
        Timestamp::from_nanos(self.idle_since.load(SeqCst))
    }

    pub(super) fn head_since(&self) -> Option<Timestamp> {
        match self.head_since.load(SeqCst) {
            0 => None,
            nanos => Some(Timestamp::from_nanos(nanos)),
        }
    }

    pub(super) fn abuses(&self) -> bool {
        self.abuses.load(SeqCst)
    }

    pub(super) fn closes(&self) -> bool {
        self.closes.load(SeqCst)
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded.load(SeqCst)
    }

    /// Notes that an answer switches protocols.
    pub(super) fn on_upgrade(&self) {
        self.upgraded.store(true, SeqCst);
    }

    /// From now on answers on HTTP/1.1 close the connection.
    pub(super) fn close_after_answer(&self) {
        self.closes.store(true, SeqCst);
    }
}
