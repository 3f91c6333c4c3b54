//! Counts of connections and requests, read by metrics and by the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;
use seawall_policy::{DoorRefusal, Timestamp};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CloseReason {
    /// The peer closed it, or it was closed after an answer as its version or fields asked.
    Ended,
    /// Reading or writing failed, or the caller left a request unanswered.
    Failed,
    /// HTTP/1.1: what it sent can be read as no request.
    Malformed,
    /// It sent no first byte in time.
    FirstByte,
    /// A request head was not whole in time.
    Head,
    /// No request for the keep-alive time.
    Idle,
    /// Older than the age limit; ended after an answer.
    Age,
    /// It took no bytes of an answer for too long.
    Stall,
    /// Floods, or too many abandoned requests.
    Abuse,
    /// The server was leaving.
    Drain,
    /// The server was leaving and full: closed unserved.
    Full,
    /// It spoke no TLS, or none that was good.
    Handshake,
}

impl CloseReason {
    /// Every reason, in the order of their numbers.
    pub(crate) const ALL: [Self; 12] = [
        Self::Ended,
        Self::Failed,
        Self::Malformed,
        Self::FirstByte,
        Self::Head,
        Self::Idle,
        Self::Age,
        Self::Stall,
        Self::Abuse,
        Self::Drain,
        Self::Full,
        Self::Handshake,
    ];

    /// Labels in metrics, in the same order.
    pub(crate) const LABELS: [&'static str; Self::ALL.len()] = [
        "ended",
        "failed",
        "malformed",
        "first_byte",
        "head",
        "idle",
        "age",
        "stall",
        "abuse",
        "drain",
        "full",
        "handshake",
    ];
}

/// The reason a connection will have ended for: the first that was set holds.
#[derive(Debug)]
pub(super) struct ReasonCell(AtomicU8);

impl ReasonCell {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(UNSET))
    }

    pub(super) fn set(&self, reason: CloseReason) {
        // A loser of the race changes nothing, which is the point.
        let _ = self.0.compare_exchange(UNSET, reason as u8, Relaxed, Relaxed);
    }

    pub(super) fn reason(&self) -> Option<CloseReason> {
        CloseReason::ALL.get(usize::from(self.0.load(Relaxed))).copied()
    }
}

/// Counts of connections, by listener, and of requests of one server.
#[derive(Debug)]
pub(crate) struct ConnectionGauges {
    /// By number; those of listeners that are gone stay.
    listeners: RwLock<Vec<Arc<ListenerGauges>>>,
    /// Connections whose proxy has yet to say whose they are.
    introducing: AtomicUsize,
    requests: AtomicUsize,
    tunnels: AtomicUsize,
    cut: AtomicUsize,
    requests_cut: AtomicUsize,
    requests_abandoned: AtomicU64,
    /// When the last request began, in nanoseconds of the clock.
    last_request: AtomicU64,
}

/// Counts of the connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerGauges {
    active: AtomicUsize,
    accepted: AtomicU64,
    accept_errors: AtomicU64,
    closed: [AtomicU64; CloseReason::ALL.len()],
    refused: [AtomicU64; DoorRefusal::ALL.len()],
    answered: AtomicU64,
    addresses: AtomicUsize,
    evicted: AtomicU64,
    /// Of its socket; 0 if the system tells none.
    inode: AtomicU64,
}

impl ListenerGauges {
    /// Open connections, those that were upgraded among them.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Connections accepted since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Failures to accept, for want of files or memory or because the peer was gone already.
    pub(crate) fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Relaxed)
    }

    /// Connections that were not let in, by the order of [`DoorRefusal::ALL`].
    pub(crate) fn refused(&self) -> [u64; DoorRefusal::ALL.len()] {
        self.refused.each_ref().map(|count| count.load(Relaxed))
    }

    /// Those of them that were answered; the others were reset.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Addresses with connections, where those of each are limited.
    pub(crate) fn addresses(&self) -> usize {
        self.addresses.load(Relaxed)
    }

    /// What the system knows its socket by; 0 if it tells nothing.
    pub(crate) fn inode(&self) -> u64 {
        self.inode.load(Relaxed)
    }

    /// Addresses that were forgotten while they owed something.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Connections that ended for `reason`.
    pub(crate) fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Relaxed)
    }
}

impl ConnectionGauges {
    /// For so many listeners, and one at least.
    pub(crate) fn new(listeners: usize) -> Self {
        Self {
            listeners: RwLock::new((0..listeners.max(1)).map(|_| Arc::default()).collect()),
            introducing: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            tunnels: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            requests_cut: AtomicUsize::new(0),
            requests_abandoned: AtomicU64::new(0),
            last_request: AtomicU64::new(0),
        }
    }

    /// The counts of each listener, by its number.
    pub(crate) fn listeners(&self) -> Vec<Arc<ListenerGauges>> {
        self.listeners.read().clone()
    }

    /// There are so many listeners now, at least.
    pub(super) fn grow(&self, listeners: usize) {
        let mut known = self.listeners.write();
        let count = known.len().max(listeners);
        known.resize_with(count, Arc::default);
    }

    /// Open connections of all listeners, those that were upgraded among them.
    pub(crate) fn active(&self) -> usize {
        self.listeners.read().iter().map(|listener| listener.active()).sum()
    }

    /// Addresses with connections of all listeners, where those of each are limited.
    pub(crate) fn addresses(&self) -> usize {
        self.listeners.read().iter().map(|listener| listener.addresses()).sum()
    }

