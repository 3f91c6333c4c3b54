//! What is shown of the policies around an upstream, in the words of the file.

use std::ops::RangeInclusive;

use seawall_policy::{
    AddressOptions, BackoffOptions, BreakerOptions, BudgetOptions, BulkheadOptions, DoorOptions,
    FinagleBudget, GrpcThrottle, HedgeDelay, HedgeOptions, Jitter, OutlierOptions, RateOptions,
    Ratio, RetryOptions, SlowStartOptions, SpreadOptions, SuccessBudget,
};
use serde_json::{Value, json};

use super::super::model::SlowReaders;
use super::super::rate::{PerKey, RateKeyOf, Rates};
use super::super::upstream::WINDOW_BUCKETS;
use super::time;
use crate::units::format_size;

/// `off`, or what is on.
pub(super) fn off<T>(options: Option<&T>, shown: impl FnOnce(&T) -> Value) -> Value {
    options.map_or_else(|| json!("off"), shown)
}

pub(super) fn retry(options: &RetryOptions) -> Value {
    let RetryOptions { max_attempts, backoff, redispatches, retry_after_max, honour_stop, on } =
        options;
    let BackoffOptions { base, cap, jitter } = backoff;
    let listed = on.listed().map(|(classes, statuses)| {
        let classes = classes.into_iter().map(|class| class.as_str().to_owned());
        classes.chain(statuses.iter().map(u16::to_string)).collect::<Vec<_>>()
    });
    json!({
        "max_attempts": max_attempts,
        "backoff": {
            "base": time(*base),
            "cap": time(*cap),
            "jitter": match jitter {
                Jitter::None => "none".to_owned(),
                Jitter::Full => "full".to_owned(),
                Jitter::Equal => "equal".to_owned(),
                Jitter::Decorrelated => "decorrelated".to_owned(),
                Jitter::Factor(share) => format!("±{share}"),
            },
        },
        "redispatches": redispatches,
        "retry_after_max": time(*retry_after_max),
        "honour_stop": honour_stop,
        "on": listed,
    })
}

pub(super) fn budget(options: &BudgetOptions) -> Value {
    match options {
        BudgetOptions::Seawall(SuccessBudget { ratio, initial, cap_floor, reserve_per_second }) => {
            json!({
                "kind": "seawall",
                "ratio": ratio.to_string(),
                "initial": initial,
                "cap": cap_floor,
                "reserve": format!("{reserve_per_second}/s"),
            })
        }
        BudgetOptions::Grpc(GrpcThrottle { max_tokens, token_ratio }) => json!({
            "kind": "grpc",
            "max_tokens": max_tokens,
            "token_ratio": thousandths(*token_ratio),
        }),
        BudgetOptions::Finagle(FinagleBudget { ratio, reserve_per_second, ttl }) => json!({
            "kind": "finagle",
            "ratio": ratio.to_string(),
            "reserve": format!("{reserve_per_second}/s"),
            "ttl": time(*ttl),
        }),
    }
}

