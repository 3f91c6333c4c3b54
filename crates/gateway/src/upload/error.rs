//! How an upload ends early.

/// Why an upload ended early. None of these says anything about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UploadError {
    /// The caller broke it off.
    #[error("the request body broke off")]
    Broken,
    /// The caller sent nothing for the idle limit.
    #[error("the request body stalled")]
    Stalled,
    /// It is larger than its route allows.
    #[error("the request body is larger than its route allows")]
    TooLarge,
    /// A later attempt reads it now.
    #[error("the request body is read by a later attempt")]
    Superseded,
}
