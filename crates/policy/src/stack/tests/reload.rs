//! Parameters that change under calls in flight, and the property that nothing ever leaks.

use alloc::vec::Vec;
use core::time::Duration;

use proptest::prelude::*;

use super::retrying;
use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, lost, millis, status, unsent};
use crate::balance::{Balance, SlowStartOptions};
use crate::breaker::{BreakerOptions, BreakerState};
use crate::budget::{BudgetOptions, SuccessBudget};
use crate::bulkhead::BulkheadOptions;
use crate::hedge::{HedgeDelay, HedgeOptions};
use crate::outcome::{Cause, Safety};
use crate::outlier::OutlierOptions;
use crate::ratio::Ratio;
use crate::retry::StopReason;
use crate::stack::{Call, StackConfig};

fn limit(limit: u32) -> StackConfig {
    let bulkhead = BulkheadOptions { wait: millis(500), ..BulkheadOptions::with_limit(limit) };
    StackConfig { bulkhead: Some(bulkhead), ..retrying(1) }
}

#[test]
fn slots_taken_before_the_bulkhead_was_switched_off_are_free_when_it_is_on_again() {
    let mut sim = Sim::new(&limit(2), 1, 1, |_| status(100, 200));
    for _ in 0..3 {
        sim.call_at(at(0), GET);
    }
    sim.reload_at(at(50), &retrying(1));
    sim.run_until(99);
    assert_eq!(sim.dependency.bulkhead().waiting(), 1);
    sim.run_until(150);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 1, "the waiter was let in");
    sim.run_until(300);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
    sim.reload_at(at(300), &limit(2));
    for _ in 0..2 {
        sim.call_at(at(301), GET);
    }
    sim.run_until(350);
    assert_eq!(sim.in_service, 2, "the whole limit is there");
}

#[test]
fn calls_admitted_without_a_bulkhead_take_no_slot_of_the_one_that_comes() {
    let mut sim = Sim::new(&retrying(1), 1, 1, |_| status(100, 200));
    for _ in 0..50 {
        sim.call_at(at(0), GET);
    }
    sim.reload_at(at(50), &limit(1));
    sim.call_at(at(60), GET);
    sim.run_until(70);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 1);
    sim.run_until(500);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
    assert_eq!(sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap().in_flight, 0);
}

#[test]
fn a_breaker_switched_off_and_on_keeps_its_window_and_gets_its_probes_back() {
    let breaker = BreakerOptions { min_calls: 10, ..BreakerOptions::default() };
    let on = StackConfig { breaker: Some(breaker), ..retrying(1) };
    let state =
        |sim: &Sim| sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap().breaker;
    let mut sim = Sim::new(&on, 1, 1, |_| status(1, 503));
    sim.load(100, 0, 90, GET);
    sim.run_until(100);
    sim.reload_at(at(100), &retrying(1));
    sim.load(100, 100, 200, GET);
    sim.run_until(200);
    assert_eq!(sim.sent.len(), 19, "switched off, it neither counts nor rejects");
    assert_eq!(state(&sim), BreakerState::Closed);
    sim.reload_at(at(200), &on);
    sim.call_at(at(201), GET);
    sim.run_until(210);
    assert_eq!(state(&sim), BreakerState::Open, "nine failures from before and one now");

    // Half-open with its probes out; they end while it is switched off.
    let mut probing = Sim::new(&on, 1, 1, |_| status(1_000, 200));
    core::mem::swap(&mut probing.dependency, &mut sim.dependency);
    probing.load(100, 5_000, 5_100, GET);
    probing.run_until(5_500);
    assert_eq!((state(&probing), probing.in_service), (BreakerState::HalfOpen, 5));
    probing.reload_at(at(5_500), &retrying(1));
    probing.reload_at(at(6_500), &on);
    probing.load(100, 6_500, 6_600, GET);
    probing.run_until(6_600);
    assert_eq!(probing.in_service, 5, "all five can be had again, before any lease");
}

