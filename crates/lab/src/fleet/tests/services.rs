//! Services that call services, against what is known of them.

use super::*;

fn policy(config: &StackConfig) -> StackParams {
    StackParams::new(config).unwrap()
}

/// A chain of this many services behind the clients of [`fleet`], each with eight workers of 10 ms,
/// whose servers call the next by `config`, as the clients call the first.
fn chain(config: &StackConfig, tiers: u32) -> Fleet {
    let mut fleet = fleet(config);
    let tier = |number: u32| {
        let calls = if number + 1 < tiers { vec![vec![Target::new(number + 1)]] } else { vec![] };
        let work = host(8, Span::fixed(millis(10)));
        Service { calls, policy: policy(config), ..service(&format!("tier-{number}"), work) }
    };
    fleet.services = (0..tiers).map(tier).collect();
    fleet
}

fn of(report: &Report, service: usize) -> Second {
    report.services[service].between(0, report.seconds.len())
}

/// What every run of several services must show.
fn run_all(fleet: &Fleet) -> Report {
    let report = fleet.run(1).unwrap();
    let Counts { calls, good, failed, left, cut_off, .. } = report.counts;
    assert_eq!(calls, good + failed + left + cut_off, "every call is counted once");
    let mut worked = 0;
    for (place, service) in report.services.iter().enumerate() {
        let Counts { calls, good, failed, left, cut_off, .. } = service.counts;
        assert_eq!(calls, good + failed + left + cut_off, "{}", service.name);
        let all = of(&report, place);
        assert!(all.arrived <= all.attempts && all.worked + all.wasted <= all.arrived);
        worked += all.worked + all.wasted;
    }
    let all = report.between(0, report.seconds.len());
    assert_eq!(all.worked + all.wasted, worked, "what all did is what each did");
    report
}

#[test]
fn a_request_takes_the_work_of_every_tier_and_the_way_to_each() {
    let report = run_all(&chain(&retrying(1), 3));
    assert_eq!((report.counts.good, report.counts.failed), (report.counts.calls, 0));
    let exact = millis(3 * 12);
    let half = report.times.quantile(0.5);
    assert!(half.abs_diff(exact) < Duration::from_micros(40), "{half:?}");
    for service in &report.services {
        assert_eq!(service.counts.good, report.counts.calls, "{}", service.name);
        assert_eq!(service.between(0, 40).wasted, 0, "{}", service.name);
    }
}

/// Requests that reached the last service; the only one is not counted for itself.
fn at_the_bottom(report: &Report) -> u64 {
    let all = report.services.last().map_or(&report.seconds, |last| &last.seconds);
    all.iter().map(|second| second.arrived).sum()
}

#[test]
fn layers_that_know_nothing_of_each_other_multiply_their_attempts() {
    for (tiers, attempts) in [(1_u32, 3_u32), (2, 3), (3, 3), (3, 2)] {
        let retry =
            RetryOptions { honour_stop: false, ..retrying(attempts).retry.unwrap_or_default() };
        let config = StackConfig {
            retry: Some(retry),
            attempt_timeout: Some(Duration::from_secs(9)),
            ..retrying(attempts)
        };
        let mut fleet = chain(&config, tiers);
        for service in &mut fleet.services {
            (service.says_stop, service.host) = (false, host(100, Span::fixed(millis(1))));
        }
        let last = tiers - 1;
        fleet.faults = vec![fault(0, 40, errors(1.0)).on(last)];
        fleet.calls = Calls::Open(Rate::constant(5.0).unwrap());
        let report = run_all(&fleet);
        let arrived = at_the_bottom(&report);
        let exact = u64::from(attempts.pow(tiers));
        assert_eq!(arrived, report.counts.calls * exact, "{tiers} tiers of {attempts}");
        assert_eq!(report.counts.good, 0);
        // The same, but each says stop when it gives up, and each is heard.
        let config = retrying(attempts);
        let mut fleet = Fleet { policy: policy(&config), ..fleet };
        for service in &mut fleet.services {
            (service.says_stop, service.policy) = (true, policy(&config));
        }
        let report = run_all(&fleet);
        let arrived = at_the_bottom(&report);
        assert_eq!(arrived, report.counts.calls * u64::from(attempts), "{tiers} tiers that tell");
    }
}

