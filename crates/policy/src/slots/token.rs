//! A slot as its caller carries it: `<time>-<number>-<seal>`, hexadecimal.

use core::fmt;

use crate::siphash::SealKey;
use crate::time::Timestamp;

/// What a caller brings to keep its slot, to be shown as text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotToken {
    at: Timestamp,
    number: u32,
    seal: u64,
}

impl SlotToken {
    pub(super) fn new(key: &SealKey, at: Timestamp, number: u32) -> Self {
        Self { at, number, seal: seal(key, at, number) }
    }
}

impl fmt::Display for SlotToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}-{:016x}", self.at.as_nanos(), self.number, self.seal)
    }
}

impl fmt::Debug for SlotToken {
    /// Without the seal: who reads it in a log cannot use it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotToken({}, {})", self.at, self.number)
    }
}

/// The slot of a token that was made with this key.
pub(super) fn read(key: &SealKey, token: &[u8]) -> Option<(Timestamp, u32)> {
    let (at, rest) = token.split_at_checked(16)?;
    let (number, sealed) = rest.strip_prefix(b"-")?.split_at_checked(8)?;
    let sealed = sealed.strip_prefix(b"-").filter(|sealed| sealed.len() == 16)?;
    let at = Timestamp::from_nanos(hex(at)?);
    let number = u32::try_from(hex(number)?).ok()?;
    (hex(sealed)? == seal(key, at, number)).then_some((at, number))
}

fn seal(key: &SealKey, at: Timestamp, number: u32) -> u64 {
    key.seal(&[at.as_nanos(), number.into()])
}

/// At most sixteen digits, small letters only: one text for each token.
fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}
