//! Decides whether one more call may go now, so that a rate and a burst are kept exactly.
//!
//! A dependency that was promised "at most 500 a second" has no use for an average: what hurts it
//! is the second in which all callers come back. The generic cell rate algorithm (GCRA) keeps one
//! number for a limit, the time at which it will be whole again, and needs no timer to refill.
//!
//! ```text
//! increment = period / limit                   what one call costs, in time
//! tolerance = burst · increment
//! start     = max(full_at, now)                now, unless there is debt
//! admitted  if start + cost · increment ≤ now + tolerance, and then full_at is that sum
//! refused   otherwise, until exactly (start + cost · increment) − tolerance
//! ```
//!
//! Time is counted in whole nanoseconds and parts of `1/limit` of one, so 3/s is 3/s and not one
//! call every 333,333,333 ns. A call that is refused takes nothing. An earlier `now` counts as the
//! latest one seen. A reload keeps the debt as time, cut to what the new limit can owe.
//!
//! [`KeyedRate`] holds one such number for each key, in a table of fixed size.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `limit` per `period` | none | 1 or more, in over 0 s up to 1 day | seawall-design |
//! | `burst` | what the limit admits in 100 ms, at least 1 | 1 up to what 30 days replenish | seawall-defaults |
//! | `keys` | 10,000 | 1 to 1,000,000 | seawall-defaults |
//!
//! Known bad cases: each process has its own count, so a fleet of ten sends ten times the limit;
//! a call whose cost is above `burst` is never admitted, and is told so.

mod keyed;

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;
use crate::time::{Timestamp, nanos};

pub use keyed::{KeyedRate, KeyedRateOptions, KeyedRateParams, RateKey};

/// The options of a rate limit, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    /// How many in each `period`; 1 or more.
    pub limit: u32,
    /// In how long; over zero, up to a day.
    pub period: Duration,
    /// How many may go at once after a pause; 1 or more. A burst of `limit` admits nearly twice
    /// the limit in the first period after a pause.
    pub burst: u32,
}

impl RateOptions {
    /// So many in each `period`, with a burst of what that admits in 100 ms, at least one.
    #[must_use]
    pub fn new(limit: u32, period: Duration) -> Self {
        let in_a_moment = u128::from(limit) * BURST_TIME.as_nanos() / period.as_nanos().max(1);
        let burst = u32::try_from(in_a_moment).unwrap_or(limit).clamp(1, limit.max(1));
        Self { limit, period, burst }
    }

    /// Whether this rate is always reached before `other` is, so that `other` is never felt.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let each = |rate: &Self, per: &Self| u128::from(rate.limit) * per.period.as_nanos();
        each(self, other) <= each(other, self) && self.burst <= other.burst
    }
}

/// Checked [`RateOptions`], apart from the state: many limits share one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateParams {
    options: RateOptions,
    /// Nanoseconds.
    period: u64,
    increment: Span,
    tolerance: Span,
}

impl RateParams {
    /// Checks the options.
    ///
    /// # Errors
    /// `limit` or `burst` is 0, `period` is 0 or above a day, or `burst` takes longer than 30 days
    /// to replenish.
    pub fn new(options: RateOptions) -> Result<Self, ConfigError> {
        let RateOptions { limit, period, burst } = options;
        if limit == 0 {
            return Err(ConfigError::new("limit", limit, "1 or more"));
        }
        if period.is_zero() || period > PERIOD_MAX {
            let value = format!("{period:?}");
            return Err(ConfigError::new("period", value, "over 0s, up to 24h"));
        }
        let most = FULL_MAX.as_nanos() * u128::from(limit) / period.as_nanos();
        if burst == 0 || u128::from(burst) > most {
            let allowed = format!("1 to {most}, which 30 days replenish");
            return Err(ConfigError::new("burst", burst, allowed));
        }
        let period = nanos(period);
        let span = |cells| Span::of(u128::from(period) * u128::from(cells), limit);
        Ok(Self { options, period, increment: span(1_u32), tolerance: span(burst) })
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> RateOptions {
        self.options
    }

    /// What so many calls cost.
    fn price(&self, cost: u32) -> Span {
        match cost {
            1 => self.increment,
            cost => Span::of(u128::from(self.period) * u128::from(cost), self.options.limit),
        }
    }

    fn sum(&self, one: Span, other: Span) -> Span {
        let part = u64::from(one.part) + u64::from(other.part);
        let limit = u64::from(self.options.limit);
        let (carry, part) = if part >= limit { (1, part - limit) } else { (0, part) };
        let nanos = one.nanos.saturating_add(other.nanos).saturating_add(carry);
        Span { nanos, part: u32::try_from(part).unwrap_or(0) }
    }

    /// `one - other`, not below zero.
    fn difference(&self, one: Span, other: Span) -> Span {
        if one <= other {
            return Span::default();
        }
        let limit = u64::from(self.options.limit);
        let (borrow, part) = match u64::from(one.part).checked_sub(u64::from(other.part)) {
            Some(part) => (0, part),
            None => (1, u64::from(one.part) + limit - u64::from(other.part)),
        };
        let nanos = one.nanos - other.nanos - borrow;
        Span { nanos, part: u32::try_from(part).unwrap_or(0) }
    }

    /// The latest time at which a limit may be whole again.
    fn latest(&self, now: Timestamp) -> Span {
        self.sum(Span::at(now), self.tolerance)
    }

    /// When it is whole again, of a state that another limit may have left.
    fn start(&self, full_at: Span, now: Timestamp) -> Span {
        let part = full_at.part.min(self.options.limit - 1);
        Span { part, ..full_at }.max(Span::at(now)).min(self.latest(now))
    }

    /// The decision: the state after it, or the refusal.
    fn decide(&self, full_at: Span, now: Timestamp, cost: u32) -> Result<Span, RateExceeded> {
        if cost > self.options.burst {
            return Err(RateExceeded { retry_after: None });
        }
        let latest = self.latest(now);
        let end = self.sum(self.start(full_at, now), self.price(cost));
        if end <= latest {
            return Ok(end);
        }
        let rounded_up = u64::from(end.part > latest.part);
        let wait = Duration::from_nanos(end.nanos - latest.nanos + rounded_up);
        Err(RateExceeded { retry_after: Some(wait) })
    }

    /// How many could go now.
    fn available(&self, full_at: Span, now: Timestamp) -> u32 {
        let left = self.difference(self.latest(now), self.start(full_at, now));
        let limit = u128::from(self.options.limit);
        let ticks = u128::from(left.nanos) * limit + u128::from(left.part);
        u32::try_from(ticks / u128::from(self.period)).unwrap_or(u32::MAX)
    }
}

/// A refusal: nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded {
    /// From when on it would be admitted, if nothing else were; `None`: its cost is above the
    /// burst, so never.
    pub retry_after: Option<Duration>,
}

