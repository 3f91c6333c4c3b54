//! The life of one connection, from its first byte to its end.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use seawall::Clock;
use seawall_policy::{Rng, Timestamp};
use tokio::sync::watch;

use super::detect::{Detected, detect};
use super::drain::{DrainPhase, DrainView};
use super::gauges::CloseReason;
use super::io::{ConnIo, IoLimits};
use super::service::Requests;
use super::stall::StreamExecutor;
use super::state::{ConnGuard, ConnInfo, ConnParts, ConnState, DownstreamProtocol};
use super::watch::{Seen, Step, Watch};
use super::{ListenerOptions, ServerOptions};
use crate::tls::{Shaken, shake};
use crate::wire::Wire;

/// What every connection of a listener needs.
#[derive(Debug)]
pub(super) struct ConnSettings {
    pub(super) server: ServerOptions,
    pub(super) listener: ListenerOptions,
}

impl ConnSettings {
    /// What bounds the bytes on their way out.
    pub(super) fn io_limits(&self) -> IoLimits {
        let stall = self.listener.stall.unwrap_or(self.server.write_stall);
        IoLimits { stall, tunnel_buffer: self.listener.send_buffer }
    }
}

/// Serves one connection to its end.
pub(super) async fn serve<H, F, B>(
    socket: Wire,
    mut parts: ConnParts,
    mut guard: ConnGuard,
    settings: Arc<ConnSettings>,
    handler: H,
) where
    H: Fn(Request<Incoming>, ConnInfo) -> F + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let clock = parts.clock;
    let opened = clock.now();
    let mut drain = parts.drain.clone();
    let options = &settings.listener;
    let detected = tokio::select! {
        biased;
        detected = begin(socket, parts.peer.ip(), options, &clock) => detected,
        _ = drain.wait_for(|view| view.phase >= DrainPhase::Close) => Err(CloseReason::Drain),
    };
    let (wire, Detected { protocol, read, first_byte }) = match detected {
        Ok(detected) => detected,
        Err(reason) => {
            guard.reason = reason;
            return;
        }
    };
    parts.tls = wire.facts();
    let state = Arc::new(ConnState::new(parts, protocol, first_byte));
    guard.state = Some(Arc::clone(&state));
    let limits = settings.io_limits();
    let io = ConnIo::new(wire, read, Arc::clone(&state), limits, guard);
    let io = TokioIo::new(io);
    let requests = Requests { handler, state: Arc::clone(&state) };
    let driver = Driver::new(opened, &state, &settings, drain);
    match protocol {
        DownstreamProtocol::Http1 => {
            let connection = http1_builder(&settings.server).serve_connection(io, requests);
            driver.run(connection.with_upgrades()).await;
        }
        DownstreamProtocol::Http2 => {
            let executor = StreamExecutor { state: Arc::clone(&state), limit: limits.stall };
            let connection =
                http2_builder(executor, &settings.server).serve_connection(io, requests);
            // Boxed, as the handshake is, so that a connection of HTTP/1.1 holds no room for it.
            Box::pin(driver.run(connection)).await;
        }
    }
}

/// Shakes hands where TLS is spoken, and finds out which protocol is.
async fn begin(
    socket: Wire,
    peer: IpAddr,
    options: &ListenerOptions,
    clock: &Clock,
) -> Result<(Wire, Detected), CloseReason> {
    let ListenerOptions { first_byte_timeout, head_timeout, .. } = *options;
    let mut wire = match &options.tls {
        None => socket,
        Some(tls) => {
            let shaking = shake(socket, peer, tls, clock, first_byte_timeout, head_timeout);
            match Box::pin(shaking).await {
                Shaken::Done(wire) => wire,
                Shaken::Silent => return Err(CloseReason::FirstByte),
                Shaken::Ended => return Err(CloseReason::Ended),
                Shaken::Failed => return Err(CloseReason::Handshake),
            }
        }
    };
    let mut detected = detect(&mut wire, clock, first_byte_timeout, head_timeout).await?;
    match wire.alpn() {
        Some(b"h2") => detected.protocol = DownstreamProtocol::Http2,
        Some(b"http/1.1") => detected.protocol = DownstreamProtocol::Http1,
        _ => {}
    }
    Ok((wire, detected))
}

fn http1_builder(options: &ServerOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .keep_alive(true)
        // A caller that leaves is noticed, and the handler's future dropped.
        .half_close(false)
        // One more, so that a head with too many is refused where refusals are answered and logged.
        .max_headers(options.head_fields.saturating_add(1))
        .max_header_size(options.head_bytes)
        .max_buf_size(options.head_bytes.max(HTTP1_BUFFER_MIN))
        // hyper's timer runs while a connection is idle, too; ours tells the two apart.
        .header_read_timeout(None)
        .timer(TokioTimer::new());
    builder
}

fn http2_builder(
    executor: StreamExecutor,
    options: &ServerOptions,
) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(options.h2_streams)
        .max_send_buf_size(H2_SEND_BYTES)
        .max_header_list_size(u32::try_from(options.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESET_BEFORE_ACCEPT_MAX)
        .max_local_error_reset_streams(RESET_FOR_ERROR_MAX);
    builder
}

/// A connection of hyper's that can be asked to end.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S, B> Graceful for http1::UpgradeableConnection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B, E> Graceful for http2::Connection<I, S, E>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Polls a connection and keeps its timers.
struct Driver {
    state: Arc<ConnState>,
    drain: watch::Receiver<DrainView>,
    watch: Watch,
    opened: Timestamp,
    /// Where within the drain's first phase this connection is told, of 2³².
    share: u32,
}

