//! Decides whether a request goes on, waits or is refused: an admission queue and the limit that
//! it stands in front of, in one value.
//!
//! A queue that does not know its limit, and a limit that does not know who waits, disagree: a slot
//! is free and somebody waits, or one slot is promised twice. Together they are one count.
//!
//! ```text
//! room = limit − in flight − granted        granted: told to go, and not come for it yet
//! ```
//!
//! - Who enters takes a slot at once if there is room and nobody waits ([`AdmissionQueue`]).
//! - After everything that can make room, and after every sample that can move the limit, the queue
//!   is asked who is next for as long as there is room. Whoever that is holds its slot from then
//!   on; the limit's permit begins when it comes for it, so the time until it has woken up is no
//!   time of a call.
//! - A ticket that is cancelled after it was granted gives its slot to the next.
//! - If the limit comes down below what is in flight and granted, nothing is taken back: there is
//!   no room until enough have ended.
//!
//! The owner pops the tickets that were decided ([`pop_woken`](Gate::pop_woken)), and wakes those
//! they belong to, who [`claim`](Gate::claim). Every ticket is claimed once it is decided, or
//! cancelled; every permit comes back through [`complete`](Gate::complete) or
//! [`release`](Gate::release).
//!
//! Bounds: those of the queue and of the limit. An operation costs what theirs do, and O(1) for
//! each slot that it hands on; a limit that goes up by many at once hands on as many.
//!
//! Known bad cases: whoever was granted a slot and is slow to come for it holds it meanwhile; a
//! reload to another rule of the limit is followed by the first call that begins or ends after it.

use crate::admission::{
    AdmissionOptions, AdmissionParams, AdmissionQueue, Ask, Entered, Shed, Turn,
};
use crate::bulkhead::Ticket;
use crate::error::ConfigError;
use crate::limit::{Limit, LimitOptions, LimitParams, LimitPermit, LimitSample};
use crate::time::Timestamp;
use core::time::Duration;

/// The knobs of a gate as a user gives them; [`GateParams::new`] checks them. The defaults need no
/// knowledge of what can be served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateOptions {
    /// How many may be in flight.
    pub limit: LimitOptions,
    /// Who waits for that.
    pub admission: AdmissionOptions,
}

/// Checked knobs. Swapping them keeps what waits, what is in flight and what is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateParams {
    limit: LimitParams,
    admission: AdmissionParams,
}

impl GateParams {
    /// Checks `options`.
    ///
    /// # Errors
    ///
    /// Names the first field outside the range its documentation gives, under `limit` or
    /// `admission`.
    pub fn new(options: GateOptions) -> Result<Self, ConfigError> {
        let limit = LimitParams::new(options.limit).map_err(|error| error.under("limit"))?;
        let admission = AdmissionParams::new(options.admission);
        let admission = admission.map_err(|error| error.under("admission"))?;
        Ok(Self { limit, admission })
    }

    /// Those of the limit.
    #[must_use]
    pub const fn limit(&self) -> &LimitParams {
        &self.limit
    }

    /// Those of the queue.
    #[must_use]
    pub const fn admission(&self) -> &AdmissionParams {
        &self.admission
    }
}

/// The answer to one who would enter.
#[must_use = "an admitted request holds a slot, a queued one a place"]
#[derive(Debug)]
pub enum GateEntry {
    /// Go, at once.
    Admitted(LimitPermit),
    /// Wait to be woken, at the latest until this time.
    Queued(Ticket, Timestamp),
    /// Neither.
    Rejected(Shed),
}

/// What became of a ticket.
#[must_use = "an admitted turn holds a slot"]
#[derive(Debug)]
pub enum GateTurn {
    /// Go. The ticket is used up.
    Admitted(LimitPermit),
    /// Not decided yet, at the latest at this time.
    Waiting(Timestamp),
    /// It will not be started; the ticket is used up. So is one that was claimed or cancelled
    /// before, which counts as expired.
    Rejected(Shed),
}

/// A queue and its limit. See the module.
#[derive(Debug)]
pub struct Gate {
    queue: AdmissionQueue,
    limit: Limit,
    /// Tickets that were told to go and are not claimed or cancelled: each holds a slot.
    granted: u32,
}

impl Gate {
    /// Nobody waits, nothing is in flight and nothing is known.
    #[must_use]
    pub fn new(now: Timestamp, params: &GateParams) -> Self {
        Self { queue: AdmissionQueue::new(), limit: Limit::new(now, &params.limit), granted: 0 }
    }

