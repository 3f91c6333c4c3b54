//! One connection: what is known of it, how a request goes out on it, and what its end means.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use seawall_policy::Timestamp;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::pool::Shared;
use super::upload::{RequestBody, Upload};

/// What the socket, the driver and the pool know of a connection. Holds no sender, so it keeps
/// nothing alive.
#[derive(Debug)]
pub(super) struct ConnFacts {
    /// Unique within the pool.
    pub(super) id: u64,
    /// The endpoint it leads to.
    pub(super) endpoint: usize,
    /// See [`Fate`]; written under the pool's lock alone.
    fate: AtomicU8,
    /// The peer's limit on our streams; `usize::MAX` until it states one.
    stream_limit: AtomicUsize,
    /// The last stream of the peer's latest GOAWAY, or [`NO_GOAWAY`].
    last_stream: AtomicU32,
    /// Messages handed to hyper; on HTTP/2 each takes one stream id at most.
    messages: AtomicU32,
    settled: AtomicBool,
    gone: AtomicBool,
    /// Told when `settled` or `gone` turns true; the dial alone listens.
    news: Notify,
}

/// What the pool makes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Counted as a dial.
    Dialing,
    /// Counted, and may serve.
    Pooled,
    /// Counted until its socket is gone; serves no more.
    Expired,
    /// As `Expired`, closed for another endpoint's sake.
    Evicted,
    /// As `Expired`, its exchange was dropped.
    Abandoned,
    /// As `Expired`, the peer or the transport ended it.
    Lost,
    /// No longer counted as open; serves its exchange and no more.
    Detached,
    /// The socket is gone.
    Gone,
}

impl Fate {
    /// Counted as open, but about to go.
    pub(super) const fn is_closing(self) -> bool {
        matches!(self, Self::Expired | Self::Evicted | Self::Abandoned | Self::Lost)
    }
}

impl ConnFacts {
    pub(super) fn new(id: u64, endpoint: usize) -> Self {
        Self {
            id,
            endpoint,
            fate: AtomicU8::new(Fate::Dialing as u8),
            stream_limit: AtomicUsize::new(usize::MAX),
            last_stream: AtomicU32::new(NO_GOAWAY),
            messages: AtomicU32::new(0),
            settled: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            news: Notify::new(),
        }
    }

    pub(super) fn fate(&self) -> Fate {
        let fate = self.fate.load(Ordering::Relaxed);
        FATES.into_iter().find(|known| *known as u8 == fate).unwrap_or(Fate::Gone)
    }

    /// To be called under the pool's lock.
    pub(super) fn set_fate(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::Relaxed);
    }

    pub(super) fn stream_limit(&self) -> usize {
        self.stream_limit.load(Ordering::Relaxed)
    }

    pub(super) fn is_going_away(&self) -> bool {
        self.last_stream.load(Ordering::Relaxed) != NO_GOAWAY
    }

    /// Whether a stream that hyper reports as refused by GOAWAY lies above its last id for
    /// certain. A first GOAWAY that names the highest id there is (a polite announcement) refuses
    /// nothing, and hyper reports a stream that was begun at that moment all the same.
    pub(super) fn goaway_refuses(&self) -> bool {
        let highest = self.messages.load(Ordering::Relaxed).saturating_mul(2).saturating_sub(1);
        self.last_stream.load(Ordering::Relaxed) < highest
    }

    pub(super) fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn messages(&self) -> u32 {
        self.messages.load(Ordering::Relaxed)
    }

    /// The peer's SETTINGS arrived; returns whether its limit on streams changed.
    pub(super) fn settings(&self, limit: Option<u32>) -> bool {
        let changed = limit.is_some_and(|limit| {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            self.stream_limit.swap(limit, Ordering::Relaxed) != limit
        });
        if !self.settled.swap(true, Ordering::Release) {
            self.news.notify_one();
        }
        changed
    }

    /// The peer's GOAWAY arrived; a later one may only lower the last stream.
    pub(super) fn go_away(&self, last_stream: u32) {
        self.last_stream.fetch_min(last_stream, Ordering::Relaxed);
    }

    pub(super) fn socket_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.news.notify_one();
    }

    /// Waits for the peer's SETTINGS; false if the socket went first.
    pub(super) async fn peer_settled(&self) -> bool {
        loop {
            if self.settled.load(Ordering::Acquire) {
                return true;
            }
            if self.gone.load(Ordering::Acquire) {
                return false;
            }
            self.news.notified().await;
        }
    }
}

/// Hears from sockets; the pool without the type of its bodies.
pub(super) trait Watcher: Send + Sync {
    /// The socket of this connection is gone.
    fn socket_gone(self: Arc<Self>, facts: &ConnFacts);
    /// The peer changed its limit on streams.
    fn limit_changed(self: Arc<Self>, facts: &ConnFacts);
}

/// A connection with its sender.
pub(super) struct Conn<B: RequestBody> {
    pub(super) facts: Arc<ConnFacts>,
    pub(super) line: Line<B>,
    pub(super) pool: Weak<Shared<B>>,
}

/// How a request goes out.
pub(super) enum Line<B> {
    /// One exchange at a time. The sender is taken out to close the connection; the handle stops
    /// its driver without regard for what it still does.
    Http1 { sender: Mutex<Option<http1::SendRequest<Upload<B>>>>, driver: AbortHandle },
    /// Many streams; each sends through its own clone.
    Http2 { sender: http2::SendRequest<Upload<B>> },
}

