//! `Via`: says that a message passed here, and notices a request that runs in a circle.

use http::header::VIA;
use http::{HeaderMap, HeaderValue, Version};
use seawall_policy::ConfigError;

use super::has;

/// This instance in `Via`, ready for each version. Source: RFC 9110 section 7.6.3.
#[derive(Clone, Debug)]
pub(super) struct ViaToken {
    pseudonym: String,
    http_1_0: HeaderValue,
    http_1_1: HeaderValue,
    http_2: HeaderValue,
}

impl ViaToken {
    pub(super) fn new(pseudonym: &str) -> Result<Self, ConfigError> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let invalid = || ConfigError::new("via", pseudonym, "letters, digits and `-._`");
        if pseudonym.is_empty() || !pseudonym.bytes().all(is_token) {
            return Err(invalid());
        }
        let line = |version| {
            HeaderValue::try_from(format!("{version} {pseudonym}")).map_err(|_| invalid())
        };
        Ok(Self {
            http_1_0: line("1.0")?,
            http_1_1: line("1.1")?,
            http_2: line("2.0")?,
            pseudonym: pseudonym.to_owned(),
        })
    }

    /// Adds the line for a message that came in `version`.
    pub(super) fn append(&self, fields: &mut HeaderMap, version: Version) {
        let line = match version {
            Version::HTTP_2 => &self.http_2,
            Version::HTTP_10 => &self.http_1_0,
            _ => &self.http_1_1,
        };
        fields.append(VIA, line.clone());
    }

    /// How often a message passed here already.
    pub(super) fn passes(&self, fields: &HeaderMap) -> usize {
        if !has(fields, &VIA) {
            return 0;
        }
        let lines = fields.get_all(VIA).iter().filter_map(|line| line.to_str().ok());
        let elements = lines.flat_map(|line| line.split(','));
        let names = elements.filter_map(|element| element.split_ascii_whitespace().nth(1));
        names.filter(|name| name.eq_ignore_ascii_case(&self.pseudonym)).count()
    }
}
