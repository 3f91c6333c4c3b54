use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{BreakerOptions, BreakerState, Call, Ratio, Safety, StackConfig, StopReason};
use tokio::time::{sleep, timeout};

use super::*;
use crate::attempt::{AttemptContext, CallShared};
use crate::stack::Stack;
use crate::testing::{Said, call, config, holding, ms, stack};

type Made = Pin<Box<dyn Future<Output = Said> + Send>>;

/// A call whose caller leaves after `patience`, and whose attempt is sent and ends after `lasts`.
async fn left<A: OnAbandon<Made>>(
    stack: &Stack,
    on_abandon: A,
    patience: Duration,
    lasts: Duration,
    said: Said,
) {
    let called = stack.drive(call(Safety::Unsafe), CallShared::new(), on_abandon, |context| {
        Box::pin(async move {
            context.mark_sent();
            sleep(lasts).await;
            said
        }) as Made
    });
    let _ = timeout(patience, called).await;
    // What runs on has its first poll.
    tokio::task::yield_now().await;
}

/// Asserts that the slot of the only call comes free `at` after its begin, `passed` having passed.
async fn assert_freed(stack: &Stack, passed: Duration, at: Duration) {
    sleep(at - passed - ms(1)).await;
    stack.housekeep();
    assert_eq!(holding(stack).in_flight, 2, "still taken 1 ms before {at:?}");
    sleep(ms(1)).await;
    tokio::task::yield_now().await;
    stack.housekeep();
    assert_eq!((holding(stack).in_flight, holding(stack).held), (0, 0), "free at {at:?}");
}

/// Teaches the stack that calls take this long.
async fn teach(stack: &Stack, lasts: Duration) {
    for _ in 0..20 {
        left(stack, Cancel, ms(10_000), lasts, Said::ok()).await;
    }
}

fn p99(stack: &Stack) -> Duration {
    let now = stack.clock().now();
    stack.with(|dependency, _, _| dependency.lane_view(now, 0).unwrap().p99.unwrap())
}

fn breaker(stack: &Stack) -> BreakerState {
    stack.with(|dependency, params, _| {
        dependency.endpoint_view(Timestamp::ZERO, params, 0, 0).unwrap().breaker
    })
}

fn abandoned_total(stack: &Stack) -> u64 {
    stack.with(|dependency, _, _| dependency.counters().abandoned)
}

