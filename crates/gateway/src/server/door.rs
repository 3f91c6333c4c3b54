//! Lets connections in or refuses them, before anything is done for them.
//!
//! What is decided is the policy's; here is what it needs of the world. A refusal is a reset, or an
//! answer to who speaks HTTP/1 in plain text: read once, written, ended, and left to be read for a
//! second at most, because a socket closed with bytes unread is reset and takes its answer along.
//! So many are answered at once, of all listeners; beyond that, and for whoever could not read it,
//! it is a reset. Who is refused leaves no line in the log and holds no place among the connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use seawall::{Clock, ThreadRng};
use seawall_policy::{Door as Policy, DoorParams, DoorRefusal, Farewell};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::gauges::ConnectionGauges;
use crate::wire::Wire;

/// The door of one listener; its state stays for as long as the listener listens.
#[derive(Debug)]
pub(super) struct Door {
    policy: Mutex<Policy>,
    clock: Clock,
    gauges: Arc<ConnectionGauges>,
    listener: usize,
    answers: Arc<Answers>,
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

impl Door {
    pub(super) fn new(
        clock: Clock,
        gauges: Arc<ConnectionGauges>,
        listener: usize,
        answers: Arc<Answers>,
    ) -> Self {
        Self { policy: Mutex::new(Policy::new()), clock, gauges, listener, answers }
    }

    /// Lets a connection in, or refuses it, and then it is gone.
    pub(super) fn pass(&self, socket: Wire, params: &DoorParams) -> Option<Wire> {
        if !params.refuses() {
            return Some(socket);
        }
        let now = self.clock.now();
        let mut policy = self.policy.lock();
        let refusal = match policy.try_acquire(now, params) {
            Ok(()) => return Some(socket),
            Err(refusal) => refusal,
        };
        let farewell = policy.farewell(now, params, &mut ThreadRng);
        drop(policy);
        self.refuse(socket, refusal, farewell);
        None
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
        DoorRefusal::AcceptRate => {
            (503, "Service Unavailable", "overloaded", "as many connections came as may come now")
        }
    };
    let body = format!(
        "{{\"title\":\"{reason}\",\"status\":{status},\"code\":\"{code}\",\"detail\":\"{detail}\",\
         \"source\":\"internal\",\"sent\":\"nothing\"}}"
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
