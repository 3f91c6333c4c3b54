//! Calls through a stack while the server is killed, stopped, black-holed, slow, or fails over: how
//! many attempts were made, and what was said in the end.

use std::time::Duration;

use redis::aio::ConnectionManager;
use rustix::process::Signal;
use seawall::{
    AttemptContext, CallOptions, PostgresError, Report, Stack, StackConfig, SuccessBudget,
    classify_postgres, classify_redis,
};

use crate::postgres::{PATIENT, Postgres, pool as pool_at};
use crate::process::{TRIES, pause};
use crate::proxy::Proxy;
use crate::redis::{Redis, manager};
use crate::told;

const SAFE: CallOptions = CallOptions::idempotent();
const UNSAFE: CallOptions = CallOptions::unsafe_to_repeat();

/// A stack of two attempts with times of a test.
fn stack(attempt: Duration) -> Stack {
    let mut config = StackConfig {
        total: Some(Duration::from_secs(5)),
        attempt_timeout: Some(attempt),
        checkout: Some(attempt / 2),
        connect: None,
        ..StackConfig::standard()
    };
    let retry = config.retry.as_mut().unwrap();
    retry.backoff.base = Duration::from_millis(10);
    config.budget = Some(SuccessBudget { initial: 10, ..SuccessBudget::default() }.into());
    Stack::new("server", &config).unwrap()
}

async fn redis_call(
    stack: &Stack,
    manager: &ConnectionManager,
    options: CallOptions,
    words: &'static [&'static str],
) -> Report<redis::Value, redis::RedisError> {
    stack
        .call(options, classify_redis, |_attempt| {
            let mut manager = manager.clone();
            let mut command = redis::cmd(words[0]);
            words[1..].iter().for_each(|word| {
                command.arg(*word);
            });
            async move { command.query_async(&mut manager).await }
        })
        .await
}

#[tokio::test]
async fn a_redis_that_is_killed_in_mid_command_is_asked_again_only_where_that_is_harmless() {
    let mut server = Redis::start(&[]);
    let manager = server.manager().await;
    let stack = stack(Duration::from_secs(5));
    assert_eq!(
        told(&redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]).await),
        "1 answered answered"
    );

    let hanging = redis_call(&stack, &manager, UNSAFE, &["BLPOP", "none", "0"]);
    let mut beside = server.connection().await;
    let killing = async {
        for _ in 0..TRIES {
            let clients = redis::cmd("INFO").arg("clients").query_async(&mut beside).await;
            if clients.is_ok_and(|text: String| text.contains("blocked_clients:1")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.process.kill();
    };
    let (report, ()) = tokio::join!(hanging, killing);
    assert_eq!(told(&report), "1 closed not_retryable");
    // Nobody there: proven unsent, so any command is tried again.
    let report = redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]).await;
    assert_eq!(told(&report), "2 connect_refused exhausted");
    server.start_again(&[]);
    let report = redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]).await;
    assert_eq!(report.stop.as_str(), "answered", "{report:?}");
}

#[tokio::test]
async fn a_redis_that_stands_still_or_is_slow_is_a_timeout_and_then_answers() {
    let server = Redis::start(&[]);
    let manager = server.manager().await;
    let stack = stack(Duration::from_millis(100));
    let report = redis_call(&stack, &manager, UNSAFE, &["DEBUG", "SLEEP", "1"]).await;
    assert_eq!(told(&report), "1 attempt_timeout not_retryable");
    server.process.signal(Signal::STOP);
    let report = redis_call(&stack, &manager, SAFE, &["GET", "key"]).await;
    assert_eq!(told(&report), "2 attempt_timeout exhausted");
    server.process.signal(Signal::CONT);
    let mut report = redis_call(&stack, &manager, SAFE, &["PING"]).await;
    for _ in 0..TRIES {
        if report.result.is_ok() {
            return;
        }
        pause();
        report = redis_call(&stack, &manager, SAFE, &["PING"]).await;
    }
    panic!("it answers again: {report:?}");
}

#[tokio::test]
async fn a_black_hole_before_redis_times_out_and_opens_the_breaker() {
    let server = Redis::start(&[]);
    let proxy = server.proxy().await;
    let manager = manager(proxy.port()).await;
    let stack = stack(Duration::from_millis(100));
    proxy.swallow(true);
    let calls = (0..20).map(|_| redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]));
    for report in futures_util::future::join_all(calls).await {
        assert_eq!(told(&report), "1 attempt_timeout not_retryable");
    }
    let report = redis_call(&stack, &manager, SAFE, &["PING"]).await;
    assert_eq!((report.attempts, report.stop.as_str()), (0, "breaker_open"));
}

#[tokio::test]
async fn a_write_to_a_demoted_redis_is_tried_again_and_succeeds_once_it_is_promoted() {
    let server = Redis::start(&[]);
    let manager = server.manager().await;
    let stack = stack(Duration::from_secs(5));
    redis_call(&stack, &manager, SAFE, &["REPLICAOF", "127.0.0.1", "1"]).await.result.unwrap();
    let report = redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]).await;
    assert_eq!(told(&report), "2 unavailable exhausted");
    redis_call(&stack, &manager, SAFE, &["REPLICAOF", "NO", "ONE"]).await.result.unwrap();
    let report = redis_call(&stack, &manager, UNSAFE, &["INCR", "n"]).await;
    assert_eq!(told(&report), "1 answered answered");
}

