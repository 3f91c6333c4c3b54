//! Decides whether a dependency may be sent another retry.
//!
//! A retry is load that exists because something is wrong. Without a budget, three attempts per
//! call at four layers are 81 attempts per tap, and the outage outlives its cause. With one,
//! retries stay a fixed share of the traffic: while the dependency works they are free to mask
//! single faults, and when it stops working they stop with it.
//!
//! | kind | what pays | what a retry takes | use it |
//! |---|---|---|---|
//! | seawall ([`SuccessBudget`]) | successes | 1 token | by default |
//! | grpc ([`GrpcThrottle`]) | successes | nothing; failures take 1, and none goes at half or less | where a service config asks for it |
//! | finagle ([`FinagleBudget`]) | first attempts, and time | 1 token | where traffic is too thin for successes to pay |
//!
//! Whatever the kind: waiting retries have been paid for, a retry that is never sent is paid back,
//! hedges draw from the same balance, redispatches do not, and first attempts are never refused. A
//! reload keeps the balance; one that changes the kind begins with a new one.

mod finagle;
mod grpc;
mod success;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use crate::error::ConfigError;
use crate::outcome::{Cause, Class, Outcome};
use crate::ratio::Ratio;
use crate::time::Timestamp;

pub use finagle::FinagleBudget;
pub use grpc::GrpcThrottle;
pub use success::SuccessBudget;

use finagle::{FinagleBalance, FinagleParams};
use grpc::{GrpcParams, GrpcTokens};
use success::{SuccessBalance, SuccessParams};

/// The options of a budget, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetOptions {
    /// Successes pay.
    Seawall(SuccessBudget),
    /// The retry throttling of gRPC service configs.
    Grpc(GrpcThrottle),
    /// First attempts and time pay.
    Finagle(FinagleBudget),
}

impl Default for BudgetOptions {
    fn default() -> Self {
        Self::Seawall(SuccessBudget::default())
    }
}

impl From<SuccessBudget> for BudgetOptions {
    fn from(options: SuccessBudget) -> Self {
        Self::Seawall(options)
    }
}

impl From<GrpcThrottle> for BudgetOptions {
    fn from(options: GrpcThrottle) -> Self {
        Self::Grpc(options)
    }
}

impl From<FinagleBudget> for BudgetOptions {
    fn from(options: FinagleBudget) -> Self {
        Self::Finagle(options)
    }
}

/// The checked parameters of a budget, apart from its state: many budgets share one value, and a
/// reload swaps it and keeps the balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetParams(Kind<SuccessParams, GrpcParams, FinagleParams>);

/// One of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind<S, G, F> {
    Success(S),
    Grpc(G),
    Finagle(F),
}

impl BudgetParams {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// An option outside the range that the options of its kind name.
    pub fn new(options: BudgetOptions) -> Result<Self, ConfigError> {
        Ok(Self(match options {
            BudgetOptions::Seawall(options) => Kind::Success(SuccessParams::new(options)?),
            BudgetOptions::Grpc(options) => Kind::Grpc(GrpcParams::new(options)?),
            BudgetOptions::Finagle(options) => Kind::Finagle(FinagleParams::new(options)?),
        }))
    }

    /// A warning if the dependency could not carry its retries: unless
    /// `peak_load` × (1 + ratio) < 1, where `peak_load` is the share of its capacity that first
    /// attempts use at the peak. A reserve is not part of it.
    #[must_use]
    pub fn advice(&self, peak_load: Ratio) -> Option<String> {
        let ratio = match self.options() {
            BudgetOptions::Seawall(options) => options.ratio,
            BudgetOptions::Grpc(options) => options.token_ratio,
            BudgetOptions::Finagle(options) => options.ratio,
        };
        let whole = u64::from(Ratio::SCALE);
        let load = u64::from(peak_load.millionths()) * (whole + u64::from(ratio.millionths()));
        if load < whole * whole {
            return None;
        }
        let percent_hundredths = load / 100_000_000;
        Some(format!(
            "a peak load of {peak_load} and a retry budget of {ratio} come to {}.{:02}% of \
             capacity; retries keep an overload alive unless that is below 100%",
            percent_hundredths / 100,
            percent_hundredths % 100,
        ))
    }

    /// The options.
    #[must_use]
    pub const fn options(&self) -> BudgetOptions {
        match &self.0 {
            Kind::Success(params) => BudgetOptions::Seawall(params.options),
            Kind::Grpc(params) => BudgetOptions::Grpc(params.options),
            Kind::Finagle(params) => BudgetOptions::Finagle(params.options),
        }
    }
}

/// The balance of one dependency. 64 bytes; parameters are passed to each call.
#[derive(Clone, Debug)]
pub struct Budget {
    state: Kind<SuccessBalance, GrpcTokens, Box<FinagleBalance>>,
    withdrawn: u64,
    refunded: u64,
    exhausted: u64,
}

impl Budget {
    /// A budget with its initial tokens.
    #[must_use]
    pub fn new(now: Timestamp, params: &BudgetParams) -> Self {
        let state = match &params.0 {
            Kind::Success(params) => Kind::Success(SuccessBalance::new(now, params)),
            Kind::Grpc(params) => Kind::Grpc(GrpcTokens::new(params)),
            Kind::Finagle(params) => Kind::Finagle(Box::new(FinagleBalance::new(now, params))),
        };
        Self { state, withdrawn: 0, refunded: 0, exhausted: 0 }
    }

    /// A call's first attempt is sent.
    pub fn on_first_attempt(&mut self, now: Timestamp, params: &BudgetParams) {
        self.turn_to(now, params);
        if let (Kind::Finagle(balance), Kind::Finagle(params)) = (&mut self.state, &params.0) {
            balance.deposit(now, params);
        }
    }

