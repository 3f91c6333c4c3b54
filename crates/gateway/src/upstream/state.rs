//! The books of a pool: who has a connection, who waits, and who gets what is freed.
//!
//! Plain bookkeeping under the pool's one lock. Nothing here waits, spawns or drops a connection;
//! what has to happen outside the lock is written into a [`Follow`].
//!
//! Invariants: `open` = dials + sockets that are pooled or closing ≤ `max_connections`. Nobody
//! waits while something idle could serve them. Within a lane the waiters at the front are covered
//! by its dials, one (HTTP/1.1) or a hundred (HTTP/2) each; only the others wait for capacity. For
//! a lane that is barred nothing is dialed.

mod demand;
mod reshape;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use seawall_policy::Timestamp;
use tokio::sync::oneshot;

use super::conn::{Conn, ConnFacts, Fate};
use super::error::CheckoutError;
use super::pool::{Lease, Shared};
use super::settings::PoolSettings;
use super::stats::ClosedTotals;
use super::upload::RequestBody;

/// The books; see the module.
pub(super) struct State<B: RequestBody> {
    lanes: Vec<Lane<B>>,
    per_dial: usize,
    open: usize,
    closing: usize,
    detached: usize,
    waiting: usize,
    next_ticket: u64,
    next_bar: u64,
    connects: u64,
    connect_errors: u64,
    reused: u64,
    refused: u64,
    closed: ClosedTotals,
}

/// One endpoint.
struct Lane<B: RequestBody> {
    /// HTTP/1.1, the newest at the back.
    idle: VecDeque<Idle<B>>,
    /// HTTP/2, the oldest first; those with room are found from the front, so that the last ones
    /// fall idle first.
    sessions: Vec<Session<B>>,
    /// In order of arrival.
    waiters: VecDeque<Waiter<B>>,
    dials: usize,
    /// Sockets that are pooled or closing.
    sockets: usize,
    /// Fresh sessions in a row that had no room.
    roomless: u32,
    /// The number of the bar that holds dials back after a fresh session without room.
    bar: Option<u64>,
    /// A reload took the endpoint away: what falls idle closes.
    retired: bool,
}

struct Idle<B: RequestBody> {
    conn: Arc<Conn<B>>,
    since: Timestamp,
}

struct Session<B: RequestBody> {
    conn: Arc<Conn<B>>,
    streams: usize,
    idle_since: Timestamp,
}

struct Waiter<B: RequestBody> {
    ticket: u64,
    since: Timestamp,
    /// From here on it also takes the place of a connection of another endpoint that is in demand.
    urgent: Timestamp,
    answer: oneshot::Sender<Answer<B>>,
}

/// What a waiting checkout is told.
pub(super) type Answer<B> = Result<Lease<B>, CheckoutError>;

/// What a checkout comes to at once.
pub(super) enum Step<B: RequestBody> {
    Ready(Lease<B>),
    Wait { ticket: u64, answer: oneshot::Receiver<Answer<B>> },
    Full,
}

/// What became of a waiter whose time is up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// A dial is on its way for it.
    Covered,
    /// It waits no more.
    Removed,
    /// It has its answer.
    Answered,
}

/// What is to be done after unlocking.
pub(super) struct Follow<B: RequestBody> {
    /// Endpoints to dial, once each.
    pub(super) dials: Vec<usize>,
    /// Connections to drop.
    pub(super) drops: Vec<Arc<Conn<B>>>,
    /// A bar to lift when its time is over: its endpoint and number.
    pub(super) bar: Option<(usize, u64)>,
}

impl<B: RequestBody> Default for Follow<B> {
    fn default() -> Self {
        Self { dials: Vec::new(), drops: Vec::new(), bar: None }
    }
}

impl<B: RequestBody> Session<B> {
    fn has_room(&self, settings: &PoolSettings) -> bool {
        self.streams < self.conn.facts.stream_limit().min(settings.h2_streams)
            && self.conn.is_ready()
    }
}

impl<B: RequestBody> State<B> {
    pub(super) fn new(settings: &PoolSettings, endpoints: usize) -> Self {
        Self {
            lanes: (0..endpoints).map(|_| Lane::new()).collect(),
            per_dial: settings.per_dial(),
            open: 0,
            closing: 0,
            detached: 0,
            waiting: 0,
            next_ticket: 0,
            next_bar: 0,
            connects: 0,
            connect_errors: 0,
            reused: 0,
            refused: 0,
            closed: ClosedTotals::default(),
        }
    }

