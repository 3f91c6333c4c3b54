use std::future::pending;

use seawall_policy::{
    BreakerOptions, BreakerState, Cause, Outcome, Ratio, StackConfig, StopReason,
};
use tokio::time::{sleep, timeout};

use super::*;
use crate::client::CallOptions;
use crate::report::{Error, Report};
use crate::testing::{Count, config, holding, ms, stack};

#[derive(Debug, PartialEq, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Checkout(#[from] CheckoutTimeout),
    #[error(transparent)]
    Connect(#[from] ConnectTimeout),
    #[error("lost")]
    Lost,
}

/// 50 ms for a checkout, 60 ms for a connect; a breaker that opens at the first failure.
fn touchy() -> StackConfig {
    let options = BreakerOptions {
        min_calls: 1,
        failure_ratio: Ratio::from_percent(1),
        consecutive_failures: 0,
        ..BreakerOptions::default()
    };
    StackConfig {
        checkout: Some(ms(50)),
        connect: Some(ms(60)),
        breaker: Some(options),
        ..config()
    }
}

fn breaker(stack: &Stack) -> BreakerState {
    stack.with(|dependency, params, _| {
        dependency.endpoint_view(Timestamp::ZERO, params, 0, 0).unwrap().breaker
    })
}

async fn check<F>(
    stack: &Stack,
    options: CallOptions,
    attempt: impl FnMut(AttemptContext) -> F,
) -> Report<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let classify = |result: &Result<(), Failure>| match result {
        Ok(()) => Outcome::of(Cause::Answered),
        Err(_) => Outcome::of(Cause::Closed),
    };
    stack.call(options, classify, attempt).await
}

