//! How many calls come in a second, over time: steps, drawn exactly.
//!
//! The next call comes when as many calls are expected since the last as an exponential draw of
//! mean 1 says. That is one draw a call whatever the rate is, so the n-th call of a client is the
//! same draw under every load.

use seawall_policy::{ConfigError, Timestamp};

use crate::span::{check, seconds_to_span};

/// Calls a second, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Since when, and how many; the first since time zero, and each later than the one before.
    steps: Vec<(Timestamp, f64)>,
}

impl Rate {
    /// The same at all times; 0 to 10⁹.
    ///
    /// # Errors
    /// A rate outside that range.
    pub fn constant(per_second: f64) -> Result<Self, ConfigError> {
        check("rate", per_second, 0.0, 1e9)?;
        Ok(Self { steps: vec![(Timestamp::ZERO, per_second)] })
    }

    /// From then on another one.
    ///
    /// # Errors
    /// A rate outside 0 to 10⁹, or a time that is not after the last step's.
    pub fn then(mut self, from: Timestamp, per_second: f64) -> Result<Self, ConfigError> {
        check("rate", per_second, 0.0, 1e9)?;
        let last = self.steps.last().map_or(Timestamp::ZERO, |step| step.0);
        if from <= last {
            return Err(ConfigError::new("from", from, format!("a time after {last}")));
        }
        self.steps.push((from, per_second));
        Ok(self)
    }

    /// The same share of every step.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        Self { steps: self.steps.iter().map(|(from, rate)| (*from, rate * share)).collect() }
    }

    /// Calls a second at `now`.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> f64 {
        let begun = self.steps.partition_point(|(from, _)| *from <= now);
        self.steps[begun.max(1) - 1].1
    }

    /// The most calls a second before `until`.
    #[must_use]
    pub fn most(&self, until: Timestamp) -> f64 {
        let before = self.steps.iter().filter(|(from, _)| *from < until);
        before.map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// When `calls` calls are to be expected since `now`; never, if there are no more so many.
    #[must_use]
    pub fn after(&self, now: Timestamp, calls: f64) -> Timestamp {
        let (mut now, mut left) = (now, calls);
        let mut step = self.steps.partition_point(|(from, _)| *from <= now).max(1) - 1;
        loop {
            let rate = self.steps[step].1;
            let end = self.steps.get(step + 1).map_or(Timestamp::MAX, |next| next.0);
            let room = now.until(end).as_secs_f64() * rate;
            if left <= room {
                return now.after(seconds_to_span(left / rate)).min(end);
            }
            if end == Timestamp::MAX {
                return Timestamp::MAX;
            }
            left -= room;
            now = end;
            step += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn second(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn stepped() -> Rate {
        let rate = Rate::constant(10.0).unwrap();
        rate.then(second(5), 0.0).unwrap().then(second(7), 40.0).unwrap()
    }

    #[test]
    fn expected_calls_are_counted_across_steps() {
        let rate = stepped();
        assert_eq!(rate.after(Timestamp::ZERO, 20.0), second(2));
        assert_eq!(rate.after(Timestamp::ZERO, 50.0), second(5));
        assert_eq!(rate.after(second(4), 50.0), second(8));
        assert_eq!(rate.after(second(6), 40.0), second(8));
        for (at, exact) in [(4, 10.0), (5, 0.0), (6, 0.0), (7, 40.0), (99, 40.0)] {
            assert!((rate.at(second(at)) - exact).abs() < 1e-9, "{at}");
        }
        assert_eq!(Rate::constant(0.0).unwrap().after(second(1), 0.1), Timestamp::MAX);
        let ends = Rate::constant(10.0).unwrap().then(second(1), 0.0).unwrap();
        assert_eq!(ends.after(Timestamp::ZERO, 10.5), Timestamp::MAX);
    }

    #[test]
    fn every_second_has_the_calls_of_its_step() {
        let rate = stepped().scaled(100.0);
        let mut draw = Draws::new(1).stream(0, Purpose::Arrival);
        let mut counts = [0_u32; 10];
        let place = |now: Timestamp| usize::try_from(now.since(Timestamp::ZERO).as_secs()).unwrap();
        let mut now = rate.after(Timestamp::ZERO, draw.exponential());
        while let Some(count) = counts.get_mut(place(now)) {
            *count += 1;
            now = rate.after(now, draw.exponential());
        }
        // Five standard deviations of a Poisson count.
        for (at, count) in (0..).zip(counts) {
            let expected = rate.at(second(at));
            let off = (f64::from(count) - expected).abs();
            assert!(off <= 5.0 * expected.sqrt(), "second {at}: {count}, not {expected}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for rate in [-1.0, f64::NAN, 2e9] {
            assert!(Rate::constant(rate).is_err());
        }
        let told = stepped().then(second(7), 1.0).unwrap_err().to_string();
        assert_eq!(
            told,
            "field `from`: 7.000000000s is not allowed; give a time after 7.000000000s"
        );
    }
}
