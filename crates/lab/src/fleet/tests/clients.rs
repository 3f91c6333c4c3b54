//! Clients that stand still, connect, come by and by, and go on when they are in.

use super::*;
use crate::baselines::EntryRule;

#[test]
fn clients_that_stand_still_send_nothing_and_go_on_where_they_were() {
    let during = |share: f64, baseline: Option<Baseline>| {
        let mut fleet = fleet(&retrying(1));
        fleet.faults = vec![fault(5, 10, Trouble::Stall { share })];
        fleet.baseline = baseline;
        run(&fleet)
    };
    let report = during(1.0, None);
    assert_eq!(report.between(5, 10).attempts, 0, "{report}");
    // A call of each that was due, and what comes in that second.
    let burst = report.between(10, 11);
    assert!((170..240).contains(&burst.offered) && burst.attempts == burst.offered, "{report}");
    // What was answered meanwhile is seen at the end, and before the time that is up.
    assert_eq!((report.counts.failed, report.counts.cut_off), (0, 0), "{report}");
    assert!(report.longest > millis(4_900) && report.longest < millis(5_100), "{report}");
    let half = during(0.5, None).between(5, 10).attempts;
    assert!((180..320).contains(&half), "{half}");
    let theirs = Baseline::new(1, millis(500), &[], Gate::Free).unwrap();
    let theirs = during(1.0, Some(theirs));
    assert_eq!((theirs.between(5, 10).attempts, theirs.counts.failed), (0, 0));
    assert_eq!(theirs.counts.good, report.counts.good);
}

#[test]
fn the_time_of_one_that_stands_still_is_up_when_it_goes_on() {
    let mut fleet = fleet(&retrying(1));
    fleet.faults = vec![fault(4, 15, Trouble::Silent), fault(5, 10, Trouble::Stall { share: 1.0 })];
    let report = run(&fleet);
    assert_eq!(report.between(5, 10).failed, 0, "{report}");
    // Those of the half second before are given up at once, and those that were due half a second
    // later.
    let at_once = report.between(10, 11);
    assert!(at_once.failed > 100 && report.between(16, 20).failed == 0, "{report}");
}

#[test]
fn who_is_not_let_in_in_time_gives_up_and_has_sent_nothing() {
    let mut fleet = fleet(&retrying(1));
    fleet.services[0].host.door = Some(door(100, None));
    fleet.connect = Some(millis(100));
    fleet.warm_up = second(6);
    let let_in = run(&fleet);
    assert_eq!(let_in.counts.failed, 0, "{let_in}");
    fleet.faults = vec![fault(5, 15, Trouble::Silent), fault(5, 6, Trouble::Reset { share: 1.0 })];
    let report = run(&fleet);
    assert_eq!(report.between(7, 15).good, 0);
    assert!(report.between(16, 20).failed == 0 && report.longest < millis(101), "{report}");
    // Who is in has nothing to connect: its attempt's own time counts.
    fleet.faults.truncate(1);
    let report = run(&fleet);
    assert!(report.counts.failed > 500 && report.longest > millis(499), "{report}");
    fleet.services[0].host.door = None;
    assert_eq!(fleet.run(1).unwrap_err().field(), "connect");
}

#[test]
fn those_who_are_in_go_on_and_theirs_are_the_times() {
    let mut fleet = fleet(&retrying(1));
    fleet.clients = 40;
    fleet.policy = StackParams::new(&StackConfig::default()).unwrap();
    fleet.services[0].host.door = Some(door(1, None));
    let calls = |then: Option<Duration>, over: Duration| {
        let then = then.map(Span::fixed);
        Calls::Once { at: second(1), over, again: Span::fixed(millis(50)), then }
    };
    fleet.calls = calls(None, Duration::ZERO);
    let alone = run(&fleet);
    assert_eq!((alone.counts.calls, alone.times.n()), (40, 40));
    assert!(alone.times.quantile(0.5) > millis(500), "{alone}");
    fleet.calls = calls(Some(millis(990)), Duration::ZERO);
    let report = run(&fleet);
    assert_eq!((report.rush.attempts.clone(), report.rush.waiting), (vec![0, 40], 0));
    assert_eq!(report.times.n() + 40, report.counts.good, "those that let one in are not timed");
    assert!(report.counts.good > 40 * 15 && report.times.longest() < millis(30), "{report}");
    // By and by: nobody waits for the door, which does one in 30 ms.
    fleet.calls = calls(None, Duration::from_secs(18));
    let report = run(&fleet);
    assert!((15..=19).contains(&report.seconds.iter().filter(|it| it.offered > 0).count()));
    assert!(report.times.quantile(0.5) < millis(60), "{report}");
}

#[test]
fn tasks_of_several_calls_are_done_for_some_users_or_for_hardly_any() {
    let good = |entry: EntryRule| {
        let config = StackConfig { bulkhead: None, ..StackConfig::default() };
        let mut fleet = fleet(&config);
        fleet.clients = 1_000;
        fleet.calls = Calls::Open(Rate::constant(400.0).unwrap());
        (fleet.calls_until, fleet.ends) = (second(80), second(82));
        let queue = Discipline { drop: Drop::Older(millis(500)), ..Discipline::FIFO };
        let service_time = Span::fixed(millis(10));
        let work = Work::Queue { workers: 2, queue: Queue::Own(queue), service: service_time };
        let entry = Some(entry);
        let own = Host { entry, work, ..host(2, Span::ZERO) };
        let mut task = service("task", host(10_000, Span::ZERO));
        task.calls = vec![vec![Target::new(1)]; 4];
        fleet.services = vec![task, service("m", own)];
        let report = fleet.run(1).unwrap();
        report.between(60, 80).good as f64 / report.between(60, 80).offered as f64
    };
    // 200 calls a second, four for each of 400 tasks: an eighth can be done.
    let [random, dagor] = [EntryRule::Random, EntryRule::Dagor].map(good);
    assert!(dagor > 0.08 && dagor < 0.13 && random < dagor / 2.0, "{random} {dagor}");
}
