//! Somebody else's rule at the entry of a server, and what it has to be told.

use std::collections::BTreeMap;

use seawall_policy::Timestamp;

use super::world::World;
use crate::baselines::{EntryRule, EntryState};
use crate::draw::Purpose;

/// Who is turned away at one server as it comes.
pub(super) struct Entry {
    rule: EntryRule,
    state: EntryState,
    /// Since when those wait that were let in.
    since: BTreeMap<u32, Timestamp>,
}

impl Entry {
    pub(super) fn new(rule: EntryRule) -> Self {
        Self { rule, state: EntryState::default(), since: BTreeMap::new() }
    }

    /// Its server has begun anew.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.rule);
    }
}

impl World<'_> {
    /// Whether a request that comes is let in by the rule of its server, if that has one.
    pub(super) fn passes_rule(&mut self, now: Timestamp, place: usize, slot: u32) -> bool {
        let Some(entry) = &mut self.sites[place].entry else { return true };
        let Some(made) = self.flights.get(slot).map(|flight| flight.made) else { return true };
        let mut user = self.draws.stream(made.origin, Purpose::Choice).at(USER);
        let mut request = self.draws.stream(made.origin, Purpose::Service).at(made.draws + REQUEST);
        let passes = entry.state.lets_in(entry.rule, now, &mut user, &mut request);
        if passes {
            entry.since.insert(slot, now);
        }
        passes
    }

    /// A request no longer waits at its server.
    pub(super) fn has_waited(&mut self, now: Timestamp, place: usize, slot: u32) {
        if let Some(entry) = &mut self.sites[place].entry
            && let Some(since) = entry.since.remove(&slot)
        {
            entry.state.waited(now.since(since));
        }
    }
}

/// Which of the draws of an attempt's work are the rule's.
const REQUEST: u64 = 12;
/// Which of a user's draws, beyond those of all its calls, says its priority.
const USER: u64 = u64::MAX;
