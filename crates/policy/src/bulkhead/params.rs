//! The knobs of a bulkhead: as given, and as checked.

use alloc::format;
use core::time::Duration;

use crate::error::ConfigError;

/// The knobs of a bulkhead as a user gives them; [`BulkheadParams::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkheadOptions {
    /// Calls in flight at once, over all lanes; 1 to 1,000,000. Default 25.
    pub limit: u32,
    /// Calls in flight at once in one lane (a route); 1 to `limit`. `None` (the default): a lane
    /// may use the whole limit.
    pub lane_limit: Option<u32>,
    /// The longest a call waits for a slot; zero: it is rejected at once. Part of the caller's
    /// latency, so longer waits only hide that the limit is too low. Default 50 ms.
    pub wait: Duration,
    /// Calls that may wait at once, over all lanes; 0 (none waits) to 65,536. Default: `limit`.
    pub queue: u32,
    /// Calls past their response head that no longer hold a slot (upgrades, event streams); 0: all
    /// keep their slot to their end. Default 4,096.
    pub max_streams: u32,
}

impl BulkheadOptions {
    /// The defaults around another limit: as many may wait as may be in flight, up to 65,536.
    #[must_use]
    pub fn with_limit(limit: u32) -> Self {
        Self {
            limit,
            lane_limit: None,
            wait: WAIT,
            queue: limit.min(QUEUE_MAX),
            max_streams: MAX_STREAMS,
        }
    }

    /// For one upstream of a gateway: 1,024 in flight.
    #[must_use]
    pub fn gateway() -> Self {
        Self::with_limit(GATEWAY_LIMIT)
    }
}

impl Default for BulkheadOptions {
    fn default() -> Self {
        Self::with_limit(LIBRARY_LIMIT)
    }
}

/// Checked knobs. Swapping them keeps every call in flight and every waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkheadParams(BulkheadOptions);

impl BulkheadParams {
    /// Checks `options`.
    ///
    /// # Errors
    ///
    /// Names the first field outside the range its documentation gives.
    pub fn new(options: BulkheadOptions) -> Result<Self, ConfigError> {
        if options.limit == 0 || options.limit > LIMIT_MAX {
            return Err(ConfigError::new("limit", options.limit, "1 to 1000000"));
        }
        if let Some(lane_limit) = options.lane_limit
            && (lane_limit == 0 || lane_limit > options.limit)
        {
            let allowed = format!("1 to limit ({})", options.limit);
            return Err(ConfigError::new("lane_limit", lane_limit, allowed));
        }
        if options.queue > QUEUE_MAX {
            return Err(ConfigError::new("queue", options.queue, "at most 65536"));
        }
        Ok(Self(options))
    }

    /// Every knob, as checked.
    #[must_use]
    pub const fn options(&self) -> &BulkheadOptions {
        &self.0
    }

    /// Calls in flight at once, over all lanes.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.0.limit
    }

    /// Calls in flight at once in one lane; the whole limit if it has none of its own.
    #[must_use]
    pub fn lane_limit(&self) -> u32 {
        self.0.lane_limit.unwrap_or(self.0.limit)
    }
}

/// Source: resilience4j-bulkhead.
const LIBRARY_LIMIT: u32 = 25;
/// Source: envoy-circuit-breaker (1,024 requests).
const GATEWAY_LIMIT: u32 = 1_024;
/// Source: seawall-design. Differs: Resilience4j waits not at all, so one burst in one moment is
/// shed although slots come free within it.
const WAIT: Duration = Duration::from_millis(50);
/// Source: seawall-design.
const MAX_STREAMS: u32 = 4_096;
/// Keeps every waiter's place within the bits of a ticket. Source: seawall-design.
const LIMIT_MAX: u32 = 1_000_000;
/// As above. Source: seawall-design.
const QUEUE_MAX: u32 = 65_536;
