//! Decides what follows an ended attempt: another one after a delay, another endpoint at once, or
//! a stop with its reason.
//!
//! A retry is load, and it comes when the dependency can bear it least. So a retry must be safe
//! (the class and the method's safety), wanted (nobody said stop), ours (one owner per path),
//! affordable (the budget, asked last because asking pays) and useful (it fits the deadline).
//! Whatever forbids it first names the stop.
//!
//! | option | default | source |
//! |---|---|---|
//! | `max_attempts` | 2, counting the first call | seawall-design |
//! | `backoff` | full jitter over min(5 s, 100 ms · 2ⁿ) | aws-backoff |
//! | `redispatches` | 2, outside attempts and budget | grpc-a6 |
//! | `retry_after_max` | 60 s; more is handed up | azcore |
//! | `on` | what the class says | seawall-design |

mod refresh;

use core::time::Duration;

use crate::backoff::{Backoff, BackoffOptions};
use crate::error::ConfigError;
use crate::grpc::GrpcCode;
use crate::outcome::{Cause, Class, Outcome, Safety};
use crate::retry_after::{self, RetryAfter};
use crate::retry_on::{Listed, RetryOn};
use crate::rng::Rng;

/// How often, and how, a call may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// Attempts in all, counting the first; 1..=10, default 2. 1 turns retries off.
    pub max_attempts: u32,
    /// The wait before a retry.
    pub backoff: BackoffOptions,
    /// Other endpoints tried at once after one that never took the request; 0..=10, default 2.
    pub redispatches: u32,
    /// The longest Retry-After that is waited for; default 60 s. A longer one stops the call and
    /// is handed up. Zero: never wait for one.
    pub retry_after_max: Duration,
    /// Whether an upstream's stop signal is obeyed; default true. False makes every layer of a
    /// chain multiply the attempts of the one below it.
    pub honour_stop: bool,
    /// Which outcomes are tried again; default: what their class says.
    pub on: RetryOn,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_attempts: MAX_ATTEMPTS,
            backoff: BackoffOptions::default(),
            redispatches: REDISPATCHES,
            retry_after_max: RETRY_AFTER_MAX,
            honour_stop: true,
            on: RetryOn::default(),
        }
    }
}

/// Checked [`RetryOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryParams {
    options: RetryOptions,
    backoff: Backoff,
}

impl RetryParams {
    /// Checks the options.
    ///
    /// # Errors
    /// `max_attempts` outside 1..=10, `redispatches` above 10, or a backoff that refuses.
    pub fn new(options: RetryOptions) -> Result<Self, ConfigError> {
        if !(1..=MOST_ATTEMPTS).contains(&options.max_attempts) {
            return Err(ConfigError::new(
                "max_attempts",
                options.max_attempts,
                "a number from 1 to 10; it counts the first call",
            ));
        }
        if options.redispatches > MOST_ATTEMPTS {
            let allowed = "a number from 0 to 10";
            return Err(ConfigError::new("redispatches", options.redispatches, allowed));
        }
        let backoff = Backoff::new(options.backoff).map_err(|refused| refused.under("backoff"))?;
        Ok(Self { options, backoff })
    }

    /// Attempts in all, counting the first.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.options.max_attempts
    }

    /// The options that were checked.
    #[must_use]
    pub const fn options(&self) -> &RetryOptions {
        &self.options
    }

    /// Whether an upstream's stop signal is obeyed.
    #[must_use]
    pub const fn honour_stop(&self) -> bool {
        self.options.honour_stop
    }

    /// The longest all waits together can be, without a Retry-After.
    #[must_use]
    pub fn longest_backoff(&self) -> Duration {
        (0..self.options.max_attempts - 1)
            .fold(Duration::ZERO, |sum, n| sum.saturating_add(self.backoff.longest(n)))
    }
}

/// Why a call ended. Each is a value, a metric label and a log field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It was answered; nothing had to stop it.
    Answered,
    /// All attempts were made.
    Exhausted,
    /// The retry budget is empty.
    Budget,
    /// The deadline passed, or nothing more fits before it.
    Deadline,
    /// The outcome is final, or a second execution could do harm.
    NotRetryable,
    /// The server said that nobody should try again, or asked to wait longer than we would.
    ToldToStop,
    /// Another layer owns the retries of this path.
    NotOwner,
    /// Retries are switched off.
    RetriesOff,
    /// The request body was not kept, so it cannot be sent again.
    BodyTooLarge,
    /// The breaker is open.
    BreakerOpen,
    /// More would have been sent than the rate allows.
    RateLimited,
    /// The call's key has used up its own rate.
    QuotaExceeded,
    /// The bulkhead is full.
    BulkheadFull,
    /// No connection was to be had in time.
    CheckoutTimeout,
    /// The caller left.
    CallerLeft,
}

