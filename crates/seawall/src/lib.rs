//! Retries, budgets, breakers, bulkheads and deadlines around any call, in the right order.
//!
//! One [`Stack`] stands for one dependency. Its clones share one state; every way of calling
//! through it is driven by the same machine, and every decision is made in `seawall-policy`, which
//! reads no clock and does no I/O. This crate sends, sleeps and wakes.
//!
//! ```
//! # use seawall::{CallOptions, Cause, Outcome, Stack, StackConfig};
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let stack = Stack::new("inventory", &StackConfig::http())?;
//! let classify = |result: &Result<u32, std::io::Error>| match result {
//!     Ok(_) => Outcome::of(Cause::Answered),
//!     Err(_) => Outcome::of(Cause::Closed),
//! };
//! let report = stack.call(CallOptions::idempotent(), classify, async |_attempt| Ok(7)).await;
//! assert_eq!((report.result.unwrap(), report.attempts), (7, 1));
//! # Ok::<(), seawall::ConfigError>(()) }).unwrap();
//! ```
//!
//! # Four ways to call
//!
//! | for | use |
//! |---|---|
//! | any future | [`Stack::call`] |
//! | an HTTP request that must have one effect | [`Stack::operation`]: one key, the same bytes |
//! | a tower service | [`SeawallLayer`], and [`SealLayer`] right above the transport |
//! | a response whose body streams on, or calls that outlive their caller | [`Stack::drive`] |
//!
//! # The order
//!
//! Outside in, and not to be written otherwise: total deadline → retry (budget, backoff) →
//! breaker → rate → attempt timeout → bulkhead → checkout → connect → call. [`StackConfig`]
//! only says which of them exist. The attempt timeout covers all that is inside it; a slot is freed
//! by the real end of a call, not by its timeout. [`AttemptContext::checkout`] and
//! [`AttemptContext::connect`] put a pool's wait and a connection's making where they belong.
//!
//! # Presets
//!
//! | preset | connect | checkout | attempt | total |
//! |---|---|---|---|---|
//! | [`StackConfig::http`] | 200 ms | – | 800 ms | 2 s |
//! | [`StackConfig::redis`] | 100 ms | 100 ms | 200 ms | 600 ms |
//! | [`StackConfig::postgres`] | – | 500 ms | 3 s | 7 s |
//! | [`StackConfig::standard`] | – | – | – | – |
//!
//! All have two attempts (the first one counted), a budget of 10 % of the successes, a breaker at
//! 50 % failures of at least 20 calls in 10 s, and 25 calls in flight that wait at most 50 ms for a
//! slot.
//!
//! # What a result means
//!
//! The caller's rules turn a result into an [`Outcome`], and its [`Class`] decides: whether it is
//! tried again, what the breaker makes of it, and whether it pays into the budget are three
//! questions. A `422` is final and healthy; a refused connection is safe to repeat and a sign of
//! illness; a caller that left says nothing. [`HttpClassify`] holds the rules for HTTP,
//! [`GrpcClassify`] those for gRPC. An error
//! that no rule knows is *unknown*: it may have been executed, and is tried again only where that
//! is harmless ([`Safety`]).
//!
//! # Clients
//!
//! A client of its own kind throws errors of its own kind. A feature for each knows them, and
//! nothing else: what it means that Redis is loading, or that PostgreSQL undid a transaction.
//!
//! | feature | gives | for |
//! |---|---|---|
//! | `hyper` | `HyperErrors` | `hyper::Error`, hyper-util's client, anything that has one within |
//! | `reqwest` | `ReqwestErrors`, [`HttpClassify`] for its responses | reqwest 0.13 |
//! | `redis` | `classify_redis`, `redis_outcome` | redis 1 |
//! | `postgres` | `classify_postgres`, `postgres_outcome` and more | tokio-postgres 0.7, deadpool |
//! | `tonic` | `classify_tonic`, `tonic_outcome`, `tonic_request` | tonic 0.14 |
//!
//! Each has an example. A client's own retries have to go, or its attempts and the stack's
//! multiply; its pool has to have an end to its waits, and [`Stack::pool_warnings`] says where it
//! has none.
//!
//! # Why it stopped
//!
//! Every [`Report`] has the number of attempts sent, the last outcome and a [`StopReason`]:
//!
//! | reason | what to look at |
//! |---|---|
//! | answered | nothing |
//! | exhausted | all attempts were made |
//! | budget | more fails than the successes pay for: the dependency is in trouble |
//! | deadline | no time was left, or what was left could not have been enough |
//! | not retryable | the answer is final, or a second execution could do harm |
//! | told to stop | the other side said so, or asked for a wait longer than we would |
//! | not owner | another layer retries this path |
//! | retries off | an operator, or a breaker in that mode; see [`KillSwitch`] |
//! | body too large | the request was not kept to be sent again |
//! | breaker open, bulkhead full, checkout timeout | refused here, nothing was sent |
//! | rate limited, quota exceeded | refused here: the rate of all, or that of the call's key |
//! | caller left | the outcome was classified as the caller's departure |
//!
//! # Two at once
//!
//! With a [`HedgeOptions`] in its [`StackConfig`], a stack sends a second attempt beside one that
//! takes longer than nearly all others did, to another endpoint, if the call may be repeated and
//! the dependency is not busy. The first final answer counts; the other attempt is dropped. A hedge
//! is one of the `max_attempts`, is paid from the retry budget, and at most 2 % of the calls have
//! one. Off unless configured; `cargo run -p seawall --example hedge` shows what it brings and what
//! it costs.
//!
//! # In front of a server
//!
//! [`AdmissionLayer`] is for the other side: a tower layer before an axum router, a tonic service
//! or any other server. A limit finds out how much can be in flight; what is beyond it waits in a
//! queue by priority, tenant and deadline, and what cannot be served in time is told so at once.
//! `cargo run -p seawall --example server` shows what it brings.
//!
//! ```
//! # use seawall::{AdmissionLayer, GateOptions};
//! // Priorities, tenants and deadlines are believed only of callers that may state them.
//! let layer = AdmissionLayer::new(&GateOptions::default())?.trust_headers();
//! # Ok::<(), seawall::ConfigError>(())
//! ```
//!
//! # Credentials
//!
//! A stack with [`Credentials`] hands each attempt the one in force
//! ([`AttemptContext::credential`]). An answer of 401 (or of gRPC's `UNAUTHENTICATED`) has it
//! refreshed, once for all calls that were rejected, and each of them makes exactly one attempt
//! more, whatever its method. Without another credential in time, the 401 goes up. Off unless
//! [`Stack::with_credentials`] says so.
//!
//! # Who leaves when
//!
//! Dropping a call's future is its caller leaving, allowed at any point. What was never sent gives
//! everything back. What was sent may be executing: it is cancelled ([`Cancel`]) or runs on
//! ([`Finish`]), and holds its slot until its end or until it is given up.
//!
//! Everything here needs a tokio runtime with time. Nothing needs a background task; due work is
//! done by the next call, and [`Stack::housekeep`] does it sooner.

