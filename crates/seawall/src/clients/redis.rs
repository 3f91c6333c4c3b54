//! What an error of the client `redis` means.
//!
//! | Redis or the client says | cause | class |
//! |---|---|---|
//! | LOADING, BUSY, CLUSTERDOWN, MASTERDOWN, READONLY, too many clients | unavailable | not processed |
//! | TRYAGAIN | conflict | not processed |
//! | OOM, MISCONF, NOREPLICAS: writes are refused, reads are not | business error | rejected |
//! | NOAUTH, WRONGPASS, NOPERM | business error | rejected |
//! | MOVED, ASK, to a client that knows no cluster | business error | rejected |
//! | EXECABORT | as the first refusal within the transaction | |
//! | any other error of the server, of a script, of a type | business error | rejected |
//! | connection refused, no such socket | connect refused | not processed |
//! | no such name; no node, no master known | dns, connect failed | not processed |
//! | its own timeout, also of connecting | attempt timeout | unknown |
//! | the connection dropped or was reset | closed, reset | unknown |
//! | an answer that is not RESP | malformed | unknown |
//!
//! In a pipeline the other commands were executed, so there *not processed* becomes *unknown*.
//! What is not proven is unknown: the client tells a connect that timed out and an answer that
//! never came in the same words, and so a connection that Redis closed at once for having too many,
//! unless the client is told to send nothing of its own first (`set_skip_set_lib_name`).

use std::error::Error as _;
use std::io;

use redis::{ErrorKind, RedisError};
use seawall_policy::{Cause, Class, Outcome};

use crate::classify::{as_io, cause_of_io};

/// What a result of the client `redis` means; for [`Stack::call`](crate::Stack::call).
///
/// ```no_run
/// # use seawall::{CallOptions, Stack, classify_redis};
/// # async fn f(stack: Stack, redis: redis::aio::ConnectionManager) {
/// let report = stack
///     .call(CallOptions::idempotent(), classify_redis, |_attempt| {
///         let mut redis = redis.clone();
///         async move { redis::cmd("GET").arg("answer").query_async::<u32>(&mut redis).await }
///     })
///     .await;
/// # }
/// ```
pub fn classify_redis<T>(result: &Result<T, RedisError>) -> Outcome {
    match result {
        Ok(_) => Outcome::of(Cause::Answered),
        Err(error) => redis_outcome(error),
    }
}

/// What an error of the client `redis` means, for rules of your own around it.
#[must_use]
pub fn redis_outcome(error: &RedisError) -> Outcome {
    match error.kind() {
        ErrorKind::Io => Outcome::of(of_io(error)),
        // One kind for what is no RESP, and for an answer of another type than we asked for.
        ErrorKind::Parse => Outcome::of(match error.detail() {
            Some(detail) if detail.starts_with(NO_RESP) => Cause::Malformed,
            _ => Cause::BusinessError,
        }),
        ErrorKind::Server(_) | ErrorKind::Extension => of_server(error),
        ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel
        | ErrorKind::ClusterConnectionNotFound => Outcome::of(Cause::ConnectFailed),
        // Ours to mend.
        ErrorKind::AuthenticationFailed
        | ErrorKind::UnexpectedReturnType
        | ErrorKind::InvalidClientConfig
        | ErrorKind::Client
        | ErrorKind::EmptySentinelList
        | ErrorKind::RESP3NotSupported => Outcome::of(Cause::BusinessError),
        _ => Outcome::of(Cause::Unmatched),
    }
}

fn of_io(error: &RedisError) -> Cause {
    if error.is_connection_refusal() {
        return Cause::ConnectRefused;
    }
    match error.source().and_then(as_io) {
        _ if error.is_timeout() => Cause::AttemptTimeout,
        // How the client says that its connection is gone, with this command on it or before it.
        Some(source) if source.kind() == io::ErrorKind::BrokenPipe => Cause::Closed,
        Some(source) => cause_of_io(source),
        None if error.is_connection_dropped() => Cause::Closed,
        None => Cause::Unmatched,
    }
}

fn of_server(error: &RedisError) -> Outcome {
    // A single answer of the server is its own source; those of a pipeline have none.
    let is_single = error.source().is_some();
    let code = error.code().unwrap_or_default();
    if code == "EXECABORT" {
        let within = error.clone().into_server_errors();
        let first = within.as_ref().and_then(|errors| errors.first());
        let of = |code: &str, details| of_code(code, details);
        return first.map_or(Outcome::of(Cause::BusinessError), |(_, error)| {
            of(error.code(), error.details().unwrap_or_default())
        });
    }
    let outcome = of_code(code, error.detail().unwrap_or_default());
    match outcome.class() {
        Class::NotProcessed if !is_single => outcome.with_class(Class::Unknown),
        _ => outcome,
    }
}

fn of_code(code: &str, detail: &str) -> Outcome {
    match code {
        "LOADING" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" => {
            Outcome::of(Cause::Unavailable)
        }
        "ERR" if detail.starts_with(TOO_MANY_CLIENTS) => Outcome::of(Cause::Unavailable),
        "TRYAGAIN" => Outcome::of(Cause::Conflict).with_class(Class::NotProcessed),
        _ => Outcome::of(Cause::BusinessError),
    }
}

/// How the client's parser begins.
const NO_RESP: &str = "Parse error at";
/// Said to a connection beyond `maxclients`, without a code of its own.
const TOO_MANY_CLIENTS: &str = "max number of clients reached";
