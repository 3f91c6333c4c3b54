//! Bytes on a socket, for what no proper client would send, and peers that say nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use seawall::Clock;
use seawall_policy::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// A connection that sends what it is told to.
pub(crate) struct Raw {
    stream: TcpStream,
    clock: Clock,
    begin: Timestamp,
}

/// What came back on a connection until it ended, or until nobody wanted to wait longer.
#[derive(Debug)]
pub(crate) struct Came {
    /// All bytes, as text.
    pub(crate) text: String,
    /// Whether the peer ended the connection.
    pub(crate) closed: bool,
    /// From the connection's beginning to then.
    pub(crate) after: Duration,
}

impl Came {
    /// The status of the first response, if one came.
    pub(crate) fn status(&self) -> Option<u16> {
        self.text.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
    }
}

impl Raw {
    pub(crate) async fn connect(clock: Clock, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, clock, begin: clock.now() }
    }

    /// Sends all of it; `false` if the peer has gone.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Reads one byte and no more.
    pub(crate) async fn first_byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte).await.ok()?;
        Some(byte[0])
    }

    /// Reads until the peer ends the connection, for at most `patience`.
    pub(crate) async fn rest(mut self, patience: Duration) -> Came {
        let mut bytes = Vec::new();
        let mut piece = vec![0; 16 * 1024];
        let until = self.clock.instant(self.clock.now().after(patience));
        let closed = loop {
            match tokio::time::timeout_at(until, self.stream.read(&mut piece)).await {
                Ok(Ok(0) | Err(_)) => break true,
                Ok(Ok(read)) if bytes.len() < 1 << 20 => bytes.extend_from_slice(&piece[..read]),
                Ok(Ok(_)) => {}
                Err(_) => break false,
            }
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Came { text, closed, after: self.clock.now().since(self.begin) }
    }
}

/// Something that listens on loopback and never says a word.
pub(crate) struct Mute {
    pub(crate) address: SocketAddr,
    _listener: Option<TcpListener>,
    _filled: Vec<TcpStream>,
    accepting: Option<JoinHandle<()>>,
}

impl Mute {
    /// Accepts every connection and keeps it open, unread.
    pub(crate) async fn accepting() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        Self { address, _listener: None, _filled: Vec::new(), accepting: Some(accepting) }
    }

    /// Lets SYNs vanish: the backlog is full and nobody accepts, so the kernel drops the next.
    pub(crate) async fn black_hole(clock: Clock) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut filled = Vec::new();
        loop {
            let soon = clock.instant(clock.now().after(Duration::from_millis(200)));
            match tokio::time::timeout_at(soon, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => filled.push(stream),
                Ok(Err(error)) => panic!("filling the backlog: {error}"),
                Err(_) => break,
            }
            assert!(filled.len() < 64, "the backlog does not fill");
        }
        Self { address, _listener: Some(listener), _filled: filled, accepting: None }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.take() {
            task.abort();
        }
    }
}

/// The start of an HTTP/2 connection: preface and empty SETTINGS.
pub(crate) fn h2_begin() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(h2_frame(SETTINGS, 0, 0, &[]));
    bytes
}

/// One HTTP/2 frame.
pub(crate) fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The field block of `GET / HTTP/2` to authority `x`.
pub(crate) const H2_GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
