//! What operators see of a dependency: its endpoints and its lanes.

use super::{Dependency, EndpointView, LaneView, P99};
use crate::stack::StackParams;
use crate::time::Timestamp;

impl Dependency {
    /// An endpoint, seen from a lane. `None` if either does not exist.
    #[must_use]
    pub fn endpoint_view(
        &self,
        now: Timestamp,
        params: &StackParams,
        endpoint: usize,
        lane: usize,
    ) -> Option<EndpointView> {
        let endpoint = self.endpoints.get(endpoint)?;
        let breaker = endpoint.breakers.get(lane)?;
        Some(EndpointView {
            in_flight: endpoint.in_flight,
            standing: endpoint.standing(now, params),
            ejected_until: endpoint.conduct.ejected_until(now),
            breaker: breaker.state(),
            open_until: breaker.next_deadline(&params.breaker),
            counts: breaker.counts(now, &params.breaker),
        })
    }

    /// A lane. `None` if it does not exist.
    #[must_use]
    pub fn lane_view(&self, now: Timestamp, lane: usize) -> Option<LaneView> {
        let times = &self.lanes.get(lane)?.times;
        Some(LaneView {
            in_flight: self.bulkhead.in_flight_of(lane),
            p99: times.quantile(now, P99),
        })
    }
}
