//! From a configuration to a serving process, and from SIGTERM to its end.
//!
//! Order of the start: admin port, upstreams, listeners; so a probe is answered from the first
//! moment, and `/ready` says no until a request would be taken. SIGTERM, SIGINT and SIGQUIT begin
//! the drain, a second one hastens it. SIGHUP reads the configuration and the certificates again.
//! SIGUSR1 and SIGUSR2 are answered with a line: who sends one to rotate a log must not end the
//! process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use seawall::Clock;
use seawall_policy::{ConfigError, DoorParams, SpreadParams};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::access_log::AccessLog;
use crate::admin::Admin;
use crate::backend::Backend;
use crate::config::{self, GatewayConfig, ListenAddress};
use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::Gateway;
use crate::notify;
use crate::pipeline::handle_request;
use crate::reload::{Reloader, watch_file};
use crate::server::{
    DrainPhases, DrainTrigger, Listener, ListenerOptions, Server, ServerOptions, drain_signal,
    max_connections_default, raise_file_limit,
};
use crate::signals::{Signals, listen_to_signals};
use crate::tls::{ListenerTls, TlsStore};

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Connections that had to be cut.
    pub connections_cut: usize,
    /// Requests that had to be cut.
    pub requests_cut: usize,
    /// From the first signal to the end.
    pub took: Duration,
}

/// Why the process could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port or a socket could not be taken.
    #[error("listen on {address}: {cause}{}", hint(cause.kind()))]
    Bind {
        /// Which.
        address: String,
        /// Why. Told with the hint: as a cause in the chain it would be said twice.
        cause: io::Error,
    },
    /// The system refused threads or signals.
    #[error("start the process")]
    System(#[from] io::Error),
    /// Options that contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What to look at when a port or a socket cannot be taken.
const fn hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "; is another process using it?",
        io::ErrorKind::AddrNotAvailable => "; the address is not one of this machine's",
        io::ErrorKind::NotFound => "; is the folder of the socket there?",
        _ => "",
    }
}

/// Serves `config` until SIGTERM has been answered by a drain.
///
/// # Errors
/// The process could not start; nothing was served.
pub async fn run(config: GatewayConfig) -> Result<Ended, RunError> {
    let clock = Clock::new();
    let diagnostics = Diagnostics::stderr(clock)?;
    let access_log = match config.access_log {
        config::AccessLog::Stdout => AccessLog::stdout()?,
        config::AccessLog::Off => AccessLog::off(),
    };
    let ended = run_with(config, access_log, clock, &diagnostics).await;
    if let Ok(ended) = &ended {
        diagnostics.info(
            Topic::Drain,
            "drained",
            &[
                ("took_ms", &ended.took.as_millis()),
                ("connections_cut", &ended.connections_cut),
                ("requests_cut", &ended.requests_cut),
            ],
        );
    }
    diagnostics.close().await;
    ended
}

async fn run_with(
    config: GatewayConfig,
    access_log: AccessLog,
    clock: Clock,
    diagnostics: &Diagnostics,
) -> Result<Ended, RunError> {
    // Taken first: a signal during the start begins the drain, and does not kill.
    let signals = Signals::new()?;
    let serving = serve(config, access_log, true, clock, diagnostics).await?;
    let reloader = Arc::clone(&serving.reloader);
    let reload = move |by| reloader.ask(by);
    let trigger = serving.trigger.clone();
    notify::tell(notify::READY);
    let listening = listen_to_signals(trigger, reload, signals, diagnostics.clone());
    let listening = tokio::spawn(listening);
    let ended = serving.ended().await;
    listening.abort();
    Ok(ended)
}

