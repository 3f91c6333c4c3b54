//! The simulator against queues whose answers are known exactly.
//!
//! Each is run over eight seeds, and the formula has to lie within twice the 95 % interval of what
//! was measured, which in turn has to be narrow enough to mean something. With
//! `SEAWALL_LAB_JOBS=10000000` (in release; minutes) every queue has that many jobs in all and the
//! formula has to be met within 1 %, Little's law within 0.5 %.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]
#![expect(clippy::print_stdout, reason = "what was measured, for --nocapture")]

use std::time::Duration;

use seawall_lab::{
    Discipline, Drop, Interval, Measured, Order, Queue, Rate, Source, Span, Station, exact,
    over_seeds,
};

const SEEDS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const SERVICE: Duration = Duration::from_millis(10);

/// Jobs in all, over the seeds.
fn jobs() -> u64 {
    std::env::var("SEAWALL_LAB_JOBS").map_or(160_000, |jobs| jobs.parse().unwrap())
}

fn is_long() -> bool {
    jobs() >= 10_000_000
}

fn run(source: Source, service: &Span, workers: u32, room: Option<u32>) -> Vec<Measured> {
    run_queue(source, service, workers, Queue::fifo(room))
}

fn run_queue(source: Source, service: &Span, workers: u32, queue: Queue) -> Vec<Measured> {
    let jobs = jobs() / SEEDS.len() as u64;
    let warm_up = jobs / 10;
    let service = service.clone();
    let station = Station { source, service, workers, queue, patience: None, warm_up, jobs };
    over_seeds(&SEEDS, 2, |seed| station.run(seed))
}

fn random(per_second: f64) -> Source {
    Source::Open(Rate::constant(per_second).unwrap())
}

/// Holds one number of all runs against what it has to be. `width`: the widest interval that says
/// enough, as a share of the number, in the short form.
fn check(what: &str, runs: &[Measured], number: impl Fn(&Measured) -> f64, exact: f64, width: f64) {
    let measured = Interval::of(runs.iter().map(number));
    let off = measured.mean / exact - 1.0;
    println!("{what:<34} {measured:.6}, formula {exact:.6}, {:+.2} %", off * 100.0);
    assert!(measured.half < width * exact, "{what}: too wide: {measured:.6}");
    let far = (measured.mean - exact).abs() > 2.0 * measured.half;
    assert!(!far, "{what}: {measured:.6}, not {exact:.6}");
    assert!(!is_long() || off.abs() < 0.01, "{what}: {measured:.6}, not {exact:.6}");
}

/// Jobs inside are jobs a second times the time they stay.
fn check_little(what: &str, runs: &[Measured]) {
    for run in runs {
        let off = run.inside / (run.per_second * run.mean_sojourn) - 1.0;
        assert!(off.abs() < if is_long() { 0.005 } else { 0.02 }, "{what}: {off}");
    }
    let off = Interval::of(runs.iter().map(|run| run.inside)).mean
        / Interval::of(runs.iter().map(|run| run.per_second * run.mean_sojourn)).mean
        - 1.0;
    println!("{what:<34} Little's law {:+.3} %", off * 100.0);
    assert!(off.abs() < 0.005, "{what}: {off}");
}

fn wait(run: &Measured) -> f64 {
    run.wait.mean()
}

#[test]
fn one_worker_with_any_service_time_makes_jobs_wait_as_pollaczek_and_khinchine_say() {
    let two_points = Span::two_points(SERVICE / 2, SERVICE * 8, 0.05).unwrap();
    let pareto = Span::pareto(SERVICE / 4, SERVICE * 20, 1.5).unwrap();
    let services = [
        ("M/M/1", Span::exponential(SERVICE), 0.08),
        ("M/D/1", Span::fixed(SERVICE), 0.06),
        ("M/G/1 log-normal", Span::log_normal(SERVICE, 0.5).unwrap(), 0.06),
        ("M/G/1 two points", two_points, 0.15),
        ("M/G/1 Pareto", pareto, 0.15),
    ];
    for (name, service, width) in services {
        for load in [0.5, 0.8] {
            let per_second = load / service.mean();
            let runs = run(random(per_second), &service, 1, None);
            let what = format!("{name} at {load}");
            let exact = exact::wait_for_one_worker(per_second, &service);
            check(&what, &runs, wait, exact, width * if load > 0.6 { 2.0 } else { 1.0 });
            check(&what, &runs, |run| run.busy, load, 0.03);
            check_little(&what, &runs);
        }
    }
}

