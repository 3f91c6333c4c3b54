//! Makes a connection to one endpoint: its name, its addresses in turn, TLS, in one time limit.
//!
//! Each address gets an equal share of what is left, and after 250 ms the next one is tried beside
//! it, so that one that swallows SYNs cannot use up the time of the others. Only sockets race: TLS
//! and the preface are spoken over one of them at a time.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::{Cause, Timestamp};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout_at;

use super::addresses::Turns;
use super::conn::{Conn, ConnFacts};
use super::error::SendError;
use super::pool::Shared;
use super::resolve::Resolver;
use super::settings::PoolProtocol;
use super::upload::RequestBody;
use super::{http1, http2};
use crate::tls::TlsFailure;
use crate::wire::Wire;

/// No connection to an endpoint could be made; nothing was sent.
#[derive(Debug)]
pub(crate) struct ConnectError {
    cause: Cause,
    text: String,
}

impl ConnectError {
    /// `Dns`, `ConnectRefused` or `Tls` (by every address), `ConnectTimeout` (by one at least)
    /// or `ConnectFailed`.
    #[must_use]
    pub(crate) const fn cause(&self) -> Cause {
        self.cause
    }

    /// Whoever waited for the connection has no more time.
    pub(super) fn out_of_time(target: &Target) -> Self {
        let text = format!("connect to {target}: the attempt's time was up");
        Self { cause: Cause::ConnectTimeout, text }
    }

    /// The peer accepted and closed before the connection was entered in the books.
    pub(super) fn closed_at_once(target: &Target) -> Self {
        let text = format!("connect to {target}: closed at once");
        Self { cause: Cause::ConnectFailed, text }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ConnectError {}

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A name, or a literal address without brackets.
    Tcp { host: String, port: u16 },
    /// A socket of this host.
    Unix(PathBuf),
}

impl From<(String, u16)> for Place {
    fn from((host, port): (String, u16)) -> Self {
        Self::Tcp { host, port }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An endpoint as it is dialled.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) place: Place,
    turns: Mutex<Turns>,
}

impl Target {
    pub(super) fn new(place: Place) -> Self {
        Self { place, turns: Mutex::default() }
    }

    /// Whom a certificate must be for.
    fn host(&self) -> &str {
        match &self.place {
            Place::Tcp { host, .. } => host,
            Place::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// Why one address did not work.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// TCP.
    Io(io::Error),
    /// hyper's handshake.
    Handshake(hyper::Error),
    /// No TLS, or not with whom it should be.
    Tls(TlsFailure),
    /// The peer closed, or spoke something else, before its HTTP/2 SETTINGS.
    Preface,
    /// Its share of the time is up.
    Elapsed,
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<hyper::Error> for AttemptError {
    fn from(error: hyper::Error) -> Self {
        Self::Handshake(error)
    }
}

impl AttemptError {
    fn cause(&self) -> Cause {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Cause::ConnectRefused
            }
            Self::Io(error) if error.kind() == io::ErrorKind::TimedOut => Cause::ConnectTimeout,
            Self::Elapsed => Cause::ConnectTimeout,
            Self::Tls(_) => Cause::Tls,
            Self::Io(_) | Self::Handshake(_) | Self::Preface => Cause::ConnectFailed,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Handshake(error) => error.fmt(f),
            Self::Tls(failure) => failure.fmt(f),
            Self::Preface => f.write_str("closed before HTTP/2 settings"),
            Self::Elapsed => f.write_str("timed out"),
        }
    }
}

/// Makes a socket to the target, one of its addresses after the other, until `speak` succeeds over
/// one.
///
/// # Errors
///
/// Why none did; see [`ConnectError::cause`].
pub(super) async fn connect<T, F>(
    target: &Target,
    resolver: &Resolver,
    clock: &Clock,
    limit: Duration,
    speak: impl Fn(Wire) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let deadline = clock.now().after(limit);
    let (host, port) = match &target.place {
        Place::Tcp { host, port } => (host, *port),
        Place::Unix(path) => return connect_unix(target, path, clock, deadline, speak).await,
    };
    let addresses = resolver.resolve(host, limit).await.map_err(|error| ConnectError {
        cause: Cause::Dns,
        text: format!("resolve {host}: {error}"),
    })?;
    let order = target.turns.lock().order(clock.now(), &addresses);
    let mut race = Race {
        clock,
        deadline,
        left: order.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
        failure: Failure::default(),
        turns: &target.turns,
    };
    while let Some((address, socket)) = race.next().await {
        let now = clock.now();
        let share = race.share(now);
        let spoken = timeout_at(clock.instant(share), speak(socket)).await;
        match spoken.unwrap_or(Err(AttemptError::Elapsed)) {
            Ok(made) => {
                target.turns.lock().note_worked(address.ip());
                return Ok(made);
            }
            Err(error) => race.lose(address, &error),
        }
    }
    Err(race.failure.into_error(target))
}

async fn connect_unix<T, F>(
    target: &Target,
    path: &Path,
    clock: &Clock,
    deadline: Timestamp,
    speak: impl Fn(Wire) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let made = async { speak(UnixStream::connect(path).await?.into()).await };
    let made = timeout_at(clock.instant(deadline), made).await;
    made.unwrap_or(Err(AttemptError::Elapsed)).map_err(|error| ConnectError {
        // Where no socket is, nobody listens.
        cause: match &error {
            AttemptError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                Cause::ConnectRefused
            }
            error => error.cause(),
        },
        text: format!("connect to {target}: {error}"),
    })
}

/// The addresses of one dial. One that does not answer soon is joined by the next; the first that
/// takes the connection wins. Source: RFC 8305 section 5.
struct Race<'a> {
    clock: &'a Clock,
    deadline: Timestamp,
    left: VecDeque<SocketAddr>,
    failure: Failure,
    turns: &'a Mutex<Turns>,
}

