//! Turns names into addresses without letting a resolver that hangs take anything else along.
//!
//! getaddrinfo blocks its thread and cannot be stopped. So at most a few run at once, each keeps
//! its slot until it really ends, and callers wait for it only as long as they care to. Callers
//! that ask for the same name share one lookup. A good answer serves for its time to live, and
//! beyond it while the resolver is silent or failing: an address that worked is worth more than
//! none. A failure is remembered for a second, so that a storm of dials is one lookup.
//!
//! A name that was asked for in the last minute is looked up again before its answer is old, so
//! that no dial waits for a resolver that works; and once a lookup has been silent for a second, no
//! dial waits for it that has an old answer.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Resolves names for the pools that share it; clones share its cache and its slots.
#[derive(Clone)]
pub(crate) struct Resolver {
    inner: Arc<Inner>,
}

/// A name has no address, or none in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolveError(Arc<str>);

/// What a resolver holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolverStats {
    /// Names in the cache.
    pub names: usize,
    /// As many as may be.
    pub max_names: usize,
    /// Lookups that run.
    pub in_flight: usize,
    /// As many as may.
    pub max_in_flight: usize,
    /// Of these, lookups nobody waits for any more.
    pub zombies: usize,
    /// Lookups begun.
    pub lookups_total: u64,
    /// Lookups that brought addresses.
    pub answers_total: u64,
    /// Lookups that failed.
    pub failures_total: u64,
    /// Calls served with an answer past its time to live.
    pub stale_total: u64,
}

impl Resolver {
    /// The system's resolver, with at most `max_in_flight` lookups at once (default 8, 1 or more)
    /// and good answers kept for `ttl` (default 5 s).
    #[must_use]
    pub(crate) fn new(max_in_flight: usize, ttl: Duration, clock: Clock) -> Self {
        Self::with_lookup(max_in_flight, ttl, clock, |host| {
            Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
        })
    }

