//! A short seal on a few numbers, that only who knows the key can make: SipHash-2-4, 64 bits.
//!
//! For tokens that a caller hands back. A guess is right once in 2⁶⁴ times, and each guess is a
//! request. It is no hash for tables here, and no signature for anybody else.
//!
//! Source: siphash.

/// The key of a seal. Made by the edge from real entropy, once; whoever knows it can forge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey([u64; 2]);

impl SealKey {
    /// A key of two words, both drawn at random.
    #[must_use]
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The seal on `words`, each taken as eight bytes, the least first.
    pub(crate) fn seal(&self, words: &[u64]) -> u64 {
        let [k0, k1] = self.0;
        let mut state = State([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ]);
        words.iter().for_each(|word| state.take(*word));
        // The last block is the length in bytes, alone: there are no bytes beside whole words.
        state.take((words.len() as u64) << 59);
        state.0[2] ^= 0xff;
        (0..4).for_each(|_| state.round());
        state.0.iter().fold(0, |seal, word| seal ^ word)
    }
}

impl core::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SealKey(***)")
    }
}

struct State([u64; 4]);

impl State {
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    const fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    /// The paper's key: bytes 0 to 15.
    const KEY: SealKey = SealKey::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

    #[test]
    fn whole_words_are_sealed_as_the_reference_does() {
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(KEY.seal(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(KEY.seal(&words[..1]), 0x93f5_f579_9a93_2462);
        assert_eq!(KEY.seal(&words), 0x3f2a_cc7f_57c2_9bdb);
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{KEY:?}"), "SealKey(***)");
    }
}
