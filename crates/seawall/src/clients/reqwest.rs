//! What a result of reqwest means.
//!
//! | reqwest says | cause |
//! |---|---|
//! | could not connect | connect refused, connect timeout, dns, tls or connect failed |
//! | `error_for_status` | its status |
//! | a request that cannot be built, too many redirects | business error |
//! | its own timeout, after connecting | attempt timeout |
//! | an error of hyper within | as hyper's |
//! | a body that could not be decoded | malformed |
//! | anything else | unmatched |

use reqwest::{Error, Response};
use seawall_policy::{Cause, Outcome};

use super::hyper::{HyperErrors, of_connect};
use crate::classify::{Classify, ErrorCause, HttpClassify, Summary};
use crate::rules::BodySeen;

/// Tells the cause of reqwest's errors; see the crate's page on clients.
///
/// Switch reqwest's own retries off, or its attempts and the stack's multiply:
///
/// ```
/// # use seawall::{HttpClassify, ReqwestErrors};
/// let client = reqwest::Client::builder().retry(reqwest::retry::never()).build()?;
/// let classify = HttpClassify::with_errors(ReqwestErrors);
/// # Ok::<(), reqwest::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReqwestErrors;

impl ErrorCause<Error> for ReqwestErrors {
    fn cause(&self, error: &Error) -> Cause {
        if let Some(status) = error.status() {
            return Cause::Status(status.as_u16());
        }
        if error.is_builder() || error.is_redirect() {
            return Cause::BusinessError;
        }
        if error.is_connect() {
            return match () {
                () if error.is_timeout() => Cause::ConnectTimeout,
                () if error.is_dns() => Cause::Dns,
                () => of_connect(error),
            };
        }
        if error.is_timeout() {
            return Cause::AttemptTimeout;
        }
        match HyperErrors.cause(error) {
            Cause::Unmatched if error.is_decode() => Cause::Malformed,
            cause => cause,
        }
    }
}

impl<M: ErrorCause<Error>> Classify<Response, Error> for HttpClassify<M> {
    fn classify(&self, result: Result<&Response, &Error>) -> Outcome {
        match result {
            Ok(response) => {
                let (status, headers) = (response.status(), response.headers());
                let ruled = self.rules().judge(status, headers, BodySeen::Unreadable);
                self.outcome_of_ruled(status, headers, ruled)
            }
            Err(error) => self.outcome_of_error(error),
        }
    }

    fn annotate(&self, response: &mut Response, summary: &Summary) {
        response.extensions_mut().insert(*summary);
    }
}
