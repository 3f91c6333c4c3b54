//! Carries the bytes of an upgraded connection, both ways, until one side ends.
//!
//! A tunnel holds a place among the streams, not in the bulkhead, and neither side may be silent
//! on both ways for longer than the idle limit. When the gateway goes away, the tunnel is closed
//! with the last phase of the drain.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use seawall::SlotGuard;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::access_log::Completion;
use crate::exchange::Exchange;

/// Carries the tunnel in a task of its own.
pub(crate) fn spawn(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    slot: Option<SlotGuard>,
    mut exchange: Box<Exchange>,
    idle: Duration,
) {
    tokio::spawn(async move {
        let closing = exchange.connection.clone();
        let moved = Moved::default();
        exchange.completion = Some(tokio::select! {
            completion = carry(downstream, upstream, idle, &moved) => completion,
            () = closing.closing() => Completion::Drained,
        });
        exchange.tunnelled_in = moved.up.load(Relaxed);
        exchange.bytes_out += moved.down.load(Relaxed);
        drop(slot);
    });
}

/// Bytes carried each way.
#[derive(Debug, Default)]
struct Moved {
    up: AtomicU64,
    down: AtomicU64,
}

impl Moved {
    fn sum(&self) -> u64 {
        self.up.load(Relaxed).wrapping_add(self.down.load(Relaxed))
    }
}

async fn carry(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    moved: &Moved,
) -> Completion {
    let both = async { (downstream.await, upstream.await) };
    let (downstream, upstream) = match timeout(idle, both).await {
        Ok((Ok(downstream), Ok(upstream))) => (TokioIo::new(downstream), TokioIo::new(upstream)),
        Ok((Err(_), _)) => return Completion::CallerLeft,
        Ok((_, Err(_))) => return Completion::UpstreamBroke,
        Err(_) => return Completion::Timeout,
    };
    let (mut from_caller, mut to_caller) = tokio::io::split(downstream);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    // One side that ends leaves the other way open; one that breaks ends both.
    let up = async {
        let broken = pump(&mut from_caller, &mut to_upstream, idle, moved, &moved.up).await;
        broken.map_err(|broken| match broken {
            Broken::Idle => Completion::Timeout,
            Broken::Read => Completion::CallerLeft,
            Broken::Write => Completion::UpstreamBroke,
        })
    };
    let down = async {
        let broken = pump(&mut from_upstream, &mut to_caller, idle, moved, &moved.down).await;
        broken.map_err(|broken| match broken {
            Broken::Idle => Completion::Timeout,
            Broken::Read => Completion::UpstreamBroke,
            Broken::Write => Completion::CallerLeft,
        })
    };
    match tokio::try_join!(up, down) {
        Ok(((), ())) => Completion::Complete,
        Err(completion) => completion,
    }
}

/// What ended one way before its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Idle,
    Read,
    Write,
}

/// Copies one way until it ends, or until nothing moved on either way for the idle limit.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    idle: Duration,
    moved: &Moved,
    own: &AtomicU64,
) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let before = moved.sum();
        let read = match timeout(idle, from.read(&mut buffer)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(read)) => read,
            Ok(Err(_)) => return Err(Broken::Read),
            Err(_) if moved.sum() != before => continue,
            Err(_) => return Err(Broken::Idle),
        };
        match timeout(idle, to.write_all(&buffer[..read])).await {
            Ok(Ok(())) => own.fetch_add(read as u64, Relaxed),
            Ok(Err(_)) => return Err(Broken::Write),
            Err(_) => return Err(Broken::Idle),
        };
    }
    // Tells the other side that nothing more comes; it may still have something to say.
    // If it is gone already, that is no fault.
    let _ = timeout(idle, to.shutdown()).await;
    Ok(())
}

/// Bytes carried at once, each way.
pub(crate) const BUFFER: usize = 16 * 1024;
