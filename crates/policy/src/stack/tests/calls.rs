//! Single calls: every reason to stop, which outcome is returned, and what is sent.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, lost, millis, signals, status, unsent};
use super::{check, check_get, retrying};
use crate::breaker::{BreakerMode, BreakerOptions};
use crate::budget::SuccessBudget;
use crate::bulkhead::BulkheadOptions;
use crate::outcome::{AnswerSignals, Cause, Class, Problem, Safety};
use crate::retry::{RetryOptions, StopReason};
use crate::retry_after::RetryAfter;
use crate::stack::{Call, StackConfig};
use crate::time::Timestamp;

const POST: Spec = Spec { call: Call { safety: Safety::Unsafe, ..GET.call }, ..GET };
const KEYED: Spec = Spec { call: Call { safety: Safety::Keyed, ..GET.call }, ..GET };

/// A breaker that opens at the second failure.
const BRITTLE: BreakerOptions = BreakerOptions {
    bucket: Duration::from_secs(1),
    min_calls: 2,
    failure_ratio: crate::ratio::Ratio::from_percent(50),
    consecutive_failures: 0,
    consecutive_span: Duration::ZERO,
    slow: None,
    slow_ratio: crate::ratio::Ratio::from_percent(50),
    open_base: Duration::from_secs(60),
    open_cap: Duration::from_secs(60),
    probes: 1,
    probe_lease: Duration::from_secs(12),
    mode: BreakerMode::Normal,
};

fn one_slot(wait: u64, queue: u32) -> Option<BulkheadOptions> {
    let wait = millis(wait);
    Some(BulkheadOptions { wait, queue, ..BulkheadOptions::with_limit(1) })
}

/// One GET against a script: why it stopped, its attempts, and the cause it returns.
fn one(
    config: &StackConfig,
    spec: Spec,
    script: impl FnMut(&Sent) -> Reply + 'static,
) -> (StopReason, u32, Cause) {
    let mut sim = Sim::new(config, 1, 1, script);
    check(&mut sim, &[(0, spec)]);
    let done = sim.done(0);
    let refused = u32::from(done.stop == StopReason::CheckoutTimeout);
    let made = u32::try_from(sim.sent.len()).unwrap() - refused;
    assert_eq!(made, done.attempts + done.redispatches);
    (done.stop, done.attempts, done.outcome.cause())
}

#[test]
fn every_reason_to_stop_is_reached_with_the_last_attempts_outcome() {
    let always = |code: u16| move |_: &Sent| status(10, code);
    let unavailable = Cause::Status(503);
    let config = retrying(3);
    let told = AnswerSignals { stop: true, ..Default::default() };
    let no_budget = SuccessBudget { initial: 0, ..Default::default() };
    let large = Spec { replayable: false, ..GET };
    let passes = Spec { call: Call { owner: false, ..GET.call }, ..GET };
    let hurried = Spec { call: Call { deadline: Some(at(105)), ..GET.call }, ..GET };
    let off = BreakerOptions { mode: BreakerMode::RetriesOff, min_calls: 1, ..BRITTLE };

    assert_eq!(one(&config, GET, always(200)), (StopReason::Answered, 1, Cause::Status(200)));
    assert_eq!(one(&config, GET, always(503)), (StopReason::Exhausted, 3, unavailable));
    let budget = StackConfig { budget: Some(no_budget.into()), ..config };
    assert_eq!(one(&budget, GET, always(503)), (StopReason::Budget, 1, unavailable));
    assert_eq!(one(&config, hurried, always(503)), (StopReason::Deadline, 1, unavailable));
    assert_eq!(one(&config, POST, always(503)), (StopReason::NotRetryable, 1, unavailable));
    let stopped = one(&config, GET, move |_| signals(503, told));
    assert_eq!(stopped, (StopReason::ToldToStop, 1, unavailable));
    assert_eq!(one(&config, passes, always(503)), (StopReason::NotOwner, 1, unavailable));
    let off = StackConfig { breaker: Some(off), ..config };
    assert_eq!(one(&off, GET, always(503)), (StopReason::RetriesOff, 1, unavailable));
    assert_eq!(one(&config, large, always(503)), (StopReason::BodyTooLarge, 1, unavailable));
    let brittle = StackConfig { breaker: Some(BRITTLE), ..config };
    assert_eq!(one(&brittle, GET, always(503)), (StopReason::BreakerOpen, 2, unavailable));
    let no_connection = one(&config, GET, |_| unsent(50, Cause::CheckoutTimeout));
    assert_eq!(no_connection, (StopReason::CheckoutTimeout, 0, Cause::CheckoutTimeout));
}

