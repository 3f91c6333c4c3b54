//! A PostgreSQL of one's own, and what it says.

use std::fs;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use seawall::{
    Outcome, PostgresError, classify_postgres, postgres_connect_outcome, postgres_outcome,
};
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::expect;
use crate::page::Row;
use crate::process::{Folder, Process, TRIES, find, free_port, pause, run, serve, unprivileged};

/// A cluster in a folder of its own, which goes with it.
pub(crate) struct Postgres {
    pub(crate) process: Process,
    pub(crate) port: u16,
    options: Vec<String>,
    folder: Folder,
}

impl Postgres {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = folder();
        let data = folder.path().join("data");
        let initdb = find("initdb", PACKAGE);
        let dir = data.to_str().unwrap();
        let args = ["-D", dir, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C"];
        run(&initdb, unprivileged(), &[&args[..], &["-E", "UTF8"]].concat());
        let rules = "local all all trust\n\
                     host all locked 127.0.0.1/32 scram-sha-256\n\
                     host all nobody 127.0.0.1/32 reject\n\
                     host all all 127.0.0.1/32 trust\n\
                     host replication all 127.0.0.1/32 trust\n";
        fs::write(data.join("pg_hba.conf"), rules).unwrap();
        Self::in_folder(folder, options)
    }

    /// A standby of this one, following it.
    pub(crate) fn standby(&self) -> Self {
        let folder = folder();
        let data = folder.path().join("data");
        let port = self.port.to_string();
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "--no-sync", "-R"];
        let rest = ["-c", "fast", "-D", data.to_str().unwrap()];
        run(&find("pg_basebackup", PACKAGE), unprivileged(), &[&args[..], &rest].concat());
        Self::in_folder(folder, &[])
    }

    fn in_folder(folder: Folder, options: &[&str]) -> Self {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        let (process, port) = Self::run(&folder, free_port, &options);
        Self { process, port, options, folder }
    }

    /// Starts it again at the same port, after it was killed.
    pub(crate) fn start_again(&mut self) {
        // What was killed has left its lock, with a process that may still be ending.
        let lock = self.folder.path().join("data/postmaster.pid");
        let _ = fs::remove_file(lock);
        let port = self.port;
        (self.process, _) = Self::run(&self.folder, || port, &self.options);
    }

    fn run(folder: &Folder, ports: impl FnMut() -> u16, options: &[String]) -> (Process, u16) {
        let (data, dir) = (folder.path().join("data"), folder.path().to_str().unwrap());
        let program = find("postgres", PACKAGE);
        serve(ports, LISTENS, |port, log| {
            let port = port.to_string();
            let mut args = vec!["-D", data.to_str().unwrap(), "-p", &port, "-k", dir];
            for option in SMALL.iter().copied().chain(options.iter().map(String::as_str)) {
                args.extend(["-c", option]);
            }
            Process::start(&program, unprivileged(), &args, log)
        })
    }

    /// Connects as soon as it takes connections.
    pub(crate) async fn connection(&self) -> Client {
        for _ in 0..TRIES {
            if let Ok(client) = connect(&config(self.port, "postgres")).await {
                return client;
            }
            pause();
        }
        panic!("it takes no connection");
    }

    pub(crate) fn pool(&self, most: usize) -> Pool {
        pool(self.port, most, PATIENT)
    }
}

fn folder() -> Folder {
    let folder = Folder::new("postgres");
    if let Some(user) = unprivileged() {
        folder.give_to(user);
    }
    folder
}

pub(crate) fn config(port: u16, user: &str) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(port).user(user).dbname("postgres");
    config
}

/// A pool as the example has it, with so much time to make a connection.
pub(crate) fn pool(port: u16, most: usize, create: Duration) -> Pool {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config(port, "postgres"), NoTls, manager))
        .max_size(most)
        .create_timeout(Some(create))
        .runtime(Runtime::Tokio1)
        .build()
        .unwrap()
}

pub(crate) async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn outcome<T>(result: Result<T, Error>) -> Outcome {
    postgres_outcome(&result.err().unwrap())
}

/// An error with this code, from a server that was told to raise it.
async fn raised(client: &Client, code: &str) -> Result<(), Error> {
    let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'so' USING ERRCODE = '{code}'; END $$");
    client.batch_execute(&raise).await
}

