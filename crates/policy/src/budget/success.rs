//! The budget that successes pay for: ours.
//!
//! ```text
//! success: balance += ratio         retry: balance −= 1 if it is at least 1, else refused
//! time:    balance += reserve/s     cap = max(cap_floor, what the last second deposited)
//! ```
//!
//! All amounts are whole millionths of a token, so every ratio is realised exactly (a budget known
//! from elsewhere turns 60 % into 100 %). *The last second* is the last full second of the clock,
//! or the running one if it has deposited more; when traffic falls, the cap falls, and the balance
//! is cut to it at the next use. Minted reserve is no deposit and does not raise the cap.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `ratio` | 10 %: 0.1 token per success | 0 to 100 % | seawall-defaults |
//! | `initial` | 2 tokens | 0 to `cap_floor` | seawall-defaults |
//! | `cap_floor` | 10 tokens | 1 or more | seawall-defaults |
//! | `reserve_per_second` | 0 tokens | 0 to `cap_floor` | seawall-defaults |
//!
//! Known bad cases: every client of a fleet has its own budget, so a thousand of them hold a
//! thousand times `initial`, and a reserve of 10/s each is 10,000 retries a second that no success
//! pays for. A client with fewer successes than 1/`ratio` between two faults runs out.

use alloc::format;

use super::{TOKEN, minted};
use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::time::Timestamp;

/// The options of a budget that successes pay for, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessBudget {
    /// Tokens per success, 0 to 100 %; default 10 %. At 0 only `initial` and the reserve pay.
    pub ratio: Ratio,
    /// Tokens at the start, 0 to `cap_floor`; default 2.
    pub initial: u32,
    /// The cap in tokens while there is little traffic, 1 or more; default 10.
    pub cap_floor: u32,
    /// Tokens minted by time alone, 0 to `cap_floor`; default 0, none.
    pub reserve_per_second: u32,
}

impl Default for SuccessBudget {
    fn default() -> Self {
        Self {
            ratio: RATIO,
            initial: INITIAL,
            cap_floor: CAP_FLOOR,
            reserve_per_second: RESERVE_PER_SECOND,
        }
    }
}

/// Checked [`SuccessBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SuccessParams {
    pub(super) options: SuccessBudget,
}

impl SuccessParams {
    pub(super) fn new(options: SuccessBudget) -> Result<Self, ConfigError> {
        let SuccessBudget { ratio, initial, cap_floor, reserve_per_second } = options;
        if ratio > Ratio::ONE {
            return Err(ConfigError::new("ratio", ratio, "0% to 100%"));
        }
        if cap_floor == 0 {
            return Err(ConfigError::new("cap_floor", cap_floor, "1 or more"));
        }
        for (field, value) in [("initial", initial), ("reserve_per_second", reserve_per_second)] {
            if value > cap_floor {
                let allowed = format!("at most cap_floor ({cap_floor})");
                return Err(ConfigError::new(field, value, allowed));
            }
        }
        Ok(Self { options })
    }

    const fn ratio_micro(&self) -> u64 {
        self.options.ratio.millionths() as u64
    }

    const fn cap_floor_micro(&self) -> u64 {
        self.options.cap_floor as u64 * TOKEN
    }

    fn minted(&self, time: Timestamp) -> u128 {
        minted(self.options.reserve_per_second, time)
    }
}

/// What successes have paid in and retries have left. 32 bytes.
#[derive(Clone, Debug)]
pub(super) struct SuccessBalance {
    /// Micro-tokens; at most the cap of the time of `latest`.
    balance: u64,
    /// Micro-tokens deposited in the running second.
    running: u64,
    /// Micro-tokens deposited in the last full second.
    full: u64,
    /// The latest `now` seen.
    latest: Timestamp,
}

impl SuccessBalance {
    pub(super) fn new(now: Timestamp, params: &SuccessParams) -> Self {
        let balance = u64::from(params.options.initial) * TOKEN;
        Self { balance, running: 0, full: 0, latest: now }
    }

    /// Adds what one success is worth.
    pub(super) fn deposit(&mut self, now: Timestamp, params: &SuccessParams) {
        self.advance(now, params);
        self.running = self.running.saturating_add(params.ratio_micro());
        self.credit(params.ratio_micro(), params);
    }

    pub(super) fn try_withdraw(&mut self, now: Timestamp, params: &SuccessParams) -> bool {
        self.advance(now, params);
        let left = self.balance.checked_sub(TOKEN);
        self.balance = left.unwrap_or(self.balance);
        left.is_some()
    }

    pub(super) fn refund(&mut self, now: Timestamp, params: &SuccessParams) {
        self.advance(now, params);
        self.credit(TOKEN, params);
    }

    /// Micro-tokens.
    pub(super) const fn balance(&self) -> u64 {
        self.balance
    }

    /// Micro-tokens at `now`.
    pub(super) fn balance_at(&self, now: Timestamp, params: &SuccessParams) -> u64 {
        let mut then = self.clone();
        then.advance(now, params);
        then.balance
    }

    /// Brings seconds, reserve and cap up to `now`; an earlier `now` counts as the latest.
    fn advance(&mut self, now: Timestamp, params: &SuccessParams) {
        let now = now.max(self.latest);
        match second(now) - second(self.latest) {
            0 => {}
            1 => (self.full, self.running) = (self.running, 0),
            _ => (self.full, self.running) = (0, 0),
        }
        let minted = params.minted(now) - params.minted(self.latest);
        self.latest = now;
        self.credit(u64::try_from(minted).unwrap_or(u64::MAX), params);
    }

    /// Adds `amount` micro-tokens up to the cap, and cuts what is above it.
    fn credit(&mut self, amount: u64, params: &SuccessParams) {
        let cap = params.cap_floor_micro().max(self.full).max(self.running);
        self.balance = self.balance.saturating_add(amount).min(cap);
    }
}

const fn second(time: Timestamp) -> u64 {
    time.as_nanos() / NANOS_PER_SECOND
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Source: seawall-defaults.
const RATIO: Ratio = Ratio::from_percent(10);
/// Source: seawall-defaults.
const INITIAL: u32 = 2;
/// Source: seawall-defaults.
const CAP_FLOOR: u32 = 10;
/// Source: seawall-defaults.
const RESERVE_PER_SECOND: u32 = 0;
