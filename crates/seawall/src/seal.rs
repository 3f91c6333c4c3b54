//! Refuses an attempt that differs from the one before it, below whatever changed it.
//!
//! A layer between the retries and the transport can break what makes them safe: one that stamps a
//! fresh `Idempotency-Key` on each attempt turns a retried order into two orders. [`SealLayer`]
//! goes right above the transport. It takes the key, method and body of a call's first attempt and
//! refuses any later attempt that is not the same, before anything is sent; the URI may differ, so
//! that a layer between can choose endpoints:
//!
//! ```text
//! SeawallLayer → … your layers … → SealLayer → transport
//! ```
//!
//! It knows the call by an extension of the request, which [`HttpDescribe`](crate::HttpDescribe)
//! puts there; a request without one, or one whose extensions a layer dropped, passes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tower_layer::Layer;
use tower_service::Service;

use crate::describe::IDEMPOTENCY_KEY;
use crate::report::Error;

/// What an attempt changed that must stay as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Changed {
    /// The `Idempotency-Key`, or the number of its fields.
    #[error("idempotency key")]
    Key,
    /// The body's bytes.
    #[error("body")]
    Body,
    /// The method.
    #[error("method")]
    Method,
    /// The URI.
    #[error("uri")]
    Uri,
}

/// What all attempts of one call must have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    keys: Vec<HeaderValue>,
    method: Method,
    /// Nothing where a layer may choose another endpoint for each attempt.
    uri: Option<Uri>,
    body: Bytes,
}

impl Sealed {
    /// All of it.
    pub(crate) fn whole<B: SealBody>(request: &Request<B>) -> Self {
        Self { uri: Some(request.uri().clone()), ..Self::wherever(request) }
    }

    /// All but where it goes.
    fn wherever<B: SealBody>(request: &Request<B>) -> Self {
        Self {
            keys: request.headers().get_all(IDEMPOTENCY_KEY).iter().cloned().collect(),
            method: request.method().clone(),
            uri: None,
            body: request.body().sealed(),
        }
    }

    /// The first thing in which `other` differs.
    pub(crate) fn difference(&self, other: &Self) -> Option<Changed> {
        [
            (self.keys != other.keys, Changed::Key),
            (self.method != other.method, Changed::Method),
            (self.uri != other.uri, Changed::Uri),
            (self.body != other.body, Changed::Body),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// One call, as [`SealLayer`] knows it: an extension of its requests.
#[derive(Clone, Debug, Default)]
pub struct Seal(Arc<Mutex<SealState>>);

#[derive(Debug, Default)]
struct SealState {
    first: Option<Sealed>,
    changed: Option<Changed>,
}

impl Seal {
    /// What was changed, if an attempt was refused.
    #[must_use]
    pub fn changed(&self) -> Option<Changed> {
        self.0.lock().changed
    }

    /// Takes the first attempt, and compares every later one with it.
    fn check(&self, attempt: Sealed) -> Result<(), Changed> {
        let mut state = self.0.lock();
        let Some(first) = &state.first else {
            state.first = Some(attempt);
            return Ok(());
        };
        let changed = first.difference(&attempt);
        state.changed = changed;
        changed.map_or(Ok(()), Err)
    }
}

/// A request body whose bytes are all there.
pub trait SealBody {
    /// The bytes, cheaply if possible.
    fn sealed(&self) -> Bytes;
}

impl SealBody for Bytes {
    fn sealed(&self) -> Bytes {
        self.clone()
    }
}

impl SealBody for () {
    fn sealed(&self) -> Bytes {
        Bytes::new()
    }
}

impl SealBody for Vec<u8> {
    fn sealed(&self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl SealBody for String {
    fn sealed(&self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }
}

impl SealBody for http_body_util::Empty<Bytes> {
    fn sealed(&self) -> Bytes {
        Bytes::new()
    }
}

impl SealBody for http_body_util::Full<Bytes> {
    fn sealed(&self) -> Bytes {
        let mut body = self.clone();
        let mut context = Context::from_waker(std::task::Waker::noop());
        // A full body is one frame that is ready.
        match Pin::new(&mut body.frame()).poll(&mut context) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            _ => Bytes::new(),
        }
    }
}

/// Puts a [`SealService`] in front of a transport. See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct SealLayer;

impl<S> Layer<S> for SealLayer {
    type Service = SealService<S>;

    fn layer(&self, inner: S) -> SealService<S> {
        SealService { inner }
    }
}

/// Refuses an attempt that differs from its call's first. See the module.
#[derive(Clone, Copy, Debug)]
pub struct SealService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for SealService<S>
where
    S: Service<Request<B>>,
    B: SealBody,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = SealFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Error::Inner)
    }

    fn call(&mut self, request: Request<B>) -> SealFuture<S::Future> {
        let checked = match request.extensions().get::<Seal>() {
            Some(seal) => seal.check(Sealed::wherever(&request)),
            None => Ok(()),
        };
        match checked {
            Ok(()) => SealFuture { inner: Some(self.inner.call(request)), changed: None },
            Err(changed) => SealFuture { inner: None, changed: Some(changed) },
        }
    }
}

pin_project_lite::pin_project! {
    /// The future of a [`SealService`].
    #[derive(Debug)]
    pub struct SealFuture<F> {
        #[pin]
        inner: Option<F>,
        changed: Option<Changed>,
    }
}

impl<F, T, E> Future for SealFuture<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, Error<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match (this.inner.as_pin_mut(), *this.changed) {
            (Some(inner), _) => inner.poll(cx).map_err(Error::Inner),
            (None, changed) => Poll::Ready(Err(Error::Changed(changed.unwrap_or(Changed::Key)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_body_shows_its_bytes() {
        let bytes = Bytes::from_static(b"order 7");
        assert_eq!(bytes.sealed(), bytes);
        assert_eq!(String::from("order 7").sealed(), bytes);
        assert_eq!(b"order 7".to_vec().sealed(), bytes);
        assert_eq!(http_body_util::Full::new(bytes.clone()).sealed(), bytes);
        assert_eq!(http_body_util::Full::new(Bytes::new()).sealed(), Bytes::new());
        assert_eq!(http_body_util::Empty::new().sealed(), Bytes::new());
        assert_eq!(().sealed(), Bytes::new());
    }

    #[test]
    fn the_first_difference_is_named() {
        let request = |method: &str, uri: &str, key: &str, body: &'static [u8]| {
            let builder = Request::builder().method(method).uri(uri).header(IDEMPOTENCY_KEY, key);
            Sealed::whole(&builder.body(Bytes::from_static(body)).unwrap())
        };
        let first = request("POST", "/orders", "k1", b"7");
        assert_eq!(first.difference(&request("POST", "/orders", "k1", b"7")), None);
        for (other, what) in [
            (request("POST", "/orders", "k2", b"7"), Changed::Key),
            (request("PUT", "/orders", "k1", b"7"), Changed::Method),
            (request("POST", "/orders/7", "k1", b"7"), Changed::Uri),
            (request("POST", "/orders", "k1", b"8"), Changed::Body),
        ] {
            assert_eq!(first.difference(&other), Some(what));
        }
    }
}
