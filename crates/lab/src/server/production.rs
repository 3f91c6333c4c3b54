//! The policy's own queue before a server's workers: a bulkhead with a slot for each.
//!
//! Decides nothing: it keeps the jobs that the bulkhead's tickets stand for.

use std::collections::BTreeMap;

use seawall_policy::{Admission, Bulkhead, BulkheadParams, Claim, Ticket, Timestamp};

use super::{Arrived, Coming, Next};

#[derive(Debug)]
pub(super) struct Production<J> {
    bulkhead: Bulkhead,
    params: BulkheadParams,
    lanes: u32,
    waiting: BTreeMap<Ticket, J>,
}

impl<J> Production<J> {
    pub(super) fn new(workers: u32, params: BulkheadParams, lanes: u32) -> Self {
        let mut new = Self { bulkhead: Bulkhead::new(0), params, lanes, waiting: BTreeMap::new() };
        new.resize(Timestamp::ZERO, workers);
        new
    }

    pub(super) fn arrive(&mut self, now: Timestamp, coming: Coming<J>) -> Arrived<J> {
        let lane = self.lane(coming.lane);
        match self.bulkhead.try_acquire(now, &self.params, lane, coming.until) {
            Admission::Admitted(()) => Arrived::Begun(coming.job),
            Admission::Queued(ticket, until) => {
                self.waiting.insert(ticket, coming.job);
                Arrived::Queued(until)
            }
            Admission::Rejected => Arrived::Refused(coming.job),
        }
    }

    pub(super) fn release(&mut self, now: Timestamp, lane: u32) {
        let lane = self.lane(lane);
        self.bulkhead.release(now, &self.params, lane);
    }

    pub(super) fn next(&mut self, now: Timestamp) -> Option<Next<J>> {
        self.bulkhead.handle_timeout(now, &self.params);
        while let Some(ticket) = self.bulkhead.pop_woken() {
            let claim = self.bulkhead.claim(now, ticket);
            let Some(job) = self.waiting.remove(&ticket) else { continue };
            match claim {
                Claim::Admitted => return Some(Next::Begun(job)),
                Claim::Expired => return Some(Next::Dropped(job)),
                // Woken is decided.
                Claim::Waiting(_) => {
                    self.waiting.insert(ticket, job);
                }
            }
        }
        None
    }

    pub(super) fn resize(&mut self, now: Timestamp, workers: u32) {
        let mut options = *self.params.options();
        options.limit = workers;
        options.lane_limit = options.lane_limit.map(|lane| lane.min(workers));
        // Refused for none and for more than a million, which whoever builds it refuses too.
        if let Ok(params) = BulkheadParams::new(options) {
            self.params = params;
            self.bulkhead.handle_timeout(now, &self.params);
        }
    }

    pub(super) fn clear(&mut self) -> Vec<J> {
        self.bulkhead = Bulkhead::new(0);
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    pub(super) fn queued(&self) -> usize {
        self.waiting.len()
    }

    const fn lane(&self, of: u32) -> usize {
        (of % self.lanes) as usize
    }
}
