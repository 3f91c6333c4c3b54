use std::vec;
use std::vec::Vec;

use super::*;
use crate::admission::{Priority, ShedReason, Tenant};
use crate::limit::{LimitOutcome, LimitRule};
use crate::ratio::Ratio;
use proptest::prelude::*;

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn fixed(max: u32) -> GateParams {
    let limit = LimitOptions { rule: LimitRule::Fixed, max, ..LimitOptions::default() };
    GateParams::new(GateOptions { limit, ..GateOptions::default() }).unwrap()
}

const fn answered(millis: u64) -> LimitSample {
    LimitSample { latency: Duration::from_millis(millis), outcome: LimitOutcome::Success }
}

fn admitted(entry: GateEntry) -> LimitPermit {
    let GateEntry::Admitted(permit) = entry else { panic!("{entry:?}") };
    permit
}

fn queued(entry: GateEntry) -> Ticket {
    let GateEntry::Queued(ticket, _) = entry else { panic!("{entry:?}") };
    ticket
}

fn started(turn: GateTurn) -> LimitPermit {
    let GateTurn::Admitted(permit) = turn else { panic!("{turn:?}") };
    permit
}

/// In flight, granted, waiting.
fn counts(gate: &Gate) -> (u32, u32, u32) {
    (gate.limit().in_flight(), gate.granted(), gate.queue().waiting())
}

#[test]
fn a_slot_is_held_from_the_grant_and_begins_at_the_claim() {
    let params = fixed(1);
    let mut gate = Gate::new(at(0), &params);
    let first = admitted(gate.enter(at(0), &params, Ask::new(at(500))));
    let second = queued(gate.enter(at(0), &params, Ask::new(at(500))));
    let third = queued(gate.enter(at(1), &params, Ask::new(at(500))));
    assert!(matches!(gate.claim(at(1), &params, second), GateTurn::Waiting(_)));
    assert_eq!(counts(&gate), (1, 0, 2));
    gate.complete(at(40), &params, first, answered(40));
    assert_eq!(counts(&gate), (0, 1, 1));
    assert_eq!((gate.room(&params), gate.pop_woken(), gate.pop_woken()), (0, Some(second), None));
    // Nobody overtakes who has been told to come.
    let fourth = queued(gate.enter(at(41), &params, Ask::new(at(500))));
    let second = started(gate.claim(at(42), &params, second));
    assert_eq!((second.in_flight(), counts(&gate)), (1, (1, 0, 2)));
    gate.release(at(80), &params, second);
    assert_eq!(gate.pop_woken(), Some(third));
    gate.cancel(at(81), &params, third);
    assert_eq!(gate.pop_woken(), Some(fourth));
    let fourth = started(gate.claim(at(82), &params, fourth));
    gate.release(at(90), &params, fourth);
    assert_eq!((counts(&gate), gate.next_deadline()), ((0, 0, 0), None));
}

#[test]
fn who_has_waited_in_vain_is_told_and_takes_no_slot() {
    let params = fixed(1);
    let mut gate = Gate::new(at(0), &params);
    let first = admitted(gate.enter(at(0), &params, Ask::new(at(500))));
    let late = queued(gate.enter(at(0), &params, Ask::new(at(100))));
    let patient = queued(gate.enter(at(0), &params, Ask::new(at(500))));
    assert!(gate.next_deadline().unwrap() <= at(100));
    gate.handle_timeout(at(100), &params);
    assert_eq!(gate.pop_woken(), Some(late));
    let GateTurn::Rejected(shed) = gate.claim(at(101), &params, late) else { panic!() };
    assert_eq!(shed.reason, ShedReason::Expired);
    gate.release(at(120), &params, first);
    assert_eq!(gate.pop_woken(), Some(patient));
    let patient = started(gate.claim(at(121), &params, patient));
    gate.release(at(130), &params, patient);
    assert_eq!(counts(&gate), (0, 0, 0));
}

#[test]
fn a_reload_hands_slots_on_and_takes_none_back() {
    let (few, many) = (fixed(1), fixed(3));
    let mut gate = Gate::new(at(0), &few);
    let first = admitted(gate.enter(at(0), &few, Ask::new(at(5_000))));
    let waits: Vec<_> =
        (0..4).map(|_| queued(gate.enter(at(1), &few, Ask::new(at(5_000))))).collect();
    gate.handle_timeout(at(2), &many);
    assert_eq!(counts(&gate), (1, 2, 2));
    gate.handle_timeout(at(3), &few);
    assert_eq!((counts(&gate), gate.room(&few)), ((1, 2, 2), 0));
    let permits = [waits[0], waits[1]].map(|ticket| started(gate.claim(at(4), &few, ticket)));
    assert_eq!(counts(&gate), (3, 0, 2), "what was promised is kept");
    for permit in permits {
        gate.release(at(5), &few, permit);
        assert_eq!(gate.granted(), 0, "there is no room yet");
    }
    gate.release(at(6), &few, first);
    assert_eq!(counts(&gate), (0, 1, 1));
}

