//! Whether a reader makes a cached entry anew before it is over: plain XFetch. Source: xfetch.

use std::time::Duration;

use crate::draw::Draw;

/// A reader that finds so much life left makes the entry anew if it has none, or if −δ·β·ln U is as
/// much, δ being the time that takes, and U a number drawn from (0, 1].
pub(crate) fn refreshes(left: Duration, takes: Duration, beta: f64, draw: &mut Draw) -> bool {
    let early = takes.as_secs_f64() * beta * draw.exponential();
    left.is_zero() || early >= left.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    #[test]
    fn the_less_is_left_the_likelier_and_at_the_end_it_is_certain() {
        let second = Duration::from_secs(1);
        let mut draw = Draws::new(1).stream(0, Purpose::Choice);
        let mut share = |left: Duration, beta| {
            let hits = (0..100_000).filter(|_| refreshes(left, second, beta, &mut draw));
            hits.count() as f64 / 1e5
        };
        for (left, beta) in [(0.5_f64, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0)] {
            let measured = share(Duration::from_secs_f64(left), beta);
            let expected = (-left / beta).exp();
            assert!((measured - expected).abs() < 0.01, "{left} {beta}: {measured}");
        }
        assert!((share(Duration::ZERO, 0.0) - 1.0).abs() < 1e-9);
        assert!(share(Duration::from_nanos(1), 0.0) < 1e-9);
    }
}
