//! What goes wrong, where, and when.
//!
//! | trouble | what a client sees |
//! |---|---|
//! | down | connections are refused |
//! | silent | requests vanish; nothing ever comes back |
//! | slow | work taken up takes so many times as long; on one server of many: a gray failure |
//! | errors | this share of requests is answered with a status, at once and without work |
//! | capacity | so many workers; those too many end what they are at |
//! | pause | nothing moves, then everything goes on where it was |
//! | restart | all that is inside is closed at the begin; down to the end |
//! | hold | requests do not arrive, until all do at the end, in the order they were sent in |
//! | partition | between a share of the clients and the server nothing passes, either way |
//! | reset | a share of the clients is no longer in, where a server has a door: at the begin |
//! | stall | a share of the clients stands still, and goes on where it was at the end |
//! | clock | the clocks of a share of the clients are off, which only dates depend on |

use seawall_policy::{ConfigError, Timestamp};

use crate::span::check;

/// One thing that goes wrong for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    from: Timestamp,
    until: Timestamp,
    service: u32,
    server: Option<u32>,
    trouble: Trouble,
}

/// What goes wrong. See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// Connections are refused.
    Down,
    /// Requests vanish.
    Silent,
    /// Work takes so many times as long; 0.001 to 1,000,000.
    Slow(f64),
    /// Requests are answered with a status, 400 to 599, at once.
    Errors {
        /// How many of them, 0 to 1.
        share: f64,
        /// With which.
        status: u16,
    },
    /// So many workers, from none.
    Capacity(u32),
    /// Nothing moves.
    Pause,
    /// What is inside is closed, and connections are refused to the end.
    Restart,
    /// Requests arrive at the end only.
    Hold,
    /// Nothing passes between the server and some clients.
    Partition {
        /// How many of them, 0 to 1.
        share: f64,
    },
    /// Some clients are no longer in, from the begin on.
    Reset {
        /// How many of them, 0 to 1.
        share: f64,
    },
    /// Some clients do nothing: what happens to them meanwhile they see at the end.
    Stall {
        /// How many of them, 0 to 1.
        share: f64,
    },
    /// Some clients' clocks are off.
    Clock {
        /// How many of them, 0 to 1.
        share: f64,
        /// Seconds that they are ahead; below zero: behind.
        ahead: i64,
    },
}

impl Fault {
    /// Trouble on every server, or on one, of the first service, from a time until another.
    ///
    /// # Errors
    /// An end that is not after the begin, or a number outside its range.
    pub fn new(
        from: Timestamp,
        until: Timestamp,
        server: Option<u32>,
        trouble: Trouble,
    ) -> Result<Self, ConfigError> {
        if until <= from {
            return Err(ConfigError::new("until", until, format!("a time after from ({from})")));
        }
        match trouble {
            Trouble::Slow(times) => check("slow", times, 0.001, 1e6)?,
            Trouble::Errors { share, status } => {
                check("share", share, 0.0, 1.0)?;
                if !(400..=599).contains(&status) {
                    return Err(ConfigError::new("status", status, "a status from 400 to 599"));
                }
            }
            Trouble::Partition { share }
            | Trouble::Reset { share }
            | Trouble::Stall { share }
            | Trouble::Clock { share, .. } => {
                check("share", share, 0.0, 1.0)?;
            }
            _ => {}
        }
        Ok(Self { from, until, service: 0, server, trouble })
    }

    /// The same on the servers of another service, by its place.
    #[must_use]
    pub const fn on(self, service: u32) -> Self {
        Self { service, ..self }
    }

    /// When it begins.
    #[must_use]
    pub const fn from(&self) -> Timestamp {
        self.from
    }

    /// When it ends.
    #[must_use]
    pub const fn until(&self) -> Timestamp {
        self.until
    }

    /// What it is.
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        self.trouble
    }

    /// In a few words, as a band in a plot is labelled.
    #[must_use]
    pub fn said(&self) -> String {
        let what = match self.trouble {
            Trouble::Down => "down".to_owned(),
            Trouble::Silent => "silent".to_owned(),
            Trouble::Slow(times) => format!("slow ×{times}"),
            Trouble::Errors { share, status } => format!("{}% {status}", share * 100.0),
            Trouble::Capacity(workers) => format!("{workers} workers"),
            Trouble::Pause => "pause".to_owned(),
            Trouble::Restart => "restart".to_owned(),
            Trouble::Hold => "held back".to_owned(),
            Trouble::Partition { share } => format!("{}% cut off", share * 100.0),
            Trouble::Reset { share } => format!("{}% reset", share * 100.0),
            Trouble::Stall { share } => format!("{}% stand still", share * 100.0),
            Trouble::Clock { ahead, .. } => format!("clocks {ahead:+} s"),
        };
        self.server.map_or(what.clone(), |server| format!("{what} at {server}"))
    }

    /// Whether it hits clients, whatever they talk to, and no servers.
    #[must_use]
    pub const fn is_of_clients(&self) -> bool {
        matches!(self.trouble, Trouble::Clock { .. } | Trouble::Stall { .. })
    }

    /// The service whose servers it hits.
    #[must_use]
    pub const fn service(&self) -> u32 {
        self.service
    }

    /// The one server it hits, if it is one.
    #[must_use]
    pub const fn server(&self) -> Option<u32> {
        self.server
    }

    pub(crate) fn is_on(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }

    pub(crate) fn hits(&self, service: u32, server: u32) -> bool {
        self.service == service && self.server.is_none_or(|one| one == server)
    }
}