#[test]
fn a_sample_that_raises_the_limit_lets_more_in() {
    let limit =
        LimitOptions { rule: LimitRule::Aimd, initial: Some(1), max: 2, ..LimitOptions::default() };
    let params = GateParams::new(GateOptions { limit, ..GateOptions::default() }).unwrap();
    let mut gate = Gate::new(at(0), &params);
    let mut now = 0;
    for _ in 0..64 {
        let permit = admitted(gate.enter(at(now), &params, Ask::new(Timestamp::MAX)));
        let wait = queued(gate.enter(at(now), &params, Ask::new(Timestamp::MAX)));
        now += 40;
        gate.learn(at(now), &params, &permit, answered(40));
        let is_raised = gate.limit().limit(&params.limit) == 2;
        assert_eq!(gate.granted(), u32::from(is_raised), "the slot that it gained");
        gate.release(at(now), &params, permit);
        let waited = started(gate.claim(at(now), &params, wait));
        gate.release(at(now), &params, waited);
        if is_raised {
            return;
        }
        now += 200;
    }
    panic!("the limit was never raised");
}

#[test]
fn critical_goes_before_what_came_earlier() {
    let params = fixed(1);
    let mut gate = Gate::new(at(0), &params);
    let first = admitted(gate.enter(at(0), &params, Ask::new(at(500))));
    let background = Ask { priority: Priority::Background, ..Ask::new(at(500)) };
    let background = queued(gate.enter(at(1), &params, background));
    let critical = Ask { priority: Priority::Critical, ..Ask::new(at(500)) };
    let critical = queued(gate.enter(at(2), &params, critical));
    gate.release(at(40), &params, first);
    assert_eq!((gate.pop_woken(), gate.granted()), (Some(critical), 1));
    assert!(matches!(gate.claim(at(41), &params, background), GateTurn::Waiting(_)));
}

#[test]
fn bad_options_are_named_by_their_place() {
    let limit = LimitOptions { min: 0, ..LimitOptions::default() };
    let error = GateParams::new(GateOptions { limit, ..GateOptions::default() }).unwrap_err();
    assert_eq!(error.field(), "limit.min");
    let admission = AdmissionOptions { queue: 0, ..AdmissionOptions::default() };
    let error = GateParams::new(GateOptions { admission, ..GateOptions::default() }).unwrap_err();
    assert_eq!(error.field(), "admission.queue");
}

/// Something that happens; a number picks one of those there are.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter {
        priority: usize,
        tenant: u64,
        patience: u64,
    },
    /// The owner of a woken ticket comes for it.
    Come,
    Ask(usize),
    Leave(usize),
    End(usize, LimitOutcome),
    Tell(usize),
    Pass(u64),
    Reload(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        6 => Just(LimitOutcome::Success),
        1 => Just(LimitOutcome::Dropped),
        1 => Just(LimitOutcome::GaveUp),
        1 => Just(LimitOutcome::Ignore),
    ];
    prop_oneof![
        8 => (0..4_usize, 0..3_u64, 0..400_u64).prop_map(|(priority, tenant, patience)| {
            Step::Enter { priority, tenant, patience }
        }),
        4 => Just(Step::Come),
        1 => any::<usize>().prop_map(Step::Ask),
        2 => any::<usize>().prop_map(Step::Leave),
        6 => (any::<usize>(), outcome).prop_map(|(which, how)| Step::End(which, how)),
        1 => any::<usize>().prop_map(Step::Tell),
        4 => (0..60_u64).prop_map(Step::Pass),
        1 => (0..4_usize).prop_map(Step::Reload),
    ]
}

fn all_params() -> Vec<GateParams> {
    let with = |rule, max, queue| {
        let limit = LimitOptions {
            rule,
            max,
            headroom: Ratio::from_percent(120),
            ..LimitOptions::default()
        };
        let admission = AdmissionOptions { queue, ..AdmissionOptions::default() };
        GateParams::new(GateOptions { limit, admission }).unwrap()
    };
    vec![
        with(LimitRule::Fixed, 2, 4),
        with(LimitRule::Knee, 4, 4),
        with(LimitRule::Aimd, 6, 8),
        with(LimitRule::Fixed, 1, 2),
    ]
}

/// A gate and all who have something of it.
struct World {
    gate: Gate,
    params: GateParams,
    now: Timestamp,
    /// Queued, and neither claimed nor cancelled.
    tickets: Vec<Ticket>,
    woken: Vec<Ticket>,
    permits: Vec<(LimitPermit, Timestamp, bool)>,
}

impl World {
    fn granted_so_far(&self) -> u64 {
        Priority::ALL.iter().map(|it| self.gate.queue().counters(*it).granted).sum()
    }

