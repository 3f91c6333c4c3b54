//! What happened lately: ten buckets of three counters with their totals, and the run of failures.

use core::time::Duration;

use super::params::BreakerOptions;
use super::terms::Trigger;
use crate::time::{Timestamp, nanos};

/// What a window holds.
///
/// A call that was counted when it became slow and fails later adds its failure then, perhaps
/// after its call has left the window; so `failures` can exceed `calls` for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Calls recorded.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls that were slow, failed or not.
    pub slow: u64,
}

/// One bucket; stops at `u32::MAX`.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    calls: u32,
    failures: u32,
    slow: u32,
}

/// The window and the run: all that a breaker remembers of its calls.
#[derive(Debug, Default)]
pub(super) struct History {
    window: Window,
    run: Run,
}

impl History {
    /// A call became slow while in flight. `now` is never earlier than at the last recording.
    pub(super) fn on_slow(&mut self, now: Timestamp, width: Duration) {
        self.window.record(now, width, true, false, true);
    }

    /// A call ended; one that is not new was recorded as slow before. `now` as above.
    pub(super) fn on_end(
        &mut self,
        now: Timestamp,
        width: Duration,
        is_new: bool,
        failed: bool,
        slow: bool,
    ) {
        self.window.record(now, width, is_new, failed, is_new && slow);
        if failed {
            self.run.on_failure(now);
        } else {
            self.run = Run::default();
        }
    }

    /// What the calls up to the last recording give reason for.
    pub(super) fn verdict(&self, options: &BreakerOptions) -> Option<Trigger> {
        let WindowCounts { calls, failures, slow } = self.window.totals;
        let enough = calls >= u64::from(options.min_calls);
        if enough && options.failure_ratio.is_reached(failures, calls) {
            Some(Trigger::FailureRatio)
        } else if enough && options.slow.is_some() && options.slow_ratio.is_reached(slow, calls) {
            Some(Trigger::SlowRatio)
        } else if self.run.is_reached(options.consecutive_failures, options.consecutive_span) {
            Some(Trigger::ConsecutiveFailures)
        } else {
            None
        }
    }

    /// What the window would hold at `now`.
    pub(super) fn counts(&self, now: Timestamp, width: Duration) -> WindowCounts {
        self.window.counts(now, width)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.window.clear();
        self.run = Run::default();
    }
}

/// Ten buckets in a ring. Rolling costs at most ten steps however long it was idle.
#[derive(Debug, Default)]
struct Window {
    buckets: [Bucket; BUCKETS],
    /// Always the sum of `buckets`.
    totals: WindowCounts,
    /// The bucket that is being filled; below [`BUCKETS`].
    head: usize,
    /// When `head` began.
    started: Timestamp,
}

impl Window {
    /// Adds what is true of one call. `now` is never earlier than at the last recording.
    fn record(&mut self, now: Timestamp, width: Duration, call: bool, failure: bool, slow: bool) {
        self.roll(now, width);
        let bucket = &mut self.buckets[self.head];
        add(&mut bucket.calls, &mut self.totals.calls, call);
        add(&mut bucket.failures, &mut self.totals.failures, failure);
        add(&mut bucket.slow, &mut self.totals.slow, slow);
    }

    /// Forgets everything.
    fn clear(&mut self) {
        self.buckets = [Bucket::default(); BUCKETS];
        self.totals = WindowCounts::default();
    }

    /// What it would hold at `now`.
    fn counts(&self, now: Timestamp, width: Duration) -> WindowCounts {
        let mut counts = self.totals;
        for step in 1..=self.steps(now, width) {
            subtract(&mut counts, &self.buckets[(self.head + step) % BUCKETS]);
        }
        counts
    }

    /// Moves to the bucket of `now`, forgetting each bucket it enters.
    fn roll(&mut self, now: Timestamp, width: Duration) {
        for _ in 0..self.steps(now, width) {
            self.head = (self.head + 1) % BUCKETS;
            subtract(&mut self.totals, &self.buckets[self.head]);
            self.buckets[self.head] = Bucket::default();
        }
        let into_bucket = nanos(now.since(self.started)) % nanos(width);
        self.started = now.before(Duration::from_nanos(into_bucket));
    }

    /// How many buckets have begun since `head`; stops at [`BUCKETS`], where all is forgotten.
    fn steps(&self, now: Timestamp, width: Duration) -> usize {
        let begun = nanos(now.since(self.started)) / nanos(width);
        usize::try_from(begun).unwrap_or(BUCKETS).min(BUCKETS)
    }
}

/// Failures since the last success.
#[derive(Debug, Default)]
struct Run {
    /// Stops at `u32::MAX`.
    failures: u32,
    /// When the first of them was recorded; of no meaning while there is none.
    first: Timestamp,
    /// When the last of them was recorded.
    last: Timestamp,
}

impl Run {
    /// One more.
    fn on_failure(&mut self, now: Timestamp) {
        if self.failures == 0 {
            self.first = now;
        }
        self.last = now;
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether there are at least `failures`, the last `span` after the first; never if 0 is asked.
    fn is_reached(&self, failures: u32, span: Duration) -> bool {
        failures > 0 && self.failures >= failures && self.last.since(self.first) >= span
    }
}

/// Counts one in a bucket and in the total, unless the bucket is full.
fn add(count: &mut u32, total: &mut u64, happened: bool) {
    if happened && *count < u32::MAX {
        *count += 1;
        *total += 1;
    }
}

/// Takes a bucket's counts out of a total.
fn subtract(totals: &mut WindowCounts, bucket: &Bucket) {
    totals.calls -= u64::from(bucket.calls);
    totals.failures -= u64::from(bucket.failures);
    totals.slow -= u64::from(bucket.slow);
}

/// Source: hystrix-breaker.
const BUCKETS: usize = 10;
