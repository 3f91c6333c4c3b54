//! A herd at the door: as many come in as the accept rate says, the others are reset before any
//! TLS, memory stays where it is, and one address takes no place from the others.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use seawall_cli::demo::Behaviour;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::harness::{Gateway, PATIENCE, Stage, show, upstream_of};

/// How those that came fared.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicU64,
    reset: AtomicU64,
    other: AtomicU64,
}

impl Counts {
    fn all(&self) -> [u64; 3] {
        [&self.served, &self.reset, &self.other].map(|count| count.load(Relaxed))
    }
}

#[test]
fn the_excess_is_reset_costs_no_tls_work_and_memory_stays_flat() {
    show("15 · ten times the accept rate, with TLS", async |stage| {
        let rate = stage.pick(100, 500);
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        let keys = Keys::new();
        let gateway = stage
            .configured_listener(
                &format!("accept: {{rate: {rate}/s}}, {}", keys.listener),
                &format!("upstreams: {{only: {{endpoints: [\"{}\"]}}}}\n", upstream.url()),
            )
            .await;
        let time = stage.seconds(3.0, 20.0);
        let calm = herd(stage, &gateway, &keys, rate * 9 / 10, time).await;
        stage.tell(format!("{} come a second", rate * 9 / 10), &calm);
        assert_eq!((calm.reset, calm.other), (0, 0), "{calm:?}");
        // The burst is whole again.
        stage.pass(Duration::from_millis(1_500)).await;
        let before = gateway.memory_kib("VmRSS");
        let storm = herd(stage, &gateway, &keys, rate * 10, time).await;
        stage.tell(format!("{} come a second", rate * 10), &storm);
        let [early, late] = storm.memory_kib;
        let told = format!("{early} KiB, {late} KiB; before it {before} KiB");
        stage.tell("resident at most, first half and second", told);
        let cpu = |herd: &Herd| herd.cpu.as_secs_f64();
        let spare = cpu(&storm) - cpu(&calm) * to_f64(storm.served) / to_f64(calm.served);
        let each = spare.max(0.0) * 1e6 / to_f64(storm.reset);
        stage.tell(
            "CPU of a refusal",
            format!("{each:.0} us, its connection in the kernel included"),
        );
        let allowed = to_f64(u64::from(rate)) * (storm.took.as_secs_f64() + 1.0);
        assert!(to_f64(storm.served) <= allowed + 5.0, "{allowed}: {storm:?}");
        assert!(to_f64(storm.served) >= allowed * 0.9, "{allowed}: {storm:?}");
        assert_eq!(storm.other, 0, "refused by a reset and by nothing else: {storm:?}");
        assert_eq!(storm.handshakes, storm.served, "who is refused begins none");
        assert_eq!(storm.refused, storm.reset);
        assert!(early <= before + 32 * 1024, "{before}, {early} KiB");
        assert!(late <= early + 2 * 1024, "what is refused leaves nothing: {early}, {late} KiB");
    });
}

#[test]
fn one_address_that_comes_again_and_again_takes_nothing_from_the_others() {
    show("15 · one address at ten times the accept rate", async |stage| {
        let rate = stage.pick(100, 500);
        let upstream = upstream_of(stage, Behaviour::ok()).await;
        let gateway = stage
            .configured_listener(
                &format!(
                    "accept: {{rate: {rate}/s}}, per_address: {{connection_rate: {}/s}}",
                    rate / 50
                ),
                &format!("upstreams: {{only: {{endpoints: [\"{}\"]}}}}\n", upstream.url()),
            )
            .await;
        let time = stage.seconds(3.0, 20.0);
        let to = gateway.process.address();
        let greedy = arrivals(stage, rate * 10, time, |_| plain(Ipv4Addr::new(127, 0, 0, 9), to));
        let others = arrivals(stage, rate * 8 / 10, time, |number| {
            let [.., high, low] = (number + 256).to_be_bytes();
            plain(Ipv4Addr::new(127, 1, high, low), to)
        });
        let (greedy, others) = tokio::join!(greedy, others);
        let ([one, ..], [rest, turned_away, broken]) = (greedy.all(), others.all());
        let share = to_f64(one) * 100.0 / to_f64(one + rest);
        stage.tell(
            "the one address",
            format!("{one} of {} let in", greedy.all().iter().sum::<u64>()),
        );
        stage.tell("the others", format!("{rest} let in, {turned_away} refused"));
        stage.tell("its share of what was let in", format!("{share:.1} %"));
        assert!(share < 5.0, "{share}");
        assert_eq!((turned_away, broken), (0, 0), "nobody else is refused");
        let refused = gateway
            .metric("seawall_downstream_connections_refused_total", &["reason=\"accept_rate\""])
            .await;
        assert!(refused < 0.5, "it takes nothing of what all share: {refused}");
    });
}

/// What came of one herd.
#[derive(Debug)]
struct Herd {
    served: u64,
    reset: u64,
    other: u64,
    /// By the gateway's count: connections not let in, and handshakes of any result.
    refused: u64,
    handshakes: u64,
    cpu: Duration,
    /// Resident at most, in the first half of the time and in the second.
    memory_kib: [u64; 2],
    took: Duration,
}

