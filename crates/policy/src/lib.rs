//! The decisions of Seawall, and nothing else.
//!
//! No clock, no I/O, no source of entropy, no threads: time and randomness come in as arguments,
//! so the code that decides in production is the code that is tested under a simulated fleet.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod balance;
mod breaker;
mod error;
mod outcome;
mod ratio;
mod retry_after;
mod rng;
mod time;

pub use balance::choose;
pub use breaker::{
    Breaker, BreakerMode, BreakerOpen, BreakerOptions, BreakerParams, BreakerPermit, BreakerState,
    Transition, Trigger, WindowCounts,
};
pub use error::ConfigError;
pub use outcome::{AnswerSignals, Cause, Class, Outcome, Problem, Safety, Signal};
pub use ratio::Ratio;
pub use retry_after::RetryAfter;
pub use rng::{Rng, SplitMix64};
pub use time::{Timestamp, WallTime};
