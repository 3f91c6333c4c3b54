//! The request body on its way to the upstream, kept while it streams for a second attempt.
//!
//! The tee copies what passes until the body outgrows the replay buffer; from there on it only
//! passes, and the request cannot be sent again. While more is to come from the caller, whatever
//! the size, the time is the caller's, and the call's clocks stand until the body's end (see
//! [`seawall::CallShared`]). Nothing is read ahead: the caller's body is first polled when an
//! admitted attempt is sending, so an upload that is refused never gets its `100 Continue`.
//!
//! Bounds: the replay buffer (64 KiB), the route's `max_body`, and an idle limit between frames.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use seawall::{CallShared, Clock};
use seawall_policy::Timestamp;
use tokio::time::sleep_until;

mod error;
mod reader;

pub(crate) use error::UploadError;
use reader::Reader;
pub(crate) use reader::RequestBody;

/// A request body that attempts read one after the other.
#[derive(Debug)]
pub(crate) struct Upload {
    state: Mutex<State>,
    call: Arc<CallShared>,
    clock: Clock,
    limits: UploadLimits,
    replay: ReplayBytes,
    hint: SizeHint,
    /// Frames of the answer that flows beside it.
    answer_frames: AtomicU64,
}

/// Bytes that all uploads keep for another attempt. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayBytes(Arc<AtomicU64>);

impl ReplayBytes {
    /// As many as there are now.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Bounds of an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadLimits {
    /// Bytes kept for a second attempt.
    pub replay: usize,
    /// Bytes in all; more breaks the upload.
    pub max: Option<u64>,
    /// The longest wait for the next frame.
    pub idle: Duration,
}

