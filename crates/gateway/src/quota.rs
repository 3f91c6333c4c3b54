//! Whose rate a request takes from, where there is one for each of them, and how a caller is told
//! of it.
//!
//! A key comes from the network, so it is hashed with a secret of the stack and never kept. A
//! request without the header shares one key with all others that have none: leaving it out gains
//! nothing. Of an IPv6 peer the first 64 bits count, because whoever has one address has the rest
//! of them too.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue};
use seawall::Stack;
use seawall_policy::{Cause, Done, RateKey, RateOptions};

use crate::config::{RateKeyOf, Upstream};

/// The key of a request, whose fields are those that go on: what an untrusted peer may not state
/// is gone from them.
pub(crate) fn rate_key(
    stack: &Stack,
    upstream: &Upstream,
    fields: &HeaderMap,
    peer: IpAddr,
) -> Option<RateKey> {
    match &upstream.rate.per_key.as_ref()?.key {
        RateKeyOf::Peer => Some(stack.rate_key(&network(peer, IPV6_PREFIX))),
        RateKeyOf::Header(name) => {
            let mut left = KEY_BYTES;
            let values = fields.get_all(name).iter().map(|value| {
                let value = value.as_bytes();
                let kept = value.len().min(left);
                left -= kept;
                &value[..kept]
            });
            Some(stack.rate_key(&values.collect::<Vec<_>>()))
        }
    }
}

/// A share of requests that a caller has used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// What it is a share of: `address`, or `key`.
    pub(crate) name: &'static str,
    pub(crate) rate: RateOptions,
}

impl Quota {
    /// That of a call which its upstream's rate for each key refused.
    pub(crate) fn of_call(upstream: &Upstream, done: &Done) -> Option<Self> {
        let per_key = upstream.rate.per_key.as_ref()?;
        let is_it = done.outcome.cause() == Cause::QuotaExceeded;
        is_it.then_some(Self { name: "key", rate: per_key.options.rate })
    }

    /// Says how many may come in which time, that none is left, and when there will be one: as the
    /// answer's `Retry-After`, which may be jittered. Source: ratelimit-fields.
    pub(crate) fn tell(&self, fields: &mut HeaderMap, seconds: u64) {
        let Self { name, rate } = self;
        let window = rate.period.as_secs().max(1);
        let policy = format!("\"{name}\";q={};w={window}", rate.limit);
        let left = format!("\"{name}\";r=0;t={seconds}");
        for (field, value) in [(RATELIMIT_POLICY, policy), (RATELIMIT, left)] {
            // Letters, digits and signs of ASCII.
            if let Ok(value) = HeaderValue::from_str(&value) {
                fields.insert(field, value);
            }
        }
    }
}

/// Who a peer is: an IPv4 address, or the network of an IPv6 address that so many bits name.
pub(crate) fn network(peer: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(peer) => IpAddr::V4(peer),
        IpAddr::V6(peer) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(peer.to_bits() & kept))
        }
    }
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Bytes of a header that tell callers apart; what is longer shares a rate.
/// Source: seawall-design.
const KEY_BYTES: usize = 256;
/// The bits of an IPv6 address that name a network. Source: rfc4291 (section 2.5.4).
pub(crate) const IPV6_PREFIX: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_version_4_is_itself_and_one_of_version_6_its_network() {
        for (peer, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
        ] {
            let [peer, same, other] = [peer, same, other]
                .map(|text| network(text.parse::<IpAddr>().unwrap(), IPV6_PREFIX));
            assert_eq!(peer, same);
            assert_ne!(peer, other);
        }
    }

    #[test]
    fn so_many_bits_of_an_address_of_version_6_count_as_are_asked_for() {
        let at = |text: &str, prefix| network(text.parse().unwrap(), prefix).to_string();
        for (prefix, is) in [(0, "::"), (32, "2001:db8::"), (56, "2001:db8:1:200::")] {
            assert_eq!(at("2001:db8:1:2ff::1", prefix), is);
        }
        assert_eq!(at("2001:db8:1:2ff::1", 128), "2001:db8:1:2ff::1");
        assert_eq!(at("192.0.2.1", 0), "192.0.2.1");
    }
}
