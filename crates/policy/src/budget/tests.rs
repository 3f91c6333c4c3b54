//! The budget that successes pay for, through the type that all kinds share.

mod kinds;

use alloc::string::ToString;
use core::time::Duration;
use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn params(ratio: u32, initial: u32, cap_floor: u32, reserve_per_second: u32) -> BudgetParams {
    let ratio = Ratio::from_millionths(ratio);
    let options = SuccessBudget { ratio, initial, cap_floor, reserve_per_second };
    BudgetParams::new(options.into()).unwrap()
}

fn options_of(params: &BudgetParams) -> SuccessBudget {
    match params.options() {
        BudgetOptions::Seawall(options) => options,
        other => panic!("{other:?}"),
    }
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
fn what_is_shown_is_the_balance_of_now_and_looking_changes_nothing() {
    let params = params(100_000, 2, 10, 1);
    let mut budget = Budget::new(at(0), &params);
    assert_eq!(drain(&mut budget, at(0), &params), 2);
    let shown = |budget: &Budget, time| budget.balance_millitokens_at(at(time), &params);
    assert_eq!([0, 999, 5_000, 60_000].map(|time| shown(&budget, time)), [0, 999, 5_000, 10_000]);
    assert_eq!(budget.balance_millitokens(), 0, "as it was at its last use");
    assert_eq!(drain(&mut budget, at(5_000), &params), 5);
    // A busy second pays for more than the floor of the cap, for as long as it is the last one.
    (0..200).for_each(|_| budget.deposit(at(6_000), &params));
    assert_eq!(budget.balance_millitokens(), 20_000);
    let later = [6_999, 7_999, 8_000, 3_600_000].map(|time| shown(&budget, time));
    assert_eq!(later, [20_000, 20_000, 10_000, 10_000]);
    assert_eq!(shown(&budget, 0), 20_000, "time does not go back");
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
        let _ = budget.try_withdraw(Timestamp::from_nanos(step * 7), &params);
    }
    let taken = budget.withdrawn_total() + drain(&mut budget, at(1000), &params);
    assert_eq!((taken, budget.balance_millitokens()), (3, 0));
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
        let options = SuccessBudget { ratio, initial, cap_floor, reserve_per_second };
        BudgetParams::new(options.into()).map(|_| ()).map_err(|error| error.to_string())
    };
    let refused = |text: &str| Err(text.to_string());
    assert_eq!(check(1_000_000, 10, 10, 10), Ok(()));
    assert_eq!(check(0, 0, 1, 0), Ok(()));
    assert_eq!(
        check(1_000_001, 0, 10, 0),
        refused("field `ratio`: 100.0001% is not allowed; give 0% to 100%")
    );
    assert_eq!(check(0, 0, 0, 0), refused("field `cap_floor`: 0 is not allowed; give 1 or more"));
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
    assert_eq!(size_of::<Budget>(), 64);
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
    params: SuccessBudget,
}

impl Naive {
    fn cap(&self) -> u64 {
        let second = usize::try_from(self.millis / 1000).unwrap();
        let last = if second == 0 { 0 } else { self.seconds[second - 1] };
        let floor = u64::from(self.params.cap_floor) * 1_000_000;
        floor.max(last).max(self.seconds[second])
    }

    fn add(&mut self, amount: u64) {
        self.balance = (self.balance + amount).min(self.cap());
    }

    fn run_to(&mut self, millis: u64) {
        while self.millis < millis {
            self.millis += 1;
            self.add(u64::from(self.params.reserve_per_second) * 1000);
        }
    }

    fn step(&mut self, millis: u64, what: Use) -> bool {
        self.run_to(millis);
        let ratio = u64::from(self.params.ratio.millionths());
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
        let options = options_of(&params);
        let balance = u64::from(options.initial) * 1_000_000;
        let mut naive = Naive { balance, millis: 0, seconds: vec![0; 60], params: options };
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
                prop_assert_eq!(budget.balance_micro(), naive.balance);
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
