//! The tail of a fan-out with production code: a user waits for the slowest of a hundred calls.
//!
//! The survival function of one call is a power law in pieces; its published origin hedged after
//! 10 ms and took p99.9 of the hundred from 1,800 ms to 74 ms with 2 % more requests
//! (Source: tail-at-scale).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::sim::{GET, Reply, Sent, Sim, at, millis};
use super::{FREE, hedging};
use crate::hedge::{HedgeDelay, HedgeOptions, HedgeRefusal};
use crate::outcome::{AnswerSignals, Cause, Outcome};
use crate::ratio::Ratio;
use crate::rng::{Rng, SplitMix64};
use crate::stack::{Attempt, Dependency, Event, Operation, StackParams, Step};
use crate::time::Timestamp;

/// Milliseconds, and the share of the calls that take longer.
const POINTS: [(f64, f64); 5] =
    [(1.0, 1.0), (4.0, 0.5), (10.0, 0.02), (69.0, 0.003_248_42), (1800.0, 1.0005e-5)];

/// The piece of the law in which `inside` holds for its end; the last goes on for ever.
fn piece(inside: impl Fn((f64, f64)) -> bool) -> ((f64, f64), f64) {
    let mut pieces = POINTS.windows(2).map(|pair| (pair[0], pair[1]));
    let last = (POINTS[3], POINTS[4]);
    let (from, to) = pieces.find(|(_, to)| inside(*to)).unwrap_or(last);
    (from, (to.1 / from.1).ln() / (to.0 / from.0).ln())
}

/// The share of the calls that take longer than `millis`.
fn survival(millis: f64) -> f64 {
    if millis <= 1.0 {
        return 1.0;
    }
    let (from, exponent) = piece(|to| millis <= to.0);
    from.1 * (millis / from.0).powf(exponent)
}

