//! Many calls: storms, hangs, deadlines. Every number is exact for its seed.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::sim::{GET, Sent, Sim, Spec, at, hangs, millis, ms, status, unsent};
use super::{check, retrying};
use crate::breaker::BreakerOptions;
use crate::bulkhead::BulkheadOptions;
use crate::outcome::{Cause, Class, Safety};
use crate::retry::StopReason;
use crate::stack::{Call, StackConfig};
use crate::time::Timestamp;

const NO_BREAKER: fn() -> StackConfig = || StackConfig { breaker: None, ..StackConfig::standard() };

/// 5 s of health, 20 s in which every attempt ends as `ill`, then health again for 40 s; at
/// 300 calls a second. First attempts, retries and successes by act, and in the last 28 s.
fn storm(config: &StackConfig, ill: super::sim::Reply) -> String {
    let script = move |sent: &Sent| match ms(sent.at) {
        5_000..25_000 => ill,
        _ => status(5, 200),
    };
    let mut sim = Sim::new(config, 1, 1, script);
    sim.load(300, 0, 65_000, GET);
    sim.run_until(70_000);
    let mut report = String::new();
    for (name, from, to) in [
        ("healthy", 0, 5_000),
        ("ill", 5_000, 25_000),
        ("12 s of recovery", 25_000, 37_000),
        ("recovered", 37_000, 65_000),
    ] {
        let within = |sent: &&Sent| (from..to).contains(&ms(sent.at));
        let first = sim.sent.iter().filter(within).filter(|sent| sent.number == 1).count();
        let retries = sim.sent.iter().filter(within).filter(|sent| sent.number > 1).count();
        let begun = 300 * (to - from) / 1000;
        let first_of = usize::try_from(from * 300 / 1000).unwrap();
        let calls = first_of..first_of + usize::try_from(begun).unwrap();
        let good = |(call, done): &(usize, crate::stack::Done)| {
            calls.contains(call) && done.outcome.class() == Class::Success
        };
        let succeeded = sim.ended().filter(good).count();
        report += &format!("{name}: {begun} calls, {first} first attempts, ");
        report += &format!("{retries} retries, {succeeded} succeeded\n");
    }
    report
}

#[test]
fn in_a_storm_the_budget_alone_holds_retries_and_recovery_is_at_once() {
    insta::assert_snapshot!(storm(&NO_BREAKER(), status(5, 503)));
}

#[test]
fn in_a_storm_of_refused_connections_the_budget_holds_retries_too() {
    insta::assert_snapshot!(storm(&NO_BREAKER(), unsent(1, Cause::ConnectRefused)));
}

#[test]
fn in_a_storm_the_breaker_sends_far_less_and_recovers_within_twelve_seconds() {
    insta::assert_snapshot!(storm(&StackConfig::standard(), status(5, 503)));
}

#[test]
fn rejections_of_business_never_open_the_breaker() {
    let mut sim = Sim::new(&StackConfig::standard(), 1, 1, |_| status(5, 422));
    sim.load(300, 0, 60_000, GET);
    sim.run_until(70_000);
    assert_eq!(sim.dependency.counters().first_attempts, 18_000);
    assert_eq!(sim.dependency.counters().retries, 0);
    assert!(sim.dependency.pop_transition().is_none());
}

#[test]
fn a_full_bulkhead_and_a_pool_without_connections_never_open_the_breaker() {
    let mut sim = Sim::new(&StackConfig::standard(), 1, 1, |_| status(400, 200));
    sim.load(300, 0, 20_000, GET);
    sim.run_until(30_000);
    let full = sim.ended().filter(|(_, done)| done.stop == StopReason::BulkheadFull).count();
    assert!(full > 4_000, "{full}");
    assert!(sim.dependency.pop_transition().is_none());
    // The preset's checkout and slow threshold are both 100 ms.
    let mut sim = Sim::new(&StackConfig::redis(), 1, 1, |_| unsent(100, Cause::CheckoutTimeout));
    sim.load(100, 0, 20_000, GET);
    sim.run_until(30_000);
    assert_eq!(sim.ended().count(), 2_000);
    assert!(sim.dependency.pop_transition().is_none());
}

