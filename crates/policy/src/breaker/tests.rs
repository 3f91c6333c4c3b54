use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ratio::Ratio;
use crate::rng::{Rng, SplitMix64};

mod model;

const FAST: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_secs(6);

/// A breaker, its knobs and its generator, driven at literal milliseconds.
struct Rig {
    breaker: Breaker,
    params: BreakerParams,
    rng: SplitMix64,
}

impl Rig {
    fn new(options: BreakerOptions) -> Self {
        Self {
            breaker: Breaker::new(),
            params: BreakerParams::new(options).unwrap(),
            rng: SplitMix64::new(1),
        }
    }

    /// The defaults, with slowness judged.
    fn with_slow() -> Self {
        Self::new(BreakerOptions { slow: Some(SLOW), ..BreakerOptions::default() })
    }

    fn acquire(&mut self, ms: u64) -> Result<BreakerPermit, BreakerOpen> {
        let peeked = self.breaker.would_admit(at(ms), &self.params);
        let acquired = self.breaker.try_acquire(at(ms), &self.params);
        assert_eq!(peeked, acquired.is_ok(), "the peek and the answer differ at {ms} ms");
        acquired
    }

    fn permit(&mut self, ms: u64) -> BreakerPermit {
        self.acquire(ms).unwrap()
    }

    fn permits(&mut self, ms: u64, count: usize) -> Vec<BreakerPermit> {
        (0..count).map(|_| self.permit(ms)).collect()
    }

    fn success(&mut self, ms: u64, permit: BreakerPermit, elapsed: Duration) -> Option<Transition> {
        self.breaker.on_success(at(ms), &self.params, permit, elapsed, &mut self.rng)
    }

    fn failure(&mut self, ms: u64, permit: BreakerPermit) -> Option<Transition> {
        self.breaker.on_failure(at(ms), &self.params, permit, FAST, &mut self.rng)
    }

    fn ignore(&mut self, ms: u64, permit: BreakerPermit) {
        self.breaker.on_ignore(at(ms), &self.params, permit);
    }

    fn slow(&mut self, ms: u64, permit: &mut BreakerPermit) -> Option<Transition> {
        self.breaker.on_slow(at(ms), &self.params, permit, &mut self.rng)
    }

    fn unreachable(&mut self, ms: u64) -> Option<Transition> {
        self.breaker.on_unreachable(at(ms), &self.params, &mut self.rng)
    }

    fn timeout(&mut self, ms: u64) -> Option<Transition> {
        self.breaker.handle_timeout(at(ms), &self.params)
    }

    /// `good` fast successes, then `bad` failures, all at `ms`; the last transition.
    fn calls(&mut self, ms: u64, good: u32, bad: u32) -> Option<Transition> {
        let mut last = None;
        for index in 0..good + bad {
            let permit = self.permit(ms);
            let seen = if index < good {
                self.success(ms, permit, FAST)
            } else {
                self.failure(ms, permit)
            };
            last = seen.or(last);
        }
        last
    }

    /// Opens by the failure ratio, at `ms`; the end of the open time.
    fn trip(&mut self, ms: u64) -> Timestamp {
        self.calls(ms, 10, 10).unwrap();
        self.breaker.next_deadline(&self.params).unwrap()
    }

    /// `calls`, `failures`, `slow` in the window.
    fn counts(&self, ms: u64) -> (u64, u64, u64) {
        let counts = self.breaker.counts(at(ms), &self.params);
        (counts.calls, counts.failures, counts.slow)
    }

