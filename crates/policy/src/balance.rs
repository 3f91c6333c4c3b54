//! Decides which endpoint gets a call: of two random usable ones, the one with less in flight.
//!
//! Sending every call to the least loaded endpoint makes all callers pick the same one whenever
//! what they know is a little old, and round robin keeps feeding an endpoint that has become slow.
//! Two random choices keep the load nearly even without either (Source: power-of-two-choices):
//! the busiest endpoint is never taken while another may be used, and no caller needs to know more
//! than its own calls in flight.
//!
//! Costs two passes over the endpoints and no memory. Health is not judged here: what may be used
//! is the caller's to say, and with nothing usable there is no answer.
//!
//! Known bad case: calls in flight are this process's own; two processes may prefer the same
//! endpoint. An endpoint that fails fast has little in flight and draws traffic until its breaker
//! opens.

use crate::rng::Rng;

/// Picks one of the endpoints `0..count` for which `usable` holds; nothing if there is none.
///
/// Two distinct ones are drawn, uniformly; the one with fewer `in_flight` wins, and of two alike
/// the one drawn first, so an unloaded set is used uniformly. Both closures must answer the same
/// for the same index during one call. Draws two words when there is a choice, none otherwise.
#[must_use]
pub fn choose(
    usable: impl Fn(usize) -> bool,
    count: usize,
    in_flight: impl Fn(usize) -> u32,
    rng: &mut impl Rng,
) -> Option<usize> {
    let candidates = || (0..count).filter(|&index| usable(index));
    let total = candidates().count();
    if total < 2 {
        return candidates().next();
    }
    let first = below(total, rng);
    let other = below(total - 1, rng);
    let second = if other < first { other } else { other + 1 };
    let (first, second) = (candidates().nth(first)?, candidates().nth(second)?);
    Some(if in_flight(second) < in_flight(first) { second } else { first })
}

/// An index uniform in `0..bound`.
fn below(bound: usize, rng: &mut impl Rng) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::rng::SplitMix64;

    const DRAWS: u32 = 100_000;

    /// How often each endpoint was chosen in [`DRAWS`] independent choices.
    fn shares(count: usize, usable: fn(usize) -> bool, in_flight: fn(usize) -> u32) -> Vec<u32> {
        let mut rng = SplitMix64::new(3);
        let mut shares = vec![0; count];
        for _ in 0..DRAWS {
            if let Some(chosen) = choose(usable, count, in_flight, &mut rng) {
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
            assert_eq!(choose(|_| false, count, |_| 0, &mut rng), None, "{count}");
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
            let chosen = choose(|index| index == last, count, |_| u32::MAX, &mut rng);
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
            assert_eq!(choose(|_| true, count, |_| 0, &mut Fixed(0)), Some(0));
            assert_eq!(choose(|_| true, count, |_| 0, &mut Fixed(u64::MAX)), Some(count - 1));
        }
    }

    #[test]
    fn no_endpoint_gets_more_than_two_above_the_mean() {
        let mut rng = SplitMix64::new(5);
        let mut in_flight = vec![0_u32; 100];
        for _ in 0..10_000 {
            let chosen = choose(|_| true, 100, |index| in_flight[index], &mut rng).unwrap();
            in_flight[chosen] += 1;
        }
        assert!(in_flight.iter().all(|&calls| calls <= 102), "{in_flight:?}");
    }
}
