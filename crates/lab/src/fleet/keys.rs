//! Which key a call is about: of so many, some perhaps more often than others.

use seawall_policy::{ConfigError, Rng as _};

use crate::draw::Draw;
use crate::span::check;

/// Keys that calls are about, numbered from 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    count: u32,
    /// For each key the share of calls about it or one before it; empty if all are alike.
    up_to: Vec<f64>,
}

impl Keys {
    /// So many, from 1 to 1,000,000, each as often as any other.
    ///
    /// # Errors
    /// A number outside that range.
    pub fn alike(count: u32) -> Result<Self, ConfigError> {
        check("keys", count.into(), 1.0, MOST_KEYS)?;
        Ok(Self { count, up_to: Vec::new() })
    }

    /// So many, the one numbered `k` as often as 1/(k + 1)^`exponent` says (Zipf's law), which is
    /// above 0 and at most 5.
    ///
    /// # Errors
    /// A number outside its range.
    pub fn zipf(count: u32, exponent: f64) -> Result<Self, ConfigError> {
        check("keys", count.into(), 1.0, MOST_KEYS)?;
        check("zipf", exponent, 0.001, 5.0)?;
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += libm::pow(f64::from(rank), -exponent);
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|share| *share /= sum);
        Ok(Self { count, up_to })
    }

    pub(super) fn draw(&self, draw: &mut Draw) -> u32 {
        if self.up_to.is_empty() {
            return u32::try_from(draw.below(self.count.into())).unwrap_or(0);
        }
        let unit = draw.unit();
        let key = self.up_to.partition_point(|share| *share < unit);
        u32::try_from(key).unwrap_or(0).min(self.count - 1)
    }
}

/// Source: own choice (8 bytes each where they are not alike).
const MOST_KEYS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    /// How often each of five keys is drawn, of a hundred thousand.
    fn shares(keys: &Keys) -> [f64; 5] {
        let mut draw = Draws::new(1).stream(0, Purpose::Choice);
        let mut drawn = [0.0; 5];
        for _ in 0..100_000 {
            drawn[keys.draw(&mut draw) as usize] += 1e-5;
        }
        drawn
    }

    fn near(keys: &Keys, exact: [f64; 5]) {
        let drawn = shares(keys);
        assert!(drawn.iter().zip(exact).all(|(a, b)| (a - b).abs() < 0.008), "{drawn:?}");
    }

    #[test]
    fn keys_are_drawn_as_often_as_their_law_says() {
        near(&Keys::alike(5).unwrap(), [0.2; 5]);
        // 1 + 1/2 + 1/3 + 1/4 + 1/5 = 137/60.
        let zipf = [60.0, 30.0, 20.0, 15.0, 12.0].map(|part| part / 137.0);
        near(&Keys::zipf(5, 1.0).unwrap(), zipf);
        near(&Keys::zipf(1, 1.0).unwrap(), [1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let told = [Keys::alike(0), Keys::zipf(1_000_001, 1.0), Keys::zipf(5, 0.0)];
        let told = told.map(|refused| refused.unwrap_err().field().to_owned());
        assert_eq!(told, ["keys", "keys", "zipf"]);
    }
}
