//! What the demo measured on both sides, and whether the protected side met its bars.
//!
//! | bar | value |
//! |---|---|
//! | attempts at the upstream per call, in every act | ≤ 1.15 |
//! | success of at least 99 %, from then on, after the storm's end | within 12 s |
//! | goodput, in every act | at least the plain client's |
//!
//! Goodput is compared with a slack of 0.5 % of the act's calls: where an act begins between two
//! calls, a scheduling hiccup may put one of them on the other side of the line.

use std::time::Duration;

use crate::demo::upstream::Attempts;

/// The three acts, in order.
pub(super) const ACTS: [&str; 3] = ["healthy", "503 to everything", "healthy again"];

/// What one side did in one act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActFigures {
    /// Calls that were due.
    pub sent: u64,
    /// Of these, answered 2xx while the caller still waited.
    pub good: u64,
    /// What arrived at the upstream.
    pub attempts: Attempts,
}

impl ActFigures {
    /// Good calls per call, in percent; 100 if there were none.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        if self.sent == 0 { 100.0 } else { self.good as f64 * 100.0 / self.sent as f64 }
    }
}

/// What one side did in the whole demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideFigures {
    /// Act by act.
    pub acts: [ActFigures; 3],
    /// From the storm's end to lasting success; `None` if there was none.
    pub recovered: Option<Duration>,
}

/// One thing the protected side had to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What it had to do.
    pub claim: &'static str,
    /// What it did.
    pub measured: String,
    /// Whether that is enough.
    pub passed: bool,
}

/// Both sides of the demo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Three attempts, fixed delay.
    pub plain: SideFigures,
    /// The same load through the gateway.
    pub protected: SideFigures,
}

impl Verdict {
    /// Whether the protected side met every bar.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.bars().iter().all(|bar| bar.passed)
    }

    /// The bars, in the order of the module's table.
    #[must_use]
    pub fn bars(&self) -> [Bar; 3] {
        [self.amplification(), self.recovery(), self.goodput()]
    }

    fn amplification(&self) -> Bar {
        let attempts = self.protected.acts.map(|act| act.attempts);
        // Integers on both sides: all / first ≤ 115 / 100.
        let passed = attempts.iter().all(|act| act.all * 100 <= act.first * 115);
        let most = attempts.map(Attempts::amplification).into_iter().fold(1.0, f64::max);
        Bar {
            claim: "attempts per call at the upstream ≤ 1.15 in every act",
            measured: format!("{most:.2}"),
            passed,
        }
    }

    fn recovery(&self) -> Bar {
        let recovered = self.protected.recovered;
        Bar {
            claim: "99 % success, lasting, within 12 s of the storm's end",
            measured: seconds(recovered),
            passed: recovered.is_some_and(|after| after <= RECOVERY_MAX),
        }
    }

    fn goodput(&self) -> Bar {
        let acts = self.protected.acts.iter().zip(&self.plain.acts);
        let passed = acts.clone().all(|(ours, plain)| {
            (ours.good + slack(ours.sent)) * plain.sent >= plain.good * ours.sent
        });
        let least = acts
            .map(|(ours, plain)| ours.goodput() - plain.goodput())
            .fold(f64::INFINITY, f64::min);
        Bar {
            claim: "goodput at least the plain client's in every act",
            // Adding zero turns a rounded −0.0 into 0.0.
            measured: format!("{:+.1} %", (least * 10.0).round() / 10.0 + 0.0),
            passed,
        }
    }
}

/// A duration in seconds, or that there is none.
pub(super) fn seconds(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
}

fn slack(sent: u64) -> u64 {
    sent / 200
}

/// Breaker open time 10 s, a probe round and its window. Source: seawall-design (the demo's bars).
const RECOVERY_MAX: Duration = Duration::from_secs(12);

#[cfg(test)]
mod tests {
    use super::*;

    fn act(good: u64, all: u64, first: u64) -> ActFigures {
        ActFigures { sent: 1000, good, attempts: Attempts { all, first } }
    }

    fn verdict() -> Verdict {
        let recovered = Some(Duration::from_secs(12));
        let plain = SideFigures {
            acts: [act(1000, 1000, 1000), act(0, 3000, 1000), act(900, 1000, 1000)],
            recovered: None,
        };
        let acts = [act(995, 1000, 1000), act(0, 115, 100), act(900, 900, 900)];
        Verdict { plain, protected: SideFigures { acts, recovered } }
    }

    #[test]
    fn each_bar_holds_at_its_edge_and_fails_one_beyond() {
        assert!(verdict().passed());
        let mut loud = verdict();
        loud.protected.acts[1].attempts.all = 116;
        assert_eq!(loud.bars().map(|bar| bar.passed), [false, true, true]);
        let mut late = verdict();
        late.protected.recovered = Some(Duration::from_millis(12_100));
        assert_eq!(late.bars().map(|bar| bar.passed), [true, false, true]);
        late.protected.recovered = None;
        assert_eq!(late.bars().map(|bar| bar.passed), [true, false, true]);
        let mut poor = verdict();
        poor.protected.acts[0].good = 994;
        assert_eq!(poor.bars().map(|bar| bar.passed), [true, true, false]);
        assert!(!poor.passed());
    }

    #[test]
    fn an_act_in_which_nothing_was_sent_on_is_not_amplified() {
        let mut quiet = verdict();
        quiet.protected.acts[1].attempts = Attempts::default();
        assert!(quiet.passed());
    }
}