/// How a server is, by all faults of a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) refuses: bool,
    pub(crate) is_silent: bool,
    pub(crate) holds: bool,
    /// Some clients are cut off.
    pub(crate) is_parted: bool,
    /// Work takes so many times as long; faults multiply.
    pub(crate) slow: f64,
    /// Shares and statuses of errors; of several, the first that hits.
    pub(crate) errors: Option<(f64, u16)>,
    /// The fewest workers of all faults.
    pub(crate) workers: Option<u32>,
}

impl Condition {
    pub(crate) const GOOD: Self = Self {
        refuses: false,
        is_silent: false,
        holds: false,
        is_parted: false,
        slow: 1.0,
        errors: None,
        workers: None,
    };

    /// Of a server of a service at `now`.
    pub(crate) fn of(faults: &[Fault], service: u32, server: u32, now: Timestamp) -> Self {
        let mut all = Self::GOOD;
        let is_on = |fault: &&Fault| fault.is_on(now);
        let hits = |fault: &&Fault| fault.hits(service, server);
        for fault in faults.iter().filter(hits).filter(is_on) {
            match fault.trouble {
                Trouble::Down | Trouble::Restart => all.refuses = true,
                Trouble::Silent => all.is_silent = true,
                Trouble::Hold => all.holds = true,
                Trouble::Slow(times) => all.slow *= times,
                Trouble::Errors { share, status } => {
                    all.errors = all.errors.or(Some((share, status)));
                }
                Trouble::Capacity(workers) => {
                    all.workers = Some(all.workers.map_or(workers, |fewer| fewer.min(workers)));
                }
                Trouble::Partition { .. } => all.is_parted = true,
                Trouble::Pause
                | Trouble::Reset { .. }
                | Trouble::Stall { .. }
                | Trouble::Clock { .. } => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_server_suffers_from_all_faults_of_the_moment_that_hit_it() {
        let fault = |from, until, server, trouble| {
            Fault::new(at(from), at(until), server, trouble).unwrap()
        };
        let faults = [
            fault(10, 20, None, Trouble::Slow(2.0)),
            fault(15, 30, Some(1), Trouble::Slow(5.0)),
            fault(15, 30, Some(1), Trouble::Capacity(3)),
            fault(16, 30, None, Trouble::Capacity(4)),
            fault(40, 50, Some(0), Trouble::Restart),
        ];
        let of = |server, now| Condition::of(&faults, 0, server, at(now));
        assert_eq!(of(0, 9), Condition::GOOD);
        assert_eq!(of(0, 10), Condition { slow: 2.0, ..Condition::GOOD });
        let both = Condition { slow: 10.0, workers: Some(3), ..Condition::GOOD };
        assert_eq!(of(1, 19), both);
        assert_eq!(of(1, 20), Condition { slow: 5.0, ..both });
        assert_eq!(of(0, 29), Condition { workers: Some(4), ..Condition::GOOD });
        assert_eq!(of(0, 30), Condition::GOOD);
        assert_eq!(of(0, 45), Condition { refuses: true, ..Condition::GOOD });
        assert_eq!(of(1, 45), Condition::GOOD);
        let elsewhere = faults.map(|fault| fault.on(3));
        assert_eq!(Condition::of(&elsewhere, 0, 1, at(19)), Condition::GOOD);
        assert_eq!(Condition::of(&elsewhere, 3, 1, at(19)), both);
    }

    #[test]
    fn what_cannot_happen_is_refused() {
        let new = |until, trouble| Fault::new(at(5), at(until), None, trouble);
        let refused = [
            new(5, Trouble::Down),
            new(9, Trouble::Slow(0.0)),
            new(9, Trouble::Errors { share: 1.1, status: 503 }),
            new(9, Trouble::Errors { share: 0.5, status: 200 }),
        ];
        let told = refused.map(|fault| fault.unwrap_err().field().to_owned());
        assert_eq!(told, ["until", "slow", "share", "status"]);
    }
}
