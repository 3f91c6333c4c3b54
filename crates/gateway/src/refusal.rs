//! Why a request is turned away before any policy saw it.

use http::StatusCode;

/// A request that goes no further: nothing was sent upstream, and the connection it came on is
/// not used again, because what follows it cannot be told apart with certainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The message breaks the grammar or contradicts itself; says how. Answered 400.
    #[error("read the request: {0}")]
    Malformed(&'static str),
    /// CONNECT: this is no forward proxy. Answered 405.
    #[error("accept CONNECT: not a forward proxy")]
    Connect,
    /// A transfer coding other than `chunked`. Answered 501.
    #[error("decode the transfer coding")]
    UnknownCoding,
    /// An expectation other than `100-continue`. Answered 417.
    #[error("meet the expectation")]
    UnknownExpectation,
    /// More fields than a head may have. Answered 431.
    #[error("take so many header fields")]
    TooManyFields,
    /// The request passed through here too often already. Answered 508.
    #[error("forward the request: it runs in a circle")]
    Loop,
}

impl Refusal {
    /// The status it is answered with.
    #[must_use]
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            Self::TooManyFields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Loop => StatusCode::LOOP_DETECTED,
        }
    }
}
