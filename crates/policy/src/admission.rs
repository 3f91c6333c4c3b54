//! Decides who waits in front of a limit, who is next, and who is told early that it will not be.
//!
//! When more comes than can be done, a queue decides what the work that is still done is worth.
//! First come, first served serves everybody when it is too late for everybody; a bound alone only
//! makes that shorter; one caller that sends twenty times its share takes all of it. This queue
//! serves those for whom it is still of use, by shares, and tells the others at once.
//!
//! - **Entered.** With a free slot and nobody waiting, a request is admitted. Otherwise it waits,
//!   unless its tenant is over its rate, something that matters more waits in a standing queue, it
//!   cannot start in time by the rate at which the queue is served, or the queue is full of what
//!   has a better right to be there.
//! - **Order.** Critical first; then the other priorities by weight (start-time fair queueing
//!   over three of them); tenants within a priority by deficit round robin on cost (`rounds`);
//!   within a tenant the oldest, and under a standing backlog the newest (`backlog`).
//! - **Shedding.** A backlog that stands is kept at twice the target by shedding its oldest;
//!   critical ones are exempt. Judged for each tenant with something waiting, and for each
//!   priority, where many tenants have one request each.
//! - **Expiry.** Who waited until its time is up is told then, wherever it stands (`timers`).
//! - **Full.** The largest consumer (cost by weight) of the lowest priority loses what it would be
//!   served last, and that may be what comes.
//! - **Rank.** Under overload whole tenants are refused, the same in every service of a chain
//!   (`level`), so that what is begun is finished.
//! - **Too late.** Decided on 20 starts younger than 30 s or not at all, and in doubt for the
//!   caller: others count only as far as they are sure to be served first. One a second enters
//!   regardless.
//!
//! It owns no limit: whoever does calls [`next`](AdmissionQueue::next) while a slot is free.
//! [`pop_woken`](AdmissionQueue::pop_woken) yields the tickets decided since it was last drained;
//! the edge wakes their owners, who [`claim`](AdmissionQueue::claim). A ticket has to be claimed
//! once it is decided, or cancelled: nothing else frees its place.
//!
//! Bounds: `queue` waiting, and with those decided and not claimed twice that; one flow for each
//! tenant that has something waiting. Every operation costs the same whatever the number of
//! tenants and of those that wait, and none ends more than [`WORK_MAX`] waits at once: what is left
//! is done by the next, and [`next_deadline`](AdmissionQueue::next_deadline) is in the past until
//! then. Memory is that of the highest use, taken in chunks, and is kept.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `queue` | 1,024 | 1 to 131,072 | seawall-design |
//! | `weights` | 64, 8, 1 | 1 to 1,000 | seawall-defaults |
//! | `target` | 500 ms, or a quarter of the patience | 1 ms to 10 s | seawall-defaults |
//! | `patience` | 25 s | 1 ms to 1 h | seawall-design |
//!
//! Known bad cases: a tenant's wait grows with the number of tenants that wait, by one turn each;
//! requests of very unequal cost within one tenant (the order is by age); whoever is trusted to
//! name tenants and names a new one for each request gets a turn for each.

mod backlog;
mod flows;
mod level;
mod params;
mod rounds;
mod served;
mod shedding;
mod slab;
mod terms;
mod timers;
mod top;
mod waiting;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::bulkhead::Ticket;
use crate::estimate::ScoutPass;
use crate::rate::KeyedRate;
use crate::time::Timestamp;

pub use level::tenant_rank;
pub use params::{AdmissionOptions, AdmissionParams};
pub use terms::{AdmissionCounters, Ask, Entered, Priority, Shed, ShedReason, Tenant, Turn};
pub use top::TopTenant;

use flows::{FLOW, Flow, Table};
use served::Served;
use slab::{List, Slab};
use timers::Timers;
use top::Top;
use waiting::{Class, Standing, Waiter};

/// The queue in front of one limit. See the module. About 7 KB, and what waits.
#[derive(Debug)]
pub struct AdmissionQueue {
    entries: Slab<Waiter>,
    flows: Slab<Flow>,
    table: Table,
    classes: [Class; CLASSES],
    timers: Timers,
    /// Decided and not told yet, in the order of decision.
    woken: List<FLOW>,
    waiting: u32,
    served: Served,
    scout: ScoutPass,
    top: Top,
    rate: Option<Box<KeyedRate>>,
    /// The running number of the next ticket.
    next_number: u64,
    /// The latest time seen; an earlier `now` is taken for this one.
    latest: Timestamp,
}

