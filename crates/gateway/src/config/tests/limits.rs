//! Retry budgets of every kind, and rates.

use seawall_policy::{
    BudgetOptions, FinagleBudget, GrpcThrottle, KeyedRateOptions, RateOptions, SuccessBudget,
};

use super::super::{PerKey, RateKeyOf, Rates};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The one finding, without its place.
fn said(section: &str) -> String {
    let text = upstream_with(section);
    let errors = read(&text).unwrap_err().to_string();
    errors.lines().next().unwrap().to_owned()
}

#[test]
fn a_budget_of_every_kind_arrives_with_its_own_defaults() {
    let budget = |section: &str| accepted_upstream(&format!("retry_budget: {section}")).budget;
    let ours = SuccessBudget { ratio: Ratio::from_percent(5), ..SuccessBudget::default() };
    for (section, expected) in [
        ("{kind: seawall, ratio: 5%}", BudgetOptions::from(ours)),
        ("{kind: grpc}", GrpcThrottle::default().into()),
        (
            "{kind: grpc, max_tokens: 100, token_ratio: 0.125}",
            GrpcThrottle { max_tokens: 100, token_ratio: Ratio::from_millionths(125_000) }.into(),
        ),
        ("{kind: finagle}", FinagleBudget::default().into()),
        (
            "{kind: finagle, ratio: 10%, reserve: 0/s, ttl: 30s}",
            FinagleBudget {
                ratio: Ratio::from_percent(10),
                reserve_per_second: 0,
                ttl: Duration::from_secs(30),
            }
            .into(),
        ),
    ] {
        assert_eq!(budget(section), Some(expected), "{section}");
    }
}

#[test]
fn a_key_of_another_kind_of_budget_is_refused_by_name() {
    for (kind, foreign) in [
        ("seawall", ["ttl: 10s", "max_tokens: 10", "token_ratio: 0.1"].as_slice()),
        ("grpc", &["ratio: 10%", "initial: 2", "cap: 10", "reserve: 1/s", "ttl: 10s"]),
        ("finagle", &["initial: 2", "cap: 10", "max_tokens: 10", "token_ratio: 0.1"]),
    ] {
        for option in foreign {
            let key = option.split(':').next().unwrap();
            let text = upstream_with(&format!("retry_budget: {{kind: {kind}, {option}}}"));
            assert_eq!(refused(&text), [format!("upstreams.upstream.retry_budget.{key}")]);
        }
    }
    assert_eq!(
        said("retry_budget: {kind: grpc, cap: 10}"),
        "error: upstreams.upstream.retry_budget.cap: has no effect on a budget of kind grpc"
    );
    let text = upstream_with("retry_budget: {kind: gprc, max_tokens: 3}");
    assert_eq!(refused(&text), ["upstreams.upstream.retry_budget.kind"]);
}

#[test]
fn a_budget_out_of_range_is_refused_at_its_key() {
    for (section, key) in [
        ("{kind: grpc, max_tokens: 0}", "max_tokens"),
        ("{kind: grpc, max_tokens: 1001}", "max_tokens"),
        ("{kind: grpc, token_ratio: 0.0001}", "token_ratio"),
        ("{kind: grpc, token_ratio: 10%}", "token_ratio"),
        ("{kind: finagle, ttl: 61s}", "ttl"),
        ("{kind: finagle, ttl: 999ms}", "ttl"),
        ("{kind: finagle, reserve: 2000000/s}", "reserve"),
        ("{kind: finagle, reserve: 10/m}", "reserve"),
        ("{kind: finagle, ratio: 101%}", "ratio"),
    ] {
        let text = upstream_with(&format!("retry_budget: {section}"));
        assert_eq!(refused(&text), [format!("upstreams.upstream.retry_budget.{key}")], "{section}");
    }
}

