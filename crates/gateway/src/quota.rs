//! Whose rate a request takes from, where an upstream has one for each key.
//!
//! A key comes from the network, so it is hashed with a secret of the stack and never kept. A
//! request without the header shares one key with all others that have none: leaving it out gains
//! nothing. Of an IPv6 peer the first 64 bits count, because whoever has one address has the rest
//! of them too.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderMap;
use seawall::Stack;
use seawall_policy::RateKey;

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
        RateKeyOf::Peer => Some(stack.rate_key(&network(peer))),
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

/// Who a peer is: an IPv4 address, or the network of an IPv6 address.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(peer) => IpAddr::V4(peer),
        IpAddr::V6(peer) => IpAddr::V6(Ipv6Addr::from_bits(peer.to_bits() & NETWORK)),
    }
}

/// Bytes of a header that tell callers apart; what is longer shares a rate.
/// Source: seawall-design.
const KEY_BYTES: usize = 256;
/// The bits of an IPv6 address that name a network. Source: rfc4291 (section 2.5.4).
const NETWORK: u128 = !0 << 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_version_4_is_itself_and_one_of_version_6_its_network() {
        for (peer, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"),
        ] {
            let [peer, same, other] =
                [peer, same, other].map(|text| network(text.parse::<IpAddr>().unwrap()));
            assert_eq!(peer, same);
            assert_ne!(peer, other);
        }
    }
}