#[test]
fn more_workers_make_jobs_wait_as_erlang_says() {
    for (workers, load) in [(2, 0.8), (10, 0.8), (50, 0.9)] {
        let per_second = load * f64::from(workers) / SERVICE.as_secs_f64();
        let runs = run(random(per_second), &Span::exponential(SERVICE), workers, None);
        let what = format!("M/M/{workers} at {load}");
        let exact = exact::wait_for_workers(workers, per_second, SERVICE.as_secs_f64());
        check(&what, &runs, wait, exact, 0.5);
        check_little(&what, &runs);
    }
}

#[test]
fn a_full_queue_refuses_the_share_that_is_known() {
    for (load, room) in [(0.8, 5), (1.0, 9), (2.0, 20)] {
        let per_second = load / SERVICE.as_secs_f64();
        let runs = run(random(per_second), &Span::exponential(SERVICE), 1, Some(room - 1));
        let share = |run: &Measured| run.refused as f64 / (jobs() / SEEDS.len() as u64) as f64;
        let what = format!("M/M/1/{room} at {load}, refused");
        check(&what, &runs, share, exact::refused_by_one_worker(load, room), 0.1);
        check_little(&what, &runs);
    }
}

#[test]
fn the_mean_wait_of_the_newest_first_is_that_of_the_oldest_first() {
    let lifo = || Queue::Own(Discipline { order: Order::Lifo, ..Discipline::FIFO });
    for load in [0.5, 0.8] {
        let per_second = load / SERVICE.as_secs_f64();
        let service = Span::exponential(SERVICE);
        let runs = run_queue(random(per_second), &service, 1, lifo());
        let what = format!("M/M/1 at {load}, newest first");
        check(&what, &runs, wait, exact::wait_for_one_worker(per_second, &service), 0.3);
        check_little(&what, &runs);
    }
}

#[test]
fn who_waits_no_longer_than_a_bound_is_lost_as_often_as_is_known() {
    for (load, services) in [(0.8, 5), (1.0, 10), (1.5, 10)] {
        let drop = Drop::Older(SERVICE * services);
        let queue = Queue::Own(Discipline { drop, ..Discipline::FIFO });
        let per_second = load / SERVICE.as_secs_f64();
        let runs = run_queue(random(per_second), &Span::exponential(SERVICE), 1, queue);
        let share = |run: &Measured| run.refused as f64 / (jobs() / SEEDS.len() as u64) as f64;
        let what = format!("M/M/1 at {load}, {services} services' patience, lost");
        check(&what, &runs, share, exact::lost_by_patience(load, services.into()), 0.1);
    }
}

#[test]
fn a_closed_group_is_answered_as_mean_value_analysis_says() {
    for clients in [1, 5, 20] {
        let think = Span::exponential(SERVICE * 5);
        let runs = run(Source::Closed { clients, think }, &Span::exponential(SERVICE), 1, None);
        let mean = SERVICE.as_secs_f64();
        let (per_second, response) = exact::machine_repair(clients, 5.0 * mean, mean);
        let what = format!("{clients} clients of one worker");
        check(&what, &runs, |run| run.per_second, per_second, 0.02);
        check(&what, &runs, |run| run.mean_sojourn, response, 0.04);
        check_little(&what, &runs);
    }
}

#[test]
fn a_serial_client_keeps_its_beat_and_never_has_two_jobs_at_once() {
    let source = Source::Serial { clients: 1, between: Span::fixed(SERVICE) };
    let slow = run(source.clone(), &Span::fixed(SERVICE * 2), 4, None);
    check("slower than its beat", &slow, |run| run.per_second, 50.0, 0.01);
    check("slower than its beat: inside", &slow, |run| run.inside, 1.0, 0.01);
    let quick = run(source, &Span::fixed(SERVICE / 2), 4, None);
    check("quicker than its beat", &quick, |run| run.per_second, 100.0, 0.01);
}

#[test]
fn a_queue_is_the_same_to_the_last_event_however_many_threads_run_it() {
    let service = Span::log_normal(SERVICE, 1.0).unwrap();
    let station = Station {
        source: random(90.0),
        service,
        workers: 1,
        queue: Queue::fifo(Some(50)),
        patience: None,
        warm_up: 100,
        jobs: 2_000,
    };
    let digests = |threads| over_seeds(&SEEDS[..3], threads, |seed| station.run(seed).digest);
    assert_eq!(digests(1), digests(2));
    // Of any build and platform.
    assert_eq!(
        digests(1),
        [835_655_033_701_099_138, 1_465_932_447_701_575_263, 294_457_859_250_255_116]
    );
}
