//! The two ends of a gRPC call as other implementations make them: grpc-go, grpcio and tonic.
//!
//! Their sources are in `tests/grpc/`. They are made ready on first use, below the target folder:
//! the Go program is built, and grpcio is installed into an environment of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use http::uri::PathAndQuery;
use seawall::Clock;
use serde_json::{Value, json};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::metadata::{AsciiMetadataKey, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// Programs of other implementations, ready to run.
pub(crate) struct Peers {
    go: PathBuf,
    python: PathBuf,
}

impl Peers {
    /// Builds and installs them, unless that was done.
    pub(crate) fn ready() -> Self {
        Self { go: build_go(), python: install_python() }
    }

    /// A server made of grpc-go, which ends with what is returned.
    pub(crate) fn server(&self) -> Server {
        let mut child = Command::new(&self.go)
            .arg("server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { address: line.trim().parse().unwrap(), child }
    }

    /// A client of each kind.
    pub(crate) fn clients(&self) -> [Client; 3] {
        let script = Path::new(SOURCES).join("client.py");
        [
            Client::Program("grpc-go", self.go.clone(), "client".into()),
            Client::Program("grpcio", self.python.clone(), script),
            Client::Tonic,
        ]
    }
}

/// A server, and what reached it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Server {
    /// What arrived of the call of this id.
    pub(crate) async fn journal(&self, id: &str) -> Vec<Value> {
        let mut client = tonic_client(self.address).await;
        let request = Request::new(Bytes::copy_from_slice(id.as_bytes()));
        let path = PathAndQuery::from_static("/peer.Peer/Journal");
        let answer = client.unary(request, path, Raw).await.unwrap().into_inner();
        match serde_json::from_slice(&answer).unwrap() {
            Value::Array(arrivals) => arrivals,
            _ => Vec::new(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that makes calls and says what it saw of each.
#[derive(Clone)]
pub(crate) enum Client {
    /// A program that reads the calls and writes a line for each.
    Program(&'static str, PathBuf, PathBuf),
    /// In this process.
    Tonic,
}

impl Client {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Program(name, ..) => name,
            Self::Tonic => "tonic",
        }
    }

    /// Makes the calls one after the other.
    pub(crate) async fn make(&self, address: SocketAddr, calls: &[Value]) -> Vec<Value> {
        let calls = calls.to_vec();
        match self.clone() {
            Self::Program(_, program, argument) => {
                let run = move || run(&program, &argument, address, &calls);
                tokio::task::spawn_blocking(run).await.unwrap()
            }
            Self::Tonic => {
                let mut client = tonic_client(address).await;
                let mut seen = Vec::new();
                for call in &calls {
                    seen.push(make(&mut client, call).await);
                }
                seen
            }
        }
    }
}

fn run(program: &Path, argument: &Path, address: SocketAddr, calls: &[Value]) -> Vec<Value> {
    let mut child = Command::new(program)
        .arg(argument)
        .arg(address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&serde_json::to_vec(calls).unwrap()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{} {}", program.display(), argument.display());
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// A call of tonic's that is under way for as long as this is kept.
pub(crate) async fn hold(address: SocketAddr, method: &'static str) -> Streaming<Bytes> {
    let mut client = tonic_client(address).await;
    let request = Request::new(futures_util::stream::iter([Bytes::from_static(b"hold")]));
    let answer = client.streaming(request, PathAndQuery::from_static(method), Raw).await.unwrap();
    let mut stream = answer.into_inner();
    stream.message().await.unwrap().unwrap();
    stream
}

async fn tonic_client(address: SocketAddr) -> tonic::client::Grpc<Channel> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap())
        .max_decoding_message_size(8 << 20);
    client.ready().await.unwrap();
    client
}

/// What came of a call: how it ended, its trailers and the lengths of what it received.
struct Seen {
    ended: Result<(), Status>,
    trailers: MetadataMap,
    received: Vec<usize>,
}

async fn make(client: &mut tonic::client::Grpc<Channel>, call: &Value) -> Value {
    let method = call["method"].as_str().unwrap();
    let path: PathAndQuery = method.parse().unwrap();
    let sizes = call["send"].as_array().unwrap().iter();
    let messages: Vec<_> = sizes
        .map(|size| Bytes::from(vec![0; size.as_u64().unwrap().try_into().unwrap()]))
        .collect();
    let clock = Clock::new();
    let began = clock.now();
    client.ready().await.unwrap();
    let seen = if method.ends_with("/Unary") {
        let request = dressed(Request::new(messages[0].clone()), call);
        match client.unary(request, path, Raw).await {
            Ok(answer) => {
                let (trailers, body, _) = answer.into_parts();
                Seen { ended: Ok(()), trailers, received: vec![body.len()] }
            }
            Err(status) => refused(status, Vec::new()),
        }
    } else {
        let request = dressed(Request::new(futures_util::stream::iter(messages)), call);
        match client.streaming(request, path, Raw).await {
            Ok(answer) => receive(answer.into_inner(), call["cancel_after"].as_u64()).await,
            Err(status) => refused(status, Vec::new()),
        }
    };
    told(call, &seen, clock.now().since(began))
}

fn refused(status: Status, received: Vec<usize>) -> Seen {
    Seen { trailers: status.metadata().clone(), ended: Err(status), received }
}

async fn receive(mut stream: Streaming<Bytes>, cancel_after: Option<u64>) -> Seen {
    let mut received = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => received.push(message.len()),
            Ok(None) => break,
            Err(status) => return refused(status, received),
        }
        if Some(received.len() as u64) == cancel_after {
            return refused(Status::cancelled("dropped"), received);
        }
    }
    match stream.trailers().await {
        Ok(trailers) => Seen { ended: Ok(()), trailers: trailers.unwrap_or_default(), received },
        Err(status) => refused(status, received),
    }
}

fn dressed<T>(mut request: Request<T>, call: &Value) -> Request<T> {
    for (name, value) in call["metadata"].as_object().unwrap() {
        let name = AsciiMetadataKey::from_bytes(name.as_bytes()).unwrap();
        request.metadata_mut().insert(name, value.as_str().unwrap().parse().unwrap());
    }
    if let Some(timeout @ 1..) = call["timeout_ms"].as_u64() {
        request.set_timeout(Duration::from_millis(timeout));
    }
    request
}

/// The same as the other clients say.
fn told(call: &Value, seen: &Seen, took: Duration) -> Value {
    let mut trailers = serde_json::Map::new();
    for name in ["x-cost", "grpc-retry-pushback-ms", "seawall-problem"] {
        if let Some(value) = seen.trailers.get(name) {
            trailers.insert(name.to_owned(), value.to_str().unwrap().into());
        }
    }
    if let Some(value) = seen.trailers.get_bin("proof-bin") {
        let bytes = value.to_bytes().unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        trailers.insert("proof-bin".to_owned(), hex.into());
    }
    let status = seen.ended.as_ref().err();
    let says_why = status.is_some_and(|status| status.details().ends_with(b"\x03why"));
    json!({
        "name": call["name"],
        "code": status.map_or(0, |status| i32::from(status.code())),
        "message": status.map_or("", |status| status.message()),
        "details": if says_why { "why" } else { "" },
        "trailers": trailers,
        "received": seen.received,
        "took_ms": took.as_secs_f64() * 1000.0,
    })
}

/// Passes bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Builds the Go program; Go's own cache makes the second time quick.
fn build_go() -> PathBuf {
    let program = Path::new(MADE).join("grpc-peer");
    let built = Command::new(go())
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(SOURCES).join("go"))
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(
        built.status.success(),
        "the peer of this show, {SOURCES}/go, does not build:\n{said}\n\
         It needs the Go that go.mod names or a later one, and the module proxy the first time."
    );
    program
}

/// The Go of its own installer before that of a distribution, which is often older.
fn go() -> PathBuf {
    let works = |go: &PathBuf| {
        let version = Command::new(go).arg("version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let known = ["/usr/local/go/bin/go", "go"].map(PathBuf::from);
    known.into_iter().find(works).unwrap_or_else(|| {
        panic!("this show needs Go: install it from https://go.dev/dl, then run it again")
    })
}

/// Installs grpcio at the version that is written down; done once for each version.
fn install_python() -> PathBuf {
    let wanted = std::fs::read_to_string(Path::new(SOURCES).join("requirements.txt")).unwrap();
    let environment = Path::new(MADE).join("grpc-python");
    let python = environment.join("bin/python");
    let stamp = environment.join("installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    let run = |command: &mut Command, help: &str| {
        let output = command.output();
        let done = output.as_ref().is_ok_and(|output| output.status.success());
        let said = output.map(|output| [output.stdout, output.stderr].concat());
        let said = said.unwrap_or_else(|error| error.to_string().into_bytes());
        let said = String::from_utf8_lossy(&said);
        assert!(done, "{said}\nThis show needs {help}, then run it again.");
    };
    run(
        Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment),
        "python3 with its module venv: install python3 and python3-venv",
    );
    run(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-r"])
            .arg(Path::new(SOURCES).join("requirements.txt")),
        "grpcio from the Python package index: make it reachable for pip",
    );
    std::fs::write(stamp, wanted).unwrap();
    python
}

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc");
const MADE: &str = env!("CARGO_TARGET_TMPDIR");
