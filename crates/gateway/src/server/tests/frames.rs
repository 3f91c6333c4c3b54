//! Raw HTTP/2 frames.

use super::*;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const ACK: u8 = 1;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `GET / ` of `http://a`, from the static table. Source: RFC 7541 appendix A.
pub(super) const GET_BLOCK: [u8; 6] = [0x82, 0x84, 0x86, 0x41, 1, b'a'];

pub(super) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &GET_BLOCK)
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// A frame as received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Received {
    /// The code of RST_STREAM or GOAWAY.
    pub(super) fn code(&self) -> u32 {
        let from = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[from..from + 4].try_into().unwrap())
    }
}

/// A peer that speaks HTTP/2 frame by frame.
pub(super) struct Peer(pub(super) TcpStream);

impl Peer {
    /// Connects, with the preface and `settings`, and acknowledges the server's.
    pub(super) async fn connect(running: &Running, settings: &[u8]) -> Self {
        let mut peer = Self(running.connect().await);
        peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        peer.send(&frame(SETTINGS, 0, 0, settings)).await;
        peer.send(&frame(SETTINGS, ACK, 0, &[])).await;
        peer
    }

    /// Sends; that the server has closed is found out by reading.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let _ = within(self.0.write_all(bytes)).await;
    }

    /// The next frame; `None` once the server has closed.
    pub(super) async fn next(&mut self) -> Option<Received> {
        let mut head = [0; 9];
        within(self.0.read_exact(&mut head)).await.ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        within(self.0.read_exact(&mut payload)).await.ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Some(Received { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of one of `kinds`; `None` once the server has closed.
    pub(super) async fn next_of(&mut self, kinds: &[u8]) -> Option<Received> {
        loop {
            let received = self.next().await?;
            if kinds.contains(&received.kind) {
                return Some(received);
            }
        }
    }

    /// Sends a PING and waits for its answer, so that everything before it has been read.
    /// Whether there was an answer.
    pub(super) async fn round_trip(&mut self) -> bool {
        self.send(&frame(PING, 0, 0, b"12345678")).await;
        loop {
            match self.next_of(&[PING]).await {
                Some(received) if received.payload == b"12345678" => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }
}
