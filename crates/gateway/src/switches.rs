//! Breakers that an operator forces into a mode, for a while, with a line for the record.
//!
//! A switch is known by the name of its upstream and outlives a reload. Every one ends by itself;
//! each change and each end by time leaves one line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use parking_lot::Mutex;
use seawall_policy::{BreakerMode, Timestamp};

use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::{Upstream, millis};

/// Every switch there is, by upstream. Bounded by the names of upstreams, which are checked when
/// one is set; each is gone after a day at the latest.
#[derive(Debug, Default)]
pub(crate) struct Switches(Mutex<BTreeMap<String, Forced>>);

/// A mode that is forced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    /// The mode.
    pub(crate) mode: BreakerMode,
    /// Its end.
    pub(crate) until: Timestamp,
    /// Who said so.
    pub(crate) by: String,
    /// Why.
    pub(crate) reason: String,
}

impl Switches {
    /// Forces the breakers of an upstream, or ends what was forced if nothing is.
    pub(crate) fn set(
        &self,
        upstream: &Upstream,
        now: Timestamp,
        (mode, ttl): (Option<BreakerMode>, Duration),
        (by, reason): (&str, &str),
        diagnostics: &Diagnostics,
    ) {
        let name = &upstream.config.name;
        let until = now.after(ttl);
        {
            let mut switches = self.0.lock();
            match mode {
                Some(mode) => {
                    let (by, reason) = (by.to_owned(), reason.to_owned());
                    switches.insert(name.clone(), Forced { mode, until, by, reason });
                }
                None => drop(switches.remove(name)),
            }
            // Within the lock: of two changes at once, the later line is the one in force.
            let end = if mode.is_some() { until } else { Timestamp::ZERO };
            force(upstream, mode.unwrap_or_default(), end);
        }
        let mode = mode.map_or("as configured", BreakerMode::as_str);
        let time = format!("{} ms", millis(ttl));
        let mut pairs: Vec<(&str, &(dyn Display + Sync))> =
            vec![("upstream", name), ("mode", &mode)];
        if mode != "as configured" {
            pairs.push(("for", &time));
        }
        pairs.extend([("by", &by as &(dyn Display + Sync)), ("reason", &reason)]);
        diagnostics.warn(Topic::Breaker, "breakers switched by an operator", &pairs);
    }

    /// Every switch in force.
    pub(crate) fn list(&self, now: Timestamp) -> Vec<(String, Forced)> {
        let switches = self.0.lock();
        let active = switches.iter().filter(|(_, forced)| now < forced.until);
        active.map(|(name, forced)| (name.clone(), forced.clone())).collect()
    }

    /// Puts what is forced on upstreams that are new.
    pub(crate) fn apply(&self, upstreams: &[Upstream]) {
        let switches = self.0.lock();
        for upstream in upstreams {
            if let Some(forced) = switches.get(&upstream.config.name) {
                force(upstream, forced.mode, forced.until);
            }
        }
    }

    /// Forgets what is over, with a line for each.
    pub(crate) fn expire(&self, now: Timestamp, diagnostics: &Diagnostics) {
        let mut over = Vec::new();
        self.0.lock().retain(|name, forced| {
            let lasts = now < forced.until;
            if !lasts {
                over.push((name.clone(), forced.clone()));
            }
            lasts
        });
        for (name, forced) in over {
            let mode = forced.mode.as_str();
            diagnostics.warn(
                Topic::Breaker,
                "breakers as configured again: the time of the switch is over",
                &[("upstream", &name), ("mode", &mode), ("by", &forced.by)],
            );
        }
    }
}

fn force(upstream: &Upstream, mode: BreakerMode, until: Timestamp) {
    upstream.stack.with(|dependency, _, _| dependency.force(mode, until));
}
