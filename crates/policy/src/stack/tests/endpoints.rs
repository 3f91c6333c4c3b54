//! Which endpoints take the attempts: by standing, by load, and after a return.

use alloc::vec::Vec;

use super::retrying;
use super::sim::{GET, Sent, Sim, at, millis, status, unsent};
use crate::balance::{Balance, SlowStartOptions};
use crate::breaker::BreakerOptions;
use crate::outcome::Cause;
use crate::stack::{StackConfig, Standing};

/// Attempts of each endpoint in `from..to`, in milliseconds.
pub(super) fn shares(sim: &Sim, endpoints: usize, from: u64, to: u64) -> Vec<usize> {
    let count = |endpoint| {
        let within =
            |sent: &&Sent| sent.endpoint == endpoint && (at(from)..at(to)).contains(&sent.at);
        sim.sent.iter().filter(within).count()
    };
    (0..endpoints).map(count).collect()
}

fn standing(sim: &Sim, endpoint: usize) -> Standing {
    sim.dependency.endpoint_view(sim.now, &sim.params, endpoint, 0).unwrap().standing
}

#[test]
fn an_unhealthy_endpoint_gets_nothing_while_another_may_be_used() {
    let mut sim = Sim::new(&retrying(1), 3, 1, |_| status(10, 200));
    sim.dependency.set_health(at(0), 1, false);
    sim.load(300, 0, 1_000, GET);
    sim.run_until(1_000);
    let shares = shares(&sim, 3, 0, 1_000);
    assert_eq!((shares[1], shares.iter().sum()), (0, 300));
    assert!(shares[0].abs_diff(shares[2]) < 40, "{shares:?}");
    assert_eq!(standing(&sim, 1), Standing::Unhealthy);
    assert_eq!(standing(&sim, 0), Standing::Available);
    sim.dependency.set_health(sim.now, 9, false);
}

#[test]
fn where_all_are_unhealthy_all_get_traffic() {
    let mut sim = Sim::new(&retrying(1), 3, 1, |_| status(10, 200));
    for endpoint in 0..3 {
        sim.dependency.set_health(at(0), endpoint, false);
    }
    sim.load(300, 0, 1_000, GET);
    sim.run_until(1_000);
    assert!(shares(&sim, 3, 0, 1_000).iter().all(|share| (70..130).contains(share)));
    // One is well again: it has all of it.
    sim.dependency.set_health(sim.now, 2, true);
    sim.load(300, 1_000, 2_000, GET);
    sim.run_until(2_000);
    assert_eq!(shares(&sim, 3, 1_000, 2_000), [0, 0, 300]);
}

#[test]
fn where_no_breaker_of_the_healthy_admits_an_unhealthy_one_is_better_than_none() {
    let breaker = Some(BreakerOptions::default());
    let sick = |sent: &Sent| status(1, if sent.endpoint == 0 { 503 } else { 200 });
    let mut sim = Sim::new(&StackConfig { breaker, ..retrying(1) }, 2, 1, sick);
    sim.dependency.set_health(at(0), 1, false);
    sim.load(100, 0, 1_000, GET);
    sim.run_until(1_000);
    let shares = shares(&sim, 2, 0, 1_000);
    assert_eq!(shares.iter().sum::<usize>(), 100, "nothing is rejected: {shares:?}");
    assert!(shares[0] <= 25, "{shares:?}");
}

#[test]
fn a_retry_prefers_a_good_endpoint_it_has_tried_and_a_redispatch_a_bad_one_it_has_not() {
    // Of two endpoints one is unhealthy, and would answer.
    let first_fails = |sent: &Sent| status(1, if sent.number == 1 { 503 } else { 200 });
    let mut retried = Sim::new(&retrying(2), 2, 1, first_fails);
    retried.dependency.set_health(at(0), 1, false);
    retried.call_at(at(0), GET);
    retried.run_until(10_000);
    let went: Vec<_> = retried.sent.iter().map(|sent| sent.endpoint).collect();
    assert_eq!(went, [0, 0]);

    let first_refuses = |sent: &Sent| match sent.endpoint {
        0 => unsent(1, Cause::ConnectRefused),
        _ => status(1, 200),
    };
    let mut moved = Sim::new(&retrying(2), 2, 1, first_refuses);
    moved.dependency.set_health(at(0), 1, false);
    moved.call_at(at(0), GET);
    moved.run_until(10_000);
    let went: Vec<_> = moved.sent.iter().map(|sent| sent.endpoint).collect();
    assert_eq!(went, [0, 1]);
    assert_eq!(moved.done(0).outcome.cause(), Cause::Status(200));
}

