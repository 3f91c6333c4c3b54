//! A route as written.

use serde::Deserialize;

use super::{Named, RawRetry, Switch};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawRoute {
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) host: Option<String>,
    pub(in crate::config) path_prefix: Option<String>,
    pub(in crate::config) path: Option<String>,
    pub(in crate::config) methods: Vec<String>,
    pub(in crate::config) headers: Vec<RawHeaderMatch>,
    pub(in crate::config) upstream: Option<String>,
    pub(in crate::config) strip_prefix: Option<String>,
    pub(in crate::config) prefix_rewrite: Option<String>,
    pub(in crate::config) request_headers: RawEdits,
    pub(in crate::config) response_headers: RawEdits,
    pub(in crate::config) total: Option<String>,
    pub(in crate::config) attempt: Option<String>,
    pub(in crate::config) idempotent: Option<String>,
    pub(in crate::config) retry: Option<Switch<RawRetry>>,
    pub(in crate::config) retry_owner: Option<String>,
    pub(in crate::config) retry_after: Option<String>,
    pub(in crate::config) max_body: Option<String>,
    pub(in crate::config) grpc: RawGrpc,
    pub(in crate::config) fallback: Option<RawFallback>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawHeaderMatch {
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) exact: Option<String>,
    pub(in crate::config) prefix: Option<String>,
    pub(in crate::config) present: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawEdits {
    pub(in crate::config) set: Named<String>,
    pub(in crate::config) remove: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawFallback {
    pub(in crate::config) on: Vec<String>,
    pub(in crate::config) status: Option<String>,
    pub(in crate::config) content_type: Option<String>,
    pub(in crate::config) body: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawGrpc {
    pub(in crate::config) idempotent: Option<String>,
    pub(in crate::config) retry_on: Vec<String>,
    pub(in crate::config) streaming: Option<String>,
}