#[test]
fn a_budget_switched_on_or_off_under_waiting_retries_neither_mints_nor_loses_a_token() {
    let budget = SuccessBudget { ratio: Ratio::ZERO, initial: 5, ..SuccessBudget::default() };
    let on = StackConfig { budget: Some(budget.into()), ..retrying(2) };
    let tokens = |sim: &Sim| sim.dependency.budget_millitokens().map(|milli| milli / 1000);
    // Free when it began to wait, and refunded when there is a budget: nothing comes back.
    let mut sim = Sim::new(&retrying(2), 1, 1, |_| status(10, 503));
    sim.call_at(at(0), GET);
    sim.reload_at(at(20), &on);
    sim.call_at(at(30), GET);
    sim.run_until(50);
    assert_eq!(tokens(&sim), Some(4), "the second waits and has paid");
    sim.leave(0);
    assert_eq!(tokens(&sim), Some(4));
    // Paid when it began to wait, and back while there is none: there when it is on again.
    sim.reload_at(at(50), &retrying(2));
    sim.run_until(60);
    sim.leave(1);
    sim.reload_at(at(70), &on);
    sim.call_at(at(80), GET);
    sim.run_until(95);
    assert_eq!(tokens(&sim), Some(4), "five less the one that waits");
}

#[test]
fn a_budget_is_shown_before_it_was_used_and_as_time_goes_by() {
    let budget = SuccessBudget { initial: 1, reserve_per_second: 1, ..SuccessBudget::default() };
    let on = StackConfig { budget: Some(budget.into()), ..retrying(2) };
    let mut sim = Sim::new(&on, 1, 1, |_| status(10, 503));
    let shown = |sim: &Sim, time| sim.dependency.budget_millitokens_at(at(time), &sim.params);
    assert_eq!((sim.dependency.budget_millitokens(), shown(&sim, 0)), (None, Some(1_000)));
    sim.call_at(at(0), GET);
    sim.run_until(1_000);
    assert_eq!(sim.done(0).stop, StopReason::Exhausted, "its retry was paid for");
    assert_eq!(shown(&sim, 3_000), Some(3_000), "one at the start, one taken, three minted");
    sim.reload_at(at(3_000), &retrying(2));
    sim.run_until(3_000);
    assert_eq!(shown(&sim, 3_000), None, "off");
}

/// The configurations a property run may reload to.
fn configs() -> [StackConfig; 5] {
    let breaker = BreakerOptions {
        min_calls: 4,
        open_base: millis(50),
        open_cap: millis(200),
        probe_lease: millis(300),
        ..BreakerOptions::default()
    };
    let bulkhead = BulkheadOptions {
        lane_limit: Some(2),
        wait: millis(20),
        queue: 2,
        ..BulkheadOptions::with_limit(3)
    };
    let touchy = OutlierOptions {
        interval: millis(10),
        min_calls: 2,
        slow_floor: millis(1),
        ejection_base: millis(50),
        ejection_cap: millis(200),
        probes: 2,
        ..OutlierOptions::default()
    };
    let full = StackConfig {
        breaker: Some(breaker),
        bulkhead: Some(bulkhead),
        budget: Some(BudgetOptions::default()),
        attempt_timeout: Some(millis(60)),
        total: Some(millis(400)),
        outlier: Some(touchy),
        balance: Balance::PeakEwma,
        slow_start: Some(SlowStartOptions { window: millis(200), ..SlowStartOptions::default() }),
        hedge: Some(HedgeOptions {
            delay: HedgeDelay::Fixed(millis(15)),
            max_extra: Ratio::ONE,
            max_load: Ratio::ONE,
            ..HedgeOptions::default()
        }),
        ..retrying(3)
    };
    [
        full,
        StackConfig { breaker: None, balance: Balance::LeastRequest, ..full },
        StackConfig { bulkhead: None, outlier: None, ..full },
        StackConfig { budget: None, retry: None, hedge: None, ..full },
        StackConfig { attempt_timeout: None, total: None, ..full },
    ]
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Call { lane: usize, safety: Safety, leaves_after: Option<u64>, finishes: bool, own: bool },
    Wait(u64),
    Leave(usize),
    Reload(usize),
    RetriesOff(u64),
}

