//! A scripted dependency on virtual time, and the edge of `operation.rs` played to the letter.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::bulkhead::Ticket;
use crate::outcome::{AnswerSignals, Cause, Outcome, Safety};
use crate::rng::SplitMix64;
use crate::stack::{
    Attempt, Call, Dependency, Done, Event, HeldCall, Operation, Permit, StackConfig, StackParams,
    Step,
};
use crate::time::Timestamp;

/// What the script is told of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Timestamp,
    pub(super) call: usize,
    pub(super) number: u32,
    pub(super) endpoint: usize,
}

/// What the script says of an attempt: how long until it really ends, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub(super) after: Duration,
    pub(super) outcome: Outcome,
    /// Whether a byte leaves; at once if so.
    pub(super) sent: bool,
}

/// A call and what its caller does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) call: Call,
    pub(super) replayable: bool,
    pub(super) leaves_after: Option<Duration>,
    /// An attempt whose caller left runs on with its permit, instead of being abandoned.
    pub(super) finishes: bool,
    /// When another credential is there, counted from the wish; without one, the wish fails then.
    pub(super) renews: Option<(Duration, bool)>,
}

pub(super) const GET: Spec = Spec {
    call: Call {
        lane: 0,
        safety: Safety::Idempotent,
        owner: true,
        deadline: None,
        total: None,
        rate_key: None,
        attempt_timeout: None,
        retry: None,
        refresh: None,
    },
    replayable: true,
    leaves_after: None,
    finishes: false,
    renews: None,
};

enum What {
    Begin(Box<Spec>),
    Tick(usize),
    Hedge(usize, u32),
    End(usize, u32),
    Slow(usize, u32),
    Deadline(usize, u32),
    Leave(usize),
    Renewed(usize, bool),
    Params(Box<StackParams>),
    Do(fn(&mut Dependency)),
}

struct Running {
    spec: Spec,
    operation: Option<Operation>,
    /// By their sequence; two while a hedge is among them.
    flights: BTreeMap<u32, Flight>,
    done: Option<Done>,
    sequence: u32,
    begun: Timestamp,
    ended: Timestamp,
}

struct Flight {
    sequence: u32,
    permit: Permit,
    outcome: Outcome,
    cut_by_call: bool,
}

type Script = Box<dyn FnMut(&Sent) -> Reply>;

pub(super) struct Sim {
    pub(super) now: Timestamp,
    pub(super) params: StackParams,
    pub(super) dependency: Dependency,
    pub(super) sent: Vec<Sent>,
    pub(super) log: Vec<String>,
    /// Attempts the dependency is really working on, and the most there were.
    pub(super) in_service: usize,
    pub(super) most_in_service: usize,
    script: Script,
    rng: SplitMix64,
    events: BTreeMap<(Timestamp, u64), What>,
    scheduled: u64,
    calls: Vec<Running>,
    held: BTreeMap<(usize, u32), HeldCall>,
    working: BTreeMap<(usize, u32), ()>,
}

impl Sim {
    pub(super) fn new(
        config: &StackConfig,
        endpoints: usize,
        lanes: usize,
        script: impl FnMut(&Sent) -> Reply + 'static,
    ) -> Self {
        Self {
            now: Timestamp::ZERO,
            params: StackParams::new(config).unwrap(),
            dependency: Dependency::new(endpoints, lanes),
            sent: Vec::new(),
            log: Vec::new(),
            in_service: 0,
            most_in_service: 0,
            script: Box::new(script),
            rng: SplitMix64::new(11),
            events: BTreeMap::new(),
            scheduled: 0,
            calls: Vec::new(),
            held: BTreeMap::new(),
            working: BTreeMap::new(),
        }
    }

    pub(super) fn seeded(mut self, seed: u64) -> Self {
        self.rng = SplitMix64::new(seed);
        self
    }

    /// A call that begins then.
    pub(super) fn call_at(&mut self, at: Timestamp, spec: Spec) {
        self.schedule(at, What::Begin(Box::new(spec)));
    }

    /// Calls at an even rate in `from..to`, in milliseconds.
    pub(super) fn load(&mut self, per_second: u64, from: u64, to: u64, spec: Spec) {
        for n in 0..per_second * (to - from) / 1000 {
            let at = Timestamp::from_millis(from);
            let after = Duration::from_nanos(n * 1_000_000_000 / per_second);
            self.call_at(at.after(after), spec);
        }
    }

