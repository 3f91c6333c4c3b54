//! Endpoints that are worse than the others, seen from the calls: what the shows claim, on virtual
//! time.

use alloc::vec::Vec;
use core::time::Duration;

use super::endpoints::shares;
use super::retrying;
use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, millis, status};
use crate::balance::{Balance, SlowStartOptions};
use crate::breaker::{BreakerOptions, BreakerState};
use crate::outcome::Cause;
use crate::outlier::{EjectionReason, OutlierOptions, Verdict};
use crate::ratio::Ratio;
use crate::stack::{StackConfig, Standing};

const RATE: u64 = 300;

fn ejecting(max_attempts: u32) -> StackConfig {
    StackConfig {
        outlier: Some(OutlierOptions::default()),
        breaker: Some(BreakerOptions::default()),
        ..retrying(max_attempts)
    }
}

/// Service around ten milliseconds, the same for all endpoints: from 5 to 15, one in fifty 60.
fn service(sent: &Sent) -> u64 {
    let word = sent.at.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    if word.is_multiple_of(50) { 60 } else { 5 + word % 11 }
}

/// The 99th percentile of the calls that began in `from..to`, in milliseconds. Every reply of
/// these simulations takes as long as its service, so the script tells it.
fn p99(sim: &Sim, from: u64, to: u64, took: impl Fn(&Sent) -> u64) -> u64 {
    let within = |sent: &&Sent| (at(from)..at(to)).contains(&sent.at);
    let mut times: Vec<_> = sim.sent.iter().filter(within).map(took).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

fn standing(sim: &Sim, endpoint: usize) -> Standing {
    sim.dependency.endpoint_view(sim.now, &sim.params, endpoint, 0).unwrap().standing
}

/// The most that were out at once, by the log.
fn most_out(sim: &mut Sim) -> usize {
    let mut out = alloc::collections::BTreeSet::new();
    let mut most = 0;
    while let Some(logged) = sim.dependency.pop_verdict() {
        match logged.verdict {
            Verdict::Ejected(..) => out.insert(logged.endpoint),
            Verdict::Returned => out.remove(&logged.endpoint),
        };
        most = most.max(out.len());
    }
    most
}

#[test]
fn one_of_ten_twenty_times_slower_has_two_percent_after_ten_seconds_and_its_share_after_healing() {
    for balance in [Balance::LeastRequest, Balance::PeakEwma] {
        // Slow from 20 s to 50 s.
        let took = |sent: &Sent| {
            let sick = sent.endpoint == 4 && (at(20_000)..at(50_000)).contains(&sent.at);
            service(sent) * if sick { 20 } else { 1 }
        };
        let slow_start = Some(SlowStartOptions {
            window: Duration::from_secs(10),
            ..SlowStartOptions::default()
        });
        let config = StackConfig { balance, slow_start, ..ejecting(1) };
        let mut sim = Sim::new(&config, 10, 1, move |sent: &Sent| status(took(sent), 200));
        sim.load(RATE, 0, 130_000, GET);
        sim.run_until(20_000);
        let baseline = p99(&sim, 0, 20_000, took);
        sim.run_until(30_000);
        // By peak EWMA it has no calls by which to be judged.
        let ejected = u64::from(balance == Balance::LeastRequest);
        assert_eq!(sim.dependency.ejections(), [0, ejected, 0], "{balance:?}");
        sim.run_until(130_000);
        let sick = shares(&sim, 10, 30_000, 50_000)[4];
        assert!(sick as u64 * 50 <= 20 * RATE, "{balance:?}: {sick} of {}", 20 * RATE);
        let during = p99(&sim, 30_000, 50_000, took);
        assert!(during <= 2 * baseline, "{balance:?}: {during} ms after {baseline} ms");
        // Sixty seconds after healing it has 8 % and more.
        let healed = shares(&sim, 10, 110_000, 130_000)[4];
        assert!(healed as u64 * 100 >= 8 * 20 * RATE, "{balance:?}: {healed}");
        let [failures, slow, probes] = sim.dependency.ejections();
        assert_eq!((failures, slow), (0, ejected), "{balance:?}: {probes}");
        assert!(probes <= 2, "{balance:?}: {probes}");
        assert_eq!(most_out(&mut sim) as u64, ejected, "the others never");
    }
}

#[test]
fn all_ten_slow_eject_at_most_the_set_share_and_cost_no_goodput() {
    let goodput = |outlier| {
        // Each in its own degree: 15 to 24 times as slow, from 10 s on.
        let slow = |sent: &Sent| {
            let factor = if sent.at < at(10_000) { 1 } else { 15 + sent.endpoint as u64 };
            status(service(sent) * factor, 200)
        };
        let config = StackConfig { outlier, attempt_timeout: Some(millis(2_000)), ..ejecting(1) };
        let mut sim = Sim::new(&config, 10, 1, slow);
        sim.load(RATE, 0, 60_000, GET);
        sim.run_until(70_000);
        let good = sim.ended().filter(|(_, done)| done.outcome.cause() == Cause::Status(200));
        (good.count(), most_out(&mut sim))
    };
    let (without, _) = goodput(None);
    let (with, out) = goodput(Some(OutlierOptions::default()));
    assert!(out <= 5, "{out}");
    assert!(with * 100 >= without * 99, "{with} and {without}");
    assert_eq!(out, 0, "none differs enough from the rest");
}

#[test]
fn one_of_ten_that_fails_is_ejected_and_no_call_fails() {
    for kind in [503, 500] {
        let sick = move |sent: &Sent| {
            let code = if sent.endpoint == 7 && sent.at >= at(5_000) { kind } else { 200 };
            status(service(sent), code)
        };
        let config = StackConfig { breaker: None, ..ejecting(2) };
        let mut sim = Sim::new(&config, 10, 1, sick);
        sim.load(RATE, 0, 60_000, GET);
        sim.run_until(70_000);
        if kind == 503 {
            let failed = sim.ended().filter(|(_, done)| done.outcome.cause() != Cause::Status(200));
            assert_eq!(failed.count(), 0, "retries hide what is left");
        }
        let late = shares(&sim, 10, 15_000, 60_000)[7];
        assert!(late <= 30, "probes alone: {late} of {}", 45 * RATE);
        assert_eq!(sim.dependency.ejections()[EjectionReason::Failures as usize], 1);
        assert_eq!(most_out(&mut sim), 1);
    }
}

#[test]
fn one_of_ten_shards_behind_one_name_opens_nothing_and_the_other_nine_succeed() {
    // Every tenth call asks for the shard that is down, on any endpoint.
    for endpoints in [1, 3] {
        let sick = |sent: &Sent| {
            status(service(sent), if sent.call.is_multiple_of(10) { 503 } else { 200 })
        };
        let mut sim = Sim::new(&ejecting(2), endpoints, 1, sick);
        sim.load(RATE, 0, 60_000, GET);
        sim.run_until(70_000);
        let harmed = |(call, done): &(usize, crate::stack::Done)| {
            !call.is_multiple_of(10) && done.outcome.cause() != Cause::Status(200)
        };
        assert_eq!(sim.ended().filter(harmed).count(), 0);
        assert!(sim.dependency.pop_transition().is_none(), "no breaker moved");
        assert_eq!(sim.dependency.ejections(), [0; 3]);
    }
}

#[test]
fn an_endpoint_that_hangs_is_seen_by_the_age_of_its_calls() {
    // No attempt timeout, so nothing but age speaks.
    let sick = |sent: &Sent| -> Reply {
        if sent.endpoint == 0 && sent.at >= at(10_000) { hangs() } else { status(10, 200) }
    };
    let config = StackConfig { outlier: Some(OutlierOptions::default()), ..retrying(1) };
    let mut sim = Sim::new(&config, 3, 1, sick);
    sim.load(RATE, 0, 10_000, GET);
    // Their callers leave, so few are in flight.
    let impatient = Spec { leaves_after: Some(millis(500)), ..GET };
    sim.load(RATE, 10_000, 60_000, impatient);
    sim.run_until(30_000);
    assert_eq!(standing(&sim, 0), Standing::Ejected);
    assert_eq!(sim.dependency.ejections()[..2], [0, 1]);
    sim.run_until(60_000);
    let share = shares(&sim, 3, 30_000, 60_000)[0];
    assert!(share <= 20, "{share}");
}

#[test]
fn of_two_endpoints_with_one_call_at_a_time_the_slow_one_is_ejected() {
    let sick = |sent: &Sent| {
        status(if sent.endpoint == 1 && sent.at >= at(20_000) { 100 } else { 5 }, 200)
    };
    let mut sim = Sim::new(&ejecting(1), 2, 1, sick);
    // Ten calls a second: nothing is ever in flight when the next begins.
    sim.load(9, 0, 120_000, GET);
    sim.run_until(60_000);
    assert_eq!(sim.dependency.ejections()[EjectionReason::Slow as usize], 1);
    assert_eq!(standing(&sim, 0), Standing::Available);
    sim.run_until(120_000);
    let share = shares(&sim, 2, 60_000, 120_000)[1];
    assert!(share <= 54, "{share}");
}

#[test]
fn a_slow_route_beside_a_fast_one_makes_no_outlier() {
    // Two lanes of very different length on the same endpoints.
    let by_route = |sent: &Sent| {
        let factor = if sent.call.is_multiple_of(2) { 1 } else { 40 };
        status(service(sent) * factor, 200)
    };
    let mut sim = Sim::new(&ejecting(1), 4, 2, by_route);
    let other = Spec { call: crate::stack::Call { lane: 1, ..GET.call }, ..GET };
    for n in 0..6_000 {
        sim.call_at(at(10 * n), GET);
        sim.call_at(at(10 * n + 5), other);
    }
    sim.run_until(70_000);
    assert_eq!(sim.dependency.ejections(), [0; 3]);
}

#[test]
fn ejection_and_breakers_together_leave_the_good_ones_and_never_reject_while_one_is_good() {
    let sick = |sent: &Sent| {
        status(service(sent), if sent.endpoint < 2 && sent.at > at(5_000) { 503 } else { 200 })
    };
    let mut sim = Sim::new(&ejecting(2), 4, 1, sick);
    sim.load(RATE, 0, 60_000, GET);
    sim.run_until(70_000);
    assert_eq!(sim.dependency.counters().breaker_rejections, 0);
    let failed: Vec<_> = sim
        .ended()
        .filter(|(_, done)| done.outcome.cause() != Cause::Status(200))
        .map(|(call, _)| call)
        .collect();
    // A sixth of the calls meets both while they are found out.
    assert!(failed.len() as u64 <= 4 * RATE / 6, "{}", failed.len());
    assert!(failed.iter().all(|call| (*call as u64) < 10 * RATE), "none later");
    for good in [2, 3] {
        let view = sim.dependency.endpoint_view(sim.now, &sim.params, good, 0).unwrap();
        assert_eq!((view.breaker, view.standing), (BreakerState::Closed, Standing::Available));
    }
}

#[test]
fn where_the_good_endpoints_breakers_are_open_an_ejected_one_is_better_than_none() {
    // One is slow and out; then the other fails.
    let turns = |sent: &Sent| match (sent.endpoint, sent.at) {
        (0, early) if early >= at(5_000) => status(200, 200),
        (1, late) if late >= at(20_000) => status(10, 503),
        _ => status(10, 200),
    };
    let mut sim = Sim::new(&ejecting(1), 2, 1, turns);
    sim.load(100, 0, 40_000, GET);
    sim.run_until(15_000);
    assert_ne!(standing(&sim, 0), Standing::Available);
    sim.run_until(50_000);
    assert_eq!(sim.dependency.counters().breaker_rejections, 0);
    let late =
        sim.ended().skip(2_300).filter(|(_, done)| done.outcome.cause() == Cause::Status(200));
    assert!(late.count() >= 1_500);
}

#[test]
fn switched_off_it_ejects_nobody_and_takes_back_its_probes() {
    let sick = |sent: &Sent| status(10, if sent.endpoint == 0 { 503 } else { 200 });
    let on = StackConfig { breaker: None, ..ejecting(1) };
    let mut sim = Sim::new(&on, 4, 1, sick);
    sim.load(100, 0, 60_000, GET);
    sim.run_until(10_000);
    assert_eq!(standing(&sim, 0), Standing::Ejected);
    sim.reload_at(at(10_000), &StackConfig { outlier: None, ..on });
    sim.run_until(20_000);
    assert_eq!(standing(&sim, 0), Standing::Available);
    assert!(shares(&sim, 4, 10_000, 20_000)[0] > 150);
    // On again: it goes on where it was, and probes are to be had.
    sim.reload_at(at(20_000), &on);
    sim.run_until(60_000);
    assert!(sim.dependency.ejections()[EjectionReason::Probes as usize] >= 1);
    assert!(shares(&sim, 4, 25_000, 60_000)[0] <= 30);
}

#[test]
fn with_a_share_of_one_in_ten_the_second_sick_endpoint_stays() {
    let outlier =
        Some(OutlierOptions { max_ejected: Ratio::from_percent(10), ..OutlierOptions::default() });
    let sick = |sent: &Sent| status(10, if sent.endpoint < 2 { 500 } else { 200 });
    let mut sim = Sim::new(&StackConfig { outlier, ..ejecting(1) }, 10, 1, sick);
    sim.load(RATE, 0, 20_000, GET);
    sim.run_until(20_000);
    assert_eq!(most_out(&mut sim), 1);
}

#[test]
fn at_most_the_latest_256_verdicts_wait_to_be_collected() {
    let brief = OutlierOptions {
        interval: millis(1),
        ejection_base: millis(1),
        ejection_cap: millis(1),
        probes: 1,
        ..OutlierOptions::default()
    };
    let config = StackConfig { outlier: Some(brief), ..retrying(1) };
    let sick = |sent: &Sent| status(1, if sent.endpoint == 0 { 500 } else { 200 });
    let mut sim = Sim::new(&config, 2, 1, sick);
    sim.load(1_000, 0, 4_000, GET);
    sim.run_until(5_000);
    let all: u64 = sim.dependency.ejections().iter().sum();
    assert!(all > 256, "{all}");
    assert_eq!(sim.dependency.uncollected_verdicts(), (256, 256));
    assert!(sim.dependency.pop_verdict().unwrap().at > at(1_000), "the oldest are dropped");
}
