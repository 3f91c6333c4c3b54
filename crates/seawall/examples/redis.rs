//! Redis behind a stack. Where no server is at the address, it shows what that looks like.
//!
//! `cargo run -p seawall --example redis --features redis -- redis://127.0.0.1:6379`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use seawall::{CallOptions, Stack, StackConfig, classify_redis};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());

    // The stack retries, so the client does not: a call that needs a connection makes one try.
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(Duration::from_millis(100)))
        .set_response_timeout(Some(Duration::from_millis(200)));
    let stack = Stack::new("redis", &StackConfig::redis())?;
    for warning in stack.pool_warnings(&config) {
        println!("warning: {warning}");
    }
    // Lazy: a server that is not there yet is no reason not to start.
    let client = redis::Client::open(url)?;
    let manager = ConnectionManager::new_lazy_with_config(client, config)?;

    // INCR is no command to send twice: it is tried again only where it proves to be unsent.
    let report = stack
        .call(CallOptions::unsafe_to_repeat(), classify_redis, |_attempt| {
            let mut manager = manager.clone();
            async move { redis::cmd("INCR").arg("seawall:visits").query_async(&mut manager).await }
        })
        .await;
    let (attempts, cause) = (report.attempts, report.outcome.cause().as_str());
    let visits: Result<u64, _> = report.result;
    println!("visits: {visits:?} (attempts {attempts}, {cause}, {})", report.stop.as_str());
    Ok(())
}
