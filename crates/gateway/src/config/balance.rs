//! Checks of how an upstream's endpoints share its calls: by what they are compared, who is left
//! out, and how one comes back.

use std::time::Duration;

use seawall_policy::{
    Balance, OutlierOptions, OutlierParams, Ratio, SlowStartOptions, SlowStartParams,
};
use serde::Deserialize;

use super::raw::{RawOpen, RawUpstream, Switch};
use super::scope::Scope;
use super::{DAY, MILLISECOND};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOutlier {
    interval: Option<String>,
    min_calls: Option<String>,
    failure_excess: Option<String>,
    slow_excess: Option<String>,
    slow_factor: Option<String>,
    slow_floor: Option<String>,
    ejection: RawOpen,
    max_ejected: Option<String>,
    probes: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawSlowStart {
    window: Option<String>,
    least: Option<String>,
}

/// How the endpoints of an upstream share its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// By what they are compared. Default: calls in flight.
    pub balance: Balance,
    /// Leaving out those that are worse than the others. Default: off.
    pub outlier: Option<OutlierOptions>,
    /// A growing share for one that has come back. Default: off.
    pub slow_start: Option<SlowStartOptions>,
}

impl Sharing {
    pub(super) fn read(scope: &mut Scope<'_>, raw: &RawUpstream) -> Self {
        if raw.endpoints.len() == 1 && matches!(raw.outlier, Some(Switch::On(_))) {
            let message = "has no effect with one endpoint: there is nothing to compare it with";
            scope.warn("outlier", message, "list more endpoints, or leave it to the breaker");
        }
        let balances = [Balance::LeastRequest, Balance::PeakEwma].map(|it| (it.as_str(), it));
        Self {
            balance: scope.choice("balance", &raw.balance, &balances).unwrap_or_default(),
            outlier: asked(scope, "outlier", &raw.outlier, outlier),
            slow_start: asked(scope, "slow_start", &raw.slow_start, slow_start),
        }
    }
}

/// A section that is off unless it is there.
pub(super) fn asked<T, C>(
    scope: &mut Scope<'_>,
    key: &str,
    raw: &Option<Switch<T>>,
    check: impl FnOnce(Scope<'_>, &T) -> C,
) -> Option<C> {
    match raw {
        Some(Switch::On(raw)) => Some(check(scope.inner(key), raw)),
        Some(Switch::Off) | None => None,
    }
}

fn outlier(mut scope: Scope<'_>, raw: &RawOutlier) -> OutlierOptions {
    let default = OutlierOptions::default();
    let over_zero = Ratio::from_millionths(1);
    let mut ejection = scope.inner("ejection");
    let base = ejection.duration("base", &raw.ejection.base, MILLISECOND..=DAY);
    let base = base.unwrap_or(default.ejection_base);
    let cap = ejection.duration("cap", &raw.ejection.cap, MILLISECOND..=DAY);
    let cap = cap.unwrap_or(default.ejection_cap.max(base));
    ejection.at_most(("base", base), ("cap", cap));
    let mut count = |key, raw| scope.count(key, raw, 1..=32);
    let min_calls = count("min_calls", &raw.min_calls).unwrap_or(default.min_calls);
    let probes = count("probes", &raw.probes).unwrap_or(default.probes);
    let mut ratio = |key, raw| scope.ratio(key, raw, over_zero);
    let failure_excess = ratio("failure_excess", &raw.failure_excess);
    let slow_excess = ratio("slow_excess", &raw.slow_excess);
    let max_ejected = ratio("max_ejected", &raw.max_ejected);
    let read = OutlierOptions {
        interval: scope
            .duration("interval", &raw.interval, INTERVAL_MIN..=INTERVAL_MAX)
            .unwrap_or(default.interval),
        min_calls,
        failure_excess: failure_excess.unwrap_or(default.failure_excess),
        slow_excess: slow_excess.unwrap_or(default.slow_excess),
        slow_factor: scope
            .count("slow_factor", &raw.slow_factor, 2..=1_000)
            .unwrap_or(default.slow_factor),
        slow_floor: scope
            .duration("slow_floor", &raw.slow_floor, Duration::ZERO..=DAY)
            .unwrap_or(default.slow_floor),
        ejection_base: base,
        ejection_cap: cap,
        max_ejected: max_ejected.unwrap_or(default.max_ejected),
        probes,
    };
    if let Err(refused) = OutlierParams::new(read) {
        let keys = [("ejection_base", "ejection.base"), ("ejection_cap", "ejection.cap")];
        scope.refuse_by_policy(&refused, &keys);
    }
    read
}

fn slow_start(mut scope: Scope<'_>, raw: &RawSlowStart) -> SlowStartOptions {
    let default = SlowStartOptions::default();
    let over_zero = Ratio::from_millionths(1);
    let read = SlowStartOptions {
        window: scope.duration("window", &raw.window, MILLISECOND..=DAY).unwrap_or(default.window),
        least: scope.ratio("least", &raw.least, over_zero).unwrap_or(default.least),
    };
    if let Err(refused) = SlowStartParams::new(read) {
        scope.refuse_by_policy(&refused, &[]);
    }
    read
}

/// Source: own choice: as often as the gateway looks after itself.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Source: own choice: three of them are half of what is remembered of an idle endpoint.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