/// Serves `config` on the present runtime and returns once it does. Access log lines go to
/// `access_log`, whatever the configuration says; diagnostics nowhere; signals are not listened
/// to. For tests, and for programs that hold a gateway within.
///
/// # Errors
/// As [`run`].
pub async fn start(
    config: GatewayConfig,
    access_log: impl io::Write + Send + 'static,
) -> Result<Serving, RunError> {
    let clock = Clock::new();
    let diagnostics = Diagnostics::to(io::sink(), false, clock)?;
    serve(config, AccessLog::to(access_log)?, false, clock, &diagnostics).await
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Serving {
    admin: SocketAddr,
    listeners: Vec<SocketAddr>,
    trigger: DrainTrigger,
    reloader: Arc<Reloader>,
    task: JoinHandle<Ended>,
}

impl Serving {
    /// The address of the admin port.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The addresses of the listeners that have a port, in the order of the configuration.
    #[must_use]
    pub fn listeners(&self) -> &[SocketAddr] {
        &self.listeners
    }

    /// Begins the drain; asked again it goes on to the last phase, and then to the end.
    pub fn drain(&self) {
        self.trigger.signal();
    }

    /// Waits until the drain is over.
    pub async fn ended(self) -> Ended {
        match self.task.await {
            Ok(ended) => ended,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
}

async fn serve(
    config: GatewayConfig,
    access_log: AccessLog,
    owns_log: bool,
    clock: Clock,
    diagnostics: &Diagnostics,
) -> Result<Serving, RunError> {
    let admin = bind_admin(&config)?;
    let gateway = Gateway::new(config, access_log, diagnostics.clone(), clock)?;
    let file_limit = raise_file_limit();
    let options = server_options(&gateway.config, file_limit);
    let server = Server::new(options, clock, gateway.config.listeners.len());
    let (control, drain) = (server.control(), server.drain_view());
    let reloader = Reloader::new(Arc::clone(&gateway), control, drain, file_limit, owns_log);
    let backend = Backend::new(&reloader, &server);
    let (stop_admin, admin_stopped) = oneshot::channel::<()>();
    let admin_address = admin.address();
    let serving = admin.serve(backend.clone(), diagnostics.clone(), async move {
        // The sender's end is the signal.
        let _ = admin_stopped.await;
    });
    let admin = tokio::spawn(serving);
    let listeners = bind_listeners(&gateway, diagnostics)?;
    let addresses = listeners.iter().filter_map(|(socket, _)| socket.tcp_address()).collect();
    diagnostics.info(Topic::Start, &format!("admin on http://{admin_address}"), &[]);
    diagnostics.info(
        Topic::Start,
        "ready",
        &[("max_connections", &options.max_connections), ("file_limit", &file_limit)],
    );
    let (trigger, signalled) = drain_signal();
    let tasks = background(&reloader);
    gateway.begin_checks();
    backend.set_listening();
    let shared = Arc::clone(&reloader);
    let handler = move |request, connection| handle_request(shared.gateway(), request, connection);
    let ending = Arc::clone(&reloader);
    let task = tokio::spawn(async move {
        let report = server.run(listeners, handler, signalled).await;
        tasks.iter().for_each(JoinHandle::abort);
        ending.close();
        let gateway = ending.gateway();
        // What was cut just now has its line to leave.
        gateway.live.settle(LAST_LINES).await;
        gateway.access_log.close().await;
        drop(stop_admin);
        let _ = admin.await;
        Ended {
            connections_cut: report.connections_cut,
            requests_cut: report.requests_cut,
            took: report.took,
        }
    });
    Ok(Serving { admin: admin_address, listeners: addresses, trigger, reloader, task })
}

/// What goes on beside the requests.
fn background(reloader: &Arc<Reloader>) -> [JoinHandle<()>; 4] {
    let (asked, watched) = (Arc::clone(reloader), Arc::clone(reloader));
    let certificates = Arc::clone(reloader);
    [
        tokio::spawn(housekeep(Arc::clone(reloader))),
        tokio::spawn(async move { asked.run().await }),
        tokio::spawn(async move { watch_file(&watched).await }),
        tokio::spawn(TlsStore::watch(move || Arc::clone(&certificates.gateway().tls))),
    ]
}

pub(crate) fn server_options(config: &GatewayConfig, file_limit: u64) -> ServerOptions {
    let limits = &config.limits;
    let idle = config.upstreams.iter().map(|upstream| upstream.timeouts.idle).max();
    let unset = ServerOptions::default();
    ServerOptions {
        max_connections: limits
            .max_connections
            // As in the configuration, each listener has a place to wait with.
            .unwrap_or_else(|| max_connections_default(file_limit).max(config.listeners.len())),
        head_bytes: limits.head_bytes,
        head_fields: limits.head_fields,
        h2_streams: limits.h2_streams,
        // A caller may take nothing for as long as the most patient upstream may give nothing.
        write_stall: idle.unwrap_or(unset.write_stall),
        drain: DrainPhases {
            accept: config.drain.accept,
            in_flight: config.drain.in_flight,
            close: config.drain.close,
        },
    }
}

fn bind_admin(config: &GatewayConfig) -> Result<Admin, RunError> {
    let address = config.admin;
    let bound = Admin::bind(address);
    bound.map_err(|cause| RunError::Bind { address: address.to_string(), cause })
}

fn bind_listeners(
    gateway: &Arc<Gateway>,
    diagnostics: &Diagnostics,
) -> Result<Vec<(Listener, ListenerOptions)>, RunError> {
    let mut listeners = Vec::new();
    for (index, listener) in gateway.config.listeners.iter().enumerate() {
        let tls = gateway.tls.listener(index).cloned();
        let socket = open_listener(&listener.address)?;
        let url = socket.url(tls.is_some());
        diagnostics.info(Topic::Start, &format!("listening on {url}"), &[]);
        listeners.push((socket, listener_options(listener, tls)));
    }
    Ok(listeners)
}

/// # Errors
/// Why it cannot be, as it is told.
pub(crate) fn open_listener(address: &ListenAddress) -> Result<Listener, RunError> {
    Listener::open(address).map_err(|cause| RunError::Bind { address: address.to_string(), cause })
}

pub(crate) fn listener_options(
    listener: &config::Listener,
    tls: Option<Arc<ListenerTls>>,
) -> ListenerOptions {
    let trusted = listener.trusted_peers.clone();
    ListenerOptions {
        first_byte_timeout: listener.first_byte_timeout,
        head_timeout: listener.head_timeout,
        idle_timeout: listener.idle_timeout,
        max_age: listener.max_age,
        // Checked when the gateway was made.
        door: DoorParams::new(listener.door).unwrap_or(DoorParams::OPEN),
        ipv6_prefix: listener.ipv6_prefix,
        stall: listener.slow_readers.stall,
        ends: SpreadParams::new(listener.slow_readers.close_rate).unwrap_or_default(),
        send_buffer: listener.slow_readers.send_buffer,
        proxies: listener.proxies.as_deref().map(Arc::from),
        tls,
        is_trusted: Arc::new(move |peer| trusted.iter().any(|range| range.contains(peer))),
    }
}

/// Does what is due, ten times a second, for as long as the process lives.
async fn housekeep(reloader: Arc<Reloader>) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        reloader.gateway().housekeep();
    }
}

/// Source: seawall-design.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Longer than any request takes to notice that its connection is gone. Source: seawall-design.
const LAST_LINES: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_port_that_cannot_be_taken_is_told_once_with_what_to_look_at() {
        for (kind, told) in [
            (io::ErrorKind::AddrInUse, "; is another process using it?"),
            (io::ErrorKind::AddrNotAvailable, "; the address is not one of this machine's"),
            (io::ErrorKind::NotFound, "; is the folder of the socket there?"),
            (io::ErrorKind::PermissionDenied, ""),
        ] {
            let error =
                RunError::Bind { address: "127.0.0.1:80".parse().unwrap(), cause: kind.into() };
            let cause = io::Error::from(kind);
            assert_eq!(error.to_string(), format!("listen on 127.0.0.1:80: {cause}{told}"));
            assert!(error.source().is_none());
        }
    }
}
