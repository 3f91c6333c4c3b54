//! A fleet against what is known of it, and against itself.

use std::time::Duration;

use seawall_policy::{
    BackoffOptions, BreakerOptions, BudgetOptions, BulkheadOptions, BulkheadParams, HedgeDelay,
    HedgeOptions, Jitter, OutlierOptions, Ratio, RetryOptions, StackConfig, StackParams,
    StopReason, SuccessBudget, Timestamp,
};

mod clients;
mod services;
mod story;

use super::*;
use crate::baselines::Gate;
use crate::exact;
use crate::fault::Trouble;
use crate::seeds::over_seeds;
use crate::server::{Discipline, Drop};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn second(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn fault(from: u64, until: u64, trouble: Trouble) -> Fault {
    Fault::new(second(from), second(until), None, trouble).unwrap()
}

fn errors(share: f64) -> Trouble {
    Trouble::Errors { share, status: 503 }
}

/// Up to so many attempts, 100 ms apart without jitter, each with half a second.
fn retrying(max_attempts: u32) -> StackConfig {
    let backoff = BackoffOptions { jitter: Jitter::None, ..BackoffOptions::default() };
    StackConfig {
        retry: Some(RetryOptions { max_attempts, backoff, ..RetryOptions::default() }),
        attempt_timeout: Some(millis(500)),
        ..StackConfig::default()
    }
}

/// A hundred clients that make a hundred calls a second together for 20 s, of a server with eight
/// workers of 10 ms, over a network of 1 ms; 40 s in all.
fn fleet(config: &StackConfig) -> Fleet {
    Fleet {
        clients: 100,
        calls: Calls::Open(Rate::constant(100.0).unwrap()),
        patience: None,
        cancels: false,
        connect: None,
        safety: None,
        policy: StackParams::new(config).unwrap(),
        baseline: None,
        sharing: Sharing::Each,
        network: Network { delay: Span::fixed(millis(1)), loss: 0.0 },
        to: vec![Target::new(0)],
        keys: None,
        lives: None,
        is_together: false,
        services: vec![service("only", host(8, Span::fixed(millis(10))))],
        faults: Vec::new(),
        warm_up: Timestamp::ZERO,
        calls_until: second(20),
        ends: second(40),
    }
}

/// One server that calls nobody.
fn service(name: &str, host: Host) -> Service {
    Service::new(name, 1, host, StackParams::new(&StackConfig::default()).unwrap())
}

fn once(at: Timestamp, again: Duration) -> Calls {
    Calls::Once { at, over: Duration::ZERO, again: Span::fixed(again), then: None }
}

fn host(workers: u32, service: Span) -> Host {
    let work = Work::Queue { workers, queue: Queue::fifo(None), service };
    Host { work, notices: false, entry: None, refusal: Refusal::PLAIN, door: None }
}

fn run(fleet: &Fleet) -> Report {
    let report = fleet.run(1).unwrap();
    let Counts { calls, good, failed, left, cut_off, stops, .. } = report.counts;
    assert_eq!(calls, good + failed + left + cut_off, "every call is counted once");
    assert_eq!(good + failed, stops.iter().sum::<u64>());
    let all = report.between(0, report.seconds.len());
    assert!(all.arrived <= all.attempts && all.worked + all.wasted <= all.arrived);
    report
}

/// Three seeds give reports of this sum, on any number of threads, of any build and any platform.
fn assert_always_the_same(fleet: &Fleet, sum: u64) {
    let text = |threads| {
        let reports = over_seeds(&[1, 2, 3], threads, |seed| fleet.run(seed).unwrap().to_string());
        reports.join("\n")
    };
    let one = text(1);
    assert_eq!(one, text(2));
    let came = one.bytes().fold(0_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(7)
    });
    assert_eq!(came, sum, "{one}");
}

#[test]
fn attempts_a_call_are_the_closed_form() {
    for (fails, attempts) in [(0.0, 3), (0.1, 3), (0.3, 3), (0.5, 3), (0.75, 3), (1.0, 3), (0.5, 5)]
    {
        let mut fleet = fleet(&retrying(attempts));
        fleet.calls = Calls::Open(Rate::constant(1_000.0).unwrap());
        fleet.services[0].host = host(100, Span::fixed(millis(10)));
        fleet.faults = vec![fault(0, 40, errors(fails))];
        let report = run(&fleet);
        let exact = exact::attempts_per_call(fails, attempts);
        let measured = report.amplification();
        assert!((measured - exact).abs() < 0.01 * exact, "{fails}: {measured}, not {exact}");
        let success = 1.0 - fails.powi(i32::try_from(attempts).unwrap());
        assert!((report.success() - success).abs() < 0.01, "{fails}: {}", report.success());
        assert_eq!(report.counts.cut_off, 0);
    }
}

