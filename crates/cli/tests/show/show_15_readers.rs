//! Readers that stall together: each holds little, and they are closed one after the other, so that
//! they do not come back together.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit, setrlimit};
use seawall_cli::demo::{Protocol, get};
use seawall_policy::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::harness::{PATIENCE, Stage, show};

const READERS: usize = 10_000;
const ASK: &str =
    "GET /feed HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                      Upgrade: websocket\r\n\r\n";
/// What each is sent: more than lies between the two of them without the gateway's buffer.
const SENT: usize = 96 * 1024;

#[test]
fn readers_that_stall_together_hold_little_and_come_back_one_after_the_other() {
    show("15 · readers that stall together", async |stage| {
        let readers = stage.pick(200, READERS.min(room()));
        let close_rate = stage.pick(50, 200);
        let feed = Feed::start(stage).await;
        let gateway = stage
            .configured_listener(
                &format!(
                    "accept: {{rate: 500/s, burst: 12000}}, slow_readers: {{stall: 5s, \
                     close_rate: {close_rate}/s, send_buffer: 8KiB}}"
                ),
                &format!(
                    "upstreams: {{feed: {{endpoints: [\"http://{}\"], \
                     bulkhead: {{max_streams: 12000}}}}}}\nlimits: {{max_connections: 12000}}\n",
                    feed.address
                ),
            )
            .await;
        let bare = gateway.memory_kib("VmRSS");
        let open = open_all(gateway.process.address(), readers).await;
        let idle = gateway.memory_kib("VmRSS").saturating_sub(bare);
        feed.speak.send_replace(true);
        // Until nothing moves any more: the buffers are full.
        stage.pass(Duration::from_secs(3)).await;
        let full = gateway.memory_kib("VmRSS").saturating_sub(bare);
        let each = |kib: u64| kib * 1024 / readers as u64;
        stage.tell("tunnels", readers);
        stage.tell("resident for each, idle", format!("{} bytes", each(idle)));
        stage.tell("resident for each, its reader stalled", format!("{} bytes", each(full)));
        assert!(each(full) <= 64 * 1024, "{} bytes", each(full));
        let patience = PATIENCE + Duration::from_secs(2 * readers as u64 / close_rate);
        stage.until("all are closed", patience, || feed.ended.lock().len() == readers).await;
        drop(open);
        let most = most_in_a_second(&feed.ended.lock());
        let all =
            feed.ended.lock().iter().fold((Timestamp::MAX, Timestamp::ZERO), |seen, at| {
                (seen.0.min(*at), seen.1.max(*at))
            });
        let took = all.1.since(all.0).as_secs_f64();
        stage.tell("closed within", format!("{took:.1} s"));
        stage.tell("most in one second", format!("{most}, at a close rate of {close_rate}"));
        assert!(most as u64 <= close_rate + close_rate / 10 + 2, "{most}");
        let closed = gateway
            .metric("seawall_downstream_connections_closed_total", &["reason=\"stall\""])
            .await;
        assert_eq!(format!("{closed:.0}"), readers.to_string());
        // And the gateway goes on, with what it had.
        let client = gateway.client(Protocol::Http1);
        assert_eq!(client.send(get("/"), PATIENCE).await.unwrap().status, 200);
    });
}

/// As many tunnels as this process and the gateway have files for, two each.
fn room() -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: hard, maximum: hard });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(600) / 2).unwrap_or(usize::MAX)
}

/// Opens so many tunnels, whose readers have little room and never read.
async fn open_all(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let places = Arc::new(Semaphore::new(100));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        tasks.spawn(async move {
            let _place = place;
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(to).await.unwrap();
            stream.write_all(ASK.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
            stream
        });
    }
    tasks.join_all().await
}

/// An upstream that switches protocols, says nothing until it is told to, and then a lot.
struct Feed {
    address: SocketAddr,
    speak: watch::Sender<bool>,
    /// When each of its tunnels ended.
    ended: Arc<Mutex<Vec<Timestamp>>>,
}

impl Feed {
    async fn start(stage: &Stage) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (speak, told) = watch::channel(false);
        let ended = Arc::<Mutex<Vec<Timestamp>>>::default();
        let (clock, noted) = (stage.clock, Arc::clone(&ended));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, noted) = (told.clone(), Arc::clone(&noted));
                tokio::spawn(async move {
                    if serve(stream, told).await {
                        noted.lock().push(clock.now());
                    }
                });
            }
        });
        Self { address, speak, ended }
    }
}

/// Whether it was a tunnel; comes back when that has ended.
async fn serve(mut stream: TcpStream, mut told: watch::Receiver<bool>) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    if !head.to_ascii_lowercase().windows(9).any(|part| part == b"websocket") {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(answer).await;
        return false;
    }
    stream.write_all(SWITCH.as_bytes()).await.unwrap();
    // The test outlives its tunnels.
    let _ = told.wait_for(|speak| *speak).await;
    let frame = [&[0x82, 126, 0x03, 0xfc][..], &[7; 1_020]].concat();
    for _ in 0..SENT / frame.len() {
        if stream.write_all(&frame).await.is_err() {
            return true;
        }
    }
    // Nothing comes from a reader: what ends this is the gateway.
    let _ = stream.read(&mut [0]).await;
    true
}

/// The most of these that lie within one second.
fn most_in_a_second(times: &[Timestamp]) -> usize {
    let mut times = times.to_vec();
    times.sort_unstable();
    let second = Duration::from_secs(1);
    let mut first = 0;
    let mut most = 0;
    for last in 0..times.len() {
        while times[last].since(times[first]) >= second {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}