impl StopReason {
    /// Every reason, for tables of metrics.
    pub const ALL: [Self; 15] = [
        Self::Answered,
        Self::Exhausted,
        Self::Budget,
        Self::Deadline,
        Self::NotRetryable,
        Self::ToldToStop,
        Self::NotOwner,
        Self::RetriesOff,
        Self::BodyTooLarge,
        Self::BreakerOpen,
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::BulkheadFull,
        Self::CheckoutTimeout,
        Self::CallerLeft,
    ];

    /// Its place in [`StopReason::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The label used in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Exhausted => "exhausted",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::NotRetryable => "not_retryable",
            Self::ToldToStop => "told_to_stop",
            Self::NotOwner => "not_owner",
            Self::RetriesOff => "retries_off",
            Self::BodyTooLarge => "body_too_large",
            Self::BreakerOpen => "breaker_open",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::BulkheadFull => "bulkhead_full",
            Self::CheckoutTimeout => "checkout_timeout",
            Self::CallerLeft => "caller_left",
        }
    }

    /// Whether an owner of the retries that stopped for this reason should tell the layers above
    /// not to retry: it gave up, or the request may have been executed. Never where only this hop
    /// is full, never where a layer above may still hold the body, and never for a plain answer,
    /// which is final by its class.
    #[must_use]
    pub const fn says_stop(self, outcome: &Outcome) -> bool {
        match self {
            Self::Exhausted
            | Self::Budget
            | Self::Deadline
            | Self::ToldToStop
            | Self::RetriesOff
            | Self::BreakerOpen => true,
            Self::NotRetryable => matches!(outcome.class(), Class::Unknown),
            Self::Answered
            | Self::NotOwner
            | Self::BodyTooLarge
            | Self::RateLimited
            | Self::QuotaExceeded
            | Self::BulkheadFull
            | Self::CheckoutTimeout
            | Self::CallerLeft => false,
        }
    }
}

/// What follows an ended attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Another attempt, this much later; the budget has still to be asked.
    RetryAfter(Duration),
    /// Another endpoint, at once, outside attempts and budget: nothing was sent.
    Redispatch,
    /// The credential first, and then another attempt at once, outside attempts and budget.
    Refresh,
    /// The end.
    Stop(StopReason),
}

/// What is known when an attempt has ended.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Attempts made so far, at least 1.
    pub attempts: u32,
    /// Those of them since the backoff last began: all, or those after the latest pushback.
    pub backoff_steps: u32,
    /// Redispatches made so far.
    pub redispatches: u32,
    /// Whether an endpoint that was not tried in this call would admit it.
    pub other_endpoint: bool,
    /// Whether a second execution is harmless.
    pub safety: Safety,
    /// Whether this layer owns the retries of the path.
    pub owner: bool,
    /// Whether retries are switched on.
    pub retries_on: bool,
    /// Whether the request can be sent again, byte for byte.
    pub replayable: bool,
    /// Whether the call carries a credential that can be refreshed, and has not been yet.
    pub may_refresh: bool,
    /// Time left until the deadline.
    pub remaining: Duration,
    /// The wait before this attempt; zero before the first.
    pub previous_delay: Duration,
}

/// Decides what follows `outcome`. `params` is nothing where the chain has no retries.
pub fn decide(
    params: Option<&RetryParams>,
    outcome: &Outcome,
    facts: &Facts,
    rng: &mut impl Rng,
) -> Decision {
    if let Some(reason) = final_by_class(outcome) {
        return Decision::Stop(reason);
    }
    let redispatches = params.map_or(REDISPATCHES, |params| params.options.redispatches);
    if may_redispatch(outcome.cause(), facts) && facts.redispatches < redispatches {
        return Decision::Redispatch;
    }
    if refresh::wanted(params, outcome, facts) {
        return Decision::Refresh;
    }
    if let Some(reason) = forbidden(params, outcome, facts) {
        return Decision::Stop(reason);
    }
    let Some(params) = params else { return Decision::Stop(StopReason::Exhausted) };
    match delay(params, outcome.retry_after(), facts, rng) {
        Ok(delay) if delay < facts.remaining => Decision::RetryAfter(delay),
        Ok(_) => Decision::Stop(StopReason::Deadline),
        Err(reason) => Decision::Stop(reason),
    }
}

