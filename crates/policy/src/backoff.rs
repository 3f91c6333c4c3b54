//! Decides how long to wait before the next attempt.
//!
//! Attempts that come back at once, or all together, are a second outage. Delays therefore double
//! up to a cap and are spread by jitter, and the cap comes *before* the jitter: systems that cap
//! afterwards send up to 100 % of a fleet to sleep for exactly the same time by the eighth retry.
//!
//! With `step = min(cap, base · 2ⁿ)`, n = 0 before attempt 2:
//!
//! | jitter | delay |
//! |---|---|
//! | none | step |
//! | full | U(0, step) |
//! | equal | step/2 + U(0, step/2) |
//! | decorrelated | U(base, min(cap, 3 · max(base, previous))) |
//! | ±factor | d · U(1−f, 1+f) with d = min(cap/(1+f), base · 2ⁿ) |
//!
//! The usual decorrelated formula caps the drawn number and turns into a constant at the cap; here
//! the range is capped and then drawn from. The usual ±factor clips what exceeds the cap and piles
//! half of the delays up there; here the middle stops low enough that nothing needs clipping.
//!
//! | option | default | range | source |
//! |---|---|---|---|
//! | `base` | 100 ms | 1 ms to `cap` | seawall-defaults |
//! | `cap` | 5 s | `base` or more | seawall-defaults |
//! | `jitter` | full | a factor over 0 up to 100 %; decorrelated needs `base` < `cap` | aws-backoff |
//!
//! Known bad case: jitter none, for tests and for a single client; a fleet that fails together
//! comes back together.

use core::time::Duration;

use alloc::format;

use crate::error::ConfigError;
use crate::ratio::Ratio;
use crate::rng::Rng;
use crate::time::nanos;

/// How delays are spread. Formulas: see the module's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// Not at all.
    None,
    /// Over the whole step, from zero.
    #[default]
    Full,
    /// Over the upper half of the step.
    Equal,
    /// From `base` to three times the previous delay.
    Decorrelated,
    /// By this share to both sides, over 0 up to 100 %.
    Factor(Ratio),
}

/// The options of a [`Backoff`], unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffOptions {
    /// The first step. 1 ms to `cap`; default 100 ms.
    pub base: Duration,
    /// The longest delay. `base` or more, no upper bound of its own (the deadline ends a call);
    /// default 5 s.
    pub cap: Duration,
    /// How delays are spread. Default full.
    pub jitter: Jitter,
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self { base: BASE, cap: CAP, jitter: Jitter::Full }
    }
}

/// A checked backoff: parameters only, so one value serves every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Nanoseconds, `BASE_MIN..=cap`.
    base: u64,
    /// Nanoseconds.
    cap: u64,
    jitter: Jitter,
}

impl Backoff {
    /// Checks the options.
    ///
    /// # Errors
    ///
    /// If `base` is below 1 ms or above `cap`, if a factor is 0 or over 100 %, or if decorrelated
    /// jitter has no room because `base` equals `cap`.
    pub fn new(options: BackoffOptions) -> Result<Self, ConfigError> {
        let BackoffOptions { base, cap, jitter } = options;
        let refused =
            |field: &'static str, value, allowed| Err(ConfigError::new(field, value, allowed));
        if base < BASE_MIN || base > cap {
            let allowed = format!("{BASE_MIN:?} to cap ({cap:?})");
            return refused("base", format!("{base:?}"), allowed);
        }
        match jitter {
            Jitter::Factor(factor) if factor == Ratio::ZERO || factor > Ratio::ONE => {
                let allowed = "over 0% up to 100%, or jitter none";
                refused("jitter", format!("{factor}"), allowed.into())
            }
            Jitter::Decorrelated if base == cap => {
                let allowed = format!("another jitter, or a cap above base ({base:?})");
                refused("jitter", "decorrelated".into(), allowed)
            }
            _ => Ok(Self { base: nanos(base), cap: nanos(cap), jitter }),
        }
    }

    /// The delay before attempt `n + 2`.
    ///
    /// `previous` is the delay this backoff gave before, zero at first; only decorrelated jitter
    /// uses it. Never above the cap; full jitter may give zero.
    #[must_use]
    pub fn delay(&self, n: u32, previous: Duration, rng: &mut impl Rng) -> Duration {
        let (low, high) = self.range(n, nanos(previous));
        rng.duration_between(Duration::from_nanos(low), Duration::from_nanos(high))
    }