    /// Swaps the parameters then.
    pub(super) fn reload_at(&mut self, at: Timestamp, config: &StackConfig) {
        self.schedule(at, What::Params(Box::new(StackParams::new(config).unwrap())));
    }

    pub(super) fn do_at(&mut self, at: Timestamp, what: fn(&mut Dependency)) {
        self.schedule(at, What::Do(what));
    }

    /// The caller of a call that has begun leaves now.
    pub(super) fn leave(&mut self, call: usize) {
        self.on(What::Leave(call));
    }

    pub(super) fn done(&self, call: usize) -> Done {
        self.calls[call].done.unwrap()
    }

    pub(super) fn ended(&self) -> impl Iterator<Item = (usize, Done)> + '_ {
        self.calls.iter().enumerate().filter_map(|(n, call)| Some((n, call.done?)))
    }

    /// How long each call took that has ended.
    pub(super) fn took(&self) -> Vec<Duration> {
        let ended = self.calls.iter().filter(|call| call.done.is_some());
        ended.map(|call| call.ended.since(call.begun)).collect()
    }

    pub(super) fn begun(&self) -> usize {
        self.calls.len()
    }

    /// Calls that run on without their caller end now, by their connection.
    pub(super) fn hang_up(&mut self) {
        for call in 0..self.calls.len() {
            while self.calls[call].operation.is_none()
                && let Some((_, flight)) = self.calls[call].flights.pop_first()
            {
                self.over(call, flight, Outcome::of(Cause::Closed), false);
            }
        }
        self.wake();
    }

    /// Plays everything up to and including `until` milliseconds.
    pub(super) fn run_until(&mut self, until: u64) {
        let until = Timestamp::from_millis(until);
        loop {
            let next = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer = self.dependency.next_deadline();
            let Some(at) = next.into_iter().chain(timer).min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(at);
            if timer == Some(at) {
                self.dependency.handle_timeout(self.now, &self.params);
                self.wake();
            } else if let Some(((..), what)) = self.events.pop_first() {
                self.on(what);
            }
        }
        self.now = self.now.max(until);
    }

    fn schedule(&mut self, at: Timestamp, what: What) {
        self.events.insert((at.max(self.now), self.scheduled), what);
        self.scheduled += 1;
    }

    fn on(&mut self, what: What) {
        match what {
            What::Begin(spec) => self.begin(*spec),
            What::Tick(call) => self.tick(call),
            What::Hedge(call, sequence) => self.hedge(call, sequence),
            What::End(call, sequence) => self.end(call, sequence),
            What::Slow(call, sequence) => self.slow(call, sequence),
            What::Deadline(call, sequence) => self.deadline(call, sequence),
            What::Leave(call) => self.left(call),
            What::Renewed(call, is_fresh) => self.renewed(call, is_fresh),
            What::Params(params) => self.params = *params,
            What::Do(what) => what(&mut self.dependency),
        }
        self.wake();
    }

    fn begin(&mut self, spec: Spec) {
        let call = self.calls.len();
        let (operation, step) = Operation::begin(
            self.now,
            &mut self.dependency,
            &self.params,
            spec.call,
            &mut self.rng,
        );
        let operation = Some(operation);
        let flights = BTreeMap::new();
        let (begun, ended) = (self.now, self.now);
        self.calls.push(Running {
            spec,
            operation,
            flights,
            done: None,
            sequence: 0,
            begun,
            ended,
        });
        if let Some(after) = spec.leaves_after {
            self.schedule(self.now.after(after), What::Leave(call));
        }
        self.step(call, step);
    }

    fn step(&mut self, call: usize, step: Step) {
        match step {
            Step::Send(attempt) => self.send(call, attempt),
            Step::WaitUntil(at) => {
                if self.calls[call].operation.as_ref().unwrap().ticket().is_some() {
                    self.note(call, format!("queued until {}", ms(at)));
                } else {
                    self.note(call, format!("backing off until {}", ms(at)));
                }
                self.schedule(at, What::Tick(call));
            }
            Step::Fly => {}
            Step::Refresh(until) => {
                self.note(call, format!("refreshing until {}", ms(until)));
                while let Some((_, lost)) = self.calls[call].flights.pop_first() {
                    self.abandon(call, lost);
                }
                self.schedule(until, What::Tick(call));
                if let Some((after, is_fresh)) = self.calls[call].spec.renews {
                    self.schedule(self.now.after(after), What::Renewed(call, is_fresh));
                }
            }
            Step::Done(done) => {
                self.note(
                    call,
                    format!(
                        "{} after {} attempts and {} redispatches: {} {}",
                        done.stop.as_str(),
                        done.attempts,
                        done.redispatches,
                        done.outcome.class().as_str(),
                        cause(done.outcome.cause()),
                    ),
                );
                self.calls[call].done = Some(done);
                self.calls[call].ended = self.now;
                while let Some((_, lost)) = self.calls[call].flights.pop_first() {
                    self.abandon(call, lost);
                }
            }
        }
    }

    fn send(&mut self, call: usize, attempt: Attempt) {
        let Attempt { number, deadline, cut_by_call, hedge_at, mut permit } = attempt;
        let sent = Sent { at: self.now, call, number, endpoint: permit.endpoint() };
        let reply = (self.script)(&sent);
        self.sent.push(sent);
        let running = &mut self.calls[call];
        running.sequence += 1;
        let sequence = running.sequence;
        if reply.sent {
            permit.mark_sent();
            self.working.insert((call, sequence), ());
            self.in_service += 1;
            self.most_in_service = self.most_in_service.max(self.in_service);
        }
        self.note(call, format!("attempt {number} to endpoint {}", permit.endpoint()));
        for (at, what) in [
            (hedge_at.unwrap_or(Timestamp::MAX), What::Hedge(call, sequence)),
            (self.now.after(reply.after), What::End(call, sequence)),
            (permit.slow_at(), What::Slow(call, sequence)),
            (deadline, What::Deadline(call, sequence)),
        ] {
            if at != Timestamp::MAX {
                self.schedule(at, what);
            }
        }
        let flight = Flight { sequence, permit, outcome: reply.outcome, cut_by_call };
        self.calls[call].flights.insert(sequence, flight);
    }

    fn renewed(&mut self, call: usize, is_fresh: bool) {
        let running = &self.calls[call];
        if running.done.is_none() && running.operation.is_some() {
            self.report(call, Event::Refreshed { is_fresh });
        }
    }

    fn tick(&mut self, call: usize) {
        let running = &self.calls[call];
        if running.done.is_none() && running.flights.is_empty() && running.operation.is_some() {
            self.report(call, Event::Tick);
        }
    }

    fn hedge(&mut self, call: usize, sequence: u32) {
        let running = &self.calls[call];
        let replayable = running.spec.replayable;
        if running.operation.is_some() && running.flights.contains_key(&sequence) {
            self.report(call, Event::HedgeDue { replayable });
        }
    }

    /// The attempt really ends.
    fn end(&mut self, call: usize, sequence: u32) {
        if self.working.remove(&(call, sequence)).is_some() {
            self.in_service -= 1;
        }
        if let Some(held) = self.held.remove(&(call, sequence)) {
            self.dependency.end_held(self.now, &self.params, held);
        } else if let Some(flight) = self.take_flight(call, sequence) {
            let outcome = flight.outcome;
            self.over(call, flight, outcome, false);
        }
    }

    fn deadline(&mut self, call: usize, sequence: u32) {
        let Some(mut flight) = self.take_flight(call, sequence) else { return };
        if flight.cut_by_call && self.calls[call].operation.is_none() {
            // It runs on without its caller, whose deadline no longer matters.
            self.calls[call].flights.insert(sequence, flight);
            return;
        }
        if flight.cut_by_call && flight.permit.is_sent() {
            self.report(call, Event::Cut);
            self.abandon(call, flight);
            return;
        }
        let cause = match (flight.permit.is_sent(), flight.cut_by_call) {
            (true, _) => Cause::AttemptTimeout,
            (false, true) => Cause::DeadlinePassed,
            (false, false) => Cause::ConnectTimeout,
        };
        flight.cut_by_call = false;
        self.over(call, flight, Outcome::of(cause), true);
    }

    /// An attempt has ended for its call; `goes_on` if perhaps not for the dependency.
    fn over(&mut self, call: usize, mut flight: Flight, outcome: Outcome, goes_on: bool) {
        let replayable = self.calls[call].spec.replayable;
        let mut step = None;
        match &mut self.calls[call].operation {
            Some(operation) => {
                let event = Event::Ended { permit: &mut flight.permit, outcome, replayable };
                step = Some(operation.on_event(
                    self.now,
                    &mut self.dependency,
                    &self.params,
                    event,
                    &mut self.rng,
                ));
            }
            None => self.dependency.record(
                self.now,
                &self.params,
                &mut flight.permit,
                &outcome,
                &mut self.rng,
            ),
        }
        if goes_on {
            self.abandon(call, flight);
        } else {
            self.dependency.release(self.now, &self.params, flight.permit);
        }
        if let Some(step) = step {
            self.step(call, step);
        }
    }

    fn slow(&mut self, call: usize, sequence: u32) {
        let running = &mut self.calls[call];
        let Some(flight) = running.flights.get_mut(&sequence) else { return };
        self.dependency.on_slow(self.now, &self.params, &mut flight.permit, &mut self.rng);
        let again = flight.permit.slow_at();
        if again != Timestamp::MAX {
            self.schedule(again, What::Slow(call, sequence));
        }
    }

    fn left(&mut self, call: usize) {
        let running = &mut self.calls[call];
        if running.done.is_some() || running.operation.is_none() {
            return;
        }
        let mut operation = running.operation.take().unwrap();
        if running.flights.is_empty() {
            operation.caller_left(self.now, &mut self.dependency, &self.params);
        } else if running.spec.finishes {
            let permits = running.flights.values_mut().map(|flight| &mut flight.permit);
            for permit in permits.filter(|permit| permit.is_sent()) {
                self.dependency.orphan(permit);
            }
        } else {
            while let Some((_, flight)) = self.calls[call].flights.pop_first() {
                self.abandon(call, flight);
            }
        }
        self.note(call, String::from("left"));
    }

    fn abandon(&mut self, call: usize, flight: Flight) {
        let Flight { sequence, permit, .. } = flight;
        let held = self.dependency.abandon(self.now, &self.params, permit, &mut self.rng);
        if let Some(held) = held {
            self.note(call, format!("held until {}", ms(held.until())));
            self.held.insert((call, sequence), held);
        }
    }

    fn report(&mut self, call: usize, event: Event<'_>) {
        let operation = self.calls[call].operation.as_mut().unwrap();
        let waited = operation.ticket();
        let step =
            operation.on_event(self.now, &mut self.dependency, &self.params, event, &mut self.rng);
        if let (Step::WaitUntil(_), Some(_)) = (&step, waited)
            && operation.ticket() == waited
        {
            return;
        }
        self.step(call, step);
    }

    fn wake(&mut self) {
        while let Some(ticket) = self.dependency.pop_woken() {
            if let Some(call) = self.owner_of(ticket) {
                self.report(call, Event::Tick);
            }
        }
    }

    fn owner_of(&self, ticket: Ticket) -> Option<usize> {
        let waits = |call: &Running| call.operation.as_ref().and_then(Operation::ticket);
        self.calls.iter().rposition(|call| call.done.is_none() && waits(call) == Some(ticket))
    }

    fn take_flight(&mut self, call: usize, sequence: u32) -> Option<Flight> {
        self.calls[call].flights.remove(&sequence)
    }

    fn note(&mut self, call: usize, what: String) {
        self.log.push(format!("{:>6} ms  call {call}: {what}", ms(self.now)));
    }
}

pub(super) const fn ms(at: Timestamp) -> u64 {
    at.as_nanos() / 1_000_000
}

fn cause(cause: Cause) -> String {
    match cause {
        Cause::Status(status) => format!("{status}"),
        other => String::from(other.as_str()),
    }
}

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// An answer after so many milliseconds.
pub(super) fn status(after: u64, status: u16) -> Reply {
    let outcome = Outcome::of_status(status, AnswerSignals::default());
    Reply { after: millis(after), outcome, sent: true }
}

/// An answer with signals.
pub(super) fn signals(status: u16, signals: AnswerSignals) -> Reply {
    let outcome = Outcome::of_status(status, signals);
    Reply { after: millis(1), outcome, sent: true }
}

/// An end after sending that is no answer.
pub(super) fn lost(after: u64, cause: Cause) -> Reply {
    Reply { after: millis(after), outcome: Outcome::of(cause), sent: true }
}

/// An end before anything was sent.
pub(super) fn unsent(after: u64, cause: Cause) -> Reply {
    Reply { after: millis(after), outcome: Outcome::of(cause), sent: false }
}

pub(super) fn hangs() -> Reply {
    Reply { after: Duration::MAX, outcome: Outcome::of(Cause::Closed), sent: true }
}