    fn state(&self) -> BreakerState {
        self.breaker.state()
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn trigger(transition: Option<Transition>) -> Option<Trigger> {
    transition.map(|transition| transition.trigger)
}

fn defaults() -> BreakerOptions {
    BreakerOptions::default()
}

#[test]
fn opens_at_exactly_half_failed_and_not_one_below() {
    let mut below = Rig::new(defaults());
    assert_eq!(below.calls(0, 11, 10), None);
    assert_eq!(below.state(), BreakerState::Closed);

    let mut reached = Rig::new(defaults());
    assert_eq!(trigger(reached.calls(0, 10, 10)), Some(Trigger::FailureRatio));
    assert_eq!(reached.state(), BreakerState::Open);
}

#[test]
fn needs_twenty_calls_in_the_window_before_a_ratio_counts() {
    let mut rig = Rig::new(defaults());
    assert_eq!(rig.calls(0, 0, 19), None);
    let permit = rig.permit(0);
    assert_eq!(trigger(rig.success(0, permit, FAST)), Some(Trigger::FailureRatio));
}

#[test]
fn opens_when_half_of_the_calls_were_slow_at_exactly_the_threshold() {
    for (elapsed, expected) in
        [(SLOW - Duration::from_nanos(1), None), (SLOW, Some(Trigger::SlowRatio))]
    {
        let mut rig = Rig::with_slow();
        rig.calls(0, 10, 0);
        let permits = rig.permits(0, 10);
        let mut last = None;
        for permit in permits {
            last = rig.success(0, permit, elapsed);
        }
        assert_eq!(trigger(last), expected, "{elapsed:?}");
    }
}

#[test]
fn a_hang_opens_it_at_the_slow_threshold_not_at_the_timeout() {
    let mut rig = Rig::with_slow();
    let mut permits = rig.permits(0, 20);
    let seen: Vec<_> = permits.iter_mut().map(|permit| rig.slow(6_000, permit)).collect();
    assert_eq!(seen[..19], [None; 19]);
    assert_eq!(trigger(seen[19]), Some(Trigger::SlowRatio));
}

#[test]
fn a_call_counted_as_slow_in_flight_is_counted_once_and_adds_only_its_failure() {
    let mut rig = Rig::with_slow();
    let mut permits = rig.permits(0, 2);
    for permit in &mut permits {
        rig.slow(6_000, permit);
        rig.slow(6_001, permit);
    }
    assert_eq!(rig.counts(6_001), (2, 0, 2));
    rig.success(7_000, permits.remove(0), Duration::from_secs(7));
    assert_eq!(rig.counts(7_000), (2, 0, 2));
    let permit = permits.remove(0);
    rig.breaker.on_failure(at(7_000), &rig.params, permit, Duration::from_secs(7), &mut rig.rng);
    assert_eq!(rig.counts(7_000), (2, 1, 2));
}

#[test]
fn slowness_is_not_judged_unless_asked_for() {
    let mut rig = Rig::new(defaults());
    for mut permit in rig.permits(0, 40) {
        assert_eq!(rig.slow(6_000, &mut permit), None);
        assert_eq!(rig.success(600_000, permit, Duration::MAX), None);
    }
    assert_eq!(rig.counts(600_000), (40, 0, 0));
}

#[test]
fn twenty_failures_in_a_row_open_it_only_if_they_span_a_second() {
    for (last_ms, expected) in [(999, None), (1_000, Some(Trigger::ConsecutiveFailures))] {
        let mut rig =
            Rig::new(BreakerOptions { min_calls: 100, consecutive_failures: 20, ..defaults() });
        assert_eq!(rig.calls(0, 0, 19), None);
        assert_eq!(trigger(rig.calls(last_ms, 0, 1)), expected, "{last_ms}");
    }
    let mut short = Rig::new(BreakerOptions { min_calls: 100, ..defaults() });
    assert_eq!(short.calls(0, 0, 18), None);
    assert_eq!(short.calls(5_000, 0, 1), None);
    assert_eq!(trigger(short.calls(5_001, 0, 1)), Some(Trigger::ConsecutiveFailures));
}

#[test]
fn a_slow_mark_does_not_stretch_a_run_of_failures() {
    let mut rig = Rig::with_slow();
    rig.params =
        BreakerParams::new(BreakerOptions { min_calls: 100, ..*rig.params.options() }).unwrap();
    let mut hanging = rig.permit(0);
    assert_eq!(rig.calls(5_500, 0, 20), None);
    assert_eq!(rig.slow(6_500, &mut hanging), None);
}

#[test]
fn a_success_ends_a_run_even_a_slow_one() {
    let mut rig = Rig::with_slow();
    rig.params =
        BreakerParams::new(BreakerOptions { min_calls: 100, ..*rig.params.options() }).unwrap();
    rig.calls(0, 0, 19);
    let permit = rig.permit(0);
    rig.success(6_000, permit, SLOW);
    assert_eq!(rig.calls(7_000, 0, 19), None);
    assert_eq!(trigger(rig.calls(8_000, 0, 1)), Some(Trigger::ConsecutiveFailures));
}

#[test]
fn zero_turns_the_run_off() {
    let mut rig =
        Rig::new(BreakerOptions { min_calls: 1_000, consecutive_failures: 0, ..defaults() });
    assert_eq!(rig.calls(0, 0, 400), None);
    assert_eq!(rig.calls(5_000, 0, 400), None);
}

#[test]
fn the_window_forgets_a_bucket_after_ten() {
    let mut rig = Rig::new(defaults());
    rig.calls(999, 0, 5);
    rig.calls(1_000, 3, 0);
    assert_eq!(rig.counts(9_999), (8, 5, 0));
    assert_eq!(rig.counts(10_000), (3, 0, 0));
    assert_eq!(rig.counts(10_999), (3, 0, 0));
    assert_eq!(rig.counts(11_000), (0, 0, 0));
    rig.calls(10_000, 1, 0);
    assert_eq!(rig.counts(10_000), (4, 0, 0));
}

#[test]
fn idle_for_a_century_is_cheap_and_forgets() {
    let century_ms = 100 * 366 * 24 * 3_600 * 1_000;
    let mut rig = Rig::new(defaults());
    rig.calls(0, 0, 19);
    assert_eq!(rig.counts(century_ms), (0, 0, 0));
    rig.calls(century_ms, 1, 0);
    assert_eq!(rig.counts(century_ms), (1, 0, 0));
    rig.calls(u64::MAX, 0, 0);
    assert_eq!(rig.counts(u64::MAX), (0, 0, 0));
}

/// Resilience4j's time-based window, after one step back of the wall clock, stamps the future and
/// empties itself on every record; it held 10 of 1,000 calls and never opened again.
#[test]
fn a_clock_step_back_neither_empties_the_window_nor_freezes_it() {
    let mut rig = Rig::new(defaults());
    for ms in (0..10_000).step_by(10) {
        rig.calls(ms, 1, 0);
    }
    assert_eq!(rig.counts(9_990), (1_000, 0, 0));
    for ms in (9_400..9_990).step_by(10) {
        rig.calls(ms, 1, 0);
    }
    assert_eq!(rig.counts(9_990), (1_059, 0, 0));
    assert_eq!(rig.counts(19_000), (0, 0, 0), "the last bucket still ends when it did");
    for ms in (10_000..20_000).step_by(10) {
        rig.calls(ms, 1, 0);
    }
    assert_eq!(rig.counts(19_990), (1_000, 0, 0));
    assert_eq!(trigger(rig.calls(19_990, 0, 1_000)), Some(Trigger::FailureRatio));
}

#[test]
fn an_earlier_now_neither_ends_nor_prolongs_the_open_time() {
    let mut rig = Rig::new(defaults());
    let until = rig.trip(5_000);
    assert_eq!(rig.acquire(0).unwrap_err(), BreakerOpen { until });
    assert!(rig.breaker.try_acquire(until, &rig.params).is_ok());
    assert!(rig.acquire(0).is_ok(), "still half-open");

    let mut moved = Rig::new(defaults());
    let late = moved.permit(0);
    moved.trip(0);
    moved.ignore(10_000, late);
    assert!(moved.acquire(0).is_ok(), "10 s have been seen");

    let mut tripped = Rig::new(defaults());
    tripped.calls(5_000, 10, 9);
    tripped.calls(0, 0, 1);
    assert!(tripped.breaker.next_deadline(&tripped.params) >= Some(at(6_400)));
}

#[test]
fn open_rejects_until_its_time_and_then_is_half_open() {
    let mut rig = Rig::new(defaults());
    let until = rig.trip(0);
    let before = Timestamp::from_nanos(until.as_nanos() - 1);
    assert!(!rig.breaker.would_admit(before, &rig.params));
    assert!(rig.breaker.try_acquire(before, &rig.params).is_err());
    assert_eq!(rig.breaker.handle_timeout(before, &rig.params), None);
    assert!(rig.breaker.would_admit(until, &rig.params));
    assert!(rig.breaker.try_acquire(until, &rig.params).unwrap().is_probe());
    assert_eq!(rig.state(), BreakerState::HalfOpen);
}

#[test]
fn half_open_begins_by_the_timer_without_a_call_and_only_once() {
    let mut rig = Rig::new(defaults());
    let until = rig.trip(0);
    let expected = Transition {
        from: BreakerState::Open,
        to: BreakerState::HalfOpen,
        trigger: Trigger::Timer,
    };
    assert_eq!(rig.breaker.handle_timeout(until, &rig.params), Some(expected));
    assert_eq!(rig.breaker.handle_timeout(until, &rig.params), None);
    assert_eq!(rig.breaker.next_deadline(&rig.params), None);
}

#[test]
fn open_time_doubles_up_to_its_cap_with_jitter_from_70_to_100_percent() {
    for (seed, share) in [(0, Ratio::from_percent(70)), (u64::MAX, Ratio::ONE)] {
        let params = BreakerParams::default();
        let mut fixed = Fixed(seed);
        for (trips, secs) in [(1, 2), (2, 4), (3, 8), (4, 10), (5, 10), (u32::MAX, 10)] {
            let expected = share.of_duration(Duration::from_secs(secs));
            assert_eq!(params.open_for(trips, &mut fixed), expected, "{trips}");
        }
    }
}

/// A generator that always returns one word.
struct Fixed(u64);

impl Rng for Fixed {
    fn next_u64(&mut self) -> u64 {
        self.0
    }
}

#[test]
fn half_open_admits_five_probes_then_rejects() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    let probes = rig.permits(2_000, 5);
    assert!(probes.iter().all(BreakerPermit::is_probe));
    assert_eq!(rig.acquire(2_500).unwrap_err(), BreakerOpen { until: at(4_500) });
    assert_eq!(rig.acquire(13_000).unwrap_err(), BreakerOpen { until: at(14_000) });
}

#[test]
fn succeeded_probes_keep_their_slot() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    for permit in rig.permits(2_000, 4) {
        assert_eq!(rig.success(2_100, permit, FAST), None);
    }
    let last = rig.permit(2_100);
    assert!(rig.acquire(2_100).is_err());
    assert_eq!(trigger(rig.success(2_200, last, FAST)), Some(Trigger::ProbesSucceeded));
    assert_eq!(rig.state(), BreakerState::Closed);
}

