//! One attempt in flight, apart from its caller.
//!
//! An attempt's future lives in one box with its permit and its timer, so that it can go on
//! without its caller: what "the caller left" means is the [`OnAbandon`] passed in. Whatever
//! happens, the permit comes back exactly once:
//!
//! | the caller leaves while | what happens |
//! |---|---|
//! | queued or backing off | ticket and payment are returned |
//! | nothing was sent yet | everything is returned, nothing is recorded |
//! | sent, [`Finish`] | the call runs on to its end or its own timeout and is recorded then |
//! | sent, [`Cancel`] | the future is dropped; the slot frees when the call is given up |

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use seawall_policy::{Attempt, Cause, Outcome, Timestamp};
use tokio::time::{Sleep, sleep_until};

use crate::attempt::{CallShared, Upload};
use crate::call::Answer;
use crate::stack::Stack;

mod lease;

use lease::{Hold, Lease};

/// What happens to an attempt in flight whose caller left, or no longer waits for it.
pub trait OnAbandon<F: Future>: Copy + Unpin {
    /// Takes over the attempt.
    fn abandon(&self, call: InFlight<F>);
}

/// The attempt is dropped where it stands; its slot is freed when it is given up.
#[derive(Clone, Copy, Debug)]
pub struct Cancel;

impl<F: Future> OnAbandon<F> for Cancel {
    fn abandon(&self, call: InFlight<F>) {
        drop(call);
    }
}

/// The attempt runs on in a task of its own, to its end or its own timeout. Outside a tokio
/// runtime it is cancelled.
#[derive(Clone, Copy, Debug)]
pub struct Finish;

impl<F> OnAbandon<F> for Finish
where
    F: Future + Send + 'static,
    F::Output: Answer + Send,
{
    fn abandon(&self, mut call: InFlight<F>) {
        // What has nothing to run on for is returned here and now.
        if call.may_run_on()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(call.run_on());
        }
    }
}

/// One attempt in flight. Dropping it abandons the attempt.
#[must_use = "dropping an attempt abandons it"]
pub struct InFlight<F: Future>(Pin<Box<Flight<F>>>);

pin_project_lite::pin_project! {
    struct Flight<F: Future> {
        // There from boarding on.
        #[pin]
        future: Option<F>,
        // Made when the future is first waited for: many never are.
        #[pin]
        timer: Option<Sleep>,
        lease: Lease,
        deadline: Timestamp,
        cut_by_call: bool,
        stated: Timestamp,
        hedge_at: Timestamp,
        // How long it is given alone.
        alone: Duration,
    }
}

/// What a poll of an attempt brought.
pub(crate) enum Flown<T> {
    Answer(T),
    /// The upload has ended: its clocks are to be started again.
    UploadEnded,
    /// It has been alone for as long as it is given, by this time.
    HedgeDue(Timestamp),
    Deadline,
}

impl<F: Future> InFlight<F> {
    /// Takes the permit in before there is a future, so that nothing that happens while that is
    /// made loses it.
    pub(crate) fn new(
        stack: &Stack,
        shared: &Arc<CallShared>,
        sequence: u32,
        attempt: Attempt,
        stated: Option<Timestamp>,
    ) -> Self {
        let Attempt { deadline, cut_by_call, hedge_at, permit, .. } = attempt;
        let hedge_at = hedge_at.unwrap_or(Timestamp::MAX);
        // Written where it is to be: it is large.
        let flight = Box::write(
            Box::new_uninit(),
            Flight {
                future: None,
                timer: None,
                deadline,
                cut_by_call,
                stated: stated.unwrap_or(Timestamp::MAX),
                hedge_at,
                alone: hedge_at.since(permit.granted()),
                lease: Lease::new(stack, shared, sequence, permit),
            },
        );
        Self(Box::into_pin(flight))
    }

    /// Takes in what makes the attempt.
    pub(crate) fn board(&mut self, future: F) {
        self.0.as_mut().project().future.set(Some(future));
    }

