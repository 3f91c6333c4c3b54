//! All policies of one dependency, in the one right order.
//!
//! Outside in: total deadline → retry (budget, backoff) → hedge → breaker → rate → attempt timeout
//! → bulkhead → checkout → call. The order is [`Operation`]'s and cannot be written wrongly: a
//! [`StackConfig`] only says which mechanisms exist and how they are set.
//!
//! - [`StackParams`]: a checked configuration. Lives apart from state, so that a reload swaps it
//!   and keeps windows, permits and open timers.
//! - [`Dependency`]: the state of all policies of one dependency, over its endpoints and the lanes
//!   (routes) that use it. One lock of the edge guards it.
//! - [`Operation`]: one whole call as a machine without I/O. The edge sends, sleeps and wakes.
//!
//! ```text
//!              begin                 Ended(retryable)            Tick at its end
//!   caller ─────────────▶ admitted ─────────────────▶ backing off ──────────────┐
//!              │  │          │  ▲                                               │
//!              │  │ full     │  └────────────────── queued ◀────────────────────┤
//!              │  └──────────┼───── queued ─▶ …                                 │
//!              ▼             ▼ Ended(final)                                     ▼
//!            Done ◀──────── Done ◀──────────── refused here ◀──────────── admit again
//! ```

mod dependency;
mod operation;
#[cfg(test)]
mod tests;
mod worst_case;

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::balance::{Balance, SlowStartOptions, SlowStartParams};
use crate::breaker::{BreakerMode, BreakerOptions, BreakerParams};
use crate::budget::{BudgetOptions, BudgetParams};
use crate::bulkhead::{BulkheadOptions, BulkheadParams};
use crate::error::ConfigError;
use crate::hedge::{HedgeDelay, HedgeOptions, HedgeParams};
use crate::limit::{LimitOptions, LimitParams};
use crate::outlier::{OutlierOptions, OutlierParams};
use crate::rate::{KeyedRateOptions, KeyedRateParams, RateOptions, RateParams};
use crate::ratio::Ratio;
use crate::retry::{RetryOptions, RetryParams};

pub use dependency::{
    Admitted, Avoid, Counters, Dependency, EndpointView, HeldCall, LaneView, LoggedTransition,
    LoggedVerdict, Permit, Purpose, Rejection, Reshaped, Standing,
};
pub use operation::{Attempt, Call, Done, Event, Operation, Step};
pub use worst_case::{Hop, worst_case_attempts, worst_case_time};

/// Which mechanisms stand in front of a dependency, and how they are set. `None` leaves one out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackConfig {
    /// Time for the whole call, all attempts and waits; to the response head where there is one.
    pub total: Option<Duration>,
    /// Retries.
    pub retry: Option<RetryOptions>,
    /// What retries may cost.
    pub budget: Option<BudgetOptions>,
    /// Second attempts in parallel. Needs retries of at least two attempts, among which it counts.
    pub hedge: Option<HedgeOptions>,
    /// The breaker of each endpoint and lane. Its `slow`, left out, is half of `attempt_timeout`
    /// where there is one; equal to it, a call is slow only when it has also timed out.
    pub breaker: Option<BreakerOptions>,
    /// What may be sent in a time, retries too.
    pub rate: Option<RateOptions>,
    /// The same for the calls of each key ([`Call::rate_key`]).
    pub rate_per_key: Option<KeyedRateOptions>,
    /// Time for one attempt: bulkhead wait, checkout, connect and exchange.
    pub attempt_timeout: Option<Duration>,
    /// Calls in flight.
    pub bulkhead: Option<BulkheadOptions>,
    /// A limit on calls in flight that finds itself, within that of the bulkhead, which it needs;
    /// its `max` is at most the bulkhead's limit.
    pub limit: Option<LimitOptions>,
    /// Wait for a connection from a pool.
    pub checkout: Option<Duration>,
    /// Time to make a connection.
    pub connect: Option<Duration>,
    /// By what endpoints are compared.
    pub balance: Balance,
    /// Keeping calls away from endpoints that are worse than the others.
    pub outlier: Option<OutlierOptions>,
    /// A growing share for an endpoint that has come back.
    pub slow_start: Option<SlowStartOptions>,
}

impl StackConfig {
    /// Every mechanism with its defaults and no time limit; the base of the presets.
    #[must_use]
    pub fn standard() -> Self {
        Self {
            retry: Some(RetryOptions::default()),
            budget: Some(BudgetOptions::default()),
            breaker: Some(BreakerOptions::default()),
            bulkhead: Some(BulkheadOptions::default()),
            ..Self::default()
        }
    }

    /// For a service over HTTP in the same data centre: connect 200 ms, attempt 800 ms, total
    /// 2 s. Source: seawall-design.
    #[must_use]
    pub fn http() -> Self {
        Self {
            total: Some(Duration::from_secs(2)),
            attempt_timeout: Some(Duration::from_millis(800)),
            connect: Some(Duration::from_millis(200)),
            ..Self::standard()
        }
    }

