//! A fresh HTTP/2 connection: made only once the peer has sent its SETTINGS.
//!
//! hyper's handshake ends when our preface is written. A peer that accepts and says nothing would
//! pass for connected and take a hundred requests down with it, so the dial waits for the peer's
//! first SETTINGS within its own timeout.

use std::sync::{Arc, Weak};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::conn::{Conn, ConnFacts, Line, Watcher};
use super::connect::AttemptError;
use super::pool::Shared;
use super::settings::PoolSettings;
use super::socket::Socket;
use super::upload::RequestBody;
use crate::wire::Wire;

/// Speaks HTTP/2 on the stream and waits for the peer's SETTINGS.
///
/// # Errors
///
/// The peer closed or spoke something else.
pub(super) async fn open<B: RequestBody>(
    pool: &Arc<Shared<B>>,
    facts: Arc<ConnFacts>,
    stream: Wire,
) -> Result<Arc<Conn<B>>, AttemptError> {
    let weak: Weak<Shared<B>> = Arc::downgrade(pool);
    let watcher: Weak<dyn Watcher> = weak.clone();
    let socket = Socket::http2(stream, Arc::clone(&facts), watcher);
    let (sender, connection) = builder(&pool.settings()).handshake(TokioIo::new(socket)).await?;
    // Its errors reach the streams.
    pool.runtime.spawn(async move { drop(connection.await) });
    if facts.peer_settled().await {
        Ok(Arc::new(Conn { facts, line: Line::Http2 { sender }, pool: weak }))
    } else {
        Err(AttemptError::Preface)
    }
}

fn builder(settings: &PoolSettings) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(settings.h2_ping_interval)
        .keep_alive_timeout(settings.h2_ping_timeout)
        .keep_alive_while_idle(true)
        .max_header_list_size(settings.response_head_bytes);
    builder
}