impl std::fmt::Display for Herd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { served, reset, handshakes, cpu, took, .. } = self;
        let (cpu, took) = (cpu.as_secs_f64(), took.as_secs_f64());
        write!(
            f,
            "{served} served, {reset} reset, {handshakes} handshakes in {took:.1} s; \
             {cpu:.2} s of CPU"
        )
    }
}

/// So many come in each second, shake hands, ask once and leave.
async fn herd(stage: &Stage, gateway: &Gateway, keys: &Keys, rate: u32, time: Duration) -> Herd {
    let refusals = "seawall_downstream_connections_refused_total";
    let shaken = "seawall_tls_handshakes_total";
    let before = (gateway.metric(refusals, &[]).await, gateway.metric(shaken, &[]).await);
    let (cpu, begin) = (gateway.cpu(), stage.clock.now());
    let most = [AtomicU64::new(0), AtomicU64::new(0)];
    let watch = async {
        loop {
            let half = usize::from(stage.clock.now().since(begin) > time / 2);
            most[half].fetch_max(gateway.memory_kib("VmRSS"), Relaxed);
            stage.pass(Duration::from_millis(100)).await;
        }
    };
    let to = gateway.process.address();
    let counts = tokio::select! {
        counts = arrivals(stage, rate, time, |_| secured(keys.client.clone(), to)) => counts,
        () = watch => unreachable!(),
    };
    let took = stage.clock.now().since(begin);
    let after = (gateway.metric(refusals, &[]).await, gateway.metric(shaken, &[]).await);
    let [served, reset, other] = counts.all();
    Herd {
        served,
        reset,
        other,
        refused: counted(after.0 - before.0),
        handshakes: counted(after.1 - before.1),
        cpu: gateway.cpu().saturating_sub(cpu),
        memory_kib: most.map(AtomicU64::into_inner),
        took,
    }
}

/// Begins so many in each second, whatever became of those before, and waits for all of them.
async fn arrivals<F>(
    stage: &Stage,
    rate: u32,
    time: Duration,
    come: impl Fn(u32) -> F,
) -> Arc<Counts>
where
    F: Future<Output = Fate> + Send + 'static,
{
    let counts = Arc::<Counts>::default();
    let begin = stage.clock.now();
    let mut tasks = tokio::task::JoinSet::new();
    let mut begun = 0;
    loop {
        let passed = stage.clock.now().since(begin);
        let due = f64::from(rate) * passed.min(time).as_secs_f64();
        while f64::from(begun) < due {
            let (counts, one) = (Arc::clone(&counts), come(begun));
            tasks.spawn(async move {
                let fate = tokio::time::timeout(PATIENCE, one).await.unwrap_or(Fate::Other);
                let count = match fate {
                    Fate::Served => &counts.served,
                    Fate::Reset => &counts.reset,
                    Fate::Other => &counts.other,
                };
                count.fetch_add(1, Relaxed);
            });
            begun += 1;
        }
        while tasks.try_join_next().is_some() {}
        if passed >= time {
            break;
        }
        stage.pass(Duration::from_millis(2)).await;
    }
    while tasks.join_next().await.is_some() {}
    counts
}

/// How one fared.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Served,
    Reset,
    Other,
}

/// One that speaks plain text and comes from this address.
async fn plain(from: Ipv4Addr, to: SocketAddr) -> Fate {
    let connected = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        ask(socket.connect(to).await?).await
    };
    fate(&connected.await)
}

/// One that speaks TLS.
async fn secured(client: TlsConnector, to: SocketAddr) -> Fate {
    let connected = async {
        let socket = TcpStream::connect(to).await?;
        let name = ServerName::try_from("localhost").unwrap();
        ask(client.connect(name, socket).await?).await
    };
    fate(&connected.await)
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<bool> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await?;
    // To its end, so that both sides close in order.
    let _ = stream.read_to_end(&mut Vec::new()).await;
    Ok(begin == *b"HTTP/1.1 200")
}

fn fate(ended: &std::io::Result<bool>) -> Fate {
    match ended {
        Ok(true) => Fate::Served,
        Err(error) if is_reset(error) => Fate::Reset,
        _ => Fate::Other,
    }
}

/// A reset meets the one that writes as a broken pipe.
fn is_reset(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
}

fn to_f64(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

fn counted(value: f64) -> u64 {
    format!("{value:.0}").parse().unwrap()
}

/// A certificate for `localhost`, in files that go with the value, and a client that trusts it.
struct Keys {
    folder: PathBuf,
    listener: String,
    client: TlsConnector,
}

impl Keys {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let name = format!("show-15-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let (cert, private) = (folder.join("tls.crt"), folder.join("tls.key"));
        fs::write(&cert, certificate.pem()).unwrap();
        fs::write(&private, key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = format!("tls: {{cert: '{}', key: '{}'}}", cert.display(), private.display());
        Self { folder, listener, client: TlsConnector::from(Arc::new(config)) }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