/// Little's law, tier by tier: what is inside is what comes in a second, times how long it stays.
#[test]
fn what_is_inside_each_tier_is_its_rate_times_its_time() {
    let mut fleet = chain(&StackConfig::default(), 2);
    let work = |workers, mean| host(workers, Span::exponential(millis(mean)));
    // The first holds a worker while it waits for the second, which queues.
    fleet.services[0].host = work(50, 5);
    fleet.services[1].host = work(1, 8);
    (fleet.calls_until, fleet.ends) = (second(400), second(400));
    let mut engine = Engine::new();
    let mut world = World::new(&fleet, Draws::new(7));
    world.begin(&mut engine);
    let mut inside = [0_u32, 0];
    let samples = 39_000;
    for sample in 0..samples {
        engine.run_until(Timestamp::from_millis(10_000 + sample * 10), &mut world);
        for call in world.calls.iter() {
            inside[call.made.link.route as usize] += 1;
        }
    }
    let report = world.report(&engine);
    let rate = report.between(10, 400).offered as f64 / 390.0;
    let means = [0, 1].map(|service: usize| {
        let quantile = |n: u32| report.services[service].times.quantile(f64::from(n) / 2e3);
        (0..1_000).map(|n| quantile(2 * n + 1).as_secs_f64()).sum::<f64>() / 1e3
    });
    for (mean, inside) in means.into_iter().zip(inside) {
        let (inside, exact) = (f64::from(inside) / samples as f64, rate * mean);
        assert!((inside - exact).abs() < 0.02 * exact, "{inside}, not {exact}");
    }
    // M/M/1 at a load of 0.8, with the way there and back; before it, work of 5 ms, which nobody
    // waits for.
    assert!((means[1] - 0.042).abs() < 0.004, "{means:?}");
    assert!((means[0] - means[1] - 0.007).abs() < 0.000_3, "{means:?}");
}

#[test]
fn a_server_waits_with_its_worker_for_what_it_calls() {
    let mut fleet = chain(&StackConfig::default(), 2);
    // A hundred calls a second, each 1 + 99 ms: ten workers are all busy, and one more is not.
    fleet.network = Network { delay: Span::ZERO, loss: 0.0 };
    fleet.services[1].host = host(1_000, Span::fixed(millis(99)));
    let slowest = |workers| {
        let mut fleet = fleet.clone();
        fleet.services[0].host = host(workers, Span::fixed(millis(1)));
        let report = run_all(&fleet);
        (report.times.quantile(0.9), report.counts.calls == report.counts.good)
    };
    let (few, enough) = (slowest(8), slowest(40));
    assert!(few.0 > Duration::from_secs(1) && few.1, "{few:?}");
    assert!(enough.0.abs_diff(millis(100)) < millis(1) && enough.1, "{enough:?}");
}

#[test]
fn each_process_has_policies_of_its_own_for_each_that_it_calls_or_one_for_all() {
    let breaker = Some(BreakerOptions::default());
    let config = StackConfig { breaker, ..retrying(1) };
    let mut fleet = chain(&config, 1);
    // Two servers that each call one of two others, of which the second is down.
    let tier = |name: &str| service(name, host(8, Span::fixed(millis(1))));
    let both = vec![Target::new(1), Target::new(2)];
    fleet.services = vec![
        Service { servers: 2, calls: vec![both], policy: policy(&config), ..tier("front") },
        tier("good"),
        tier("bad"),
    ];
    fleet.policy = policy(&StackConfig::default());
    fleet.faults = vec![fault(0, 40, errors(1.0)).on(2)];
    let report = run_all(&fleet);
    let [good, bad] = [1, 2].map(|place: usize| &report.services[place]);
    assert_eq!((good.opened, good.counts.failed), (0, 0));
    assert!(bad.opened >= 4 && bad.counts.good == 0, "one of each server: {}", bad.opened);
    assert!((report.success() - 0.5).abs() < 0.03, "{}", report.success());
    // As one, what is bad closes the way to what is good.
    fleet.services[0].is_together = true;
    let report = run_all(&fleet);
    let refused = report.services[1].counts.stops[StopReason::BreakerOpen.index()];
    assert!(refused > 300 && report.success() < 0.25, "{refused} {}", report.success());
}

