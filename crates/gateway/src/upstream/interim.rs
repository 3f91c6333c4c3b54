//! Counts the interim (1xx) answers of an HTTP/1.1 exchange and ends one that is a flood of them.
//!
//! hyper passes interim answers over, however many they are, and a peer that sends nothing else
//! would keep a core busy for as long as the attempt may take. Over HTTP/2 hyper shows none of
//! them; there [`Socket`](super::socket::Socket) counts heads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Request;
use tokio::sync::Notify;

/// The interim answers of one exchange.
#[derive(Debug, Default)]
pub(super) struct Interim {
    count: AtomicU32,
    flood: Notify,
}

impl Interim {
    /// Counts those that the request will be given.
    pub(super) fn of<B>(request: &mut Request<B>) -> Arc<Self> {
        let interim = Arc::new(Self::default());
        let counted = Arc::clone(&interim);
        hyper::ext::on_informational(request, move |_| counted.count());
        interim
    }

    fn count(&self) {
        if self.count.fetch_add(1, Ordering::Relaxed) == INTERIM_MAX {
            self.flood.notify_one();
        }
    }

    /// Waits until there were more than [`INTERIM_MAX`].
    pub(super) async fn flood(&self) {
        self.flood.notified().await;
    }
}

/// Most interim answers to one request. Source: own choice: servers send one or two.
pub(super) const INTERIM_MAX: u32 = 32;
