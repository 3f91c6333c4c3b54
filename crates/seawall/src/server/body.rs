//! The body of an answer: the inner service's, which holds the slot until its end, or a refusal's.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::turn::Slot;

pin_project! {
    /// The body of an answer of an [`AdmissionService`](crate::AdmissionService). The inner one
    /// passes as it is; its slot is free at its end, at an error, or when it is dropped.
    #[derive(Debug)]
    pub struct AdmittedBody<B> {
        // First, so that it is gone before its slot is free. None: a refusal.
        #[pin]
        inner: Option<B>,
        // Of a refusal, until it is sent.
        text: Bytes,
        slot: Option<Slot>,
    }
}

impl<B> AdmittedBody<B> {
    pub(super) const fn new(inner: B, slot: Option<Slot>) -> Self {
        Self { inner: Some(inner), text: Bytes::new(), slot }
    }

    pub(super) const fn refusal(text: Bytes) -> Self {
        Self { inner: None, text, slot: None }
    }
}

impl<B> Body for AdmittedBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(mut inner) = this.inner.as_mut().as_pin_mut() else {
            let text = std::mem::take(this.text);
            return Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text.into()))));
        };
        let frame = ready!(inner.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || inner.is_end_stream() {
            *this.slot = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().map_or(self.text.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let length = u64::try_from(self.text.len()).unwrap_or(u64::MAX);
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(length), Body::size_hint)
    }
}
