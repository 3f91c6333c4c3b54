//! Hedges: when one goes, which answer counts, what it costs, and that all of it comes back.

use alloc::vec::Vec;

use super::sim::{
    GET, Reply, Sent, Sim, Spec, at, hangs, lost, millis, ms, signals, status, unsent,
};
use super::{check, retrying};
use crate::budget::{BudgetOptions, SuccessBudget};
use crate::bulkhead::BulkheadOptions;
use crate::hedge::{HedgeDelay, HedgeOptions, HedgeRefusal};
use crate::outcome::{AnswerSignals, Cause, Safety};
use crate::ratio::Ratio;
use crate::retry::StopReason;
use crate::retry_after::RetryAfter;
use crate::stack::{Call, Done, StackConfig};

mod tail;

const POST: Spec = Spec { call: Call { safety: Safety::Unsafe, ..GET.call }, ..GET };
const KEYED: Spec = Spec { call: Call { safety: Safety::Keyed, ..GET.call }, ..GET };

/// After 20 ms, whatever it costs.
const FREE: HedgeOptions = HedgeOptions {
    delay: HedgeDelay::Fixed(millis(20)),
    delay_min: millis(1),
    max_extra: Ratio::ONE,
    max_load: Ratio::ONE,
    same_endpoint: false,
};

fn hedging(hedge: HedgeOptions, max_attempts: u32) -> StackConfig {
    StackConfig { hedge: Some(hedge), ..retrying(max_attempts) }
}

/// Five tokens and no deposits, so that every token is seen.
fn paying(hedge: HedgeOptions) -> StackConfig {
    let budget = SuccessBudget { ratio: Ratio::ZERO, initial: 5, ..SuccessBudget::default() };
    let budget = BudgetOptions::from(budget);
    StackConfig { budget: Some(budget), ..hedging(hedge, 2) }
}

fn tokens(sim: &Sim) -> u64 {
    sim.dependency.budget_millitokens().map_or(5, |tokens| tokens / 1000)
}

/// Hedges that were due and not sent, by their reason.
fn refusals(sim: &Sim) -> Vec<(HedgeRefusal, u64)> {
    let counts = sim.dependency.counters().hedges_refused;
    let all = HedgeRefusal::ALL.into_iter().map(|reason| (reason, counts[reason.index()]));
    all.filter(|(_, count)| *count > 0).collect()
}

/// One call over two endpoints, its first attempt and its hedge as told: how and when it ended.
fn pair(config: &StackConfig, spec: Spec, first: Reply, hedge: Reply) -> (Done, u64, Sim) {
    let script = move |sent: &Sent| if sent.number == 1 { first } else { hedge };
    let mut sim = Sim::new(config, 2, 1, script);
    sim.call_at(at(0), spec);
    for now in 0..2_000 {
        sim.run_until(now);
        let ended = sim.ended().next();
        if let Some((_, done)) = ended {
            return (done, now, sim);
        }
    }
    panic!("it has no end");
}

#[test]
fn a_slow_attempt_is_overtaken_by_one_to_the_other_endpoint_and_given_up() {
    let (done, ended, mut sim) = pair(&paying(FREE), GET, status(500, 200), status(5, 200));
    assert_eq!((done.stop, done.attempts, ended), (StopReason::Answered, 2, 25));
    let sent: Vec<_> = sim.sent.iter().map(|sent| (ms(sent.at), sent.number)).collect();
    assert_eq!(sent, [(0, 1), (20, 2)]);
    assert_ne!(sim.sent[0].endpoint, sim.sent[1].endpoint);
    let counters = *sim.dependency.counters();
    assert_eq!((counters.first_attempts, counters.retries), (1, 0));
    assert_eq!((counters.hedges, counters.hedges_won, counters.abandoned), (1, 1, 1));
    assert_eq!(tokens(&sim), 4, "paid from the retry budget");
    assert_eq!(sim.dependency.held(), 1, "nothing proves that its server has stopped");
    sim.run_until(1_000);
    assert_eq!((sim.dependency.held(), sim.dependency.abandoned()), (0, 0));
    assert!(sim.dependency.pop_transition().is_none());
}

