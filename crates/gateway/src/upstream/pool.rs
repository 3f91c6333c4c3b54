//! The pool: checkouts, leases, and the one lock.

mod reshape;
mod waiting;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::{Cause, Timestamp};
use tokio::runtime::Handle;

use super::body::{Exchange, UpstreamBody};
use super::conn::{Conn, ConnFacts, Fate, Line, Watcher};
use super::connect::{self, ConnectError, Place, Target};
use super::error::{CheckoutError, SendError};
use super::interim::Interim;
use super::resolve::Resolver;
use super::settings::PoolSettings;
use super::state::{Follow, State, Step};
use super::stats::PoolStats;
use super::upload::{RequestBody, Upload};
use crate::tls::UpstreamTls;

use waiting::Waiting;

/// The connections to the endpoints of one upstream. Clones share them; when the last clone and
/// the last lease are gone, idle connections close.
pub(crate) struct Pool<B: RequestBody> {
    shared: Arc<Shared<B>>,
}

/// What is asked of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The number of the endpoint.
    pub(crate) endpoint: usize,
    /// The time it is.
    pub(crate) now: Timestamp,
    /// How long to wait for a connection to become free. Once a dial is on its way for it the wait
    /// goes on for as long as the dial takes, the connect timeout at most.
    pub(crate) wait: Duration,
    /// When it is given up in any case; [`Timestamp::MAX`]: its asker drops it.
    pub(crate) until: Timestamp,
}

/// A connection, or a stream of one, for one exchange. Dropped unsent it goes back.
#[must_use]
pub(crate) struct Lease<B: RequestBody> {
    pool: Arc<Shared<B>>,
    conn: Option<Arc<Conn<B>>>,
    /// Whether the connection has served before; tests ask.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests ask"))]
    reused: bool,
}

impl<B: RequestBody> Pool<B> {
    /// A pool for `endpoints`, which connects when it is asked to, over `tls` if it is given.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: the pool's dials run on the one it was made on.
    #[must_use]
    pub(crate) fn with_tls(
        settings: PoolSettings,
        endpoints: Vec<Place>,
        tls: Option<Arc<UpstreamTls>>,
        resolver: Resolver,
        clock: Clock,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(&settings, endpoints.len())),
            targets: ArcSwap::from_pointee(endpoints.into_iter().map(target).collect()),
            tls,
            settings: ArcSwap::from_pointee(settings),
            resolver,
            clock,
            runtime: Handle::current(),
            #[cfg(test)]
            changed: tokio::sync::Notify::new(),
        });
        shared.runtime.spawn(sweep(Arc::downgrade(&shared), settings.sweep_interval()));
        Self { shared }
    }

    /// A connection as it is wanted, and when it was had, or not: at once, if there was one.
    /// Dropping the future leaves the queue.
    ///
    /// # Errors
    ///
    /// See [`CheckoutError::cause`].
    ///
    /// # Panics
    ///
    /// If there is no endpoint of this number.
    pub(crate) async fn checkout(
        &self,
        wanted: Wanted,
    ) -> (Result<Lease<B>, CheckoutError>, Timestamp) {
        let pool = &self.shared;
        let Wanted { endpoint, now, wait, .. } = wanted;
        let step = pool.with(|state, follow| state.acquire(pool, endpoint, now, wait, follow));
        let waiting = match step {
            Step::Ready(lease) => return (Ok(lease), now),
            Step::Full => return (Err(CheckoutError::QueueFull), now),
            Step::Wait { ticket, answer } => Waiting { pool, endpoint, ticket, answer },
        };
        let answer = waiting.answer(wanted).await;
        (answer, pool.clock.now())
    }

    /// What it was told last.
    #[must_use]
    pub(crate) fn settings(&self) -> Arc<PoolSettings> {
        self.shared.settings.load_full()
    }

    /// What the pool holds and has done.
    #[must_use]
    pub(crate) fn stats(&self) -> PoolStats {
        let now = self.shared.clock.now();
        self.shared.with(|state, _| state.stats(&self.shared.settings(), now))
    }
}