#[test]
fn calls_go_to_services_by_their_share_and_to_shards_by_their_key() {
    let mut fleet = chain(&StackConfig::default(), 1);
    fleet.calls = Calls::Open(Rate::constant(1_000.0).unwrap());
    let tier = |name: &str| service(name, host(100, Span::fixed(millis(1))));
    fleet.services = vec![tier("a"), tier("b"), Service { servers: 4, ..tier("shards") }];
    let share = |service, share| Target { share, ..Target::new(service) };
    fleet.to = vec![share(0, 3.0), share(1, 1.0)];
    let report = run_all(&fleet);
    let part = report.services[0].counts.calls as f64 / report.counts.calls as f64;
    assert!((part - 0.75).abs() < 0.01, "{part}");
    assert_eq!(report.services[2].counts.calls, 0);
    // Of keys alike, a quarter each; the calls about one key meet one bad server always or never.
    fleet.to = vec![Target::new(2)];
    fleet.keys = Some(Keys::alike(4_000).unwrap());
    let bad = Fault::new(second(0), second(40), Some(3), errors(1.0)).unwrap();
    fleet.faults = vec![bad.on(2)];
    for (pick, success) in [(Pick::Key, 0.75), (Pick::Name, 1.0 - 0.25_f64.powi(3))] {
        fleet.services[2].pick = pick;
        fleet.policy = policy(&retrying(3));
        let report = run_all(&fleet);
        assert!((report.success() - success).abs() < 0.01, "{pick:?}: {}", report.success());
    }
    fleet.keys = Some(Keys::zipf(4, 1.0).unwrap());
    fleet.services[2].pick = Pick::Key;
    // The fourth of four by Zipf: 1/4 of 25/12.
    let success = run_all(&fleet).success();
    assert!((success - (1.0 - 3.0 / 25.0)).abs() < 0.01, "{success}");
}

#[test]
fn a_server_with_too_much_inside_dies_and_comes_back_knowing_nothing() {
    let breaker = Some(BreakerOptions::default());
    let mut fleet = chain(&StackConfig { breaker, ..StackConfig::default() }, 2);
    fleet.policy = policy(&retrying(1));
    fleet.services[0].dies = Some(Dies { at: 60, restarts_in: Duration::from_secs(2) });
    // Nothing comes back from the second: after 60 calls the first dies, again and again.
    fleet.faults = vec![fault(5, 15, Trouble::Silent).on(1)];
    let report = run_all(&fleet);
    assert_eq!(report.died, report.services[0].died);
    assert!((3..=4).contains(&report.died), "each 0.6 s and 2 s: {}", report.died);
    let between = |from, until| {
        let all = report.between(from, until);
        (all.good, all.failed)
    };
    assert_eq!((between(6, 14).0, between(19, 20).1), (0, 0));
    let lost = report.services[1].counts.left;
    assert!((20..=60).contains(&lost), "the calls of eight workers each time: {lost}");
}

#[test]
fn a_server_that_notices_lets_go_of_what_nobody_waits_for() {
    let stalled = |notices| {
        let mut fleet = chain(&StackConfig::default(), 2);
        fleet.policy = policy(&retrying(1));
        fleet.services[0].host = Host { notices, ..host(8, Span::fixed(millis(1))) };
        // For five seconds nothing comes back, and the servers wait without a limit.
        fleet.faults = vec![fault(5, 10, Trouble::Silent).on(1)];
        let report = run_all(&fleet);
        (report.services[1].counts.left, report.between(12, 20).good)
    };
    assert_eq!(stalled(false), (0, 0), "its eight workers wait for good");
    let (left, good) = stalled(true);
    assert!(left > 50 && good > 750, "{left} {good}");
}

