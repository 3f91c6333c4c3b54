//! How many calls come in a second, over time: steps and ramps, drawn exactly.
//!
//! The next call comes when as many calls are expected since the last as an exponential draw of
//! mean 1 says. That is one draw a call whatever the rate is, so the n-th call of a client is the
//! same draw under every load.

use std::time::Duration;

use seawall_policy::{ConfigError, Timestamp};

use crate::span::{check, seconds_to_span};

/// Calls a second, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// The first since time zero, and each later than the one before.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    from: Timestamp,
    /// Calls a second at its begin.
    rate: f64,
    /// How many more each second.
    slope: f64,
}

impl Step {
    fn at(&self, now: Timestamp) -> f64 {
        self.rate + self.slope * now.since(self.from).as_secs_f64()
    }
}

impl Rate {
    /// The same at all times; 0 to 10⁹.
    ///
    /// # Errors
    /// A rate outside that range.
    pub fn constant(per_second: f64) -> Result<Self, ConfigError> {
        check("rate", per_second, 0.0, 1e9)?;
        Ok(Self { steps: vec![Step { from: Timestamp::ZERO, rate: per_second, slope: 0.0 }] })
    }

    /// From then on another one.
    ///
    /// # Errors
    /// A rate outside 0 to 10⁹, or a time that is not after the last step's.
    pub fn then(mut self, from: Timestamp, per_second: f64) -> Result<Self, ConfigError> {
        check("rate", per_second, 0.0, 1e9)?;
        let last = self.steps.last().map_or(Timestamp::ZERO, |step| step.from);
        if from <= last {
            return Err(ConfigError::new("from", from, format!("a time after {last}")));
        }
        self.steps.push(Step { from, rate: per_second, slope: 0.0 });
        Ok(self)
    }

    /// From then on evenly more or fewer, until after that time there are so many.
    ///
    /// # Errors
    /// As of [`Rate::then`], or no time at all.
    pub fn ramp(
        self,
        from: Timestamp,
        over: Duration,
        per_second: f64,
    ) -> Result<Self, ConfigError> {
        if over.is_zero() {
            return Err(ConfigError::new("over", "0", "a time above zero"));
        }
        let rate = self.at(from);
        let mut ramped = self.then(from, rate)?;
        if let Some(last) = ramped.steps.last_mut() {
            last.slope = (per_second - rate) / over.as_secs_f64();
        }
        ramped.then(from.after(over), per_second)
    }

    /// The same share of every step.
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        let scaled = |step: &Step| Step {
            from: step.from,
            rate: step.rate * share,
            slope: step.slope * share,
        };
        Self { steps: self.steps.iter().map(scaled).collect() }
    }

    /// Calls a second at `now`.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> f64 {
        let begun = self.steps.partition_point(|step| step.from <= now);
        self.steps[begun.max(1) - 1].at(now)
    }

    /// The most calls a second before `until`.
    #[must_use]
    pub fn most(&self, until: Timestamp) -> f64 {
        // A ramp is at its most at one of its ends.
        let ends = self.steps.iter().skip(1).map(|next| next.from).chain([until]);
        let before = self.steps.iter().zip(ends).filter(|(step, _)| step.from < until);
        let most = before.map(|(step, end)| step.rate.max(step.at(end.min(until))));
        most.fold(0.0, f64::max)
    }

    /// When `calls` calls are to be expected since `now`; never, if there are no more so many.
    #[must_use]
    pub fn after(&self, now: Timestamp, calls: f64) -> Timestamp {
        let (mut now, mut left) = (now, calls);
        let mut step = self.steps.partition_point(|step| step.from <= now).max(1) - 1;
        loop {
            let (rate, slope) = (self.steps[step].at(now), self.steps[step].slope);
            let end = self.steps.get(step + 1).map_or(Timestamp::MAX, |next| next.from);
            let until_end = now.until(end).as_secs_f64();
            // A ramp is as if its rate were all along that of its middle.
            let room = until_end * (rate + slope * until_end / 2.0);
            if left <= room {
                let takes = if slope == 0.0 {
                    left / rate
                } else {
                    let then = libm::sqrt((rate * rate + 2.0 * slope * left).max(0.0));
                    2.0 * left / (rate + then)
                };
                return now.after(seconds_to_span(takes)).min(end);
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
    fn a_ramp_is_met_by_as_many_calls_as_lie_under_it() {
        // 10 a second, from 2 s on ever more until there are 50 at 6 s, then fewer until 8 s.
        let secs = Duration::from_secs;
        let rate = Rate::constant(10.0).unwrap().ramp(second(2), secs(4), 50.0).unwrap();
        let rate = rate.ramp(second(7), secs(1), 0.0).unwrap();
        for (at, exact) in [(1, 10.0), (2, 10.0), (3, 20.0), (5, 40.0), (6, 50.0), (8, 0.0)] {
            assert!((rate.at(second(at)) - exact).abs() < 1e-9, "{at}");
        }
        let near = |since, calls, exact: u64| {
            let off = rate.after(second(since), calls).as_nanos().abs_diff(exact * 1_000_000);
            assert!(off < 10, "{calls} calls from {since} s on: {off} ns off");
        };
        near(0, 20.0 + 15.0, 3_000);
        near(0, 20.0 + 120.0, 6_000);
        near(3, 25.0 + 35.0, 5_000);
        near(6, 50.0 + 18.75, 7_500);
        near(7, 18.75, 7_500);
        assert_eq!(rate.after(second(7), 25.1), Timestamp::MAX);
        for (until, most) in [(2, 10.0), (4, 30.0), (6, 50.0), (9, 50.0)] {
            assert!((rate.most(second(until)) - most).abs() < 1e-9, "{until}");
        }
        assert!(rate.clone().ramp(second(20), Duration::ZERO, 1.0).is_err());
        assert!(rate.ramp(second(5), secs(1), 1.0).is_err());
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
