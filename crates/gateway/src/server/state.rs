//! What the parts of one connection know of each other: its bytes, its requests, its timers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::abandon::AbandonWindow;
use super::door::{Door, Entered, TooManyRequests};
use super::drain::{DrainPhase, DrainView};
use super::gauges::{CloseReason, ConnectionGauges, ReasonCell};
use super::listener::Peer;
use super::stall::StreamStall;
use crate::wire::TlsFacts;

/// How a connection is spoken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownstreamProtocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2, by ALPN or by prior knowledge.
    Http2,
}

/// What a request's connection is, and when the request came; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ConnInfo {
    pub(super) state: Arc<ConnState>,
    pub(super) arrival: Timestamp,
}

impl ConnInfo {
    /// When the request's head was whole.
    #[must_use]
    pub(crate) const fn arrival(&self) -> Timestamp {
        self.arrival
    }

    /// Says when the request's answer ended, for the request's own end, which follows at once.
    pub(crate) fn note_end(&self, at: Timestamp) {
        self.state.answer_ended.store(at.as_nanos(), SeqCst);
    }

    /// Who the connection came from.
    #[must_use]
    pub(crate) fn peer(&self) -> Peer {
        self.state.peer
    }

    /// What is known of its TLS, if it has any.
    #[must_use]
    pub(crate) fn tls(&self) -> Option<TlsFacts> {
        self.state.tls
    }

    /// The listener it came to, by its place among those given to the server.
    #[must_use]
    pub(crate) fn listener(&self) -> usize {
        self.state.listener
    }

    /// Whether the listener trusts the peer.
    #[must_use]
    pub(crate) fn is_trusted(&self) -> bool {
        self.state.trusted
    }

    /// Admits this request, if whoever has this address may make one more at the listener.
    pub(crate) fn ask(&self, caller: IpAddr) -> Result<(), TooManyRequests> {
        self.state.door.ask(self.arrival, caller)
    }

    /// From now on somebody else bounds how long this caller may take nothing.
    pub(crate) fn note_carried(&self) {
        self.state.carried.store(true, SeqCst);
    }

    /// When this caller stalls, if it takes nothing from now on: by its listener's limit, which is
    /// `unless` where it has none.
    pub(crate) fn stalls_at(&self, unless: Duration) -> Instant {
        let clock = self.state.clock;
        clock.instant(clock.now().after(self.state.door.stall().unwrap_or(unless)))
    }

    /// When this caller, which stalls, is to be closed.
    pub(crate) fn book_end(&self) -> Instant {
        self.state.clock.instant(self.state.door.book_end(self.state.clock.now()))
    }

    /// This caller is closed because it stalled; one that was not told so is reset.
    pub(crate) fn note_stall(&self, told: bool) {
        self.state.reason.set(CloseReason::Stall);
        self.state.resets.fetch_or(!told, SeqCst);
    }

    /// Whether and how far the server is leaving.
    #[must_use]
    pub(crate) fn drain(&self) -> DrainView {
        *self.state.drain.borrow()
    }

    /// Whether the last phase of a drain has come: what ends now did not end by itself.
    #[must_use]
    pub(crate) fn is_closing(&self) -> bool {
        self.drain().phase >= DrainPhase::Close
    }

    /// Waits until the last phase of a drain has come. For those who took the connection over by
    /// an upgrade: the server does not close it, and counts it as cut from that phase on.
    pub(crate) async fn closing(&self) {
        let closing = |view: &DrainView| view.phase >= DrainPhase::Close;
        // The server outlives its connections; should it not, it is closing.
        let _ = self.state.drain.clone().wait_for(closing).await;
    }
}

/// One connection. Shared by its driver, its bytes and its requests.
#[derive(Debug)]
pub(super) struct ConnState {
    pub(super) peer: Peer,
    pub(super) tls: Option<TlsFacts>,
    pub(super) listener: usize,
    pub(super) protocol: DownstreamProtocol,
    pub(super) trusted: bool,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) door: Arc<Door>,
    pub(super) drain: watch::Receiver<DrainView>,
    /// Wakes the drain when the last request of a connection ended or a connection did.
    pub(super) changed: Arc<Notify>,
    /// Requests whose answer is not wholly handed over.
    in_flight: AtomicU32,
    /// When the last of them ended, or the connection began.
    idle_since: AtomicU64,
    /// When the last answer ended, if its request has not noticed; else 0. Of streams that end
    /// together one may take the other's.
    answer_ended: AtomicU64,
    /// When the first byte of a request head came that is not whole yet; [`NO_HEAD`] if there is
    /// none, [`UNDATED`] until the driver has looked.
    head_since: AtomicU64,
    /// Whether answers on HTTP/1.1 say `Connection: close`.
    closes: AtomicBool,
    /// Whether an answer switched protocols: its bytes are someone else's then.
    upgraded: AtomicBool,
    /// Whether a request was cut at the end of a drain.
    lost: AtomicBool,
    /// Whether whoever took it over by an upgrade has its bytes, and bounds how long they wait.
    pub(super) carried: AtomicBool,
    /// Whether it is reset when it is closed: what it did not take is of no use to anybody.
    pub(super) resets: AtomicBool,
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
    pub(super) _entered: Entered,
}