#[test]
fn without_faults_every_call_is_answered_after_network_and_work() {
    let report = run(&fleet(&retrying(3)));
    assert!(report.counts.calls > 1_800, "{}", report.counts.calls);
    assert_eq!(report.counts.good, report.counts.calls);
    assert_eq!(report.counts.stops[StopReason::Answered.index()], report.counts.calls);
    // To the three digits of a histogram.
    let near = |time: Duration| time.abs_diff(millis(12)) < Duration::from_micros(10);
    assert!(near(report.times.quantile(0.01)) && near(report.times.quantile(0.9)));
}

#[test]
fn a_budget_holds_the_attempts_of_an_outage_and_its_absence_does_not() {
    let outage = |budget: Option<BudgetOptions>| {
        let mut fleet = fleet(&StackConfig { budget, ..retrying(3) });
        fleet.faults = vec![fault(5, 15, errors(1.0))];
        let during = run(&fleet).between(6, 14);
        during.attempts as f64 / during.offered as f64
    };
    let naive = outage(None);
    let ours = outage(Some(SuccessBudget::default().into()));
    assert!(naive > 2.9, "{naive}");
    assert!(ours < 1.5, "{ours}");
}

#[test]
fn a_breaker_opens_in_an_outage_and_one_bad_server_of_three_is_ejected() {
    let breaker = Some(BreakerOptions::default());
    let mut fleet = fleet(&StackConfig { breaker, ..retrying(2) });
    fleet.sharing = Sharing::All;
    fleet.faults = vec![fault(5, 15, Trouble::Silent)];
    (fleet.calls_until, fleet.ends) = (second(35), second(50));
    let report = run(&fleet);
    assert!(report.opened >= 2, "it opens, probes, and opens again: {report}");
    assert!(report.counts.stops[StopReason::BreakerOpen.index()] > 500, "{report}");
    // Open for ten seconds at most.
    assert_eq!((report.ejected, report.between(26, 35).failed), (0, 0));

    let outlier = Some(OutlierOptions::default());
    fleet.policy = StackParams::new(&StackConfig { outlier, ..retrying(2) }).unwrap();
    fleet.services[0].servers = 3;
    let bad = Trouble::Errors { share: 1.0, status: 503 };
    fleet.faults = vec![Fault::new(second(5), second(15), Some(2), bad).unwrap()];
    let report = run(&fleet);
    assert!(report.ejected >= 1 && report.opened == 0, "{report}");
    let retries = |from, until| {
        let between = report.between(from, until);
        between.attempts as f64 / between.offered as f64
    };
    assert!(retries(8, 14) < 1.1, "it gets next to nothing: {}", retries(8, 14));
}

#[test]
fn a_hedge_goes_to_the_other_server_and_the_slower_of_the_two_is_abandoned() {
    let hedge = HedgeOptions {
        delay: HedgeDelay::Fixed(millis(30)),
        max_extra: Ratio::from_percent(100),
        ..HedgeOptions::default()
    };
    let slowest = |hedge| {
        let mut fleet = fleet(&StackConfig { hedge, ..retrying(2) });
        fleet.sharing = Sharing::All;
        fleet.services[0].servers = 2;
        // So rarely that no hedge meets another call.
        fleet.calls = Calls::Open(Rate::constant(5.0).unwrap());
        let slow = Fault::new(second(0), second(40), Some(1), Trouble::Slow(30.0)).unwrap();
        fleet.faults = vec![slow];
        let report = run(&fleet);
        assert_eq!(report.counts.good, report.counts.calls);
        let all = report.between(0, 40);
        (report.times.longest(), report.amplification(), all.wasted)
    };
    let (longest, attempts, wasted) = slowest(None);
    assert!(longest > millis(290) && attempts < 1.01 && wasted == 0, "{longest:?}");
    let (longest, attempts, wasted) = slowest(Some(hedge));
    assert!(
        longest < millis(50) && attempts > 1.1 && wasted > 10,
        "{longest:?} {attempts} {wasted}"
    );
}