#[tokio::test(start_paused = true)]
async fn an_empty_pool_has_its_own_time_class_and_count_and_is_no_illness() {
    let stack = stack(&touchy());
    let begun = stack.clock().now();
    let report = check(&stack, CallOptions::idempotent(), async |attempt| {
        attempt.checkout(pending::<()>()).await?;
        unreachable!("the pool is empty")
    })
    .await;
    assert_eq!(stack.clock().now().since(begun), ms(50));
    assert_eq!((report.stop, report.attempts), (StopReason::CheckoutTimeout, 0));
    assert_eq!(report.outcome, Outcome::of(Cause::CheckoutTimeout));
    assert!(matches!(report.result, Err(Error::Inner(Failure::Checkout(_)))));
    assert_eq!(breaker(&stack), BreakerState::Closed);
    assert_eq!((holding(&stack).in_flight, holding(&stack).millitokens), (0, 2_000));
    let checkouts = stack.checkouts();
    assert_eq!((checkouts.total(), checkouts.timeouts(), checkouts.waited()), (1, 1, ms(50)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_there_costs_no_wait_and_is_counted() {
    let stack = stack(&touchy());
    for wait in [ms(0), ms(20)] {
        let report = check(&stack, CallOptions::idempotent(), async |attempt| {
            attempt
                .checkout(async {
                    if !wait.is_zero() {
                        sleep(wait).await
                    }
                })
                .await?;
            Ok(())
        })
        .await;
        assert_eq!(report.stop, StopReason::Answered);
    }
    let checkouts = stack.checkouts();
    assert_eq!((checkouts.total(), checkouts.timeouts(), checkouts.waited()), (2, 0, ms(20)));
}

#[tokio::test(start_paused = true)]
async fn nothing_counts_as_sent_while_a_connection_is_waited_for_or_made() {
    for connects in [false, true] {
        let stack = stack(&touchy());
        let call = check(&stack, CallOptions::idempotent(), async |attempt| {
            match connects {
                true => attempt.connect(pending::<()>()).await?,
                false => attempt.checkout(pending::<()>()).await?,
            }
            Ok(())
        });
        assert!(timeout(ms(30), call).await.is_err());
        assert_eq!((holding(&stack).in_flight, holding(&stack).held), (0, 0), "{connects}");
    }
    let stack = stack(&touchy());
    let call = check(&stack, CallOptions::idempotent(), async |attempt| {
        attempt.checkout(sleep(ms(10))).await?;
        attempt.connect(sleep(ms(10))).await?;
        pending().await
    });
    assert!(timeout(ms(30), call).await.is_err());
    assert_eq!(holding(&stack).held, 1, "after both waits it may have been sent");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_in_favour_of_something_else_ends_there() {
    let stack = stack(&touchy());
    let call = check(&stack, CallOptions::idempotent(), async |attempt| {
        let _ = timeout(ms(10), attempt.checkout(pending::<()>())).await;
        pending().await
    });
    assert!(timeout(ms(30), call).await.is_err());
    assert_eq!(holding(&stack).held, 1);
    assert_eq!((stack.checkouts().timeouts(), stack.checkouts().waited()), (0, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_goes_on_after_an_empty_pool_is_judged_by_what_it_did() {
    let stack = stack(&touchy());
    let made = Count::default();
    let report = check(&stack, CallOptions::unsafe_to_repeat(), async |attempt| {
        made.add();
        let _ = attempt.checkout(pending::<()>()).await;
        sleep(ms(5)).await;
        Err(Failure::Lost)
    })
    .await;
    assert_eq!((report.stop, report.attempts), (StopReason::NotRetryable, 1));
    assert_eq!((report.outcome.cause(), made.get()), (Cause::Closed, 1));
    assert_eq!(breaker(&stack), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_is_not_processed_so_any_call_is_tried_again() {
    let mut config = touchy();
    config.breaker = Some(BreakerOptions::default());
    let stack = stack(&config);
    let begun = stack.clock().now();
    let made = Count::default();
    let report = check(&stack, CallOptions::unsafe_to_repeat(), async |attempt| {
        if made.add() == 1 {
            attempt.connect(pending::<()>()).await?;
        }
        attempt.connect(sleep(ms(59))).await?;
        Ok(())
    })
    .await;
    assert_eq!((report.stop, report.attempts), (StopReason::Answered, 2));
    assert_eq!(stack.clock().now().since(begun), ms(60 + 100 + 59));
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_is_a_failure_for_the_breaker() {
    let stack = stack(&touchy());
    let report = check(&stack, CallOptions::unsafe_to_repeat(), async |attempt| {
        attempt.connect(pending::<()>()).await?;
        Ok(())
    })
    .await;
    assert_eq!(report.outcome, Outcome::of(Cause::ConnectTimeout));
    assert!(matches!(report.result, Err(Error::Inner(Failure::Connect(_)))));
    assert_eq!(breaker(&stack), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_callers_haste_is_neither_an_empty_pool_nor_a_sick_dependency() {
    // Also where it ends in the same moment as our own limit.
    for (connects, left) in [(false, 15), (true, 15), (false, 50), (true, 60)] {
        let stack = stack(&touchy());
        let deadline = Some(stack.clock().now().after(ms(left)));
        let options = CallOptions { deadline, ..CallOptions::idempotent() };
        let report = check(&stack, options, async |attempt| {
            match connects {
                true => attempt.connect(pending::<()>()).await?,
                false => attempt.checkout(pending::<()>()).await?,
            }
            Ok(())
        })
        .await;
        assert_eq!((report.stop, report.attempts), (StopReason::Deadline, 0));
        assert_eq!(report.outcome.cause(), Cause::DeadlinePassed);
        assert_eq!(breaker(&stack), BreakerState::Closed);
        assert_eq!(holding(&stack).in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_takes_the_whole_attempt_keeps_its_class() {
    for (connects, cause) in [(false, Cause::CheckoutTimeout), (true, Cause::ConnectTimeout)] {
        let limits = StackConfig { checkout: None, connect: None, ..touchy() };
        let stack = stack(&StackConfig { retry: None, ..limits });
        let begun = stack.clock().now();
        let report = check(&stack, CallOptions::unsafe_to_repeat(), async |attempt| {
            match connects {
                true => attempt.connect(pending::<()>()).await?,
                false => attempt.checkout(pending::<()>()).await?,
            }
            Ok(())
        })
        .await;
        assert_eq!(stack.clock().now().since(begun), ms(400));
        assert_eq!(report.outcome, Outcome::of(cause));
        assert_eq!(breaker(&stack) == BreakerState::Open, connects, "{cause:?}");
        assert_eq!((holding(&stack).in_flight, holding(&stack).held), (0, 0));
        assert_eq!(stack.checkouts().timeouts(), u64::from(!connects));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_told_to_the_next_hop_is_the_attempts_less_the_way_back() {
    let stack = stack(&config());
    let mut told = Vec::new();
    let deadline = Some(stack.clock().now().after(ms(650)));
    let options = CallOptions { deadline, ..CallOptions::idempotent() };
    let _report = check(&stack, options, |attempt| {
        told.push((attempt.number(), attempt.remaining_ms()));
        async {
            sleep(ms(10)).await;
            Err(Failure::Lost)
        }
    })
    .await;
    // 650 − 10 − 100 leave more than the attempt timeout, 650 − 10 − 100 − 10 − 200 less.
    assert_eq!(told, [(1, Some(395)), (2, Some(395)), (3, Some(325))]);
    let unbounded = StackConfig { total: None, attempt_timeout: None, ..config() };
    let stack = Stack::new("inventory", &unbounded).unwrap();
    let mut told = None;
    let _report = check(&stack, CallOptions::idempotent(), |attempt| {
        told = Some(attempt.remaining_ms());
        async { Ok(()) }
    })
    .await;
    assert_eq!(told, Some(None));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_pool_is_not_slowness_of_the_dependency() {
    for (waits, answers, opens) in [(350, 30, false), (150, 199, false), (150, 201, true)] {
        let stack = stack(&StackConfig { checkout: None, ..touchy() });
        let report = check(&stack, CallOptions::idempotent(), async |attempt| {
            attempt.checkout(sleep(ms(waits))).await?;
            sleep(ms(answers)).await;
            Ok(())
        })
        .await;
        assert_eq!(report.stop, StopReason::Answered);
        assert_eq!(breaker(&stack) == BreakerState::Open, opens, "{waits} and {answers}");
    }
}

#[test]
fn the_end_of_a_wait_is_for_the_attempt_that_waited_alone() {
    let shared = CallShared::new();
    let at = Timestamp::from_millis;
    shared.checkout_ended(0, at(5));
    shared.checkout_ended(1, at(9));
    shared.checkout_ended(0, at(7));
    assert_eq!(shared.take_checkout_end(1), Some(at(9)));
    assert_eq!(shared.take_checkout_end(1), None);
    assert_eq!(shared.take_checkout_end(2), None);
    assert_eq!(shared.take_checkout_end(0), Some(at(7)), "its last");
    assert_eq!(shared.take_checkout_end(0), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_with_its_attempt_does_not_age_the_next() {
    let options = BreakerOptions {
        min_calls: 2,
        failure_ratio: Ratio::ONE,
        consecutive_failures: 0,
        ..BreakerOptions::default()
    };
    // The first attempt goes down while it still waits; the second takes 150 ms, 100 ms later,
    // and slow is 200 ms.
    let stack = stack(&StackConfig { breaker: Some(options), checkout: None, ..config() });
    let report = check(&stack, CallOptions::idempotent(), |attempt| {
        let number = attempt.number();
        let waiting = attempt.clone();
        let mut wait = Box::pin(async move { waiting.checkout(pending::<()>()).await });
        let mut lasts = Box::pin(sleep(ms(if number == 1 { 10 } else { 150 })));
        poll_fn(move |cx| {
            if number == 1 {
                assert!(wait.as_mut().poll(cx).is_pending());
            } else {
                attempt.mark_sent();
            }
            lasts.as_mut().poll(cx).map(|()| if number == 1 { Err(Failure::Lost) } else { Ok(()) })
        })
    })
    .await;
    assert_eq!((report.stop, report.attempts), (StopReason::Answered, 2));
    assert_eq!(breaker(&stack), BreakerState::Closed);
}