/// One limit. 24 bytes; parameters are passed to each call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    full_at: Span,
    /// The latest `now` seen.
    latest: Timestamp,
}

impl Rate {
    /// A limit that nothing was taken from.
    #[must_use]
    pub const fn new() -> Self {
        Self { full_at: Span { nanos: 0, part: 0 }, latest: Timestamp::ZERO }
    }

    /// Takes `cost` of the limit. A cost of zero is always admitted.
    ///
    /// # Errors
    /// The rate would be exceeded; nothing was taken.
    pub fn try_acquire(
        &mut self,
        now: Timestamp,
        params: &RateParams,
        cost: u32,
    ) -> Result<(), RateExceeded> {
        self.settle(now, params);
        self.full_at = params.decide(self.full_at, self.latest, cost)?;
        Ok(())
    }

    /// Whether [`try_acquire`](Self::try_acquire) would admit; takes nothing.
    ///
    /// # Errors
    /// It would not.
    pub fn check(
        &mut self,
        now: Timestamp,
        params: &RateParams,
        cost: u32,
    ) -> Result<(), RateExceeded> {
        self.settle(now, params);
        params.decide(self.full_at, self.latest, cost).map(|_| ())
    }

    /// Gives back what was taken for a call that was never sent.
    pub fn give_back(&mut self, params: &RateParams, cost: u32) {
        self.full_at = params.difference(self.full_at, params.price(cost));
    }

    /// How many could go now.
    #[must_use]
    pub fn available(&self, now: Timestamp, params: &RateParams) -> u32 {
        params.available(self.full_at, self.latest.max(now))
    }

    /// Cuts what is owed to what can be, once: it is replenished from there on.
    fn settle(&mut self, now: Timestamp, params: &RateParams) {
        self.latest = self.latest.max(now);
        self.full_at = params.start(self.full_at, self.latest);
    }
}

/// A time on the clock, or a length of it: nanoseconds, and parts of which `limit` make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    nanos: u64,
    part: u32,
}

impl Span {
    const fn at(time: Timestamp) -> Self {
        Self { nanos: time.as_nanos(), part: 0 }
    }

    /// `ticks / limit` nanoseconds.
    fn of(ticks: u128, limit: u32) -> Self {
        let limit = u128::from(limit);
        Self {
            nanos: u64::try_from(ticks / limit).unwrap_or(u64::MAX),
            part: u32::try_from(ticks % limit).unwrap_or(0),
        }
    }
}

/// A burst of so long. Source: seawall-defaults. Differs: others take a whole period, which lets
/// nearly twice the limit through in the first one.
const BURST_TIME: Duration = Duration::from_millis(100);
/// Source: seawall-design.
const PERIOD_MAX: Duration = Duration::from_secs(86_400);
/// What takes longer to replenish is a total and no rate. Source: seawall-design.
const FULL_MAX: Duration = Duration::from_secs(30 * 86_400);

#[cfg(test)]
mod tests;
