//! What the rules for Redis and PostgreSQL say, against the real servers: asked for too much,
//! killed, stopped, black-holed, slow, failing over, refusing. `./dev test` sees to the servers.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

mod failures;
mod page;
mod postgres;
mod process;
mod proxy;
mod redis;

use seawall::{Outcome, Report};

/// Holds what an outcome is against what was expected, with a name to find it by.
fn expect(what: &str, outcome: Outcome, cause: &str, class: &str) {
    let said = (outcome.cause().as_str(), outcome.class().as_str());
    assert_eq!(said, (cause, class), "{what}");
}

/// Attempts, cause and reason of a call, as one text to compare.
fn told<T, E>(report: &Report<T, E>) -> String {
    let (cause, stop) = (report.outcome.cause().as_str(), report.stop.as_str());
    format!("{} {cause} {stop}", report.attempts)
}