/// Verdict V8: the time that is left travels, and is less at each hop.
#[test]
fn what_is_called_for_a_request_ends_in_the_time_that_was_left_for_it() {
    let ended = |deadlines| {
        let mut fleet = chain(&StackConfig::default(), 3);
        fleet.policy = policy(&retrying(1));
        for service in &mut fleet.services {
            (service.deadlines, service.host) = (deadlines, host(10_000, Span::fixed(millis(1))));
        }
        fleet.faults = vec![fault(0, 40, Trouble::Silent).on(2)];
        let report = run_all(&fleet);
        assert_eq!(report.counts.failed, report.counts.calls);
        let [above, below] = [1, 2].map(|place: usize| report.services[place].counts);
        let [told, deadline] = [StopReason::ToldToStop, StopReason::Deadline];
        let times = (above.stops[told.index()], below.stops[deadline.index()]);
        (times, above.cut_off, below.cut_off, report.counts.calls)
    };
    // The lowest gives up in time to tell the one above, which is told before its own time is over.
    let (times, above, below, calls) = ended(true);
    assert_eq!((times, above, below), ((calls, calls), 0, 0));
    let (times, above, below, calls) = ended(false);
    assert_eq!((times, above, below), ((0, 0), calls, calls));
    // 500 ms, less 5 ms for the way home of each answer and 1 ms of work; the millisecond that a
    // message takes is in the 5.
    let mut fleet = chain(&StackConfig::default(), 3);
    fleet.policy = policy(&retrying(1));
    for service in &mut fleet.services {
        (service.deadlines, service.host) = (true, host(10_000, Span::fixed(millis(1))));
    }
    fleet.faults = vec![fault(0, 40, Trouble::Silent).on(2)];
    let mut engine = Engine::new();
    let mut world = World::new(&fleet, Draws::new(7));
    world.begin(&mut engine);
    let mut left = vec![Vec::new(); 3];
    for sample in 0..2_000_u64 {
        engine.run_until(Timestamp::from_millis(sample * 3), &mut world);
        for flight in world.flights.iter().filter(|flight| flight.told != u32::MAX) {
            left[flight.made.link.route as usize].push(flight.told);
        }
    }
    let told = left.iter().map(|told| (told.iter().min().copied(), told.iter().max().copied()));
    let told: Vec<_> = told.collect();
    assert_eq!(told, [(Some(495), Some(495)), (Some(489), Some(489)), (Some(483), Some(483))]);
}

#[test]
fn a_client_that_does_not_stay_begins_each_life_with_what_a_new_one_has() {
    let retries = |lives: Option<u32>| {
        let budget = Some(SuccessBudget::default().into());
        let mut fleet = fleet(&StackConfig { budget, ..retrying(3) });
        fleet.calls = Calls::Serial(Span::fixed(Duration::from_secs(1)));
        fleet.lives = lives;
        fleet.faults = vec![fault(0, 40, errors(1.0))];
        let report = run(&fleet);
        assert_eq!(report.counts.calls, 2_000);
        report.counts.attempts - report.counts.sent
    };
    // Two retries are what a budget begins with: for each client, or for each of its lives.
    let all = [None, Some(1), Some(5), Some(19), Some(20)].map(retries);
    assert_eq!(all, [200, 4_000, 800, 400, 200]);
}

#[test]
fn a_bucket_of_a_baseline_ends_with_its_client() {
    let retries = |lives: Option<u32>| {
        let mut fleet = fleet(&StackConfig::default());
        let gate = Gate::Bucket { begins: 3_000, cap: 3_000, per_call: 0 };
        fleet.baseline = Some(Baseline::new(3, millis(500), &[], gate).unwrap());
        fleet.calls = Calls::Serial(Span::fixed(Duration::from_secs(1)));
        fleet.lives = lives;
        fleet.faults = vec![fault(0, 40, errors(1.0))];
        let report = run(&fleet);
        report.counts.attempts - report.counts.sent
    };
    assert_eq!([None, Some(1), Some(10)].map(retries), [200, 4_000, 400]);
}

