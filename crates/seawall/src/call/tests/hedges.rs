//! Two attempts in flight: who is waited for, what is dropped when, and what it costs.

use std::sync::Arc;

use seawall_policy::Purpose;

use super::*;

/// Counts its drops.
struct Dropped(Count);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// A stack of two endpoints.
fn pair(config: &StackConfig) -> Stack {
    let params = StackParams::new(config).unwrap();
    Stack::with_topology("inventory", params, crate::Clock::new(), 2, 1)
}

/// Makes a call whose first attempt and hedge answer as told, with the attempts' contexts.
async fn called(
    stack: &Stack,
    shared: Arc<CallShared>,
    first: (u64, Said),
    hedge: (u64, Said),
) -> (Called<Said>, Vec<AttemptContext>) {
    let mut contexts = Vec::new();
    let called = stack
        .drive(call(Safety::Idempotent), shared, Finish, |context| {
            contexts.push(context.clone());
            let (delay, said) = if context.number() == 1 { first } else { hedge };
            after(context, ms(delay), said)
        })
        .await;
    (called, contexts)
}

fn counts(stack: &Stack) -> (u64, u64, u64) {
    stack.with(|dependency, _, _| {
        let counters = dependency.counters();
        (counters.first_attempts, counters.hedges, counters.hedges_won)
    })
}

