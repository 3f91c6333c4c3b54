//! Endpoints and lanes that come and go under calls in flight.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::retrying;
use super::sim::{GET, Reply, Sent, Sim, Spec, at, hangs, lost, millis, status, unsent};
use crate::breaker::{BreakerOptions, BreakerState};
use crate::budget::BudgetOptions;
use crate::bulkhead::BulkheadOptions;
use crate::outcome::{Cause, Safety};
use crate::stack::{Call, Reshaped, StackConfig};
use crate::time::Timestamp;

fn breaking() -> StackConfig {
    let breaker = BreakerOptions { min_calls: 5, ..BreakerOptions::default() };
    StackConfig { breaker: Some(breaker), ..retrying(1) }
}

fn reshape(sim: &mut Sim, endpoints: &[Option<usize>], lanes: &[Option<usize>]) -> Reshaped {
    sim.dependency.reshape(sim.now, endpoints, lanes, |_| true)
}

fn breaker(sim: &Sim, endpoint: usize, lane: usize) -> BreakerState {
    sim.dependency.endpoint_view(sim.now, &sim.params, endpoint, lane).unwrap().breaker
}

fn in_flight(sim: &Sim, endpoint: usize) -> u32 {
    sim.dependency.endpoint_view(sim.now, &sim.params, endpoint, 0).map_or(0, |it| it.in_flight)
}

#[test]
fn what_stays_keeps_its_number_and_its_state_and_what_is_new_begins_closed() {
    let mut sim = Sim::new(&breaking(), 2, 1, |sent| match sent.endpoint {
        0 => status(1, 503),
        _ => status(1, 200),
    });
    sim.load(100, 0, 500, GET);
    sim.run_until(500);
    assert_eq!(
        (breaker(&sim, 0, 0), breaker(&sim, 1, 0)),
        (BreakerState::Open, BreakerState::Closed)
    );
    let made = reshape(&mut sim, &[None, Some(0), Some(1)], &[Some(0), None]);
    assert_eq!(made, Reshaped { endpoints: vec![2, 0, 1], lanes: vec![0, 1] });
    assert_eq!(breaker(&sim, 0, 0), BreakerState::Open, "as before");
    assert_eq!(breaker(&sim, 0, 1), BreakerState::Closed, "of the new lane");
    assert_eq!(breaker(&sim, 2, 0), BreakerState::Closed, "of the new endpoint");
}

#[test]
fn a_retired_endpoint_is_offered_to_no_call_and_what_is_in_flight_ends_as_ever() {
    let mut sim = Sim::new(&breaking(), 2, 1, |_| status(100, 200));
    sim.load(1_000, 0, 50, GET);
    sim.run_until(50);
    let before = in_flight(&sim, 1);
    assert!(before > 0);
    reshape(&mut sim, &[Some(0)], &[Some(0)]);
    let sent = sim.sent.len();
    sim.load(1_000, 51, 100, GET);
    sim.run_until(100);
    assert!(sim.sent[sent..].iter().all(|sent| sent.endpoint == 0));
    assert_eq!(in_flight(&sim, 1), before);
    sim.run_until(300);
    assert_eq!((in_flight(&sim, 0), in_flight(&sim, 1)), (0, 0));
    assert!(sim.ended().all(|(_, done)| done.outcome.cause() == Cause::Status(200)));
}

#[test]
fn an_endpoint_that_comes_back_is_the_one_it_was() {
    let mut sim = Sim::new(&breaking(), 2, 1, |sent| match sent.endpoint {
        0 => status(1, 503),
        _ => status(1, 200),
    });
    sim.load(100, 0, 500, GET);
    sim.run_until(500);
    reshape(&mut sim, &[Some(1)], &[Some(0)]);
    assert!(!sim.dependency.is_offered(0));
    let made = reshape(&mut sim, &[Some(0), Some(1)], &[Some(0)]);
    assert_eq!(made.endpoints, [0, 1]);
    assert_eq!(breaker(&sim, 0, 0), BreakerState::Open);
}

#[test]
fn all_that_is_left_decides_and_a_retired_endpoint_that_is_well_admits_nothing() {
    let mut sim = Sim::new(&breaking(), 2, 1, |sent| match sent.endpoint {
        0 => status(1, 503),
        _ => status(1, 200),
    });
    sim.load(100, 0, 500, GET);
    sim.run_until(500);
    assert_eq!(breaker(&sim, 0, 0), BreakerState::Open);
    reshape(&mut sim, &[Some(0)], &[Some(0)]);
    sim.call_at(at(501), GET);
    sim.run_until(501);
    let last = sim.ended().last().unwrap().1;
    assert_eq!(last.outcome.cause(), Cause::BreakerOpen);
}