    /// The same with another source of addresses; it may block.
    #[must_use]
    pub(crate) fn with_lookup(
        max_in_flight: usize,
        ttl: Duration,
        clock: Clock,
        lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        let max_in_flight = max_in_flight.max(1);
        let inner = Inner {
            lookup: Box::new(lookup),
            slots: Arc::new(Semaphore::new(max_in_flight)),
            max_in_flight,
            ttl,
            clock,
            state: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The addresses of `host`, within `patience`. If an older answer is at hand, half of that
    /// time is spent on a fresh one. Literal addresses need neither time nor a slot.
    ///
    /// # Errors
    ///
    /// There is no address, fresh or old.
    pub(crate) async fn resolve(
        &self,
        host: &str,
        patience: Duration,
    ) -> Result<Arc<[IpAddr]>, ResolveError> {
        if let Ok(literal) = host.parse() {
            return Ok(Arc::new([literal]));
        }
        let now = self.inner.clock.now();
        let (mut answer, old) = match self.inner.ask(host, now)? {
            Asked::Known(addresses) => return Ok(addresses),
            Asked::Pending(answer, old) => (answer, old),
        };
        let _waiting = Waiting { inner: &self.inner, host };
        let patience = if old.is_some() { patience / 2 } else { patience };
        let answered = timeout(patience, answer.wait_for(Option::is_some)).await;
        let fresh = match answered {
            Ok(Ok(answer)) => answer.clone().unwrap_or(Err(ResolveError("no answer".into()))),
            Ok(Err(_)) => Err(ResolveError("the lookup was cancelled".into())),
            Err(_) => Err(ResolveError("the lookup timed out".into())),
        };
        fresh.or_else(|error| {
            let old = old.ok_or(error)?;
            self.inner.state.lock().stale += 1;
            Ok(old)
        })
    }

    /// Looks up anew the names in use whose answer will soon be old. To be called several times
    /// within a fifth of the time to live.
    pub(crate) fn refresh(&self, now: Timestamp) {
        let inner = &self.inner;
        for (host, name) in &mut inner.state.lock().names {
            let wanted = now.since(name.asked) < IN_USE;
            if wanted && name.is_due(now, inner.ttl) {
                inner.begin(host, name, now);
            }
        }
    }

    /// What the resolver holds and has done.
    #[must_use]
    pub(crate) fn stats(&self) -> ResolverStats {
        let state = self.inner.state.lock();
        let zombies = state.names.values().filter(|name| name.is_zombie()).count();
        ResolverStats {
            names: state.names.len(),
            max_names: MAX_NAMES,
            max_in_flight: self.inner.max_in_flight,
            in_flight: self.inner.max_in_flight - self.inner.slots.available_permits(),
            zombies,
            lookups_total: state.lookups,
            answers_total: state.answers,
            failures_total: state.failures,
            stale_total: state.stale,
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ResolveError {}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;
type Answer = Result<Arc<[IpAddr]>, ResolveError>;

struct Inner {
    lookup: Box<Lookup>,
    slots: Arc<Semaphore>,
    max_in_flight: usize,
    ttl: Duration,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Name>,
    lookups: u64,
    answers: u64,
    failures: u64,
    stale: u64,
}

/// What is known of one name.
#[derive(Default)]
struct Name {
    /// The last good answer and when it grows old.
    good: Option<(Arc<[IpAddr]>, Timestamp)>,
    /// The last answer, if it was a failure, and until when it stands.
    bad: Option<(ResolveError, Timestamp)>,
    pending: Option<watch::Receiver<Option<Answer>>>,
    /// When the pending lookup was begun.
    begun: Timestamp,
    /// The pending lookup holds a slot.
    running: bool,
    /// Callers of the pending lookup.
    waiting: usize,
    asked: Timestamp,
}

impl Name {
    fn is_zombie(&self) -> bool {
        self.running && self.waiting == 0
    }

    /// Whether there is a good answer in the last fifth of its time, or past it, and nothing is
    /// done about it.
    fn is_due(&self, now: Timestamp, ttl: Duration) -> bool {
        let is_old = self.good.as_ref().is_some_and(|(_, until)| until.before(ttl / 5) <= now);
        let has_failed = self.bad.as_ref().is_some_and(|(_, until)| now < *until);
        is_old && !has_failed && self.pending.is_none()
    }
}

enum Asked {
    Known(Arc<[IpAddr]>),
    Pending(watch::Receiver<Option<Answer>>, Option<Arc<[IpAddr]>>),
}

impl Inner {
    /// What is known of the name, or the lookup that will tell; begins it if nobody has.
    fn ask(self: &Arc<Self>, host: &str, now: Timestamp) -> Result<Asked, ResolveError> {
        let mut state = self.state.lock();
        state.make_room(host)?;
        let State { names, stale, .. } = &mut *state;
        let name = names.entry(host.to_owned()).or_default();
        name.asked = now;
        let old = name.good.as_ref().map(|(addresses, _)| Arc::clone(addresses));
        if let Some((addresses, until)) = &name.good
            && now < *until
        {
            let known = Arc::clone(addresses);
            if name.is_due(now, self.ttl) {
                self.begin(host, name, now);
            }
            return Ok(Asked::Known(known));
        }
        if let Some((error, until)) = &name.bad
            && now < *until
        {
            *stale += u64::from(old.is_some());
            return old.map(Asked::Known).ok_or_else(|| error.clone());
        }
        if let (Some(_), Some(old)) = (&name.pending, &old)
            && now.since(name.begun) >= SILENT
        {
            *stale += 1;
            return Ok(Asked::Known(Arc::clone(old)));
        }
        name.waiting += 1;
        let pending = match &name.pending {
            Some(pending) => pending.clone(),
            None => self.begin(host, name, now),
        };
        Ok(Asked::Pending(pending, old))
    }

    /// Begins the lookup of a name that has none pending.
    fn begin(
        self: &Arc<Self>,
        host: &str,
        name: &mut Name,
        now: Timestamp,
    ) -> watch::Receiver<Option<Answer>> {
        let (answer, pending) = watch::channel(None);
        name.pending = Some(pending.clone());
        name.begun = now;
        tokio::spawn(Arc::clone(self).look_up(host.to_owned(), answer));
        pending
    }

    /// Looks the name up once a slot is free. No caller owns this: it ends when getaddrinfo does.
    async fn look_up(self: Arc<Self>, host: String, answer: watch::Sender<Option<Answer>>) {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
        {
            let mut state = self.state.lock();
            state.lookups += 1;
            if let Some(name) = state.names.get_mut(&host) {
                name.running = true;
            }
        }
        let (inner, asked) = (Arc::clone(&self), host.clone());
        let looked_up = crate::blocking::apart(move || {
            let found = (inner.lookup)(&asked);
            drop(slot);
            found
        });
        let found = match looked_up.await {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(ResolveError("no address".into())),
            Ok(Ok(addresses)) => Ok(addresses.into()),
            Ok(Err(error)) => Err(ResolveError(error.to_string().into())),
            Err(error) => Err(ResolveError(error.to_string().into())),
        };
        self.learn(&host, &found);
        answer.send_replace(Some(found));
    }

    fn learn(&self, host: &str, found: &Answer) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.answers += u64::from(found.is_ok());
        state.failures += u64::from(found.is_err());
        let Some(name) = state.names.get_mut(host) else { return };
        name.pending = None;
        name.running = false;
        match found {
            Ok(addresses) => {
                name.good = Some((Arc::clone(addresses), now.after(self.ttl)));
                name.bad = None;
            }
            Err(error) => name.bad = Some((error.clone(), now.after(NEGATIVE_TTL))),
        }
    }
}

impl State {
    /// Forgets the name that was asked for least recently if a new one does not fit.
    fn make_room(&mut self, host: &str) -> Result<(), ResolveError> {
        if self.names.len() < MAX_NAMES || self.names.contains_key(host) {
            return Ok(());
        }
        let settled = self.names.iter().filter(|(_, name)| name.pending.is_none());
        let oldest = settled.min_by_key(|(_, name)| name.asked).map(|(host, _)| host.clone());
        let oldest = oldest.ok_or_else(|| ResolveError("too many names are pending".into()))?;
        self.names.remove(&oldest);
        Ok(())
    }
}

/// A caller that waits; counted out when it stops.
struct Waiting<'a> {
    inner: &'a Inner,
    host: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.inner.state.lock().names.get_mut(self.host) {
            name.waiting = name.waiting.saturating_sub(1);
        }
    }
}

/// How long a failure stands. Source: own choice: long enough to make one lookup of a storm, short
/// enough not to outlive a restart of the resolver.
const NEGATIVE_TTL: Duration = Duration::from_secs(1);
/// How long a name is kept fresh after it was asked for. Source: own choice: as long as the
/// connections of a burst are kept.
const IN_USE: Duration = Duration::from_secs(60);
/// A lookup that takes this long is not worth waiting for if an old answer is there.
/// Source: own choice: half of the default connect timeout.
const SILENT: Duration = Duration::from_secs(1);
/// Names kept. Names come from the configuration, so this bounds a mistake.
const MAX_NAMES: usize = 1_024;

#[cfg(test)]
mod tests;