/// The reason of an outcome after which nothing is sent, whatever the options.
pub(crate) fn final_by_class(outcome: &Outcome) -> Option<StopReason> {
    match (outcome.class(), outcome.cause()) {
        (Class::Success, _) => Some(StopReason::Answered),
        (Class::Cancelled, _) => Some(StopReason::CallerLeft),
        (_, Cause::DeadlineCut | Cause::DeadlinePassed) => Some(StopReason::Deadline),
        (Class::RefusedHere, Cause::BreakerOpen) => Some(StopReason::BreakerOpen),
        (Class::RefusedHere, Cause::RateLimited) => Some(StopReason::RateLimited),
        (Class::RefusedHere, Cause::QuotaExceeded) => Some(StopReason::QuotaExceeded),
        (Class::RefusedHere, Cause::CheckoutTimeout) => Some(StopReason::CheckoutTimeout),
        (Class::RefusedHere, _) => Some(StopReason::BulkheadFull),
        _ => None,
    }
}

/// Whether the request, never having left, may go elsewhere at once. A message handed back came
/// off a connection that had closed while idle, so the same endpoint will do.
fn may_redispatch(cause: Cause, facts: &Facts) -> bool {
    let elsewhere = cause.is_connect_error() && facts.other_endpoint;
    (elsewhere || cause == Cause::HandedBack) && facts.replayable && !facts.remaining.is_zero()
}

/// The first thing that forbids a retry, short of its delay and its price.
fn forbidden(params: Option<&RetryParams>, outcome: &Outcome, facts: &Facts) -> Option<StopReason> {
    let on = params.map_or_else(RetryOn::default, |params| params.options.on);
    if !outcome.is_declared_retryable() && !is_listed(on, outcome, facts.safety) {
        return Some(StopReason::NotRetryable);
    }
    if outcome.says_stop() && params.is_none_or(RetryParams::honour_stop) {
        return Some(StopReason::ToldToStop);
    }
    if !facts.owner {
        return Some(StopReason::NotOwner);
    }
    if !facts.retries_on {
        return Some(StopReason::RetriesOff);
    }
    if params.is_none_or(|params| facts.attempts >= params.options.max_attempts) {
        return Some(StopReason::Exhausted);
    }
    (!facts.replayable).then_some(StopReason::BodyTooLarge)
}

/// Whether the outcome is one that is tried again here.
fn is_listed(on: RetryOn, outcome: &Outcome, safety: Safety) -> bool {
    match on.says(outcome) {
        Listed::ByClass => is_retryable(outcome, safety),
        Listed::ByStatus => is_retryable(outcome, safety) || safety.may_repeat(),
        Listed::No => false,
    }
}

/// Whether the class, the cause and the method's safety together allow a second attempt.
fn is_retryable(outcome: &Outcome, safety: Safety) -> bool {
    match (outcome.class(), outcome.cause()) {
        (Class::NotProcessed, _) | (Class::Overloaded, Cause::Status(429)) => true,
        (Class::Overloaded | Class::Unknown, _) => safety.may_repeat(),
        (Class::Rejected, Cause::Status(409)) => {
            let asked = matches!(outcome.retry_after(), RetryAfter::Wait(_) | RetryAfter::Slot(_));
            safety == Safety::Keyed && asked
        }
        (Class::Rejected, Cause::Grpc(GrpcCode::Aborted)) => {
            safety == Safety::Keyed && matches!(outcome.retry_after(), RetryAfter::Pushback(_))
        }
        _ => false,
    }
}

/// The wait before the next attempt. Jitter above a Retry-After, never below it; a reserved slot
/// exactly; after an unusable one at least the backoff's floor.
fn delay(
    params: &RetryParams,
    asked: RetryAfter,
    facts: &Facts,
    rng: &mut impl Rng,
) -> Result<Duration, StopReason> {
    let backoff = &params.backoff;
    let n = facts.backoff_steps.saturating_sub(1);
    match asked {
        RetryAfter::Slot(wait) | RetryAfter::Pushback(wait) => Ok(wait),
        RetryAfter::Wait(wait) if wait > params.options.retry_after_max => {
            Err(StopReason::ToldToStop)
        }
        RetryAfter::Wait(wait) if wait >= facts.remaining => Err(StopReason::Deadline),
        RetryAfter::Wait(wait) => Ok(retry_after::wait(wait, rng)),
        RetryAfter::Unusable => {
            Ok(backoff.delay(n, facts.previous_delay, rng).max(backoff.floor()))
        }
        RetryAfter::Absent => Ok(backoff.delay(n, facts.previous_delay, rng)),
    }
}

