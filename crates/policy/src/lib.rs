//! The decisions of Seawall, and nothing else.
//!
//! No clock, no I/O, no source of entropy, no threads: time and randomness come in as arguments,
//! so the code that decides in production is the code that is tested under a simulated fleet.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod backoff;
mod balance;
mod breaker;
mod budget;
mod bulkhead;
mod deadline;
mod error;
mod estimate;
mod outcome;
mod ratio;
mod retry;
mod retry_after;
mod rng;
mod stack;
mod time;

pub use backoff::{Backoff, BackoffOptions, Jitter};
pub use balance::choose;
pub use breaker::{
    Breaker, BreakerMode, BreakerOpen, BreakerOptions, BreakerParams, BreakerPermit, BreakerState,
    Transition, Trigger, WindowCounts,
};
pub use budget::{Budget, BudgetOptions, BudgetParams};
pub use bulkhead::{Admission, Bulkhead, BulkheadOptions, BulkheadParams, Claim, HeldSlot, Ticket};
pub use deadline::{ReturnPath, parse_remaining, remaining_to_send};
pub use error::ConfigError;
pub use estimate::{Fit, ScoutPass, ServiceTimes};
pub use outcome::{AnswerSignals, Cause, Class, Outcome, Problem, Safety, Signal};
pub use ratio::Ratio;
pub use retry::{Decision, Facts, RetryOptions, RetryParams, StopReason, decide};
pub use retry_after::{
    RetryAfter, parse_http_date, passed_on as retry_after_passed_on, wait as retry_after_wait,
};
pub use rng::{Rng, SplitMix64};
pub use stack::{
    Admitted, Attempt, Call, Counters, Dependency, Done, EndpointView, Event, HeldCall, Hop,
    LaneView, LoggedTransition, Operation, Permit, Rejection, StackConfig, StackParams, Step,
    worst_case_attempts,
};
pub use time::{Timestamp, WallTime};