#[test]
fn a_full_bulkhead_stops_a_call_and_never_replaces_an_earlier_outcome() {
    let config = StackConfig { bulkhead: one_slot(0, 1), ..retrying(2) };
    let script = |sent: &Sent| if sent.call == 0 { status(10, 503) } else { status(10_000, 200) };
    let mut sim = Sim::new(&config, 1, 1, script);
    // The first fails and backs off to 110 ms; the second takes the only slot at 50 ms.
    let log = check(&mut sim, &[(0, GET), (50, GET), (60, GET)]);
    insta::assert_snapshot!(log);
    let (first, third) = (sim.done(0), sim.done(2));
    assert_eq!((first.stop, first.attempts), (StopReason::BulkheadFull, 1));
    assert_eq!(first.outcome.cause(), Cause::Status(503));
    assert_eq!((third.stop, third.attempts), (StopReason::BulkheadFull, 0));
    assert_eq!(third.outcome.class(), Class::RefusedHere);
    assert_eq!(third.retry_after, Some(millis(1000)));
}

#[test]
fn a_refusal_between_attempts_keeps_the_outcome_and_the_count() {
    let script = |sent: &Sent| match sent.number {
        1 => status(10, 503),
        _ => unsent(50, Cause::CheckoutTimeout),
    };
    let mut sim = Sim::new(&retrying(3), 1, 1, script);
    let log = check_get(&mut sim);
    insta::assert_snapshot!(log);
    assert_eq!(sim.done(0).outcome.cause(), Cause::Status(503));
    assert_eq!(sim.done(0).attempts, 1);
    let counters = *sim.dependency.counters();
    assert_eq!((counters.first_attempts, counters.retries), (1, 0));
}

#[test]
fn a_call_cut_while_in_flight_returns_the_cut_and_one_cut_before_sending_a_refusal() {
    let hurried = Spec { call: Call { deadline: Some(at(50)), ..GET.call }, ..GET };
    let cut = one(&retrying(3), hurried, |_| hangs());
    assert_eq!(cut, (StopReason::Deadline, 1, Cause::DeadlineCut));
    let mut sim = Sim::new(&retrying(3), 1, 1, |_| unsent(5000, Cause::CheckoutTimeout));
    check(&mut sim, &[(0, hurried)]);
    let done = sim.done(0);
    assert_eq!((done.stop, done.attempts), (StopReason::Deadline, 0));
    assert_eq!(done.outcome.class(), Class::RefusedHere);
}

#[test]
fn answers_that_are_final_get_exactly_one_attempt() {
    for code in [400, 401, 403, 404, 405, 409, 410, 413, 422, 500, 501, 505] {
        for spec in [GET, POST, KEYED] {
            let (stop, attempts, cause) = one(&retrying(3), spec, move |_| status(10, code));
            assert_eq!((stop, attempts), (StopReason::NotRetryable, 1), "{code}");
            assert_eq!(cause, Cause::Status(code));
        }
    }
}

#[test]
fn a_post_without_a_key_is_sent_once_where_it_may_have_been_executed() {
    let attempts = |spec, reply: Reply| one(&retrying(3), spec, move |_| reply).1;
    let timeout = StackConfig { attempt_timeout: Some(millis(100)), ..retrying(3) };
    assert_eq!(one(&timeout, POST, |_| hangs()).1, 1);
    assert_eq!(one(&timeout, KEYED, |_| hangs()).1, 3);
    for cause in [Cause::Closed, Cause::Reset, Cause::Malformed, Cause::Unmatched] {
        assert_eq!(attempts(POST, lost(10, cause)), 1, "{cause:?}");
        assert_eq!(attempts(KEYED, lost(10, cause)), 3, "{cause:?}");
    }
    for code in [502, 503, 504] {
        assert_eq!(attempts(POST, status(10, code)), 1, "{code}");
        assert_eq!(attempts(KEYED, status(10, code)), 3, "{code}");
    }
    assert_eq!(attempts(POST, status(10, 429)), 3, "429: nothing was done");
    for cause in [Cause::ConnectRefused, Cause::Dns, Cause::Tls, Cause::ConnectTimeout] {
        assert_eq!(attempts(POST, unsent(1, cause)), 3, "{cause:?}: never left");
    }
}

#[test]
fn a_refused_post_goes_to_the_other_endpoint_at_once() {
    let script = |sent: &Sent| match sent.call {
        // Whichever comes first refuses.
        0 if sent.at == Timestamp::ZERO => unsent(2, Cause::ConnectRefused),
        _ => status(10, 200),
    };
    let mut sim = Sim::new(&StackConfig::standard(), 2, 1, script);
    let log = check(&mut sim, &[(0, POST)]);
    insta::assert_snapshot!(log);
    assert_ne!(sim.sent[0].endpoint, sim.sent[1].endpoint);
    let done = sim.done(0);
    assert_eq!((done.stop, done.attempts, done.redispatches), (StopReason::Answered, 1, 1));
    assert_eq!(sim.dependency.budget_millitokens(), Some(2_100), "a redispatch costs nothing");
}

