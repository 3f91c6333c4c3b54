//! Decides whether one more call may be in flight to a dependency, and which waiting call is next.
//!
//! A dependency that hangs takes every thread, connection and buffer that its callers have, and
//! with them the calls to every other dependency. A bulkhead bounds what it can take. Inside it,
//! each lane (a route) may have a smaller limit of its own, so that one slow route cannot take the
//! whole bulkhead from the others. Both levels share one queue and one wait: a call waits once, for
//! both, and no second queue hides behind the first.
//!
//! - **Admission.** A call is admitted while `in_flight < limit` and its lane's in flight is below
//!   `lane_limit`. Otherwise it waits until `min(until, now + wait)`; with `queue` calls waiting
//!   already, or no time to wait, it is rejected.
//! - **Order.** A freed slot goes to the oldest waiter whose lane has room; within a lane that is
//!   first in, first out, and a newcomer never overtakes. A waiter whose time is up gets nothing,
//!   even if a slot comes free in the same moment.
//! - **Being told.** [`Bulkhead::pop_woken`] yields the tickets decided since it was last drained;
//!   the edge wakes their owners, who [`claim`](Bulkhead::claim). A granted slot is in flight from
//!   the grant on, for as long as it takes: an edge that lets go of a call has to
//!   [`cancel`](Bulkhead::cancel) its ticket, nothing else gives the slot on.
//! - **Streams.** A call that goes on long after its response head moves to a separate count
//!   ([`Bulkhead::to_stream`]) and frees its slot.
//!
//! Bounds: `limit` in flight (more only after the limit was lowered, and then nobody is admitted),
//! `queue` waiting, as many again waited in vain and not yet told (beyond that a call that would
//! wait is rejected), `max_streams` streams, and one lane for each number up to the highest used.
//! Every operation is O(log n), or O(lanes) after `lane_limit` has changed; memory is that of the
//! highest use so far and is kept, so a warm bulkhead allocates nothing.
//!
//! Known bad cases: calls of very unequal cost share one count. A limit far above what the
//! dependency can take bounds memory, not latency. Lanes are no shares: `lane_limit` caps a lane
//! and reserves nothing for the others.

mod heap;
mod params;
mod slots;
#[cfg(test)]
mod tests;
mod waiters;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::time::Timestamp;

pub use params::{BulkheadOptions, BulkheadParams};
pub use slots::Ticket;

use heap::KeyedHeap;
use waiters::{Line, Standing, Waiters};

/// The answer of a mechanism that may let a call wait.
#[must_use = "an admitted call holds a permit, a queued one a place"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<P> {
    /// Go; the permit goes back at the call's end.
    Admitted(P),
    /// Wait to be woken, at the latest until this time.
    Queued(Ticket, Timestamp),
    /// No room, and no waiting.
    Rejected,
}

/// What became of a ticket.
#[must_use = "an admitted claim holds a slot"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Go; the slot goes back at the call's end. The ticket is used up.
    Admitted,
    /// Not decided yet, at the latest at this time.
    Waiting(Timestamp),
    /// Its time is up, or it was claimed or cancelled before. The ticket is used up.
    Expired,
}

/// One dependency's slots: the limit over all lanes, and each lane's own.
#[derive(Debug)]
pub struct Bulkhead {
    lanes: Vec<Lane>,
    /// The sum over all lanes; slots granted and not claimed are in it.
    in_flight: u32,
    streams: u32,
    /// Made for the first call that waits.
    queue: Option<Box<Queue>>,
    /// A limit that moves within that of the knobs.
    within: u32,
    /// The lane limit that `ready` was made with.
    lane_limit: u32,
    /// The latest time seen; an earlier `now` is taken for this one.
    latest: Timestamp,
}

#[derive(Debug)]
struct Queue {
    waiters: Waiters,
    /// Lanes that have a waiter and room of their own, by their first waiter.
    ready: KeyedHeap<Ticket>,
}

impl Queue {
    fn new() -> Box<Self> {
        Box::new(Self { waiters: Waiters::new(), ready: KeyedHeap::new() })
    }

    /// Puts a lane among those a slot may go to, or takes it out.
    fn update_ready(&mut self, index: usize, lane: &Lane, limit: u32) {
        match lane.line.first() {
            Some(first) if lane.in_flight < limit => self.ready.set(index, first),
            Some(_) | None => self.ready.remove(index),
        }
    }
}

