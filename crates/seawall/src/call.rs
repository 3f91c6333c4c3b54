//! Drives one whole call: polls the attempt, keeps its timers, sleeps and wakes. Decides nothing.
//!
//! An attempt's future lives in one box with its permit and its timer, so that it can go on
//! without its caller: what "the caller left" means is the [`OnAbandon`] passed in. Whatever
//! happens to the caller, the permit comes back exactly once:
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

use seawall_policy::{
    Attempt, Call, Cause, Class, Done, Event, HeldCall, Operation, Outcome, Permit, Step, Timestamp,
};
use tokio::time::{Sleep, sleep_until};

use crate::attempt::{AttemptContext, CallShared, Upload};
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
    /// answered with if the retry is refused. Default: keeps all.
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
    pub queued: std::time::Duration,
    /// When the call ended: its head, or our refusal.
    pub ended: Timestamp,
}

/// What happens to an attempt in flight whose caller left.
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
    fn abandon(&self, call: InFlight<F>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(call.run_on());
        }
    }
}

/// One attempt in flight. Dropping it abandons the attempt.
#[must_use = "dropping an attempt abandons it"]
pub struct InFlight<F: Future>(Pin<Box<Flight<F>>>);

pin_project_lite::pin_project! {
    struct Flight<F: Future> {
        #[pin]
        future: F,
        #[pin]
        timer: Sleep,
        lease: Lease,
        deadline: Timestamp,
        cut_by_call: bool,
    }
}

/// What an attempt in flight occupies: its permit, or, once it was given up, its place among the
/// held.
struct Lease {
    stack: Stack,
    shared: Arc<CallShared>,
    sequence: u32,
    hold: Hold,
}

enum Hold {
    Permit(Permit),
    Held(HeldCall),
    Nothing,
}

impl Lease {
    fn mark(&mut self) {
        if let Hold::Permit(permit) = &mut self.hold
            && self.shared.is_sent(self.sequence)
        {
            permit.mark_sent();
        }
    }

    fn permit(&mut self) -> Option<&mut Permit> {
        self.mark();
        match &mut self.hold {
            Hold::Permit(permit) => Some(permit),
            _ => None,
        }
    }

    fn take(&mut self) -> Option<Permit> {
        self.mark();
        match std::mem::replace(&mut self.hold, Hold::Nothing) {
            Hold::Permit(permit) => Some(permit),
            _ => None,
        }
    }

    /// Gives the call up: from here on it only holds its slot.
    fn give_up(&mut self, now: Timestamp) {
        if let Some(permit) = self.take() {
            let held = self
                .stack
                .with(|dependency, params, rng| dependency.abandon(now, params, permit, rng));
            self.hold = held.map_or(Hold::Nothing, Hold::Held);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Dropped with its permit, the call was cancelled; dropped while held, it stays held
        // until it is given up: a reset proves nothing about the other side.
        if matches!(self.hold, Hold::Permit(_)) {
            self.give_up(self.stack.clock().now());
        }
    }
}

/// What a poll of an attempt brought.
enum Flown<T> {
    Answer(T),
    Deadline,
}

impl<F: Future> InFlight<F> {
    fn new(
        stack: &Stack,
        shared: &Arc<CallShared>,
        sequence: u32,
        attempt: Attempt,
        future: F,
    ) -> Self {
        let first = attempt.permit.slow_at().min(attempt.deadline);
        let lease = Lease {
            stack: stack.clone(),
            shared: Arc::clone(shared),
            sequence,
            hold: Hold::Permit(attempt.permit),
        };
        Self(Box::pin(Flight {
            future,
            timer: sleep_until(stack.clock().instant(first)),
            lease,
            deadline: attempt.deadline,
            cut_by_call: attempt.cut_by_call,
        }))
    }

    /// Polls the attempt, and its slow threshold; ready with the answer, or at the deadline.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Flown<F::Output>> {
        let mut flight = self.0.as_mut().project();
        if let Poll::Ready(answer) = flight.future.as_mut().poll(cx) {
            return Poll::Ready(Flown::Answer(answer));
        }
        loop {
            ready!(flight.timer.as_mut().poll(cx));
            let stack = flight.lease.stack.clone();
            let now = stack.clock().now();
            let uploading = flight.lease.shared.upload() == Upload::Flowing;
            if now >= *flight.deadline && !uploading {
                return Poll::Ready(Flown::Deadline);
            }
            let mut next = *flight.deadline;
            if uploading {
                // Only the idle limit of the body applies; look again a second later.
                next = now.after(UPLOAD_TICK);
            } else if let Some(permit) = flight.lease.permit() {
                if now >= permit.slow_at() {
                    stack.with(|dependency, params, rng| {
                        dependency.on_slow(now, params, permit, rng);
                    });
                }
                next = next.min(permit.slow_at());
            }
            flight.timer.as_mut().reset(stack.clock().instant(next));
        }
    }