#[test]
fn a_redispatch_does_not_wait_for_its_own_slot() {
    for (wait, queue) in [(0, 0), (0, 1), (50, 1)] {
        let config = StackConfig { bulkhead: one_slot(wait, queue), ..retrying(2) };
        let script = |sent: &Sent| match sent.at {
            Timestamp::ZERO => unsent(2, Cause::ConnectRefused),
            _ => status(10, 200),
        };
        let mut sim = Sim::new(&config, 2, 1, script);
        check_get(&mut sim);
        let done = sim.done(0);
        assert_eq!((done.stop, done.redispatches), (StopReason::Answered, 1), "{wait} {queue}");
        assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
    }
}

#[test]
fn redispatches_are_counted_when_they_are_made() {
    // The other endpoint is there, but the only slot is taken away in the same moment.
    let config = StackConfig { bulkhead: one_slot(50, 1), ..retrying(2) };
    let script = |sent: &Sent| match sent.call {
        0 => unsent(10, Cause::ConnectRefused),
        _ => status(5_000, 200),
    };
    let mut sim = Sim::new(&config, 2, 1, script);
    check(&mut sim, &[(0, GET), (5, GET)]);
    let done = sim.done(0);
    assert_eq!((done.stop, done.redispatches), (StopReason::BulkheadFull, 0));
    assert_eq!((done.attempts, done.outcome.cause()), (1, Cause::ConnectRefused));
    assert_eq!(sim.dependency.counters().redispatches, 0);
}

#[test]
fn redispatches_end_after_two_and_every_endpoint_gets_its_turn() {
    let mut sim = Sim::new(&retrying(1), 5, 1, |_| unsent(1, Cause::ConnectRefused));
    check_get(&mut sim);
    let done = sim.done(0);
    assert_eq!((done.stop, done.attempts, done.redispatches), (StopReason::Exhausted, 1, 2));
    let mut endpoints: Vec<_> = sim.sent.iter().map(|sent| sent.endpoint).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    assert_eq!(endpoints.len(), 3);
}

#[test]
fn a_retry_goes_to_an_endpoint_that_was_not_tried() {
    for seed in 0..20 {
        let mut sim = Sim::new(&retrying(3), 3, 1, |_| status(1, 503)).seeded(seed);
        check_get(&mut sim);
        let mut endpoints: Vec<_> = sim.sent.iter().map(|sent| sent.endpoint).collect();
        endpoints.sort_unstable();
        assert_eq!(endpoints, [0, 1, 2], "seed {seed}");
    }
}

#[test]
fn calls_that_begin_together_draw_different_jitter_from_one_generator() {
    let config = StackConfig { retry: Some(RetryOptions::default()), ..StackConfig::default() };
    let mut sim = Sim::new(&config, 1, 1, |_| status(0, 503));
    check(&mut sim, &[(0, GET); 50]);
    let mut retried: Vec<_> = sim.sent[50..].iter().map(|sent| sent.at.as_nanos()).collect();
    retried.sort_unstable();
    retried.dedup();
    assert_eq!(retried.len(), 50);
    assert!(retried.first().unwrap() < &20_000_000 && retried.last().unwrap() > &80_000_000);
}

#[test]
fn a_stop_signal_is_obeyed_unless_it_is_switched_off() {
    let retry = RetryOptions { honour_stop: false, ..retrying(3).retry.unwrap() };
    let deaf = StackConfig { retry: Some(retry), ..retrying(3) };
    for told in [
        AnswerSignals { stop: true, ..Default::default() },
        AnswerSignals { problem: Some(Problem::DependencyUnavailable), ..Default::default() },
        AnswerSignals { problem: Some(Problem::OverloadedDoNotRetry), ..Default::default() },
    ] {
        assert_eq!(one(&retrying(3), GET, move |_| signals(503, told)).0, StopReason::ToldToStop);
        let (stop, attempts, _) = one(&deaf, GET, move |_| signals(503, told));
        assert_eq!((stop, attempts), (StopReason::Exhausted, 3));
    }
}

