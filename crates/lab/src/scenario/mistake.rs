//! What is wrong with a file: where, in which field, which value, and what is allowed.

use std::fmt;

/// A mistake, by its place in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    pub(super) at: usize,
    pub(super) field: String,
    pub(super) said: String,
    pub(super) kind: Wrong,
}

/// How something is wrong, which is what can still be told beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// By itself, whatever else the file says.
    Alone,
    /// A key that means nothing, and the one that it looks like.
    Key(Option<String>),
    /// Nothing is there.
    Missing,
    /// Beside something else that the file says.
    Together,
}

impl Mistake {
    pub(crate) fn new(at: usize, field: &str, said: impl Into<String>) -> Self {
        Self { at, field: field.to_owned(), said: said.into(), kind: Wrong::Together }
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

    /// The same, wrong by itself.
    pub(crate) fn alone(self) -> Self {
        Self { kind: Wrong::Alone, ..self }
    }

    /// The same, wrong only beside something else.
    pub(crate) fn together(self) -> Self {
        Self { kind: Wrong::Together, ..self }
    }

    fn of(self, text: &str) -> FileMistake {
        let at = (0..=self.at.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        let before = &text[..at.unwrap_or(0)];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileMistake {
            line: before.matches('\n').count() + 1,
            column: text[begin..before.len()].chars().count() + 1,
            field: self.field,
            said: self.said,
            source: text[begin..].lines().next().unwrap_or_default().to_owned(),
        }
    }
}

/// What is wrong with a scenario file, from its top: everything that can be told at once.
///
/// Displays each as `FILE:LINE:COLUMN: FIELD: VALUE is not allowed; give …`, and the line below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    file: String,
    mistakes: Vec<FileMistake>,
}

/// One thing that is wrong with a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMistake {
    line: usize,
    column: usize,
    field: String,
    said: String,
    source: String,
}

impl ScenarioError {
    /// Of the file with this name and text; there is one mistake at least.
    pub(super) fn new(file: &str, text: &str, mistakes: Vec<Mistake>) -> Self {
        let mistakes = mistakes.into_iter().map(|mistake| mistake.of(text)).collect();
        Self { file: file.to_owned(), mistakes }
    }

    /// Each thing that is wrong, in the order of their lines.
    #[must_use]
    pub fn mistakes(&self) -> &[FileMistake] {
        &self.mistakes
    }
}

impl FileMistake {
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
        for (place, mistake) in self.mistakes.iter().enumerate() {
            let end = if place == 0 { "" } else { "\n" };
            let FileMistake { line, column, field, said, source } = mistake;
            write!(f, "{end}{}:{line}:{column}: ", self.file)?;
            if !field.is_empty() {
                write!(f, "{field}: ")?;
            }
            let cut: String = source.chars().take(column + SHOWN_CHARS).collect();
            let margin = line.to_string().len();
            write!(f, "{said}\n{line} | {cut}\n{:margin$} | {:>column$}", "", "^")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}

/// Characters of a refused value that are shown.
const SHOWN_CHARS: usize = 64;
