//! What became of every call of a load, and the figures drawn from it.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use seawall_policy::Timestamp;

use super::client::Failure;

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When it was due; latency counts from here, so that a late sender hides nothing.
    pub due: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// A status, or why there is none.
    pub end: Result<u16, Failure>,
}

impl Call {
    /// Whether it was answered 2xx while its caller still waited.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self.end, Ok(200..=299))
    }

    /// From the moment it was due to its end.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.ended.since(self.due)
    }
}

/// All calls that have ended, in the order of their ends.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    calls: Vec<Call>,
}

impl Ledger {
    /// Adds an ended call.
    pub fn push(&mut self, call: Call) {
        self.calls.push(call);
    }

    /// Every call.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// The figures of all calls.
    #[must_use]
    pub fn all(&self) -> Figures {
        self.within(Timestamp::ZERO, Timestamp::MAX)
    }

    /// The figures of the calls due in `from..to`.
    #[must_use]
    pub fn within(&self, from: Timestamp, to: Timestamp) -> Figures {
        let mut figures = Figures::default();
        for call in self.calls.iter().filter(|call| (from..to).contains(&call.due)) {
            figures.add(call);
        }
        figures
    }

    /// Good answers that came in `from..to`, whenever their calls were due.
    #[must_use]
    pub fn good_answers(&self, from: Timestamp, to: Timestamp) -> u64 {
        let begin = self.calls.partition_point(|call| call.ended < from);
        let within = self.calls[begin..].iter().take_while(|call| call.ended < to);
        within.map(|call| u64::from(call.is_good())).sum()
    }

    /// How long after `from` success became, and until `to` stayed, at least 99 % in every window
    /// of one second (by the time calls were due, in steps of 100 ms). `None`: it did not.
    #[must_use]
    pub fn recovered(&self, from: Timestamp, to: Timestamp) -> Option<Duration> {
        let mut due: Vec<(Timestamp, bool)> = self
            .calls
            .iter()
            .filter(|call| (from..to).contains(&call.due))
            .map(|call| (call.due, call.is_good()))
            .collect();
        due.sort_unstable();
        let mut since = None;
        let mut begin = from;
        while begin.after(RECOVERY_WINDOW) <= to {
            let first = due.partition_point(|(at, _)| *at < begin);
            let last = due.partition_point(|(at, _)| *at < begin.after(RECOVERY_WINDOW));
            let window = &due[first..last];
            let good = window.iter().filter(|(_, good)| *good).count();
            if good * 100 < window.len() * 99 || window.is_empty() {
                since = None;
            } else if since.is_none() {
                since = Some(begin.since(from));
            }
            begin = begin.after(RECOVERY_STEP);
        }
        since
    }
}

/// Counts and latencies of some calls.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Calls.
    pub sent: u64,
    /// Of these, answered 2xx in time.
    pub good: u64,
    /// Calls by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Calls without an answer, by reason.
    pub failures: BTreeMap<Failure, u64>,
    /// Latency of the good ones from the moment they were due, in microseconds.
    pub latency: Histogram<u64>,
}

impl Figures {
    /// Good calls per call, in percent; 100 if there were none.
    #[must_use]
    pub fn success(&self) -> f64 {
        if self.sent == 0 { 100.0 } else { self.good as f64 * 100.0 / self.sent as f64 }
    }

    /// Calls that were not good.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.sent - self.good
    }

    /// Calls answered with this status.
    #[must_use]
    pub fn status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// The latency that this share (0 to 1) of the good calls did not exceed.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_micros(self.latency.value_at_quantile(share))
    }

    /// One line: counts by status and by reason.
    #[must_use]
    pub fn describe(&self) -> String {
        let statuses = self.statuses.iter().map(|(status, count)| format!("{status}×{count}"));
        let failures = self.failures.iter().map(|(failure, count)| format!("{failure:?}×{count}"));
        let parts: Vec<String> = statuses.chain(failures).collect();
        parts.join(" ")
    }

    fn add(&mut self, call: &Call) {
        self.sent += 1;
        match call.end {
            Ok(status) => *self.statuses.entry(status).or_default() += 1,
            Err(failure) => *self.failures.entry(failure).or_default() += 1,
        }
        if call.is_good() {
            self.good += 1;
            let micros = u64::try_from(call.latency().as_micros()).unwrap_or(u64::MAX);
            self.latency.saturating_record(micros);
        }
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            sent: 0,
            good: 0,
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency: empty_histogram(),
        }
    }
}

#[expect(clippy::expect_used, reason = "both bounds and the digits are literal and legal")]
fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_MICROS, 3).expect("1 < max / 2 and 3 digits ≤ 5")
}

/// One minute; a longer latency counts as this.
const LATENCY_MAX_MICROS: u64 = 60_000_000;
/// The span over which success is judged.
const RECOVERY_WINDOW: Duration = Duration::from_secs(1);
/// The grain at which the moment of recovery is told.
const RECOVERY_STEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 calls a second for `seconds`, of which those due in `bad` milliseconds fail.
    fn ledger(seconds: u64, bad: std::ops::Range<u64>) -> Ledger {
        let mut ledger = Ledger::default();
        for ms in (0..seconds * 1000).step_by(10) {
            let due = Timestamp::from_millis(ms);
            let end = if bad.contains(&ms) { Ok(503) } else { Ok(200) };
            ledger.push(Call { due, ended: due.after(Duration::from_millis(3)), end });
        }
        ledger
    }

    fn recovery_ms(ledger: &Ledger) -> Option<u128> {
        let to = Timestamp::from_millis(10_000);
        ledger.recovered(Timestamp::from_millis(2_000), to).map(|after| after.as_millis())
    }

    #[test]
    fn recovery_is_told_from_the_first_second_after_which_99_percent_holds() {
        assert_eq!(recovery_ms(&ledger(10, 0..2_000)), Some(0));
        // Up to 3,990 ms: the window from 3,900 holds nine failures, the one from 4,000 none.
        assert_eq!(recovery_ms(&ledger(10, 0..3_990)), Some(2_000));
        assert_eq!(recovery_ms(&ledger(10, 0..3_910)), Some(1_900));
        assert_eq!(recovery_ms(&ledger(10, 5_000..5_020)), Some(3_100));
        assert_eq!(recovery_ms(&ledger(10, 5_000..5_010)), Some(0));
    }

    #[test]
    fn success_that_does_not_last_is_no_recovery() {
        assert_eq!(recovery_ms(&ledger(10, 9_900..10_000)), None);
        assert_eq!(recovery_ms(&Ledger::default()), None);
    }

    #[test]
    fn figures_count_by_due_time_and_time_from_it() {
        let figures =
            ledger(2, 500..1_000).within(Timestamp::from_millis(0), Timestamp::from_millis(1_000));
        assert_eq!((figures.sent, figures.good, figures.failed()), (100, 50, 50));
        assert_eq!((figures.status(503), figures.describe()), (50, "200×50 503×50".to_owned()));
        assert_eq!(figures.quantile(0.99).as_millis(), 3);
        assert!((figures.success() - 50.0).abs() < 1e-9);
    }
}
