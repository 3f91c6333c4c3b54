//! Nanoseconds a call, one thread alone and two threads on one shared chain.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use seawall_bench::{Measure, Subject, repeat, runtime, with};
use tower::Service;

/// Times `calls` calls on each of `threads` threads that share the chain.
struct Timed {
    calls: u64,
    threads: usize,
}

impl Measure for Timed {
    type Output = Duration;

    fn run<S, Q>(self, service: S, request: fn(u64) -> Q) -> Duration
    where
        S: Service<Q> + Clone + Send + 'static,
        S::Error: std::fmt::Debug,
        S::Future: Send,
        Q: Send + 'static,
    {
        let Self { calls, threads } = self;
        let barrier = Barrier::new(threads);
        let run = |service: S| {
            let runtime = runtime();
            runtime.block_on(repeat(service.clone(), request, calls.min(1_000)));
            barrier.wait();
            let began = Instant::now();
            runtime.block_on(repeat(service, request, calls));
            began.elapsed()
        };
        std::thread::scope(|scope| {
            let spawn = |_| {
                let (run, service) = (&run, service.clone());
                scope.spawn(move || run(service))
            };
            let handles: Vec<_> = (0..threads).map(spawn).collect();
            handles.into_iter().map(|handle| handle.join().unwrap()).max().unwrap_or_default()
        })
    }
}

fn chains(criterion: &mut Criterion) {
    for (name, threads) in [("alone", 1), ("two threads", 2)] {
        let mut group = criterion.benchmark_group(name);
        for subject in Subject::ALL {
            group.bench_function(subject.name(), |bencher| {
                bencher.iter_custom(|calls| black_box(with(subject, Timed { calls, threads })));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .without_plots()
        .sample_size(30)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = chains
}
criterion_main!(benches);