#[test]
fn a_graph_of_services_is_the_same_to_the_last_byte_however_many_threads_run_it() {
    let bulkhead = Some(BulkheadOptions::with_limit(6));
    let standard = StackConfig { bulkhead, ..StackConfig::standard() };
    let config = StackConfig { attempt_timeout: Some(millis(300)), ..standard };
    let mut fleet = chain(&config, 4);
    fleet.calls = Calls::Open(Rate::constant(300.0).unwrap());
    fleet.services[0].servers = 3;
    fleet.services[0].host = host(20, Span::fixed(millis(5)));
    fleet.services[0].calls = vec![vec![Target::new(1)], vec![Target::new(2), Target::new(3)]];
    fleet.services[1].calls = Vec::new();
    fleet.services[2].calls = vec![vec![Target::new(3)]];
    fleet.services[2].dies = Some(Dies { at: 12, restarts_in: millis(1_500) });
    fleet.services[3].host.notices = true;
    fleet.network = Network { delay: Span::exponential(millis(5)), loss: 0.01 };
    fleet.lives = Some(3);
    fleet.faults = vec![
        fault(4, 8, errors(0.4)).on(1),
        fault(8, 12, Trouble::Slow(40.0)).on(3),
        fault(14, 15, Trouble::Restart).on(0),
    ];
    assert_always_the_same(&fleet, 14936874080848027065);
}

#[test]
fn at_the_end_no_process_holds_anything() {
    let bulkhead = Some(BulkheadOptions::with_limit(4));
    let config = StackConfig { bulkhead, total: Some(millis(700)), ..retrying(3) };
    let mut fleet = chain(&config, 3);
    fleet.calls = Calls::Open(Rate::constant(600.0).unwrap());
    fleet.network = Network { delay: Span::exponential(millis(10)), loss: 0.05 };
    fleet.patience = Some(Span::exponential(millis(400)));
    fleet.services[1].dies = Some(Dies { at: 40, restarts_in: millis(800) });
    fleet.services[1].host.notices = true;
    fleet.faults = vec![
        fault(3, 5, Trouble::Restart).on(1),
        fault(6, 8, Trouble::Pause).on(2),
        fault(9, 10, Trouble::Hold).on(2),
        fault(11, 12, Trouble::Silent).on(2),
        fault(13, 15, Trouble::Slow(20.0)).on(2),
    ];
    let mut engine = Engine::new();
    let mut world = World::new(&fleet, Draws::new(3));
    world.begin(&mut engine);
    engine.run_until(fleet.ends, &mut world);
    // What is held is looked at by whoever asks next.
    let links = (0..fleet.clients).map(|caller| (caller, 0));
    for (caller, route) in links.chain([(fleet.clients, 1), (fleet.clients + 1, 2)]) {
        let link = routes::Link { caller, route };
        world.policies.with(engine.now(), link, |_, _, _| ());
    }
    // Without timeouts of their own, the lost messages of the servers' calls would stay.
    assert_eq!(world.calls.iter().count() + world.flights.iter().count(), 0);
    assert!(world.waiting.is_empty());
    for dependency in &world.policies.dependencies {
        let (held, abandoned) = (dependency.held(), dependency.abandoned());
        assert_eq!((dependency.bulkhead().in_flight(), held, abandoned), (0, 0, 0));
    }
}

