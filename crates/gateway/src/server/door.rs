//! Lets connections in or refuses them, before anything is done for them.
//!
//! What is decided is the policy's; here is what it needs of the world. A refusal is a reset, or
//! an answer to who speaks HTTP/1 in plain text: read once, written, ended, and left to be read
//! for a second at most, because a socket closed with bytes unread is reset and takes its answer
//! along. So many are answered at once, of all listeners; beyond that, and for whoever could not
//! read it, it is a reset. Who is refused leaves no line in the log and holds no place among the
//! connections.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use seawall::{Clock, ThreadRng};
use seawall_policy::{
    Door as Policy, DoorRefusal, Entrance, Farewell, RateExceeded, RateKey, RateOptions, Spread,
    Timestamp,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::conn::ConnSettings;
use super::gauges::ConnectionGauges;
use super::listener::Peer;
use crate::quota::network;
use crate::wire::Wire;

/// The door of one listener; its state stays for as long as the listener listens.
#[derive(Debug)]
pub(super) struct Door {
    policy: Mutex<Policy>,
    /// When those end that stall.
    ends: Mutex<Spread>,
    settings: Arc<ArcSwap<ConnSettings>>,
    /// Makes keys of addresses, with a secret of this door.
    hasher: RandomState,
    clock: Clock,
    gauges: Arc<ConnectionGauges>,
    listener: usize,
    answers: Arc<Answers>,
}

/// A connection that was let in; its address has one less once this is dropped.
#[derive(Debug)]
pub(super) struct Entered(Option<(Arc<Door>, Entrance)>);

/// A request more than its address may make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooManyRequests {
    /// The rate it has.
    pub(crate) rate: RateOptions,
    /// From when on it may make one more.
    pub(crate) retry_after: Duration,
}

/// Places for refusals that are being answered, of all listeners.
#[derive(Debug)]
pub(crate) struct Answers(Arc<Semaphore>);

impl Answers {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS_MAX)))
    }

    /// How many are being answered, and how many may be.
    pub(crate) fn depth(&self) -> (usize, usize) {
        (ANSWERS_MAX - self.0.available_permits(), ANSWERS_MAX)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((door, entrance)) = self.0.take() {
            door.with_policy(|policy| policy.release(entrance));
        }
    }
}

impl Door {
    pub(super) fn new(
        settings: Arc<ArcSwap<ConnSettings>>,
        clock: Clock,
        (gauges, listener): (Arc<ConnectionGauges>, usize),
        answers: Arc<Answers>,
    ) -> Arc<Self> {
        let (policy, hasher) = (Mutex::new(Policy::new()), RandomState::new());
        let ends = Mutex::new(Spread::new());
        Arc::new(Self { policy, ends, settings, hasher, clock, gauges, listener, answers })
    }

    /// What holds for the connections that come now.
    pub(super) fn settings(&self) -> Arc<ConnSettings> {
        self.settings.load_full()
    }

    /// Lets a connection in, or refuses it, and then it is gone. Whoever is trusted speaks for
    /// many, and whoever has no address for nobody: neither is limited by it.
    pub(super) fn pass(self: &Arc<Self>, socket: Wire, peer: Peer) -> Option<(Wire, Entered)> {
        let settings = self.settings.load();
        let options = &settings.listener;
        if !options.door.refuses() {
            return Some((socket, Entered(None)));
        }
        let address = match peer {
            Peer::Tcp(address) if !(options.is_trusted)(address.ip()) => Some(address.ip()),
            Peer::Tcp(_) | Peer::Unix => None,
        };
        let key = address.map(|address| self.key(address, options.ipv6_prefix));
        let now = self.clock.now();
        let passed = self.with_policy(|policy| {
            policy
                .try_acquire(now, &options.door, key)
                .map_err(|refusal| (refusal, policy.farewell(now, &options.door, &mut ThreadRng)))
        });
        match passed {
            Ok(entrance) => Some((socket, Entered(Some((Arc::clone(self), entrance))))),
            Err((refusal, farewell)) => {
                self.refuse(socket, refusal, farewell);
                None
            }
        }
    }

    /// Admits a request of a caller who has this address.
    ///
    /// # Errors
    /// It made more than it may.
    pub(super) fn ask(&self, now: Timestamp, caller: IpAddr) -> Result<(), TooManyRequests> {
        let settings = self.settings.load();
        let options = &settings.listener;
        let Some(rate) = options.door.request_rate() else { return Ok(()) };
        let key = self.key(caller, options.ipv6_prefix);
        let asked = self.with_policy(|policy| policy.try_request(now, &options.door, key));
        // A request costs one, which is in every burst.
        let wait = |exceeded: RateExceeded| exceeded.retry_after.unwrap_or(rate.period);
        asked.map_err(|refused| TooManyRequests { rate, retry_after: wait(refused) })
    }

