//! How calls are made, in the words, units and defaults of an upstream of the gateway's file: what
//! is tried out here can be copied there. Or, to compare with, by somebody else's rules.

mod endpoints;

use std::time::Duration;

use seawall_policy::{
    Backoff, BackoffOptions, Balance, BreakerMode, BreakerOptions, BudgetOptions, BulkheadOptions,
    FinagleBudget, GrpcThrottle, HedgeDelay, HedgeOptions, HedgeParams, Jitter, Ratio,
    RetryOptions, StackConfig, StackParams, SuccessBudget,
};

use super::known::{self, Form};
use super::mistake::Mistake;
use super::model::span;
use super::node::{Node, Value};
use super::section::{Read, Section};
use crate::baselines::{Baseline, Gate};
use crate::span::Span;

/// The policy of a file, that of the gateway where it says nothing.
pub(crate) fn params(whole: &Section<'_>) -> Read<StackParams> {
    StackParams::new(&config(whole)?).map_err(|error| whole.by(&error, "policy"))
}

/// The same, unchecked as a whole.
pub(crate) fn config(whole: &Section<'_>) -> Read<StackConfig> {
    let empty = Node { at: 0, value: Value::Table(Vec::new()) };
    policy(whole.node("policy").unwrap_or(&empty), "policy")
}

/// Reads the section `policy`; what it leaves out is as in the gateway.
pub(super) fn policy(node: &Node, path: &str) -> Read<StackConfig> {
    known::as_in(path, "(policy)");
    let section = Section::new(node, path, &KEYS)?;
    let mut config = StackConfig {
        total: Some(TOTAL),
        attempt_timeout: Some(ATTEMPT),
        bulkhead: Some(BulkheadOptions::gateway()),
        ..StackConfig::standard()
    };
    let mut is_asked = false;
    if section.is_off("timeouts") {
        (config.attempt_timeout, config.total) = (None, None);
    } else if let Some(timeouts) = section.inner("timeouts", &TIMEOUTS)? {
        if let Some(attempt) = timeouts.duration("attempt", MILLISECOND..=HOUR)? {
            (config.attempt_timeout, is_asked) = (Some(attempt), true);
        }
        config.total = timeouts.duration("total", MILLISECOND..=HOUR)?.or(config.total);
        if config.attempt_timeout > config.total {
            let key = if is_asked { "attempt" } else { "total" };
            return Err(timeouts.refused(key, "attempt at most total (12s and 25s by default)"));
        }
    }
    config.retry = match section.is_off("retry") {
        true => Some(RetryOptions { max_attempts: 1, ..RetryOptions::default() }),
        false => Some(again(&section)?),
    };
    config.budget = paid(&section)?;
    config.hedge = beside(&section, &config)?;
    config.breaker = opens(&section, config.attempt_timeout, is_asked)?;
    config.bulkhead = holds(&section)?;
    let balances = [Balance::LeastRequest, Balance::PeakEwma].map(|it| (it.as_str(), it));
    config.balance = section.choice("balance", &balances)?.unwrap_or_default();
    config.outlier = endpoints::left_out(&section)?;
    config.slow_start = endpoints::slow_start(&section)?;
    match StackParams::new(&config) {
        Ok(_) => Ok(config),
        Err(error) => {
            let field = error.field().to_owned();
            Err(Mistake::refused(node.at, &section.path(&field), error.value(), error.allowed()))
        }
    }
}

/// How long a caller waits to be let in where there is a door, by the policy of a file.
pub(super) fn connect(whole: &Section<'_>) -> Read<Option<Duration>> {
    let Some(read) = whole.inner("policy", &KEYS)? else { return Ok(None) };
    if read.is_off("timeouts") {
        return Ok(None);
    }
    let Some(timeouts) = read.inner("timeouts", &TIMEOUTS)? else { return Ok(None) };
    timeouts.duration("connect", MILLISECOND..=HOUR)
}

/// Whether an attempt is cut when its caller leaves, by the policy of a file.
pub(super) fn cancels(whole: &Section<'_>) -> Read<bool> {
    let Some(read) = whole.inner("policy", &KEYS)? else { return Ok(false) };
    Ok(read.choice("on_abandon", &[("finish", false), ("cancel", true)])?.unwrap_or(false))
}

