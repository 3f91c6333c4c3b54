//! Work that blocks, on a thread of its own, counted: so that what hangs there can be seen.
//!
//! The runtime has its own count and does not tell it. Counted are name lookups and readings of
//! files, of all gateways of the process.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::task::{JoinHandle, spawn_blocking};

/// Begins `work` on a thread where it may block. Bounded by whoever begins it.
pub(crate) fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let counted = Counted::new();
    spawn_blocking(move || {
        let _counted = counted;
        work()
    })
}

/// How much is at work now, or waits for its thread.
pub(crate) fn at_work() -> usize {
    AT_WORK.load(Relaxed)
}

/// Counts until it is dropped, however the work ends.
struct Counted;

impl Counted {
    fn new() -> Self {
        AT_WORK.fetch_add(1, Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Relaxed);
    }
}

static AT_WORK: AtomicUsize = AtomicUsize::new(0);
