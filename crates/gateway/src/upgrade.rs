//! Carries the bytes of an upgraded connection, both ways, until one side ends.
//!
//! A tunnel holds a place among the streams, not in the bulkhead, and neither side may be silent
//! on both ways for longer than the idle limit. When the gateway goes away, the tunnel is closed
//! with the last phase of the drain.
//!
//! A caller that does not take what is sent to it holds a buffer here and one in the kernel, and
//! its upstream waits for it. After the stall limit it is closed, in its turn (`Spread`): a
//! WebSocket with 1013 and when to come again, if it takes that; else by a reset, so that the
//! kernel keeps nothing of it.

mod frames;
mod pump;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use seawall::SlotGuard;
use tokio::time::timeout;

use crate::access_log::Completion;
use crate::exchange::Exchange;
use crate::server::ConnInfo;
use pump::{Broken, Moved};

/// Carries the tunnel in a task of its own.
pub(crate) fn spawn(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    slot: Option<SlotGuard>,
    mut exchange: Box<Exchange>,
    (idle, is_websocket): (Duration, bool),
) {
    tokio::spawn(async move {
        let closing = exchange.connection.clone();
        let moved = Moved::default();
        let carried = carry(downstream, upstream, idle, &moved, (&closing, is_websocket));
        exchange.completion = Some(tokio::select! {
            completion = carried => completion,
            () = closing.closing() => Completion::Drained,
        });
        exchange.tunnelled_in = moved.up.load(Relaxed);
        exchange.bytes_out += moved.down.load(Relaxed);
        drop(slot);
    });
}

async fn carry(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    idle: Duration,
    moved: &Moved,
    (caller, is_websocket): (&ConnInfo, bool),
) -> Completion {
    let both = async { (downstream.await, upstream.await) };
    let (downstream, upstream) = match timeout(idle, both).await {
        Ok((Ok(downstream), Ok(upstream))) => (TokioIo::new(downstream), TokioIo::new(upstream)),
        Ok((Err(_), _)) => return Completion::CallerLeft,
        Ok((_, Err(_))) => return Completion::UpstreamBroke,
        Err(_) => return Completion::Timeout,
    };
    caller.note_carried();
    let (mut from_caller, mut to_caller) = tokio::io::split(downstream);
    let (mut from_upstream, mut to_upstream) = tokio::io::split(upstream);
    // One side that ends leaves the other way open; one that breaks ends both.
    let up = async {
        let broken = pump::up(&mut from_caller, &mut to_upstream, idle, moved).await;
        broken.map_err(|broken| match broken {
            Broken::Idle | Broken::Stalled => Completion::Timeout,
            Broken::Read => Completion::CallerLeft,
            Broken::Write => Completion::UpstreamBroke,
        })
    };
    let down = async {
        let (from, to) = (&mut from_upstream, &mut to_caller);
        let broken = pump::down(from, to, idle, moved, caller, is_websocket).await;
        broken.map_err(|broken| match broken {
            Broken::Idle | Broken::Stalled => Completion::Timeout,
            Broken::Read => Completion::UpstreamBroke,
            Broken::Write => Completion::CallerLeft,
        })
    };
    match tokio::try_join!(up, down) {
        Ok(((), ())) => Completion::Complete,
        Err(completion) => completion,
    }
}

/// Bytes carried at once, each way, at most.
pub(crate) const BUFFER: usize = 16 * 1024;
