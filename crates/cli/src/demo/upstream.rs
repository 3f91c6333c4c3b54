//! An upstream inside this process: scriptable while it runs, and exact about what reached it.
//!
//! Speaks HTTP/1.1 and, to a peer that begins with its preface, HTTP/2 without TLS. What it does
//! with a request is a function of the [`Arrival`]; the function can be swapped at any moment.
//! With a [`Capacity`] it serves so many at once and lets others wait in order, and like most
//! servers it goes on working for callers that have left.

mod behaviour;
mod journal;
mod wire;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use seawall::{Clock, ThreadRng};
use seawall_policy::Rng as _;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use behaviour::{Arrival, Behaviour, BodySeen, Capacity, Ending, Latency};
pub use journal::{Attempts, Journal};

use wire::{Connection, Reply};

/// A running upstream; stops when dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    accept: Mutex<Option<JoinHandle<()>>>,
}

impl Upstream {
    /// Listens on a free port of the loopback interface and answers 200 to everything.
    ///
    /// # Errors
    /// If no socket is to be had.
    pub async fn start(clock: Clock) -> io::Result<Self> {
        Self::start_with(clock, None).await
    }

    /// As [`Upstream::start`], with a bound on the work done at once.
    ///
    /// # Errors
    /// If no socket is to be had.
    pub async fn start_with(clock: Clock, capacity: Option<Capacity>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let slots = capacity.map(|capacity| Slots {
            free: Semaphore::new(capacity.slots),
            inside: Semaphore::new(capacity.slots + capacity.queue),
        });
        let shared = Arc::new(Shared {
            clock,
            script: Mutex::new(Arc::new(|_: &Arrival| Behaviour::ok())),
            journal: Arc::new(Journal::default()),
            slots: slots.map(Arc::new),
            cut_all: watch::Sender::new(()),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accept: Mutex::new(Some(task)) })
    }

    /// Does this with every request from now on.
    pub fn set(&self, behaviour: Behaviour) {
        self.script(move |_| behaviour.clone());
    }

    /// Decides per request from now on.
    pub fn script(&self, script: impl Fn(&Arrival) -> Behaviour + Send + Sync + 'static) {
        *self.shared.script.lock() = Arc::new(script);
    }

    /// Stops listening and cuts every connection: new ones are refused, as by a stopped process.
    /// Returns when the last connection has gone.
    pub async fn refuse(&self) {
        let task = self.accept.lock().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
        self.shared.cut_all.send_replace(());
        self.shared.cut_all.closed().await;
    }

    /// Listens again, on the same port, after [`Upstream::refuse`].
    ///
    /// # Errors
    /// If the port has been taken meanwhile.
    pub async fn listen_again(&self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        let task = tokio::spawn(accept(listener, Arc::clone(&self.shared)));
        *self.accept.lock() = Some(task);
        Ok(())
    }

    /// What reached it.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(task) = self.accept.lock().take() {
            task.abort();
        }
        self.shared.cut_all.send_replace(());
    }
}

/// What all connections of an upstream share.
struct Shared {
    clock: Clock,
    script: Mutex<Arc<dyn Script>>,
    journal: Arc<Journal>,
    slots: Option<Arc<Slots>>,
    cut_all: watch::Sender<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// Decides what happens to an arrival.
trait Script: Fn(&Arrival) -> Behaviour + Send + Sync {}

impl<F: Fn(&Arrival) -> Behaviour + Send + Sync> Script for F {}

/// Both semaphores hand out in order.
struct Slots {
    free: Semaphore,
    inside: Semaphore,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let (number, open) = shared.journal.connected();
        let serving = wire::serve(stream, number, Arc::clone(&shared));
        tokio::spawn(async move {
            serving.await;
            drop(open);
        });
    }
}

/// From the request's head to the answer's; [`Cut`] ends the stream without one.
async fn respond(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Cut> {
    let (head, body) = request.into_parts();
    let clock = shared.clock;
    let (place, arrival) = shared.journal.arrive(|| clock.now(), connection.number, &head);
    let _in_flight = shared.journal.enter();
    let script = Arc::clone(&shared.script.lock());
    let behaviour = script(&arrival);
    if matches!(behaviour.ending, Ending::NeverRead) {
        std::future::pending::<()>().await;
    }
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    shared.journal.read_body(place, &body);

    let ending = behaviour.ending;
    let notices = behaviour.notices_leaving;
    let work = work(shared, place, arrival, behaviour);
    let response = if notices { work.await } else { tokio::spawn(work).await.map_err(|_| Cut)? };
    match ending {
        Ending::Answer | Ending::SlowBody { .. } => Ok(response),
        Ending::LostReply | Ending::Close => connection.close().await,
        Ending::Reset => {
            connection.reset_when_dropped();
            Err(Cut)
        }
        Ending::Hang | Ending::NeverRead => std::future::pending().await,
    }
}

/// The work itself: a slot, the service time, the effect.
async fn work(
    shared: Arc<Shared>,
    place: usize,
    arrival: Arrival,
    behaviour: Behaviour,
) -> Response<Reply> {
    let slots = shared.slots.clone();
    let inside = slots.as_ref().map(|slots| slots.inside.try_acquire());
    if matches!(inside, Some(Err(_))) {
        return answer(StatusCode::SERVICE_UNAVAILABLE, Behaviour::status(503));
    }
    let _slot = match &slots {
        Some(slots) => slots.free.acquire().await.ok(),
        None => None,
    };
    let delay = service_time(behaviour.latency);
    if !delay.is_zero() {
        let until = shared.clock.now().after(delay);
        tokio::time::sleep_until(shared.clock.instant(until)).await;
    }
    let has_effect =
        matches!(behaviour.ending, Ending::Answer | Ending::LostReply | Ending::SlowBody { .. });
    if !has_effect || !behaviour.status.is_success() {
        return answer(behaviour.status, behaviour);
    }
    let key = arrival.key.as_deref().filter(|_| behaviour.honours_keys);
    let status = shared.journal.execute(place, key, behaviour.status);
    answer(status, behaviour)
}

fn service_time(latency: Latency) -> std::time::Duration {
    match latency {
        Latency::Fixed(time) => time,
        Latency::Exponential(mean) => mean.mul_f64(exponential(ThreadRng.next_u64())),
    }
}

/// A draw from the exponential distribution with mean 1, from a uniform word.
pub(in crate::demo) fn exponential(word: u64) -> f64 {
    // The top 53 bits, as a number in (0, 1].
    let uniform = ((word >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -uniform.ln()
}

fn answer(status: StatusCode, behaviour: Behaviour) -> Response<Reply> {
    let Behaviour { body, fields, ending, .. } = behaviour;
    let body = match ending {
        Ending::SlowBody { pieces, gap } => Reply::slow(body, pieces, gap),
        _ => Reply::full(body),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in fields {
        response.headers_mut().append(name, value);
    }
    response
}

/// Why a stream ends without an answer.
#[derive(Debug)]
struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut by the script")
    }
}

impl std::error::Error for Cut {}

#[cfg(test)]
mod tests;
