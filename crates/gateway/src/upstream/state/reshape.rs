//! A reload: endpoints that come, and endpoints whose connections end when they are idle.

use std::collections::VecDeque;

use super::super::conn::Fate;
use super::super::settings::PoolSettings;
use super::super::upload::RequestBody;
use super::{Follow, Lane, State};

impl<B: RequestBody> State<B> {
    /// There are `count` numbers of endpoints now, of which some are offered.
    pub(in crate::upstream) fn reshape(
        &mut self,
        settings: &PoolSettings,
        count: usize,
        is_offered: impl Fn(usize) -> bool,
        follow: &mut Follow<B>,
    ) {
        self.lanes.resize_with(count.max(self.lanes.len()), Lane::new);
        for endpoint in 0..self.lanes.len() {
            self.lanes[endpoint].retired = !is_offered(endpoint);
            self.retire_idle(endpoint, follow);
        }
        // There may be room for more.
        self.provision(settings, follow);
    }

    /// Whether nothing is left of the endpoint.
    pub(in crate::upstream) fn is_quiet(&self, endpoint: usize) -> bool {
        self.lanes
            .get(endpoint)
            .is_none_or(|lane| lane.dials == 0 && lane.sockets == 0 && lane.waiters.is_empty())
    }

    /// Closes what is idle of an endpoint that is gone.
    pub(super) fn retire_idle(&mut self, endpoint: usize, follow: &mut Follow<B>) {
        let lane = &mut self.lanes[endpoint];
        if !lane.is_over() {
            return;
        }
        let mut idle: Vec<_> = lane.idle.drain(..).map(|idle| idle.conn).collect();
        let free = lane.sessions.extract_if(.., |session| session.streams == 0);
        idle.extend(free.map(|session| session.conn));
        for conn in idle {
            self.close(conn, Fate::Expired, follow);
        }
    }
}

impl<B: RequestBody> Lane<B> {
    pub(super) fn new() -> Self {
        Self {
            idle: VecDeque::new(),
            sessions: Vec::new(),
            waiters: VecDeque::new(),
            dials: 0,
            sockets: 0,
            roomless: 0,
            bar: None,
            retired: false,
        }
    }

    /// Whether what falls idle here is of no use any more.
    pub(super) fn is_over(&self) -> bool {
        self.retired && self.waiters.is_empty()
    }
}