#[test]
fn closing_forgets_window_run_and_trips() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    assert_eq!((rig.breaker.trips(), rig.counts(0)), (1, (20, 10, 0)));
    for permit in rig.permits(2_000, 5) {
        rig.success(2_000, permit, FAST);
    }
    assert_eq!((rig.breaker.trips(), rig.counts(2_000)), (0, (0, 0, 0)));
    assert_eq!(rig.calls(4_000, 0, 19), None, "the old run is forgotten");
}

/// resilience4j#1335: the counter of calls both slow and failed survived a reset.
#[test]
fn calls_both_slow_and_failed_are_forgotten_like_all_others() {
    let slow_failures = |rig: &mut Rig, ms| {
        for permit in rig.permits(ms, 10) {
            rig.breaker.on_failure(at(ms), &rig.params, permit, SLOW, &mut rig.rng);
        }
    };
    let mut rig = Rig::with_slow();
    slow_failures(&mut rig, 0);
    assert_eq!(rig.counts(0), (10, 10, 10));
    assert_eq!(rig.counts(10_000), (0, 0, 0), "by rolling");
    rig.calls(10_000, 10, 0);
    slow_failures(&mut rig, 10_000);
    assert_eq!(rig.state(), BreakerState::Open);
    for permit in rig.permits(12_000, 5) {
        rig.success(12_000, permit, FAST);
    }
    assert_eq!(rig.counts(12_000), (0, 0, 0), "by closing");
}

