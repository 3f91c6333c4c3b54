//! The kinds known from elsewhere, against their own words and against naive models.

use alloc::string::{String, ToString};
use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::*;

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn grpc(max_tokens: u32, token_ratio: u32) -> BudgetParams {
    let token_ratio = Ratio::from_millionths(token_ratio);
    BudgetParams::new(GrpcThrottle { max_tokens, token_ratio }.into()).unwrap()
}

fn finagle(ratio: u32, reserve_per_second: u32, ttl_ms: u64) -> BudgetParams {
    let (ratio, ttl) = (Ratio::from_percent(ratio), Duration::from_millis(ttl_ms));
    BudgetParams::new(FinagleBudget { ratio, reserve_per_second, ttl }.into()).unwrap()
}

/// How many of `n` retries go.
fn paid(budget: &mut Budget, now: Timestamp, params: &BudgetParams, n: u32) -> u32 {
    (0..n).map(|_| u32::from(budget.try_withdraw(now, params))).sum()
}

#[test]
fn five_failures_from_full_switch_grpc_retries_off_and_51_successes_from_empty_on() {
    let params = grpc(10, 100_000);
    let mut budget = Budget::new(at(0), &params);
    assert_eq!(budget.balance_millitokens(), 5_000);
    for failure in 1..=5 {
        assert!(budget.try_withdraw(at(0), &params), "before failure {failure}");
        budget.on_failure(at(0), &params);
    }
    assert!(!budget.try_withdraw(at(0), &params), "at half");
    (0..20).for_each(|_| budget.on_failure(at(0), &params));
    for success in 1..=50 {
        budget.deposit(at(0), &params);
        assert!(!budget.try_withdraw(at(0), &params), "after success {success}");
    }
    budget.deposit(at(0), &params);
    assert!(budget.try_withdraw(at(0), &params));
    (0..1_000).for_each(|_| budget.deposit(at(0), &params));
    assert_eq!(budget.balance_millitokens(), 5_000, "not above the most");
}

#[test]
fn a_grpc_throttle_is_in_balance_at_one_failure_in_eleven() {
    let params = grpc(10, 100_000);
    for (calls_per_failure, stays_on) in [(11, true), (10, false)] {
        let mut budget = Budget::new(at(0), &params);
        let mut refused = 0;
        for call in 0..100_000_u32 {
            if call % calls_per_failure == 0 {
                budget.on_failure(at(0), &params);
                refused += u32::from(!budget.try_withdraw(at(0), &params));
            } else {
                budget.deposit(at(0), &params);
            }
        }
        assert_eq!(refused == 0, stays_on, "one in {calls_per_failure}: {refused} refused");
    }
}

#[test]
fn a_retry_of_grpc_takes_and_gives_back_nothing() {
    let params = grpc(10, 100_000);
    let mut budget = Budget::new(at(0), &params);
    assert_eq!(paid(&mut budget, at(0), &params, 1_000), 1_000);
    budget.on_failure(at(0), &params);
    budget.refund(at(0), &params);
    assert_eq!(budget.balance_millitokens(), 4_000);
}

#[test]
fn what_is_shown_of_other_kinds_is_of_now_too() {
    let params = finagle(20, 0, 10_000);
    let mut budget = Budget::new(at(0), &params);
    (0..50).for_each(|_| budget.on_first_attempt(at(0), &params));
    let shown = |budget: &Budget, time| budget.balance_millitokens_at(at(time), &params);
    assert_eq!([0, 9_999, 11_000].map(|time| shown(&budget, time)), [10_000, 10_000, 0]);
    assert_eq!(budget.balance_millitokens(), 10_000, "as it was at its last use");
    // Under other parameters it is what the next use would find.
    let (ten, four) = (grpc(10, 100_000), grpc(4, 100_000));
    let mut budget = Budget::new(at(0), &ten);
    budget.on_failure(at(0), &ten);
    assert_eq!(budget.balance_millitokens_at(at(0), &four), 2_000);
    assert_eq!(shown(&budget, 0), 0, "a new one of the other kind, which nobody has paid into");
    assert_eq!(budget.balance_millitokens(), 4_000);
}

#[test]
fn a_finagle_budget_pays_a_fifth_of_the_first_attempts_and_its_reserve() {
    let params = BudgetParams::new(FinagleBudget::default().into()).unwrap();
    let mut budget = Budget::new(at(0), &params);
    assert_eq!(paid(&mut budget, at(0), &params, 200), 100, "10 a second for 10 s");
    (0..50).for_each(|_| budget.on_first_attempt(at(0), &params));
    assert_eq!(paid(&mut budget, at(0), &params, 200), 10);
    budget.deposit(at(0), &params);
    budget.on_failure(at(0), &params);
    assert_eq!(paid(&mut budget, at(0), &params, 1), 0, "what becomes of them does not count");
    budget.refund(at(0), &params);
    assert_eq!(paid(&mut budget, at(0), &params, 2), 1);
}

#[test]
fn what_a_finagle_budget_was_paid_and_what_it_paid_last_for_its_ttl() {
    let params = finagle(100, 1, 10_000);
    let mut budget = Budget::new(at(0), &params);
    (0..30).for_each(|_| budget.on_first_attempt(at(500), &params));
    assert_eq!(budget.balance_millitokens(), 40_000);
    assert_eq!(paid(&mut budget, at(9_999), &params, 100), 40, "all of it, at the last moment");
    // The deposits are gone with their slice, the withdrawals last on: in debt until they go too.
    assert_eq!(paid(&mut budget, at(10_000), &params, 100), 0);
    assert_eq!(paid(&mut budget, at(18_999), &params, 100), 0);
    assert_eq!(paid(&mut budget, at(19_000), &params, 100), 10);
    // A century later only the reserve is there, and an earlier time changes nothing.
    let century = Timestamp::from_nanos(100 * 365 * 86_400 * 1_000_000_000);
    assert_eq!(paid(&mut budget, century, &params, 100), 10);
    assert_eq!(paid(&mut budget, at(0), &params, 100), 0);
    let _ = budget.try_withdraw(Timestamp::MAX, &params);
}

