use super::histogram::{BUCKETS, bucket_of, upper_edge};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::{vec, vec::Vec};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// `completed` calls of 10 ms and `censored` ones given up after 100 ms, all at time 0.
fn times(completed: u32, censored: u32) -> ServiceTimes {
    let mut times = ServiceTimes::new();
    (0..completed).for_each(|_| times.record(at(0), ms(10)));
    (0..censored).for_each(|_| times.record_at_least(at(0), ms(100)));
    times
}

#[test]
fn nineteen_samples_are_unknown_and_twenty_decide() {
    assert_eq!(ServiceTimes::new().fits(at(0), ms(5)), Fit::Unknown);
    assert_eq!(times(19, 0).fits(at(0), ms(5)), Fit::Unknown);
    assert_eq!(times(20, 0).fits(at(0), ms(5)), Fit::CannotFit);
    assert_eq!(times(20, 0).fits(at(0), ms(20)), Fit::Fits);
    assert_eq!(times(0, 19).fits(at(0), ms(100)), Fit::Unknown);
    assert_eq!(times(0, 20).fits(at(0), ms(100)), Fit::CannotFit);
}

#[test]
fn five_per_cent_within_what_is_left_cannot_fit_and_one_more_fits() {
    assert_eq!(times(5, 95).fits(at(0), ms(100)), Fit::CannotFit);
    assert_eq!(times(6, 94).fits(at(0), ms(100)), Fit::Fits);
}

#[test]
fn a_call_given_up_earlier_says_nothing_about_a_longer_wait() {
    assert_eq!(times(0, 1000).fits(at(0), ms(200)), Fit::Unknown);
    assert_eq!(times(20, 1000).fits(at(0), ms(200)), Fit::Fits, "10 ms calls do fit");
    // An eighth before what is left is near enough.
    assert_eq!(times(0, 1000).fits(at(0), ms(114)), Fit::CannotFit);
}

#[test]
fn rounding_favours_the_caller() {
    // 10 ms lie in the bucket that begins at 8.39 ms.
    assert_eq!(times(20, 0).fits(at(0), Duration::from_micros(8400)), Fit::Fits);
    assert_eq!(times(20, 0).fits(at(0), Duration::from_micros(8380)), Fit::CannotFit);
}

#[test]
fn nothing_left_cannot_fit_and_more_than_a_minute_always_fits() {
    assert_eq!(times(20, 0).fits(at(0), Duration::ZERO), Fit::CannotFit);
    let mut slow = ServiceTimes::new();
    (0..20).for_each(|_| slow.record(at(0), Duration::MAX));
    assert_eq!(slow.fits(at(0), Duration::MAX), Fit::Fits);
    assert_eq!(slow.fits(at(0), Duration::from_secs(30)), Fit::CannotFit);
}

#[test]
fn samples_live_for_twenty_five_to_thirty_seconds() {
    let mut times = ServiceTimes::new();
    times.record(at(0), ms(1));
    times.record_at_least(at(4999), ms(1));
    assert_eq!(times.samples(at(29_999)), 2);
    assert_eq!(times.samples(at(30_000)), 0);
    times.record(at(30_000), ms(1));
    assert_eq!(times.samples(at(30_000)), 1);
    times.record(at(3_600_000), ms(1));
    assert_eq!(times.samples(at(3_600_000)), 1);
}

#[test]
fn an_earlier_now_counts_as_the_latest_and_the_end_of_time_does_not_overflow() {
    let mut times = ServiceTimes::new();
    times.record(at(60_000), ms(1));
    times.record(at(0), ms(1));
    assert_eq!(times.samples(at(0)), 2);
    assert_eq!(times.samples(at(60_000)), 2);
    times.record(Timestamp::MAX, ms(1));
    assert_eq!(times.samples(Timestamp::MAX), 1);
}

