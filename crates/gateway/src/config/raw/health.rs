//! The checks of an upstream's endpoints as written.

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawHealthCheck {
    pub(in crate::config) path: Option<String>,
    pub(in crate::config) grpc_service: Option<String>,
    pub(in crate::config) interval: Option<String>,
    pub(in crate::config) timeout: Option<String>,
    pub(in crate::config) unhealthy: Option<String>,
    pub(in crate::config) healthy: Option<String>,
    pub(in crate::config) status: Vec<String>,
    pub(in crate::config) port: Option<String>,
}
