use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::rng::SplitMix64;

struct End {
    conduct: Conduct,
    healthy: bool,
}

impl Judged for End {
    fn conduct(&mut self) -> &mut Conduct {
        &mut self.conduct
    }

    fn is_healthy(&self) -> bool {
        self.healthy
    }
}

/// Endpoints that get forty calls a second each, while they have room, and a look a second.
struct Rig {
    now: Timestamp,
    params: OutlierParams,
    outliers: Outliers,
    ends: Vec<End>,
    rng: SplitMix64,
    /// Second, endpoint, verdict.
    verdicts: Vec<(u64, usize, Verdict)>,
}

/// Whether the n-th call to an endpoint failed, and how many milliseconds it took.
type Calls<'a> = &'a dyn Fn(usize, u32) -> (bool, u64);

const USUAL: u64 = 10;

fn well(_: usize, _: u32) -> (bool, u64) {
    (false, USUAL)
}

impl Rig {
    fn new(count: usize, options: OutlierOptions) -> Self {
        let end = |_| End { conduct: Conduct::new(), healthy: true };
        Self {
            now: Timestamp::from_millis(1),
            params: OutlierParams::new(options).unwrap(),
            outliers: Outliers::new(),
            ends: (0..count).map(end).collect(),
            rng: SplitMix64::new(1),
            verdicts: Vec::new(),
        }
    }

    fn standard(count: usize) -> Self {
        Self::new(count, OutlierOptions::default())
    }

    fn seconds(&mut self, seconds: u64, calls: Calls<'_>) -> &mut Self {
        for _ in 0..seconds {
            for (index, end) in self.ends.iter_mut().enumerate() {
                for n in 0..40 {
                    if end.healthy && end.conduct.has_room(self.now, &self.params) {
                        let usual = Duration::from_millis(USUAL);
                        let permit = end.conduct.begin(self.now, self.params.slow_after(usual));
                        let (failed, took) = calls(index, n);
                        end.conduct.on_end(self.now, permit, failed, Duration::from_millis(took));
                    }
                }
            }
            self.look();
        }
        self
    }

    fn look(&mut self) {
        self.now = self.now.after(Duration::from_secs(1));
        let (second, verdicts) = (self.now.as_nanos() / 1_000_000_000, &mut self.verdicts);
        self.outliers.look(
            self.now,
            &self.params,
            &mut self.ends,
            |index, _, verdict| verdicts.push((second, index, verdict)),
            &mut self.rng,
        );
    }

    fn out(&self) -> usize {
        self.ends.iter().filter(|end| end.conduct.is_out()).count()
    }

    fn ejected(&self) -> Vec<(u64, usize, EjectionReason)> {
        let each = |(second, index, verdict): &(u64, usize, Verdict)| match verdict {
            Verdict::Ejected(reason, _) => Some((*second, *index, *reason)),
            Verdict::Returned => None,
        };
        self.verdicts.iter().filter_map(each).collect()
    }
}

#[test]
fn the_third_look_in_a_row_ejects_one_that_fails_more_and_the_second_does_not() {
    let mut rig = Rig::standard(10);
    let sick = |index, _| (index == 3, USUAL);
    rig.seconds(5, &well).seconds(2, &sick);
    assert_eq!(rig.out(), 0);
    rig.seconds(1, &sick);
    assert_eq!(rig.ejected(), [(8, 3, EjectionReason::Failures)]);
    assert_eq!(rig.outliers.ejections(), [1, 0, 0]);
}

#[test]
fn two_bad_looks_and_a_good_one_are_forgiven_however_often() {
    let mut rig = Rig::standard(10);
    for _ in 0..20 {
        rig.seconds(2, &|index, _| (false, if index == 3 { 500 } else { USUAL }));
        rig.seconds(1, &well);
    }
    assert_eq!(rig.verdicts, []);
}

#[test]
fn looks_without_new_calls_say_nothing_new() {
    let mut rig = Rig::standard(10);
    rig.seconds(5, &well).seconds(1, &|index, _| (index == 3, USUAL));
    for _ in 0..10 {
        rig.look();
    }
    assert_eq!(rig.out(), 0);
}

