//! The breakers of endpoints and lanes, and the probes they hand out.

use core::time::Duration;

use super::retrying;
use super::sim::{GET, Sent, Sim, Spec, at, lost, millis, status, unsent};
use crate::breaker::{BreakerOptions, BreakerState, Trigger};
use crate::outcome::Cause;
use crate::retry::StopReason;
use crate::rng::SplitMix64;
use crate::stack::{Admitted, Call, StackConfig, StackParams};

const OTHER_LANE: Spec = Spec { call: Call { lane: 1, ..GET.call }, ..GET };

fn config() -> StackConfig {
    StackConfig { breaker: Some(BreakerOptions::default()), ..retrying(1) }
}

fn states(sim: &Sim) -> [BreakerState; 2] {
    [0, 1].map(|lane| sim.dependency.endpoint_view(sim.now, &sim.params, 0, lane).unwrap().breaker)
}

#[test]
fn connect_errors_count_in_every_lane_and_everything_else_in_its_own() {
    for (reply, other) in [
        (unsent(1, Cause::ConnectRefused), BreakerState::Open),
        (unsent(1, Cause::ConnectTimeout), BreakerState::Open),
        (unsent(1, Cause::Dns), BreakerState::Open),
        (unsent(1, Cause::Tls), BreakerState::Open),
        (lost(1, Cause::AttemptTimeout), BreakerState::Closed),
        (lost(1, Cause::Reset), BreakerState::Closed),
        (lost(1, Cause::Closed), BreakerState::Closed),
        (status(1, 502), BreakerState::Closed),
        (status(1, 503), BreakerState::Closed),
        (status(1, 504), BreakerState::Closed),
    ] {
        let mut sim = Sim::new(&config(), 1, 2, move |_| reply);
        sim.load(20, 0, 1_000, GET);
        sim.run_until(1_000);
        assert_eq!(states(&sim), [BreakerState::Open, other], "{:?}", reply.outcome.cause());
    }
    for code in [200, 400, 404, 429, 500, 501] {
        let mut sim = Sim::new(&config(), 1, 2, move |_| status(1, code));
        sim.load(100, 0, 1_000, GET);
        sim.run_until(2_000);
        assert_eq!(states(&sim), [BreakerState::Closed; 2], "{code}");
    }
}

#[test]
fn an_upstream_is_open_for_a_lane_only_when_all_its_endpoints_are() {
    let sick = |sent: &Sent| status(1, if sent.endpoint == 0 { 503 } else { 200 });
    let mut sim = Sim::new(&config(), 2, 2, sick);
    sim.load(100, 0, 2_000, GET);
    sim.run_until(2_000);
    let first = sim.dependency.pop_transition().unwrap();
    assert_eq!((first.endpoint, first.lane), (0, 0));
    let open = first.at..first.at.after(millis(1_400));
    let mut during = sim.sent.iter().filter(|sent| open.contains(&sent.at));
    assert!(during.all(|sent| sent.endpoint == 1), "the other takes all");
    assert_eq!(sim.dependency.counters().breaker_rejections, 0);

    let mut sim = Sim::new(&config(), 2, 2, |_| status(1, 503));
    sim.load(100, 0, 2_000, GET);
    sim.run_until(1_990);
    let open = sim.dependency.counters().breaker_rejections;
    assert!(open > 0);
    sim.call_at(at(1_995), OTHER_LANE);
    sim.run_until(2_000);
    let (_, done) = sim.ended().last().unwrap();
    assert_eq!(done.outcome.cause(), Cause::Status(503), "the other lane is sent");
}

#[test]
fn a_rejection_names_the_first_endpoint_to_come_back_and_probing_asks_for_the_first_open_time() {
    let mut sim = Sim::new(&config(), 1, 1, |sent: &Sent| match sent.at {
        early if early < at(1_000) => status(1, 503),
        // Probes that hang.
        _ => super::sim::hangs(),
    });
    sim.load(20, 0, 1_000, GET);
    sim.call_at(at(1_000), GET);
    sim.run_until(1_000);
    let (_, done) = sim.ended().last().unwrap();
    let open_until =
        sim.dependency.endpoint_view(sim.now, &sim.params, 0, 0).unwrap().open_until.unwrap();
    assert_eq!(done.stop, StopReason::BreakerOpen);
    assert_eq!(done.retry_after, Some(at(1_000).until(open_until)));
    sim.load(20, 4_000, 4_500, GET);
    sim.run_until(4_500);
    let (_, done) = sim.ended().last().unwrap();
    assert_eq!(done.stop, StopReason::BreakerOpen, "five probes are out");
    assert_eq!(done.retry_after, Some(millis(2_000)));
}

/// A dependency with one endpoint whose breaker is half-open at 10 s with all probes free.
fn half_open() -> Sim {
    let mut sim = Sim::new(&config(), 1, 2, |_| status(1, 503));
    sim.load(20, 0, 1_000, GET);
    sim.run_until(10_000);
    sim.dependency.handle_timeout(sim.now, &sim.params);
    assert_eq!(states(&sim)[0], BreakerState::HalfOpen);
    sim
}

