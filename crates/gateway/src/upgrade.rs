//! Carries the bytes of an upgraded connection, both ways, until one side ends.
//!
//! A tunnel holds a place among the streams, not in the bulkhead, and neither side may be silent
//! on both ways for longer than the idle limit. When the gateway goes away, the tunnel is closed
//! with the last phase of the drain.

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
        let ended = tokio::select! {
            ended = carry(downstream, upstream, idle) => ended,
            () = closing.closing() => Carried { completion: Completion::Drained, bytes_out: 0 },
        };
        exchange.completion = ended.completion;
        exchange.bytes_out += ended.bytes_out;
        drop(slot);
    });
}

struct Carried {
    completion: Completion,
    bytes_out: u64,
}

async fn carry(downstream: OnUpgrade, upstream: OnUpgrade, idle: Duration) -> Carried {
    let broken = |completion| Carried { completion, bytes_out: 0 };
    let both = async { (downstream.await, upstream.await) };
    let (downstream, upstream) = match timeout(idle, both).await {
        Ok((Ok(downstream), Ok(upstream))) => (TokioIo::new(downstream), TokioIo::new(upstream)),
        Ok((Err(_), _)) => return broken(Completion::CallerLeft),
        Ok((_, Err(_))) => return broken(Completion::UpstreamBroke),
        Err(_) => return broken(Completion::Timeout),
    };
    let (mut from_caller, mut to_caller) = tokio::io::split(downstream);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    let moved = std::sync::atomic::AtomicU64::new(0);
    let mut bytes_out = 0;
    let completion = {
        let up = pump(&mut from_caller, &mut to_upstream, idle, &moved);
        let down = pump(&mut from_upstream, &mut to_caller, idle, &moved);
        let (up, down) = tokio::join!(up, down);
        bytes_out += down.bytes;
        match (up.end, down.end) {
            (End::Idle, _) | (_, End::Idle) => Completion::Timeout,
            (End::WriteFailed, _) | (_, End::ReadFailed) => Completion::UpstreamBroke,
            (End::ReadFailed, _) | (_, End::WriteFailed) => Completion::CallerLeft,
            (End::Eof, End::Eof) => Completion::Complete,
        }
    };
    Carried { completion, bytes_out }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Eof,
    Idle,
    ReadFailed,
    WriteFailed,
}

struct Pumped {
    bytes: u64,
    end: End,
}

/// Copies one way until it ends, or until nothing moved on either way for the idle limit.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    idle: Duration,
    moved: &std::sync::atomic::AtomicU64,
) -> Pumped {
    use std::sync::atomic::Ordering::Relaxed;
    let mut buffer = vec![0; BUFFER];
    let mut bytes = 0;
    let end = loop {
        let before = moved.load(Relaxed);
        let read = match timeout(idle, from.read(&mut buffer)).await {
            Ok(Ok(0)) => break End::Eof,
            Ok(Ok(read)) => read,
            Ok(Err(_)) => break End::ReadFailed,
            Err(_) if moved.load(Relaxed) != before => continue,
            Err(_) => break End::Idle,
        };
        moved.fetch_add(1, Relaxed);
        match timeout(idle, to.write_all(&buffer[..read])).await {
            Ok(Ok(())) => bytes += read as u64,
            Ok(Err(_)) => break End::WriteFailed,
            Err(_) => break End::Idle,
        }
    };
    // Tells the other side that nothing more comes; it may still have something to say.
    let _ = timeout(idle, to.shutdown()).await;
    Pumped { bytes, end }
}

/// Bytes carried at once, each way.
const BUFFER: usize = 16 * 1024;
