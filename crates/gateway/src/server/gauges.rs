//! Counts of connections and requests, read by metrics and by the drain.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use seawall_policy::Timestamp;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CloseReason {
    /// The peer closed it, or it was closed after an answer as its version or fields asked.
    Ended,
    /// Reading, writing or parsing failed.
    Failed,
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
}

impl CloseReason {
    /// Every reason, in the order of [`ConnectionGauges::closed`].
    pub(crate) const ALL: [Self; 9] = [
        Self::Ended,
        Self::Failed,
        Self::FirstByte,
        Self::Head,
        Self::Idle,
        Self::Age,
        Self::Stall,
        Self::Abuse,
        Self::Drain,
    ];

    /// Its label in metrics.
    #[must_use]
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::FirstByte => "first_byte",
            Self::Head => "head",
            Self::Idle => "idle",
            Self::Age => "age",
            Self::Stall => "stall",
            Self::Abuse => "abuse",
            Self::Drain => "drain",
        }
    }
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

/// Counts of connections and requests of one server, all listeners together.
#[derive(Debug, Default)]
pub(crate) struct ConnectionGauges {
    active: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    accept_errors: AtomicU64,
    closed: [AtomicU64; CloseReason::ALL.len()],
    requests: AtomicUsize,
    requests_abandoned: AtomicU64,
    /// When the last request began, in nanoseconds of the clock.
    last_request: AtomicU64,
}

impl ConnectionGauges {
    /// Open connections, those that were upgraded among them.
    #[must_use]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Connections accepted since the start.
    #[must_use]
    pub(crate) fn accepted_total(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Connections closed as soon as they were accepted, because the server was leaving and full.
    #[must_use]
    pub(crate) fn refused_total(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Failures to accept, for want of files or memory or because the peer was gone already.
    #[must_use]
    pub(crate) fn accept_errors_total(&self) -> u64 {
        self.accept_errors.load(Relaxed)
    }

    /// Connections that ended for `reason`.
    #[must_use]
    pub(crate) fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason as usize].load(Relaxed)
    }

    /// Requests whose answer has not wholly been handed to the connection.
    #[must_use]
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// HTTP/2 requests whose caller left before the answer was whole.
    #[must_use]
    pub(crate) fn requests_abandoned_total(&self) -> u64 {
        self.requests_abandoned.load(Relaxed)
    }

    /// When the last request began; the origin if none did.
    #[must_use]
    pub(crate) fn last_request(&self) -> Timestamp {
        Timestamp::from_nanos(self.last_request.load(Relaxed))
    }

    pub(super) fn on_accept(&self) {
        self.accepted.fetch_add(1, Relaxed);
        self.active.fetch_add(1, Relaxed);
    }

    pub(super) fn on_refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn on_accept_error(&self) {
        self.accept_errors.fetch_add(1, Relaxed);
    }

    pub(super) fn on_close(&self, reason: CloseReason) {
        self.closed[reason as usize].fetch_add(1, Relaxed);
        self.active.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_request(&self, now: Timestamp) {
        self.requests.fetch_add(1, Relaxed);
        self.last_request.fetch_max(now.as_nanos(), Relaxed);
    }

    pub(super) fn on_request_end(&self) {
        self.requests.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_abandon(&self) {
        self.requests_abandoned.fetch_add(1, Relaxed);
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