    /// For Redis: connect 100 ms, attempt 200 ms, checkout 100 ms, total 600 ms.
    /// Source: seawall-design.
    #[must_use]
    pub fn redis() -> Self {
        Self {
            total: Some(Duration::from_millis(600)),
            attempt_timeout: Some(Duration::from_millis(200)),
            checkout: Some(Duration::from_millis(100)),
            connect: Some(Duration::from_millis(100)),
            ..Self::standard()
        }
    }

    /// For PostgreSQL: checkout 500 ms, statement (attempt) 3 s, total 7 s.
    /// Source: seawall-design.
    #[must_use]
    pub fn postgres() -> Self {
        Self {
            total: Some(Duration::from_secs(7)),
            attempt_timeout: Some(Duration::from_secs(3)),
            checkout: Some(Duration::from_millis(500)),
            ..Self::standard()
        }
    }
}

/// A checked [`StackConfig`]. Cheap to clone, never fails to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackParams {
    pub(crate) total: Option<Duration>,
    pub(crate) retry: Option<RetryParams>,
    pub(crate) budget: Option<BudgetParams>,
    pub(crate) hedge: Option<HedgeParams>,
    /// Disabled where the configuration has none, so that permits given out before a reload
    /// still come back.
    pub(crate) breaker: BreakerParams,
    /// The breaker's slow threshold, kept beside it because the edge sets a timer by it.
    pub(crate) slow: Option<Duration>,
    pub(crate) rate: Option<RateParams>,
    pub(crate) rate_per_key: Option<KeyedRateParams>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) bulkhead: Option<BulkheadParams>,
    pub(crate) limit: Option<LimitParams>,
    /// What takes back the slots of a bulkhead that was switched off, and lets its waiters go.
    no_bulkhead: BulkheadParams,
    checkout: Option<Duration>,
    connect: Option<Duration>,
    pub(crate) balance: Balance,
    pub(crate) outlier: Option<OutlierParams>,
    pub(crate) slow_start: Option<SlowStartParams>,
    warnings: Vec<String>,
}

impl StackParams {
    /// Checks a configuration.
    ///
    /// # Errors
    /// Any option that could never take effect: an inner time limit above the one around it, or
    /// what the mechanisms refuse themselves. The error names field, value and range.
    pub fn new(config: &StackConfig) -> Result<Self, ConfigError> {
        check_nesting(config)?;
        check_hedge(config)?;
        let breaker = config.breaker.map(|mut options| {
            options.slow = options.slow.or(config.attempt_timeout.map(|timeout| timeout / 2));
            // A probe may take as long as an attempt: a shorter lease would call it lost.
            options.probe_lease =
                options.probe_lease.max(config.attempt_timeout.unwrap_or_default());
            options
        });
        let slow = breaker.and_then(|options| options.slow);
        let mut params = Self {
            total: config.total,
            retry: checked("retry", config.retry, RetryParams::new)?,
            budget: checked("budget", config.budget, BudgetParams::new)?,
            hedge: checked("hedge", config.hedge, HedgeParams::new)?,
            breaker: checked("breaker", breaker, BreakerParams::new)?
                .unwrap_or_else(|| BreakerParams::default().with_mode(BreakerMode::Disabled)),
            slow,
            rate: checked("rate", config.rate, RateParams::new)?,
            rate_per_key: checked("rate_per_key", config.rate_per_key, KeyedRateParams::new)?,
            attempt_timeout: config.attempt_timeout,
            bulkhead: checked("bulkhead", config.bulkhead, BulkheadParams::new)?,
            limit: checked("limit", limit_within(config)?, LimitParams::new)?,
            no_bulkhead: BulkheadParams::new(BulkheadOptions::with_limit(NO_LIMIT))?,
            checkout: config.checkout,
            connect: config.connect,
            balance: config.balance,
            outlier: checked("outlier", config.outlier, OutlierParams::new)?,
            slow_start: checked("slow_start", config.slow_start, SlowStartParams::new)?,
            warnings: Vec::new(),
        };
        params.warnings = params.advice();
        Ok(params)
    }

    /// What is allowed but probably not meant, as sentences for a person.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A warning if the dependency could not carry its retries at a peak load, a share of its
    /// capacity: see [`BudgetParams::advice`]. Without retries or a budget there is none.
    #[must_use]
    pub fn advice_at(&self, peak_load: Ratio) -> Option<String> {
        let budget = self.budget.as_ref().filter(|_| self.max_attempts() > 1)?;
        budget.advice(peak_load)
    }

