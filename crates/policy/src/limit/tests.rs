use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ratio::Ratio;
use crate::rng::{Rng, SplitMix64};
use crate::time::nanos;

/// A dependency that works on so many calls at once, first come, first served.
#[derive(Clone, Copy)]
struct Server {
    slots: usize,
    /// The work of a call, and a delay beside it that needs no slot, in milliseconds.
    work: f64,
    delay: f64,
    is_exponential: bool,
    /// Refuses calls for load that find so many inside.
    refuses_at: usize,
}

impl Server {
    const fn new(slots: usize, work: f64) -> Self {
        Self { slots, work, delay: 0.5, is_exponential: false, refuses_at: usize::MAX }
    }

    fn draw(&self, rng: &mut SplitMix64) -> f64 {
        let unit = (rng.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
        if self.is_exponential { -self.work * unit.ln() } else { self.work }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Done,
    Back,
    Refused,
}

/// What became of a stretch of time.
#[derive(Debug)]
struct Seen {
    answered: usize,
    dropped: usize,
    /// Calls that had to wait for the limit, of those that came.
    held_back: usize,
    came: usize,
    least: u32,
    most: u32,
}

/// Callers that come at random and wait for a place for ever, a limit, and a server.
struct Play {
    params: LimitParams,
    limit: Limit,
    rng: SplitMix64,
    now: f64,
    /// What happens when, to which call.
    events: BinaryHeap<Reverse<(u64, What, usize)>>,
    queue: VecDeque<usize>,
    working: usize,
    inside: usize,
    calls: Vec<(f64, Option<LimitPermit>)>,
    waiting: usize,
}

impl Play {
    fn new(options: LimitOptions) -> Self {
        let params = LimitParams::new(options).unwrap();
        Self {
            params,
            limit: Limit::new(Timestamp::ZERO, &params),
            rng: SplitMix64::new(7),
            now: 0.0,
            events: BinaryHeap::new(),
            queue: VecDeque::new(),
            working: 0,
            inside: 0,
            calls: Vec::new(),
            waiting: 0,
        }
    }

    fn at(millis: f64) -> Timestamp {
        Timestamp::ZERO.after(Duration::from_secs_f64(millis / 1e3))
    }

    /// Callers come `rate` times in a millisecond until `until`.
    fn run(&mut self, until: f64, rate: f64, server: Server) -> Seen {
        let limit = self.limit.limit(&self.params);
        let (least, most) = (limit, limit);
        let mut seen = Seen { answered: 0, dropped: 0, held_back: 0, came: 0, least, most };
        let next = |rng: &mut SplitMix64, now: f64| {
            let unit = (rng.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
            now - unit.ln() / rate
        };
        let mut comes = next(&mut self.rng, self.now);
        loop {
            let first = self.events.peek().map_or(f64::INFINITY, |it| it.0.0 as f64 / 1e6);
            if comes.min(first) > until {
                self.now = until;
                return seen;
            }
            if comes <= first {
                self.now = comes;
                comes = next(&mut self.rng, self.now);
                seen.came += 1;
                // Who comes and finds too many waiting goes away.
                self.waiting = (self.waiting + 1).min(200);
                self.send(server);
                seen.held_back += usize::from(self.waiting > 0);
            } else {
                let Some(Reverse((_, what, call))) = self.events.pop() else { continue };
                self.now = first;
                match what {
                    What::Done => {
                        self.working -= 1;
                        self.inside -= 1;
                        self.push(self.now + server.delay, What::Back, call);
                    }
                    What::Back => {
                        self.complete(call, LimitOutcome::Success);
                        seen.answered += 1;
                    }
                    What::Refused => {
                        self.complete(call, LimitOutcome::Dropped);
                        seen.dropped += 1;
                    }
                }
                self.send(server);
            }
            let limit = self.limit.limit(&self.params);
            (seen.least, seen.most) = (seen.least.min(limit), seen.most.max(limit));
        }
    }

    fn push(&mut self, at: f64, what: What, call: usize) {
        let at = nanos(Duration::from_secs_f64(at / 1e3));
        self.events.push(Reverse((at, what, call)));
    }

    fn complete(&mut self, call: usize, outcome: LimitOutcome) {
        let (begun, permit) = &mut self.calls[call];
        let latency = Duration::from_secs_f64((self.now - *begun).max(0.0) / 1e3);
        let permit = permit.take().unwrap();
        let sample = LimitSample { latency, outcome };
        self.limit.complete(Self::at(self.now), &self.params, permit, sample);
    }

    fn send(&mut self, server: Server) {
        while self.waiting > 0
            && let Some(permit) = self.limit.try_acquire(Self::at(self.now), &self.params)
        {
            self.waiting -= 1;
            self.calls.push((self.now, Some(permit)));
            let call = self.calls.len() - 1;
            if self.inside >= server.refuses_at {
                self.push(self.now + 1.0, What::Refused, call);
                continue;
            }
            self.inside += 1;
            self.queue.push_back(call);
        }
        while self.working < server.slots
            && let Some(call) = self.queue.pop_front()
        {
            self.working += 1;
            let work = server.draw(&mut self.rng);
            self.push(self.now + work, What::Done, call);
        }
    }

    fn settled(&self) -> u32 {
        self.limit.limit_settled(&self.params)
    }
}

fn knee() -> LimitOptions {
    LimitOptions::default()
}

#[test]
fn options_that_can_never_take_effect_are_refused() {
    let refused = |options: LimitOptions| {
        let error = LimitParams::new(options).unwrap_err();
        std::format!("{error}")
    };
    let base = LimitOptions::default();
    assert!(refused(LimitOptions { max: 0, ..base }).contains("`max`"));
    assert!(refused(LimitOptions { max: 1_000_001, ..base }).contains("1 to 1000000"));
    assert!(refused(LimitOptions { min: 0, ..base }).contains("`min`"));
    assert!(refused(LimitOptions { min: 6, max: 5, ..base }).contains("1 to max (5)"));
    assert!(refused(LimitOptions { initial: Some(2_000), ..base }).contains("min (1) to max"));
    let fixed = LimitOptions { rule: LimitRule::Fixed, initial: Some(9), ..base };
    assert!(refused(fixed).contains("`initial`"));
    for percent in [104, 201] {
        let headroom = Ratio::from_percent(percent);
        assert!(refused(LimitOptions { headroom, ..base }).contains("105% to 200%"));
    }
    for percent in [105, 200] {
        let headroom = Ratio::from_percent(percent);
        assert!(LimitParams::new(LimitOptions { headroom, ..base }).is_ok());
    }
}

#[test]
fn at_half_load_nothing_waits_from_the_first_second_on() {
    for (slots, work, is_exponential) in [(8, 40.0, false), (8, 40.0, true), (20, 15.0, true)] {
        let server = Server { is_exponential, ..Server::new(slots, work) };
        let mut play = Play::new(knee());
        let rate = 0.5 * slots as f64 / work;
        let first = play.run(1_000.0, rate, server);
        assert_eq!(first.held_back, 0, "{slots}: {first:?}");
        let seen = play.run(60_000.0, rate, server);
        assert!(seen.held_back * 1_000 <= seen.came, "{slots}: {seen:?}");
    }
}

#[test]
fn the_ceiling_follows_what_is_in_flight() {
    let server = Server::new(8, 40.0);
    let mut play = Play::new(knee());
    play.run(2_400.0, 0.1, server);
    assert_eq!(play.settled(), 1_000);
    play.run(10_000.0, 0.1, server);
    assert!((12..=40).contains(&play.settled()), "{}", play.settled());
    // Hardly anybody calls: what is known stays known.
    play.run(20_000.0, 0.001, server);
    let before = play.settled();
    play.run(100_000.0, 0.001, server);
    assert_eq!(play.settled(), before);
}

#[test]
fn under_load_the_limit_stands_a_little_above_the_knee_and_dips_no_deeper_than_said() {
    for (slots, work) in [(8, 40.0), (20, 15.0), (50, 100.0), (200, 100.0)] {
        let server = Server::new(slots, work);
        let mut play = Play::new(knee());
        let full = slots as f64 / work;
        play.run(5_000.0, 0.5 * full, server);
        play.run(15_000.0, 3.0 * full, server);
        let seen = play.run(75_000.0, 3.0 * full, server);
        let knee = slots as f64 * (1.0 + 0.5 / work);
        let most = f64::from(seen.most);
        assert!(most >= knee && most <= 1.5 * knee + 1.0, "{slots}: {seen:?}");
        assert!(f64::from(seen.least) >= 0.7 * knee, "{slots}: {seen:?}");
        let done = seen.answered as f64 / (60_000.0 * full);
        assert!(done > 0.965, "{slots}: {done}");
    }
}

#[test]
fn exponential_times_cost_doubt_and_hardly_work() {
    for (slots, work) in [(8, 40.0), (20, 15.0)] {
        let server = Server { is_exponential: true, ..Server::new(slots, work) };
        let mut play = Play::new(knee());
        let full = slots as f64 / work;
        play.run(5_000.0, 0.5 * full, server);
        let seen = play.run(65_000.0, 10.0 * full, server);
        let done = seen.answered as f64 / (60_000.0 * full);
        assert!(done > 0.95, "{slots}: {done}");
        assert!(play.settled() < 2 * u32::try_from(slots).unwrap(), "{slots}: {seen:?}");
    }
}

#[test]
fn a_change_of_speed_by_ten_is_followed_within_ten_seconds_either_way() {
    let slow = Server::new(8, 400.0);
    let far = Server { delay: 360.0, ..Server::new(8, 40.0) };
    for (before, after, from, to) in [
        (Server::new(8, 40.0), slow, 9, 14),
        (slow, Server::new(8, 40.0), 9, 14),
        (Server::new(80, 40.0), Server::new(8, 40.0), 9, 14),
        (Server::new(8, 40.0), Server::new(80, 40.0), 81, 125),
        (Server::new(8, 40.0), far, 80, 125),
        (far, Server::new(8, 40.0), 9, 14),
    ] {
        let mut play = Play::new(LimitOptions { initial: Some(20), ..knee() });
        play.run(30_000.0, 4.0, before);
        play.run(40_000.0, 4.0, after);
        let limit = play.settled();
        let (was, is) = (before.slots as f64 / before.work, after.slots as f64 / after.work);
        assert!((from..=to).contains(&limit), "{was} to {is} a millisecond: {limit}");
    }
}

#[test]
fn after_a_long_time_under_load_it_stands_where_it_stood() {
    let server = Server::new(8, 40.0);
    let mut play = Play::new(knee());
    play.run(10_000.0, 0.6, server);
    let early = play.settled();
    play.run(300_000.0, 0.6, server);
    assert!(play.settled().abs_diff(early) <= 2, "{early}, then {}", play.settled());
}

#[test]
fn calls_that_all_time_out_never_raise_it_and_answers_bring_it_back() {
    let mut play = Play::new(LimitOptions { initial: Some(40), ..knee() });
    let params = play.params;
    let mut now = Timestamp::ZERO;
    for _ in 0..500 {
        let permits: Vec<_> = std::iter::from_fn(|| play.limit.try_acquire(now, &params)).collect();
        now = now.after(Duration::from_secs(5));
        for permit in permits {
            let latency = Duration::from_secs(5);
            let sample = LimitSample { latency, outcome: LimitOutcome::GaveUp };
            play.limit.complete(now, &params, permit, sample);
            assert!(play.limit.limit(&params) <= 40);
        }
    }
    assert_eq!(play.limit.limit(&params), 1);
    play.now = now.as_nanos() as f64 / 1e6;
    let healed = play.now;
    play.run(healed + 10_000.0, 4.0, Server::new(80, 40.0));
    assert!(play.settled() >= 80, "{}", play.settled());
}

#[test]
fn a_dependency_that_refuses_for_load_is_held_below_that() {
    for rate in [0.5, 1.0, 2.0] {
        let server = Server { refuses_at: 8, ..Server::new(8, 40.0) };
        let mut play = Play::new(knee());
        play.run(20_000.0, rate * 0.2, server);
        let seen = play.run(80_000.0, rate * 0.2, server);
        assert!(seen.dropped * 50 < seen.came, "{rate}: {seen:?}");
        assert!(seen.answered as f64 > 0.93 * rate.min(1.0) * 0.2 * 60_000.0, "{rate}: {seen:?}");
    }
}

#[test]
fn refusals_that_come_in_no_time_make_no_call_cheaper() {
    let mut prices = prices::Prices::default();
    for _ in 0..10 {
        prices.add(8, 40.0, LimitOutcome::Success);
        let price = prices.price();
        prices.add(9, 0.1, LimitOutcome::Dropped);
        assert!(prices.price() > price);
    }
}

#[test]
fn late_samples_of_an_earlier_rule_count_down_and_teach_nothing() {
    let knee = LimitParams::new(knee()).unwrap();
    let aimd = LimitOptions { rule: LimitRule::Aimd, ..LimitOptions::default() };
    let aimd = LimitParams::new(aimd).unwrap();
    let mut limit = Limit::new(Timestamp::ZERO, &knee);
    let old = limit.try_acquire(Timestamp::ZERO, &knee).unwrap();
    let new = limit.try_acquire(Timestamp::ZERO, &aimd).unwrap();
    assert_eq!((limit.in_flight(), limit.limit(&aimd)), (2, 20));
    let sample = LimitSample { latency: Duration::from_secs(1), outcome: LimitOutcome::Success };
    limit.complete(Timestamp::from_millis(1_000), &aimd, old, sample);
    assert_eq!((limit.in_flight(), limit.samples()), (1, 0));
    // The clock steps back: nothing happens.
    limit.complete(Timestamp::ZERO, &aimd, new, sample);
    assert_eq!((limit.in_flight(), limit.samples()), (0, 1));
}

#[test]
fn a_fixed_limit_is_its_max() {
    let options = LimitOptions { rule: LimitRule::Fixed, max: 3, ..LimitOptions::default() };
    let params = LimitParams::new(options).unwrap();
    let mut limit = Limit::new(Timestamp::ZERO, &params);
    let permits: Vec<_> =
        std::iter::from_fn(|| limit.try_acquire(Timestamp::ZERO, &params)).collect();
    assert_eq!((permits.len(), limit.available(&params)), (3, 0));
    let above = limit.acquire(Timestamp::ZERO, &params);
    assert_eq!((limit.in_flight(), limit.available(&params), above.in_flight()), (4, 0, 4));
    for permit in permits.into_iter().chain([above]) {
        limit.release(Timestamp::ZERO, &params, permit);
    }
    assert_eq!((limit.in_flight(), limit.available(&params)), (0, 3));
}

/// One window of the published rules with so many in flight: ten calls of so many milliseconds.
fn window(
    limit: &mut Limit,
    params: &LimitParams,
    now: &mut Timestamp,
    millis: u64,
    outcome: LimitOutcome,
) {
    let used = limit.limit(params).max(10);
    let permits: Vec<_> = (0..used).map(|_| limit.acquire(*now, params)).collect();
    *now = now.after(Duration::from_millis(millis.max(100)));
    for (place, permit) in permits.into_iter().enumerate() {
        let outcome = if place == 0 { outcome } else { LimitOutcome::Success };
        let sample = LimitSample { latency: Duration::from_millis(millis), outcome };
        limit.complete(*now, params, permit, sample);
    }
}

#[test]
fn published_rules_do_with_a_window_what_is_published_and_hear_of_drops() {
    for (rule, calm, dropped) in
        [(LimitRule::Aimd, 21, 18), (LimitRule::Vegas, 26, 19), (LimitRule::Gradient2, 20, 18)]
    {
        for (outcome, expected) in [
            (LimitOutcome::Success, calm),
            (LimitOutcome::Dropped, dropped),
            (LimitOutcome::GaveUp, dropped),
        ] {
            let options = LimitOptions { rule, ..LimitOptions::default() };
            let params = LimitParams::new(options).unwrap();
            let mut limit = Limit::new(Timestamp::ZERO, &params);
            let mut now = Timestamp::ZERO;
            let permits: Vec<_> = (0..10).map(|_| limit.acquire(now, &params)).collect();
            now = now.after(Duration::from_millis(200));
            for (place, permit) in permits.into_iter().enumerate() {
                let outcome = if place == 0 { outcome } else { LimitOutcome::Success };
                let latency = Duration::from_millis(200);
                limit.complete(now, &params, permit, LimitSample { latency, outcome });
            }
            assert_eq!(limit.limit(&params), expected, "{rule:?} {outcome:?}");
        }
    }
}

#[test]
fn a_dependency_that_became_slower_no_longer_looks_full_to_vegas_after_a_minute() {
    let options = LimitOptions { rule: LimitRule::Vegas, max: 60, ..LimitOptions::default() };
    let params = LimitParams::new(options).unwrap();
    let mut limit = Limit::new(Timestamp::ZERO, &params);
    let mut now = Timestamp::ZERO;
    while now < Timestamp::from_millis(10_000) {
        window(&mut limit, &params, &mut now, 40, LimitOutcome::Success);
    }
    assert_eq!(limit.limit(&params), 60);
    while now < Timestamp::from_millis(30_000) {
        window(&mut limit, &params, &mut now, 400, LimitOutcome::Success);
    }
    assert!(limit.limit(&params) < 20, "{}", limit.limit(&params));
    while now < Timestamp::from_millis(100_000) {
        window(&mut limit, &params, &mut now, 400, LimitOutcome::Success);
    }
    assert_eq!(limit.limit(&params), 60);
}

#[test]
fn a_share_is_always_had_and_lent_while_idle() {
    let shares = [Ratio::from_percent(75), Ratio::from_percent(25)];
    let params = PartitionsParams::new(&shares).unwrap();
    let mut partitions = Partitions::new(&params);
    let limit = 8;
    let mut in_flight = 0;
    // The small one takes all that is idle.
    while partitions.try_acquire(&params, 1, in_flight, limit) {
        in_flight += 1;
    }
    assert_eq!((partitions.in_flight(1), in_flight), (8, 8));
    // The large one comes, and has its share all the same, and no more.
    while partitions.try_acquire(&params, 0, in_flight, limit) {
        in_flight += 1;
    }
    assert_eq!((partitions.in_flight(0), in_flight), (6, 14));
    // What the borrower gives back is not lent again while more than the limit are in flight.
    for _ in 0..7 {
        partitions.release(1);
        in_flight -= 1;
    }
    assert_eq!(in_flight, 7);
    assert!(partitions.try_acquire(&params, 1, in_flight, limit));
    assert!(!partitions.try_acquire(&params, 2, 0, limit), "no such group");
}

#[test]
fn shares_are_checked_and_rounded_down_to_one_at_least() {
    let percent = Ratio::from_percent;
    assert!(PartitionsParams::new(&[]).is_err());
    assert!(PartitionsParams::new(&[percent(60), percent(41)]).is_err());
    let params = PartitionsParams::new(&[percent(60), percent(1), percent(0)]).unwrap();
    let shares: Vec<_> = (0..4).map(|group| params.share(group, 9)).collect();
    assert_eq!(shares, [5, 1, 0, 0]);
}

proptest! {
    #[test]
    fn whatever_ends_how_the_limit_stays_within_its_bounds(
        seed: u64,
        rule in prop::sample::select(&LimitRule::ALL[..]),
        min in 1..20_u32,
        more in 0..200_u32,
        steps in 1..600_usize,
    ) {
        let options = LimitOptions { rule, min, max: min + more, ..LimitOptions::default() };
        let params = LimitParams::new(options).unwrap();
        let mut rng = SplitMix64::new(seed);
        let mut limit = Limit::new(Timestamp::ZERO, &params);
        let mut out = Vec::new();
        let mut now = Timestamp::ZERO;
        for _ in 0..steps {
            now = now.after(Duration::from_micros(rng.below(20_000)));
            for _ in 0..rng.below(8) {
                let free = limit.available(&params);
                let permit = limit.try_acquire(now, &params);
                prop_assert_eq!(permit.is_some(), free > 0);
                out.extend(permit.map(|permit| (now, permit)));
            }
            for _ in 0..rng.below(8).min(out.len() as u64) {
                let place = usize::try_from(rng.below(out.len() as u64)).unwrap();
                let (begun, permit) = out.swap_remove(place);
                let outcome = [
                    LimitOutcome::Success,
                    LimitOutcome::Success,
                    LimitOutcome::Ignore,
                    LimitOutcome::Dropped,
                    LimitOutcome::GaveUp,
                ][usize::try_from(rng.below(5)).unwrap()];
                let sample = LimitSample { latency: now.since(begun), outcome };
                limit.complete(now, &params, permit, sample);
            }
            for limit in [limit.limit(&params), limit.limit_settled(&params)] {
                prop_assert!((params.min()..=params.max()).contains(&limit));
            }
            prop_assert_eq!(limit.in_flight() as usize, out.len());
        }
    }
}
