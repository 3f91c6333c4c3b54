//! The tenants that have something waiting, found by number, and the largest of them.
//!
//! A flow is one tenant within one class. It exists while it has something waiting, so there are
//! never more flows than waiting requests, however many tenants somebody invents. The table is a
//! linear hash: each new flow splits at most one bucket, and it is never rebuilt as a whole.

use alloc::vec::Vec;

use super::backlog::Backlog;
use super::rounds::Turn;
use super::slab::{Linked, Links, List, NONE, Slab};
use super::waiting::Waiter;

/// Which of an entry's lists the one of its flow is.
pub(super) const FLOW: usize = 0;
/// Which of a flow's lists the one of its size is.
const SIZE: usize = 1;

/// One tenant within one class, while it has something waiting.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) tenant: u64,
    pub(super) class: usize,
    pub(super) weight: u32,
    /// Oldest first.
    pub(super) entries: List<FLOW>,
    /// What its entries cost together.
    pub(super) cost: u64,
    pub(super) backlog: Backlog,
    pub(super) turn: Turn,
    pub(super) in_size: Links,
    pub(super) size: usize,
    /// The next flow of its bucket.
    chain: u32,
}

impl Flow {
    pub(super) fn new(tenant: u64, class: usize, weight: u32, backlog: Backlog) -> Self {
        Self {
            tenant,
            class,
            weight,
            entries: List::EMPTY,
            cost: 0,
            backlog,
            turn: Turn { links: Links::NONE, round: 0, since: 0, left: 0 },
            in_size: Links::NONE,
            size: 0,
            chain: NONE,
        }
    }

    /// The one of its entries that is next.
    pub(super) fn head(&self, newest_first: bool) -> Option<u32> {
        if newest_first { self.entries.last() } else { self.entries.first() }
    }

    /// The one that would be next as the last of all.
    pub(super) fn tail(&self, newest_first: bool) -> Option<u32> {
        self.head(!newest_first)
    }
}

impl Linked<SIZE> for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.in_size
    }
}

impl Linked<FLOW> for Waiter {
    fn links(&mut self) -> &mut Links {
        &mut self.in_flow
    }
}

/// Flows by tenant and class.
#[derive(Debug)]
pub(super) struct Table {
    /// The first flow of each bucket.
    buckets: Vec<u32>,
    flows: usize,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self { buckets: Vec::new(), flows: 0 }
    }

    pub(super) fn find(&self, flows: &Slab<Flow>, tenant: u64, class: usize) -> Option<u32> {
        let mut id = *self.buckets.get(self.bucket(tenant, class))?;
        while id != NONE {
            let flow = &flows[id];
            if flow.tenant == tenant && flow.class == class {
                return Some(id);
            }
            id = flow.chain;
        }
        None
    }

    pub(super) fn insert(&mut self, flows: &mut Slab<Flow>, id: u32) {
        if self.flows >= self.buckets.len() {
            self.split(flows);
        }
        self.flows += 1;
        self.link(flows, id);
    }

    pub(super) fn remove(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let bucket = self.bucket(flows[id].tenant, flows[id].class);
        let after = flows[id].chain;
        self.flows -= 1;
        let mut at = self.buckets[bucket];
        if at == id {
            self.buckets[bucket] = after;
            return;
        }
        while at != NONE {
            if flows[at].chain == id {
                flows[at].chain = after;
                return;
            }
            at = flows[at].chain;
        }
    }

    fn link(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let bucket = self.bucket(flows[id].tenant, flows[id].class);
        flows[id].chain = core::mem::replace(&mut self.buckets[bucket], id);
    }

    /// One bucket more: it takes its part of the one that is next to be split.
    fn split(&mut self, flows: &mut Slab<Flow>) {
        let new = self.buckets.len();
        self.buckets.push(NONE);
        let Some(floor) = new.checked_ilog2() else { return };
        let mut id = core::mem::replace(&mut self.buckets[new - (1 << floor)], NONE);
        while id != NONE {
            let after = flows[id].chain;
            self.link(flows, id);
            id = after;
        }
    }

    fn bucket(&self, tenant: u64, class: usize) -> usize {
        let hash = (tenant ^ (class as u64) << 62).wrapping_mul(SPREAD);
        let hash = usize::try_from(hash >> 32).unwrap_or(0);
        let count = self.buckets.len().max(1);
        let mask = count.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < count { bucket } else { bucket & (mask >> 1) }
    }
}

/// The flows of a class by what they have waiting, in steps of an eighth to a quarter.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) lists: [List<SIZE>; STEPS],
    pub(super) filled: u128,
}

impl Sizes {
    pub(super) const fn new() -> Self {
        Self { lists: [List::EMPTY; STEPS], filled: 0 }
    }

    pub(super) fn join(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let size = step(flows[id].cost, flows[id].weight);
        flows[id].size = size;
        self.lists[size].push(flows, id);
        self.filled |= 1 << size;
    }

    pub(super) fn leave(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let size = flows[id].size;
        self.lists[size].unlink(flows, id);
        if self.lists[size].is_empty() {
            self.filled &= !(1 << size);
        }
    }

    /// After its cost has changed.
    pub(super) fn adjust(&mut self, flows: &mut Slab<Flow>, id: u32) {
        if step(flows[id].cost, flows[id].weight) != flows[id].size {
            self.leave(flows, id);
            self.join(flows, id);
        }
    }

    /// A flow of the highest step, and that step.
    pub(super) fn largest(&self) -> Option<(u32, usize)> {
        let step = u128::BITS.checked_sub(1 + self.filled.leading_zeros())? as usize;
        Some((self.lists[step].first()?, step))
    }
}

/// The step of so much, for each unit of weight: exact below eight, four to a doubling above.
pub(super) fn step(cost: u64, weight: u32) -> usize {
    let size = cost.div_ceil(u64::from(weight.max(1)));
    if size < 8 {
        return usize::try_from(size).unwrap_or(0);
    }
    let doublings = size.ilog2();
    let quarter = (size >> (doublings - 2)) & 3;
    let step = 8 + u64::from(doublings - 3) * 4 + quarter;
    usize::try_from(step).map_or(STEPS - 1, |step| step.min(STEPS - 1))
}

/// Up to 2²⁸ units, twice what the most entries of the highest cost come to.
const STEPS: usize = 112;
/// 2⁶⁴ / φ, odd: spreads numbers that differ in few bits. Source: own choice (Fibonacci hashing).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
