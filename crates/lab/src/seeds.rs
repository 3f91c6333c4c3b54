//! Runs a model once for every seed, over threads, and gives the results in the seeds' order.
//!
//! A run knows nothing of the others, and what is made of the results is made in that order, so the
//! number of threads changes no byte of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// One result for each seed, by at most so many threads; 0 counts as 1.
///
/// # Panics
/// If a run does.
pub fn over_seeds<R: Send>(seeds: &[u64], threads: usize, run: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = seeds.get(place) else { return done };
            done.push((place, run(*seed)));
        }
    };
    let mut results = thread::scope(|scope| {
        let others = threads.min(seeds.len()).max(1) - 1;
        let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for other in others {
            match other.join() {
                Ok(done) => results.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_run_once_and_results_keep_its_place() {
        let seeds: Vec<u64> = (0..100).rev().collect();
        for threads in [0, 1, 2, 7, 200] {
            assert_eq!(over_seeds(&seeds, threads, |seed| seed), seeds);
        }
        assert_eq!(over_seeds(&[], 2, |seed| seed), Vec::<u64>::new());
    }
}
