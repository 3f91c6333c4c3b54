//! What an answer says beside its status.

use crate::retry_after::RetryAfter;

/// Codes of an answer made by a Seawall, from its `Seawall-Problem` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The hop gave up on its own dependency; it owned the retries.
    DependencyUnavailable,
    /// Overloaded, and more attempts make it worse.
    OverloadedDoNotRetry,
    /// The deadline sent along could not be met.
    DeadlinePassed,
}

impl Problem {
    /// Reads the code; unknown codes explain nothing and are none.
    #[must_use]
    pub fn parse(code: &[u8]) -> Option<Self> {
        match code {
            b"dependency-unavailable" => Some(Self::DependencyUnavailable),
            b"overloaded-do-not-retry" => Some(Self::OverloadedDoNotRetry),
            b"deadline-passed" => Some(Self::DeadlinePassed),
            _ => None,
        }
    }
}

/// What an answer says beside its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSignals {
    /// When the server would like to be asked again.
    pub retry_after: RetryAfter,
    /// `Seawall-Retry: no`.
    pub stop: bool,
    /// The explanation, if a Seawall made the answer.
    pub problem: Option<Problem>,
}

impl AnswerSignals {
    /// Of an answer that says nothing beside its status.
    pub const NONE: Self = Self { retry_after: RetryAfter::Absent, stop: false, problem: None };
}
