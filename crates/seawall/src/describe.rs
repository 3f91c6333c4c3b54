//! What a request is, before it is sent: how safe it is to repeat, and when its caller leaves.

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderValue, Request};
use seawall_policy::{Safety, Timestamp};

use crate::attempt::AttemptContext;
use crate::client::CallOptions;
use crate::seal::Seal;

/// Describes a request to the layer, and prepares each attempt of it.
pub trait Describe<Req> {
    /// What is known of the call.
    fn describe(&self, request: &Req) -> CallOptions;

    /// Prepares the copy that `attempt` sends. Default: as it is.
    fn stamp(&self, _request: &mut Req, _attempt: &AttemptContext, _seal: &Seal) {}
}

/// Every closure `Fn(&Req) -> CallOptions` is a description.
impl<Req, F: Fn(&Req) -> CallOptions> Describe<Req> for F {
    fn describe(&self, request: &Req) -> CallOptions {
        self(request)
    }
}

/// When a request's caller stops waiting, on the stack's clock; put it among the request's
/// extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDeadline(pub Timestamp);

/// Describes an HTTP request: safety by method and `Idempotency-Key`, deadline by the extension
/// [`CallDeadline`]. Each attempt says its number in `X-Retry-Attempt` (1 for the first; a larger
/// one that is already there stays) and its time in `X-Remaining-Ms`. With a stack that has
/// [credentials](crate::Stack::with_credentials), each attempt carries the one in force as its
/// `Authorization`, in place of any other.
#[derive(Clone, Copy, Debug)]
pub struct HttpDescribe {
    owner: bool,
    tell_next_hop: bool,
}

impl HttpDescribe {
    /// This layer owns the retries of the path.
    #[must_use]
    pub const fn new() -> Self {
        Self { owner: true, tell_next_hop: true }
    }

    /// Another layer owns the retries: errors pass straight up.
    #[must_use]
    pub const fn owned_by_caller(self) -> Self {
        Self { owner: false, ..self }
    }

    /// Adds no header to what is sent, but a stack's credential.
    #[must_use]
    pub const fn silent(self) -> Self {
        Self { tell_next_hop: false, ..self }
    }
}

impl Default for HttpDescribe {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Describe<Request<B>> for HttpDescribe {
    fn describe(&self, request: &Request<B>) -> CallOptions {
        let keyed = request.headers().get(IDEMPOTENCY_KEY).is_some_and(|key| !key.is_empty());
        CallOptions {
            safety: Safety::of_method(request.method().as_str(), keyed),
            owner: self.owner,
            deadline: request.extensions().get::<CallDeadline>().map(|deadline| deadline.0),
            ..CallOptions::default()
        }
    }

    fn stamp(&self, request: &mut Request<B>, attempt: &AttemptContext, seal: &Seal) {
        request.extensions_mut().insert(seal.clone());
        // What is no field value proves nothing: it is not sent, and the answer will be a 401.
        if let Some(value) = attempt.credential().and_then(|secret| secret.header_value().ok()) {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        if !self.tell_next_hop {
            return;
        }
        let headers = request.headers_mut();
        let said = headers.get(RETRY_ATTEMPT).and_then(|value| value.to_str().ok()?.parse().ok());
        let number = attempt.number().max(said.unwrap_or(0));
        headers.insert(RETRY_ATTEMPT, HeaderValue::from(number));
        if let Some(remaining) = attempt.remaining_ms() {
            headers.insert(REMAINING_MS, HeaderValue::from(remaining));
        }
    }
}

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const RETRY_ATTEMPT: HeaderName = HeaderName::from_static("x-retry-attempt");
const REMAINING_MS: HeaderName = HeaderName::from_static("x-remaining-ms");

#[cfg(test)]
mod tests {
    use super::*;

    fn safety(method: &str, key: Option<&'static str>) -> Safety {
        let mut request = Request::builder().method(method);
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        HttpDescribe::new().describe(&request.body(()).unwrap()).safety
    }

    #[test]
    fn a_key_makes_a_post_repeatable_and_an_empty_one_does_not() {
        assert_eq!(safety("GET", None), Safety::Idempotent);
        assert_eq!(safety("POST", None), Safety::Unsafe);
        assert_eq!(safety("POST", Some("k1")), Safety::Keyed);
        assert_eq!(safety("POST", Some("")), Safety::Unsafe);
    }

    #[test]
    fn the_deadline_is_the_extensions_and_ownership_the_describers() {
        let mut request = Request::new(());
        request.extensions_mut().insert(CallDeadline(Timestamp::from_millis(7)));
        let options = HttpDescribe::new().owned_by_caller().describe(&request);
        assert_eq!(options.deadline, Some(Timestamp::from_millis(7)));
        assert!(!options.owner);
        assert!(HttpDescribe::new().describe(&request).owner);
    }
}
