//! What an error of `tokio-postgres` means, and of its pool.
//!
//! The same SQLSTATE means one thing while connecting, when no statement was sent, and another to a
//! statement. So there are two functions, and [`PostgresError`] keeps the two apart.
//!
//! | SQLSTATE | while connecting | to a statement |
//! |---|---|---|
//! | 28xxx: who are you | rejected | rejected |
//! | 53300 too many connections | unavailable | overloaded |
//! | 53xxx: no memory, no disk | unavailable | overloaded |
//! | 57P03 cannot connect now; 57P01, 57P02 shutdown, crash | unavailable | unknown |
//! | 57P05 closed because it was idle | handed back | handed back |
//! | 57014 cancelled: a statement's timeout, or an operator | – | attempt timeout |
//! | 40001, 40P01: could not be put in an order, deadlock | – | conflict |
//! | 55P03 lock not available; 25P03 idle within a transaction | – | conflict |
//! | 25006 read only: a standby, or a primary that was demoted | – | unavailable |
//! | 08xxx: the connection broke | connect failed | closed |
//! | 58xxx: I/O of the server | unavailable | unknown |
//! | anything else: syntax, constraint, no such database, internal error | rejected | rejected |
//!
//! *Unavailable* and *handed back* are *not processed*: any statement may be tried again.
//! A *conflict* is tried again only where that is harmless, and only if the attempt is the whole
//! transaction; within one, nothing can be repeated.
//!
//! | without a SQLSTATE | while connecting | to a statement |
//! |---|---|---|
//! | refused, unreachable, no such name | as in HTTP | as in HTTP |
//! | in no time | connect timeout | – |
//! | the connection ended or was reset | connect failed | closed, reset: unknown |
//! | TLS | tls | – |
//! | a password is missing or wrong | rejected | – |
//! | a value or a row that is not what was asked for | – | rejected |
//! | the pool has none in time, or is closed | checkout timeout: refused here | – |

use std::error::Error as _;
use std::io;

use deadpool_postgres::{HookError, PoolError, TimeoutType};
use seawall_policy::{Cause, Class, Outcome};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::attempt::CheckoutTimeout;
use crate::classify::cause_of_io;

/// Where an attempt on PostgreSQL failed: for want of a connection, or on one.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The pool gave no connection: it has none, or none could be made.
    #[error("no connection from the pool")]
    Pool(#[from] PoolError),
    /// The stack's own wait for the pool ended.
    #[error(transparent)]
    Checkout(#[from] CheckoutTimeout),
    /// A statement failed, or the connection below it.
    #[error("the statement failed")]
    Statement(#[from] Error),
}

/// What a result of an attempt on PostgreSQL means; for [`Stack::call`](crate::Stack::call).
///
/// ```no_run
/// # use seawall::{CallOptions, PostgresError, Stack, classify_postgres};
/// # async fn f(stack: Stack, pool: deadpool_postgres::Pool) {
/// let report = stack
///     .call(CallOptions::idempotent(), classify_postgres, |attempt| {
///         let pool = &pool;
///         async move {
///             let client = attempt.checkout(pool.get()).await??;
///             let row = client.query_one("SELECT 42", &[]).await?;
///             Ok::<i32, PostgresError>(row.try_get(0)?)
///         }
///     })
///     .await;
/// # }
/// ```
pub fn classify_postgres<T>(result: &Result<T, PostgresError>) -> Outcome {
    match result {
        Ok(_) => Outcome::of(Cause::Answered),
        Err(PostgresError::Pool(error)) => pool_outcome(error),
        Err(PostgresError::Checkout(CheckoutTimeout)) => Outcome::of(Cause::CheckoutTimeout),
        Err(PostgresError::Statement(error)) => postgres_outcome(error),
    }
}

/// What it means that the pool gave no connection. No statement was sent.
#[must_use]
pub fn pool_outcome(error: &PoolError) -> Outcome {
    match error {
        PoolError::Timeout(TimeoutType::Wait) | PoolError::Closed => {
            Outcome::of(Cause::CheckoutTimeout)
        }
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            Outcome::of(Cause::ConnectTimeout)
        }
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            postgres_connect_outcome(error)
        }
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(HookError::Message(_)) => {
            Outcome::of(Cause::BusinessError)
        }
    }
}

