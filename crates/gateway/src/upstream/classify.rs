//! Decides what an error of an exchange says about the request: not processed for certain, or
//! maybe processed.
//!
//! | hyper says | cause |
//! |---|---|
//! | HTTP/2 RST_STREAM REFUSED_STREAM from the peer | refused stream |
//! | HTTP/2 GOAWAY from the peer, our stream above its last id | goaway |
//! | any other RST_STREAM from the peer | reset |
//! | connection reset, broken pipe | reset |
//! | end of the connection within a message; HTTP/2 connection ended; ping unanswered | closed |
//! | TLS: the peer refused our certificate, after our side of the handshake | tls |
//! | not HTTP, or too much of it; a protocol error hyper found in HTTP/2 | malformed |
//! | the request body failed | upload failed |
//! | cancelled from this side | caller left |
//! | anything else | unmatched |
//!
//! h2 reports the end of a connection to its streams as a broken pipe of its own making, so within
//! HTTP/2 that one is *closed*. A message that hyper hands back never comes here: it is proven
//! unsent, whatever the error.

use std::error::Error;
use std::io;

use h2::Reason;
use rustls::AlertDescription;
use seawall_policy::Cause;

use super::upload::UploadError;

/// The cause behind an error of hyper's client, for an exchange whose message was not handed back
/// or for a response body.
#[must_use]
pub(crate) fn classify(error: &hyper::Error) -> Cause {
    if error.is_parse() {
        return Cause::Malformed;
    }
    if error.is_incomplete_message() || error.is_timeout() {
        return Cause::Closed;
    }
    if find::<UploadError>(error).is_some() || error.is_body_write_aborted() {
        return Cause::UploadFailed;
    }
    if let Some(error) = find::<h2::Error>(error) {
        return classify_h2(error);
    }
    if let Some(error) = find::<io::Error>(error) {
        return classify_io(error);
    }
    if error.is_canceled() { Cause::CallerLeft } else { Cause::Unmatched }
}

fn classify_h2(error: &h2::Error) -> Cause {
    if let Some(error) = error.get_io() {
        return match error.kind() {
            io::ErrorKind::BrokenPipe => Cause::Closed,
            _ => classify_io(error),
        };
    }
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => {
            Cause::RefusedStream
        }
        Some(_) if error.is_remote() && error.is_go_away() => Cause::GoAway,
        Some(_) if error.is_remote() => Cause::Reset,
        Some(_) if error.is_library() => Cause::Malformed,
        // Reset from this side: by a cut, or by hyper because the upload failed.
        Some(Reason::CANCEL) if error.is_reset() => Cause::CallerLeft,
        Some(_) if error.is_reset() => Cause::UploadFailed,
        _ => Cause::Unmatched,
    }
}

fn classify_io(error: &io::Error) -> Cause {
    if let Some(rustls::Error::AlertReceived(alert)) =
        error.get_ref().and_then(|it| it.downcast_ref())
        && is_of_handshake(*alert)
    {
        return Cause::Tls;
    }
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Cause::Reset,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut => Cause::Closed,
        io::ErrorKind::InvalidData => Cause::Malformed,
        _ => Cause::Unmatched,
    }
}

/// Whether a peer says by this alert that its side of the handshake did not end well. With TLS 1.3
/// ours ended before, so the alert is the answer to the first request, of which nothing was
/// processed. Source: RFC 8446 section 6.2.
const fn is_of_handshake(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::HandshakeFailure
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

/// The first error of this type among the error's sources.
fn find<E: Error + 'static>(error: &hyper::Error) -> Option<&E> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(found) = source.downcast_ref() {
            return Some(found);
        }
        next = source.source();
    }
    None
}
