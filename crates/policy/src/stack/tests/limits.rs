//! The limit that moves within the bulkhead's.

use alloc::vec::Vec;
use core::time::Duration;

use super::at;
use crate::bulkhead::BulkheadOptions;
use crate::limit::{LimitOptions, LimitRule};
use crate::outcome::{Cause, Outcome};
use crate::rng::SplitMix64;
use crate::stack::{Admitted, Dependency, Permit, StackConfig, StackParams};
use crate::time::Timestamp;

fn config(rule: LimitRule) -> StackConfig {
    let bulkhead = BulkheadOptions { wait: Duration::ZERO, ..BulkheadOptions::with_limit(40) };
    let limit = LimitOptions { rule, ..LimitOptions::default() };
    StackConfig { bulkhead: Some(bulkhead), limit: Some(limit), ..StackConfig::default() }
}

fn params(rule: LimitRule) -> StackParams {
    StackParams::new(&config(rule)).unwrap()
}

/// As many as are let in.
fn fill(dependency: &mut Dependency, now: Timestamp, params: &StackParams) -> Vec<Permit> {
    let mut rng = SplitMix64::new(1);
    core::iter::from_fn(|| match dependency.admit(now, params, 0, now, |_| false, &mut rng) {
        Admitted::Permit(mut permit) => {
            permit.mark_sent();
            Some(permit)
        }
        Admitted::Queued(..) | Admitted::Rejected(_) => None,
    })
    .collect()
}

/// All end alike.
fn end(
    dependency: &mut Dependency,
    now: Timestamp,
    params: &StackParams,
    permits: Vec<Permit>,
    cause: Cause,
) {
    let mut rng = SplitMix64::new(2);
    for mut permit in permits {
        dependency.record(now, params, &mut permit, &Outcome::of(cause), &mut rng);
        dependency.release(now, params, permit);
    }
}

#[test]
fn a_limit_needs_a_bulkhead_and_stays_below_it() {
    let alone = StackConfig { bulkhead: None, ..config(LimitRule::Knee) };
    let refused = StackParams::new(&alone).unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("limit", "knee"));
    assert_eq!(params(LimitRule::Knee).limit().unwrap().max(), 40);
    let limit = LimitOptions { min: 41, ..LimitOptions::default() };
    let above = StackConfig { limit: Some(limit), ..config(LimitRule::Knee) };
    assert_eq!(StackParams::new(&above).unwrap_err().field(), "limit.min");
}

#[test]
fn the_bulkhead_lets_in_what_the_limit_says_and_refusals_for_load_lower_it() {
    let params = params(LimitRule::Aimd);
    let mut dependency = Dependency::new(1, 1);
    // The first call makes the limit.
    let first = fill(&mut dependency, at(0), &params);
    assert_eq!((first.len(), dependency.bulkhead().in_flight()), (20, 20));
    assert_eq!(dependency.limit().unwrap().in_flight(), 20);
    end(&mut dependency, at(200), &params, first, Cause::Status(200));
    assert_eq!(dependency.limit().unwrap().in_flight(), 0);
    assert_eq!(fill_and_end(&mut dependency, 400, &params, Cause::Status(503)), 21);
    assert_eq!(fill_and_end(&mut dependency, 800, &params, Cause::Status(404)), 18);
    // Refusals that came after the tenth are in the next window.
    assert_eq!(dependency.limit().unwrap().moves(), (1, 2));
}

/// How many were let in.
fn fill_and_end(
    dependency: &mut Dependency,
    millis: u64,
    params: &StackParams,
    cause: Cause,
) -> usize {
    let permits = fill(dependency, at(millis), params);
    let admitted = permits.len();
    end(dependency, at(millis + 200), params, permits, cause);
    admitted
}

#[test]
fn a_limit_switched_off_and_on_finds_nothing_leaked() {
    let (on, mut off) = (params(LimitRule::Aimd), config(LimitRule::Aimd));
    off.limit = None;
    let off = StackParams::new(&off).unwrap();
    let mut dependency = Dependency::new(1, 1);
    let limited = fill(&mut dependency, at(0), &on);
    let free = fill(&mut dependency, at(1), &off);
    assert_eq!((limited.len(), free.len()), (20, 20), "without a limit the bulkhead's holds");
    end(&mut dependency, at(300), &off, limited, Cause::Status(200));
    assert_eq!(dependency.limit().unwrap().in_flight(), 0);
    end(&mut dependency, at(400), &on, free, Cause::Status(200));
    assert_eq!(dependency.limit().unwrap().in_flight(), 0);
    assert_eq!(fill(&mut dependency, at(500), &on).len(), 20, "no sample, no move");
}

#[test]
fn a_call_whose_caller_left_holds_its_place_and_tells_so() {
    let params = params(LimitRule::Aimd);
    let mut dependency = Dependency::new(1, 1);
    let mut rng = SplitMix64::new(3);
    let permits = fill(&mut dependency, at(0), &params);
    let held: Vec<_> = permits
        .into_iter()
        .filter_map(|permit| dependency.abandon(at(200), &params, permit, &mut rng))
        .collect();
    let limit = dependency.limit().unwrap();
    assert_eq!((held.len(), limit.in_flight(), limit.samples()), (20, 20, 20));
    assert_eq!(dependency.bulkhead().limit(params.slots()), 18);
    for held in held {
        dependency.end_held(at(300), &params, held);
    }
    assert_eq!(dependency.limit().unwrap().in_flight(), 0);
}

#[test]
fn what_was_never_sent_is_no_sample() {
    let params = params(LimitRule::Aimd);
    let mut dependency = Dependency::new(1, 1);
    let permits = fill(&mut dependency, at(0), &params);
    for permit in permits {
        dependency.release(at(200), &params, permit);
    }
    let limit = dependency.limit().unwrap();
    assert_eq!((limit.in_flight(), limit.samples()), (0, 0));
}
