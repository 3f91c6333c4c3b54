//! Decides whether a dependency may be sent another retry.
//!
//! A retry is load that exists because something is wrong. Without a budget, three attempts per
//! call at four layers are 81 attempts per tap, and the outage outlives its cause. With one,
//! retries stay a fixed share of the *successes*: while the dependency works they are free to mask
//! single faults, and when it stops working they stop with it.
//!
//! ```text
//! success: balance += ratio         retry: balance −= 1 if it is at least 1, else refused
//! time:    balance += reserve/s     cap = max(cap_floor, what the last second deposited)
//! ```
//!
//! Waiting retries have been paid for; hedges draw from the same balance. All amounts are whole
//! millionths of a token, so every ratio is realised exactly (a budget known from elsewhere turns
//! 60 % into 100 %). *The last second* is the last full second of the clock, or the running one if
//! it has deposited more; when traffic falls, the cap falls, and the balance is cut to it at the
//! next use. Minted reserve is no deposit and does not raise the cap.
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
use alloc::string::String;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::time::Timestamp;

/// The options of a budget, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetOptions {
    /// Tokens per success, 0 to 100 %; default 10 %. At 0 only `initial` and the reserve pay.
    pub ratio: Ratio,
    /// Tokens at the start, 0 to `cap_floor`; default 2.
    pub initial: u32,
    /// The cap in tokens while there is little traffic, 1 or more; default 10.
    pub cap_floor: u32,
    /// Tokens minted by time alone, 0 to `cap_floor`; default 0, none.
    pub reserve_per_second: u32,
}

impl Default for BudgetOptions {
    fn default() -> Self {
        Self {
            ratio: RATIO,
            initial: INITIAL,
            cap_floor: CAP_FLOOR,
            reserve_per_second: RESERVE_PER_SECOND,
        }
    }
}

/// The checked parameters of a budget, apart from its state: many budgets share one value, and a
/// reload swaps it and keeps the balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetParams {
    options: BudgetOptions,
}

impl BudgetParams {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// If `ratio` is over 100 %, `cap_floor` is 0, or `initial` or `reserve_per_second` is above
    /// `cap_floor` and would be cut to it.
    pub fn new(options: BudgetOptions) -> Result<Self, ConfigError> {
        let BudgetOptions { ratio, initial, cap_floor, reserve_per_second } = options;
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

    /// A warning if the dependency could not carry its retries: unless
    /// `peak_load` × (1 + ratio) < 1, where `peak_load` is the share of its capacity that first
    /// attempts use at the peak. The reserve is not part of it.
    #[must_use]
    pub fn advice(&self, peak_load: Ratio) -> Option<String> {
        let ratio = self.options.ratio;
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
        self.options
    }

    const fn ratio_micro(&self) -> u64 {
        self.options.ratio.millionths() as u64
    }

    const fn cap_floor_micro(&self) -> u64 {
        self.options.cap_floor as u64 * TOKEN
    }

    /// Micro-tokens minted from the clock's origin to `time`; differences of it lose no fraction.
    fn minted(&self, time: Timestamp) -> u128 {
        u128::from(self.options.reserve_per_second) * u128::from(time.as_nanos())
            / (NANOS_PER_SECOND / TOKEN) as u128
    }
}

/// The balance of one dependency. 56 bytes; parameters are passed to each call.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Micro-tokens; at most the cap of the time of `latest`.
    balance: u64,
    /// Micro-tokens deposited in the running second.
    running: u64,
    /// Micro-tokens deposited in the last full second.
    full: u64,
    /// The latest `now` seen.
    latest: Timestamp,
    withdrawn: u64,
    refunded: u64,
    exhausted: u64,
}

impl Budget {
    /// A budget with its initial tokens.
    #[must_use]
    pub fn new(now: Timestamp, params: &BudgetParams) -> Self {
        Self {
            balance: u64::from(params.options.initial) * TOKEN,
            running: 0,
            full: 0,
            latest: now,
            withdrawn: 0,
            refunded: 0,
            exhausted: 0,
        }
    }

    /// Adds what one success is worth.
    pub fn deposit(&mut self, now: Timestamp, params: &BudgetParams) {
        self.advance(now, params);
        self.running = self.running.saturating_add(params.ratio_micro());
        self.credit(params.ratio_micro(), params);
    }