impl Race<'_> {
    /// Until when one may try, so that those that are left have their share.
    fn share(&self, now: Timestamp) -> Timestamp {
        let tries = u32::try_from(self.left.len()).unwrap_or(u32::MAX).saturating_add(1);
        now.after(now.until(self.deadline) / tries)
    }

    fn lose(&mut self, address: SocketAddr, error: &AttemptError) {
        self.turns.lock().note_failed(self.clock.now(), address.ip());
        self.failure.note(address, error);
    }

    /// The next address that takes a connection.
    async fn next(&mut self) -> Option<(SocketAddr, Wire)> {
        let clock = self.clock;
        let mut trying = FuturesUnordered::new();
        let mut started: Vec<SocketAddr> = Vec::new();
        loop {
            let now = clock.now();
            if let Some(address) = self.left.pop_front() {
                let until = clock.instant(self.share(now));
                started.push(address);
                trying.push(async move { (address, timeout_at(until, dial(address)).await) });
            }
            let stagger = STAGGER.min(now.until(self.share(now)));
            let more = !self.left.is_empty() && trying.len() < RACING_MAX;
            tokio::select! {
                biased;
                tried = trying.next() => {
                    let (address, dialled) = tried?;
                    let before = started.iter().position(|other| *other == address).unwrap_or(0);
                    started.remove(before);
                    match dialled.unwrap_or(Err(AttemptError::Elapsed)) {
                        Ok(socket) => {
                            // Overtaken, they were slow.
                            for slow in started.iter().take(before) {
                                self.turns.lock().note_failed(clock.now(), slow.ip());
                            }
                            // They may still be needed if nothing sensible is spoken on this one.
                            self.left.extend(started);
                            return Some((address, socket));
                        }
                        Err(error) => self.lose(address, &error),
                    }
                }
                () = tokio::time::sleep_until(clock.instant(now.after(stagger))), if more => {}
            }
        }
    }
}

/// Connects to one address.
pub(super) async fn dial(address: SocketAddr) -> Result<Wire, AttemptError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream.into())
}

/// What the addresses that were tried have in common.
#[derive(Debug, Default)]
struct Failure {
    cause: Option<Cause>,
    tried: usize,
    last: String,
}

impl Failure {
    fn note(&mut self, address: SocketAddr, error: &AttemptError) {
        let cause = error.cause();
        self.cause = Some(match self.cause {
            None => cause,
            Some(before) if before == cause => cause,
            Some(Cause::ConnectTimeout) => Cause::ConnectTimeout,
            Some(_) if cause == Cause::ConnectTimeout => Cause::ConnectTimeout,
            Some(_) => Cause::ConnectFailed,
        });
        self.tried += 1;
        self.last = format!("{address}: {error}");
    }

    fn into_error(self, target: &Target) -> ConnectError {
        let Self { cause, tried, last } = self;
        ConnectError {
            cause: cause.unwrap_or(Cause::Dns),
            text: format!("connect to {target}: {tried} addresses failed, the last {last}"),
        }
    }
}

impl<B: RequestBody> Shared<B> {
    /// Speaks the pool's protocol on a fresh socket, with TLS where it should be.
    ///
    /// # Errors
    ///
    /// Why it did not work.
    pub(super) async fn speak(
        self: &Arc<Self>,
        endpoint: usize,
        socket: Wire,
    ) -> Result<Arc<Conn<B>>, AttemptError> {
        let stream = match &self.tls {
            None => socket,
            Some(tls) => {
                let target = self.target(endpoint);
                let host = target.host();
                tls.connect(host, socket).await.map_err(AttemptError::Tls)?
            }
        };
        let facts = Arc::new(ConnFacts::new(NEXT_ID.fetch_add(1, Ordering::Relaxed), endpoint));
        match self.settings().protocol {
            PoolProtocol::Http1 => http1::open(self, facts, stream).await,
            PoolProtocol::H2c => http2::open(self, facts, stream).await,
        }
    }
}

impl<B: RequestBody> Shared<B> {
    /// An endpoint refused the TLS of a connection that seemed made.
    pub(super) fn tell_refused(&self, endpoint: usize, error: &SendError<B>) {
        let Some((tls, mut cause)) = self.tls.as_ref().zip(error.source()) else { return };
        while let Some(source) = cause.source() {
            cause = source;
        }
        tls.note_refused(self.target(endpoint).host(), &cause.to_string());
    }
}

/// Numbers connections.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// Silence after which the kernel probes an established connection. Source: own choice: below
/// the idle times of common firewalls, and an exchange in the middle of a long answer has no
/// other way to notice a peer that is gone.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// How long an address has before the next one is tried beside it. Source: RFC 8305 section 8.
const STAGGER: Duration = Duration::from_millis(250);
/// Sockets of one dial at once. Source: own choice.
const RACING_MAX: usize = 3;