    /// Connections whose proxy has yet to say whose they are; not among the open ones.
    pub(crate) fn introducing(&self) -> usize {
        self.introducing.load(Relaxed)
    }

    /// Requests whose answer has not wholly been handed to the connection.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Open connections that were upgraded.
    pub(crate) fn tunnels(&self) -> usize {
        self.tunnels.load(Relaxed)
    }

    /// Closed connections that the end of a drain did not let end by themselves.
    pub(super) fn cut(&self) -> usize {
        self.cut.load(Relaxed)
    }

    /// Requests that were abandoned because a drain was over.
    pub(super) fn requests_cut(&self) -> usize {
        self.requests_cut.load(Relaxed)
    }

    /// When the last request began; the origin if none did.
    pub(crate) fn last_request(&self) -> Timestamp {
        Timestamp::from_nanos(self.last_request.load(Relaxed))
    }

    /// The socket on which a listener listens from now on.
    pub(super) fn on_listen(&self, listener: usize, inode: Option<u64>) {
        self.listeners.read()[listener].inode.store(inode.unwrap_or(0), Relaxed);
    }

    pub(super) fn on_accept(&self, listener: usize) {
        let listeners = self.listeners.read();
        let counts = &listeners[listener];
        counts.accepted.fetch_add(1, Relaxed);
        counts.active.fetch_add(1, Relaxed);
    }

    /// Accepted, and closed at once.
    pub(super) fn on_refuse(&self, listener: usize) {
        let listeners = self.listeners.read();
        let counts = &listeners[listener];
        counts.accepted.fetch_add(1, Relaxed);
        counts.closed[CloseReason::Full as usize].fetch_add(1, Relaxed);
    }

    /// Not let in: neither accepted nor closed.
    pub(super) fn on_turn_away(&self, listener: usize, refusal: DoorRefusal, answered: bool) {
        let listeners = self.listeners.read();
        let counts = &listeners[listener];
        counts.refused[refusal as usize].fetch_add(1, Relaxed);
        counts.answered.fetch_add(u64::from(answered), Relaxed);
    }

    /// Addresses that are known of a listener, and how often one was forgotten.
    pub(super) fn on_addresses(&self, listener: usize, before: (usize, u64), after: (usize, u64)) {
        let listeners = self.listeners.read();
        let counts = &listeners[listener];
        counts.evicted.fetch_add(after.1.saturating_sub(before.1), Relaxed);
        // Two that come at once may be noted in either order, and add up.
        counts.addresses.fetch_add(after.0.wrapping_sub(before.0), Relaxed);
    }

    pub(super) fn on_accept_error(&self, listener: usize) {
        self.listeners.read()[listener].accept_errors.fetch_add(1, Relaxed);
    }

    pub(super) fn on_close(&self, listener: usize, reason: CloseReason) {
        let listeners = self.listeners.read();
        let counts = &listeners[listener];
        counts.closed[reason as usize].fetch_add(1, Relaxed);
        counts.active.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_request(&self, now: Timestamp) {
        self.requests.fetch_add(1, Relaxed);
        self.last_request.fetch_max(now.as_nanos(), Relaxed);
    }

    pub(super) fn on_request_end(&self) {
        self.requests.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_upgrade(&self) {
        self.tunnels.fetch_add(1, Relaxed);
    }

    pub(super) fn on_upgrade_end(&self) {
        self.tunnels.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_cut(&self) {
        self.cut.fetch_add(1, Relaxed);
    }

    pub(super) fn on_request_cut(&self) {
        self.requests_cut.fetch_add(1, Relaxed);
    }

    pub(super) fn on_abandon(&self) {
        self.requests_abandoned.fetch_add(1, Relaxed);
    }
}

/// Counts a connection whose proxy has yet to say whose it is.
#[derive(Debug)]
pub(super) struct Introducing(Arc<ConnectionGauges>);

impl Introducing {
    pub(super) fn new(gauges: Arc<ConnectionGauges>) -> Self {
        gauges.introducing.fetch_add(1, Relaxed);
        Self(gauges)
    }
}

impl Drop for Introducing {
    fn drop(&mut self) {
        self.0.introducing.fetch_sub(1, Relaxed);
    }
}

/// Sums over all listeners.
#[cfg(test)]
impl ConnectionGauges {
    pub(super) fn accepted_total(&self) -> u64 {
        self.listeners.read().iter().map(|listener| listener.accepted()).sum()
    }

    pub(super) fn accept_errors_total(&self) -> u64 {
        self.listeners.read().iter().map(|listener| listener.accept_errors()).sum()
    }

    pub(super) fn closed(&self, reason: CloseReason) -> u64 {
        self.listeners.read().iter().map(|listener| listener.closed(reason)).sum()
    }

    /// HTTP/2 requests whose caller left before the answer was whole.
    pub(super) fn requests_abandoned_total(&self) -> u64 {
        self.requests_abandoned.load(Relaxed)
    }
}

const UNSET: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_all_reasons_is_that_of_their_numbers() {
        for (at, reason) in CloseReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
        assert_eq!(CloseReason::LABELS[CloseReason::Handshake as usize], "handshake");
        for (at, refusal) in DoorRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at);
        }
    }

    #[test]
    fn the_first_reason_set_holds() {
        let cell = ReasonCell::new();
        assert_eq!(cell.reason(), None);
        cell.set(CloseReason::Stall);
        cell.set(CloseReason::Failed);
        assert_eq!(cell.reason(), Some(CloseReason::Stall));
    }
}
