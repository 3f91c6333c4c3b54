//! The one error of construction. After construction a policy cannot fail.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};

/// An option that can never take effect, or contradicts another.
///
/// Displays as ``field `open_cap`: 1s is not allowed; give at least open_base (2s)``.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}`: {value} is not allowed; give {allowed}")]
pub struct ConfigError {
    field: Cow<'static, str>,
    value: String,
    allowed: Cow<'static, str>,
}

impl ConfigError {
    /// Names the field, the refused value and what would be allowed, as it fits after "give".
    #[must_use]
    pub fn new(
        field: impl Into<Cow<'static, str>>,
        value: impl ToString,
        allowed: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }

    /// The same error, its field under `parent`: `breaker` and `open_cap` give `breaker.open_cap`.
    #[must_use]
    pub fn under(self, parent: &str) -> Self {
        Self { field: alloc::format!("{parent}.{}", self.field).into(), ..self }
    }

    /// The field, dotted from the outermost.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The refused value.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would be allowed.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}
