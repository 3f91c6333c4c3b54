//! Follows a reload: other limits, and endpoints that come and go.

use std::sync::Arc;

use super::{Pool, target};
use crate::upstream::Place;
use crate::upstream::settings::PoolSettings;
use crate::upstream::upload::RequestBody;

impl<B: RequestBody> Pool<B> {
    /// Follows a reload: other limits, and the endpoints that there are now, by number. The idle
    /// connections to an endpoint that is gone close, the others when they are idle.
    pub(crate) fn reshape(&self, settings: PoolSettings, endpoints: &[(usize, Place)]) {
        let pool = &self.shared;
        pool.with(|state, follow| {
            let mut targets = Vec::clone(&pool.targets.load());
            for (index, place) in endpoints {
                match targets.get_mut(*index) {
                    // It goes on with what it knows of its addresses.
                    Some(known) if known.place == *place => {}
                    Some(known) => *known = target(place.clone()),
                    // Numbers are given out without gaps.
                    None => targets.push(target(place.clone())),
                }
            }
            let count = targets.len();
            pool.targets.store(Arc::new(targets));
            pool.settings.store(Arc::new(settings));
            let is_offered = |index| endpoints.iter().any(|(offered, _)| *offered == index);
            state.reshape(&settings, count, is_offered, follow);
        });
    }

    /// Whether nothing is left of an endpoint: no socket, no dial and nobody who waits.
    pub(crate) fn is_quiet(&self, endpoint: usize) -> bool {
        self.shared.state.lock().is_quiet(endpoint)
    }
}