#[test]
fn one_failed_probe_reopens_for_a_longer_time() {
    let mut rig = Rig::new(BreakerOptions { open_cap: Duration::from_secs(60), ..defaults() });
    let mut now = 0;
    let mut until = rig.trip(now);
    for secs in [2, 4, 8, 16, 32, 60, 60] {
        let open_for = until.since(at(now));
        assert!(open_for <= Duration::from_secs(secs), "{open_for:?}");
        assert!(open_for >= Duration::from_millis(secs * 700), "{open_for:?}");
        now = until.as_nanos() / 1_000_000 + 1;
        let permit = rig.permit(now);
        assert_eq!(trigger(rig.failure(now, permit)), Some(Trigger::ProbeFailed));
        until = rig.breaker.next_deadline(&rig.params).unwrap();
    }
}

#[test]
fn a_slow_probe_reopens_while_it_is_still_in_flight() {
    let mut rig = Rig::with_slow();
    rig.trip(0);
    let mut permit = rig.permit(2_000);
    assert_eq!(trigger(rig.slow(8_000, &mut permit)), Some(Trigger::ProbeSlow));
    assert_eq!(rig.success(8_001, permit, Duration::from_secs(6)), None);
    assert_eq!(rig.breaker.trips(), 2);

    let mut ended = Rig::with_slow();
    ended.trip(0);
    let permit = ended.permit(2_000);
    assert_eq!(trigger(ended.success(8_000, permit, SLOW)), Some(Trigger::ProbeSlow));
}