    /// A connection if there is one, else a place in the queue and a dial if one may begin.
    pub(super) fn acquire(
        &mut self,
        pool: &Arc<Shared<B>>,
        endpoint: usize,
        now: Timestamp,
        wait: Duration,
        follow: &mut Follow<B>,
    ) -> Step<B> {
        if let Some(conn) = self.take(&pool.settings(), endpoint, now, follow) {
            self.reused += 1;
            return Step::Ready(Lease::new(pool, conn, true));
        }
        let (answer, receiver) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let urgent = now.after(wait / 2);
        self.lanes[endpoint].waiters.push_back(Waiter { ticket, since: now, urgent, answer });
        self.waiting += 1;
        self.provision(&pool.settings(), follow);
        if self.uncovered() > pool.settings().max_waiting + self.closing {
            self.lanes[endpoint].waiters.pop_back();
            self.waiting -= 1;
            self.refused += 1;
            return Step::Full;
        }
        Step::Wait { ticket, answer: receiver }
    }

    /// A waiter's time is up.
    pub(super) fn expire(&mut self, endpoint: usize, ticket: u64) -> Expiry {
        let lane = &mut self.lanes[endpoint];
        let Some(place) = lane.place(ticket) else { return Expiry::Answered };
        if place < lane.dials * self.per_dial {
            return Expiry::Covered;
        }
        lane.waiters.remove(place);
        self.waiting -= 1;
        Expiry::Removed
    }

    /// A waiter left.
    pub(super) fn forget(&mut self, endpoint: usize, ticket: u64) {
        let lane = &mut self.lanes[endpoint];
        if let Some(place) = lane.place(ticket) {
            lane.waiters.remove(place);
            self.waiting -= 1;
        }
    }

    /// A dial brought a connection.
    ///
    /// # Errors
    ///
    /// It is gone again already; the caller reports that as a failed dial.
    pub(super) fn connected(
        &mut self,
        pool: &Arc<Shared<B>>,
        conn: Arc<Conn<B>>,
        now: Timestamp,
        follow: &mut Follow<B>,
    ) -> Result<(), Arc<Conn<B>>> {
        if conn.facts.fate() == Fate::Gone {
            return Err(conn);
        }
        conn.facts.set_fate(Fate::Pooled);
        self.connects += 1;
        let endpoint = conn.facts.endpoint;
        let lane = &mut self.lanes[endpoint];
        lane.dials -= 1;
        lane.sockets += 1;
        if let super::conn::Line::Http2 { .. } = conn.line {
            self.take_in(pool, Session { conn, streams: 0, idle_since: now }, follow);
        } else if let Some(conn) = self.hand_over(pool, conn, false) {
            self.lanes[endpoint].idle.push_back(Idle { conn, since: now });
        }
        self.retire_idle(endpoint, follow);
        self.provision(&pool.settings(), follow);
        Ok(())
    }

    /// A dial failed; the waiters that only it covered are told.
    pub(super) fn dial_failed(
        &mut self,
        settings: &PoolSettings,
        endpoint: usize,
        error: &CheckoutError,
        follow: &mut Follow<B>,
    ) {
        self.connect_errors += 1;
        self.open -= 1;
        let lane = &mut self.lanes[endpoint];
        let covered = lane.covered(self.per_dial);
        lane.dials -= 1;
        let told = covered - lane.covered(self.per_dial);
        for waiter in lane.waiters.drain(..told) {
            // A receiver that left a moment ago has no use for the error.
            let _ = waiter.answer.send(Err(error.clone()));
        }
        self.waiting -= told;
        self.provision(settings, follow);
    }

    /// An HTTP/1.1 connection is free again.
    pub(super) fn give_back(
        &mut self,
        pool: &Arc<Shared<B>>,
        conn: Arc<Conn<B>>,
        now: Timestamp,
        follow: &mut Follow<B>,
    ) {
        if conn.facts.fate() != Fate::Pooled {
            follow.drops.push(conn);
            return;
        }
        let endpoint = conn.facts.endpoint;
        if self.lanes[endpoint].is_over() {
            self.close(conn, Fate::Expired, follow);
            self.provision(&pool.settings(), follow);
            return;
        }
        if self.waiting == 0 {
            self.lanes[endpoint].idle.push_back(Idle { conn, since: now });
            return;
        }
        if self.wanted_elsewhere(endpoint, now) {
            self.close(conn, Fate::Evicted, follow);
        } else if let Some(conn) = self.hand_over(pool, conn, true) {
            self.lanes[endpoint].idle.push_back(Idle { conn, since: now });
        }
        self.provision(&pool.settings(), follow);
    }

