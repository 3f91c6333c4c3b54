//! Checks of a retry budget: three kinds, each with keys of its own.

use std::time::Duration;

use seawall_policy::{
    BudgetOptions, BudgetParams, FinagleBudget, GrpcThrottle, Ratio, SuccessBudget,
};

use super::raw::RawBudget;
use super::report::Finding;
use super::scope::Scope;
use super::upstream::{MOST_CALLS, checked};
use crate::units::parse_rate;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Seawall,
    Grpc,
    Finagle,
}

/// The budget that is written, or ours with its defaults.
pub(super) fn budget(mut scope: Scope<'_>, raw: &RawBudget) -> BudgetOptions {
    let kinds = [("seawall", Kind::Seawall), ("grpc", Kind::Grpc), ("finagle", Kind::Finagle)];
    let kind = scope.choice("kind", &raw.kind, &kinds);
    if kind.is_some() || raw.kind.is_none() {
        refuse_keys_of_others(&mut scope, raw, kind.unwrap_or(Kind::Seawall));
    }
    let (options, keys): (BudgetOptions, &[_]) = match kind.unwrap_or(Kind::Seawall) {
        Kind::Seawall => (success(&mut scope, raw).into(), &KEYS),
        Kind::Grpc => (grpc(&mut scope, raw).into(), &[]),
        Kind::Finagle => (finagle(&mut scope, raw).into(), &KEYS),
    };
    checked(&mut scope, options, BudgetParams::new(options).err(), keys)
}

/// A key that the kind does not have would do nothing.
fn refuse_keys_of_others(scope: &mut Scope<'_>, raw: &RawBudget, kind: Kind) {
    use Kind::{Finagle, Grpc, Seawall};
    for (key, value, kinds) in [
        ("ratio", &raw.ratio, &[Seawall, Finagle][..]),
        ("initial", &raw.initial, &[Seawall]),
        ("cap", &raw.cap, &[Seawall]),
        ("reserve", &raw.reserve, &[Seawall, Finagle]),
        ("ttl", &raw.ttl, &[Finagle]),
        ("max_tokens", &raw.max_tokens, &[Grpc]),
        ("token_ratio", &raw.token_ratio, &[Grpc]),
    ] {
        if value.is_none() || kinds.contains(&kind) {
            continue;
        }
        let (name, help) = match kind {
            Seawall => ("seawall", "its keys are ratio, initial, cap and reserve"),
            Grpc => ("grpc", "its keys are max_tokens and token_ratio"),
            Finagle => ("finagle", "its keys are ratio, reserve and ttl"),
        };
        let message = format!("has no effect on a budget of kind {name}");
        let finding = Finding::new(scope.path(key), message).help(help);
        scope.refuse_with(key, finding);
    }
}

fn success(scope: &mut Scope<'_>, raw: &RawBudget) -> SuccessBudget {
    let default = SuccessBudget::default();
    let cap_floor = scope.count("cap", &raw.cap, 1..=MOST_CALLS).unwrap_or(default.cap_floor);
    let read = SuccessBudget {
        ratio: scope.ratio("ratio", &raw.ratio, Ratio::ZERO).unwrap_or(default.ratio),
        initial: scope
            .count("initial", &raw.initial, 0..=MOST_CALLS)
            .unwrap_or(default.initial.min(cap_floor)),
        cap_floor,
        reserve_per_second: reserve(scope, raw).unwrap_or(default.reserve_per_second),
    };
    for (key, value) in [("initial", read.initial), ("reserve", read.reserve_per_second)] {
        if value > cap_floor && scope.is_sound("cap") {
            scope.refuse(key, &value.to_string(), format!("at most cap ({cap_floor})"));
        }
    }
    read
}

fn grpc(scope: &mut Scope<'_>, raw: &RawBudget) -> GrpcThrottle {
    let default = GrpcThrottle::default();
    let token_ratio = scope.read("token_ratio", &raw.token_ratio, |text| {
        let read = text.parse::<Ratio>().ok().filter(|_| !text.ends_with('%'));
        read.ok_or("a number such as 0.1, with at most three decimals")
    });
    GrpcThrottle {
        max_tokens: scope
            .count("max_tokens", &raw.max_tokens, 1..=1_000)
            .unwrap_or(default.max_tokens),
        token_ratio: token_ratio.unwrap_or(default.token_ratio),
    }
}

fn finagle(scope: &mut Scope<'_>, raw: &RawBudget) -> FinagleBudget {
    let default = FinagleBudget::default();
    let ttl = scope.duration("ttl", &raw.ttl, Duration::from_secs(1)..=Duration::from_secs(60));
    FinagleBudget {
        ratio: scope.ratio("ratio", &raw.ratio, Ratio::ZERO).unwrap_or(default.ratio),
        reserve_per_second: reserve(scope, raw).unwrap_or(default.reserve_per_second),
        ttl: ttl.unwrap_or(default.ttl),
    }
}

/// Retries a second that nothing pays for.
fn reserve(scope: &mut Scope<'_>, raw: &RawBudget) -> Option<u32> {
    scope.read("reserve", &raw.reserve, |text| match (text, parse_rate(text)) {
        ("0/s", _) => Ok(0),
        (_, Ok(rate)) if rate.period == Duration::from_secs(1) => Ok(rate.count.get()),
        _ => Err("a rate per second, like 10/s, or 0/s"),
    })
}

/// What the policy calls what is called otherwise here.
const KEYS: [(&str, &str); 2] = [("cap_floor", "cap"), ("reserve_per_second", "reserve")];