#[derive(Debug, Default)]
struct Lane {
    in_flight: u32,
    /// Of those, granted and not claimed: no release frees them. At most `in_flight`.
    unclaimed: u32,
    line: Line,
}

impl Bulkhead {
    /// An empty bulkhead with lanes `0..lanes`; a higher number used later adds its lane.
    #[must_use]
    pub fn new(lanes: usize) -> Self {
        let mut bulkhead = Self {
            lanes: Vec::new(),
            in_flight: 0,
            streams: 0,
            queue: None,
            within: u32::MAX,
            lane_limit: u32::MAX,
            latest: Timestamp::ZERO,
        };
        bulkhead.lanes.resize_with(lanes, Lane::default);
        bulkhead
    }

    /// Asks for a slot in `lane`; `until` is the call's own deadline.
    pub fn try_acquire(
        &mut self,
        now: Timestamp,
        params: &BulkheadParams,
        lane: usize,
        until: Timestamp,
    ) -> Admission<()> {
        self.handle_timeout(now, params);
        let now = self.latest;
        if lane >= self.lanes.len() {
            self.lanes.reserve_exact(lane + 1 - self.lanes.len());
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        if self.in_flight < self.limit(params) && self.lanes[lane].in_flight < self.lane_limit {
            self.take(lane);
            return Admission::Admitted(());
        }
        let options = params.options();
        let until = until.min(now.after(options.wait));
        let undrained = self.waiting() + self.expired();
        let is_full = self.waiting() >= options.queue || undrained >= 2 * options.queue;
        if until <= now || is_full {
            return Admission::Rejected;
        }
        let queue = self.queue.get_or_insert_with(Queue::new);
        let ticket = queue.waiters.push(&mut self.lanes[lane].line, lane, now, until);
        self.update_ready(lane);
        Admission::Queued(ticket, until)
    }

    /// Asks what became of a ticket; safe to repeat while it waits.
    pub fn claim(&mut self, now: Timestamp, ticket: Ticket) -> Claim {
        let now = self.clamp(now);
        let Some(queue) = &mut self.queue else { return Claim::Expired };
        let Some((standing, lane, _, until)) = queue.waiters.find(ticket) else {
            return Claim::Expired;
        };
        match standing {
            Standing::Waiting if now < until => Claim::Waiting(until),
            Standing::Waiting => {
                queue.waiters.drop_waiting(&mut self.lanes[lane].line, ticket);
                self.update_ready(lane);
                Claim::Expired
            }
            Standing::Granted { .. } => {
                queue.waiters.drop_decided(ticket);
                self.lanes[lane].unclaimed -= 1;
                Claim::Admitted
            }
            Standing::Expired => {
                queue.waiters.drop_decided(ticket);
                Claim::Expired
            }
        }
    }

    /// Gives a ticket up: a waiter leaves, a granted slot goes to the next. Without effect on a
    /// ticket that is used up.
    pub fn cancel(&mut self, now: Timestamp, params: &BulkheadParams, ticket: Ticket) {
        self.clamp(now);
        let Some(queue) = &mut self.queue else { return };
        let Some((standing, lane, ..)) = queue.waiters.find(ticket) else { return };
        match standing {
            Standing::Waiting => {
                queue.waiters.drop_waiting(&mut self.lanes[lane].line, ticket);
                self.update_ready(lane);
            }
            Standing::Granted { .. } => {
                queue.waiters.drop_decided(ticket);
                self.lanes[lane].unclaimed -= 1;
                self.give_back(lane);
            }
            Standing::Expired => queue.waiters.drop_decided(ticket),
        }
        self.handle_timeout(now, params);
    }

    /// An admitted call in `lane` has ended; one whose caller left ends when it no longer runs.
    /// Without effect if there is none: slots granted and not claimed are not its to free.
    pub fn release(&mut self, now: Timestamp, params: &BulkheadParams, lane: usize) {
        if self.has_call(lane) {
            self.give_back(lane);
        }
        self.handle_timeout(now, params);
    }

    /// Moves an admitted call to the count of streams and frees its slot; false, and nothing
    /// changed, if `max_streams` is reached or no admitted call is in flight in `lane`.
    pub fn to_stream(&mut self, now: Timestamp, params: &BulkheadParams, lane: usize) -> bool {
        if self.streams >= params.options().max_streams || !self.has_call(lane) {
            return false;
        }
        self.streams += 1;
        self.release(now, params, lane);
        true
    }

    /// A stream has ended.
    pub const fn release_stream(&mut self) {
        self.streams = self.streams.saturating_sub(1);
    }

    /// When the next wait ends by itself.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.next_due().map(|(until, _)| until)
    }