    /// An HTTP/2 stream ended.
    pub(super) fn end_stream(
        &mut self,
        pool: &Arc<Shared<B>>,
        facts: &ConnFacts,
        now: Timestamp,
        follow: &mut Follow<B>,
    ) {
        let sessions = &mut self.lanes[facts.endpoint].sessions;
        let Some(place) = sessions.iter().position(|session| session.conn.facts.id == facts.id)
        else {
            return;
        };
        sessions[place].streams -= 1;
        sessions[place].idle_since = now;
        let is_idle = sessions[place].streams == 0;
        if is_idle && self.lanes[facts.endpoint].is_over() {
            self.retire_idle(facts.endpoint, follow);
            self.provision(&pool.settings(), follow);
            return;
        }
        if self.waiting == 0 {
            return;
        }
        if is_idle && self.wanted_elsewhere(facts.endpoint, now) {
            let session = self.lanes[facts.endpoint].sessions.remove(place);
            self.close(session.conn, Fate::Evicted, follow);
        } else {
            self.serve_streams(pool, facts.endpoint);
        }
        self.provision(&pool.settings(), follow);
    }

    /// Marks a connection that serves no more; its capacity is free once its socket is gone.
    pub(super) fn close(&mut self, conn: Arc<Conn<B>>, fate: Fate, follow: &mut Follow<B>) {
        if conn.facts.fate() == Fate::Pooled {
            conn.facts.set_fate(fate);
            self.closing += 1;
        }
        follow.drops.push(conn);
    }

    /// A connection leaves the pool with its exchange.
    pub(super) fn detach(
        &mut self,
        settings: &PoolSettings,
        facts: &ConnFacts,
        follow: &mut Follow<B>,
    ) {
        if facts.fate() == Fate::Pooled {
            facts.set_fate(Fate::Detached);
            self.detached += 1;
            self.open -= 1;
            self.lanes[facts.endpoint].sockets -= 1;
            self.provision(settings, follow);
        }
    }

    /// A socket is gone, and with it what it counted for.
    pub(super) fn socket_gone(
        &mut self,
        settings: &PoolSettings,
        facts: &ConnFacts,
        follow: &mut Follow<B>,
    ) {
        let fate = facts.fate();
        facts.set_fate(Fate::Gone);
        match fate {
            Fate::Dialing | Fate::Gone => return,
            Fate::Detached => {
                self.detached -= 1;
                self.closed.detached += 1;
                return;
            }
            Fate::Pooled if facts.is_going_away() => self.closed.going_away += 1,
            Fate::Pooled | Fate::Lost => self.closed.peer += 1,
            Fate::Expired => self.closed.expired += 1,
            Fate::Evicted => self.closed.evicted += 1,
            Fate::Abandoned => self.closed.abandoned += 1,
        }
        self.open -= 1;
        self.closing -= usize::from(fate.is_closing());
        let lane = &mut self.lanes[facts.endpoint];
        lane.sockets -= 1;
        if let Some(place) = lane.idle.iter().position(|idle| idle.conn.facts.id == facts.id) {
            follow.drops.extend(lane.idle.remove(place).map(|idle| idle.conn));
        }
        if let Some(place) = lane.sessions.iter().position(|held| held.conn.facts.id == facts.id) {
            follow.drops.push(lane.sessions.remove(place).conn);
        }
        self.provision(settings, follow);
    }

    /// Closes what has been idle for too long.
    pub(super) fn sweep(
        &mut self,
        settings: &PoolSettings,
        now: Timestamp,
        follow: &mut Follow<B>,
    ) {
        for lane in 0..self.lanes.len() {
            let idle = &mut self.lanes[lane].idle;
            let expired = idle.partition_point(|idle| now.since(idle.since) > settings.reuse_idle);
            let mut expired: Vec<_> = idle.drain(..expired).map(|idle| idle.conn).collect();
            expired.extend(
                self.lanes[lane]
                    .sessions
                    .extract_if(.., |session| {
                        session.streams == 0 && now.since(session.idle_since) > settings.h2_idle
                    })
                    .map(|session| session.conn),
            );
            for conn in expired {
                self.close(conn, Fate::Expired, follow);
            }
        }
    }
}
