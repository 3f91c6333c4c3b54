//! One dependency and all its policies, shared by everyone who calls it.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::{Mutex, MutexGuard};
use seawall_policy::{
    Cause, ConfigError, Dependency, Outcome, Permit, RateKey, StackConfig, StackParams, Ticket,
    Timestamp,
};

use crate::checkouts::Checkouts;
use crate::clock::{Clock, ThreadRng};
use crate::credentials::Credentials;

/// All policies of one dependency. Clones share one state, so a limiter per connection cannot be
/// made by accident.
///
/// ```
/// use seawall::{Stack, StackConfig};
/// let stack = Stack::new("orders", &StackConfig::http())?;
/// # Ok::<(), seawall::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Stack {
    inner: Arc<Inner>,
    credentials: Option<Credentials>,
}

struct Inner {
    name: String,
    clock: Clock,
    state: Mutex<State>,
    checkouts: Checkouts,
    /// Seeded by the system, so that nobody outside can tell which keys share a place.
    key_hasher: RandomState,
}

/// A stack that this does not keep alive.
pub(crate) struct WeakStack(Weak<Inner>);

struct State {
    dependency: Dependency,
    /// Under the lock that every decision takes anyway.
    params: Arc<StackParams>,
    /// Who waits for a ticket. Bounded by the bulkhead's queue.
    wakers: HashMap<Ticket, Waker>,
}

impl Stack {
    /// The policies of a dependency with one endpoint and one lane.
    ///
    /// # Errors
    /// An option that could never take effect; see [`StackParams::new`].
    pub fn new(name: impl Into<String>, config: &StackConfig) -> Result<Self, ConfigError> {
        let params = StackParams::new(config)?;
        Ok(Self::with_topology(name, params, Clock::new(), 1, 1))
    }

    /// The policies of a dependency with several endpoints, used by several lanes (routes).
    #[must_use]
    pub fn with_topology(
        name: impl Into<String>,
        params: StackParams,
        clock: Clock,
        endpoints: usize,
        lanes: usize,
    ) -> Self {
        let state = State {
            dependency: Dependency::new(endpoints, lanes),
            params: Arc::new(params),
            wakers: HashMap::new(),
        };
        let inner = Inner {
            name: name.into(),
            clock,
            state: Mutex::new(state),
            checkouts: Checkouts::default(),
            key_hasher: RandomState::new(),
        };
        Self { inner: Arc::new(inner), credentials: None }
    }

    /// The same stack, whose calls made by this handle and its clones prove themselves with
    /// `credentials`: each attempt is handed the one in force
    /// ([`AttemptContext::credential`](crate::AttemptContext::credential)), and one that the other
    /// side rejects is refreshed. All state stays shared with other handles.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    /// What its calls prove themselves with, if this handle has been given it.
    #[must_use]
    pub const fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The name it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The clock it decides by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Checkouts from pools, by [`AttemptContext::checkout`](crate::AttemptContext::checkout).
    #[must_use]
    pub fn checkouts(&self) -> &Checkouts {
        &self.inner.checkouts
    }

    /// The key of whoever calls, for [`CallOptions::rate_key`](crate::CallOptions::rate_key): a
    /// hash with a secret of this stack, which is all that is kept of it. Give what comes from the
    /// network a bounded length.
    #[must_use]
    pub fn rate_key(&self, key: &impl Hash) -> RateKey {
        RateKey::from_hash(self.inner.key_hasher.hash_one(key))
    }

    /// The parameters in force.
    #[must_use]
    pub fn params(&self) -> Arc<StackParams> {
        Arc::clone(&self.inner.state.lock().params)
    }

    /// Swaps the parameters and keeps the state: windows, permits, open timers, balance.
    ///
    /// # Errors
    /// As [`Stack::new`]; the old parameters stay in force.
    pub fn reconfigure(&self, config: &StackConfig) -> Result<(), ConfigError> {
        let params = Arc::new(StackParams::new(config)?);
        let replaced = std::mem::replace(&mut self.inner.state.lock().params, params);
        drop(replaced);
        // A higher limit lets waiting calls in now.
        self.housekeep();
        Ok(())
    }

    /// Swaps the parameters and, in the same step, lets `reshape` change which endpoints and lanes
    /// there are ([`Dependency::reshape`]); everything else is kept. Held for no await.
    pub fn swap<T>(
        &self,
        params: StackParams,
        reshape: impl FnOnce(&mut Dependency, Timestamp) -> T,
    ) -> T {
        let mut params = Arc::new(params);
        let made = {
            let mut state = self.inner.state.lock();
            let now = self.inner.clock.now();
            let made = reshape(&mut state.dependency, now);
            std::mem::swap(&mut state.params, &mut params);
            made
        };
        // A higher limit lets waiting calls in now.
        self.housekeep();
        made
    }

    /// Runs `decide` on the state under its lock, then wakes whoever it decided for. Held for no
    /// await: `decide` is not async.
    pub fn with<T>(
        &self,
        decide: impl FnOnce(&mut Dependency, &StackParams, &mut ThreadRng) -> T,
    ) -> T {
        let mut woken = Woken::default();
        let mut deciding = Deciding { state: lock(&self.inner.state), woken: &mut woken };
        let State { dependency, params, .. } = &mut *deciding.state;
        // Nothing after it, so that what is decided, which may be large, is not moved again.
        decide(dependency, params, &mut ThreadRng)
    }