#[test]
fn each_trouble_is_met_as_it_is() {
    let stops = |trouble, reason: StopReason| {
        let mut fleet = fleet(&retrying(2));
        fleet.faults = vec![fault(5, 15, trouble)];
        let report = run(&fleet);
        (report.counts.stops[reason.index()], report)
    };
    let (exhausted, silent) = stops(Trouble::Silent, StopReason::Exhausted);
    assert!(exhausted > 800 && silent.between(6, 14).arrived == 0, "{silent}");
    let (exhausted, down) = stops(Trouble::Down, StopReason::Exhausted);
    assert!(exhausted > 800 && down.between(6, 14).good == 0, "{down}");
    let (_, restart) = stops(Trouble::Restart, StopReason::Exhausted);
    assert!(restart.between(6, 14).good == 0 && restart.between(16, 20).failed == 0, "{restart}");
    let (_, slow) = stops(Trouble::Slow(3.0), StopReason::Answered);
    assert_eq!(slow.counts.good, slow.counts.calls);
    assert!(slow.times.quantile(0.7) > millis(30), "{slow}");
    let (_, few) = stops(Trouble::Capacity(0), StopReason::Answered);
    assert!(few.between(6, 14).good == 0 && few.between(18, 20).good > 150, "{few}");
    let (_, held) = stops(Trouble::Hold, StopReason::Answered);
    assert_eq!(held.between(6, 14).arrived, 0);
    assert!(held.seconds[15].arrived > 800, "all arrive at the end: {held}");
}

#[test]
fn a_pause_delays_what_is_inside_by_its_length_and_no_more() {
    let mut fleet = fleet(&StackConfig::default());
    fleet.calls = Calls::Serial(Span::fixed(millis(100)));
    fleet.clients = 1;
    fleet.services[0].host = host(1, Span::fixed(millis(60)));
    // Two pauses that overlap are one.
    fleet.faults = vec![fault(5, 7, Trouble::Pause), fault(6, 9, Trouble::Pause)];
    let report = run(&fleet);
    assert_eq!(report.counts.good, report.counts.calls);
    assert!(report.times.quantile(0.9) < millis(63));
    let longest = report.times.longest();
    assert!((millis(3_900)..=millis(4_070)).contains(&longest), "{longest:?}");
    assert_eq!(report.between(5, 9).good, 0);
}

#[test]
fn work_goes_on_for_nobody_unless_the_server_notices() {
    let stalled = |notices| {
        let mut fleet = fleet(&retrying(1));
        // Half of what it can do, and for five seconds it can do nothing.
        fleet.calls = Calls::Open(Rate::constant(400.0).unwrap());
        fleet.services[0].host.notices = notices;
        fleet.faults = vec![fault(5, 10, Trouble::Capacity(0))];
        let report = run(&fleet);
        (report.between(5, 40).wasted, report.between(11, 14).failed)
    };
    let (wasted, failed) = stalled(false);
    // 2,000 that wait, and those that come before they are worked off.
    assert!(wasted > 2_500 && failed > 1_000, "{wasted} {failed}");
    let (wasted, failed) = stalled(true);
    assert!(wasted < 50 && failed < 50, "{wasted} {failed}");
}

#[test]
fn what_was_sent_runs_on_without_whoever_left_and_is_recorded() {
    let left = |baseline: Option<Baseline>| {
        let mut fleet = fleet(&retrying(2));
        // Whoever waits 25 ms misses the answers of five seconds, and no others.
        fleet.patience = Some(Span::fixed(millis(25)));
        fleet.faults = vec![fault(5, 10, Trouble::Slow(3.0))];
        fleet.baseline = baseline;
        run(&fleet)
    };
    let ours = left(None);
    let gone = ours.counts.left;
    assert!((300..700).contains(&gone) && ours.success() < 0.85, "{ours}");
    assert_eq!((ours.counts.failed, ours.counts.attempts), (0, ours.counts.calls));
    let all = ours.between(0, 40);
    assert_eq!((all.wasted, all.worked), (gone, ours.counts.good));
    let theirs = left(Some(Baseline::new(2, millis(500), &[], Gate::Free).unwrap()));
    assert_eq!((ours.counts, ours.seconds), (theirs.counts, theirs.seconds));
}

#[test]
fn a_full_server_and_a_lossy_network_lose_what_they_should() {
    let mut fleet =
        fleet(&StackConfig { attempt_timeout: Some(millis(200)), ..Default::default() });
    fleet.network.loss = 0.1;
    let success = run(&fleet).success();
    assert!((success - 0.81).abs() < 0.03, "both ways have to arrive: {success}");
    fleet.network.loss = 0.0;
    let Work::Queue { queue, workers, .. } = &mut fleet.services[0].host.work else { return };
    (*queue, *workers) = (Queue::fifo(Some(0)), 1);
    let success = run(&fleet).success();
    // Erlang's B at a load of 1: half are refused.
    assert!((success - 0.5).abs() < 0.03, "{success}");
}

