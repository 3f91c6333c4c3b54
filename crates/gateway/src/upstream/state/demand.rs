//! The demand side of the books: what is free goes to the waiters at the front, and dials begin
//! for those that nothing covers.

use std::sync::Arc;

use seawall_policy::Timestamp;

use super::super::conn::{Conn, ConnFacts, Fate};
use super::super::pool::{Lease, Shared};
use super::super::settings::PoolSettings;
use super::super::stats::{EndpointStats, PoolStats};
use super::super::upload::RequestBody;
use super::{Follow, Idle, Lane, Session, State, Waiter};

impl<B: RequestBody> State<B> {
    /// A free connection of the endpoint, if there is one that may still be used.
    pub(super) fn take(
        &mut self,
        settings: &PoolSettings,
        endpoint: usize,
        now: Timestamp,
        follow: &mut Follow<B>,
    ) -> Option<Arc<Conn<B>>> {
        while let Some(Idle { conn, since }) = self.lanes[endpoint].idle.pop_back() {
            if now.since(since) > settings.reuse_idle {
                self.close(conn, Fate::Expired, follow);
            } else if !conn.is_ready() {
                self.close(conn, Fate::Lost, follow);
            } else {
                return Some(conn);
            }
        }
        let sessions = &mut self.lanes[endpoint].sessions;
        let session = sessions.iter_mut().find(|session| session.has_room(settings))?;
        session.streams += 1;
        Some(Arc::clone(&session.conn))
    }

    /// Gives the connection to the first waiter of its lane, or back if there is none.
    pub(super) fn hand_over(
        &mut self,
        pool: &Arc<Shared<B>>,
        mut conn: Arc<Conn<B>>,
        reused: bool,
    ) -> Option<Arc<Conn<B>>> {
        while let Some(waiter) = self.lanes[conn.facts.endpoint].waiters.pop_front() {
            self.waiting -= 1;
            match waiter.answer.send(Ok(Lease::new(pool, conn, reused))) {
                // The receiver left a moment ago.
                Err(Ok(lease)) => conn = lease.into_conn(),
                _ => {
                    self.reused += u64::from(reused);
                    return None;
                }
            }
        }
        Some(conn)
    }

    /// Gives the streams that are free to the first waiters of the lane.
    pub(super) fn serve_streams(&mut self, pool: &Arc<Shared<B>>, endpoint: usize) {
        loop {
            let lane = &mut self.lanes[endpoint];
            if lane.waiters.is_empty() {
                return;
            }
            let room = |session: &&mut Session<B>| session.has_room(&pool.settings());
            let Some(session) = lane.sessions.iter_mut().find(room) else { return };
            session.streams += 1;
            let (conn, id) = (Arc::clone(&session.conn), session.conn.facts.id);
            if self.hand_over(pool, conn, true).is_some() {
                let sessions = &mut self.lanes[endpoint].sessions;
                if let Some(session) = sessions.iter_mut().find(|held| held.conn.facts.id == id) {
                    session.streams -= 1;
                }
                return;
            }
        }
    }

    /// Takes in a fresh session and gives its streams out. One without room (a peer that drains
    /// may allow no stream at all) bars its lane, or its waiters would dial again at once and for
    /// ever. One that is going away already may be the last of a process that is being replaced:
    /// the first of a row is forgiven.
    pub(super) fn take_in(
        &mut self,
        pool: &Arc<Shared<B>>,
        session: Session<B>,
        follow: &mut Follow<B>,
    ) {
        let facts = Arc::clone(&session.conn.facts);
        let has_room = session.has_room(&pool.settings());
        if !has_room {
            self.retire_closed_to_us(facts.endpoint, follow);
        }
        let lane = &mut self.lanes[facts.endpoint];
        lane.sessions.push(session);
        if has_room {
            (lane.roomless, lane.bar) = (0, None);
            self.serve_streams(pool, facts.endpoint);
            return;
        }
        lane.roomless = lane.roomless.saturating_add(1);
        if facts.stream_limit() == 0 || lane.roomless > 1 {
            let number = self.next_bar;
            self.next_bar += 1;
            self.lanes[facts.endpoint].bar = Some(number);
            follow.bar = Some((facts.endpoint, number));
        }
    }

    /// A bar's time is over.
    pub(in crate::upstream) fn lift(
        &mut self,
        settings: &PoolSettings,
        (endpoint, number): (usize, u64),
        follow: &mut Follow<B>,
    ) {
        let lane = &mut self.lanes[endpoint];
        if lane.bar.take_if(|bar| *bar == number).is_some() {
            self.provision(settings, follow);
        }
    }

    /// The peer allows more, or fewer, streams.
    pub(in crate::upstream) fn limit_changed(
        &mut self,
        pool: &Arc<Shared<B>>,
        facts: &ConnFacts,
        follow: &mut Follow<B>,
    ) {
        let lane = &mut self.lanes[facts.endpoint];
        if lane.sessions.iter().any(|session| session.has_room(&pool.settings())) {
            (lane.roomless, lane.bar) = (0, None);
        }
        if self.waiting > 0 {
            self.serve_streams(pool, facts.endpoint);
            self.provision(&pool.settings(), follow);
        }
    }

