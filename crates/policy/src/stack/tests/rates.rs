//! The rate of a dependency: what counts, what comes back, and who is refused first.

use core::time::Duration;
use std::vec::Vec;

use super::retrying;
use super::sim::{GET, Sim, Spec, at, millis, status, unsent};
use crate::breaker::{BreakerMode, BreakerOptions};
use crate::budget::{FinagleBudget, GrpcThrottle, SuccessBudget};
use crate::bulkhead::BulkheadOptions;
use crate::hedge::{HedgeDelay, HedgeOptions, HedgeRefusal};
use crate::outcome::Cause;
use crate::rate::{KeyedRateOptions, RateKey, RateOptions};
use crate::ratio::Ratio;
use crate::retry::StopReason;
use crate::stack::{Call, Done, StackConfig};

const SECOND: Duration = Duration::from_secs(1);

fn rate(limit: u32, burst: u32) -> RateOptions {
    RateOptions { limit, period: SECOND, burst }
}

/// At most ten a second, two at once.
fn limited(max_attempts: u32) -> StackConfig {
    StackConfig { rate: Some(rate(10, 2)), ..retrying(max_attempts) }
}

fn ends(sim: &Sim) -> Vec<Done> {
    (0..sim.begun()).map(|call| sim.done(call)).collect()
}

fn keyed(key: u64) -> Spec {
    Spec { call: Call { rate_key: Some(RateKey::from_hash(key)), ..GET.call }, ..GET }
}

#[test]
fn a_second_sends_the_limit_and_its_burst_and_the_refused_are_told_when_exactly() {
    let mut sim = Sim::new(&limited(1), 1, 1, |_| status(1, 200));
    for ms in 0..1000 {
        sim.call_at(at(ms), GET);
    }
    sim.run_until(600_000);
    assert_eq!(sim.sent.len(), 11, "2 at once and one every 100 ms to 900 ms");
    let done = ends(&sim);
    assert_eq!((done[2].stop, done[2].attempts), (StopReason::RateLimited, 0));
    assert_eq!(done[2].outcome.cause(), Cause::RateLimited);
    assert_eq!(done[2].retry_after, Some(millis(98)), "at 2 ms");
    assert_eq!(sim.dependency.counters().rate_rejections, 989);
    assert_eq!(sim.dependency.counters().bulkhead_rejections, 0);
}

#[test]
fn retries_count_and_one_that_is_refused_hands_up_the_answer_and_its_payment() {
    let budget = SuccessBudget { initial: 10, ..SuccessBudget::default() };
    let rate = Some(rate(1, 2));
    let config = StackConfig { budget: Some(budget.into()), rate, ..retrying(5) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(1, 503));
    sim.call_at(at(0), GET);
    sim.run_until(600_000);
    let done = sim.done(0);
    assert_eq!((done.attempts, sim.sent.len()), (2, 2), "the burst");
    assert_eq!((done.stop, done.outcome.cause()), (StopReason::RateLimited, Cause::Status(503)));
    assert_eq!(sim.dependency.budget_millitokens(), Some(9_000), "the second retry was paid back");
}

#[test]
fn what_was_never_sent_gives_its_place_in_the_rate_back() {
    let mut sim = Sim::new(&limited(1), 1, 1, |_| unsent(1, Cause::ConnectRefused));
    for ms in 0..50 {
        sim.call_at(at(ms * 2), GET);
    }
    sim.run_until(600_000);
    assert_eq!(sim.dependency.counters().rate_rejections, 0);
    assert_eq!(sim.dependency.rate_available(at(200), &sim.params), Some(2));
}

