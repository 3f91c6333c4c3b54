//! What an attempt's future is handed, and what it says back while it runs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use seawall_policy::{Attempt, Timestamp};
use tokio::time::timeout_at;

use crate::stack::Stack;

/// What all attempts of one call share with the code that makes them.
#[derive(Debug)]
pub struct CallShared {
    /// A bit per attempt (by sequence): something may have been sent.
    sent: AtomicU64,
    /// [`NO_UPLOAD`], [`FLOWING`], or the time at which a large upload ended.
    upload: AtomicU64,
    replayable: AtomicBool,
    /// A bit per attempt: it waits for a connection.
    in_checkout: AtomicU64,
    /// A bit per attempt: it got none.
    checkout_failed: AtomicU64,
    /// Nanoseconds spent waiting for a connection.
    checkout_nanos: AtomicU64,
}

/// Where the request body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// It is small enough to be kept, or has ended and the clocks know.
    Kept,
    /// It outgrew what is kept and still flows: the clocks stand.
    Flowing,
    /// It has ended at this time, and the clocks do not know yet.
    Ended(Timestamp),
}

impl CallShared {
    /// For a call that has not begun.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            sent: AtomicU64::new(0),
            upload: AtomicU64::new(NO_UPLOAD),
            replayable: AtomicBool::new(true),
            in_checkout: AtomicU64::new(0),
            checkout_failed: AtomicU64::new(0),
            checkout_nanos: AtomicU64::new(0),
        })
    }

    /// The request body outgrew what is kept for a second attempt.
    pub fn outgrown(&self) {
        self.replayable.store(false, Relaxed);
        self.upload.store(FLOWING, Relaxed);
    }

    /// A body that outgrew what is kept has ended.
    pub fn upload_ended(&self, now: Timestamp) {
        let ended = now.as_nanos().clamp(NO_UPLOAD + 1, FLOWING - 1);
        let _ = self.upload.compare_exchange(FLOWING, ended, Relaxed, Relaxed);
    }

    /// Where the request body is.
    #[must_use]
    pub fn upload(&self) -> Upload {
        match self.upload.load(Relaxed) {
            NO_UPLOAD => Upload::Kept,
            FLOWING => Upload::Flowing,
            ended => Upload::Ended(Timestamp::from_nanos(ended)),
        }
    }

    /// Whether the request can still be sent again.
    #[must_use]
    pub fn is_replayable(&self) -> bool {
        self.replayable.load(Relaxed)
    }

    /// Time spent waiting for a connection, all attempts together.
    #[must_use]
    pub fn checkout_wait(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.checkout_nanos.load(Relaxed))
    }

    /// The time at which a large upload ended, once.
    pub(crate) fn take_upload_end(&self) -> Option<Timestamp> {
        let Upload::Ended(at) = self.upload() else { return None };
        self.upload.store(NO_UPLOAD, Relaxed);
        Some(at)
    }

    pub(crate) fn is_sent(&self, sequence: u32) -> bool {
        self.sent.load(Relaxed) & bit(sequence) != 0
    }
}

/// One attempt, as the code that makes it sees it.
#[derive(Clone, Debug)]
pub struct AttemptContext {
    stack: Stack,
    shared: Arc<CallShared>,
    sequence: u32,
    number: u32,
    endpoint: usize,
    deadline: Timestamp,
}

impl AttemptContext {
    pub(crate) fn new(
        stack: &Stack,
        shared: &Arc<CallShared>,
        attempt: &Attempt,
        sequence: u32,
    ) -> Self {
        Self {
            stack: stack.clone(),
            shared: Arc::clone(shared),
            sequence,
            number: attempt.number,
            endpoint: attempt.permit.endpoint(),
            deadline: attempt.deadline,
        }
    }

    /// 1 for the first attempt.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The endpoint to send to.
    #[must_use]
    pub const fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// When the attempt is given up.
    #[must_use]
    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Says that the first byte is about to leave. Until then a lost attempt is no lost call.
    pub fn mark_sent(&self) {
        self.shared.sent.fetch_or(bit(self.sequence), Relaxed);
    }

    /// Takes [`AttemptContext::mark_sent`] back: the transport gave the message back unsent.
    pub fn mark_unsent(&self) {
        self.shared.sent.fetch_and(!bit(self.sequence), Relaxed);
    }

    /// Waits for a connection from a pool, at most the stack's checkout time and never past the
    /// attempt's deadline. Nothing counts as sent before it returns, and its time and its failures
    /// have a class and a metric of their own.
    ///
    /// # Errors
    /// [`CheckoutTimeout`]; the call ends with that reason if the attempt then returns an error.
    pub async fn checkout<F: Future>(&self, connection: F) -> Result<F::Output, CheckoutTimeout> {
        let clock = *self.stack.clock();
        let begun = clock.now();
        let limit = self.stack.params().checkout().map_or(self.deadline, |wait| begun.after(wait));
        let limit = clock.instant(limit.min(self.deadline));
        self.shared.in_checkout.fetch_or(bit(self.sequence), Relaxed);
        let waited = timeout_at(limit, connection).await;
        self.shared.in_checkout.fetch_and(!bit(self.sequence), Relaxed);
        let wait = clock.now().since(begun);
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.shared.checkout_nanos.fetch_add(nanos, Relaxed);
        self.stack.checkouts().count(wait, waited.is_err());
        if waited.is_err() {
            self.shared.checkout_failed.fetch_or(bit(self.sequence), Relaxed);
        }
        waited.map_err(|_| CheckoutTimeout)
    }

    pub(crate) fn in_checkout(&self) -> bool {
        self.shared.in_checkout.load(Relaxed) & bit(self.sequence) != 0
    }

    pub(crate) fn checkout_failed(&self) -> bool {
        self.shared.checkout_failed.load(Relaxed) & bit(self.sequence) != 0
    }
}

/// Checkouts from a pool since the start.
#[derive(Debug, Default)]
pub struct Checkouts {
    total: AtomicU64,
    timeouts: AtomicU64,
    waited_nanos: AtomicU64,
}

impl Checkouts {
    /// How many were asked for.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// How many came to nothing.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Relaxed)
    }

    /// The time all of them waited.
    #[must_use]
    pub fn waited(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.waited_nanos.load(Relaxed))
    }

    fn count(&self, wait: std::time::Duration, timed_out: bool) {
        self.total.fetch_add(1, Relaxed);
        self.timeouts.fetch_add(u64::from(timed_out), Relaxed);
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.waited_nanos.fetch_add(nanos, Relaxed);
    }
}

/// No connection was to be had in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection from the pool in time")]
pub struct CheckoutTimeout;

/// The bit of an attempt; the sixty-fourth and later ones share the last.
fn bit(sequence: u32) -> u64 {
    1 << sequence.min(63)
}

const NO_UPLOAD: u64 = 0;
const FLOWING: u64 = u64::MAX;