#[test]
fn a_permit_dropped_unsent_gives_its_probe_back() {
    let mut sim = half_open();
    let mut rng = SplitMix64::new(5);
    let params = sim.params.clone();
    for _ in 0..100 {
        let mut permits = alloc::vec::Vec::new();
        while let Admitted::Permit(permit) =
            sim.dependency.admit(sim.now, &params, 0, at(20_000), |_| false, &mut rng)
        {
            permits.push(permit);
        }
        assert_eq!(permits.len(), 5);
        for (n, permit) in permits.into_iter().enumerate() {
            if n % 2 == 0 {
                sim.dependency.release(sim.now, &params, permit);
            } else {
                assert!(sim.dependency.abandon(sim.now, &params, permit, &mut rng).is_none());
            }
        }
    }
    let view = sim.dependency.endpoint_view(at(0), &params, 0, 0).unwrap();
    assert_eq!((view.in_flight, view.breaker), (0, BreakerState::HalfOpen));
}

#[test]
fn probes_that_say_nothing_come_back_too() {
    let mut sim = half_open();
    let mut probing = Sim::new(&config(), 1, 2, |_| unsent(1, Cause::CheckoutTimeout));
    core::mem::swap(&mut probing.dependency, &mut sim.dependency);
    probing.load(100, 10_000, 12_000, GET);
    probing.run_until(12_500);
    let stops = probing.ended().filter(|(_, done)| done.stop == StopReason::CheckoutTimeout);
    assert_eq!(stops.count(), 200, "none was rejected for want of a probe");
}

#[test]
fn an_unreachable_endpoint_ends_the_half_open_of_other_lanes_on_the_record() {
    let mut sim = Sim::new(&config(), 1, 2, |sent: &Sent| match sent.at {
        early if early < at(1_000) => status(1, 503),
        _ => unsent(1, Cause::ConnectRefused),
    });
    sim.load(20, 0, 1_000, GET);
    // The open time of lane 0 is over, and nobody has looked since.
    sim.call_at(at(5_000), OTHER_LANE);
    sim.run_until(5_100);
    let log: alloc::vec::Vec<_> = core::iter::from_fn(|| sim.dependency.pop_transition())
        .map(|logged| (logged.lane, logged.transition.trigger))
        .collect();
    let run = Trigger::ConsecutiveFailures;
    assert_eq!(log.len(), 3, "{log:?}");
    assert!(log[0] == (0, run) || log[0] == (0, Trigger::FailureRatio), "{log:?}");
    assert_eq!(log[1..], [(0, Trigger::Timer), (0, Trigger::Unreachable)]);
}

#[test]
fn a_wait_for_our_own_pool_is_not_the_dependencys_slowness_but_a_hang_after_it_is() {
    let breaker = BreakerOptions { slow: Some(millis(100)), min_calls: 1, ..Default::default() };
    let params = StackParams::new(&StackConfig { breaker: Some(breaker), ..config() }).unwrap();
    let mut dependency = crate::stack::Dependency::new(1, 1);
    let mut rng = SplitMix64::new(5);
    let admitted = dependency.admit(at(0), &params, 0, at(9_000), |_| false, &mut rng);
    let Admitted::Permit(mut permit) = admitted else { panic!("admitted") };
    assert_eq!(permit.slow_at(), at(100));
    dependency.on_slow(at(100), &params, &mut permit, &mut rng);
    assert_eq!(permit.slow_at(), at(200), "asked about again");
    assert!(dependency.pop_transition().is_none());
    permit.restart(at(150), &params);
    permit.mark_sent();
    assert_eq!(permit.slow_at(), at(250));
    dependency.on_slow(at(250), &params, &mut permit, &mut rng);
    let opened = dependency.pop_transition().unwrap();
    assert_eq!(opened.transition.trigger, Trigger::SlowRatio);
    assert_eq!(permit.slow_at(), crate::time::Timestamp::MAX);
    dependency.release(at(260), &params, permit);
}

#[test]
fn at_most_the_latest_256_transitions_wait_to_be_collected() {
    let mut rng = SplitMix64::new(5);
    let breaker = BreakerOptions {
        min_calls: 1,
        open_base: Duration::from_millis(1),
        open_cap: Duration::from_millis(1),
        ..Default::default()
    };
    let params = StackParams::new(&StackConfig { breaker: Some(breaker), ..config() }).unwrap();
    let mut dependency = crate::stack::Dependency::new(1, 1);
    for n in 0..300 {
        let now = at(n * 10);
        let Admitted::Permit(mut permit) =
            dependency.admit(now, &params, 0, at(100_000), |_| false, &mut rng)
        else {
            panic!("the open time is over")
        };
        permit.mark_sent();
        let outcome = crate::outcome::Outcome::of(Cause::Reset);
        dependency.record(now, &params, &mut permit, &outcome, &mut rng);
        dependency.release(now, &params, permit);
    }
    let kept = core::iter::from_fn(|| dependency.pop_transition()).count();
    assert_eq!(kept, 256);
}
