//! A server: workers, and a queue before them.
//!
//! | queue | who is next | who is dropped |
//! |---|---|---|
//! | own | the oldest or the newest | nobody; or who has no time left, or is too old, when its turn comes; or by other people's rules (`baselines`) |
//! | admission | as `seawall_policy`'s admission queue decides | as it decides: who has waited too long in a queue that stands, whose time is up, the largest consumer |
//! | policy | as `seawall_policy`'s bulkhead decides, with as many slots as there are workers | who has waited as long as it allows, at that moment |
//!
//! What it is not: it measures no time and draws nothing. Whoever owns it says when work comes and
//! when it has ended, and asks after each of the two what follows, until there is no more.

mod fair;
mod own;
mod production;

use seawall_policy::{BulkheadParams, Timestamp};

use own::Own;
use production::Production;

pub use fair::{Fair, TenantKind};
pub use own::{Discipline, Drop, Order};

/// What is before the workers.
#[derive(Clone, Debug, PartialEq)]
pub enum Queue {
    /// One of the kinds that servers have.
    Own(Discipline),
    /// The policy's bulkhead, with these many lanes, from 1. Its limit is the number of workers.
    Policy(BulkheadParams, u32),
    /// The policy's admission queue, asked for the next whenever a worker is free.
    Admission(Box<Fair>),
}

impl Queue {
    /// First come, first served, with room for so many; `None`: for all.
    #[must_use]
    pub const fn fifo(room: Option<u32>) -> Self {
        Self::Own(Discipline { room, ..Discipline::FIFO })
    }
}

/// Workers and their queue.
#[derive(Debug)]
pub struct Server<J> {
    workers: u32,
    busy: u32,
    line: Line<J>,
}

#[derive(Debug)]
enum Line<J> {
    Own(Own<J>),
    Policy(Box<Production<J>>),
    Admission(Box<fair::Line<J>>),
}

/// A job on its way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming<J> {
    /// Which.
    pub job: J,
    /// When nobody will want it any more, as far as the server was told.
    pub until: Timestamp,
    /// Which lane it belongs to, where there are lanes.
    pub lane: u32,
}

impl<J> Coming<J> {
    /// One of which nothing was told.
    #[must_use]
    pub const fn of(job: J) -> Self {
        Self { job, until: Timestamp::MAX, lane: 0 }
    }
}

/// What becomes of a job that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<J> {
    /// A worker takes it up.
    Begun(J),
    /// It waits. At that time there may be something to do, if that is no sooner.
    Queued(Timestamp),
    /// It waits, in place of this one.
    Displaced(J),
    /// There is no room for it.
    Refused(J),
}

/// What happens to a job that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<J> {
    /// A worker takes it up.
    Begun(J),
    /// It is turned away, unworked. The worker that looked at it has nothing to do.
    Dropped(J),
}

impl<J> Server<J> {
    /// So many workers behind such a queue.
    #[must_use]
    pub fn new(workers: u32, queue: &Queue) -> Self {
        let line = match queue {
            Queue::Own(discipline) => Line::Own(Own::new(discipline.clone())),
            Queue::Policy(params, lanes) => {
                Line::Policy(Box::new(Production::new(workers, *params, *lanes)))
            }
            Queue::Admission(how) => Line::Admission(Box::new(fair::Line::new((**how).clone()))),
        };
        Self { workers, busy: 0, line }
    }

    /// A job comes.
    pub fn arrive(&mut self, now: Timestamp, coming: Coming<J>) -> Arrived<J> {
        let has_room = self.busy < self.workers;
        let arrived = match &mut self.line {
            Line::Own(_) if has_room => Arrived::Begun(coming.job),
            Line::Own(own) => own.arrive(now, coming),
            Line::Policy(line) => line.arrive(now, coming),
            Line::Admission(line) => line.arrive(now, coming, has_room),
        };
        self.busy += u32::from(matches!(arrived, Arrived::Begun(_)));
        arrived
    }

    /// A worker has ended what it was at, a job of that lane.
    pub fn finish(&mut self, now: Timestamp, lane: u32) {
        self.busy -= 1;
        if let Line::Policy(line) = &mut self.line {
            line.release(now, lane);
        }
    }

    /// What happens to a job that waits, now that there is a worker without one, or that time has
    /// passed. Asked until there is nothing.
    pub fn next(&mut self, now: Timestamp) -> Option<Next<J>> {
        let next = match &mut self.line {
            Line::Own(_) if self.busy >= self.workers => None,
            Line::Own(own) => own.next(now),
            Line::Policy(line) => line.next(now),
            Line::Admission(line) => line.next(now, self.busy < self.workers),
        };
        self.busy += u32::from(matches!(next, Some(Next::Begun(_))));
        next
    }

    /// The worker that dropped a job has something to do with that; false if it was none, but the
    /// end of a wait.
    pub fn occupy(&mut self) -> bool {
        // As `busy += matches!(…) as u32` in a `const fn` the addition was missing in release: seen
        // with rustc 1.95, cause unknown. So drops cost nothing there, and reports differed.
        match &self.line {
            Line::Own(_) => {
                self.busy += 1;
                true
            }
            Line::Policy(_) | Line::Admission(_) => false,
        }
    }

    /// From now on it has so many workers. Those too many end what they are at. A policy's queue
    /// has at least one.
    pub fn resize(&mut self, now: Timestamp, workers: u32) {
        self.workers = workers;
        if let Line::Policy(line) = &mut self.line {
            line.resize(now, workers);
        }
    }

    /// Everything that waits, gone; the workers have nothing to do. What they were at has ended.
    pub fn clear(&mut self) -> Vec<J> {
        self.busy = 0;
        match &mut self.line {
            Line::Own(own) => own.clear(),
            Line::Policy(line) => line.clear(),
            Line::Admission(line) => line.clear(),
        }
    }

    /// Jobs that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        match &self.line {
            Line::Own(own) => own.queued(),
            Line::Policy(line) => line.queued(),
            Line::Admission(line) => line.queued(),
        }
    }

    /// Jobs that wait or are worked on.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.queued() + self.busy as usize
    }

    /// Workers that have something to do.
    #[must_use]
    pub const fn busy(&self) -> u32 {
        self.busy
    }
}

#[cfg(test)]
mod tests;
