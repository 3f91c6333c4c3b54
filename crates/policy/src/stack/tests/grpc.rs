//! gRPC: codes of its own, a server that says when, and statuses that come after the head.

use alloc::vec::Vec;
use core::time::Duration;

use super::retrying;
use super::sim::{GET, Reply, Sent, Sim, Spec, at, millis};
use crate::breaker::{BreakerOptions, BreakerState};
use crate::budget::SuccessBudget;
use crate::grpc::GrpcCode;
use crate::outcome::{AnswerSignals, Cause, Outcome, Safety};
use crate::retry::StopReason;
use crate::retry_after::RetryAfter;
use crate::rng::SplitMix64;
use crate::stack::{Admitted, Call, Dependency, StackConfig, StackParams};

const ONCE: Spec = Spec { call: Call { safety: Safety::Unsafe, ..GET.call }, ..GET };
const KEYED: Spec = Spec { call: Call { safety: Safety::Keyed, ..GET.call }, ..GET };

fn code(code: GrpcCode, signals: AnswerSignals) -> Reply {
    Reply { after: millis(10), outcome: Outcome::of_grpc(code, signals), sent: true }
}

fn pushback(code_: GrpcCode, wait: u64) -> Reply {
    let retry_after = RetryAfter::Pushback(millis(wait));
    code(code_, AnswerSignals { retry_after, ..AnswerSignals::NONE })
}

/// When each attempt of one call was sent, and why it ended.
fn play(
    config: &StackConfig,
    spec: Spec,
    script: impl FnMut(&Sent) -> Reply + 'static,
) -> (Vec<u64>, StopReason) {
    let mut sim = Sim::new(config, 1, 1, script);
    sim.call_at(at(0), spec);
    sim.run_until(600_000);
    let sent = sim.sent.iter().map(|sent| sent.at.as_nanos() / 1_000_000).collect();
    (sent, sim.done(0).stop)
}

#[test]
fn only_four_codes_are_ever_tried_again_and_only_where_that_is_harmless() {
    for known in GrpcCode::ALL {
        for (spec, plain, pushed) in [
            (ONCE, false, false),
            (GET, is_transient(known), is_transient(known)),
            (KEYED, is_transient(known), is_transient(known) || known == GrpcCode::Aborted),
        ] {
            let once = |reply: Reply| {
                let (sent, _) = play(&retrying(2), spec, move |_| reply);
                sent.len() == 2
            };
            assert_eq!(once(code(known, AnswerSignals::NONE)), plain, "{known:?}");
            assert_eq!(once(pushback(known, 5)), pushed, "{known:?} with a pushback");
        }
    }
}

fn is_transient(code: GrpcCode) -> bool {
    matches!(code, GrpcCode::Unavailable | GrpcCode::ResourceExhausted | GrpcCode::DeadlineExceeded)
}

#[test]
fn a_declared_code_is_tried_again_whatever_the_method() {
    let declared = |_: &Sent| {
        let reply = code(GrpcCode::Internal, AnswerSignals::NONE);
        Reply { outcome: reply.outcome.declared_retryable(), ..reply }
    };
    let (sent, stop) = play(&retrying(3), ONCE, declared);
    assert_eq!((sent.len(), stop), (3, StopReason::Exhausted));
    let fine = |_: &Sent| {
        let reply = code(GrpcCode::Ok, AnswerSignals::NONE);
        Reply { outcome: reply.outcome.declared_retryable(), ..reply }
    };
    let (sent, stop) = play(&retrying(3), ONCE, fine);
    assert_eq!((sent.len(), stop), (1, StopReason::Answered), "what went well is not");
}

#[test]
fn a_pushback_is_kept_exactly_and_the_backoff_begins_anew_after_it() {
    // Without jitter the backoff is 100, 200, 400 ms; each attempt takes 10.
    let script = |sent: &Sent| match sent.number {
        2 => pushback(GrpcCode::Unavailable, 77),
        _ => code(GrpcCode::Unavailable, AnswerSignals::NONE),
    };
    let (sent, stop) = play(&retrying(5), GET, script);
    assert_eq!(sent, [0, 110, 110 + 87, 197 + 110, 307 + 210]);
    assert_eq!(stop, StopReason::Exhausted);
    let at_once = |_: &Sent| pushback(GrpcCode::Unavailable, 0);
    assert_eq!(play(&retrying(3), GET, at_once).0, [0, 10, 20]);
}