/// Source: seawall-design. Differs: the field's median is 3 to 4; with a budget the second
/// attempt gains nearly all there is to gain.
const MAX_ATTEMPTS: u32 = 2;
/// Source: grpc-a6 (transparent retries). Differs: bounded, and two because a rolling restart can
/// have two endpoints down.
const REDISPATCHES: u32 = 2;
/// Source: azcore (stops above 60 s).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// More attempts than this are a loop, not a retry. Source: seawall-design.
const MOST_ATTEMPTS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::AnswerSignals;
    use crate::rng::SplitMix64;

    const FACTS: Facts = Facts {
        attempts: 1,
        backoff_steps: 1,
        redispatches: 0,
        other_endpoint: false,
        safety: Safety::Idempotent,
        owner: true,
        retries_on: true,
        replayable: true,
        may_refresh: false,
        remaining: Duration::from_secs(25),
        previous_delay: Duration::ZERO,
    };

    fn check(outcome: Outcome, facts: Facts) -> Decision {
        let params = RetryParams::new(RetryOptions::default()).unwrap();
        decide(Some(&params), &outcome, &facts, &mut SplitMix64::new(1))
    }

    fn status(status: u16) -> Outcome {
        Outcome::of_status(status, AnswerSignals::default())
    }

    fn asking(status: u16, retry_after: RetryAfter) -> Outcome {
        Outcome::of_status(status, AnswerSignals { retry_after, ..Default::default() })
    }

    const fn stop(reason: StopReason) -> Decision {
        Decision::Stop(reason)
    }

    fn retries(decision: Decision) -> bool {
        matches!(decision, Decision::RetryAfter(_))
    }

    #[test]
    fn answers_are_final_but_for_429_502_503_504() {
        for code in (200..600).filter(|code| ![429, 502, 503, 504].contains(code)) {
            for safety in [Safety::Idempotent, Safety::Keyed, Safety::Unsafe] {
                let decision = check(status(code), Facts { safety, ..FACTS });
                let reason =
                    if code < 400 { StopReason::Answered } else { StopReason::NotRetryable };
                assert_eq!(decision, stop(reason), "{code} {safety:?}");
            }
        }
    }

    #[test]
    fn an_unsafe_method_is_retried_only_where_nothing_was_done() {
        let facts = Facts { safety: Safety::Unsafe, ..FACTS };
        for cause in [Cause::AttemptTimeout, Cause::Closed, Cause::Reset, Cause::Unmatched] {
            assert_eq!(check(Outcome::of(cause), facts), stop(StopReason::NotRetryable));
        }
        for code in [502, 503, 504] {
            assert_eq!(check(status(code), facts), stop(StopReason::NotRetryable), "{code}");
        }
        for cause in [Cause::ConnectRefused, Cause::Dns, Cause::RefusedStream, Cause::GoAway] {
            assert!(retries(check(Outcome::of(cause), facts)), "{cause:?}");
        }
        assert!(retries(check(status(429), facts)));
    }

    #[test]
    fn an_idempotent_or_keyed_request_is_retried_where_the_outcome_is_unknown() {
        for safety in [Safety::Idempotent, Safety::Keyed] {
            let facts = Facts { safety, ..FACTS };
            for code in [429, 502, 503, 504] {
                assert!(retries(check(status(code), facts)), "{code}");
            }
            assert!(retries(check(Outcome::of(Cause::Closed), facts)));
        }
    }

    #[test]
    fn a_409_that_asks_to_wait_is_retried_only_with_a_key() {
        let conflict = asking(409, RetryAfter::Wait(Duration::from_secs(1)));
        assert!(retries(check(conflict, Facts { safety: Safety::Keyed, ..FACTS })));
        assert_eq!(check(conflict, FACTS), stop(StopReason::NotRetryable));
        let vague = asking(409, RetryAfter::Unusable);
        let keyed = Facts { safety: Safety::Keyed, ..FACTS };
        assert_eq!(check(vague, keyed), stop(StopReason::NotRetryable));
    }

    #[test]
    fn a_list_narrows_what_is_retried_and_adds_a_status_where_repeating_is_harmless() {
        let on = RetryOn::only(&[Class::NotProcessed], &[500, 429]).unwrap();
        let params = RetryParams::new(RetryOptions { on, ..RetryOptions::default() }).unwrap();
        let tried = |outcome, safety| {
            let facts = Facts { safety, ..FACTS };
            retries(decide(Some(&params), &outcome, &facts, &mut SplitMix64::new(1)))
        };
        for safety in [Safety::Idempotent, Safety::Keyed, Safety::Unsafe] {
            assert_eq!(tried(status(500), safety), safety != Safety::Unsafe, "{safety:?}");
            assert!(tried(status(429), safety), "as without a list");
            assert!(tried(Outcome::of(Cause::RefusedStream), safety));
            assert!(!tried(status(503), safety) && !tried(Outcome::of(Cause::Closed), safety));
            assert!(!tried(status(404), safety));
        }
    }

    #[test]
    fn refusals_of_our_own_end_the_call_under_their_name() {
        for (cause, reason) in [
            (Cause::BreakerOpen, StopReason::BreakerOpen),
            (Cause::RateLimited, StopReason::RateLimited),
            (Cause::QuotaExceeded, StopReason::QuotaExceeded),
            (Cause::BulkheadFull, StopReason::BulkheadFull),
            (Cause::StreamsFull, StopReason::BulkheadFull),
            (Cause::CheckoutTimeout, StopReason::CheckoutTimeout),
            (Cause::DeadlinePassed, StopReason::Deadline),
            (Cause::DeadlineCut, StopReason::Deadline),
            (Cause::CallerLeft, StopReason::CallerLeft),
        ] {
            assert_eq!(check(Outcome::of(cause), FACTS), stop(reason), "{cause:?}");
        }
    }

    #[test]
    fn what_forbids_a_retry_names_the_stop() {
        let unavailable = status(503);
        let told = Outcome::of_status(503, AnswerSignals { stop: true, ..Default::default() });
        assert_eq!(check(told, FACTS), stop(StopReason::ToldToStop));
        for (facts, reason) in [
            (Facts { owner: false, ..FACTS }, StopReason::NotOwner),
            (Facts { retries_on: false, ..FACTS }, StopReason::RetriesOff),
            (Facts { attempts: 2, ..FACTS }, StopReason::Exhausted),
            (Facts { replayable: false, ..FACTS }, StopReason::BodyTooLarge),
            (Facts { remaining: Duration::ZERO, ..FACTS }, StopReason::Deadline),
        ] {
            assert_eq!(check(unavailable, facts), stop(reason));
        }
    }

    #[test]
    fn a_refused_connection_goes_to_another_endpoint_twice_and_then_costs_an_attempt() {
        let refused = Outcome::of(Cause::ConnectRefused);
        let facts = Facts { other_endpoint: true, safety: Safety::Unsafe, ..FACTS };
        assert_eq!(check(refused, facts), Decision::Redispatch);
        assert_eq!(check(refused, Facts { redispatches: 1, ..facts }), Decision::Redispatch);
        assert!(retries(check(refused, Facts { redispatches: 2, ..facts })));
        assert!(retries(check(refused, Facts { other_endpoint: false, ..facts })));
    }

    #[test]
    fn a_message_handed_back_may_go_to_the_same_endpoint_at_once() {
        assert_eq!(check(Outcome::of(Cause::HandedBack), FACTS), Decision::Redispatch);
        let spent = Facts { redispatches: 2, ..FACTS };
        assert!(retries(check(Outcome::of(Cause::HandedBack), spent)));
    }

    #[test]
    fn a_rejected_credential_is_refreshed_once_whatever_the_method_and_whoever_owns_the_retries() {
        let may = Facts { may_refresh: true, ..FACTS };
        let rejected =
            [status(401), Outcome::of_grpc(GrpcCode::Unauthenticated, AnswerSignals::default())];
        for outcome in rejected {
            for safety in [Safety::Idempotent, Safety::Keyed, Safety::Unsafe] {
                for (attempts, owner) in [(1, true), (2, false), (9, true)] {
                    let facts = Facts { safety, attempts, owner, ..may };
                    assert_eq!(check(outcome, facts), Decision::Refresh, "{facts:?}");
                }
            }
            for facts in [
                FACTS,
                Facts { retries_on: false, ..may },
                Facts { replayable: false, ..may },
                Facts { remaining: Duration::ZERO, ..may },
            ] {
                assert_eq!(check(outcome, facts), stop(StopReason::NotRetryable), "{facts:?}");
            }
            assert_eq!(decide(None, &outcome, &may, &mut SplitMix64::new(1)), Decision::Refresh);
        }
        for outcome in [status(403), status(407), status(401).with_class(Class::Unknown)] {
            assert_ne!(check(outcome, may), Decision::Refresh);
        }
        let told = Outcome::of_status(401, AnswerSignals { stop: true, ..Default::default() });
        assert_eq!(check(told, may), stop(StopReason::NotRetryable));
    }

    #[test]
    fn redispatch_works_without_any_retries_configured() {
        let facts = Facts { other_endpoint: true, ..FACTS };
        let mut rng = SplitMix64::new(1);
        let refused = Outcome::of(Cause::ConnectRefused);
        assert_eq!(decide(None, &refused, &facts, &mut rng), Decision::Redispatch);
        assert_eq!(decide(None, &status(503), &facts, &mut rng), stop(StopReason::Exhausted));
    }

    #[test]
    fn a_retry_after_is_a_floor_a_slot_is_exact_and_more_than_we_wait_stops() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let params = RetryParams::new(RetryOptions::default()).unwrap();
            let wait = Duration::from_secs(2);
            let asked = asking(503, RetryAfter::Wait(wait));
            let Decision::RetryAfter(delay) = decide(Some(&params), &asked, &FACTS, &mut rng)
            else {
                panic!("a wait that fits is waited for");
            };
            assert!((wait..=wait + Duration::from_secs(1)).contains(&delay), "{delay:?}");
        }
        let slot = RetryAfter::Slot(Duration::from_millis(1234));
        assert_eq!(
            check(asking(503, slot), FACTS),
            Decision::RetryAfter(Duration::from_millis(1234))
        );
        let long = RetryAfter::Wait(Duration::from_secs(61));
        let patient = Facts { remaining: Duration::from_secs(600), ..FACTS };
        assert_eq!(check(asking(503, long), patient), stop(StopReason::ToldToStop));
        let late = RetryAfter::Wait(Duration::from_secs(25));
        assert_eq!(check(asking(503, late), FACTS), stop(StopReason::Deadline));
    }

    #[test]
    fn an_unusable_retry_after_never_means_at_once() {
        for seed in 0..200 {
            let params = RetryParams::new(RetryOptions::default()).unwrap();
            let outcome = asking(503, RetryAfter::Unusable);
            let mut rng = SplitMix64::new(seed);
            let decision = decide(Some(&params), &outcome, &FACTS, &mut rng);
            let Decision::RetryAfter(delay) = decision else { panic!("{decision:?}") };
            assert!(delay >= Duration::from_millis(50) && delay <= Duration::from_millis(100));
        }
    }

    #[test]
    fn stop_is_said_where_this_hop_gave_up_and_never_where_it_is_only_full() {
        let unavailable = status(503);
        for reason in StopReason::ALL {
            let expected = match reason {
                StopReason::Exhausted
                | StopReason::Budget
                | StopReason::Deadline
                | StopReason::ToldToStop
                | StopReason::RetriesOff
                | StopReason::BreakerOpen => true,
                StopReason::Answered
                | StopReason::BodyTooLarge
                | StopReason::NotRetryable
                | StopReason::NotOwner
                | StopReason::RateLimited
                | StopReason::QuotaExceeded
                | StopReason::BulkheadFull
                | StopReason::CheckoutTimeout
                | StopReason::CallerLeft => false,
            };
            assert_eq!(reason.says_stop(&unavailable), expected, "{reason:?}");
        }
        assert!(StopReason::NotRetryable.says_stop(&Outcome::of(Cause::Closed)), "maybe sent");
    }

    #[test]
    fn every_reason_stands_at_its_index() {
        for (index, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        for (max_attempts, redispatches, field) in
            [(0, 2, "max_attempts"), (11, 2, "max_attempts"), (2, 11, "redispatches")]
        {
            let options = RetryOptions { max_attempts, redispatches, ..Default::default() };
            assert_eq!(RetryParams::new(options).unwrap_err().field(), field);
        }
    }
}