    /// Takes one token for a retry or a hedge; `false`, and nothing taken, if there is none.
    #[must_use]
    pub fn try_withdraw(&mut self, now: Timestamp, params: &BudgetParams) -> bool {
        self.advance(now, params);
        let Some(balance) = self.balance.checked_sub(TOKEN) else {
            self.exhausted = self.exhausted.saturating_add(1);
            return false;
        };
        self.balance = balance;
        self.withdrawn = self.withdrawn.saturating_add(1);
        true
    }

    /// Gives back the token of a retry that was paid for and never sent; the cap holds.
    pub fn refund(&mut self, now: Timestamp, params: &BudgetParams) {
        self.advance(now, params);
        self.refunded = self.refunded.saturating_add(1);
        self.credit(TOKEN, params);
    }

    /// The balance at its last use, in thousandths of a token, rounded down.
    #[must_use]
    pub const fn balance_millitokens(&self) -> u64 {
        self.balance / (TOKEN / 1000)
    }

    /// Tokens taken, also those given back later.
    #[must_use]
    pub const fn withdrawn_total(&self) -> u64 {
        self.withdrawn
    }

    /// Tokens given back.
    #[must_use]
    pub const fn refunded_total(&self) -> u64 {
        self.refunded
    }

    /// Refused withdrawals.
    #[must_use]
    pub const fn exhausted_total(&self) -> u64 {
        self.exhausted
    }

    /// Brings seconds, reserve and cap up to `now`; an earlier `now` counts as the latest.
    fn advance(&mut self, now: Timestamp, params: &BudgetParams) {
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
    fn credit(&mut self, amount: u64, params: &BudgetParams) {
        let cap = params.cap_floor_micro().max(self.full).max(self.running);
        self.balance = self.balance.saturating_add(amount).min(cap);
    }
}

const fn second(time: Timestamp) -> u64 {
    time.as_nanos() / NANOS_PER_SECOND
}

/// Micro-tokens in a token.
const TOKEN: u64 = Ratio::SCALE as u64;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Source: seawall-defaults.
const RATIO: Ratio = Ratio::from_percent(10);
/// Source: seawall-defaults.
const INITIAL: u32 = 2;
/// Source: seawall-defaults.
const CAP_FLOOR: u32 = 10;
/// Source: seawall-defaults.
const RESERVE_PER_SECOND: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn params(ratio: u32, initial: u32, cap_floor: u32, reserve_per_second: u32) -> BudgetParams {
        let ratio = Ratio::from_millionths(ratio);
        let options = BudgetOptions { ratio, initial, cap_floor, reserve_per_second };
        BudgetParams::new(options).unwrap()
    }

    fn defaults() -> BudgetParams {
        BudgetParams::new(BudgetOptions::default()).unwrap()
    }