/// A hundred calls a second, of which a server with one worker of 20 ms can work on half, and an
/// attempt is given 200 ms.
fn overloaded(queue: Queue) -> Fleet {
    let mut fleet =
        fleet(&StackConfig { attempt_timeout: Some(millis(200)), ..StackConfig::default() });
    fleet.services[0].host = host(1, Span::fixed(millis(20)));
    let Work::Queue { queue: before, .. } = &mut fleet.services[0].host.work else { return fleet };
    *before = queue;
    fleet
}

#[test]
fn a_server_drops_what_nobody_waits_for_by_the_time_that_travelled() {
    let late = run(&overloaded(Queue::fifo(None)));
    assert!(late.success() < 0.1 && late.unstarted() < 1e-9, "{late}");
    let expired = |needs| {
        let drop = Drop::Expired(millis(needs));
        run(&overloaded(Queue::Own(Discipline { drop, ..Discipline::FIFO })))
    };
    // 5 ms are kept back for the way home, and work takes 20: what is begun at the edge is late.
    let edge = expired(0);
    assert!((edge.unstarted() - 1.0).abs() < 1e-9 && edge.success() < 0.35, "{edge}");
    let fits = expired(20);
    assert!(fits.success() > 0.48 && fits.turned.begun_for_nobody == 0, "{fits}");
    assert_eq!(fits.between(0, 40).wasted, 0);
    // Somebody still waited for those with too little time left.
    assert!(fits.turned.dropped_awaited > 500, "{fits}");
}

#[test]
fn the_policys_queue_answers_at_the_end_of_its_wait() {
    let options = BulkheadOptions { wait: millis(50), queue: 100, ..BulkheadOptions::default() };
    let report = run(&overloaded(Queue::Policy(BulkheadParams::new(options).unwrap(), 1)));
    assert!(report.success() > 0.48, "{report}");
    // 50 ms, the work and the way.
    assert!(report.times.longest() < Duration::from_micros(72_100), "{report}");
    assert_eq!(report.turned.dropped, report.turned.dropped_awaited);
}

#[test]
fn turning_away_costs_what_it_is_said_to() {
    let worked_by = |queue, cost, drop_cost| {
        let mut fleet = overloaded(queue);
        fleet.services[0].host.refusal = Refusal { cost, drop_cost, ..Refusal::PLAIN };
        let second = run(&fleet).between(5, 20);
        (second.worked + second.wasted) as f64 / 15.0
    };
    let worked = |room, drop, cost, drop_cost| {
        worked_by(Queue::Own(Discipline { room, drop, ..Discipline::FIFO }), cost, drop_cost)
    };
    let near = |worked: f64, exact: f64| assert!((worked - exact).abs() < 1.5, "{worked}");
    // λ = 100, μ = 50: of the worker's time, what is refused takes its cost. w + c(λ − w) = μ.
    near(worked(Some(5), Drop::Never, 0.0, 0.0), 50.0);
    near(worked(Some(5), Drop::Never, 0.2, 0.0), 37.5);
    near(worked(None, Drop::Older(millis(60)), 0.0, 0.0), 50.0);
    near(worked(None, Drop::Older(millis(60)), 0.0, 0.2), 37.5);
    let options = BulkheadOptions { wait: millis(60), queue: 100, ..BulkheadOptions::default() };
    let policy = || Queue::Policy(BulkheadParams::new(options).unwrap(), 1);
    near(worked_by(policy(), 0.0, 0.0), 50.0);
    near(worked_by(policy(), 0.2, 0.2), 37.5);
}

#[test]
fn a_refusal_that_says_when_is_waited_for_by_the_policy() {
    let told = |form, clock: Option<i64>| {
        let mut fleet = fleet(&retrying(2));
        fleet.policy =
            StackParams::new(&StackConfig { total: Some(Duration::from_secs(30)), ..retrying(2) })
                .unwrap();
        let wait = Wait::Fixed(Duration::from_secs(7));
        let later = Some(Later { wait, spread: 0.0, form });
        fleet.services[0].host.refusal = Refusal { later, ..Refusal::PLAIN };
        fleet.faults = vec![fault(5, 6, errors(1.0))];
        let clock = clock.map(|ahead| fault(0, 40, Trouble::Clock { share: 1.0, ahead }));
        fleet.faults.extend(clock);
        let report = run(&fleet);
        let retries = |from, until| {
            let between = report.between(from, until);
            between.attempts - between.offered
        };
        // At once, after seven seconds and up to one more, or much later.
        (retries(5, 7), retries(12, 15), retries(15, 40))
    };
    let (soon, then, late) = told(Form::Seconds, None);
    assert!(soon == 0 && then > 70 && late == 0, "{soon} {then} {late}");
    let (soon, then, late) = told(Form::Date { dated: true }, Some(-120));
    assert!(soon == 0 && then > 70 && late == 0, "a Date beside it: {soon} {then} {late}");
    let (soon, then, late) = told(Form::Date { dated: false }, Some(-12));
    assert!(soon + then == 0 && late > 70, "clocks behind wait for longer: {soon} {then} {late}");
    let (soon, then, late) = told(Form::Date { dated: false }, Some(60));
    assert!(soon > 70 && then + late == 0, "clocks ahead take it for past: {soon} {then} {late}");
}