impl<B: RequestBody> Lease<B> {
    pub(super) fn new(pool: &Arc<Shared<B>>, conn: Arc<Conn<B>>, reused: bool) -> Self {
        Self { pool: Arc::clone(pool), conn: Some(conn), reused }
    }

    /// Takes the connection out, so that dropping the lease gives nothing back.
    pub(super) fn into_conn(mut self) -> Arc<Conn<B>> {
        match self.conn.take() {
            Some(conn) => conn,
            None => unreachable!("a lease holds its connection until it is used up"),
        }
    }

    /// Sends the request, once, and waits for the response head. On HTTP/1.1 the request carries
    /// `Host` and an origin-form target, on HTTP/2 scheme and authority.
    ///
    /// Dropping the future closes the HTTP/1.1 connection or resets the HTTP/2 stream. A `101`
    /// takes its connection out of the pool.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    pub(crate) async fn send(
        self,
        request: Request<B>,
    ) -> Result<Response<UpstreamBody>, SendError<B>> {
        let conn = self.into_conn();
        conn.facts.count_message();
        let mut exchange = Exchange::new(Arc::clone(&conn) as _);
        let (parts, body) = request.into_parts();
        let answer = match &conn.line {
            Line::Http1 { sender, .. } => {
                let mut request = Request::from_parts(parts, Upload::plain(body));
                let interim = Interim::of(&mut request);
                let Some(sent) = sender.lock().as_mut().map(|h1| h1.try_send_request(request))
                else {
                    unreachable!("a leased connection has its sender");
                };
                tokio::select! {
                    biased;
                    sent = sent => sent,
                    () = interim.flood() => {
                        exchange.failed();
                        return Err(SendError::of(Cause::Malformed));
                    }
                }
            }
            Line::Http2 { sender } => {
                let (body, cut) = Upload::cuttable(body);
                exchange.cut = cut;
                sender.clone().try_send_request(Request::from_parts(parts, body)).await
            }
        };
        match answer {
            Ok(response) => Ok(exchange.answered(response)),
            Err(error) => {
                exchange.failed();
                let error = SendError::new(error, &conn.facts);
                if let (Cause::Tls, Some(pool)) = (error.cause, conn.pool.upgrade()) {
                    pool.tell_refused(conn.facts.endpoint, &error);
                }
                Err(error)
            }
        }
    }
}

impl<B: RequestBody> Drop for Lease<B> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            match &conn.line {
                Line::Http1 { .. } => self.pool.give_back(conn, self.pool.clock.now()),
                Line::Http2 { .. } => self.pool.end_stream(&conn.facts, self.pool.clock.now()),
            }
        }
    }
}

impl<B: RequestBody> Clone for Pool<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: RequestBody> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("settings", &self.shared.settings()).finish_non_exhaustive()
    }
}

impl<B: RequestBody> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("conn", &self.conn).finish_non_exhaustive()
    }
}

fn target(place: Place) -> Arc<Target> {
    Arc::new(Target::new(place))
}

/// What the clones of a pool and its connections share.
pub(super) struct Shared<B: RequestBody> {
    settings: ArcSwap<PoolSettings>,
    pub(super) runtime: Handle,
    pub(super) clock: Clock,
    resolver: Resolver,
    pub(super) tls: Option<Arc<UpstreamTls>>,
    /// By number; those of endpoints that are gone stay until the number is given away.
    targets: ArcSwap<Vec<Arc<Target>>>,
    state: Mutex<State<B>>,
    /// Told after every change of the books.
    #[cfg(test)]
    changed: tokio::sync::Notify,
}

impl<B: RequestBody> Shared<B> {
    /// What the pool was told last.
    pub(super) fn settings(&self) -> arc_swap::Guard<Arc<PoolSettings>> {
        self.settings.load()
    }

    /// Where the endpoint is.
    pub(super) fn target(&self, endpoint: usize) -> Arc<Target> {
        Arc::clone(&self.targets.load()[endpoint])
    }