/// The worked example of the scenario `bridges`: 70 workers / (40 a second / 4) = 7 s.
#[test]
fn one_hanging_bridge_of_four_has_all_workers_after_seven_seconds() {
    let bridge = |name: &str| service(name, host(20, Span::fixed(millis(100))));
    let mut fleet = fleet(&StackConfig::default());
    fleet.calls = Calls::Open(Rate::constant(40.0).unwrap());
    let calls = vec![(1..=4).map(Target::new).collect()];
    let gateway = service("gateway", host(70, Span::fixed(millis(1))));
    fleet.services = vec![Service { calls, ..gateway }];
    fleet.services.extend(["a", "b", "c", "d"].map(bridge));
    fleet.faults = vec![fault(5, 35, Trouble::Silent).on(1)];
    let after = |seed| {
        let mut engine = Engine::new();
        let mut world = World::new(&fleet, Draws::new(seed));
        world.begin(&mut engine);
        let is_stuck = |millis: &u64| {
            engine.run_until(Timestamp::from_millis(*millis), &mut world);
            // Three of four that are worked on are answered soon, but nobody is free.
            world.sites[0].server.busy() == 70
        };
        (5_000..20_000).step_by(10).find(is_stuck).map_or(f64::INFINITY, |at| at as f64 / 1e3 - 5.0)
    };
    let mean = (0..20).map(after).sum::<f64>() / 20.0;
    // The three others are answered in 0.1 s and hold three workers on average.
    assert!((6.2..7.2).contains(&mean), "{mean}");
}

#[test]
fn a_bulkhead_is_counted_by_the_service_it_stands_before() {
    let bulkhead =
        |limit| BulkheadOptions { wait: millis(50), ..BulkheadOptions::with_limit(limit) };
    let limited =
        |limit| policy(&StackConfig { bulkhead: Some(bulkhead(limit)), ..StackConfig::default() });
    let mut fleet = chain(&StackConfig::default(), 2);
    (fleet.policy, fleet.sharing) = (limited(40), Sharing::All);
    fleet.services[0].policy = limited(3);
    fleet.services[0].host = host(30, Span::fixed(millis(1)));
    fleet.faults = vec![fault(5, 10, Trouble::Slow(10.0)).on(1)];
    let report = run_all(&fleet);
    let [above, below] = [0, 1].map(|place: usize| &report.services[place]);
    assert_eq!(below.in_use, 3);
    assert!((5..=40).contains(&above.in_use) && report.in_use == above.in_use, "{}", above.in_use);
    // It is full for five seconds: whoever waits and gets none has waited its time out.
    assert!(below.waits.longest().abs_diff(millis(50)) < millis(1) && below.waits.n() > 100);
    assert_eq!((above.waits.n(), report.waits.n()), (0, 0));
}

#[test]
fn services_that_can_never_work_are_refused_with_their_field() {
    let refused = |change: fn(&mut Fleet)| {
        let mut fleet = chain(&StackConfig::default(), 3);
        change(&mut fleet);
        fleet.run(1).unwrap_err().field().to_owned()
    };
    assert_eq!(refused(|fleet| fleet.services.clear()), "services");
    assert_eq!(refused(|fleet| fleet.to.clear()), "to");
    assert_eq!(refused(|fleet| fleet.to[0].service = 3), "to");
    assert_eq!(refused(|fleet| fleet.to[0].share = 0.0), "share");
    assert_eq!(refused(|fleet| fleet.services[1].calls = vec![vec![Target::new(0)]]), "calls");
    assert_eq!(refused(|fleet| fleet.services[2].calls = vec![vec![Target::new(2)]]), "calls");
    assert_eq!(refused(|fleet| fleet.services[0].calls = vec![vec![]; 1]), "calls");
    assert_eq!(refused(|fleet| fleet.services[0].pick = Pick::Key), "pick");
    let dies = |fleet: &mut Fleet| {
        fleet.services[0].dies = Some(Dies { at: 0, restarts_in: millis(1) });
    };
    assert_eq!(refused(dies), "dies.at");
    let lives = |fleet: &mut Fleet| (fleet.lives, fleet.sharing) = (Some(3), Sharing::All);
    assert_eq!(refused(lives), "lives");
    let on = |fleet: &mut Fleet| fleet.faults = vec![fault(1, 2, Trouble::Down).on(3)];
    assert_eq!(refused(on), "fault.on");
    let apart = |fleet: &mut Fleet| {
        fleet.is_together = true;
        fleet.to[0].policy = Some(fleet.policy.clone());
    };
    assert_eq!(refused(apart), "policy");
}