    /// Asks to be started.
    pub fn enter(&mut self, now: Timestamp, params: &GateParams, ask: Ask) -> GateEntry {
        let has_room = self.room(params) > 0;
        let entry = match self.queue.enter(now, &params.admission, ask, has_room) {
            Entered::Admitted => GateEntry::Admitted(self.limit.acquire(now, &params.limit)),
            Entered::Queued(ticket, until) => GateEntry::Queued(ticket, until),
            Entered::Rejected(shed) => GateEntry::Rejected(shed),
        };
        self.hand_on(now, params);
        entry
    }

    /// Asks what became of a ticket; safe to repeat while it waits.
    pub fn claim(&mut self, now: Timestamp, params: &GateParams, ticket: Ticket) -> GateTurn {
        let turn = match self.queue.claim(now, ticket) {
            Turn::Admitted => {
                self.give_up_grant();
                // The slot is its own, even if the limit has come down since.
                GateTurn::Admitted(self.limit.acquire(now, &params.limit))
            }
            Turn::Waiting(until) => GateTurn::Waiting(until),
            Turn::Rejected(shed) => GateTurn::Rejected(shed),
        };
        self.hand_on(now, params);
        turn
    }

    /// Gives a ticket up: its caller has left. Without effect on one that is used up.
    pub fn cancel(&mut self, now: Timestamp, params: &GateParams, ticket: Ticket) {
        if self.queue.cancel(now, ticket) {
            self.give_up_grant();
        }
        self.hand_on(now, params);
    }

    /// A call has ended: its slot is free, and the limit learns from it.
    pub fn complete(
        &mut self,
        now: Timestamp,
        params: &GateParams,
        permit: LimitPermit,
        sample: LimitSample,
    ) {
        self.limit.complete(now, &params.limit, permit, sample);
        self.hand_on(now, params);
    }

    /// A call has ended: its slot is free. It says nothing, or has said it
    /// ([`learn`](Self::learn)).
    pub fn release(&mut self, now: Timestamp, params: &GateParams, permit: LimitPermit) {
        self.limit.release(now, &params.limit, permit);
        self.hand_on(now, params);
    }

    /// What a call tells that goes on and keeps its slot: its answer has begun, or it was given up
    /// and is not known to have ended. Once for each permit.
    pub fn learn(
        &mut self,
        now: Timestamp,
        params: &GateParams,
        permit: &LimitPermit,
        sample: LimitSample,
    ) {
        self.limit.learn(now, &params.limit, permit, sample);
        self.hand_on(now, params);
    }

    /// The caller of a request in flight has left, so long after it entered: how long callers wait
    /// is learned from those who leave.
    pub fn on_left(&mut self, now: Timestamp, params: &GateParams, waited: Duration) {
        self.queue.on_left(now, waited);
        self.hand_on(now, params);
    }

    /// The next ticket decided (granted or rejected) and not told yet, in the order of decision.
    pub fn pop_woken(&mut self) -> Option<Ticket> {
        self.queue.pop_woken()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do. In the past if more waits
    /// ended than one operation does.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.next_deadline()
    }

    /// Ends waits whose time is up, and hands free slots on, which a reload may have made. Calls
    /// too many do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp, params: &GateParams) {
        self.queue.handle_timeout(now);
        self.hand_on(now, params);
    }

    /// Who waits: how many, of which priority, since when, whose, and what became of them.
    #[must_use]
    pub const fn queue(&self) -> &AdmissionQueue {
        &self.queue
    }

    /// What is in flight, and how many may be.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Slots that were given to somebody who waited and has not come for it.
    #[must_use]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Slots that are free.
    #[must_use]
    pub fn room(&self, params: &GateParams) -> u32 {
        self.limit.available(&params.limit).saturating_sub(self.granted)
    }

    /// Gives free slots to those who wait.
    fn hand_on(&mut self, now: Timestamp, params: &GateParams) {
        while self.queue.waiting() > 0 && self.room(params) > 0 {
            if self.queue.next(now, &params.admission).is_none() {
                // All that it looked at had expired. Theirs is the next deadline, and it is past.
                return;
            }
            self.granted += 1;
        }
    }

    /// A granted slot is taken up, or free again.
    fn give_up_grant(&mut self) {
        debug_assert!(self.granted > 0, "a granted ticket is counted until it is used up");
        self.granted = self.granted.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