#[test]
fn a_partition_cuts_some_clients_off_both_ways_and_no_others() {
    let mut fleet = fleet(&retrying(1));
    fleet.faults = vec![fault(5, 15, Trouble::Partition { share: 0.3 })];
    let report = run(&fleet);
    let during = report.between(6, 14);
    let failed = during.failed as f64 / during.offered as f64;
    assert!((0.2..0.4).contains(&failed) && report.between(16, 20).failed == 0, "{report}");
    // What arrived before and is answered within the partition is lost too.
    let mut fleet = overloaded(Queue::fifo(None));
    fleet.faults = vec![fault(5, 40, Trouble::Partition { share: 1.0 })];
    let report = run(&fleet);
    assert_eq!((report.between(6, 40).good, report.between(6, 40).arrived), (0, 0));
    assert!(report.between(5, 40).worked + report.between(5, 40).wasted > 10, "{report}");
}

#[test]
fn all_clients_call_at_one_time_and_each_until_it_is_answered_once() {
    let rush = |room: Option<u32>, baseline: Option<Baseline>| {
        let mut fleet = fleet(&retrying(1));
        fleet.calls = once(second(1), millis(400));
        let service = Span::fixed(millis(10));
        fleet.services[0].host.work = Work::Queue { workers: 1, queue: Queue::fifo(room), service };
        fleet.baseline = baseline;
        fleet.ends = second(20);
        run(&fleet)
    };
    // A hundred in a row, one at a time; whoever waits half a second is in vain.
    let report = rush(None, None);
    assert_eq!(report.between(1, 2).offered, 100 + 51, "{report}");
    assert_eq!((report.counts.good, report.rush.waiting), (100, 0));
    assert_eq!(report.rush.ready_at(0.49).map(|at| at.as_millis()), Some(492));
    assert!(report.rush.ready_at(1.0) > Some(Duration::from_secs(1)), "{report}");
    assert!(report.rush.mean_attempts() > 1.5, "{report}");
    // Room for ten: eleven at a time, each round 402 ms after the last.
    let report = rush(Some(10), None);
    assert_eq!(report.rush.attempts, [0, 11, 11, 11, 11, 11, 11, 11, 11, 11, 1]);
    let theirs = rush(Some(10), Some(Baseline::new(1, millis(500), &[], Gate::Free).unwrap()));
    assert_eq!(report.rush.attempts, theirs.rush.attempts);
}

/// One client after another: two round trips and 30 ms before the first request of each.
fn door(workers: u32, room: Option<u32>) -> Door {
    let costs = [5, 10, 15].map(|cost| Span::fixed(millis(cost))).to_vec();
    Door { workers, queue: Queue::fifo(room), costs, trips: 2 }
}

#[test]
fn a_client_is_let_in_once_and_again_after_a_reset() {
    let mut fleet = fleet(&retrying(1));
    fleet.clients = 1;
    fleet.calls = Calls::Serial(Span::fixed(millis(100)));
    fleet.calls_until = second(10);
    fleet.services[0].host.door = Some(door(1, None));
    let slow = |report: &Report| {
        let n = report.times.n() as f64;
        let slow = (0..1000)
            .find(|out| report.times.quantile(1.0 - (f64::from(*out) + 0.5) / n) < millis(13));
        assert_eq!(report.counts.good, report.counts.calls);
        (slow, report.times.longest().as_micros() / 100)
    };
    // 12 ms, and the first time 30 and four ways of a millisecond more.
    let (slow_ones, longest) = slow(&run(&fleet));
    assert_eq!((slow_ones, longest / 10), (Some(1), 46));
    fleet.faults = vec![fault(3, 4, Trouble::Reset { share: 1.0 }), fault(6, 7, Trouble::Restart)];
    fleet.policy = StackParams::new(&retrying(9)).unwrap();
    let report = run(&fleet);
    assert!(report.times.quantile(0.9) < millis(13) && report.between(8, 10).good > 15, "{report}");
    fleet.faults.truncate(1);
    assert_eq!(slow(&run(&fleet)).0, Some(2));
}

