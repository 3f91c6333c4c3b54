//! The queue of a server, as servers have it: an order, a bound, and perhaps a rule by which those
//! are dropped whose turn has come.
//!
//! | drop | whose turn has come is dropped |
//! |---|---|
//! | never | not at all |
//! | expired | if less time is left than the work needs, by what its sender said |
//! | older | if it has waited longer than that |
//! | by | if another rule says so, see [`baselines`](crate::baselines) |
//!
//! Jobs with no time left stay until their turn comes, in whatever order that is: a last-in,
//! first-out queue without a bound keeps the oldest of an overload for good.

use std::collections::VecDeque;
use std::time::Duration;

use seawall_policy::Timestamp;

use super::{Arrived, Coming, Next};
use crate::baselines::{QueueRule, QueueState};

/// How a server's own queue works.
#[derive(Clone, Debug, PartialEq)]
pub struct Discipline {
    /// How many may wait; `None`: all.
    pub room: Option<u32>,
    /// Whether one more takes the place of the oldest, and is not itself refused.
    pub displaces: bool,
    /// Who is next.
    pub order: Order,
    /// Who is dropped when its turn comes.
    pub drop: Drop,
}

impl Discipline {
    /// First come, first served, all of them.
    pub const FIFO: Self =
        Self { room: None, displaces: false, order: Order::Fifo, drop: Drop::Never };
}

/// Who is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The newest.
    Lifo,
    /// The newest once the queue has not been empty for so long, until then the oldest.
    /// Source: queue-m-n.
    Adaptive(Duration),
}

/// Who is dropped when its turn comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Drop {
    /// Nobody.
    Never,
    /// Who has less time left than this.
    Expired(Duration),
    /// Who has waited longer than this.
    Older(Duration),
    /// By somebody else's rule.
    By(QueueRule),
}

#[derive(Debug)]
pub(super) struct Own<J> {
    discipline: Discipline,
    waiting: VecDeque<Waiting<J>>,
    /// When it was last seen empty.
    empty_at: Timestamp,
    state: QueueState,
}

#[derive(Debug)]
struct Waiting<J> {
    job: J,
    since: Timestamp,
    until: Timestamp,
}

impl<J> Own<J> {
    pub(super) fn new(discipline: Discipline) -> Self {
        let waiting = VecDeque::new();
        let state = QueueState::default();
        Self { discipline, waiting, empty_at: Timestamp::ZERO, state }
    }

    pub(super) fn arrive(&mut self, now: Timestamp, coming: Coming<J>) -> Arrived<J> {
        let room = self.discipline.room.map_or(usize::MAX, |room| room as usize);
        let is_full = self.waiting.len() >= room;
        if is_full && (room == 0 || !self.discipline.displaces) {
            return Arrived::Refused(coming.job);
        }
        let displaced = if is_full { self.waiting.pop_front() } else { None };
        if self.waiting.is_empty() {
            self.empty_at = now;
        }
        let until = match &self.discipline.drop {
            Drop::By(rule) => rule.until(now, self.empty_at),
            Drop::Never | Drop::Expired(_) | Drop::Older(_) => coming.until,
        };
        self.waiting.push_back(Waiting { job: coming.job, since: now, until });
        displaced.map_or(Arrived::Queued(Timestamp::MAX), |old| Arrived::Displaced(old.job))
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Option<Next<J>> {
        let is_newest = match self.discipline.order {
            Order::Fifo => false,
            Order::Lifo => true,
            Order::Adaptive(than) => now.since(self.empty_at) > than,
        };
        let next = if is_newest { self.waiting.pop_back() } else { self.waiting.pop_front() };
        if self.waiting.is_empty() {
            self.empty_at = now;
        }
        let Some(Waiting { job, since, until }) = next else {
            self.state.on_empty();
            return None;
        };
        let is_dropped = match &self.discipline.drop {
            Drop::Never => false,
            Drop::Expired(needs) => now.until(until) < *needs || now >= until,
            Drop::Older(than) => now.since(since) > *than,
            Drop::By(rule) => self.state.drops(rule, now, since, until, self.waiting.len()),
        };
        Some(if is_dropped { Next::Dropped(job) } else { Next::Begun(job) })
    }

    pub(super) fn clear(&mut self) -> Vec<J> {
        self.waiting.drain(..).map(|waiting| waiting.job).collect()
    }

    pub(super) fn queued(&self) -> usize {
        self.waiting.len()
    }
}
