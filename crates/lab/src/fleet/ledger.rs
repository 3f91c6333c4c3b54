//! What is counted: offered, attempts, what arrives, goodput, and what nobody waited for.

use std::time::Duration;

use seawall_policy::{Class, Done, StopReason, Timestamp};

use super::arrivals::Arrivals;
use super::heat::Heat;
use super::policies::Policies;
use super::report::{OfService, Report};
use super::rush::Tries;
use super::{Calls, Fleet};
use crate::engine::Engine;
use crate::stats::Times;

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls that began.
    pub offered: u64,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Attempts that reached a server.
    pub arrived: u64,
    /// Calls that were answered: somebody still waited.
    pub good: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// Attempts whose work was done and whose client still waited for it.
    pub worked: u64,
    /// Attempts whose work was done for nobody.
    pub wasted: u64,
}

impl Second {
    /// Sums of the seconds in `from..until`.
    pub(crate) fn sum(seconds: &[Self], from: usize, until: usize) -> Self {
        let until = until.min(seconds.len());
        let seconds = seconds.get(from..until).unwrap_or_default();
        seconds.iter().fold(Self::default(), |sum, second| sum.with(*second, |a, b| a + b))
    }

    /// Each number of this one with that of another.
    #[must_use]
    pub fn with(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            offered: join(self.offered, other.offered),
            attempts: join(self.attempts, other.attempts),
            arrived: join(self.arrived, other.arrived),
            good: join(self.good, other.good),
            failed: join(self.failed, other.failed),
            worked: join(self.worked, other.worked),
            wasted: join(self.wasted, other.wasted),
        }
    }
}

/// Sums over the calls that began after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that began.
    pub calls: u64,
    /// Calls of which at least one attempt was sent.
    pub sent: u64,
    /// Attempts that were sent.
    pub attempts: u64,
    /// Calls that were answered.
    pub good: u64,
    /// Calls that ended otherwise.
    pub failed: u64,
    /// Calls whose maker left before their end.
    pub left: u64,
    /// Calls still going on at the end.
    pub cut_off: u64,
    /// Ended calls by [`StopReason::index`].
    pub stops: [u64; StopReason::ALL.len()],
}

/// What servers turned away, and what they did for nobody, after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Requests refused as they came.
    pub refused: u64,
    /// Requests dropped out of a queue.
    pub dropped: u64,
    /// Those of them that somebody still waited for.
    pub dropped_awaited: u64,
    /// Requests that were taken up although nobody waited for them any more.
    pub begun_for_nobody: u64,
}

/// Takes down what happens.
pub(super) struct Ledger {
    warm_up: Timestamp,
    /// Of the calls of clients.
    all: Tally,
    /// Of all calls to each service, if there are several.
    services: Vec<Tally>,
    /// Of the calls of clients.
    heat: Heat,
    longest: Duration,
    pub(super) tries: Tries,
    /// Whether times are those of clients that are in, and of no others.
    is_of_those_in: bool,
}

/// Sums, and a series of them.
#[derive(Clone)]
struct Tally {
    counts: Counts,
    turned: Turned,
    seconds: Vec<Second>,
    times: Times,
    waits: Times,
    cut_off: Times,
    died: u64,
}

/// Where a call counts: with those to its service, and with those of clients if it is one.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) service: u32,
    pub(super) is_of_client: bool,
}

impl Tally {
    fn new(ends: Timestamp) -> Self {
        let seconds = ends.since(Timestamp::ZERO).as_secs() + 1;
        let seconds = usize::try_from(seconds).unwrap_or(0);
        Self {
            counts: Counts::default(),
            turned: Turned::default(),
            seconds: vec![Second::default(); seconds],
            times: Times::new(),
            waits: Times::new(),
            cut_off: Times::new(),
            died: 0,
        }
    }

    fn second(&mut self, now: Timestamp) -> &mut Second {
        let last = self.seconds.len() - 1;
        let second = usize::try_from(now.since(Timestamp::ZERO).as_secs()).unwrap_or(last);
        &mut self.seconds[second.min(last)]
    }

    fn done(
        &mut self,
        now: Timestamp,
        begun: Timestamp,
        done: &Done,
        counts: bool,
        is_timed: bool,
    ) {
        let is_good = done.outcome.class() == Class::Success;
        let second = self.second(now);
        *(if is_good { &mut second.good } else { &mut second.failed }) += 1;
        if !counts {
            return;
        }
        self.counts.stops[done.stop.index()] += 1;
        if is_good {
            self.counts.good += 1;
            if is_timed {
                self.times.record(now.since(begun));
            }
        } else {
            self.counts.failed += 1;
        }
    }
}

impl Ledger {
    pub(super) fn new(fleet: &Fleet) -> Self {
        let services = if fleet.services.len() > 1 { fleet.services.len() } else { 0 };
        let all = Tally::new(fleet.ends);
        let heat = Heat::new(all.seconds.len());
        Self {
            warm_up: fleet.warm_up,
            services: vec![all.clone(); services],
            all,
            heat,
            longest: Duration::ZERO,
            tries: Tries::of(fleet),
            is_of_those_in: matches!(fleet.calls, Calls::Once { then: Some(_), .. }),
        }
    }

