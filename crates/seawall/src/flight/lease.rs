//! What an attempt in flight occupies, and how it comes back.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{Cause, HeldCall, Outcome, Permit, Timestamp};

use crate::attempt::{CallShared, Upload};
use crate::stack::Stack;

/// What an attempt in flight occupies: its permit, or, once it was given up, its place among the
/// held.
pub(crate) struct Lease {
    pub(super) stack: Stack,
    pub(super) shared: Arc<CallShared>,
    pub(super) sequence: u32,
    pub(super) hold: Hold,
    /// The time the attempt has of its own.
    pub(super) timeout: Option<Duration>,
}

pub(super) enum Hold {
    Permit(Permit),
    Held(HeldCall),
    Nothing,
}

impl Lease {
    pub(super) fn new(
        stack: &Stack,
        shared: &Arc<CallShared>,
        sequence: u32,
        permit: Permit,
    ) -> Self {
        Self {
            stack: stack.clone(),
            shared: Arc::clone(shared),
            sequence,
            timeout: permit.attempt_timeout(),
            hold: Hold::Permit(permit),
        }
    }

    /// When to look whether it is slow.
    pub(super) const fn slow_at(&self) -> Timestamp {
        match &self.hold {
            Hold::Permit(permit) => permit.slow_at(),
            Hold::Held(_) | Hold::Nothing => Timestamp::MAX,
        }
    }

    /// Whether nothing was sent yet, for want of a connection, of a request body that is read only
    /// when it can be sent.
    pub(super) fn waits_with_body(&self) -> bool {
        !self.shared.is_sent(self.sequence) && !self.shared.is_hedgeable()
    }

    /// The permit, knowing whether anything was sent.
    pub(crate) fn permit(&mut self) -> Option<&mut Permit> {
        let Hold::Permit(permit) = &mut self.hold else { return None };
        if self.shared.is_sent(self.sequence) {
            permit.mark_sent();
        } else {
            permit.mark_unsent();
        }
        Some(permit)
    }

    /// Whether anything may have been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.shared.is_sent(self.sequence)
    }

    /// What an attempt whose own time is up was doing: nothing was sent while it waited for a
    /// connection.
    pub(crate) fn cause_of_timeout(&self) -> Cause {
        match () {
            () if self.is_sent() => Cause::AttemptTimeout,
            () if self.shared.is_in_checkout(self.sequence) => Cause::CheckoutTimeout,
            () if self.shared.is_in_connect(self.sequence) => Cause::ConnectTimeout,
            () => Cause::AttemptTimeout,
        }
    }

    /// Takes the permit out; what is only held stays.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        self.permit()?;
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Permit(permit) => Some(permit),
            Hold::Held(_) | Hold::Nothing => None,
        }
    }

    /// Gives the call up: from here on it only holds its slot.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        self.settle(now);
        if let Some(permit) = self.take() {
            let held = self
                .stack
                .with(|dependency, params, rng| dependency.abandon(now, params, permit, rng));
            self.hold = held.map_or(Hold::Nothing, Hold::Held);
        }
    }

    /// Says that nobody waits for the call any longer, and that it runs on.
    pub(super) fn orphan(&mut self) {
        let stack = self.stack.clone();
        if let Some(permit) = self.permit() {
            stack.with(|dependency, _, _| dependency.orphan(permit));
        }
    }

    /// Takes out of the dependency's time what was none: a wait for a pool, and an upload, whether
    /// it is over or was answered before its end. When that upload ended, for the call's clocks,
    /// if they do not know.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Option<Timestamp> {
        let waits = self.shared.is_in_checkout(self.sequence).then_some(now);
        let checkout = waits.or(self.shared.take_checkout_end(self.sequence));
        let upload = match self.upload() {
            Upload::Complete => None,
            Upload::Flowing => Some(now),
            Upload::Ended(_) => self.shared.take_upload_end(),
        };
        if let (Some(since), Hold::Permit(permit)) = (upload.or(checkout), &mut self.hold) {
            permit.restart(since, &self.stack.params());
        }
        upload
    }

    /// Where the request body is. Before the attempt is sent it cannot wait for more of it, even
    /// if an earlier one did.
    pub(super) fn upload(&self) -> Upload {
        match self.shared.upload() {
            Upload::Flowing if !self.is_sent() => Upload::Complete,
            upload => upload,
        }
    }

    /// Marks the call as slow if it is.
    pub(super) fn watch(&mut self, now: Timestamp) {
        let stack = self.stack.clone();
        let Some(permit) = self.permit() else { return };
        if now >= permit.slow_at() {
            stack.with(|dependency, params, rng| dependency.on_slow(now, params, permit, rng));
        }
    }

    pub(super) fn record(&mut self, now: Timestamp, outcome: &Outcome) {
        let stack = self.stack.clone();
        if let Some(permit) = self.permit() {
            stack.with(|dependency, params, rng| {
                dependency.record(now, params, permit, outcome, rng);
            });
        }
    }

    /// The call has really ended: frees its slot.
    pub(super) fn end(&mut self, now: Timestamp) {
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Permit(permit) => self.stack.release(now, permit),
            Hold::Held(held) => {
                self.stack.with(|dependency, params, _| dependency.end_held(now, params, held));
            }
            Hold::Nothing => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Dropped with its permit, the call was cancelled; dropped while held, it stays held
        // until it is given up: a reset proves nothing about the other side.
        if matches!(self.hold, Hold::Permit(_)) {
            self.give_up(self.stack.clock().now());
        }
    }
}