/// Polly v8 closes on a cancelled probe; others leak its slot.
#[test]
fn an_ignored_probe_decides_nothing_and_frees_its_slot() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    for _ in 0..100 {
        let permit = rig.permit(2_000);
        rig.ignore(2_000, permit);
    }
    assert_eq!(rig.state(), BreakerState::HalfOpen);
    assert_eq!(rig.permits(2_000, 5).len(), 5);
    assert!(rig.acquire(2_000).is_err());
}

/// A stale ignored call adds a permit in Resilience4j.
#[test]
fn an_ignored_call_of_an_older_generation_frees_no_slot() {
    let mut rig = Rig::new(defaults());
    let stale = rig.permits(0, 10);
    rig.trip(0);
    let _probes = rig.permits(2_000, 5);
    for permit in stale {
        rig.ignore(2_000, permit);
    }
    assert!(rig.acquire(2_000).is_err());
}

/// The commonest way to wedge a breaker: a probe's permit is lost with its task.
#[test]
fn lost_probes_never_wedge_half_open() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    let lost = rig.permits(2_000, 5);
    assert_eq!(rig.breaker.next_deadline(&rig.params), Some(at(14_000)));
    assert!(rig.acquire(13_999).is_err());
    let fresh = rig.permits(14_000, 5);
    for permit in lost {
        assert_eq!(rig.failure(14_001, permit), None, "a lost probe decides nothing");
    }
    let seen: Vec<_> = fresh.into_iter().map(|permit| rig.success(14_002, permit, FAST)).collect();
    assert_eq!(trigger(seen[4]), Some(Trigger::ProbesSucceeded));
}

#[test]
fn late_results_of_an_older_generation_change_nothing() {
    let mut rig = Rig::with_slow();
    let mut late = rig.permits(0, 40);
    rig.trip(0);
    rig.timeout(2_000);
    let before = format!("{:?}", rig.breaker);
    for (index, mut permit) in late.drain(..).enumerate() {
        assert_eq!(rig.slow(2_000, &mut permit), None);
        let seen = match index % 3 {
            0 => rig.success(2_000, permit, FAST),
            1 => rig.failure(2_000, permit),
            _ => {
                rig.ignore(2_000, permit);
                None
            }
        };
        assert_eq!(seen, None);
    }
    assert_eq!(format!("{:?}", rig.breaker), before);
}