#[test]
fn a_server_that_says_never_is_obeyed_and_a_wait_beyond_the_deadline_ends_the_call() {
    let never = AnswerSignals { stop: true, ..AnswerSignals::NONE };
    let (sent, stop) = play(&retrying(5), GET, move |_| code(GrpcCode::Unavailable, never));
    assert_eq!((sent.len(), stop), (1, StopReason::ToldToStop));
    let config = StackConfig { total: Some(Duration::from_secs(1)), ..retrying(5) };
    let (sent, stop) = play(&config, GET, |_| pushback(GrpcCode::Unavailable, 990));
    assert_eq!((sent.len(), stop), (1, StopReason::Deadline));
    let (sent, _) = play(&config, GET, |_| pushback(GrpcCode::Unavailable, 980));
    assert_eq!(sent, [0, 990]);
}

/// A call whose head came after `head` ms and whose status came after a second.
fn late(dependency: &mut Dependency, params: &StackParams, begin: u64, head: u64, ended: GrpcCode) {
    let mut rng = SplitMix64::new(1);
    let admitted = dependency.admit(at(begin), params, 0, at(60_000), |_| false, &mut rng);
    let Admitted::Permit(mut permit) = admitted else { panic!("{admitted:?}") };
    permit.mark_sent();
    let opened = Outcome::of_status(200, AnswerSignals::NONE).awaiting_status();
    dependency.record(at(begin + head), params, &mut permit, &opened, &mut rng);
    assert!(!permit.is_recorded());
    let outcome = Outcome::of_grpc(ended, AnswerSignals::NONE);
    let end = at(begin + head + 1_000);
    dependency.record_status(end, params, &mut permit, &outcome, &mut rng);
    assert!(permit.is_recorded());
    dependency.release(end, params, permit);
}

fn judged() -> (Dependency, StackParams) {
    let breaker = BreakerOptions { slow: Some(millis(500)), ..BreakerOptions::default() };
    let budget = SuccessBudget { initial: 0, ..SuccessBudget::default() };
    let config = StackConfig {
        breaker: Some(breaker),
        budget: Some(budget.into()),
        ..StackConfig::default()
    };
    (Dependency::new(1, 1), StackParams::new(&config).unwrap())
}

fn state(dependency: &Dependency, params: &StackParams) -> BreakerState {
    dependency.endpoint_view(at(3_000), params, 0, 0).unwrap().breaker
}

#[test]
fn a_status_after_the_head_is_the_outcome_and_the_time_is_the_heads() {
    for (head, ended, expected) in [
        (10, GrpcCode::Ok, BreakerState::Closed),
        (10, GrpcCode::NotFound, BreakerState::Closed),
        (10, GrpcCode::Unavailable, BreakerState::Open),
        (600, GrpcCode::Ok, BreakerState::Open),
    ] {
        let (mut dependency, params) = judged();
        for n in 0..20 {
            late(&mut dependency, &params, n, head, ended);
        }
        assert_eq!(state(&dependency, &params), expected, "{head} {ended:?}");
        let earned = dependency.budget_millitokens().unwrap_or(0);
        let pays = ended != GrpcCode::Unavailable;
        assert_eq!(earned, if pays { 2_000 } else { 0 }, "{head} {ended:?}");
    }
}

#[test]
fn a_stream_that_was_recorded_is_recorded_again_only_if_it_ends_badly() {
    let opened = Outcome::of(Cause::Answered);
    for (ended, failures) in [(GrpcCode::Ok, 0), (GrpcCode::Unavailable, 1)] {
        let (mut dependency, params) = judged();
        let mut rng = SplitMix64::new(1);
        let admitted = dependency.admit(at(0), &params, 0, at(60_000), |_| false, &mut rng);
        let Admitted::Permit(mut permit) = admitted else { panic!("{admitted:?}") };
        permit.mark_sent();
        dependency.record(at(1), &params, &mut permit, &opened, &mut rng);
        let outcome = Outcome::of_grpc(ended, AnswerSignals::NONE);
        dependency.record_status(at(900), &params, &mut permit, &outcome, &mut rng);
        dependency.release(at(900), &params, permit);
        let counts = dependency.endpoint_view(at(900), &params, 0, 0).unwrap().counts;
        assert_eq!((counts.calls, counts.failures), (1 + failures, failures), "{ended:?}");
    }
}

#[test]
fn a_call_that_leaves_before_its_status_says_nothing() {
    let (mut dependency, params) = judged();
    let mut rng = SplitMix64::new(1);
    let admitted = dependency.admit(at(0), &params, 0, at(60_000), |_| false, &mut rng);
    let Admitted::Permit(mut permit) = admitted else { panic!("{admitted:?}") };
    permit.mark_sent();
    let opened = Outcome::of_status(200, AnswerSignals::NONE).awaiting_status();
    dependency.record(at(1), &params, &mut permit, &opened, &mut rng);
    dependency.release(at(2), &params, permit);
    let view = dependency.endpoint_view(at(2), &params, 0, 0).unwrap();
    assert_eq!((view.counts.calls, view.in_flight), (0, 0));
    assert_eq!(dependency.budget_millitokens().unwrap_or(0), 0);
}
