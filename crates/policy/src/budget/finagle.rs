//! The budget of Finagle: a share of the first attempts of the last seconds, and a reserve that
//! time pays.
//!
//! ```text
//! first attempt: balance += ratio       retry: balance −= 1 if it is at least 1, else refused
//! balance = reserve_per_second · ttl + deposits − withdrawals, both of the last `ttl`
//! ```
//!
//! `ttl` is kept in ten slices; the balance covers between nine and ten of them. First attempts
//! pay when they are sent, whatever becomes of them, so in an outage retries go on at `ratio` of
//! the traffic. Differs: amounts are whole millionths of a token, so 60 % is 60 % (there it is
//! 1/1.666).
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `ratio` | 20 % | 0 to 100 % | finagle-retry-budget |
//! | `reserve_per_second` | 10 | 0 to 1,000,000 | finagle-retry-budget |
//! | `ttl` | 10 s | 1 s to 60 s | finagle-retry-budget |
//!
//! Known bad case: the reserve is per client, so a hundred clients at 10/s send a thousand retries
//! a second into an outage, whatever their traffic.

use alloc::format;
use core::time::Duration;

use super::TOKEN;
use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::time::{Timestamp, nanos};

/// The options of a budget that first attempts and time pay for, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinagleBudget {
    /// Tokens per first attempt, 0 to 100 %; default 20 %. At 0 only the reserve pays.
    pub ratio: Ratio,
    /// Retries a second that nothing has to pay for, 0 to 1,000,000; default 10.
    pub reserve_per_second: u32,
    /// How long a payment lasts, 1 s to 60 s; default 10 s.
    pub ttl: Duration,
}

impl Default for FinagleBudget {
    fn default() -> Self {
        Self { ratio: RATIO, reserve_per_second: RESERVE, ttl: TTL }
    }
}

/// Checked [`FinagleBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinagleParams {
    pub(super) options: FinagleBudget,
    /// Nanoseconds.
    slice: u64,
    /// Micro-tokens.
    reserve: i128,
}

impl FinagleParams {
    pub(super) fn new(options: FinagleBudget) -> Result<Self, ConfigError> {
        let FinagleBudget { ratio, reserve_per_second, ttl } = options;
        if ratio > Ratio::ONE {
            return Err(ConfigError::new("ratio", ratio, "0% to 100%"));
        }
        if reserve_per_second > RESERVE_MAX {
            let allowed = "at most 1000000";
            return Err(ConfigError::new("reserve_per_second", reserve_per_second, allowed));
        }
        if !(TTL_MIN..=TTL_MAX).contains(&ttl) {
            return Err(ConfigError::new("ttl", format!("{ttl:?}"), "1s to 60s"));
        }
        let per_second = i128::from(reserve_per_second) * i128::from(TOKEN);
        let reserve = per_second * i128::from(nanos(ttl)) / 1_000_000_000;
        Ok(Self { options, slice: nanos(ttl) / SLICES as u64, reserve })
    }
}

/// What was paid and taken in the last `ttl`.
#[derive(Clone, Debug)]
pub(super) struct FinagleBalance {
    /// Deposits less withdrawals in micro-tokens; `running` is the place of the running one.
    slices: [i64; SLICES],
    sum: i128,
    /// Micro-tokens that nothing has to pay for, at the last use.
    reserve: i128,
    running: usize,
    /// When the running slice ends.
    until: Timestamp,
}

impl FinagleBalance {
    pub(super) const fn new(now: Timestamp, params: &FinagleParams) -> Self {
        let reserve = params.reserve;
        Self { slices: [0; SLICES], sum: 0, reserve, running: 0, until: now }
    }

    pub(super) fn deposit(&mut self, now: Timestamp, params: &FinagleParams) {
        self.add(now, params, i64::from(params.options.ratio.millionths()));
    }

    pub(super) fn try_withdraw(&mut self, now: Timestamp, params: &FinagleParams) -> bool {
        self.advance(now, params);
        let is_enough = self.sum + self.reserve >= i128::from(TOKEN);
        if is_enough {
            self.add(now, params, -RETRY);
        }
        is_enough
    }

    pub(super) fn refund(&mut self, now: Timestamp, params: &FinagleParams) {
        self.add(now, params, RETRY);
    }

    /// Micro-tokens.
    pub(super) fn balance(&self) -> u64 {
        u64::try_from((self.sum + self.reserve).max(0)).unwrap_or(u64::MAX)
    }

    /// Micro-tokens at `now`.
    pub(super) fn balance_at(&self, now: Timestamp, params: &FinagleParams) -> u64 {
        let mut then = self.clone();
        then.advance(now, params);
        then.balance()
    }

    fn add(&mut self, now: Timestamp, params: &FinagleParams, amount: i64) {
        self.advance(now, params);
        let slice = &mut self.slices[self.running];
        let before = *slice;
        *slice = before.saturating_add(amount);
        self.sum += i128::from(*slice) - i128::from(before);
    }

    /// Forgets the slices that are over; an earlier `now` changes nothing.
    fn advance(&mut self, now: Timestamp, params: &FinagleParams) {
        self.reserve = params.reserve;
        if now < self.until {
            return;
        }
        let over = now.since(self.until);
        let passed = nanos(over) / params.slice + 1;
        for _ in 0..passed.min(SLICES as u64) {
            self.running = (self.running + 1) % SLICES;
            self.sum -= i128::from(core::mem::take(&mut self.slices[self.running]));
        }
        self.until = self.until.after(Duration::from_nanos(params.slice.saturating_mul(passed)));
    }
}

/// What a retry takes, in micro-tokens.
const RETRY: i64 = Ratio::SCALE as i64;
/// Source: finagle-retry-budget.
const SLICES: usize = 10;
/// Source: finagle-retry-budget.
const RATIO: Ratio = Ratio::from_percent(20);
/// Source: finagle-retry-budget.
const RESERVE: u32 = 10;
/// More than a process can send. Source: seawall-design.
const RESERVE_MAX: u32 = 1_000_000;
/// Source: finagle-retry-budget.
const TTL: Duration = Duration::from_secs(10);
/// Source: finagle-retry-budget.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Source: finagle-retry-budget.
const TTL_MAX: Duration = Duration::from_secs(60);
