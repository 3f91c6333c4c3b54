//! Customers of one server that come and are served at random, at eight tenths of what it can do:
//! how long they wait, what the formula says, and how fast they are simulated.
//!
//! `cargo run --release -p seawall-lab --example queue -- JOBS`. `bench/lab` runs it beside SimPy.
#![expect(clippy::print_stdout, reason = "an example prints its result")]
#![expect(clippy::expect_used, reason = "an example may fail")]

use std::time::Duration;

use seawall_lab::{Queue, Rate, Source, Span, Station, exact};

fn main() {
    let jobs = std::env::args().nth(1).and_then(|jobs| jobs.parse().ok()).unwrap_or(1_000_000);
    let service = Span::exponential(Duration::from_millis(10));
    let source = Source::Open(Rate::constant(80.0).expect("a rate"));
    let station = Station {
        source,
        service: service.clone(),
        workers: 1,
        queue: Queue::fifo(None),
        patience: None,
        warm_up: jobs / 10,
        jobs,
    };
    let measured = station.run(1);
    let exact = exact::wait_for_one_worker(80.0, &service);
    println!("jobs {jobs} wait {:.6} formula {exact:.6}", measured.wait.mean());
}
