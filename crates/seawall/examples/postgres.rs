//! PostgreSQL and its pool behind a stack: a transaction as one attempt. Where no server is at the
//! address, it shows what that looks like.
//!
//! `cargo run -p seawall --example postgres --features postgres -- \
//!  'host=127.0.0.1 user=postgres'`

#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use seawall::{
    AttemptContext, CallOptions, PostgresError, Safety, Stack, StackConfig, classify_postgres,
};
use tokio_postgres::{Config, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let mut config: Config =
        address.as_deref().unwrap_or("host=127.0.0.1 user=postgres").parse()?;
    // The server ends what nobody waits for any more: a bit before the attempt's 3 s.
    config.options("-c statement_timeout=2500 -c idle_in_transaction_session_timeout=5000");

    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    // The wait for the pool is the stack's, 500 ms; a connect has to end before it.
    let pool = Pool::builder(Manager::from_config(config, NoTls, manager))
        .create_timeout(Some(Duration::from_millis(400)))
        .runtime(Runtime::Tokio1)
        .build()?;
    let stack = Stack::new("orders", &StackConfig::postgres())?;
    for warning in stack.pool_warnings(&pool) {
        println!("warning: {warning}");
    }

    // Keyed: the insert does nothing the second time, so a lost answer may be asked for again.
    let options = CallOptions { safety: Safety::Keyed, ..CallOptions::default() };
    let report = stack
        .call(options, classify_postgres, |attempt| place(attempt, &pool, "order-7", 100))
        .await;
    let (attempts, cause) = (report.attempts, report.outcome.cause().as_str());
    println!("{:?} (attempts {attempts}, {cause}, {})", report.result, report.stop.as_str());
    Ok(())
}

/// One attempt: a connection, and the whole transaction on it.
async fn place(
    attempt: AttemptContext,
    pool: &Pool,
    key: &str,
    amount: i32,
) -> Result<i64, PostgresError> {
    let mut client = attempt.checkout(pool.get()).await??;
    let transaction = client.build_transaction().start().await?;
    transaction
        .batch_execute("CREATE TEMP TABLE IF NOT EXISTS orders (key text PRIMARY KEY, amount int)")
        .await?;
    let insert = "INSERT INTO orders VALUES ($1, $2) ON CONFLICT DO NOTHING";
    transaction.execute(insert, &[&key, &amount]).await?;
    let row = transaction.query_one("SELECT sum(amount) FROM orders", &[]).await?;
    transaction.commit().await?;
    Ok(row.try_get(0)?)
}
