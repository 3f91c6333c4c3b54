//! What the tests of this crate share.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use seawall_policy::{
    AnswerSignals, BackoffOptions, Call, Cause, Jitter, Outcome, Safety, StackConfig, Timestamp,
};

use crate::call::Answer;
use crate::stack::Stack;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Three attempts, 100 ms and 200 ms apart without jitter, 400 ms each, 2 s in all.
pub(crate) fn config() -> StackConfig {
    let mut config = StackConfig {
        total: Some(ms(2_000)),
        attempt_timeout: Some(ms(400)),
        ..StackConfig::standard()
    };
    let retry = config.retry.as_mut().unwrap();
    retry.max_attempts = 3;
    retry.backoff = BackoffOptions { jitter: Jitter::None, ..BackoffOptions::default() };
    config
}

pub(crate) fn stack(config: &StackConfig) -> Stack {
    Stack::new("inventory", config).unwrap()
}

pub(crate) const fn call(safety: Safety) -> Call {
    Call {
        lane: 0,
        safety,
        owner: true,
        deadline: None,
        total: None,
        rate_key: None,
        attempt_timeout: None,
        retry: None,
        refresh: None,
    }
}

/// What a dependency holds; a call in flight counts twice, in its bulkhead and at its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) in_flight: u32,
    pub(crate) waiting: u32,
    pub(crate) held: usize,
    pub(crate) abandoned: usize,
    pub(crate) millitokens: u64,
}

pub(crate) fn holding(stack: &Stack) -> Holding {
    stack.with(|dependency, params, _| Holding {
        in_flight: dependency.bulkhead().in_flight()
            + (0..2)
                .filter_map(|endpoint| {
                    dependency.endpoint_view(Timestamp::ZERO, params, endpoint, 0)
                })
                .map(|endpoint| endpoint.in_flight)
                .sum::<u32>(),
        waiting: dependency.bulkhead().waiting(),
        held: dependency.held(),
        abandoned: dependency.abandoned(),
        millitokens: dependency.budget_millitokens().unwrap_or(2_000),
    })
}

pub(crate) fn status(code: u16) -> Outcome {
    Outcome::of_status(code, AnswerSignals::default())
}

/// An answer of a test: what it means, and how long it goes on when its caller has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) outcome: Outcome,
    pub(crate) runs_on: Duration,
    pub(crate) sets_aside: Duration,
}

impl Said {
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self { outcome, runs_on: Duration::ZERO, sets_aside: Duration::ZERO }
    }

    pub(crate) fn ok() -> Self {
        Self::of(Outcome::of(Cause::Answered))
    }
}

impl Answer for Said {
    fn outcome(&self) -> Outcome {
        self.outcome
    }

    async fn set_aside(self) -> Option<Self> {
        if !self.sets_aside.is_zero() {
            tokio::time::sleep(self.sets_aside).await;
        }
        Some(self)
    }

    async fn run_on(self) {
        if !self.runs_on.is_zero() {
            tokio::time::sleep(self.runs_on).await;
        }
    }
}

/// The output, if one poll gives it.
pub(crate) async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A counter that clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    pub(crate) fn add(&self) -> u32 {
        self.0.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
