//! Decides whether a connection that has come to a listener is let in, and how it is told if not.
//!
//! When a service comes back, everybody who lost it comes in the same second, and each brings a
//! handshake, a login and a subscription: getting in is the dearest thing they do, and it is what
//! keeps the service down. So the door has a rate. What is beyond it is refused at once, before any
//! of that work is done, and never queued: who waits in a queue has given up before its turn comes,
//! and has come again meanwhile.
//!
//! ```text
//! let in    if the accept rate has room for one more       (GCRA, see `rate`)
//! refused   otherwise, and told
//!             by an answer, to come again in 3 to 8 s      where that can be read, and while
//!                                                          answers are within a rate of their own
//!             by a reset                                   else
//! ```
//!
//! An answer costs a socket for up to a second and a dozen system calls; a reset costs one. So
//! answers have a budget, and refusing is never the work that kills. The seconds are drawn for each
//! answer, so that who is refused together does not come back together.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `accept` | none | a rate; its burst by default what it admits in a second | seawall-design |
//! | `answers` | no | with a limit alone | seawall-design |
//! | answers | 100 a second, 100 at once | fixed | seawall-design |
//! | when to come again | 3 to 8 whole seconds | fixed | seawall-design |
//!
//! Known bad cases: who is refused by a reset is told no time, and comes back when its own backoff
//! says; a rate below what clients need to come back at all (n clients, n/rate seconds) makes a
//! queue out of them, each with its retries. The rate is of each listener and each process.

use core::time::Duration;

use crate::error::ConfigError;
use crate::rate::{Rate, RateOptions, RateParams};
use crate::rng::Rng;
use crate::time::Timestamp;

/// The options of a door, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorOptions {
    /// Connections that are let in in a time. Default: no limit.
    pub accept: Option<RateOptions>,
    /// Whether a refusal is an answer where it can be, or always a reset. Default: a reset.
    pub answers: bool,
}

impl DoorOptions {
    /// So many in each `period`, with a burst of what that admits in a second, at least one.
    #[must_use]
    pub fn accept_rate(limit: u32, period: Duration) -> RateOptions {
        let in_a_second = u128::from(limit) * BURST_TIME.as_nanos() / period.as_nanos().max(1);
        let burst = u32::try_from(in_a_second).unwrap_or(u32::MAX).max(1);
        RateOptions { limit, period, burst }
    }
}

/// Checked [`DoorOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorParams {
    options: DoorOptions,
    accept: Option<RateParams>,
    answers: Option<RateParams>,
}

impl DoorParams {
    /// Those of a door that refuses nobody.
    pub const OPEN: Self =
        Self { options: DoorOptions { accept: None, answers: false }, accept: None, answers: None };

    /// Checks the options.
    ///
    /// # Errors
    /// What [`RateParams::new`] refuses, and `answers` without a limit, which nobody would get.
    pub fn new(options: DoorOptions) -> Result<Self, ConfigError> {
        if options.answers && options.accept.is_none() {
            return Err(ConfigError::new("answers", true, "false, where nobody is refused"));
        }
        let accept = options.accept.map(RateParams::new).transpose()?;
        let answers = options.answers.then(|| RateParams::new(ANSWERS)).transpose()?;
        Ok(Self { options, accept, answers })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> DoorOptions {
        self.options
    }

    /// Whether anybody can be refused; else there is nothing to ask.
    #[must_use]
    pub const fn refuses(&self) -> bool {
        self.accept.is_some()
    }
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorRefusal {
    /// As many came as may come in this time.
    AcceptRate,
}

impl DoorRefusal {
    /// Every reason.
    pub const ALL: [Self; 1] = [Self::AcceptRate];

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AcceptRate => "accept_rate",
        }
    }
}

/// How somebody is told that it is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The connection is reset.
    Reset,
    /// By an answer, with so many seconds until it may come again.
    Answer(u64),
}

/// The door of one listener. Parameters are passed to each call.
#[derive(Clone, Debug, Default)]
pub struct Door {
    accept: Rate,
    answers: Rate,
}

impl Door {
    /// A door nobody came to yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { accept: Rate::new(), answers: Rate::new() }
    }

    /// Lets a connection in. O(1).
    ///
    /// # Errors
    /// Why it is not let in; nothing was taken then.
    pub fn try_acquire(&mut self, now: Timestamp, params: &DoorParams) -> Result<(), DoorRefusal> {
        let Some(accept) = &params.accept else { return Ok(()) };
        self.accept.try_acquire(now, accept, 1).map_err(|_| DoorRefusal::AcceptRate)
    }

    /// How somebody who was not let in is told, of whom it is not known yet whether it could read
    /// an answer. One that is then not given stays spent.
    pub fn farewell(
        &mut self,
        now: Timestamp,
        params: &DoorParams,
        rng: &mut impl Rng,
    ) -> Farewell {
        match &params.answers {
            Some(answers) if self.answers.try_acquire(now, answers, 1).is_ok() => {
                Farewell::Answer(RETRY_AFTER_MIN + rng.below(RETRY_AFTER_SPAN))
            }
            _ => Farewell::Reset,
        }
    }
}

/// A burst of so long: who comes back in one second is one herd, whatever its first 100 ms hold.
/// Source: seawall-design.
const BURST_TIME: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const ANSWERS: RateOptions = RateOptions { limit: 100, period: Duration::from_secs(1), burst: 100 };
/// Seconds. Source: seawall-design.
const RETRY_AFTER_MIN: u64 = 3;
/// So many different answers: 3 to 8. Source: seawall-design.
const RETRY_AFTER_SPAN: u64 = 6;

#[cfg(test)]
mod tests;
