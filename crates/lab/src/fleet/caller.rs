//! The clients' side: drives each call's `Operation` as its module asks of an edge.
//!
//! Sends, waits, wakes, reports. What follows from a report is the policy's to say.

use seawall_policy::{Call, Class, Done, Event, Operation, Safety, Step, Timestamp};

use super::routes::Link;
use super::story::{ended, millis};
use super::world::{Made, NOBODY, Ongoing, What, World};
use crate::engine::Engine;

impl World<'_> {
    pub(super) fn call_begins(&mut self, engine: &mut Engine, id: u32) {
        let now = engine.now();
        let client = &mut self.clients[id as usize];
        let number = client.begun;
        client.begun += 1;
        client.last = now;
        self.begins_in_life(id);
        self.next_meanwhile(engine, id);
        if self.fleet.baseline.is_some() {
            self.plain_begins(engine, id, number);
            return;
        }
        let made = self.made(id, number);
        self.ledger.call(now, self.counted(made.link));
        self.tell(now, made, |world| format!("begins: a call to {}", world.called(made)));
        let leaves_at = self.leaving(engine, id, number);
        let call = Call { safety: self.fleet.safety.unwrap_or(CALL.safety), ..CALL };
        let (call, step) = self.make(engine, made, leaves_at, call);
        self.step(engine, call, step);
    }

    /// Begins a call; what it does first is still to be done.
    pub(super) fn make(
        &mut self,
        engine: &mut Engine,
        made: Made,
        leaves_at: Timestamp,
        call: Call,
    ) -> (u32, Step) {
        let now = engine.now();
        let slot = self.calls.put(Ongoing {
            operation: Operation::new(now, call),
            made,
            leaves_at,
            begun: now,
            tick_at: Timestamp::MAX,
            sent: 0,
            flights: [None; 2],
        });
        let calls = &mut self.calls;
        let step = self.policies.with(now, made.link, |dependency, params, rng| {
            // It is there: nobody has had the time to end it.
            calls.get_mut(slot).map(|call| call.operation.start(dependency, params, rng))
        });
        self.schedule(engine, leaves_at, made.link.caller, What::Leave.of(slot));
        (slot, step.unwrap_or(Step::Fly))
    }

    /// Whoever made the call leaves. What was sent runs on without it, with its permit, or is cut.
    pub(super) fn leaves(&mut self, engine: &mut Engine, slot: u32) {
        let now = engine.now();
        if self.calls.get(slot).is_none_or(|call| call.leaves_at != now) {
            return;
        }
        let Some(link) = self.walk_away(engine, slot) else { return };
        self.next_after(engine, link.caller, false);
    }

    /// Nobody waits for a call any longer; whose it was.
    pub(super) fn walk_away(&mut self, engine: &mut Engine, slot: u32) -> Option<Link> {
        let now = engine.now();
        let mut call = self.calls.take(slot)?;
        let link = call.made.link;
        if let Some(ticket) = call.operation.ticket() {
            self.waiting.remove(&(self.policies.of(link), ticket));
        }
        if call.flights == [None; 2] {
            self.policies.with(now, link, |dependency, params, _| {
                call.operation.caller_left(now, dependency, params);
            });
        }
        let cancels = self.cancels(link.caller);
        for place in call.flights.into_iter().flatten() {
            let Some(flight) = self.flights.get_mut(place) else { continue };
            if cancels {
                if let Some(permit) = flight.permit.take() {
                    self.abandon(engine, place, permit);
                }
                continue;
            }
            let Some(permit) = &mut flight.permit else { continue };
            (flight.call, flight.hedge_at) = (NOBODY, Timestamp::MAX);
            if flight.cut_by_call {
                // The call's deadline no longer matters, only the attempt's own time.
                let own = permit.attempt_timeout();
                flight.deadline = own.map_or(Timestamp::MAX, |own| permit.granted().after(own));
                flight.cut_by_call = false;
            }
            self.policies.with(now, link, |dependency, _, _| dependency.orphan(permit));
            self.set_timer(engine, place);
        }
        self.ledger.left(self.counted(link), call.begun);
        self.tell(now, call.made, |_| "is given up by its caller, who leaves".to_owned());
        self.ends_in_life(link.caller);
        Some(link)
    }

    /// Does what the policy says.
    pub(super) fn step(&mut self, engine: &mut Engine, slot: u32, step: Step) {
        match step {
            Step::Send(attempt) => self.send(engine, slot, attempt),
            Step::WaitUntil(at) | Step::Refresh(at) => {
                let Some(call) = self.calls.get_mut(slot) else { return };
                call.tick_at = at;
                let (made, link, ticket) = (call.made, call.made.link, call.operation.ticket());
                self.schedule(engine, at, link.caller, What::Tick.of(slot));
                self.tell(engine.now(), made, |_| {
                    let wait = millis(at.since(engine.now()));
                    match ticket {
                        Some(_) => format!("waits for a slot, {wait} at most"),
                        None => format!("waits {wait} before it is tried again"),
                    }
                });
                if let Some(ticket) = ticket {
                    self.waiting.insert((self.policies.of(link), ticket), (slot, engine.now()));
                    self.housekeep(engine, link);
                }
            }
            Step::Fly => {}
            Step::Done(done) => self.done(engine, slot, &done),
        }
    }

    pub(super) fn ticks(&mut self, engine: &mut Engine, slot: u32) {
        let is_due = |call: &Ongoing| call.tick_at == engine.now();
        if self.calls.get(slot).is_some_and(is_due) {
            self.report_event(engine, slot, Event::Tick);
        }
    }

    pub(super) fn report_event(&mut self, engine: &mut Engine, slot: u32, event: Event<'_>) {
        let now = engine.now();
        let Some(call) = self.calls.get_mut(slot) else { return };
        let (waited, link, begun) = (call.operation.ticket(), call.made.link, call.begun);
        let step = self.policies.with(now, link, |dependency, params, rng| {
            call.operation.on_event(now, dependency, params, event, rng)
        });
        if let Some(ticket) = waited.filter(|_| call.operation.ticket() != waited) {
            let entry = self.waiting.remove(&(self.policies.of(link), ticket));
            let since = entry.map_or(now, |(_, since)| since);
            self.ledger.waited(self.counted(link), begun, now.since(since));
        } else if waited.is_some() && matches!(step, Step::WaitUntil(_)) {
            return;
        }
        self.step(engine, slot, step);
    }

    fn done(&mut self, engine: &mut Engine, slot: u32, done: &Done) {
        let now = engine.now();
        let Some(call) = self.calls.take(slot) else { return };
        let link = call.made.link;
        self.ledger.done(now, self.counted(link), link.caller, call.begun, done);
        self.tell(now, call.made, |_| ended(now.since(call.begun), done));
        for lost in call.flights.into_iter().flatten() {
            if let Some(permit) = self.flights.get_mut(lost).and_then(|lost| lost.permit.take()) {
                self.abandon(engine, lost, permit);
            }
        }
        if !call.is_of_client() {
            self.returned(engine, call.made.maker, done);
            return;
        }
        self.ends_in_life(link.caller);
        self.next_after(engine, link.caller, done.outcome.class() == Class::Success);
    }

    /// Wakes the calls whose tickets are decided.
    pub(super) fn wake(&mut self, engine: &mut Engine) {
        while let Some(key) = self.policies.pop_woken() {
            if let Some((call, _)) = self.waiting.get(&key).copied() {
                self.report_event(engine, call, Event::Tick);
            }
        }
    }

    /// A slot that is held comes free by time alone: whoever waits for one is looked after then.
    pub(super) fn housekeep(&mut self, engine: &mut Engine, link: Link) {
        let dependency = self.policies.dependency(link);
        if dependency.bulkhead().waiting() > 0
            && dependency.held() > 0
            && let Some(due) = dependency.next_deadline()
        {
            // One look for all that wait, however many they are.
            let look = self.looks.entry(self.policies.of(link)).or_insert(Timestamp::MAX);
            if due < *look {
                *look = due;
                self.schedule(engine, due, link.caller, What::Housekeep.of(link.route));
            }
        }
    }

    /// It is time for that, unless somebody looked earlier.
    pub(super) fn looks(&mut self, engine: &mut Engine, link: Link) {
        let place = self.policies.of(link);
        if self.looks.get(&place).is_some_and(|at| *at <= engine.now()) {
            self.looks.remove(&place);
            self.policies.with(engine.now(), link, |_, _, _| ());
            self.housekeep(engine, link);
        }
    }
}

/// Every call, if nothing else is said: repeatable. This layer owns its retries.
pub(crate) const CALL: Call = Call {
    lane: 0,
    safety: Safety::Idempotent,
    owner: true,
    deadline: None,
    total: None,
    rate_key: None,
    attempt_timeout: None,
    retry: None,
    refresh: None,
};
