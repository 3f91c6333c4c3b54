//! A rule on answers as written.

use serde::Deserialize;

use super::RawHeaderMatch;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawRule {
    pub(in crate::config) name: Option<String>,
    pub(in crate::config) status: Vec<String>,
    pub(in crate::config) headers: Vec<RawHeaderMatch>,
    pub(in crate::config) body: Option<RawBodyTest>,
    pub(in crate::config) means: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RawBodyTest {
    pub(in crate::config) pointer: Option<String>,
    pub(in crate::config) equals: Vec<String>,
}
