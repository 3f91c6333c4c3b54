//! How long answered calls took, second by second, in coarse steps: what a heat map is drawn of.
//!
//! Two steps double the time. The first holds all below 91 µs, the last all from 48 s on. A second
//! takes 160 bytes.

use std::time::Duration;

use seawall_policy::Timestamp;

/// Answered calls by the second of their answer and by how long they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat(Vec<[u32; Self::STEPS]>);

impl Heat {
    /// How many steps of time there are.
    pub const STEPS: usize = 40;

    pub(crate) fn new(seconds: usize) -> Self {
        Self(vec![[0; Self::STEPS]; seconds])
    }

    /// Of each second from time zero, how many answers came in each step.
    #[must_use]
    pub fn seconds(&self) -> &[[u32; Self::STEPS]] {
        &self.0
    }

    /// The least time of a step; zero of the first.
    #[must_use]
    pub fn least(step: usize) -> Duration {
        if step == 0 {
            return Duration::ZERO;
        }
        let doubled = 1_u64 << (step / 2 + FIRST as usize).min(30);
        let least =
            if step.is_multiple_of(2) { doubled } else { (2 * doubled * doubled).isqrt() + 1 };
        Duration::from_micros(least)
    }

    pub(super) fn record(&mut self, now: Timestamp, took: Duration) {
        let last = self.0.len().saturating_sub(1);
        let second = usize::try_from(now.since(Timestamp::ZERO).as_secs()).unwrap_or(last);
        if let Some(second) = self.0.get_mut(second.min(last)) {
            second[step(took)] += 1;
        }
    }

    /// Takes in all that another one holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), [0; Self::STEPS]);
        }
        for (sum, second) in self.0.iter_mut().zip(&other.0) {
            for (sum, count) in sum.iter_mut().zip(second) {
                *sum = sum.saturating_add(*count);
            }
        }
    }
}

/// The step of a time: whole numbers only, so that it is the same everywhere.
fn step(took: Duration) -> usize {
    let micros = took.as_micros().clamp(1 << FIRST, 1 << 63);
    let power = 127 - micros.leading_zeros();
    let is_upper = micros * micros > 1 << (2 * power + 1);
    let step = 2 * (power - FIRST) + u32::from(is_upper);
    (step as usize).min(Heat::STEPS - 1)
}

/// The first step ends half a doubling above 2⁶ µs. Source: own choice.
const FIRST: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_double_the_time_and_every_time_has_one() {
        let micros = |micros| step(Duration::from_micros(micros));
        assert_eq!([0, 1, 64, 90, 91, 127, 128].map(micros), [0, 0, 0, 0, 1, 1, 2]);
        assert_eq!([Duration::from_secs(48), Duration::MAX].map(step), [39, 39]);
        for at in 1..Heat::STEPS {
            let least = Heat::least(at);
            let below = least - Duration::from_micros(1);
            assert_eq!((step(least), step(below)), (at, at - 1), "{least:?}");
        }
        assert_eq!(Heat::least(2), Duration::from_micros(128));
        assert_eq!(Heat::least(0), Duration::ZERO);
    }

    #[test]
    fn an_answer_counts_in_the_second_it_comes_in_and_heats_add_up() {
        let mut heat = Heat::new(3);
        heat.record(Timestamp::from_millis(1_999), Duration::from_millis(5));
        heat.record(Timestamp::from_millis(9_000), Duration::from_millis(5));
        let mut sum = Heat::default();
        sum.merge(&heat);
        sum.merge(&heat);
        let in_second = |second: usize| sum.seconds()[second].iter().sum::<u32>();
        assert_eq!([0, 1, 2].map(in_second), [0, 2, 2]);
        assert_eq!(sum.seconds()[1][step(Duration::from_millis(5))], 2);
    }
}