    /// Notes it wherever it counts.
    fn note(&mut self, place: Place, mut note: impl FnMut(&mut Tally)) {
        if place.is_of_client {
            note(&mut self.all);
        }
        if let Some(service) = self.services.get_mut(place.service as usize) {
            note(service);
        }
    }

    pub(super) fn call(&mut self, now: Timestamp, place: Place) {
        let counts = u64::from(now >= self.warm_up);
        self.note(place, |tally| {
            tally.second(now).offered += 1;
            tally.counts.calls += counts;
        });
    }

    /// An attempt of a call that began then; its first or a later one.
    pub(super) fn attempt(
        &mut self,
        now: Timestamp,
        place: Place,
        client: u32,
        begun: Timestamp,
        first: bool,
    ) {
        let counts = u64::from(begun >= self.warm_up);
        if place.is_of_client {
            self.tries.attempt(client);
        }
        self.note(place, |tally| {
            tally.second(now).attempts += 1;
            tally.counts.attempts += counts;
            tally.counts.sent += u64::from(first) * counts;
        });
    }

    /// A call that a client or a server began then has ended.
    pub(super) fn done(
        &mut self,
        now: Timestamp,
        place: Place,
        caller: u32,
        begun: Timestamp,
        done: &Done,
    ) {
        let counts = begun >= self.warm_up;
        let is_timed = !self.is_of_those_in || !place.is_of_client || self.tries.is_in(caller);
        if place.is_of_client && counts {
            self.longest = self.longest.max(now.since(begun));
        }
        if place.is_of_client && done.outcome.class() == Class::Success {
            self.heat.record(now, now.since(begun));
        }
        self.note(place, |tally| tally.done(now, begun, done, counts, is_timed));
    }

    /// The maker of a call that began then has left.
    pub(super) fn left(&mut self, place: Place, begun: Timestamp) {
        let counts = u64::from(begun >= self.warm_up);
        self.note(place, |tally| tally.counts.left += counts);
    }

    /// A call that began then has waited for a slot for so long, and got it or not.
    pub(super) fn waited(&mut self, place: Place, begun: Timestamp, waited: Duration) {
        if begun >= self.warm_up {
            self.note(place, |tally| tally.waits.record(waited));
        }
    }

    pub(super) fn cut_off(&mut self, place: Place, begun: Timestamp, age: Duration) {
        if begun >= self.warm_up {
            if place.is_of_client {
                self.longest = self.longest.max(age);
            }
            self.note(place, |tally| {
                tally.counts.cut_off += 1;
                tally.cut_off.record(age);
            });
        }
    }

    /// A request has reached a server of a service.
    pub(super) fn arrived(&mut self, now: Timestamp, service: u32) {
        let place = Place { service, is_of_client: true };
        self.note(place, |tally| tally.second(now).arrived += 1);
    }

    /// A server of a service refuses a request as it comes.
    pub(super) fn refused(&mut self, now: Timestamp, service: u32) {
        let counts = u64::from(now >= self.warm_up);
        let place = Place { service, is_of_client: true };
        self.note(place, |tally| tally.turned.refused += counts);
    }

    /// A request's turn has come: it is taken up, or dropped.
    pub(super) fn turn(&mut self, now: Timestamp, service: u32, is_awaited: bool, is_begun: bool) {
        if is_begun && is_awaited {
            return;
        }
        let counts = u64::from(now >= self.warm_up);
        self.note(Place { service, is_of_client: true }, |tally| {
            let turned = &mut tally.turned;
            if is_begun {
                turned.begun_for_nobody += counts;
            } else {
                turned.dropped += counts;
                turned.dropped_awaited += u64::from(is_awaited) * counts;
            }
        });
    }

    /// A server of a service has ended its work on a request.
    pub(super) fn worked(&mut self, now: Timestamp, service: u32, is_awaited: bool) {
        self.note(Place { service, is_of_client: true }, |tally| {
            let second = tally.second(now);
            *(if is_awaited { &mut second.worked } else { &mut second.wasted }) += 1;
        });
    }

    /// A server of a service has died.
    pub(super) fn died(&mut self, service: u32) {
        self.note(Place { service, is_of_client: true }, |tally| tally.died += 1);
    }

    pub(super) fn report(
        &self,
        engine: &Engine,
        policies: &Policies,
        fleet: &Fleet,
        arrivals: Arrivals,
    ) -> Report {
        let services = self.services.iter().zip(&fleet.services).enumerate();
        let services = services.map(|(place, (tally, service))| OfService {
            name: service.name.clone(),
            counts: tally.counts,
            turned: tally.turned,
            seconds: tally.seconds.clone(),
            times: tally.times.clone(),
            waits: tally.waits.clone(),
            opened: policies.opened[place],
            in_use: policies.in_use[place],
            died: tally.died,
        });
        Report {
            counts: self.all.counts,
            turned: self.all.turned,
            seconds: self.all.seconds.clone(),
            rush: self.tries.report(),
            heat: self.heat.clone(),
            services: services.collect(),
            times: self.all.times.clone(),
            waits: self.all.waits.clone(),
            in_use: policies.in_use.iter().copied().max().unwrap_or(0),
            cut_off: self.all.cut_off.clone(),
            longest: self.longest,
            opened: policies.opened.iter().sum(),
            ejected: policies.ejected,
            died: self.all.died,
            arrivals,
            events: engine.handled(),
            digest: engine.digest(),
        }
    }
}
