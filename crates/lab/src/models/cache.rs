//! A cache that loses all it holds in front of something that can make only so many entries a
//! second: how long until it is of use again.
//!
//! Reads come evenly spaced, their keys by Zipf's law without a bound. A miss is made by the
//! backend and kept, up to so many a second; the rest fail, and nothing is kept of them. What was
//! not read for longest leaves. Source: zipf-rejection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Digest, Kind, Numbers, Setup};
use crate::draw::{Draw, Draws, Purpose};
use crate::scenario::{Read, Section, Unit};

pub(super) const KIND: Kind = Kind {
    section: "cache",
    beside: &[],
    numbers: &[
        ("hits_before", Unit::Share),
        ("hits_after", Unit::Share),
        ("failed", Unit::Share),
        ("recovery", Unit::Time),
    ],
    read,
};

/// A cache, what reads it, and what is behind it.
#[derive(Clone, Debug)]
struct Cache {
    /// Reads a second.
    reads: u32,
    /// Entries it holds; those with the most popular keys in the beginning.
    holds: u32,
    /// The exponent of the law by which keys are read.
    zipf: f64,
    /// Entries that the backend makes in a second.
    backend: u32,
    /// Whole seconds from the begin to the loss, and to the end.
    flush: u32,
    ends: u32,
    /// The share of entries that is lost.
    lost: f64,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = ["reads", "holds", "zipf", "backend", "flush", "ends", "lost"];
    let section = whole.need("cache", &keys)?;
    let second = |key| -> Read<u32> {
        let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
        let time = section.needed(key, section.duration(key, range)?)?;
        match time.subsec_nanos() {
            0 => Ok(u32::try_from(time.as_secs()).unwrap_or(0)),
            _ => Err(section.refused(key, "whole seconds")),
        }
    };
    let rate = |key| section.needed(key, section.whole_per_second(key)?);
    let (flush, ends) = (second("flush")?, second("ends")?);
    if ends < flush + LOOK {
        return Err(section.refused("ends", format!("{LOOK} s after flush, or later")));
    }
    let reads = rate("reads")?;
    if !(1..=MOST_READS).contains(&reads) {
        return Err(section.refused("reads", format!("1/s to {MOST_READS}/s")));
    }
    let zipf = section.number("zipf", 1.01..=10.0)?;
    Ok(Arc::new(Cache {
        reads,
        holds: section.needed("holds", section.count("holds", 1..=MOST_HELD)?)?,
        zipf: section.needed("zipf", zipf)?,
        backend: rate("backend")?,
        flush,
        ends,
        lost: section.share("lost")?.unwrap_or(1.0),
    }))
}

impl Setup for Cache {
    fn run(&self, seed: u64) -> Numbers {
        let draws = Draws::new(seed);
        let mut keys = draws.stream(0, Purpose::Choice);
        let mut held = Held::new(self.holds);
        (1..=u64::from(self.holds)).rev().for_each(|key| held.put(key));
        let (mut digest, mut seconds) = (Digest::default(), Vec::new());
        for second in 0..self.ends {
            if second == self.flush {
                held.lose(self.lost, &mut draws.stream(0, Purpose::Fault));
            }
            let (mut hits, mut made) = (0, 0);
            for _ in 0..self.reads {
                let key = zipf(self.zipf, &mut keys);
                if held.touch(key) {
                    hits += 1;
                } else if made < self.backend {
                    made += 1;
                    held.put(key);
                }
            }
            digest.add(u64::from(hits) << 32 | u64::from(made));
            seconds.push((hits, made));
        }
        let events = u64::from(self.reads) * u64::from(self.ends);
        Numbers { values: self.numbers(&seconds), events, digest: digest.sum() }
    }
}

impl Cache {
    /// Of the hits, and what the backend made, in every second.
    fn numbers(&self, seconds: &[(u32, u32)]) -> Vec<f64> {
        let hits = |seconds: &[(u32, u32)]| {
            let hits: u32 = seconds.iter().map(|(hits, _)| hits).sum();
            f64::from(hits) / f64::from(self.reads) / seconds.len() as f64
        };
        let (before, after) = seconds.split_at(self.flush as usize);
        let usual = hits(before);
        let look = LOOK as usize;
        let is_back = |window: &[(u32, u32)]| hits(window) >= 0.95 * usual;
        let recovery = after.windows(look).position(is_back);
        let answered: u32 = after.iter().map(|(hits, made)| hits + made).sum();
        let failed = 1.0 - f64::from(answered) / f64::from(self.reads) / after.len() as f64;
        let last = hits(&after[after.len() - look..]);
        vec![usual, last, failed, recovery.map_or(f64::INFINITY, |second| second as f64)]
    }
}

