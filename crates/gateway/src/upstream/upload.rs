//! The request body on its way out: names its own failures and can be cut.
//!
//! Two things cannot be told from hyper's errors alone: that an upload failed on the caller's
//! side, and that an HTTP/2 upload should end because its response was dropped (hyper resets the
//! stream only once both halves are gone). The wrapper supplies both.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body, Frame, SizeHint};

/// What a pool can send: a body of `Bytes` frames whose errors can be boxed.
pub(crate) trait RequestBody:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

impl<B> RequestBody for B
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
}

/// The request body failed on its way from the caller; the body's own error is the source.
#[derive(Debug)]
pub(crate) struct UploadError(Box<dyn Error + Send + Sync>);

impl fmt::Display for UploadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("read the request body")
    }
}

impl Error for UploadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// Ends an upload from outside.
#[derive(Debug, Default)]
pub(super) struct Cut {
    done: AtomicBool,
    waker: AtomicWaker,
}

impl Cut {
    /// Ends the upload: its stream is reset with CANCEL.
    pub(super) fn cut(&self) {
        self.done.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A request body as the pool hands it to hyper.
#[derive(Debug)]
pub(super) struct Upload<B> {
    body: B,
    cut: Option<Arc<Cut>>,
}

impl<B: RequestBody> Upload<B> {
    /// A body that ends with its connection.
    pub(super) const fn plain(body: B) -> Self {
        Self { body, cut: None }
    }

    /// A body that ends when it is cut; one that is empty anyhow needs no knife.
    pub(super) fn cuttable(body: B) -> (Self, Option<Arc<Cut>>) {
        let cut = (!body.is_end_stream()).then(Arc::<Cut>::default);
        (Self { body, cut: cut.clone() }, cut)
    }

    /// The caller's own body.
    pub(super) fn into_inner(self) -> B {
        self.body
    }
}

impl<B: RequestBody> Body for Upload<B> {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(cut) = &self.cut {
            cut.waker.register(cx.waker());
            if cut.done.load(Ordering::Acquire) {
                let reason = h2::Error::from(h2::Reason::CANCEL);
                return Poll::Ready(Some(Err(UploadError(reason.into()))));
            }
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(|error| UploadError(error.into()))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