#[test]
fn a_place_is_given_to_another_only_after_a_rest_and_with_nothing_out() {
    let mut sim = Sim::new(&retrying(1), 2, 1, |sent| match sent.endpoint {
        0 => status(90_000, 200),
        _ => status(1, 200),
    });
    sim.load(1_000, 0, 10, GET);
    sim.run_until(10);
    assert!(in_flight(&sim, 0) > 0);
    // Both retired, and one of them with calls in flight.
    assert_eq!(reshape(&mut sim, &[None], &[Some(0)]).endpoints, [2]);
    sim.run_until(60_009);
    assert_eq!(reshape(&mut sim, &[Some(2), None], &[Some(0)]).endpoints, [2, 3], "too soon");
    sim.run_until(60_010);
    let made = reshape(&mut sim, &[Some(2), Some(3), None, None], &[Some(0)]);
    assert_eq!(made.endpoints, [2, 3, 1, 4], "only one has nothing in flight");
    sim.run_until(200_000);
    assert_eq!(reshape(&mut sim, &[None], &[Some(0)]).endpoints, [0]);
    // The edge has the last word.
    sim.run_until(300_000);
    let made = sim.dependency.reshape(sim.now, &[None], &[Some(0)], |index| index == 4);
    assert_eq!(made.endpoints, [4]);
}

#[test]
fn a_retired_lane_serves_its_calls_and_its_waiters_and_is_used_again_after_them() {
    let bulkhead = BulkheadOptions { wait: millis(500), ..BulkheadOptions::with_limit(1) };
    let config = StackConfig { bulkhead: Some(bulkhead), ..retrying(1) };
    let mut sim = Sim::new(&config, 1, 2, |_| status(100, 200));
    let of_lane = Spec { call: Call { lane: 1, ..GET.call }, ..GET };
    sim.call_at(at(0), of_lane);
    sim.call_at(at(1), of_lane);
    sim.run_until(10);
    assert_eq!(reshape(&mut sim, &[Some(0)], &[Some(0), None]).lanes, [0, 2]);
    sim.run_until(400);
    assert_eq!(
        sim.ended().filter(|(_, done)| done.outcome.cause() == Cause::Status(200)).count(),
        2
    );
    sim.run_until(70_000);
    assert_eq!(reshape(&mut sim, &[Some(0)], &[Some(0), Some(2), None]).lanes, [0, 2, 1]);
}

#[test]
fn places_stay_bounded_however_often_everything_is_replaced() {
    let mut sim = Sim::new(&retrying(1), 1, 1, |_| status(1, 200));
    for second in 1..=60_u64 {
        sim.run_until(second * 1_000);
        reshape(&mut sim, &[None; 100], &[None; 10]);
    }
    for step in 0..60_u64 {
        sim.run_until(100_000 + step);
        reshape(&mut sim, &[None; 100], &[None; 10]);
    }
    // Those that are retired and do not rest, those in use, and those of the call before.
    assert!(sim.dependency.endpoint_places() <= 1_300, "{}", sim.dependency.endpoint_places());
}

/// Names that are present by the bits of a number, and where they are. Never none.
#[derive(Debug)]
struct Roster {
    places: Vec<(usize, usize)>,
    /// Where those are that were there once, the latest last.
    gone: Vec<(usize, usize)>,
}

impl Roster {
    fn new(count: usize) -> Self {
        Self { places: (0..count).map(|name| (name, name)).collect(), gone: Vec::new() }
    }

    fn names(bits: u8) -> Vec<usize> {
        let names: Vec<_> = (0..8).filter(|name| bits & (1 << name) != 0).collect();
        if names.is_empty() { vec![0] } else { names }
    }

    fn wanted(&self, bits: u8) -> Vec<Option<usize>> {
        let known = || self.places.iter().chain(self.gone.iter().rev());
        let find = |name: usize| known().find(|(it, _)| *it == name).map(|(_, place)| *place);
        Self::names(bits).into_iter().map(find).collect()
    }

