//! Other people's admission: who is turned away as it comes, at a server whose queue is too long.
//!
//! | rule | while the mean wait of a window is above 20 ms | source |
//! |---|---|---|
//! | random | a share of all requests is let in, whoever they are for | dagor |
//! | dagor | those of the users of the highest priorities, always the same ones | dagor |
//!
//! Either lets in a twentieth less than it did in a window that was overloaded, and a hundredth of
//! what came more after one that was not. A window is a second or 2,000 requests. A user's priority
//! is drawn once, as all calls for that user have to be let in for any to be of use.

use std::time::Duration;

use seawall_policy::{Rng as _, Timestamp};

use crate::draw::Draw;

/// By which rule a server turns away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryRule {
    /// Anybody.
    Random,
    /// By the priority of the user.
    Dagor,
}

/// What a server with such a rule remembers.
#[derive(Clone, Debug)]
pub(crate) struct EntryState {
    window_ends: Timestamp,
    incoming: u32,
    let_in: u32,
    waits: Duration,
    waited: u32,
    /// The share that is let in, of the random rule.
    share: f64,
    /// The lowest priority that is let in, counted from the highest.
    level: usize,
    came: [u32; PRIORITIES],
}

impl Default for EntryState {
    fn default() -> Self {
        Self {
            window_ends: Timestamp::ZERO.after(WINDOW),
            incoming: 0,
            let_in: 0,
            waits: Duration::ZERO,
            waited: 0,
            share: 1.0,
            level: PRIORITIES - 1,
            came: [0; PRIORITIES],
        }
    }
}

impl EntryState {
    /// Whether a request that comes for a user is let in. The user's draw is always the same one,
    /// the other is this request's.
    pub(crate) fn lets_in(
        &mut self,
        rule: EntryRule,
        now: Timestamp,
        user: &mut Draw,
        request: &mut Draw,
    ) -> bool {
        if now >= self.window_ends || self.incoming >= WINDOW_REQUESTS {
            self.turn(rule, now);
        }
        let priority = usize::try_from(user.below(PRIORITIES as u64)).unwrap_or(0);
        self.incoming += 1;
        self.came[priority] += 1;
        let is_let_in = match rule {
            EntryRule::Random => request.happens(self.share),
            EntryRule::Dagor => priority <= self.level,
        };
        self.let_in += u32::from(is_let_in);
        is_let_in
    }

    /// A request has waited for so long when its turn came.
    pub(crate) fn waited(&mut self, wait: Duration) {
        self.waits += wait;
        self.waited += 1;
    }

    /// A window is over.
    fn turn(&mut self, rule: EntryRule, now: Timestamp) {
        let is_overloaded = self.waits > ENOUGH * self.waited;
        let (incoming, let_in) = (f64::from(self.incoming), f64::from(self.let_in));
        let aim = if is_overloaded { let_in * (1.0 - LESS) } else { let_in + incoming * MORE };
        match rule {
            EntryRule::Random if incoming > 0.0 => self.share = (aim / incoming).min(1.0),
            EntryRule::Random => {}
            EntryRule::Dagor => self.level = self.level_for(aim, is_overloaded),
        }
        *self = Self {
            window_ends: now.after(WINDOW),
            share: self.share,
            level: self.level,
            ..Self::default()
        };
    }

    /// The level up to which as many came in this window as are to be let in in the next.
    fn level_for(&self, aim: f64, is_overloaded: bool) -> usize {
        let up_to = |level: usize| self.came[..=level].iter().map(|came| f64::from(*came)).sum();
        let mut level = self.level;
        let mut sum: f64 = up_to(level);
        while is_overloaded && level > 0 && sum > aim {
            sum -= f64::from(self.came[level]);
            level -= 1;
        }
        while !is_overloaded && level + 1 < PRIORITIES && sum < aim {
            level += 1;
            sum += f64::from(self.came[level]);
        }
        level
    }
}

/// Priorities of users. Source: dagor.
const PRIORITIES: usize = 128;
/// Source: dagor.
const WINDOW: Duration = Duration::from_secs(1);
/// Source: dagor.
const WINDOW_REQUESTS: u32 = 2_000;
/// The mean wait of a window from which on it is overloaded. Source: dagor.
const ENOUGH: Duration = Duration::from_millis(20);
/// Of what was let in. Source: dagor.
const LESS: f64 = 0.05;
/// Of what came. Source: dagor.
const MORE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};

    /// Of a thousand users in a second how many are let in, each with this wait.
    fn second(state: &mut EntryState, rule: EntryRule, at: u64, wait: u64) -> Vec<u32> {
        let draws = Draws::new(7);
        let let_in = (0..1_000).filter(|user| {
            let of = |purpose| draws.stream(*user, purpose);
            let now = Timestamp::from_millis(at * 1_000 + u64::from(*user));
            let mut own = of(Purpose::Choice).at(0);
            let is_let_in = state.lets_in(rule, now, &mut own, &mut of(Purpose::Fault).at(at));
            if is_let_in {
                state.waited(Duration::from_millis(wait));
            }
            is_let_in
        });
        let_in.collect()
    }

    #[test]
    fn an_overloaded_window_lets_in_a_twentieth_less_and_another_a_hundredth_more() {
        for rule in [EntryRule::Random, EntryRule::Dagor] {
            let mut state = EntryState::default();
            let counts: Vec<_> = (0..40).map(|at| second(&mut state, rule, at, 21).len()).collect();
            assert_eq!(counts[0], 1_000);
            let expected = 1_000.0 * 0.95_f64.powi(20);
            let off = (counts[20] as f64 / expected - 1.0).abs();
            assert!(off < 0.15, "{rule:?}: {counts:?}");
            let low = counts[39];
            let back: Vec<_> = (40..60).map(|at| second(&mut state, rule, at, 20).len()).collect();
            let gained = back[19] as f64 - low as f64;
            assert!((100.0..=300.0).contains(&gained), "{rule:?}: {low} {back:?}");
        }
    }

    #[test]
    fn the_same_users_are_let_in_by_priority_and_others_at_random() {
        let alike = |rule| {
            let mut state = EntryState::default();
            (0..40).for_each(|at| drop(second(&mut state, rule, at, 30)));
            let [one, two] = [40, 41].map(|at| second(&mut state, rule, at, 30));
            let same = two.iter().filter(|user| one.contains(user)).count();
            same as f64 / two.len() as f64
        };
        assert!(alike(EntryRule::Dagor) > 0.99);
        assert!(alike(EntryRule::Random) < 0.5);
    }
}