/// A time with that survival.
fn draw(rng: &mut SplitMix64) -> f64 {
    let share = (rng.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
    let (from, exponent) = piece(|to| share >= to.1);
    from.0 * (share / from.1).powf(1.0 / exponent)
}

/// How leaf calls behave.
struct Leaves {
    params: StackParams,
    dependency: Dependency,
    rng: SplitMix64,
    times: SplitMix64,
    now: Timestamp,
    /// How often a hedge meets the slowness of the first attempt.
    correlated: f64,
}

impl Leaves {
    fn new(hedge: HedgeOptions, correlated: f64) -> Self {
        Self {
            params: StackParams::new(&hedging(hedge, 2)).unwrap(),
            dependency: Dependency::new(2, 1),
            rng: SplitMix64::new(3),
            times: SplitMix64::new(4),
            now: at(1),
            correlated,
        }
    }

    /// Makes one call to its end, in milliseconds. Calls are independent, so one after the other.
    fn call(&mut self) -> f64 {
        let begun = self.now;
        let first_takes = draw(&mut self.times);
        let (mut operation, step) =
            Operation::begin(begun, &mut self.dependency, &self.params, GET.call, &mut self.rng);
        let Step::Send(first) = step else { panic!("sent at once") };
        let first_ends = begun.after(duration(first_takes));
        let mut other = None;
        if let Some(due) = first.hedge_at.filter(|due| *due < first_ends) {
            let event = Event::HedgeDue { replayable: true };
            let (dependency, params) = (&mut self.dependency, &self.params);
            if let Step::Send(hedge) =
                operation.on_event(due, dependency, params, event, &mut self.rng)
            {
                let alike = (self.times.below(1_000) as f64) < self.correlated * 1_000.0;
                let takes = if alike { first_takes } else { draw(&mut self.times) };
                other = Some((due.after(duration(takes)), hedge));
            }
        }
        let (mut ended, mut lost) = ((first_ends, first), other);
        if let Some((ends, hedge)) = lost.take() {
            lost = Some((ends, hedge));
            if ends < ended.0 {
                lost = lost.map(|hedge| core::mem::replace(&mut ended, hedge));
            }
        }
        self.end(&mut operation, ended, lost);
        self.now.since(begun).as_secs_f64() * 1e3
    }

    /// One is answered, the other given up; the next call begins when nothing is held any longer.
    fn end(
        &mut self,
        operation: &mut Operation,
        (ends, mut won): (Timestamp, Attempt),
        lost: Option<(Timestamp, Attempt)>,
    ) {
        let (dependency, params) = (&mut self.dependency, &self.params);
        won.permit.mark_sent();
        let outcome = Outcome::of(Cause::Answered);
        let event = Event::Ended { permit: &mut won.permit, outcome, replayable: true };
        let step = operation.on_event(ends, dependency, params, event, &mut self.rng);
        assert!(matches!(step, Step::Done(_)));
        dependency.release(ends, params, won.permit);
        if let Some((_, mut lost)) = lost {
            lost.permit.mark_sent();
            if let Some(held) = dependency.abandon(ends, params, lost.permit, &mut self.rng) {
                dependency.end_held(ends, params, held);
            }
        }
        self.now = ends;
    }

    /// Makes a hundred calls for each user.
    fn play(mut self) -> Played {
        let mut calls: Vec<f64> = (0..users() * 100).map(|_| self.call()).collect();
        let slowest = |hundred: &[f64]| hundred.iter().copied().fold(0.0, f64::max);
        let mut users: Vec<f64> = calls.chunks(100).map(slowest).collect();
        calls.sort_by(f64::total_cmp);
        users.sort_by(f64::total_cmp);
        let counters = self.dependency.counters();
        let extra = counters.hedges as f64 / counters.first_attempts as f64;
        Played { calls, users, extra }
    }
}

/// Times in milliseconds, sorted.
struct Played {
    calls: Vec<f64>,
    /// The slowest of each hundred.
    users: Vec<f64>,
    /// Hedges per first attempt.
    extra: f64,
}

/// A hundred, or as many as `SEAWALL_S12_USERS` says.
fn users() -> usize {
    std::env::var("SEAWALL_S12_USERS").map_or(100, |users| users.parse().unwrap())
}

fn quantile(sorted: &[f64], per_mille: u32) -> f64 {
    let rank = Ratio::from_millionths(per_mille * 1_000).of(sorted.len() as u64);
    sorted[usize::try_from(rank).unwrap()]
}

fn duration(millis: f64) -> Duration {
    Duration::from_secs_f64(millis / 1e3)
}

fn share_above(sorted: &[f64], millis: f64) -> f64 {
    sorted.iter().filter(|time| **time > millis).count() as f64 / sorted.len() as f64
}

fn fixed(millis_: u64) -> HedgeOptions {
    HedgeOptions { delay: HedgeDelay::Fixed(millis(millis_)), ..FREE }
}

#[track_caller]
fn follows(sorted: &[f64], above: f64, expected: f64) {
    let measured = share_above(sorted, above);
    let noise = 4.0 * (expected * (1.0 - expected) / sorted.len() as f64).sqrt();
    let grain = 4.0 / sorted.len() as f64;
    assert!((measured - expected).abs() < noise + grain, "{above}: {measured} {expected}");
}

#[test]
fn the_slowest_of_a_hundred_follows_the_closed_form() {
    for delay in [4, 6, 10, 20, 40] {
        let played = Leaves::new(fixed(delay), 0.0).play();
        let delay = delay as f64;
        assert!((played.extra - survival(delay)).abs() < 0.02, "{delay}: {}", played.extra);
        for time in [15.0, 25.0, 45.0, 60.0, 90.0, 150.0] {
            let leaf = survival(time) * survival((time - delay).max(1.0));
            follows(&played.calls, time, leaf);
            follows(&played.users, time, 1.0 - (1.0 - leaf).powi(100));
        }
    }
}

#[test]
fn slowness_that_both_attempts_meet_is_paid_for_and_not_cured() {
    let played = Leaves::new(fixed(10), 0.1).play();
    for time in [25.0, 45.0, 69.0, 150.0] {
        // Alike, the first is always before the hedge.
        let leaf = survival(time) * (0.9 * survival(time - 10.0) + 0.1);
        follows(&played.calls, time, leaf);
        follows(&played.users, time, 1.0 - (1.0 - leaf).powi(100));
    }
}

#[test]
fn two_per_cent_more_calls_take_the_tail_off() {
    let never = HedgeOptions { delay: HedgeDelay::Fixed(Duration::from_secs(3600)), ..FREE };
    let without = Leaves::new(never, 0.0).play();
    let with = Leaves::new(HedgeOptions::default(), 0.0).play();
    assert!(with.extra <= 0.02 && with.extra > 0.01, "{}", with.extra);
    let [before, after] = [&without, &with].map(|played| quantile(&played.calls, 999));
    assert!(after < before / 3.0, "p99.9 of a call: {before} {after}");
    let mut report = String::new();
    for (name, played) in [("no hedge", &without), ("default", &with)] {
        let Played { calls, users, extra } = played;
        let call = quantile(calls, 999);
        let [half, most, all] = [500, 990, 999].map(|share| quantile(users, share));
        report += &format!(
            "{name}: p99.9 of a call {call:.0} ms; slowest of a hundred: p50 {half:.0} ms, p99 \
             {most:.0} ms, p99.9 {all:.0} ms; {:.2} % extra\n",
            extra * 100.0,
        );
    }
    match std::env::var("SEAWALL_S12_USERS") {
        Ok(_) => std::println!("{report}"),
        Err(_) => insta::assert_snapshot!(report),
    }
}

/// Calls at `load` of two replicas, each one FIFO queue with exponential service of 10 ms that
/// goes on with what was cancelled: hedges of the last 50 s, those refused for the load, and the
/// mean time of all calls in milliseconds.
fn queues(load: f64, hedge: HedgeOptions) -> (u64, u64, f64) {
    let mut services = SplitMix64::new(8);
    let mut free = [Timestamp::ZERO; 2];
    let script = move |sent: &Sent| {
        let ends = free[sent.endpoint].max(sent.at).after(exponential(&mut services, 10.0));
        free[sent.endpoint] = ends;
        let outcome = Outcome::of_status(200, AnswerSignals::default());
        Reply { after: ends.since(sent.at), outcome, sent: true }
    };
    let mut sim = Sim::new(&hedging(hedge, 2), 2, 1, script);
    let mut arrivals = SplitMix64::new(9);
    let mut now = at(0);
    while now < at(60_000) {
        now = now.after(exponential(&mut arrivals, 5.0 / load));
        sim.call_at(now, GET);
    }
    sim.run_until(10_000);
    let before = *sim.dependency.counters();
    sim.run_until(60_000);
    let after = *sim.dependency.counters();
    let refused = after.hedges_refused[HedgeRefusal::Load.index()];
    sim.run_until(600_000);
    let times = sim.took();
    let mean = times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64;
    (after.hedges - before.hedges, refused, mean * 1e3)
}

fn exponential(rng: &mut SplitMix64, millis: f64) -> Duration {
    let unit = (rng.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
    duration(-millis * unit.ln())
}

#[test]
fn above_eighty_per_cent_of_two_queues_nothing_is_hedged() {
    let hedge = HedgeOptions::default();
    let mut report = String::new();
    for percent in [50, 60, 70, 75, 85, 90, 95] {
        let load = f64::from(percent) / 100.0;
        let (hedges, refused, mean) = queues(load, hedge);
        report += &format!("{percent} %: {hedges} hedges, {refused} refused for the load\n");
        if percent <= 60 {
            assert!(hedges > 0, "{percent}: {refused} refused");
        } else if percent >= 85 {
            assert_eq!(hedges, 0, "{percent}");
            assert!(refused > 100, "{percent}: they were due");
        }
        assert!(mean < 10.0 / (1.0 - load) + 10.0);
    }
    insta::assert_snapshot!(report);
}

#[test]
fn hedges_without_a_bound_on_the_load_make_a_busy_dependency_slower() {
    let unbound = HedgeOptions { max_load: Ratio::ONE, max_extra: Ratio::ONE, ..fixed(20) };
    let (hedges, _, slower) = queues(0.9, unbound);
    let (_, _, mean) = queues(0.9, HedgeOptions::default());
    assert!(hedges > 1_000 && slower > 2.0 * mean, "{hedges} {slower} {mean}");
}