#[test]
fn one_that_is_slow_beside_the_others_is_ejected_as_slow() {
    let mut rig = Rig::standard(10);
    rig.seconds(5, &well).seconds(3, &|index, _| (false, if index == 3 { 200 } else { USUAL }));
    assert_eq!(rig.ejected(), [(8, 3, EjectionReason::Slow)]);
    // Just below and at three times as long as usual.
    for (took, out) in [(29, 0), (30, 1)] {
        let mut rig = Rig::standard(10);
        rig.seconds(5, &|index, _| (false, if index == 3 { took } else { USUAL }));
        assert_eq!(rig.out(), out, "{took}");
    }
}

#[test]
fn what_is_true_of_all_ejects_none() {
    for all in [(true, USUAL), (false, 200), (true, 200)] {
        let mut rig = Rig::standard(10);
        rig.seconds(5, &well).seconds(60, &|_, _| all);
        assert_eq!(rig.verdicts, [], "{all:?}");
    }
    // Nor is what is true of eight of ten.
    let mut rig = Rig::standard(10);
    rig.seconds(60, &|index, _| (index < 8, USUAL));
    assert_eq!(rig.verdicts, []);
    // A third of the calls of each, in any order, and two thirds.
    for (of_three, failing) in [(1, true), (2, true), (1, false), (2, false)] {
        let mut rig = Rig::standard(10);
        rig.seconds(60, &|index, n| {
            let bad = (index * 7 + n as usize) % 3 < of_three;
            (bad && failing, if bad && !failing { 200 } else { USUAL })
        });
        assert_eq!(rig.verdicts, [], "{of_three} {failing}");
    }
}

#[test]
fn an_excess_is_reached_at_its_value_and_not_below() {
    let options = OutlierOptions {
        failure_excess: Ratio::from_percent(25),
        slow_excess: Ratio::from_percent(25),
        ..OutlierOptions::default()
    };
    // Eight of the last 32 calls are 25 %.
    for (bad, out) in [(7, 0), (8, 1)] {
        let mut rig = Rig::new(10, options);
        rig.seconds(3, &|index, n| (index == 3 && (8..8 + bad).contains(&n), USUAL));
        assert_eq!(rig.out(), out, "{bad} failed");
        let mut rig = Rig::new(10, options);
        let slow = |index, n| index == 3 && (8..8 + bad).contains(&n);
        rig.seconds(3, &|index, n| (false, if slow(index, n) { 200 } else { USUAL }));
        assert_eq!(rig.out(), out, "{bad} slow");
    }
}

#[test]
fn fewer_calls_than_asked_for_are_not_compared() {
    for (calls, out) in [(19, 0), (20, 1)] {
        let mut rig = Rig::standard(3);
        for _ in 0..3 {
            for (index, end) in rig.ends.iter_mut().enumerate() {
                for _ in 0..if rig.now.as_nanos() < 1_000_000_000 { calls - 2 } else { 1 } {
                    let permit = end.conduct.begin(rig.now, Duration::MAX);
                    end.conduct.on_end(rig.now, permit, index == 0, Duration::ZERO);
                }
            }
            rig.look();
        }
        // Two more looks with 20 and more calls.
        assert_eq!(rig.out(), 0, "{calls}: one look, or none");
        for _ in 0..2 {
            if calls == 20 {
                for (index, end) in rig.ends.iter_mut().enumerate() {
                    let permit = end.conduct.begin(rig.now, Duration::MAX);
                    end.conduct.on_end(rig.now, permit, index == 0, Duration::ZERO);
                }
            }
            rig.look();
        }
        assert_eq!(rig.out(), out, "{calls}");
    }
}

#[test]
fn at_most_the_set_share_is_out_the_worst_first_and_the_last_stays() {
    // Six of ten fail; the more the higher their number.
    let six = |index: usize, n: u32| (index >= 4 && n as usize % 10 < index, USUAL);
    for (percent, most) in [(10, 1), (20, 2), (29, 2), (50, 5), (100, 9), (1, 1)] {
        let max_ejected = Ratio::from_percent(percent);
        let mut rig = Rig::new(10, OutlierOptions { max_ejected, ..OutlierOptions::default() });
        rig.seconds(9, &six);
        assert!(rig.out() <= most, "{percent}: {}", rig.out());
        let first: Vec<_> = rig.ejected().iter().map(|(_, index, _)| *index).collect();
        assert_eq!(first[0], 9, "{percent}");
    }
    for (count, out) in [(1, 0), (2, 1), (3, 1), (4, 1)] {
        let mut rig = Rig::standard(count);
        rig.seconds(9, &|index, _| (index == 0, USUAL));
        assert_eq!(rig.out(), out, "of {count}");
    }
    let params = OutlierParams::default();
    let most: Vec<_> = [0, 1, 2, 3, 4, 5, 10, 11].map(|count| params.most_out(count)).to_vec();
    assert_eq!(most, [0, 0, 1, 1, 2, 2, 5, 5]);
}

