//! What waits: a request, and all requests of one priority.

use super::backlog::Backlog;
use super::flows::Sizes;
use super::level::Level;
use super::rounds::Rounds;
use super::slab::{Linked, Links, List};
use super::terms::{AdmissionCounters, ShedReason};
use super::timers::TIMER;
use crate::bulkhead::Ticket;
use crate::time::Timestamp;
use alloc::boxed::Box;

/// A request that waits, or was decided and not claimed.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) standing: Standing,
    pub(super) flow: u32,
    pub(super) cost: u32,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    /// The wait at which its strain is 1, in nanoseconds.
    pub(super) target: u64,
    /// Where it is among the timers.
    pub(super) timer: u16,
    pub(super) in_flow: Links,
    pub(super) in_class: Links,
    pub(super) in_timer: Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the lists of its flow, its class and the timers.
    Waiting,
    /// In the list of the woken until it is told.
    Decided { to: Result<(), ShedReason>, is_told: bool },
    /// The place is free.
    Gone,
}

/// All requests of one priority.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) rounds: Rounds,
    pub(super) sizes: Sizes,
    /// Oldest first.
    pub(super) entries: List<CLASS>,
    pub(super) waiting: u32,
    /// What they cost together.
    pub(super) cost: u64,
    /// The weights of its flows together.
    pub(super) weights: u64,
    pub(super) backlog: Backlog,
    /// What they cost at the ends of the last two intervals, the last first, and whether it is
    /// less since.
    pub(super) cost_before: [u64; 2],
    pub(super) drains: bool,
    /// Made for the first that has a rank.
    pub(super) level: Option<Box<Level>>,
    /// Its start tag beside the other classes, above the one served last.
    pub(super) tag: u64,
    pub(super) counters: AdmissionCounters,
}

impl Linked<CLASS> for Waiter {
    fn links(&mut self) -> &mut Links {
        &mut self.in_class
    }
}

impl Linked<TIMER> for Waiter {
    fn links(&mut self) -> &mut Links {
        &mut self.in_timer
    }
}

impl Class {
    pub(super) fn new() -> Self {
        Self {
            rounds: Rounds::new(),
            sizes: Sizes::new(),
            entries: List::EMPTY,
            waiting: 0,
            cost: 0,
            weights: 0,
            backlog: Backlog::new(Timestamp::ZERO),
            cost_before: [0; 2],
            drains: false,
            level: None,
            tag: 0,
            counters: AdmissionCounters::default(),
        }
    }
}

/// Which of an entry's lists the one of its class is.
const CLASS: usize = 1;
