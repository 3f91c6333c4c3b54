//! Whose turn it is among the tenants of a class: deficit round robin over a calendar of rounds.
//!
//! Each round gives a tenant `weight` units, and a tenant's turn comes in the round in which it
//! can pay what its next request costs. Which round that is follows from cost, weight and what is
//! left over, so it is put there at once: no round is walked through for one that cannot pay, and
//! a request a thousand times as dear costs no more to order.
//!
//! ```text
//! turn      = since + ⌈(cost − left over) / weight⌉       since: the round of the last turn
//! left over = left over + rounds waited · weight − cost   below one round's units, or it stays on
//! ```
//!
//! Paying comes first, so a tenant that is empty owes nothing and is remembered by nobody: who
//! leaves and comes back gains nothing. A newcomer goes to the end of the next round, behind all
//! that wait in this one: a tenant waits at most for one turn of each other one, and whoever
//! invents a tenant for every request cannot overtake those who wait. Start-time fair queueing
//! lets a newcomer overtake (its tag is the current virtual time), which is better for the rare
//! tenant by half a round and lets invented ones starve everybody else; it also needs a sorted
//! queue of tags.

use alloc::vec;
use alloc::vec::Vec;

use super::flows::Flow;
use super::slab::{Linked, Links, List, Slab};

/// Which of a flow's lists this is.
const ROUND: usize = 0;

/// A flow's place in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) links: Links,
    /// The round it waits for.
    pub(super) round: u64,
    /// The round of its last turn, or in which it came.
    pub(super) since: u64,
    /// Units left over from that.
    pub(super) left: u32,
}

impl Linked<ROUND> for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.turn.links
    }
}

/// The flows of a class in the order of their turns.
#[derive(Debug)]
pub(super) struct Rounds {
    /// The flows of each round, from the present one on, in a ring. Made for the first flow.
    pub(super) slots: Vec<List<ROUND>>,
    pub(super) filled: [u64; WORDS],
    pub(super) round: u64,
}

impl Rounds {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), filled: [0; WORDS], round: 0 }
    }

    /// A flow that has something waiting now: its next request costs so much.
    pub(super) fn join(&mut self, flows: &mut Slab<Flow>, id: u32, cost: u32) {
        if self.slots.is_empty() {
            self.slots = vec![List::EMPTY; ROUNDS];
        }
        let flow = &mut flows[id];
        flow.turn = Turn { links: Links::NONE, round: 0, since: self.round, left: 0 };
        flow.turn.round = self.round + waits(&flow.turn, cost, flow.weight);
        self.enlist(flows, id);
    }

    /// Its next request costs so much now: whether its turn is in another round with that.
    pub(super) fn adjust(&mut self, flows: &mut Slab<Flow>, id: u32, cost: u32) -> bool {
        let flow = &flows[id];
        let round = (flow.turn.since + waits(&flow.turn, cost, flow.weight)).max(self.round);
        if round == flow.turn.round {
            return false;
        }
        self.leave(flows, id);
        flows[id].turn.round = round;
        self.enlist(flows, id);
        true
    }

    /// It has had its turn with a request that cost so much; [`adjust`](Self::adjust) says when
    /// the next is.
    pub(super) fn pay(&mut self, flows: &mut Slab<Flow>, id: u32, cost: u32) {
        let flow = &mut flows[id];
        let waited = waits(&flow.turn, cost, flow.weight);
        let earned = u32::try_from(waited).unwrap_or(u32::MAX).saturating_mul(flow.weight);
        flow.turn.left = flow.turn.left.saturating_add(earned).saturating_sub(cost);
        flow.turn.since = self.round;
    }

    pub(super) fn leave(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let slot = slot(flows[id].turn.round);
        self.slots[slot].unlink(flows, id);
        if self.slots[slot].is_empty() {
            self.filled[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Whose turn it is; begins that round.
    pub(super) fn first(&mut self) -> Option<u32> {
        let here = slot(self.round);
        let ahead = self.ahead(here)?;
        self.round += ahead as u64;
        self.slots[slot(self.round)].first()
    }

    fn enlist(&mut self, flows: &mut Slab<Flow>, id: u32) {
        let slot = slot(flows[id].turn.round);
        self.slots[slot].push(flows, id);
        self.filled[slot / 64] |= 1 << (slot % 64);
    }

    /// How many rounds from this slot on the next is that has flows.
    fn ahead(&self, here: usize) -> Option<usize> {
        let first = self.filled[here / 64] >> (here % 64);
        if first != 0 {
            return Some(first.trailing_zeros() as usize);
        }
        // The word of this slot comes last again, for what lies before it.
        (1..=WORDS).find_map(|words| {
            let word = self.filled[(here / 64 + words) % WORDS];
            (word != 0).then(|| words * 64 - here % 64 + word.trailing_zeros() as usize)
        })
    }
}

/// Rounds until it can pay that.
fn waits(turn: &Turn, cost: u32, weight: u32) -> u64 {
    u64::from(cost.saturating_sub(turn.left).div_ceil(weight))
}

fn slot(round: u64) -> usize {
    usize::try_from(round % ROUNDS as u64).unwrap_or(0)
}

/// More than the rounds of the dearest request at the least weight.
const ROUNDS: usize = 1_024;
const WORDS: usize = ROUNDS / 64;