    /// Polls the attempt, and its slow threshold; ready with the answer, or at the deadline.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Flown<F::Output>> {
        let flight = self.0.as_mut().project();
        if let Some(future) = flight.future.as_pin_mut()
            && let Poll::Ready(answer) = future.poll(cx)
        {
            return Poll::Ready(Flown::Answer(answer));
        }
        if let (Some(since), Hold::Permit(permit)) =
            (flight.lease.shared.take_checkout_end(flight.lease.sequence), &mut flight.lease.hold)
        {
            permit.restart(since, &flight.lease.stack.params());
            if *flight.hedge_at != Timestamp::MAX {
                *flight.hedge_at = since.after(*flight.alone);
            }
            self.wind(self.next_look());
        }
        loop {
            ready!(self.poll_timer(cx));
            let flight = self.0.as_mut().project();
            let now = flight.lease.stack.clock().now();
            match flight.lease.upload() {
                Upload::Ended(_) => return Poll::Ready(Flown::UploadEnded),
                Upload::Flowing if now >= *flight.stated => {
                    *flight.cut_by_call = true;
                    return Poll::Ready(Flown::Deadline);
                }
                // Else only the idle limit of the body applies; look again a little later.
                Upload::Flowing => {
                    let next = now.after(UPLOAD_TICK).min(*flight.stated);
                    self.wind(next);
                }
                Upload::Complete if now >= *flight.deadline => return Poll::Ready(Flown::Deadline),
                // Nothing of its body was read yet, so it cannot go twice yet either.
                Upload::Complete if now >= *flight.hedge_at && flight.lease.waits_with_body() => {
                    *flight.hedge_at = now.after((*flight.alone).max(CONNECT_TICK));
                    flight.lease.watch(now);
                    self.wind(self.next_look());
                }
                Upload::Complete => {
                    let is_hedge_due = now >= *flight.hedge_at;
                    if is_hedge_due {
                        *flight.hedge_at = Timestamp::MAX;
                    }
                    flight.lease.watch(now);
                    self.wind(self.next_look());
                    if is_hedge_due {
                        return Poll::Ready(Flown::HedgeDue(now));
                    }
                }
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.timer.is_none() {
            let at = self.0.lease.stack.clock().instant(self.next_look());
            self.0.as_mut().project().timer.set(Some(sleep_until(at)));
        }
        self.0.as_mut().project().timer.as_pin_mut().map_or(Poll::Pending, |timer| timer.poll(cx))
    }

    /// When there is something to look at, for its clocks' sake.
    fn next_look(&self) -> Timestamp {
        self.0.deadline.min(self.0.lease.slow_at()).min(self.0.hedge_at)
    }

    /// Lets the timer, if there is one yet, go off at `next`.
    fn wind(&mut self, next: Timestamp) {
        let flight = self.0.as_mut().project();
        if let Some(timer) = flight.timer.as_pin_mut() {
            timer.reset(flight.lease.stack.clock().instant(next));
        }
    }

    /// Moves the deadline; the timer goes off at the slow threshold if that comes first.
    pub(crate) fn extend(&mut self, deadline: Timestamp, cut_by_call: bool) {
        let flight = self.0.as_mut().project();
        (*flight.deadline, *flight.cut_by_call) = (deadline, cut_by_call);
        self.wind(self.next_look());
    }

    /// Its time begins at `now`: a large upload has ended.
    pub(crate) fn restart_hedge(&mut self, now: Timestamp) {
        let flight = self.0.as_mut().project();
        if *flight.hedge_at != Timestamp::MAX {
            *flight.hedge_at = now.after(*flight.alone);
        }
    }

    /// Nobody waits for it any longer, so nothing is made beside it.
    fn stay_alone(&mut self) {
        *self.0.as_mut().project().hedge_at = Timestamp::MAX;
    }

    pub(crate) fn lease(&mut self) -> &mut Lease {
        self.0.as_mut().project().lease
    }

    pub(crate) fn is_cut_by_call(&self) -> bool {
        self.0.cut_by_call
    }

    /// Its place among all that the call makes, as its
    /// [context](crate::AttemptContext::sequence) says.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.0.lease.sequence
    }