#[test]
fn own_rejections_never_enter_the_window() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    for _ in 0..1_000 {
        assert!(rig.acquire(1).is_err());
    }
    assert_eq!(rig.counts(1), (20, 10, 0));
}

#[test]
fn an_unreachable_endpoint_counts_while_closed_and_ends_half_open() {
    let mut rig = Rig::new(defaults());
    for _ in 0..19 {
        assert_eq!(rig.unreachable(0), None);
    }
    assert_eq!(trigger(rig.unreachable(0)), Some(Trigger::FailureRatio));
    assert_eq!(rig.unreachable(1), None, "open already");
    assert_eq!(rig.counts(1), (20, 20, 0));
    assert_eq!(trigger(rig.unreachable(2_000)), Some(Trigger::Unreachable), "lazily half-open");
    assert_eq!(rig.breaker.trips(), 2);
    rig.timeout(6_000);
    assert_eq!(trigger(rig.unreachable(6_000)), Some(Trigger::Unreachable));
}

#[test]
fn forced_open_rejects_all_and_keeps_the_judgement_below() {
    let mut rig = Rig::new(defaults());
    let permit = rig.permit(0);
    rig.params = rig.params.with_mode(BreakerMode::ForcedOpen);
    assert_eq!(rig.acquire(0).unwrap_err(), BreakerOpen { until: Timestamp::MAX });
    rig.failure(0, permit);
    assert_eq!(rig.counts(0), (1, 1, 0));
    rig.params = rig.params.with_mode(BreakerMode::Normal);
    assert!(rig.acquire(0).is_ok());
}

#[test]
fn disabled_admits_all_and_records_nothing() {
    let mut rig = Rig::with_slow();
    rig.trip(0);
    rig.params = rig.params.with_mode(BreakerMode::Disabled);
    for mut permit in rig.permits(1, 100) {
        assert_eq!(rig.slow(1, &mut permit), None);
        assert_eq!(rig.failure(1, permit), None);
    }
    assert_eq!(rig.unreachable(1), None);
    assert_eq!(rig.counts(1), (20, 10, 0));
}

#[test]
fn a_probe_that_returns_while_disabled_frees_its_slot_and_decides_nothing() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    let probes = rig.permits(2_000, 5);
    rig.params = rig.params.with_mode(BreakerMode::Disabled);
    let unrelated = rig.permit(2_000);
    for permit in probes {
        assert_eq!(rig.failure(2_000, permit), None);
    }
    rig.params = rig.params.with_mode(BreakerMode::Normal);
    assert_eq!(rig.failure(2_000, unrelated), None, "not a probe");
    assert_eq!(rig.permits(2_000, 5).len(), 5);
}

#[test]
fn metrics_only_moves_through_the_states_and_admits_everything() {
    let mut rig = Rig::new(BreakerOptions { mode: BreakerMode::MetricsOnly, ..defaults() });
    rig.trip(0);
    assert_eq!(rig.calls(1, 0, 100), None);
    assert_eq!(rig.state(), BreakerState::Open);
    assert_eq!(rig.counts(1), (120, 110, 0));
    let many = rig.permits(2_000, 50);
    assert_eq!(rig.state(), BreakerState::HalfOpen);
    let seen: Vec<_> = many.into_iter().map(|permit| rig.success(2_001, permit, FAST)).collect();
    assert_eq!(trigger(seen[4]), Some(Trigger::ProbesSucceeded));
    assert_eq!(seen[5..], [None; 45], "late results");
}

#[test]
fn retries_off_stops_only_the_retries_while_a_normal_breaker_would_reject() {
    let mut rig = Rig::new(BreakerOptions { mode: BreakerMode::RetriesOff, ..defaults() });
    assert!(rig.breaker.retries_allowed(at(0), &rig.params));
    let until = rig.trip(0);
    assert!(rig.acquire(1).is_ok());
    assert!(!rig.breaker.retries_allowed(at(1), &rig.params));
    assert!(rig.breaker.retries_allowed(until, &rig.params));
    let permits = rig.permits(2_000, 5);
    assert!(!rig.breaker.retries_allowed(at(2_000), &rig.params), "all probes are out");
    for permit in permits {
        rig.success(2_001, permit, FAST);
    }
    assert!(rig.breaker.retries_allowed(at(2_001), &rig.params));
    for mode in [BreakerMode::Normal, BreakerMode::MetricsOnly, BreakerMode::Disabled] {
        rig.params = rig.params.with_mode(mode);
        rig.trip_anyhow();
        assert!(rig.breaker.retries_allowed(at(2_001), &rig.params), "{mode:?}");
    }
}

