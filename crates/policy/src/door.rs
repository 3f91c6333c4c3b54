//! Decides whether a connection that has come to a listener is let in, and how it is told if not.
//!
//! When a service comes back, everybody who lost it comes in the same second, and each brings a
//! handshake, a login and a subscription: getting in is the dearest thing they do, and it is what
//! keeps the service down. So the door has a rate. What is beyond it is refused at once, before any
//! of that work is done, and never queued: who waits in a queue has given up before its turn comes,
//! and has come again meanwhile. And so that one address that comes again and again takes no place
//! from the others, each address has limits of its own.
//!
//! ```text
//! refused   if the address has as many connections as it may have,
//!           or came more often than it may                          (GCRA, a table of addresses)
//!           or more came in all than may come                       (GCRA, see `rate`)
//! let in    otherwise; only then anything is taken of any of them
//! told      by an answer, to come again in 3 to 8 s      where that can be read, and while
//!                                                        answers are within a rate of their own
//!           by a reset                                   else
//! ```
//!
//! An answer costs a socket for up to a second and a dozen system calls; a reset costs one. So
//! answers have a budget, and refusing is never the work that kills. The seconds are drawn for each
//! answer, so that who is refused together does not come back together.
//!
//! What an address is, and who has none that says anything, the edge decides, which makes a key of
//! it. Addresses with open connections are counted exactly, one entry each: as many as there are
//! connections, which the edge bounds. Rates of addresses are kept in tables of fixed size
//! ([`KeyedRate`]), so inventing addresses gains no memory, and resets nobody's debt.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `accept` | none | a rate; its burst by default what it admits in a second | seawall-design |
//! | `answers` | no | with a limit alone | seawall-design |
//! | answers | 100 a second, 100 at once | fixed | seawall-design |
//! | when to come again | 3 to 8 whole seconds | fixed | seawall-design |
//! | `connections` of an address | no limit | 1 or more | seawall-design |
//! | `connection_rate` and `request_rate` of an address | none | as `accept` | seawall-design |
//! | `addresses` that can owe something | 10,000 | 1 to 1,000,000 | seawall-defaults |
//!
//! Known bad cases: who is refused by a reset is told no time, and comes back when its own backoff
//! says; a rate below what clients need to come back at all (n clients, n/rate seconds) makes a
//! queue out of them, each with its retries. The rate is of each listener and each process. Many
//! callers behind one address share what it may have.

mod address;

use core::time::Duration;

use crate::error::ConfigError;
use crate::rate::{Rate, RateExceeded, RateKey, RateOptions, RateParams};
use crate::rng::Rng;
use crate::spread::come_again;
use crate::time::Timestamp;

pub use address::AddressOptions;
use address::{AddressParams, Addresses};

/// The options of a door, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorOptions {
    /// Connections that are let in in a time. Default: no limit.
    pub accept: Option<RateOptions>,
    /// Whether a refusal is an answer where it can be, or always a reset. Default: a reset.
    pub answers: bool,
    /// What one address may have. Default: no limit.
    pub per_address: Option<AddressOptions>,
}

impl DoorOptions {
    /// So many in each `period`, with a burst of what that admits in a second, at least one.
    #[must_use]
    pub fn rate(limit: u32, period: Duration) -> RateOptions {
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
    per_address: Option<AddressParams>,
}

impl DoorParams {
    /// Those of a door that refuses nobody.
    pub const OPEN: Self = Self {
        options: DoorOptions { accept: None, answers: false, per_address: None },
        accept: None,
        answers: None,
        per_address: None,
    };

