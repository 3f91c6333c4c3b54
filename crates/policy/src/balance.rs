//! Decides which endpoint gets a call: of two random usable ones, the one that costs less.
//!
//! Sending every call to the cheapest endpoint makes all callers pick the same one whenever
//! what they know is a little old, and round robin keeps feeding an endpoint that has become slow.
//! Two random choices keep the load nearly even without either (Source: power-of-two-choices):
//! the costliest endpoint is never taken while another may be used, and no caller needs to know
//! more than its own calls.
//!
//! | [`Balance`] | what an endpoint costs |
//! |---|---|
//! | least request (default) | its calls in flight |
//! | peak EWMA | [`LoadEstimate::cost`]: how long its calls take, times those in flight, times a penalty for failures |
//!
//! An endpoint that has just come back gets a part of its share, which grows ([`SlowStartParams`]).
//!
//! Picks in constant time while most endpoints may be used; only when few may are all looked at.
//! Health is not judged here: what may be used is the caller's to say, and with nothing usable
//! there is no answer.
//!
//! Known bad cases: calls in flight are this process's own; two processes may prefer the same
//! endpoint. By least request, an endpoint that fails fast has little in flight and draws traffic
//! until its breaker opens or it is ejected; peak EWMA is made against that.

mod load;
mod slow_start;

use crate::ratio::Ratio;
use crate::rng::Rng;

pub use load::LoadEstimate;
pub use slow_start::{SlowStartOptions, SlowStartParams};

/// By what endpoints are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// Calls in flight.
    #[default]
    LeastRequest,
    /// Calls in flight times the time they take, the latest peak counting most.
    PeakEwma,
}

impl Balance {
    /// The label used in configurations and on the admin port.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeastRequest => "least_request",
            Self::PeakEwma => "peak_ewma",
        }
    }
}

/// Picks one of the endpoints `0..count` whose `share` is not zero; nothing if there is none.
///
/// Two distinct ones are drawn, uniformly; the one with the lower `cost` wins, and of two alike
/// the one drawn first, so an unloaded set is used uniformly. One whose share is below 100 % is
/// passed over for the other as often as its share says, unless the other is passed over too: a
/// set in which all are new is used evenly. Both closures must answer the same for the same index
/// during one call. Draws two words where all may be used, and a few more otherwise.
#[must_use]
pub fn choose(
    share: impl Fn(usize) -> Ratio,
    count: usize,
    cost: impl Fn(usize) -> u64,
    rng: &mut impl Rng,
) -> Option<usize> {
    let usable = |index: usize| share(index) > Ratio::ZERO;
    let tries = match count {
        0 | 1 => return (0..count).find(|&index| usable(index)),
        2..=FEW => 1,
        _ => TRIES,
    };
    for _ in 0..tries {
        let (first, second) = pair(count, rng);
        if usable(first) && usable(second) {
            return Some(duel(first, second, share, cost, rng));
        }
    }
    let candidates = || (0..count).filter(|&index| usable(index));
    let total = candidates().count();
    if total < 2 {
        return candidates().next();
    }
    let (first, second) = pair(total, rng);
    let (first, second) = (candidates().nth(first)?, candidates().nth(second)?);
    Some(duel(first, second, share, cost, rng))
}

/// The cheaper of two, if neither or both are passed over for their share.
fn duel(
    first: usize,
    second: usize,
    share: impl Fn(usize) -> Ratio,
    cost: impl Fn(usize) -> u64,
    rng: &mut impl Rng,
) -> usize {
    let mut is_in = |index| {
        let share = share(index);
        share >= Ratio::ONE || rng.below(u64::from(Ratio::SCALE)) < u64::from(share.millionths())
    };
    match (is_in(first), is_in(second)) {
        (true, false) => first,
        (false, true) => second,
        _ if cost(second) < cost(first) => second,
        _ => first,
    }
}

/// Two distinct indices uniform in `0..bound`, which is at least 2.
fn pair(bound: usize, rng: &mut impl Rng) -> (usize, usize) {
    let first = below(bound, rng);
    let other = below(bound - 1, rng);
    (first, if other < first { other } else { other + 1 })
}

/// An index uniform in `0..bound`.
fn below(bound: usize, rng: &mut impl Rng) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or(0)
}

