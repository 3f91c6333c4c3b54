//! How a request ended, as its caller saw it.

/// How a request ended, as its caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The upstream's answer was passed on to its end.
    Complete,
    /// The caller left first.
    CallerLeft,
    /// The upstream broke off, before its answer or in the middle of it.
    UpstreamBroke,
    /// A timeout or the deadline ended it.
    Timeout,
    /// It was answered here, without sending anything.
    Refused,
    /// The route's fallback answered.
    Fallback,
    /// It was cut at the end of a drain.
    Drained,
}

impl Completion {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Complete,
        Self::CallerLeft,
        Self::UpstreamBroke,
        Self::Timeout,
        Self::Refused,
        Self::Fallback,
        Self::Drained,
    ];

    /// The value of the field.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::CallerLeft => "caller_left",
            Self::UpstreamBroke => "upstream_broke",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Fallback => "fallback",
            Self::Drained => "drained",
        }
    }
}
