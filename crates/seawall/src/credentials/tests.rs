use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;

use seawall_policy::{
    BulkheadOptions, Cause, Class, HedgeDelay, HedgeOptions, Outcome, Ratio, Safety, StackConfig,
    StopReason,
};
use tokio::time::{sleep, timeout};

use super::*;
use crate::attempt::{AttemptContext, CallShared};
use crate::call::Answer;
use crate::client::CallOptions;
use crate::flight::Cancel;
use crate::report::Report;
use crate::stack::Stack;
use crate::testing::{Count, call, config, holding, ms, poll_once, stack, status};

/// A source that gives `secret-1`, `secret-2`, … after `takes`, and how often it was asked.
fn counting(takes: Duration) -> (Credentials, Count) {
    let asked = Count::default();
    let count = asked.clone();
    let source = move || {
        let number = count.add();
        async move {
            sleep(takes).await;
            Ok::<_, Infallible>(Credential::new(format!("secret-{number}")))
        }
    };
    (Credentials::new(Credential::new("secret-0"), source), asked)
}

/// A source that does `what`, and how often it was asked.
fn doing<F>(what: fn() -> F) -> (Credentials, Count)
where
    F: Future<Output = Result<Credential, ()>> + Send + 'static,
{
    let asked = Count::default();
    let count = asked.clone();
    let source = move || {
        count.add();
        what()
    };
    (Credentials::new(Credential::new("secret-0"), source), asked)
}

fn shown(attempt: &AttemptContext) -> String {
    String::from_utf8(attempt.credential().unwrap().expose().to_vec()).unwrap()
}

/// A write, of attempts of 10 ms, to an upstream that takes only `accepted`; and what it was shown.
async fn write(stack: &Stack, accepted: &str) -> (Report<u16, ()>, Vec<String>) {
    let mut seen = Vec::new();
    let report = stack
        .call(
            CallOptions::unsafe_to_repeat(),
            |result: &Result<u16, ()>| status(*result.as_ref().unwrap()),
            |attempt| {
                let secret = shown(&attempt);
                let code = if secret == accepted { 200 } else { 401 };
                seen.push(secret);
                async move {
                    sleep(ms(10)).await;
                    Ok(code)
                }
            },
        )
        .await;
    (report, seen)
}

fn counts(credentials: &Credentials) -> [u64; 4] {
    RefreshResult::ALL.map(|result| credentials.count(result))
}

