//! sqlx behind a stack, with SQLite in memory so that it needs no server. With PostgreSQL the rules
//! for its codes are those of docs/clients.md.

use std::error::Error;
use std::time::Duration;

use seawall::{CallOptions, Cause, Outcome, PoolTimes, Safety, Stack, StackConfig};
use sqlx::sqlite::SqlitePoolOptions;

/// Below the attempt's 3 s: an empty pool must not look like a slow database.
const WAIT: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(WAIT)
        .connect("sqlite::memory:")
        .await?;
    let stack = Stack::new("orders", &StackConfig { checkout: None, ..StackConfig::postgres() })?;
    // sqlx makes the connection within the wait for it.
    let times = PoolTimes { wait: Some(WAIT), connect: Some(WAIT), answer: Some(Duration::ZERO) };
    for warning in stack.pool_warnings(times) {
        println!("warning: {warning}");
    }

    sqlx::query("CREATE TABLE orders (key TEXT PRIMARY KEY, amount INT)").execute(&pool).await?;
    let keyed = CallOptions { safety: Safety::Keyed, ..CallOptions::default() };
    for (key, amount) in [("order-7", 100), ("order-7", 100), ("order-8", 50)] {
        let report = stack
            .call(keyed, classify, async |_attempt| {
                let insert = "INSERT INTO orders VALUES (?, ?) ON CONFLICT DO NOTHING";
                let done = sqlx::query(insert).bind(key).bind(amount).execute(&pool).await?;
                Ok::<u64, sqlx::Error>(done.rows_affected())
            })
            .await;
        println!("{key}: {:?}, {}", report.result, report.outcome.cause().as_str());
    }

    // All connections taken: said as what it is.
    let held = pool.acquire().await?;
    let report = stack
        .call(CallOptions::idempotent(), classify, async |_attempt| {
            sqlx::query("SELECT 1").execute(&pool).await
        })
        .await;
    println!("with an empty pool: {}", report.outcome.cause().as_str());
    drop(held);
    Ok(())
}

/// What an error of sqlx means.
fn classify<T>(result: &Result<T, sqlx::Error>) -> Outcome {
    Outcome::of(match result {
        Ok(_) => Cause::Answered,
        Err(sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed) => Cause::CheckoutTimeout,
        Err(sqlx::Error::Database(error)) => match error.code().as_deref() {
            // SQLite: SQLITE_BUSY, SQLITE_LOCKED. PostgreSQL: serialization, deadlock.
            Some("5" | "6" | "40001" | "40P01") => Cause::Conflict,
            // PostgreSQL: too many connections, starting, read only. All said before any work.
            Some("53300" | "57P03" | "25006") => Cause::Unavailable,
            // PostgreSQL: ended by its own timeout, or with the server.
            Some("57014" | "57P01" | "57P02") => Cause::AttemptTimeout,
            _ => Cause::BusinessError,
        },
        Err(sqlx::Error::Io(error)) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Cause::ConnectRefused,
            std::io::ErrorKind::ConnectionReset => Cause::Reset,
            _ => Cause::Closed,
        },
        Err(sqlx::Error::Tls(_)) => Cause::Tls,
        // A row that is not there, a column of another type: an answer.
        Err(_) => Cause::BusinessError,
    })
}
