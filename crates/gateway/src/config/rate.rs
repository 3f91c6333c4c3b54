//! Checks of what may be sent to an upstream in a time: in all, and of each key.

use http::HeaderName;
use seawall_policy::{KeyedRateOptions, KeyedRateParams, RateOptions, RateParams};

use super::raw::{RawPerKey, RawRate};
use super::report::Finding;
use super::scope::Scope;
use super::upstream::{MOST_CALLS, checked};
use crate::units::{format_rate, parse_rate};

/// What may be sent to an upstream in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// All calls together.
    pub all: Option<RateOptions>,
    /// The calls of each key.
    pub per_key: Option<PerKey>,
}

/// A limit for each key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerKey {
    /// What tells callers apart.
    pub key: RateKeyOf,
    /// The limit, and how many keys.
    pub options: KeyedRateOptions,
}

/// What tells callers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateKeyOf {
    /// The address of the peer; of IPv6 its first 64 bits.
    Peer,
    /// The value of a header.
    Header(HeaderName),
}

/// The limits that are written.
pub(super) fn rates(mut scope: Scope<'_>, raw: &RawRate) -> Rates {
    if raw.limit.is_none() && raw.per_key.is_none() {
        scope.missing("limit", "how many may be sent, like `limit: 500/s`");
    }
    let all = rate(&mut scope, &raw.limit, &raw.burst);
    let per_key = raw.per_key.as_ref().and_then(|raw| per_key(scope.inner("per_key"), raw, all));
    Rates { all, per_key }
}

/// A limit and its burst.
fn rate(
    scope: &mut Scope<'_>,
    limit: &Option<String>,
    burst: &Option<String>,
) -> Option<RateOptions> {
    let written = scope.read("limit", limit, |text| parse_rate(text).map_err(|it| it.allowed()));
    let burst = scope.count("burst", burst, 1..=MOST_CALLS);
    if limit.is_none() && burst.is_some() {
        let finding = Finding::new(scope.path("burst"), "has no effect without `limit`");
        scope.refuse_with("burst", finding);
    }
    let written = written?;
    let default = RateOptions::new(written.count.get(), written.period);
    let read = RateOptions { burst: burst.unwrap_or(default.burst), ..default };
    Some(checked(scope, read, RateParams::new(read).err(), &[]))
}

fn per_key(mut scope: Scope<'_>, raw: &RawPerKey, all: Option<RateOptions>) -> Option<PerKey> {
    if raw.key.is_none() {
        scope.missing("key", "what tells callers apart: `peer`, or `header:X-Account`");
    }
    if raw.limit.is_none() {
        scope.missing("limit", "how many may be sent for one key, like `limit: 50/s`");
    }
    let key = scope.read("key", &raw.key, |text| match text.split_once(':') {
        None if text == "peer" => Ok(RateKeyOf::Peer),
        Some(("header", name)) => {
            let name = name.trim().parse::<HeaderName>();
            name.map(RateKeyOf::Header).map_err(|_| "header: and a header name")
        }
        _ => Err("peer, or header: and a name, like header:X-Account"),
    });
    let keys = scope.count("keys", &raw.keys, 1..=1_000_000);
    let rate = rate(&mut scope, &raw.limit, &raw.burst)?;
    if let Some(all) = all.filter(|all| all.is_within(&rate)) {
        let limit = format_rate(crate::units::Rate {
            count: std::num::NonZeroU32::new(all.limit).unwrap_or(std::num::NonZeroU32::MIN),
            period: all.period,
        });
        let allowed = format!("less than rate.limit ({limit}), which is reached first");
        scope.refuse("limit", raw.limit.as_deref().unwrap_or_default(), allowed);
    }
    let default = KeyedRateOptions::new(rate);
    let options = KeyedRateOptions { rate, keys: keys.unwrap_or(default.keys) };
    let options = checked(&mut scope, options, KeyedRateParams::new(options).err(), &[]);
    Some(PerKey { key: key?, options })
}
