//! How requests come in, leave, and make room: the queue's lists, changed together.

use super::backlog::Backlog;
use super::flows::{Flow, step};
use super::level::Level;
use super::params::AdmissionParams;
use super::slab::Links;
use super::terms::{Ask, Priority, Shed, ShedReason};
use super::waiting::{Standing, Waiter};
use super::{AdmissionQueue, CLASSES, WORK_MAX};
use crate::bulkhead::Ticket;
use crate::rate::KeyedRate;
use crate::time::{Timestamp, nanos};
use alloc::boxed::Box;

impl AdmissionQueue {
    /// Time has passed: judges the intervals that are over and ends the waits whose time is up.
    pub(super) fn advance(&mut self, now: Timestamp) -> Timestamp {
        let now = self.clamp(now);
        self.served.advance(now, self.waiting > 0);
        for class in 0..CLASSES {
            if self.classes[class].backlog.is_over(now) {
                let oldest = self.classes[class].entries.first();
                let strain = oldest.map(|id| self.strain(now, id));
                let it = &mut self.classes[class];
                it.backlog.roll(now, strain, true);
                it.drains = it.cost_before.iter().any(|before| it.cost < *before);
                it.cost_before = [it.cost, it.cost_before[0]];
            }
        }
        let mut work = WORK_MAX;
        while work > 0
            && let Some(id) = self.timers.due(&mut self.entries, now, &mut work)
        {
            work = work.saturating_sub(1);
            self.shed(id, ShedReason::Expired);
        }
        now
    }

    /// Whether the level of its class lets its rank in. Critical requests have no level.
    pub(super) fn is_ranked_in(&mut self, now: Timestamp, ask: &Ask) -> bool {
        let class = &mut self.classes[ask.priority.class()];
        if class.level.is_none() && (ask.rank == 0 || ask.priority == Priority::Critical) {
            return true;
        }
        let level = class.level.get_or_insert_with(|| Box::new(Level::new(now)));
        level.lets_in(now, ask.rank, ask.cost)
    }

    /// Whether one more may wait, after room was made for it if need be.
    pub(super) fn let_in(
        &mut self,
        now: Timestamp,
        params: &AdmissionParams,
        ask: &Ask,
        until: Timestamp,
    ) -> Result<(), Shed> {
        let class = ask.priority.class();
        if self.classes[..class].iter().any(|above| above.backlog.stands()) {
            return Err(Shed::of(ShedReason::Closed));
        }
        let flow = self.table.find(&self.flows, ask.tenant.0, class);
        if self.cannot_start(now, flow, class, until) && !self.scout.try_take(now) {
            return Err(Shed::of(ShedReason::TooLate));
        }
        let queue = params.options().queue;
        let undrained = self.entries.len() >= 2 * queue as usize;
        if undrained || (self.waiting >= queue && !self.make_room(ask, flow)) {
            return Err(Shed::of(ShedReason::Full));
        }
        Ok(())
    }

    /// Lets one wait.
    pub(super) fn push(
        &mut self,
        now: Timestamp,
        params: &AdmissionParams,
        ask: &Ask,
        until: Timestamp,
    ) -> Ticket {
        let class = ask.priority.class();
        let known = self.table.find(&self.flows, ask.tenant.0, class);
        let flow = known.unwrap_or_else(|| {
            let mut backlog = Backlog::new(now);
            backlog.observe(now, 0);
            let id = self.flows.insert(Flow::new(ask.tenant.0, class, ask.weight, backlog));
            self.table.insert(&mut self.flows, id);
            id
        });
        let patience = now.until(until);
        let patience = self.served.learned(now).map_or(patience, |learned| patience.min(learned));
        let id = self.entries.insert(Waiter {
            ticket: Ticket::new(0, 0),
            standing: Standing::Waiting,
            flow,
            cost: ask.cost,
            since: now,
            until,
            target: params.target(patience),
            timer: 0,
            in_flow: Links::NONE,
            in_class: Links::NONE,
            in_timer: Links::NONE,
        });
        let ticket = Ticket::new(self.next_number, id.into());
        self.next_number = self.next_number.wrapping_add(1);
        self.entries[id].ticket = ticket;
        self.waiting += 1;
        self.timers.insert(&mut self.entries, id);
        self.top.add(now, ask.tenant.0, ask.cost);
        let it = &mut self.classes[class];
        if it.waiting == 0 {
            // Empty until now: what waits from here on has left nobody standing.
            it.backlog.observe(now, 0);
        }
        it.entries.push(&mut self.entries, id);
        it.waiting += 1;
        it.cost += u64::from(ask.cost);
        it.counters.queued += 1;
        self.flows[flow].entries.push(&mut self.entries, id);
        self.flows[flow].cost += u64::from(ask.cost);
        self.classes[class].weights += u64::from(ask.weight);
        if known.is_none() {
            self.classes[class].rounds.join(&mut self.flows, flow, ask.cost);
            self.classes[class].sizes.join(&mut self.flows, flow);
            return ticket;
        }
        // The last weight that was said counts.
        let before = core::mem::replace(&mut self.flows[flow].weight, ask.weight);
        self.classes[class].weights -= u64::from(before);
        self.settle(flow);
        for _ in 0..SHED_AT_ENTRY {
            if !self.tidy(now, flow) {
                break;
            }
        }
        ticket
    }