/// What an error means that came while a connection was being made. No statement was sent, so it
/// is *rejected* or *not processed*.
#[must_use]
pub fn postgres_connect_outcome(error: &Error) -> Outcome {
    Outcome::of(match error.code() {
        Some(code) => connect_cause(code.code()),
        None => connect_cause_without_code(error),
    })
}

fn connect_cause(code: &str) -> Cause {
    match (class_of(code), code) {
        (_, "57P05") => Cause::HandedBack,
        ("53" | "58", _) | (_, "57P01" | "57P02" | "57P03") => Cause::Unavailable,
        ("08", _) => Cause::ConnectFailed,
        _ => Cause::BusinessError,
    }
}

fn connect_cause_without_code(error: &Error) -> Cause {
    if error.is_closed() {
        return Cause::ConnectFailed;
    }
    match error.to_string().as_str() {
        TLS => return Cause::Tls,
        AUTHENTICATION | CONFIGURATION | CONNECTION_STRING => return Cause::BusinessError,
        _ => {}
    }
    match io_of(error) {
        Some(io) if io.kind() == io::ErrorKind::TimedOut => Cause::ConnectTimeout,
        Some(io) => match cause_of_io(io) {
            cause if cause.is_connect_error() => cause,
            _ => Cause::ConnectFailed,
        },
        None => Cause::ConnectFailed,
    }
}

/// What an error of a statement means, or of a transaction that is the whole attempt.
#[must_use]
pub fn postgres_outcome(error: &Error) -> Outcome {
    match error.code() {
        Some(code) => of_code(code.code()),
        None => Outcome::of(cause_without_code(error)),
    }
}

fn of_code(code: &str) -> Outcome {
    let is = |known: &SqlState| known.code() == code;
    if is(&SqlState::QUERY_CANCELED) {
        return Outcome::of(Cause::AttemptTimeout);
    }
    match (class_of(code), code) {
        (_, "40001" | "40P01" | "55P03" | "25P03") => Outcome::of(Cause::Conflict),
        (_, "25006") => Outcome::of(Cause::Unavailable),
        (_, "57P05") => Outcome::of(Cause::HandedBack),
        ("53", _) => Outcome::of(Cause::Unavailable).with_class(Class::Overloaded),
        // A commit may have been made before the session was ended.
        (_, "57P01" | "57P02" | "57P03") | ("58", _) => {
            Outcome::of(Cause::Unavailable).with_class(Class::Unknown)
        }
        (_, "08P01") => Outcome::of(Cause::Malformed),
        // 40003: the server itself does not know whether the statement was completed.
        ("08", _) | (_, "40003") => Outcome::of(Cause::Closed),
        _ => Outcome::of(Cause::BusinessError),
    }
}

fn cause_without_code(error: &Error) -> Cause {
    if error.is_closed() {
        return Cause::Closed;
    }
    match (error.to_string().as_str(), io_of(error)) {
        (UNEXPECTED, _) => Cause::Malformed,
        (IO | PARSE, Some(io)) => match cause_of_io(io) {
            // A keep-alive that was not answered.
            Cause::Unmatched if io.kind() == io::ErrorKind::TimedOut => Cause::Closed,
            // A value the protocol has no room for.
            Cause::Unmatched if io.kind() == io::ErrorKind::InvalidInput => Cause::Malformed,
            cause => cause,
        },
        // A parameter, a column or a row count: ours to mend, or an answer.
        _ => Cause::BusinessError,
    }
}

/// The first two characters of a SQLSTATE. Source: postgres-errcodes.
fn class_of(code: &str) -> &str {
    code.get(..2).unwrap_or_default()
}

fn io_of(error: &Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

// How tokio-postgres tells its kinds apart, which it does in no other way.
const IO: &str = "error communicating with the server";
const UNEXPECTED: &str = "unexpected message from server";
const PARSE: &str = "error parsing response from server";
const TLS: &str = "error performing TLS handshake";
const AUTHENTICATION: &str = "authentication error";
const CONFIGURATION: &str = "invalid configuration";
const CONNECTION_STRING: &str = "invalid connection string";
