//! The most that one request on a route can cost: attempts and time.

use std::time::Duration;

use seawall_policy::{Hop, StackParams, worst_case_attempts, worst_case_time};

use super::model::{GatewayConfig, Route};

impl GatewayConfig {
    /// What one request on `route` costs its upstream at most; nothing for a route of another
    /// configuration.
    #[must_use]
    pub fn worst_case(&self, route: &Route) -> Option<WorstCase> {
        let upstream = self.upstreams.get(route.upstream)?;
        let params = StackParams::new(&upstream.stack_config()).ok()?;
        let hop = Hop::of(&params, route.owns_retries);
        let hop = Hop {
            total: route.total.or(hop.total),
            attempt_timeout: route.attempt.or(hop.attempt_timeout),
            refresh: upstream.credentials.as_ref().map(|(file, _)| file.timeout),
            ..hop
        };
        let hop = route.retry.as_ref().map_or(hop, |retry| hop.with_retry(retry));
        Some(WorstCase { attempts: worst_case_attempts(&[hop]), time: worst_case_time(&[hop])? })
    }
}

/// The most that one request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstCase {
    /// Attempts, counting the first and hedges, not redispatches, which send nothing.
    pub attempts: u64,
    /// Time to the response head, without a Retry-After.
    pub time: Duration,
}
