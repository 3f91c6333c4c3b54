//! A limit on calls in flight in front of a server that is the slower the more are inside: where it
//! settles, where a server that hangs takes it, and where one is learned under load.
//!
//! The server is a fluid: it ends C calls a second, a call alone takes R, so `fits` = C·R are
//! inside when it is just busy, and with L inside a call takes R·max(1, L / fits). Demand is always
//! above the limit. The rules are the [`baselines`](crate::baselines); ours is the fixed one of the
//! bulkhead until there is another.

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{Admission, Bulkhead, BulkheadParams, Timestamp};

use super::{Digest, Kind, Numbers, Setup};
use crate::baselines::{LimitRule, LimitState};
use crate::draw::{Draw, Draws, Purpose};
use crate::scenario::{Read, Section, Unit, config};

pub(super) const KIND: Kind = Kind {
    section: "limits",
    beside: &["policy"],
    numbers: &[
        ("settled", Unit::Times),
        ("least", Unit::Times),
        ("hung", Unit::Times),
        ("relearned", Unit::Times),
        ("windows_to_most", Unit::Count),
    ],
    read,
};

/// A server, and a rule before it.
#[derive(Clone, Debug)]
struct Limits {
    rule: Rule,
    /// Calls inside when the server is just busy.
    fits: f64,
    /// What a call takes alone, in seconds.
    alone: f64,
    /// What every call takes of a server that hangs, in seconds.
    hangs: f64,
    windows: u32,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    /// The bulkhead's.
    Fixed(f64),
    Of(LimitRule),
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = ["rule", "fits", "alone", "hangs", "windows"];
    let section = whole.need("limits", &keys)?;
    let rules = [
        ("bulkhead", None),
        ("gradient2", Some(LimitRule::Gradient2)),
        ("vegas", Some(LimitRule::Vegas)),
        ("aimd", Some(LimitRule::Aimd)),
        ("envoy", Some(LimitRule::Envoy { pins: true })),
        ("envoy-unpinned", Some(LimitRule::Envoy { pins: false })),
    ];
    let rule = match section.choice("rule", &rules)?.flatten() {
        Some(rule) => Rule::Of(rule),
        None => match config(whole)?.bulkhead.map(BulkheadParams::new) {
            Some(Ok(params)) => Rule::Fixed(taken_in(&params)),
            _ => return Err(section.refused("rule", "a rule, or a bulkhead in policy")),
        },
    };
    let time = |key| -> Read<f64> {
        let range = Duration::from_millis(1)..=Duration::from_secs(60);
        Ok(section.needed(key, section.duration(key, range)?)?.as_secs_f64())
    };
    Ok(Arc::new(Limits {
        rule,
        fits: section.needed("fits", section.count("fits", 1..=100_000)?)?.into(),
        alone: time("alone")?,
        hangs: time("hangs")?,
        windows: section.needed("windows", section.count("windows", 1_000..=1_000_000)?)?,
    }))
}

/// How many are in flight at once if more and more come.
fn taken_in(params: &BulkheadParams) -> f64 {
    let (now, mut bulkhead) = (Timestamp::ZERO, Bulkhead::new(0));
    let taken_in = std::iter::repeat_with(|| bulkhead.try_acquire(now, params, 0, now))
        .take_while(|admission| matches!(admission, Admission::Admitted(())));
    taken_in.count() as f64
}

impl Setup for Limits {
    fn run(&self, seed: u64) -> Numbers {
        let draws = Draws::new(seed);
        let mut digest = Digest::default();
        let mut play = |phase: u32, takes: &dyn Fn(f64) -> f64, relearns: u32| {
            let limits = self.play(draws.stream(phase, Purpose::Policy), takes, relearns);
            limits.iter().for_each(|limit| digest.add(limit.to_bits()));
            limits.iter().map(|limit| limit / self.fits).collect::<Vec<_>>()
        };
        let busy = |inside: f64| self.alone * (inside / self.fits).max(1.0);
        let steady = play(0, &busy, u32::MAX);
        let hung = play(1, &|_| self.hangs, u32::MAX);
        let relearned = play(2, &busy, RELEARNS);
        let last = |limits: &[f64]| {
            let last = &limits[limits.len() - LAST..];
            last.iter().sum::<f64>() / last.len() as f64
        };
        // What it takes from its begin to where it can settle is not counted.
        let least = steady[LAST..].iter().copied().fold(f64::INFINITY, f64::min);
        let most = hung.iter().copied().fold(0.0, f64::max);
        let to_most = hung.iter().position(|limit| *limit >= most).unwrap_or(0);
        let values = vec![last(&steady), least, last(&hung), last(&relearned), to_most as f64];
        Numbers { values, events: 3 * u64::from(self.windows), digest: digest.sum() }
    }
}

impl Limits {
    /// The limit in every window, with a server whose calls take so long with so many inside. Every
    /// `relearns` windows what is seen under load is taken for the time of calls without.
    fn play(&self, mut draw: Draw, takes: &dyn Fn(f64) -> f64, relearns: u32) -> Vec<f64> {
        let rule = match self.rule {
            Rule::Fixed(limit) => return vec![limit; self.windows as usize],
            Rule::Of(rule) => rule,
        };
        let mut state = LimitState::new(rule);
        let mut limits = Vec::with_capacity(self.windows as usize);
        for window in 0..self.windows {
            let inside = state.limit();
            limits.push(inside);
            let time = takes(inside);
            state.window(time, inside * WINDOW / time, &mut draw);
            if window % relearns == relearns - 1 {
                state.learn(time);
            }
        }
        limits
    }
}

/// Windows after which what a call takes alone is learned anew, under load. Source: own choice.
const RELEARNS: u32 = 300;
/// Windows at the end that count. Source: own choice.
const LAST: usize = 500;
/// Seconds of one. Source: envoy-adaptive-concurrency (updates every 0.1 s).
const WINDOW: f64 = 0.1;

#[cfg(test)]
mod tests {
    use seawall_policy::BulkheadOptions;

    use super::*;

    #[test]
    fn a_bulkhead_lets_in_what_it_says_and_stays_there() {
        let params = BulkheadParams::new(BulkheadOptions::with_limit(60)).unwrap();
        let rule = Rule::Fixed(taken_in(&params));
        let limits = Limits { rule, fits: 50.0, alone: 0.05, hangs: 5.0, windows: 1_000 };
        let [settled, least, hung, relearned, to_most] = Setup::run(&limits, 1).values[..] else {
            panic!("five numbers")
        };
        for limit in [settled, least, hung, relearned] {
            assert!((limit - 1.2).abs() < 1e-9, "{limit}");
        }
        assert!(to_most < 1e-9);
    }

    #[test]
    fn a_gradient_that_knows_what_a_call_takes_alone_settles_where_its_formula_does() {
        let rule = Rule::Of(LimitRule::Envoy { pins: true });
        let limits = Limits { rule, fits: 50.0, alone: 0.05, hangs: 5.0, windows: 2_000 };
        // L = 1.25 · 50 + √L.
        let root = (1.0 + (1.0_f64 + 4.0 * 62.5).sqrt()) / 2.0;
        let settled = Setup::run(&limits, 1).values[0] * 50.0;
        assert!((settled - root * root).abs() < 2.0, "{settled}, not {}", root * root);
    }
}
