//! The socket of an upstream connection: tells the pool when it is gone and what an HTTP/2 peer
//! allows.
//!
//! hyper resolves an HTTP/2 handshake before the peer has said anything, and it shows neither the
//! peer's limit on streams nor a GOAWAY before the next request runs into it. All three stand in
//! the frames that pass here, so they are read here: nine bytes of header per frame, and the
//! payload of SETTINGS and GOAWAY alone. Nor does it bound the interim answers of a stream, so
//! HEADERS of one stream in a row are counted, and a flood of them ends the connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::{ConnFacts, Watcher};
use super::interim::INTERIM_MAX;
use crate::wire::Wire;

/// A socket that reports to its pool.
pub(super) struct Socket {
    stream: Wire,
    scan: Option<FrameScan>,
    facts: Arc<ConnFacts>,
    watcher: Weak<dyn Watcher>,
}

impl Socket {
    /// A socket whose bytes are none of our business.
    pub(super) fn http1(stream: Wire, facts: Arc<ConnFacts>, watcher: Weak<dyn Watcher>) -> Self {
        Self { stream, scan: None, facts, watcher }
    }

    /// A socket whose HTTP/2 frames are read along.
    pub(super) fn http2(stream: Wire, facts: Arc<ConnFacts>, watcher: Weak<dyn Watcher>) -> Self {
        Self { stream, scan: Some(FrameScan::default()), facts, watcher }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.facts.socket_gone();
        if let Some(watcher) = self.watcher.upgrade() {
            watcher.socket_gone(&self.facts);
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if let Some(scan) = &mut this.scan {
            let (mut limit_changed, mut flood) = (false, false);
            scan.feed(&buf.filled()[before..], |seen| match seen {
                Seen::Settings(limit) => limit_changed |= this.facts.settings(limit),
                Seen::GoAway(last_stream) => this.facts.go_away(last_stream),
                Seen::Flood => flood = true,
            });
            if flood {
                let error = "too many interim answers";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            if limit_changed && let Some(watcher) = this.watcher.upgrade() {
                watcher.limit_changed(&this.facts);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What a frame of the peer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// SETTINGS that are not an acknowledgement, and the limit on streams they state.
    Settings(Option<u32>),
    /// GOAWAY and its last stream.
    GoAway(u32),
    /// More HEADERS of one stream in a row than an answer can have.
    Flood,
}

/// Reads the frames of an HTTP/2 peer without keeping them.
#[derive(Debug, Default)]
struct FrameScan {
    /// The frame header, or the current setting or GOAWAY head, as far as it has arrived.
    held: [u8; FRAME_HEAD],
    have: usize,
    /// Payload of the current frame that has not been seen.
    left: usize,
    within: Within,
    /// The stream of the latest HEADERS, and how many it had since those of another.
    heads_of: u32,
    heads: u32,
}

/// Where in the stream of frames the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Head,
    Skipped,
    Settings(Option<u32>),
    GoAway,
}

impl FrameScan {
    fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Seen)) {
        while !bytes.is_empty() {
            match self.within {
                Within::Head => {
                    if self.gather(&mut bytes, FRAME_HEAD) {
                        self.begin(&mut seen);
                    }
                }
                Within::Skipped => {
                    let passed = self.left.min(bytes.len());
                    bytes = &bytes[passed..];
                    self.pass(passed);
                }
                Within::Settings(limit) => {
                    if self.gather(&mut bytes, SETTING) {
                        let [id_high, id_low, a, b, c, d, ..] = self.held;
                        let stated = u16::from_be_bytes([id_high, id_low])
                            == SETTINGS_MAX_CONCURRENT_STREAMS;
                        let limit =
                            if stated { Some(u32::from_be_bytes([a, b, c, d])) } else { limit };
                        self.within = Within::Settings(limit);
                        self.pass(SETTING);
                        if self.within == Within::Head {
                            seen(Seen::Settings(limit));
                        }
                    }
                }
                Within::GoAway => {
                    if self.gather(&mut bytes, GOAWAY_LAST_STREAM) {
                        let [a, b, c, d, ..] = self.held;
                        seen(Seen::GoAway(u32::from_be_bytes([a, b, c, d]) & STREAM_ID));
                        self.within = Within::Skipped;
                        self.pass(GOAWAY_LAST_STREAM);
                    }
                }
            }
        }
    }

    /// Collects up to `want` bytes; true once they are all there.
    fn gather(&mut self, bytes: &mut &[u8], want: usize) -> bool {
        let taken = (want - self.have).min(bytes.len());
        let (now, later) = bytes.split_at(taken);
        self.held[self.have..self.have + taken].copy_from_slice(now);
        self.have += taken;
        *bytes = later;
        let whole = self.have == want;
        if whole {
            self.have = 0;
        }
        whole
    }

    /// Reads a frame header. A malformed frame is passed over: hyper will end the connection.
    fn begin(&mut self, seen: &mut impl FnMut(Seen)) {
        let [a, b, c, kind, flags, stream @ ..] = self.held;
        self.left = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
        self.within = match kind {
            SETTINGS if flags & ACK == 0 && self.left.is_multiple_of(SETTING) => {
                if self.left == 0 {
                    seen(Seen::Settings(None));
                }
                Within::Settings(None)
            }
            GOAWAY if self.left >= GOAWAY_LAST_STREAM => Within::GoAway,
            HEADERS => {
                if self.count_head(u32::from_be_bytes(stream)) > HEADS_MAX {
                    seen(Seen::Flood);
                }
                Within::Skipped
            }
            _ => Within::Skipped,
        };
        self.pass(0);
    }

    /// The HEADERS that this stream has had in a row.
    fn count_head(&mut self, stream: u32) -> u32 {
        if self.heads_of != stream {
            (self.heads_of, self.heads) = (stream, 0);
        }
        self.heads = self.heads.saturating_add(1);
        self.heads
    }

    /// Counts `passed` bytes of payload as seen, and turns to the next frame after the last.
    fn pass(&mut self, passed: usize) {
        self.left -= passed;
        if self.left == 0 {
            self.within = Within::Head;
        }
    }
}

/// Bytes of a frame header. Source: RFC 9113, section 4.1, as are the numbers below from 6.5
/// (SETTINGS) and 6.8 (GOAWAY).
const FRAME_HEAD: usize = 9;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const ACK: u8 = 0x1;
const SETTING: usize = 6;
const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 0x3;
const GOAWAY_LAST_STREAM: usize = 4;
const STREAM_ID: u32 = 0x7fff_ffff;
/// The HEADERS of an answer: interim ones, its head and its trailers.
const HEADS_MAX: u32 = INTERIM_MAX + 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        frame
    }

