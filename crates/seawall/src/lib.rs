//! What users add to a client or a server: the policies of `seawall-policy`, driven.

mod attempt;
mod call;
mod client;
mod clock;
mod report;
mod stack;

pub use attempt::{AttemptContext, CallShared, CheckoutTimeout, Checkouts, Upload};
pub use call::{Answer, Called, Cancel, Finish, InFlight, OnAbandon};
pub use client::CallOptions;
pub use clock::{Clock, ThreadRng};
pub use report::{Error, Report};
pub use seawall_policy::{
    AnswerSignals, BackoffOptions, BreakerMode, BreakerOptions, BudgetOptions, BulkheadOptions,
    Cause, Class, ConfigError, Jitter, Outcome, Ratio, RetryOptions, Safety, StackConfig,
    StackParams, StopReason,
};
pub use stack::{SlotGuard, Stack};
