//! An open-loop load: calls are due when the schedule says, whatever became of earlier ones.
//!
//! A load that waits for answers sends less the worse the service gets, and so hides what a storm
//! does. Here a slow answer delays no other call, latency counts from the moment a call was due,
//! and a call for which no place is free is counted as failed, never left out.

mod client;
mod ledger;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::{Rng as _, SplitMix64, Timestamp};
use tokio::task::JoinHandle;

pub use client::{Answer, Client, Failure, Protocol};
pub use ledger::{Call, Figures, Ledger};

/// How a load sends.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Calls per second, at least 1.
    pub rate: u32,
    /// How they are spaced.
    pub spacing: Spacing,
    /// How long a caller waits before it leaves.
    pub patience: Duration,
    /// Calls open at once; one more fails as [`Failure::Overflow`]. Default 4,096.
    pub concurrency: usize,
    /// What the caller does about a failure. Default: nothing.
    pub retry: Option<PlainRetry>,
}

impl LoadOptions {
    /// Evenly spaced calls at `rate` per second, each given up after `patience`.
    #[must_use]
    pub const fn new(rate: u32, patience: Duration) -> Self {
        Self { rate, spacing: Spacing::Even, patience, concurrency: 4096, retry: None }
    }

    /// The same, with a caller that tries again.
    #[must_use]
    pub const fn retrying(mut self, retry: PlainRetry) -> Self {
        self.retry = Some(retry);
        self
    }
}

/// How calls are spaced.
#[derive(Clone, Copy, Debug)]
pub enum Spacing {
    /// The same gap between any two.
    Even,
    /// As from many independent callers; equal seeds give equal schedules.
    Poisson {
        /// Where the sequence starts.
        seed: u64,
    },
}

/// What most clients do: try again after a fixed delay, whatever the reason.
#[derive(Clone, Copy, Debug)]
pub struct PlainRetry {
    /// Attempts, the first included.
    pub max_attempts: u32,
    /// The wait between two.
    pub delay: Duration,
    /// How long each attempt may take.
    pub timeout: Duration,
}

/// A load that is running.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    schedule: JoinHandle<()>,
}

struct Shared {
    clock: Clock,
    client: Arc<Client>,
    options: LoadOptions,
    request: Box<dyn Fn(u64) -> Request<Full<Bytes>> + Send + Sync>,
    open: AtomicUsize,
    ledger: Mutex<Ledger>,
    idle: tokio::sync::Notify,
}

impl Shared {
    /// Notes an ended call. The clock is read under the lock, so that the ledger is in order.
    fn end(&self, due: Timestamp, end: Result<u16, Failure>) {
        let mut ledger = self.ledger.lock();
        ledger.push(Call { due, ended: self.clock.now(), end });
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Load {
    /// Sends `request(n)` for n = 0, 1, … through `client`, the first one due at `begin`.
    #[must_use]
    pub fn start(
        clock: Clock,
        begin: Timestamp,
        client: Arc<Client>,
        options: LoadOptions,
        request: impl Fn(u64) -> Request<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            clock,
            client,
            options,
            request: Box::new(request),
            open: AtomicUsize::new(0),
            ledger: Mutex::default(),
            idle: tokio::sync::Notify::new(),
        });
        let schedule = tokio::spawn(schedule(Arc::clone(&shared), begin));
        Self { shared, schedule }
    }

    /// The figures of the calls due in `from..to` that have ended.
    #[must_use]
    pub fn within(&self, from: Timestamp, to: Timestamp) -> Figures {
        self.shared.ledger.lock().within(from, to)
    }

    /// Good answers that came in `from..to`.
    #[must_use]
    pub fn good_answers(&self, from: Timestamp, to: Timestamp) -> u64 {
        self.shared.ledger.lock().good_answers(from, to)
    }

    /// Calls that are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Ends the schedule, waits until every open call has ended, and hands over the ledger.
    pub async fn stop(self) -> Ledger {
        self.schedule.abort();
        let _ = self.schedule.await;
        loop {
            let idle = self.shared.idle.notified();
            if self.shared.open.load(Ordering::Acquire) == 0 {
                break;
            }
            idle.await;
        }
        std::mem::take(&mut *self.shared.ledger.lock())
    }
}

/// A `GET` of `path`.
#[must_use]
pub fn get(path: &str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    if let Ok(uri) = path.parse() {
        *request.uri_mut() = uri;
    }
    request
}

async fn schedule(shared: Arc<Shared>, begin: Timestamp) {
    let gap = Duration::from_secs(1) / shared.options.rate.max(1);
    let mut draws = match shared.options.spacing {
        Spacing::Even => None,
        Spacing::Poisson { seed } => Some(SplitMix64::new(seed)),
    };
    let mut due = begin;
    for number in 0.. {
        tokio::time::sleep_until(shared.clock.instant(due)).await;
        if shared.open.load(Ordering::Relaxed) >= shared.options.concurrency {
            shared.end(due, Err(Failure::Overflow));
        } else {
            shared.open.fetch_add(1, Ordering::AcqRel);
            tokio::spawn(call(Arc::clone(&shared), number, due));
        }
        let share =
            draws.as_mut().map_or(1.0, |draws| super::upstream::exponential(draws.next_u64()));
        due = due.after(gap.mul_f64(share));
    }
}

async fn call(shared: Arc<Shared>, number: u64, due: Timestamp) {
    let request = (shared.request)(number);
    let end = match shared.options.retry {
        None => shared.client.send(request, shared.options.patience).await.map(status),
        Some(retry) => {
            let calling = insist(&shared.client, request, retry);
            tokio::time::timeout(shared.options.patience, calling)
                .await
                .unwrap_or(Err(Failure::Left))
        }
    };
    shared.end(due, end);
    if shared.open.fetch_sub(1, Ordering::AcqRel) == 1 {
        shared.idle.notify_waiters();
    }
}

/// The plain client: attempts are numbered so that the upstream can tell them apart.
async fn insist(
    client: &Client,
    request: Request<Full<Bytes>>,
    retry: PlainRetry,
) -> Result<u16, Failure> {
    let mut attempt = 1;
    loop {
        let mut copy = request.clone();
        copy.headers_mut().insert("x-retry-attempt", HeaderValue::from(attempt));
        let end = client.send(copy, retry.timeout).await.map(status);
        let good = matches!(end, Ok(status) if status < 500 && status != 429);
        if good || attempt == retry.max_attempts {
            return end;
        }
        attempt += 1;
        tokio::time::sleep(retry.delay).await;
    }
}

fn status(answer: Answer) -> u16 {
    answer.status.as_u16()
}

#[cfg(test)]
mod tests;
