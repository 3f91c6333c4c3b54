//! Why a reload was refused: the whole text for who asked, and a line for each error for the log.

use std::fmt;

use crate::config::ConfigErrors;

/// Displays as the whole text, in the words of `seawall check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    text: String,
    lines: Vec<String>,
}

impl Refusal {
    /// Each error; at least one.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { text: why.clone(), lines: vec![why] }
    }
}

impl From<ConfigErrors> for Refusal {
    fn from(errors: ConfigErrors) -> Self {
        Self { text: errors.to_string(), lines: errors.lines().collect() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