    fn run(&mut self, step: Step) {
        let Self { gate, params, now, .. } = self;
        match step {
            Step::Enter { priority, tenant, patience } => {
                let ask = Ask {
                    priority: Priority::ALL[priority],
                    tenant: Tenant::from_hash(tenant),
                    ..Ask::new(now.after(Duration::from_millis(patience)))
                };
                let had_room = gate.room(params) > 0;
                match gate.enter(*now, params, ask) {
                    GateEntry::Admitted(permit) => {
                        assert!(had_room, "admitted without room");
                        self.permits.push((permit, *now, false));
                    }
                    GateEntry::Queued(ticket, _) => self.tickets.push(ticket),
                    GateEntry::Rejected(_) => {}
                }
            }
            Step::Come => {
                if let Some(ticket) = self.woken.pop() {
                    self.ask(ticket);
                }
            }
            Step::Ask(which) => {
                if !self.tickets.is_empty() {
                    self.ask(self.tickets[which % self.tickets.len()]);
                }
            }
            Step::Leave(which) => {
                if !self.tickets.is_empty() {
                    let ticket = self.tickets.swap_remove(which % self.tickets.len());
                    gate.cancel(*now, params, ticket);
                }
            }
            Step::End(which, outcome) => {
                if !self.permits.is_empty() {
                    let which = which % self.permits.len();
                    let (permit, began, is_told) = self.permits.swap_remove(which);
                    let sample = LimitSample { latency: now.since(began), outcome };
                    if is_told {
                        gate.release(*now, params, permit);
                    } else {
                        gate.complete(*now, params, permit, sample);
                    }
                    if outcome == LimitOutcome::GaveUp {
                        gate.on_left(*now, params, sample.latency);
                    }
                }
            }
            Step::Tell(which) => {
                if !self.permits.is_empty() {
                    let which = which % self.permits.len();
                    let (permit, began, is_told) = &mut self.permits[which];
                    if !*is_told {
                        *is_told = true;
                        let outcome = LimitOutcome::Success;
                        let sample = LimitSample { latency: now.since(*began), outcome };
                        gate.learn(*now, params, permit, sample);
                    }
                }
            }
            Step::Pass(millis) => {
                *now = now.after(Duration::from_millis(millis));
                gate.handle_timeout(*now, params);
            }
            Step::Reload(which) => {
                *params = all_params()[which];
                gate.handle_timeout(*now, params);
            }
        }
    }

    fn ask(&mut self, ticket: Ticket) {
        match self.gate.claim(self.now, &self.params, ticket) {
            GateTurn::Admitted(permit) => self.permits.push((permit, self.now, false)),
            GateTurn::Waiting(until) => {
                assert!(until > self.now);
                return;
            }
            GateTurn::Rejected(_) => {}
        }
        self.tickets.retain(|other| *other != ticket);
    }

    /// Runs a step and holds the gate to what it promises.
    fn step(&mut self, step: Step) {
        let before = self.granted_so_far();
        self.run(step);
        while let Some(ticket) = self.gate.pop_woken() {
            self.woken.push(ticket);
        }
        let (gate, params) = (&self.gate, &self.params);
        let busy = gate.limit().in_flight() + gate.granted();
        if self.granted_so_far() > before {
            let limit = gate.limit().limit(&params.limit);
            assert!(busy <= limit, "granted {busy} of {limit} after {step:?}");
        }
        assert_eq!(gate.limit().in_flight() as usize, self.permits.len(), "{step:?}");
        let held = gate.queue().waiting() as usize + gate.queue().unclaimed();
        assert_eq!(held, self.tickets.len(), "{step:?}");
        assert!(gate.granted() as usize <= gate.queue().unclaimed(), "{step:?}");
        let is_idle = gate.room(params) > 0 && gate.queue().waiting() > 0;
        assert!(!is_idle, "a slot is free and somebody waits after {step:?}");
    }
}

proptest! {
    #[test]
    fn whatever_happens_no_slot_is_promised_twice_or_lost_and_everything_drains(
        which in 0..4_usize,
        steps in prop::collection::vec(step(), 1..200),
        leaves in any::<bool>(),
    ) {
        let params = all_params()[which];
        let mut world = World {
            gate: Gate::new(at(0), &params),
            params,
            now: at(0),
            tickets: Vec::new(),
            woken: Vec::new(),
            permits: Vec::new(),
        };
        for it in steps {
            world.step(it);
        }
        // All end, come or leave, and time passes until nobody waits.
        while !(world.permits.is_empty() && world.tickets.is_empty()) {
            world.step(Step::End(0, LimitOutcome::Success));
            world.step(if leaves { Step::Leave(0) } else { Step::Come });
            world.step(Step::Come);
            world.step(Step::Pass(5));
        }
        prop_assert_eq!(counts(&world.gate), (0, 0, 0));
        prop_assert_eq!(world.gate.queue().unclaimed(), 0);
        prop_assert_eq!(world.gate.next_deadline(), None);
        let limit = world.gate.limit().limit(&world.params.limit);
        prop_assert_eq!(world.gate.room(&world.params), limit);
    }
}