#[test]
fn a_quantile_is_the_upper_edge_of_its_bucket() {
    let mut times = ServiceTimes::new();
    (0..19).for_each(|_| times.record(at(0), ms(10)));
    assert_eq!(times.quantile(at(0), Ratio::ONE), None);
    times.record_at_least(at(0), ms(100));
    let quantile = |percent| times.quantile(at(0), Ratio::from_percent(percent));
    let (fast, slow) = (Duration::from_nanos(5 << 21), Duration::from_nanos(6 << 24));
    assert!(fast > ms(10) && fast < ms(11) && slow > ms(100) && slow < ms(101));
    assert_eq!([0, 50, 95].map(quantile), [Some(fast); 3]);
    assert_eq!([96, 100, 500].map(quantile), [Some(slow); 3]);
    assert_eq!(times.quantile(at(30_000), Ratio::ONE), None);
}

#[test]
fn quantiles_end_at_the_ends_of_the_buckets() {
    let quantile = |elapsed| {
        let mut times = ServiceTimes::new();
        (0..20).for_each(|_| times.record(at(0), elapsed));
        times.quantile(at(0), Ratio::ONE)
    };
    assert_eq!(quantile(Duration::ZERO), Some(Duration::from_nanos(1 << 16)));
    assert_eq!(quantile(Duration::MAX), Some(Duration::from_nanos(1 << 36)));
}

#[test]
fn a_full_counter_halves_its_generation_and_keeps_the_shares() {
    let mut times = ServiceTimes::new();
    for call in 0..300_000 {
        times.record(at(0), ms(if call % 3 == 0 { 10 } else { 1000 }));
    }
    let below = times.quantile(at(0), Ratio::from_percent(32));
    let above = times.quantile(at(0), Ratio::from_percent(34));
    assert!(below < Some(ms(11)) && above >= Some(ms(1000)), "{below:?} {above:?}");
    assert!(times.samples(at(0)) > 50_000);
}

#[test]
fn the_state_is_small() {
    assert_eq!(size_of::<ServiceTimes>(), 40);
    assert_eq!(size_of::<Histogram>(), 2600);
    assert_eq!(size_of::<ScoutPass>(), 8);
}

#[test]
fn the_histogram_is_made_for_the_twentieth_sample_and_gone_with_the_last() {
    let is_small = |times: &ServiceTimes| matches!(times.samples, Samples::Few(_));
    let mut times = times(10, 9);
    assert!(is_small(&times));
    // Nineteen of another time take the place of those that are too old.
    assert_eq!(times.fits(at(30_000), ms(5)), Fit::Unknown);
    (0..19).for_each(|_| times.record(at(30_000), ms(10)));
    assert!(is_small(&times));
    times.record_at_least(at(34_999), ms(100));
    assert!(!is_small(&times));
    assert_eq!(times.fits(at(59_999), ms(5)), Fit::CannotFit);
    times.record(at(59_999), ms(10));
    assert_eq!(times.samples(at(89_999)), 0);
    assert_eq!(times.fits(at(84_999), ms(5)), Fit::Unknown, "one is left");
    assert!(!is_small(&times));
    assert_eq!(times.fits(at(85_000), ms(5)), Fit::Unknown);
    assert!(is_small(&times));
}

#[test]
fn one_pass_a_second_is_due_for_whoever_comes_first() {
    let mut pass = ScoutPass::new();
    assert!(pass.try_take(at(10_500)));
    assert!(!pass.try_take(at(10_500)));
    assert!(!pass.try_take(at(11_499)));
    // 300 ms late; the next is due in its turn.
    assert!(pass.try_take(at(11_800)));
    assert!(!pass.try_take(at(12_499)));
    assert!(pass.try_take(at(12_500)));
    // Nothing piles up while nobody calls.
    assert!(pass.try_take(at(60_000)));
    assert!(!pass.try_take(at(60_999)));
    assert!(!pass.try_take(at(0)));
}

/// Callers with one timeout in front of a dependency, all on one route.
struct Fleet {
    times: ServiceTimes,
    pass: ScoutPass,
    /// When a sent call ends or is given up, after how long, and whether it was given up.
    sent: VecDeque<(u64, u64, bool)>,
    sent_total: u64,
}

