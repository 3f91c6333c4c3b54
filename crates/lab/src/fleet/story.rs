//! What happened to calls, event by event, for whoever asks: all calls of a run, or one.
//!
//! A call is named by its client and by which of that client's calls it is, both from 0: `17.3`.
//! What its servers call for its sake has the same name. Nothing is kept of a run that nobody asks
//! about, and telling changes nothing of it.

use std::fmt;
use std::time::Duration;

use seawall_policy::{Cause, Done, Outcome, StopReason, Timestamp};

use super::world::{Flight, Made, World};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One call.
    Call {
        /// Whose.
        client: u32,
        /// Which of its calls, from 0.
        number: u32,
    },
    /// All of them.
    All,
}

/// What happened, in the order of time.
#[derive(Clone, Debug)]
pub struct Story {
    asked: Asked,
    most: usize,
    /// Line by line.
    pub told: Vec<Told>,
    /// Lines beyond as many as were asked for at most.
    pub left_out: u64,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Timestamp,
    /// To the call of which client.
    pub client: u32,
    /// Which of its calls, from 0.
    pub number: u32,
    /// What, in words.
    pub said: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, client, number, said } = self;
        let micros = at.since(Timestamp::ZERO).as_micros();
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        write!(f, "{seconds:>5}.{micros:06}  {client}.{number}  {said}")
    }
}

impl Story {
    /// Of what is asked for, so many lines at most.
    #[must_use]
    pub const fn new(asked: Asked, most: usize) -> Self {
        Self { asked, most, told: Vec::new(), left_out: 0 }
    }

    fn wants(&self, made: Made) -> bool {
        match self.asked {
            Asked::All => true,
            Asked::Call { client, number } => (made.origin, made.number) == (client, number),
        }
    }
}

impl World<'_> {
    /// Tells something of a call.
    pub(super) fn tell(&mut self, now: Timestamp, made: Made, say: impl FnOnce(&Self) -> String) {
        let Some(story) = self.story.as_ref().filter(|story| story.wants(made)) else { return };
        let is_full = story.told.len() >= story.most;
        let said = if is_full { String::new() } else { say(self) };
        let Some(story) = &mut self.story else { return };
        if is_full {
            story.left_out += 1;
        } else {
            let (client, number) = (made.origin, made.number);
            story.told.push(Told { at: now, client, number, said });
        }
    }

    /// Tells something of an attempt.
    pub(super) fn tell_of(
        &mut self,
        now: Timestamp,
        slot: u32,
        say: impl FnOnce(&Self, &Flight) -> String,
    ) {
        if self.story.is_none() {
            return;
        }
        let Some(made) = self.flights.get(slot).map(|flight| flight.made) else { return };
        self.tell(now, made, |world| {
            let Some(flight) = world.flights.get(slot) else { return String::new() };
            let (nth, place) = (flight.nth + 1, world.named(flight.site as usize));
            format!("attempt {nth} at {place} {}", say(world, flight))
        });
    }

    /// A server, with its number where there are several.
    fn named(&self, site: usize) -> String {
        let site = &self.sites[site];
        let service = &self.fleet.services[site.service as usize];
        match service.servers {
            1 => service.name.clone(),
            _ => format!("{} {}", service.name, site.place),
        }
    }

    /// The service that a call is made to.
    pub(super) fn called(&self, made: Made) -> &str {
        let service = self.policies.routes.get(made.link.route).target;
        &self.fleet.services[service as usize].name
    }
}

/// How a call has ended.
pub(super) fn ended(took: Duration, done: &Done) -> String {
    let attempts = match done.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    let (took, what) = (millis(took), of_outcome(&done.outcome));
    match done.stop {
        StopReason::Answered => format!("ends after {took}, {attempts}: {what}"),
        stop => {
            format!("ends after {took}, {attempts}: {what}; not tried again: {}", stop.as_str())
        }
    }
}

/// What came of an attempt or a call.
pub(super) fn of_outcome(outcome: &Outcome) -> String {
    match outcome.cause() {
        Cause::Status(status) => format!("status {status}"),
        cause => cause.as_str().replace('_', " "),
    }
}

/// A time, to a hundredth of a millisecond.
pub(super) fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