mod attempt;
mod call;
mod checkouts;
mod classify;
mod client;
mod clients;
mod clock;
mod credentials;
mod describe;
mod file_watch;
mod flight;
mod grpc;
mod layer;
mod operation;
mod pool;
mod report;
mod rules;
mod seal;
mod server;
mod stack;
mod switch;
#[cfg(test)]
mod testing;

pub use attempt::{AttemptContext, CallShared, CheckoutTimeout, ConnectTimeout, Upload};
pub use bytes;
pub use call::{Answer, Called};
pub use checkouts::Checkouts;
pub use classify::{Classify, ErrorCause, HttpClassify, Summary, TransportErrors};
pub use client::CallOptions;
#[cfg(feature = "hyper")]
pub use clients::hyper::HyperErrors;
#[cfg(feature = "postgres")]
pub use clients::postgres::{
    PostgresError, classify_postgres, pool_outcome, postgres_connect_outcome, postgres_outcome,
};
#[cfg(feature = "redis")]
pub use clients::redis::{classify_redis, redis_outcome};
#[cfg(feature = "reqwest")]
pub use clients::reqwest::ReqwestErrors;
#[cfg(feature = "tonic")]
pub use clients::tonic::{classify_tonic, tonic_outcome, tonic_request};
pub use clock::{Clock, ThreadRng};
pub use credentials::{Credential, Credentials, RefreshResult};
pub use describe::{CallDeadline, Describe, HttpDescribe};
pub use file_watch::{FileContent, FileWatch};
pub use flight::{Cancel, Finish, InFlight, OnAbandon};
pub use grpc::{GrpcClassify, GrpcStatusRead, is_grpc, read_grpc_status};
pub use http;
pub use layer::{SeawallFuture, SeawallLayer, SeawallService};
pub use operation::{FrozenOperation, FrozenRequest};
pub use pool::PoolTimes;
pub use report::{Error, Report};
pub use rules::{BodySeen, HeaderCondition, HeaderTest, HttpRule, HttpRules, Meaning, Ruled};
pub use seal::{Changed, Seal, SealBody, SealFuture, SealLayer, SealService};
pub use seawall_policy::{
    AdmissionOptions, AnswerSignals, Ask, BackoffOptions, BreakerMode, BreakerOptions,
    BudgetOptions, BulkheadOptions, Cause, Class, ConfigError, FinagleBudget, Gate, GateOptions,
    GateParams, GrpcCode, GrpcCodes, GrpcThrottle, HedgeDelay, HedgeOptions, Jitter,
    KeyedRateOptions, LimitOptions, LimitRule, Outcome, Priority, Problem, Purpose, RateKey,
    RateOptions, Ratio, RetryAfter, RetryOn, RetryOptions, Safety, ShedReason, StackConfig,
    StackParams, StopReason, SuccessBudget, Tenant, Timestamp,
};
pub use server::{
    AdmissionFuture, AdmissionLayer, AdmissionService, AdmittedBody, Asking, HttpAsking, ServerGate,
};
pub use stack::{SlotGuard, Stack};
pub use switch::{AuditEvent, AuditLine, Change, KillSwitch, Scope, SwitchedOff};

/// The Rust in the README, compiled like every other example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