    /// Works on the books under the lock, then does outside it what they ask for.
    fn with<T>(self: &Arc<Self>, work: impl FnOnce(&mut State<B>, &mut Follow<B>) -> T) -> T {
        let mut follow = Follow::default();
        let result = work(&mut self.state.lock(), &mut follow);
        for endpoint in follow.dials {
            self.runtime.spawn(Arc::clone(self).dial(endpoint));
        }
        if let Some(bar) = follow.bar {
            self.runtime.spawn(lift_in_time(Arc::downgrade(self), bar));
        }
        drop(follow.drops);
        #[cfg(test)]
        self.changed.notify_waiters();
        result
    }

    pub(super) fn give_back(self: &Arc<Self>, conn: Arc<Conn<B>>, now: Timestamp) {
        self.with(|state, follow| state.give_back(self, conn, now, follow));
    }

    pub(super) fn end_stream(self: &Arc<Self>, facts: &ConnFacts, now: Timestamp) {
        self.with(|state, follow| state.end_stream(self, facts, now, follow));
    }

    pub(super) fn close(self: &Arc<Self>, conn: &Arc<Conn<B>>, fate: Fate) {
        self.with(|state, follow| state.close(Arc::clone(conn), fate, follow));
    }

    pub(super) fn detach(self: &Arc<Self>, facts: &ConnFacts) {
        self.with(|state, follow| state.detach(&self.settings(), facts, follow));
    }

    /// Makes one connection to the endpoint and enters it, or its failure, in the books.
    async fn dial(self: Arc<Self>, endpoint: usize) {
        let target = self.target(endpoint);
        let made = connect::connect(
            &target,
            &self.resolver,
            &self.clock,
            self.settings().connect_timeout,
            |socket| self.speak(endpoint, socket),
        )
        .await;
        let now = self.clock.now();
        self.with(|state, follow| {
            let error = match made {
                Ok(conn) => match state.connected(&self, conn, now, follow) {
                    Ok(()) => return,
                    Err(conn) => {
                        follow.drops.push(conn);
                        ConnectError::closed_at_once(&target)
                    }
                },
                Err(error) => error,
            };
            let error = CheckoutError::Connect(Arc::new(error));
            state.dial_failed(&self.settings(), endpoint, &error, follow);
        });
    }
}

impl<B: RequestBody> Watcher for Shared<B> {
    fn socket_gone(self: Arc<Self>, facts: &ConnFacts) {
        self.with(|state, follow| state.socket_gone(&self.settings(), facts, follow));
    }

    fn limit_changed(self: Arc<Self>, facts: &ConnFacts) {
        self.with(|state, follow| state.limit_changed(&self, facts, follow));
    }
}

/// Lifts a bar when its time is over.
async fn lift_in_time<B: RequestBody>(pool: Weak<Shared<B>>, bar: (usize, u64)) {
    tokio::time::sleep(ROOMLESS_BACKOFF).await;
    if let Some(pool) = pool.upgrade() {
        pool.with(|state, follow| state.lift(&pool.settings(), bar, follow));
    }
}

/// Closes idle connections in time; ends with the pool.
async fn sweep<B: RequestBody>(pool: Weak<Shared<B>>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = pool.clock.now();
        pool.with(|state, follow| state.sweep(&pool.settings(), now, follow));
    }
}

/// Wait after an HTTP/2 connection without room before the next dial of its endpoint.
/// Source: own choice: a draining peer is asked once a second.
const ROOMLESS_BACKOFF: Duration = Duration::from_secs(1);

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use http_body_util::Empty;

    use super::*;
    use crate::upstream::PoolProtocol;

    #[tokio::test]
    async fn a_fresh_connection_is_ready_before_its_driver_has_run() {
        let peer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let clock = Clock::new();
        let settings = PoolSettings::new(PoolProtocol::Http1, 1);
        let resolver = Resolver::new(1, Duration::ZERO, clock);
        let endpoints = vec![("127.0.0.1".to_owned(), 1)];
        let pool: Pool<Empty<bytes::Bytes>> = Pool::new(settings, endpoints, resolver, clock);
        // On this one thread nothing else runs between the driver's spawning and the question.
        let socket = connect::dial(peer.local_addr().unwrap()).await.unwrap();
        let conn = pool.shared.speak(0, socket).await.unwrap();
        assert!(conn.is_ready());
    }
}
