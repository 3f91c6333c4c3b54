use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::collections::BTreeSet;
use std::string::ToString;

use super::slab::NONE;
use super::*;
use crate::rate::{KeyedRateOptions, RateOptions};

mod model;
mod shares;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A request of that tenant with so long to wait.
fn ask(tenant: u64, now: u64, patience: u64) -> Ask {
    Ask { tenant: Tenant::from_hash(tenant), ..Ask::new(at(now + patience)) }
}

fn of(priority: Priority, ask: Ask) -> Ask {
    Ask { priority, ..ask }
}

/// A queue and its knobs, driven at literal milliseconds; everything is checked after each step.
struct Rig {
    queue: AdmissionQueue,
    params: AdmissionParams,
}

impl Rig {
    fn new(options: AdmissionOptions) -> Self {
        let params = AdmissionParams::new(options).unwrap();
        Self { queue: AdmissionQueue::new(), params }
    }

    fn of(queue: u32) -> Self {
        Self::new(AdmissionOptions { queue, ..AdmissionOptions::default() })
    }

    fn enter(&mut self, now: u64, ask: Ask) -> Entered {
        let entry = self.queue.enter(at(now), &self.params, ask, false);
        self.queue.check();
        entry
    }

    fn wait(&mut self, now: u64, ask: Ask) -> Ticket {
        match self.enter(now, ask) {
            Entered::Queued(ticket, _) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, now: u64, ask: Ask) -> ShedReason {
        match self.enter(now, ask) {
            Entered::Rejected(shed) => shed.reason,
            other => panic!("{other:?}"),
        }
    }

    fn next(&mut self, now: u64) -> Option<Ticket> {
        let next = self.queue.next(at(now), &self.params);
        self.queue.check();
        next
    }

    /// The next, started and ended at once.
    fn start(&mut self, now: u64) -> Option<Ticket> {
        let ticket = self.next(now)?;
        assert_eq!(self.claim(now, ticket), Turn::Admitted);
        Some(ticket)
    }

    fn claim(&mut self, now: u64, ticket: Ticket) -> Turn {
        let turn = self.queue.claim(at(now), ticket);
        self.queue.check();
        turn
    }

    fn cancel(&mut self, now: u64, ticket: Ticket) -> bool {
        let held = self.queue.cancel(at(now), ticket);
        self.queue.check();
        held
    }

    fn timeout(&mut self, now: u64) {
        self.queue.handle_timeout(at(now));
        self.queue.check();
    }

    fn woken(&mut self) -> Vec<Ticket> {
        core::iter::from_fn(|| self.queue.pop_woken()).collect()
    }

    /// Those that are woken, and what was decided.
    fn decided(&mut self, now: u64) -> Vec<(Ticket, Turn)> {
        let woken = self.woken();
        woken.into_iter().map(|ticket| (ticket, self.claim(now, ticket))).collect()
    }
}

fn rejected(reason: ShedReason) -> Turn {
    Turn::Rejected(Shed { reason, retry_after: None })
}

#[test]
fn with_room_and_nobody_waiting_it_is_admitted_and_otherwise_it_waits() {
    let mut rig = Rig::of(8);
    let plain = ask(1, 0, 1_000);
    assert_eq!(rig.queue.enter(at(0), &rig.params, plain, true), Entered::Admitted);
    let first = rig.wait(0, plain);
    let second = rig.queue.enter(at(0), &rig.params, plain, true);
    assert!(matches!(second, Entered::Queued(..)), "the slot is the first one's");
    assert_eq!(rig.next(1), Some(first));
    assert_eq!(rig.woken(), [first]);
    assert_eq!(rig.claim(1, first), Turn::Admitted);
    assert_eq!(rig.claim(1, first), rejected(ShedReason::Expired), "used up");
    let counters = rig.queue.counters(Priority::Default);
    assert_eq!((counters.admitted, counters.queued, counters.granted), (1, 2, 1));
}

#[test]
fn critical_goes_first_and_the_others_by_weight() {
    let mut rig = Rig::new(AdmissionOptions { weights: [4, 2, 1], ..AdmissionOptions::default() });
    let mut tickets = vec![Vec::new(); 4];
    for _ in 0..14 {
        for priority in Priority::ALL {
            let ticket = rig.wait(0, of(priority, ask(1, 0, 1_000)));
            tickets[priority.class()].push(ticket);
        }
    }
    let class = |ticket| tickets.iter().position(|those| those.contains(&ticket)).unwrap();
    let order: Vec<_> = (0..28).map(|_| class(rig.start(1).unwrap())).collect();
    assert_eq!(order[..14], [0; 14]);
    let count = |of: usize| order[14..].iter().filter(|&&class| class == of).count();
    assert_eq!([count(1), count(2), count(3)], [8, 4, 2]);
}

#[test]
fn within_a_tenant_the_oldest_goes_first_while_the_queue_is_healthy() {
    let mut rig = Rig::of(8);
    let tickets: Vec<_> = (0..3).map(|n| rig.wait(n, ask(1, n, 1_000))).collect();
    let order: Vec<_> = (0..3).map(|_| rig.start(3).unwrap()).collect();
    assert_eq!(order, tickets);
}

#[test]
fn nobody_is_started_at_or_after_the_end_of_his_time_and_all_are_told_promptly() {
    let mut rig = Rig::of(8);
    let long = rig.wait(0, ask(1, 0, 10_000));
    let behind = rig.wait(0, ask(1, 0, 50));
    let other = rig.wait(0, ask(2, 0, 60));
    assert_eq!(rig.queue.next_deadline(), Some(at(48)), "or before: the begin of its slot");
    rig.timeout(49);
    assert_eq!(rig.woken(), []);
    assert_eq!(rig.claim(49, behind), Turn::Waiting(at(50)));
    rig.timeout(50);
    assert_eq!(rig.decided(50), [(behind, rejected(ShedReason::Expired))], "behind the head");
    assert_eq!(rig.claim(60, other), rejected(ShedReason::Expired), "by its own clock");
    assert_eq!(rig.start(60), Some(long));
    assert_eq!(rig.start(60), None);
    assert_eq!(rig.queue.counters(Priority::Default).shed(ShedReason::Expired), 2);
}

#[test]
fn deadlines_count_in_quarters_of_a_millisecond_rounded_down() {
    let mut rig = Rig::of(8);
    let until = Timestamp::from_nanos(10_499_999);
    let entry = rig.queue.enter(at(0), &rig.params, Ask::new(until), false);
    assert!(matches!(entry, Entered::Queued(_, until) if until.as_nanos() == 10_250_000));
    let soon = Ask::new(Timestamp::from_nanos(249_999));
    assert_eq!(rig.refused(0, soon), ShedReason::Expired);
}

#[test]
fn every_wait_ends_at_its_time_however_far_away_that_is() {
    let options = AdmissionOptions { patience: ms(3_600_000), ..AdmissionOptions::default() };
    let mut rig = Rig::new(options);
    // On each level of the wheel, at both edges of a slot.
    let ends = [1, 15, 16, 17, 1_023, 1_024, 1_025, 65_535, 65_536, 65_537, 3_599_999, 3_600_000];
    let tickets: Vec<_> = ends.iter().map(|&end| rig.wait(0, ask(end, 0, end))).collect();
    assert!(matches!(rig.enter(0, ask(9, 0, 9_000_000)), Entered::Queued(_, until)
        if until == at(3_600_000)));
    for (end, ticket) in ends.into_iter().zip(tickets).take(11) {
        rig.timeout(end - 1);
        assert_eq!(rig.woken(), [], "{end}");
        assert!(rig.queue.next_deadline().unwrap() <= at(end));
        rig.timeout(end);
        assert_eq!(rig.woken(), [ticket], "{end}");
    }
    rig.timeout(3_600_000);
    assert_eq!((rig.woken().len(), rig.queue.next_deadline()), (2, None));
}

#[test]
fn a_caller_who_leaves_frees_his_place_and_a_granted_slot_is_handed_back() {
    let mut rig = Rig::of(8);
    let (first, second) = (rig.wait(0, ask(1, 0, 900)), rig.wait(0, ask(1, 0, 900)));
    assert!(!rig.cancel(1, first));
    assert!(!rig.cancel(1, first), "used up");
    assert_eq!(rig.next(2), Some(second));
    assert!(rig.cancel(2, second), "the slot is free again");
    assert_eq!(rig.woken(), []);
    assert_eq!((rig.queue.waiting(), rig.queue.unclaimed(), rig.queue.tenants()), (0, 0, 0));
    assert_eq!(rig.queue.counters(Priority::Default).cancelled, 1);
}

#[test]
fn when_full_the_largest_of_the_lowest_priority_loses_first() {
    let mut rig = Rig::of(4);
    let small = rig.wait(0, of(Priority::Background, ask(1, 0, 900)));
    let large = [0, 1].map(|n| rig.wait(n, of(Priority::Background, ask(2, n, 900))));
    rig.wait(2, of(Priority::Critical, ask(2, 0, 900)));
    // The one that would be served last of the largest, for a critical and then a default one.
    rig.wait(3, of(Priority::Critical, ask(3, 3, 900)));
    assert_eq!(rig.decided(3), [(large[1], rejected(ShedReason::Evicted))]);
    rig.wait(4, ask(3, 4, 900));
    // Now both are as large.
    let evicted = rig.decided(4);
    assert!(
        evicted == [(small, rejected(ShedReason::Evicted))]
            || evicted == [(large[0], rejected(ShedReason::Evicted))],
        "{evicted:?}"
    );
    assert_eq!(rig.refused(5, of(Priority::Background, ask(4, 5, 900))), ShedReason::Full);
    assert_eq!(rig.queue.waiting_of(Priority::Background), 1);
}

#[test]
fn a_newcomer_of_the_largest_tenant_is_refused_and_one_of_a_small_one_is_let_in() {
    let mut rig = Rig::of(4);
    let large: Vec<_> = (0..3).map(|n| rig.wait(n, ask(1, n, 900))).collect();
    rig.wait(3, ask(2, 3, 900));
    assert_eq!(rig.refused(4, ask(1, 4, 900)), ShedReason::Full);
    rig.wait(5, ask(2, 5, 900));
    assert_eq!(rig.decided(5), [(large[2], rejected(ShedReason::Evicted))]);
    // Two and two: one more of either would be the largest.
    assert_eq!(rig.refused(6, ask(2, 6, 900)), ShedReason::Full);
}

#[test]
fn consumers_are_compared_by_cost_and_weight() {
    let mut rig = Rig::of(3);
    rig.wait(0, Ask { cost: 30, weight: 10, ..ask(1, 0, 900) });
    let dear = rig.wait(0, Ask { cost: 20, ..ask(2, 0, 900) });
    rig.wait(0, ask(3, 0, 900));
    rig.wait(1, ask(3, 1, 900));
    assert_eq!(rig.decided(1), [(dear, rejected(ShedReason::Evicted))]);
}

#[test]
fn an_edge_that_never_claims_is_refused_instead_of_growing_the_queue() {
    let mut rig = Rig::of(2);
    for now in [0, 0, 50, 50] {
        rig.wait(now, ask(1, now, 50));
    }
    rig.timeout(100);
    assert_eq!(rig.queue.unclaimed(), 4);
    assert_eq!(rig.refused(100, ask(1, 100, 50)), ShedReason::Full);
    assert_eq!(rig.decided(100).len(), 4);
    rig.wait(100, ask(1, 100, 50));
}

#[test]
fn what_cannot_start_in_time_is_refused_after_twenty_starts_but_for_one_a_second() {
    let mut rig = Rig::of(512);
    // One each 10 ms, while somebody waits.
    for n in 0..40 {
        rig.wait(0, ask(1, n, 60_000));
    }
    for n in 1..=19 {
        rig.start(n * 10);
    }
    let late = ask(1, 190, 100);
    rig.wait(190, late);
    rig.start(200);
    // 21 are before it, which is 210 ms.
    let last = rig.wait(200, ask(1, 200, 100));
    assert_eq!(rig.refused(200, ask(1, 200, 100)), ShedReason::TooLate, "the scout has gone");
    assert!(!rig.cancel(200, last));
    assert_eq!(rig.refused(200, ask(1, 200, 209)), ShedReason::TooLate);
    let just = rig.wait(200, ask(1, 200, 211));
    assert!(!rig.cancel(200, just));
    assert!(
        matches!(rig.enter(200, ask(2, 200, 20)), Entered::Queued(..)),
        "another tenant's turn"
    );
    assert_eq!(rig.refused(999, ask(1, 999, 100)), ShedReason::TooLate);
    rig.wait(1_000, ask(1, 1_000, 100));
    assert!(rig.queue.backlog_time().unwrap() > ms(200));
}

#[test]
fn a_tenant_over_its_rate_is_told_when_to_come_again_and_nothing_is_lost_by_other_refusals() {
    let rate = RateOptions { burst: 2, ..RateOptions::new(10, Duration::from_secs(1)) };
    let tenant_rate = Some(KeyedRateOptions::new(rate));
    let options = AdmissionOptions { queue: 1, tenant_rate, ..AdmissionOptions::default() };
    let mut rig = Rig::new(options);
    let first = rig.wait(0, ask(1, 0, 900));
    // Refused because the queue is full, which costs nothing of the rate.
    assert_eq!(rig.refused(0, ask(1, 0, 900)), ShedReason::Full);
    assert!(!rig.cancel(0, first));
    rig.wait(0, ask(1, 0, 900));
    let shed = Shed { reason: ShedReason::OverRate, retry_after: Some(ms(100)) };
    assert_eq!(rig.enter(0, ask(1, 0, 900)), Entered::Rejected(shed));
    assert_eq!(rig.refused(0, ask(2, 0, 900)), ShedReason::Full, "another tenant's rate");
}

#[test]
fn an_earlier_now_is_taken_for_the_latest_and_spurious_calls_change_nothing() {
    let mut rig = Rig::of(8);
    rig.timeout(1_000);
    let ticket = rig.wait(500, ask(1, 1_000, 50));
    assert_eq!(rig.queue.oldest_waiting(), Some(at(1_000)));
    rig.timeout(0);
    rig.timeout(1_049);
    assert_eq!(rig.claim(0, ticket), Turn::Waiting(at(1_050)));
    assert_eq!(rig.next(1_049), Some(ticket));
    assert_eq!(rig.next(1_049), None);
}

#[test]
fn more_expiries_than_one_operation_does_are_done_by_the_next() {
    let mut rig = Rig::of(4_096);
    for n in 0..2_000 {
        let queued = rig.queue.enter(at(0), &rig.params, ask(n % 7, 0, 100), false);
        assert!(matches!(queued, Entered::Queued(..)));
    }
    rig.timeout(100);
    let left = rig.queue.waiting();
    assert!((1..=2_000).contains(&left), "{left}");
    assert!(rig.queue.next_deadline().is_some_and(|due| due <= at(100)));
    assert_eq!(rig.next(100), None, "nobody is started late, though some are there");
    let mut calls = 0;
    while rig.queue.waiting() > 0 {
        rig.timeout(100);
        calls += 1;
    }
    assert!(calls <= 7, "{calls}");
    assert_eq!(rig.woken().len(), 2_000);
}

#[test]
fn memory_is_that_of_the_highest_use_whoever_comes() {
    let mut rig = Rig::of(100);
    for n in 0..100_000_u64 {
        // Each is a tenant that nobody has seen before.
        let now = n / 100;
        if let Entered::Queued(..) = rig.queue.enter(at(now), &rig.params, ask(n, now, 30), false)
            && n % 3 == 0
        {
            let _ = rig.queue.next(at(now), &rig.params);
        }
        while let Some(ticket) = rig.queue.pop_woken() {
            let _ = rig.queue.claim(at(now), ticket);
        }
    }
    rig.queue.check();
    assert!(rig.queue.entries.places() <= 201 && rig.queue.flows.places() <= 101);
    assert!(rig.queue.top().len() <= 32);
}

#[test]
fn construction_refuses_what_can_never_work_and_names_it() {
    let check = |change: fn(&mut AdmissionOptions)| {
        let mut options = AdmissionOptions::default();
        change(&mut options);
        AdmissionParams::new(options).map(|_| ()).map_err(|error| error.to_string())
    };
    for (change, said) in [
        ((|it| it.queue = 0) as fn(&mut AdmissionOptions), "`queue`: 0 is not allowed"),
        (|it| it.queue = 131_073, "`queue`: 131073 is not allowed; give 1 to 131072"),
        (|it| it.weights[0] = 0, "`weights.default`: 0"),
        (|it| it.weights[2] = 1_001, "`weights.background`: 1001"),
        (|it| it.target = Duration::ZERO, "`target`: 0ns is not allowed; give 1ms to 10s"),
        (|it| it.target = ms(10_001), "`target`: 10.001s"),
        (|it| it.patience = ms(3_600_001), "`patience`: 3600.001s is not allowed; give 1ms to 1h"),
        (
            |it| it.tenant_rate = Some(KeyedRateOptions::new(RateOptions::new(0, ms(1)))),
            "`tenant_rate.limit`: 0",
        ),
    ] {
        let error = check(change).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(check(|it| it.queue = 131_072), Ok(()));
    assert_eq!(AdmissionParams::new(AdmissionOptions::default()), Ok(AdmissionParams::default()));
}

impl AdmissionQueue {
    /// That all lists, counts and sums agree.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        let mut flows = BTreeSet::new();
        for (number, class) in self.classes.iter().enumerate() {
            let waiting = walk(class.entries.first(), |id| self.entries[id].in_class.after);
            assert_eq!(waiting.len(), class.waiting as usize);
            assert!(waiting.iter().all(|&id| self.entries[id].standing == Standing::Waiting));
            assert!(
                waiting.is_sorted_by_key(|&id| (self.entries[id].since, self.entries[id].ticket))
            );
            assert_eq!(self.cost_of(&waiting), class.cost);
            seen.extend(waiting);
            let own = self.check_flows(number, class);
            let weights = own.iter().map(|&id| u64::from(self.flows[id].weight)).sum::<u64>();
            assert_eq!(weights, class.weights);
            flows.extend(own);
        }
        assert_eq!(seen.len(), self.waiting as usize);
        assert_eq!(flows.len(), self.flows.len());
        let of_flows: BTreeSet<_> = flows.iter().flat_map(|&id| self.of_flow(id)).collect();
        assert_eq!(of_flows, seen);
        let mut timed = BTreeSet::new();
        for (level, slots) in self.timers.levels.iter().enumerate() {
            for (slot, list) in slots.iter().enumerate() {
                let those = walk(list.first(), |id| self.entries[id].in_timer.after);
                assert_eq!(self.timers.filled[level] & 1 << slot != 0, !those.is_empty());
                let place = level * slots.len() + slot;
                assert!(those.iter().all(|&id| usize::from(self.entries[id].timer) == place));
                timed.extend(those);
            }
        }
        assert_eq!(timed, seen);
        let woken = walk(self.woken.first(), |id| self.entries[id].in_flow.after);
        let is_untold = |id: &u32| {
            matches!(self.entries[*id].standing, Standing::Decided { is_told: false, .. })
        };
        assert!(woken.iter().all(is_untold));
        assert!(woken.len() + seen.len() <= self.entries.len());
    }

    fn of_flow(&self, flow: u32) -> Vec<u32> {
        walk(self.flows[flow].entries.first(), |id| self.entries[id].in_flow.after)
    }

    fn cost_of(&self, entries: &[u32]) -> u64 {
        entries.iter().map(|&id| u64::from(self.entries[id].cost)).sum()
    }

    /// The flows of a class, as they are in their rounds and among the sizes.
    fn check_flows(&self, number: usize, class: &Class) -> BTreeSet<u32> {
        let mut sized = BTreeSet::new();
        for (size, list) in class.sizes.lists.iter().enumerate() {
            let those = walk(list.first(), |id| self.flows[id].in_size.after);
            assert_eq!(class.sizes.filled & 1 << size != 0, !those.is_empty());
            for &id in &those {
                let flow = &self.flows[id];
                assert_eq!((flow.size, flow.class), (size, number));
                assert_eq!(flows::step(flow.cost, flow.weight), size);
                assert_eq!(self.table.find(&self.flows, flow.tenant, number), Some(id));
                let entries = self.of_flow(id);
                assert!(!entries.is_empty());
                assert!(entries.iter().all(|&entry| self.entries[entry].flow == id));
                assert_eq!(self.cost_of(&entries), flow.cost);
            }
            sized.extend(those);
        }
        let mut in_turn = BTreeSet::new();
        for (slot, list) in class.rounds.slots.iter().enumerate() {
            let those = walk(list.first(), |id| self.flows[id].turn.links.after);
            assert_eq!(class.rounds.filled[slot / 64] & 1 << (slot % 64) != 0, !those.is_empty());
            for &id in &those {
                let ahead = self.flows[id].turn.round - class.rounds.round;
                assert!(ahead < 1_024 && self.flows[id].turn.round % 1_024 == slot as u64);
            }
            in_turn.extend(those);
        }
        assert_eq!(in_turn, sized);
        sized
    }
}

fn walk(first: Option<u32>, after: impl Fn(u32) -> u32) -> Vec<u32> {
    let step = |id: &u32| Some(after(*id)).filter(|next| *next != NONE);
    core::iter::successors(first, step).collect()
}
