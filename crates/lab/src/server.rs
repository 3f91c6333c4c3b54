//! A server: workers, and a queue before them, first come, first served.
//!
//! What it is not: it measures no time and draws nothing. Whoever owns it says when work comes and
//! when it has ended, and hears which job a worker takes up next.

use std::collections::VecDeque;

/// Workers and their queue.
#[derive(Clone, Debug)]
pub struct Server<J> {
    workers: u32,
    busy: u32,
    queue: VecDeque<J>,
    room: usize,
}

/// What becomes of a job that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<J> {
    /// A worker takes it up.
    Begun(J),
    /// It waits.
    Queued,
    /// The queue is full.
    Refused(J),
}

impl<J> Server<J> {
    /// So many workers, and room for so many jobs that wait; `None`: for all.
    #[must_use]
    pub fn new(workers: u32, room: Option<u32>) -> Self {
        let room = room.map_or(usize::MAX, |room| room as usize);
        Self { workers, busy: 0, queue: VecDeque::new(), room }
    }

    /// A job comes.
    pub fn arrive(&mut self, job: J) -> Arrived<J> {
        if self.busy < self.workers {
            self.busy += 1;
            Arrived::Begun(job)
        } else if self.queue.len() < self.room {
            self.queue.push_back(job);
            Arrived::Queued
        } else {
            Arrived::Refused(job)
        }
    }

    /// A worker has ended a job, and takes up the one that is returned.
    pub fn finish(&mut self) -> Option<J> {
        self.busy -= 1;
        self.take_up()
    }

    /// From now on it has so many workers. Those too many end what they are at.
    pub const fn resize(&mut self, workers: u32) {
        self.workers = workers;
    }

    /// The oldest job that waits, for a worker that has nothing to do. Asked until there is none
    /// after the server has grown.
    pub fn take_up(&mut self) -> Option<J> {
        if self.busy >= self.workers {
            return None;
        }
        let job = self.queue.pop_front()?;
        self.busy += 1;
        Some(job)
    }

    /// Everything that waits, gone; the workers have nothing to do. What they were at has ended.
    pub fn clear(&mut self) -> impl Iterator<Item = J> + '_ {
        self.busy = 0;
        self.queue.drain(..)
    }

    /// Jobs that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Jobs that wait or are worked on.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.queue.len() + self.busy as usize
    }

    /// Workers that have something to do.
    #[must_use]
    pub const fn busy(&self) -> u32 {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_taken_up_in_their_order_and_refused_beyond_the_room() {
        let mut server = Server::new(2, Some(2));
        assert_eq!(server.arrive(1), Arrived::Begun(1));
        assert_eq!(server.arrive(2), Arrived::Begun(2));
        assert_eq!(server.arrive(3), Arrived::Queued);
        assert_eq!(server.arrive(4), Arrived::Queued);
        assert_eq!(server.arrive(5), Arrived::Refused(5));
        assert_eq!((server.inside(), server.queued(), server.busy()), (4, 2, 2));
        assert_eq!(server.finish(), Some(3));
        assert_eq!(server.finish(), Some(4));
        assert_eq!((server.finish(), server.finish()), (None, None));
        assert_eq!(server.inside(), 0);
    }

    #[test]
    fn workers_come_and_go() {
        let mut server = Server::new(2, None);
        (1..=5).for_each(|job| {
            let _ = server.arrive(job);
        });
        server.resize(1);
        assert_eq!(server.finish(), None, "one too many goes");
        assert_eq!(server.finish(), Some(3));
        server.resize(3);
        assert_eq!((server.take_up(), server.take_up()), (Some(4), Some(5)));
        assert_eq!((server.take_up(), server.busy()), (None, 3));
        assert_eq!(server.arrive(6), Arrived::Queued);
        assert_eq!(server.clear().collect::<Vec<_>>(), [6]);
        assert_eq!(server.inside(), 0);
    }
}
