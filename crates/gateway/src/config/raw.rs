//! The file as written: every key there is, every value still text.
//!
//! What a key means, its unit, its range and its default stand in `docs/configuration.md`, held
//! against these structs by a test. No key is required here; what is missing is said by the
//! checks, which know why it is needed.

mod health;
mod route;
mod rules;

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::balance::{RawOutlier, RawSlowStart};
use super::credentials::RawCredentials;
use super::door::{RawAccept, RawPerAddress, RawProxyProtocol};
use super::hedge::RawHedge;
use super::slow_readers::RawSlowReaders;
pub(super) use health::RawHealthCheck;
pub(super) use route::{RawEdits, RawFallback, RawGrpc, RawHeaderMatch, RawRoute};
pub(super) use rules::{RawBodyTest, RawRule};

/// A section that is on with its defaults unless it says `off`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Switch<T> {
    Off,
    On(T),
}

/// Named entries in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Named<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) version: Option<String>,
    pub(super) listeners: Vec<RawListener>,
    pub(super) admin: RawAdmin,
    pub(super) upstreams: Named<RawUpstream>,
    pub(super) routes: Vec<RawRoute>,
    pub(super) limits: RawLimits,
    pub(super) drain: RawDrain,
    pub(super) headers: RawHeaders,
    pub(super) access_log: Option<String>,
    pub(super) kill_switch: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawListener {
    pub(super) address: Option<String>,
    pub(super) socket_mode: Option<String>,
    pub(super) trusted_peers: Vec<String>,
    pub(super) trust_loopback_deadline: Option<String>,
    pub(super) accept: Option<RawAccept>,
    pub(super) per_address: Option<RawPerAddress>,
    pub(super) proxy_protocol: Option<RawProxyProtocol>,
    pub(super) client_header: Option<String>,
    pub(super) slow_readers: RawSlowReaders,
    pub(super) tls: Option<RawListenerTls>,
    pub(super) timeouts: RawListenerTimeouts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawListenerTls {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) certificates: Vec<RawCertificate>,
    pub(super) client_ca: Option<String>,
    pub(super) client_auth: Option<String>,
    pub(super) min_version: Option<String>,
    pub(super) alpn: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCertificate {
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawListenerTimeouts {
    pub(super) first_byte: Option<String>,
    pub(super) head: Option<String>,
    pub(super) idle: Option<String>,
    pub(super) max_age: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAdmin {
    pub(super) address: Option<String>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<String>,
    pub(super) open_metrics: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawUpstream {
    pub(super) endpoints: Vec<String>,
    pub(super) protocol: Option<String>,
    pub(super) tls: Option<RawUpstreamTls>,
    pub(super) credentials: Option<RawCredentials>,
    pub(super) timeouts: RawTimeouts,
    pub(super) retry: Option<Switch<RawRetry>>,
    pub(super) retry_budget: Option<Switch<RawBudget>>,
    pub(super) hedge: Option<Switch<RawHedge>>,
    pub(super) breaker: Option<Switch<RawBreaker>>,
    pub(super) rate: Option<RawRate>,
    pub(super) bulkhead: RawBulkhead,
    pub(super) balance: Option<String>,
    pub(super) outlier: Option<Switch<RawOutlier>>,
    pub(super) slow_start: Option<Switch<RawSlowStart>>,
    pub(super) rules: Vec<RawRule>,
    pub(super) health_check: Option<RawHealthCheck>,
    pub(super) max_connections: Option<String>,
    pub(super) host_header: Option<String>,
    pub(super) on_abandon: Option<String>,
    pub(super) send_deadline: Option<String>,
    pub(super) peak_load: Option<String>,
    pub(super) capacity: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawUpstreamTls {
    pub(super) ca: Option<String>,
    pub(super) server_name: Option<String>,
    pub(super) client_cert: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) min_version: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawTimeouts {
    pub(super) connect: Option<String>,
    pub(super) checkout: Option<String>,
    pub(super) attempt: Option<String>,
    pub(super) total: Option<String>,
    pub(super) idle: Option<String>,
    pub(super) body: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRetry {
    pub(super) max_attempts: Option<String>,
    pub(super) backoff: RawBackoff,
    pub(super) retry_after_max: Option<String>,
    pub(super) redispatches: Option<String>,
    pub(super) honour_stop: Option<String>,
    pub(super) on: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBackoff {
    pub(super) base: Option<String>,
    pub(super) cap: Option<String>,
    pub(super) jitter: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBudget {
    pub(super) kind: Option<String>,
    pub(super) ratio: Option<String>,
    pub(super) initial: Option<String>,
    pub(super) cap: Option<String>,
    pub(super) reserve: Option<String>,
    pub(super) ttl: Option<String>,
    pub(super) max_tokens: Option<String>,
    pub(super) token_ratio: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRate {
    pub(super) limit: Option<String>,
    pub(super) burst: Option<String>,
    pub(super) per_key: Option<RawPerKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPerKey {
    pub(super) key: Option<String>,
    pub(super) limit: Option<String>,
    pub(super) burst: Option<String>,
    pub(super) keys: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBreaker {
    pub(super) preset: Option<String>,
    pub(super) window: Option<String>,
    pub(super) min_calls: Option<String>,
    pub(super) failure_ratio: Option<String>,
    pub(super) consecutive_failures: Option<String>,
    pub(super) slow: Option<String>,
    pub(super) slow_ratio: Option<String>,
    pub(super) open: RawOpen,
    pub(super) probes: Option<String>,
    pub(super) mode: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawOpen {
    pub(super) base: Option<String>,
    pub(super) cap: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBulkhead {
    pub(super) limit: Option<String>,
    pub(super) per_route: Option<String>,
    pub(super) wait: Option<String>,
    pub(super) queue: Option<String>,
    pub(super) max_streams: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) max_connections: Option<String>,
    pub(super) head: Option<String>,
    pub(super) head_fields: Option<String>,
    pub(super) replay: Option<String>,
    pub(super) h2_streams: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawDrain {
    pub(super) accept: Option<String>,
    pub(super) in_flight: Option<String>,
    pub(super) close: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawHeaders {
    pub(super) remaining: Option<String>,
    pub(super) attempt: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) priority: Option<String>,
    pub(super) cost: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) correlation_id: Option<String>,
}
