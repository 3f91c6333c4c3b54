//! A fresh HTTP/1.1 connection: hyper's handshake and the task that drives it.

use std::sync::{Arc, Weak};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use super::conn::{Conn, ConnFacts, Line, Watcher};
use super::connect::AttemptError;
use super::pool::Shared;
use super::settings::{HYPER_HEAD_FIELDS, PoolSettings};
use super::socket::Socket;
use super::upload::RequestBody;
use crate::wire::Wire;

/// Speaks HTTP/1.1 on the stream.
///
/// # Errors
///
/// hyper's, though it sends nothing here.
pub(super) async fn open<B: RequestBody>(
    pool: &Arc<Shared<B>>,
    facts: Arc<ConnFacts>,
    stream: Wire,
) -> Result<Arc<Conn<B>>, AttemptError> {
    let weak: Weak<Shared<B>> = Arc::downgrade(pool);
    let watcher: Weak<dyn Watcher> = weak.clone();
    let socket = Socket::http1(stream, Arc::clone(&facts), watcher);
    let (sender, connection) = builder(&pool.settings()).handshake(TokioIo::new(socket)).await?;
    // Its errors reach the exchange; between exchanges they only mean that it is closed.
    let driver = pool.runtime.spawn(async move { drop(connection.with_upgrades().await) });
    let line = Line::Http1 { sender: Mutex::new(Some(sender)), driver: driver.abort_handle() };
    Ok(Arc::new(Conn { facts, line, pool: weak }))
}

fn builder(settings: &PoolSettings) -> http1::Builder {
    let head = usize::try_from(settings.response_head_bytes).unwrap_or(usize::MAX);
    let mut builder = http1::Builder::new();
    builder.max_header_size(head).max_buf_size(head.max(HYPER_BUFFER_MIN));
    if settings.response_head_fields != HYPER_HEAD_FIELDS {
        builder.max_headers(settings.response_head_fields);
    }
    builder
}

/// The smallest buffer hyper accepts. Source: hyper, `max_buf_size`.
const HYPER_BUFFER_MIN: usize = 8_192;