#[tokio::test(start_paused = true)]
async fn a_hundred_rejections_at_once_cause_one_refresh_and_two_attempts_each() {
    let (credentials, asked) = counting(ms(50));
    let bulkhead = Some(BulkheadOptions::with_limit(100));
    let stack = stack(&StackConfig { bulkhead, ..config() }).with_credentials(credentials.clone());
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let stack = stack.clone();
            tokio::spawn(async move { write(&stack, "secret-1").await })
        })
        .collect();
    let mut ends = BTreeMap::new();
    for call in calls {
        let (report, seen) = call.await.unwrap();
        assert_eq!((report.result.unwrap(), report.attempts), (200, 2));
        assert_eq!(seen, ["secret-0", "secret-1"]);
        *ends.entry(report.stop.as_str()).or_insert(0) += 1;
    }
    assert_eq!(ends, BTreeMap::from([("answered", 100)]));
    assert_eq!((asked.get(), counts(&credentials)), (1, [1, 0, 0, 0]));
    assert_eq!((holding(&stack).in_flight, holding(&stack).waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_of_what_is_new_goes_up_and_the_source_is_asked_once_a_second() {
    let (credentials, asked) = counting(ms(0));
    let stack = stack(&config()).with_credentials(credentials);
    let begun = stack.clock().now();
    let (report, seen) = write(&stack, "another").await;
    assert_eq!((report.result.unwrap(), report.stop), (401, StopReason::NotRetryable));
    assert_eq!(seen, ["secret-0", "secret-1"]);
    while stack.clock().now().since(begun) < ms(10_000) {
        assert!(write(&stack, "another").await.1.len() <= 2);
    }
    assert!((9..=10).contains(&asked.get()), "{}", asked.get());
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_leaves_one_attempt_and_is_believed_for_a_second() {
    let same = || async { Ok(Credential::new("secret-0")) };
    let fails = || async { Err(()) };
    let hangs = || async { std::future::pending().await };
    let panics = || async { panic!("in the source") };
    for ((credentials, asked), expected) in [
        (doing(same), [0, 1, 0, 0]),
        (doing(fails), [0, 0, 1, 0]),
        (doing(panics), [0, 0, 1, 0]),
        (doing(hangs), [0, 0, 0, 1]),
    ] {
        let config = StackConfig { total: Some(ms(5_000)), ..config() };
        let stack = stack(&config).with_credentials(credentials.clone());
        let (report, seen) = write(&stack, "secret-1").await;
        assert_eq!((report.result.unwrap(), report.attempts), (401, 1));
        assert_eq!((seen.len(), asked.get()), (1, 1));
        let believed = stack.clock().now();
        sleep(ms(980)).await;
        assert_eq!(counts(&credentials), expected);
        assert_eq!(write(&stack, "secret-1").await.1.len(), 1);
        assert_eq!(stack.clock().now().since(believed), ms(990), "nothing is waited for");
        assert_eq!(asked.get(), 1);
        drop(write(&stack, "secret-1").await);
        assert_eq!(asked.get(), 2, "after a second");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_is_waited_for_as_long_as_the_call_has_and_serves_the_next() {
    let (credentials, asked) = counting(ms(1_999));
    let config = StackConfig { total: Some(ms(500)), ..config() };
    let stack = stack(&config).with_credentials(credentials.clone());
    let begun = stack.clock().now();
    let (report, _) = write(&stack, "secret-1").await;
    assert_eq!((report.result.unwrap(), report.attempts), (401, 1));
    assert_eq!(stack.clock().now().since(begun), ms(500));
    sleep(ms(1_600)).await;
    assert_eq!(write(&stack, "secret-1").await.1, ["secret-1"]);
    assert_eq!((asked.get(), counts(&credentials)), (1, [1, 0, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_of_an_older_credential_takes_the_newer_at_once() {
    let (credentials, asked) = counting(ms(5));
    let stack = stack(&config()).with_credentials(credentials);
    let slow = stack.call(
        CallOptions::unsafe_to_repeat(),
        |result: &Result<u16, ()>| status(*result.as_ref().unwrap()),
        |attempt| async move {
            let is_old = shown(&attempt) == "secret-0";
            sleep(ms(if is_old { 300 } else { 10 })).await;
            Ok(if is_old { 401 } else { 200 })
        },
    );
    let begun = stack.clock().now();
    let (slow, (quick, _)) = tokio::join!(slow, write(&stack, "secret-1"));
    assert_eq!((quick.result.unwrap(), slow.result.unwrap()), (200, 200));
    assert_eq!((slow.attempts, asked.get()), (2, 1));
    assert_eq!(stack.clock().now().since(begun), ms(310), "no time for a refresh");
}

#[tokio::test(start_paused = true)]
async fn one_put_in_place_is_taken_at_once_by_whoever_waits_and_outlives_an_older_reading() {
    let (credentials, asked) = counting(ms(500));
    let stack = stack(&config()).with_credentials(credentials.clone());
    let put = async {
        sleep(ms(100)).await;
        credentials.replace(Credential::new("put"));
    };
    let begun = stack.clock().now();
    let ((report, seen), ()) = tokio::join!(write(&stack, "put"), put);
    assert_eq!((report.result.unwrap(), seen), (200, vec!["secret-0".into(), "put".into()]));
    assert_eq!(stack.clock().now().since(begun), ms(110), "the refresh is not waited for");
    sleep(ms(500)).await;
    assert_eq!((credentials.current().expose(), asked.get()), (&b"put"[..], 1));
    assert_eq!(counts(&credentials), [0, 1, 0, 0], "what was read before is not taken");
    let generation = credentials.issued().generation;
    credentials.replace(Credential::new("put"));
    assert_eq!(credentials.issued().generation, generation, "the same is no other one");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_a_refresh_leaks_nothing_and_stops_it_for_nobody() {
    let (credentials, asked) = counting(ms(50));
    let stack = stack(&config()).with_credentials(credentials.clone());
    for left_after in [ms(15), ms(45)] {
        assert!(timeout(left_after, write(&stack, "secret-1")).await.is_err());
        let rest = holding(&stack);
        assert_eq!((rest.in_flight, rest.waiting, rest.held, rest.abandoned), (0, 0, 0, 0));
        assert_eq!(stack.wakers(), 0);
    }
    sleep(ms(5)).await;
    assert_eq!(write(&stack, "secret-1").await.1, ["secret-1"]);
    assert_eq!((asked.get(), counts(&credentials)), (1, [1, 0, 0, 0]));
    assert_eq!(Arc::strong_count(&credentials.inner), 2, "ours and the stack's");
}

/// A rejection of a request that was not kept.
struct Large;

impl Answer for Large {
    fn outcome(&self) -> Outcome {
        status(401)
    }

    fn is_replayable(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_again_has_the_credential_refreshed_for_those_that_follow() {
    let (credentials, asked) = counting(ms(50));
    let stack = stack(&config()).with_credentials(credentials.clone());
    let called = stack
        .drive(call(Safety::Unsafe), CallShared::new(), Cancel, |_| std::future::ready(Large))
        .await;
    assert_eq!(called.done.attempts, 1);
    assert_eq!(called.done.stop, StopReason::NotRetryable);
    sleep(ms(51)).await;
    assert_eq!((asked.get(), credentials.current()), (1, Credential::new("secret-1")));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_hedge_takes_the_other_attempt_down_and_both_go_on_as_one() {
    let (credentials, asked) = counting(ms(50));
    let hedge = HedgeOptions {
        delay: HedgeDelay::Fixed(ms(20)),
        max_extra: Ratio::ONE,
        max_load: Ratio::ONE,
        same_endpoint: true,
        ..HedgeOptions::default()
    };
    let config = StackConfig { hedge: Some(hedge), ..config() };
    let stack = stack(&config).with_credentials(credentials);
    let begun = stack.clock().now();
    let report = stack
        .call(
            CallOptions::idempotent(),
            |result: &Result<u16, ()>| status(*result.as_ref().unwrap()),
            |attempt| async move {
                let (number, secret) = (attempt.number(), shown(&attempt));
                sleep(ms(if number == 1 { 390 } else { 10 })).await;
                Ok(if secret == "secret-1" { 200 } else { 401 })
            },
        )
        .await;
    assert_eq!((report.result.unwrap(), report.attempts, asked.get()), (200, 3, 1));
    assert_eq!(stack.clock().now().since(begun), ms(20 + 10 + 50 + 10));
    sleep(ms(500)).await;
    stack.housekeep();
    assert_eq!(holding(&stack).in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_a_success_for_the_breaker_and_pays_for_retries() {
    let (credentials, _) = counting(ms(5));
    let stack = stack(&config()).with_credentials(credentials);
    let before = holding(&stack).millitokens;
    drop(write(&stack, "secret-1").await);
    assert_eq!(holding(&stack).millitokens, before + 2 * 100);
    assert_eq!(status(401).class(), Class::Rejected);
}

#[tokio::test(start_paused = true)]
async fn a_stack_without_credentials_hands_none_out_and_refreshes_nothing() {
    let (credentials, asked) = counting(ms(5));
    let with = stack(&config()).with_credentials(credentials);
    let without = stack(&config());
    assert!(with.credentials().is_some() && without.credentials().is_none());
    let report = without
        .call(
            CallOptions::idempotent(),
            |result: &Result<u16, ()>| status(*result.as_ref().unwrap()),
            |attempt| {
                assert!(attempt.credential().is_none());
                async { Ok(401) }
            },
        )
        .await;
    assert_eq!((report.attempts, asked.get()), (1, 0));
    assert_eq!(report.outcome.cause(), Cause::Status(401));
}

#[tokio::test(start_paused = true)]
async fn no_debug_output_has_the_secret() {
    let (credentials, _) = counting(ms(50));
    let stack = stack(&config()).with_credentials(credentials.clone());
    let value = credentials.current().header_value().unwrap();
    let mut seen = format!("{credentials:?} {stack:?} {value:?} {:?}", credentials.current());
    let called = stack.call(
        CallOptions::idempotent(),
        |_: &Result<(), ()>| status(401),
        |attempt| {
            seen += &format!("{attempt:?}");
            async { Ok(()) }
        },
    );
    assert!(poll_once(pin!(called)).await.is_none());
    assert!(seen.contains("Credential(..)") && !seen.contains("secret-"), "{seen}");
}

#[test]
fn a_time_that_cannot_be_meant_is_refused_and_so_is_what_no_field_can_carry() {
    let source = || async { Err::<Credential, ()>(()) };
    for timeout in [ms(0), ms(60_001)] {
        let refused = Credentials::with_timeout(Credential::new("a"), timeout, source);
        assert_eq!(refused.unwrap_err().field(), "timeout");
    }
    let longest = Credentials::with_timeout(Credential::new("a"), ms(60_000), source).unwrap();
    assert_eq!(longest.timeout(), ms(60_000));
    assert!(Credential::new("a\nb").header_value().is_err());
}
