//! How the servers share a client's calls: who is left out, and how one comes back.

use std::time::Duration;

use seawall_policy::{OutlierOptions, OutlierParams, Ratio, SlowStartOptions, SlowStartParams};

use super::{HOUR, MILLISECOND};
use crate::scenario::section::{Read, Section};

/// Off unless it is there, as in the gateway.
pub(super) fn left_out(section: &Section<'_>) -> Read<Option<OutlierOptions>> {
    let keys = [
        "interval",
        "min_calls",
        "failure_excess",
        "slow_excess",
        "slow_factor",
        "slow_floor",
        "ejection",
        "max_ejected",
        "probes",
    ];
    if section.is_off("outlier") {
        return Ok(None);
    }
    let Some(read) = section.inner("outlier", &keys)? else { return Ok(None) };
    let default = OutlierOptions::default();
    let ejection = read.inner("ejection", &["base", "cap"])?;
    let time = |key| {
        ejection.as_ref().map_or(Ok(None), |ejection| ejection.duration(key, MILLISECOND..=HOUR))
    };
    let base = time("base")?.unwrap_or(default.ejection_base);
    let ratio =
        |key, default| -> Read<Ratio> { Ok(read.ratio(key, Ratio::ONE)?.unwrap_or(default)) };
    let options = OutlierOptions {
        interval: read
            .duration("interval", INTERVAL_MIN..=INTERVAL_MAX)?
            .unwrap_or(default.interval),
        min_calls: read.count("min_calls", 1..=32)?.unwrap_or(default.min_calls),
        failure_excess: ratio("failure_excess", default.failure_excess)?,
        slow_excess: ratio("slow_excess", default.slow_excess)?,
        slow_factor: read.count("slow_factor", 2..=1_000)?.unwrap_or(default.slow_factor),
        slow_floor: read
            .duration("slow_floor", Duration::ZERO..=HOUR)?
            .unwrap_or(default.slow_floor),
        ejection_base: base,
        ejection_cap: time("cap")?.unwrap_or(default.ejection_cap.max(base)),
        max_ejected: ratio("max_ejected", default.max_ejected)?,
        probes: read.count("probes", 1..=32)?.unwrap_or(default.probes),
    };
    OutlierParams::new(options).map_err(|error| read.by(&error, "ejection"))?;
    Ok(Some(options))
}

/// Off unless it is there, as in the gateway.
pub(super) fn slow_start(section: &Section<'_>) -> Read<Option<SlowStartOptions>> {
    if section.is_off("slow_start") {
        return Ok(None);
    }
    let Some(read) = section.inner("slow_start", &["window", "least"])? else { return Ok(None) };
    let default = SlowStartOptions::default();
    let options = SlowStartOptions {
        window: read.duration("window", MILLISECOND..=HOUR)?.unwrap_or(default.window),
        least: read.ratio("least", Ratio::ONE)?.unwrap_or(default.least),
    };
    SlowStartParams::new(options).map_err(|error| read.by(&error, "least"))?;
    Ok(Some(options))
}

/// The gateway's bounds. Source: own choice.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Source: own choice.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