impl AdmissionQueue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            entries: Slab::new(),
            flows: Slab::new(),
            table: Table::new(),
            classes: core::array::from_fn(|_| Class::new()),
            timers: Timers::new(),
            woken: List::EMPTY,
            waiting: 0,
            served: Served::new(),
            scout: ScoutPass::new(),
            top: Top::new(),
            rate: None,
            next_number: 0,
            latest: Timestamp::ZERO,
        }
    }

    /// Asks to be started. `has_room`: whether there is a free slot; if somebody waits for one
    /// all the same, this one waits too.
    pub fn enter(
        &mut self,
        now: Timestamp,
        params: &AdmissionParams,
        ask: Ask,
        has_room: bool,
    ) -> Entered {
        let now = self.advance(now);
        self.served.come();
        let ask = ask.within_bounds();
        let class = ask.priority.class();
        let entered = self.take_rate(now, params, &ask).and_then(|()| {
            let until = ask.until.min(now.after(params.options().patience));
            let until = Timers::rounded_down(until);
            if until <= now {
                return Err(Shed::of(ShedReason::Expired));
            }
            if !self.is_ranked_in(now, &ask) {
                self.give_rate_back(params, &ask);
                return Err(Shed::of(ShedReason::Rank));
            }
            if has_room && self.waiting == 0 {
                if let Some(level) = &mut self.classes[class].level {
                    level.start(ask.cost, 0);
                }
                return Ok(Entered::Admitted);
            }
            let let_in = self.let_in(now, params, &ask, until);
            let_in.inspect_err(|_| self.give_rate_back(params, &ask))?;
            Ok(Entered::Queued(self.push(now, params, &ask, until), until))
        });
        let counters = &mut self.classes[class].counters;
        entered.map_or_else(
            |shed| {
                counters.shed[shed.reason as usize] += 1;
                Entered::Rejected(shed)
            },
            |entry| {
                counters.admitted += u64::from(entry == Entered::Admitted);
                entry
            },
        )
    }

    /// A slot is free: who takes it. Its ticket is among those that are woken, and the slot is its
    /// own until it is cancelled. `None` if nobody waits.
    pub fn next(&mut self, now: Timestamp, params: &AdmissionParams) -> Option<Ticket> {
        let now = self.advance(now);
        let mut work = WORK_MAX;
        loop {
            let class = self.class_in_turn()?;
            let flow = self.classes[class].rounds.first()?;
            if work > 0 && self.tidy(now, flow) {
                work -= 1;
                continue;
            }
            let head = self.flows[flow].head(self.newest_first(flow))?;
            if self.entries[head].until > now {
                return Some(self.grant(now, params, head));
            }
            if work == 0 {
                return None;
            }
            work -= 1;
            self.shed(head, ShedReason::Expired);
        }
    }

    /// Asks what became of a ticket; safe to repeat while it waits.
    pub fn claim(&mut self, now: Timestamp, ticket: Ticket) -> Turn {
        let now = self.clamp(now);
        let Some(id) = self.find(ticket) else {
            return Turn::Rejected(Shed::of(ShedReason::Expired));
        };
        if self.entries[id].standing == Standing::Waiting {
            if now < self.entries[id].until {
                return Turn::Waiting(self.entries[id].until);
            }
            self.shed(id, ShedReason::Expired);
        }
        match self.forget(id) {
            Err(reason) => Turn::Rejected(Shed::of(reason)),
            Ok(()) => Turn::Admitted,
        }
    }

    /// Gives a ticket up: its caller has left. True if it held a slot, which is free again. Without
    /// effect on a ticket that is used up.
    #[must_use = "a slot that was granted goes to the next"]
    pub fn cancel(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        let now = self.advance(now);
        let Some(id) = self.find(ticket) else { return false };
        if self.entries[id].standing == Standing::Waiting {
            let Waiter { since, flow, .. } = self.entries[id];
            self.classes[self.flows[flow].class].counters.cancelled += 1;
            self.served.leave(now, now.since(since));
            self.leave(id);
            self.free(id);
            return false;
        }
        self.forget(id).is_ok()
    }

    /// The caller of a request that was admitted has left, so long after it entered: how long
    /// callers wait is learned from those who leave, here and in the queue.
    pub fn on_left(&mut self, now: Timestamp, waited: Duration) {
        let now = self.advance(now);
        self.served.leave(now, waited);
    }

    /// The next ticket decided (granted or rejected) and not told yet, in the order of decision.
    pub fn pop_woken(&mut self) -> Option<Ticket> {
        let id = self.woken.first()?;
        self.woken.unlink(&mut self.entries, id);
        let waiter = &mut self.entries[id];
        if let Standing::Decided { is_told, .. } = &mut waiter.standing {
            *is_told = true;
        }
        Some(waiter.ticket)
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do: when the next wait ends,
    /// or before. In the past if more ended than one operation does.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    /// Ends waits whose time is up. Calls too many do nothing.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.advance(now);
    }

    /// Requests that wait.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Requests of one priority that wait.
    #[must_use]
    pub const fn waiting_of(&self, priority: Priority) -> u32 {
        self.classes[priority.class()].waiting
    }

    /// Requests that were decided and are not claimed.
    #[must_use]
    pub fn unclaimed(&self) -> usize {
        self.entries.len() - self.waiting as usize
    }

    /// Tenants that have something waiting, once for each priority.
    #[must_use]
    pub fn tenants(&self) -> usize {
        self.flows.len()
    }

    /// Since when the oldest waits.
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        let firsts = self.classes.iter().filter_map(|class| class.entries.first());
        firsts.map(|id| self.entries[id].since).min()
    }

    /// Whether requests of one priority wait in a queue that stands.
    #[must_use]
    pub const fn stands(&self, priority: Priority) -> bool {
        self.classes[priority.class()].backlog.stands()
    }

    /// Who filled the queue lately, the largest part first; at most 32.
    #[must_use]
    pub fn top(&self) -> Vec<TopTenant> {
        self.top.list()
    }

    /// How long it would take to start everything that waits, by the rate at which the queue is
    /// served; `None` if that is not known.
    #[must_use]
    pub fn backlog_time(&self) -> Option<Duration> {
        self.served.time_for(self.classes.iter().map(|class| class.cost).sum())
    }

    /// What became of the requests of one priority.
    #[must_use]
    pub const fn counters(&self, priority: Priority) -> &AdmissionCounters {
        &self.classes[priority.class()].counters
    }

    /// An earlier `now` is the latest.
    fn clamp(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }
}

impl Default for AdmissionQueue {
    fn default() -> Self {
        Self::new()
    }
}

const CLASSES: usize = Priority::ALL.len();
/// Entries that one operation decides or moves at most beside its own. Source: seawall-design (a
/// tenth of a millisecond).
const WORK_MAX: u32 = 512;

#[cfg(test)]
mod tests;
