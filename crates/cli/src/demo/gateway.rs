//! A gateway as a process of its own: started, awaited until ready, ended with the caller.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use seawall::Clock;
use tokio::sync::watch;

/// A running `seawall run`; killed when dropped.
#[derive(Debug)]
pub struct GatewayProcess {
    process: Process,
    clock: Clock,
    address: SocketAddr,
    admin: SocketAddr,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl GatewayProcess {
    /// Runs `command`, which is or becomes a `seawall run`, and waits until it has told where it
    /// listens. It is a process group of its own, so that a Ctrl-C in the terminal reaches it
    /// through its owner only.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready within 10 seconds; with what it said.
    pub async fn start(clock: Clock, mut command: Command) -> anyhow::Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let mut process = Process(child);
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let (tell, mut told) = watch::channel(Told::default());
        if let Some(stderr) = process.0.stderr.take() {
            let lines = Arc::clone(&lines);
            std::thread::spawn(move || listen(BufReader::new(stderr), &lines, &tell));
        }
        let wait = told.wait_for(|told| told.ended || told.addresses().is_some());
        let addresses = match tokio::time::timeout(READY_TIMEOUT, wait).await {
            Ok(Ok(told)) => told.addresses(),
            _ => None,
        };
        let Some((address, admin)) = addresses else {
            bail!("the gateway did not become ready; it said:\n{}", join(&lines));
        };
        Ok(Self { process, clock, address, admin, lines })
    }

    /// Where it takes requests.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators look in.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// The last lines it wrote to standard error.
    #[must_use]
    pub fn said(&self) -> String {
        join(&self.lines)
    }

    /// Sends SIGTERM: the drain begins.
    pub fn terminate(&self) {
        if let Some(pid) = i32::try_from(self.process.0.id()).ok().and_then(Pid::from_raw) {
            // An error means that it has ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end, for at most `patience`.
    ///
    /// # Errors
    /// If it has not ended by then.
    pub async fn wait(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let until = self.clock.now().after(patience);
        loop {
            if let Some(status) = self.process.0.try_wait()? {
                return Ok(status);
            }
            if self.clock.now() >= until {
                bail!("the gateway still runs {patience:?} later");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// A child that does not outlive its owner.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the process has told so far.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    listener: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    ended: bool,
}

impl Told {
    fn addresses(self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.listener?, self.admin?))
    }
}

fn join(lines: &Mutex<VecDeque<String>>) -> String {
    lines.lock().iter().map(|line| format!("  {line}\n")).collect()
}

/// Reads what the gateway says until it ends.
fn listen(stderr: impl BufRead, lines: &Mutex<VecDeque<String>>, tell: &watch::Sender<Told>) {
    for line in stderr.lines().map_while(Result::ok) {
        let listening = ["listening on http://", "listening on https://"];
        if let Some(listener) = listening.iter().find_map(|begin| address(&line, begin)) {
            tell.send_modify(|told| told.listener = told.listener.or(Some(listener)));
        }
        if let Some(admin) = address(&line, "admin on http://") {
            tell.send_modify(|told| told.admin = told.admin.or(Some(admin)));
        }
        let mut lines = lines.lock();
        if lines.len() == LINES_KEPT {
            lines.pop_front();
        }
        lines.push_back(line);
    }
    tell.send_modify(|told| told.ended = true);
}

/// The address after `prefix`, if the line has it.
fn address(line: &str, prefix: &str) -> Option<SocketAddr> {
    let rest = &line[line.find(prefix)? + prefix.len()..];
    rest.split_whitespace().next()?.trim_end_matches(',').parse().ok()
}

/// From start to both sockets bound; takes milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the end of the process is looked for.
const POLL: Duration = Duration::from_millis(10);
/// Lines of standard error kept for a message.
const LINES_KEPT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_ready_lines_and_from_no_other() {
        let read = |line| address(line, "listening on http://");
        assert_eq!(read("listening on http://127.0.0.1:8080"), "127.0.0.1:8080".parse().ok());
        assert_eq!(
            read("seawall: listening on http://[::1]:8080 (h1, h2c)"),
            "[::1]:8080".parse().ok()
        );
        assert_eq!(read("admin on http://127.0.0.1:9901"), None);
        assert_eq!(read("listening on http://nowhere"), None);
    }
}
