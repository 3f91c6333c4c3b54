//! Exactness against a naive token bucket, both sides of each threshold, and a table under attack.

use alloc::string::ToString;
use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::rng::{Rng as _, SplitMix64};

const SECOND: Duration = Duration::from_secs(1);

const fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn params(limit: u32, period: Duration, burst: u32) -> RateParams {
    RateParams::new(RateOptions { limit, period, burst }).unwrap()
}

fn keyed(limit: u32, burst: u32, keys: u32) -> KeyedRateParams {
    let rate = RateOptions { limit, period: SECOND, burst };
    KeyedRateParams::new(KeyedRateOptions { rate, keys }).unwrap()
}

/// Keys as a keyed hash would spread them.
fn spread(count: usize, seed: u64) -> Vec<RateKey> {
    let mut rng = SplitMix64::new(seed);
    (0..count).map(|_| RateKey::from_hash(rng.next_u64())).collect()
}

/// A bucket of whole tokens and their parts, of which `period` make one; filled by `limit` of them
/// each nanosecond.
struct Naive {
    balance: u128,
    filled: u64,
    limit: u128,
    period: u128,
    burst: u128,
}

impl Naive {
    fn new(options: RateOptions) -> Self {
        let (period, burst) = (options.period.as_nanos(), u128::from(options.burst));
        Self { balance: burst * period, filled: 0, limit: options.limit.into(), period, burst }
    }

    fn try_acquire(&mut self, now: u64, cost: u32) -> Result<(), Option<u64>> {
        let price = u128::from(cost) * self.period;
        if u128::from(cost) > self.burst {
            return Err(None);
        }
        let earned = u128::from(now - self.filled) * self.limit;
        (self.balance, self.filled) = ((self.balance + earned).min(self.burst * self.period), now);
        match self.balance.checked_sub(price) {
            Some(left) => {
                self.balance = left;
                Ok(())
            }
            None => Err(Some(u64::try_from((price - self.balance).div_ceil(self.limit)).unwrap())),
        }
    }
}

fn shown(decided: Result<(), RateExceeded>) -> Result<(), Option<u64>> {
    decided.map_err(|refused| refused.retry_after.map(nanos))
}

proptest! {
    #[test]
    fn it_decides_and_waits_as_a_naive_bucket_of_exact_fractions(
        limit in prop_oneof![1..20_u32, 1..=u32::MAX],
        period in prop_oneof![
            Just(SECOND),
            (1..=86_400_000_000_000_u64).prop_map(Duration::from_nanos),
        ],
        burst in 1..50_u32,
        steps in prop::collection::vec((0..3_u8, any::<u32>(), 0..60_u32), 1..200),
    ) {
        let options = RateOptions { limit, period, burst };
        let params = RateParams::new(options);
        prop_assume!(params.is_ok());
        let params = params.unwrap();
        let (mut rate, mut naive) = (Rate::new(), Naive::new(options));
        let mut now = 0_u64;
        let each = nanos(period) / u64::from(limit) + 1;
        let mut wait = 0;
        for (kind, size, cost) in steps {
            now += match kind {
                0 => 0,
                1 => u64::from(size) % (each.saturating_mul(3)),
                _ => wait,
            };
            let said = rate.check(at(now), &params, cost);
            let decided = rate.try_acquire(at(now), &params, cost);
            prop_assert_eq!(said, decided);
            prop_assert_eq!(shown(decided), naive.try_acquire(now, cost));
            let left = u32::try_from(naive.balance / naive.period).unwrap();
            if cost <= burst {
                prop_assert_eq!(rate.available(at(now), &params), left);
            }
            wait = shown(decided).err().flatten().unwrap_or(0);
        }
    }

    #[test]
    fn keys_that_fit_a_set_are_as_independent_as_naive_buckets(
        steps in prop::collection::vec((0..16_usize, 0..400_000_000_u64, 1..4_u32), 1..300),
        seed in any::<u64>(),
    ) {
        let params = keyed(10, 3, 16);
        let keys = spread(16, seed);
        let mut rate = KeyedRate::new(&params);
        let mut naive = BTreeMap::new();
        let mut now = 0;
        for (key, pause, cost) in steps {
            now += pause / 4;
            let model = naive.entry(key).or_insert_with(|| {
                let mut model = Naive::new(params.options().rate);
                model.filled = now;
                model
            });
            let decided = rate.try_acquire(at(now), &params, keys[key], cost);
            prop_assert_eq!(shown(decided), model.try_acquire(now, cost));
        }
        prop_assert_eq!(rate.evicted_total(), 0);
    }

    #[test]
    fn what_is_given_back_was_never_taken(
        limit in 1..2_000_u32,
        burst in 1..50_u32,
        taken in prop::collection::vec((0..5_000_000_u64, 1..4_u32), 0..60),
    ) {
        let params = params(limit, SECOND, burst);
        let mut rate = Rate::new();
        let mut now = 0;
        for (pause, cost) in taken {
            now += pause;
            let before = rate.available(at(now), &params);
            if rate.try_acquire(at(now), &params, cost).is_ok() {
                let mut other = rate;
                other.give_back(&params, cost);
                prop_assert_eq!(other.available(at(now), &params), before);
            }
        }
    }
}

