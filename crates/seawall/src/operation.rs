//! A request that is frozen before its first attempt, so that every attempt is the same one.
//!
//! A retry is safe only if the other side can tell that it is one. Here the `Idempotency-Key` is
//! chosen once, when the operation is opened, and every attempt carries it, with the same method,
//! URI and bytes. What an attempt adds (a trace header, a fresh signature) is built per attempt;
//! if that changes one of the four, nothing is sent and the call ends with
//! [`Error::Changed`](crate::Error::Changed).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use seawall_policy::{ConfigError, Outcome, Safety, StopReason, Timestamp};

use crate::attempt::{AttemptContext, CallShared};
use crate::classify::{Classify, refused_change};
use crate::client::{CallOptions, Sending, Tried};
use crate::describe::IDEMPOTENCY_KEY;
use crate::flight::Cancel;
use crate::report::{Error, Report};
use crate::seal::{Changed, Sealed};
use crate::stack::Stack;

/// A request as every attempt sends it.
#[derive(Clone, Debug)]
pub struct FrozenRequest {
    request: Request<Bytes>,
    key: HeaderValue,
}

impl FrozenRequest {
    /// The key that makes attempts recognisable as one operation.
    #[must_use]
    pub const fn key(&self) -> &HeaderValue {
        &self.key
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        self.request.method()
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &Uri {
        self.request.uri()
    }

    /// The headers, the key among them.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.request.body()
    }

    /// A copy to send, or to add headers to. The bytes are shared, not copied.
    #[must_use]
    pub fn to_request(&self) -> Request<Bytes> {
        self.request.clone()
    }
}

/// One operation, opened once and sent in as many attempts as the stack allows.
#[derive(Clone, Debug)]
pub struct FrozenOperation {
    stack: Stack,
    request: FrozenRequest,
    options: CallOptions,
}

impl Stack {
    /// Freezes a request under a key. How safe it is to repeat follows from its method and key: a
    /// method that is idempotent by itself, or else *keyed*.
    ///
    /// Make the key before this call and keep it as long as the intent behind it lives, so that
    /// the same intent opened again after a crash carries it again.
    ///
    /// ```
    /// # use seawall::{Stack, StackConfig, bytes::Bytes, http};
    /// let stack = Stack::new("orders", &StackConfig::http())?;
    /// let request = http::Request::post("http://orders/v1").body(Bytes::from("{}")).unwrap();
    /// let operation = stack.operation("order-7", request)?;
    /// assert_eq!(operation.request().key(), "order-7");
    /// assert!(stack.operation("", operation.request().to_request()).is_err());
    /// # Ok::<(), seawall::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// A key that is empty, is no header value, or begins or ends with a blank (which the other
    /// side would not see); or a request that carries another key already.
    pub fn operation(
        &self,
        key: &str,
        mut request: Request<Bytes>,
    ) -> Result<FrozenOperation, ConfigError> {
        let refused = |allowed| ConfigError::new("idempotency_key", key.escape_debug(), allowed);
        if key.is_empty() || key.trim_ascii() != key {
            return Err(refused("visible text, without a blank at either end"));
        }
        let Ok(value) = HeaderValue::from_str(key) else {
            return Err(refused("text without control characters"));
        };
        if request.headers().get_all(IDEMPOTENCY_KEY).iter().any(|other| *other != value) {
            return Err(refused("the key that the request carries already"));
        }
        request.headers_mut().insert(IDEMPOTENCY_KEY, value.clone());
        let safety = Safety::of_method(request.method().as_str(), true);
        let options = CallOptions { safety, ..CallOptions::default() };
        let request = FrozenRequest { request, key: value };
        Ok(FrozenOperation { stack: self.clone(), request, options })
    }
}

impl FrozenOperation {
    /// The request as every attempt sends it.
    #[must_use]
    pub const fn request(&self) -> &FrozenRequest {
        &self.request
    }

    /// Whether a second execution is harmless, by method and key.
    #[must_use]
    pub const fn safety(&self) -> Safety {
        self.options.safety
    }

    /// Says when the caller stops waiting, on the stack's clock.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Timestamp) -> Self {
        self.options.deadline = Some(deadline);
        self
    }

    /// Says that another layer owns the retries of the path.
    #[must_use]
    pub const fn owned_by_caller(mut self) -> Self {
        self.options.owner = false;
        self
    }

    /// Sends the operation: `build` makes each attempt's request, `transport` sends it, `classify`
    /// says what came of it. Dropping the returned future is the caller leaving, as in
    /// [`Stack::call`]. Sent again later, it carries the same key.
    ///
    /// # Errors
    /// In the report: [`Error::Changed`] if `build` changed the key, the method, the URI or the
    /// body; that attempt was not sent and is not counted.
    pub async fn send<Res, Err, F, C>(
        &self,
        classify: C,
        mut build: impl FnMut(&AttemptContext, &FrozenRequest) -> Request<Bytes>,
        mut transport: impl FnMut(AttemptContext, Request<Bytes>) -> F,
    ) -> Report<Res, Err>
    where
        Res: Send,
        Err: Send,
        C: Classify<Res, Err>,
        F: Future<Output = Result<Res, Err>>,
    {
        let frozen = Sealed::whole(&self.request.request);
        let mut changed: Option<Changed> = None;
        let classify = |result: &Result<Res, Err>| classify.classify(result.as_ref());
        let shared = CallShared::new();
        let marks = &*shared;
        let called = self
            .stack
            .drive(self.options.into(), Arc::clone(&shared), Cancel, |context: AttemptContext| {
                let request = build(&context, &self.request);
                changed = frozen.difference(&Sealed::whole(&request));
                let sending = changed.is_none().then(|| {
                    Sending::new(marks, context.sequence(), transport(context, request), &classify)
                });
                Checked { sending }
            })
            .await;
        let mut report = Report::of(called);
        if let Some(what) = changed {
            report.result = Err(Error::Changed(what));
            report.stop = StopReason::NotRetryable;
        }
        report
    }
}

pin_project_lite::pin_project! {
    /// An attempt that was compared with the frozen request, and is there only if it is the same.
    struct Checked<S> {
        #[pin]
        sending: Option<S>,
    }
}

impl<F, C, T, E> Future for Checked<Sending<'_, F, C>>
where
    F: Future<Output = Result<T, E>>,
    C: Fn(&Result<T, E>) -> Outcome,
{
    type Output = Tried<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().sending.as_pin_mut() {
            Some(sending) => Poll::Ready(ready!(sending.poll(cx))),
            None => Poll::Ready(Tried { result: None, outcome: refused_change() }),
        }
    }
}

#[cfg(test)]
mod tests;