#[test]
fn a_fast_attempt_stays_alone_and_one_that_is_faster_than_its_hedge_wins() {
    let (done, ended, sim) = pair(&paying(FREE), GET, status(19, 200), status(5, 200));
    assert_eq!((done.attempts, ended, tokens(&sim)), (1, 19, 5));
    let (done, ended, sim) = pair(&paying(FREE), GET, status(30, 200), status(50, 200));
    assert_eq!((done.attempts, ended, tokens(&sim)), (2, 30, 4));
    assert_eq!((sim.dependency.counters().hedges, sim.dependency.counters().hedges_won), (1, 0));
}

#[test]
fn the_first_final_answer_counts_and_a_failure_waits_for_the_other_attempt() {
    let ok = || status(50, 200);
    let told = AnswerSignals { stop: true, ..AnswerSignals::default() };
    let says_stop = signals(503, told);
    let config = hedging(FREE, 2);
    for (first, hedge, ends, stop, cause) in [
        (ok(), status(1, 404), 21, StopReason::NotRetryable, Cause::Status(404)),
        (ok(), status(1, 500), 21, StopReason::NotRetryable, Cause::Status(500)),
        (ok(), status(1, 503), 50, StopReason::Answered, Cause::Status(200)),
        (ok(), status(1, 429), 50, StopReason::Answered, Cause::Status(200)),
        (ok(), lost(1, Cause::Reset), 50, StopReason::Answered, Cause::Status(200)),
        (ok(), unsent(1, Cause::ConnectRefused), 50, StopReason::Answered, Cause::Status(200)),
        (ok(), unsent(1, Cause::CheckoutTimeout), 50, StopReason::Answered, Cause::Status(200)),
        (ok(), says_stop, 50, StopReason::Answered, Cause::Status(200)),
        (lost(25, Cause::Closed), ok(), 70, StopReason::Answered, Cause::Status(200)),
        (status(30, 503), ok(), 70, StopReason::Answered, Cause::Status(200)),
        (status(30, 503), status(40, 502), 60, StopReason::Exhausted, Cause::Status(502)),
        (status(60, 503), says_stop, 60, StopReason::ToldToStop, Cause::Status(503)),
    ] {
        let (done, ended, sim) = pair(&config, GET, first, hedge);
        assert_eq!((ended, done.stop, done.outcome.cause()), (ends, stop, cause));
        assert_eq!(sim.sent.len(), 2);
    }
}

#[test]
fn a_conflict_between_two_of_one_key_waits_for_the_one_that_is_under_way() {
    let config = hedging(FREE, 2);
    let (done, ended, _) = pair(&config, KEYED, status(50, 201), status(1, 409));
    assert_eq!((ended, done.outcome.cause()), (50, Cause::Status(201)));
    let (done, ended, _) = pair(&config, GET, status(50, 200), status(1, 409));
    assert_eq!((ended, done.outcome.cause()), (21, Cause::Status(409)), "no key, no such meaning");
    let wait = RetryAfter::Wait(millis(5));
    let asks = signals(409, AnswerSignals { retry_after: wait, ..AnswerSignals::default() });
    let (done, _, _) = pair(&config, KEYED, asks, status(1, 201));
    assert_eq!((done.attempts, done.stop), (2, StopReason::Answered), "a retry, not a hedge");
}

#[test]
fn what_we_refused_ourselves_does_not_stand_for_the_other_attempts_outcome() {
    // The first fails at 30 ms, the hedge never gets a connection: a retry is still due.
    let script = |sent: &Sent| match ms(sent.at) {
        0 => status(30, 503),
        20 => unsent(30, Cause::CheckoutTimeout),
        _ => status(5, 200),
    };
    let mut sim = Sim::new(&paying(FREE), 2, 1, script);
    check(&mut sim, &[(0, GET)]);
    assert_eq!((sim.done(0).stop, sim.done(0).attempts), (StopReason::Answered, 2));
    assert_eq!(ms(sim.sent[2].at), 150, "100 ms after the second had ended");
    let counters = *sim.dependency.counters();
    assert_eq!((counters.hedges, counters.retries, tokens(&sim)), (0, 1, 4));
}

