//! Drives one whole call: polls the attempt, keeps its timers, sleeps and wakes. Decides nothing.
//!
//! The clock is read once per event: at the begin, at each wake, at the answer, at the end of its
//! body. See [`InFlight`](crate::InFlight) for what happens when the caller leaves.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use seawall_policy::{
    Call, Cause, Class, Dependency, Done, Event, Operation, Outcome, StackParams, Step, Ticket,
    Timestamp,
};
use tokio::time::{sleep_until, timeout_at};

use crate::attempt::{AttemptContext, CallShared};
use crate::flight::{Flown, InFlight, Lease, OnAbandon};
use crate::stack::{SlotGuard, Stack};

/// What an attempt's future resolves to.
pub trait Answer: Sized {
    /// How the attempt ended.
    fn outcome(&self) -> Outcome;

    /// Whether the request can be sent again, byte for byte. Default: yes.
    fn is_replayable(&self) -> bool {
        true
    }

    /// Lets go of the connection while a retry is waited for, and keeps what can still be
    /// answered with if the retry is refused. Cut off, and nothing kept, when the retry is due
    /// and 100 ms have passed. Default: keeps all.
    fn set_aside(self) -> impl Future<Output = Option<Self>> + Send
    where
        Self: Send,
    {
        std::future::ready(Some(self))
    }

    /// Goes on to the real end after the caller left. Default: it has ended.
    fn run_on(self) -> impl Future<Output = ()> + Send
    where
        Self: Send,
    {
        drop(self);
        std::future::ready(())
    }
}

/// A call that has ended, one way or another.
#[derive(Debug)]
pub struct Called<T> {
    /// What the last attempt gave, if it gave anything.
    pub value: Option<T>,
    /// How the call ended.
    pub done: Done,
    /// The slot of the answer, to be dropped when its body has ended.
    pub slot: Option<SlotGuard>,
    /// When the last attempt was granted, if one was.
    pub granted: Option<Timestamp>,
    /// Time spent waiting for slots, all attempts together.
    pub queued: Duration,
    /// When the call ended: its head, or our refusal.
    pub ended: Timestamp,
}

/// A call under way. Dropping it is the caller leaving.
struct Driver<'a, F: Future, A: OnAbandon<F>> {
    stack: &'a Stack,
    operation: Operation,
    flight: Option<InFlight<F>>,
    on_abandon: A,
    /// When the last event was.
    now: Timestamp,
    over: bool,
}

impl Stack {
    /// Makes a call: `attempt` is asked for a future per attempt, and what it resolves to is
    /// classified by [`Answer`]. This is the engine below every other way to call; it sends,
    /// sleeps and wakes, and every decision is the policy's. Needs a tokio runtime with time.
    pub async fn drive<F, A>(
        &self,
        call: Call,
        shared: Arc<CallShared>,
        on_abandon: A,
        attempt: impl FnMut(AttemptContext) -> F,
    ) -> Called<F::Output>
    where
        F: Future,
        F::Output: Answer + Send,
        A: OnAbandon<F>,
    {
        self.drive_from(self.clock().now(), call, shared, on_abandon, attempt).await
    }

