//! From a configuration to a serving process, and from SIGTERM to its end.
//!
//! Order of the start: admin port, upstreams, listeners; so a probe is answered from the first
//! moment, and `/ready` says no until a request would be taken. SIGTERM, SIGINT and SIGQUIT begin
//! the drain, a second one hastens it. SIGHUP reads the certificates again. SIGUSR1 and SIGUSR2 are
//! answered with a line and do nothing: who sends one to rotate a log must not end the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use seawall::Clock;
use seawall_policy::ConfigError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::access_log::AccessLog;
use crate::admin::Admin;
use crate::backend::Backend;
use crate::config::{self, GatewayConfig};
use crate::diagnostics::{Diagnostics, Topic};
use crate::gateway::Gateway;
use crate::notify;
use crate::pipeline::handle_request;
use crate::server::{
    DrainPhases, DrainTrigger, ListenerOptions, Server, ServerOptions, bind, drain_signal,
    max_connections_default, raise_file_limit,
};
use crate::tls::TlsStore;

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
    /// A port could not be taken.
    #[error("listen on {address}: {cause}{}", hint(cause.kind()))]
    Bind {
        /// Which.
        address: SocketAddr,
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

/// What to look at when a port cannot be taken.
const fn hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "; is another process using it?",
        io::ErrorKind::AddrNotAvailable => "; the address is not one of this machine's",
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
    let serving = serve(config, access_log, clock, diagnostics).await?;
    let (trigger, tls) = (serving.trigger.clone(), Arc::clone(&serving.tls));
    notify::tell(notify::READY);
    let listening = listen_to_signals(trigger, tls, signals, diagnostics.clone());
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
    serve(config, AccessLog::to(access_log)?, clock, &diagnostics).await
}

/// A gateway that serves.
#[derive(Debug)]
pub struct Serving {
    admin: SocketAddr,
    listeners: Vec<SocketAddr>,
    trigger: DrainTrigger,
    tls: Arc<TlsStore>,
    task: JoinHandle<Ended>,
}

impl Serving {
    /// The address of the admin port.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The addresses of the listeners, in the order of the configuration.
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
    clock: Clock,
    diagnostics: &Diagnostics,
) -> Result<Serving, RunError> {
    let admin = bind_admin(&config).await?;
    let gateway = Gateway::new(config, access_log, diagnostics.clone(), clock)?;
    let file_limit = raise_file_limit();
    let options = server_options(&gateway, file_limit);
    let server = Server::new(options, clock, gateway.config.listeners.len());
    let backend = Backend::new(&gateway, &server, options.max_connections);
    let (stop_admin, admin_stopped) = oneshot::channel::<()>();
    let admin_address = admin.address();
    let serving = admin.serve(backend.clone(), diagnostics.clone(), async move {
        // The sender's end is the signal.
        let _ = admin_stopped.await;
    });
    let admin = tokio::spawn(serving);
    let listeners = bind_listeners(&gateway, diagnostics)?;
    let addresses = listeners.iter().map(|(socket, _)| socket.local_addr());
    let addresses = addresses.collect::<io::Result<_>>()?;
    diagnostics.info(Topic::Start, &format!("admin on http://{admin_address}"), &[]);
    diagnostics.info(
        Topic::Start,
        "ready",
        &[("max_connections", &options.max_connections), ("file_limit", &file_limit)],
    );
    let (trigger, signalled) = drain_signal();
    let tasks = [
        tokio::spawn(housekeep(Arc::clone(&gateway))),
        backend.watch_kill_switch(),
        tokio::spawn(Arc::clone(&gateway.tls).watch()),
    ];
    backend.set_listening();
    let (shared, tls) = (Arc::clone(&gateway), Arc::clone(&gateway.tls));
    let handler =
        move |request, connection| handle_request(Arc::clone(&shared), request, connection);
    let task = tokio::spawn(async move {
        let report = server.run(listeners, handler, signalled).await;
        tasks.iter().for_each(JoinHandle::abort);
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
    Ok(Serving { admin: admin_address, listeners: addresses, trigger, tls, task })
}

fn server_options(gateway: &Gateway, file_limit: u64) -> ServerOptions {
    let limits = &gateway.config.limits;
    let idle = gateway.config.upstreams.iter().map(|upstream| upstream.timeouts.idle).max();
    let unset = ServerOptions::default();
    ServerOptions {
        max_connections: limits
            .max_connections
            // As in the configuration, each listener has a place to wait with.
            .unwrap_or_else(|| {
                max_connections_default(file_limit).max(gateway.config.listeners.len())
            }),
        head_bytes: limits.head_bytes,
        head_fields: limits.head_fields,
        h2_streams: limits.h2_streams,
        // A caller may take nothing for as long as the most patient upstream may give nothing.
        write_stall: idle.unwrap_or(unset.write_stall),
        drain: DrainPhases {
            accept: gateway.config.drain.accept,
            in_flight: gateway.config.drain.in_flight,
            close: gateway.config.drain.close,
        },
    }
}

async fn bind_admin(config: &GatewayConfig) -> Result<Admin, RunError> {
    let address = config.admin;
    Admin::bind(address).await.map_err(|cause| RunError::Bind { address, cause })
}

fn bind_listeners(
    gateway: &Arc<Gateway>,
    diagnostics: &Diagnostics,
) -> Result<Vec<(tokio::net::TcpListener, ListenerOptions)>, RunError> {
    let mut listeners = Vec::new();
    for (index, listener) in gateway.config.listeners.iter().enumerate() {
        let tls = gateway.tls.listener(index).cloned();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = listener.address;
        let socket = bind(address).map_err(|cause| RunError::Bind { address, cause })?;
        let bound = socket.local_addr()?;
        diagnostics.info(Topic::Start, &format!("listening on {scheme}://{bound}"), &[]);
        let trusted = listener.trusted_peers.clone();
        listeners.push((
            socket,
            ListenerOptions {
                first_byte_timeout: listener.first_byte_timeout,
                head_timeout: listener.head_timeout,
                idle_timeout: listener.idle_timeout,
                max_age: listener.max_age,
                tls,
                is_trusted: Arc::new(move |peer| trusted.iter().any(|range| range.contains(peer))),
            },
        ));
    }
    Ok(listeners)
}

/// Does what is due, ten times a second, for as long as the process lives.
async fn housekeep(gateway: Arc<Gateway>) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        gateway.housekeep();
    }
}

