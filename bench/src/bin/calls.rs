//! Makes a number of calls through one chain and ends: what `bench/run` counts instructions and
//! allocations of. `calls SUBJECT N` prints the allocations of N calls after as many to warm up.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use seawall_bench::{Measure, Subject, repeat, runtime, with};
use tower::Service;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counted(u64);

impl Measure for Counted {
    type Output = u64;

    fn run<S, Q>(self, service: S, request: fn(u64) -> Q) -> u64
    where
        S: Service<Q> + Clone + Send + 'static,
        S::Error: std::fmt::Debug,
        S::Future: Send,
        Q: Send + 'static,
    {
        let runtime = runtime();
        runtime.block_on(repeat(service.clone(), request, self.0));
        let before = ALLOCATIONS.load(Relaxed);
        runtime.block_on(repeat(service, request, self.0));
        ALLOCATIONS.load(Relaxed) - before
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let subject = Subject::ALL.into_iter().find(|subject| subject.name() == name);
    let calls = arguments.next().and_then(|calls| calls.parse().ok());
    let (Some(subject), Some(calls)) = (subject, calls) else {
        let names = Subject::ALL.map(Subject::name).join(", ");
        eprintln!("usage: calls SUBJECT N, SUBJECT one of {names}");
        return ExitCode::from(2);
    };
    println!("{}", with(subject, Counted(calls)));
    ExitCode::SUCCESS
}