    /// The class whose turn it is.
    pub(super) fn class_in_turn(&self) -> Option<usize> {
        if self.classes[0].waiting > 0 {
            return Some(0);
        }
        let waits = (1..CLASSES).filter(|&class| self.classes[class].waiting > 0);
        waits.min_by_key(|&class| self.classes[class].tag)
    }

    /// Whether the newest of a flow goes first.
    pub(super) fn newest_first(&self, flow: u32) -> bool {
        let flow = &self.flows[flow];
        flow.backlog.stands() || self.classes[flow.class].backlog.stands()
    }

    /// One step towards a flow that is as it should be when its turn comes; false if it is.
    pub(super) fn tidy(&mut self, now: Timestamp, flow: u32) -> bool {
        let class = self.flows[flow].class;
        let Some(first) = self.flows[flow].entries.first() else { return false };
        let strain = self.strain(now, first);
        let it = &mut self.flows[flow];
        if it.backlog.is_over(now) {
            it.backlog.roll(now, Some(strain), !self.classes[class].drains);
        }
        // Critical ones are shed by nothing but their time.
        if class > 0 {
            let is_alone = it.entries.last() == Some(first);
            if it.backlog.sheds(strain) && !is_alone {
                self.shed(first, ShedReason::Standing);
                return true;
            }
            let all = &self.classes[class];
            if let Some(oldest) = all.entries.first()
                && all.waiting > 1
                && all.backlog.sheds(self.strain(now, oldest))
            {
                self.shed(oldest, ShedReason::Standing);
                return true;
            }
        }
        self.settle(flow)
    }

    /// Gives a slot to one that waits.
    pub(super) fn grant(&mut self, now: Timestamp, params: &AdmissionParams, id: u32) -> Ticket {
        let Waiter { flow, cost, ticket, .. } = self.entries[id];
        let class = self.flows[flow].class;
        if let Some(first) = self.flows[flow].entries.first() {
            let strain = self.strain(now, first);
            self.flows[flow].backlog.observe(now, strain);
            self.classes[class].backlog.observe(now, strain);
        }
        let strain = self.strain(now, id);
        if let Some(level) = &mut self.classes[class].level {
            level.start(cost, strain);
        }
        self.served.start(cost);
        self.classes[class].counters.granted += 1;
        self.classes[class].rounds.pay(&mut self.flows, flow, cost);
        self.pay_for_class(class, params.weight(class), cost);
        self.leave(id);
        self.decide(id, Ok(()));
        ticket
    }

    /// Ends a wait in vain.
    pub(super) fn shed(&mut self, id: u32, reason: ShedReason) {
        let class = self.flows[self.entries[id].flow].class;
        self.classes[class].counters.shed[reason as usize] += 1;
        self.leave(id);
        self.decide(id, Err(reason));
    }

    /// Takes a waiting one out of all its lists.
    pub(super) fn leave(&mut self, id: u32) {
        let Waiter { flow, cost, .. } = self.entries[id];
        self.timers.remove(&mut self.entries, id);
        self.waiting -= 1;
        let it = &mut self.flows[flow];
        it.entries.unlink(&mut self.entries, id);
        it.cost -= u64::from(cost);
        let (class, weight, is_empty) = (it.class, it.weight, it.entries.is_empty());
        let all = &mut self.classes[class];
        all.entries.unlink(&mut self.entries, id);
        all.waiting -= 1;
        all.cost -= u64::from(cost);
        if !is_empty {
            self.settle(flow);
            return;
        }
        all.weights -= u64::from(weight);
        all.rounds.leave(&mut self.flows, flow);
        all.sizes.leave(&mut self.flows, flow);
        if all.waiting == 0 {
            all.backlog.observe(self.latest, 0);
        }
        self.table.remove(&mut self.flows, flow);
        self.flows.remove(flow);
    }

    /// The place of one that was decided, for another; what was decided.
    pub(super) fn forget(&mut self, id: u32) -> Result<(), ShedReason> {
        let Standing::Decided { to, is_told } = self.entries[id].standing else {
            return Err(ShedReason::Expired);
        };
        if !is_told {
            self.woken.unlink(&mut self.entries, id);
        }
        self.free(id);
        to
    }

    pub(super) fn free(&mut self, id: u32) {
        self.entries[id].standing = Standing::Gone;
        self.entries.remove(id);
    }