    /// Does what is due: frees the slots of calls long abandoned, expires waiters, lets open
    /// breakers go half-open. Everything also happens lazily; a housekeeping task that calls this
    /// every 100 ms makes it visible in time.
    pub fn housekeep(&self) {
        let now = self.inner.clock.now();
        self.with(|dependency, params, _| dependency.handle_timeout(now, params));
    }

    /// Whom to wake when `ticket` is decided. Wakers are cloned and dropped outside the lock: what
    /// they belong to may hold permits of this stack.
    pub(crate) fn wake_on(&self, ticket: Ticket, waker: &Waker) {
        let waker = waker.clone();
        let replaced = self.inner.state.lock().wakers.insert(ticket, waker);
        drop(replaced);
    }

    /// Forgets whom to wake.
    pub(crate) fn forget(&self, ticket: Ticket) {
        let forgotten = self.inner.state.lock().wakers.remove(&ticket);
        drop(forgotten);
    }

    /// How many wait to be woken.
    #[cfg(test)]
    pub(crate) fn wakers(&self) -> usize {
        self.inner.state.lock().wakers.len()
    }

    pub(crate) fn downgrade(&self) -> WeakStack {
        WeakStack(Arc::downgrade(&self.inner))
    }

    /// Frees the slot of a call that has really ended.
    pub(crate) fn release(&self, now: Timestamp, permit: Permit) {
        self.with(|dependency, params, _| dependency.release(now, params, permit));
    }
}

/// The lock is held for less than a microsecond: to wait for it costs less than to yield or to
/// sleep until it is free, which is what the mutex would soon do.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..SPINS {
        // Looked at first, since a try takes the cache line away from whom holds it.
        if !state.is_locked()
            && let Some(state) = state.try_lock()
        {
            return state;
        }
        std::hint::spin_loop();
    }
    state.lock()
}

/// A decision under way. Its drop ends it: the lock is free, and whom it decided for is known.
struct Deciding<'a> {
    state: MutexGuard<'a, State>,
    woken: &'a mut Woken,
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let State { dependency, wakers, .. } = &mut *self.state;
        while let Some(ticket) = dependency.pop_woken() {
            self.woken.extend(wakers.remove(&ticket));
        }
    }
}

/// Woken when dropped, which is after the lock is free.
#[derive(Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Woken {
    pub(crate) fn extend(&mut self, woken: Option<Waker>) {
        self.0.extend(woken);
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            std::mem::take(&mut self.0).into_iter().for_each(Waker::wake);
        }
    }
}

impl WeakStack {
    /// The stack, if somebody still uses it.
    pub(crate) fn upgrade(&self) -> Option<Stack> {
        self.0.upgrade().map(|inner| Stack { inner, credentials: None })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// The slot of a call that has been answered and not yet ended: its body still flows. Dropping it
/// frees the slot.
#[must_use = "dropping the guard frees the slot"]
pub struct SlotGuard {
    stack: Stack,
    /// Boxed, so that it is not large wherever an answer goes.
    permit: Option<Box<Permit>>,
}

impl SlotGuard {
    pub(crate) fn new(stack: Stack, permit: Permit) -> Self {
        Self { stack, permit: Some(Box::new(permit)) }
    }

    /// The endpoint that answered.
    #[must_use]
    pub fn endpoint(&self) -> Option<usize> {
        self.permit.as_ref().map(|permit| permit.endpoint())
    }

    /// Frees the slot, as dropping it does, at a time that is already known.
    pub fn end(mut self, now: Timestamp) {
        if let Some(permit) = self.permit.take() {
            self.stack.release(now, *permit);
        }
    }

    /// As [`SlotGuard::end`], of an answer whose status came at its end.
    pub fn end_with(mut self, now: Timestamp, outcome: &Outcome) {
        self.record_status(now, outcome);
        self.end(now);
    }

    /// Records what the answer's status says, if its head left that open
    /// ([`Outcome::awaiting_status`]). Of a call that was recorded before, only a failure counts.
    pub fn record_status(&mut self, now: Timestamp, outcome: &Outcome) {
        let Some(permit) = &mut self.permit else { return };
        self.stack.with(|dependency, params, rng| {
            dependency.record_status(now, params, permit, outcome, rng);
        });
    }

    /// Moves the call to the separate count of long-lived streams. If its status is still to come,
    /// it is recorded as answered: that may take as long as the stream.
    ///
    /// # Errors
    /// The streams are full; end the call.
    pub fn to_stream(&mut self) -> Result<(), seawall_policy::Rejection> {
        let now = self.stack.clock().now();
        let Some(permit) = &mut self.permit else { return Ok(()) };
        self.stack.with(|dependency, params, rng| {
            dependency.to_stream(now, params, permit)?;
            if !permit.is_recorded() {
                let answered = Outcome::of(Cause::Answered);
                dependency.record_status(now, params, permit, &answered, rng);
            }
            Ok(())
        })
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.stack.release(self.stack.clock().now(), *permit);
        }
    }
}

impl fmt::Debug for SlotGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").field("permit", &self.permit).finish_non_exhaustive()
    }
}

/// Looks at a lock that is held, some 40 cycles each, before sleeping for it.
const SPINS: u32 = 100;
