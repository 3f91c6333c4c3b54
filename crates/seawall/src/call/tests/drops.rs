//! Drops the caller's future at every point at which it can be dropped, and looks for what is
//! missing afterwards.

use super::*;

/// What the attempts of a scenario did.
#[derive(Clone, Debug, Default)]
struct Record {
    sent: Count,
    sent_retries: Count,
    successes: Count,
}

/// One attempt under way, with what it says of itself.
#[derive(Clone)]
struct Attempted {
    context: AttemptContext,
    record: Record,
}

impl Attempted {
    async fn answer(self, delay: Duration, said: Said) -> Said {
        self.record.sent.add();
        if self.context.number() > 1 {
            self.record.sent_retries.add();
        }
        self.context.mark_sent();
        sleep(delay).await;
        if said.outcome.deposits() {
            self.record.successes.add();
        }
        said
    }
}

struct Scenario {
    name: &'static str,
    config: StackConfig,
    endpoints: usize,
    /// How long another call holds a slot, from the begin.
    held_by_other: Option<Duration>,
    deadline: Option<Duration>,
    /// One failure before the begin opens the breaker; the scenario begins half-open.
    half_open: bool,
    attempt: fn(Attempted) -> Made,
}

fn scenario(name: &'static str, attempt: fn(Attempted) -> Made) -> Scenario {
    Scenario {
        name,
        config: config(),
        endpoints: 1,
        held_by_other: None,
        deadline: None,
        half_open: false,
        attempt,
    }
}

fn success(attempt: Attempted) -> Made {
    Box::pin(attempt.answer(ms(10), Said { runs_on: ms(30), ..Said::ok() }))
}

fn hang(attempt: Attempted) -> Made {
    Box::pin(attempt.answer(ms(100_000), Said::ok()))
}

fn sent_late(attempt: Attempted) -> Made {
    Box::pin(async move {
        sleep(ms(10)).await;
        success(attempt).await
    })
}

fn unavailable_once(attempt: Attempted) -> Made {
    let unavailable = Said { sets_aside: ms(20), ..Said::of(status(503)) };
    match attempt.context.number() {
        1 => Box::pin(attempt.answer(ms(10), unavailable)),
        _ => success(attempt),
    }
}

fn refused_once(attempt: Attempted) -> Made {
    Box::pin(async move {
        sleep(ms(5)).await;
        if attempt.context.sequence() == 0 {
            return Said { sets_aside: ms(20), ..Said::of(Outcome::of(Cause::ConnectRefused)) };
        }
        success(attempt).await
    })
}

fn checkout(attempt: Attempted) -> Made {
    Box::pin(async move {
        let _ = attempt.context.checkout(sleep(ms(30))).await;
        success(attempt).await
    })
}

fn checkout_in_vain(attempt: Attempted) -> Made {
    Box::pin(async move {
        let _ = attempt.context.checkout(std::future::pending::<()>()).await;
        Said::of(Outcome::of(Cause::CheckoutTimeout))
    })
}

fn overtaken(attempt: Attempted) -> Made {
    match attempt.context.number() {
        1 => Box::pin(attempt.answer(ms(60), Said::ok())),
        _ => success(attempt),
    }
}

fn faster_than_its_hedge(attempt: Attempted) -> Made {
    match attempt.context.number() {
        1 => Box::pin(attempt.answer(ms(25), Said::ok())),
        _ => hang(attempt),
    }
}

/// Both fail, the one while it is waited for the other; a third attempt is made.
fn both_unavailable(attempt: Attempted) -> Made {
    let unavailable = Said { sets_aside: ms(20), ..Said::of(status(503)) };
    match attempt.context.number() {
        1 => Box::pin(attempt.answer(ms(25), unavailable)),
        2 => Box::pin(attempt.answer(ms(10), unavailable)),
        _ => success(attempt),
    }
}

fn hedge_without_a_connection(attempt: Attempted) -> Made {
    match attempt.context.number() {
        1 => Box::pin(attempt.answer(ms(100), Said::ok())),
        _ => checkout_in_vain(attempt),
    }
}

fn never_sent(_: Attempted) -> Made {
    Box::pin(std::future::pending())
}