    /// The least wait after an unusable `Retry-After`: base/2. The server did say "later".
    #[must_use]
    pub const fn floor(&self) -> Duration {
        Duration::from_nanos(self.base / 2)
    }

    /// The longest delay there can be before attempt `n + 2`.
    #[must_use]
    pub fn longest(&self, n: u32) -> Duration {
        // The previous delay was at most base · 3ⁿ; the range triples it.
        let previous = self.base.saturating_mul(3_u64.saturating_pow(n));
        Duration::from_nanos(self.range(n, previous).1)
    }

    /// The first step.
    #[must_use]
    pub const fn base(&self) -> Duration {
        Duration::from_nanos(self.base)
    }

    /// The longest delay.
    #[must_use]
    pub const fn cap(&self) -> Duration {
        Duration::from_nanos(self.cap)
    }

    /// How delays are spread.
    #[must_use]
    pub const fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// The least and the longest delay, in nanoseconds.
    fn range(&self, n: u32, previous: u64) -> (u64, u64) {
        let step = self.step(n, self.cap);
        match self.jitter {
            Jitter::None => (step, step),
            Jitter::Full => (0, step),
            Jitter::Equal => (step / 2, step),
            Jitter::Decorrelated => {
                (self.base, previous.max(self.base).saturating_mul(3).min(self.cap))
            }
            Jitter::Factor(factor) => {
                let middle = self.step(n, share_with_headroom(self.cap, factor));
                let spread = factor.of(middle);
                (middle - spread, middle + spread)
            }
        }
    }

    /// min(`cap`, base · 2ⁿ), for any n.
    fn step(&self, n: u32, cap: u64) -> u64 {
        if n >= self.base.leading_zeros() { cap } else { (self.base << n).min(cap) }
    }
}

/// `cap / (1 + factor)`, rounded down.
fn share_with_headroom(cap: u64, factor: Ratio) -> u64 {
    let whole = u128::from(Ratio::SCALE) + u128::from(factor.millionths());
    let share = u128::from(cap) * u128::from(Ratio::SCALE) / whole;
    u64::try_from(share).unwrap_or(cap)
}