impl Fleet {
    fn new() -> Self {
        Self {
            times: ServiceTimes::new(),
            pass: ScoutPass::new(),
            sent: VecDeque::new(),
            sent_total: 0,
        }
    }

    /// Lets a caller come every `every` ms from `from` to `to`; it has 50 to 51 ms left (the edge
    /// of a bucket lies between) and the dependency takes `service` ms. Calls sent meanwhile.
    fn run(&mut self, from: u64, to: u64, every: usize, service: u64) -> u64 {
        let before = self.sent_total;
        for now in (from..to).step_by(every) {
            while self.sent.front().is_some_and(|(end, ..)| *end <= now) {
                let (end, elapsed, given_up) = self.sent.pop_front().unwrap();
                if given_up {
                    self.times.record_at_least(at(end), ms(elapsed));
                } else {
                    self.times.record(at(end), ms(elapsed));
                }
            }
            let left = 50 + now / 7 % 2;
            let cannot_fit = self.times.fits(at(now), ms(left)) == Fit::CannotFit;
            // A pass is only taken where it is needed, so that it is there then.
            if !cannot_fit || self.pass.try_take(at(now)) {
                self.sent_total += 1;
                let elapsed = service.min(left);
                self.sent.push_back((now + elapsed, elapsed, service > left));
            }
        }
        self.sent_total - before
    }
}

#[test]
fn callers_who_can_never_be_answered_keep_being_refused_for_five_minutes() {
    for every in [2, 90] {
        let mut fleet = Fleet::new();
        // Twenty are needed to know; whoever comes until the twentieth is given up is sent.
        let learning = 20 * every as u64 + 60;
        let unknown = fleet.run(0, learning, every, 200);
        assert!((20..=80).contains(&unknown), "{unknown}");
        let scouts = fleet.run(learning, learning + 300_000, every, 200);
        assert!((299..=301).contains(&scouts), "every {every} ms: {scouts}");
    }
}

#[test]
fn a_recovered_dependency_is_let_back_in_by_the_scouts_within_seconds() {
    let mut fleet = Fleet::new();
    fleet.run(0, 60_000, 1, 200);
    fleet.run(60_000, 64_000, 1, 10);
    assert_eq!(fleet.run(64_000, 94_000, 1, 10), 30_000, "all are sent");
}

#[test]
fn a_flood_of_slow_samples_delays_the_recovery_by_no_more_than_thirty_seconds() {
    let mut fleet = Fleet::new();
    (0..60_000).for_each(|_| fleet.times.record_at_least(at(4999), ms(50)));
    let refused = fleet.run(5000, 29_000, 1, 10);
    assert!(refused <= 25, "{refused}");
    fleet.run(29_000, 35_000, 1, 10);
    assert_eq!(fleet.run(35_000, 65_000, 1, 10), 30_000, "all are sent");
}

/// One recorded call of the model: generation, bucket, given up.
type Sample = (u64, usize, bool);

/// Keeps every sample, and finds a bucket by walking the edges.
struct Naive {
    samples: Vec<Sample>,
    latest: u64,
    edges: Vec<u64>,
}

impl Naive {
    fn new() -> Self {
        let octave = |octave: u32| [4, 5, 6, 7].map(|quarter| (1 << (14 + octave)) * quarter);
        let mut edges: Vec<u64> = (0..20).flat_map(octave).collect();
        edges.push(1 << 36);
        Self { samples: vec![], latest: 0, edges }
    }

    fn record(&mut self, now: u64, elapsed: Duration, given_up: bool) {
        self.latest = self.latest.max(now);
        self.samples.push((self.latest / 5000, self.bucket(elapsed), given_up));
    }

    fn bucket(&self, duration: Duration) -> usize {
        let below = |edge: &&u64| u128::from(**edge) <= duration.as_nanos();
        self.edges.iter().take(80).take_while(below).count()
    }

