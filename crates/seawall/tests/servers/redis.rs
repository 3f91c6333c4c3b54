//! A Redis of one's own, and what it says.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{Client, RedisError, Value};
use seawall::{CallOptions, Outcome, Stack, StackConfig, classify_redis};

use tokio::io::AsyncWriteExt as _;

use crate::page::Row;
use crate::process::{Folder, Process, TRIES, find, free_port, pause, serve, unprivileged};
use crate::proxy::Proxy;
use crate::{expect, told};

/// Redis in a folder of its own, which goes with it.
pub(crate) struct Redis {
    pub(crate) process: Process,
    port: u16,
    folder: Folder,
}

impl Redis {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = Folder::new("redis");
        let user = unprivileged();
        if let Some(user) = user {
            folder.give_to(user);
        }
        let (process, port) = Self::run(&folder, free_port, options);
        Self { process, port, folder }
    }

    /// Starts it again, at the same port, with what it had saved.
    pub(crate) fn start_again(&mut self, options: &[&str]) {
        let port = self.port;
        (self.process, _) = Self::run(&self.folder, || port, options);
    }

    fn run(folder: &Folder, ports: impl FnMut() -> u16, options: &[&str]) -> (Process, u16) {
        let dir = folder.path().to_str().unwrap();
        let program = find("redis-server", "redis-server");
        serve(ports, LISTENS, |port, log| {
            let port = port.to_string();
            let mut args = vec!["--port", &port, "--bind", "127.0.0.1", "--dir", dir];
            args.extend(["--save", "", "--appendonly", "no", "--enable-debug-command", "local"]);
            args.extend(options);
            Process::start(&program, unprivileged(), &args, log)
        })
    }

    pub(crate) fn client(&self) -> Client {
        client(self.port, "")
    }

    /// Connects as soon as it takes connections.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        for _ in 0..TRIES {
            if let Ok(connection) = self.client().get_multiplexed_async_connection().await {
                return connection;
            }
            pause();
        }
        panic!("it takes no connection");
    }

    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::to(self.port).await
    }

    /// What a call through a stack with a manager needs, as the example has it.
    pub(crate) async fn manager(&self) -> ConnectionManager {
        manager(self.port).await
    }
}

/// A manager that has its connection, and whose own times are longer than any attempt: what a test
/// sees end, the stack has ended.
pub(crate) async fn manager(port: u16) -> ConnectionManager {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(Duration::from_secs(10)))
        .set_response_timeout(Some(Duration::from_secs(10)));
    let manager = ConnectionManager::new_lazy_with_config(client(port, ""), config).unwrap();
    // A server that refuses its user answers as well.
    let answer = ask(&mut manager.clone(), "PING").await;
    assert!(answer.is_ok() || answer.is_err_and(|error| error.code().is_some()));
    manager
}

fn client(port: u16, user: &str) -> Client {
    Client::open(format!("redis://{user}127.0.0.1:{port}/")).unwrap()
}

/// Runs a command given as words.
async fn ask(
    connection: &mut impl redis::aio::ConnectionLike,
    command: &str,
) -> Result<Value, RedisError> {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        cmd.arg(word);
    });
    cmd.query_async(connection).await
}

async fn run_script(
    script: &str,
    connection: &mut MultiplexedConnection,
) -> Result<Value, RedisError> {
    redis::cmd("EVAL").arg(script).arg(0).query_async(connection).await
}

fn outcome(result: Result<Value, RedisError>) -> Outcome {
    assert!(result.is_err(), "{result:?}");
    classify_redis(&result)
}

#[tokio::test]
async fn every_code_of_redis_is_what_the_page_says() {
    let server = Redis::start(&[]);
    let mut connection = server.connection().await;
    for Row { key, cause, class, .. } in crate::page::rows("redis") {
        let script = format!("return redis.error_reply('{key} said by a script')");
        let said = run_script(&script, &mut connection).await;
        expect(&key, outcome(said), &cause, &class);
    }
    let unknown = ask(&mut connection, "NOSUCHCOMMAND").await;
    expect("a command that does not exist", outcome(unknown), "business_error", "rejected");
    let mistyped = redis::cmd("PING").query_async::<u64>(&mut connection).await.map(|_| Value::Nil);
    expect("an answer of another type", outcome(mistyped), "business_error", "rejected");
}

