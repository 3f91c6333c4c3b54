//! Every reason for which a call can stop, end to end.

use seawall_policy::{AnswerSignals, KeyedRateOptions, RateOptions, SuccessBudget};

use super::*;

struct Case {
    stop: StopReason,
    attempts: u32,
    rejected: bool,
    config: StackConfig,
    options: CallOptions,
    outcome: Outcome,
}

fn case(stop: StopReason, attempts: u32, outcome: Outcome) -> Case {
    let options = CallOptions::idempotent();
    Case { stop, attempts, rejected: false, config: config(), options, outcome }
}

fn cases() -> Vec<Case> {
    let no_budget = StackConfig { budget: None, ..config() };
    let mut poor = config();
    poor.budget = Some(SuccessBudget { initial: 1, ..SuccessBudget::default() }.into());
    let forced = seawall_policy::BreakerMode::ForcedOpen;
    let open = BreakerOptions { mode: forced, ..BreakerOptions::default() };
    let unsafe_call = CallOptions::unsafe_to_repeat();
    let not_owner = CallOptions { owner: false, ..CallOptions::idempotent() };
    let told = Outcome::of_status(503, AnswerSignals { stop: true, ..AnswerSignals::default() });
    vec![
        case(StopReason::Answered, 1, Outcome::of(Cause::Answered)),
        Case { config: no_budget, ..case(StopReason::Exhausted, 3, status(503)) },
        Case { config: poor, ..case(StopReason::Budget, 2, status(503)) },
        case(StopReason::NotRetryable, 1, Outcome::of(Cause::BusinessError)),
        Case { options: unsafe_call, ..case(StopReason::NotRetryable, 1, status(503)) },
        case(StopReason::ToldToStop, 1, told),
        Case { options: not_owner, ..case(StopReason::NotOwner, 1, status(503)) },
        Case {
            config: StackConfig { breaker: Some(open), ..config() },
            rejected: true,
            ..case(StopReason::BreakerOpen, 0, status(503))
        },
        case(StopReason::CallerLeft, 1, Outcome::of(Cause::CallerLeft)),
    ]
}

/// The stop, the attempts, and whether the result is our refusal.
async fn run(stack: &Stack, options: CallOptions, outcome: Outcome) -> (StopReason, u32, bool) {
    let made = Count::default();
    let report = stack
        .call(
            options,
            |_: &Result<(), ()>| outcome,
            async |_| {
                made.add();
                if outcome.class() == Class::Success { Ok(()) } else { Err(()) }
            },
        )
        .await;
    assert_eq!(report.attempts, made.get(), "an attempt reported is an attempt made");
    (report.stop, report.attempts, matches!(report.result, Err(Error::Rejected { .. })))
}