    /// Feeds `bytes` in pieces of every size and expects the same to be seen each time.
    #[track_caller]
    fn check(bytes: &[u8], expected: &[Seen]) {
        for piece in 1..=bytes.len() {
            let mut scan = FrameScan::default();
            let mut seen = Vec::new();
            for part in bytes.chunks(piece) {
                scan.feed(part, |event| seen.push(event));
            }
            assert_eq!(seen, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn settings_and_goaway_are_read_across_any_split() {
        let limit = [0, 4, 0, 0, 255, 255, 0, 3, 0, 0, 0, 7, 0, 5, 0, 0, 64, 0];
        let mut bytes = frame(SETTINGS, 0, &limit);
        bytes.extend(frame(SETTINGS, ACK, &[]));
        bytes.extend(frame(0, 0, b"some data that is none of our business"));
        bytes.extend(frame(GOAWAY, 0, &[0x80, 0, 0, 9, 0, 0, 0, 0, b'b', b'y', b'e']));
        bytes.extend(frame(SETTINGS, 0, &[]));
        check(&bytes, &[Seen::Settings(Some(7)), Seen::GoAway(9), Seen::Settings(None)]);
    }

    #[test]
    fn heads_of_one_stream_in_a_row_are_a_flood_and_those_of_others_are_not() {
        let mut bytes = frame(HEADERS, 0, &[0x88]).repeat(34);
        let mut other = frame(HEADERS, 0, &[]);
        other[8] = 1;
        bytes.extend(other);
        bytes.extend(frame(0, 0, b"data"));
        bytes.extend(frame(HEADERS, 0, &[0x88]).repeat(34));
        check(&bytes, &[]);
        bytes.extend(frame(0, 0, b"data"));
        bytes.extend(frame(HEADERS, 0, &[0x88]));
        check(&bytes, &[Seen::Flood]);
    }

    #[test]
    fn a_malformed_frame_says_nothing_and_the_next_is_read() {
        let mut bytes = frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 1, 0]);
        bytes.extend(frame(GOAWAY, 0, &[1, 2]));
        bytes.extend(frame(GOAWAY, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
        check(&bytes, &[Seen::GoAway(1)]);
    }
}