impl Drop for ConnGuard {
    fn drop(&mut self) {
        let reason = self.state.as_ref().and_then(|state| state.reason.reason());
        if let Some(state) = &self.state {
            let upgraded = state.is_upgraded();
            if upgraded {
                self.gauges.on_upgrade_end();
                self.reason = CloseReason::Ended;
            }
            let phase = state.drain.borrow().phase;
            let cut = match upgraded {
                true => phase >= DrainPhase::Close,
                false => phase >= DrainPhase::Over && state.is_busy(),
            };
            if cut {
                self.gauges.on_cut();
            }
        }
        self.gauges.on_close(self.listener, reason.unwrap_or(self.reason));
        self.changed.notify_one();
    }
}

/// What a new connection is made of.
#[derive(Debug)]
pub(super) struct ConnParts {
    pub(super) peer: Peer,
    pub(super) tls: Option<TlsFacts>,
    pub(super) listener: usize,
    pub(super) trusted: bool,
    pub(super) clock: Clock,
    pub(super) gauges: Arc<ConnectionGauges>,
    pub(super) door: Arc<Door>,
    pub(super) drain: watch::Receiver<DrainView>,
    pub(super) changed: Arc<Notify>,
}

impl ConnState {
    /// A connection whose first byte came at `now`.
    pub(super) fn new(parts: ConnParts, protocol: DownstreamProtocol, now: Timestamp) -> Self {
        let head_since = match protocol {
            DownstreamProtocol::Http1 => now.as_nanos(),
            DownstreamProtocol::Http2 => NO_HEAD,
        };
        Self {
            peer: parts.peer,
            tls: parts.tls,
            listener: parts.listener,
            protocol,
            trusted: parts.trusted,
            clock: parts.clock,
            gauges: parts.gauges,
            door: parts.door,
            drain: parts.drain,
            changed: parts.changed,
            in_flight: AtomicU32::new(0),
            idle_since: AtomicU64::new(now.as_nanos()),
            answer_ended: AtomicU64::new(0),
            head_since: AtomicU64::new(head_since),
            closes: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            carried: AtomicBool::new(false),
            resets: AtomicBool::new(false),
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
            && self.head_since.load(SeqCst) == NO_HEAD;
        if begins_head {
            self.head_since.store(UNDATED, SeqCst);
        }
    }

    /// Dates a head that began while the connection was polled just now and is not whole yet. Most
    /// heads come whole, and then the clock is read for the request alone.
    pub(super) fn date_head(&self) {
        if self.head_since.load(SeqCst) == UNDATED {
            self.head_since.store(self.clock.now().as_nanos(), SeqCst);
        }
    }

    /// Notes that a request head is whole; when.
    pub(super) fn on_request(&self) -> Timestamp {
        let now = self.clock.now();
        self.in_flight.fetch_add(1, SeqCst);
        self.head_since.store(NO_HEAD, SeqCst);
        self.gauges.on_request(now);
        now
    }

    /// Notes that a request's answer was handed over whole, or is no longer wanted.
    pub(super) fn on_request_end(&self, abandoned: bool) {
        let now = match self.answer_ended.swap(0, SeqCst) {
            0 => self.clock.now(),
            nanos => Timestamp::from_nanos(nanos),
        };
        if abandoned && self.protocol == DownstreamProtocol::Http2 {
            self.on_abandon(now);
        }
        self.idle_since.fetch_max(now.as_nanos(), SeqCst);
        let phase = self.drain.borrow().phase;
        if abandoned && phase == DrainPhase::Over {
            self.lost.store(true, SeqCst);
            self.gauges.on_request_cut();
        }
        self.gauges.on_request_end();
        if self.in_flight.fetch_sub(1, SeqCst) == 1 {
            self.driver.wake();
            if phase > DrainPhase::Serving {
                self.changed.notify_one();
            }
        }
    }

    fn on_abandon(&self, now: Timestamp) {
        self.gauges.on_abandon();
        if self.abandoned.lock().record(now) {
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
            NO_HEAD | UNDATED => None,
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

    /// Whether closing it now takes something away: a request, or a head that is not whole. An
    /// idle connection whose peer has not closed its side yet loses nothing.
    fn is_busy(&self) -> bool {
        self.lost.load(SeqCst)
            || self.in_flight.load(SeqCst) > 0
            || self.head_since.load(SeqCst) != NO_HEAD
    }

    /// Notes that an answer switches protocols, which HTTP/2 has no way to.
    pub(super) fn on_upgrade(&self) {
        if self.protocol == DownstreamProtocol::Http1 && !self.upgraded.swap(true, SeqCst) {
            self.gauges.on_upgrade();
        }
    }

    /// From now on answers on HTTP/1.1 close the connection.
    pub(super) fn close_after_answer(&self) {
        self.closes.store(true, SeqCst);
    }
}

/// No reading of the clock: they begin at an hour.
const NO_HEAD: u64 = 0;
/// No reading either.
const UNDATED: u64 = 1;