#[test]
fn a_stop_costs_the_caller_nothing_and_says_nothing_of_its_next_call() {
    let told = AnswerSignals { stop: true, ..Default::default() };
    let config = StackConfig { budget: Some(SuccessBudget::default().into()), ..retrying(2) };
    let script = move |sent: &Sent| match sent.call {
        0..50 => signals(503, told),
        _ => status(10, 503),
    };
    let mut sim = Sim::new(&config, 1, 1, script);
    let calls: Vec<_> = (0..53).map(|call| (call * 10_000, GET)).collect();
    check(&mut sim, &calls);
    let ended = |call| (sim.done(call).stop, sim.done(call).attempts);
    for call in 0..50 {
        assert_eq!(ended(call), (StopReason::ToldToStop, 1));
    }
    // Both of the tokens that a budget begins with are there.
    assert_eq!([50, 51].map(ended), [(StopReason::Exhausted, 2); 2]);
    assert_eq!(ended(52), (StopReason::Budget, 1));
}

#[test]
fn retry_after_is_waited_for_handed_up_or_taken_for_nothing() {
    let ends = |retry_after| {
        let spec = Spec { call: Call { total: Some(millis(25_000)), ..GET.call }, ..GET };
        let asked = AnswerSignals { retry_after, ..Default::default() };
        let mut sim = Sim::new(&retrying(2), 1, 1, move |_| signals(503, asked));
        check(&mut sim, &[(0, spec)]);
        let second = sim.sent.get(1).map(|sent| super::sim::ms(sent.at));
        (sim.done(0).stop, second)
    };
    let wait = |seconds| ends(RetryAfter::Wait(Duration::from_secs(seconds)));
    let (stop, second) = wait(1);
    assert_eq!(stop, StopReason::Exhausted);
    assert!((1_001..=2_001).contains(&second.unwrap()), "{second:?}");
    assert_eq!(wait(30), (StopReason::Deadline, None));
    assert_eq!(wait(999_999), (StopReason::ToldToStop, None));
    assert_eq!(ends(RetryAfter::Unusable), (StopReason::Exhausted, Some(101)));
    assert_eq!(ends(RetryAfter::Slot(millis(20_000))), (StopReason::Exhausted, Some(20_001)));
}

#[test]
fn the_operators_switch_stops_retries_until_it_ends() {
    let mut sim = Sim::new(&retrying(2), 1, 1, |_| status(1, 503));
    sim.do_at(at(0), |dependency| dependency.switch_retries_off(at(1000)));
    check(&mut sim, &[(1, GET), (998, GET), (999, GET)]);
    let stops: Vec<_> = sim.ended().map(|(_, done)| (done.stop, done.attempts)).collect();
    let off = (StopReason::RetriesOff, 1);
    assert_eq!(stops, [off, off, (StopReason::Exhausted, 2)]);
    assert_eq!(sim.dependency.retries_off_until(at(999)), Some(at(1000)));
    assert_eq!(sim.dependency.retries_off_until(at(1000)), None);
}

#[test]
fn a_breaker_in_mode_retries_off_lets_first_attempts_through() {
    let breaker = BreakerOptions { mode: BreakerMode::RetriesOff, ..BRITTLE };
    let config = StackConfig { breaker: Some(breaker), ..retrying(2) };
    let mut sim = Sim::new(&config, 1, 1, |_| status(1, 503));
    sim.load(20, 0, 1_000, GET);
    sim.run_until(5_000);
    let counters = *sim.dependency.counters();
    assert_eq!((counters.first_attempts, counters.breaker_rejections), (20, 0));
    assert_eq!(counters.retries, 0, "the second failure opened it while the first backed off");
    assert!(sim.ended().all(|(_, done)| done.stop == StopReason::RetriesOff));
}

#[test]
fn a_retry_that_waits_when_retries_are_switched_off_is_not_made() {
    let mut sim = Sim::new(&retrying(2), 1, 1, |_| status(1, 503));
    sim.do_at(at(50), |dependency| dependency.switch_retries_off(Timestamp::MAX));
    check_get(&mut sim);
    assert_eq!((sim.done(0).stop, sim.done(0).attempts), (StopReason::RetriesOff, 1));
    assert_eq!(sim.done(0).outcome.cause(), Cause::Status(503));
}

#[test]
fn an_attempt_has_its_own_timeout_within_the_total() {
    let total = Some(millis(250));
    let config = StackConfig { attempt_timeout: Some(millis(100)), total, ..retrying(3) };
    let mut sim = Sim::new(&config, 1, 1, |_| hangs());
    let log: String = check_get(&mut sim);
    insta::assert_snapshot!(log);
    assert_eq!(sim.done(0).outcome.cause(), Cause::DeadlineCut);
}

#[test]
fn an_event_that_does_not_fit_the_phase_changes_nothing() {
    let mut sim = Sim::new(&retrying(2), 1, 1, |_| status(10, 503));
    sim.call_at(at(0), GET);
    sim.run_until(20);
    let before = sim.log.clone();
    sim.run_until(109);
    assert_eq!(sim.log, before, "backing off until 110");
    sim.run_until(200);
    assert_eq!(sim.done(0).attempts, 2);
}
