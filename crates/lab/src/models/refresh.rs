//! A cached entry that is read at random and has an end: who makes it anew, how many at once, and
//! who comes too late.
//!
//! Each reader is asked by a rule of the [`baselines`](crate::baselines); there is none of ours.
//! The first who is done replaces the entry, and the next one's life begins. Reads that are long
//! before the end are left out: a life begins where one reader in three thousand lives would begin
//! earlier. A read is late if it finds nothing but what is over.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::Timestamp;

use super::{Digest, Kind, Numbers, Setup};
use crate::baselines::refreshes;
use crate::draw::{Draw, Draws, Purpose};
use crate::scenario::{Read, Section, Unit};
use crate::span::seconds_to_span;

pub(super) const KIND: Kind = Kind {
    section: "refresh",
    beside: &[],
    numbers: &[
        ("begun", Unit::Times),
        ("alone", Unit::Share),
        ("lead", Unit::Time),
        ("late", Unit::Times),
    ],
    read,
};

/// An entry, again and again.
#[derive(Clone, Debug)]
struct Refresh {
    /// Reads a second.
    reads: f64,
    /// How long it takes to make the entry.
    takes: Duration,
    /// How early; at 0 it is made anew once it is over.
    beta: f64,
    /// Lives to be seen.
    lives: u32,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let section = whole.need("refresh", &["reads", "takes", "beta", "lives"])?;
    let reads = section.needed("reads", section.per_second("reads")?)?;
    if reads <= 0.0 {
        return Err(section.refused("reads", "a rate above 0/s"));
    }
    let millisecond = Duration::from_millis(1);
    let takes = section.duration("takes", millisecond..=Duration::from_secs(60))?;
    Ok(Arc::new(Refresh {
        reads,
        takes: section.needed("takes", takes)?,
        beta: section.number("beta", 0.0..=10.0)?.unwrap_or(1.0),
        lives: section.needed("lives", section.count("lives", 1..=MOST)?)?,
    }))
}

impl Setup for Refresh {
    fn run(&self, seed: u64) -> Numbers {
        let draws = Draws::new(seed);
        let mut digest = Digest::default();
        let (mut begun, mut alone, mut late, mut lead, mut reads) = (0_u64, 0_u64, 0, 0.0, 0);
        for life in 0..self.lives {
            let seen = self
                .life(draws.stream(life, Purpose::Arrival), draws.stream(life, Purpose::Choice));
            begun += seen.begun;
            alone += u64::from(seen.begun == 1);
            late += seen.late;
            reads += seen.reads;
            lead += seen.lead;
            digest.add(seen.begun << 32 ^ seen.reads);
        }
        let lives = f64::from(self.lives);
        let per_life = |sum: u64| sum as f64 / lives;
        let values = vec![per_life(begun), per_life(alone), lead / lives, per_life(late)];
        Numbers { values, events: reads, digest: digest.sum() }
    }
}

/// What a life was like.
struct Life {
    /// Those who began to make the entry anew before it was.
    begun: u64,
    /// How long before its end the first of them began, in seconds; below zero if after.
    lead: f64,
    late: u64,
    reads: u64,
}

impl Refresh {
    /// The life of an entry, from where it may be made anew until it is.
    fn life(&self, mut arrivals: Draw, mut choices: Draw) -> Life {
        let end = Timestamp::ZERO.after(self.looks());
        let mut seen = Life { begun: 0, lead: 0.0, late: 0, reads: 0 };
        let (mut now, mut done) = (Timestamp::ZERO, Timestamp::MAX);
        loop {
            now = now.after(seconds_to_span(arrivals.exponential() / self.reads));
            if now >= done {
                return seen;
            }
            seen.reads += 1;
            seen.late += u64::from(now >= end);
            if !refreshes(now.until(end), self.takes, self.beta, &mut choices) {
                continue;
            }
            seen.begun += 1;
            if seen.begun == 1 {
                done = now.after(self.takes);
                seen.lead = now.until(end).as_secs_f64() - end.until(now).as_secs_f64();
            }
        }
    }

    /// How long before the end somebody may begin, but for one life in e⁸.
    fn looks(&self) -> Duration {
        let early = self.takes.as_secs_f64() * self.beta;
        let crowd = libm::log((self.reads * early).max(1.0));
        seconds_to_span(early * (crowd + 8.0))
    }
}

/// Lives of an entry in one run. Source: own choice.
const MOST: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// With readers at random, those who begin with more than y left are a Poisson number of mean
    /// λδβ·e^(−y/δβ) =: v. So the first begins with v = an exponential number of mean 1, which is
    /// δβ(ln λδβ + γ) before the end on average; and in the δ it takes, v(e^(1/β) − 1) more
    /// begin, none of them with probability e^(−1/β).
    #[test]
    fn readers_follow_the_closed_forms() {
        for (reads, takes, beta, lives) in [(10.0, 3, 1.0, 20_000), (10.0, 3, 2.0, 5_000)] {
            let refresh = Refresh { reads, takes: Duration::from_secs(takes), beta, lives };
            let came = Setup::run(&refresh, 3);
            let [begun, alone, lead, late] = came.values[..] else { panic!("four numbers") };
            let early = takes as f64 * beta;
            let (euler, many) = (0.577_216, f64::from(lives).sqrt());
            let check = |name, measured: f64, expected: f64, within: f64| {
                assert!((measured - expected).abs() < within, "{name}: {measured}, not {expected}");
            };
            check("alone", alone, (-1.0 / beta).exp(), 0.01 * (20_000.0_f64).sqrt() / many);
            check("begun", begun, (1.0 / beta).exp(), 10.0 / many);
            check("lead", lead, early * ((reads * early).ln() + euler), 5.0 * early / many);
            assert!(late < 0.01, "{late}");
        }
    }

    #[test]
    fn at_the_end_everybody_who_comes_begins() {
        let refresh =
            Refresh { reads: 100.0, takes: Duration::from_secs(1), beta: 0.0, lives: 400 };
        let came = Setup::run(&refresh, 1);
        // The first, and those who come while it is made.
        assert!((came.values[0] - 101.0).abs() < 2.5, "{:?}", came.values);
        assert!((came.values[3] - 101.0).abs() < 2.5, "all are late");
        assert!(came.values[2] < 0.0 && came.values[1] < 1e-9);
    }
}
