//! When a stop begins and when it ends, and that the window holds exactly what it should.

use super::*;
use crate::rng::{Rng, SplitMix64};
use proptest::prelude::*;
use std::borrow::ToOwned as _;
use std::vec::Vec;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn params() -> RetryShareParams {
    RetryShareParams::new(RetryShareOptions::default()).unwrap()
}

/// So many attempts of a number, at one time.
fn come(share: &mut RetryShare, now: u64, count: u32, attempt: u32) {
    (0..count).for_each(|_| share.record(at(now), &params(), attempt));
}

#[test]
fn a_stop_begins_above_the_share_and_what_is_spare_and_not_at_it() {
    let mut share = RetryShare::new();
    come(&mut share, 0, 200, 1);
    come(&mut share, 0, 30, 2);
    assert!(!share.says_stop(at(0), &params()), "30 of 200 is a tenth and ten");
    come(&mut share, 0, 1, 3);
    assert!(share.says_stop(at(0), &params()));
    assert_eq!((share.seen(), share.stops()), ((200, 31), 1));
}

#[test]
fn it_ends_at_half_the_share_and_not_above_it() {
    let mut share = RetryShare::new();
    come(&mut share, 0, 100, 1);
    come(&mut share, 0, 50, 2);
    come(&mut share, 100, 899, 1);
    assert!(share.says_stop(at(100), &params()), "50 of 999 is more than a twentieth");
    come(&mut share, 100, 1, 1);
    assert!(!share.says_stop(at(100), &params()), "50 of 1,000 is not");
    come(&mut share, 100, 60, 2);
    assert!(!share.says_stop(at(100), &params()), "110 of 1,000 is a tenth and ten");
    come(&mut share, 100, 1, 2);
    assert!(share.says_stop(at(100), &params()));
    assert_eq!(share.stops(), 2);
}

#[test]
fn few_retries_are_nobodys_fault_however_few_first_attempts_there_are() {
    let mut share = RetryShare::new();
    come(&mut share, 0, 10, 2);
    assert!(!share.says_stop(at(0), &params()));
    come(&mut share, 0, 1, 2);
    assert!(share.says_stop(at(0), &params()), "the first attempts went elsewhere");
}

#[test]
fn a_stop_passes_with_its_window() {
    let mut share = RetryShare::new();
    come(&mut share, 950, 11, 2);
    assert!(share.says_stop(at(9_999), &params()));
    assert!(!share.says_stop(at(10_000), &params()), "the tenth from 0 to 1 s is gone");
    assert_eq!(share.seen(), (0, 0));
    assert!(!share.says_stop(at(u64::MAX), &params()));
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let mut share = RetryShare::new();
    come(&mut share, 20_000, 11, 2);
    assert!(share.says_stop(at(5_000), &params()));
    come(&mut share, 0, 1, 1);
    assert_eq!(share.seen(), (1, 11));
    assert!(!share.says_stop(at(30_000), &params()));
}

#[test]
fn another_window_keeps_what_was_seen() {
    let mut share = RetryShare::new();
    come(&mut share, 0, 11, 2);
    let options = RetryShareOptions { window: Duration::from_secs(60), ..Default::default() };
    let longer = RetryShareParams::new(options).unwrap();
    assert!(share.says_stop(at(9_000), &longer));
    // It counts as seen now, in the tenth from 6 s to 12 s.
    assert!(share.says_stop(at(65_999), &longer));
    assert!(!share.says_stop(at(66_000), &longer));
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let refused = |options| RetryShareParams::new(options).unwrap_err().field().to_owned();
    let default = RetryShareOptions::default();
    assert_eq!(refused(RetryShareOptions::with_max(Ratio::ZERO)), "max");
    assert_eq!(refused(RetryShareOptions::with_max(Ratio::from_percent(101))), "max");
    assert_eq!(refused(RetryShareOptions { resume: default.max, ..default }), "resume");
    let window = Duration::from_millis(9_999);
    assert_eq!(refused(RetryShareOptions { window, ..default }), "window");
    let window = Duration::from_secs(601);
    assert_eq!(refused(RetryShareOptions { window, ..default }), "window");
    assert_eq!(refused(RetryShareOptions { spare: 0, ..default }), "spare");
    assert_eq!(refused(RetryShareOptions { spare: 1_000_001, ..default }), "spare");
    assert!(RetryShareParams::new(RetryShareOptions::with_max(Ratio::ONE)).is_ok());
    let least = RetryShareOptions::with_max(Ratio::from_millionths(1));
    assert!(RetryShareParams::new(least).is_ok(), "resumed at nothing");
}

/// Callers with three attempts each and no budget, a hundred first attempts a second, and attempts
/// that fail with this chance. When a stop first began, and attempts for each first one.
fn callers(fails: Ratio, firsts: u64, seed: u64) -> (Option<u64>, f64) {
    let (mut share, mut rng) = (RetryShare::new(), SplitMix64::new(seed));
    let (mut begun, mut attempts) = (None, 0);
    for first in 0..firsts {
        let now = first * 10;
        for attempt in 1..=3 {
            share.record(at(now), &params(), attempt);
            attempts += 1;
            let fails = rng.below(Ratio::SCALE.into()) < fails.millionths().into();
            if !fails || share.says_stop(at(now), &params()) {
                break;
            }
        }
        if share.stops() > 0 {
            begun.get_or_insert(first);
        }
    }
    (begun, attempts as f64 / firsts as f64)
}

#[test]
fn one_attempt_in_twenty_that_fails_stops_nobody() {
    for seed in 0..100 {
        assert_eq!(callers(Ratio::from_percent(5), 10_000, seed).0, None, "seed {seed}");
    }
}

#[test]
fn where_half_fail_it_begins_within_forty_calls_and_bounds_the_load() {
    for seed in 0..100 {
        let (begun, load) = callers(Ratio::from_percent(50), 10_000, seed);
        assert!(begun.is_some_and(|first| first < 40), "seed {seed}: {begun:?}");
        assert!(load < 1.12, "seed {seed}: {load}");
        let (_, load) = callers(Ratio::ONE, 10_000, seed);
        assert!(load < 1.12, "seed {seed}: {load}");
    }
}

proptest! {
    /// Keeps every attempt, and counts them anew each time.
    #[test]
    fn it_agrees_with_a_model_that_forgets_nothing(
        script in prop::collection::vec((0..3_000_u64, 1..4_u32, 1..9_u32), 0..120),
    ) {
        let (mut share, mut all) = (RetryShare::new(), Vec::new());
        let (mut now, mut stopped) = (0_u64, false);
        for (pause, attempt, count) in script {
            now += pause;
            for _ in 0..count {
                share.record(at(now), &params(), attempt);
                all.push((now / 1_000, attempt > 1));
                let seen = all.iter().filter(|(second, _)| second + 10 > now / 1_000);
                let retries = seen.clone().filter(|(_, is_retry)| *is_retry).count() as u64;
                let firsts = seen.count() as u64 - retries;
                // In whole numbers: rounding down never changes what `>` says of a whole number.
                stopped = if stopped { 20 * retries > firsts } else { 10 * retries > firsts + 100 };
                prop_assert_eq!(share.seen(), (firsts, retries));
                prop_assert_eq!(share.says_stop(at(now), &params()), stopped);
            }
        }
    }
}