#[test]
fn a_rate_arrives_with_a_burst_of_a_tenth_of_a_second() {
    assert_eq!(accepted_upstream("").rate, Rates::default());
    let all = |limit, period, burst| RateOptions { limit, period, burst };
    for (section, expected) in [
        ("{limit: 500/s}", all(500, SECOND, 50)),
        ("{limit: 500/s, burst: 1}", all(500, SECOND, 1)),
        ("{limit: 30/m}", all(30, 60 * SECOND, 1)),
    ] {
        let rate = accepted_upstream(&format!("rate: {section}")).rate;
        assert_eq!(rate, Rates { all: Some(expected), per_key: None }, "{section}");
    }
    let per_key = "rate: {per_key: {key: 'header: X-Account', limit: 10/s, burst: 3, keys: 7}}";
    let options = KeyedRateOptions { rate: all(10, SECOND, 3), keys: 7 };
    let key = RateKeyOf::Header(http::HeaderName::from_static("x-account"));
    let expected = Rates { all: None, per_key: Some(PerKey { key, options }) };
    assert_eq!(accepted_upstream(per_key).rate, expected);
    let peer = accepted_upstream("rate: {per_key: {key: peer, limit: 10/s}}").rate.per_key.unwrap();
    assert_eq!((peer.key, peer.options.keys), (RateKeyOf::Peer, 10_000));
}

#[test]
fn a_rate_that_can_never_take_effect_is_refused_at_its_key() {
    for (section, keys) in [
        ("{}", &["limit"][..]),
        ("{burst: 5}", &["limit", "burst"]),
        ("{limit: 0/s}", &["limit"]),
        ("{limit: 500}", &["limit"]),
        ("{limit: 1/h, burst: 721}", &["burst"]),
        ("{limit: 1/s, burst: 0}", &["burst"]),
        ("{per_key: {}}", &["per_key.key", "per_key.limit"]),
        ("{per_key: {key: address, limit: 1/s}}", &["per_key.key"]),
        ("{per_key: {key: 'header:', limit: 1/s}}", &["per_key.key"]),
        ("{per_key: {key: 'header:a b', limit: 1/s}}", &["per_key.key"]),
        ("{per_key: {key: peer, limit: 1/s, keys: 0}}", &["per_key.keys"]),
        ("{limit: 60/m, burst: 1, per_key: {key: peer, limit: 1/s}}", &["per_key.limit"]),
    ] {
        let expected: Vec<_> =
            keys.iter().map(|key| format!("upstreams.upstream.rate.{key}")).collect();
        assert_eq!(refused(&upstream_with(&format!("rate: {section}"))), expected, "{section}");
    }
    accepted_upstream("rate: {limit: 60/m, burst: 1, per_key: {key: peer, limit: 59/m}}");
    accepted_upstream("rate: {limit: 60/m, burst: 2, per_key: {key: peer, limit: 1/s}}");
}

#[test]
fn every_jitter_arrives() {
    let jitter = |text: &str| {
        let section = format!("retry: {{backoff: {{jitter: {text}}}}}");
        accepted_upstream(&section).retry.unwrap().backoff.jitter
    };
    for (text, expected) in [
        ("none", Jitter::None),
        ("full", Jitter::Full),
        ("equal", Jitter::Equal),
        ("decorrelated", Jitter::Decorrelated),
        ("±20%", Jitter::Factor(Ratio::from_percent(20))),
        ("0.2", Jitter::Factor(Ratio::from_percent(20))),
        ("100%", Jitter::Factor(Ratio::ONE)),
    ] {
        assert_eq!(jitter(text), expected, "{text}");
    }
    for text in ["±0%", "101%", "fully", "-20%"] {
        let text = upstream_with(&format!("retry: {{backoff: {{jitter: '{text}'}}}}"));
        assert_eq!(refused(&text), ["upstreams.upstream.retry.backoff.jitter"]);
    }
    let flat = upstream_with("retry: {backoff: {base: 1s, cap: 1s, jitter: decorrelated}}");
    assert_eq!(refused(&flat), ["upstreams.upstream.retry.backoff.jitter"]);
}