#[test]
fn a_hedge_is_one_of_the_attempts_and_counted_with_them() {
    let script = |_: &Sent| status(30, 503);
    for (max_attempts, expected) in [(2, 2), (3, 3), (4, 4)] {
        let mut sim = Sim::new(&hedging(FREE, max_attempts), 4, 1, script);
        check(&mut sim, &[(0, GET)]);
        let numbers: Vec<_> = sim.sent.iter().map(|sent| sent.number).collect();
        assert_eq!(numbers, (1..=expected).collect::<Vec<_>>());
        assert_eq!((sim.done(0).attempts, sim.done(0).stop), (expected, StopReason::Exhausted));
    }
}

#[test]
fn nothing_is_hedged_that_may_not_be_repeated_or_is_not_ours() {
    let passes = Spec { call: Call { owner: false, ..GET.call }, ..GET };
    for (spec, sent) in [(GET, 2), (KEYED, 2), (POST, 1), (passes, 1)] {
        let (done, _, sim) = pair(&hedging(FREE, 2), spec, status(500, 200), status(5, 200));
        assert_eq!((sim.sent.len(), done.attempts), (sent, u32::try_from(sent).unwrap()));
        assert!(refusals(&sim).is_empty(), "none was due");
    }
}

#[test]
fn every_refusal_has_its_reason_and_costs_nothing() {
    let slow = status(500, 200);
    let refused = |config: &StackConfig, spec: Spec, endpoints: usize| {
        let mut sim = Sim::new(config, endpoints, 1, move |_| slow);
        sim.call_at(at(0), spec);
        sim.run_until(19);
        sim
    };
    let end = |mut sim: Sim| {
        let whole = match sim.params.budget.map(|budget| budget.options()) {
            Some(BudgetOptions::Seawall(options)) => options.initial,
            _ => 0,
        };
        sim.run_until(20);
        let tokens = sim.dependency.budget_millitokens();
        assert!(tokens.is_none_or(|tokens| tokens == u64::from(whole) * 1000));
        assert_eq!(sim.sent.len(), 1);
        refusals(&sim)
    };
    let mut off = refused(&paying(FREE), GET, 2);
    off.dependency.switch_retries_off(at(21));
    assert_eq!(end(off), [(HedgeRefusal::RetriesOff, 1)]);
    let mut fewer = refused(&paying(FREE), GET, 2);
    fewer.params.retry = None;
    assert_eq!(end(fewer), [(HedgeRefusal::Attempts, 1)]);
    let large = Spec { replayable: false, ..GET };
    assert_eq!(end(refused(&paying(FREE), large, 2)), [(HedgeRefusal::Body, 1)]);
    assert_eq!(end(refused(&paying(FREE), GET, 1)), [(HedgeRefusal::Endpoint, 1)]);
    let broke = SuccessBudget { initial: 0, ..SuccessBudget::default() };
    let broke = StackConfig { budget: Some(broke.into()), ..paying(FREE) };
    assert_eq!(end(refused(&broke, GET, 2)), [(HedgeRefusal::Budget, 1)]);
    let rare = HedgeOptions { max_extra: Ratio::from_percent(2), ..FREE };
    assert_eq!(end(refused(&paying(rare), GET, 2)), [(HedgeRefusal::MaxExtra, 1)]);
    let one = |limit, hedge| StackConfig {
        bulkhead: Some(BulkheadOptions { wait: millis(9), ..BulkheadOptions::with_limit(limit) }),
        ..paying(hedge)
    };
    assert_eq!(end(refused(&one(1, FREE), GET, 2)), [(HedgeRefusal::Load, 1)], "1 of 1");
    let half = HedgeOptions { max_load: Ratio::from_percent(50), ..FREE };
    assert_eq!(end(refused(&one(2, half), GET, 2)), [(HedgeRefusal::Load, 1)], "1 of 2");
    let more = HedgeOptions { max_load: Ratio::from_percent(51), ..FREE };
    let mut room = refused(&one(2, more), GET, 2);
    room.run_until(20);
    assert_eq!((room.sent.len(), refusals(&room)), (2, Vec::new()));
    let mut lane = one(3, FREE);
    lane.bulkhead = lane.bulkhead.map(|it| BulkheadOptions { lane_limit: Some(1), ..it });
    assert_eq!(end(refused(&lane, GET, 2)), [(HedgeRefusal::Full, 1)]);
}

