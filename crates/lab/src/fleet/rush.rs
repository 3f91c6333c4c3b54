//! What is counted where all clients want one thing at once: how often each tries, and when each
//! has it.

use std::time::Duration;

use super::{Calls, Fleet};
use crate::stats::Times;

/// How clients fare that call until they are answered once.
#[derive(Clone, Debug, Default)]
pub struct Rush {
    /// From the begin to the answer, of those that were answered.
    pub ready: Times,
    /// Clients that were not.
    pub waiting: u64,
    /// How many attempts each has made, by their number: `attempts[2]` clients have made two.
    pub attempts: Vec<u64>,
}

impl Rush {
    /// When this share of all clients, 0 to 1, have been answered; `None` if so many never were.
    #[must_use]
    pub fn ready_at(&self, share: f64) -> Option<Duration> {
        let answered = self.ready.n() as f64;
        let wanted = share * (answered + self.waiting as f64);
        (answered > 0.0 && wanted <= answered).then(|| self.ready.quantile(wanted / answered))
    }

    /// Attempts a client.
    #[must_use]
    pub fn mean_attempts(&self) -> f64 {
        let clients: u64 = self.attempts.iter().sum();
        let attempts: u64 = (0..).zip(&self.attempts).map(|(made, clients)| made * clients).sum();
        if clients == 0 { 0.0 } else { attempts as f64 / clients as f64 }
    }

    /// The attempts that this share of all clients, 0 to 1, do not exceed.
    #[must_use]
    pub fn attempts_of(&self, share: f64) -> u64 {
        let clients: u64 = self.attempts.iter().sum();
        let mut left = share * clients as f64;
        let made = self.attempts.iter().position(|clients| {
            left -= *clients as f64;
            left <= 0.0
        });
        made.map_or(0, |made| made as u64)
    }
}

/// Takes down how each client fares.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Attempts by client until it is in; empty where nobody asks.
    by_client: Vec<u16>,
    /// Who has been answered, a bit for each client.
    is_in: Vec<u64>,
    ready: Times,
}

impl Tries {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let is_asked = matches!(fleet.calls, Calls::Once { .. });
        let clients = if is_asked { fleet.clients as usize } else { 0 };
        Self::with(clients)
    }

    fn with(clients: usize) -> Self {
        let is_in = vec![0; clients.div_ceil(64)];
        Self { by_client: vec![0; clients], is_in, ready: Times::new() }
    }

    /// Whether a client has been answered.
    pub(super) fn is_in(&self, client: u32) -> bool {
        self.is_in.get(client as usize / 64).is_some_and(|bits| bits >> (client % 64) & 1 == 1)
    }

    pub(super) fn attempt(&mut self, client: u32) {
        if self.is_in(client) {
            return;
        }
        if let Some(made) = self.by_client.get_mut(client as usize) {
            *made = made.saturating_add(1);
        }
    }

    /// A client has been answered, so long after the begin; the first time counts.
    pub(super) fn answered(&mut self, client: u32, after: Duration) {
        if !self.by_client.is_empty() && !self.is_in(client) {
            self.is_in[client as usize / 64] |= 1 << (client % 64);
            self.ready.record(after);
        }
    }

    pub(super) fn report(&self) -> Rush {
        let mut attempts = Vec::new();
        for made in &self.by_client {
            let made = usize::from(*made);
            if attempts.len() <= made {
                attempts.resize(made + 1, 0);
            }
            attempts[made] += 1;
        }
        let waiting = self.by_client.len() as u64 - self.ready.n();
        Rush { ready: self.ready.clone(), waiting, attempts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn who_was_never_answered_counts() {
        let mut tries = Tries::with(10);
        (0..10).for_each(|client| (0..=client / 4).for_each(|_| tries.attempt(client)));
        (1..=8).for_each(|second| tries.answered(second - 1, ms(u64::from(second) * 1_000)));
        // What it does once it is in is nobody's try.
        tries.attempt(0);
        tries.answered(0, ms(9_000));
        assert!(tries.is_in(7) && !tries.is_in(8));
        let rush = tries.report();
        assert_eq!((rush.attempts.clone(), rush.waiting), (vec![0, 4, 4, 2], 2));
        assert!((rush.mean_attempts() - 1.8).abs() < 1e-9);
        assert_eq!([0.4, 0.41, 0.8, 0.99].map(|share| rush.attempts_of(share)), [1, 2, 2, 3]);
        let near = |at: Option<Duration>, exact| {
            at.is_some_and(|at| at.abs_diff(ms(exact)) < ms(exact) / 500)
        };
        assert!(near(rush.ready_at(0.5), 5_000) && near(rush.ready_at(0.8), 8_000));
        assert_eq!(rush.ready_at(0.81), None);
        assert_eq!(Tries::default().report().ready_at(0.5), None);
        assert_eq!(Tries::default().report().attempts_of(0.5), 0);
    }
}