async fn postgres_call(
    stack: &Stack,
    pool: &deadpool_postgres::Pool,
    options: CallOptions,
    statement: &str,
) -> Report<(), PostgresError> {
    let attempt = async |attempt: AttemptContext| {
        let client = attempt.checkout(pool.get()).await??;
        Ok(client.batch_execute(statement).await?)
    };
    stack.call(options, classify_postgres, attempt).await
}

/// Runs a statement that hangs, ends it by `end` once it runs, and gives what the caller was told.
async fn cut_short(
    stack: &Stack,
    pool: &deadpool_postgres::Pool,
    admin: &tokio_postgres::Client,
    end: impl AsyncFnOnce(i32),
) -> String {
    let hanging = postgres_call(stack, pool, UNSAFE, "SELECT pg_sleep(30)");
    let running = "SELECT pid FROM pg_stat_activity \
                   WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'";
    let ending = async {
        for _ in 0..TRIES {
            if let Some(row) = admin.query_opt(running, &[]).await.unwrap() {
                return end(row.get(0)).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the statement does not run");
    };
    told(&tokio::join!(hanging, ending).0)
}

#[tokio::test]
async fn a_postgresql_that_is_killed_in_mid_statement_leaves_it_unknown_and_then_answers() {
    let mut server = Postgres::start(&[]);
    let admin = server.connection().await;
    let stack = stack(Duration::from_secs(5));
    for (function, expected) in [
        ("pg_terminate_backend", "1 unavailable not_retryable"),
        ("pg_cancel_backend", "1 attempt_timeout not_retryable"),
    ] {
        // A pool notices only a little later that its connection has gone.
        let pool = server.pool(1);
        let said = cut_short(&stack, &pool, &admin, async |pid| {
            admin.execute(&format!("SELECT {function}({pid})"), &[]).await.unwrap();
        });
        assert_eq!(said.await, expected, "{function}");
    }
    let pool = server.pool(4);
    let said = cut_short(&stack, &pool, &admin, async |_| server.process.kill()).await;
    assert!(said == "1 closed not_retryable" || said == "1 reset not_retryable", "{said}");
    let report = postgres_call(&stack, &pool, UNSAFE, "SELECT 1").await;
    assert_eq!(told(&report), "2 connect_refused exhausted", "nobody there");
    server.start_again();
    // It recovers first, and says that it cannot be connected to now.
    let mut report = postgres_call(&stack, &pool, UNSAFE, "SELECT 1").await;
    for _ in 0..TRIES {
        if report.result.is_ok() {
            return;
        }
        let cause = report.outcome.cause().as_str();
        let known = ["unavailable", "connect_refused", "breaker_open"];
        assert!(known.contains(&cause), "{report:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        report = postgres_call(&stack, &pool, UNSAFE, "SELECT 1").await;
    }
    panic!("it answers again: {report:?}");
}

#[tokio::test]
async fn a_black_hole_before_postgresql_is_a_connect_that_failed_and_no_empty_pool() {
    let server = Postgres::start(&[]);
    drop(server.connection().await);
    let proxy = Proxy::to(server.port).await;
    let pool = pool_at(proxy.port(), 2, PATIENT);
    let stack = stack(Duration::from_millis(1_000));
    pool.get().await.unwrap().batch_execute("SELECT 1").await.unwrap();

    proxy.swallow(true);
    let report = postgres_call(&stack, &pool, UNSAFE, "SELECT 1").await;
    assert_eq!(told(&report), "1 attempt_timeout not_retryable", "on a connection there was");
    let fresh = pool_at(proxy.port(), 2, Duration::from_millis(400));
    assert!(stack.pool_warnings(&fresh).is_empty());
    let report = postgres_call(&stack, &fresh, UNSAFE, "SELECT 1").await;
    assert_eq!(told(&report), "2 connect_timeout exhausted", "on one to be made");

    // A pool whose connections are all taken, on the other hand, is nobody's illness.
    let busy = server.pool(1);
    let held = busy.get().await.unwrap();
    let report = postgres_call(&stack, &busy, UNSAFE, "SELECT 1").await;
    assert_eq!(told(&report), "0 checkout_timeout checkout_timeout");
    drop(held);
    busy.close();
    let report = postgres_call(&stack, &busy, UNSAFE, "SELECT 1").await;
    assert_eq!(report.stop.as_str(), "checkout_timeout", "closed");
}

#[tokio::test]
async fn a_write_to_a_standby_is_not_processed_and_succeeds_once_it_is_promoted() {
    let primary = Postgres::start(&[]);
    primary.connection().await.batch_execute("CREATE TABLE orders (id int)").await.unwrap();
    let standby = primary.standby();
    drop(standby.connection().await);
    let pool = standby.pool(2);
    let stack = stack(Duration::from_secs(3));
    let write = "INSERT INTO orders VALUES (1)";
    assert_eq!(
        told(&postgres_call(&stack, &pool, UNSAFE, "SELECT 1").await),
        "1 answered answered"
    );
    let report = postgres_call(&stack, &pool, UNSAFE, write).await;
    assert_eq!(told(&report), "2 unavailable exhausted");
    drop(primary);
    postgres_call(&stack, &pool, SAFE, "SELECT pg_promote()").await.result.unwrap();
    let report = postgres_call(&stack, &pool, UNSAFE, write).await;
    assert_eq!(told(&report), "1 answered answered");
}
