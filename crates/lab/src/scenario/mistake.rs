//! What is wrong with a file: where, in which field, which value, and what is allowed.

use std::fmt;

/// A mistake, by its place in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    at: usize,
    field: String,
    said: String,
}

impl Mistake {
    pub(crate) fn new(at: usize, field: &str, said: impl Into<String>) -> Self {
        Self { at, field: field.to_owned(), said: said.into() }
    }

    pub(crate) fn refused(
        at: usize,
        field: &str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Self {
        let value: String = value.to_string().chars().take(SHOWN_CHARS).collect();
        Self::new(at, field, format!("`{value}` is not allowed; give {allowed}"))
    }

    /// Of the file with this name and text.
    pub(crate) fn of(self, file: &str, text: &str) -> ScenarioError {
        let at = (0..=self.at.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        let before = &text[..at.unwrap_or(0)];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        ScenarioError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: text[begin..before.len()].chars().count() + 1,
            field: self.field,
            said: self.said,
            source: text[begin..].lines().next().unwrap_or_default().to_owned(),
        }
    }
}

/// What is wrong with a scenario file.
///
/// Displays as `FILE:LINE:COLUMN: FIELD: VALUE is not allowed; give …`, and the line below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    file: String,
    line: usize,
    column: usize,
    field: String,
    said: String,
    source: String,
}

impl ScenarioError {
    /// The line, from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The character within the line, from 1.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.column
    }

    /// The field, dotted from the outermost; empty if it is the file.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong, and what is allowed.
    #[must_use]
    pub fn said(&self) -> &str {
        &self.said
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, field, said, source } = self;
        write!(f, "{file}:{line}:{column}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        let cut: String = source.chars().take(column + SHOWN_CHARS).collect();
        let margin = line.to_string().len();
        write!(f, "{said}\n{line} | {cut}\n{:margin$} | {:>column$}", "", "^")
    }
}

impl std::error::Error for ScenarioError {}

/// Characters of a refused value that are shown.
const SHOWN_CHARS: usize = 64;