fn slow_after(slow: u64) -> StackConfig {
    let breaker = BreakerOptions { slow: Some(millis(slow)), ..BreakerOptions::default() };
    let bulkhead = Some(BulkheadOptions::gateway());
    StackConfig { breaker: Some(breaker), bulkhead, ..StackConfig::standard() }
}

#[test]
fn a_hang_opens_the_breaker_at_the_twentieth_call_seen_slow() {
    for (rate, leaves_after) in [(50, 450), (200, 450), (500, 450), (200, 401)] {
        for finishes in [false, true] {
            let mut sim = Sim::new(&slow_after(400), 1, 1, |_| hangs());
            let leaves_after = Some(millis(leaves_after));
            sim.load(rate, 0, 10_000, Spec { leaves_after, finishes, ..GET });
            sim.run_until(5_000);
            let opened = sim.dependency.pop_transition().unwrap();
            let twentieth = sim.sent[19].at.after(millis(400));
            assert_eq!(opened.at, twentieth, "{rate}/s");
            let sent = sim.sent.iter().filter(|sent| sent.at <= opened.at).count();
            let most = 20 + usize::try_from(rate * 4 / 10).unwrap();
            assert!(sent <= most, "{sent} of {most} at {rate}/s");
            assert!(sim.sent[most.min(sent)..].iter().all(|sent| sent.at > opened.at));
        }
    }
}

#[test]
fn callers_without_patience_never_open_the_breaker_of_a_healthy_dependency() {
    let states = Spec { leaves_after: None, ..GET };
    let leaves = Spec { leaves_after: Some(millis(15)), ..GET };
    let mut sim = Sim::new(&slow_after(400), 1, 1, |_| status(20, 200));
    sim.load(100, 0, 20_000, leaves);
    for n in 0..2_000 {
        let begin = at(n * 10 + 3);
        let call = Call { deadline: Some(begin.after(millis(15))), ..states.call };
        sim.call_at(begin, Spec { call, ..states });
    }
    sim.run_until(30_000);
    assert!(sim.dependency.pop_transition().is_none());
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
}

/// Calls at 100/s in `from..to` that state `deadline` milliseconds.
fn stating(sim: &mut Sim, deadline: u64, from: u64, to: u64) {
    for n in 0..(to - from) / 10 {
        let begin = at(from + n * 10);
        let deadline = Some(begin.after(millis(deadline)));
        sim.call_at(begin, Spec { call: Call { deadline, ..GET.call }, ..GET });
    }
}

#[test]
fn a_deadline_that_cannot_be_met_sends_one_scout_a_second_and_notices_recovery() {
    let script = |sent: &Sent| match ms(sent.at) {
        0..60_000 => status(200, 200),
        _ => status(20, 200),
    };
    let mut sim = Sim::new(&StackConfig::standard(), 1, 1, script);
    sim.load(100, 0, 10_000, GET);
    stating(&mut sim, 50, 10_000, 100_000);
    sim.run_until(120_000);
    let sent_in = |from: u64, to: u64| {
        sim.sent.iter().filter(|sent| (from..to).contains(&ms(sent.at))).count()
    };
    assert_eq!(sent_in(10_000, 60_000), 50, "one a second");
    for second in 10..60 {
        assert!(sent_in(second * 1000, second * 1000 + 1000) <= 1, "second {second}");
    }
    assert!(sim.dependency.pop_transition().is_none(), "a cut is no failure");
    assert_eq!(sent_in(95_000, 100_000), 500, "recovered");
    let late = sim.ended().filter(|(_, done)| done.outcome.cause() == Cause::DeadlinePassed);
    assert!(late.count() > 4_900);
}

