//! Follows the frames of a WebSocket on their way to a caller, to know where one ends: a close
//! frame can be put between two of them, and nowhere else. Source: RFC 6455 section 5.2.

/// Where in its frames a stream of them is.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    /// What is known of a header that is not whole yet.
    header: [u8; HEADER_MAX],
    known: usize,
    /// Bytes of the payload that are still to come.
    payload: u64,
}

impl Frames {
    /// These bytes have passed.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = self.step(rest);
        }
    }

    /// How many of these bytes, which come next, belong to a frame that has begun; nothing if it
    /// does not end among them.
    pub(super) fn rest_of_frame(&self, bytes: &[u8]) -> Option<usize> {
        let mut ahead = self.clone();
        let mut rest = bytes;
        while !ahead.is_between() {
            if rest.is_empty() {
                return None;
            }
            rest = ahead.step(rest);
        }
        Some(bytes.len() - rest.len())
    }

    /// Whether no frame has begun.
    const fn is_between(&self) -> bool {
        self.known == 0 && self.payload == 0
    }

    /// Takes one byte of a header, or as much of a payload as there is; gives what is left.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.payload > 0 {
            let there_is = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let taken = self.payload.min(there_is);
            self.payload -= taken;
            return &bytes[usize::try_from(taken).unwrap_or(bytes.len())..];
        }
        let [byte, rest @ ..] = bytes else { return bytes };
        self.header[self.known] = *byte;
        self.known += 1;
        if let Some(payload) = self.whole() {
            (self.known, self.payload) = (0, payload);
        }
        rest
    }

    /// The length of the payload, once the header is whole.
    fn whole(&self) -> Option<u64> {
        let second = *self.header[..self.known].get(1)?;
        let mask = if second & MASKED == 0 { 0 } else { 4 };
        let wide = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.known < 2 + wide + mask {
            return None;
        }
        let length = self.header[2..2 + wide].iter();
        let length = length.fold(0, |length: u64, byte| length << 8 | u64::from(*byte));
        Some(if wide == 0 { u64::from(second & !MASKED) } else { length })
    }
}

/// A close frame of a server that asks to come again in so many seconds.
pub(super) fn close(seconds: u64) -> Vec<u8> {
    let reason = format!("retry after {seconds} s");
    let length = u8::try_from(2 + reason.len()).unwrap_or(2);
    let mut frame = vec![FINAL_CLOSE, length];
    frame.extend(TRY_AGAIN_LATER.to_be_bytes());
    frame.extend(reason.as_bytes());
    frame
}

/// Two bytes, eight of a length, four of a mask.
const HEADER_MAX: usize = 14;
const MASKED: u8 = 0x80;
const FINAL_CLOSE: u8 = 0x88;
/// Source: websocket-close-codes.
const TRY_AGAIN_LATER: u16 = 1013;

#[cfg(test)]
mod tests {
    use seawall_policy::{Rng as _, SplitMix64};

    use super::*;

    /// A frame with so many bytes of payload, masked or not.
    fn frame(payload: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { MASKED } else { 0 };
        let mut frame = vec![0x82];
        match payload {
            0..=125 => frame.push(mask | u8::try_from(payload).unwrap()),
            126..=65_535 => {
                frame.push(mask | 126);
                frame.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        frame.extend(vec![0xaa; payload + if masked { 4 } else { 0 }]);
        frame
    }

    #[test]
    fn a_frame_ends_where_it_ends_however_it_is_cut() {
        for payload in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            for masked in [false, true] {
                let whole = frame(payload, masked);
                let two = [&whole[..], &frame(3, false)].concat();
                for cut in [0, 1, 2, 3, 5, 9, whole.len() - 1] {
                    if cut >= whole.len() {
                        continue;
                    }
                    let mut frames = Frames::default();
                    frames.pass(&whole[..cut]);
                    let expected = if cut == 0 { 0 } else { whole.len() - cut };
                    let is = frames.rest_of_frame(&two[cut..]);
                    assert_eq!(is, Some(expected), "{payload} cut at {cut}");
                    if cut > 0 {
                        assert_eq!(frames.rest_of_frame(&whole[cut..whole.len() - 1]), None);
                        assert_eq!(frames.rest_of_frame(&[]), None);
                    }
                }
            }
        }
    }

    #[test]
    fn many_frames_in_pieces_of_any_length_end_where_they_end() {
        let mut rng = SplitMix64::new(9);
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for _ in 0..200 {
            let payload = usize::try_from(rng.below(300)).unwrap();
            stream.extend(frame(payload, rng.below(2) == 0));
            ends.push(stream.len());
        }
        let (mut frames, mut at) = (Frames::default(), 0);
        while at < stream.len() {
            let next = ends.iter().find(|end| **end >= at).unwrap();
            assert_eq!(frames.rest_of_frame(&stream[at..]), Some(next - at));
            let piece = usize::try_from(rng.below(400)).unwrap().min(stream.len() - at);
            frames.pass(&stream[at..at + piece]);
            at += piece;
        }
    }

    /// Whatever an upstream sends for frames: no panic, and an end within what there is.
    #[test]
    fn noise_ends_somewhere_or_nowhere() {
        let mut rng = SplitMix64::new(10);
        for _ in 0..5_000 {
            let noise: Vec<_> =
                (0..rng.below(60)).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
            let mut frames = Frames::default();
            let cut = usize::try_from(rng.below(noise.len() as u64 + 1)).unwrap();
            frames.pass(&noise[..cut]);
            let rest = &noise[cut..];
            assert!(frames.rest_of_frame(rest).is_none_or(|end| end <= rest.len()));
        }
        let mut frames = Frames::default();
        frames.pass(&[0x82, 127, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(frames.rest_of_frame(&[0; 1000]), None);
    }

    #[test]
    fn a_close_frame_says_when_to_come_again() {
        assert_eq!(close(5), [&[0x88, 17, 0x03, 0xf5][..], b"retry after 5 s"].concat());
    }
}
