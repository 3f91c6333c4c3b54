//! What users add to a client or a server: the policies of `seawall-policy`, driven.

mod attempt;
mod call;
mod classify;
mod client;
mod clock;
mod describe;
mod flight;
mod layer;
mod operation;
mod report;
mod seal;
mod stack;
#[cfg(test)]
mod testing;

pub use attempt::{AttemptContext, CallShared, CheckoutTimeout, Checkouts, ConnectTimeout, Upload};
pub use bytes;
pub use call::{Answer, Called};
pub use classify::{Classify, ErrorCause, HttpClassify, Summary, TransportErrors};
pub use client::CallOptions;
pub use clock::{Clock, ThreadRng};
pub use describe::{CallDeadline, Describe, HttpDescribe};
pub use flight::{Cancel, Finish, InFlight, OnAbandon};
pub use http;
pub use layer::{SeawallFuture, SeawallLayer, SeawallService};
pub use operation::{FrozenOperation, FrozenRequest};
pub use report::{Error, Report};
pub use seal::{Changed, Seal, SealBody, SealFuture, SealLayer, SealService};
pub use seawall_policy::{
    AnswerSignals, BackoffOptions, BreakerMode, BreakerOptions, BudgetOptions, BulkheadOptions,
    Cause, Class, ConfigError, Jitter, Outcome, Problem, Ratio, RetryAfter, RetryOptions, Safety,
    StackConfig, StackParams, StopReason, Timestamp,
};
pub use stack::{SlotGuard, Stack};
