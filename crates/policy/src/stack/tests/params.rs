//! Configurations: what is refused, what is advised against, and what a call can cost.

use alloc::string::ToString;
use core::time::Duration;

use super::retrying;
use super::sim::millis;
use crate::balance::Balance;
use crate::breaker::BreakerOptions;
use crate::budget::{BudgetOptions, SuccessBudget};
use crate::bulkhead::BulkheadOptions;
use crate::retry::RetryOptions;
use crate::stack::{StackConfig, StackParams};

const NONE: StackConfig = StackConfig {
    total: None,
    retry: None,
    budget: None,
    hedge: None,
    breaker: None,
    rate: None,
    rate_per_key: None,
    attempt_timeout: None,
    bulkhead: None,
    limit: None,
    checkout: None,
    connect: None,
    balance: Balance::LeastRequest,
    outlier: None,
    slow_start: None,
};

fn slow(slow: u64) -> Option<BreakerOptions> {
    Some(BreakerOptions { slow: Some(millis(slow)), ..BreakerOptions::default() })
}

fn wait(wait: u64) -> Option<BulkheadOptions> {
    Some(BulkheadOptions { wait: millis(wait), ..BulkheadOptions::default() })
}

/// The error of a configuration, as a line.
fn refused(config: StackConfig) -> alloc::string::String {
    StackParams::new(&config).unwrap_err().to_string()
}

#[test]
fn a_limit_behind_a_shorter_one_is_refused_with_field_value_and_range() {
    let total = StackConfig { total: Some(millis(1000)), ..NONE };
    let attempt = StackConfig { attempt_timeout: Some(millis(800)), ..total };
    let (long, over) = (Some(millis(1001)), Some(millis(801)));
    let retry = RetryOptions { max_attempts: 0, ..RetryOptions::default() };
    let budget = BudgetOptions::from(SuccessBudget { cap_floor: 0, ..SuccessBudget::default() });
    let refusals = [
        refused(StackConfig { attempt_timeout: long, ..total }),
        refused(StackConfig { breaker: slow(801), ..attempt }),
        refused(StackConfig { checkout: over, ..attempt }),
        refused(StackConfig { connect: over, ..attempt }),
        refused(StackConfig { bulkhead: wait(801), ..attempt }),
        refused(StackConfig { breaker: slow(1001), ..total }),
        refused(StackConfig { checkout: long, ..total }),
        refused(StackConfig { connect: long, ..total }),
        refused(StackConfig { bulkhead: wait(1001), ..total }),
        refused(StackConfig { total: Some(Duration::ZERO), ..NONE }),
        refused(StackConfig { attempt_timeout: Some(Duration::ZERO), ..NONE }),
        refused(StackConfig { checkout: Some(Duration::ZERO), ..NONE }),
        refused(StackConfig { connect: Some(Duration::ZERO), ..NONE }),
        refused(StackConfig { retry: Some(retry), ..NONE }),
        refused(StackConfig { budget: Some(budget), ..NONE }),
        refused(StackConfig { breaker: slow(0), ..NONE }),
        refused(StackConfig { bulkhead: Some(BulkheadOptions::with_limit(0)), ..NONE }),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}

#[test]
fn a_limit_equal_to_the_one_around_it_is_allowed() {
    let equal = StackConfig {
        total: Some(millis(800)),
        attempt_timeout: Some(millis(800)),
        checkout: Some(millis(800)),
        connect: Some(millis(800)),
        breaker: slow(800),
        bulkhead: wait(800),
        ..NONE
    };
    assert!(StackParams::new(&equal).is_ok());
    assert!(StackParams::new(&NONE).is_ok());
}

#[test]
fn presets_are_accepted_without_a_warning() {
    for config in [
        StackConfig::standard(),
        StackConfig::http(),
        StackConfig::redis(),
        StackConfig::postgres(),
    ] {
        assert_eq!(StackParams::new(&config).unwrap().warnings(), &[] as &[&str]);
    }
}

#[test]
fn what_is_probably_not_meant_is_said() {
    let warnings = |config: StackConfig| StackParams::new(&config).unwrap().warnings().join("\n");
    let said = [
        warnings(StackConfig { total: Some(millis(1000)), ..StackConfig::http() }),
        warnings(retrying(2)),
        warnings(StackConfig { retry: None, ..StackConfig::http() }),
    ];
    insta::assert_snapshot!(said.join("\n\n"));
    assert_eq!(warnings(retrying(1)), "");
}

#[test]
fn worst_case_time_is_all_attempts_and_waits_or_the_total() {
    let time = |config: StackConfig| StackParams::new(&config).unwrap().worst_case_time();
    let attempt_timeout = Some(millis(800));
    assert_eq!(time(NONE), None);
    assert_eq!(time(StackConfig { attempt_timeout, ..NONE }), Some(millis(800)));
    let three = StackConfig { attempt_timeout, ..retrying(3) };
    assert_eq!(time(three), Some(millis(3 * 800 + 100 + 200)));
    assert_eq!(time(StackConfig { total: Some(millis(2000)), ..three }), Some(millis(2000)));
    assert_eq!(time(StackConfig { total: Some(millis(9000)), ..three }), Some(millis(2700)));
    assert_eq!(time(StackConfig { total: Some(millis(9000)), ..NONE }), Some(millis(9000)));
}

#[test]
fn slow_is_half_the_attempt_timeout_unless_it_is_said() {
    let slow_of = |config: StackConfig| StackParams::new(&config).unwrap().slow;
    assert_eq!(slow_of(StackConfig::http()), Some(millis(400)));
    assert_eq!(
        slow_of(StackConfig { breaker: slow(700), ..StackConfig::http() }),
        Some(millis(700))
    );
    assert_eq!(slow_of(StackConfig { breaker: None, ..StackConfig::http() }), None);
    assert_eq!(slow_of(StackConfig::standard()), None);
}

#[test]
fn a_probe_may_take_as_long_as_an_attempt() {
    let breaker = Some(BreakerOptions { probe_lease: millis(500), ..BreakerOptions::default() });
    let lease_of =
        |config: StackConfig| StackParams::new(&config).unwrap().breaker.options().probe_lease;
    assert_eq!(lease_of(StackConfig { breaker, ..StackConfig::http() }), millis(800));
    assert_eq!(lease_of(StackConfig { breaker, ..StackConfig::standard() }), millis(500));
}