#[test]
fn sixty_percent_is_sixty_percent() {
    let params = finagle(60, 0, 60_000);
    let mut budget = Budget::new(at(0), &params);
    (0..10_000).for_each(|_| budget.on_first_attempt(at(0), &params));
    assert_eq!(paid(&mut budget, at(0), &params, 20_000), 6_000);
}

#[test]
fn another_kind_begins_anew_and_the_same_kind_goes_on() {
    let (ours, theirs) = (BudgetParams::new(BudgetOptions::default()).unwrap(), grpc(10, 100_000));
    let mut budget = Budget::new(at(0), &ours);
    assert_eq!(paid(&mut budget, at(0), &ours, 5), 2);
    assert_eq!(paid(&mut budget, at(0), &theirs, 5), 5);
    (0..7).for_each(|_| budget.on_failure(at(0), &theirs));
    assert_eq!(paid(&mut budget, at(0), &grpc(4, 100_000), 5), 5, "3 tokens of 4");
    assert_eq!(paid(&mut budget, at(0), &ours, 5), 2);
}

#[test]
fn options_of_every_kind_that_can_never_take_effect_are_refused() {
    let check = |options: BudgetOptions| -> String {
        BudgetParams::new(options).map_or_else(|error| error.to_string(), |_| "fits".to_string())
    };
    let throttle = GrpcThrottle::default();
    let token_ratio = |millionths| Ratio::from_millionths(millionths);
    for (options, says) in [
        (GrpcThrottle { max_tokens: 0, ..throttle }, "field `max_tokens`: 0 "),
        (GrpcThrottle { max_tokens: 1_001, ..throttle }, "field `max_tokens`: 1001 "),
        (GrpcThrottle { token_ratio: Ratio::ZERO, ..throttle }, "field `token_ratio`: 0"),
        (GrpcThrottle { token_ratio: token_ratio(1_500), ..throttle }, "field `token_ratio`: "),
        (GrpcThrottle { max_tokens: 1, token_ratio: token_ratio(1_000) }, "fits"),
        (GrpcThrottle { max_tokens: 1_000, token_ratio: token_ratio(1_000_000_000) }, "fits"),
    ] {
        let said = check(options.into());
        assert!(said.starts_with(says), "{options:?}: {said}");
    }
    let budget = FinagleBudget::default();
    for (options, says) in [
        (FinagleBudget { ratio: token_ratio(1_000_001), ..budget }, "field `ratio`: "),
        (FinagleBudget { reserve_per_second: 1_000_001, ..budget }, "field `reserve_per_second`"),
        (FinagleBudget { ttl: Duration::from_millis(999), ..budget }, "field `ttl`: 999ms "),
        (FinagleBudget { ttl: Duration::from_secs(61), ..budget }, "field `ttl`: 61s "),
        (FinagleBudget { ttl: Duration::from_secs(1), ..budget }, "fits"),
    ] {
        let said = check(options.into());
        assert!(said.starts_with(says), "{options:?}: {said}");
    }
}

proptest! {
    #[test]
    fn a_grpc_throttle_agrees_with_the_rule_in_thousandths(
        max in 1..50_i64,
        ratio in 1..3_000_i64,
        script in prop::collection::vec(any::<bool>(), 1..300),
    ) {
        let (most, per_success) = (u32::try_from(max).unwrap(), u32::try_from(ratio).unwrap());
        let params = grpc(most, per_success * 1_000);
        let mut budget = Budget::new(at(0), &params);
        let mut tokens = max * 1_000;
        for succeeded in script {
            if succeeded {
                tokens = (tokens + ratio).min(max * 1_000);
                budget.deposit(at(0), &params);
            } else {
                tokens = (tokens - 1_000).max(0);
                budget.on_failure(at(0), &params);
            }
            prop_assert_eq!(budget.try_withdraw(at(0), &params), 2 * tokens > max * 1_000);
        }
    }

    #[test]
    fn a_finagle_budget_agrees_with_a_model_that_keeps_every_payment(
        (ratio, reserve, ttl) in (0..=100_u32, 0..3_u32, 1_000..5_000_u64),
        script in prop::collection::vec((0..700_u64, 0..3_u8), 1..200),
    ) {
        let ttl = ttl / 10 * 10;
        let params = finagle(ratio, reserve, ttl);
        let mut budget = Budget::new(at(0), &params);
        let mut kept: Vec<(u64, i64)> = Vec::new();
        let mut now = 0;
        for (pause, what) in script {
            now += pause;
            let slice = |time: u64| time / (ttl / 10);
            kept.retain(|(then, _)| slice(now) - slice(*then) < 10);
            let paid: i64 = kept.iter().map(|(_, amount)| amount).sum();
            let balance = paid + i64::try_from(u64::from(reserve) * ttl * 1_000).unwrap();
            match what {
                0 => {
                    budget.on_first_attempt(at(now), &params);
                    kept.push((now, i64::from(ratio) * 10_000));
                }
                1 => {
                    budget.refund(at(now), &params);
                    kept.push((now, 1_000_000));
                }
                _ => {
                    let is_enough = balance >= 1_000_000;
                    prop_assert_eq!(budget.try_withdraw(at(now), &params), is_enough);
                    if is_enough {
                        kept.push((now, -1_000_000));
                    }
                }
            }
        }
    }
}