    /// Attempts in all, counting the first.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.retry.as_ref().map_or(1, RetryParams::max_attempts)
    }

    /// Time for the whole call.
    #[must_use]
    pub const fn total(&self) -> Option<Duration> {
        self.total
    }

    /// Time for one attempt.
    #[must_use]
    pub const fn attempt_timeout(&self) -> Option<Duration> {
        self.attempt_timeout
    }

    /// The limit that moves within the bulkhead's.
    #[must_use]
    pub const fn limit(&self) -> Option<&LimitParams> {
        self.limit.as_ref()
    }

    /// Wait for a connection from a pool.
    #[must_use]
    pub const fn checkout(&self) -> Option<Duration> {
        self.checkout
    }

    /// Time to make a connection.
    #[must_use]
    pub const fn connect(&self) -> Option<Duration> {
        self.connect
    }

    /// The longest a call can take, without redispatches and without a Retry-After: all attempts
    /// at their timeout and all waits at their longest, or the total if that is shorter. `None`:
    /// nothing bounds it.
    #[must_use]
    pub fn worst_case_time(&self) -> Option<Duration> {
        worst_case_time(&[Hop::of(self, true)])
    }

    /// The bulkhead, or, without one, what takes the place of its knobs.
    pub(crate) fn slots(&self) -> &BulkheadParams {
        self.bulkhead.as_ref().unwrap_or(&self.no_bulkhead)
    }

    /// All attempts and all waits, as if there were no total.
    fn unbounded_time(&self) -> Option<Duration> {
        worst_case_time(&[Hop { total: None, ..Hop::of(self, true) }])
    }

    fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        if let (Some(time), Some(total)) = (self.unbounded_time(), self.total)
            && time > total
        {
            advice.push(alloc::format!(
                "{} attempts of {:?} and their backoff can take {time:?}, more than the total of \
                 {total:?}: the last attempt may be cut short",
                self.max_attempts(),
                self.attempt_timeout.unwrap_or_default(),
            ));
        }
        if self.max_attempts() > 1 && self.budget.is_none() {
            advice.push(String::from(
                "retries without a budget multiply the load of a dependency that is already \
                 failing",
            ));
        }
        if self.max_attempts() == 1 && self.budget.is_some() {
            advice.push(String::from("a budget has nothing to pay for without retries"));
        }
        advice.extend(self.hedge.as_ref().and_then(HedgeParams::advice));
        advice
    }
}

/// Refuses a limit that can never be reached because the one around it comes first.
fn check_nesting(config: &StackConfig) -> Result<(), ConfigError> {
    let slow = config.breaker.and_then(|options| options.slow);
    let wait = config.bulkhead.map(|options| options.wait);
    let (name, around) = match config.attempt_timeout {
        Some(timeout) => ("attempt_timeout", Some(timeout)),
        None => ("total", config.total),
    };
    for (field, inner, outer_name, outer) in [
        ("attempt_timeout", config.attempt_timeout, "total", config.total),
        ("breaker.slow", slow, name, around),
        ("checkout", config.checkout, name, around),
        ("connect", config.connect, name, around),
        ("bulkhead.wait", wait, name, around),
    ] {
        if let (Some(inner), Some(outer)) = (inner, outer)
            && inner > outer
        {
            let allowed = alloc::format!("at most {outer_name}, which is {outer:?}");
            return Err(ConfigError::new(field, alloc::format!("{inner:?}"), allowed));
        }
    }
    for (field, limit) in [
        ("total", config.total),
        ("attempt_timeout", config.attempt_timeout),
        ("checkout", config.checkout),
        ("connect", config.connect),
    ] {
        if limit.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::new(field, "0", "a time above zero, or leave it out"));
        }
    }
    Ok(())
}

/// Refuses a hedge that could never be sent, because no second attempt is left for it or because
/// the first has ended by then.
fn check_hedge(config: &StackConfig) -> Result<(), ConfigError> {
    let Some(hedge) = &config.hedge else { return Ok(()) };
    let attempts = config.retry.map_or(1, |retry| retry.max_attempts);
    if attempts < 2 {
        let allowed = "with a retry.max_attempts of 2 or more: a hedge is an attempt";
        return Err(ConfigError::new("hedge", alloc::format!("{attempts} attempt"), allowed));
    }
    let (field, least) = match hedge.delay {
        HedgeDelay::Fixed(delay) if delay > hedge.delay_min => ("hedge.delay", delay),
        _ => ("hedge.delay_min", hedge.delay_min),
    };
    let (around, limit) = match config.attempt_timeout {
        Some(timeout) => ("attempt_timeout", timeout),
        None => ("total", config.total.unwrap_or(Duration::MAX)),
    };
    if least >= limit {
        let allowed = alloc::format!("less than {around}, which is {limit:?}");
        return Err(ConfigError::new(field, alloc::format!("{least:?}"), allowed));
    }
    Ok(())
}

/// The limit's knobs, kept to the bulkhead's.
fn limit_within(config: &StackConfig) -> Result<Option<LimitOptions>, ConfigError> {
    let Some(limit) = config.limit else { return Ok(None) };
    let Some(bulkhead) = config.bulkhead else {
        let allowed = "with a bulkhead, whose limit it moves within and where calls wait";
        return Err(ConfigError::new("limit", limit.rule.as_str(), allowed));
    };
    Ok(Some(LimitOptions { max: limit.max.min(bulkhead.limit), ..limit }))
}

/// Checks the options of one mechanism, if it is there, and places its error under its name.
fn checked<O, P>(
    name: &str,
    options: Option<O>,
    check: impl FnOnce(O) -> Result<P, ConfigError>,
) -> Result<Option<P>, ConfigError> {
    options.map(check).transpose().map_err(|refused| refused.under(name))
}

/// The highest limit a bulkhead can have.
const NO_LIMIT: u32 = 1_000_000;