    /// Moves the deadline.
    fn extend(&mut self, deadline: Timestamp, cut_by_call: bool) {
        let mut flight = self.0.as_mut().project();
        *flight.deadline = deadline;
        *flight.cut_by_call = cut_by_call;
        let at = flight.lease.stack.clock().instant(deadline);
        flight.timer.as_mut().reset(at);
    }

    fn lease(&mut self) -> &mut Lease {
        self.0.as_mut().project().lease
    }

    fn is_cut_by_call(&self) -> bool {
        self.0.cut_by_call
    }

    /// Gives the attempt up: what was sent may still be executed and holds its slot.
    pub fn give_up(&mut self, now: Timestamp) {
        self.lease().give_up(now);
    }
}

impl<F> InFlight<F>
where
    F: Future,
    F::Output: Answer + Send,
{
    /// Goes on without the caller: to the end, or to the attempt's own timeout, is recorded then,
    /// and holds its slot until it has really ended or is given up.
    pub async fn run_on(mut self) {
        let stack = self.lease().stack.clone();
        let params = stack.params();
        if let Some(permit) = self.lease().permit() {
            if !permit.is_sent() || self.lease().shared.upload() == Upload::Flowing {
                return;
            }
        }
        if let (Some(permit), Some(timeout)) = (self.lease().permit(), params.attempt_timeout()) {
            let own = permit.granted().after(timeout);
            self.extend_quietly(own);
        }
        let answer = match poll_fn(|cx| self.poll(cx)).await {
            Flown::Answer(answer) => answer,
            Flown::Deadline => {
                let now = stack.clock().now();
                self.record(now, &Outcome::of(Cause::AttemptTimeout));
                self.give_up(now);
                let Hold::Held(held) = self.lease().hold else { return };
                self.extend_quietly(held.until());
                match poll_fn(|cx| self.poll(cx)).await {
                    Flown::Answer(answer) => answer,
                    Flown::Deadline => return,
                }
            }
        };
        self.record(stack.clock().now(), &answer.outcome());
        answer.run_on().await;
        self.end();
    }

    fn extend_quietly(&mut self, deadline: Timestamp) {
        let slow_at = self.lease().permit().map_or(Timestamp::MAX, |permit| permit.slow_at());
        self.extend(deadline, false);
        let mut flight = self.0.as_mut().project();
        let at = flight.lease.stack.clock().instant(deadline.min(slow_at));
        flight.timer.as_mut().reset(at);
    }

    fn record(&mut self, now: Timestamp, outcome: &Outcome) {
        let stack = self.lease().stack.clone();
        if let Some(permit) = self.lease().permit() {
            stack.with(|dependency, params, rng| {
                dependency.record(now, params, permit, outcome, rng);
            });
        }
    }

    /// The call has really ended: frees its slot.
    fn end(&mut self) {
        let stack = self.lease().stack.clone();
        let now = stack.clock().now();
        match std::mem::replace(&mut self.lease().hold, Hold::Nothing) {
            Hold::Permit(permit) => stack.release(now, permit),
            Hold::Held(held) => {
                stack.with(|dependency, params, _| dependency.end_held(now, params, held))
            }
            Hold::Nothing => {}
        }
    }
}

impl<F: Future> std::fmt::Debug for InFlight<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight").field("deadline", &self.0.deadline).finish_non_exhaustive()
    }
}

/// A call under way. Dropping it is the caller leaving.
struct Driver<'a, F: Future, A: OnAbandon<F>> {
    stack: &'a Stack,
    operation: Operation,
    flight: Option<InFlight<F>>,
    on_abandon: A,
    over: bool,
}

impl Stack {
    /// Makes a call: `attempt` is asked for a future per attempt, and what it resolves to is
    /// classified by [`Answer`]. This is the engine below every other way to call; it sends,
    /// sleeps and wakes, and every decision is the policy's.
    pub async fn drive<F, A>(
        &self,
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
        let begun = self.clock().now();
        let (operation, mut step) = self
            .with(|dependency, params, rng| Operation::begin(begun, dependency, params, call, rng));
        let mut driver = Driver { stack: self, operation, flight: None, on_abandon, over: false };
        let mut value = None;
        let mut granted = None;
        let mut queued = std::time::Duration::ZERO;
        let mut sequence = 0;
        loop {
            match step {
                Step::Done(done) => {
                    driver.over = true;
                    let ended = self.clock().now();
                    return Called { value, done, slot: None, granted, queued, ended };
                }
                Step::WaitUntil(at) => {
                    let since = self.clock().now();
                    let waits_for_slot = driver.operation.ticket().is_some();
                    step = driver.wait(at).await;
                    if waits_for_slot {
                        queued += self.clock().now().since(since);
                    }
                }
                Step::Send(sent) => {
                    granted = Some(sent.permit.granted());
                    let context = AttemptContext::new(self, &shared, &sent, sequence);
                    let future = attempt(context);
                    driver.flight = Some(InFlight::new(self, &shared, sequence, sent, future));
                    sequence += 1;
                    match driver.fly(&shared).await {
                        Landed::Over { value, done, slot, at } => {
                            driver.over = true;
                            let slot = Some(slot);
                            return Called { value, done, slot, granted, queued, ended: at };
                        }
                        Landed::Again { kept, refused_here, next } => {
                            if !(refused_here && value.is_some()) {
                                value = kept;
                            }
                            step = next;
                        }
                    }
                }
            }
        }
    }
}