/// Entries, by when they were read last.
struct Held {
    most: usize,
    reads: u64,
    by_key: BTreeMap<u64, u64>,
    by_age: BTreeMap<u64, u64>,
}

impl Held {
    const fn new(most: u32) -> Self {
        Self { most: most as usize, reads: 0, by_key: BTreeMap::new(), by_age: BTreeMap::new() }
    }

    /// Whether it is there; then it is the youngest.
    fn touch(&mut self, key: u64) -> bool {
        let Some(age) = self.by_key.get_mut(&key) else { return false };
        self.by_age.remove(age);
        self.reads += 1;
        *age = self.reads;
        self.by_age.insert(self.reads, key);
        true
    }

    fn put(&mut self, key: u64) {
        if self.by_key.len() == self.most
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.reads += 1;
        self.by_key.insert(key, self.reads);
        self.by_age.insert(self.reads, key);
    }

    /// Each entry is lost with this probability.
    fn lose(&mut self, share: f64, draw: &mut Draw) {
        self.by_key.retain(|_, _| !(share > 0.0 && draw.happens(share)));
        let by_key = &self.by_key;
        self.by_age.retain(|_, key| by_key.contains_key(key));
    }
}

/// A key from 1 up, the k-th k^−s times as likely as the first; s above 1. By rejection from the
/// continuous law.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn zipf(exponent: f64, draw: &mut Draw) -> u64 {
    let (s, b) = (exponent - 1.0, libm::pow(2.0, exponent - 1.0));
    loop {
        let key = libm::pow(draw.unit(), -1.0 / s).floor();
        let t = libm::pow(1.0 + 1.0 / key, s);
        if draw.unit() * key * (t - 1.0) / (b - 1.0) <= t / b {
            return key as u64;
        }
    }
}

/// Seconds whose hits are looked at together. Source: own choice.
const LOOK: u32 = 10;
/// Source: own choice.
const MOST_READS: u32 = 1_000_000;
/// Source: own choice.
const MOST_HELD: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_likely_as_their_law_says() {
        let mut draw = Draws::new(1).stream(0, Purpose::Choice);
        let n = 100_000;
        let keys: Vec<_> = (0..n).map(|_| zipf(1.3, &mut draw)).collect();
        // ζ(1.3), by its sum and the integral of the rest.
        let sum: f64 = (1..=1_000).map(|key| f64::from(key).powf(-1.3)).sum();
        let zeta = sum + 1_000.5_f64.powf(-0.3) / 0.3;
        for key in [1_u64, 2, 3, 10] {
            let expected = (key as f64).powf(-1.3) / zeta;
            let share = keys.iter().filter(|drawn| **drawn == key).count() as f64 / f64::from(n);
            // Five standard errors.
            let error = 5.0 * (expected / f64::from(n)).sqrt();
            assert!((share - expected).abs() < error, "{key}: {share}, not {expected}");
        }
        let beyond = keys.iter().filter(|key| **key > 1_000).count() as f64 / f64::from(n);
        assert!((beyond - (1.0 - sum / zeta)).abs() < 0.005, "{beyond}");
    }

    #[test]
    fn what_was_not_read_for_longest_leaves() {
        let mut held = Held::new(2);
        (1..=2).for_each(|key| held.put(key));
        assert!(held.touch(1));
        held.put(3);
        assert_eq!([1, 2, 3].map(|key| held.touch(key)), [true, false, true]);
        held.lose(1.0, &mut Draws::new(1).stream(0, Purpose::Fault));
        assert!(!held.touch(1) && held.by_age.is_empty());
        held.put(4);
        held.lose(0.0, &mut Draws::new(1).stream(0, Purpose::Fault));
        assert!(held.touch(4));
    }

    #[test]
    fn a_backend_that_makes_nothing_brings_nothing_back() {
        let cache = Cache {
            reads: 1_000,
            holds: 1_000,
            zipf: 1.3,
            backend: 0,
            flush: 4,
            ends: 20,
            lost: 1.0,
        };
        let came = Setup::run(&cache, 1);
        // The keys that it holds at first are those read most: 89.3 % of the reads.
        assert!((came.values[0] - 0.893).abs() < 0.02, "{:?}", came.values);
        assert!(came.values[1] < 1e-9 && came.values[2] > 0.999 && came.values[3].is_infinite());
    }
}
