//! Whether a client sends a call at all: adaptive throttling, as in the SRE book. Source: sre-book.

use seawall_policy::Timestamp;

use crate::draw::Draw;

/// What a client remembers of two minutes, second by second.
#[derive(Clone, Debug)]
pub(super) struct Throttle {
    /// Calls that were asked for, and those that the other side took.
    seconds: [(u32, u32); SECONDS],
    /// The last second that is in it.
    last: u64,
    asked: u32,
    taken: u32,
}

impl Throttle {
    pub(super) const fn new() -> Self {
        Self { seconds: [(0, 0); SECONDS], last: 0, asked: 0, taken: 0 }
    }

    /// A call is asked for: whether it is sent. It is not with probability (R − K·A) / (R + 1), R
    /// being those asked for and A those taken.
    pub(super) fn sends(&mut self, now: Timestamp, factor: f64, draw: &mut Draw) -> bool {
        let place = self.roll(now);
        let (asked, taken) = (f64::from(self.asked), f64::from(self.taken));
        let is_kept = draw.unit() <= (asked - factor * taken) / (asked + 1.0);
        self.seconds[place].0 += 1;
        self.asked += 1;
        !is_kept
    }

    /// A call was taken.
    pub(super) fn on_taken(&mut self, now: Timestamp) {
        let place = self.roll(now);
        self.seconds[place].1 += 1;
        self.taken += 1;
    }

    /// Forgets what is older than two minutes; the place of this second.
    fn roll(&mut self, now: Timestamp) -> usize {
        let second = now.since(Timestamp::ZERO).as_secs().max(self.last);
        for old in self.last + 1..=second.min(self.last + SECONDS as u64) {
            let (asked, taken) = std::mem::take(&mut self.seconds[place(old)]);
            self.asked -= asked;
            self.taken -= taken;
        }
        self.last = second;
        place(second)
    }
}

fn place(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).unwrap_or(0)
}

/// Source: sre-book (two minutes).
const SECONDS: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    #[test]
    fn it_sends_what_was_taken_times_its_factor_and_forgets_in_two_minutes() {
        let mut draw = Draws::new(1).stream(0, Purpose::Policy);
        let mut throttle = Throttle::new();
        let mut sent = [0_u32; 400];
        // Ten calls a second, of which the first two that are sent are taken.
        for (second, sent) in (0..).zip(&mut sent) {
            for call in 0..10 {
                let now = Timestamp::from_millis(second * 1_000 + call * 100);
                if throttle.sends(now, 2.0, &mut draw) {
                    *sent += 1;
                    if *sent <= 2 {
                        throttle.on_taken(now);
                    }
                }
            }
        }
        let mean = |window: &[u32]| f64::from(window.iter().sum::<u32>()) / window.len() as f64;
        assert!((mean(&sent[130..]) - 4.0).abs() < 0.3, "{}", mean(&sent[130..]));
        // All is forgotten, so all is sent.
        assert!(throttle.sends(Timestamp::from_millis(600_000), 2.0, &mut draw));
        assert_eq!((throttle.asked, throttle.taken), (1, 0));
    }
}