    /// Withdraws until refused.
    fn drain(budget: &mut Budget, now: Timestamp, params: &BudgetParams) -> u64 {
        let mut taken = 0;
        while budget.try_withdraw(now, params) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_new_client_may_retry_twice_and_ten_successes_pay_for_one_more() {
        let params = defaults();
        let mut budget = Budget::new(at(0), &params);
        assert_eq!(drain(&mut budget, at(0), &params), 2);
        (0..9).for_each(|_| budget.deposit(at(1), &params));
        assert!(!budget.try_withdraw(at(1), &params));
        assert_eq!(budget.balance_millitokens(), 900);
        budget.deposit(at(1), &params);
        assert!(budget.try_withdraw(at(1), &params));
        assert_eq!((budget.withdrawn_total(), budget.exhausted_total()), (3, 2));
    }

    #[test]
    fn a_refunded_token_can_be_spent_again_and_the_cap_holds() {
        let params = params(100_000, 10, 10, 0);
        let mut budget = Budget::new(at(0), &params);
        budget.refund(at(0), &params);
        assert_eq!(budget.balance_millitokens(), 10_000);
        assert_eq!(drain(&mut budget, at(0), &params), 10);
        budget.refund(at(0), &params);
        assert_eq!(drain(&mut budget, at(0), &params), 1);
        assert_eq!((budget.withdrawn_total(), budget.refunded_total()), (11, 2));
    }

    #[test]
    fn the_cap_is_what_the_last_second_deposited_and_falls_with_the_traffic() {
        let params = defaults();
        let mut budget = Budget::new(at(0), &params);
        // 500 successes a second deposit 50 tokens a second.
        for second in 0..5 {
            (0..500).for_each(|call| budget.deposit(at(second * 1000 + call * 2), &params));
        }
        assert_eq!(budget.balance_millitokens(), 50_000);
        // The second after still remembers it; a quiet second later the floor holds.
        let mut soon = budget.clone();
        assert_eq!(drain(&mut soon, at(5999), &params), 50);
        assert_eq!(drain(&mut budget, at(6000), &params), 10);
    }

    #[test]
    fn a_second_of_failures_between_leaves_only_the_floor() {
        let params = defaults();
        let mut budget = Budget::new(at(0), &params);
        (0..500).for_each(|_| budget.deposit(at(0), &params));
        budget.deposit(at(2000), &params);
        assert_eq!(budget.balance_millitokens(), 10_000);
    }

    #[test]
    fn nothing_is_minted_unless_asked_for() {
        let params = defaults();
        let mut budget = Budget::new(at(0), &params);
        drain(&mut budget, at(0), &params);
        assert_eq!(drain(&mut budget, at(3_600_000), &params), 0);
    }

    #[test]
    fn a_reserve_is_minted_by_time_up_to_the_floor() {
        let params = params(0, 0, 10, 3);
        let mut budget = Budget::new(at(500), &params);
        assert_eq!(drain(&mut budget, at(833), &params), 0);
        assert_eq!(drain(&mut budget, at(834), &params), 1);
        assert_eq!(drain(&mut budget, at(1500), &params), 2);
        assert_eq!(drain(&mut budget, at(60_000), &params), 10);
    }

    #[test]
    fn frequent_use_loses_no_fraction_of_the_reserve() {
        let params = params(0, 0, 10, 3);
        let mut budget = Budget::new(at(0), &params);
        // 7 ns mint 0.021 micro-tokens.
        for step in 0..100_000 {
            budget.advance(Timestamp::from_nanos(step * 7), &params);
        }
        budget.advance(at(1000), &params);
        assert_eq!(budget.balance_millitokens(), 3000);
    }

    #[test]
    fn an_earlier_now_is_clamped_and_the_end_of_time_does_not_overflow() {
        let params = params(1_000_000, 0, u32::MAX, u32::MAX);
        let mut budget = Budget::new(at(5000), &params);
        budget.deposit(at(1000), &params);
        assert_eq!(budget.balance_millitokens(), 1000);
        budget.deposit(Timestamp::MAX, &params);
        budget.refund(at(0), &params);
        assert_eq!(budget.balance_millitokens(), u64::from(u32::MAX) * 1000);
        assert!(budget.try_withdraw(Timestamp::ZERO, &params));
    }

    #[test]
    fn a_reload_keeps_the_balance_and_the_new_cap_cuts_it() {
        let mut budget = Budget::new(at(0), &params(0, 20, 20, 0));
        assert_eq!(drain(&mut budget, at(0), &params(0, 0, 5, 0)), 5);
    }

    #[test]
    fn options_that_can_never_take_effect_are_refused() {
        let check = |ratio, initial, cap_floor, reserve_per_second| {
            let ratio = Ratio::from_millionths(ratio);
            let options = BudgetOptions { ratio, initial, cap_floor, reserve_per_second };
            BudgetParams::new(options).map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = |text: &str| Err(text.to_string());
        assert_eq!(check(1_000_000, 10, 10, 10), Ok(()));
        assert_eq!(check(0, 0, 1, 0), Ok(()));
        assert_eq!(
            check(1_000_001, 0, 10, 0),
            refused("field `ratio`: 100.0001% is not allowed; give 0% to 100%")
        );
        assert_eq!(
            check(0, 0, 0, 0),
            refused("field `cap_floor`: 0 is not allowed; give 1 or more")
        );
        assert_eq!(
            check(0, 11, 10, 0),
            refused("field `initial`: 11 is not allowed; give at most cap_floor (10)")
        );
        assert_eq!(
            check(0, 0, 10, 11),
            refused("field `reserve_per_second`: 11 is not allowed; give at most cap_floor (10)")
        );
    }

    #[test]
    fn it_warns_unless_the_peak_leaves_room_for_the_retries() {
        let params = params(250_000, 2, 10, 0);
        assert_eq!(params.advice(Ratio::from_millionths(799_999)), None);
        assert_eq!(
            params.advice(Ratio::from_percent(80)).as_deref(),
            Some(
                "a peak load of 80% and a retry budget of 25% come to 100.00% of capacity; \
                 retries keep an overload alive unless that is below 100%"
            )
        );
        assert!(params.advice(Ratio::from_millionths(u32::MAX)).is_some());
        assert_eq!(params.advice(Ratio::ZERO), None);
    }

    #[test]
    fn the_state_is_small() {
        assert_eq!(size_of::<Budget>(), 56);
    }

    #[derive(Clone, Copy, Debug)]
    enum Use {
        Deposit,
        Withdraw,
        Refund,
    }

    /// Lives through every millisecond and keeps what each second deposited.
    struct Naive {
        balance: u64,
        millis: u64,
        seconds: Vec<u64>,
        params: BudgetParams,
    }

    impl Naive {
        fn cap(&self) -> u64 {
            let second = usize::try_from(self.millis / 1000).unwrap();
            let last = if second == 0 { 0 } else { self.seconds[second - 1] };
            let floor = u64::from(self.params.options.cap_floor) * 1_000_000;
            floor.max(last).max(self.seconds[second])
        }

        fn add(&mut self, amount: u64) {
            self.balance = (self.balance + amount).min(self.cap());
        }

        fn run_to(&mut self, millis: u64) {
            while self.millis < millis {
                self.millis += 1;
                self.add(u64::from(self.params.options.reserve_per_second) * 1000);
            }
        }

        fn step(&mut self, millis: u64, what: Use) -> bool {
            self.run_to(millis);
            let ratio = u64::from(self.params.options.ratio.millionths());
            match what {
                Use::Deposit => {
                    self.seconds[usize::try_from(self.millis / 1000).unwrap()] += ratio;
                    self.add(ratio);
                }
                Use::Refund => self.add(1_000_000),
                Use::Withdraw if self.balance < 1_000_000 => return false,
                Use::Withdraw => self.balance -= 1_000_000,
            }
            true
        }
    }

    proptest! {
        #[test]
        fn every_ratio_is_realised_exactly_below_the_cap(
            ratio in 0..=1_000_000_u32,
            deposits in 0..3000_u64,
            initial in 0..=20_u32,
            every in 1..50_u64,
        ) {
            let params = params(ratio, initial, 1_000_000, 0);
            let mut budget = Budget::new(at(0), &params);
            let mut retries = 0;
            for call in 0..deposits {
                budget.deposit(at(call), &params);
                if call % every == 0 {
                    retries += u64::from(budget.try_withdraw(at(call), &params));
                }
            }
            retries += drain(&mut budget, at(deposits), &params);
            let paid = deposits * u64::from(ratio) / 1_000_000;
            prop_assert_eq!(retries, paid + u64::from(initial));
            prop_assert_eq!(budget.withdrawn_total(), retries);
        }

        #[test]
        fn agrees_with_a_model_that_lives_through_every_millisecond(
            ratio in 0..=1_000_000_u32,
            cap_floor in 1..5_u32,
            (initial, reserve) in (0..5_u32, 0..5_u32),
            script in prop::collection::vec((0..900_u64, 1..12_u32, prop_oneof![
                3 => Just(Use::Deposit), 2 => Just(Use::Withdraw), 1 => Just(Use::Refund),
            ]), 1..60),
        ) {
            let params = params(ratio, initial.min(cap_floor), cap_floor, reserve.min(cap_floor));
            let mut budget = Budget::new(at(0), &params);
            let balance = u64::from(params.options.initial) * 1_000_000;
            let mut naive = Naive { balance, millis: 0, seconds: vec![0; 60], params };
            let mut millis = 0;
            for (pause, times, what) in script {
                millis += pause;
                for _ in 0..times {
                    let now = at(millis);
                    let granted = match what {
                        Use::Deposit => { budget.deposit(now, &params); true }
                        Use::Refund => { budget.refund(now, &params); true }
                        Use::Withdraw => budget.try_withdraw(now, &params),
                    };
                    prop_assert_eq!(granted, naive.step(millis, what));
                    prop_assert_eq!(budget.balance, naive.balance);
                }
            }
        }

        #[test]
        fn no_order_of_times_panics(
            times in prop::collection::vec(any::<u64>(), 0..40),
            reserve in 0..=u32::MAX,
        ) {
            let params = params(1_000_000, 0, u32::MAX, reserve);
            let mut budget = Budget::new(at(0), &params);
            for nanos in times {
                let now = Timestamp::from_nanos(nanos);
                budget.deposit(now, &params);
                let _ = budget.try_withdraw(now.before(Duration::from_secs(9)), &params);
                budget.refund(now, &params);
            }
        }
    }
}