impl Rig {
    /// Fails calls at 2,001 ms until it is open, unless it records nothing.
    fn trip_anyhow(&mut self) {
        for _ in 0..20 {
            if let Ok(permit) = self.acquire(2_001) {
                self.failure(2_001, permit);
            }
        }
    }
}

#[test]
fn new_knobs_keep_the_state_and_a_lower_probe_limit_does_not_wedge() {
    let mut rig = Rig::new(defaults());
    rig.trip(0);
    for permit in rig.permits(2_000, 3) {
        rig.success(2_000, permit, FAST);
    }
    rig.params = BreakerParams::new(BreakerOptions { probes: 2, ..defaults() }).unwrap();
    let permit = rig.permit(2_001);
    assert!(rig.acquire(2_001).is_err());
    assert_eq!(trigger(rig.success(2_002, permit, FAST)), Some(Trigger::ProbesSucceeded));

    let mut wider = Rig::new(defaults());
    wider.calls(9_000, 0, 5);
    wider.params = BreakerParams::new(BreakerOptions::bridge()).unwrap();
    assert_eq!(wider.counts(9_000), (5, 5, 0));
    assert_eq!(wider.counts(68_999), (5, 5, 0));
    assert_eq!(wider.counts(69_000), (0, 0, 0));
}

#[test]
fn the_bridge_preset_looks_back_a_minute_and_opens_for_ten_seconds() {
    let mut rig = Rig::new(BreakerOptions::bridge());
    assert_eq!(rig.calls(0, 0, 10), None);
    assert_eq!(rig.calls(54_000, 9, 0), None);
    assert_eq!(trigger(rig.calls(59_999, 1, 0)), Some(Trigger::FailureRatio));
    let until = rig.breaker.next_deadline(&rig.params).unwrap();
    assert!(until >= at(66_999) && until <= at(69_999), "{until}");
}

#[test]
fn construction_refuses_what_can_never_work_and_names_it() {
    type Change = fn(&mut BreakerOptions);
    let refused: [(&str, Change); 11] = [
        ("bucket", |o| o.bucket = Duration::ZERO),
        ("slow", |o| o.slow = Some(Duration::ZERO)),
        ("open_base", |o| o.open_base = Duration::ZERO),
        ("probe_lease", |o| o.probe_lease = Duration::ZERO),
        ("min_calls", |o| o.min_calls = 0),
        ("probes", |o| o.probes = 0),
        ("failure_ratio", |o| o.failure_ratio = Ratio::ZERO),
        ("failure_ratio", |o| o.failure_ratio = Ratio::from_millionths(1_000_001)),
        ("slow_ratio", |o| o.slow_ratio = Ratio::ZERO),
        ("slow_ratio", |o| o.slow_ratio = Ratio::from_millionths(1_000_001)),
        ("open_cap", |o| o.open_cap = o.open_base - Duration::from_nanos(1)),
    ];
    for (field, change) in refused {
        let mut options = defaults();
        change(&mut options);
        assert_eq!(BreakerParams::new(options).unwrap_err().field(), field);
    }
    let accepted: [Change; 6] = [
        |o| o.bucket = Duration::from_nanos(1),
        |o| o.open_cap = o.open_base,
        |o| o.failure_ratio = Ratio::ONE,
        |o| o.slow_ratio = Ratio::from_millionths(1),
        |o| o.consecutive_span = Duration::ZERO,
        |o| *o = BreakerOptions::bridge(),
    ];
    for change in accepted {
        let mut options = defaults();
        change(&mut options);
        assert!(BreakerParams::new(options).is_ok());
    }
    assert_eq!(BreakerParams::new(defaults()), Ok(BreakerParams::default()));
}

