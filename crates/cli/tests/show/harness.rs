//! A stage for each claim: the process under test, the means to look into it, and a block of
//! figures printed at the end.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use parking_lot::Mutex;
use seawall::Clock;
use seawall_cli::demo::{
    Behaviour, Client, GatewayProcess, Ledger, Load, LoadOptions, Protocol, Upstream, get,
};
use seawall_policy::Timestamp;

/// Long enough for any answer that is going to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One claim being shown.
pub(crate) struct Stage {
    pub(crate) clock: Clock,
    full: bool,
    claim: &'static str,
    figures: Mutex<Vec<(String, String)>>,
}

/// Shows one claim; the claims of this binary never run at the same time.
pub(crate) fn show(claim: &'static str, body: impl AsyncFnOnce(&Stage)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let full = std::env::var("SEAWALL_SHOW").is_ok_and(|form| form == "full");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let stage = Stage { clock: Clock::new(), full, claim, figures: Mutex::default() };
    runtime.block_on(body(&stage));
}

impl Stage {
    /// This long in the short form, or that long in the full one.
    pub(crate) const fn pick<T: Copy>(&self, short: T, full: T) -> T {
        if self.full { full } else { short }
    }

    /// Seconds, in the short form or the full one.
    pub(crate) fn seconds(&self, short: f64, full: f64) -> Duration {
        Duration::from_secs_f64(self.pick(short, full))
    }

    /// Adds a line to the block.
    pub(crate) fn tell(&self, name: impl Into<String>, figure: impl Display) {
        self.figures.lock().push((name.into(), figure.to_string()));
    }

    /// An upstream that answers 200.
    pub(crate) async fn upstream(&self) -> Upstream {
        Upstream::start(self.clock).await.unwrap()
    }

    /// A gateway with nothing configured but its upstream.
    pub(crate) async fn gateway(&self, upstream: &str) -> Gateway {
        let mut command = Command::new(SEAWALL);
        command.args(["run", "--upstream", upstream, "--listen", FREE, "--admin", FREE]);
        self.start(command, Vec::new()).await
    }

    /// A gateway with a file of these sections, beside the listener and admin addresses.
    pub(crate) async fn configured(&self, sections: &str) -> Gateway {
        self.configured_listener("trusted_peers: [127.0.0.1/32]", sections).await
    }

    /// The same, with these keys for the listener.
    pub(crate) async fn configured_listener(&self, listener: &str, sections: &str) -> Gateway {
        let file = Self::file(listener, sections);
        let mut command = Command::new(SEAWALL);
        command.args(["run", "--config"]).arg(&file.0);
        self.start(command, vec![file]).await
    }

    /// A gateway with this file, which stays its owner's to change.
    pub(crate) async fn following(&self, file: &Path) -> Gateway {
        let mut command = Command::new(SEAWALL);
        command.args(["run", "--config"]).arg(file);
        self.start(command, Vec::new()).await
    }