fn action() -> impl Strategy<Value = Action> {
    let safety = prop_oneof![Just(Safety::Idempotent), Just(Safety::Keyed), Just(Safety::Unsafe)];
    let leaves_after = prop::option::of(0..150_u64);
    let call = (0..2_usize, safety, leaves_after, any::<bool>(), any::<bool>());
    prop_oneof![
        6 => call.prop_map(|(lane, safety, leaves_after, finishes, own)| {
            Action::Call { lane, safety, leaves_after, finishes, own }
        }),
        4 => (0..80_u64).prop_map(Action::Wait),
        2 => any::<prop::sample::Index>().prop_map(|index| Action::Leave(index.index(64))),
        1 => (0..5_usize).prop_map(Action::Reload),
        1 => (0..2_000_u64).prop_map(Action::RetriesOff),
    ]
}

/// What an attempt does, from a number.
fn reply(draw: u64) -> Reply {
    let after = draw / 16 % 90;
    match draw % 16 {
        0 => hangs(),
        1 => unsent(after, Cause::ConnectRefused),
        2 => unsent(after, Cause::CheckoutTimeout),
        3 => unsent(after, Cause::HandedBack),
        4 => lost(after, Cause::Closed),
        5 => lost(after, Cause::RefusedStream),
        6 => status(after, 429),
        7..=9 => status(after, 503),
        10 => unsent(5_000, Cause::CheckoutTimeout),
        11 => lost(after, Cause::UploadFailed),
        _ => status(after, 200),
    }
}

fn play(actions: &[Action], seed: u64) -> Sim {
    let draws = move |sent: &Sent| {
        let word = (sent.at.as_nanos() ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        reply((word >> 32) ^ u64::from(sent.number))
    };
    let mut sim = Sim::new(&configs()[0], 2, 2, draws).seeded(seed);
    let mut clock = 1;
    for action in actions {
        match *action {
            Action::Call { lane, safety, leaves_after, finishes, own } => {
                let call = Call { lane, safety, owner: own, ..GET.call };
                let leaves_after = leaves_after.map(millis);
                sim.call_at(at(clock), Spec { call, leaves_after, finishes, ..GET });
            }
            Action::Wait(wait) => clock += wait,
            Action::Leave(call) if call < sim.begun() => sim.leave(call),
            Action::Leave(_) => {}
            Action::Reload(index) => sim.reload_at(at(clock), &configs()[index]),
            Action::RetriesOff(until) => sim.dependency.switch_retries_off(at(until)),
        }
        sim.run_until(clock);
    }
    sim
}

/// Lets everything end: hanging calls by their callers, who leave in the end.
fn end(sim: &mut Sim) {
    let later = |sim: &Sim, by: Duration| super::sim::ms(sim.now.after(by));
    sim.run_until(later(sim, Duration::from_secs(10)));
    for call in 0..sim.begun() {
        sim.leave(call);
    }
    sim.run_until(later(sim, Duration::from_secs(60)));
    sim.hang_up();
    sim.run_until(later(sim, Duration::from_secs(60)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_leaks_and_equal_seeds_give_equal_logs(
        actions in prop::collection::vec(action(), 1..60),
        seed in any::<u64>(),
    ) {
        let mut sim = play(&actions, seed);
        end(&mut sim);
        let dependency = &sim.dependency;
        prop_assert_eq!(dependency.bulkhead().in_flight(), 0);
        prop_assert_eq!(dependency.bulkhead().waiting(), 0);
        prop_assert_eq!((dependency.held(), dependency.abandoned()), (0, 0));
        for endpoint in 0..2 {
            let view = dependency.endpoint_view(sim.now, &sim.params, endpoint, 0).unwrap();
            prop_assert_eq!(view.in_flight, 0);
        }
        prop_assert!(dependency.budget_millitokens().unwrap_or(0) <= 10_000);
        let counters = *dependency.counters();
        let again = counters.retries + counters.redispatches + counters.hedges;
        let sent = counters.first_attempts + again;
        prop_assert!(sent <= u64::try_from(sim.sent.len()).unwrap());
        prop_assert!(sim.ended().all(|(_, done)| done.attempts <= 3));

        let mut again = play(&actions, seed);
        end(&mut again);
        prop_assert_eq!(&sim.log, &again.log);
        let calls: Vec<_> = sim.ended().collect();
        prop_assert_eq!(calls, again.ended().collect::<Vec<_>>());
    }
}
