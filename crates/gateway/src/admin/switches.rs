//! What operators switch while it runs: breakers, for a while.

use std::time::Duration;

use http::StatusCode;
use seawall_policy::{BreakerMode, ConfigError};
use serde::Serialize;

use super::answer::{Answer, LONGEST_TTL, REASON_CHARS, Refusal, json, shown};
use super::guard::{Caller, check_peer};
use super::query::Query;
use super::{Desk, Ends};
use crate::units::parse_duration;

/// Parameters of a switch.
pub(super) const PARAMETERS: &[&str] = &["upstream", "mode", "ttl", "who", "reason"];

/// A switch in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SwitchView {
    /// `breaker` or `retries`.
    pub kind: &'static str,
    /// Of which upstream.
    pub upstream: String,
    /// What it does.
    pub mode: &'static str,
    /// Until it ends by itself.
    pub ends_in_ms: Option<u64>,
    /// Who said so.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// A change that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BreakerChange {
    /// Nothing: as configured.
    pub mode: Option<BreakerMode>,
    /// For how long.
    pub ttl: Duration,
    /// Who asks.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// Forces the breakers of an upstream.
pub(super) fn force_breakers(
    desk: &Desk,
    ends: Ends,
    caller: Caller,
    query: &Query<'_>,
) -> Result<Answer, Refusal> {
    check_peer(ends, caller)?;
    let change = read(ends, query).map_err(|error| Refusal::of(StatusCode::BAD_REQUEST, error))?;
    let upstream = query.value("upstream").unwrap_or("");
    desk.backend.force_breakers(upstream, change).map_err(|_| {
        let error =
            ConfigError::new("upstream", shown(upstream), "a name that GET /upstreams lists");
        Refusal::of(StatusCode::NOT_FOUND, error)
    })?;
    Ok(json(&desk.backend.switches()))
}

fn read(ends: Ends, query: &Query<'_>) -> Result<BreakerChange, ConfigError> {
    let refused = |field: &'static str, allowed: &'static str| {
        ConfigError::new(field, query.value(field).map_or("nothing".into(), shown), allowed)
    };
    let mode = match query.value("mode") {
        Some("normal") => None,
        Some("forced_open") => Some(BreakerMode::ForcedOpen),
        Some("disabled") => Some(BreakerMode::Disabled),
        Some("metrics_only") => Some(BreakerMode::MetricsOnly),
        _ => return Err(refused("mode", "forced_open, disabled, metrics_only or normal")),
    };
    let ttl = match query.value("ttl") {
        Some(_) if mode.is_none() => return Err(refused("ttl", "none with mode=normal")),
        Some(ttl) => parse_duration(ttl).map_err(|refused| refused.of_field("ttl"))?,
        None => TTL,
    };
    if ttl.is_zero() || ttl > LONGEST_TTL {
        return Err(refused("ttl", "more than 0s and at most 24h, like 10m"));
    }
    for field in ["who", "reason"] {
        if query.value(field).is_some_and(|text| text.chars().count() > REASON_CHARS) {
            return Err(refused(field, "at most 256 characters"));
        }
    }
    let by = match query.value("who").map(str::trim).filter(|who| !who.is_empty()) {
        Some(who) => format!("{who} ({})", ends.peer),
        None => ends.peer.to_string(),
    };
    let reason = query.value("reason").unwrap_or("").to_owned();
    Ok(BreakerChange { mode, ttl, by, reason })
}

/// How long a switch lasts that says nothing of it. Source: seawall-design.
const TTL: Duration = Duration::from_secs(600);
