//! Drives one whole call: polls the attempt, keeps its timers, sleeps and wakes. Decides nothing.
//!
//! The clock is read once per event: at the begin, at each wake, at the answer, at the end of its
//! body. See [`InFlight`](crate::InFlight) for what happens when the caller leaves.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use seawall_policy::{
    Call, Dependency, Done, Event, Operation, Outcome, StackParams, Step, Ticket, Timestamp,
};
use tokio::time::sleep_until;

use crate::attempt::{AttemptContext, CallShared};
use crate::credentials::{Credentials, Refreshing};
use crate::flight::{InFlight, OnAbandon};
use crate::stack::{SlotGuard, Stack};

mod flights;

/// What an attempt's future resolves to.
pub trait Answer: Sized {
    /// How the attempt ended.
    fn outcome(&self) -> Outcome;

    /// Whether the request can be sent again, byte for byte. Default: yes.
    fn is_replayable(&self) -> bool {
        true
    }

    /// Whether it has ended, so that its slot is free at once. Default: no, a body may still flow.
    fn is_whole(&self) -> bool {
        false
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

/// What an attempt has brought.
struct Brought<T> {
    answer: T,
    /// What is free when the answer has ended; nothing if it has.
    slot: Option<SlotGuard>,
    granted: Timestamp,
}

/// A call under way. Dropping it is the caller leaving.
struct Driver<'a, F: Future, A: OnAbandon<F>> {
    stack: &'a Stack,
    operation: Operation,
    flight: Option<InFlight<F>>,
    /// The attempt made beside it.
    hedge: Option<InFlight<F>>,
    /// Which credential either carries.
    generations: [u64; 2],
    /// The refresh that was begun at a rejection.
    refreshing: Option<Refreshing>,
    /// What one of the two has brought, while the other is waited for.
    aside: Option<Brought<F::Output>>,
    /// Whether a hedge was made.
    hedged: bool,
    /// What follows what has landed, unless that ended the call. Not in [`Landed`], which would be
    /// as large as an attempt.
    next: Step,
    on_abandon: A,
    /// When the last event was.
    now: Timestamp,
    over: bool,
}

impl Stack {
    /// Makes a call: `attempt` is asked for a future per attempt, and what it resolves to is
    /// classified by [`Answer`]. This is the engine below every other way to call; it sends,
    /// sleeps and wakes, and every decision is the policy's. The time for a refresh
    /// ([`Call::refresh`]) is that of this handle's credentials. Needs a tokio runtime with time.
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
        self.drive_from(self.clock().now(), call, &shared, on_abandon, attempt).await
    }

    /// As [`Stack::drive`], for a call that began at `now`: an event whose time its caller has
    /// read a moment ago, from this stack's [`clock`](Stack::clock).
    pub async fn drive_from<F, A>(
        &self,
        now: Timestamp,
        call: Call,
        shared: &Arc<CallShared>,
        on_abandon: A,
        mut attempt: impl FnMut(AttemptContext) -> F,
    ) -> Called<F::Output>
    where
        F: Future,
        F::Output: Answer + Send,
        A: OnAbandon<F>,
    {
        let stated = call.deadline;
        let mut driver = Driver::new(self, call, on_abandon, now);
        let mut step = driver.begin();
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
                    let context = AttemptContext::new(self, shared, &sent, sequence);
                    let generation = context.generation();
                    // Before the user's code runs, so that its panic returns the permit.
                    let mut flight = InFlight::new(self, shared, sequence, sent, stated);
                    flight.board(attempt(context));
                    driver.launch(flight, generation);
                    sequence += 1;
                    step = Step::Fly;
                }
                Step::Refresh(until) => step = driver.refreshed(until).await,
                Step::Fly => match poll_fn(|cx| driver.poll_flights(cx, shared)).await {
                    Landed::Over { answer, refused_here, done, slot, granted: of_answer } => {
                        driver.over = true;
                        let ended = driver.now;
                        let kept = value.take().filter(|_| refused_here);
                        let slot = slot.filter(|_| kept.is_none());
                        let granted = if driver.hedged { Some(of_answer) } else { granted };
                        let value = kept.or(Some(answer));
                        return Called { value, done, slot, granted, queued, ended };
                    }
                    Landed::Again { kept } => (value, step) = (kept, driver.take_next()),
                    Landed::Aside { answer, slot } => {
                        value = driver.set_aside(answer).await;
                        drop(slot);
                        step = driver.take_next();
                    }
                    Landed::On => step = driver.take_next(),
                },
            }
        }
    }
}

/// How an attempt came down.
enum Landed<T> {
    /// The call is over with an answer whose slot is still taken.
    Over { answer: T, refused_here: bool, done: Done, slot: Option<SlotGuard>, granted: Timestamp },
    /// Something follows.
    Again { kept: Option<T> },
    /// Something follows later, and the answer is to let go of its connection until then.
    Aside { answer: T, slot: Option<SlotGuard> },
    /// Another attempt is in flight, or comes beside it.
    On,
}

impl<'a, F, A> Driver<'a, F, A>
where
    F: Future,
    F::Output: Answer + Send,
    A: OnAbandon<F>,
{
    fn new(stack: &'a Stack, call: Call, on_abandon: A, now: Timestamp) -> Self {
        let refresh = stack.credentials().map(Credentials::timeout);
        Self {
            stack,
            operation: Operation::new(now, Call { refresh, ..call }),
            flight: None,
            hedge: None,
            generations: [0; 2],
            refreshing: None,
            aside: None,
            hedged: false,
            next: Step::Fly,
            on_abandon,
            now,
            over: false,
        }
    }

    fn begin(&mut self) -> Step {
        let now = self.now;
        self.stack.with(|dependency, params, rng| {
            catch_up(now, dependency, params);
            self.operation.start(dependency, params, rng)
        })
    }

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

    /// Waits for the refresh that the rejection has begun, until `until`.
    async fn refreshed(&mut self, until: Timestamp) -> Step {
        let clock = *self.stack.clock();
        let is_fresh = match self.refreshing.take() {
            Some(refreshing) => refreshing.ended(clock.instant(until)).await,
            None => false,
        };
        self.report(clock.now(), Event::Refreshed { is_fresh })
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

    const fn take_next(&mut self) -> Step {
        std::mem::replace(&mut self.next, Step::Fly)
    }

    fn report(&mut self, now: Timestamp, event: Event<'_>) -> Step {
        self.now = now;
        self.stack.with(|dependency, params, rng| {
            catch_up(now, dependency, params);
            self.operation.on_event(now, dependency, params, event, rng)
        })
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
        if self.flight.is_none() && self.hedge.is_none() {
            let now = self.stack.clock().now();
            self.stack.with(|dependency, params, _| {
                self.operation.caller_left(now, dependency, params);
            });
        }
        for flight in [self.flight.take(), self.hedge.take()].into_iter().flatten() {
            // What panicked cannot go on.
            if !std::thread::panicking() {
                self.on_abandon.abandon(flight);
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

#[cfg(test)]
mod tests;
