//! Counts checkouts from pools, and the time they waited.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Checkouts from a pool since the start.
#[derive(Debug, Default)]
pub struct Checkouts {
    total: AtomicU64,
    timeouts: AtomicU64,
    waited_nanos: AtomicU64,
}

impl Checkouts {
    /// How many were asked for.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// How many came to nothing, by the checkout time or by the attempt's.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Relaxed)
    }

    /// The time all of them waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Relaxed))
    }

    pub(crate) fn count(&self, wait: Duration, timed_out: bool) {
        self.total.fetch_add(1, Relaxed);
        self.timeouts.fetch_add(u64::from(timed_out), Relaxed);
        self.waited_nanos.fetch_add(nanos(wait), Relaxed);
    }
}

/// In whole nanoseconds, as an atomic holds them.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
