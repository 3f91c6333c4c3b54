//! Other people's retries, and their queues, to compare with: the only decisions in the lab that
//! are not the policy's, and nothing of ours uses them.
//!
//! | gate | a failed attempt may be tried again |
//! |---|---|
//! | free | always |
//! | bucket | if there is more than one token, of which it takes one; every call brings a part of one |
//! | share | while failed attempts are at most a share of first ones, since the start |
//! | throttle | always; but a call is not sent at all if too few of the last two minutes' were taken |

mod credits;
mod entry;
mod limits;
mod queues;
mod throttle;
mod xfetch;

use std::time::Duration;

use seawall_policy::{ConfigError, Timestamp};

use crate::draw::Draw;
use crate::span::{Span, check};

pub(crate) use credits::Credits;
pub use entry::EntryRule;
pub(crate) use entry::EntryState;
pub(crate) use limits::{LimitRule, LimitState};
pub use queues::QueueRule;
pub(crate) use queues::QueueState;
pub(crate) use xfetch::refreshes;

use throttle::Throttle;

/// A client that tries again by a rule that is not ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    attempts: u32,
    timeout: Duration,
    waits: Vec<Span>,
    gate: Gate,
}

/// When a failed attempt may be tried again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// Always.
    Free,
    /// While there are tokens.
    Bucket {
        /// In the beginning, in thousandths.
        begins: u32,
        /// The most there can be.
        cap: u32,
        /// What each call brings.
        per_call: u32,
    },
    /// While failed attempts are at most this share of first ones, the failure at hand counted.
    Share(f64),
    /// Always; and a call is kept back when more are asked for than so many times those taken.
    Throttle(f64),
}

impl Baseline {
    /// So many attempts in all, 1 to 100, each given so long; before the second and each later one
    /// the wait at its place, the last of them for all that follow, none if there is none.
    ///
    /// # Errors
    /// A number of attempts outside that range, a share outside 0 to 1,000, or a factor outside 1
    /// to 1,000.
    pub fn new(
        attempts: u32,
        timeout: Duration,
        waits: &[Span],
        gate: Gate,
    ) -> Result<Self, ConfigError> {
        check("attempts", attempts.into(), 1.0, 100.0)?;
        if let Gate::Share(share) = gate {
            check("share", share, 0.0, 1_000.0)?;
        }
        if let Gate::Throttle(factor) = gate {
            check("factor", factor, 1.0, 1_000.0)?;
        }
        Ok(Self { attempts, timeout, waits: waits.to_vec(), gate })
    }

    /// How long an attempt is waited for.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// What a client, or all that share it, know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Thousandths.
    tokens: u32,
    firsts: u64,
    failed: u64,
    throttle: Option<Box<Throttle>>,
}

impl Known {
    pub(crate) fn new(baseline: &Baseline) -> Self {
        match baseline.gate {
            Gate::Bucket { begins, .. } => Self { tokens: begins, ..Self::default() },
            Gate::Throttle(_) => {
                Self { throttle: Some(Box::new(Throttle::new())), ..Self::default() }
            }
            Gate::Free | Gate::Share(_) => Self::default(),
        }
    }

    /// A call begins.
    pub(crate) fn on_call(&mut self, baseline: &Baseline) {
        self.firsts += 1;
        if let Gate::Bucket { cap, per_call, .. } = baseline.gate {
            self.tokens = self.tokens.saturating_add(per_call).min(cap);
        }
    }

    /// Whether a call is sent that begins now.
    pub(crate) fn sends(&mut self, now: Timestamp, baseline: &Baseline, draw: &mut Draw) -> bool {
        match (&mut self.throttle, baseline.gate) {
            (Some(throttle), Gate::Throttle(factor)) => throttle.sends(now, factor, draw),
            _ => true,
        }
    }

    /// An attempt was answered.
    pub(crate) fn on_taken(&mut self, now: Timestamp) {
        if let Some(throttle) = &mut self.throttle {
            throttle.on_taken(now);
        }
    }

    /// An attempt has failed, the call's last of so many: how long to wait before the next, if
    /// there is to be one.
    pub(crate) fn again(
        &mut self,
        baseline: &Baseline,
        attempts: u32,
        draw: &mut Draw,
    ) -> Option<Duration> {
        self.failed += 1;
        if attempts >= baseline.attempts {
            return None;
        }
        match baseline.gate {
            Gate::Free | Gate::Throttle(_) => {}
            Gate::Bucket { .. } if self.tokens > TOKEN => self.tokens -= TOKEN,
            Gate::Share(most) if self.failed as f64 <= most * self.firsts as f64 => {}
            Gate::Bucket { .. } | Gate::Share(_) => return None,
        }
        let place = attempts as usize - 1;
        let wait = baseline.waits.get(place).or(baseline.waits.last());
        Some(wait.map_or(Duration::ZERO, |wait| wait.draw(draw)))
    }
}

/// Thousandths in a token.
const TOKEN: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    fn draw() -> Draw {
        Draws::new(1).stream(0, Purpose::Policy)
    }

    fn baseline(gate: Gate) -> Baseline {
        Baseline::new(10, Duration::from_secs(1), &[], gate).unwrap()
    }

    #[test]
    fn a_bucket_pays_while_it_holds_more_than_a_token_and_fills_to_its_cap() {
        let bucket = baseline(Gate::Bucket { begins: 5_000, cap: 5_000, per_call: 100 });
        let mut known = Known::new(&bucket);
        known.on_call(&bucket);
        let paid = (0..9).filter(|_| known.again(&bucket, 1, &mut draw()).is_some()).count();
        assert_eq!(paid, 4, "the fifth token is not more than one");
        known.on_call(&bucket);
        assert!(known.again(&bucket, 1, &mut draw()).is_some());
        (0..1_000).for_each(|_| known.on_call(&bucket));
        let paid = (0..9).filter(|_| known.again(&bucket, 1, &mut draw()).is_some()).count();
        assert_eq!(paid, 4);
    }

    #[test]
    fn a_share_counts_the_failure_at_hand() {
        let share = baseline(Gate::Share(0.1));
        let mut known = Known::new(&share);
        (0..20).for_each(|_| known.on_call(&share));
        let again = [(); 3].map(|()| known.again(&share, 1, &mut draw()).is_some());
        assert_eq!(again, [true, true, false]);
    }

    #[test]
    fn each_attempt_has_its_wait_and_the_last_has_none() {
        let waits = [5, 7].map(|millis| Span::fixed(Duration::from_millis(millis)));
        let free = Baseline::new(5, Duration::from_secs(1), &waits, Gate::Free).unwrap();
        let mut known = Known::new(&free);
        let waits = [1, 2, 3, 4, 5].map(|attempts| known.again(&free, attempts, &mut draw()));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(waits, [millis(5), millis(7), millis(7), millis(7), None]);
        assert!(Baseline::new(0, Duration::ZERO, &[], Gate::Free).is_err());
    }
}
