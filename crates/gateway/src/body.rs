//! Fails a body that pauses for too long between two frames.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use seawall::Clock;
use tokio::time::{Sleep, sleep};

/// Why a body of [`IdleBody`] failed.
#[derive(Debug, thiserror::Error)]
pub enum IdleBodyError<E> {
    /// No frame came within the limit.
    #[error("receive the next part of the body within {}ms", .0.as_millis())]
    Idle(Duration),
    /// The body itself failed.
    #[error(transparent)]
    Body(E),
}

pin_project! {
    /// A body whose next frame must come within a limit after it was asked for.
    ///
    /// The time in which nobody asks does not count: a slow reader is not a slow writer. The timer
    /// is set only when a frame is not there at once.
    #[derive(Debug)]
    pub struct IdleBody<B> {
        #[pin]
        body: B,
        limit: Duration,
        clock: Clock,
        timer: Option<Pin<Box<Sleep>>>,
        waits: bool,
    }
}

impl<B> IdleBody<B> {
    /// `body`, failing when a frame takes `limit` or longer. Default limit of the gateway: 60 s.
    #[must_use]
    pub fn new(body: B, limit: Duration, clock: Clock) -> Self {
        Self { body, limit, clock, timer: None, waits: false }
    }
}

impl<B: Body> Body for IdleBody<B> {
    type Data = B::Data;
    type Error = IdleBodyError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let this = self.project();
        if let Poll::Ready(frame) = this.body.poll_frame(cx) {
            *this.waits = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(IdleBodyError::Body)));
        }
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(*this.limit)));
        if !*this.waits {
            *this.waits = true;
            timer.as_mut().reset(this.clock.instant(this.clock.now().after(*this.limit)));
        }
        timer.as_mut().poll(cx).map(|()| Some(Err(IdleBodyError::Idle(*this.limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, StreamBody};
    use tokio::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A body that sends a frame after each of `pauses`, in seconds, and then ends.
    fn body(pauses: &'static [u64]) -> IdleBody<impl Body<Data = Bytes, Error = Infallible>> {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for pause in pauses {
                sleep(Duration::from_secs(*pause)).await;
                let _ = sender.send(Ok(Frame::data(Bytes::from_static(b"x")))).await;
            }
        });
        let frames = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        IdleBody::new(StreamBody::new(frames), LIMIT, Clock::new())
    }

    #[tokio::test(start_paused = true)]
    async fn frames_within_the_limit_pass_however_long_it_takes() {
        let collected = Box::pin(body(&[59, 59, 0, 59])).collect().await.unwrap();
        assert_eq!(collected.to_bytes(), "xxxx");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_limit_fails() {
        let mut body = Box::pin(body(&[1, 61]));
        assert!(body.frame().await.unwrap().is_ok());
        let clock = Clock::new();
        let start = clock.now();
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, IdleBodyError::Idle(LIMIT)));
        assert_eq!(error.to_string(), "receive the next part of the body within 60000ms");
        assert_eq!(clock.now().since(start), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_asks_does_not_count() {
        let mut body = Box::pin(body(&[1, 1]));
        assert!(body.frame().await.unwrap().is_ok());
        sleep(Duration::from_secs(600)).await;
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.is_none());
    }
}
