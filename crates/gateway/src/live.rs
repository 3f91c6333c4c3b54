//! Counts the requests that have not left their line yet, so that the log closes after the last.
//!
//! A connection that was cut is gone a moment before its requests are.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

/// Requests at work.
#[derive(Debug, Default)]
pub(crate) struct Live {
    count: AtomicUsize,
    none: Notify,
}

impl Live {
    /// One more.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, SeqCst);
    }

    /// One of them left its line.
    pub(crate) fn end(&self) {
        if self.count.fetch_sub(1, SeqCst) == 1 {
            self.none.notify_waiters();
        }
    }

    /// Waits until there are none, at most so long; false if there are some still.
    pub(crate) async fn settle(&self, at_most: Duration) -> bool {
        let none = async {
            loop {
                // Made before the count is read, it misses no end.
                let ended = self.none.notified();
                if self.count.load(SeqCst) == 0 {
                    break;
                }
                ended.await;
            }
        };
        timeout(at_most, none).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seawall::Clock;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_settles_when_the_last_ends() {
        let live = Arc::new(Live::default());
        assert!(live.settle(SECOND).await);
        live.begin();
        live.begin();
        let clock = Clock::new();
        let began = clock.now();
        let ending = Arc::clone(&live);
        tokio::spawn(async move {
            for _ in 0..2 {
                sleep(Duration::from_millis(100)).await;
                ending.end();
            }
        });
        assert!(live.settle(SECOND).await);
        let took = clock.now().since(began);
        assert!((200..=202).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_no_longer_than_it_may() {
        let live = Live::default();
        live.begin();
        let clock = Clock::new();
        let began = clock.now();
        assert!(!live.settle(SECOND).await);
        let took = clock.now().since(began);
        assert!((1000..=1001).contains(&took.as_millis()), "{took:?}");
    }
}
