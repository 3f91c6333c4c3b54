//! What all attempts of one call know of each other: what was sent, what is waited for, the body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use seawall_policy::{Cause, Timestamp};

use crate::checkouts::nanos;

/// What all attempts of one call share with the code that makes them.
#[derive(Debug)]
pub struct CallShared {
    /// [`NO_UPLOAD`], [`FLOWING`], or the time at which an upload that flowed ended.
    upload: AtomicU64,
    replayable: AtomicBool,
    /// Reasons not to make two attempts at once.
    forbidden: AtomicU32,
    /// Something may have been sent.
    pub(super) sent: Marks,
    pub(super) in_checkout: Marks,
    pub(super) in_connect: Marks,
    /// The last wait for a connection was in vain.
    pub(super) checkout_failed: Marks,
    pub(super) connect_failed: Marks,
    /// The other side was told that it has until the call's own end.
    told_calls_end: Marks,
    /// Nanoseconds spent waiting for a connection from a pool.
    checkout_nanos: AtomicU64,
    /// Which attempts' last such wait ended when, where their clocks do not know yet: one that was
    /// given up may run on beside the one that counts.
    checkout_ended: Mutex<Vec<(u32, Timestamp)>>,
    /// Whose are among them, so that a poll need not look.
    has_checkout_end: Marks,
}

/// Where the request body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    /// There is none, it was complete at once, or it has ended and the clocks know.
    Complete,
    /// More of it is to come, and the time is its sender's: the clocks stand.
    Flowing,
    /// It has ended at this time, and the clocks do not know yet.
    Ended(Timestamp),
}