#[test]
fn an_open_breaker_and_a_rate_refuse_before_a_call_waits_for_its_slot() {
    let forced = BreakerOptions { mode: BreakerMode::ForcedOpen, ..BreakerOptions::default() };
    let none = rate(1, 1);
    let config = StackConfig { rate: Some(none), breaker: Some(forced), ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(1, 200));
    (0..2).for_each(|ms| sim.call_at(at(ms), GET));
    sim.run_until(600_000);
    assert!(ends(&sim).iter().all(|done| done.stop == StopReason::BreakerOpen));

    let slots = BulkheadOptions { wait: millis(50), ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { rate: Some(none), bulkhead: Some(slots), ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(20, 200));
    (0..2).for_each(|ms| sim.call_at(at(ms), GET));
    sim.run_until(600_000);
    let second = sim.done(1);
    // Refused at 1 ms, while the first has the slot, and not at 20 ms.
    assert_eq!((second.stop, second.retry_after), (StopReason::RateLimited, Some(millis(999))));
}

#[test]
fn a_call_whose_slot_comes_when_the_rate_is_used_up_is_refused_and_leaks_nothing() {
    let slots = BulkheadOptions { wait: millis(90), queue: 5, ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { rate: Some(rate(10, 2)), bulkhead: Some(slots), ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(10, 200));
    // All three may go when they are asked; two are sent, and the third has its slot at 20 ms.
    (0..3).for_each(|_| sim.call_at(at(0), GET));
    sim.run_until(600_000);
    let stops: Vec<_> = ends(&sim).iter().map(|done| done.stop).collect();
    assert_eq!(stops, [StopReason::Answered, StopReason::Answered, StopReason::RateLimited]);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
}

#[test]
fn each_key_has_its_own_rate_within_the_rate_of_all() {
    let per_key = KeyedRateOptions { rate: rate(1, 2), keys: 100 };
    let config = StackConfig { rate: Some(rate(5, 5)), rate_per_key: Some(per_key), ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(1, 200));
    for (call, key) in [7, 7, 7, 8, 8, 8, 9, 9].into_iter().enumerate() {
        sim.call_at(at(call as u64), keyed(key));
    }
    sim.call_at(at(9), GET);
    sim.run_until(600_000);
    let stops: Vec<_> = ends(&sim).iter().map(|done| done.stop).collect();
    use StopReason::{Answered, QuotaExceeded, RateLimited};
    assert_eq!(
        stops,
        [
            Answered,
            Answered,
            QuotaExceeded,
            Answered,
            Answered,
            QuotaExceeded,
            Answered,
            RateLimited,
            RateLimited
        ]
    );
    assert_eq!(sim.dependency.counters().quota_rejections, 2);
    assert_eq!(ends(&sim)[2].retry_after, Some(millis(998)));
    assert_eq!(sim.dependency.rate_keys_evicted(), 0);
}

#[test]
fn a_hedge_takes_from_the_rate_and_is_not_made_beyond_it() {
    let hedge = HedgeOptions {
        delay: HedgeDelay::Fixed(millis(20)),
        max_extra: Ratio::ONE,
        max_load: Ratio::ONE,
        ..HedgeOptions::default()
    };
    for (burst, sent, full) in [(2, 2, 0), (1, 1, 1)] {
        let config = StackConfig { hedge: Some(hedge), rate: Some(rate(1, burst)), ..retrying(2) };
        let mut sim = Sim::new(&config, 2, 1, |_| status(100, 200));
        sim.call_at(at(0), GET);
        sim.run_until(600_000);
        assert_eq!(sim.sent.len(), sent, "burst {burst}");
        let refused = sim.dependency.counters().hedges_refused[HedgeRefusal::Full.index()];
        assert_eq!(refused, full, "burst {burst}");
        assert_eq!(sim.done(0).stop, StopReason::Answered);
    }
}

#[test]
fn a_reload_switches_the_rate_on_and_off_and_keeps_what_is_owed() {
    let mut sim = Sim::new(&limited(1), 1, 1, |_| status(1, 200));
    (0..2).for_each(|_| sim.call_at(at(0), GET));
    sim.reload_at(at(10), &retrying(1));
    (0..5).for_each(|_| sim.call_at(at(20), GET));
    sim.reload_at(at(30), &limited(1));
    sim.call_at(at(40), GET);
    sim.run_until(600_000);
    let done = ends(&sim);
    assert!(done[..7].iter().all(|done| done.stop == StopReason::Answered));
    assert_eq!((done[7].stop, done[7].retry_after), (StopReason::RateLimited, Some(millis(60))));
}

#[test]
fn a_grpc_throttle_stops_the_retries_of_a_storm_and_a_finagle_budget_holds_them_to_its_share() {
    let throttled = StackConfig { budget: Some(GrpcThrottle::default().into()), ..retrying(2) };
    let share = FinagleBudget { reserve_per_second: 0, ..FinagleBudget::default() };
    let shared = StackConfig { budget: Some(share.into()), ..retrying(2) };
    let mut retries = Vec::new();
    for config in [throttled, shared] {
        let mut sim = Sim::new(&config, 1, 1, |_| status(1, 503));
        (0..100).for_each(|call| sim.call_at(at(call * 40), GET));
        sim.run_until(600_000);
        retries.push(sim.dependency.counters().retries);
    }
    assert!((1..=5).contains(&retries[0]), "until five have failed: {retries:?}");
    assert_eq!(retries[1], 20, "a fifth of 100");
}
