use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;
use crate::rng::SplitMix64;

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO.after(Duration::from_secs(3600) + Duration::from_millis(ms))
}

fn params(options: DoorOptions) -> DoorParams {
    DoorParams::new(options).unwrap()
}

fn rated(limit: u32, answers: bool) -> DoorParams {
    let accept = Some(DoorOptions::accept_rate(limit, Duration::from_secs(1)));
    params(DoorOptions { accept, answers })
}

#[test]
fn a_burst_is_a_second_of_the_rate_and_one_at_least() {
    for (limit, period, burst) in [(500, 1, 500), (120, 60, 2), (59, 60, 1), (1, 3_600, 1)] {
        let options = DoorOptions::accept_rate(limit, Duration::from_secs(period));
        assert_eq!(options.burst, burst, "{limit} in {period} s");
        assert!(RateParams::new(options).is_ok());
    }
}

#[test]
fn nobody_is_refused_where_nothing_is_limited() {
    let (mut door, params) = (Door::new(), params(DoorOptions::default()));
    assert_eq!(params, DoorParams::OPEN);
    assert!(!params.refuses());
    assert!((0..10_000).all(|_| door.try_acquire(at(0), &params).is_ok()));
}

#[test]
fn a_second_of_the_rate_comes_at_once_and_then_each_at_its_time() {
    let (mut door, params) = (Door::new(), rated(500, false));
    let mut come = |ms| door.try_acquire(at(ms), &params);
    assert!((0..500).all(|_| come(0).is_ok()));
    assert_eq!(come(0), Err(DoorRefusal::AcceptRate));
    assert_eq!(come(1), Err(DoorRefusal::AcceptRate), "the next place is there after 2 ms");
    assert_eq!(come(2), Ok(()));
    assert_eq!(come(3), Err(DoorRefusal::AcceptRate));
    // Who is refused costs those that come later nothing.
    assert!((0..100_000).all(|_| come(3).is_err()));
    assert_eq!(come(4), Ok(()));
    assert_eq!((5..=1_004).filter(|ms| come(*ms).is_ok()).count(), 500);
}

#[test]
fn a_refusal_is_a_reset_unless_answers_are_asked_for() {
    let (mut door, mut rng) = (Door::new(), SplitMix64::new(1));
    assert_eq!(door.farewell(at(0), &rated(1, false), &mut rng), Farewell::Reset);
    assert!(matches!(door.farewell(at(0), &rated(1, true), &mut rng), Farewell::Answer(_)));
}

#[test]
fn answers_have_a_rate_of_their_own_and_beyond_it_are_resets() {
    let (mut door, mut rng, params) = (Door::new(), SplitMix64::new(1), rated(1, true));
    let mut told = |ms| door.farewell(at(ms), &params, &mut rng);
    let answered = |told: Farewell| matches!(told, Farewell::Answer(_));
    assert_eq!((0..10_000).filter(|_| answered(told(0))).count(), 100);
    assert_eq!(told(9), Farewell::Reset);
    assert!(answered(told(10)));
    let of_a_minute = (11..60_011).flat_map(|ms| [ms; 10]).filter(|ms| answered(told(*ms)));
    assert_eq!(of_a_minute.count(), 6_000);
}

#[test]
fn every_second_from_three_to_eight_is_named_about_as_often() {
    let (mut door, mut rng, params) = (Door::new(), SplitMix64::new(7), rated(1, true));
    let mut named = BTreeMap::new();
    for n in 0..6_000 {
        let Farewell::Answer(seconds) = door.farewell(at(n * 10), &params, &mut rng) else {
            panic!("within the budget")
        };
        *named.entry(seconds).or_insert(0) += 1;
    }
    assert_eq!(named.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8]);
    assert!(named.values().all(|count| (850..1_150).contains(count)), "{named:?}");
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let answers = DoorOptions { answers: true, ..DoorOptions::default() };
    let refused = DoorParams::new(answers).unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("answers", "true"));
    let nobody = RateOptions { limit: 0, ..DoorOptions::accept_rate(1, Duration::from_secs(1)) };
    let refused = DoorParams::new(DoorOptions { accept: Some(nobody), answers: false });
    assert_eq!(refused.unwrap_err().field(), "limit");
}

#[test]
fn a_reload_keeps_what_was_taken_and_switches_the_rate_on_and_off() {
    let mut door = Door::new();
    let off = params(DoorOptions::default());
    assert!((0..10).all(|_| door.try_acquire(at(0), &rated(10, false)).is_ok()));
    assert!(door.try_acquire(at(0), &rated(10, false)).is_err());
    assert!(door.try_acquire(at(0), &off).is_ok());
    assert!(door.try_acquire(at(0), &rated(10, false)).is_err(), "it is where it was");
    assert!(door.try_acquire(at(1), &rated(1_000, false)).is_ok(), "a higher rate refills faster");
}
