//! Two replicas, each of which stalls now and then; the same calls without hedges and with them.
//! What it costs stands beside what it brings: a slow call in thirty is worth a hedge, and a
//! dependency that is slow because it is full is not; that is told from the times, and held back.
//!
//! `cargo run -p seawall --example hedge`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use seawall::{
    CallOptions, Cause, Clock, HedgeDelay, HedgeOptions, Outcome, Ratio, Stack, StackConfig,
    StackParams,
};

/// A server that answers within 2 ms, but every thirtieth time only after 80.
#[derive(Default)]
struct Replica(AtomicU32);

impl Replica {
    async fn stock(&self, article: u32) -> Result<u32, Infallible> {
        let stalls = self.0.fetch_add(1, Relaxed) % 30 == 29;
        tokio::time::sleep(Duration::from_millis(if stalls { 80 } else { 2 })).await;
        Ok(article * 10)
    }
}

/// What so many calls, one after the other, took and cost.
struct Told {
    took: Vec<Duration>,
    sent: u32,
    hedges: u32,
}

impl Told {
    fn slower_than(&self, limit: Duration) -> usize {
        self.took.iter().filter(|took| **took > limit).count()
    }
}

async fn run(hedge: Option<HedgeOptions>) -> Result<Told, seawall::ConfigError> {
    let replicas = [Replica::default(), Replica::default()];
    let params = StackParams::new(&StackConfig { hedge, ..StackConfig::http() })?;
    // A hedge goes to another endpoint than the first attempt, so there must be one.
    let stack = Stack::with_topology("stock", params, Clock::new(), replicas.len(), 1);
    let mut told = Told { took: Vec::new(), sent: 0, hedges: 0 };
    for article in 0..CALLS {
        let begun = stack.clock().now();
        let report = stack
            // A read: only what may be executed twice is ever hedged.
            .call(
                CallOptions::idempotent(),
                |_| Outcome::of(Cause::Answered),
                |attempt| {
                    // Just before the first byte leaves; from here on it may be executed.
                    attempt.mark_sent();
                    replicas[attempt.endpoint()].stock(article)
                },
            )
            .await;
        told.took.push(stack.clock().now().since(begun));
        told.sent += report.attempts;
        told.hedges += report.hedges;
    }
    told.took.sort();
    Ok(told)
}

/// By default the first attempt is given the 98th percentile alone, and 2 % may be sent in
/// addition. One call in thirty is more than that: with the defaults some of them would stay slow.
fn hedged() -> HedgeOptions {
    HedgeOptions {
        delay: HedgeDelay::Quantile(Ratio::from_percent(95)),
        max_extra: Ratio::from_percent(8),
        ..HedgeOptions::default()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), seawall::ConfigError> {
    for (what, hedge) in [("alone", None), ("hedged", Some(hedged()))] {
        let told = run(hedge).await?;
        let [half, most] = [500, 985].map(|rank| told.took[told.took.len() * rank / 1000]);
        println!("{what}: half within {half:.1?}, 98.5 % within {most:.1?}");
        println!(
            "  {} of {CALLS} calls over {SLOW:?}; {} attempts, {} of them hedges",
            told.slower_than(SLOW),
            told.sent,
            told.hedges
        );
    }
    Ok(())
}

const CALLS: u32 = 600;
const SLOW: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    /// On virtual time.
    #[tokio::test(start_paused = true)]
    async fn nearly_every_stall_is_hedged_and_little_is_sent_in_addition() {
        let alone = run(None).await.unwrap();
        assert_eq!((alone.sent, alone.hedges), (CALLS, 0));
        // Which replica a call goes to is drawn.
        assert!((19..=20).contains(&alone.slower_than(SLOW)));
        let hedged = run(Some(hedged())).await.unwrap();
        assert!(hedged.slower_than(SLOW) <= 4, "{}", hedged.slower_than(SLOW));
        assert!((10..=48).contains(&hedged.hedges), "{}", hedged.hedges);
        assert_eq!(hedged.sent, CALLS + hedged.hedges);
    }
}