impl CallShared {
    /// For a call that has not begun.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            upload: AtomicU64::new(NO_UPLOAD),
            replayable: AtomicBool::new(true),
            forbidden: AtomicU32::new(0),
            sent: Marks::default(),
            in_checkout: Marks::default(),
            in_connect: Marks::default(),
            checkout_failed: Marks::default(),
            connect_failed: Marks::default(),
            told_calls_end: Marks::default(),
            checkout_nanos: AtomicU64::new(0),
            checkout_ended: Mutex::default(),
            has_checkout_end: Marks::default(),
        })
    }

    /// The request body outgrew what is kept for a second attempt.
    pub fn outgrown(&self) {
        self.replayable.store(false, Relaxed);
    }

    /// No second attempt may be made beside one in flight: a request body has still to come, which
    /// two cannot read at once, or an answer is more than an answer, as an upgrade is. Until
    /// somebody says so, one may. Taken back by [`CallShared::allow_hedge`], each by one.
    pub fn forbid_hedge(&self) {
        self.forbidden.fetch_add(1, Relaxed);
    }

    /// Takes one [`CallShared::forbid_hedge`] back: the body is there whole.
    pub fn allow_hedge(&self) {
        self.forbidden.fetch_sub(1, Relaxed);
    }

    /// An attempt that was [sent](crate::AttemptContext::mark_sent) reads the request body, and not
    /// all of it is there. From here to its end, whatever its size, only a deadline the caller
    /// stated ends the attempt: whoever reads the body has to bound the wait for each part of it.
    pub fn upload_flows(&self) {
        self.upload.store(FLOWING, Relaxed);
    }

    /// All of a body that flowed is there: the attempt's clocks start now.
    pub fn upload_ended(&self, now: Timestamp) {
        let ended = now.as_nanos().clamp(NO_UPLOAD + 1, FLOWING - 1);
        let _ = self.upload.compare_exchange(FLOWING, ended, Relaxed, Relaxed);
    }

    /// Where the request body is.
    #[must_use]
    pub fn upload(&self) -> Upload {
        match self.upload.load(Relaxed) {
            NO_UPLOAD => Upload::Complete,
            FLOWING => Upload::Flowing,
            ended => Upload::Ended(Timestamp::from_nanos(ended)),
        }
    }

    /// Whether the request can still be sent again.
    #[must_use]
    pub fn is_replayable(&self) -> bool {
        self.replayable.load(Relaxed)
    }

    /// Whether a second attempt can be made while the first is in flight.
    pub(crate) fn is_hedgeable(&self) -> bool {
        self.is_replayable()
            && self.forbidden.load(Relaxed) == 0
            && !matches!(self.upload(), Upload::Flowing)
    }

    /// Time spent waiting for a connection from a pool, all attempts together.
    #[must_use]
    pub fn checkout_wait(&self) -> Duration {
        Duration::from_nanos(self.checkout_nanos.load(Relaxed))
    }

    /// The time at which an upload that flowed ended, once.
    pub(crate) fn take_upload_end(&self) -> Option<Timestamp> {
        let Upload::Ended(at) = self.upload() else { return None };
        self.upload.store(NO_UPLOAD, Relaxed);
        Some(at)
    }

    pub(super) fn add_checkout_wait(&self, wait: Duration) {
        self.checkout_nanos.fetch_add(nanos(wait), Relaxed);
    }

    pub(super) fn checkout_ended(&self, sequence: u32, now: Timestamp) {
        let mut ended = self.checkout_ended.lock();
        ended.retain(|(of, _)| *of != sequence);
        ended.push((sequence, now));
        self.has_checkout_end.set(sequence);
    }

    /// When the attempt's wait for a pool ended, once: the dependency's time begins there.
    pub(crate) fn take_checkout_end(&self, sequence: u32) -> Option<Timestamp> {
        if !self.has_checkout_end.is_set(sequence) {
            return None;
        }
        let mut ended = self.checkout_ended.lock();
        let place = ended.iter().position(|(of, _)| *of == sequence)?;
        self.has_checkout_end.clear(sequence);
        Some(ended.swap_remove(place).1)
    }

    pub(crate) fn mark_sent(&self, sequence: u32) {
        self.sent.set(sequence);
    }

    pub(super) fn tell_calls_end(&self, sequence: u32) {
        self.told_calls_end.set(sequence);
    }

    /// Whether the attempt's other side was told of the call's end, so that a time that is up over
    /// there is the caller's.
    pub(crate) fn is_calls_end_told(&self, sequence: u32) -> bool {
        self.told_calls_end.is_set(sequence)
    }

    /// Whether the attempt waits for a connection, so that nothing can have been sent.
    pub(crate) fn is_waiting(&self, sequence: u32) -> bool {
        self.is_in_checkout(sequence) || self.is_in_connect(sequence)
    }

    /// The wait for a connection that an attempt without an answer has failed in, if it did nothing
    /// after it.
    pub(crate) fn waited_in_vain(&self, sequence: u32) -> Option<Cause> {
        match () {
            () if self.is_sent(sequence) => None,
            () if self.checkout_failed.is_set(sequence) => Some(Cause::CheckoutTimeout),
            () if self.connect_failed.is_set(sequence) => Some(Cause::ConnectTimeout),
            () => None,
        }
    }

    pub(crate) fn is_sent(&self, sequence: u32) -> bool {
        self.sent.is_set(sequence)
    }

    pub(crate) fn is_in_checkout(&self, sequence: u32) -> bool {
        self.in_checkout.is_set(sequence)
    }

    pub(crate) fn is_in_connect(&self, sequence: u32) -> bool {
        self.in_connect.is_set(sequence)
    }
}

/// A mark an attempt. The sixty-fourth and later ones share the last; a call makes at most 20.
#[derive(Debug, Default)]
pub(super) struct Marks(AtomicU64);

impl Marks {
    pub(super) fn set(&self, sequence: u32) {
        self.0.fetch_or(1 << sequence.min(63), Relaxed);
    }

    pub(super) fn clear(&self, sequence: u32) {
        self.0.fetch_and(!(1 << sequence.min(63)), Relaxed);
    }

    pub(super) fn is_set(&self, sequence: u32) -> bool {
        self.0.load(Relaxed) & (1 << sequence.min(63)) != 0
    }
}

const NO_UPLOAD: u64 = 0;
const FLOWING: u64 = u64::MAX;
