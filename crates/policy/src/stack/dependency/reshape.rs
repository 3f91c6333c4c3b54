//! Changes which endpoints and lanes a dependency has, and keeps the state of those that stay.
//!
//! Whoever reloads names what it wants: the number of each endpoint and lane that stays, and
//! nothing for a new one. What is not named is retired. A retired endpoint is offered to no call
//! any more, and keeps its place, and its breakers, until the last call that uses it has ended; a
//! retired lane goes on serving the calls that began in it. So every permit, ticket and operation
//! that is out stays valid, by number. A number is given to somebody else only when nothing that
//! is out can name it: no permit, no waiter, and a minute has passed, which is longer than a call
//! backs off.
//!
//! | asked for | what becomes of it |
//! |---|---|
//! | a number in use | it stays, with its breakers, its in flight, its times |
//! | a number that is retired | it is back, with what it still knows |
//! | nothing, or a number there is none of | a new one, in the place of a retired one that is free, or behind all |
//!
//! Bounds: beyond 1,024 retired endpoints, or lanes, a free place is used again without a rest.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Dependency, Endpoint, Lane};
use crate::breaker::Breaker;
use crate::time::Timestamp;

/// The numbers of what was asked for, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reshaped {
    /// Of the endpoints.
    pub endpoints: Vec<usize>,
    /// Of the lanes.
    pub lanes: Vec<usize>,
}

impl Dependency {
    /// Makes the endpoints and lanes those that are asked for; at least one of each. A place of a
    /// retired endpoint is used again only if `is_free` agrees: the edge may have more in flight
    /// to it than calls.
    pub fn reshape(
        &mut self,
        now: Timestamp,
        endpoints: &[Option<usize>],
        lanes: &[Option<usize>],
        is_free: impl Fn(usize) -> bool,
    ) -> Reshaped {
        let lanes = self.reshape_lanes(now, lanes);
        let count = self.lanes.len();
        let mut state: Vec<_> = self.endpoints.iter().map(Endpoint::occupation).collect();
        let endpoints = assign(now, &mut state, endpoints, is_free);
        for (endpoint, place) in self.endpoints.iter_mut().zip(&state) {
            if endpoint.retired.is_some() && place.retired.is_none() {
                endpoint.start_slowly(now);
            }
            endpoint.retired = place.retired;
        }
        for place in endpoints.iter().filter(|place| place.is_new) {
            let mut new = Endpoint::new(count);
            new.start_slowly(now);
            match self.endpoints.get_mut(place.index) {
                Some(endpoint) => *endpoint = new,
                None => self.endpoints.push(new),
            }
        }
        Reshaped { endpoints: endpoints.iter().map(|place| place.index).collect(), lanes }
    }

    fn reshape_lanes(&mut self, now: Timestamp, wanted: &[Option<usize>]) -> Vec<usize> {
        let place = |(index, lane): (usize, &Lane)| Occupation {
            retired: lane.retired,
            is_used: lane.permits > 0 || self.bulkhead.uses(index),
        };
        let mut state: Vec<_> = self.lanes.iter().enumerate().map(place).collect();
        let places = assign(now, &mut state, wanted, |_| true);
        for (lane, place) in self.lanes.iter_mut().zip(&state) {
            lane.retired = place.retired;
        }
        for place in places.iter().filter(|place| place.is_new) {
            match self.lanes.get_mut(place.index) {
                Some(lane) => *lane = Lane::new(),
                None => self.lanes.push(Lane::new()),
            }
            for endpoint in &mut self.endpoints {
                match endpoint.breakers.get_mut(place.index) {
                    Some(breaker) => *breaker = Breaker::new(),
                    None => endpoint.breakers.push(Breaker::new()),
                }
            }
        }
        places.iter().map(|place| place.index).collect()
    }

    /// Places of endpoints, those of retired ones among them: numbers are below this.
    #[must_use]
    pub fn endpoint_places(&self) -> usize {
        self.endpoints.len()
    }

    /// Places of lanes, likewise.
    #[must_use]
    pub fn lane_places(&self) -> usize {
        self.lanes.len()
    }

    /// Whether the endpoint is offered to calls.
    #[must_use]
    pub fn is_offered(&self, endpoint: usize) -> bool {
        self.endpoints.get(endpoint).is_some_and(|endpoint| endpoint.retired.is_none())
    }
}

impl Endpoint {
    fn occupation(&self) -> Occupation {
        Occupation { retired: self.retired, is_used: self.in_flight > 0 }
    }
}

/// What is to be known of an endpoint or a lane to decide about its place.
#[derive(Clone, Copy)]
struct Occupation {
    retired: Option<Timestamp>,
    is_used: bool,
}

/// A place for what was asked for.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    is_new: bool,
}

/// Gives each that is wanted its place, in `state` or behind it, and retires the others.
fn assign(
    now: Timestamp,
    state: &mut [Occupation],
    wanted: &[Option<usize>],
    is_free: impl Fn(usize) -> bool,
) -> Vec<Place> {
    let mut kept: BTreeSet<usize> = wanted.iter().flatten().copied().collect();
    for (index, place) in state.iter_mut().enumerate() {
        place.retired = match place.retired {
            _ if kept.contains(&index) => None,
            Some(since) => Some(since),
            None => Some(now),
        };
    }
    let retired = state.iter().filter(|place| place.retired.is_some()).count();
    let rest = if retired > MOST_RETIRED { Duration::ZERO } else { REST };
    let is_rested = |since: Timestamp| now.since(since) >= rest && since < now;
    let mut places = Vec::with_capacity(wanted.len());
    let mut next = state.len();
    let mut from = 0;
    for number in wanted {
        // A number that is asked for twice is the first one's.
        if let Some(index) = number.filter(|index| *index < state.len() && kept.remove(index)) {
            places.push(Place { index, is_new: false });
            continue;
        }
        let is_reusable = |index: &usize| {
            let place = &state[*index];
            place.retired.is_some_and(is_rested) && !place.is_used && is_free(*index)
        };
        let index = (from..state.len()).find(is_reusable).unwrap_or(next);
        match state.get_mut(index) {
            Some(place) => {
                place.retired = None;
                from = index + 1;
            }
            None => next += 1,
        }
        places.push(Place { index, is_new: true });
    }
    places
}

/// How long a place rests before it is used again: longer than any call backs off by default.
/// Source: seawall-design (total timeout).
const REST: Duration = Duration::from_secs(60);
/// Retired places beyond which none rests. Source: seawall-design (endpoints of a file).
const MOST_RETIRED: usize = 1_024;
