use std::pin::Pin;

use seawall_policy::{
    BreakerOptions, BreakerState, BulkheadOptions, Cause, Class, HedgeDelay, HedgeOptions, Outcome,
    Ratio, Safety, StackConfig, StopReason,
};
use tokio::time::{sleep, timeout};

use super::*;
use crate::client::CallOptions;
use crate::flight::{Cancel, Finish};
use crate::report::Error;
use crate::testing::{Count, Said, call, config, holding, ms, poll_once, stack, status};

mod drops;
mod hedges;
mod stops;

type Made = Pin<Box<dyn Future<Output = Said> + Send>>;

/// An attempt that is sent at once and gives `said` after `delay`.
fn after(context: AttemptContext, delay: Duration, said: Said) -> Made {
    Box::pin(async move {
        context.mark_sent();
        sleep(delay).await;
        said
    })
}

/// A breaker that opens at the first failure or slow call, for 1 s, and closes at one success.
fn touchy() -> BreakerOptions {
    BreakerOptions {
        min_calls: 1,
        failure_ratio: Ratio::from_percent(1),
        slow_ratio: Ratio::from_percent(1),
        consecutive_failures: 0,
        open_base: ms(1_000),
        open_cap: ms(1_000),
        probes: 1,
        ..BreakerOptions::default()
    }
}

fn one_at_a_time(wait: Duration, queue: u32) -> StackConfig {
    let limit = BulkheadOptions { wait, queue, ..BulkheadOptions::with_limit(1) };
    StackConfig { bulkhead: Some(limit), ..config() }
}

/// A hedge after 20 ms, whatever it costs, to another endpoint.
fn hedging() -> StackConfig {
    let hedge = HedgeOptions {
        delay: HedgeDelay::Fixed(ms(20)),
        max_extra: Ratio::ONE,
        max_load: Ratio::ONE,
        ..HedgeOptions::default()
    };
    StackConfig { hedge: Some(hedge), ..config() }
}

fn breaker(stack: &Stack) -> BreakerState {
    stack.housekeep();
    stack.with(|dependency, params, _| {
        dependency.endpoint_view(Timestamp::ZERO, params, 0, 0).unwrap().breaker
    })
}

