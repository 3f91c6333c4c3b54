//! One attempt's way through the upload: first what was kept, then what comes from the caller.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::{Kept, Upload, UploadError};

/// The body of one attempt.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// There is none.
    Empty,
    /// Read through the tee.
    Reading(Reader),
}

/// One attempt's place in the upload.
#[derive(Debug)]
pub(crate) struct Reader {
    upload: Arc<Upload>,
    number: u32,
    position: usize,
    sent: u64,
    /// Made when the caller first lets us wait.
    idle: Option<Pin<Box<Sleep>>>,
    /// Frames of the answer when the wait began.
    answer_then: u64,
}

impl Reader {
    pub(super) const fn new(upload: Arc<Upload>, number: u32) -> Self {
        Self { upload, number, position: 0, sent: 0, idle: None, answer_then: 0 }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let upload = Arc::clone(&self.upload);
        let mut state = upload.state.lock();
        if state.reader != self.number {
            return Poll::Ready(Some(Err(UploadError::Superseded)));
        }
        state.unread_since = None;
        if let Some(kept) = state.kept.get(self.position).cloned() {
            self.position += 1;
            state.unread_since = state.more_to_come().then(|| upload.clock.now());
            return Poll::Ready(Some(Ok(match kept {
                Kept::Data(data) => self.count(data),
                Kept::Trailers(trailers) => Frame::trailers(trailers),
            })));
        }
        if state.held && state.incoming.is_some() {
            state.wait(cx.waker());
            return Poll::Pending;
        }
        match state.poll_incoming(&upload, cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.idle = None;
                self.position = state.kept.len();
                state.unread_since = state.more_to_come().then(|| upload.clock.now());
                Poll::Ready(Some(Ok(match frame.into_data() {
                    Ok(data) => self.count(data),
                    Err(frame) => frame,
                })))
            }
            Poll::Ready(other) => Poll::Ready(other),
            Poll::Pending => {
                state.wait(cx.waker());
                let limit = upload.limits.idle;
                let answered = upload.answer_frames.load(Relaxed);
                let idle = self.idle.get_or_insert_with(|| {
                    self.answer_then = answered;
                    Box::pin(sleep(limit))
                });
                loop {
                    ready!(idle.as_mut().poll(cx));
                    if self.answer_then == answered {
                        return Poll::Ready(Some(Err(state.break_off(UploadError::Stalled))));
                    }
                    self.answer_then = answered;
                    idle.set(sleep(limit));
                }
            }
        }
    }

    fn count(&mut self, data: Bytes) -> Frame<Bytes> {
        self.sent += data.len() as u64;
        Frame::data(data)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Reading(reader) => reader.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Reading(reader) => {
                let state = reader.upload.state.lock();
                state.incoming.is_none()
                    && state.broken.is_none()
                    && reader.position >= state.kept.len()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Reading(reader) => match reader.upload.hint.exact() {
                Some(length) => SizeHint::with_exact(length.saturating_sub(reader.sent)),
                None => SizeHint::new(),
            },
        }
    }
}