#[test]
fn endpoints_that_health_checks_call_sick_are_among_those_that_are_out() {
    let mut rig = Rig::standard(10);
    for end in &mut rig.ends[5..] {
        end.healthy = false;
    }
    rig.seconds(9, &|index, _| (index == 0, USUAL));
    assert_eq!(rig.verdicts, []);
    rig.ends[9].healthy = true;
    rig.seconds(9, &|index, _| (index == 0, USUAL));
    assert_eq!(rig.ejected().len(), 1);
}

#[test]
fn five_probes_as_good_as_the_others_calls_bring_it_back_and_worse_ones_do_not() {
    let mut rig = Rig::standard(10);
    let sick = |index, _| (index == 3, USUAL);
    rig.seconds(3, &sick);
    let Verdict::Ejected(_, first) = rig.verdicts[0].2 else { unreachable!() };
    assert!((7_000..=10_000).contains(&first.as_millis()), "{first:?}");
    // It goes on: five probes when its time is up, and twice as long again.
    rig.seconds(11, &sick);
    assert_eq!(rig.outliers.ejections(), [1, 0, 1]);
    let Verdict::Ejected(EjectionReason::Probes, second) = rig.verdicts[1].2 else {
        unreachable!()
    };
    assert!((14_000..=20_000).contains(&second.as_millis()), "{second:?}");
    // It is well: back after its time.
    rig.seconds(22, &well);
    assert_eq!(rig.verdicts.len(), 3);
    assert_eq!((rig.verdicts[2].1, rig.verdicts[2].2), (3, Verdict::Returned));
    assert_eq!(rig.out(), 0);
}

#[test]
fn probes_are_few_and_those_that_say_nothing_are_replaced() {
    let mut rig = Rig::standard(2);
    rig.seconds(3, &|index, _| (index == 0, USUAL));
    rig.now = rig.now.after(Duration::from_secs(10));
    let (now, params) = (rig.now, rig.params);
    let conduct = &mut rig.ends[0].conduct;
    assert!(conduct.is_probing(now) && conduct.ejected_until(now).is_none());
    let mut probes: Vec<_> = (0..5)
        .map(|_| {
            assert!(conduct.has_room(now, &params));
            conduct.begin(now, Duration::from_millis(30))
        })
        .collect();
    assert!(!conduct.has_room(now, &params), "five are out");
    conduct.on_ignore(&probes.pop().unwrap());
    assert!(conduct.has_room(now, &params), "one came back without saying anything");
    probes.push(conduct.begin(now, Duration::from_millis(30)));
    for mut probe in probes {
        // They hang: seen by their age.
        conduct.on_slow(now, &mut probe);
        conduct.on_slow(now, &mut probe);
        conduct.on_ignore(&probe);
    }
    assert!(!conduct.has_room(now, &params), "all are judged at the next look");
    rig.look();
    assert_eq!(rig.outliers.ejections(), [1, 0, 1]);
}

#[test]
fn results_of_calls_from_before_an_ejection_change_nothing() {
    let mut rig = Rig::standard(3);
    let late: Vec<_> = (0..40).map(|_| rig.ends[0].conduct.begin(rig.now, Duration::MAX)).collect();
    rig.seconds(3, &|index, _| (index == 0, USUAL)).seconds(8, &well);
    assert_eq!(rig.verdicts.len(), 1);
    for permit in late {
        rig.ends[0].conduct.on_end(rig.now, permit, true, Duration::ZERO);
    }
    rig.seconds(4, &well);
    assert_eq!(rig.verdicts.last().unwrap().2, Verdict::Returned);
}