/// The waits between attempts, for what has nothing but these.
pub(crate) fn waits(node: &Node, path: &str) -> Read<Option<Backoff>> {
    let section = Section::new(node, path, &["retry"])?;
    if section.is_off("retry") {
        return Ok(None);
    }
    let retry = section.inner("retry", &["backoff"])?.ok_or_else(|| section.missing("retry"))?;
    let options = between(&retry, BackoffOptions::default())?;
    Backoff::new(options).map(Some).map_err(|error| retry.by(&error, "backoff"))
}

fn again(section: &Section<'_>) -> Read<RetryOptions> {
    let default = RetryOptions::default();
    let keys = ["max_attempts", "backoff", "redispatches", "retry_after_max", "honour_stop"];
    let Some(retry) = section.inner("retry", &keys)? else { return Ok(default) };
    Ok(RetryOptions {
        max_attempts: retry.count("max_attempts", 1..=10)?.unwrap_or(default.max_attempts),
        backoff: between(&retry, default.backoff)?,
        redispatches: retry.count("redispatches", 0..=10)?.unwrap_or(default.redispatches),
        retry_after_max: retry
            .duration("retry_after_max", Duration::ZERO..=HOUR)?
            .unwrap_or(default.retry_after_max),
        honour_stop: retry.flag("honour_stop")?.unwrap_or(default.honour_stop),
        on: default.on,
    })
}

fn between(retry: &Section<'_>, default: BackoffOptions) -> Read<BackoffOptions> {
    let Some(section) = retry.inner("backoff", &["base", "cap", "jitter"])? else {
        return Ok(default);
    };
    let base = section.duration("base", MILLISECOND..=HOUR)?.unwrap_or(default.base);
    let cap = section.duration("cap", MILLISECOND..=HOUR)?.unwrap_or(default.cap.max(base));
    if base > cap {
        return Err(section.refused("base", "at most cap"));
    }
    let jitter = match section.text("jitter")? {
        None => default.jitter,
        Some("none") => Jitter::None,
        Some("full") => Jitter::Full,
        Some("equal") => Jitter::Equal,
        Some("decorrelated") => Jitter::Decorrelated,
        Some(text) => {
            let share = text.strip_prefix('±').unwrap_or(text).parse::<Ratio>().ok();
            let fits =
                (Ratio::from_millionths(1)..=Ratio::ONE).contains(&share.unwrap_or_default());
            let allowed = "none, full, equal, decorrelated, or a share like ±20%";
            share
                .filter(|_| fits)
                .map(Jitter::Factor)
                .ok_or_else(|| section.refused("jitter", allowed).alone())?
        }
    };
    Ok(BackoffOptions { base, cap, jitter })
}

/// What retries cost, by one of three kinds.
fn paid(section: &Section<'_>) -> Read<Option<BudgetOptions>> {
    const KEY: &str = "retry_budget";
    if section.is_off(KEY) {
        return Ok(None);
    }
    let all = ["kind", "ratio", "initial", "cap", "reserve", "ttl", "max_tokens", "token_ratio"];
    let Some(any) = section.inner(KEY, &all)? else { return Ok(Some(BudgetOptions::default())) };
    let kinds = [("seawall", 0), ("finagle", 1), ("grpc", 2)];
    let kind = any.choice("kind", &kinds)?.unwrap_or(0);
    let keys =
        [&all[..5], &["kind", "ratio", "reserve", "ttl"], &["kind", "max_tokens", "token_ratio"]]
            [kind];
    // A key that the kind does not have would do nothing.
    let Some(read) = section.inner(KEY, keys)? else { return Ok(None) };
    of_kind(kind, &read).map(Some)
}

fn of_kind(kind: usize, read: &Section<'_>) -> Read<BudgetOptions> {
    let reserve =
        |default| -> Read<u32> { Ok(read.whole_per_second("reserve")?.unwrap_or(default)) };
    Ok(match kind {
        0 => {
            let default = SuccessBudget::default();
            let cap = read.count("cap", 1..=MOST)?.unwrap_or(default.cap_floor);
            SuccessBudget {
                ratio: read.ratio("ratio", Ratio::ONE)?.unwrap_or(default.ratio),
                initial: read
                    .count("initial", 0..=cap)
                    .map_err(Mistake::together)?
                    .unwrap_or(default.initial.min(cap)),
                cap_floor: cap,
                reserve_per_second: reserve(default.reserve_per_second)?,
            }
            .into()
        }
        1 => {
            let default = FinagleBudget::default();
            let (least, most) = (Duration::from_secs(1), Duration::from_secs(60));
            FinagleBudget {
                ratio: read.ratio("ratio", Ratio::ONE)?.unwrap_or(default.ratio),
                reserve_per_second: reserve(default.reserve_per_second)?,
                ttl: read.duration("ttl", least..=most)?.unwrap_or(default.ttl),
            }
            .into()
        }
        _ => {
            let default = GrpcThrottle::default();
            GrpcThrottle {
                max_tokens: read.count("max_tokens", 1..=1_000)?.unwrap_or(default.max_tokens),
                token_ratio: read.ratio("token_ratio", Ratio::ONE)?.unwrap_or(default.token_ratio),
            }
            .into()
        }
    })
}