#[derive(Debug)]
struct State {
    incoming: Option<Incoming>,
    kept: Vec<Kept>,
    kept_bytes: usize,
    seen: u64,
    outgrown: bool,
    /// It was read from and was not complete: the clocks stand until its end.
    flows: bool,
    broken: Option<UploadError>,
    /// Counts readers; only the latest reads on.
    reader: u32,
    /// The reader's answer is there and may lead to a retry, so nothing more is read for it.
    held: bool,
    /// Whom to tell that another reads now.
    waiting: Option<Waker>,
    /// Since when the upstream could read on and did not.
    unread_since: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Upload {
    /// Takes over `incoming`; `None` if there is no body.
    #[must_use]
    pub(crate) fn new(
        incoming: Incoming,
        call: Arc<CallShared>,
        clock: Clock,
        limits: UploadLimits,
        replay: ReplayBytes,
    ) -> Option<Arc<Self>> {
        if incoming.is_end_stream() {
            return None;
        }
        let hint = incoming.size_hint();
        call.forbid_hedge();
        let state = State {
            incoming: Some(incoming),
            kept: Vec::new(),
            kept_bytes: 0,
            seen: 0,
            outgrown: false,
            flows: false,
            broken: None,
            reader: 0,
            held: false,
            waiting: None,
            unread_since: None,
        };
        Some(Arc::new(Self {
            state: Mutex::new(state),
            call,
            clock,
            limits,
            replay,
            hint,
            answer_frames: AtomicU64::new(0),
        }))
    }

    /// The body for the next attempt, from its first byte. Earlier readers get an error, and so
    /// does this one if not all of what was read is kept.
    #[must_use]
    pub(crate) fn read(self: &Arc<Self>) -> RequestBody {
        let mut state = self.state.lock();
        state.reader += 1;
        state.held = false;
        if let Some(superseded) = state.waiting.take() {
            superseded.wake();
        }
        if state.outgrown {
            state.break_off(UploadError::Superseded);
        }
        // The clocks stand already, so what this attempt's upstream leaves unread counts at once.
        state.unread_since = state.more_to_come().then(|| self.clock.now());
        RequestBody::Reading(Reader::new(Arc::clone(self), state.reader))
    }

    /// The body for an attempt beside the one that reads it now, which reads on. Only of a body
    /// that is complete and kept: two cannot read on from the caller.
    #[must_use]
    pub(crate) fn read_beside(self: &Arc<Self>) -> RequestBody {
        let number = self.state.lock().reader;
        RequestBody::Reading(Reader::new(Arc::clone(self), number))
    }

    /// No reader reads on from the caller until the next one begins.
    pub(crate) fn hold(&self) {
        self.state.lock().held = true;
    }

    /// Whether the caller's last byte was read.
    pub(crate) fn is_complete(&self) -> bool {
        let state = self.state.lock();
        state.incoming.is_none() && state.broken.is_none()
    }

    /// Waits until the upstream, which has more to take, has taken nothing of an upload that flows
    /// for the idle limit: no other limit runs then, and the caller is not who is waited for.
    pub(crate) async fn unread(&self) {
        loop {
            let now = self.clock.now();
            let since = self.state.lock().unread_since.unwrap_or(now);
            let due = since.after(self.limits.idle);
            if due <= now {
                return;
            }
            sleep_until(self.clock.instant(due)).await;
        }
    }

    /// The answer moves on meanwhile: a caller that sends nothing then is not silent, it listens.
    pub(crate) fn answer_moves(&self) {
        self.answer_frames.fetch_add(1, Relaxed);
    }

    /// Why it ended early, if it did.
    pub(crate) fn broken(&self) -> Option<UploadError> {
        self.state.lock().broken
    }

    /// Bytes that came from the caller.
    pub(crate) fn seen(&self) -> u64 {
        self.state.lock().seen
    }
}

impl State {
    /// Reads on from the caller.
    fn poll_incoming(
        &mut self,
        upload: &Upload,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        if let Some(error) = self.broken {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Pending => {
                self.flow(upload);
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.end(upload);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                Poll::Ready(Some(Err(self.break_off(UploadError::Broken))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                // Who sends it on stops asking once the announced length is there.
                let is_last = incoming.is_end_stream();
                let taken = self.take_in(upload, frame);
                match is_last {
                    true if taken.is_ok() => self.end(upload),
                    true => {}
                    false => self.flow(upload),
                }
                Poll::Ready(Some(taken))
            }
        }
    }

    fn take_in(
        &mut self,
        upload: &Upload,
        frame: Frame<Bytes>,
    ) -> Result<Frame<Bytes>, UploadError> {
        match frame.into_data() {
            Ok(data) => {
                self.seen = self.seen.saturating_add(data.len() as u64);
                if upload.limits.max.is_some_and(|max| self.seen > max) {
                    return Err(self.break_off(UploadError::TooLarge));
                }
                self.keep(upload, &data);
                Ok(Frame::data(data))
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                if !self.outgrown {
                    self.kept.push(Kept::Trailers(trailers.clone()));
                }
                Ok(Frame::trailers(trailers))
            }
        }
    }

    /// Keeps a frame for a second attempt, or gives up keeping. A small frame is copied, so that
    /// it does not pin the whole read buffer it is a slice of.
    fn keep(&mut self, upload: &Upload, data: &Bytes) {
        if self.outgrown {
            return;
        }
        if self.kept_bytes + data.len() > upload.limits.replay {
            self.outgrown = true;
            self.kept = Vec::new();
            let kept = std::mem::take(&mut self.kept_bytes);
            upload.replay.0.fetch_sub(kept as u64, Relaxed);
            upload.call.outgrown();
            return;
        }
        self.kept_bytes += data.len();
        upload.replay.0.fetch_add(data.len() as u64, Relaxed);
        let kept =
            if data.len() < COPY_BELOW { Bytes::copy_from_slice(data) } else { data.clone() };
        self.kept.push(Kept::Data(kept));
    }

    fn wait(&mut self, waker: &Waker) {
        if !self.waiting.as_ref().is_some_and(|known| known.will_wake(waker)) {
            self.waiting = Some(waker.clone());
        }
    }

    /// Not all of it is there yet.
    fn flow(&mut self, upload: &Upload) {
        if !std::mem::replace(&mut self.flows, true) {
            upload.call.upload_flows();
        }
    }

    /// Whether the clocks wait for more of it.
    fn more_to_come(&self) -> bool {
        self.flows && self.incoming.is_some()
    }

    fn end(&mut self, upload: &Upload) {
        if self.incoming.take().is_some() {
            upload.call.allow_hedge();
        }
        self.unread_since = None;
        if self.flows {
            upload.call.upload_ended(upload.clock.now());
        }
    }

    fn break_off(&mut self, error: UploadError) -> UploadError {
        self.incoming = None;
        self.broken = Some(error);
        error
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let kept = self.state.get_mut().kept_bytes;
        self.replay.0.fetch_sub(kept as u64, Relaxed);
    }
}

/// Frames below this are copied into the replay buffer. Source: seawall-design.
const COPY_BELOW: usize = 4096;
