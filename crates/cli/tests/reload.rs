//! The binary reloads on SIGHUP: from the signal to what a request, the log and standard error say.
#![expect(clippy::unwrap_used, reason = "a helper of tests may fail them")]

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Fails the test where something is waited for in vain.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lines of a stream, from a thread of their own.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    receiver
}

/// An upstream that answers each request on a connection of its own.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                let heads = reader.by_ref().lines().map_while(Result::ok);
                heads.take_while(|line| !line.is_empty()).for_each(drop);
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                let _ = socket.write_all(answer.as_bytes());
            });
        }
    });
    address
}

/// The binary, at work under a file.
struct Running {
    process: Child,
    file: PathBuf,
    upstream: SocketAddr,
    said: Receiver<String>,
    logged: Receiver<String>,
    address: String,
    admin: String,
}

impl Running {
    /// With these lines in the file.
    fn start(more: &str) -> Self {
        let name = format!("seawall-hup-{}.yaml", std::process::id());
        let (file, upstream) = (std::env::temp_dir().join(name), upstream());
        write(&file, upstream, more);
        let mut process = Command::new(env!("CARGO_BIN_EXE_seawall"))
            .args(["run", "--workers", "1", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = lines(process.stderr.take().unwrap());
        let logged = lines(process.stdout.take().unwrap());
        let word = |mark: &str| {
            let line = until(&said, mark);
            let (_, rest) = line.split_once(mark).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        let address = word("listening on http://");
        let admin = word("admin on http://");
        until(&said, " ready ");
        Self { process, file, upstream, said, logged, address, admin }
    }

    /// Puts these lines in the file, and sends the signal; what was said of it. The process stands
    /// still meanwhile, so that it does not notice the change by itself first.
    fn hang_up(&self, more: &str) -> String {
        self.kill("STOP");
        write(&self.file, self.upstream, more);
        self.kill("HUP");
        self.kill("CONT");
        until(&self.said, " by=SIGHUP ")
    }

    fn kill(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// The whole answer to a GET.
    fn get(&self, path: &str) -> String {
        ask(&self.address, path)
    }

    fn metric(&self, series: &str) -> String {
        let text = ask(&self.admin, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} in {text}")).to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

fn write(file: &PathBuf, upstream: SocketAddr, more: &str) {
    let mut text = String::from("version: 1\nlisteners: [{address: 127.0.0.1:0}]\n");
    text.push_str("admin: {address: 127.0.0.1:0}\n");
    writeln!(text, "upstreams: {{up: {{endpoints: ['http://{upstream}']}}}}\n{more}").unwrap();
    // Whole at once: it is followed, too, and half a file would be refused.
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, file).unwrap();
}

fn ask(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// The next line that says this.
fn until(lines: &Receiver<String>, mark: &str) -> String {
    loop {
        let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nobody said {mark}"));
        if line.contains(mark) {
            return line;
        }
    }
}

#[test]
fn sighup_reloads_routes_and_log_refuses_what_is_wrong_and_says_all_of_it() {
    let marked = |word: &str| {
        let set = format!("response_headers: {{set: {{X-Round: {word}}}}}");
        format!("routes: [{{path_prefix: /, upstream: up, {set}}}]\n")
    };
    let applied = "seawall_config_reloads_total{result=\"applied\"}";
    let mut running = Running::start(&format!("access_log: off\n{}", marked("first")));
    assert!(running.get("/unseen").contains("x-round: first\r\n"));
    // The log is switched on by the reload: what came before it left no line.
    let line = running.hang_up(&marked("second"));
    assert!(line.contains("configuration reloaded by=SIGHUP hash="), "{line}");
    assert!(running.get("/seen").contains("x-round: second\r\n"));
    let line = running.logged.recv_timeout(PATIENCE).unwrap();
    assert!(line.contains("\"path\":\"/seen\""), "{line}");
    assert_eq!(running.metric(applied), "1");
    // What is wrong is told with its place and changes nothing.
    for (more, why) in [
        ("limitz: {head: 1KiB}\n", "did you mean `limits`?"),
        ("limits: {head_fields: 10, replay: 1TB}\n", "limits.replay"),
    ] {
        let line = running.hang_up(more);
        assert!(line.contains("configuration not reloaded: the one in force stays"), "{line}");
        assert!(line.contains(why), "{line}");
        assert!(running.get("/still").contains("x-round: second\r\n"));
        let line = running.logged.recv_timeout(PATIENCE).unwrap();
        assert!(line.contains("\"path\":\"/still\""), "{line}");
        assert_eq!(running.metric("seawall_config_last_reload_successful"), "0");
    }
    // Each error has its line, with all of its words.
    let line = running.hang_up("limitz: {head: 1KiB}\ndrains: {accept: 1s}\n");
    let next = until(&running.said, " by=SIGHUP ");
    for (line, key) in [(line, "`limits`"), (next, "`drain`")] {
        assert!(line.contains("the one in force stays by=SIGHUP hash="), "{line}");
        assert!(line.contains(&format!("did you mean {key}?")), "{line}");
        assert!(line.contains(".yaml:") && line.ends_with('"') && !line.contains('…'), "{line}");
    }
    // Off again: the line that comes next is of a request after it was on once more.
    let line = running.hang_up(&format!("access_log: off\n{}", marked("third")));
    assert!(line.contains("configuration reloaded"), "{line}");
    assert!(running.get("/unseen").contains("x-round: third\r\n"));
    let line = running.hang_up(&marked("fourth"));
    assert!(line.contains("configuration reloaded"), "{line}");
    assert!(running.get("/seen-again").contains("x-round: fourth\r\n"));
    let line = running.logged.recv_timeout(PATIENCE).unwrap();
    assert!(line.contains("\"path\":\"/seen-again\""), "{line}");
    assert_eq!(running.metric(applied), "3");
    // The same file once more is no change, and is said to be none.
    running.kill("HUP");
    until(&running.said, "configuration unchanged");
    for _ in 0..3 {
        running.kill("TERM");
    }
    assert!(running.process.wait().unwrap().success());
}
