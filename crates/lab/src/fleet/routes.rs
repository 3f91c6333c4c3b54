//! Who can call whom, and whose policies decide about it.
//!
//! A route leads from the clients, or from the servers of a service, to a service. Each process at
//! its begin has a dependency of its own for it, as each edge has in production; or all clients
//! share one; or a process keeps one for all that it calls.

use seawall_policy::{Dependency, StackParams};

use super::{Fleet, Service, Sharing, Target};

/// Who calls, an entity, and by which route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) caller: u32,
    pub(super) route: u32,
}

/// From some callers to a service.
pub(super) struct Route {
    pub(super) params: StackParams,
    /// The service it leads to.
    pub(super) target: u32,
    /// Whose it is: so many callers from the first one on.
    first_caller: u32,
    callers: u32,
    /// Where their dependencies begin.
    first: u32,
    /// How many were made for it; none if those of another route serve.
    made: u32,
    /// Whether each caller has its own.
    is_each: bool,
    /// Endpoints that a dependency knows.
    endpoints: usize,
}

impl Route {
    /// Which dependency is a caller's.
    pub(super) const fn dependency(&self, caller: u32) -> u32 {
        if self.is_each { self.first + (caller - self.first_caller) } else { self.first }
    }

    const fn is_from(&self, caller: u32) -> bool {
        caller >= self.first_caller && caller - self.first_caller < self.callers
    }

    /// Whether the policies see one endpoint, whatever stands behind it.
    pub(super) const fn is_one_name(&self) -> bool {
        self.endpoints == 1
    }

    pub(super) fn anew(&self) -> Dependency {
        Dependency::new(self.endpoints, 1)
    }
}

/// All routes, and what each service calls in the course of a request.
#[derive(Default)]
pub(super) struct Routes {
    all: Vec<Route>,
    /// Those of the clients come first.
    of_clients: Vec<Choice>,
    /// By service, step by step.
    of_services: Vec<Vec<Vec<Choice>>>,
    dependencies: u32,
}

/// A route that may be taken, and how often beside the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) route: u32,
    pub(super) share: f64,
}

/// Callers alike, and how they call.
struct Callers<'a> {
    policy: &'a StackParams,
    first: u32,
    count: u32,
    sharing: Sharing,
    is_together: bool,
}

impl Routes {
    pub(super) fn new(fleet: &Fleet) -> Self {
        let mut routes = Self::default();
        // Those of a baseline have no policies.
        let clients = Callers {
            policy: &fleet.policy,
            first: 0,
            count: if fleet.baseline.is_some() { 0 } else { fleet.clients },
            sharing: fleet.sharing,
            is_together: fleet.is_together,
        };
        let mut known = Vec::new();
        routes.of_clients = routes.choices(fleet, &clients, &fleet.to, &mut known);
        let mut first = fleet.clients;
        for service in &fleet.services {
            let callers = Callers {
                policy: &service.policy,
                first,
                count: service.servers,
                sharing: Sharing::Each,
                is_together: service.is_together,
            };
            let mut known = Vec::new();
            let steps = service.calls.iter();
            let steps = steps.map(|step| routes.choices(fleet, &callers, step, &mut known));
            let steps = steps.collect();
            routes.of_services.push(steps);
            first += service.servers;
        }
        routes
    }

    /// The routes to these targets, made where they are not `known`.
    fn choices(
        &mut self,
        fleet: &Fleet,
        callers: &Callers<'_>,
        targets: &[Target],
        known: &mut Vec<u32>,
    ) -> Vec<Choice> {
        let mut choices = Vec::new();
        for target in targets {
            let is_it = |route: &&u32| self.all[**route as usize].target == target.service;
            let route = known.iter().find(is_it).copied().unwrap_or_else(|| {
                let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
                let shared = known.first().filter(|_| callers.is_together);
                let first = shared.map(|first| self.all[*first as usize].first);
                let route = self.route(callers, target, &fleet.services, first);
                self.all.push(route);
                known.push(place);
                place
            });
            choices.push(Choice { route, share: target.share });
        }
        choices
    }

    /// One route, with dependencies of its own unless they begin elsewhere.
    fn route(
        &mut self,
        callers: &Callers<'_>,
        target: &Target,
        services: &[Service],
        shared: Option<u32>,
    ) -> Route {
        let service = &services[target.service as usize];
        let is_each = callers.sharing == Sharing::Each;
        let first = shared.unwrap_or(self.dependencies);
        let made = match shared {
            Some(_) => 0,
            None if is_each => callers.count,
            None => callers.count.min(1),
        };
        self.dependencies += made;
        let is_one_name = callers.is_together || service.pick.is_hidden();
        Route {
            params: target.policy.as_ref().unwrap_or(callers.policy).clone(),
            target: target.service,
            first_caller: callers.first,
            callers: callers.count,
            first,
            made,
            is_each,
            endpoints: if is_one_name { 1 } else { service.servers as usize },
        }
    }

    pub(super) fn get(&self, route: u32) -> &Route {
        &self.all[route as usize]
    }

    pub(super) fn of_clients(&self) -> &[Choice] {
        &self.of_clients
    }

    /// What a service calls at a step, one of these; `None` after the last.
    pub(super) fn step(&self, service: u32, step: u32) -> Option<&[Choice]> {
        self.of_services[service as usize].get(step as usize).map(Vec::as_slice)
    }

    /// Every dependency as it is in the beginning, in their order.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let of_route = |route: &Route| (0..route.made).map(|_| route.anew()).collect::<Vec<_>>();
        self.all.iter().flat_map(of_route).collect()
    }

    /// The routes that begin at a caller.
    pub(super) fn from(&self, caller: u32) -> impl Iterator<Item = &Route> {
        self.all.iter().filter(move |route| route.is_from(caller))
    }
}