/// Every signal that means something to a server, each of which would else end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy)]
enum Asked {
    Drain,
    Reload,
    Nothing,
}

impl Signals {
    /// Catches them from now on.
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    async fn next(&mut self) -> (&'static str, Asked) {
        tokio::select! {
            _ = self.terminate.recv() => ("SIGTERM", Asked::Drain),
            _ = self.interrupt.recv() => ("SIGINT", Asked::Drain),
            _ = self.quit.recv() => ("SIGQUIT", Asked::Drain),
            _ = self.hangup.recv() => ("SIGHUP", Asked::Reload),
            _ = self.user1.recv() => ("SIGUSR1", Asked::Nothing),
            _ = self.user2.recv() => ("SIGUSR2", Asked::Nothing),
        }
    }
}

async fn listen_to_signals(
    trigger: DrainTrigger,
    tls: Arc<TlsStore>,
    mut signals: Signals,
    diagnostics: Diagnostics,
) {
    let mut message = "draining; a second signal hastens";
    loop {
        let (name, asked) = signals.next().await;
        match asked {
            Asked::Drain => {
                diagnostics.info(Topic::Drain, message, &[("signal", &name)]);
                message = "draining, hastened";
                notify::tell(notify::STOPPING);
                trigger.signal();
            }
            Asked::Reload => reload(&tls, name, &diagnostics).await,
            Asked::Nothing => diagnostics.info(
                Topic::Signal,
                "this signal does nothing yet; SIGTERM drains",
                &[("signal", &name)],
            ),
        }
    }
}

/// Reads the certificates again. The files may hang, and the next signal waits for them.
async fn reload(tls: &Arc<TlsStore>, signal: &str, diagnostics: &Diagnostics) {
    let reloaded = Arc::clone(tls).reload_apart().await;
    diagnostics.info(
        Topic::Signal,
        "certificates read again; the configuration is not",
        &[("signal", &signal), ("renewed", &reloaded.changed), ("failed", &reloaded.failed.len())],
    );
}

/// Source: seawall-design.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Longer than any request takes to notice that its connection is gone. Source: seawall-design.
const LAST_LINES: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::lines::tests::Page;

    #[test]
    fn a_port_that_cannot_be_taken_is_told_once_with_what_to_look_at() {
        for (kind, told) in [
            (io::ErrorKind::AddrInUse, "; is another process using it?"),
            (io::ErrorKind::AddrNotAvailable, "; the address is not one of this machine's"),
            (io::ErrorKind::PermissionDenied, ""),
        ] {
            let error =
                RunError::Bind { address: "127.0.0.1:80".parse().unwrap(), cause: kind.into() };
            let cause = io::Error::from(kind);
            assert_eq!(error.to_string(), format!("listen on 127.0.0.1:80: {cause}{told}"));
            assert!(error.source().is_none());
        }
    }

    /// Sends a signal to this process, which catches it.
    fn send(name: &str) {
        let pid = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    #[tokio::test]
    async fn three_signals_drain_and_three_are_answered_with_a_line() {
        let config = GatewayConfig::for_upstream("http://127.0.0.1:1", None, None).unwrap().0;
        let page = Page::default();
        let diagnostics = Diagnostics::to(page.clone(), false, Clock::new()).unwrap();
        let (trigger, _signalled) = drain_signal();
        let signals = Signals::new().unwrap();
        let tls = TlsStore::load(&config, diagnostics.clone(), Clock::new()).unwrap();
        let listening = listen_to_signals(trigger.clone(), tls, signals, diagnostics);
        let listening = tokio::spawn(listening);
        for (name, drains) in
            [("HUP", 0), ("USR1", 0), ("USR2", 0), ("QUIT", 1), ("INT", 2), ("TERM", 3)]
        {
            send(name);
            let told = async {
                while !page.text().contains(&format!("signal=SIG{name}")) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), told).await.expect(name);
            let text = page.text();
            let line = text.lines().last().unwrap();
            let words = match (name, drains) {
                ("HUP", _) => "certificates read again",
                (_, 0) => "does nothing yet",
                _ => "draining",
            };
            assert!(line.contains(words), "{line}");
            // The line is told just before.
            let drained = async {
                while trigger.signals() != drains {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), drained).await.expect(name);
        }
        listening.abort();
    }
}