/// Source: seawall-defaults.
const BASE: Duration = Duration::from_millis(100);
/// Source: seawall-defaults.
const CAP: Duration = Duration::from_secs(5);
/// Below it the floor after an unusable `Retry-After` would be no wait at all.
const BASE_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use alloc::string::ToString;
    use proptest::prelude::*;
    use std::vec::Vec;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn backoff(base: u64, cap: u64, jitter: Jitter) -> Backoff {
        Backoff::new(BackoffOptions { base: ms(base), cap: ms(cap), jitter }).unwrap()
    }

    /// The delays of many clients before one attempt, each with the history of its own.
    fn fleet(backoff: &Backoff, retry: u32, clients: u64) -> Vec<Duration> {
        let mut rng = SplitMix64::new(7);
        let one = |_| (0..retry).fold(Duration::ZERO, |last, n| backoff.delay(n, last, &mut rng));
        (0..clients).map(one).collect()
    }

    fn all_jitters() -> [Jitter; 4] {
        [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Factor(Ratio::from_percent(50))]
    }

    #[test]
    fn the_cap_comes_before_the_jitter_so_no_share_of_a_fleet_sleeps_the_same_time() {
        for jitter in all_jitters() {
            let backoff = backoff(100, 5000, jitter);
            for retry in [5, 8, 10] {
                let delays = fleet(&backoff, retry, 20_000);
                let at_cap = delays.iter().filter(|delay| **delay == backoff.cap()).count();
                assert_eq!(at_cap, 0, "{jitter:?} at retry {retry}");
            }
        }
    }

    #[test]
    fn delays_fill_their_range_and_do_not_leave_it() {
        for (jitter, retry, low, high) in [
            (Jitter::Full, 1, 0, 100),
            (Jitter::Full, 4, 0, 800),
            (Jitter::Full, 10, 0, 5000),
            (Jitter::Equal, 1, 50, 100),
            (Jitter::Equal, 10, 2500, 5000),
            (Jitter::Decorrelated, 1, 100, 300),
            (Jitter::Decorrelated, 10, 100, 5000),
            (Jitter::Factor(Ratio::from_percent(20)), 1, 80, 120),
            (Jitter::Factor(Ratio::from_percent(25)), 10, 3000, 5000),
            (Jitter::Factor(Ratio::ONE), 10, 0, 5000),
        ] {
            let delays = fleet(&backoff(100, 5000, jitter), retry, 20_000);
            let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            let slack = ms(high - low) / 100;
            assert!(*least >= ms(low) && *least <= ms(low) + slack, "{jitter:?} {least:?}");
            assert!(*most <= ms(high) && *most >= ms(high) - slack, "{jitter:?} {most:?}");
        }
    }

    #[test]
    fn without_jitter_steps_double_up_to_the_cap_for_any_n() {
        let backoff = backoff(100, 5000, Jitter::None);
        let mut rng = SplitMix64::new(0);
        let mut delay = |n| backoff.delay(n, Duration::ZERO, &mut rng);
        assert_eq!(
            [0, 1, 2, 5, 6].map(&mut delay),
            [ms(100), ms(200), ms(400), ms(3200), ms(5000)]
        );
        for n in [36, 37, 38, 63, 64, 65, u32::MAX] {
            assert_eq!(delay(n), ms(5000), "{n}");
        }
    }

    #[test]
    fn decorrelated_delays_still_vary_after_a_delay_at_the_cap() {
        let backoff = backoff(100, 5000, Jitter::Decorrelated);
        let mut rng = SplitMix64::new(3);
        let delays: Vec<_> = (0..1000).map(|_| backoff.delay(9, ms(5000), &mut rng)).collect();
        let middle = delays.iter().filter(|delay| **delay < ms(2550)).count();
        assert!((450..=550).contains(&middle), "{middle}");
    }

    #[test]
    fn the_floor_is_half_the_base() {
        assert_eq!(backoff(100, 5000, Jitter::Full).floor(), ms(50));
        assert_eq!(backoff(1, 1, Jitter::None).floor(), Duration::from_micros(500));
    }

    #[test]
    fn defaults_obey_the_checks() {
        let backoff = Backoff::new(BackoffOptions::default()).unwrap();
        assert_eq!((backoff.base(), backoff.cap()), (ms(100), ms(5000)));
        assert_eq!(backoff.jitter(), Jitter::Full);
    }

    #[test]
    fn options_that_can_never_take_effect_are_refused() {
        let check = |base: Duration, cap, jitter| {
            let options = BackoffOptions { base, cap, jitter };
            Backoff::new(options).map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = |text: &str| Err(text.to_string());
        let factor = |millionths| Jitter::Factor(Ratio::from_millionths(millionths));

        assert_eq!(check(ms(1), ms(1), Jitter::Full), Ok(()));
        assert_eq!(
            check(ms(0), ms(5), Jitter::Full),
            refused("field `base`: 0ns is not allowed; give 1ms to cap (5ms)")
        );
        assert!(check(Duration::from_nanos(999_999), ms(5), Jitter::Full).is_err());
        assert_eq!(
            check(ms(6), ms(5), Jitter::Full),
            refused("field `base`: 6ms is not allowed; give 1ms to cap (5ms)")
        );
        assert_eq!(check(ms(1), ms(5), factor(1)), Ok(()));
        assert_eq!(check(ms(1), ms(5), factor(1_000_000)), Ok(()));
        assert_eq!(
            check(ms(1), ms(5), factor(1_000_001)),
            refused(
                "field `jitter`: 100.0001% is not allowed; \
                 give over 0% up to 100%, or jitter none"
            )
        );
        assert!(check(ms(1), ms(5), factor(0)).is_err());
        assert_eq!(
            check(ms(5), ms(5), Jitter::Decorrelated),
            refused(
                "field `jitter`: decorrelated is not allowed; \
                 give another jitter, or a cap above base (5ms)"
            )
        );
    }

    proptest! {
        #[test]
        fn no_delay_exceeds_the_longest_or_the_cap(
            base in 1..=10_000_u64,
            above in 1..=u64::MAX / 2,
            which in 0..4_usize,
            retries in 1..70_u32,
            seed in any::<u64>(),
        ) {
            let backoff = backoff(base, base.saturating_add(above), all_jitters()[which]);
            let mut rng = SplitMix64::new(seed);
            let mut last = Duration::ZERO;
            for n in 0..retries {
                last = backoff.delay(n, last, &mut rng);
                prop_assert!(last <= backoff.longest(n));
                prop_assert!(backoff.longest(n) <= backoff.cap());
            }
            let _ = backoff.delay(u32::MAX, Duration::MAX, &mut rng);
            prop_assert!(backoff.longest(u32::MAX) <= backoff.cap());
        }
    }
}
