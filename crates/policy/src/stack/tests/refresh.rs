//! A rejected credential: one attempt more after a refresh, and what bounds it.

use alloc::vec::Vec;
use core::time::Duration;

use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, millis, status};
use super::{check, retrying};
use crate::budget::SuccessBudget;
use crate::bulkhead::BulkheadOptions;
use crate::hedge::{HedgeDelay, HedgeOptions};
use crate::outcome::{Cause, Safety};
use crate::ratio::Ratio;
use crate::retry::StopReason;
use crate::stack::{Call, Hop, StackConfig, worst_case_attempts, worst_case_time};

/// A write whose credential is refreshed within 2 s, and in truth after 50 ms.
const POST: Spec = Spec {
    call: Call { safety: Safety::Unsafe, refresh: Some(Duration::from_secs(2)), ..GET.call },
    renews: Some((Duration::from_millis(50), true)),
    ..GET
};

/// Answers of 10 ms with these statuses in turn, the last for ever.
fn says(codes: &'static [u16]) -> impl FnMut(&Sent) -> Reply + 'static {
    let mut codes = codes.iter();
    let mut last = 0;
    move |_| {
        last = *codes.next().unwrap_or(&last);
        status(10, last)
    }
}

/// One call: why it stopped, what it returns, and when each of its attempts was sent.
fn one(config: &StackConfig, spec: Spec, codes: &'static [u16]) -> (StopReason, Cause, Vec<u64>) {
    let mut sim = Sim::new(config, 1, 1, says(codes));
    check(&mut sim, &[(0, spec)]);
    let done = sim.done(0);
    assert_eq!(usize::try_from(done.attempts).unwrap(), sim.sent.len());
    (done.stop, done.outcome.cause(), sent_at(&sim))
}

fn sent_at(sim: &Sim) -> Vec<u64> {
    sim.sent.iter().map(|sent| u64::try_from(sent.at.since(at(0)).as_millis()).unwrap()).collect()
}

#[test]
fn after_a_refresh_one_more_attempt_is_made_at_once_even_without_retries() {
    for config in [StackConfig::default(), retrying(1), retrying(3)] {
        let called = one(&config, POST, &[401, 200]);
        assert_eq!(called, (StopReason::Answered, Cause::Status(200), [0, 60].into()));
    }
}

#[test]
fn a_second_rejection_goes_up_after_exactly_two_attempts() {
    let called = one(&retrying(3), POST, &[401]);
    assert_eq!(called, (StopReason::NotRetryable, Cause::Status(401), [0, 60].into()));
}

#[test]
fn without_a_credential_or_without_another_one_a_rejection_is_final_after_one_attempt() {
    let none = Spec { call: Call { refresh: None, ..POST.call }, ..POST };
    let failed = Spec { renews: Some((millis(50), false)), ..POST };
    let large = Spec { replayable: false, ..POST };
    for spec in [none, failed, large] {
        let called = one(&retrying(3), spec, &[401, 200]);
        assert_eq!(called, (StopReason::NotRetryable, Cause::Status(401), [0].into()));
    }
}

#[test]
fn a_refresh_is_waited_for_until_its_time_or_the_calls_is_up_and_not_longer() {
    let late = Spec { renews: Some((millis(2_001), true)), ..POST };
    let hurried = Spec {
        call: Call { deadline: Some(at(40)), ..POST.call },
        renews: Some((millis(30), true)),
        ..POST
    };
    for (spec, ended) in [(late, 2_010), (hurried, 40)] {
        let mut sim = Sim::new(&retrying(3), 1, 1, says(&[401, 200]));
        sim.call_at(at(0), spec);
        sim.run_until(ended - 1);
        assert!(sim.log.iter().all(|line| !line.contains("after 1 attempts")), "{:?}", sim.log);
        sim.run_until(60_000);
        let done = sim.done(0);
        assert_eq!((done.stop, done.attempts), (StopReason::NotRetryable, 1), "{:?}", sim.log);
        assert_eq!(done.outcome.cause(), Cause::Status(401));
    }
}

#[test]
fn it_counts_among_no_retries_and_costs_no_token() {
    let called = one(&retrying(2), POST, &[401, 429, 200]);
    assert_eq!(called, (StopReason::Answered, Cause::Status(200), [0, 60, 170].into()));
    let called = one(&retrying(2), POST, &[429, 401, 429]);
    assert_eq!(called.0, StopReason::Exhausted, "two of its own, and one beside them");
    assert_eq!(called.2.len(), 3);
    let empty = SuccessBudget { initial: 0, ratio: Ratio::ZERO, ..Default::default() };
    let config = StackConfig { budget: Some(empty.into()), ..retrying(3) };
    assert_eq!(one(&config, POST, &[401, 200]).0, StopReason::Answered);
    assert_eq!(one(&config, POST, &[401, 429]).0, StopReason::Budget);
}

#[test]
fn a_call_that_waits_for_a_credential_holds_no_slot_and_leaves_without_a_trace() {
    let wait = millis(0);
    let bulkhead = BulkheadOptions { wait, ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { bulkhead: Some(bulkhead), ..retrying(1) };
    let leaves = Spec { leaves_after: Some(millis(30)), ..POST };
    let script = |sent: &Sent| status(10, if sent.call == 0 { 401 } else { 200 });
    let mut sim = Sim::new(&config, 1, 1, script);
    check(&mut sim, &[(0, leaves), (15, GET), (40, GET)]);
    assert_eq!((sim.done(1).stop, sim.done(2).stop), (StopReason::Answered, StopReason::Answered));
    assert_eq!(sent_at(&sim), [0, 15, 40]);
    assert_eq!(sim.dependency.bulkhead().in_flight(), 0);
}

#[test]
fn a_rejected_attempt_takes_the_other_one_down_with_it() {
    let hedge = HedgeOptions {
        delay: HedgeDelay::Fixed(millis(20)),
        delay_min: millis(1),
        max_extra: Ratio::ONE,
        max_load: Ratio::ONE,
        same_endpoint: false,
    };
    let config = StackConfig { hedge: Some(hedge), ..retrying(2) };
    let script = |sent: &Sent| match sent.number {
        1 => hangs(),
        2 => status(10, 401),
        _ => status(10, 200),
    };
    let get = Spec { call: Call { safety: Safety::Idempotent, ..POST.call }, ..POST };
    let mut sim = Sim::new(&config, 2, 1, script);
    check(&mut sim, &[(0, get)]);
    let done = sim.done(0);
    assert_eq!((done.stop, done.attempts), (StopReason::Answered, 3));
    assert_eq!(sent_at(&sim), [0, 20, 80]);
}

#[test]
fn the_worst_case_of_a_layer_that_refreshes_is_what_it_really_sends() {
    let config = StackConfig { attempt_timeout: Some(millis(1_000)), ..retrying(3) };
    let params = crate::stack::StackParams::new(&config).unwrap();
    let hop = Hop { refresh: POST.call.refresh, ..Hop::of(&params, true) };
    let get = Spec { call: Call { safety: Safety::Idempotent, ..POST.call }, ..POST };
    let sent = one(&config, get, &[503, 503, 401, 503]).2.len();
    assert_eq!(worst_case_attempts(&[hop]), u64::try_from(sent).unwrap());
    assert_eq!(worst_case_time(&[hop]), Some(millis(4 * 1_000 + 300 + 2_000)));
}
