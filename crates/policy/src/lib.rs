//! The decisions of Seawall, and nothing else.
//!
//! No clock, no I/O, no source of entropy, no threads: time and randomness come in as arguments,
//! so the code that decides in production is the code that is tested under a simulated fleet.
//!
//! Faults found in respected libraries of this kind, and the test that shows we do not have each
//! (`house` is `tests/house.rs`):
//!
//! | fault | test |
//! |---|---|
//! | a retry ratio of 60 % is realised as 100 % | `ratio`: `a_ratio_is_realised_as_written`; `budget`: `every_ratio_is_realised_exactly_below_the_cap` |
//! | a cloned generator replays one jitter in every session | `stack`: `calls_that_begin_together_draw_different_jitter_from_one_generator` |
//! | one end of a generator's range trips an assertion | `rng`, `balance`: `both_ends_of_the_generators_range_are_legal` |
//! | errors erased to a box; a getter panics when undecided | house: `the_core_is_no_std_and_reaches_no_clock_entropy_thread_or_hash_order`; `outcome`: `every_status_falls_into_its_class` |
//! | tests run other arithmetic than production | house: `tests_run_the_shipped_code` |
//! | bands so wide that they assert nothing | `stack`: `in_a_storm_…`, exact numbers on virtual time |
//! | documentation and validator differ about an interval's end | `budget`, `backoff`: `options_that_can_never_take_effect_are_refused`; `stack`: `a_limit_equal_to_the_one_around_it_is_allowed` |
//! | half-open admits everyone | `breaker`: `half_open_admits_five_probes_then_rejects`, `admitted_probes_never_exceed_the_limit` |
//! | a mock clock in a thread-local; a clock read at each call | house: `the_core_is_no_std_and_reaches_no_clock_entropy_thread_or_hash_order` |
//! | a token bucket of floats on the wall clock | the same; `budget`: `frequent_use_loses_no_fraction_of_the_reserve` |
//! | a wall clock that steps back freezes a window | `breaker`: `a_clock_step_back_neither_empties_the_window_nor_freezes_it` |
//! | simulations random unless told otherwise | `stack`: `whatever_happens_nothing_leaks_and_equal_seeds_give_equal_logs` |
//! | half-open stuck, permits leaked on cancel | `stack`: `a_permit_dropped_unsent_gives_its_probe_back`, `probes_that_say_nothing_come_back_too` |
//! | late results cross a change of state | `breaker`: `late_results_of_an_older_generation_change_nothing` |
//! | a change of configuration drops state | `stack`: `a_breaker_switched_off_and_on_keeps_its_window_and_gets_its_probes_back` |
//! | waiting retries are not counted | `stack`: `waiting_retries_have_paid_and_a_caller_who_leaves_gets_it_back` |
//! | own rejections keep a breaker open | `stack`: `a_full_bulkhead_and_a_pool_without_connections_never_open_the_breaker` |
//! | at 50 %, two of three endpoints are ejected; a lone one is ejected | `outlier`: `at_most_the_set_share_is_out_the_worst_first_and_the_last_stays` |
//! | an endpoint that fails at once counts as the fastest | `stack`: `an_endpoint_that_fails_fast_is_the_favourite_by_calls_in_flight_and_not_by_peak_ewma` |
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod backoff;
mod balance;
mod breaker;
mod budget;
mod bulkhead;
mod deadline;
mod door;
mod error;
mod estimate;
mod gate;
mod grpc;
mod hedge;
mod limit;
mod outcome;
mod outlier;
mod rate;
mod ratio;
mod retry;
mod retry_after;
mod retry_on;
mod retry_share;
mod rng;
mod siphash;
mod slots;
mod spread;
mod stack;
mod time;
pub mod units;
mod utilisation;

pub use admission::{
    AdmissionCounters, AdmissionOptions, AdmissionParams, AdmissionQueue, Ask, Entered, Priority,
    Shed, ShedReason, Tenant, TopTenant, Turn, tenant_rank,
};
pub use backoff::{Backoff, BackoffOptions, Jitter};
pub use balance::{Balance, LoadEstimate, SlowStartOptions, SlowStartParams, choose};
pub use breaker::{
    Breaker, BreakerMode, BreakerOpen, BreakerOptions, BreakerParams, BreakerPermit, BreakerState,
    Transition, Trigger, WindowCounts,
};
pub use budget::{Budget, BudgetOptions, BudgetParams, FinagleBudget, GrpcThrottle, SuccessBudget};
pub use bulkhead::{Admission, Bulkhead, BulkheadOptions, BulkheadParams, Claim, Ticket};
pub use deadline::{ReturnPath, parse_remaining, remaining_to_send};
pub use door::{AddressOptions, Door, DoorOptions, DoorParams, DoorRefusal, Entrance, Farewell};
pub use error::ConfigError;
pub use estimate::{Fit, ScoutPass, ServiceTimes};
pub use gate::{Gate, GateEntry, GateOptions, GateParams, GateTurn};
pub use grpc::{GrpcCode, GrpcCodes, grpc_timeout_to_send, parse_grpc_timeout, parse_pushback};
pub use hedge::{HedgeDelay, HedgeOptions, HedgeParams, HedgeRefusal};
pub use limit::{
    Limit, LimitOptions, LimitOutcome, LimitParams, LimitPermit, LimitRule, LimitSample,
    Partitions, PartitionsParams,
};
pub use outcome::{AnswerSignals, Cause, Class, Outcome, Problem, Safety, Signal};
pub use outlier::{
    Conduct, EjectionReason, Judged, OutlierOptions, OutlierParams, OutlierPermit, Outliers,
    Verdict,
};
pub use rate::{
    KeyedRate, KeyedRateOptions, KeyedRateParams, Rate, RateExceeded, RateKey, RateOptions,
    RateParams,
};
pub use ratio::Ratio;
pub use retry::{Decision, Facts, RetryOptions, RetryParams, StopReason, decide};
pub use retry_after::{
    RetryAfter, parse_http_date, passed_on as retry_after_passed_on, wait as retry_after_wait,
};
pub use retry_on::RetryOn;
pub use retry_share::{RetryShare, RetryShareOptions, RetryShareParams};
pub use rng::{Rng, SplitMix64};
pub use siphash::SealKey;
pub use slots::{Came, Entry, Slot, SlotCounts, SlotToken, Slots, SlotsOptions, SlotsParams};
pub use spread::{Spread, SpreadOptions, SpreadParams, come_again};
pub use stack::{
    Admitted, Attempt, Avoid, Call, Counters, Dependency, Done, EndpointView, Event, HeldCall, Hop,
    LaneView, LoggedTransition, LoggedVerdict, Operation, Permit, Purpose, Rejection, Reshaped,
    StackConfig, StackParams, Standing, Step, worst_case_attempts, worst_case_time,
};
pub use time::{Timestamp, WallTime};
