//! What a request holds: a place in the queue, then a slot. Dropping either gives it back.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use seawall_policy::{GateTurn, LimitOutcome, LimitPermit, LimitSample, Shed, Ticket, Timestamp};
use tokio::time::{Sleep, sleep_until};

use super::gate::ServerGate;

/// A place in the queue.
pub(super) struct Turn {
    gate: ServerGate,
    /// Until it is used up.
    ticket: Option<Ticket>,
    entered: Timestamp,
    /// The time of the event that is being handled, if it is known.
    now: Option<Timestamp>,
    /// Ends when the wait does.
    sleep: Pin<Box<Sleep>>,
}

impl Turn {
    pub(super) fn new(
        gate: ServerGate,
        ticket: Ticket,
        entered: Timestamp,
        until: Timestamp,
    ) -> Self {
        let sleep = Box::pin(sleep_until(gate.clock().instant(until)));
        Self { gate, ticket: Some(ticket), entered, now: Some(entered), sleep }
    }

    /// Waits until it is decided.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Slot, Shed>> {
        while let Some(ticket) = self.ticket {
            let now = self.now.take().unwrap_or_else(|| self.gate.clock().now());
            match self.gate.claim(now, ticket, cx.waker()) {
                GateTurn::Admitted(permit) => {
                    self.ticket = None;
                    let slot = Slot::new(self.gate.clone(), permit, self.entered, now);
                    return Poll::Ready(Ok(slot));
                }
                GateTurn::Rejected(shed) => {
                    self.ticket = None;
                    return Poll::Ready(Err(shed));
                }
                // When the sleep is over, the next look finds the wait at its end.
                GateTurn::Waiting(_) if self.sleep.as_mut().poll(cx).is_ready() => {}
                GateTurn::Waiting(_) => return Poll::Pending,
            }
        }
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.cancel(self.gate.clock().now(), ticket);
        }
    }
}

/// A slot of the limit. Dropped before its answer began, it is a caller that left.
pub(super) struct Slot {
    gate: ServerGate,
    permit: Option<LimitPermit>,
    entered: Timestamp,
    started: Timestamp,
    /// The limit has heard of it.
    is_told: bool,
    /// The inner service is running; still so when the slot is dropped, it has panicked.
    is_running: bool,
    /// It was ended, by whom it belongs to.
    has_ended: bool,
}

impl Slot {
    pub(super) const fn new(
        gate: ServerGate,
        permit: LimitPermit,
        entered: Timestamp,
        started: Timestamp,
    ) -> Self {
        let permit = Some(permit);
        let (is_told, is_running, has_ended) = (false, false, false);
        Self { gate, permit, entered, started, is_told, is_running, has_ended }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.gate.clock().now()
    }

    /// The inner service runs, until the guard returns from it.
    pub(super) const fn run(&mut self) -> Running<'_> {
        self.is_running = true;
        Running(&mut self.is_running)
    }

    /// The answer has begun, and goes on.
    pub(super) fn tell(&mut self, now: Timestamp, outcome: LimitOutcome) {
        let sample = self.sample(now, outcome);
        self.is_told = true;
        if let Some(permit) = &self.permit {
            self.gate.with(|gate, params| gate.learn(now, params, permit, sample));
        }
    }

    /// It is over, and the slot is free.
    pub(super) fn end(mut self, now: Timestamp, outcome: LimitOutcome) {
        self.has_ended = true;
        self.finish(now, outcome);
    }

    /// Of a caller that left after it had waited longer than it was served, the queue took the
    /// patience: that it got no answer says nothing of the service.
    fn outcome_of_drop(&self, now: Timestamp) -> LimitOutcome {
        let says_nothing = self.is_told || self.is_running;
        let waited_more = now.since(self.started) < self.started.since(self.entered);
        match says_nothing || waited_more {
            true => LimitOutcome::Ignore,
            false => LimitOutcome::GaveUp,
        }
    }

    fn finish(&mut self, now: Timestamp, outcome: LimitOutcome) {
        let sample = self.sample(now, outcome);
        let Some(permit) = self.permit.take() else { return };
        let left = !self.has_ended && !self.is_told && !self.is_running;
        let waited = now.since(self.entered);
        self.gate.with(|gate, params| {
            gate.complete(now, params, permit, sample);
            if left {
                gate.on_left(now, params, waited);
            }
        });
    }

    fn sample(&self, now: Timestamp, outcome: LimitOutcome) -> LimitSample {
        LimitSample { latency: now.since(self.started), outcome }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.permit.is_none() {
            return;
        }
        let now = self.now();
        self.finish(now, self.outcome_of_drop(now));
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("permit", &self.permit).finish_non_exhaustive()
    }
}

/// The inner service runs. Nothing happens when it is dropped, which a panic does.
pub(super) struct Running<'a>(&'a mut bool);

impl Running<'_> {
    /// It has returned.
    pub(super) const fn return_from(self) {
        *self.0 = false;
    }
}
