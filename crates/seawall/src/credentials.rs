//! What a stack's calls prove themselves with, and how it is had anew when it is rejected.
//!
//! A token expires between two calls, and then every call in flight is rejected at once. The token
//! service must not be hit by all of them, nor again and again when what it gives is rejected too:
//! - One refresh at a time, whoever asks: who comes meanwhile waits for the same one.
//! - A credential has a generation. A rejection of an older one takes the newer at once.
//! - After a refresh, whatever came of it, none begins for a second: that long a failure, and a
//!   rejection of what was new, are believed.
//! - A refresh has 2 s, in a task of its own: callers may leave, it ends by itself.
//!
//! A call that was rejected waits for the refresh, within its deadline, and is sent once more.
//! One that cannot be sent again still has the credential refreshed, for those that follow.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use parking_lot::Mutex;
use seawall_policy::{ConfigError, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;

/// A secret. Not shown by `Debug`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    secret: Bytes,
}

impl Credential {
    /// As it is sent: for `Authorization`, the whole value with its scheme.
    #[must_use]
    pub fn new(secret: impl Into<Bytes>) -> Self {
        Self { secret: secret.into() }
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.secret
    }

    /// The secret as the value of a field, marked as sensitive. The bytes are shared.
    ///
    /// # Errors
    /// It has a byte that no field value may have.
    pub fn header_value(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut value = HeaderValue::from_maybe_shared(self.secret.clone())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// How a refresh ended. Each is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefreshResult {
    /// There is another credential.
    Renewed,
    /// The source gave the one that was rejected.
    Unchanged,
    /// The source failed.
    Failed,
    /// The source took too long.
    TimedOut,
}

impl RefreshResult {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Renewed, Self::Unchanged, Self::Failed, Self::TimedOut];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Renewed => "renewed",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The credential in force and where the next comes from. Clones share one. Give it to a stack by
/// [`Stack::with_credentials`](crate::Stack::with_credentials).
///
/// ```
/// use seawall::{Credential, Credentials, Stack, StackConfig};
/// let first = Credential::new("Bearer one");
/// let source = || async { Ok::<_, std::io::Error>(Credential::new("Bearer two")) };
/// let stack = Stack::new("orders", &StackConfig::http())?
///     .with_credentials(Credentials::new(first, source));
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Credentials {
    inner: Arc<Inner>,
}

struct Inner {
    issued: ArcSwap<Issued>,
    state: Mutex<State>,
    /// Told at the end of each refresh, and when there is another credential without one.
    ended: watch::Sender<()>,
    source: Source,
    timeout: Duration,
    clock: Clock,
    counts: [AtomicU64; RefreshResult::ALL.len()],
}

/// A credential as it came, and the how manieth it is.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) credential: Credential,
    pub(crate) generation: u64,
}

struct State {
    running: bool,
    rests_until: Timestamp,
}

/// What the source gives: nothing if it fails. Its errors are its own to tell.
type Renewed = Pin<Box<dyn Future<Output = Option<Credential>> + Send>>;
type Source = Box<dyn Fn() -> Renewed + Send + Sync>;