#[test]
fn a_burst_goes_at_once_and_then_exactly_the_limit() {
    let params = params(3, SECOND, 2);
    let mut rate = Rate::new();
    let start = 7 * 1_000_000_000;
    assert_eq!(rate.available(at(start), &params), 2);
    assert_eq!(rate.try_acquire(at(start), &params, 1), Ok(()));
    assert_eq!(rate.try_acquire(at(start), &params, 1), Ok(()));
    let third = Some(Duration::from_nanos(333_333_334));
    let refused = Err(RateExceeded { retry_after: third });
    assert_eq!(rate.try_acquire(at(start), &params, 1), refused, "a third of a second, rounded up");
    assert!(rate.try_acquire(at(start + 333_333_333), &params, 1).is_err());
    assert_eq!(rate.try_acquire(at(start + 333_333_334), &params, 1), Ok(()));
    // Asked at every instant for a hundred seconds, it admits exactly three hundred: no part of a
    // nanosecond is lost.
    let mut admitted = 0;
    let mut now = start + 333_333_334;
    let end = now + 100 * 1_000_000_000;
    while now <= end {
        match rate.try_acquire(at(now), &params, 1) {
            Ok(()) => admitted += 1,
            Err(refused) => now += nanos(refused.retry_after.unwrap()),
        }
    }
    assert_eq!(admitted, 300);
}

#[test]
fn a_cost_above_the_burst_is_never_admitted_and_one_of_zero_always() {
    let params = params(10, SECOND, 5);
    let mut rate = Rate::new();
    let never = Err(RateExceeded { retry_after: None });
    assert_eq!(rate.try_acquire(at(0), &params, 6), never);
    assert_eq!(rate.try_acquire(at(0), &params, 5), Ok(()));
    assert_eq!(rate.try_acquire(at(0), &params, 0), Ok(()));
    assert_eq!(rate.available(at(0), &params), 0);
    let two = Some(Duration::from_millis(200));
    assert_eq!(rate.try_acquire(at(0), &params, 2), Err(RateExceeded { retry_after: two }));
}

#[test]
fn an_earlier_now_forgives_nothing_and_a_century_does_not_overflow() {
    let params = params(10, SECOND, 5);
    let mut rate = Rate::new();
    assert_eq!(rate.try_acquire(at(100_000_000_000), &params, 5), Ok(()));
    assert!(rate.try_acquire(at(1), &params, 1).is_err());
    assert!(rate.try_acquire(at(100_000_000_000), &params, 1).is_err());
    let century = 100 * 365 * 86_400 * 1_000_000_000;
    assert_eq!(rate.available(at(century), &params), 5);
    for _ in 0..10 {
        let _ = rate.try_acquire(Timestamp::MAX, &params, 5);
    }
}

#[test]
fn a_reload_keeps_the_debt_as_time_and_cuts_it_to_what_can_be_owed() {
    let slow = params(1, SECOND, 10);
    let fast = params(1_000_000_000, SECOND, 10);
    let mut rate = Rate::new();
    assert_eq!(rate.try_acquire(at(0), &slow, 10), Ok(()));
    assert_eq!(rate.available(at(0), &fast), 0);
    assert!(rate.check(at(0), &fast, 1).is_err(), "what it owes is cut here");
    assert_eq!(rate.available(at(9), &fast), 9);
    assert_eq!(rate.available(at(10), &fast), 10, "whole again in ten nanoseconds");
    let mut rate = Rate::new();
    assert_eq!(rate.try_acquire(at(0), &fast, 10), Ok(()));
    assert_eq!(rate.available(at(0), &slow), 9);
    assert_eq!(rate.available(at(10), &slow), 10);
}