    /// An attempt ended: a deposit, a failure, or neither.
    pub fn record(&mut self, now: Timestamp, params: &BudgetParams, outcome: &Outcome) {
        let is_throttle = matches!(params.0, Kind::Grpc(_));
        if is_throttle && is_failure(outcome) {
            self.on_failure(now, params);
        } else if outcome.deposits() {
            self.deposit(now, params);
        }
    }

    /// Adds what one success is worth.
    pub fn deposit(&mut self, now: Timestamp, params: &BudgetParams) {
        self.turn_to(now, params);
        match (&mut self.state, &params.0) {
            (Kind::Success(balance), Kind::Success(params)) => balance.deposit(now, params),
            (Kind::Grpc(tokens), Kind::Grpc(params)) => tokens.on_success(params),
            _ => {}
        }
    }

    /// An attempt failed in a way that could be tried again, or was told not to be.
    pub fn on_failure(&mut self, now: Timestamp, params: &BudgetParams) {
        self.turn_to(now, params);
        if let (Kind::Grpc(tokens), Kind::Grpc(params)) = (&mut self.state, &params.0) {
            tokens.on_failure(params);
        }
    }

    /// Takes what a retry or a hedge costs; `false`, and nothing taken, if there is not enough.
    #[must_use]
    pub fn try_withdraw(&mut self, now: Timestamp, params: &BudgetParams) -> bool {
        self.turn_to(now, params);
        let paid = match (&mut self.state, &params.0) {
            (Kind::Success(balance), Kind::Success(params)) => balance.try_withdraw(now, params),
            (Kind::Grpc(tokens), Kind::Grpc(params)) => tokens.allow(params),
            (Kind::Finagle(balance), Kind::Finagle(params)) => balance.try_withdraw(now, params),
            _ => false,
        };
        let count = if paid { &mut self.withdrawn } else { &mut self.exhausted };
        *count = count.saturating_add(1);
        paid
    }

    /// Gives back what a retry has paid that was never sent; the cap holds.
    pub fn refund(&mut self, now: Timestamp, params: &BudgetParams) {
        self.turn_to(now, params);
        self.refunded = self.refunded.saturating_add(1);
        match (&mut self.state, &params.0) {
            (Kind::Success(balance), Kind::Success(params)) => balance.refund(now, params),
            (Kind::Finagle(balance), Kind::Finagle(params)) => balance.refund(now, params),
            _ => {}
        }
    }

    /// The balance at its last use, in thousandths of a retry, rounded down. Of a gRPC throttle,
    /// the failures until retries stop.
    #[must_use]
    pub fn balance_millitokens(&self) -> u64 {
        self.balance_micro() / (TOKEN / 1000)
    }

    /// What the balance would be at `now`: with what time mints and takes away since the last use,
    /// which stays as it is. In thousandths of a retry, rounded down.
    #[must_use]
    pub fn balance_millitokens_at(&self, now: Timestamp, params: &BudgetParams) -> u64 {
        let micro = match (&self.state, &params.0) {
            (Kind::Success(balance), Kind::Success(params)) => balance.balance_at(now, params),
            (Kind::Grpc(tokens), Kind::Grpc(params)) => tokens.above_half_of(params),
            (Kind::Finagle(balance), Kind::Finagle(params)) => balance.balance_at(now, params),
            // It would begin anew.
            _ => Self::new(now, params).balance_micro(),
        };
        micro / (TOKEN / 1000)
    }

    fn balance_micro(&self) -> u64 {
        match &self.state {
            Kind::Success(balance) => balance.balance(),
            Kind::Grpc(tokens) => tokens.above_half(),
            Kind::Finagle(balance) => balance.balance(),
        }
    }

    /// Withdrawals granted, also those given back later.
    #[must_use]
    pub const fn withdrawn_total(&self) -> u64 {
        self.withdrawn
    }

    /// Withdrawals given back.
    #[must_use]
    pub const fn refunded_total(&self) -> u64 {
        self.refunded
    }

    /// Refused withdrawals.
    #[must_use]
    pub const fn exhausted_total(&self) -> u64 {
        self.exhausted
    }

    /// After a reload with another kind: begins anew with that.
    fn turn_to(&mut self, now: Timestamp, params: &BudgetParams) {
        let same = matches!(
            (&self.state, &params.0),
            (Kind::Success(_), Kind::Success(_))
                | (Kind::Grpc(_), Kind::Grpc(_))
                | (Kind::Finagle(_), Kind::Finagle(_))
        );
        if !same {
            self.state = Self::new(now, params).state;
        }
    }
}

/// Whether an attempt could be tried again by its class, or its answer said that it must not be.
fn is_failure(outcome: &Outcome) -> bool {
    let could_be = match outcome.class() {
        Class::NotProcessed | Class::Overloaded | Class::Unknown => true,
        Class::Success | Class::RefusedHere | Class::Rejected | Class::Cancelled => false,
    };
    (could_be || outcome.says_stop()) && outcome.cause() != Cause::DeadlineCut
}

/// Micro-tokens that `per_second` tokens mint from the clock's origin to `time`; differences of it
/// lose no fraction.
fn minted(per_second: u32, time: Timestamp) -> u128 {
    if per_second == 0 {
        return 0;
    }
    u128::from(per_second) * u128::from(time.as_nanos()) / (NANOS_PER_SECOND / TOKEN) as u128
}

/// Micro-tokens in a token.
const TOKEN: u64 = Ratio::SCALE as u64;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
