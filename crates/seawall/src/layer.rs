//! One tower layer over the whole chain.
//!
//! - Always ready: `poll_ready` never waits and never fails, so nothing above has to hold a
//!   permit. Everything is decided in `call`.
//! - Each attempt drives the readiness of a fresh clone of the inner service. That wait is a
//!   checkout: it is bounded by the stack's checkout time, nothing counts as sent before it is
//!   over, and its failure ends the call with that reason.
//! - An attempt counts as sent from the inner `call` on. Dropping the future is the caller leaving:
//!   the attempt is cancelled, and its slot frees when it is given up.
//! - Clones share the stack and its state; the readiness of the inner service is never shared.
//! - The inner error comes out intact, in [`Error::Inner`].
//!
//! The slot is freed when the response is returned: a body that streams on is not counted. Where
//! that matters, use [`Stack::drive`], which hands the slot out. The future is boxed, once a call:
//! its type cannot be named otherwise.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use seawall_policy::{Cause, Class, Outcome};
use tower_layer::Layer;
use tower_service::Service;

use crate::attempt::{AttemptContext, CallShared};
use crate::classify::{Classify, HttpClassify, Summary, refused_change};
use crate::client::Tried;
use crate::describe::{Describe, HttpDescribe};
use crate::flight::Cancel;
use crate::report::{Error, Report};
use crate::seal::Seal;
use crate::stack::Stack;

/// Puts a stack in front of a service. See the module.
#[derive(Clone, Debug)]
pub struct SeawallLayer<C = HttpClassify, D = HttpDescribe> {
    stack: Stack,
    classify: C,
    describe: D,
}

impl SeawallLayer {
    /// For `http` requests and responses, with [`HttpClassify`] and [`HttpDescribe`].
    #[must_use]
    pub fn http(stack: Stack) -> Self {
        Self::new(stack, HttpClassify::new(), HttpDescribe::new())
    }
}

impl<C, D> SeawallLayer<C, D> {
    /// With rules of your own.
    #[must_use]
    pub const fn new(stack: Stack, classify: C, describe: D) -> Self {
        Self { stack, classify, describe }
    }
}

impl<S, C: Clone, D: Clone> Layer<S> for SeawallLayer<C, D> {
    type Service = SeawallService<S, C, D>;

    fn layer(&self, inner: S) -> Self::Service {
        let Self { stack, classify, describe } = self.clone();
        SeawallService { stack, classify, describe, inner }
    }
}

/// A service behind a stack. See the module.
#[derive(Clone, Debug)]
pub struct SeawallService<S, C = HttpClassify, D = HttpDescribe> {
    stack: Stack,
    classify: C,
    describe: D,
    /// Never made ready: each attempt makes a clone of it ready.
    inner: S,
}

impl<S, C, D> SeawallService<S, C, D> {
    /// The stack in front of the service.
    pub const fn stack(&self) -> &Stack {
        &self.stack
    }
}

impl<S, C, D, Req> Service<Req> for SeawallService<S, C, D>
where
    Req: Clone + Send + 'static,
    S: Service<Req> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
    C: Classify<S::Response, S::Error> + Clone + Send + Sync + 'static,
    D: Describe<Req> + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = Error<S::Error>;
    type Future = SeawallFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let this = self.clone();
        SeawallFuture(Box::pin(this.run(request)))
    }
}

impl<S, C, D> SeawallService<S, C, D> {
    async fn run<Req>(self, request: Req) -> Result<S::Response, Error<S::Error>>
    where
        Req: Clone,
        S: Service<Req> + Clone,
        S::Response: Send,
        S::Error: Send,
        C: Classify<S::Response, S::Error>,
        D: Describe<Req>,
    {
        let Self { stack, classify, describe, inner } = self;
        let options = describe.describe(&request);
        let seal = Seal::default();
        let (of_result, sealed) = (&classify, &seal);
        let called = stack
            .drive(options.into(), CallShared::new(), Cancel, move |attempt: AttemptContext| {
                let mut request = request.clone();
                describe.stamp(&mut request, &attempt, sealed);
                try_once(attempt, inner.clone(), request, of_result, sealed)
            })
            .await;
        let report = Report::of(called);
        if let Some(changed) = seal.changed() {
            return Err(Error::Changed(changed));
        }
        let Report { result, attempts, redispatches, stop, outcome, .. } = report;
        let mut response = result?;
        classify.annotate(&mut response, &Summary { attempts, redispatches, stop, outcome });
        Ok(response)
    }
}

/// One attempt on a clone of the inner service.
async fn try_once<S, Req>(
    attempt: AttemptContext,
    mut service: S,
    request: Req,
    classify: &impl Classify<S::Response, S::Error>,
    seal: &Seal,
) -> Tried<S::Response, S::Error>
where
    S: Service<Req>,
{
    match attempt.checkout(poll_fn(|cx| service.poll_ready(cx))).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            // Nothing was sent, whatever the error would say of a request that was.
            let outcome = match classify.classify(Err(&error)) {
                known if known.class() == Class::RefusedHere => known,
                _ => Outcome::of(Cause::ConnectFailed),
            };
            return Tried { result: Some(Err(error)), outcome };
        }
        Err(_) => return Tried { result: None, outcome: Outcome::of(Cause::CheckoutTimeout) },
    }
    attempt.mark_sent();
    let result = service.call(request).await;
    if seal.changed().is_some() {
        attempt.mark_unsent();
        return Tried { result: None, outcome: refused_change() };
    }
    let outcome = classify.classify(result.as_ref());
    Tried { result: Some(result), outcome }
}

/// The future of a [`SeawallService`]. Boxed: the chain below it has a type without a name.
#[must_use = "futures do nothing unless polled"]
pub struct SeawallFuture<Res, E>(Pin<Box<dyn Future<Output = Result<Res, Error<E>>> + Send>>);

impl<Res, E> Future for SeawallFuture<Res, E> {
    type Output = Result<Res, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<Res, E> std::fmt::Debug for SeawallFuture<Res, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeawallFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
