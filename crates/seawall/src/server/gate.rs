//! A gate that all connections of a server share, and whom to wake when it has decided.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::task::Waker;

use parking_lot::{Mutex, MutexGuard};
use seawall_policy::{
    Ask, ConfigError, Gate, GateEntry, GateOptions, GateParams, GateTurn, Tenant, Ticket, Timestamp,
};

use crate::clock::Clock;
use crate::stack::{Woken, lock};

/// The gate of a server. Clones share one state, so a limit for each connection cannot be made by
/// accident.
#[derive(Clone)]
pub struct ServerGate(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// Seeded by the system, so that nobody outside can tell which tenants share a place.
    hasher: RandomState,
}

struct State {
    gate: Gate,
    params: GateParams,
    /// Who waits for a ticket. Bounded by the queue.
    wakers: HashMap<Ticket, Waker>,
}

impl ServerGate {
    /// A gate where nobody waits and nothing is known.
    ///
    /// # Errors
    /// An option outside its range; see [`GateParams::new`].
    pub fn new(options: &GateOptions) -> Result<Self, ConfigError> {
        let params = GateParams::new(*options)?;
        let clock = Clock::new();
        let gate = Gate::new(clock.now(), &params);
        let state = Mutex::new(State { gate, params, wakers: HashMap::new() });
        Ok(Self(Arc::new(Inner { clock, state, hasher: RandomState::new() })))
    }

    /// The clock it decides by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The tenant of a name: a hash with a secret of this gate, which is all that is kept of it.
    #[must_use]
    pub fn tenant(&self, name: &(impl Hash + ?Sized)) -> Tenant {
        Tenant::from_hash(self.0.hasher.hash_one(name))
    }

    /// Swaps the parameters and keeps what waits, what is in flight and what is known.
    ///
    /// # Errors
    /// As [`ServerGate::new`]; the old parameters stay in force.
    pub fn reconfigure(&self, options: &GateOptions) -> Result<(), ConfigError> {
        let params = GateParams::new(*options)?;
        let now = self.clock().now();
        self.decide(|state| {
            state.params = params;
            state.gate.handle_timeout(now, &params);
        });
        Ok(())
    }

    /// Lets `look` see the gate under its lock. Held for no await: `look` is not async.
    pub fn look<T>(&self, look: impl FnOnce(&Gate, &GateParams) -> T) -> T {
        let state = lock(&self.0.state);
        look(&state.gate, &state.params)
    }

    pub(super) fn enter(&self, now: Timestamp, ask: Ask) -> GateEntry {
        self.decide(|State { gate, params, .. }| gate.enter(now, params, ask))
    }

    /// What became of a ticket; if nothing yet, `waker` is woken when something has. It is cloned
    /// and dropped outside the lock: what it belongs to may hold a slot of this gate.
    pub(super) fn claim(&self, now: Timestamp, ticket: Ticket, waker: &Waker) -> GateTurn {
        let mut waker = Some(waker.clone());
        let turn = self.decide(|State { gate, params, wakers }| {
            let turn = gate.claim(now, params, ticket);
            waker = match turn {
                GateTurn::Waiting(_) => waker.take().and_then(|it| wakers.insert(ticket, it)),
                GateTurn::Admitted(_) | GateTurn::Rejected(_) => wakers.remove(&ticket),
            };
            turn
        });
        drop(waker);
        turn
    }

    pub(super) fn cancel(&self, now: Timestamp, ticket: Ticket) {
        let forgotten = self.decide(|State { gate, params, wakers }| {
            gate.cancel(now, params, ticket);
            wakers.remove(&ticket)
        });
        drop(forgotten);
    }

    pub(super) fn with(&self, decide: impl FnOnce(&mut Gate, &GateParams)) {
        self.decide(|State { gate, params, .. }| decide(gate, params));
    }

    /// How many wait to be woken.
    #[cfg(test)]
    pub(super) fn wakers(&self) -> usize {
        self.0.state.lock().wakers.len()
    }

    /// Runs `decide` on the state under its lock, then wakes whoever it decided for.
    fn decide<T>(&self, decide: impl FnOnce(&mut State) -> T) -> T {
        let mut woken = Woken::default();
        let mut deciding = Deciding { state: lock(&self.0.state), woken: &mut woken };
        decide(&mut deciding.state)
    }
}

impl fmt::Debug for ServerGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerGate").finish_non_exhaustive()
    }
}

/// A decision under way. Its drop ends it: the lock is free, and whom it decided for is known.
struct Deciding<'a> {
    state: MutexGuard<'a, State>,
    woken: &'a mut Woken,
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let State { gate, wakers, .. } = &mut *self.state;
        while let Some(ticket) = gate.pop_woken() {
            self.woken.extend(wakers.remove(&ticket));
        }
    }
}