    /// Ends waits whose time is up, then grants what is free: also what a higher limit has freed.
    pub fn handle_timeout(&mut self, now: Timestamp, params: &BulkheadParams) {
        let now = self.clamp(now);
        if self.lane_limit != params.lane_limit() {
            self.lane_limit = params.lane_limit();
            (0..self.lanes.len()).for_each(|lane| self.update_ready(lane));
        }
        while let Some((_, ticket)) = self.next_due().filter(|due| due.0 <= now) {
            self.decide(ticket, Standing::Expired);
        }
        while self.in_flight < self.limit(params)
            && let Some(ticket) = self.queue.as_ref().and_then(|queue| queue.ready.least())
        {
            self.decide(ticket, Standing::Granted { is_told: false });
        }
    }

    /// The next ticket decided (granted or expired) and not told yet, in the order of decision.
    pub fn pop_woken(&mut self) -> Option<Ticket> {
        self.queue.as_mut()?.waiters.pop_woken()
    }

    /// Grants no more than this from now on, if the knobs' limit is not lower; what more is in
    /// flight goes on. Who waits is granted what a higher one frees by the next call.
    pub const fn stay_within(&mut self, limit: u32) {
        self.within = limit;
    }

    /// Calls that may be in flight now.
    #[must_use]
    pub fn limit(&self, params: &BulkheadParams) -> u32 {
        params.limit().min(self.within)
    }

    /// Slots taken: calls, and granted slots not claimed yet.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Slots taken in `lane`.
    #[must_use]
    pub fn in_flight_of(&self, lane: usize) -> u32 {
        self.lanes.get(lane).map_or(0, |lane| lane.in_flight)
    }

    /// Whether anything in `lane` is in flight or waits.
    #[must_use]
    pub fn uses(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.in_flight > 0 || lane.line.first().is_some())
    }

    /// Calls that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.waiters.waiting())
    }

    /// Since when the oldest waiter waits; looks at every lane.
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        let first = self.lanes.iter().filter_map(|lane| lane.line.first()).min()?;
        self.queue.as_ref()?.waiters.find(first).map(|(_, _, since, _)| since)
    }

    /// Calls that moved to the count of streams.
    #[must_use]
    pub const fn streams(&self) -> u32 {
        self.streams
    }

    /// Calls that have waited in vain and were not told yet.
    fn expired(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.waiters.expired())
    }

    /// The earliest end of a wait, and whose.
    fn next_due(&self) -> Option<(Timestamp, Ticket)> {
        self.queue.as_ref()?.waiters.next_deadline()
    }

    /// Ends a wait, by a grant or in vain.
    fn decide(&mut self, ticket: Ticket, to: Standing) {
        let Some(queue) = &mut self.queue else { return };
        let Some((_, lane, ..)) = queue.waiters.find(ticket) else { return };
        queue.waiters.decide(&mut self.lanes[lane].line, ticket, to);
        if to == Standing::Expired {
            self.update_ready(lane);
        } else {
            self.lanes[lane].unclaimed += 1;
            self.take(lane);
        }
    }

    /// Whether an admitted call is in flight in `lane`.
    fn has_call(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.in_flight > lane.unclaimed)
    }

    fn take(&mut self, lane: usize) {
        self.in_flight += 1;
        self.lanes[lane].in_flight += 1;
        self.update_ready(lane);
    }

    fn give_back(&mut self, lane: usize) {
        self.in_flight -= 1;
        self.lanes[lane].in_flight -= 1;
        self.update_ready(lane);
    }

    #[inline]
    fn update_ready(&mut self, lane: usize) {
        if let Some(queue) = &mut self.queue {
            queue.update_ready(lane, &self.lanes[lane], self.lane_limit);
        }
    }

    /// Takes an earlier `now` for the latest one seen.
    fn clamp(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }
}