impl<B: RequestBody> Conn<B> {
    /// Whether the next exchange may go out on it.
    pub(super) fn is_ready(&self) -> bool {
        match &self.line {
            Line::Http1 { sender, .. } => {
                // A fresh one whose driver has not run yet takes its first message all the same.
                let fresh = self.facts.messages.load(Ordering::Relaxed) == 0;
                let ready = |h1: &http1::SendRequest<_>| h1.is_ready() || fresh && !h1.is_closed();
                sender.lock().as_ref().is_some_and(ready)
            }
            Line::Http2 { sender } => !sender.is_closed() && !self.facts.is_going_away(),
        }
    }

    /// Ends an HTTP/1.1 connection that is in the middle of an exchange.
    fn abort(&self) {
        if let Line::Http1 { sender, driver } = &self.line {
            drop(sender.lock().take());
            driver.abort();
        }
    }

    /// Waits until hyper is through with the exchange whose response has ended, and gives the
    /// connection back. An upload may outlast its response, but not for ever: a peer that neither
    /// reads nor closes would keep the connection's place.
    async fn settle(self: Arc<Self>) {
        let Line::Http1 { sender, .. } = &self.line else { return };
        let Some(mut taken) = sender.lock().take() else { return };
        let Some(limit) = self.pool.upgrade().map(|pool| pool.settings().settle) else { return };
        let ready = tokio::time::timeout(limit, taken.ready()).await;
        *sender.lock() = Some(taken);
        let Some(pool) = self.pool.upgrade() else { return };
        match ready {
            Ok(Ok(())) => {
                let now = pool.clock.now();
                pool.give_back(self, now);
            }
            Ok(Err(_)) => pool.close(&self, Fate::Lost),
            Err(_) => {
                pool.close(&self, Fate::Abandoned);
                self.abort();
            }
        }
    }
}

impl<B: RequestBody> fmt::Debug for Conn<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// A connection with an exchange on it, without the type of its request bodies: what a response
/// body holds.
pub(super) trait Held: Send + Sync {
    /// The exchange ended as it should; when, if anybody was left to look at the clock.
    fn finished(self: Arc<Self>) -> Option<Timestamp>;
    /// The exchange was dropped before its end.
    fn abandoned(self: Arc<Self>);
    /// The exchange failed.
    fn failed(self: Arc<Self>);
    /// The connection leaves the pool with its exchange.
    fn leave_pool(&self);
}

impl<B: RequestBody> Held for Conn<B> {
    fn finished(self: Arc<Self>) -> Option<Timestamp> {
        let pool = self.pool.upgrade()?;
        let now = pool.clock.now();
        match &self.line {
            Line::Http2 { .. } => pool.end_stream(&self.facts, now),
            Line::Http1 { .. } if self.is_ready() => pool.give_back(self, now),
            Line::Http1 { .. } => {
                pool.runtime.spawn(self.settle());
            }
        }
        Some(now)
    }

    fn abandoned(self: Arc<Self>) {
        if let Some(pool) = self.pool.upgrade() {
            match &self.line {
                Line::Http2 { .. } => pool.end_stream(&self.facts, pool.clock.now()),
                Line::Http1 { .. } => pool.close(&self, Fate::Abandoned),
            }
        }
        self.abort();
    }

    fn failed(self: Arc<Self>) {
        if let Some(pool) = self.pool.upgrade() {
            match &self.line {
                Line::Http2 { .. } => pool.end_stream(&self.facts, pool.clock.now()),
                Line::Http1 { .. } => pool.close(&self, Fate::Lost),
            }
        }
        self.abort();
    }

    fn leave_pool(&self) {
        if let (Line::Http1 { .. }, Some(pool)) = (&self.line, self.pool.upgrade()) {
            pool.detach(&self.facts);
        }
    }
}

/// No GOAWAY has arrived: above every stream id.
const NO_GOAWAY: u32 = u32::MAX;
const FATES: [Fate; 8] = [
    Fate::Dialing,
    Fate::Pooled,
    Fate::Expired,
    Fate::Evicted,
    Fate::Abandoned,
    Fate::Lost,
    Fate::Detached,
    Fate::Gone,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goaway_refuses_for_certain_only_below_the_highest_id_we_may_have_used() {
        let facts = ConnFacts::new(0, 0);
        facts.count_message();
        facts.count_message();
        assert!(!facts.goaway_refuses(), "none has arrived");
        facts.go_away(0x7fff_ffff);
        assert!(facts.is_going_away());
        assert!(!facts.goaway_refuses(), "a polite announcement refuses nothing");
        facts.go_away(3);
        assert!(!facts.goaway_refuses(), "ids 1 and 3 are both at or below");
        facts.go_away(1);
        assert!(facts.goaway_refuses());
        facts.go_away(3);
        assert!(facts.goaway_refuses(), "the last id never rises again");
    }

    #[test]
    fn only_a_limit_that_differs_is_a_change() {
        let facts = ConnFacts::new(0, 0);
        assert!(!facts.settings(None));
        assert_eq!(facts.stream_limit(), usize::MAX);
        assert!(facts.settings(Some(100)));
        assert!(!facts.settings(Some(100)));
        assert!(!facts.settings(None));
        assert_eq!(facts.stream_limit(), 100);
    }

    #[test]
    fn every_fate_is_read_as_it_was_written() {
        let facts = ConnFacts::new(0, 0);
        for fate in FATES {
            facts.set_fate(fate);
            assert_eq!(facts.fate(), fate);
        }
    }
}
