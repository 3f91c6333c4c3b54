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
    let accept = Some(DoorOptions::rate(limit, Duration::from_secs(1)));
    params(DoorOptions { accept, answers, per_address: None })
}

/// Somebody comes and stays.
fn come(
    door: &mut Door,
    ms: u64,
    params: &DoorParams,
    address: Option<u64>,
) -> Result<(), DoorRefusal> {
    door.try_acquire(at(ms), params, address.map(RateKey::from_hash)).map(drop)
}

#[test]
fn a_burst_is_a_second_of_the_rate_and_one_at_least() {
    for (limit, period, burst) in [(500, 1, 500), (120, 60, 2), (59, 60, 1), (1, 3_600, 1)] {
        let options = DoorOptions::rate(limit, Duration::from_secs(period));
        assert_eq!(options.burst, burst, "{limit} in {period} s");
        assert!(RateParams::new(options).is_ok());
    }
}

#[test]
fn nobody_is_refused_where_nothing_is_limited() {
    let (mut door, params) = (Door::new(), params(DoorOptions::default()));
    assert_eq!(params, DoorParams::OPEN);
    assert!(!params.refuses());
    assert!((0..10_000).all(|_| come(&mut door, 0, &params, Some(1)).is_ok()));
    assert_eq!(door.addresses(), 0, "and nobody is counted");
}

#[test]
fn a_second_of_the_rate_comes_at_once_and_then_each_at_its_time() {
    let (mut door, params) = (Door::new(), rated(500, false));
    let mut come = |ms| come(&mut door, ms, &params, None);
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
    let nobody = RateOptions { limit: 0, ..DoorOptions::rate(1, Duration::from_secs(1)) };
    let refused = DoorParams::new(DoorOptions { accept: Some(nobody), ..DoorOptions::default() });
    assert_eq!(refused.unwrap_err().field(), "limit");
}

#[test]
fn a_reload_keeps_what_was_taken_and_switches_the_rate_on_and_off() {
    let mut door = Door::new();
    let off = params(DoorOptions::default());
    assert!((0..10).all(|_| come(&mut door, 0, &rated(10, false), None).is_ok()));
    assert!(come(&mut door, 0, &rated(10, false), None).is_err());
    assert!(come(&mut door, 0, &off, None).is_ok());
    assert!(come(&mut door, 0, &rated(10, false), None).is_err(), "it is where it was");
    assert!(come(&mut door, 1, &rated(1_000, false), None).is_ok(), "a higher rate refills faster");
}

/// Limits of an address beside an accept rate.
fn of_addresses(accept: Option<u32>, limits: AddressOptions) -> DoorParams {
    let second = Duration::from_secs(1);
    let accept = accept.map(|limit| DoorOptions::rate(limit, second));
    params(DoorOptions { accept, answers: false, per_address: Some(limits) })
}

fn each_second(limit: u32) -> Option<RateOptions> {
    Some(DoorOptions::rate(limit, Duration::from_secs(1)))
}

#[test]
fn an_address_has_so_many_connections_and_another_once_one_has_ended() {
    let limits = AddressOptions { connections: Some(2), ..AddressOptions::default() };
    let (mut door, params) = (Door::new(), of_addresses(None, limits));
    let key = |number| Some(RateKey::from_hash(number));
    let first = door.try_acquire(at(0), &params, key(1)).unwrap();
    let second = door.try_acquire(at(0), &params, key(1)).unwrap();
    let full = Err(DoorRefusal::AddressConnections);
    assert_eq!(door.try_acquire(at(0), &params, key(1)), full);
    let other = door.try_acquire(at(0), &params, key(2)).unwrap();
    let unknown = door.try_acquire(at(0), &params, None).unwrap();
    assert_eq!(door.addresses(), 2);
    door.release(first);
    let third = door.try_acquire(at(0), &params, key(1)).unwrap();
    assert_eq!(door.try_acquire(at(0), &params, key(1)), full);
    for entrance in [second, third, other, unknown] {
        door.release(entrance);
    }
    assert_eq!(door.addresses(), 0, "who has none is forgotten");
}

