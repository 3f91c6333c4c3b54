//! Copies the bytes of a tunnel, each way, and finds out that a caller does not take its own.
//!
//! A buffer begins small and grows with what comes, up to 16 KiB: ten thousand tunnels that say
//! little hold little. What was read has to be taken whole within the stall limit, so a caller that
//! takes a byte now and then is no better than one that takes none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use seawall::ThreadRng;
use seawall_policy::come_again;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{timeout, timeout_at};

use super::BUFFER;
use super::frames::{Frames, close};
use crate::server::ConnInfo;

/// Bytes carried each way.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

impl Moved {
    fn sum(&self) -> u64 {
        self.up.load(Relaxed).wrapping_add(self.down.load(Relaxed))
    }
}

/// What ended one way before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Nothing moved on either way.
    Idle,
    Read,
    Write,
    /// The caller left what was sent to it for too long.
    Stalled,
}

/// Reads one way into a buffer of its own.
struct Source<'a, R> {
    from: &'a mut R,
    buffer: Vec<u8>,
    idle: Duration,
    moved: &'a Moved,
}

impl<'a, R: AsyncRead + Unpin> Source<'a, R> {
    fn new(from: &'a mut R, idle: Duration, moved: &'a Moved) -> Self {
        Self { from, buffer: vec![0; BUFFER_MIN], idle, moved }
    }

    /// What came next; nothing at the end.
    async fn next(&mut self) -> Result<&[u8], Broken> {
        loop {
            let before = self.moved.sum();
            match timeout(self.idle, self.from.read(&mut self.buffer)).await {
                Ok(Ok(read)) => return Ok(&self.buffer[..read]),
                Ok(Err(_)) => return Err(Broken::Read),
                Err(_) if self.moved.sum() != before => {}
                Err(_) => return Err(Broken::Idle),
            }
        }
    }

    /// Fits the buffer to what came last.
    fn fit(&mut self, read: usize) {
        let length = self.buffer.len();
        if read == length && length < BUFFER {
            self.buffer = vec![0; (length * 2).min(BUFFER)];
        } else if read <= length / 4 && length > BUFFER_MIN {
            self.buffer = vec![0; length / 2];
        }
    }
}

/// Copies what the caller sends until it ends.
pub(super) async fn up(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    idle: Duration,
    moved: &Moved,
) -> Result<(), Broken> {
    let mut source = Source::new(from, idle, moved);
    loop {
        let bytes = source.next().await?;
        let read = bytes.len();
        if read == 0 {
            break;
        }
        let sent = async {
            to.write_all(bytes).await?;
            to.flush().await
        };
        match timeout(idle, sent).await {
            Ok(Ok(())) => moved.up.fetch_add(read as u64, Relaxed),
            Ok(Err(_)) => return Err(Broken::Write),
            Err(_) => return Err(Broken::Idle),
        };
        source.fit(read);
    }
    end(to, idle).await;
    Ok(())
}

/// Copies what the upstream sends until it ends, or the caller stalls.
pub(super) async fn down(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    idle: Duration,
    moved: &Moved,
    caller: &ConnInfo,
    is_websocket: bool,
) -> Result<(), Broken> {
    let mut frames = is_websocket.then(Frames::default);
    let mut source = Source::new(from, idle, moved);
    loop {
        let bytes = source.next().await?;
        let read = bytes.len();
        if read == 0 {
            break;
        }
        let mut taken = 0;
        let offered = offer(to, bytes, &mut taken, idle, caller).await;
        moved.down.fetch_add(taken as u64, Relaxed);
        if offered == Err(Broken::Stalled) {
            let told = tell(to, &bytes[taken..], &bytes[..taken], frames.as_mut()).await;
            caller.note_stall(told.is_some());
            if told.is_some() {
                // So that it is read, and not reset, if the caller still listens.
                tokio::time::sleep(LINGER).await;
            }
        }
        offered?;
        if let Some(frames) = &mut frames {
            frames.pass(bytes);
        }
        source.fit(read);
    }
    end(to, idle).await;
    Ok(())
}

/// Has the caller take all of it, within its limit, and if it does not, until its turn to end.
async fn offer(
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    taken: &mut usize,
    idle: Duration,
    caller: &ConnInfo,
) -> Result<(), Broken> {
    let mut until = caller.stalls_at(idle);
    let mut is_booked = false;
    loop {
        let step = async {
            match bytes.get(*taken..).filter(|rest| !rest.is_empty()) {
                Some(rest) => to.write(rest).await,
                // Over TLS what was written may wait here.
                None => to.flush().await.map(|()| 0),
            }
        };
        match timeout_at(until, step).await {
            Ok(Ok(_)) if *taken == bytes.len() => return Ok(()),
            Ok(Ok(0)) | Ok(Err(_)) => return Err(Broken::Write),
            Ok(Ok(written)) => *taken += written,
            Err(_) if !is_booked => (until, is_booked) = (caller.book_end(), true),
            Err(_) => return Err(Broken::Stalled),
        }
    }
}

/// Tells a WebSocket that it is closed and when to come again, if it takes the rest of the frame
/// that has begun.
async fn tell(
    to: &mut (impl AsyncWrite + Unpin),
    rest: &[u8],
    taken: &[u8],
    frames: Option<&mut Frames>,
) -> Option<()> {
    let frames = frames?;
    frames.pass(taken);
    let end = frames.rest_of_frame(rest)?;
    let frame = close(come_again(&mut ThreadRng));
    let last = async {
        to.write_all(&rest[..end]).await?;
        to.write_all(&frame).await?;
        to.shutdown().await
    };
    timeout(LAST_WORD, last).await.ok()?.ok()
}

/// Tells the other side that nothing more comes; it may still have something to say. If it is gone
/// already, that is no fault.
async fn end(to: &mut (impl AsyncWrite + Unpin), idle: Duration) {
    let _ = timeout(idle, to.shutdown()).await;
}

/// Bytes of a buffer in which little comes. Source: seawall-design.
const BUFFER_MIN: usize = 1024;
/// How long a caller that stalled has to take its close frame. Source: seawall-design.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How long it has then to close. Source: seawall-design.
const LINGER: Duration = Duration::from_secs(1);
