//! Makes a connection to one endpoint: its name, then its addresses in turn, in one time limit.
//!
//! Each address gets an equal share of what is left, so that one that swallows SYNs cannot use up
//! the time of the others. The address that worked last is tried first.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use seawall::Clock;
use seawall_policy::Cause;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::conn::{Conn, ConnFacts};
use super::pool::Shared;
use super::resolve::Resolver;
use super::settings::PoolProtocol;
use super::upload::RequestBody;
use super::{http1, http2};

/// No connection to an endpoint could be made; nothing was sent.
#[derive(Debug)]
pub(crate) struct ConnectError {
    cause: Cause,
    text: String,
}

impl ConnectError {
    /// `Dns`, `ConnectRefused` (by every address), `ConnectTimeout` (by one at least) or
    /// `ConnectFailed`.
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

/// An endpoint as it is dialled.
#[derive(Debug)]
pub(super) struct Target {
    host: String,
    port: u16,
    last_good: Mutex<Option<IpAddr>>,
}

impl Target {
    pub(super) const fn new(host: String, port: u16) -> Self {
        Self { host, port, last_good: Mutex::new(None) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Why one address did not work.
#[derive(Debug)]
pub(super) enum AttemptError {
    /// TCP.
    Io(io::Error),
    /// hyper's handshake.
    Handshake(hyper::Error),
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
            Self::Io(_) | Self::Handshake(_) | Self::Preface => Cause::ConnectFailed,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Handshake(error) => error.fmt(f),
            Self::Preface => f.write_str("closed before HTTP/2 settings"),
            Self::Elapsed => f.write_str("timed out"),
        }
    }
}

/// Resolves the target and tries its addresses until `attempt` succeeds with one.
///
/// # Errors
///
/// Why none did; see [`ConnectError::cause`].
pub(super) async fn connect<T, F>(
    target: &Target,
    resolver: &Resolver,
    clock: &Clock,
    limit: Duration,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, ConnectError>
where
    F: Future<Output = Result<T, AttemptError>>,
{
    let deadline = clock.now().after(limit);
    let addresses = resolver.resolve(&target.host, limit).await.map_err(|error| ConnectError {
        cause: Cause::Dns,
        text: format!("resolve {}: {error}", target.host),
    })?;
    let last_good = *target.last_good.lock();
    let first = addresses.iter().position(|ip| Some(*ip) == last_good).unwrap_or(0);
    let in_turn = addresses.iter().cycle().skip(first).take(addresses.len());
    let mut failure = Failure::default();
    for (left, ip) in (1..=u32::try_from(addresses.len()).unwrap_or(u32::MAX)).rev().zip(in_turn) {
        let now = clock.now();
        let share = now.after(now.until(deadline) / left);
        let address = SocketAddr::new(*ip, target.port);
        let made = timeout_at(clock.instant(share), attempt(address)).await;
        match made.unwrap_or(Err(AttemptError::Elapsed)) {
            Ok(made) => {
                *target.last_good.lock() = Some(*ip);
                return Ok(made);
            }
            Err(error) => failure.note(address, &error),
        }
    }
    Err(failure.into_error(target))
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
    /// Connects to one address and speaks the pool's protocol with it.
    ///
    /// # Errors
    ///
    /// Why it did not work.
    pub(super) async fn open(
        self: &Arc<Self>,
        endpoint: usize,
        address: SocketAddr,
    ) -> Result<Arc<Conn<B>>, AttemptError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(TCP_KEEPALIVE);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let facts = Arc::new(ConnFacts::new(NEXT_ID.fetch_add(1, Ordering::Relaxed), endpoint));
        match self.settings.protocol {
            PoolProtocol::Http1 => http1::open(self, facts, stream).await,
            PoolProtocol::H2c => http2::open(self, facts, stream).await,
        }
    }
}

/// Numbers connections.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// Silence after which the kernel probes an established connection. Source: own choice: below
/// the idle times of common firewalls, and an exchange in the middle of a long answer has no
/// other way to notice a peer that is gone.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