#[test]
fn who_is_in_does_not_wait_for_those_who_come_and_who_left_is_let_in_for_nobody() {
    let mut fleet =
        fleet(&StackConfig { attempt_timeout: Some(millis(200)), ..Default::default() });
    fleet.calls = once(second(1), millis(50));
    fleet.services[0].host.door = Some(door(1, None));
    // A hundred want in, 30 ms each; after 200 ms they give up, and the door goes on for nobody.
    let report = run(&fleet);
    assert!(report.rush.ready_at(0.2).is_none() && report.rush.waiting > 50, "{report}");
    // With room for five, who is refused comes again, and nobody is let in for nobody.
    fleet.services[0].host.door = Some(door(1, Some(4)));
    let report = run(&fleet);
    let ready = report.rush.ready_at(1.0).unwrap_or_default();
    assert!((millis(3_000)..millis(3_300)).contains(&ready), "{ready:?} {report}");
    // Refusals cost the door what they are said to, and nobody behind it.
    fleet.services[0].host.refusal = Refusal { cost: 0.005, ..Refusal::PLAIN };
    let dear = run(&fleet).rush.ready_at(1.0).unwrap_or_default();
    assert!(dear > ready + millis(100), "{dear:?}");
}

#[test]
fn recorded_calls_come_when_they_did_the_clients_taking_turns() {
    let mut fleet = fleet(&retrying(1));
    fleet.clients = 3;
    let times: Vec<_> =
        [500, 500, 700, 2_000, 2_500, 19_000, 25_000].map(Timestamp::from_millis).into();
    fleet.calls = Calls::Recorded(times.into());
    let report = run(&fleet);
    let offered: Vec<_> = report.seconds.iter().map(|second| second.offered).collect();
    assert_eq!((offered[0], offered[2], offered[19], offered[25]), (3, 2, 1, 0));
    assert_eq!(report.counts.calls, 6, "none from the end of the calls on");
}

#[test]
fn a_crowd_slows_everybody_who_comes_into_it() {
    let mut fleet = fleet(&StackConfig::default());
    fleet.clients = 20;
    fleet.calls = Calls::Closed(Span::fixed(Duration::from_secs(5)));
    fleet.calls_until = second(8);
    fleet.services[0].host.work = Work::Crowd { base: millis(100), each: millis(10) };
    let report = run(&fleet);
    // All twenty come at once, and each finds one more inside.
    assert_eq!(report.counts.good, 20);
    for (share, exact) in [(0.0, 112), (0.5, 202), (1.0, 302)] {
        let found = report.times.quantile(share);
        assert!(found.abs_diff(millis(exact)) < millis(1), "{share}: {found:?}");
    }
}

#[test]
fn a_call_waits_for_a_slot_of_its_bulkhead_and_is_woken_by_a_release() {
    let bulkhead = BulkheadOptions { wait: millis(50), ..BulkheadOptions::with_limit(1) };
    let mut fleet = fleet(&StackConfig { bulkhead: Some(bulkhead), ..Default::default() });
    fleet.sharing = Sharing::All;
    let report = run(&fleet);
    let full = report.counts.stops[StopReason::BulkheadFull.index()];
    assert!(full > 100 && report.counts.good > 1_000, "{report}");
    // A slot is taken for 12 ms at a time; the oldest waiter follows at once.
    let (waited, longest) = (report.times.quantile(0.5), report.times.longest());
    assert!(waited > millis(13) && longest <= millis(63), "{waited:?} {longest:?}");
    let busy = report.between(1, 20).good as f64 * 0.012 / 19.0;
    assert!(busy > 0.6, "{busy}");
}