/// A breaker brought into one situation, with a permit of its generation (if it gives one) and one
/// of an older generation.
struct Situation {
    rig: Rig,
    current: Option<BreakerPermit>,
    late: BreakerPermit,
}

/// A situation's name, and how to bring it about.
type Named = (&'static str, fn() -> Situation);

/// Every situation that a trigger depends on. All are asked at 20 s.
fn situations() -> [Named; 9] {
    fn late() -> BreakerPermit {
        BreakerPermit { generation: u64::MAX, is_probe: true, slow_counted: false }
    }
    fn closed(good: u32, bad: u32, slow: usize, at_ms: u64) -> Situation {
        let mut rig = Rig::with_slow();
        for permit in rig.permits(at_ms, slow) {
            rig.success(at_ms, permit, SLOW);
        }
        rig.calls(at_ms, good, bad);
        Situation { current: Some(rig.permit(20_000)), rig, late: late() }
    }
    fn open(at_ms: u64) -> Situation {
        let mut rig = Rig::with_slow();
        rig.trip(at_ms);
        Situation { rig, current: None, late: late() }
    }
    fn half_open(succeeded: usize, out: usize, at_ms: u64) -> Situation {
        let mut rig = Rig::with_slow();
        rig.trip(at_ms - 2_000);
        let mut probes = rig.permits(at_ms, succeeded + out);
        for permit in probes.drain(..succeeded) {
            rig.success(at_ms, permit, FAST);
        }
        Situation { rig, current: probes.pop(), late: late() }
    }
    [
        ("closed, quiet", || closed(0, 0, 0, 20_000)),
        ("closed, 9 of 19 failed", || closed(10, 9, 0, 20_000)),
        ("closed, 9 of 19 slow", || closed(10, 0, 9, 20_000)),
        ("closed, 19 failed long ago", || closed(0, 19, 0, 1_000)),
        ("open", || open(19_900)),
        ("open, time over", || open(10_000)),
        ("half-open, 1 out", || half_open(0, 1, 20_000)),
        ("half-open, 4 good, 1 out", || half_open(4, 1, 20_000)),
        ("half-open, 5 out, lease over", || half_open(0, 5, 8_000)),
    ]
}

/// What `event` does in a situation, in words; nothing where it needs a permit and there is none.
fn outcome(situation: Situation, event: &str) -> Option<String> {
    let Situation { mut rig, current, late } = situation;
    let now = 20_000;
    let seen = match event {
        "success" => rig.success(now, current?, FAST),
        "slow success" => rig.success(now, current?, SLOW),
        "failure" => rig.failure(now, current?),
        "slow mark" => rig.slow(now, &mut current?),
        "ignore" => {
            rig.ignore(now, current?);
            None
        }
        "unreachable" => rig.unreachable(now),
        "timer" => rig.timeout(now),
        "late success" => rig.success(now, late, FAST),
        "late failure" => rig.failure(now, late),
        _ => {
            let before = rig.state();
            let answer = match rig.acquire(now) {
                Ok(permit) if permit.is_probe() => "admits a probe",
                Ok(_) => "admits",
                Err(_) => "rejects",
            };
            let moved = if before == rig.state() { "" } else { ", now half_open" };
            return Some(format!("{answer}{moved}"));
        }
    };
    Some(seen.map_or_else(
        || "-".to_string(),
        |seen| format!("{} by {}", seen.to.as_str(), seen.trigger.as_str()),
    ))
}

#[test]
fn every_event_in_every_situation_is_as_written_down() {
    let events = [
        "acquire",
        "success",
        "slow success",
        "failure",
        "slow mark",
        "ignore",
        "unreachable",
        "timer",
        "late success",
        "late failure",
    ];
    let mut table = String::new();
    for (name, situation) in situations() {
        for event in events {
            if let Some(outcome) = outcome(situation(), event) {
                table.push_str(&format!("{name:<30}| {event:<13}| {outcome}\n"));
            }
        }
    }
    insta::assert_snapshot!(table);
}