    /// Where a ticket is that is not used up.
    pub(super) fn find(&self, ticket: Ticket) -> Option<u32> {
        let id = u32::try_from(ticket.place()).ok()?;
        let waiter = self.entries.get(id)?;
        (waiter.ticket == ticket && waiter.standing != Standing::Gone).then_some(id)
    }

    /// Takes what it costs from its tenant's rate.
    pub(super) fn take_rate(
        &mut self,
        now: Timestamp,
        params: &AdmissionParams,
        ask: &Ask,
    ) -> Result<(), Shed> {
        let Some(rate) = params.tenant_rate() else { return Ok(()) };
        let state = self.rate.get_or_insert_with(|| Box::new(KeyedRate::new(rate)));
        state.try_acquire(now, rate, ask.tenant.rate_key(), ask.cost).map_err(|exceeded| Shed {
            reason: ShedReason::OverRate,
            retry_after: exceeded.retry_after,
        })
    }

    pub(super) fn give_rate_back(&mut self, params: &AdmissionParams, ask: &Ask) {
        if let (Some(rate), Some(state)) = (params.tenant_rate(), &mut self.rate) {
            state.give_back(rate, ask.tenant.rate_key(), ask.cost);
        }
    }

    /// A flow's place in the order and among the sizes, after something of it has changed; whether
    /// its turn has.
    fn settle(&mut self, flow: u32) -> bool {
        let newest_first = self.newest_first(flow);
        let it = &self.flows[flow];
        let Some(head) = it.head(newest_first) else { return false };
        let class = &mut self.classes[it.class];
        class.sizes.adjust(&mut self.flows, flow);
        class.rounds.adjust(&mut self.flows, flow, self.entries[head].cost)
    }

    fn decide(&mut self, id: u32, to: Result<(), ShedReason>) {
        self.entries[id].standing = Standing::Decided { to, is_told: false };
        self.woken.push(&mut self.entries, id);
    }

    /// The wait so far, in thousandths of the target.
    fn strain(&self, now: Timestamp, id: u32) -> u32 {
        let Waiter { since, target, .. } = self.entries[id];
        let strain = nanos(now.since(since)).saturating_mul(1_000) / target;
        u32::try_from(strain).unwrap_or(u32::MAX).min(u32::MAX - 1)
    }

    /// By start tags over those that wait; they count from the one that is served.
    fn pay_for_class(&mut self, class: usize, weight: u32, cost: u32) {
        if class == 0 {
            return;
        }
        let start = self.classes[class].tag;
        for other in &mut self.classes[1..] {
            other.tag = other.tag.saturating_sub(start);
        }
        self.classes[class].tag = u64::from(cost) * UNIT / u64::from(weight);
    }

    /// Whether one that comes now would start after its time at the earliest, as far as is known.
    fn cannot_start(
        &self,
        now: Timestamp,
        flow: Option<u32>,
        class: usize,
        until: Timestamp,
    ) -> bool {
        // Alone in its flow, or the next of it, it starts within a round.
        let Some(flow) = flow.filter(|&flow| !self.newest_first(flow)) else { return false };
        let it = &self.flows[flow];
        let all = &self.classes[class];
        // Each of the other tenants gets its share meanwhile, but not more than it has waiting.
        let shared = it.cost.saturating_mul(all.weights) / u64::from(it.weight);
        let mut ahead = shared.min(all.cost);
        if class > 0 {
            ahead += self.classes[0].cost;
        }
        self.served.time_for(ahead).is_some_and(|time| now.after(time) > until)
    }

    /// Makes room for one more, if somebody has less right to be there.
    fn make_room(&mut self, ask: &Ask, own: Option<u32>) -> bool {
        let class = ask.priority.class();
        let Some(lowest) = (0..CLASSES).rev().find(|&it| self.classes[it].waiting > 0) else {
            return true;
        };
        if lowest < class {
            return false;
        }
        let Some((largest, most)) = self.classes[lowest].sizes.largest() else { return false };
        let mut victim = largest;
        if lowest == class {
            let has = own.map_or(0, |own| self.flows[own].cost);
            if step(has + u64::from(ask.cost), ask.weight) >= most {
                // It is the largest itself, or would be. What it would be served last is what
                // comes, unless the newest goes first.
                let Some(own) = own.filter(|&own| self.newest_first(own)) else { return false };
                victim = own;
            }
        }
        let newest_first = self.newest_first(victim);
        let Some(tail) = self.flows[victim].tail(newest_first) else { return false };
        self.shed(tail, ShedReason::Evicted);
        true
    }
}

/// Entries that one that comes has shed of a queue that stands, so that shedding keeps up.
/// Source: own choice (one would do).
const SHED_AT_ENTRY: u32 = 4;
/// A tag's unit, so that shares of small costs are not rounded away. Source: own choice.
const UNIT: u64 = 1 << 16;