/// When a second attempt goes beside a slow one.
fn beside(section: &Section<'_>, config: &StackConfig) -> Read<Option<HedgeOptions>> {
    let keys = ["delay", "delay_min", "max_extra", "max_load", "same_endpoint"];
    if section.is_off("hedge") {
        return Ok(None);
    }
    let Some(read) = section.inner("hedge", &keys)? else { return Ok(None) };
    if config.retry.is_none_or(|retry| retry.max_attempts < 2) {
        return Err(section.refused("hedge", "two or more of retry.max_attempts, or no hedge"));
    }
    let attempt = config.attempt_timeout.unwrap_or(ATTEMPT) - MILLISECOND;
    let default = HedgeOptions::default();
    let delay = match read.text("delay")?.map(|text| (text, text.strip_prefix('p'))) {
        None => default.delay,
        Some((_, Some(percent))) => match format!("{percent}%").parse() {
            Ok(share) => HedgeDelay::Quantile(share),
            Err(_) => {
                let allowed = "p50 to p99.9, or a time such as 20ms";
                return Err(read.refused("delay", allowed).alone());
            }
        },
        Some(_) => {
            let fixed = read.duration("delay", MILLISECOND..=attempt).map_err(Mistake::together)?;
            fixed.map_or(default.delay, HedgeDelay::Fixed)
        }
    };
    let ratio =
        |key, default| -> Read<Ratio> { Ok(read.ratio(key, Ratio::ONE)?.unwrap_or(default)) };
    let options = HedgeOptions {
        delay,
        delay_min: read
            .duration("delay_min", MILLISECOND..=attempt)
            .map_err(Mistake::together)?
            .unwrap_or(default.delay_min),
        max_extra: ratio("max_extra", default.max_extra)?,
        max_load: ratio("max_load", default.max_load)?,
        same_endpoint: read.flag("same_endpoint")?.unwrap_or(default.same_endpoint),
    };
    HedgeParams::new(options).map_err(|error| read.by(&error, "delay"))?;
    Ok(Some(options))
}

fn opens(
    section: &Section<'_>,
    attempt: Option<Duration>,
    is_asked: bool,
) -> Read<Option<BreakerOptions>> {
    if section.is_off("breaker") {
        return Ok(None);
    }
    let default = BreakerOptions {
        // Half of the attempt's time where somebody wrote that, else nothing is slow that ends.
        slow: attempt.map(|attempt| if is_asked { attempt / 2 } else { attempt }),
        probe_lease: attempt.unwrap_or(ATTEMPT),
        ..BreakerOptions::default()
    };
    let keys = [
        "window",
        "min_calls",
        "failure_ratio",
        "consecutive_failures",
        "slow",
        "slow_ratio",
        "open",
        "probes",
        "mode",
    ];
    let Some(read) = section.inner("breaker", &keys)? else { return Ok(Some(default)) };
    let open = read.inner("open", &["base", "cap"])?;
    let time = |key| open.as_ref().map_or(Ok(None), |open| open.duration(key, MILLISECOND..=HOUR));
    let open_base = time("base")?.unwrap_or(default.open_base);
    let window = read.duration("window", Duration::from_millis(100)..=HOUR)?;
    let modes = [
        BreakerMode::Normal,
        BreakerMode::ForcedOpen,
        BreakerMode::Disabled,
        BreakerMode::MetricsOnly,
        BreakerMode::RetriesOff,
    ];
    let ratio =
        |key, default| -> Read<Ratio> { Ok(read.ratio(key, Ratio::ONE)?.unwrap_or(default)) };
    Ok(Some(BreakerOptions {
        bucket: window.map_or(default.bucket, |window| window / 10),
        min_calls: read.count("min_calls", 1..=MOST)?.unwrap_or(default.min_calls),
        failure_ratio: ratio("failure_ratio", default.failure_ratio)?,
        consecutive_failures: read
            .count("consecutive_failures", 0..=MOST)?
            .unwrap_or(default.consecutive_failures),
        slow: read
            .duration("slow", MILLISECOND..=attempt.unwrap_or(HOUR))
            .map_err(Mistake::together)?
            .or(default.slow),
        slow_ratio: ratio("slow_ratio", default.slow_ratio)?,
        open_base,
        open_cap: time("cap")?.unwrap_or(default.open_cap.max(open_base)),
        probes: read.count("probes", 1..=1_000)?.unwrap_or(default.probes),
        mode: read
            .choice("mode", &modes.map(|mode| (mode.as_str(), mode)))?
            .unwrap_or(default.mode),
        ..default
    }))
}

