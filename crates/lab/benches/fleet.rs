//! Events a second with full policies, and bytes a client, as fleets grow.
//!
//! `cargo bench -p seawall-lab --bench fleet [CLIENTS …]`; without numbers 10⁴ to 10⁶. Each client
//! makes a call in ten seconds, with every policy of the preset `http`, its own state, and a server
//! that is down for a sixth of the time. Rates are by this thread's own time (Linux).
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::expect_used, reason = "a benchmark may fail")]

use std::time::Duration;

use seawall_lab::{
    Calls, Fault, Fleet, Host, Network, Queue, Rate, Refusal, Service, Sharing, Span, Target,
    Trouble, Work,
};
use seawall_policy::{StackConfig, StackParams, Timestamp};

/// The most clients that are measured with state of their own: about 1 kB for each of them.
const MOST_APART: u32 = 2_000_000;

/// How long this thread has run.
fn on_processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = stat.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.expect("the time on the processor comes first"))
}

/// The most memory this process has had at once, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("kilobytes");
    kilobytes * 1024
}

fn main() {
    let asked: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![10_000, 100_000, 1_000_000] } else { asked };
    println!(
        "{:>10} {:>8} {:>12} {:>8} {:>10}",
        "clients", "state", "events", "M ev/s", "B/client"
    );
    for clients in sizes {
        for sharing in [Sharing::All, Sharing::Each] {
            if sharing == Sharing::Each && clients > MOST_APART {
                continue;
            }
            let second = |seconds: u64| Timestamp::from_millis(seconds * 1000);
            let fault = Fault::new(second(20), second(30), None, Trouble::Silent);
            let rate = Rate::constant(f64::from(clients) / 10.0).expect("a rate");
            let config = StackConfig { bulkhead: None, ..StackConfig::http() };
            let policy = StackParams::new(&config).expect("a preset");
            let host = Host {
                work: Work::Queue {
                    workers: clients,
                    queue: Queue::fifo(None),
                    service: Span::exponential(Duration::from_millis(20)),
                },
                notices: false,
                entry: None,
                refusal: Refusal::PLAIN,
                door: None,
            };
            let fleet = Fleet {
                clients,
                to: vec![Target::new(0)],
                keys: None,
                lives: None,
                calls: Calls::Open(rate),
                patience: None,
                cancels: false,
                connect: None,
                safety: None,
                policy: policy.clone(),
                baseline: None,
                sharing,
                is_together: false,
                network: Network { delay: Span::fixed(Duration::from_millis(1)), loss: 0.0 },
                services: vec![Service::new("only", 1, host, policy)],
                faults: fault.into_iter().collect(),
                warm_up: second(10),
                calls_until: second(60),
                ends: second(65),
            };
            let begun = on_processor();
            let report = fleet.run(1).expect("a fleet");
            let rate = report.events as f64 / (on_processor() - begun).as_secs_f64() / 1e6;
            let (events, bytes) = (report.events, peak() / u64::from(clients));
            let sharing = format!("{sharing:?}");
            println!("{clients:>10} {sharing:>8} {events:>12} {rate:>8.2} {bytes:>10}");
        }
    }
}