#[tokio::test]
async fn every_code_of_postgresql_is_what_the_page_says_and_so_are_timeouts_locks_and_deadlocks() {
    let server = Postgres::start(&["deadlock_timeout=20ms"]);
    let client = server.connection().await;
    for Row { key, cause, class, connecting } in crate::page::rows("postgres") {
        let error = raised(&client, &key).await.unwrap_err();
        let outcome = match connecting {
            true => postgres_connect_outcome(&error),
            false => postgres_outcome(&error),
        };
        expect(&key, outcome, &cause, &class);
    }

    client.batch_execute("SET statement_timeout = 20").await.unwrap();
    let slow = client.batch_execute("SELECT pg_sleep(10)").await;
    expect("statement_timeout", outcome(slow), "attempt_timeout", "unknown");
    client.batch_execute("SET statement_timeout = 0").await.unwrap();

    client.batch_execute("CREATE TABLE stock (id int PRIMARY KEY, n int)").await.unwrap();
    client.batch_execute("INSERT INTO stock VALUES (1, 1), (2, 2)").await.unwrap();
    let twice = client.batch_execute("INSERT INTO stock VALUES (1, 1)").await;
    expect("a key that is there", outcome(twice), "business_error", "rejected");
    let none = client.query_one("SELECT n FROM stock WHERE id = 3", &[]).await;
    expect("no row", outcome(none), "business_error", "rejected");
    let row = client.query_one("SELECT n FROM stock WHERE id = 1", &[]).await.unwrap();
    expect("another type", outcome(row.try_get::<_, String>(0)), "business_error", "rejected");

    let other = server.connection().await;
    conflicts(&client, &other).await;

    client.batch_execute("ROLLBACK; SET default_transaction_read_only = on").await.unwrap();
    let read_only = client.batch_execute("UPDATE stock SET n = 3 WHERE id = 1").await;
    expect("read only", outcome(read_only), "unavailable", "not_processed");

    // The server ends what idles within a transaction; the next statement finds that out.
    let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    other.batch_execute("SET idle_in_transaction_session_timeout = 20; BEGIN").await.unwrap();
    for _ in 0..TRIES {
        let alive = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
        if client.query_opt(alive, &[&pid]).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ended = other.batch_execute("SELECT 1").await;
    expect("the session was ended", outcome(ended), "closed", "unknown");
}

/// What two transactions do to each other.
async fn conflicts(client: &Client, other: &Client) {
    let serializable = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(n) FROM stock";
    client.batch_execute(serializable).await.unwrap();
    other.batch_execute(serializable).await.unwrap();
    client.batch_execute("UPDATE stock SET n = 5 WHERE id = 1; COMMIT").await.unwrap();
    let late = other.batch_execute("UPDATE stock SET n = 6 WHERE id = 1").await;
    expect("serialization", outcome(late), "conflict", "overloaded");
    other.batch_execute("ROLLBACK").await.unwrap();

    client.batch_execute("BEGIN; UPDATE stock SET n = 1 WHERE id = 1").await.unwrap();
    let blocked = "SET lock_timeout = 20; UPDATE stock SET n = 1 WHERE id = 1";
    let blocked = other.batch_execute(blocked).await;
    expect("lock_timeout", outcome(blocked), "conflict", "overloaded");
    other.batch_execute("SET lock_timeout = 0; BEGIN").await.unwrap();
    other.batch_execute("UPDATE stock SET n = 2 WHERE id = 2").await.unwrap();
    let (one, two) = tokio::join!(
        client.batch_execute("UPDATE stock SET n = 2 WHERE id = 2"),
        other.batch_execute("UPDATE stock SET n = 1 WHERE id = 1"),
    );
    let victim = [one, two].into_iter().find(Result::is_err).unwrap();
    expect("deadlock", outcome(victim), "conflict", "overloaded");
    client.batch_execute("ROLLBACK").await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_postgresql_that_is_out_of_connections_or_refuses_a_user_says_so() {
    let server = Postgres::start(&["max_connections=3", "superuser_reserved_connections=0"]);
    let admin = server.connection().await;
    admin
        .batch_execute("CREATE ROLE locked LOGIN PASSWORD 'key'; CREATE ROLE nobody LOGIN")
        .await
        .unwrap();
    let connecting =
        |result: Result<Client, Error>| postgres_connect_outcome(&result.err().unwrap());

    let mut wrong = config(server.port, "locked");
    expect("no password", connecting(connect(&wrong).await), "business_error", "rejected");
    let refused = connect(wrong.password("wrong")).await;
    expect("a wrong password", connecting(refused), "business_error", "rejected");
    let barred = connect(&config(server.port, "nobody")).await;
    expect("barred", connecting(barred), "business_error", "rejected");
    let absent = connect(config(server.port, "postgres").dbname("absent")).await;
    expect("no such database", connecting(absent), "business_error", "rejected");

    let pool = server.pool(4);
    let mut held = Vec::new();
    let mut tries = 0..TRIES;
    let full: PostgresError = loop {
        match pool.get().await {
            Ok(client) => held.push(client),
            // Those that were refused have not all left.
            Err(_) if held.len() < 2 && tries.next().is_some() => pause(),
            Err(error) => break error.into(),
        }
    };
    assert_eq!(held.len(), 2);
    expect("53300", classify_postgres(&Err::<(), _>(full)), "unavailable", "not_processed");
}

const PACKAGE: &str = "postgresql";
/// No busy machine needs as long to connect.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);
/// What it logs once it has its port; it takes connections once it has recovered.
const LISTENS: &str = "listening on IPv4 address";
/// A cluster that has nothing to lose.
const SMALL: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "shared_buffers=4MB",
    "max_wal_senders=4",
    "logging_collector=off",
];
