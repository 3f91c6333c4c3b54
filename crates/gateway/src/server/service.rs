//! One request on a connection: counted from its head to the last frame of its answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::stall::StreamStall;
use super::state::{ConnInfo, ConnState, DownstreamProtocol};

/// The requests of one connection, handed to `handler`.
#[derive(Debug)]
pub(super) struct Requests<H> {
    pub(super) handler: H,
    pub(super) state: Arc<ConnState>,
}

impl<H, F, B> hyper::service::Service<Request<Incoming>> for Requests<H>
where
    H: Fn(Request<Incoming>, ConnInfo) -> F,
    F: Future<Output = Response<B>>,
    B: Body,
{
    type Response = Response<Counted<B>>;
    type Error = Infallible;
    type Future = Answering<F>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let arrival = self.state.on_request();
        let stall = (self.state.protocol == DownstreamProtocol::Http2).then(Arc::default);
        self.state.next_stall.lock().clone_from(&stall);
        let request_guard = RequestGuard { state: Arc::clone(&self.state), whole: false };
        let connection = ConnInfo { state: Arc::clone(&self.state), arrival };
        // hyper keeps room for a future in each connection, idle ones too: a pointer is little.
        let answer = Box::pin((self.handler)(request, connection));
        Answering { answer, stall, guard: Some(request_guard) }
    }
}

/// A request in flight; abandoned if dropped before its answer is whole.
#[derive(Debug)]
struct RequestGuard {
    state: Arc<ConnState>,
    whole: bool,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.state.on_request_end(!self.whole);
    }
}

/// The answer of the handler, on its way to its head.
pub(super) struct Answering<F> {
    answer: Pin<Box<F>>,
    stall: Option<Arc<StreamStall>>,
    guard: Option<RequestGuard>,
}

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Response<B>>,
    B: Body,
{
    type Output = Result<Response<Counted<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut response = ready!(this.answer.as_mut().poll(cx));
        let mut guard = this.guard.take();
        if let Some(guard) = &mut guard {
            guard.whole = response.body().is_end_stream();
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                guard.state.on_upgrade();
            } else if guard.state.protocol == DownstreamProtocol::Http1 && guard.state.closes() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
        let stall = this.stall.take();
        if let (Some(stall), Some(guard)) = (&stall, &guard) {
            // Without a window hyper does not even ask for the first frame.
            stall.wait_from(guard.state.clock.now());
        }
        Poll::Ready(Ok(response.map(|body| Counted { body, stall, guard })))
    }
}

pin_project! {
    /// The body of an answer; its request is in flight until it ends or is dropped.
    pub(super) struct Counted<B> {
        #[pin]
        body: B,
        stall: Option<Arc<StreamStall>>,
        guard: Option<RequestGuard>,
    }
}

impl<B: Body> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        if let Some(stall) = this.stall {
            stall.clear();
        }
        let polled = ready!(this.body.as_mut().poll_frame(cx));
        // A body that failed was not abandoned by its caller.
        let ends = !matches!(&polled, Some(Ok(_))) || this.body.is_end_stream();
        if let Some(guard) = this.guard {
            guard.whole |= ends;
            if let Some(stall) = this.stall {
                stall.wait_from(guard.state.clock.now());
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