#[test]
fn ejections_in_a_row_double_up_to_the_cap_and_healthy_time_takes_them_back() {
    let mut rig = Rig::standard(10);
    let sick = |index, _| (index == 3, USUAL);
    rig.seconds(300, &sick);
    let times: Vec<_> = rig
        .verdicts
        .iter()
        .map(|(_, _, verdict)| match verdict {
            Verdict::Ejected(_, time) => time.as_secs_f64(),
            Verdict::Returned => 0.0,
        })
        .collect();
    for (time, longest) in times.iter().zip([10.0, 20.0, 40.0, 60.0, 60.0, 60.0]) {
        assert!(*time <= longest && *time >= longest * 0.7, "{times:?}");
    }
    assert!(times.len() >= 6, "{times:?}");
    // Back for good: level 7 or so at first; a minute each down to 4, then 40, 20 and 10 s.
    rig.seconds(70, &well);
    assert_eq!(rig.verdicts.last().unwrap().2, Verdict::Returned);
    rig.seconds(600, &well).seconds(3, &sick);
    let Verdict::Ejected(EjectionReason::Failures, time) = rig.verdicts.last().unwrap().2 else {
        unreachable!()
    };
    assert!(time <= Duration::from_secs(10), "{time:?}");
}

#[test]
fn a_slow_call_that_fails_later_counts_once_and_as_both() {
    let mut conduct = Conduct::new();
    let now = Timestamp::from_millis(1);
    let mut permit = conduct.begin(now, Duration::from_millis(30));
    assert_eq!(permit.slow_after(), Some(Duration::from_millis(30)));
    conduct.on_slow(now, &mut permit);
    assert_eq!(permit.slow_after(), None);
    conduct.on_end(now, permit, true, Duration::from_secs(1));
    let good = conduct.begin(now, Duration::from_millis(30));
    conduct.on_end(now, good, false, Duration::ZERO);
    let params = OutlierOptions { min_calls: 2, ..OutlierOptions::default() };
    let shares = conduct.comparable(&OutlierParams::new(params).unwrap()).unwrap();
    let half = Ratio::from_percent(50);
    assert_eq!((shares.failed, shares.slow), (half, half), "one of two");
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let default = OutlierOptions::default();
    let zero = Duration::ZERO;
    for (field, options) in [
        ("interval", OutlierOptions { interval: zero, ..default }),
        ("ejection_base", OutlierOptions { ejection_base: zero, ..default }),
        ("ejection_cap", OutlierOptions { ejection_cap: Duration::from_secs(9), ..default }),
        ("min_calls", OutlierOptions { min_calls: 0, ..default }),
        ("min_calls", OutlierOptions { min_calls: 33, ..default }),
        ("probes", OutlierOptions { probes: 0, ..default }),
        ("failure_excess", OutlierOptions { failure_excess: Ratio::ZERO, ..default }),
        ("slow_excess", OutlierOptions { slow_excess: Ratio::from_percent(101), ..default }),
        ("max_ejected", OutlierOptions { max_ejected: Ratio::ZERO, ..default }),
        ("slow_factor", OutlierOptions { slow_factor: 1, ..default }),
    ] {
        assert_eq!(OutlierParams::new(options).unwrap_err().field(), field);
    }
    assert!(OutlierParams::new(default).is_ok());
}

#[test]
fn an_endpoint_costs_48_bytes() {
    assert_eq!(size_of::<Conduct>(), 48);
}

/// One second of every endpoint: how many of twenty calls fail and how many are slow, and whether
/// health checks change their mind.
type Second = Vec<(u32, u32)>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_never_more_are_out_than_the_share_and_equal_seeds_give_equal_verdicts(
        count in 1..12_usize,
        percent in 1..=100_u32,
        seed in any::<u64>(),
        script in prop::collection::vec(prop::collection::vec((0..21_u32, 0..21_u32), 12), 1..40),
    ) {
        let play = |script: &[Second]| {
            let max_ejected = Ratio::from_percent(percent);
            let options = OutlierOptions { max_ejected, ..OutlierOptions::default() };
            let mut rig = Rig::new(count, options);
            rig.rng = SplitMix64::new(seed);
            for second in script {
                rig.seconds(1, &|index, n| {
                    let (failed, slow) = second[index];
                    (n % 20 < failed, if n % 20 < slow { 200 } else { USUAL })
                });
                assert!(rig.out() <= rig.params.most_out(count), "{} of {count}", rig.out());
            }
            // And all come back when they are well.
            rig.seconds(150, &well);
            assert_eq!(rig.out(), 0);
            rig.verdicts
        };
        prop_assert_eq!(play(&script), play(&script));
    }
}