#[test]
fn a_hedge_that_would_be_answered_too_late_is_not_sent() {
    let script = |sent: &Sent| status(if ms(sent.at) == 10_000 { 500 } else { 200 }, 200);
    let hedge = HedgeOptions { delay: HedgeDelay::Fixed(millis(250)), ..FREE };
    for (deadline, sent) in [(300, 1), (900, 2)] {
        let mut sim = Sim::new(&hedging(hedge, 2), 2, 1, script);
        sim.load(20, 0, 9_000, GET);
        let call = Call { deadline: Some(at(10_000 + deadline)), ..GET.call };
        sim.call_at(at(10_000), Spec { call, ..GET });
        sim.run_until(12_000);
        assert_eq!(sim.sent.len() - 180, sent, "{deadline}");
        let late = if sent == 1 { Vec::from([(HedgeRefusal::Deadline, 1)]) } else { Vec::new() };
        assert_eq!(refusals(&sim), late);
    }
}

#[test]
fn one_endpoint_is_hedged_only_where_that_is_allowed() {
    let same = HedgeOptions { same_endpoint: true, ..FREE };
    let script = |sent: &Sent| status(if sent.number == 1 { 500 } else { 5 }, 200);
    let mut sim = Sim::new(&hedging(same, 2), 1, 1, script);
    sim.call_at(at(0), GET);
    sim.run_until(25);
    assert_eq!((sim.done(0).attempts, sim.sent.len()), (2, 2));
}

#[test]
fn a_hedge_that_is_never_sent_gives_both_payments_back() {
    let one = HedgeOptions { max_extra: Ratio::from_percent(50), ..FREE };
    let script = |sent: &Sent| match sent.number {
        1 => status(500, 200),
        _ => unsent(900, Cause::CheckoutTimeout),
    };
    for leaves in [true, false] {
        let mut sim = Sim::new(&paying(one), 2, 1, script);
        // Two first attempts earn one hedge; a third tells whether it came back.
        sim.call_at(at(0), Spec { leaves_after: leaves.then(|| millis(100)), ..GET });
        sim.call_at(at(1), POST);
        sim.run_until(50);
        assert_eq!((sim.sent.len(), tokens(&sim)), (3, 4));
        sim.run_until(3_000);
        assert_eq!(tokens(&sim), 5);
        assert_eq!(sim.dependency.counters().hedges, 1, "admitted, and lost before it was sent");
        sim.call_at(at(3_000), GET);
        sim.run_until(3_050);
        assert_eq!(sim.sent.len(), 5, "there was one left to pay with");
    }
}

#[test]
fn a_caller_that_leaves_two_attempts_gives_both_up() {
    for finishes in [true, false] {
        let mut sim = Sim::new(&paying(FREE), 2, 1, |_| hangs());
        sim.call_at(at(0), Spec { leaves_after: Some(millis(50)), finishes, ..GET });
        sim.run_until(60);
        assert_eq!(sim.dependency.abandoned(), 2, "{finishes}");
        assert_eq!(sim.dependency.counters().abandoned, 2);
        sim.hang_up();
        sim.run_until(1_000);
        assert_eq!(sim.dependency.abandoned(), 0);
        assert_eq!(tokens(&sim), 4);
    }
}

