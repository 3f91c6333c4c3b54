//! The production state of every process that calls, and the draws that go with it.

use seawall_policy::{BreakerState, Dependency, StackParams, Ticket, Timestamp, Verdict};

use super::Fleet;
use super::routes::{Link, Routes};
use crate::draw::{Draw, Draws, Purpose};

/// Dependencies, by route and caller.
pub(super) struct Policies {
    pub(super) routes: Routes,
    pub(super) dependencies: Vec<Dependency>,
    draws: Draws,
    /// What each caller has drawn for its policies.
    drawn: Vec<u32>,
    /// Which of its lives each caller is in; empty where nobody has more than one.
    lives: Vec<u32>,
    /// Dependencies asked since their waiters were last woken, the latest last.
    asked: Vec<u32>,
    /// Breakers that opened, by the service they stand before.
    pub(super) opened: Vec<u64>,
    /// The most slots of a bulkhead that were taken at once, likewise.
    pub(super) in_use: Vec<u32>,
    /// Servers that were ejected.
    pub(super) ejected: u64,
}

impl Policies {
    pub(super) fn new(fleet: &Fleet, draws: Draws) -> Self {
        let routes = Routes::new(fleet);
        let servers: u32 = fleet.services.iter().map(|service| service.servers).sum();
        let callers = (fleet.clients + servers) as usize;
        Self {
            dependencies: routes.dependencies(),
            routes,
            draws,
            drawn: vec![0; callers],
            lives: if fleet.has_lives() { vec![0; callers] } else { Vec::new() },
            asked: Vec::new(),
            opened: vec![0; fleet.services.len()],
            in_use: vec![0; fleet.services.len()],
            ejected: 0,
        }
    }

    /// Which dependency is the caller's on this route.
    pub(super) fn of(&self, link: Link) -> u32 {
        self.routes.get(link.route).dependency(link.caller)
    }

    /// Asks the caller's policies, after what is due by time, as every edge does.
    pub(super) fn with<R>(
        &mut self,
        now: Timestamp,
        link: Link,
        ask: impl FnOnce(&mut Dependency, &StackParams, &mut Draw) -> R,
    ) -> R {
        let route = self.routes.get(link.route);
        let place = route.dependency(link.caller);
        let dependency = &mut self.dependencies[place as usize];
        if dependency.next_deadline().is_some_and(|due| due <= now) {
            dependency.handle_timeout(now, &route.params);
        }
        let drawn = &mut self.drawn[link.caller as usize];
        let mut rng = self.draws.stream(link.caller, Purpose::Policy).at((*drawn).into());
        let answer = ask(dependency, &route.params, &mut rng);
        while let Some(logged) = dependency.pop_transition() {
            let is_open = logged.transition.to == BreakerState::Open;
            self.opened[route.target as usize] += u64::from(is_open);
        }
        while let Some(logged) = dependency.pop_verdict() {
            self.ejected += u64::from(matches!(logged.verdict, Verdict::Ejected(..)));
        }
        let in_use = &mut self.in_use[route.target as usize];
        *in_use = dependency.bulkhead().in_flight().max(*in_use);
        *drawn = u32::try_from(rng.drawn()).unwrap_or(0);
        if self.asked.last() != Some(&place) {
            self.asked.push(place);
        }
        answer
    }

    /// Reads what is asked for first, see [`Model::touch`](crate::Model::touch).
    pub(super) fn touch(&self, caller: u32) -> u64 {
        let dependency = self.dependencies.get(self.of(Link { caller, route: 0 }) as usize);
        let read = |dependency: &Dependency| {
            let counters = dependency.counters();
            dependency.held() as u64 ^ counters.first_attempts ^ counters.abandoned
        };
        dependency.map_or(0, read) ^ u64::from(self.drawn[caller as usize])
    }

    pub(super) fn dependency(&self, link: Link) -> &Dependency {
        &self.dependencies[self.of(link) as usize]
    }

    /// A ticket decided since the last time, with the dependency whose it is.
    pub(super) fn pop_woken(&mut self) -> Option<(u32, Ticket)> {
        while let Some(place) = self.asked.last().copied() {
            if let Some(ticket) = self.dependencies[place as usize].pop_woken() {
                return Some((place, ticket));
            }
            self.asked.pop();
        }
        None
    }

    /// Nobody waits for any ticket.
    pub(super) fn none_waits(&mut self) {
        self.asked.clear();
    }

    /// Which of its lives a caller is in.
    pub(super) fn life(&self, caller: u32) -> u32 {
        self.lives.get(caller as usize).copied().unwrap_or(0)
    }

    /// A caller begins anew and knows nothing. What it had sent belongs to a life that is over.
    pub(super) fn renew(&mut self, caller: u32) {
        if let Some(life) = self.lives.get_mut(caller as usize) {
            *life += 1;
        }
        for route in self.routes.from(caller) {
            self.dependencies[route.dependency(caller) as usize] = route.anew();
        }
    }
}
