//! How long things take: the distributions of service times, thinking times and delays.
//!
//! | span | what it is like | mean |
//! |---|---|---|
//! | fixed | always the same | itself |
//! | uniform | all between two ends alike | their middle |
//! | exponential | no memory; most are short | as given |
//! | two exponentials | the same, and now and then one of another mean | by the share |
//! | log-normal | the middle of what servers really do | median · e^(σ²/2) |
//! | Pareto, bounded | heavy tail; a few take as long as all others together | by its bounds |
//! | two points | usual, and now and then rare | by the share |
//! | normal, folded | around a mean, mirrored at zero | about as given |
//! | survival, in pieces | shares that take longer than times, a power law from each to the next | by its pieces |
//! | trace | one of what was recorded, each as likely | of the record |
//!
//! Each span is drawn to the nanosecond. [`Span::mean`] and [`Span::second_moment`] are exact, for
//! the formulas of [`exact`](crate::exact) to be fed with.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{ConfigError, Rng};

use crate::draw::Draw;

/// A distribution of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Span(Law);

#[derive(Clone, Debug, PartialEq)]
enum Law {
    Fixed(Duration),
    Uniform(Duration, Duration),
    /// Seconds.
    Exponential(f64),
    /// Seconds, and the share of the rare one.
    Exponentials {
        usual: f64,
        rare: f64,
        share: f64,
    },
    LogNormal {
        median: f64,
        sigma: f64,
    },
    Pareto {
        least: f64,
        most: f64,
        exponent: f64,
    },
    TwoPoints {
        usual: f64,
        rare: f64,
        share: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// Seconds, and the share that takes longer.
    Survival(Arc<[(f64, f64)]>),
    Trace(Arc<[Duration]>),
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self::fixed(Duration::ZERO);

    /// Always this long.
    #[must_use]
    pub const fn fixed(span: Duration) -> Self {
        Self(Law::Fixed(span))
    }

    /// Uniform from the one to the other, which must not be the shorter.
    ///
    /// # Errors
    /// It is.
    pub fn uniform(least: Duration, most: Duration) -> Result<Self, ConfigError> {
        if most < least {
            let allowed = format!("at least least, which is {least:?}");
            return Err(ConfigError::new("most", format!("{most:?}"), allowed));
        }
        Ok(Self(Law::Uniform(least, most)))
    }

    /// Exponential, of this mean.
    #[must_use]
    pub const fn exponential(mean: Duration) -> Self {
        Self(Law::Exponential(mean.as_secs_f64()))
    }

    /// Exponential, usually of the one mean, in this share of cases, 0 to 1, of the other.
    ///
    /// # Errors
    /// A share outside that range.
    pub fn exponentials(usual: Duration, rare: Duration, share: f64) -> Result<Self, ConfigError> {
        check("share", share, 0.0, 1.0)?;
        let (usual, rare) = (usual.as_secs_f64(), rare.as_secs_f64());
        Ok(Self(Law::Exponentials { usual, rare, share }))
    }

    /// Log-normal, by its median and the deviation of its logarithm; 0 to 3.
    ///
    /// # Errors
    /// A deviation outside that range: beyond 3 one span in a thousand takes ten thousand medians.
    pub fn log_normal(median: Duration, sigma: f64) -> Result<Self, ConfigError> {
        check("sigma", sigma, 0.0, 3.0)?;
        Ok(Self(Law::LogNormal { median: median.as_secs_f64(), sigma }))
    }

    /// Pareto between two bounds, its survival falling with this exponent; 0.1 to 10.
    ///
    /// # Errors
    /// An exponent outside that range, a `least` of zero, or a `most` that is not above it.
    pub fn pareto(least: Duration, most: Duration, exponent: f64) -> Result<Self, ConfigError> {
        check("exponent", exponent, 0.1, 10.0)?;
        if least.is_zero() {
            return Err(ConfigError::new("least", "0", "a time above zero"));
        }
        if most <= least {
            let allowed = format!("more than least, which is {least:?}");
            return Err(ConfigError::new("most", format!("{most:?}"), allowed));
        }
        let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
        Ok(Self(Law::Pareto { least, most, exponent }))
    }

    /// Usually the one; in this share of cases, 0 to 1, the other.
    ///
    /// # Errors
    /// A share outside that range.
    pub fn two_points(usual: Duration, rare: Duration, share: f64) -> Result<Self, ConfigError> {
        check("share", share, 0.0, 1.0)?;
        let (usual, rare) = (usual.as_secs_f64(), rare.as_secs_f64());
        Ok(Self(Law::TwoPoints { usual, rare, share }))
    }

    /// The size of a normal number: |N(mean, deviation)|. The deviation is at most a quarter of
    /// the mean, so that the mirror at zero is hardly ever looked into.
    ///
    /// # Errors
    /// A larger deviation.
    pub fn normal(mean: Duration, deviation: Duration) -> Result<Self, ConfigError> {
        if deviation > mean / 4 {
            let allowed = format!("at most a quarter of mean, which is {mean:?}");
            return Err(ConfigError::new("deviation", format!("{deviation:?}"), allowed));
        }
        let (mean, deviation) = (mean.as_secs_f64(), deviation.as_secs_f64());
        Ok(Self(Law::Normal { mean, deviation }))
    }

    /// By the shares, from 1 down, that take longer than some times, from the least up: between two
    /// of them, and beyond the last, the share falls by a power of the time.
    ///
    /// # Errors
    /// Fewer than two, a first share other than 1, a time of zero, or one of either that is not
    /// beyond the one before.
    pub fn survival(points: &[(Duration, f64)]) -> Result<Self, ConfigError> {
        let points: Vec<_> =
            points.iter().map(|(time, share)| (time.as_secs_f64(), *share)).collect();
        let rises = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1;
        let begins = points.first().is_some_and(|(time, share)| *time > 0.0 && *share >= 1.0);
        let ends = points.last().is_some_and(|(_, share)| *share > 0.0);
        if points.len() < 2 || !begins || !ends || !points.windows(2).all(rises) {
            let allowed = "two or more of a time and the share that takes longer: times that \
                           rise from above 0, shares that fall from 1 and stay above 0";
            return Err(ConfigError::new("survival", format!("{points:?}"), allowed));
        }
        if points[0].1 > 1.0 {
            return Err(ConfigError::new("survival", points[0].1, "a first share of 1"));
        }
        Ok(Self(Law::Survival(points.into())))
    }

    /// One of these, each as likely as the others.
    ///
    /// # Errors
    /// Nothing was recorded.
    pub fn trace(recorded: &[Duration]) -> Result<Self, ConfigError> {
        if recorded.is_empty() {
            return Err(ConfigError::new("trace", "nothing", "at least one time"));
        }
        Ok(Self(Law::Trace(recorded.into())))
    }

    /// One time.
    #[must_use]
    pub fn draw(&self, draw: &mut Draw) -> Duration {
        let seconds = match &self.0 {
            Law::Fixed(span) => return *span,
            Law::Uniform(least, most) => return draw.duration_between(*least, *most),
            Law::Trace(recorded) => {
                let place = usize::try_from(draw.below(recorded.len() as u64)).unwrap_or(0);
                return recorded[place];
            }
            Law::Exponential(mean) => mean * draw.exponential(),
            Law::Exponentials { usual, rare, share } => {
                let mean = if draw.happens(*share) { rare } else { usual };
                mean * draw.exponential()
            }
            Law::LogNormal { median, sigma } => median * libm::exp(sigma * draw.normal()),
            Law::Pareto { least, most, exponent } => {
                let cut = 1.0 - libm::pow(least / most, *exponent);
                least * libm::pow(1.0 - draw.unit() * cut, -1.0 / exponent)
            }
            Law::TwoPoints { usual, rare, share } => {
                if draw.happens(*share) {
                    *rare
                } else {
                    *usual
                }
            }
            Law::Normal { mean, deviation } => (mean + deviation * draw.normal()).abs(),
            Law::Survival(points) => {
                let share = draw.unit();
                let pieces = points.windows(2);
                let piece = pieces.clone().find(|piece| share >= piece[1].1).or(pieces.last());
                let (from, exponent) = piece.map_or(((0.0, 1.0), -1.0), falls);
                from.0 * libm::pow(share / from.1, 1.0 / exponent)
            }
        };
        seconds_to_span(seconds)
    }

    /// Whether it is exponential, of one mean.
    #[must_use]
    pub const fn is_exponential(&self) -> bool {
        matches!(self.0, Law::Exponential(_))
    }

    /// The mean, in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// The mean of the square, in seconds squared.
    #[must_use]
    pub fn second_moment(&self) -> f64 {
        self.moment(2)
    }

    fn moment(&self, power: i32) -> f64 {
        let k = f64::from(power);
        let raised = |seconds: f64| libm::pow(seconds, k);
        match &self.0 {
            Law::Fixed(span) => raised(span.as_secs_f64()),
            Law::Uniform(least, most) => {
                let (a, b) = (least.as_secs_f64(), most.as_secs_f64());
                if power == 1 { (a + b) / 2.0 } else { (a * a + a * b + b * b) / 3.0 }
            }
            // k! · meanᵏ, for the two powers asked for.
            Law::Exponential(mean) => k * raised(*mean),
            Law::Exponentials { usual, rare, share } => {
                k * ((1.0 - share) * raised(*usual) + share * raised(*rare))
            }
            Law::LogNormal { median, sigma } => {
                raised(*median) * libm::exp(k * k * sigma * sigma / 2.0)
            }
            Law::Pareto { least, most, exponent } => {
                let scale = exponent * libm::pow(*least, *exponent)
                    / (1.0 - libm::pow(least / most, *exponent));
                let rest = k - exponent;
                if rest.abs() < 1e-9 {
                    return scale * libm::log(most / least);
                }
                scale * (libm::pow(*most, rest) - libm::pow(*least, rest)) / rest
            }
            Law::TwoPoints { usual, rare, share } => {
                (1.0 - share) * raised(*usual) + share * raised(*rare)
            }
            // The mirror at zero, four deviations off, changes less than 10⁻⁵ of it.
            Law::Normal { mean, deviation } => {
                raised(*mean) + f64::from(power - 1) * deviation * deviation
            }
            Law::Survival(points) => of_survival(points, k),
            Law::Trace(recorded) => {
                let sum: f64 = recorded.iter().map(|span| raised(span.as_secs_f64())).sum();
                sum / recorded.len() as f64
            }
        }
    }
}

/// Where a piece of a survival function begins, and its exponent, which is below zero.
fn falls(piece: &[(f64, f64)]) -> ((f64, f64), f64) {
    let (from, to) = (piece[0], piece[1]);
    (from, libm::log(to.1 / from.1) / libm::log(to.0 / from.0))
}

/// The mean of the `k`-th power: tᵏ of the least time, and ∫ k tᵏ⁻¹ S(t) dt from there on.
fn of_survival(points: &[(f64, f64)], k: f64) -> f64 {
    let last = points.len() - 2;
    let pieces = points.windows(2).enumerate().map(|(place, piece)| {
        let ((time, share), exponent) = falls(piece);
        let power = k + exponent;
        // From the time of the piece to `to` times that.
        let until = |to: f64| match power.abs() < 1e-9 {
            true => libm::log(to),
            false => (libm::pow(to, power) - 1.0) / power,
        };
        let end = if place == last { f64::INFINITY } else { piece[1].0 / time };
        k * share * libm::pow(time, k) * until(end)
    });
    libm::pow(points[0].0, k) + pieces.sum::<f64>()
}

/// A time of so many seconds, to the nearest nanosecond; none below zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(crate) fn seconds_to_span(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9 + 0.5) as u64)
}