/// How an attempt came down.
enum Landed<T> {
    /// The call is over with an answer whose slot is still taken.
    Over { value: Option<T>, done: Done, slot: SlotGuard, at: Timestamp },
    /// Something follows.
    Again { kept: Option<T>, refused_here: bool, next: Step },
}

impl<F, A> Driver<'_, F, A>
where
    F: Future,
    F::Output: Answer + Send,
    A: OnAbandon<F>,
{
    /// Sleeps until `at`, or until the ticket is decided, and says what follows.
    async fn wait(&mut self, at: Timestamp) -> Step {
        let mut timer = std::pin::pin!(sleep_until(self.stack.clock().instant(at)));
        poll_fn(|cx| {
            let due = timer.as_mut().poll(cx).is_ready();
            let Some(ticket) = self.operation.ticket() else {
                return if due { Poll::Ready(self.report(Event::Tick)) } else { Poll::Pending };
            };
            // Registered before asked, so that a decision between the two is not missed.
            self.stack.wake_on(ticket, cx.waker());
            let step = self.report(Event::Tick);
            if !due && self.operation.ticket().is_some() {
                return Poll::Pending;
            }
            self.stack.forget(ticket);
            Poll::Ready(step)
        })
        .await
    }

    fn report(&mut self, event: Event<'_>) -> Step {
        let now = self.stack.clock().now();
        self.stack.with(|dependency, params, rng| {
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
                Flown::Deadline if self.restart(shared) => {}
                Flown::Deadline => return self.time_out(shared),
            }
        }
    }

    /// If a large upload has ended since the clocks were set, starts them again at its end.
    fn restart(&mut self, shared: &CallShared) -> bool {
        let Some(ended) = shared.take_upload_end() else { return false };
        let Some(flight) = &mut self.flight else { return false };
        let params = self.stack.params();
        let (deadline, cut_by_call) = self.operation.restart_clocks(ended, &params);
        if let Some(permit) = flight.lease().permit() {
            permit.restart(ended, &params);
        }
        flight.extend(deadline, cut_by_call);
        true
    }

    /// The attempt was answered.
    async fn land(&mut self, answer: F::Output) -> Landed<F::Output> {
        let outcome = answer.outcome();
        let replayable = answer.is_replayable();
        let refused_here = outcome.class() == Class::RefusedHere;
        let permit = self.flight.take().and_then(|mut flight| flight.lease().take());
        let Some(mut permit) = permit else {
            return Landed::Again {
                kept: Some(answer),
                refused_here,
                next: self.report(Event::Cut),
            };
        };
        let now = self.stack.clock().now();
        let next = self.stack.with(|dependency, params, rng| {
            let event = Event::Ended { permit: &mut permit, outcome, replayable };
            self.operation.on_event(now, dependency, params, event, rng)
        });
        let slot = SlotGuard::new(self.stack.clone(), permit);
        if let Step::Done(done) = next {
            return Landed::Over { value: Some(answer), done, slot, at: now };
        }
        let kept = answer.set_aside().await;
        drop(slot);
        Landed::Again { kept, refused_here, next }
    }

    /// The attempt's time is up: its own timeout is recorded, the call's deadline is not, and the
    /// attempt itself goes to the abandoned.
    fn time_out(&mut self, shared: &CallShared) -> Landed<F::Output> {
        let now = self.stack.clock().now();
        let mut flight = self.flight.take();
        let cut = flight.as_ref().is_none_or(InFlight::is_cut_by_call);
        let permit = flight.as_mut().and_then(|flight| flight.lease().permit());
        let next = self.stack.with(|dependency, params, rng| {
            let event = match permit {
                Some(permit) if !cut => Event::Ended {
                    permit,
                    outcome: Outcome::of(Cause::AttemptTimeout),
                    replayable: shared.is_replayable(),
                },
                _ => Event::Cut,
            };
            self.operation.on_event(now, dependency, params, event, rng)
        });
        if let Some(mut flight) = flight {
            if !cut {
                flight.give_up(now);
            }
            self.on_abandon.abandon(flight);
        }
        Landed::Again { kept: None, refused_here: false, next }
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

/// How often a flowing upload is looked at.
const UPLOAD_TICK: std::time::Duration = std::time::Duration::from_millis(200);
