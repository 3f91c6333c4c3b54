//! The policy's admission queue before a server's workers, asked for the next whenever one is free.
//!
//! Decides nothing: it keeps the jobs that the queue's tickets stand for.

use std::collections::BTreeMap;

use seawall_policy::{
    AdmissionParams, AdmissionQueue, Ask, Entered, Priority, Tenant, Ticket, Timestamp, Turn,
};

use super::{Arrived, Coming, Next};

/// What the jobs of a server are to its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Fair {
    /// The queue's knobs.
    pub params: AdmissionParams,
    /// Callers by number are so many tenants in turn; from 1.
    pub tenants: u32,
    /// What is known of each tenant, by its number; of the rest nothing.
    pub kinds: Vec<TenantKind>,
}

/// What is known of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantKind {
    /// How much its jobs matter.
    pub priority: Priority,
    /// Its part beside others.
    pub weight: u32,
    /// What each of its jobs costs.
    pub cost: u32,
    /// Where it stands over a whole chain of calls; 0: nowhere.
    pub rank: u16,
}

impl TenantKind {
    /// Default priority, weight and cost 1.
    pub const STANDARD: Self = Self { priority: Priority::Default, weight: 1, cost: 1, rank: 0 };
}

#[derive(Debug)]
pub(super) struct Line<J> {
    queue: AdmissionQueue,
    how: Fair,
    waiting: BTreeMap<Ticket, J>,
}

impl<J> Line<J> {
    pub(super) fn new(how: Fair) -> Self {
        Self { queue: AdmissionQueue::new(), how, waiting: BTreeMap::new() }
    }

    pub(super) fn arrive(
        &mut self,
        now: Timestamp,
        coming: Coming<J>,
        has_room: bool,
    ) -> Arrived<J> {
        let tenant = coming.lane % self.how.tenants;
        let TenantKind { priority, weight, cost, rank } =
            self.how.kinds.get(tenant as usize).copied().unwrap_or(TenantKind::STANDARD);
        let tenant = Tenant::from_hash(u64::from(tenant) + 1);
        let ask = Ask { priority, tenant, weight, cost, rank, until: coming.until };
        match self.queue.enter(now, &self.how.params, ask, has_room) {
            Entered::Admitted => Arrived::Begun(coming.job),
            Entered::Queued(ticket, until) => {
                self.waiting.insert(ticket, coming.job);
                Arrived::Queued(until)
            }
            Entered::Rejected(_) => Arrived::Refused(coming.job),
        }
    }

    pub(super) fn next(&mut self, now: Timestamp, has_room: bool) -> Option<Next<J>> {
        self.queue.handle_timeout(now);
        // Who is told first was decided first; what room there is goes to one at a time.
        let ticket = match self.queue.pop_woken() {
            Some(ticket) => ticket,
            None if has_room => {
                let _ = self.queue.next(now, &self.how.params);
                self.queue.pop_woken()?
            }
            None => return None,
        };
        let turn = self.queue.claim(now, ticket);
        let job = self.waiting.remove(&ticket)?;
        Some(match turn {
            Turn::Admitted => Next::Begun(job),
            Turn::Waiting(_) | Turn::Rejected(_) => Next::Dropped(job),
        })
    }

    pub(super) fn clear(&mut self) -> Vec<J> {
        self.queue = AdmissionQueue::new();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    pub(super) fn queued(&self) -> usize {
        self.waiting.len()
    }
}