    /// As [`Stage::configured`], in a world whose only name server never answers. `None` where
    /// that cannot be had: it takes a mount namespace and port 53 of a loopback address.
    pub(crate) async fn without_names(&self, sections: &str) -> Option<(Gateway, UdpSocket)> {
        let silent = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 77), 53)).ok()?;
        let may = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
        may.ok().filter(ExitStatus::success)?;
        let names = TempFile::write("nameserver 127.0.0.77\n");
        let file = Self::file("trusted_peers: [127.0.0.1/32]", sections);
        let mut command = Command::new("unshare");
        command
            .args([
                "-m",
                "sh",
                "-c",
                "mount --bind \"$1\" /etc/resolv.conf && exec \"$2\" run --config \"$3\"",
                "sh",
            ])
            .arg(&names.0)
            .arg(SEAWALL)
            .arg(&file.0);
        Some((self.start(command, vec![names, file]).await, silent))
    }

    fn file(listener: &str, sections: &str) -> TempFile {
        TempFile::write(&format!(
            "version: 1\nlisteners: [{{address: \"{FREE}\", {listener}}}]\n\
             admin: {{address: \"{FREE}\"}}\naccess_log: off\n{sections}"
        ))
    }

    async fn start(&self, command: Command, files: Vec<TempFile>) -> Gateway {
        match GatewayProcess::start(self.clock, command).await {
            Ok(process) => Gateway { process, _files: files },
            Err(error) => {
                let texts = files.iter().map(|file| std::fs::read_to_string(&file.0).unwrap());
                panic!("{error:#}\n{}", texts.collect::<String>())
            }
        }
    }

    /// Sleeps.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep_until(self.clock.instant(self.clock.now().after(time))).await;
    }

    /// Starts a load of `GET path?call=n`, the first due now.
    pub(crate) fn load(&self, client: &Arc<Client>, options: LoadOptions, path: &str) -> Load {
        let path = path.to_owned();
        self.load_of(client, options, move |number| get(&format!("{path}?call={number}")))
    }

    /// Starts a load of any requests.
    pub(crate) fn load_of(
        &self,
        client: &Arc<Client>,
        options: LoadOptions,
        request: impl Fn(u64) -> Request<Full<bytes::Bytes>> + Send + Sync + 'static,
    ) -> Load {
        Load::start(self.clock, self.clock.now(), Arc::clone(client), options, request)
    }

    /// Runs a load of `GET path?call=n` for this long.
    pub(crate) async fn load_for(
        &self,
        time: Duration,
        client: &Arc<Client>,
        options: LoadOptions,
        path: &str,
    ) -> Ledger {
        let load = self.load(client, options, path);
        self.pass(time).await;
        load.stop().await
    }

    /// Waits until something holds; fails after `patience` with what was waited for.
    pub(crate) async fn until(&self, what: &str, patience: Duration, holds: impl Fn() -> bool) {
        let end = self.clock.now().after(patience);
        while !holds() {
            assert!(self.clock.now() < end, "waited {patience:?} for: {what}");
            self.pass(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let form = if self.full { "full" } else { "short form" };
        let width = self.figures.get_mut().iter().map(|(name, _)| name.chars().count()).max();
        let width = width.unwrap_or(0);
        let mut block = format!("\n  {} ({form})\n", self.claim);
        for (name, figure) in self.figures.get_mut().iter() {
            block += &format!("    {name:<width$}  {figure}\n");
        }
        // Written past the harness of the tests, which would hide it when the test passes.
        let _ = std::io::stdout().lock().write_all(block.as_bytes());
    }
}

/// The process under test.
pub(crate) struct Gateway {
    pub(crate) process: GatewayProcess,
    _files: Vec<TempFile>,
}

impl Gateway {
    /// A client of its listener.
    pub(crate) fn client(&self, protocol: Protocol) -> Arc<Client> {
        Client::new(self.process.address(), protocol)
    }

    /// `http://` and its listener.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.process.address())
    }

    /// The status of a path of the admin port.
    pub(crate) async fn admin(&self, path: &str) -> Option<u16> {
        let client = Client::new(self.process.admin(), Protocol::Http1);
        let answer = client.send(get(path), PATIENCE).await.ok()?;
        Some(answer.status.as_u16())
    }

    /// The sum of the samples with this name whose labels contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let client = Client::new(self.process.admin(), Protocol::Http1);
        let answer = client.send(get("/metrics"), PATIENCE).await.unwrap();
        assert_eq!(answer.status, 200);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        let samples: Vec<&str> = text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .collect();
        assert!(!samples.is_empty(), "no metric {name} in\n{text}");
        samples
            .iter()
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// How often a breaker has opened.
    pub(crate) async fn openings(&self) -> f64 {
        self.metric("seawall_breaker_transitions_total", &["to=\"open\""]).await
    }

    /// The time that it has spent on processors so far, to a hundredth of a second.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid())).unwrap();
        // Behind the name, which may hold anything, come the state and ten numbers.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let ticks = rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// A figure of `/proc/PID/status`, in KiB.
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// A file that goes when its gateway does.
struct TempFile(PathBuf);

impl TempFile {
    fn write(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("seawall-show-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An upstream that does this with everything.
pub(crate) async fn upstream_of(stage: &Stage, behaviour: Behaviour) -> Upstream {
    let upstream = stage.upstream().await;
    upstream.set(behaviour);
    upstream
}

/// A request of any method with these fields.
pub(crate) fn request(
    method: &str,
    path: &str,
    body: &'static str,
    fields: &[(&'static str, &str)],
) -> Request<Full<bytes::Bytes>> {
    let mut request = get(path).map(|_| Full::from(body));
    *request.method_mut() = method.parse().unwrap();
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

/// Milliseconds with one digit.
pub(crate) fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Every moment there is.
pub(crate) const EVER: (Timestamp, Timestamp) = (Timestamp::ZERO, Timestamp::MAX);
const FREE: &str = "127.0.0.1:0";
const SEAWALL: &str = env!("CARGO_BIN_EXE_seawall");
