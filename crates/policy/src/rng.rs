//! Randomness as the policies see it: a generator passed by the caller, per call.
//!
//! No policy stores or clones a generator. A stored copy replays one sequence in every session
//! that starts from it (tower's `ExponentialBackoff` does), and a fleet that draws the same jitter
//! has none.

use core::time::Duration;

use crate::time::nanos;

/// A source of random 64-bit words.
pub trait Rng {
    /// The next word, uniform over the whole range of `u64`.
    fn next_u64(&mut self) -> u64;

    /// A number uniform in `0..bound`; 0 if `bound` is 0. Off from uniform by at most
    /// `bound / 2⁶⁴`.
    fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A duration uniform in `low..=high` at a nanosecond's grain; `low` if `high` is smaller.
    fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = nanos(high.saturating_sub(low));
        low.saturating_add(Duration::from_nanos(self.below(span.saturating_add(1))))
    }
}

impl<R: Rng + ?Sized> Rng for &mut R {
    fn next_u64(&mut self) -> u64 {
        (**self).next_u64()
    }
}

/// SplitMix64: one word of state, equal seeds give equal sequences on every platform. For tests
/// and simulations; not for secrets.
///
/// Source: splitmix64.
#[derive(Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Rng for SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator that always returns one word.
    struct Fixed(u64);

    impl Rng for Fixed {
        fn next_u64(&mut self) -> u64 {
            self.0
        }
    }

    #[test]
    fn both_ends_of_the_generators_range_are_legal() {
        for word in [0, u64::MAX] {
            assert!(Fixed(word).below(7) < 7);
            assert_eq!(Fixed(word).below(0), 0);
        }
        let (low, high) = (Duration::from_millis(3), Duration::from_millis(5));
        assert_eq!(Fixed(0).duration_between(low, high), low);
        assert_eq!(Fixed(u64::MAX).duration_between(low, high), high);
        assert_eq!(Fixed(u64::MAX).duration_between(high, low), high);
    }

    #[test]
    fn equal_seeds_give_equal_sequences_and_cover_the_range() {
        let (mut a, mut b) = (SplitMix64::new(7), SplitMix64::new(7));
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let drawn = a.below(10);
            assert_eq!(drawn, b.below(10));
            seen[usize::try_from(drawn).unwrap()] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
