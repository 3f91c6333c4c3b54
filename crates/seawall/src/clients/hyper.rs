//! What an error of hyper means, or of any client that has one of hyper's among its sources.
//!
//! | among the sources | cause |
//! |---|---|
//! | hyper-util: could not connect | connect refused, connect timeout, dns, tls or connect failed |
//! | hyper: cancelled, which it says of messages it never began to write | handed back |
//! | HTTP/2 RST_STREAM REFUSED_STREAM from the peer | refused stream |
//! | HTTP/2 GOAWAY from the peer that gives no reason | goaway |
//! | any other RST_STREAM or GOAWAY from the peer | reset |
//! | the end of the connection within a message | closed |
//! | not HTTP | malformed |
//! | the request body failed | upload failed |
//! | an I/O error | as in [`TransportErrors`](crate::TransportErrors) |
//! | anything else | unmatched |
//!
//! A GOAWAY is taken for *not processed* only where it says NO_ERROR: then hyper fails just the
//! streams above the last id, and lets the others end.

use std::error::Error as StdError;
use std::io;

use h2::Reason;
use hyper_util::client::legacy;
use seawall_policy::Cause;

use crate::classify::{ErrorCause, TransportErrors, cause_of_io, find};

/// Finds hyper's error among an error's sources and tells its cause; see the crate's page on
/// clients. What is not hyper's is left to [`TransportErrors`](crate::TransportErrors).
///
/// ```
/// # use seawall::{HttpClassify, HyperErrors};
/// let classify = HttpClassify::with_errors(HyperErrors);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HyperErrors;

impl<E: StdError + 'static> ErrorCause<E> for HyperErrors {
    fn cause(&self, error: &E) -> Cause {
        cause(error).unwrap_or_else(|| TransportErrors.cause(error))
    }
}

/// The cause, if one of hyper's errors is among the sources and says it.
fn cause(error: &(dyn StdError + 'static)) -> Option<Cause> {
    if find::<legacy::Error>(error).is_some_and(legacy::Error::is_connect) {
        return Some(of_connect(error));
    }
    let found = find::<hyper::Error>(error)?;
    if found.is_canceled() {
        return Some(Cause::HandedBack);
    }
    if found.is_parse() {
        return Some(Cause::Malformed);
    }
    if found.is_incomplete_message() || found.is_timeout() {
        return Some(Cause::Closed);
    }
    if found.is_user() {
        return Some(Cause::UploadFailed);
    }
    find::<h2::Error>(found).map(of_h2)
}

/// Why no connection was made. Nothing was sent, whatever it is.
pub(crate) fn of_connect(error: &(dyn StdError + 'static)) -> Cause {
    if says(error, "dns error") {
        return Cause::Dns;
    }
    let Some(found) = find::<io::Error>(error) else { return Cause::ConnectFailed };
    match found.kind() {
        io::ErrorKind::TimedOut => Cause::ConnectTimeout,
        // How a TLS library tells of a handshake that failed.
        io::ErrorKind::InvalidData => Cause::Tls,
        _ => match cause_of_io(found) {
            cause if cause.is_connect_error() => cause,
            _ => Cause::ConnectFailed,
        },
    }
}

/// Whether one of the errors says just this; the connector's own error has no public type.
fn says(error: &(dyn StdError + 'static), text: &str) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.to_string() == text {
            return true;
        }
        next = error.source();
    }
    false
}

pub(crate) fn of_h2(error: &h2::Error) -> Cause {
    if let Some(io) = error.get_io() {
        // So h2 tells its streams that the connection has ended.
        let ended = io.kind() == io::ErrorKind::BrokenPipe;
        return if ended { Cause::Closed } else { cause_of_io(io) };
    }
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => {
            Cause::RefusedStream
        }
        Some(Reason::NO_ERROR) if error.is_remote() && error.is_go_away() => Cause::GoAway,
        Some(_) if error.is_remote() => Cause::Reset,
        Some(_) if error.is_library() => Cause::Malformed,
        _ => Cause::Unmatched,
    }
}
