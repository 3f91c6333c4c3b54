//! What a call takes comes back, once: payments, slots, tickets.

use alloc::vec::Vec;

use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, millis, ms, status, unsent};
use super::{check, retrying};
use crate::breaker::BreakerOptions;
use crate::budget::SuccessBudget;
use crate::bulkhead::BulkheadOptions;
use crate::outcome::Cause;
use crate::ratio::Ratio;
use crate::retry::StopReason;
use crate::rng::SplitMix64;
use crate::stack::{Admitted, Dependency, StackConfig, StackParams};
use crate::time::Timestamp;

/// Five tokens and no deposits, so that every token is seen.
fn paying() -> StackConfig {
    let budget = SuccessBudget { ratio: Ratio::ZERO, initial: 5, ..SuccessBudget::default() };
    StackConfig { budget: Some(budget.into()), ..retrying(2) }
}

fn tokens(sim: &Sim) -> u64 {
    sim.dependency.budget_millitokens().unwrap() / 1000
}

#[test]
fn waiting_retries_have_paid_and_a_caller_who_leaves_gets_it_back() {
    let mut sim = Sim::new(&paying(), 1, 1, |_| status(10, 503));
    for _ in 0..6 {
        sim.call_at(at(0), GET);
    }
    sim.run_until(50);
    assert_eq!(tokens(&sim), 0, "five wait");
    assert_eq!(sim.done(5).stop, StopReason::Budget, "the sixth could not pay");
    sim.leave(0);
    sim.leave(1);
    assert_eq!(tokens(&sim), 2);
    sim.leave(1);
    assert_eq!(tokens(&sim), 2, "once");
    sim.run_until(1_000);
    assert_eq!(tokens(&sim), 2, "the three that were sent have cost theirs");
    assert_eq!(sim.dependency.counters().retries, 3);
}