/// Refuses what lies outside a range, or is no number.
pub(crate) fn check(
    field: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(field, value, format!("a number from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether drawn times have the moments that are computed, within `errors` standard errors of
    /// the first moment, which are printed.
    fn check_moments(span: &Span) {
        let mut draw = Draws::new(5).stream(0, Purpose::Service);
        let n = 200_000;
        let drawn: Vec<f64> = (0..n).map(|_| span.draw(&mut draw).as_secs_f64()).collect();
        let moment = |power: i32| drawn.iter().map(|x| x.powi(power)).sum::<f64>() / f64::from(n);
        let (mean, second) = (moment(1), moment(2));
        let error = |variance: f64| (variance / f64::from(n)).sqrt() * 5.0;
        let of_mean = error((second - mean * mean).max(0.0)) + 1e-9;
        assert!((mean - span.mean()).abs() < of_mean, "{span:?}: {mean} not {}", span.mean());
        let of_second = error((moment(4) - second * second).max(0.0)) + 1e-9;
        let exact = span.second_moment();
        assert!((second - exact).abs() < of_second, "{span:?}: {second} not {exact}");
    }

    #[test]
    fn drawn_times_have_the_moments_that_are_computed() {
        let trace = [millis(1), millis(1), millis(2), millis(40)];
        for span in [
            Span::fixed(millis(7)),
            Span::uniform(millis(2), millis(12)).unwrap(),
            Span::exponential(millis(7)),
            Span::exponentials(millis(7), millis(70), 0.1).unwrap(),
            Span::log_normal(millis(7), 0.8).unwrap(),
            Span::pareto(millis(1), millis(1_000), 1.3).unwrap(),
            Span::pareto(millis(1), millis(100), 1.0).unwrap(),
            Span::pareto(millis(1), millis(100), 2.0).unwrap(),
            Span::two_points(millis(1), millis(100), 0.01).unwrap(),
            Span::normal(millis(10), millis(2)).unwrap(),
            Span::trace(&trace).unwrap(),
        ] {
            check_moments(&span);
        }
    }

    #[test]
    fn a_survival_function_is_met_at_its_points_between_and_beyond() {
        let points = [(millis(1), 1.0), (millis(4), 0.5), (millis(16), 0.02)];
        let span = Span::survival(&points).unwrap();
        let mut draw = Draws::new(7).stream(0, Purpose::Service);
        let n = 200_000;
        let drawn: Vec<_> = (0..n).map(|_| span.draw(&mut draw)).collect();
        assert!(drawn.iter().all(|time| *time >= millis(1)));
        // Half way in the logarithm of time is half way in that of the share.
        let between = (0.5_f64 * 0.02).sqrt();
        for (time, share) in [(4, 0.5), (8, between), (16, 0.02), (64, 0.02 * 0.04)] {
            let above = drawn.iter().filter(|drawn| **drawn > millis(time)).count();
            let error = 5.0 * (share * (1.0 - share) / f64::from(n)).sqrt();
            let measured = above as f64 / f64::from(n);
            assert!((measured - share).abs() < error, "{time}: {measured}, not {share}");
        }
        let mean = drawn.iter().map(Duration::as_secs_f64).sum::<f64>() / f64::from(n);
        assert!((mean / span.mean() - 1.0).abs() < 0.01, "{mean}, not {}", span.mean());
        // S(t) = t⁻¹ to 2 s and t⁻³ · 4 beyond: by hand 1 + ln 2 + ½/2 · 2, and the square
        // 1 + 2 · 1 + 2 · ½ · 4.
        let seconds = |seconds| Duration::from_secs(seconds);
        let by_hand = [(seconds(1), 1.0), (seconds(2), 0.5), (seconds(4), 0.0625)];
        let by_hand = Span::survival(&by_hand).unwrap();
        assert!((by_hand.mean() - (1.0 + 2.0_f64.ln() + 0.5)).abs() < 1e-9);
        assert!((by_hand.second_moment() - 7.0).abs() < 1e-9);
        let heavy = [(seconds(1), 1.0), (seconds(2), 0.5)];
        assert!(Span::survival(&heavy).unwrap().mean().is_infinite());
    }

    #[test]
    fn bounds_hold_at_both_ends() {
        let pareto = Span::pareto(millis(1), millis(20), 0.5).unwrap();
        let mut draw = Draws::new(6).stream(0, Purpose::Service);
        let drawn: Vec<_> = (0..50_000).map(|_| pareto.draw(&mut draw)).collect();
        assert!(drawn.iter().all(|span| (millis(1)..=millis(20)).contains(span)));
        assert!(drawn.iter().any(|span| *span > millis(19)));
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_field_value_and_range() {
        let refused = [
            Span::uniform(millis(2), millis(1)),
            Span::log_normal(millis(1), 3.1),
            Span::log_normal(millis(1), f64::NAN),
            Span::pareto(millis(1), millis(2), 0.0),
            Span::pareto(Duration::ZERO, millis(2), 1.0),
            Span::pareto(millis(2), millis(2), 1.0),
            Span::two_points(millis(1), millis(2), 1.5),
            Span::normal(millis(10), millis(3)),
            Span::trace(&[]),
            Span::survival(&[(millis(1), 1.0)]),
            Span::survival(&[(millis(1), 0.9), (millis(2), 0.5)]),
            Span::survival(&[(millis(1), 1.5), (millis(2), 0.5)]),
            Span::survival(&[(millis(1), 1.0), (millis(1), 0.5)]),
            Span::survival(&[(millis(1), 1.0), (millis(2), 0.0)]),
        ];
        let told: Vec<_> =
            refused.iter().map(|span| span.clone().unwrap_err().to_string()).collect();
        let mut fields = vec![
            "most",
            "sigma",
            "sigma",
            "exponent",
            "least",
            "most",
            "share",
            "deviation",
            "trace",
        ];
        fields.extend(["survival"; 5]);
        for (said, field) in told.iter().zip(fields) {
            assert!(said.starts_with(&format!("field `{field}`")), "{said}");
        }
    }
}
