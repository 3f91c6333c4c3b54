//! A dependency that fails now and then, called through a stack; then an operator's switch.
//!
//! `cargo run -p seawall --example closure`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use seawall::{CallOptions, Cause, Change, KillSwitch, Outcome, Scope, Stack, StackConfig};

#[derive(Debug, thiserror::Error)]
enum StockError {
    #[error("the connection was lost")]
    Lost,
    #[error("no such article")]
    NoSuchArticle,
    #[error(transparent)]
    Checkout(#[from] seawall::CheckoutTimeout),
}

/// What a result means: the one thing only the caller knows.
fn classify(result: &Result<u32, StockError>) -> Outcome {
    Outcome::of(match result {
        Ok(_) => Cause::Answered,
        Err(StockError::NoSuchArticle) => Cause::BusinessError,
        Err(StockError::Lost) => Cause::Closed,
        Err(StockError::Checkout(_)) => Cause::CheckoutTimeout,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), seawall::ConfigError> {
    let stack = Stack::new("stock", &StackConfig::redis())?;
    let switch = KillSwitch::new(|line| println!("audit: {line}"));
    switch.attach(&stack)?;

    let calls = AtomicU32::new(0);
    let look_up = async |article: u32| {
        stack
            .call(CallOptions::idempotent(), classify, async |attempt| {
                // Where a real client asks its pool; an empty pool has its own time and class.
                attempt.checkout(tokio::time::sleep(Duration::from_millis(2))).await?;
                match (article, calls.fetch_add(1, Relaxed) % 3) {
                    (0, _) => Err(StockError::NoSuchArticle),
                    (_, 0) => Err(StockError::Lost),
                    _ => Ok(article * 10),
                }
            })
            .await
    };

    for article in [7, 8, 0, 9] {
        let report = look_up(article).await;
        let (stop, attempts) = (report.stop.as_str(), report.attempts);
        println!("article {article}: {:?} (attempts {attempts}, {stop})", report.result);
    }

    let off = Change::Off { ttl: Duration::from_millis(200) };
    switch.set(Scope::All, off, "operator", "watching the example")?;
    calls.store(0, Relaxed);
    let report = look_up(7).await;
    println!("retries off: attempts {}, {}", report.attempts, report.stop.as_str());
    tokio::time::sleep(Duration::from_millis(250)).await;
    println!("still off: {:?}", switch.list());
    Ok(())
}