#[test]
fn a_stated_deadline_of_nothing_sends_nothing() {
    let mut sim = Sim::new(&StackConfig::standard(), 1, 1, |_| status(1, 200));
    stating(&mut sim, 0, 0, 5_000);
    sim.run_until(10_000);
    assert!(sim.sent.is_empty());
    assert!(sim.ended().all(|(_, done)| done.stop == StopReason::Deadline && done.attempts == 0));
    assert_eq!(sim.dependency.counters().deadline_before_send, 500);
}

#[test]
fn a_scout_that_is_refused_for_want_of_a_slot_leaves_its_pass_to_the_next() {
    let script = |sent: &Sent| if sent.at < at(4_000) { status(150, 200) } else { hangs() };
    let bulkhead = Some(BulkheadOptions { wait: Duration::ZERO, ..BulkheadOptions::with_limit(1) });
    let config = StackConfig { bulkhead, ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, script);
    sim.load(5, 0, 5_000, GET);
    // At 4,000 ms a hang takes the slot until its caller leaves at 5,490 ms.
    sim.run_until(5_400);
    stating(&mut sim, 50, 5_410, 5_900);
    sim.run_until(5_490);
    assert_eq!(sim.dependency.counters().scouts, 0);
    sim.leave(20);
    sim.run_until(8_000);
    assert_eq!(sim.dependency.counters().scouts, 0, "held until twice its age");
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
    stating(&mut sim, 50, 8_000, 8_100);
    sim.run_until(8_100);
    assert_eq!(sim.dependency.counters().scouts, 1);
}

#[test]
fn what_was_granted_too_late_is_not_sent() {
    // Learned: 20 ms. The slot comes free 45 ms into a call that states 50 ms.
    let script = |sent: &Sent| status(if sent.at == at(10_000) { 45 } else { 20 }, 200);
    let bulkhead = Some(BulkheadOptions { wait: millis(1000), ..BulkheadOptions::with_limit(1) });
    let config = StackConfig { bulkhead, ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 1, script);
    sim.load(10, 5_000, 9_000, GET);
    sim.call_at(at(10_000), GET);
    stating_once(&mut sim, 9_500, 1);
    let hurried = Call { deadline: Some(at(10_050)), ..GET.call };
    sim.call_at(at(10_000), Spec { call: hurried, ..GET });
    sim.run_until(20_000);
    let (call, done) = sim.ended().last().unwrap();
    assert_eq!((done.stop, done.attempts), (StopReason::Deadline, 0), "call {call}");
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
}

/// One call that takes the second's scout.
fn stating_once(sim: &mut Sim, begin: u64, deadline: u64) {
    let call = Call { deadline: Some(at(begin + deadline)), ..GET.call };
    sim.call_at(at(begin), Spec { call, ..GET });
}

#[test]
fn amplification_is_one_when_nothing_fails() {
    let mut sim = Sim::new(&StackConfig::standard(), 3, 1, |_| status(5, 200));
    sim.load(300, 0, 10_000, GET);
    sim.run_until(20_000);
    assert_eq!(sim.sent.len(), 3_000);
    assert_eq!(sim.ended().filter(|(_, done)| done.stop == StopReason::Answered).count(), 3_000);
}

#[test]
fn slow_executions_stay_within_budget_and_bulkhead_and_a_post_is_executed_once() {
    // 1.1 times the attempt timeout, forever.
    let config = StackConfig {
        attempt_timeout: Some(millis(100)),
        breaker: None,
        ..StackConfig::standard()
    };
    let post = Spec { call: Call { safety: Safety::Unsafe, ..GET.call }, ..GET };
    let mut sim = Sim::new(&config, 1, 1, |_| status(110, 200));
    sim.load(100, 0, 10_000, GET);
    sim.run_until(20_000);
    assert_eq!(sim.dependency.counters().retries, 2, "the initial tokens");
    assert!(sim.most_in_service <= 25, "{}", sim.most_in_service);
    let mut sim = Sim::new(&config, 1, 1, |_| status(110, 200));
    check(&mut sim, &[(0, post)]);
    assert_eq!((sim.sent.len(), sim.done(0).stop), (1, StopReason::NotRetryable));
    assert_eq!(sim.now, Timestamp::from_millis(600_000));
}