/// A breaker that opens at the first failure and judges no slowness before the attempt's end.
fn touchy() -> StackConfig {
    let options = BreakerOptions {
        min_calls: 1,
        failure_ratio: Ratio::from_percent(1),
        consecutive_failures: 0,
        slow: Some(ms(400)),
        ..BreakerOptions::default()
    };
    StackConfig { breaker: Some(options), ..config() }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_holds_its_slot_to_twice_its_age() {
    let stack = stack(&config());
    left(&stack, Cancel, ms(50), ms(10_000), Said::ok()).await;
    assert_eq!(holding(&stack).held, 1);
    assert_freed(&stack, ms(50), ms(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_holds_its_slot_to_three_times_the_usual_if_that_is_later() {
    let stack = stack(&config());
    teach(&stack, ms(100)).await;
    let usual = p99(&stack);
    assert!(usual >= ms(100) && usual <= ms(125));
    left(&stack, Cancel, ms(50), ms(10_000), Said::ok()).await;
    let held = stack.with(|dependency, _, _| dependency.next_deadline().unwrap());
    let left_at = stack.clock().now().before(ms(50));
    assert_eq!(held, left_at.after(usual * 3));
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_held_past_twice_the_attempt_timeout() {
    let stack = stack(&StackConfig { breaker: None, ..config() });
    teach(&stack, ms(390)).await;
    left(&stack, Cancel, ms(50), ms(10_000), Said::ok()).await;
    assert_freed(&stack, ms(50), ms(800)).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_left_leaves_a_sample_of_at_least_this_slow() {
    let stack = stack(&config());
    for _ in 0..20 {
        left(&stack, Cancel, ms(50), ms(10_000), Said::ok()).await;
        sleep(ms(100)).await;
        stack.housekeep();
    }
    assert!(p99(&stack) >= ms(50));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_on_is_recorded_at_its_end_and_frees_its_slot_then() {
    let stack = stack(&touchy());
    let said = Said { runs_on: ms(60), ..Said::ok() };
    left(&stack, Finish, ms(50), ms(300), said).await;
    assert_eq!((holding(&stack).held, holding(&stack).millitokens), (0, 2_000));
    assert_eq!((holding(&stack).abandoned, abandoned_total(&stack)), (1, 1));
    sleep(ms(251)).await;
    assert_eq!(holding(&stack).millitokens, 2_100, "recorded at its head");
    assert_eq!(holding(&stack).abandoned, 1, "its body flows");
    assert_freed(&stack, ms(301), ms(360)).await;
    assert_eq!((holding(&stack).abandoned, abandoned_total(&stack)), (0, 1));
    assert_eq!(breaker(&stack), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_on_ends_at_its_own_timeout_which_is_a_failure() {
    let stack = stack(&touchy());
    left(&stack, Finish, ms(50), ms(10_000), Said::ok()).await;
    sleep(ms(349)).await;
    assert_eq!(breaker(&stack), BreakerState::Closed);
    sleep(ms(2)).await;
    assert_eq!(breaker(&stack), BreakerState::Open);
    assert_eq!((holding(&stack).held, holding(&stack).abandoned), (1, 1));
    assert_freed(&stack, ms(401), ms(800)).await;
    assert_eq!((holding(&stack).abandoned, abandoned_total(&stack)), (0, 1), "once");
}

#[tokio::test(start_paused = true)]
async fn the_real_end_of_a_call_that_was_given_up_frees_its_slot_early() {
    let stack = stack(&StackConfig { retry: None, ..touchy() });
    // The attempt's own timeout, its caller still waiting: the same as for one that left.
    left(&stack, Finish, ms(10_000), ms(530), Said::ok()).await;
    assert_eq!((holding(&stack).held, breaker(&stack)), (1, BreakerState::Open));
    assert_freed(&stack, ms(400), ms(530)).await;
    assert_eq!(holding(&stack).millitokens, 2_000, "a late answer is no deposit");
}

#[tokio::test(start_paused = true)]
async fn a_retry_runs_beside_the_attempt_that_was_given_up() {
    let stack = stack(&config());
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Finish, |context: AttemptContext| {
            let lasts = if context.number() == 1 { ms(10_000) } else { ms(1) };
            Box::pin(async move {
                context.mark_sent();
                sleep(lasts).await;
                Said::ok()
            }) as Made
        })
        .await;
    assert_eq!((called.done.stop, called.done.attempts), (StopReason::Answered, 2));
    drop(called);
    assert_eq!((holding(&stack).in_flight, holding(&stack).held), (2, 1));
    assert_freed(&stack, ms(400 + 100 + 1), ms(800)).await;
}

#[tokio::test(start_paused = true)]
async fn without_an_attempt_timeout_a_call_cut_by_its_deadline_is_no_failure() {
    let mut config = StackConfig { attempt_timeout: None, total: Some(ms(200)), ..touchy() };
    config.breaker.as_mut().unwrap().slow = None;
    let stack = stack(&config);
    left(&stack, Finish, ms(10_000), ms(10_000), Said::ok()).await;
    assert_eq!((holding(&stack).held, breaker(&stack)), (1, BreakerState::Closed));
    assert_freed(&stack, ms(200), ms(400)).await;
    left(&stack, Finish, ms(10_000), ms(250), Said::ok()).await;
    assert_freed(&stack, ms(200), ms(250)).await;
    // The caller left before; the call's time ends while it runs on.
    left(&stack, Finish, ms(50), ms(10_000), Said::ok()).await;
    assert_freed(&stack, ms(50), ms(400)).await;
    assert_eq!(breaker(&stack), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_passed_or_whose_time_is_up_is_abandoned_too() {
    // Cut by the call's total after 100 ms, by the attempt's own timeout after 400 ms.
    for (total, at, held) in [(ms(100), ms(100), 0), (ms(2_000), ms(400), 1)] {
        let stack = stack(&StackConfig { retry: None, ..config() });
        let call = Call { total: Some(total), ..call(Safety::Unsafe) };
        let called = stack.drive(call, CallShared::new(), Finish, |context| {
            Box::pin(async move {
                context.mark_sent();
                sleep(ms(430)).await;
                Said::ok()
            }) as Made
        });
        assert!(called.await.value.is_none());
        tokio::task::yield_now().await;
        let rest = holding(&stack);
        assert_eq!((rest.abandoned, rest.held, abandoned_total(&stack)), (1, held, 1), "{at:?}");
        sleep(ms(431) - at).await;
        assert_eq!((holding(&stack).abandoned, abandoned_total(&stack)), (0, 1), "{at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_not_complete_is_cut_and_one_that_is_runs_on() {
    for (uploads, at) in [(ms(10_000), ms(50)), (ms(20), ms(300))] {
        let stack = stack(&config());
        let clock = *stack.clock();
        let shared = CallShared::new();
        let sent = Arc::clone(&shared);
        let called = stack.drive(call(Safety::Unsafe), shared, Finish, |context| {
            let sent = Arc::clone(&sent);
            Box::pin(async move {
                context.mark_sent();
                sent.upload_flows();
                sleep(uploads).await;
                sent.upload_ended(clock.now());
                sleep(ms(280)).await;
                Said::ok()
            }) as Made
        });
        assert!(timeout(ms(50), called).await.is_err());
        match at == ms(50) {
            // All of its age was the caller's.
            true => assert_eq!((holding(&stack).in_flight, holding(&stack).held), (0, 0)),
            false => assert_freed(&stack, ms(50), at).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_handed_back_after_the_slow_threshold_was_not_sent() {
    let stack = stack(&StackConfig { retry: None, ..config() });
    let called = stack.drive(call(Safety::Unsafe), CallShared::new(), Cancel, |context| {
        Box::pin(async move {
            context.mark_sent();
            sleep(ms(250)).await;
            context.mark_unsent();
            std::future::pending::<Said>().await
        }) as Made
    });
    assert!(timeout(ms(300), called).await.is_err());
    assert_eq!((holding(&stack).in_flight, holding(&stack).held), (0, 0));
}

#[test]
fn outside_a_runtime_a_call_that_would_run_on_is_cancelled() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (stack, called) = runtime.block_on(async {
        let stack = stack(&config());
        let driven = stack.clone();
        let mut called: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            left(&driven, Finish, ms(10_000), ms(10_000), Said::ok()).await;
        });
        assert!(crate::testing::poll_once(called.as_mut()).await.is_none());
        sleep(ms(50)).await;
        (stack, called)
    });
    drop(called);
    assert_eq!(holding(&stack).held, 1);
}
