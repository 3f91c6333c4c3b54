//! The stack as a whole, on virtual time.

mod breakers;
mod calls;
mod endpoints;
mod forcing;
mod grpc;
mod hedges;
mod hops;
mod keeping;
mod limits;
mod load;
mod outliers;
mod params;
mod rates;
mod refresh;
mod reload;
mod reshape;
mod sim;

use alloc::string::String;

use crate::backoff::{BackoffOptions, Jitter};
use crate::retry::RetryOptions;
use crate::stack::StackConfig;
use sim::{GET, Sim, Spec, at};

/// Retries without jitter: 100 ms, 200 ms, …
fn retrying(max_attempts: u32) -> StackConfig {
    let backoff = BackoffOptions { jitter: Jitter::None, ..BackoffOptions::default() };
    let retry = RetryOptions { max_attempts, backoff, ..RetryOptions::default() };
    StackConfig { retry: Some(retry), ..StackConfig::default() }
}

/// Plays calls that begin at the given milliseconds, for ten minutes, and gives the whole log.
fn check(sim: &mut Sim, calls: &[(u64, Spec)]) -> String {
    for (begin, spec) in calls {
        sim.call_at(at(*begin), *spec);
    }
    sim.run_until(600_000);
    sim.log.join("\n")
}

/// The same for one GET, to the millisecond it begins.
fn check_get(sim: &mut Sim) -> String {
    check(sim, &[(0, GET)])
}