#[tokio::test]
async fn a_redis_that_is_busy_full_or_read_only_says_so() {
    let server = Redis::start(&["--maxmemory-policy", "noeviction"]);
    let mut connection = server.connection().await;

    ask(&mut connection, "CONFIG SET maxmemory 1").await.unwrap();
    let full = ask(&mut connection, "SET key value").await;
    expect("OOM", outcome(full), "business_error", "rejected");
    let mut transaction = redis::pipe();
    transaction.atomic().set("key", "value").set("other", "value");
    let aborted = transaction.query_async::<Value>(&mut connection).await;
    expect("EXECABORT for want of memory", outcome(aborted), "business_error", "rejected");
    ask(&mut connection, "CONFIG SET maxmemory 0").await.unwrap();

    // A primary that was demoted: the transaction is aborted for the same reason as the write.
    ask(&mut connection, "REPLICAOF 127.0.0.1 1").await.unwrap();
    let read_only = ask(&mut connection, "SET key value").await;
    expect("READONLY", outcome(read_only), "unavailable", "not_processed");
    let aborted = transaction.query_async::<Value>(&mut connection).await;
    expect("EXECABORT of a replica", outcome(aborted), "unavailable", "not_processed");
    let mut pipeline = redis::pipe();
    pipeline.cmd("SET").arg("key").arg("value").cmd("PING");
    let half = pipeline.query_async::<Value>(&mut connection).await;
    expect("READONLY within a pipeline", outcome(half), "unavailable", "unknown");
    // Its primary is not there, and what it has may be old.
    ask(&mut connection, "CONFIG SET replica-serve-stale-data no").await.unwrap();
    let stale = ask(&mut connection, "GET key").await;
    expect("MASTERDOWN", outcome(stale), "unavailable", "not_processed");
    ask(&mut connection, "REPLICAOF NO ONE").await.unwrap();

    ask(&mut connection, "CONFIG SET busy-reply-threshold 10").await.unwrap();
    let mut other = server.connection().await;
    let endless = "local i = 0 while true do i = i + 1 end";
    let running = tokio::spawn(async move { run_script(endless, &mut other).await });
    let mut busy = ask(&mut connection, "PING").await;
    while busy.is_ok() {
        busy = ask(&mut connection, "PING").await;
    }
    expect("BUSY", outcome(busy), "unavailable", "not_processed");
    ask(&mut connection, "SCRIPT KILL").await.unwrap();
    assert!(running.await.unwrap().is_err());
}

#[tokio::test]
async fn a_redis_that_refuses_a_user_is_not_asked_again() {
    let server = Redis::start(&["--requirepass", "secret"]);
    let anonymous = server.manager().await;
    let stack = Stack::new("redis", &StackConfig::redis()).unwrap();
    let report = stack
        .call(CallOptions::idempotent(), classify_redis, |_attempt| {
            let mut anonymous = anonymous.clone();
            async move { ask(&mut anonymous, "PING").await }
        })
        .await;
    assert_eq!(told(&report), "1 business_error not_retryable");
    for user in [":wrong@", "nobody:wrong@"] {
        let refused = client(server.port, user).get_multiplexed_async_connection().await;
        expect(user, outcome(refused.map(|_| Value::Nil)), "business_error", "rejected");
    }
    let mut connection =
        client(server.port, ":secret@").get_multiplexed_async_connection().await.unwrap();
    ask(&mut connection, "ACL SETUSER reader on >pass +ping").await.unwrap();
    let mut reader =
        client(server.port, "reader:pass@").get_multiplexed_async_connection().await.unwrap();
    let forbidden = ask(&mut reader, "GET key").await;
    expect("NOPERM", outcome(forbidden), "business_error", "rejected");
}

#[tokio::test]
async fn beyond_maxclients_nothing_was_processed_which_the_client_hides_behind_its_greeting() {
    let server = Redis::start(&["--maxclients", "1"]);
    let _only = server.connection().await;
    let refused = server.client().get_multiplexed_async_connection().await;
    let cut = outcome(refused.map(|_| Value::Nil));
    assert!(["closed", "reset"].contains(&cut.cause().as_str()), "{cut:?}");

    let info = server.client().get_connection_info().clone();
    let silent = info.redis_settings().clone().set_skip_set_lib_name();
    let silent = Client::open(info.set_redis_settings(silent)).unwrap();
    let mut connection = silent.get_multiplexed_async_connection().await.unwrap();
    let refused = ask(&mut connection, "PING").await;
    expect("too many clients", outcome(refused), "unavailable", "not_processed");
}

#[tokio::test]
async fn what_is_no_redis_is_malformed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
        std::future::pending::<()>().await;
    });
    let error = client(port, "").get_multiplexed_async_connection().await;
    expect("SSH", outcome(error.map(|_| Value::Nil)), "malformed", "unknown");
}

#[tokio::test]
async fn a_redis_that_loads_its_data_is_unavailable_and_then_answers() {
    let mut server = Redis::start(&[]);
    let mut connection = server.connection().await;
    ask(&mut connection, "DEBUG POPULATE 10000").await.unwrap();
    ask(&mut connection, "SAVE").await.unwrap();
    server.process.kill();
    // A pause of half a millisecond for each key.
    server.start_again(&[
        "--key-load-delay",
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let mut connection = server.connection().await;
    let loading = ask(&mut connection, "GET key:1").await;
    expect("LOADING", outcome(loading), "unavailable", "not_processed");
}

/// What it logs once it has its port, and before it loads its data.
const LISTENS: &str = "Server initialized";