async fn drive(stack: &Stack, delay: Duration, said: Said) -> Called<Said> {
    stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            after(context, delay, said)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn an_unretried_call_reads_the_clock_at_most_four_times() {
    let stack = stack(&one_at_a_time(ms(50), 5));
    let reads = crate::Clock::reads;
    let before = reads();
    drop(drive(&stack, ms(10), Said::ok()).await.slot);
    assert_eq!(reads() - before, 3, "begin, answer, end");
    let answered = |_: &Result<(), ()>| Outcome::of(Cause::Answered);
    let before = reads();
    let report = stack.call(CallOptions::idempotent(), answered, async |_| Ok(())).await;
    assert!(report.result.is_ok());
    assert_eq!(reads() - before, 2, "begin, answer and end in one");
    let first = tokio::spawn({
        let stack = stack.clone();
        async move { drop(drive(&stack, ms(10), Said::ok()).await) }
    });
    tokio::task::yield_now().await;
    let before = reads();
    let queued = drive(&stack, ms(10), Said::ok()).await;
    assert_eq!(queued.queued, ms(10));
    drop(queued);
    first.await.unwrap();
    assert_eq!(reads() - before, 4 + 2, "begin, grant, answer, end; and two of the other call");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_is_woken_by_a_release_and_not_by_time() {
    let stack = stack(&one_at_a_time(ms(300), 5));
    let begun = stack.clock().now();
    let first = drive(&stack, ms(37), Said::ok()).await;
    let (released, waited) = tokio::join!(
        async {
            sleep(ms(20)).await;
            drop(first);
        },
        drive(&stack, ms(1), Said::ok())
    );
    let () = released;
    assert_eq!(stack.clock().now().since(begun), ms(37 + 20 + 1));
    assert_eq!(waited.queued, ms(20));
}

#[tokio::test(start_paused = true)]
async fn waiting_callers_are_served_in_their_order_and_one_that_leaves_passes_its_grant_on() {
    let stack = stack(&one_at_a_time(ms(350), 10));
    let order = std::sync::Mutex::new(Vec::new());
    let caller = |number: u32, patience: Duration| {
        let (stack, order) = (&stack, &order);
        async move {
            sleep(ms(u64::from(number))).await;
            let called = timeout(patience, drive(stack, ms(40), Said::ok())).await;
            if called.is_ok() {
                order.lock().unwrap().push(number);
            }
        }
    };
    let patient = ms(1_000);
    // The third leaves while it waits.
    tokio::join!(
        caller(0, patient),
        caller(1, patient),
        caller(2, ms(10)),
        caller(3, patient),
        caller(4, patient),
    );
    assert_eq!(*order.lock().unwrap(), [0, 1, 3, 4]);
    assert_eq!((holding(&stack).in_flight, holding(&stack).waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_a_caller_that_was_dropped_before_it_woke_goes_to_the_next() {
    let stack = stack(&one_at_a_time(ms(350), 10));
    let first = drive(&stack, ms(0), Said::ok()).await;
    let mut second = Box::pin(drive(&stack, ms(1), Said::ok()));
    let mut third = Box::pin(drive(&stack, ms(1), Said::ok()));
    assert!(poll_once(second.as_mut()).await.is_none());
    assert!(poll_once(third.as_mut()).await.is_none());
    drop(first);
    drop(second);
    let begun = stack.clock().now();
    assert_eq!(third.await.done.stop, StopReason::Answered);
    assert_eq!(stack.clock().now().since(begun), ms(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_two_threads() {
    let limit = BulkheadOptions {
        wait: Duration::from_secs(60),
        queue: 10_000,
        ..BulkheadOptions::with_limit(2)
    };
    let stack = stack(&StackConfig {
        bulkhead: Some(limit),
        total: None,
        attempt_timeout: None,
        ..config()
    });
    let calls: Vec<_> = (0..2_000_u32)
        .map(|number| {
            let stack = stack.clone();
            tokio::spawn(async move {
                let shared = CallShared::new();
                let called =
                    stack.drive(call(Safety::Idempotent), shared, Cancel, |context| async move {
                        context.mark_sent();
                        tokio::task::yield_now().await;
                        Said::ok()
                    });
                if number % 7 == 0 {
                    // Leaves after one poll, wherever that is.
                    let mut called = Box::pin(called);
                    let _ = poll_once(called.as_mut()).await;
                    return StopReason::Answered;
                }
                called.await.done.stop
            })
        })
        .collect();
    let all = async {
        for call in calls {
            assert_eq!(call.await.unwrap(), StopReason::Answered);
        }
    };
    timeout(Duration::from_secs(20), all).await.expect("every waiting caller is woken");
}

#[tokio::test(start_paused = true)]
async fn a_held_slot_that_comes_free_by_time_alone_lets_a_waiting_caller_in() {
    let stack = stack(&one_at_a_time(ms(300), 5));
    let left = timeout(ms(50), drive(&stack, ms(390), Said::ok())).await;
    assert!(left.is_err());
    // Given up at an age of 50 ms, held to an age of 100 ms. Nothing else happens meanwhile.
    let waited = drive(&stack, ms(1), Said::ok()).await;
    assert_eq!((waited.done.stop, waited.queued), (StopReason::Answered, ms(50)));
}

#[tokio::test(start_paused = true)]
async fn clones_share_all_state_and_a_reload_keeps_it() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..one_at_a_time(ms(0), 0) });
    let clone = stack.clone();
    let held = drive(&stack, ms(1), Said::ok()).await;
    assert_eq!(drive(&clone, ms(1), Said::ok()).await.done.stop, StopReason::BulkheadFull);
    let balance = holding(&clone).millitokens;
    assert_eq!(balance, 2_100);
    let larger = BulkheadOptions { wait: ms(0), ..BulkheadOptions::with_limit(2) };
    let config = StackConfig { breaker: Some(touchy()), bulkhead: Some(larger), ..config() };
    clone.reconfigure(&config).unwrap();
    assert_eq!((holding(&stack).in_flight, holding(&stack).millitokens), (2, balance));
    let refused = drive(&stack, ms(1), Said::of(Outcome::of(Cause::Closed))).await;
    assert_eq!(refused.done.stop, StopReason::BreakerOpen);
    clone.reconfigure(&config).unwrap();
    assert_eq!(breaker(&stack), BreakerState::Open, "an open breaker stays open");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_lets_waiting_callers_in_at_once() {
    let stack = stack(&one_at_a_time(ms(300), 5));
    let held = drive(&stack, ms(0), Said::ok()).await;
    let raise = async {
        sleep(ms(20)).await;
        let limit = BulkheadOptions { wait: ms(300), ..BulkheadOptions::with_limit(2) };
        stack.reconfigure(&StackConfig { bulkhead: Some(limit), ..config() }).unwrap();
    };
    let (called, ()) = tokio::join!(drive(&stack, ms(1), Said::ok()), raise);
    assert_eq!((called.done.stop, called.queued), (StopReason::Answered, ms(20)));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_late_result_of_an_older_generation_changes_nothing() {
    let brief = ms(100);
    let options =
        BreakerOptions { slow: Some(ms(400)), open_base: brief, open_cap: brief, ..touchy() };
    let stack = stack(&StackConfig { breaker: Some(options), retry: None, ..config() });
    let failure = Said::of(Outcome::of(Cause::Closed));
    let script = async {
        sleep(ms(10)).await;
        drop(drive(&stack, ms(0), failure).await);
        assert_eq!(breaker(&stack), BreakerState::Open);
        sleep(ms(101)).await;
        drop(drive(&stack, ms(0), Said::ok()).await);
        assert_eq!(breaker(&stack), BreakerState::Closed);
    };
    // Sent before the breaker opened, failed after it had closed again.
    let (late, ()) = tokio::join!(drive(&stack, ms(300), failure), script);
    assert_eq!(late.done.outcome.cause(), Cause::Closed);
    assert_eq!(breaker(&stack), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn business_errors_and_a_full_bulkhead_never_open_the_breaker() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..one_at_a_time(ms(0), 0) });
    for _ in 0..500 {
        for outcome in [Outcome::of(Cause::BusinessError), status(422)] {
            drop(drive(&stack, ms(1), Said::of(outcome)).await);
        }
    }
    let held = drive(&stack, ms(1), Said::ok()).await;
    for _ in 0..500 {
        assert_eq!(drive(&stack, ms(1), Said::ok()).await.done.stop, StopReason::BulkheadFull);
    }
    assert_eq!(breaker(&stack), BreakerState::Closed);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_past_the_slow_threshold_is_seen_at_once() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    let watch = async {
        sleep(ms(199)).await;
        assert_eq!(breaker(&stack), BreakerState::Closed);
        sleep(ms(2)).await;
        assert_eq!(breaker(&stack), BreakerState::Open);
    };
    tokio::join!(drive(&stack, ms(390), Said::ok()), watch);
}

/// An upload that flows from the begin until `upload` and is kept whole, to an upstream that
/// answers at `answer`; the stop, and when.
async fn uploaded(stack: &Stack, call: Call, upload: Duration, answer: Duration) -> Called<Said> {
    let shared = CallShared::new();
    let sent = Arc::clone(&shared);
    let clock = *stack.clock();
    stack
        .drive(call, shared, Cancel, move |context| {
            let shared = Arc::clone(&sent);
            Box::pin(async move {
                context.mark_sent();
                shared.upload_flows();
                sleep(upload).await;
                shared.upload_ended(clock.now());
                sleep(answer.saturating_sub(upload)).await;
                Said::ok()
            }) as Made
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_an_upload_start_at_its_end() {
    // Shorter than the slow threshold, than the attempt timeout, and longer than the total.
    for upload in [ms(100), ms(300), ms(2_600)] {
        let stack = stack(&config());
        let begun = stack.clock().now();
        let called = uploaded(&stack, call(Safety::Unsafe), upload, Duration::MAX).await;
        assert_eq!(called.done.attempts, 1);
        assert_eq!(called.done.outcome.cause(), Cause::AttemptTimeout);
        assert_eq!(called.ended.since(begun), upload + ms(400), "{upload:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_upload_is_not_slowness_of_the_dependency() {
    for (upload, answer) in [(ms(350), ms(500)), (ms(1_000), ms(1_190)), (ms(205), ms(390))] {
        let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
        let called = uploaded(&stack, call(Safety::Unsafe), upload, answer).await;
        assert_eq!(called.done.stop, StopReason::Answered);
        assert_eq!(breaker(&stack), BreakerState::Closed, "{upload:?} {answer:?}");
    }
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    uploaded(&stack, call(Safety::Unsafe), ms(300), ms(501)).await;
    assert_eq!(breaker(&stack), BreakerState::Open, "201 ms after the upload is slow");
}

#[tokio::test(start_paused = true)]
async fn a_hang_after_an_upload_is_seen_at_the_slow_threshold_after_its_end() {
    for upload in [ms(50), ms(1_000)] {
        let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
        let watch = async {
            sleep(upload + ms(199)).await;
            assert_eq!(breaker(&stack), BreakerState::Closed);
            sleep(ms(2)).await;
            assert_eq!(breaker(&stack), BreakerState::Open, "{upload:?}");
        };
        tokio::join!(uploaded(&stack, call(Safety::Unsafe), upload, Duration::MAX), watch);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_never_outlasts_what_the_caller_stated() {
    let stack = stack(&config());
    let deadline = stack.clock().now().after(ms(700));
    let call = Call { deadline: Some(deadline), ..call(Safety::Idempotent) };
    let called = uploaded(&stack, call, ms(600), Duration::MAX).await;
    assert_eq!((called.done.stop, called.ended), (StopReason::Deadline, deadline));
}

#[tokio::test(start_paused = true)]
async fn what_the_caller_stated_ends_an_upload_that_still_flows_and_says_nothing() {
    // Before the attempt timeout, and after attempt timeout and total.
    for stated in [ms(150), ms(2_650)] {
        let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
        let deadline = stack.clock().now().after(stated);
        let call = Call { deadline: Some(deadline), ..call(Safety::Idempotent) };
        let called = uploaded(&stack, call, Duration::MAX, Duration::MAX).await;
        assert_eq!((called.done.stop, called.ended), (StopReason::Deadline, deadline));
        assert_eq!(called.done.outcome.cause(), Cause::DeadlineCut);
        assert_eq!(breaker(&stack), BreakerState::Closed, "{stated:?}");
        assert_eq!(holding(&stack).in_flight, 0, "it had no age of its own to hold its slot for");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_after_every_clock_says_nothing_about_the_dependency() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            context.shared().upload_flows();
            after(context, ms(5_000), Said::of(Outcome::of(Cause::UploadFailed)))
        })
        .await;
    assert_eq!(called.done.outcome.cause(), Cause::UploadFailed);
    assert_eq!((called.done.attempts, breaker(&stack)), (1, BreakerState::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_an_upload_has_the_whole_total_from_its_end() {
    let stack = stack(&config());
    let begun = stack.clock().now();
    let clock = *stack.clock();
    let mut attempts = Vec::new();
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            attempts.push(clock.now().since(begun));
            let shared = Arc::clone(context.shared());
            match context.sequence() {
                0 => Box::pin(async move {
                    context.mark_sent();
                    shared.upload_flows();
                    sleep(ms(2_500)).await;
                    shared.upload_ended(clock.now());
                    // Before the clocks looked: they learn of the end from the answer.
                    Said::of(status(503))
                }) as Made,
                _ => after(context, Duration::MAX, Said::ok()),
            }
        })
        .await;
    assert_eq!(attempts, [ms(0), ms(2_600), ms(3_200)]);
    assert_eq!(called.done.outcome.cause(), Cause::AttemptTimeout);
    assert_eq!(called.ended.since(begun), ms(3_600));
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_a_retry_run_until_it_is_sent_even_if_the_upload_is_incomplete() {
    let stack = stack(&config());
    let begun = stack.clock().now();
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            match context.sequence() {
                0 => {
                    context.shared().upload_flows();
                    after(context, ms(10), Said::of(status(503)))
                }
                _ => Box::pin(std::future::pending()) as Made,
            }
        })
        .await;
    assert_eq!(called.done.outcome.cause(), Cause::AttemptTimeout);
    assert_eq!(called.ended.since(begun), ms(10 + 100 + 400 + 200 + 400));
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_upload_ends_is_taken() {
    let stack = stack(&StackConfig { breaker: Some(touchy()), ..config() });
    let shared = CallShared::new();
    let sent = Arc::clone(&shared);
    let called = stack
        .drive(call(Safety::Unsafe), shared, Cancel, move |context| {
            sent.upload_flows();
            after(context, ms(900), Said::of(status(413)))
        })
        .await;
    assert_eq!(called.done.outcome.cause(), Cause::Status(413));
    assert_eq!(breaker(&stack), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_users_code_returns_the_permit() {
    let stack = stack(&config());
    for in_future in [false, true] {
        let panicking = stack.clone();
        let task = tokio::spawn(async move {
            let shared = CallShared::new();
            panicking
                .drive(call(Safety::Idempotent), shared, Finish, move |_| {
                    assert!(in_future, "in the closure");
                    Box::pin(async move {
                        assert!(!in_future, "in the future");
                        Said::ok()
                    }) as Made
                })
                .await
        });
        assert!(task.await.unwrap_err().is_panic());
        let rest = holding(&stack);
        assert_eq!((rest.in_flight, rest.held), (0, 0), "{in_future}");
    }
}

#[tokio::test(start_paused = true)]
async fn letting_go_of_a_connection_delays_no_retry_by_more_than_its_limit() {
    let stack = stack(&config());
    let slow = Said { sets_aside: ms(10_000), ..Said::of(status(503)) };
    let begun = stack.clock().now();
    let mut attempts = Vec::new();
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            attempts.push(stack.clock().now().since(begun));
            after(context, ms(10), slow)
        })
        .await;
    assert_eq!(called.done.stop, StopReason::Exhausted);
    assert_eq!(called.value, Some(slow));
    drop(called);
    assert_eq!(attempts, [ms(0), ms(110), ms(320)]);
}

#[tokio::test(start_paused = true)]
async fn a_redispatch_waits_for_no_connection_to_be_let_go_of() {
    let params = StackParams::new(&one_at_a_time(ms(200), 5)).unwrap();
    let stack = Stack::with_topology("inventory", params, crate::Clock::new(), 2, 1);
    let called = stack
        .drive(call(Safety::Unsafe), CallShared::new(), Cancel, |context| {
            let refused = Said::of(Outcome::of(Cause::ConnectRefused));
            match context.sequence() {
                0 => Box::pin(std::future::ready(Said { sets_aside: ms(50), ..refused })) as Made,
                _ => after(context, ms(1), Said::ok()),
            }
        })
        .await;
    assert_eq!((called.done.stop, called.done.redispatches), (StopReason::Answered, 1));
    assert_eq!(called.ended.since(called.granted.unwrap()), ms(1));
    assert_eq!(called.queued, ms(0), "its own slot is the only one");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_answer_is_kept_when_the_next_attempt_is_refused_here() {
    let stack = stack(&config());
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Cancel, |context| {
            let refused = Said::of(Outcome::of(Cause::CheckoutTimeout));
            match context.number() {
                1 => after(context, ms(1), Said::of(status(503))),
                _ => Box::pin(std::future::ready(refused)),
            }
        })
        .await;
    assert_eq!(called.done.stop, StopReason::CheckoutTimeout);
    assert_eq!((called.done.attempts, called.done.outcome), (1, status(503)));
    assert_eq!(called.value, Some(Said::of(status(503))));
    drop(called);
    assert_eq!((holding(&stack).in_flight, holding(&stack).millitokens), (0, 2_000));
}

#[test]
fn the_future_of_a_call_can_be_sent_to_another_thread() {
    fn is_send<T: Send>(_: T) {}
    let stack = stack(&config());
    let shared = CallShared::new();
    is_send(
        stack.drive(call(Safety::Unsafe), shared, Finish, |context| {
            after(context, ms(1), Said::ok())
        }),
    );
}