/// `0.1`; gRPC knows three decimals.
fn thousandths(ratio: Ratio) -> String {
    let (whole, rest) = (ratio.millionths() / 1_000_000, ratio.millionths() % 1_000_000 / 1_000);
    format!("{whole}.{rest:03}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn hedge(options: &HedgeOptions) -> Value {
    let HedgeOptions { delay, delay_min, max_extra, max_load, same_endpoint } = options;
    json!({
        "delay": match delay {
            // `98%` as `p98`.
            HedgeDelay::Quantile(share) => format!("p{}", share.to_string().replace('%', "")),
            HedgeDelay::Fixed(after) => time(*after),
        },
        "delay_min": time(*delay_min),
        "max_extra": max_extra.to_string(),
        "max_load": max_load.to_string(),
        "same_endpoint": same_endpoint,
    })
}

pub(super) fn breaker(options: &BreakerOptions) -> Value {
    json!({
        "window": time(options.bucket * WINDOW_BUCKETS),
        "min_calls": options.min_calls,
        "failure_ratio": options.failure_ratio.to_string(),
        "consecutive_failures": options.consecutive_failures,
        "slow": options.slow.map(time),
        "slow_ratio": options.slow.map(|_| options.slow_ratio.to_string()),
        "open": {"base": time(options.open_base), "cap": time(options.open_cap)},
        "probes": options.probes,
        "mode": options.mode.as_str(),
    })
}

pub(super) fn rates(rates: &Rates) -> Value {
    let Rates { all, per_key } = rates;
    if all.is_none() && per_key.is_none() {
        return Value::Null;
    }
    let per_key = per_key.as_ref().map(|PerKey { key, options }| {
        json!({
            "key": match key {
                RateKeyOf::Peer => "peer".to_owned(),
                RateKeyOf::Header(name) => format!("header:{name}"),
            },
            "limit": rate(&options.rate),
            "burst": options.rate.burst,
            "keys": options.keys,
        })
    });
    json!({
        "limit": all.as_ref().map(rate),
        "burst": all.as_ref().map(|all| all.burst),
        "per_key": per_key,
    })
}

pub(super) fn accept(door: &DoorOptions) -> Value {
    let DoorOptions { accept, answers, per_address: _ } = door;
    if accept.is_none() && !answers {
        return Value::Null;
    }
    json!({
        "rate": accept.as_ref().map(rate),
        "burst": accept.as_ref().map(|accept| accept.burst),
        "refuse": if *answers { "answer" } else { "reset" },
    })
}

pub(super) fn per_address(door: &DoorOptions, ipv6_prefix: u8) -> Value {
    let Some(limits) = &door.per_address else { return Value::Null };
    let AddressOptions { connections, connection_rate, request_rate, addresses } = limits;
    json!({
        "connections": connections,
        "connection_rate": connection_rate.as_ref().map(rate),
        "connection_burst": connection_rate.as_ref().map(|it| it.burst),
        "request_rate": request_rate.as_ref().map(rate),
        "request_burst": request_rate.as_ref().map(|it| it.burst),
        "ipv6_prefix": ipv6_prefix,
        "addresses": addresses,
    })
}

pub(super) fn slow_readers(readers: &SlowReaders) -> Value {
    let SlowReaders { stall, close_rate: SpreadOptions { limit, period }, send_buffer } = *readers;
    json!({
        "stall": stall.map(time),
        "close_rate": rate(&RateOptions { limit, period, burst: 1 }),
        "send_buffer": send_buffer.map(|bytes| format_size(bytes as u64)),
    })
}

fn rate(options: &RateOptions) -> String {
    match options.period.as_secs() {
        1 => format!("{}/s", options.limit),
        60 => format!("{}/m", options.limit),
        3_600 => format!("{}/h", options.limit),
        _ => format!("{}/{}", options.limit, time(options.period)),
    }
}

pub(super) fn bulkhead(options: &BulkheadOptions) -> Value {
    let BulkheadOptions { limit, lane_limit, wait, queue, max_streams } = options;
    json!({
        "limit": limit,
        "per_route": lane_limit,
        "wait": time(*wait),
        "queue": queue,
        "max_streams": max_streams,
    })
}

pub(super) fn outlier(options: &OutlierOptions) -> Value {
    json!({
        "interval": time(options.interval),
        "min_calls": options.min_calls,
        "failure_excess": options.failure_excess.to_string(),
        "slow_excess": options.slow_excess.to_string(),
        "slow_factor": options.slow_factor,
        "slow_floor": time(options.slow_floor),
        "ejection": {"base": time(options.ejection_base), "cap": time(options.ejection_cap)},
        "max_ejected": options.max_ejected.to_string(),
        "probes": options.probes,
    })
}

pub(super) fn slow_start(options: &SlowStartOptions) -> Value {
    let SlowStartOptions { window, least } = options;
    json!({"window": time(*window), "least": least.to_string()})
}

/// `500`, or `5xx`.
pub(super) fn statuses(ranges: &[RangeInclusive<u16>]) -> Vec<String> {
    let shown = |range: &RangeInclusive<u16>| match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{}xx", range.start() / 100),
    };
    ranges.iter().map(shown).collect()
}