#[test]
fn a_retry_in_the_queue_gives_its_payment_back_when_its_caller_leaves_or_nobody_lets_it_in() {
    let bulkhead = BulkheadOptions { wait: millis(50), ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { bulkhead: Some(bulkhead), ..paying() };
    let script = |sent: &Sent| if sent.call == 0 { status(10, 503) } else { status(900, 200) };
    for leaves in [true, false] {
        let mut sim = Sim::new(&config, 1, 1, script);
        sim.call_at(at(0), GET);
        sim.call_at(at(20), GET);
        sim.run_until(120);
        assert_eq!(tokens(&sim), 4, "queued since 110 ms, and paid");
        assert_eq!(sim.dependency.bulkhead().waiting(), 1);
        if leaves {
            sim.leave(0);
        }
        sim.run_until(200);
        assert_eq!(tokens(&sim), 5);
        assert_eq!(sim.dependency.bulkhead().waiting(), 0);
        sim.run_until(2_000);
        assert_eq!((tokens(&sim), sim.sent.len()), (5, 2));
    }
}

#[test]
fn a_retry_in_the_queue_when_retries_are_switched_off_is_not_sent_and_the_next_in_it_goes() {
    let bulkhead = BulkheadOptions { wait: millis(50), queue: 2, ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { bulkhead: Some(bulkhead), ..paying() };
    for switched_off in [true, false] {
        let script = |sent: &Sent| match sent.call {
            0 if sent.number == 1 => status(10, 503),
            _ => status(100, 200),
        };
        let mut sim = Sim::new(&config, 1, 1, script);
        // The second holds the slot from 20 to 120 ms, the retry queues from 110, the third behind.
        for begins in [0, 20, 115] {
            sim.call_at(at(begins), GET);
        }
        sim.run_until(116);
        assert_eq!((sim.dependency.bulkhead().waiting(), tokens(&sim)), (2, 4));
        if switched_off {
            sim.do_at(at(117), |dependency| dependency.switch_retries_off(Timestamp::MAX));
        }
        sim.run_until(1_000);
        let sent: Vec<_> = sim.sent.iter().map(|it| (it.call, ms(it.at))).collect();
        if switched_off {
            assert_eq!((sim.done(0).stop, sim.done(0).attempts), (StopReason::RetriesOff, 1));
            assert_eq!(sim.done(0).outcome.cause(), Cause::Status(503), "what the caller is told");
            assert_eq!(sent, [(0, 0), (1, 20), (2, 120)]);
            assert_eq!(tokens(&sim), 5, "its payment came back");
        } else {
            assert_eq!((sim.done(0).stop, sim.done(0).attempts), (StopReason::Answered, 2));
            assert_eq!(sent[2], (0, 120));
            assert_eq!(tokens(&sim), 4);
        }
        assert_eq!(sim.dependency.bulkhead().waiting(), 0);
    }
}

#[test]
fn a_retry_refused_by_the_breaker_or_for_want_of_a_connection_gives_its_payment_back() {
    let breaker = BreakerOptions { min_calls: 3, ..BreakerOptions::default() };
    let config = StackConfig { breaker: Some(breaker), ..paying() };
    // The first backs off until 110 ms; two more failures open the breaker meanwhile.
    let mut sim = Sim::new(&config, 1, 1, |_| status(10, 503));
    check(&mut sim, &[(0, GET), (20, GET), (30, GET)]);
    let stops: Vec<_> = sim.ended().map(|(_, done)| (done.stop, done.attempts)).collect();
    assert_eq!(stops, [(StopReason::BreakerOpen, 1); 3]);
    assert_eq!(tokens(&sim), 5);

    let script = |sent: &Sent| match sent.number {
        1 => status(10, 503),
        _ => unsent(50, Cause::CheckoutTimeout),
    };
    let mut sim = Sim::new(&paying(), 1, 1, script);
    check(&mut sim, &[(0, GET)]);
    assert_eq!((sim.done(0).stop, tokens(&sim)), (StopReason::CheckoutTimeout, 5));
}

#[test]
fn a_caller_who_leaves_while_a_retry_is_not_yet_sent_gets_everything_back() {
    let script = |sent: &Sent| match sent.number {
        1 => status(10, 503),
        _ => unsent(500, Cause::CheckoutTimeout),
    };
    let mut sim = Sim::new(&paying(), 1, 1, script);
    check(&mut sim, &[(0, Spec { leaves_after: Some(millis(200)), ..GET })]);
    assert_eq!(tokens(&sim), 5);
    let view = sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap();
    assert_eq!(view.in_flight, 0);
}

#[test]
fn a_retry_that_was_made_has_cost_its_price_sent_or_not_connected() {
    for reply in [status(10, 503), unsent(10, Cause::ConnectRefused), status(10, 200), hangs()] {
        let script = move |sent: &Sent| if sent.number == 1 { status(10, 503) } else { reply };
        let mut sim = Sim::new(&paying(), 1, 1, script);
        sim.call_at(at(0), Spec { leaves_after: Some(millis(800)), ..GET });
        sim.run_until(10_000);
        assert_eq!((tokens(&sim), sim.sent.len()), (4, 2), "{:?}", reply.outcome.cause());
    }
}

#[test]
fn an_abandoned_call_is_given_up_by_the_formula_or_ends_early() {
    // Age at the give-up in ms, attempt timeout, p99 learned (0: nothing) → held until, in ms.
    for (age, timeout, learned, until) in [
        (100, None, 0, 200),
        (100, Some(150), 0, 200),
        (100, Some(60), 0, 120),
        (130, Some(60), 0, 0),
        (10, None, 100, 301),
        (10, Some(120), 100, 240),
        (400, None, 100, 800),
    ] {
        let config = StackConfig { attempt_timeout: timeout.map(millis), ..paying() };
        let params = StackParams::new(&config).unwrap();
        let mut dependency = Dependency::new(1, 1);
        let mut rng = SplitMix64::new(1);
        let mut admit = |dependency: &mut Dependency, now| {
            let admitted = dependency.admit(now, &params, 0, at(900_000), |_| false, &mut rng);
            let Admitted::Permit(mut permit) = admitted else { panic!("admitted") };
            permit.mark_sent();
            permit
        };
        let mut other = SplitMix64::new(2);
        for _ in 0..if learned > 0 { 200 } else { 0 } {
            let mut permit = admit(&mut dependency, at(0));
            let outcome = status(1, 200).outcome;
            dependency.record(at(learned), &params, &mut permit, &outcome, &mut other);
            dependency.release(at(learned), &params, permit);
        }
        let begin = at(1_000);
        let permit = admit(&mut dependency, begin);
        let left = begin.after(millis(age));
        let held = dependency.abandon(left, &params, permit, &mut other);
        let expected = (until > 0).then(|| ms(begin) + until);
        assert_eq!(held.map(|held| ms(held.until())), expected, "{age} {timeout:?} {learned}");
        let Some(held) = held else { continue };
        assert_eq!(dependency.held(), 1);
        assert_eq!(dependency.next_deadline(), Some(held.until()));
        if age % 4 == 0 {
            dependency.end_held(left, &params, held);
        }
        dependency.handle_timeout(held.until(), &params);
        dependency.end_held(held.until(), &params, held);
        assert_eq!(dependency.held(), 0);
        assert_eq!(dependency.endpoint_view(at(0), &params, 0, 0).unwrap().in_flight, 0);
    }
}

#[test]
fn calls_in_flight_never_exceed_the_bulkhead_counting_held_ones() {
    let bulkhead = BulkheadOptions { wait: millis(20), ..BulkheadOptions::with_limit(10) };
    let config =
        StackConfig { bulkhead: Some(bulkhead), attempt_timeout: Some(millis(300)), ..retrying(1) };
    // Executions last 150 ms, callers stay 100 ms: every one is abandoned and held to its end.
    let mut sim = Sim::new(&config, 2, 1, |_| status(150, 200));
    sim.load(500, 0, 5_000, Spec { leaves_after: Some(millis(100)), ..GET });
    sim.run_until(20_000);
    assert_eq!(sim.most_in_service, 10);
    assert!(sim.dependency.counters().abandoned > 300);
    assert_eq!((sim.in_service, sim.dependency.bulkhead().in_flight()), (0, 0));
    assert_eq!(sim.dependency.held(), 0);
}

#[test]
fn without_a_bulkhead_held_calls_are_bounded_and_the_rest_is_given_up_at_once() {
    let mut sim = Sim::new(&retrying(1), 1, 1, |_| hangs());
    for _ in 0..5_000 {
        sim.call_at(at(0), Spec { leaves_after: Some(millis(100)), ..GET });
    }
    sim.run_until(150);
    assert_eq!(sim.dependency.held(), 4_096);
    let in_flight =
        |sim: &Sim| sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap().in_flight;
    assert_eq!(in_flight(&sim), 4_096);
    sim.run_until(400);
    assert_eq!((sim.dependency.held(), in_flight(&sim)), (0, 0));
}

#[test]
fn a_call_that_runs_on_is_recorded_at_its_real_end() {
    let breaker = BreakerOptions { min_calls: 3, ..BreakerOptions::default() };
    let config = StackConfig { breaker: Some(breaker), ..retrying(1) };
    let failing: fn(&Sent) -> Reply = |_| status(100, 503);
    let mut sim = Sim::new(&config, 1, 1, failing);
    let leaves = Spec { leaves_after: Some(millis(50)), finishes: true, ..GET };
    for begin in [0, 10, 20] {
        sim.call_at(at(begin), leaves);
    }
    sim.run_until(119);
    assert!(sim.dependency.pop_transition().is_none());
    assert_eq!((sim.dependency.abandoned(), sim.dependency.held()), (1, 0), "two have ended");
    sim.run_until(120);
    assert!(sim.dependency.pop_transition().is_some());
    let view = sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap();
    assert_eq!(view.in_flight, 0);
    assert_eq!((sim.dependency.abandoned(), sim.dependency.counters().abandoned), (0, 3));
}

#[test]
fn a_call_that_runs_on_counts_as_abandoned_once_and_until_its_slot_is_free() {
    let config = StackConfig { attempt_timeout: Some(millis(100)), ..retrying(1) };
    let params = StackParams::new(&config).unwrap();
    let mut dependency = Dependency::new(1, 1);
    let mut rng = SplitMix64::new(1);
    let mut admit = |dependency: &mut Dependency| {
        let admitted = dependency.admit(at(0), &params, 0, at(0), |_| false, &mut rng);
        let Admitted::Permit(mut permit) = admitted else { panic!("admitted") };
        permit.mark_sent();
        permit
    };
    let counts =
        |dependency: &Dependency| (dependency.abandoned(), dependency.counters().abandoned);
    let mut permits = [(); 3].map(|()| admit(&mut dependency));
    for permit in &mut permits {
        dependency.orphan(permit);
        dependency.orphan(permit);
    }
    assert_eq!((counts(&dependency), dependency.held()), ((3, 3), 0));
    let [ends, hangs, mut handed_back] = permits;
    dependency.release(at(50), &params, ends);
    assert_eq!(counts(&dependency), (2, 3));
    let mut other = SplitMix64::new(2);
    handed_back.mark_unsent();
    assert_eq!(dependency.abandon(at(60), &params, handed_back, &mut other), None);
    assert_eq!(counts(&dependency), (1, 3));
    let held = dependency.abandon(at(100), &params, hangs, &mut other);
    assert_eq!((counts(&dependency), dependency.held()), ((1, 3), 1));
    dependency.handle_timeout(held.unwrap().until(), &params);
    assert_eq!(counts(&dependency), (0, 3));
}

#[test]
fn streams_leave_the_bulkhead_and_come_back_to_their_own_count() {
    let bulkhead = BulkheadOptions { max_streams: 1, ..BulkheadOptions::with_limit(2) };
    let config = StackConfig { bulkhead: Some(bulkhead), ..retrying(1) };
    let params = StackParams::new(&config).unwrap();
    let mut dependency = Dependency::new(1, 1);
    let mut rng = SplitMix64::new(1);
    let mut admit = |dependency: &mut Dependency| {
        let admitted = dependency.admit(at(0), &params, 0, at(0), |_| false, &mut rng);
        let Admitted::Permit(permit) = admitted else { panic!("admitted") };
        permit
    };
    let (mut first, mut second) = (admit(&mut dependency), admit(&mut dependency));
    assert!(dependency.to_stream(at(1), &params, &mut first).is_ok());
    let refused = dependency.to_stream(at(1), &params, &mut second).unwrap_err();
    assert_eq!(refused.cause, Cause::StreamsFull);
    assert_eq!((dependency.bulkhead().in_flight(), dependency.bulkhead().streams()), (1, 1));
    let view = dependency.endpoint_view(at(0), &params, 0, 0).unwrap();
    assert_eq!(view.in_flight, 2, "a stream still loads its endpoint");
    dependency.release(at(2), &params, first);
    dependency.release(at(2), &params, second);
    assert_eq!((dependency.bulkhead().in_flight(), dependency.bulkhead().streams()), (0, 0));
}