/// Among so few, looking at all costs less than drawing again. Source: own choice.
const FEW: usize = 8;
/// Pairs drawn before all are looked at: with nine in ten usable, one pick in 800 comes to that.
/// Source: own choice.
const TRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::rng::SplitMix64;

    const DRAWS: u32 = 100_000;

    /// How often each endpoint was chosen in [`DRAWS`] independent choices.
    fn shares(count: usize, usable: fn(usize) -> bool, in_flight: fn(usize) -> u32) -> Vec<u32> {
        shares_of(count, |index| if usable(index) { Ratio::ONE } else { Ratio::ZERO }, in_flight)
    }

    fn shares_of(
        count: usize,
        share: impl Fn(usize) -> Ratio,
        in_flight: fn(usize) -> u32,
    ) -> Vec<u32> {
        let mut rng = SplitMix64::new(3);
        let mut shares = vec![0; count];
        for _ in 0..DRAWS {
            let cost = |index| u64::from(in_flight(index));
            if let Some(chosen) = choose(&share, count, cost, &mut rng) {
                shares[chosen] += 1;
            }
        }
        shares
    }

    fn load(index: usize) -> u32 {
        u32::try_from(index).unwrap()
    }

    /// Five standard deviations around the expected count of one endpoint in `count`.
    fn is_fair_share(chosen: u32, one_in: u32) -> bool {
        let expected = DRAWS / one_in;
        u64::from(chosen.abs_diff(expected)).pow(2) <= 25 * u64::from(expected)
    }

    #[test]
    fn nothing_usable_gives_nothing() {
        let mut rng = SplitMix64::new(1);
        for count in [0, 1, 2, 3, 100] {
            assert_eq!(choose(|_| Ratio::ZERO, count, |_| 0, &mut rng), None, "{count}");
        }
    }

    #[test]
    fn unloaded_endpoints_are_used_uniformly() {
        for count in [1, 2, 3, 100] {
            let shares = shares(count as usize, |_| true, |_| 0);
            assert!(shares.iter().all(|&chosen| is_fair_share(chosen, count)), "{shares:?}");
        }
    }

    #[test]
    fn an_unusable_endpoint_is_never_chosen_and_the_others_stay_uniform() {
        for count in [2, 3, 100] {
            let shares = shares(count, |index| index % 2 == 1, |_| 7);
            for (index, &chosen) in shares.iter().enumerate() {
                if index % 2 == 0 {
                    assert_eq!(chosen, 0, "{index} of {count}");
                } else {
                    assert!(is_fair_share(chosen, load(count / 2)), "{index} of {count}");
                }
            }
        }
    }

    #[test]
    fn one_usable_among_many_is_always_found_even_if_it_is_the_busiest() {
        for count in [1, 2, 3, 100] {
            let mut rng = SplitMix64::new(9);
            let last = count - 1;
            let share = |index| if index == last { Ratio::ONE } else { Ratio::ZERO };
            let chosen = choose(share, count, |_| u64::MAX, &mut rng);
            assert_eq!(chosen, Some(last));
        }
    }

    /// With loads 0..n all different, endpoint `i` wins against those busier than it:
    /// 2 (n − 1 − i) / n (n − 1) of all choices.
    #[test]
    fn of_two_drawn_the_less_loaded_wins_and_the_busiest_never_does() {
        assert_eq!(shares(2, |_| true, load), [DRAWS, 0]);
        let three = shares(3, |_| true, |index| 2 - load(index));
        assert_eq!(three[0], 0);
        assert!(is_fair_share(three[1], 3), "{three:?}");
        assert!(is_fair_share(three[2] / 2, 3), "{three:?}");
        let many = shares(100, |_| true, load);
        assert_eq!(many[99], 0);
        assert!(is_fair_share(many[0], 50), "{many:?}");
        assert!(many[0] > many[50], "{many:?}");
    }

    #[test]
    fn both_ends_of_the_generators_range_are_legal() {
        struct Fixed(u64);
        impl Rng for Fixed {
            fn next_u64(&mut self) -> u64 {
                self.0
            }
        }
        for count in [2, 3, 100] {
            assert_eq!(choose(|_| Ratio::ONE, count, |_| 0, &mut Fixed(0)), Some(0));
            let last = choose(|_| Ratio::ONE, count, |_| 0, &mut Fixed(u64::MAX));
            assert_eq!(last, Some(count - 1));
        }
    }

    #[test]
    fn no_endpoint_gets_more_than_two_above_the_mean() {
        let mut rng = SplitMix64::new(5);
        let mut in_flight = vec![0_u64; 100];
        for _ in 0..10_000 {
            let chosen = choose(|_| Ratio::ONE, 100, |index| in_flight[index], &mut rng).unwrap();
            in_flight[chosen] += 1;
        }
        assert!(in_flight.iter().all(|&calls| calls <= 102), "{in_flight:?}");
    }

    #[test]
    fn one_in_slow_start_gets_its_part_and_all_in_slow_start_are_even() {
        for count in [2, 10, 100] {
            let tenth = |index| Ratio::from_percent(if index == 0 { 10 } else { 100 });
            let shares = shares_of(count, tenth, |_| 0);
            let fair = DRAWS / load(count);
            assert!(shares[0] < fair / 8 && shares[0] > fair / 12, "{count}: {shares:?}");
            let all = shares_of(count, |_| Ratio::from_percent(10), |_| 0);
            assert!(all.iter().all(|&chosen| is_fair_share(chosen, load(count))), "{all:?}");
        }
    }

    #[test]
    fn a_busy_endpoint_in_slow_start_still_loses_to_a_free_one() {
        let shares = shares_of(2, |_| Ratio::from_percent(99), load);
        assert!(shares[1] < DRAWS / 80, "{shares:?}");
    }

    #[test]
    fn while_most_may_be_used_a_pick_looks_at_few() {
        let mut rng = SplitMix64::new(7);
        let looked = core::cell::Cell::new(0_u32);
        for _ in 0..10_000 {
            let share = |index: usize| {
                looked.set(looked.get() + 1);
                if index < 100 { Ratio::ZERO } else { Ratio::ONE }
            };
            assert!(choose(share, 1000, |_| 0, &mut rng).is_some());
        }
        // Four a pick where both may be used; the rare scan costs three thousand.
        assert!(looked.get() < 10_000 * 12, "{}", looked.get());
    }
}
