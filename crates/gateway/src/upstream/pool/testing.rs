//! What tests ask of a pool beside what the gateway does.

use std::time::Duration;

use seawall::Clock;
use seawall_policy::Timestamp;

use super::{Lease, Place, Pool, PoolSettings, PoolStats, RequestBody, Resolver, Wanted};
use crate::upstream::error::CheckoutError;

impl<B: RequestBody> Pool<B> {
    /// A pool for `endpoints` (host and port each) without TLS, for tests.
    #[must_use]
    pub(crate) fn new(
        settings: PoolSettings,
        endpoints: Vec<(String, u16)>,
        resolver: Resolver,
        clock: Clock,
    ) -> Self {
        let places = endpoints.into_iter().map(Place::from).collect();
        Self::with_tls(settings, places, None, resolver, clock)
    }

    /// A connection, waited for from now on.
    pub(in crate::upstream) async fn lease(
        &self,
        endpoint: usize,
        wait: Duration,
    ) -> Result<Lease<B>, CheckoutError> {
        let now = self.shared.clock.now();
        self.checkout(Wanted { endpoint, now, wait, until: Timestamp::MAX }).await.0
    }

    /// Waits until the books satisfy `wanted`.
    pub(in crate::upstream) async fn until(
        &self,
        wanted: impl Fn(&PoolStats) -> bool,
    ) -> PoolStats {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let now = self.shared.clock.now();
            let stats = self.shared.state.lock().stats(&self.shared.settings(), now);
            if wanted(&stats) {
                return stats;
            }
            changed.await;
        }
    }
}

impl<B: RequestBody> Lease<B> {
    /// Whether the connection has served before.
    #[must_use]
    pub(crate) const fn is_reused(&self) -> bool {
        self.reused
    }
}