    /// Whether its own time was up, so that it only holds its slot, if that.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        !matches!(self.0.lease.hold, Hold::Permit(_))
    }

    /// Gives the attempt up: what was sent may still be executed and holds its slot.
    pub fn give_up(&mut self, now: Timestamp) {
        self.lease().give_up(now);
    }

    /// Whether the other side may be executing it: it was sent whole, or holds its slot for that.
    fn may_run_on(&mut self) -> bool {
        let flowing = self.lease().shared.upload() == Upload::Flowing;
        match &self.lease().hold {
            Hold::Permit(_) => self.lease().is_sent() && !flowing,
            Hold::Held(_) => true,
            Hold::Nothing => false,
        }
    }

    /// Sets the clocks to the attempt's own, without its caller. False: nothing is left of it.
    fn take_own_clocks(&mut self) -> bool {
        let stack = self.lease().stack.clone();
        let now = stack.clock().now();
        let timeout = self.lease().timeout;
        let (cut_by_call, deadline) = (self.0.cut_by_call, self.0.deadline);
        let Some(permit) = self.lease().permit() else { return self.outlast_hold() };
        match timeout {
            Some(timeout) if cut_by_call => {
                let own = permit.granted().after(timeout);
                self.extend(own, false);
                true
            }
            None if now >= deadline => {
                self.give_up(now);
                self.outlast_hold()
            }
            Some(_) | None => true,
        }
    }

    /// Runs until the slot is given up. False: it is free already.
    fn outlast_hold(&mut self) -> bool {
        let Hold::Held(held) = &self.lease().hold else { return false };
        let until = held.until();
        self.extend(until, false);
        true
    }
}

impl<F> InFlight<F>
where
    F: Future,
    F::Output: Answer + Send,
{
    /// Goes on without the caller: to the end, or to the attempt's own timeout, is recorded then,
    /// and holds its slot until it has really ended or is given up. An attempt that has sent
    /// nothing, or whose upload still flows, is dropped.
    pub async fn run_on(mut self) {
        if !self.may_run_on() {
            return;
        }
        self.stay_alone();
        self.lease().orphan();
        if !self.take_own_clocks() {
            return;
        }
        let stack = self.lease().stack.clone();
        loop {
            let flown = poll_fn(|cx| self.poll(cx)).await;
            let now = stack.clock().now();
            match flown {
                Flown::Answer(answer) => {
                    self.lease().settle(now);
                    self.lease().record(now, &answer.outcome());
                    answer.run_on().await;
                    self.lease().end(stack.clock().now());
                    return;
                }
                Flown::HedgeDue(_) => {}
                Flown::UploadEnded => {
                    let ended = self.lease().settle(now).unwrap_or(now);
                    let timeout = self.lease().timeout;
                    let own = timeout.map_or(Timestamp::MAX, |timeout| ended.after(timeout));
                    self.extend(own, false);
                }
                Flown::Deadline => {
                    if self.lease().timeout.is_some() {
                        self.lease().record(now, &Outcome::of(Cause::AttemptTimeout));
                    }
                    let was_held = self.lease().permit().is_none();
                    self.give_up(now);
                    if was_held || !self.outlast_hold() {
                        stack.housekeep();
                        return;
                    }
                }
            }
        }
    }
}

impl<F: Future> std::fmt::Debug for InFlight<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight").field("deadline", &self.0.deadline).finish_non_exhaustive()
    }
}

/// How often a flowing upload is looked at.
const UPLOAD_TICK: Duration = Duration::from_millis(200);
/// How often an attempt is looked at whose hedge is due before it has a connection, at most.
const CONNECT_TICK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