#[tokio::test(start_paused = true)]
async fn the_faster_of_two_answers_and_the_other_is_dropped_at_once() {
    let stack = pair(&hedging());
    let begun = stack.clock().now();
    let dropped = Count::default();
    let called = stack
        .drive(call(Safety::Idempotent), CallShared::new(), Finish, |context| {
            let guard = Dropped(dropped.clone());
            let delay = if context.number() == 1 { ms(300) } else { ms(5) };
            Box::pin(async move {
                let _guard = guard;
                after(context, delay, Said::ok()).await
            })
        })
        .await;
    assert_eq!(stack.clock().now().since(begun), ms(25));
    assert_eq!(dropped.get(), 2, "although callers who leave let theirs run on");
    assert_eq!((called.done.attempts, called.done.stop), (2, StopReason::Answered));
    assert_eq!(called.granted, Some(begun.after(ms(20))), "its own, not the first attempt's");
    assert_eq!(counts(&stack), (1, 1, 1));
    let now = holding(&stack);
    assert_eq!((now.in_flight, now.held), (4, 1), "its slot, and the one that is given up later");
    drop(called);
    sleep(ms(100)).await;
    stack.housekeep();
    assert_eq!(holding(&stack).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_says_what_it_is_and_goes_to_another_endpoint() {
    let stack = pair(&hedging());
    let (called, contexts) =
        called(&stack, CallShared::new(), (300, Said::ok()), (5, Said::ok())).await;
    let told: Vec<_> = contexts.iter().map(|it| (it.number(), it.purpose())).collect();
    assert_eq!(told, [(1, Purpose::First), (2, Purpose::Hedge)]);
    assert_ne!(contexts[0].endpoint(), contexts[1].endpoint());
    assert_eq!(called.slot.unwrap().endpoint(), Some(contexts[1].endpoint()));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_kept_while_the_other_attempt_flies() {
    let unavailable = Said::of(status(503));
    let no_connection = Said::of(Outcome::of(Cause::CheckoutTimeout));
    for (first, hedge, expected, ends) in [
        ((30, unavailable), (40, Said::ok()), Said::ok(), 60),
        ((50, Said::ok()), (10, unavailable), Said::ok(), 50),
        ((30, unavailable), (40, Said::of(status(502))), Said::of(status(502)), 60),
    ] {
        let config = hedging();
        let retry =
            config.retry.map(|retry| seawall_policy::RetryOptions { max_attempts: 2, ..retry });
        let stack = pair(&StackConfig { retry, ..config });
        let begun = stack.clock().now();
        let (called, _) = called(&stack, CallShared::new(), first, hedge).await;
        assert_eq!(called.value, Some(expected));
        assert_eq!(stack.clock().now().since(begun), ms(ends));
    }
    // The first has failed and its hedge gets no connection: what there is to answer with is the
    // failure, once the time for a retry has passed.
    let stack =
        pair(&StackConfig { total: Some(ms(110)), attempt_timeout: Some(ms(110)), ..hedging() });
    let unsent = |context: AttemptContext| -> Made {
        match context.number() {
            1 => after(context, ms(30), unavailable),
            _ => Box::pin(async move {
                sleep(ms(30)).await;
                no_connection
            }),
        }
    };
    let called = stack.drive(call(Safety::Idempotent), CallShared::new(), Finish, unsent).await;
    assert_eq!((called.value, called.done.stop), (Some(unavailable), StopReason::Deadline));
    assert_eq!(called.done.outcome, unavailable.outcome);
    assert!(called.slot.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_there_whole_is_not_sent_twice_at_once() {
    for partial in [true, false] {
        let stack = pair(&hedging());
        let shared = CallShared::new();
        shared.forbid_hedge();
        shared.forbid_hedge();
        shared.allow_hedge();
        if !partial {
            shared.allow_hedge();
        }
        let (called, _) = called(&stack, shared, (100, Said::ok()), (5, Said::ok())).await;
        assert_eq!(called.done.attempts, if partial { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_waits_for_its_connection_is_sent_twice_once_it_is_there_whole() {
    for waits in ["pool", "connection", "for itself"] {
        let stack = pair(&StackConfig { attempt_timeout: Some(ms(900)), ..hedging() });
        let shared = CallShared::new();
        shared.forbid_hedge();
        let (begun, clock) = (stack.clock().now(), *stack.clock());
        let mut hedged_at = None;
        let called = stack
            .drive(call(Safety::Idempotent), shared, Finish, |context| -> Made {
                if context.number() > 1 {
                    hedged_at = Some(clock.now().since(begun));
                    return after(context, ms(1), Said::ok());
                }
                Box::pin(async move {
                    // Far beyond the 20 ms after which a hedge is due.
                    match waits {
                        "pool" => context.checkout(sleep(ms(70))).await.unwrap(),
                        "connection" => context.connect(sleep(ms(70))).await.unwrap(),
                        _ => sleep(ms(70)).await,
                    }
                    context.mark_sent();
                    context.shared().allow_hedge();
                    sleep(ms(500)).await;
                    Said::ok()
                })
            })
            .await;
        assert_eq!(called.done.attempts, 2, "{waits}");
        let at = hedged_at.unwrap();
        assert!((ms(70)..=ms(90)).contains(&at), "{waits}: {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_alone_begins_when_the_upload_has_ended() {
    let stack = pair(&hedging());
    let shared = CallShared::new();
    let begun = stack.clock().now();
    let body = Arc::clone(&shared);
    let clock = *stack.clock();
    let mut hedged_at = None;
    let called = stack
        .drive(call(Safety::Idempotent), shared, Finish, |context| -> Made {
            if context.number() > 1 {
                hedged_at = Some(clock.now().since(begun));
                return after(context, ms(1), Said::ok());
            }
            let body = Arc::clone(&body);
            Box::pin(async move {
                context.mark_sent();
                body.upload_flows();
                sleep(ms(100)).await;
                body.upload_ended(clock.now());
                sleep(ms(500)).await;
                Said::ok()
            })
        })
        .await;
    assert_eq!(called.done.attempts, 2);
    // A flowing upload is looked at every 200 ms, and its end is taken in then.
    assert!(hedged_at.unwrap() >= ms(120), "{hedged_at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_no_hedge_costs_no_reading_of_the_clock_for_it() {
    let reads = crate::Clock::reads;
    for (delay, expected) in [(10, 3), (19, 3), (25, 4)] {
        let stack = pair(&hedging());
        let before = reads();
        let first = (delay, Said::ok());
        drop(called(&stack, CallShared::new(), first, (900, Said::ok())).await.0.slot);
        assert_eq!(reads() - before, expected, "begin, answer, end; and one for a hedge");
    }
}
