//! Randomness as a function of who draws, for what, and for the how-manieth time.
//!
//! A draw is `f(seed, entity, purpose, n)` and nothing else. There is no generator whose state one
//! entity could advance for another: a client more in the fleet changes nobody else's draws, and
//! two policies meet the very same arrivals and service times, so that what differs between their
//! runs is the policy.
//!
//! `f` is the finalizer of SplitMix64 twice over, keyed by the entity in both rounds, so that the
//! streams of two entities never run into each other as sequences of one counter would.
//! Source: splitmix64.

use seawall_policy::Rng;

/// What a draw is for. Each has a stream of its own in every entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// When the next call, job or reader comes.
    Arrival,
    /// How long work takes.
    Service,
    /// How long a message travels, and whether it arrives.
    Network,
    /// Whether a fault hits.
    Fault,
    /// What a policy asks for: jitter, the choice of an endpoint.
    Policy,
    /// Which key, shard or queue.
    Choice,
}

/// All draws of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The draws of this seed; neighbouring seeds have nothing in common.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ SEEDS))
    }

    /// The stream of an entity for a purpose, at its first draw.
    #[must_use]
    pub const fn stream(self, entity: u32, purpose: Purpose) -> Draw {
        let entity = mix(self.0.wrapping_add(GOLDEN.wrapping_mul(entity as u64 + 1)));
        let stream = entity.rotate_left(32) ^ mix(PURPOSES.wrapping_add(purpose as u64));
        Draw { entity, stream, n: 0 }
    }
}

/// A stream of draws, which is a place in a sequence: copying it costs nothing, and going to the
/// n-th draw is as cheap as going to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    entity: u64,
    stream: u64,
    n: u64,
}

impl Draw {
    /// The same stream at its draw number `n`, counted from 0.
    #[must_use]
    pub const fn at(self, n: u64) -> Self {
        Self { n, ..self }
    }

    /// How many were drawn.
    #[must_use]
    pub const fn drawn(&self) -> u64 {
        self.n
    }

    /// A number uniform over (0, 1], in steps of 2⁻⁵³.
    #[must_use]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens: never at 0, always at 1.
    #[must_use]
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() <= probability
    }

    /// A number from the exponential distribution of mean 1.
    #[must_use]
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// A number from the standard normal distribution. Takes two draws.
    /// Source: box-muller.
    #[must_use]
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

impl Rng for Draw {
    fn next_u64(&mut self) -> u64 {
        let inner = mix(self.stream.wrapping_add(GOLDEN.wrapping_mul(self.n)));
        self.n = self.n.wrapping_add(1);
        mix(inner ^ self.entity)
    }
}

/// The finalizer of SplitMix64: a bijection in which every bit in moves every bit out.
pub(crate) const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// 2⁶⁴ over the golden ratio. Source: splitmix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Apart from zero, which the finalizer keeps. Source: own choice (digits of pi).
const SEEDS: u64 = 0x2437_F6A8_885A_308D;
const PURPOSES: u64 = 0x3198_A2E0_3707_3445;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Purpose; 6] = [
        Purpose::Arrival,
        Purpose::Service,
        Purpose::Network,
        Purpose::Fault,
        Purpose::Policy,
        Purpose::Choice,
    ];

    #[test]
    fn a_draw_depends_on_nothing_but_its_four_coordinates() {
        let draws = Draws::new(7);
        let mut stream = draws.stream(3, Purpose::Arrival);
        let first: Vec<u64> = (0..100).map(|_| stream.next_u64()).collect();
        assert_eq!(stream.drawn(), 100);
        let _ = draws.stream(4, Purpose::Arrival).next_u64();
        for (n, drawn) in (0_u64..).zip(first) {
            assert_eq!(draws.stream(3, Purpose::Arrival).at(n).next_u64(), drawn);
        }
    }

    #[test]
    fn no_two_coordinates_share_a_draw() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..5 {
            for (entity, purpose) in (0..50).flat_map(|id| ALL.map(|purpose| (id, purpose))) {
                let mut stream = Draws::new(seed).stream(entity, purpose);
                for _ in 0..20 {
                    assert!(seen.insert(stream.next_u64()), "{seed} {entity} {purpose:?}");
                }
            }
        }
    }

    /// Mean and variance over many entities' draw `n`, and over many draws of one entity.
    fn moments(mut draw: impl FnMut(u32) -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..200_000).map(&mut draw).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = |value: &f64| (value - mean) * (value - mean);
        (mean, values.iter().map(square).sum::<f64>() / values.len() as f64)
    }

    #[test]
    fn draws_have_the_moments_of_their_distribution_along_and_across_streams() {
        let draws = Draws::new(1);
        let mut along = draws.stream(9, Purpose::Service);
        let across = |entity| draws.stream(entity, Purpose::Arrival).at(5);
        // Five standard errors of 200,000 draws.
        let near = |(mean, variance): (f64, f64), exact: (f64, f64)| {
            assert!((mean - exact.0).abs() < 0.012, "{mean}");
            assert!((variance - exact.1).abs() < 0.035, "{variance}");
        };
        near(moments(|_| along.unit()), (0.5, 1.0 / 12.0));
        near(moments(|entity| across(entity).unit()), (0.5, 1.0 / 12.0));
        near(moments(|_| along.exponential()), (1.0, 1.0));
        near(moments(|entity| across(entity).exponential()), (1.0, 1.0));
        near(moments(|_| along.normal()), (0.0, 1.0));
        near(moments(|entity| across(entity).normal()), (0.0, 1.0));
    }

    #[test]
    fn neighbours_are_uncorrelated() {
        let draws = Draws::new(2);
        let unit = |entity, purpose, n| draws.stream(entity, purpose).at(n).unit() - 0.5;
        let here = |entity| unit(entity, Purpose::Arrival, 0);
        let others: [&dyn Fn(u32) -> f64; 3] = [
            &|entity| unit(entity + 1, Purpose::Arrival, 0),
            &|entity| unit(entity, Purpose::Service, 0),
            &|entity| unit(entity, Purpose::Arrival, 1),
        ];
        for other in others {
            let (covariance, _) = moments(|entity| here(entity) * other(entity));
            // Five standard errors: 5 / 12 / √200,000.
            assert!(covariance.abs() < 0.001, "{covariance}");
        }
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut stream = Draws::new(3).stream(0, Purpose::Fault);
        assert!((0..10_000).all(|_| stream.happens(1.0) && !stream.happens(0.0)));
        assert!(stream.at(0).unit() > 0.0);
    }
}
