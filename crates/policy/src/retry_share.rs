//! Decides, at a server, whether its callers should send first attempts only, from the share of
//! retries in what reaches it.
//!
//! A caller's budget knows that caller's calls. A thousand callers with one call a minute each
//! know nothing: every one has the two retries it begins with, and together they double or triple
//! the load. The server sees all of them, and each request says which attempt it is. So the server
//! keeps the share, and while it is too high, its refusals and the failures behind it carry the
//! stop signal. Callers obey it answer by answer, and it costs none of them its own budget.
//!
//! ```text
//! begins while  retries > max · firsts + spare        both counted over the last `window`
//! ends when     retries ≤ resume · firsts
//! ```
//!
//! The window slides by tenths. `spare` is what keeps chance from deciding: with 5 % of attempts
//! failing and three attempts for each call, one window in about 100,000 has ten retries more than
//! 10 %; with 50 % failing, fifteen first attempts do. While the signal is on no new retries come,
//! first attempts go on, and the share sinks to `resume` by itself.
//!
//! A stop stated here is no statement about any one call. That is why it is the one exception to
//! the rule that a full bulkhead, a shed request and an exceeded quota never say stop: those know
//! about one moment, this knows that retries are what there is too much of.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `max` | 10 % | over 0 to 100 % | seawall-defaults |
//! | `resume` | half of `max` | 0 to below `max` | seawall-defaults |
//! | `window` | 10 s | 10 s to 10 min | seawall-design |
//! | `spare` | 10 | 1 to 1,000,000 | seawall-defaults |
//!
//! O(1) and no allocation. Known bad cases: attempt numbers are believed, so only those of trusted
//! peers may be counted; attempts that get no answer hear no signal, so a server that is silent
//! still needs the callers' budgets; callers that do not obey keep it on, and count for the others.

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

/// The options, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryShareOptions {
    /// Retries for each first attempt above which the stop begins; over 0 to 100 %.
    pub max: Ratio,
    /// Down to which it goes on; 0 (until none came for a window) to below `max`.
    pub resume: Ratio,
    /// The time that is looked at; 10 s to 10 min. Shorter would take one burst for a storm.
    pub window: Duration,
    /// Retries within a window that are nobody's fault; 1 to 1,000,000.
    pub spare: u32,
}

impl RetryShareOptions {
    /// The defaults around another share: resumed at half of it.
    #[must_use]
    pub const fn with_max(max: Ratio) -> Self {
        let resume = Ratio::from_millionths(max.millionths() / 2);
        Self { max, resume, window: WINDOW, spare: SPARE }
    }
}

impl Default for RetryShareOptions {
    fn default() -> Self {
        Self::with_max(MAX)
    }
}

/// Checked [`RetryShareOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryShareParams {
    options: RetryShareOptions,
    /// A tenth of the window, in nanoseconds.
    tenth: u64,
}

impl RetryShareParams {
    /// Checks the options.
    ///
    /// # Errors
    /// The first option outside its range.
    pub fn new(options: RetryShareOptions) -> Result<Self, ConfigError> {
        let RetryShareOptions { max, resume, window, spare } = options;
        if max == Ratio::ZERO || max > Ratio::ONE {
            return Err(ConfigError::new("max", max, "over 0% to 100%"));
        }
        if resume >= max {
            return Err(ConfigError::new("resume", resume, format!("less than max ({max})")));
        }
        if !(WINDOW..=WINDOW_MAX).contains(&window) {
            return Err(ConfigError::new("window", format!("{window:?}"), "10s to 10m"));
        }
        if !(1..=SPARE_MAX).contains(&spare) {
            return Err(ConfigError::new("spare", spare, "1 to 1000000"));
        }
        Ok(Self { options, tenth: nanos(window) / TENTHS as u64 })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> RetryShareOptions {
        self.options
    }
}

/// What came, and whether callers are told to stop.
#[derive(Clone, Debug, Default)]
pub struct RetryShare {
    tenths: [Came; TENTHS],
    /// The number of the newest tenth since the clock's origin; its place is that modulo ten.
    newest: u64,
    /// How long each is, in nanoseconds; 0 before the first request.
    tenth: u64,
    /// Their sum.
    all: Came,
    stopped: bool,
    /// Times that a stop began.
    stops: u64,
    /// The latest `now` seen.
    latest: Timestamp,
}

/// Attempts that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Came {
    firsts: u64,
    retries: u64,
}

impl RetryShare {
    /// Nothing came.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An attempt of that number came; the first is 1, and 0 is taken for it.
    pub fn record(&mut self, now: Timestamp, params: &RetryShareParams, attempt: u32) {
        self.roll(now, params);
        let is_retry = u64::from(attempt > 1);
        for came in [&mut self.tenths[place(self.newest)], &mut self.all] {
            came.firsts += 1 - is_retry;
            came.retries += is_retry;
        }
        self.judge(params);
    }

    /// Whether a refusal or a failure that leaves now says stop.
    #[must_use]
    pub fn says_stop(&mut self, now: Timestamp, params: &RetryShareParams) -> bool {
        self.roll(now, params);
        self.judge(params);
        self.stopped
    }

    /// First attempts and retries in the window, as last looked at.
    #[must_use]
    pub const fn seen(&self) -> (u64, u64) {
        (self.all.firsts, self.all.retries)
    }

    /// Times that a stop began.
    #[must_use]
    pub const fn stops(&self) -> u64 {
        self.stops
    }

    fn judge(&mut self, params: &RetryShareParams) {
        let RetryShareOptions { max, resume, spare, .. } = params.options;
        let Came { firsts, retries } = self.all;
        let is_stopped = match self.stopped {
            true => retries > resume.of(firsts),
            false => retries > max.of(firsts).saturating_add(spare.into()),
        };
        self.stops += u64::from(is_stopped && !self.stopped);
        self.stopped = is_stopped;
    }

    /// Forgets the tenths that are older than the window.
    fn roll(&mut self, now: Timestamp, params: &RetryShareParams) {
        self.latest = self.latest.max(now);
        let newest = self.latest.as_nanos() / params.tenth;
        if self.tenth != params.tenth {
            // Another window: what was seen counts as seen now.
            self.tenths = [Came::default(); TENTHS];
            self.tenths[place(newest)] = self.all;
            (self.tenth, self.newest) = (params.tenth, newest);
        }
        let passed = newest.saturating_sub(self.newest).min(TENTHS as u64);
        for number in newest + 1 - passed..=newest {
            let gone = core::mem::take(&mut self.tenths[place(number)]);
            self.all.firsts -= gone.firsts;
            self.all.retries -= gone.retries;
        }
        self.newest = newest;
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % TENTHS as u64).unwrap_or(0)
}

/// Source: seawall-defaults.
const MAX: Ratio = Ratio::from_percent(10);
/// The default, and the least. Source: seawall-design.
const WINDOW: Duration = Duration::from_secs(10);
/// Source: seawall-design.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// Source: seawall-defaults.
const SPARE: u32 = 10;
/// Source: seawall-design.
const SPARE_MAX: u32 = 1_000_000;
/// Steps in which a window slides. Source: seawall-design.
const TENTHS: usize = 10;

#[cfg(test)]
mod tests;