#[test]
fn at_the_end_no_dependency_holds_anything() {
    let bulkhead = Some(BulkheadOptions::with_limit(4));
    let mut fleet = fleet(&StackConfig { bulkhead, total: Some(millis(700)), ..retrying(3) });
    fleet.network = Network { delay: Span::exponential(millis(20)), loss: 0.05 };
    fleet.calls = Calls::Open(Rate::constant(900.0).unwrap());
    fleet.patience = Some(Span::exponential(millis(400)));
    fleet.faults = vec![
        fault(3, 5, Trouble::Restart),
        fault(6, 8, Trouble::Pause),
        fault(9, 10, Trouble::Hold),
        fault(11, 12, Trouble::Silent),
        fault(13, 15, Trouble::Slow(20.0)),
    ];
    for sharing in [Sharing::Each, Sharing::All] {
        fleet.sharing = sharing;
        let mut engine = Engine::new();
        let mut world = World::new(&fleet, Draws::new(3));
        world.begin(&mut engine);
        engine.run_until(fleet.ends, &mut world);
        // What is held is looked at by whoever asks next.
        for caller in 0..fleet.clients {
            let link = routes::Link { caller, route: 0 };
            world.policies.with(engine.now(), link, |_, _, _| ());
        }
        assert_eq!(world.calls.iter().count() + world.flights.iter().count(), 0);
        assert!(world.waiting.is_empty());
        for dependency in &world.policies.dependencies {
            let (held, abandoned) = (dependency.held(), dependency.abandoned());
            assert_eq!((dependency.bulkhead().in_flight(), held, abandoned), (0, 0, 0));
        }
    }
}

#[test]
fn policies_meet_the_same_calls_and_a_client_more_changes_nobody_elses() {
    let offered = |config: &StackConfig, clients| {
        let mut fleet = fleet(config);
        fleet.faults = vec![fault(5, 15, errors(0.5))];
        fleet.clients = clients;
        let Calls::Open(rate) = &fleet.calls else { return Vec::new() };
        fleet.calls = Calls::Open(rate.scaled(f64::from(clients) / 100.0));
        run(&fleet).seconds.iter().map(|second| second.offered).collect()
    };
    let alone: Vec<u64> = offered(&StackConfig::default(), 100);
    assert_eq!(alone, offered(&retrying(3), 100));
    // The eleventh client of eleven calls when the eleventh of a hundred does.
    let ten = offered(&retrying(1), 10);
    let eleven = offered(&retrying(1), 11);
    assert!(ten.iter().zip(&eleven).all(|(ten, eleven)| ten <= eleven));
}

#[test]
fn a_report_is_the_same_to_the_last_byte_however_many_threads_make_it() {
    let bulkhead = Some(BulkheadOptions::with_limit(20));
    let budget = Some(SuccessBudget::default().into());
    let standard = StackConfig { bulkhead, budget, ..StackConfig::standard() };
    let mut fleet = fleet(&StackConfig { attempt_timeout: Some(millis(300)), ..standard });
    fleet.sharing = Sharing::All;
    fleet.services[0].servers = 3;
    fleet.services[0].host = host(1, Span::log_normal(millis(10), 1.0).unwrap());
    fleet.network = Network { delay: Span::exponential(millis(5)), loss: 0.01 };
    fleet.patience = Some(Span::exponential(millis(900)));
    fleet.faults = vec![
        fault(4, 8, errors(0.4)),
        Fault::new(second(10), second(14), Some(1), Trouble::Slow(30.0)).unwrap(),
    ];
    assert_always_the_same(&fleet, 15454541754322543970);
}

#[test]
fn a_baseline_is_met_by_the_same_calls_network_and_work() {
    let mut fleet = fleet(&retrying(3));
    fleet.faults = vec![fault(0, 40, errors(0.5))];
    fleet.calls = Calls::Open(Rate::constant(1_000.0).unwrap());
    fleet.services[0].host = host(100, Span::fixed(millis(10)));
    let ours = run(&fleet);
    let waits = [Span::fixed(millis(100)), Span::fixed(millis(200))];
    let baseline = |gate| Some(Baseline::new(3, millis(500), &waits, gate).unwrap());
    fleet.baseline = baseline(Gate::Free);
    let free = run(&fleet);
    // The same retries for free, so the same run but for the events of the policy's timers.
    assert_eq!((ours.counts, ours.seconds), (free.counts, free.seconds));
    assert_eq!(ours.times.quantile(0.9), free.times.quantile(0.9));
    fleet.baseline = baseline(Gate::Share(0.1));
    let share = run(&fleet);
    assert!(share.amplification() < 1.11, "{}", share.amplification());
    fleet.sharing = Sharing::All;
    let all = run(&fleet);
    assert!(all.amplification() < 1.11, "{}", all.amplification());
    // What is silent is given up in time, and what is still going on at the end is counted.
    fleet.faults = vec![fault(0, 40, Trouble::Silent)];
    fleet.ends = second(20);
    let silent = run(&fleet);
    assert!(silent.counts.good == 0 && silent.counts.cut_off > 400, "{silent}");
}