/// The one address asks a hundred thousand times; it takes nothing from the accept rate but what is
/// its own.
#[test]
fn who_is_refused_for_its_address_takes_nothing_of_the_accept_rate() {
    let limits = AddressOptions { connection_rate: each_second(20), ..AddressOptions::default() };
    let (mut door, params) = (Door::new(), of_addresses(Some(500), limits));
    let greedy = (0..100_000).filter(|_| come(&mut door, 0, &params, Some(7)).is_ok()).count();
    assert_eq!(greedy, 20);
    let others =
        (0..600_u64).map(|n| come(&mut door, 0, &params, Some(1_000 + n))).collect::<Vec<_>>();
    assert_eq!(others.iter().filter(|it| it.is_ok()).count(), 480);
    assert!(others[480..].iter().all(|it| *it == Err(DoorRefusal::AcceptRate)));
    assert_eq!(come(&mut door, 0, &params, Some(7)), Err(DoorRefusal::AddressRate));
}

#[test]
fn who_is_refused_by_the_accept_rate_owes_nothing_for_it() {
    let limits = AddressOptions {
        connections: Some(100),
        connection_rate: each_second(2),
        ..AddressOptions::default()
    };
    let (mut door, params) = (Door::new(), of_addresses(Some(10), limits));
    for n in 0..10 {
        come(&mut door, 0, &params, Some(100 + n)).unwrap();
    }
    assert!((0..50).all(|_| come(&mut door, 0, &params, Some(1)) == Err(DoorRefusal::AcceptRate)));
    assert_eq!(door.addresses(), 10);
    assert_eq!(come(&mut door, 200, &params, Some(1)), Ok(()));
    assert_eq!(come(&mut door, 200, &params, Some(1)), Ok(()), "its own burst is whole");
    assert_eq!(come(&mut door, 200, &params, Some(1)), Err(DoorRefusal::AddressRate));
}

#[test]
fn addresses_that_are_invented_take_no_memory_and_reset_nobody() {
    let limits = AddressOptions {
        connection_rate: Some(RateOptions { burst: 10, ..each_second(1).unwrap() }),
        addresses: 1_000,
        ..AddressOptions::default()
    };
    let (mut door, params) = (Door::new(), of_addresses(None, limits));
    let greedy = RateKey::from_hash(u64::MAX / 3);
    let mut keep = Vec::new();
    for _ in 0..10 {
        keep.push(door.try_acquire(at(0), &params, Some(greedy)).unwrap());
    }
    let mut rng = SplitMix64::new(3);
    for _ in 0..200_000 {
        let key = RateKey::from_hash(rng.next_u64());
        let entrance = door.try_acquire(at(0), &params, Some(key)).unwrap();
        door.release(entrance);
    }
    assert!(door.evicted_total() > 0, "there is not room for all");
    assert_eq!(door.addresses(), 1, "only who has a connection is counted");
    let refused = door.try_acquire(at(0), &params, Some(greedy));
    assert_eq!(refused, Err(DoorRefusal::AddressRate));
}

#[test]
fn requests_of_an_address_have_a_rate_of_their_own() {
    let limits = AddressOptions { request_rate: each_second(5), ..AddressOptions::default() };
    let (mut door, params) = (Door::new(), of_addresses(None, limits));
    assert!(!params.refuses(), "of connections nothing is asked");
    let (one, other) = (RateKey::from_hash(1), RateKey::from_hash(2));
    assert!((0..5).all(|_| door.try_request(at(0), &params, one).is_ok()));
    let refused = door.try_request(at(0), &params, one).unwrap_err();
    assert_eq!(refused.retry_after, Some(Duration::from_millis(200)));
    assert!(door.try_request(at(0), &params, other).is_ok());
    assert!(door.try_request(at(199), &params, one).is_err());
    assert!(door.try_request(at(200), &params, one).is_ok());
    assert!(door.try_request(at(200), &DoorParams::OPEN, one).is_ok());
}

#[test]
fn limits_of_an_address_that_can_never_take_effect_are_refused() {
    let none = AddressOptions::default();
    let nobody = AddressOptions { connections: Some(0), ..none };
    let behind = AddressOptions { connection_rate: each_second(10), ..none };
    let many = AddressOptions { addresses: 0, ..behind };
    for (accept, limits, field) in [
        (None, none, "per_address"),
        (None, nobody, "connections"),
        (each_second(10), behind, "connection_rate"),
        (None, many, "addresses"),
    ] {
        let options = DoorOptions { accept, answers: false, per_address: Some(limits) };
        assert_eq!(DoorParams::new(options).unwrap_err().field(), field);
    }
    let longer = AddressOptions {
        connection_rate: Some(RateOptions { burst: 5, ..each_second(10).unwrap() }),
        ..none
    };
    assert!(of_addresses(Some(10), longer).refuses(), "its burst is reached first");
}