    /// How long a caller may take nothing of what waits for it, if the listener says so.
    pub(super) fn stall(&self) -> Option<Duration> {
        self.settings.load().listener.stall
    }

    /// When a caller that stalls is to be closed.
    pub(super) fn book_end(&self, now: Timestamp) -> Timestamp {
        let settings = self.settings.load();
        self.ends.lock().book(now, &settings.listener.ends, &mut ThreadRng)
    }

    fn key(&self, address: IpAddr, ipv6_prefix: u8) -> RateKey {
        RateKey::from_hash(self.hasher.hash_one(network(address, ipv6_prefix)))
    }

    /// And notes what became of the addresses that are known.
    fn with_policy<T>(&self, act: impl FnOnce(&mut Policy) -> T) -> T {
        let mut policy = self.policy.lock();
        let before = (policy.addresses(), policy.evicted_total());
        let done = act(&mut policy);
        let after = (policy.addresses(), policy.evicted_total());
        drop(policy);
        if before != after {
            self.gauges.on_addresses(self.listener, before, after);
        }
        done
    }

    /// Refuses by a reset a connection that the policy is not asked of.
    pub(super) fn refuse_untold(&self, socket: Wire, refusal: DoorRefusal) {
        self.refuse(socket, refusal, Farewell::Reset);
    }

    fn refuse(&self, socket: Wire, refusal: DoorRefusal, farewell: Farewell) {
        let place = match farewell {
            Farewell::Reset => None,
            Farewell::Answer(_) => Arc::clone(&self.answers.0).try_acquire_owned().ok(),
        };
        self.gauges.on_turn_away(self.listener, refusal, place.is_some());
        match (farewell, place) {
            (Farewell::Answer(seconds), Some(place)) => {
                tokio::spawn(answer(socket, refusal, seconds, place));
            }
            _ => socket.reset(),
        }
    }
}

/// Tells who is refused, if it can read it, and closes.
async fn answer(
    mut socket: Wire,
    refusal: DoorRefusal,
    seconds: u64,
    _place: OwnedSemaphorePermit,
) {
    let told = async {
        let mut scrap = [0; 1024];
        // An answer before the request would be thrown away by many.
        let read = socket.read(&mut scrap).await.ok()?;
        if !is_http1(&scrap[..read]) {
            return None;
        }
        socket.write_all(text(refusal, seconds).as_bytes()).await.ok()?;
        socket.shutdown().await.ok()?;
        let mut left = LINGER_BYTES;
        while left > 0 {
            match socket.read(&mut scrap).await.ok()? {
                0 => return Some(()),
                read => left = left.saturating_sub(read),
            }
        }
        None
    };
    if timeout(ANSWER_TIME, told).await != Ok(Some(())) {
        socket.reset();
    }
}

/// Whether a request of HTTP/1 may begin so: with a method, that of HTTP/2's preface left out.
fn is_http1(begin: &[u8]) -> bool {
    begin.first().is_some_and(u8::is_ascii_uppercase) && !begin.starts_with(b"PRI")
}

fn text(refusal: DoorRefusal, seconds: u64) -> String {
    let (status, reason, code, detail) = match refusal {
        // The last two are never answered.
        DoorRefusal::AcceptRate | DoorRefusal::NotAProxy | DoorRefusal::ProxyHeader => {
            (503, "Service Unavailable", "overloaded", "as many connections came as may come now")
        }
        DoorRefusal::AddressConnections | DoorRefusal::AddressRate => (
            429,
            "Too Many Requests",
            "quota-exceeded",
            "the caller's address has as many connections as it may have now",
        ),
    };
    let source = if status == 503 { "internal" } else { "downstream" };
    let body = format!(
        "{{\"title\":\"{reason}\",\"status\":{status},\"code\":\"{code}\",\"detail\":\"{detail}\",\
         \"source\":\"{source}\",\"sent\":\"nothing\"}}"
    );
    format!(
        "HTTP/1.1 {status} {reason}\r\nconnection: close\r\nretry-after: {seconds}\r\n\
         seawall-problem: {code}\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Refusals answered at once, each a socket. Source: seawall-design.
const ANSWERS_MAX: usize = 64;
/// From its beginning to the peer's end. Source: seawall-design.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Bytes read of a peer that is refused. Source: seawall-design.
const LINGER_BYTES: usize = 64 * 1024;