    fn live(&self, now: u64) -> Vec<Sample> {
        let now = now.max(self.latest) / 5000;
        self.samples.iter().copied().filter(|(number, ..)| now - number < 6).collect()
    }

    fn fits(&mut self, now: u64, remaining: Duration) -> Fit {
        self.latest = self.latest.max(now);
        let (mut within, mut informative) = (0, 0);
        let (last_within, first) = (self.bucket(remaining), self.bucket(remaining - remaining / 8));
        for (_, bucket, given_up) in self.live(now) {
            if !given_up || bucket >= first {
                informative += 1;
            }
            if !given_up && bucket <= last_within {
                within += 1;
            }
        }
        match (informative, within) {
            (0..20, _) => Fit::Unknown,
            _ if within * 100 <= informative * 5 => Fit::CannotFit,
            _ => Fit::Fits,
        }
    }

    fn quantile(&self, now: u64, percent: usize) -> Option<Duration> {
        let mut buckets: Vec<_> = self.live(now).iter().map(|(_, bucket, _)| *bucket).collect();
        buckets.sort_unstable();
        let rank = (buckets.len() * percent).div_ceil(100).max(1);
        let known = buckets.len() >= 20;
        known.then(|| Duration::from_nanos(self.edges[buckets[rank - 1]]))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many calls of one duration, given up or not.
    Record(usize, Duration, bool),
    Pass(u64),
    Back(u64),
}

fn durations() -> impl Strategy<Value = Duration> {
    // Uniform over magnitudes; all of them lie near few edges otherwise.
    (0..40_u32, any::<u32>()).prop_map(|(magnitude, low)| {
        let nanos = (1_u64 << magnitude) + u64::from(low) % (1 << magnitude);
        Duration::from_nanos(nanos)
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..30_usize, durations(), any::<bool>())
            .prop_map(|(times, elapsed, given_up)| Step::Record(times, elapsed, given_up)),
        3 => (0..9_000_u64).prop_map(Step::Pass),
        1 => (0..60_000_u64).prop_map(Step::Pass),
        1 => (0..9_000_u64).prop_map(Step::Back),
    ];
    prop::collection::vec(step, 1..30)
}

proptest! {
    #[test]
    fn agrees_with_a_model_that_keeps_every_sample(
        steps in steps(),
        asked in prop::collection::vec(durations(), 3),
    ) {
        let mut times = ServiceTimes::new();
        let mut naive = Naive::new();
        let mut now = 0_u64;
        for step in steps {
            match step {
                Step::Pass(millis) => now += millis,
                Step::Back(millis) => now = now.saturating_sub(millis),
                Step::Record(calls, elapsed, given_up) => {
                    for _ in 0..calls {
                        naive.record(now, elapsed, given_up);
                        if given_up {
                            times.record_at_least(at(now), elapsed);
                        } else {
                            times.record(at(now), elapsed);
                        }
                    }
                }
            }
            prop_assert_eq!(times.samples(at(now)) as usize, naive.live(now).len());
            for remaining in &asked {
                prop_assert_eq!(times.fits(at(now), *remaining), naive.fits(now, *remaining));
            }
            for percent in [0, 50, 99] {
                let share = Ratio::from_percent(u32::try_from(percent).unwrap());
                let quantile = times.quantile(at(now), share);
                prop_assert_eq!(quantile, naive.quantile(now, percent));
            }
        }
    }

    #[test]
    fn a_bucket_ends_above_what_it_holds_and_at_most_a_quarter_above(duration in durations()) {
        let bucket = bucket_of(duration);
        if bucket < BUCKETS - 1 {
            prop_assert!(duration < upper_edge(bucket));
        }
        if bucket > 0 && bucket < BUCKETS - 1 {
            prop_assert!(duration >= upper_edge(bucket - 1));
            prop_assert!(upper_edge(bucket) <= upper_edge(bucket - 1) + duration / 4);
        }
    }
}