#[tokio::test(start_paused = true)]
async fn each_stop_reason_comes_out_with_its_attempts() {
    for Case { stop, attempts, rejected, config, options, outcome } in cases() {
        let found = run(&stack(&config), options, outcome).await;
        assert_eq!(found, (stop, attempts, rejected), "{stop:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_off_comes_out() {
    let stack = stack(&config());
    stack.with(|dependency, _, _| dependency.switch_retries_off(Timestamp::MAX));
    let found = run(&stack, CallOptions::idempotent(), status(503)).await;
    assert_eq!(found, (StopReason::RetriesOff, 1, false));
}

#[tokio::test(start_paused = true)]
async fn a_full_bulkhead_comes_out_as_a_refusal_after_its_wait() {
    let stack = stack(&one_at_a_time(ms(20), 5));
    let held = drive(&stack, ms(1), Said::ok()).await;
    let begun = stack.clock().now();
    let found = run(&stack, CallOptions::idempotent(), status(503)).await;
    assert_eq!(found, (StopReason::BulkheadFull, 0, true));
    assert_eq!(stack.clock().now().since(begun), ms(20));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_has_passed_sends_nothing_and_one_that_comes_cuts_the_attempt() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    let at = |deadline| CallOptions { deadline: Some(deadline), ..CallOptions::idempotent() };
    let now = stack.clock().now();
    let found = run(&stack, at(now), status(503)).await;
    assert_eq!(found, (StopReason::Deadline, 0, true));
    let hangs = async |_| std::future::pending::<Result<(), ()>>().await;
    let deadline = now.after(ms(150));
    let report = stack.call(at(deadline), |_| status(503), hangs).await;
    assert_eq!((report.stop, report.attempts), (StopReason::Deadline, 1));
    assert!(matches!(report.result, Err(Error::Elapsed)));
    assert_eq!(stack.clock().now(), deadline);
    assert_eq!(breaker(&stack), BreakerState::Closed, "the caller's haste says nothing");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_outgrew_what_is_kept_comes_out() {
    let stack = stack(&config());
    let shared = CallShared::new();
    let sent = Arc::clone(&shared);
    let called = stack
        .drive(call(Safety::Idempotent), shared, Cancel, move |context| {
            sent.outgrown();
            after(context, Duration::MAX, Said::ok())
        })
        .await;
    assert_eq!((called.done.stop, called.done.attempts), (StopReason::BodyTooLarge, 1));
}

#[tokio::test(start_paused = true)]
async fn a_checkout_timeout_comes_out_and_is_never_retried() {
    let stack = stack(&StackConfig { checkout: Some(ms(30)), ..config() });
    let report = stack
        .call(
            CallOptions::idempotent(),
            |_: &Result<(), crate::CheckoutTimeout>| status(503),
            async |attempt| attempt.checkout(std::future::pending()).await,
        )
        .await;
    assert_eq!((report.stop, report.attempts), (StopReason::CheckoutTimeout, 0));
    assert!(matches!(report.result, Err(Error::Inner(crate::CheckoutTimeout))));
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_between_attempts_hands_up_the_last_answer() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    let found = run(&stack, CallOptions::idempotent(), status(503)).await;
    assert_eq!(found, (StopReason::BreakerOpen, 1, false));
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_attempt_is_no_refusal_even_where_a_refusal_follows() {
    let config = StackConfig { breaker: Some(touchy()), ..config() };
    let stack = stack(&config);
    let hangs = async |_| std::future::pending::<Result<(), ()>>().await;
    let report = stack.call(CallOptions::idempotent(), |_| status(503), hangs).await;
    assert_eq!((report.stop, report.attempts), (StopReason::BreakerOpen, 1));
    assert!(matches!(report.result, Err(Error::Elapsed)), "something was sent");
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_own_rate_and_comes_out_with_the_time_to_come_back() {
    let rate = RateOptions { limit: 1, period: ms(1_000), burst: 1 };
    let per_key = KeyedRateOptions::new(rate);
    let all = RateOptions { limit: 3, period: ms(1_000), burst: 3 };
    let stack = stack(&StackConfig { rate: Some(all), rate_per_key: Some(per_key), ..config() });
    let key = |name: &str| CallOptions {
        rate_key: Some(stack.rate_key(&name)),
        ..CallOptions::idempotent()
    };
    let ok = Outcome::of(Cause::Answered);
    let answered = (StopReason::Answered, 1, false);
    assert_eq!(run(&stack, key("a"), ok).await, answered);
    assert_eq!(run(&stack, key("b"), ok).await, answered);
    assert_eq!(run(&stack, key("a"), ok).await, (StopReason::QuotaExceeded, 0, true));
    assert_eq!(run(&stack, CallOptions::idempotent(), ok).await, answered);
    let attempt = async |_| Ok::<_, ()>(());
    let report = stack.call(key("c"), |_| ok, attempt).await;
    assert_eq!(report.stop, StopReason::RateLimited);
    let Err(Error::Rejected { retry_after, .. }) = report.result else { panic!("{report:?}") };
    let third = Duration::from_nanos(333_333_334);
    assert_eq!(retry_after, Some(third));
    sleep(third).await;
    assert_eq!(run(&stack, key("c"), ok).await, answered);
}

#[test]
fn no_reason_is_left_out() {
    let elsewhere = [
        StopReason::RetriesOff,
        StopReason::BulkheadFull,
        StopReason::Deadline,
        StopReason::BodyTooLarge,
        StopReason::CheckoutTimeout,
        StopReason::RateLimited,
        StopReason::QuotaExceeded,
    ];
    for reason in StopReason::ALL {
        let in_table = cases().iter().any(|case| case.stop == reason);
        assert!(in_table || elsewhere.contains(&reason), "{reason:?}");
    }
}
