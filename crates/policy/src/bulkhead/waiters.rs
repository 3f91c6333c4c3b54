//! The calls that wait for a slot, or were decided and not told yet.

use super::heap::KeyedHeap;
use super::slots::{Slots, Ticket};
use crate::time::Timestamp;

/// Where a waiter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// In its lane's line.
    Waiting,
    /// Holds a slot; in the line of woken ones until it is told.
    Granted { is_told: bool },
    /// Waited in vain; in the line of woken ones, and gone once it is told.
    Expired,
}

#[derive(Debug)]
pub(super) struct Waiter {
    lane: usize,
    since: Timestamp,
    until: Timestamp,
    standing: Standing,
    before: Option<Ticket>,
    after: Option<Ticket>,
}

/// A first-in first-out line, linked through its waiters so that one can leave from the middle.
#[derive(Debug, Default)]
pub(super) struct Line {
    first: Option<Ticket>,
    last: Option<Ticket>,
}

impl Line {
    pub(super) const fn first(&self) -> Option<Ticket> {
        self.first
    }
}

/// All waiters; each is in at most one line, and its deadline counts only while it waits.
#[derive(Debug)]
pub(super) struct Waiters {
    pub(super) slots: Slots<Waiter>,
    deadlines: KeyedHeap<(Timestamp, Ticket)>,
    woken: Line,
    waiting: u32,
    expired: u32,
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Self {
            slots: Slots::new(),
            deadlines: KeyedHeap::new(),
            woken: Line { first: None, last: None },
            waiting: 0,
            expired: 0,
        }
    }

    /// How many wait.
    pub(super) const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How many have waited in vain and were not told yet.
    pub(super) const fn expired(&self) -> u32 {
        self.expired
    }

    /// The earliest end of a wait, and whose.
    pub(super) fn next_deadline(&self) -> Option<(Timestamp, Ticket)> {
        self.deadlines.least()
    }

    /// Where a waiter stands, in which lane, since when and until when.
    pub(super) fn find(&self, ticket: Ticket) -> Option<(Standing, usize, Timestamp, Timestamp)> {
        let waiter = self.slots.get(ticket)?;
        Some((waiter.standing, waiter.lane, waiter.since, waiter.until))
    }

    /// Lets a new one wait at the end of its lane's line.
    pub(super) fn push(
        &mut self,
        line: &mut Line,
        lane: usize,
        since: Timestamp,
        until: Timestamp,
    ) -> Ticket {
        let standing = Standing::Waiting;
        let waiter = Waiter { lane, since, until, standing, before: None, after: None };
        let ticket = self.slots.insert(waiter);
        self.waiting += 1;
        self.deadlines.set(ticket.place(), (until, ticket));
        self.append(line, ticket);
        ticket
    }

    /// Ends the wait of one in `line`, for the outcome `to`, of which it is to be told.
    pub(super) fn decide(&mut self, line: &mut Line, ticket: Ticket, to: Standing) {
        self.leave(line, ticket);
        if let Some(waiter) = self.slots.get_mut(ticket) {
            waiter.standing = to;
        }
        self.expired += u32::from(to == Standing::Expired);
        let mut woken = core::mem::take(&mut self.woken);
        self.append(&mut woken, ticket);
        self.woken = woken;
    }

    /// Ends the wait of one in `line` and forgets it.
    pub(super) fn drop_waiting(&mut self, line: &mut Line, ticket: Ticket) {
        self.leave(line, ticket);
        self.slots.remove(ticket);
    }

    /// Forgets one that was decided.
    pub(super) fn drop_decided(&mut self, ticket: Ticket) {
        let Some((standing, ..)) = self.find(ticket) else { return };
        if standing != (Standing::Granted { is_told: true }) {
            self.unlink_woken(ticket);
        }
        self.expired -= u32::from(standing == Standing::Expired);
        self.slots.remove(ticket);
    }

    /// The next one to be told; one that waited in vain is forgotten with it.
    pub(super) fn pop_woken(&mut self) -> Option<Ticket> {
        let ticket = self.woken.first?;
        let (standing, ..) = self.find(ticket)?;
        if standing == Standing::Expired {
            self.drop_decided(ticket);
        } else {
            self.unlink_woken(ticket);
            if let Some(waiter) = self.slots.get_mut(ticket) {
                waiter.standing = Standing::Granted { is_told: true };
            }
        }
        Some(ticket)
    }

    /// Takes a waiting one out of its line, and its deadline with it.
    fn leave(&mut self, line: &mut Line, ticket: Ticket) {
        self.unlink(line, ticket);
        self.deadlines.remove(ticket.place());
        self.waiting -= 1;
    }

    fn append(&mut self, line: &mut Line, ticket: Ticket) {
        let last = line.last.replace(ticket);
        if let Some(waiter) = self.slots.get_mut(ticket) {
            (waiter.before, waiter.after) = (last, None);
        }
        match last.and_then(|last| self.slots.get_mut(last)) {
            Some(last) => last.after = Some(ticket),
            None => line.first = Some(ticket),
        }
    }

    fn unlink(&mut self, line: &mut Line, ticket: Ticket) {
        let Some(waiter) = self.slots.get_mut(ticket) else { return };
        let (before, after) = (waiter.before.take(), waiter.after.take());
        match before.and_then(|before| self.slots.get_mut(before)) {
            Some(before) => before.after = after,
            None => line.first = after,
        }
        match after.and_then(|after| self.slots.get_mut(after)) {
            Some(after) => after.before = before,
            None => line.last = before,
        }
    }

    fn unlink_woken(&mut self, ticket: Ticket) {
        let mut woken = core::mem::take(&mut self.woken);
        self.unlink(&mut woken, ticket);
        self.woken = woken;
    }
}
