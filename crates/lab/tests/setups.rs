//! Published set-ups, with the policy in it and with controls that have to fail.
//!
//! Each is small enough for an ordinary test: fewer seeds and shorter than the set-up says. With
//! `SEAWALL_LAB_SEEDS=40` (in release) each is run over that many. What is asserted are sides of a
//! threshold and not numbers: a set-up names no expected values.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]
#![expect(clippy::print_stdout, reason = "what was measured, for --nocapture")]

use std::time::Duration;

use seawall_lab::baselines::{Baseline, Gate};
use seawall_lab::{
    Calls, Contended, Contention, Fault, Fleet, Host, Interval, Network, Rate, Report, Sharing,
    Span, Trouble, Work, exact, over_seeds,
};
use seawall_policy::{
    Backoff, BackoffOptions, BreakerOptions, BudgetOptions, FinagleBudget, Jitter, Ratio,
    RetryOptions, StackConfig, StackParams, SuccessBudget, Timestamp,
};

/// So many seeds, or as many as the environment says.
fn seeds(few: u64) -> Vec<u64> {
    let said = std::env::var("SEAWALL_LAB_SEEDS").map(|seeds| seeds.parse().unwrap());
    (0..said.unwrap_or(few)).collect()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn second(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// So many attempts, each again at once: the least wait there is.
fn at_once(max_attempts: u32, attempt_timeout: Option<Duration>) -> StackConfig {
    let least = BackoffOptions { base: millis(1), cap: millis(1), jitter: Jitter::None };
    let retry = RetryOptions { max_attempts, backoff: least, ..RetryOptions::default() };
    StackConfig { retry: Some(retry), attempt_timeout, ..StackConfig::default() }
}

/// The budget that is on by default, of another ratio.
fn budget(percent: u32) -> Option<BudgetOptions> {
    Some(SuccessBudget { ratio: Ratio::from_percent(percent), ..SuccessBudget::default() }.into())
}

fn runs(fleet: &Fleet, few: u64) -> Vec<Report> {
    over_seeds(&seeds(few), 2, |seed| fleet.run(seed).unwrap())
}

/// Means over seeds of one number, printed beside its name.
fn mean(what: &str, runs: &[Report], number: impl Fn(&Report) -> f64) -> f64 {
    let interval = Interval::of(runs.iter().map(number));
    println!("{what:<60} {interval:.3}");
    interval.mean
}

/// S1: clients that want to change one row at once.
mod contending {
    use super::*;

    fn wait(base: u64, jitter: Jitter) -> Option<Backoff> {
        let options = BackoffOptions { base: millis(base), cap: millis(2_000), jitter };
        Some(Backoff::new(options).unwrap())
    }

    /// Writes, and when the last client succeeded, in milliseconds; means over the runs.
    fn contend(what: &str, clients: u32, wait: Option<Backoff>) -> [f64; 2] {
        let delay = Span::normal(millis(10), millis(2)).unwrap();
        let contention = Contention { clients, delay, wait };
        let runs = over_seeds(&seeds(10), 2, |seed| contention.run(seed));
        let writes = Interval::of(runs.iter().map(|run| run.writes as f64));
        let ended = |run: &Contended| run.ended.since(Timestamp::ZERO).as_secs_f64() * 1e3;
        let ended = Interval::of(runs.iter().map(ended));
        println!("S1 {clients} clients, {what:<14} writes {writes:.1}, last at {ended:.0} ms");
        [writes.mean, ended.mean]
    }

    #[test]
    fn s1_jitter_saves_writes_and_backoff_alone_does_not() {
        for clients in [10, 100] {
            let [none, _] = contend("none (control)", clients, None);
            let [expo, expo_ended] = contend("expo (control)", clients, wait(10, Jitter::None));
            let [_, equal_ended] = contend("equal", clients, wait(10, Jitter::Equal));
            let [full, full_ended] = contend("full", clients, wait(10, Jitter::Full));
            let [decorrelated, _] = contend("decorrelated", clients, wait(5, Jitter::Decorrelated));
            assert!(full < none && decorrelated < none, "{full} {decorrelated}, not {none}");
            if clients == 100 {
                assert!(full < 0.6 * expo, "{full}, not {expo}");
                assert!(full < 0.4 * none, "{full}, not {none}");
                assert!(full_ended < expo_ended && equal_ended < expo_ended);
            }
        }
    }
}

/// S2: a hundred clients, ten calls a second each; every attempt fails with one probability.
mod failing {
    use super::*;

    fn fleet(config: &StackConfig, fails: f64) -> Fleet {
        let errors = Trouble::Errors { share: fails, status: 503 };
        Fleet {
            clients: 100,
            calls: Calls::Open(Rate::constant(1_000.0).unwrap()),
            patience: None,
            policy: StackParams::new(config).unwrap(),
            baseline: None,
            sharing: Sharing::Each,
            network: Network { delay: Span::exponential(millis(10)), loss: 0.0 },
            servers: 1,
            host: Host {
                work: Work::Crowd { base: Duration::ZERO, each: Duration::ZERO },
                notices: false,
            },
            faults: vec![Fault::new(second(0), second(60), None, errors).unwrap()],
            warm_up: second(0),
            calls_until: second(10),
            ends: second(60),
        }
    }

    #[test]
    fn s2_retries_without_a_budget_are_the_closed_form_and_a_budget_bounds_them() {
        let naive = at_once(4, None);
        let ours = StackConfig { budget: budget(10), ..naive };
        for fails in [0.1, 0.5, 1.0] {
            let free = runs(&fleet(&naive, fails), 2);
            let attempts = mean(&format!("S2 f {fails}: 4 attempts"), &free, Report::amplification);
            let exact = exact::attempts_per_call(fails, 4);
            assert!((attempts - exact).abs() < 0.01 * exact, "{attempts}, not {exact}");
            let success = mean(&format!("S2 f {fails}: success"), &free, Report::success);
            assert!((success - (1.0 - fails.powi(4))).abs() < 0.01, "{success}");

            let bound = runs(&fleet(&ours, fails), 2);
            let attempts = mean(&format!("S2 f {fails}: budget"), &bound, Report::amplification);
            // A tenth of the successes, and the two tokens that each of the clients begins with,
            // over its hundred calls.
            assert!(attempts < 1.0 + 0.1 + 0.02 + 0.005, "{attempts}");
        }
    }

    #[test]
    fn s2_a_bucket_is_a_bound_for_few_clients_and_none_for_many_that_call_rarely() {
        let bucket = Gate::Bucket { begins: 5_000, cap: 5_000, per_call: 100 };
        let with = |clients, gate| {
            let mut fleet = fleet(&StackConfig::default(), 1.0);
            fleet.clients = clients;
            fleet.calls = Calls::Open(Rate::constant(100.0).unwrap());
            fleet.baseline = Some(Baseline::new(4, millis(1_000), &[], gate).unwrap());
            let what = format!("S2 f 1, 100 calls/s of {clients}: {gate:?}");
            mean(&what, &runs(&fleet, 2), Report::amplification)
        };
        let (few, many) = (with(10, bucket), with(1_000, bucket));
        assert!(few < 1.2, "{few}");
        assert!(many > 2.5, "every client's own tokens: {many}");
        let (few, many) = (with(10, Gate::Share(0.1)), with(1_000, Gate::Share(0.1)));
        assert!(few < 1.11 && many < 1.11, "{few} {many}");
        assert!(with(10, Gate::Free) > 3.99, "the control has to fail");
        // Ours begins with two tokens a client, so a client's first call in an outage has two
        // retries, whoever it is.
        let mut fleet = fleet(&StackConfig { budget: budget(10), ..at_once(4, None) }, 1.0);
        fleet.clients = 1_000;
        fleet.calls = Calls::Open(Rate::constant(100.0).unwrap());
        let ours =
            mean("S2 f 1, 100 calls/s of 1000: ours", &runs(&fleet, 2), |run| run.amplification());
        assert!(ours < many_bound(2.0, 1_000, 1_000.0), "{ours}");
    }

    /// Attempts a call where each client has so many tokens to begin with, over all calls.
    fn many_bound(tokens: f64, clients: u32, calls: f64) -> f64 {
        1.0 + tokens * f64::from(clients) / calls
    }
}

/// S3: a server that is the slower the more is inside, and a burst of five seconds.
mod collapse {
    use super::*;

    fn fleet(config: &StackConfig) -> Fleet {
        let rate = Rate::constant(40.0).unwrap();
        let rate = rate.then(second(20), 80.0).unwrap().then(second(25), 40.0).unwrap();
        Fleet {
            clients: 40,
            calls: Calls::Open(rate),
            patience: None,
            policy: StackParams::new(config).unwrap(),
            baseline: None,
            sharing: Sharing::All,
            network: Network { delay: Span::exponential(millis(100)), loss: 0.0 },
            servers: 1,
            host: Host {
                work: Work::Crowd { base: millis(1_000), each: millis(10) },
                notices: false,
            },
            faults: Vec::new(),
            warm_up: second(0),
            calls_until: second(80),
            ends: second(100),
        }
    }

    /// The share of the runs in which half of the calls of 60..80 s, or fewer, were answered.
    fn collapsed(what: &str, config: &StackConfig) -> f64 {
        collapses(what, &fleet(config))
    }

    fn collapses(what: &str, fleet: &Fleet) -> f64 {
        let runs = runs(fleet, 10);
        mean(what, &runs, |run| {
            let late = run.between(60, 80);
            if late.good * 2 < late.offered { 1.0 } else { 0.0 }
        })
    }

    #[test]
    fn s3_a_burst_collapses_retries_at_once_and_is_survived_with_a_budget() {
        let timeout = Some(millis(3_000));
        let naive = at_once(3, timeout);
        let broken = collapsed("S3 three at once (control)", &naive);
        assert!(broken > 0.5, "the control has to fail: {broken}");
        let single = collapsed("S3 a single try", &at_once(1, timeout));
        let ours = collapsed("S3 the budget", &StackConfig { budget: budget(10), ..naive });
        // A call takes 1.9 s in quiet times: what is slow is not half of the timeout here.
        let breaker = BreakerOptions { slow: timeout, ..BreakerOptions::default() };
        let retry = RetryOptions { max_attempts: 3, ..RetryOptions::default() };
        let all = StackConfig {
            retry: Some(retry),
            attempt_timeout: timeout,
            breaker: Some(breaker),
            bulkhead: None,
            ..StackConfig::standard()
        };
        let all = collapsed("S3 budget, backoff and breaker", &all);
        assert!(single < 0.01 && ours < 0.01 && all < 0.01, "{single} {ours} {all}");
        // Two baselines: to wait so long that the burst is over, and a bucket.
        let baseline = |what, waits: &[Span], gate| {
            let mut fleet = fleet(&naive);
            fleet.baseline = Some(Baseline::new(3, millis(3_000), waits, gate).unwrap());
            collapses(what, &fleet)
        };
        let up_to = |seconds| Span::uniform(Duration::ZERO, Duration::from_secs(seconds)).unwrap();
        baseline("S3 waits of up to 20 s and 40 s", &[up_to(20), up_to(40)], Gate::Free);
        let bucket = Gate::Bucket { begins: 5_000, cap: 5_000, per_call: 100 };
        let bucket = baseline("S3 a bucket", &[], bucket);
        assert!(bucket < 0.01, "{bucket}");
    }
}

/// S4: a first-come server of 300 a second, and a link that holds everything for ten seconds.
mod stalled {
    use super::*;

    /// When it begins: long after the start, or, in the short form, soon.
    fn begins() -> u64 {
        if std::env::var_os("SEAWALL_LAB_SEEDS").is_some() { 100 } else { 10 }
    }

    fn fleet(config: &StackConfig, per_second: f64) -> Fleet {
        let from = begins();
        Fleet {
            clients: 280,
            calls: Calls::Open(Rate::constant(per_second).unwrap()),
            patience: None,
            policy: StackParams::new(config).unwrap(),
            baseline: None,
            sharing: Sharing::All,
            network: Network { delay: Span::ZERO, loss: 0.0 },
            servers: 1,
            host: Host {
                work: Work::Queue {
                    workers: 1,
                    room: None,
                    service: Span::fixed(Duration::from_secs(1) / 300),
                },
                notices: false,
            },
            faults: vec![Fault::new(second(from), second(from + 10), None, Trouble::Hold).unwrap()],
            warm_up: second(0),
            calls_until: second(from + 150),
            ends: second(from + 155),
        }
    }

    /// Calls answered in the last forty seconds, of those that were made.
    fn last(what: &str, config: &StackConfig, per_second: f64) -> f64 {
        let runs = runs(&fleet(config, per_second), 1);
        let until = usize::try_from(begins() + 150).unwrap();
        mean(what, &runs, |run| {
            let last = run.between(until - 40, until);
            last.good as f64 / last.offered as f64
        })
    }

    #[test]
    fn s4_retries_for_free_never_heal_and_retries_that_successes_pay_for_do() {
        let timeout = Some(millis(1_000));
        let naive = at_once(2, timeout);
        // Twice 120 is below 300, twice 160 is not.
        let quiet = last("S4 120/s, one retry", &naive, 120.0);
        assert!(quiet > 0.95, "{quiet}");
        let broken = last("S4 160/s, one retry (control)", &naive, 160.0);
        assert!(broken < 0.05, "the control has to fail: {broken}");
        let healed = last("S4 160/s, 10 % of successes", &with(budget(10)), 160.0);
        assert!(healed > 0.95, "{healed}");
        // 260 × 1.2 is above 300, so a budget of the calls keeps the overload alive. One of the
        // successes has nothing to spend while there are none.
        let of_calls = FinagleBudget {
            ratio: Ratio::from_percent(20),
            reserve_per_second: 0,
            ..FinagleBudget::default()
        };
        let broken = last("S4 260/s, 20 % of calls (control)", &with(Some(of_calls.into())), 260.0);
        assert!(broken < 0.05, "the control has to fail: {broken}");
        let healed = last("S4 260/s, 20 % of successes", &with(budget(20)), 260.0);
        assert!(healed > 0.95, "{healed}");
    }

    fn with(budget: Option<BudgetOptions>) -> StackConfig {
        StackConfig { budget, ..at_once(2, Some(millis(1_000))) }
    }
}