    /// As [`Stack::drive`], for a call that began at `now`: an event whose time its caller has
    /// read a moment ago, from this stack's [`clock`](Stack::clock).
    pub async fn drive_from<F, A>(
        &self,
        now: Timestamp,
        call: Call,
        shared: Arc<CallShared>,
        on_abandon: A,
        mut attempt: impl FnMut(AttemptContext) -> F,
    ) -> Called<F::Output>
    where
        F: Future,
        F::Output: Answer + Send,
        A: OnAbandon<F>,
    {
        let (operation, mut step) = self.with(|dependency, params, rng| {
            catch_up(now, dependency, params);
            Operation::begin(now, dependency, params, call, rng)
        });
        let mut driver =
            Driver { stack: self, operation, flight: None, on_abandon, now, over: false };
        let mut value = None;
        let mut granted = None;
        let mut queued = Duration::ZERO;
        let mut sequence = 0;
        loop {
            match step {
                Step::Done(done) => {
                    driver.over = true;
                    let ended = driver.now;
                    return Called { value, done, slot: None, granted, queued, ended };
                }
                Step::WaitUntil(at) => {
                    let since = driver.now;
                    let waits_for_slot = driver.operation.ticket().is_some();
                    step = driver.wait(at).await;
                    if waits_for_slot {
                        queued += driver.now.since(since);
                    }
                }
                Step::Send(sent) => {
                    granted = Some(sent.permit.granted());
                    let context = AttemptContext::new(self, &shared, &sent, sequence);
                    // Before the user's code runs, so that its panic returns the permit.
                    let lease = Lease::new(self, &shared, sequence, sent, call.deadline);
                    driver.flight = Some(InFlight::new(lease, attempt(context)));
                    sequence += 1;
                    match driver.fly(&shared).await {
                        Landed::Over { answer, refused_here, done, slot } => {
                            driver.over = true;
                            let ended = driver.now;
                            let kept = value.take().filter(|_| refused_here);
                            let slot = kept.is_none().then_some(slot);
                            let value = kept.or(Some(answer));
                            return Called { value, done, slot, granted, queued, ended };
                        }
                        Landed::Again { kept, next } => (value, step) = (kept, next),
                    }
                }
            }
        }
    }
}

/// How an attempt came down.
enum Landed<T> {
    /// The call is over with an answer whose slot is still taken.
    Over { answer: T, refused_here: bool, done: Done, slot: SlotGuard },
    /// Something follows.
    Again { kept: Option<T>, next: Step },
}