fn holds(section: &Section<'_>) -> Read<Option<BulkheadOptions>> {
    let default = BulkheadOptions::gateway();
    if section.is_off("bulkhead") {
        return Ok(None);
    }
    let Some(read) = section.inner("bulkhead", &["limit", "wait", "queue"])? else {
        return Ok(Some(default));
    };
    let limit = read.count("limit", 1..=MOST)?.unwrap_or(default.limit);
    let sized = BulkheadOptions::with_limit(limit);
    Ok(Some(BulkheadOptions {
        wait: read.duration("wait", Duration::ZERO..=HOUR)?.unwrap_or(default.wait),
        queue: read.count("queue", 0..=100_000)?.unwrap_or(sized.queue),
        ..sized
    }))
}

/// Reads the section `baseline` of an arm: attempts by other people's rules.
pub(super) fn baseline(node: &Node, path: &str) -> Read<Baseline> {
    let all =
        ["attempts", "timeout", "waits", "gate", "begins", "cap", "per_call", "share", "factor"];
    let any = Section::new(node, path, &all)?;
    let gates = [("free", 0), ("bucket", 1), ("share", 2), ("throttle", 3)];
    let gate = any.choice("gate", &gates)?.unwrap_or(0);
    let own: [&[&str]; 4] = [&[], &all[4..7], &["share"], &["factor"]];
    let keys = [&all[..4], own[gate]].concat();
    let read = Section::new(node, path, &keys)?;
    let tokens = |key, default| {
        known::form(&read.path(key), || Form::Number(0.0, 4_294.0));
        match read.node(key).map(Node::shown) {
            None => Ok(default),
            Some(text) => match text.parse::<Ratio>() {
                Ok(tokens) => Ok(tokens.millionths() / 1_000),
                Err(_) => Err(read.refused(key, "a number from 0 to 4294").alone()),
            },
        }
    };
    let gate = match gate {
        0 => Gate::Free,
        1 => Gate::Bucket {
            begins: tokens("begins", 5_000)?,
            cap: tokens("cap", 5_000)?,
            per_call: tokens("per_call", 100)?,
        },
        2 => Gate::Share(read.share("share")?.ok_or_else(|| read.missing("share"))?),
        _ => Gate::Throttle(read.number("factor", 1.0..=1_000.0)?.unwrap_or(2.0)),
    };
    let waits: Vec<Span> =
        read.list("waits")?.iter().map(|(path, node)| span(node, path)).collect::<Read<_>>()?;
    let attempts = read.count("attempts", 1..=100)?.ok_or_else(|| read.missing("attempts"))?;
    let timeout = read.duration("timeout", MILLISECOND..=HOUR)?;
    let timeout = timeout.ok_or_else(|| read.missing("timeout"))?;
    Baseline::new(attempts, timeout, &waits, gate).map_err(|error| read.by(&error, "attempts"))
}

pub(super) const KEYS: [&str; 10] = [
    "timeouts",
    "retry",
    "retry_budget",
    "hedge",
    "breaker",
    "bulkhead",
    "on_abandon",
    "balance",
    "outlier",
    "slow_start",
];
const TIMEOUTS: [&str; 3] = ["connect", "attempt", "total"];
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// The gateway's. Source: seawall-design.
const TOTAL: Duration = Duration::from_secs(25);
/// The gateway's. Source: seawall-design.
const ATTEMPT: Duration = Duration::from_secs(12);
/// Calls that a count can stand for. Source: own choice.
const MOST: u32 = 1_000_000;