    /// Checks the options.
    ///
    /// # Errors
    /// What [`RateParams::new`] refuses; limits of an address without any, or that are never
    /// reached before those of all; and `answers` that nobody would get.
    pub fn new(options: DoorOptions) -> Result<Self, ConfigError> {
        let accept = options.accept.map(RateParams::new).transpose()?;
        let per_address = options.per_address.map(|it| AddressParams::new(it, options.accept));
        let per_address = per_address.transpose()?;
        let answers = options.answers.then(|| RateParams::new(ANSWERS)).transpose()?;
        let params = Self { options, accept, answers, per_address };
        match options.answers && !params.refuses() {
            true => Err(ConfigError::new("answers", true, "false, where nobody is refused")),
            false => Ok(params),
        }
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> DoorOptions {
        self.options
    }

    /// Whether a connection can be refused; else there is nothing to ask.
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.accept.is_some() || self.per_address.is_some_and(|it| it.of_connections())
    }

    /// The limit on requests of one address, if there is one.
    #[must_use]
    pub fn request_rate(&self) -> Option<RateOptions> {
        self.options.per_address.and_then(|it| it.request_rate)
    }
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorRefusal {
    /// As many came as may come in this time.
    AcceptRate,
    /// Its address has as many as it may have.
    AddressConnections,
    /// Its address came more often than it may.
    AddressRate,
    /// It came past the proxies that say whose a connection is. The edge's to find out.
    NotAProxy,
    /// Its proxy said in no way, or not in time, whose it is. The edge's to find out.
    ProxyHeader,
}

impl DoorRefusal {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::AcceptRate,
        Self::AddressConnections,
        Self::AddressRate,
        Self::NotAProxy,
        Self::ProxyHeader,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AcceptRate => "accept_rate",
            Self::AddressConnections => "address_connections",
            Self::AddressRate => "address_rate",
            Self::NotAProxy => "not_a_proxy",
            Self::ProxyHeader => "proxy_header",
        }
    }
}

/// A connection that was let in; to be given to [`Door::release`] when it has ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its address has a connection until it is released"]
pub struct Entrance {
    /// The address it counts under.
    key: Option<RateKey>,
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
    addresses: Addresses,
}

impl Door {
    /// A door nobody came to yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a connection in; `key` is its address, if that says who it is. O(log n) in the
    /// addresses that have connections.
    ///
    /// # Errors
    /// Why it is not let in; nothing was taken then.
    pub fn try_acquire(
        &mut self,
        now: Timestamp,
        params: &DoorParams,
        key: Option<RateKey>,
    ) -> Result<Entrance, DoorRefusal> {
        let of_address = key.zip(params.per_address.as_ref());
        if let Some((key, limits)) = of_address {
            self.addresses.check(now, limits, key)?;
        }
        if let Some(accept) = &params.accept {
            self.accept.try_acquire(now, accept, 1).map_err(|_| DoorRefusal::AcceptRate)?;
        }
        let key = of_address.map(|(key, limits)| {
            self.addresses.take(now, limits, key);
            key
        });
        Ok(Entrance { key })
    }

    /// A connection that was let in has ended.
    pub fn release(&mut self, entrance: Entrance) {
        if let Some(key) = entrance.key {
            self.addresses.release(key);
        }
    }

    /// Admits one request of an address.
    ///
    /// # Errors
    /// It made more than it may; nothing was taken.
    pub fn try_request(
        &mut self,
        now: Timestamp,
        params: &DoorParams,
        key: RateKey,
    ) -> Result<(), RateExceeded> {
        match &params.per_address {
            Some(limits) => self.addresses.try_request(now, limits, key),
            None => Ok(()),
        }
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
                Farewell::Answer(come_again(rng))
            }
            _ => Farewell::Reset,
        }
    }

    /// Addresses that have connections.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.addresses.len()
    }

    /// Addresses that were forgotten while they owed something, since the start.
    #[must_use]
    pub fn evicted_total(&self) -> u64 {
        self.addresses.evicted_total()
    }
}

/// A burst of so long: who comes back in one second is one herd, whatever its first 100 ms hold.
/// Source: seawall-design.
const BURST_TIME: Duration = Duration::from_secs(1);
/// Source: seawall-design.
const ANSWERS: RateOptions = RateOptions { limit: 100, period: Duration::from_secs(1), burst: 100 };

#[cfg(test)]
mod tests;
