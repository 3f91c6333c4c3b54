//! A decision allocates nothing: what could make it wait is another thread's allocation.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use seawall_policy::{
    Call, Cause, Dependency, Event, HedgeOptions, LimitOptions, Operation, Outcome, OutlierOptions,
    Permit, Safety, SplitMix64, StackConfig, StackParams, Step, Timestamp,
};

const CALL: Call = Call {
    lane: 0,
    safety: Safety::Idempotent,
    owner: true,
    deadline: None,
    total: None,
    rate_key: None,
    attempt_timeout: None,
    retry: None,
    refresh: Some(Duration::from_secs(2)),
};

/// Drives one call to its end; of ten, the third fails, is retried and answered, and the
/// fifth is rejected, and answered with another credential.
fn call(number: u64, dependency: &mut Dependency, params: &StackParams, rng: &mut SplitMix64) {
    let mut now = Timestamp::from_millis(10_000 + number * 5);
    let (mut operation, mut step) = Operation::begin(now, dependency, params, CALL, rng);
    let mut permit: Option<Permit> = None;
    let mut attempts = 0;
    loop {
        step = match step {
            Step::Send(sent) => {
                permit = Some(sent.permit);
                Step::Fly
            }
            Step::Fly => {
                now = now.after(Duration::from_millis(2));
                attempts += 1;
                let failed = number % 10 == 3 && attempts == 1;
                let rejected = number % 10 == 5 && attempts == 1;
                let cause = Cause::Status(match (failed, rejected) {
                    (true, _) => 503,
                    (_, true) => 401,
                    _ => 200,
                });
                let mut ended = permit.take().unwrap();
                ended.mark_sent();
                let outcome = Outcome::of(cause);
                let event = Event::Ended { permit: &mut ended, outcome, replayable: true };
                let next = operation.on_event(now, dependency, params, event, rng);
                dependency.release(now, params, ended);
                next
            }
            Step::WaitUntil(at) => {
                now = at;
                operation.on_event(now, dependency, params, Event::Tick, rng)
            }
            Step::Refresh(_) => {
                let event = Event::Refreshed { is_fresh: true };
                operation.on_event(now, dependency, params, event, rng)
            }
            Step::Done(_) => break,
        };
        while dependency.pop_woken().is_some() {}
    }
    dependency.handle_timeout(now, params);
}

#[test]
fn a_decision_allocates_nothing() {
    let config = StackConfig {
        outlier: Some(OutlierOptions::default()),
        hedge: Some(HedgeOptions::default()),
        limit: Some(LimitOptions::default()),
        ..StackConfig::http()
    };
    let params = StackParams::new(&config).unwrap();
    let mut dependency = Dependency::new(10, 3);
    let rng = &mut SplitMix64::new(1);
    // What is made when it is first needed is made with the first calls: a histogram with the
    // twentieth, the rest with the first of its kind. From there on nothing is.
    (0..100).for_each(|number| call(number, &mut dependency, &params, rng));
    let measured = allocation_counter::measure(|| {
        (100..10_000).for_each(|number| call(number, &mut dependency, &params, rng));
    });
    assert!(dependency.counters().retries > 1_800, "{:?}", dependency.counters());
    assert_eq!(measured.count_total, 0);
}

#[test]
fn a_refusal_allocates_nothing() {
    let params = StackParams::new(&StackConfig::http()).unwrap();
    let mut dependency = Dependency::new(1, 1);
    let rng = &mut SplitMix64::new(1);
    let now = Timestamp::from_millis(10_000);
    // The bulkhead full, and so is its queue once as many wait as may.
    let mut begin = || Operation::begin(now, &mut dependency, &params, CALL, rng);
    let held: Vec<_> = (0..2_000).map(|_| begin()).collect();
    assert!(matches!(held.last().unwrap().1, Step::Done(_)));
    let measured = allocation_counter::measure(|| {
        for _ in 0..1_000 {
            assert!(matches!(begin().1, Step::Done(_)));
        }
    });
    assert_eq!(measured.count_total, 0);
}

#[test]
fn a_dependency_of_few_calls_stays_small() {
    let params = StackParams::new(&StackConfig::http()).unwrap();
    let rng = &mut SplitMix64::new(1);
    let mut kept = None;
    let measured = allocation_counter::measure(|| {
        let mut dependency = Dependency::new(1, 1);
        // One in ten seconds, with retries among them, and one that is abandoned and given up.
        (0..100).for_each(|number| call(number * 2_001, &mut dependency, &params, rng));
        let now = Timestamp::from_millis(2_000_000);
        let (_, step) = Operation::begin(now, &mut dependency, &params, CALL, rng);
        let Step::Send(mut sent) = step else { panic!("{step:?}") };
        sent.permit.mark_sent();
        let later = now.after(Duration::from_millis(100));
        let held = dependency.abandon(later, &params, sent.permit, rng).unwrap();
        dependency.handle_timeout(held.until(), &params);
        kept = Some(dependency);
    });
    assert_eq!((size_of::<Dependency>(), measured.bytes_current), (488, 480));
    assert!(kept.is_some_and(|dependency| dependency.counters().retries > 5));
}