/// Why a driver looks up.
enum Event {
    Ended(hyper::Result<()>),
    Looked,
    Drain,
}

impl Driver {
    fn new(
        opened: Timestamp,
        state: &Arc<ConnState>,
        settings: &ConnSettings,
        drain: watch::Receiver<DrainView>,
    ) -> Self {
        let options = &settings.listener;
        let mut rng = seawall::ThreadRng;
        let tenth = options.max_age / 10;
        let age = rng.duration_between(
            options.max_age.saturating_sub(tenth),
            options.max_age.saturating_add(tenth),
        );
        let share = u32::try_from(rng.below(1 << 32)).unwrap_or(u32::MAX);
        let watch = Watch {
            protocol: state.protocol,
            trusted: state.trusted,
            head_timeout: options.head_timeout,
            idle_timeout: options.idle_timeout,
            old_at: opened.after(age),
            drain_at: Timestamp::MAX,
            told: None,
        };
        Self { state: Arc::clone(state), drain, watch, opened, share }
    }

    /// Runs `connection` until it ends or has to be cut; dropping it then closes the socket.
    async fn run(mut self, connection: impl Graceful) {
        let mut connection = pin!(connection);
        let clock = self.state.clock;
        let mut timer = pin!(tokio::time::sleep_until(clock.instant(Timestamp::MAX)));
        let mut phase = self.look_at_drain();
        let reason = loop {
            let event = self.next_event(connection.as_mut(), timer.as_mut()).await;
            match event {
                Event::Ended(ended) => break self.reason_of(ended),
                Event::Drain => {
                    let before = std::mem::replace(&mut phase, self.look_at_drain());
                    if phase == DrainPhase::Over {
                        break CloseReason::Drain;
                    }
                    if before < DrainPhase::Close && phase == DrainPhase::Close {
                        self.note_told(CloseReason::Drain);
                        connection.as_mut().graceful_shutdown();
                    }
                }
                Event::Looked => {}
            }
            match self.watch.step(clock.now(), Seen::of(&self.state)) {
                Step::Wait(_) => {}
                Step::Cut(reason) => break reason,
                Step::Tell(reason) => {
                    self.note_told(reason);
                    if self.state.protocol == DownstreamProtocol::Http2 {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        };
        // A tunnel ends for reasons of its own.
        if !self.state.is_upgraded() {
            self.state.reason.set(reason);
        }
    }

    /// Polls the connection until it ends, something is due, or the drain moves on.
    async fn next_event(
        &mut self,
        mut connection: Pin<&mut impl Graceful>,
        mut timer: Pin<&mut tokio::time::Sleep>,
    ) -> Event {
        let (state, watch) = (&self.state, &self.watch);
        let clock = state.clock;
        let looked = poll_fn(|cx| {
            state.register(cx.waker());
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Event::Ended(ended));
            }
            state.date_head();
            // Asked from before all time what it waits for, it needs no reading of the clock.
            let Step::Wait(until) = watch.step(Timestamp::ZERO, Seen::of(state)) else {
                return Poll::Ready(Event::Looked);
            };
            // A timer that is early only looks once too often; one that is late must be moved.
            let until = clock.instant(until);
            if timer.is_elapsed() || until < timer.deadline() {
                timer.as_mut().reset(until);
            }
            timer.as_mut().poll(cx).map(|()| Event::Looked)
        });
        tokio::select! {
            biased;
            event = looked => event,
            changed = self.drain.changed() => match changed {
                Ok(()) => Event::Drain,
                // The server is gone without a drain: nothing will change any more.
                Err(_) => Event::Ended(Ok(())),
            },
        }
    }

    fn look_at_drain(&mut self) -> DrainPhase {
        let view = *self.drain.borrow_and_update();
        if let Some(point) = view.close_point(self.opened, self.share) {
            self.watch.drain_at = point;
        }
        view.phase
    }

    fn note_told(&mut self, reason: CloseReason) {
        self.state.close_after_answer();
        if self.watch.told.is_none() {
            self.watch.told = Some((self.state.clock.now(), reason));
        }
    }

    fn reason_of(&self, ended: hyper::Result<()>) -> CloseReason {
        match (ended, self.watch.told) {
            (Ok(()), Some((_, reason))) => reason,
            (Ok(()), None) => CloseReason::Ended,
            (Err(error), _) if is_calm_down(&error) => CloseReason::Abuse,
            (Err(error), _) if error.is_parse() => CloseReason::Malformed,
            (Err(_), Some((_, reason))) => reason,
            (Err(_), None) => CloseReason::Failed,
        }
    }
}

/// Whether h2 closed the connection for a flood.
fn is_calm_down(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|error| error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// hyper takes no smaller buffer.
const HTTP1_BUFFER_MIN: usize = 8192;
/// An HTTP/2 peer that is still there answers. Source: hyper `keep_alive_timeout` for the second.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of an answer that wait to be sent, of each stream. Source: hyper `max_send_buf_size`.
pub(crate) const H2_SEND_BYTES: usize = 400 * 1024;
/// Streams reset before we took them. Source: h2 `DEFAULT_REMOTE_RESET_STREAM_MAX`.
const RESET_BEFORE_ACCEPT_MAX: usize = 20;
/// Streams we reset for the peer's errors. Source: h2 `DEFAULT_LOCAL_RESET_COUNT_MAX`.
const RESET_FOR_ERROR_MAX: usize = 1024;
