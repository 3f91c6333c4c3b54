//! What users add to a client or a server: the policies of `seawall-policy`, driven.

mod attempt;
mod call;
mod client;
mod clock;
mod flight;
mod report;
mod stack;

pub use attempt::{AttemptContext, CallShared, CheckoutTimeout, Checkouts, ConnectTimeout, Upload};
pub use call::{Answer, Called};
pub use client::CallOptions;
pub use clock::{Clock, ThreadRng};
pub use flight::{Cancel, Finish, InFlight, OnAbandon};
pub use report::{Error, Report};
pub use seawall_policy::{
    AnswerSignals, BackoffOptions, BreakerMode, BreakerOptions, BudgetOptions, BulkheadOptions,
    Cause, Class, ConfigError, Jitter, Outcome, Ratio, RetryOptions, Safety, StackConfig,
    StackParams, StopReason,
};
pub use stack::{SlotGuard, Stack};