    /// Closes the unused sessions whose peer allows no stream: a new one takes their place.
    fn retire_closed_to_us(&mut self, endpoint: usize, follow: &mut Follow<B>) {
        let useless = |session: &mut Session<B>| {
            session.streams == 0 && session.conn.facts.stream_limit() == 0
        };
        let retired: Vec<_> = self.lanes[endpoint].sessions.extract_if(.., useless).collect();
        for session in retired {
            self.close(session.conn, Fate::Expired, follow);
        }
    }

    /// Begins the dials that waiters need, and closes idle connections of other endpoints where
    /// there is no room for them.
    pub(super) fn provision(&mut self, settings: &PoolSettings, follow: &mut Follow<B>) {
        while self.waiting > 0
            && let Some(endpoint) = self.first_uncovered().map(|(lane, _)| lane)
        {
            self.retire_closed_to_us(endpoint, follow);
            if self.open < settings.max_connections {
                self.open += 1;
                self.lanes[endpoint].dials += 1;
                follow.dials.push(endpoint);
            } else if self.wanting() > self.closing
                && let Some(victim) = self.idle_elsewhere(endpoint)
            {
                self.close(victim, Fate::Evicted, follow);
            } else {
                return;
            }
        }
    }

    /// Waiters that no dial covers.
    pub(super) fn uncovered(&self) -> usize {
        self.waiting - self.lanes.iter().map(|lane| lane.covered(self.per_dial)).sum::<usize>()
    }

    /// Of these, the ones that could have a dial.
    fn wanting(&self) -> usize {
        let barred = self.lanes.iter().filter(|lane| lane.bar.is_some());
        let held: usize = barred.map(|l| l.waiters.len() - l.covered(self.per_dial)).sum();
        self.uncovered() - held
    }

    /// The waiter that has waited longest without a dial and could have one, and its lane.
    fn first_uncovered(&self) -> Option<(usize, &Waiter<B>)> {
        let first =
            |(number, lane)| Lane::first_uncovered(lane, self.per_dial).map(|w| (number, w));
        self.lanes.iter().enumerate().filter_map(first).min_by_key(|(_, waiter)| waiter.ticket)
    }

    /// Whether the waiter that has waited longest wants another endpoint and has used half of its
    /// time: until then a connection in demand is not closed for it, since under load every other
    /// release would cost a new connection.
    pub(super) fn wanted_elsewhere(&self, endpoint: usize, now: Timestamp) -> bool {
        self.wanting() > self.closing
            && self.first_uncovered().is_some_and(|(lane, w)| lane != endpoint && now >= w.urgent)
    }

    /// The connection of another endpoint that has been idle longest.
    fn idle_elsewhere(&mut self, endpoint: usize) -> Option<Arc<Conn<B>>> {
        let others = self.lanes.iter_mut().enumerate().filter(|(number, _)| *number != endpoint);
        let idlest = others.filter_map(|(_, lane)| lane.idlest().map(|since| (since, lane)));
        let (_, lane) = idlest.min_by_key(|(since, _)| *since)?;
        if let Some(idle) = lane.idle.pop_front() {
            return Some(idle.conn);
        }
        let free = |session: &Session<B>| session.streams == 0;
        let place = lane.sessions.iter().position(free)?;
        Some(lane.sessions.remove(place).conn)
    }

    pub(in crate::upstream) fn stats(&self, settings: &PoolSettings, now: Timestamp) -> PoolStats {
        let endpoints: Vec<_> = self.lanes.iter().map(|lane| lane.stats(settings)).collect();
        let dialing = endpoints.iter().map(|lane| lane.dialing).sum();
        let idle = endpoints.iter().map(|lane| lane.idle).sum();
        let sessions = || self.lanes.iter().flat_map(|lane| &lane.sessions);
        let streams: usize = sessions().map(|session| session.streams).sum();
        let taken = self.open - dialing - sessions().count() - self.closing;
        let first = self.lanes.iter().filter_map(|lane| lane.waiters.front());
        PoolStats {
            open: self.open,
            dialing,
            closing: self.closing,
            idle,
            in_use: if sessions().next().is_some() { streams } else { taken - idle },
            detached: self.detached,
            waiting: self.waiting,
            waiting_longest: first.map(|w| now.since(w.since)).max().unwrap_or_default(),
            connects_total: self.connects,
            connect_errors_total: self.connect_errors,
            reused_total: self.reused,
            refused_total: self.refused,
            closed: self.closed,
            endpoints,
        }
    }
}

impl<B: RequestBody> Lane<B> {
    /// Tickets rise along the queue.
    pub(super) fn place(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    pub(super) fn covered(&self, per_dial: usize) -> usize {
        self.waiters.len().min(self.dials * per_dial)
    }

    fn first_uncovered(&self, per_dial: usize) -> Option<&Waiter<B>> {
        self.waiters.get(self.dials * per_dial).filter(|_| self.bar.is_none())
    }

    /// Since when its idlest connection has been idle.
    fn idlest(&self) -> Option<Timestamp> {
        let free = self.sessions.iter().filter(|session| session.streams == 0);
        let session = free.map(|session| session.idle_since).min();
        self.idle.front().map(|idle| idle.since).or(session)
    }

    fn stats(&self, settings: &PoolSettings) -> EndpointStats {
        let free = |session: &&Session<B>| session.streams == 0 && session.has_room(settings);
        EndpointStats {
            open: self.dials + self.sockets,
            dialing: self.dials,
            idle: self.idle.len() + self.sessions.iter().filter(free).count(),
            waiting: self.waiters.len(),
        }
    }
}