impl<F, A> Driver<'_, F, A>
where
    F: Future,
    F::Output: Answer + Send,
    A: OnAbandon<F>,
{
    /// Sleeps until `at`, or until the ticket is decided, and says what follows.
    async fn wait(&mut self, at: Timestamp) -> Step {
        match self.operation.ticket() {
            Some(ticket) => self.wait_for_slot(ticket, at).await,
            None => {
                sleep_until(self.stack.clock().instant(at)).await;
                self.report(self.stack.clock().now(), Event::Tick)
            }
        }
    }

    /// Waits until the ticket is granted, or its time is up at `until`. A slot that is held for an
    /// abandoned call comes free by time alone, so the wait looks up for it too.
    async fn wait_for_slot(&mut self, ticket: Ticket, until: Timestamp) -> Step {
        let clock = *self.stack.clock();
        let mut timer = std::pin::pin!(sleep_until(clock.instant(until)));
        let mut known = Some(self.now);
        poll_fn(|cx| {
            let mut now = known.take().unwrap_or_else(|| clock.now());
            loop {
                // Registered before asked, so that a decision between the two is not missed.
                self.stack.wake_on(ticket, cx.waker());
                let step = self.report(now, Event::Tick);
                if self.operation.ticket() != Some(ticket) {
                    self.stack.forget(ticket);
                    return Poll::Ready(step);
                }
                let look_up = self.stack.with(|dependency, _, _| {
                    let held = dependency.held() > 0;
                    dependency.next_deadline().filter(|_| held)
                });
                let next = look_up.map_or(until, |due| due.max(now.after(LOOK_UP)).min(until));
                timer.as_mut().reset(clock.instant(next.max(now.after(TIMER_GRAIN))));
                ready!(timer.as_mut().poll(cx));
                now = clock.now();
            }
        })
        .await
    }

    fn report(&mut self, now: Timestamp, event: Event<'_>) -> Step {
        self.now = now;
        self.stack.with(|dependency, params, rng| {
            catch_up(now, dependency, params);
            self.operation.on_event(now, dependency, params, event, rng)
        })
    }

    /// Polls the attempt to its end or its deadline, and asks what follows.
    async fn fly(&mut self, shared: &CallShared) -> Landed<F::Output> {
        loop {
            let flown = poll_fn(|cx| match &mut self.flight {
                Some(flight) => flight.poll(cx),
                None => Poll::Ready(Flown::Deadline),
            })
            .await;
            match flown {
                Flown::Answer(answer) => return self.land(answer).await,
                Flown::UploadEnded => self.restart(),
                Flown::Deadline => return self.time_out(shared),
            }
        }
    }

    /// The upload has ended: starts the clocks again at its end.
    fn restart(&mut self) {
        let Some(flight) = &mut self.flight else { return };
        let Some(ended) = flight.lease().settle(self.now) else { return };
        let params = self.stack.params();
        let (deadline, cut_by_call) = self.operation.restart_clocks(ended, &params);
        flight.extend(deadline, cut_by_call);
    }

    /// The attempt was answered.
    async fn land(&mut self, answer: F::Output) -> Landed<F::Output> {
        let now = self.stack.clock().now();
        let outcome = answer.outcome();
        let replayable = answer.is_replayable();
        let permit = self.flight.take().and_then(|mut flight| {
            if let Some(ended) = flight.lease().settle(now) {
                // What may follow has its time from there on.
                self.operation.restart_clocks(ended, &self.stack.params());
            }
            flight.lease().take()
        });
        let Some(mut permit) = permit else {
            return Landed::Again { kept: Some(answer), next: self.report(now, Event::Cut) };
        };
        let event = Event::Ended { permit: &mut permit, outcome, replayable };
        let next = self.report(now, event);
        let slot = SlotGuard::new(self.stack.clone(), permit);
        match next {
            Step::Done(done) => {
                let refused_here = outcome.class() == Class::RefusedHere;
                Landed::Over { answer, refused_here, done, slot }
            }
            Step::WaitUntil(at) if self.operation.ticket().is_none() => {
                // No permit and no ticket is held across this wait but the answer's own.
                let due = at.max(now.after(SET_ASIDE)).min(self.operation.deadline());
                let due = self.stack.clock().instant(due);
                let kept = timeout_at(due, answer.set_aside()).await.ok().flatten();
                drop(slot);
                Landed::Again { kept, next }
            }
            // Redispatched: it never reached an endpoint, so there is no connection to let go of.
            Step::WaitUntil(_) | Step::Send(_) => Landed::Again { kept: Some(answer), next },
        }
    }

    /// The attempt's time is up: its own timeout is recorded, the call's deadline is not, and the
    /// attempt itself goes to the abandoned.
    fn time_out(&mut self, shared: &CallShared) -> Landed<F::Output> {
        let now = self.stack.clock().now();
        let mut flight = self.flight.take();
        let cut = flight.as_ref().is_none_or(InFlight::is_cut_by_call);
        let mut sent = true;
        let mut own = Cause::AttemptTimeout;
        if let Some(flight) = &mut flight {
            flight.lease().settle(now);
            (sent, own) = (flight.lease().is_sent(), flight.lease().cause_of_timeout());
        }
        let event = match flight.as_mut().and_then(|flight| flight.lease().permit()) {
            Some(permit) if !(sent && cut) => Event::Ended {
                permit,
                outcome: Outcome::of(if cut { Cause::DeadlinePassed } else { own }),
                replayable: shared.is_replayable(),
            },
            _ => Event::Cut,
        };
        let next = self.report(now, event);
        if let Some(mut flight) = flight {
            if !cut {
                flight.give_up(now);
            }
            self.on_abandon.abandon(flight);
        }
        Landed::Again { kept: None, next }
    }
}

impl<F: Future, A: OnAbandon<F>> Drop for Driver<'_, F, A> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Some(ticket) = self.operation.ticket() {
            self.stack.forget(ticket);
        }
        match self.flight.take() {
            // What panicked cannot go on.
            Some(flight) if std::thread::panicking() => drop(flight),
            Some(flight) => self.on_abandon.abandon(flight),
            None => {
                let now = self.stack.clock().now();
                self.stack.with(|dependency, params, _| {
                    self.operation.caller_left(now, dependency, params);
                });
            }
        }
    }
}

/// Does what is due by time before anything is decided at `now`.
pub(crate) fn catch_up(now: Timestamp, dependency: &mut Dependency, params: &StackParams) {
    if dependency.next_deadline().is_some_and(|due| due <= now) {
        dependency.handle_timeout(now, params);
    }
}

/// The least time a waiting call lets pass before it looks for a slot that comes free by time.
const LOOK_UP: Duration = Duration::from_millis(10);
/// Tokio's timers go off on whole milliseconds.
const TIMER_GRAIN: Duration = Duration::from_millis(1);
/// How long an answer may take to let go of its connection, if its retry is not later.
const SET_ASIDE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
