//! The production state of every client, and the draws that go with it.

use seawall_policy::{BreakerState, Dependency, StackParams, Ticket, Timestamp, Verdict};

use super::{Fleet, Sharing};
use crate::draw::{Draw, Draws, Purpose};

/// Dependencies, by client or one for all.
pub(super) struct Policies {
    params: StackParams,
    pub(super) dependencies: Vec<Dependency>,
    sharing: Sharing,
    draws: Draws,
    /// What each client has drawn for its policies.
    drawn: Vec<u32>,
    /// Breakers that opened, over all clients.
    pub(super) opened: u64,
    /// Servers that were ejected.
    pub(super) ejected: u64,
}

impl Policies {
    pub(super) fn new(fleet: &Fleet, draws: Draws) -> Self {
        let count = match fleet.sharing {
            _ if fleet.baseline.is_some() => 0,
            Sharing::Each => fleet.clients,
            Sharing::All => 1,
        };
        let dependency = |_| Dependency::new(fleet.servers as usize, 1);
        Self {
            params: fleet.policy.clone(),
            dependencies: (0..count).map(dependency).collect(),
            sharing: fleet.sharing,
            draws,
            drawn: vec![0; fleet.clients as usize],
            opened: 0,
            ejected: 0,
        }
    }

    /// Which dependency is the client's.
    pub(super) const fn of(&self, client: u32) -> u32 {
        match self.sharing {
            Sharing::Each => client,
            Sharing::All => 0,
        }
    }

    /// Asks the client's policies, after what is due by time, as every edge does.
    pub(super) fn with<R>(
        &mut self,
        now: Timestamp,
        client: u32,
        ask: impl FnOnce(&mut Dependency, &StackParams, &mut Draw) -> R,
    ) -> R {
        let place = self.of(client) as usize;
        let dependency = &mut self.dependencies[place];
        if dependency.next_deadline().is_some_and(|due| due <= now) {
            dependency.handle_timeout(now, &self.params);
        }
        let drawn = &mut self.drawn[client as usize];
        let mut rng = self.draws.stream(client, Purpose::Policy).at((*drawn).into());
        let answer = ask(dependency, &self.params, &mut rng);
        while let Some(logged) = dependency.pop_transition() {
            self.opened += u64::from(logged.transition.to == BreakerState::Open);
        }
        while let Some(logged) = dependency.pop_verdict() {
            self.ejected += u64::from(matches!(logged.verdict, Verdict::Ejected(..)));
        }
        *drawn = u32::try_from(rng.drawn()).unwrap_or(0);
        answer
    }

    /// Reads what is asked for first, see [`Model::touch`](crate::Model::touch).
    pub(super) fn touch(&self, client: u32) -> u64 {
        let dependency = self.dependencies.get(self.of(client) as usize);
        let read = |dependency: &Dependency| {
            let counters = dependency.counters();
            dependency.held() as u64 ^ counters.first_attempts ^ counters.abandoned
        };
        dependency.map_or(0, read) ^ u64::from(self.drawn[client as usize])
    }

    pub(super) fn dependency(&self, client: u32) -> &Dependency {
        &self.dependencies[self.of(client) as usize]
    }

    pub(super) fn pop_woken(&mut self, client: u32) -> Option<Ticket> {
        let place = self.of(client) as usize;
        self.dependencies.get_mut(place)?.pop_woken()
    }
}
