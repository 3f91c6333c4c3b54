//! How a checkout and an exchange fail.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::Request;
use hyper::client::conn::TrySendError;
use seawall_policy::Cause;

use super::classify::classify;
use super::conn::ConnFacts;
use super::connect::ConnectError;
use super::upload::{RequestBody, Upload};

/// No connection was to be had; nothing was sent.
#[derive(Clone, Debug)]
pub(crate) enum CheckoutError {
    /// None became free in time.
    Timeout,
    /// Too many checkouts wait.
    QueueFull,
    /// The dial for it failed.
    Connect(Arc<ConnectError>),
}

/// An exchange that brought no response head.
pub(crate) struct SendError<B> {
    /// What happened.
    pub cause: Cause,
    /// The request, if it did not leave: present exactly when the cause is
    /// [`Cause::HandedBack`].
    pub handed_back: Option<Request<B>>,
    /// hyper's error, unchanged.
    pub source: Option<hyper::Error>,
}

impl<B: RequestBody> SendError<B> {
    /// A fault that hyper knows nothing of.
    pub(super) const fn of(cause: Cause) -> Self {
        Self { cause, handed_back: None, source: None }
    }

    /// What hyper's error says about the request.
    pub(super) fn new(mut error: TrySendError<Request<Upload<B>>>, facts: &ConnFacts) -> Self {
        if let Some(request) = error.take_message() {
            return Self {
                cause: Cause::HandedBack,
                handed_back: Some(request.map(Upload::into_inner)),
                source: Some(error.into_error()),
            };
        }
        let source = error.into_error();
        let cause = match classify(&source) {
            Cause::GoAway if !facts.goaway_refuses() => Cause::Closed,
            // Proof only where the handshake was just made.
            Cause::Tls if facts.messages() > 1 => Cause::Closed,
            cause => cause,
        };
        Self { cause, handed_back: None, source: Some(source) }
    }
}

impl CheckoutError {
    /// What happened, as the policies call it.
    #[must_use]
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Timeout | Self::QueueFull => Cause::CheckoutTimeout,
            Self::Connect(error) => error.as_ref().cause(),
        }
    }
}

impl fmt::Display for CheckoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("get a connection from the pool in time"),
            Self::QueueFull => f.write_str("queue for a connection: too many wait"),
            Self::Connect(error) => error.fmt(f),
        }
    }
}

impl Error for CheckoutError {}

impl<B> fmt::Display for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exchange with the upstream: {}", self.cause.as_str())
    }
}

impl<B> fmt::Debug for SendError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("cause", &self.cause)
            .field("handed_back", &self.handed_back.is_some())
            .field("source", &self.source)
            .finish()
    }
}

impl<B> Error for SendError<B> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}