#[test]
fn the_work_of_an_unsafe_call_is_done_once_and_of_another_again_after_a_timeout() {
    let mut fleet = fleet(&retrying(3));
    // Every answer comes after the attempt was given up, so every attempt is unknown.
    fleet.services[0].host = host(1_000, Span::fixed(millis(600)));
    fleet.safety = Some(Safety::Unsafe);
    let once = run(&fleet);
    assert_eq!((once.counts.attempts, once.arrivals.duplicates()), (once.counts.calls, 0));
    fleet.safety = Some(Safety::Idempotent);
    let again = run(&fleet);
    assert_eq!(again.arrivals.duplicates(), 2 * again.counts.calls);
    fleet.safety = None;
    assert_eq!(run(&fleet).arrivals.duplicates(), 0, "nobody counts");
}

#[test]
fn a_server_that_says_when_is_not_asked_before_and_not_by_all_at_once() {
    let mut fleet = fleet(&retrying(2));
    // What was sent in ten seconds arrives at once, and is told to come back three seconds later.
    fleet.services[0].host.refusal.later =
        Some(Later { wait: Wait::Fixed(millis(3_000)), spread: 0.0, form: Form::Seconds });
    fleet.faults = vec![fault(0, 10, Trouble::Hold), fault(10, 11, errors(1.0))];
    fleet.policy = StackParams::new(&StackConfig { attempt_timeout: None, ..retrying(2) }).unwrap();
    fleet.calls_until = second(10);
    let report = run(&fleet);
    assert_eq!(report.between(11, 13).arrived, 0, "not before");
    assert_eq!(report.between(13, 15).arrived, report.counts.calls);
    assert!(report.arrivals.herd(10, 11) > 0.99, "all at once");
    assert!(report.arrivals.herd(13, 15) < 0.04, "{}", report.arrivals.herd(13, 15));
}

#[test]
fn an_attempt_whose_caller_left_runs_on_or_is_cut() {
    let mut fleet = fleet(&retrying(1));
    fleet.faults = vec![fault(0, 40, Trouble::Silent)];
    fleet.patience = Some(Span::fixed(millis(100)));
    let breaker = BreakerOptions { slow: Some(millis(400)), ..BreakerOptions::default() };
    let config = StackConfig { breaker: Some(breaker), ..retrying(1) };
    fleet.policy = StackParams::new(&config).unwrap();
    fleet.sharing = Sharing::All;
    assert!(run(&fleet).opened > 0, "what runs on is found to be slow");
    fleet.cancels = true;
    let cut = run(&fleet);
    assert_eq!((cut.opened, cut.counts.left), (0, cut.counts.calls), "what is cut says nothing");
}

#[test]
fn a_client_takes_28_bytes_beside_its_policies() {
    let drawn = size_of::<u32>();
    assert_eq!(size_of::<world::Client>() + drawn, 28);
}

#[test]
fn what_can_never_work_is_refused_with_its_field() {
    let refused = |change: fn(&mut Fleet)| {
        let mut fleet = fleet(&StackConfig::default());
        change(&mut fleet);
        fleet.run(1).unwrap_err().field().to_owned()
    };
    assert_eq!(refused(|fleet| fleet.clients = 0), "clients");
    assert_eq!(refused(|fleet| fleet.services[0].servers = 10_001), "servers");
    assert_eq!(refused(|fleet| fleet.network.loss = 1.5), "network.loss");
    assert_eq!(refused(|fleet| fleet.services[0].host = host(0, Span::ZERO)), "host.workers");
    assert_eq!(refused(|fleet| fleet.warm_up = second(21)), "calls_until");
    assert_eq!(refused(|fleet| fleet.ends = second(100_000)), "ends");
    let elsewhere = |fleet: &mut Fleet| {
        let far = Fault::new(second(1), second(2), Some(1), Trouble::Down);
        fleet.faults.extend(far);
    };
    assert_eq!(refused(elsewhere), "fault.server");
    let no_worker = |fleet: &mut Fleet| {
        let Work::Queue { queue, .. } = &mut fleet.services[0].host.work else { return };
        *queue = Queue::Policy(BulkheadParams::default(), 1);
        fleet.faults = vec![fault(1, 2, Trouble::Capacity(0))];
    };
    assert_eq!(refused(no_worker), "fault.workers");
    assert_eq!(refused(|fleet| fleet.services[0].host.refusal.cost = -0.1), "refusal.cost");
    let slots = |fleet: &mut Fleet| {
        let wait = Wait::Fixed(Duration::ZERO);
        fleet.services[0].host.refusal.later = Some(Later { wait, spread: 0.0, form: Form::Slots });
    };
    assert_eq!(refused(slots), "retry_after.form");
}