impl Credentials {
    /// Begins with `first`. After a rejection, `source` is asked for another one and has 2 s. Its
    /// error is dropped: what there is to say of it, it says itself.
    #[must_use]
    pub fn new<F, E>(first: Credential, source: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credential, E>> + Send + 'static,
    {
        Self::make(first, TIMEOUT, source)
    }

    /// As [`Credentials::new`], with a time of your own.
    ///
    /// # Errors
    /// A `timeout` of zero, or of more than a minute.
    pub fn with_timeout<F, E>(
        first: Credential,
        timeout: Duration,
        source: impl Fn() -> F + Send + Sync + 'static,
    ) -> Result<Self, ConfigError>
    where
        F: Future<Output = Result<Credential, E>> + Send + 'static,
    {
        if timeout.is_zero() || timeout > TIMEOUT_MAX {
            let allowed = "above zero, at most 1 min";
            return Err(ConfigError::new("timeout", format!("{timeout:?}"), allowed));
        }
        Ok(Self::make(first, timeout, source))
    }

    fn make<F, E>(
        first: Credential,
        timeout: Duration,
        source: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Credential, E>> + Send + 'static,
    {
        let source: Source = Box::new(move || {
            let renewed = source();
            Box::pin(async move { renewed.await.ok() })
        });
        let inner = Inner {
            issued: ArcSwap::from_pointee(Issued { credential: first, generation: 0 }),
            state: Mutex::new(State { running: false, rests_until: Timestamp::ZERO }),
            ended: watch::Sender::new(()),
            source,
            timeout,
            clock: Clock::new(),
            counts: Default::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The credential in force.
    #[must_use]
    pub fn current(&self) -> Credential {
        self.inner.issued.load().credential.clone()
    }

    /// Puts another in force, as a refresh does: calls whose credential is rejected after this take
    /// it at once. The same one again changes nothing. For whoever learns of a new one by itself.
    pub fn replace(&self, credential: Credential) {
        if self.inner.put(credential, |_| true) {
            // Who waits for a refresh waits no longer.
            self.inner.ended.send_replace(());
        }
    }

    /// How long a refresh may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Refreshes that ended so.
    #[must_use]
    pub fn count(&self, result: RefreshResult) -> u64 {
        self.inner.counts[result as usize].load(Relaxed)
    }

    pub(crate) fn issued(&self) -> Arc<Issued> {
        self.inner.issued.load_full()
    }

    /// The credential of this generation was rejected: begins a refresh, or joins the one that
    /// runs, unless there is a newer credential already or the last refresh is too recent.
    pub(crate) fn refresh(&self, rejected: u64) -> Refreshing {
        let mut refreshing = Refreshing { credentials: self.clone(), rejected, ended: None };
        let now = self.inner.clock.now();
        let mut state = self.inner.state.lock();
        if refreshing.is_fresh() || (!state.running && now < state.rests_until) {
            return refreshing;
        }
        refreshing.ended = Some(self.inner.ended.subscribe());
        let begins = !std::mem::replace(&mut state.running, true);
        drop(state);
        if begins {
            let mut run = Run { credentials: self.clone(), result: RefreshResult::Failed };
            tokio::spawn(async move { run.go().await });
        }
        refreshing
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("generation", &self.inner.issued.load().generation)
            .finish_non_exhaustive()
    }
}

/// A refresh that was begun or joined, or that there was no need for.
pub(crate) struct Refreshing {
    credentials: Credentials,
    rejected: u64,
    ended: Option<watch::Receiver<()>>,
}

impl Refreshing {
    /// Waits for its end, and not beyond `until`: whether there is another credential by then.
    pub(crate) async fn ended(mut self, until: Instant) -> bool {
        if let Some(ended) = &mut self.ended {
            // Late, or its runtime gone: then there is none.
            drop(timeout_at(until, ended.changed()).await);
        }
        self.is_fresh()
    }

    fn is_fresh(&self) -> bool {
        self.credentials.inner.issued.load().generation > self.rejected
    }
}

/// A refresh under way; ends with its drop, whoever drops it.
struct Run {
    credentials: Credentials,
    result: RefreshResult,
}

impl Run {
    async fn go(&mut self) {
        let inner = &self.credentials.inner;
        let due = inner.clock.instant(inner.clock.now().after(inner.timeout));
        let before = inner.issued.load().generation;
        let renewed = timeout_at(due, (inner.source)()).await;
        self.result = match renewed {
            Err(_) => RefreshResult::TimedOut,
            Ok(None) => RefreshResult::Failed,
            Ok(Some(credential)) => {
                // One that was put there meanwhile may be newer than what was read before that.
                match inner.put(credential, |generation| generation == before) {
                    true => RefreshResult::Renewed,
                    false => RefreshResult::Unchanged,
                }
            }
        };
    }
}

impl Inner {
    /// Puts a credential in force if it is another one, and `if_still` the generation in force is
    /// the right one; whether it did.
    fn put(&self, credential: Credential, if_still: impl FnOnce(u64) -> bool) -> bool {
        // Whoever puts one there knows which was there before.
        let _one = self.state.lock();
        let issued = self.issued.load();
        if credential == issued.credential || !if_still(issued.generation) {
            return false;
        }
        let generation = issued.generation + 1;
        self.issued.store(Arc::new(Issued { credential, generation }));
        true
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let inner = &self.credentials.inner;
        inner.counts[self.result as usize].fetch_add(1, Relaxed);
        let rests_until = inner.clock.now().after(REST);
        *inner.state.lock() = State { running: false, rests_until };
        inner.ended.send_replace(());
    }
}

/// Source: seawall-design.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Whoever waits longer has no caller any more. Source: seawall-design.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// What a token service can be asked for even if all it gives is rejected: once a second.
/// Source: seawall-design.
const REST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
