//! Calls any future through the whole chain.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use seawall_policy::{Call, Outcome, RateKey, Safety, Timestamp};

use crate::attempt::{AttemptContext, CallShared};
use crate::call::Answer;
use crate::flight::Cancel;
use crate::grpc::in_callers_time;
use crate::report::Report;
use crate::stack::Stack;

/// What a call is, before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Whether a second execution is harmless. Default: it is not.
    pub safety: Safety,
    /// Whether this layer owns the retries of the path. Default true.
    pub owner: bool,
    /// When the caller stops waiting, on the stack's clock. Default: it did not say.
    pub deadline: Option<Timestamp>,
    /// The lane (route) it runs in. Default 0.
    pub lane: usize,
    /// Whose call it is, where [`StackConfig::rate_per_key`](crate::StackConfig::rate_per_key)
    /// limits each ([`Stack::rate_key`]). Default: nobody's, so that only the rate of all holds.
    pub rate_key: Option<RateKey>,
}

impl CallOptions {
    /// A call that may be executed twice: a read, or a write that carries a key.
    #[must_use]
    pub const fn idempotent() -> Self {
        Self { safety: Safety::Idempotent, ..Self::unsafe_to_repeat() }
    }

    /// A call that must not be executed twice.
    #[must_use]
    pub const fn unsafe_to_repeat() -> Self {
        Self { safety: Safety::Unsafe, owner: true, deadline: None, lane: 0, rate_key: None }
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self::unsafe_to_repeat()
    }
}

impl From<CallOptions> for Call {
    fn from(options: CallOptions) -> Self {
        let CallOptions { safety, owner, deadline, lane, rate_key } = options;
        Self {
            lane,
            safety,
            owner,
            deadline,
            total: None,
            rate_key,
            attempt_timeout: None,
            retry: None,
            refresh: None,
        }
    }
}

impl Stack {
    /// Makes a call: `attempt` is asked for a future per attempt, `classify` says what its result
    /// means. Dropping the returned future is the caller leaving: the attempt is cancelled, and
    /// what may have been sent holds its slot until it is given up.
    ///
    /// ```
    /// # use seawall::{CallOptions, Cause, Outcome, Stack, StackConfig};
    /// # let mut runtime = tokio::runtime::Builder::new_current_thread();
    /// # runtime.enable_time().build().unwrap().block_on(async {
    /// let stack = Stack::new("inventory", &StackConfig::http())?;
    /// let report = stack
    ///     .call(
    ///         CallOptions::idempotent(),
    ///         |result: &Result<u32, std::io::Error>| match result {
    ///             Ok(_) => Outcome::of(Cause::Answered),
    ///             Err(_) => Outcome::of(Cause::Closed),
    ///         },
    ///         async |_attempt| Ok(7),
    ///     )
    ///     .await;
    /// assert_eq!(report.result.unwrap(), 7);
    /// assert_eq!(report.attempts, 1);
    /// # Ok::<(), seawall::ConfigError>(()) }).unwrap();
    /// ```
    pub async fn call<T, E, F>(
        &self,
        options: CallOptions,
        classify: impl Fn(&Result<T, E>) -> Outcome,
        mut attempt: impl FnMut(AttemptContext) -> F,
    ) -> Report<T, E>
    where
        T: Send,
        E: Send,
        F: Future<Output = Result<T, E>>,
    {
        let shared = CallShared::new();
        let (marks, classify) = (&*shared, &classify);
        let now = self.clock().now();
        let called = self
            .drive_from(now, options.into(), &shared, Cancel, |context| {
                Sending::new(marks, context.sequence(), attempt(context), classify)
            })
            .await;
        Report::of(called)
    }
}

/// What an attempt gave, if it was made, and what that means.
#[derive(Debug)]
pub(crate) struct Tried<T, E> {
    pub(crate) result: Option<Result<T, E>>,
    pub(crate) outcome: Outcome,
}

impl<T: Send, E: Send> Answer for Tried<T, E> {
    fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn is_whole(&self) -> bool {
        true
    }
}

pin_project_lite::pin_project! {
    /// Marks the attempt as sent as soon as its future does anything but wait for a connection,
    /// and classifies what it gives.
    pub(crate) struct Sending<'a, F, C> {
        marks: &'a CallShared,
        sequence: u32,
        classify: C,
        #[pin]
        future: F,
    }
}

impl<'a, F, C> Sending<'a, F, C> {
    pub(crate) const fn new(marks: &'a CallShared, sequence: u32, future: F, classify: C) -> Self {
        Self { marks, sequence, classify, future }
    }
}

impl<F, C, T, E> Future for Sending<'_, F, C>
where
    F: Future<Output = Result<T, E>>,
    C: Fn(&Result<T, E>) -> Outcome,
{
    type Output = Tried<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let sending = self.project();
        let (marks, sequence) = (*sending.marks, *sending.sequence);
        let Poll::Ready(result) = sending.future.poll(cx) else {
            if !marks.is_waiting(sequence) {
                marks.mark_sent(sequence);
            }
            return Poll::Pending;
        };
        let outcome = match marks.waited_in_vain(sequence).filter(|_| result.is_err()) {
            Some(cause) => Outcome::of(cause),
            None => {
                marks.mark_sent(sequence);
                let outcome = (sending.classify)(&result);
                match marks.is_calls_end_told(sequence) {
                    true => in_callers_time(outcome),
                    false => outcome,
                }
            }
        };
        Poll::Ready(Tried { result: Some(result), outcome })
    }
}
