//! Decides whether an HTTP/2 peer keeps us busy with frames that carry nothing.
//!
//! h2 bounds what such frames make it hold: it answers one PING and one SETTINGS before it reads
//! on, refuses a header block of too many CONTINUATION frames, and cuts a peer that resets streams
//! before we took them or sends too much empty DATA. It does not bound how often it is made to do
//! that. Here the nine bytes before each frame are read on their way in, and frames other than
//! HEADERS and DATA draw on an allowance: 1,000 at once, 1,000 more a second. WINDOW_UPDATE, which
//! a peer owes for what it reads, draws first on one frame for each 64 bytes we wrote.
//! Source: CVE-2019-9512, CVE-2019-9515, CVE-2019-9516.

use seawall_policy::Timestamp;

/// Reads frame headers and keeps the allowance. Knows nothing of streams.
#[derive(Debug)]
pub(super) struct FrameScanner {
    /// Bytes of preface or payload still to be passed over.
    skip: usize,
    /// The first bytes of a frame header that came in pieces.
    partial: [u8; FRAME_HEADER],
    partial_length: usize,
    /// Frames still allowed, in nanoseconds of refill.
    allowance: u64,
    refilled: Timestamp,
    /// Bytes written that no WINDOW_UPDATE was taken against yet.
    written: u64,
}

/// The peer sent more frames that carry nothing than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keep up with control frames")]
pub(super) struct Flood;

impl FrameScanner {
    /// For a connection whose next byte is the first of the preface.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            skip: PREFACE_LENGTH,
            partial: [0; FRAME_HEADER],
            partial_length: 0,
            allowance: ALLOWANCE_MAX,
            refilled: now,
            written: 0,
        }
    }

    /// Passes over bytes that came in.
    pub(super) fn on_read(&mut self, now: Timestamp, mut bytes: &[u8]) -> Result<(), Flood> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = (FRAME_HEADER - self.partial_length).min(bytes.len());
            let (header, rest) = bytes.split_at(taken);
            self.partial[self.partial_length..][..taken].copy_from_slice(header);
            self.partial_length += taken;
            bytes = rest;
            if self.partial_length == FRAME_HEADER {
                self.partial_length = 0;
                self.on_frame(now)?;
            }
        }
    }

    /// Notes bytes that went out.
    pub(super) fn on_write(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(bytes).min(WRITTEN_MAX);
    }

    fn on_frame(&mut self, now: Timestamp) -> Result<(), Flood> {
        let [high, middle, low, kind, ..] = self.partial;
        self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let carries = (kind == DATA && self.skip > 0) || kind == HEADERS;
        if carries {
            return Ok(());
        }
        if kind == WINDOW_UPDATE && self.written >= BYTES_PER_UPDATE {
            self.written -= BYTES_PER_UPDATE;
            return Ok(());
        }
        let refill = u64::try_from(now.since(self.refilled).as_nanos()).unwrap_or(u64::MAX);
        self.refilled = self.refilled.max(now);
        self.allowance = self.allowance.saturating_add(refill).min(ALLOWANCE_MAX);
        self.allowance = self.allowance.checked_sub(FRAME_COST).ok_or(Flood)?;
        Ok(())
    }
}

/// Length, kind, flags and stream of a frame. Source: RFC 9113 section 4.1.
const FRAME_HEADER: usize = 9;
/// `PRI * HTTP/2.0` with its two empty lines. Source: RFC 9113 section 3.4.
const PREFACE_LENGTH: usize = 24;
/// Kinds of frames. Source: RFC 9113 section 6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const WINDOW_UPDATE: u8 = 8;
/// The allowance refills by one frame in this time: 1,000 a second.
const FRAME_COST: u64 = 1_000_000;
/// A second's worth.
const ALLOWANCE_MAX: u64 = 1_000 * FRAME_COST;
/// A frame's header and 55 bytes: fewer are no answer of ours.
const BYTES_PER_UPDATE: u64 = 64;
/// What is remembered of bytes written: 16 MiB, the windows of a generous peer.
const WRITTEN_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let size = u32::try_from(length).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, 0, 0, 0, 0, 0];
        frame.resize(FRAME_HEADER + length, 0xff);
        frame
    }

    fn scanner() -> FrameScanner {
        let mut scanner = FrameScanner::new(Timestamp::ZERO);
        scanner.on_read(Timestamp::ZERO, &[b'P'; PREFACE_LENGTH]).unwrap();
        scanner
    }

    /// How many of `count` frames are let through at `at`. A refused frame must have no payload,
    /// or the next one is taken for it.
    fn let_through(scanner: &mut FrameScanner, at: u64, frame: &[u8], count: usize) -> usize {
        let at = Timestamp::from_millis(at);
        (0..count).take_while(|_| scanner.on_read(at, frame).is_ok()).count()
    }

    #[test]
    fn a_thousand_frames_at_once_and_a_thousand_a_second_are_let_through() {
        let mut scanner = scanner();
        let ping = frame(PING, 0);
        assert_eq!(let_through(&mut scanner, 0, &ping, 2000), 1000);
        assert_eq!(let_through(&mut scanner, 1, &ping, 2000), 1);
        assert_eq!(let_through(&mut scanner, 501, &ping, 2000), 500);
        assert_eq!(let_through(&mut scanner, 100_000, &ping, 2000), 1000);
        assert_eq!(let_through(&mut scanner, 0, &ping, 1), 0);
    }

    #[test]
    fn frames_that_carry_something_are_free() {
        let mut scanner = scanner();
        assert_eq!(let_through(&mut scanner, 0, &frame(DATA, 1), 5000), 5000);
        assert_eq!(let_through(&mut scanner, 0, &frame(HEADERS, 30), 5000), 5000);
        assert_eq!(let_through(&mut scanner, 0, &frame(DATA, 0), 5000), 1000);
    }

    #[test]
    fn a_window_update_is_free_against_what_was_written() {
        let mut scanner = scanner();
        let update = frame(WINDOW_UPDATE, 0);
        scanner.on_write(640);
        assert_eq!(let_through(&mut scanner, 0, &update, 5000), 1010);
        scanner.on_write(usize::MAX);
        assert_eq!(let_through(&mut scanner, 0, &update, 500_000), 262_144);
    }

    #[test]
    fn frames_are_counted_the_same_however_they_are_cut() {
        let bytes: Vec<u8> =
            (0..1001).flat_map(|n| [frame(PING, 8), frame(DATA, n % 7 + 1)].concat()).collect();
        for piece in [1, 2, 8, 9, 10, 17, 1000, bytes.len()] {
            let mut scanner = scanner();
            let mut passed = 0;
            for bytes in bytes.chunks(piece) {
                if scanner.on_read(Timestamp::ZERO, bytes).is_err() {
                    break;
                }
                passed += bytes.len();
            }
            let last_ping = bytes.len() - (FRAME_HEADER + 1000 % 7 + 1) - (FRAME_HEADER + 8);
            assert!(passed <= last_ping + FRAME_HEADER, "{piece}: {passed}");
            assert!(passed + piece > last_ping, "{piece}: {passed}");
        }
    }
}