#[test]
fn each_of_two_has_its_own_time_and_the_calls_deadline_cuts_both() {
    let timed = StackConfig { attempt_timeout: Some(millis(100)), ..paying(FREE) };
    let (done, ended, _) = pair(&timed, GET, hangs(), hangs());
    assert_eq!((done.stop, done.outcome.cause()), (StopReason::Exhausted, Cause::AttemptTimeout));
    assert_eq!(ended, 120, "the hedge began at 20 ms");
    let (done, ended, _) = pair(&timed, GET, hangs(), status(90, 200));
    assert_eq!((done.stop, ended), (StopReason::Answered, 110), "after the first had timed out");
    let total = StackConfig { total: Some(millis(70)), attempt_timeout: None, ..timed };
    let (done, ended, mut sim) = pair(&total, GET, hangs(), hangs());
    assert_eq!((done.stop, done.attempts, ended), (StopReason::Deadline, 2, 70));
    sim.run_until(2_000);
    assert_eq!((sim.dependency.abandoned(), sim.dependency.held()), (0, 0));
}

#[test]
fn the_delay_is_the_quantile_of_what_the_route_has_seen() {
    // 1 % of the calls take 200 ms, the others 8 ms, in a turn of a hundred.
    let script = |sent: &Sent| status(if sent.call.is_multiple_of(100) { 200 } else { 8 }, 200);
    let hedge = HedgeOptions { max_extra: Ratio::ONE, ..HedgeOptions::default() };
    let mut sim = Sim::new(&hedging(hedge, 2), 2, 2, script);
    sim.load(100, 0, 5_000, GET);
    let other = Spec { call: Call { lane: 1, ..GET.call }, ..GET };
    sim.call_at(at(4_995), other);
    sim.run_until(10_000);
    let waits = |sim: &Sim, call: usize| {
        let of: Vec<_> = sim.sent.iter().filter(|sent| sent.call == call).collect();
        of.get(1).map(|hedge| ms(hedge.at) - ms(of[0].at))
    };
    assert_eq!(waits(&sim, 0), None, "nothing is known");
    let late = waits(&sim, 400).unwrap();
    assert!((8..=10).contains(&late), "{late}: 8 ms, rounded up to its bucket");
    assert_eq!(waits(&sim, 499), None, "answered by then");
    assert!(sim.sent.iter().filter(|sent| sent.call == 500).count() == 1, "another route");
}

#[test]
fn hedges_never_exceed_their_share_of_the_first_attempts() {
    for percent in [1, 2, 5] {
        let max_extra = Ratio::from_percent(percent);
        let hedge = HedgeOptions { max_extra, ..FREE };
        // Every tenth call is slow.
        let script = |sent: &Sent| status(if sent.call % 10 == 3 { 300 } else { 5 }, 200);
        let mut sim = Sim::new(&hedging(hedge, 2), 2, 1, script);
        sim.load(200, 0, 20_000, GET);
        for second in 1..=20 {
            sim.run_until(second * 1_000);
            let counters = *sim.dependency.counters();
            assert!(counters.hedges <= max_extra.of(counters.first_attempts), "{second}");
        }
        let counters = *sim.dependency.counters();
        assert!(counters.hedges + 12 > max_extra.of(counters.first_attempts), "and it is used");
        assert!(refusals(&sim).iter().all(|(reason, _)| *reason == HedgeRefusal::MaxExtra));
    }
}

#[test]
fn options_of_a_hedge_that_can_never_take_effect_are_refused() {
    use alloc::string::ToString;
    let refused = |config: &StackConfig| {
        crate::stack::StackParams::new(config).map_or_else(|e| e.to_string(), |_| "".into())
    };
    for retry in [None, retrying(1).retry] {
        let text = refused(&StackConfig { retry, ..hedging(FREE, 2) });
        assert!(text.contains("hedge") && text.contains("2 or more"), "{text}");
    }
    let timed =
        |millis_| StackConfig { attempt_timeout: Some(millis(millis_)), ..hedging(FREE, 2) };
    assert!(refused(&timed(20)).contains("hedge.delay"), "{}", refused(&timed(20)));
    assert_eq!(refused(&timed(21)), "");
    let late = HedgeOptions { delay_min: millis(50), ..HedgeOptions::default() };
    let total = StackConfig { total: Some(millis(50)), ..hedging(late, 2) };
    assert!(refused(&total).contains("hedge.delay_min"), "{}", refused(&total));
}