#[test]
fn the_default_burst_is_a_tenth_of_a_second_of_the_limit() {
    for (limit, period, burst) in
        [(500, 1, 50), (5, 1, 1), (u32::MAX, 1, 429_496_729), (600, 60, 1), (60_000, 60, 100)]
    {
        let options = RateOptions::new(limit, Duration::from_secs(period));
        assert_eq!(options.burst, burst, "{limit}/{period}s");
        RateParams::new(options).unwrap();
    }
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let check = |limit, period, burst| {
        let refused = RateParams::new(RateOptions { limit, period, burst });
        refused.map(|_| ()).map_err(|error| error.to_string())
    };
    let day = Duration::from_secs(86_400);
    assert_eq!(check(1, day, 30), Ok(()));
    assert_eq!(check(u32::MAX, Duration::from_nanos(1), u32::MAX), Ok(()));
    for (limit, period, burst, error) in [
        (0, SECOND, 1, "field `limit`: 0 is not allowed; give 1 or more"),
        (1, Duration::ZERO, 1, "field `period`: 0ns is not allowed; give over 0s, up to 24h"),
        (1, day * 2, 1, "field `period`: 172800s is not allowed; give over 0s, up to 24h"),
        (1, day, 0, "field `burst`: 0 is not allowed; give 1 to 30, which 30 days replenish"),
        (1, day, 31, "field `burst`: 31 is not allowed; give 1 to 30, which 30 days replenish"),
    ] {
        assert_eq!(check(limit, period, burst), Err(error.to_string()));
    }
    let rate = RateOptions::new(1, SECOND);
    for keys in [0, 1_000_001] {
        let refused = KeyedRateParams::new(KeyedRateOptions { rate, keys }).unwrap_err();
        assert_eq!((refused.field(), refused.allowed()), ("keys", "1 to 1000000"));
    }
    assert_eq!(KeyedRateOptions::new(rate).keys, 10_000);
}

#[test]
fn a_key_that_has_used_its_burst_cannot_reset_itself_with_other_keys() {
    let params = keyed(1, 10, 100);
    let mut rate = KeyedRate::new(&params);
    let greedy = RateKey::from_hash(u64::MAX / 3);
    assert_eq!(rate.try_acquire(at(0), &params, greedy, 10), Ok(()));
    // A hundred thousand other keys, all of one moment and each in debt: a thousand times more
    // than there is room for.
    for other in spread(100_000, 1) {
        assert_eq!(rate.try_acquire(at(0), &params, other, 9), Ok(()));
        assert!(rate.try_acquire(at(0), &params, greedy, 1).is_err());
    }
    assert_eq!(rate.places(), 208, "13 sets of 16 for 100 keys");
    assert!(rate.evicted_total() > 99_000);
}

#[test]
fn keys_that_are_whole_again_make_room_first_and_nothing_is_forgotten() {
    let params = keyed(1, 1, 8);
    let mut rate = KeyedRate::new(&params);
    assert_eq!(rate.places(), 16, "one set");
    let keys = spread(17, 5);
    // Fifteen owe until 1 s; the last of the set was asked earlier and is whole by then.
    assert_eq!(rate.try_acquire(at(0), &params, keys[15], 1), Ok(()));
    let now = at(1_000_000_000);
    for key in &keys[..15] {
        assert_eq!(rate.try_acquire(now, &params, *key, 1), Ok(()));
    }
    assert_eq!(rate.try_acquire(now, &params, keys[16], 1), Ok(()));
    assert_eq!(rate.evicted_total(), 0);
    for key in keys[..15].iter().chain([&keys[16]]) {
        assert!(rate.try_acquire(now, &params, *key, 1).is_err(), "its debt is known");
    }
    // Now every key of the set owes: the newcomer is admitted and one of them starts afresh.
    assert_eq!(rate.try_acquire(now, &params, keys[15], 1), Ok(()));
    assert_eq!(rate.evicted_total(), 1);
}

#[test]
fn with_as_many_keys_in_debt_as_were_asked_for_hardly_one_is_forgotten() {
    let params = keyed(1, 1, 10_000);
    let mut rate = KeyedRate::new(&params);
    let keys = spread(10_000, 11);
    for key in &keys {
        assert_eq!(rate.try_acquire(at(0), &params, *key, 1), Ok(()));
    }
    let evicted = rate.evicted_total();
    assert!((1..=30).contains(&evicted), "{evicted} of 10,000");
    let forgotten = keys.iter().filter(|key| rate.check(at(0), &params, **key, 1).is_ok()).count();
    assert_eq!(forgotten as u64, evicted);
}

#[test]
fn another_number_of_keys_keeps_what_is_owed() {
    let (small, large) = (keyed(1, 1, 100), keyed(1, 1, 5_000));
    let mut rate = KeyedRate::new(&small);
    let keys = spread(60, 3);
    for key in &keys {
        assert_eq!(rate.try_acquire(at(0), &small, *key, 1), Ok(()));
    }
    for params in [large, small] {
        for key in &keys {
            assert!(rate.try_acquire(at(0), &params, *key, 1).is_err());
        }
        assert_eq!(rate.places(), params.sets() * 16);
    }
    assert_eq!(rate.evicted_total(), 0);
}

#[test]
fn a_key_of_any_hash_has_a_place() {
    let params = keyed(1, 1, 1);
    let mut rate = KeyedRate::new(&params);
    for hash in [0, 1, u64::MAX] {
        let key = RateKey::from_hash(hash);
        let _ = rate.try_acquire(at(0), &params, key, 1);
        assert!(rate.try_acquire(at(0), &params, key, 1).is_err());
        rate.give_back(&params, key, 1);
        assert_eq!(rate.available(at(0), &params, key), 1);
    }
}
