//! Checks of who a listener lets in.

use http::HeaderName;
use seawall_policy::{AddressOptions, DoorOptions, DoorParams, RateOptions, RateParams};
use serde::Deserialize;

use super::edge;
use super::model::PeerRange;
use super::raw::RawListener;
use super::report::Finding;
use super::scope::Scope;
use super::upstream::{MOST_CALLS, checked};
use crate::quota::IPV6_PREFIX;
use crate::units::parse_rate;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAccept {
    rate: Option<String>,
    burst: Option<String>,
    refuse: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPerAddress {
    connections: Option<String>,
    connection_rate: Option<String>,
    connection_burst: Option<String>,
    request_rate: Option<String>,
    request_burst: Option<String>,
    ipv6_prefix: Option<String>,
    addresses: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawProxyProtocol {
    from: Vec<String>,
}

/// The proxies that say first whose a connection is.
pub(super) fn proxies(mut scope: Scope<'_>, raw: &RawProxyProtocol) -> Vec<PeerRange> {
    if raw.from.is_empty() {
        scope.missing("from", "the proxies that may say whose a connection is, like [10.0.0.0/8]");
    }
    edge::ranges(&mut scope, "from", &raw.from)
}

/// The field in which trusted peers say who a request is from.
pub(super) fn client_header(scope: &mut Scope<'_>, raw: &RawListener) -> Option<HeaderName> {
    let name = scope.read("client_header", &raw.client_header, |text| {
        let name = text.parse::<HeaderName>().map_err(|_| HEADER)?;
        // Of another grammar.
        if name.as_str() == "forwarded" { Err(HEADER) } else { Ok(name) }
    });
    if name.is_some() && raw.trusted_peers.is_empty() {
        let finding =
            Finding::new(scope.path("client_header"), "has no effect without `trusted_peers`");
        let help = "anybody else could write there what they like";
        scope.refuse_with("client_header", finding.help(help));
    }
    name
}

/// The door of a listener, and the bits of an IPv6 address that count.
pub(super) fn door(scope: &mut Scope<'_>, raw: &RawListener) -> (DoorOptions, u8) {
    let mut read = DoorOptions::default();
    let mut prefix = IPV6_PREFIX;
    if let Some(written) = &raw.accept {
        accept(scope.inner("accept"), written, raw, &mut read);
    }
    if let Some(written) = &raw.per_address {
        let is_socket = raw.address.as_deref().is_some_and(|it| it.starts_with("unix:"));
        if is_socket && raw.proxy_protocol.is_none() && raw.client_header.is_none() {
            let help = "who comes by a socket of this host has no address";
            scope.warn("per_address", "has no effect on a socket", help);
        }
        prefix = per_address(scope.inner("per_address"), written, &mut read);
    }
    let refused = DoorParams::new(read).err();
    let keys = [("connection_rate", "per_address.connection_rate"), ("answers", "accept.refuse")];
    (checked(scope, read, refused, &keys), prefix)
}

fn accept(mut scope: Scope<'_>, raw: &RawAccept, of: &RawListener, into: &mut DoorOptions) {
    if raw.rate.is_none() && (of.per_address.is_none() || raw.burst.is_some()) {
        scope.missing("rate", "how many connections may come, like `rate: 500/s`");
    }
    let refuse = scope.choice("refuse", &raw.refuse, &[("reset", false), ("answer", true)]);
    if of.tls.is_some() && refuse == Some(true) {
        let finding = Finding::refused(scope.path("refuse"), "answer", "reset");
        let help = "before the handshake a caller of TLS can read no answer";
        scope.refuse_with("refuse", finding.help(help));
    }
    into.accept = rate(&mut scope, ("rate", &raw.rate), ("burst", &raw.burst));
    into.answers = refuse.unwrap_or(false) && scope.is_sound("refuse") && scope.is_sound("rate");
}

/// Gives the bits of an IPv6 address that count.
fn per_address(mut scope: Scope<'_>, raw: &RawPerAddress, into: &mut DoorOptions) -> u8 {
    let come = ("connection_rate", &raw.connection_rate);
    let ask = ("request_rate", &raw.request_rate);
    let connections = scope.count("connections", &raw.connections, 1..=MOST_CALLS);
    let addresses = scope.count("addresses", &raw.addresses, 1..=MOST_CALLS);
    let default = AddressOptions::default();
    let limits = AddressOptions {
        connections,
        connection_rate: rate(&mut scope, come, ("connection_burst", &raw.connection_burst)),
        request_rate: rate(&mut scope, ask, ("request_burst", &raw.request_burst)),
        addresses: addresses.unwrap_or(default.addresses),
    };
    let prefix = scope.count("ipv6_prefix", &raw.ipv6_prefix, IPV6_PREFIX_MIN..=128);
    let has_any = raw.connections.is_some() || come.1.is_some() || ask.1.is_some();
    if !has_any {
        let help = "a limit of each address: `connections`, `connection_rate` or `request_rate`";
        scope.missing("connections", help);
    } else if connections.is_some()
        || come.1.is_some() && scope.is_sound(come.0)
        || limits.request_rate.is_some()
    {
        into.per_address = Some(limits);
    }
    prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(IPV6_PREFIX)
}

/// A rate and its burst, each under its key.
fn rate(
    scope: &mut Scope<'_>,
    (key, raw): (&str, &Option<String>),
    (burst_key, raw_burst): (&str, &Option<String>),
) -> Option<RateOptions> {
    let rate = scope.read(key, raw, |text| parse_rate(text).map_err(|it| it.allowed()));
    let burst = scope.count(burst_key, raw_burst, 1..=MOST_CALLS);
    if raw.is_none() && raw_burst.is_some() {
        let message = format!("has no effect without `{key}`");
        let finding = Finding::new(scope.path(burst_key), message);
        scope.refuse_with(burst_key, finding);
    }
    let rate = rate?;
    let default = DoorOptions::rate(rate.count.get(), rate.period);
    let options = RateOptions { burst: burst.unwrap_or(default.burst), ..default };
    let refused = RateParams::new(options).err();
    Some(checked(scope, options, refused, &[("limit", key), ("burst", burst_key)]))
}

const HEADER: &str = "a field that holds a list of addresses, like X-Forwarded-For";
/// A network of a provider. Source: seawall-design.
const IPV6_PREFIX_MIN: u32 = 16;
