//! Servers as child processes: on a free port, in a folder of their own, gone with their owner.
//!
//! Three nets: dropping a [`Process`] kills it, also when a test panics; the kernel kills it when
//! the thread that started it ends, also when the test run is interrupted; and what PostgreSQL had
//! forked notices that its postmaster is gone.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A folder under the system's temporary one; removed with this.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(what: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("seawall-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Given to somebody who is not root.
    pub(crate) fn give_to(&self, (user, group): (u32, u32)) {
        chown(&self.0, Some(user), Some(group)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that runs.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program that ends with the thread that calls this.
    pub(crate) fn start(
        program: &Path,
        user: Option<(u32, u32)>,
        args: &[&str],
        log: &Path,
    ) -> Self {
        let log = fs::File::create(log).unwrap();
        let mut command = bound(program, user);
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }

    /// Sends a signal to the process itself.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills it as a power cut would, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0.wait().unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that was stopped dies of this as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end.
pub(crate) fn run(program: &Path, user: Option<(u32, u32)>, args: &[&str]) {
    let output = bound(program, user).args(args).output().unwrap();
    if !output.status.success() {
        let _ = std::io::stderr().write_all(&output.stderr);
        panic!("{} {args:?}: {}", program.display(), output.status);
    }
}

/// A command that dies with its parent, as another user if one is given.
fn bound(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some((user, group)) = user {
        command.args(["--reuid", &user.to_string(), "--regid", &group.to_string()]);
        command.arg("--clear-groups");
    }
    command.arg("--").arg(program);
    command.current_dir(std::env::temp_dir());
    command
}

/// Whom to run as: nobody else, unless this is root and the server refuses that.
pub(crate) fn unprivileged() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    is_root.then(|| {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let find = |name: &str| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut ids = line.split(':').skip(2).filter_map(|id| id.parse().ok());
            Some((ids.next()?, ids.next()?))
        };
        find("postgres").or_else(|| find("nobody")).unwrap()
    })
}

/// A program of PostgreSQL or Redis, or the way to get it.
pub(crate) fn find(name: &str, package: &str) -> PathBuf {
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut folders: Vec<_> = debian.map(|entry| entry.unwrap().path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not here: apt-get install {package}"))
}

/// A port for a server that starts, is killed and starts again: no other server of this run is
/// given it, and it lies below those that the system gives to whom asks for any.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, ports) = (PORTS.start, PORTS.end - PORTS.start);
    for _ in PORTS {
        // Test runs side by side begin at different places.
        let at = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = u16::try_from(first + at % ports).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port of {PORTS:?} is free");
}

/// Starts a server by `start`, which is given a port, and waits until it says in its log that it
/// listens. A connection would prove nothing: another server may have taken the port in the same
/// moment. This one then ends, and there are some tries.
pub(crate) fn serve(
    mut ports: impl FnMut() -> u16,
    listens: &str,
    start: impl Fn(u16, &Path) -> Process,
) -> (Process, u16) {
    let folder = Folder::new("log");
    let log = folder.path().join("log");
    for _ in 0..5 {
        let port = ports();
        let mut process = start(port, &log);
        if says(listens, &log, &mut process) {
            return (process, port);
        }
    }
    panic!("the server does not start: {}", read(&log));
}

/// Whether the process says these words before it ends.
fn says(words: &str, log: &Path, process: &mut Process) -> bool {
    for _ in 0..TRIES {
        if process.has_ended() {
            return false;
        }
        if read(log).contains(words) {
            return true;
        }
        pause();
    }
    false
}

fn read(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned()
}

/// Between two looks at what another process does.
#[expect(clippy::disallowed_methods, reason = "a test that watches another process")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// 20 s of looking.
pub(crate) const TRIES: u32 = 1_000;

/// Below what Linux gives out by itself, which starts at 32,768.
const PORTS: Range<u32> = 12_000..32_000;