#[test]
fn an_endpoint_that_is_well_again_gets_a_growing_part_of_its_share() {
    let slow_start = Some(SlowStartOptions::default());
    let config = StackConfig { slow_start, ..retrying(1) };
    let mut sim = Sim::new(&config, 10, 1, |_| status(1, 200));
    sim.load(1_000, 0, 60_000, GET);
    sim.dependency.set_health(at(0), 3, false);
    sim.run_until(10_000);
    assert_eq!(shares(&sim, 10, 0, 10_000)[3], 0);
    sim.dependency.set_health(sim.now, 3, true);
    sim.run_until(60_000);
    let share = |from, to| shares(&sim, 10, from, to)[3] as u64 * 1000 / (to - from);
    // Of 1,000/s its share is a hundred: ten at first, fifty in the middle, all after 30 s.
    assert!((5..20).contains(&share(10_000, 13_000)), "{}", share(10_000, 13_000));
    assert!((40..60).contains(&share(24_000, 26_000)), "{}", share(24_000, 26_000));
    assert!((90..110).contains(&share(41_000, 60_000)), "{}", share(41_000, 60_000));
}

#[test]
fn without_slow_start_and_where_all_are_new_the_share_is_whole_at_once() {
    let mut sim = Sim::new(&retrying(1), 4, 1, |_| status(1, 200));
    sim.dependency.set_health(at(0), 3, false);
    sim.dependency.set_health(at(1), 3, true);
    sim.load(1_000, 1, 1_001, GET);
    sim.run_until(2_000);
    assert!((200..300).contains(&shares(&sim, 4, 0, 2_000)[3]));

    let slow_start = Some(SlowStartOptions::default());
    let mut all = Sim::new(&StackConfig { slow_start, ..retrying(1) }, 4, 1, |_| status(1, 200));
    for endpoint in 0..4 {
        all.dependency.set_health(at(0), endpoint, false);
        all.dependency.set_health(at(1), endpoint, true);
    }
    all.load(1_000, 1, 1_001, GET);
    all.run_until(2_000);
    let shares = shares(&all, 4, 0, 2_000);
    assert!(shares.iter().all(|share| (200..300).contains(share)), "{shares:?}");
}

#[test]
fn by_peak_ewma_a_slow_endpoint_is_avoided_and_found_again_when_it_heals() {
    for (balance, most) in [(Balance::PeakEwma, 20), (Balance::LeastRequest, 130)] {
        let slow = |sent: &Sent| {
            let sick = sent.endpoint == 0 && sent.at < at(20_000);
            status(if sick { 200 } else { 10 }, 200)
        };
        let mut sim = Sim::new(&StackConfig { balance, ..retrying(1) }, 10, 1, slow);
        // So little load that calls in flight say next to nothing.
        sim.load(100, 0, 110_000, GET);
        sim.run_until(110_000);
        let sick = shares(&sim, 10, 0, 20_000)[0];
        assert!(sick <= most, "{balance:?}: {sick} of 2000");
        let healed = shares(&sim, 10, 90_000, 110_000)[0];
        assert!((130..270).contains(&healed), "{balance:?}: {healed} of 2000");
    }
}

#[test]
fn an_endpoint_that_fails_fast_is_the_favourite_by_calls_in_flight_and_not_by_peak_ewma() {
    let share = |balance, code| {
        let sick = move |sent: &Sent| match sent.endpoint {
            0 => status(1, code),
            _ => status(50, 200),
        };
        let mut sim = Sim::new(&StackConfig { balance, ..retrying(1) }, 10, 1, sick);
        sim.load(1_000, 0, 20_000, GET);
        sim.run_until(20_000);
        shares(&sim, 10, 0, 20_000)[0] * 100 / 20_000
    };
    assert!(share(Balance::LeastRequest, 503) >= 17);
    for (code, most) in [(503, 1), (500, 1), (429, 1), (404, 19)] {
        let share = share(Balance::PeakEwma, code);
        assert!(share <= most, "{code}: {share} %");
    }
}

#[test]
fn callers_that_leave_teach_that_an_endpoint_is_slow() {
    let slow = |sent: &Sent| status(if sent.endpoint == 0 { 5_000 } else { 10 }, 200);
    let config = StackConfig { balance: Balance::PeakEwma, ..retrying(1) };
    let mut sim = Sim::new(&config, 10, 1, slow);
    let impatient = super::sim::Spec { leaves_after: Some(millis(100)), ..GET };
    sim.load(100, 0, 10_000, impatient);
    sim.run_until(20_000);
    assert!(shares(&sim, 10, 0, 20_000)[0] < 40);
}