fn scenarios() -> Vec<Scenario> {
    let narrow = || one_at_a_time(ms(200), 5);
    let behind = |hold| Scenario {
        config: narrow(),
        held_by_other: Some(ms(hold)),
        ..scenario("queue", success)
    };
    let two_endpoints =
        |name, config| Scenario { config, endpoints: 2, ..scenario(name, refused_once) };
    let probing = |name, attempt| Scenario {
        config: StackConfig { breaker: Some(touchy()), ..config() },
        half_open: true,
        ..scenario(name, attempt)
    };
    let hedged =
        |name, attempt| Scenario { config: hedging(), endpoints: 2, ..scenario(name, attempt) };
    let no_retry = StackConfig { retry: None, ..config() };
    let brief_checkout = StackConfig { checkout: Some(ms(50)), ..config() };
    vec![
        scenario("success", success),
        scenario("sent late", sent_late),
        scenario("retry after 503", unavailable_once),
        scenario("timeouts", hang),
        Scenario { config: no_retry, ..scenario("never sent", never_sent) },
        Scenario { deadline: Some(ms(150)), ..scenario("cut by the caller", hang) },
        Scenario { deadline: Some(ms(150)), ..scenario("cut before sending", never_sent) },
        behind(30),
        Scenario { name: "queue in vain", ..behind(1_000) },
        Scenario { attempt: unavailable_once, name: "queue, then retry", ..behind(30) },
        scenario("checkout", checkout),
        scenario("checkout past the attempt", checkout_in_vain),
        Scenario { config: brief_checkout, ..scenario("checkout in vain", checkout_in_vain) },
        two_endpoints("redispatch", config()),
        two_endpoints("redispatch into a full bulkhead", narrow()),
        hedged("hedge", overtaken),
        hedged("hedge that loses", faster_than_its_hedge),
        hedged("hedge, then retry", both_unavailable),
        hedged("hedge in vain", hedge_without_a_connection),
        Scenario { deadline: Some(ms(150)), ..hedged("two that send nothing", never_sent) },
        hedged("two that hang", hang),
        Scenario { deadline: Some(ms(150)), ..hedged("two that are cut", hang) },
        probing("probe", success),
        probing("probe sent late", sent_late),
        probing("probe in vain", checkout_in_vain),
    ]
}

/// When the caller's future is dropped: after its nth poll, at once or when it is woken again.
#[derive(Clone, Copy, Debug)]
struct DropAt {
    polls: u32,
    when_woken: bool,
}

/// Whether the call came to its end before.
async fn run_until(at: DropAt, called: impl Future<Output = Called<Said>>) -> bool {
    let mut called = Box::pin(called);
    let mut polls = 0;
    let ended = poll_fn(|cx| {
        if polls == at.polls {
            return Poll::Ready(None);
        }
        polls += 1;
        match called.as_mut().poll(cx) {
            Poll::Ready(called) => Poll::Ready(Some(called)),
            Poll::Pending if polls == at.polls && !at.when_woken => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    ended.is_some()
}

/// Runs a scenario to the drop, and checks what is left then and later. Whether it had ended.
async fn check<A: OnAbandon<Made>>(scenario: &Scenario, on_abandon: A, at: DropAt) -> bool {
    let params = StackParams::new(&scenario.config).unwrap();
    let clock = crate::Clock::new();
    let stack = Stack::with_topology("inventory", params, clock, scenario.endpoints, 1);
    if scenario.half_open {
        drop(drive(&stack, ms(0), Said::of(Outcome::of(Cause::Closed))).await);
        sleep(ms(1_001)).await;
        assert_eq!(breaker(&stack), BreakerState::HalfOpen);
    }
    let other = scenario.held_by_other.map(|delay| {
        let stack = stack.clone();
        tokio::spawn(async move {
            drop(drive(&stack, delay, Said::of(Outcome::of(Cause::UploadFailed))).await)
        })
    });
    tokio::task::yield_now().await;
    let before = holding(&stack).millitokens;
    let record = Record::default();
    let call = Call {
        deadline: scenario.deadline.map(|left| clock.now().after(left)),
        ..call(Safety::Idempotent)
    };
    let called = stack.drive(call, CallShared::new(), on_abandon, |context| {
        (scenario.attempt)(Attempted { context, record: record.clone() })
    });
    let ended = run_until(at, called).await;
    let context = format!("{} {at:?} {record:?}", scenario.name);
    assert_eq!(stack.wakers(), 0, "a waker is left: {context}");
    if record.sent.get() == 0 && other.is_none() {
        let now = holding(&stack);
        assert_eq!((now.in_flight, now.waiting, now.held), (0, 0, 0), "unsent: {context}");
        assert_eq!(now.millitokens, before, "unsent: {context}");
    }
    // Longer than twice the attempt timeout: every held slot has been given up by then.
    sleep(ms(1_500)).await;
    if let Some(other) = other {
        other.await.unwrap();
    }
    stack.housekeep();
    let now = holding(&stack);
    assert_eq!((now.in_flight, now.waiting, now.held), (0, 0, 0), "{context}");
    let (spent, earned) = (record.sent_retries.get(), record.successes.get());
    let expected = before + u64::from(100 * earned) - u64::from(1_000 * spent);
    assert_eq!(now.millitokens, expected, "{context}");
    if scenario.half_open {
        let next = drive(&stack, ms(0), Said::ok()).await;
        assert_eq!(next.done.stop, StopReason::Answered, "a probe is missing: {context}");
    }
    ended
}

async fn check_all<A: OnAbandon<Made>>(on_abandon: A) {
    for scenario in scenarios() {
        for when_woken in [false, true] {
            let mut polls = 0;
            while !check(&scenario, on_abandon, DropAt { polls, when_woken }).await {
                polls += 1;
                assert!(polls < 100, "{} has an end", scenario.name);
            }
            assert!(polls >= 1, "{} has a point to drop at", scenario.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_anywhere_leaks_nothing_when_calls_are_cancelled() {
    check_all(Cancel).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_anywhere_leaks_nothing_when_calls_run_on() {
    check_all(Finish).await;
}