    fn note(&mut self, bits: u8, made: &[usize]) {
        let now: Vec<_> = Self::names(bits).into_iter().zip(made.iter().copied()).collect();
        let left = self.places.iter().filter(|it| !now.contains(it)).copied();
        self.gone.extend(left);
        self.gone.retain(|(_, place)| !made.contains(place));
        self.places = now;
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Call { lane: usize, safety: Safety, leaves_after: Option<u64>, finishes: bool },
    Wait(u64),
    Rest,
    Leave(usize),
    Reshape(u8, u8),
}

fn action() -> impl Strategy<Value = Action> {
    let safety = prop_oneof![Just(Safety::Idempotent), Just(Safety::Keyed), Just(Safety::Unsafe)];
    let call = (0..8_usize, safety, prop::option::of(0..150_u64), any::<bool>());
    prop_oneof![
        8 => call.prop_map(|(lane, safety, leaves_after, finishes)| {
            Action::Call { lane, safety, leaves_after, finishes }
        }),
        4 => (0..80_u64).prop_map(Action::Wait),
        1 => Just(Action::Rest),
        2 => any::<prop::sample::Index>().prop_map(|index| Action::Leave(index.index(64))),
        3 => any::<(u8, u8)>().prop_map(|(endpoints, lanes)| Action::Reshape(endpoints, lanes)),
    ]
}

fn reply(draw: u64) -> Reply {
    let after = draw / 16 % 90;
    match draw % 16 {
        0 => hangs(),
        1 | 2 => unsent(after, Cause::ConnectRefused),
        3 => unsent(after, Cause::CheckoutTimeout),
        4 => lost(after, Cause::Closed),
        5 => status(after, 429),
        6..=8 => status(after, 503),
        9 => status(after + 70_000, 200),
        _ => status(after, 200),
    }
}

fn full() -> StackConfig {
    let breaker = BreakerOptions {
        min_calls: 4,
        open_base: millis(50),
        open_cap: millis(200),
        probe_lease: millis(300),
        ..BreakerOptions::default()
    };
    let bulkhead = BulkheadOptions {
        lane_limit: Some(4),
        wait: millis(20),
        queue: 3,
        ..BulkheadOptions::with_limit(6)
    };
    StackConfig {
        breaker: Some(breaker),
        bulkhead: Some(bulkhead),
        budget: Some(BudgetOptions::default()),
        total: Some(millis(400)),
        ..retrying(3)
    }
}

struct Played {
    sim: Sim,
    /// From when on which places were offered.
    offered: Vec<(Timestamp, Vec<usize>)>,
}

fn play(actions: &[Action], seed: u64) -> Played {
    let draws = move |sent: &Sent| {
        let word = (sent.at.as_nanos() ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        reply((word >> 32) ^ u64::from(sent.number))
    };
    let mut sim = Sim::new(&full(), 2, 2, draws).seeded(seed);
    let (mut endpoints, mut lanes) = (Roster::new(2), Roster::new(2));
    let mut offered = vec![(Timestamp::ZERO, vec![0, 1])];
    let mut clock = 1;
    for action in actions {
        match *action {
            Action::Call { lane, safety, leaves_after, finishes } => {
                let lane = lanes.places[lane % lanes.places.len()].1;
                let call = Call { lane, safety, ..GET.call };
                let leaves_after = leaves_after.map(millis);
                sim.call_at(at(clock), Spec { call, leaves_after, finishes, ..GET });
            }
            Action::Wait(wait) => clock += wait,
            Action::Rest => clock += 61_000,
            Action::Leave(call) if call < sim.begun() => sim.leave(call),
            Action::Leave(_) => {}
            Action::Reshape(wanted, wanted_lanes) => {
                let busy: Vec<_> =
                    (0..sim.dependency.endpoint_places()).map(|at| in_flight(&sim, at)).collect();
                let asked = endpoints.wanted(wanted);
                let made = reshape(&mut sim, &asked, &lanes.wanted(wanted_lanes));
                for (asked, place) in asked.iter().zip(&made.endpoints) {
                    match asked {
                        Some(kept) => assert_eq!(kept, place),
                        None => assert_eq!(busy.get(*place).copied().unwrap_or(0), 0),
                    }
                }
                offered.push((sim.now, made.endpoints.clone()));
                endpoints.note(wanted, &made.endpoints);
                lanes.note(wanted_lanes, &made.lanes);
            }
        }
        sim.run_until(clock);
    }
    Played { sim, offered }
}

fn end(sim: &mut Sim) {
    let later = |sim: &Sim, by: u64| super::sim::ms(sim.now) + by;
    sim.run_until(later(sim, 10_000));
    for call in 0..sim.begun() {
        sim.leave(call);
    }
    sim.run_until(later(sim, 100_000));
    sim.hang_up();
    sim.run_until(later(sim, 100_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_and_goes_nothing_leaks_and_no_place_is_shared(
        actions in prop::collection::vec(action(), 1..80),
        seed in any::<u64>(),
    ) {
        let Played { mut sim, offered } = play(&actions, seed);
        end(&mut sim);
        let dependency = &sim.dependency;
        prop_assert_eq!(dependency.bulkhead().in_flight(), 0);
        prop_assert_eq!(dependency.bulkhead().waiting(), 0);
        prop_assert_eq!((dependency.held(), dependency.abandoned()), (0, 0));
        for endpoint in 0..dependency.endpoint_places() {
            prop_assert_eq!(in_flight(&sim, endpoint), 0, "of endpoint {}", endpoint);
        }
        for sent in &sim.sent {
            let fits = |(_, set): &(Timestamp, Vec<usize>)| set.contains(&sent.endpoint);
            let before = offered.iter().rev().find(|(from, _)| *from < sent.at);
            let mut at_once = offered.iter().filter(|(from, _)| *from == sent.at);
            prop_assert!(before.is_some_and(fits) || at_once.any(fits), "{:?}", sent);
        }
        // With nothing out and after a rest every place can be had again.
        sim.run_until(super::sim::ms(sim.now) + 61_000);
        sim.dependency.reshape(sim.now, &[], &[], |_| true);
        sim.run_until(super::sim::ms(sim.now) + 61_000);
        let places = (sim.dependency.endpoint_places(), sim.dependency.lane_places());
        let all = (vec![None; places.0], vec![None; places.1]);
        sim.dependency.reshape(sim.now, &all.0, &all.1, |_| true);
        prop_assert_eq!((sim.dependency.endpoint_places(), sim.dependency.lane_places()), places);

        let mut again = play(&actions, seed);
        end(&mut again.sim);
        prop_assert_eq!(&sim.log, &again.sim.log);
    }
}
