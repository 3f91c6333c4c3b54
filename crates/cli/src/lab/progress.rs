//! A line that says how far something is and how long it will take, if somebody is there to see it
//! and it takes long enough to ask.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use seawall::Clock;
use seawall_policy::Timestamp;

/// How far something is.
pub(super) struct Progress<'a> {
    name: &'a str,
    all: usize,
    clock: Clock,
    begun: Timestamp,
    /// Of what was shown last; whoever comes later with less shows nothing.
    shown: Option<Mutex<Shown>>,
}

#[derive(Default)]
struct Shown {
    done: f64,
    at: Timestamp,
}

impl<'a> Progress<'a> {
    /// Of so many runs.
    pub(super) fn new(name: &'a str, all: usize) -> Self {
        let clock = Clock::new();
        let shown = io::stderr().is_terminal().then(Mutex::default);
        Self { name, all, clock, begun: clock.now(), shown }
    }

    /// So many are done, with the parts of those under way.
    pub(super) fn show(&self, done: f64) {
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::lock) else { return };
        let now = self.clock.now();
        let took = now.since(self.begun);
        if done <= shown.done || took < QUIET || now < shown.at.after(EACH) {
            return;
        }
        *shown = Shown { done, at: now };
        // A line that cannot be shown is no reason to stop.
        let _ = write!(io::stderr(), "\r\x1b[K{}", self.line(done, took));
    }

    fn line(&self, done: f64, took: Duration) -> String {
        let Self { name, all, .. } = self;
        let left = took.as_secs_f64() * (*all as f64 - done).max(0.0) / done.max(f64::EPSILON);
        let done = match all {
            1 => format!("{:.0}%", done.min(1.0) * 100.0),
            _ => format!("{} of {all} runs", done.floor()),
        };
        format!("{name}: {done}, about {left:.0} s more")
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        let Some(Ok(shown)) = self.shown.as_ref().map(Mutex::lock) else { return };
        if shown.done > 0.0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// What is over by then is its own answer. Source: own choice.
const QUIET: Duration = Duration::from_millis(500);
/// Between two lines. Source: own choice.
const EACH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_what_the_rest_takes_at_the_pace_so_far() {
        let progress = Progress { shown: None, ..Progress::new("storm", 40) };
        let line = progress.line(10.0, Duration::from_secs(4));
        assert_eq!(line, "storm: 10 of 40 runs, about 12 s more");
        assert_eq!(
            progress.line(40.0, Duration::from_secs(4)).split(", ").last(),
            Some("about 0 s more")
        );
        let half = progress.line(2.5, Duration::from_secs(2));
        assert_eq!(half, "storm: 2 of 40 runs, about 30 s more");
        let lone = Progress { all: 1, ..progress };
        let line = lone.line(0.25, Duration::from_secs(6));
        assert_eq!(line, "storm: 25%, about 18 s more");
    }
}
