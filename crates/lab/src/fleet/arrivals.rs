//! How attempts come to the servers: at which of them, how many at one time, and whether the work
//! of one call is done twice.

use std::collections::BTreeSet;

use seawall_policy::Timestamp;

use super::Fleet;

/// What came, by server and by time.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The servers that are told apart.
    servers: usize,
    /// Second by second, what each of these got.
    by_server: Vec<u32>,
    /// What all of them got, tick by tick.
    ticks: Vec<u32>,
    duplicates: u64,
}

impl Arrivals {
    /// The share of the attempts in the seconds `from..until` that came to one server. Nothing if
    /// none came at all, or if it is one beyond the first 64.
    #[must_use]
    pub fn share(&self, server: usize, from: usize, until: usize) -> f64 {
        if server >= self.servers {
            return 0.0;
        }
        let end = self.by_server.len();
        let (from, until) = (from * self.servers, until * self.servers);
        let window = self.by_server.get(from..until.min(end)).unwrap_or_default();
        let own = window.iter().skip(server).step_by(self.servers).map(|came| u64::from(*came));
        part(own.sum(), sum(window))
    }

    /// The largest share of the attempts in the seconds `from..until` that came within one
    /// hundredth of a second; nothing if none came at all.
    #[must_use]
    pub fn herd(&self, from: usize, until: usize) -> f64 {
        let end = self.ticks.len();
        let (from, until) = (from * TICKS, until * TICKS);
        let window = self.ticks.get(from..until.min(end)).unwrap_or_default();
        part(window.iter().max().copied().unwrap_or(0).into(), sum(window))
    }

    /// How often a server did the work of a call that had been done before. Counted where the
    /// fleet says what a second execution would be.
    #[must_use]
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

/// Takes down what comes.
pub(super) struct Counter {
    arrivals: Arrivals,
    /// Calls whose work was done: client, and where the call's draws begin. `None`: nobody asks.
    done: Option<BTreeSet<(u32, u64)>>,
}

impl Counter {
    pub(super) fn new(servers: usize, fleet: &Fleet) -> Self {
        Self::of(servers, fleet.ends, fleet.safety.is_some())
    }

    fn of(servers: usize, ends: Timestamp, counts_work: bool) -> Self {
        let seconds = usize::try_from(ends.since(Timestamp::ZERO).as_secs() + 1).unwrap_or(0);
        let servers = servers.min(MOST_APART as usize);
        let arrivals = Arrivals {
            servers,
            by_server: vec![0; seconds * servers],
            ticks: vec![0; seconds * TICKS],
            duplicates: 0,
        };
        Self { arrivals, done: counts_work.then(BTreeSet::new) }
    }

    /// An attempt comes to a server, or to what is before it.
    pub(super) fn arrived(&mut self, now: Timestamp, server: usize) {
        let Arrivals { servers, by_server, ticks, .. } = &mut self.arrivals;
        let tick = usize::try_from(now.as_nanos() / TICK_NANOS).unwrap_or(usize::MAX);
        if let Some(came) = ticks.get_mut(tick) {
            *came += 1;
        }
        if server < *servers
            && let Some(came) = by_server.get_mut(tick / TICKS * *servers + server)
        {
            *came += 1;
        }
    }

    /// The work of a call has been done.
    pub(super) fn worked(&mut self, client: u32, call: u64) {
        if let Some(done) = &mut self.done {
            self.arrivals.duplicates += u64::from(!done.insert((client, call)));
        }
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals.clone()
    }
}

fn sum(window: &[u32]) -> u64 {
    window.iter().map(|came| u64::from(*came)).sum()
}

fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Servers whose arrivals are told apart. Source: own choice.
pub(crate) const MOST_APART: u32 = 64;
/// Hundredths of a second. Source: own choice (the window that a herd is judged by).
const TICKS: usize = 100;
const TICK_NANOS: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_came_in_the_window() {
        let second = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
        let mut counter = Counter::of(3, second(4), true);
        for (millis, server) in [(0, 0), (999, 2), (1_000, 1), (1_005, 1), (1_010, 2), (2_000, 0)] {
            counter.arrived(Timestamp::from_millis(millis), server);
        }
        // Neither a server nor a time that nobody keeps.
        counter.arrived(second(1_000), 0);
        for (client, number) in [(1, 1), (1, 2), (2, 1), (1, 1), (1, 1)] {
            counter.worked(client, number);
        }
        let arrivals = counter.arrivals();
        let near = |share: f64, exact: f64| assert!((share - exact).abs() < 1e-12, "{share}");
        near(arrivals.share(1, 1, 2), 2.0 / 3.0);
        near(arrivals.share(0, 0, 9), 2.0 / 6.0);
        near(arrivals.share(0, 3, 4), 0.0);
        near(arrivals.share(3, 0, 4), 0.0);
        near(arrivals.herd(1, 2), 2.0 / 3.0);
        near(arrivals.herd(0, 1), 0.5);
        near(arrivals.herd(3, 9), 0.0);
        assert_eq!(arrivals.duplicates(), 2);
    }
}
