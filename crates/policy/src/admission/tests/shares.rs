//! Who gets how much, and what a queue that stands does.

use std::collections::BTreeMap;

use super::*;

/// What each tenant gets of so many starts, all of them with as much waiting as they need.
fn shares(asks: &[Ask], starts: u32) -> Vec<u64> {
    let mut rig = Rig::of(1_000);
    let mut owners = BTreeMap::new();
    let mut got = vec![0; asks.len()];
    for _ in 0..20 {
        for (tenant, ask) in asks.iter().enumerate() {
            owners.insert(rig.wait(0, *ask), tenant);
        }
    }
    for _ in 0..starts {
        let tenant = owners[&rig.start(1).unwrap()];
        got[tenant] += u64::from(asks[tenant].cost);
        owners.insert(rig.wait(1, asks[tenant]), tenant);
    }
    got
}

#[test]
fn tenants_share_by_cost_whatever_one_request_costs() {
    let dear = Ask { cost: 10, ..ask(2, 0, 20_000) };
    let got = shares(&[ask(1, 0, 20_000), dear, ask(3, 0, 20_000)], 2_100);
    assert_eq!(got, [1_000, 1_000, 1_000]);
}

#[test]
fn tenants_share_by_weight() {
    let weight = |tenant, weight| Ask { weight, ..ask(tenant, 0, 20_000) };
    assert_eq!(shares(&[weight(1, 1), weight(2, 3), weight(3, 6)], 1_000), [100, 300, 600]);
    // Three halves of a turn each.
    let odd = Ask { cost: 2, ..weight(2, 3) };
    assert_eq!(shares(&[weight(1, 1), odd], 1_000), [400, 1_200]);
}

#[test]
fn a_thousand_times_the_cost_is_one_request_for_a_thousand() {
    let dearest = Ask { cost: 1_000, ..ask(2, 0, 20_000) };
    let got = shares(&[ask(1, 0, 20_000), dearest], 3_003);
    assert_eq!(got, [3_000, 3_000]);
}

#[test]
fn out_of_range_weights_and_costs_count_as_the_nearest() {
    let free = Ask { cost: 0, weight: 0, ..ask(1, 0, 20_000) };
    let mut rig = Rig::of(8);
    rig.wait(0, free);
    rig.wait(0, Ask { cost: u32::MAX, weight: u32::MAX, ..ask(2, 0, 20_000) });
    let of = |tenant| {
        let id = rig.queue.table.find(&rig.queue.flows, tenant, 1).unwrap();
        (rig.queue.flows[id].weight, rig.queue.flows[id].cost)
    };
    assert_eq!((of(1), of(2)), ((1, 1), (100, 1_000)));
}

#[test]
fn a_quiet_tenant_waits_one_turn_of_each_other_and_an_invented_one_overtakes_nobody() {
    let mut rig = Rig::of(1_000);
    for _ in 0..100 {
        (0..4).for_each(|tenant| _ = rig.wait(0, ask(tenant, 0, 20_000)));
    }
    let quiet = rig.wait(0, ask(9, 0, 20_000));
    let invented: Vec<_> = (100..200).map(|tenant| rig.wait(0, ask(tenant, 0, 20_000))).collect();
    let order: Vec<_> = (0..8).map(|_| rig.start(1).unwrap()).collect();
    assert_eq!(order.iter().position(|ticket| *ticket == quiet), Some(4));
    assert!(order[5..].iter().all(|ticket| invented.contains(ticket)), "in the order they came");
}

#[test]
fn who_leaves_and_comes_back_gains_nothing() {
    let mut rig = Rig::of(1_000);
    for _ in 0..100 {
        rig.wait(0, ask(1, 0, 20_000));
    }
    // The other has one at a time, ten times as dear.
    let dear = Ask { cost: 10, ..ask(2, 0, 20_000) };
    let mut one = rig.wait(0, dear);
    let mut starts = 0;
    for _ in 0..66 {
        if rig.start(1).unwrap() == one {
            starts += 1;
            one = rig.wait(1, dear);
        }
    }
    assert_eq!(starts, 6, "one in eleven");
}

/// A queue of one tenant under a load: one starts each `each` ms, `per` come in that time, and each
/// waits `patience` at most. What was shed by `until`, and when first.
struct Load {
    rig: Rig,
    started: Vec<u64>,
    shed: Vec<(u64, ShedReason)>,
}

impl Load {
    fn new(rig: Rig) -> Self {
        Self { rig, started: Vec::new(), shed: Vec::new() }
    }

    /// From..until in steps of 10 ms; so many come and so many are started in each. Checked each
    /// 100 ms.
    fn run(&mut self, steps: core::ops::Range<u64>, come: usize, starts: usize, ask: Ask) {
        for now in steps.map(|step| step * 10) {
            let Rig { queue, params } = &mut self.rig;
            if now % 100 == 0 {
                queue.check();
            }
            for _ in 0..come {
                let until = at(now + ask.until.as_nanos() / 1_000_000);
                let entry = queue.enter(at(now), params, Ask { until, ..ask }, false);
                if let Entered::Rejected(shed) = entry {
                    self.shed.push((now, shed.reason));
                }
            }
            for _ in 0..starts {
                let Rig { queue, params } = &mut self.rig;
                let Some(ticket) = queue.next(at(now), params) else { break };
                let id = self.rig.queue.find(ticket).unwrap();
                let waited = at(now).since(self.rig.queue.entries[id].since);
                self.started.push(u64::try_from(waited.as_millis()).unwrap());
            }
            while let Some(ticket) = self.rig.queue.pop_woken() {
                if let Turn::Rejected(shed) = self.rig.queue.claim(at(now), ticket) {
                    self.shed.push((now, shed.reason));
                }
            }
        }
    }
}

/// Waits two seconds: the target is 500 ms.
const PATIENT: Ask = Ask { tenant: Tenant(1), ..Ask::new(Timestamp::from_millis(2_000)) };

#[test]
fn a_burst_that_drains_sheds_nothing_and_keeps_the_order() {
    let mut load = Load::new(Rig::of(4_096));
    let critical = Ask { priority: Priority::Critical, tenant: Tenant(2), ..PATIENT };
    for stall in [0, 1_000] {
        // 600 ms without a start, at 0.7 of what can be done; the second long after the first.
        for step in stall..stall + 400 {
            load.run(step..step + 1, 1, 0, critical);
            load.run(step..step + 1, 6, if step < stall + 60 { 0 } else { 10 }, PATIENT);
        }
        assert_eq!(load.shed, []);
        assert!(!load.rig.queue.stands(Priority::Critical));
        // Who came first in the stall is the first to be started.
        assert_eq!(core::mem::take(&mut load.started)[0], 600);
    }
}

#[test]
fn a_standing_queue_sheds_within_200_ms_of_its_least_wait_crossing_the_target() {
    let mut load = Load::new(Rig::of(4_096));
    // A burst of 700 ms worth, and from then on as much as is done: it would stand for good.
    load.run(0..1, 700, 0, PATIENT);
    load.run(1..300, 10, 10, PATIENT);
    let (first, reason) = load.shed[0];
    assert_eq!(reason, ShedReason::Standing);
    // Above 500 ms from 500 ms on; the first interval above it ends at 600 ms.
    assert!((600..=800).contains(&first), "{first}");
    assert!(
        load.rig.queue.waiting() < 20 && !load.rig.queue.stands(Priority::Default),
        "{} {:?} {:?}",
        load.rig.queue.waiting(),
        load.rig.queue.classes[1].backlog,
        &load.shed[..3]
    );
}

#[test]
fn in_a_standing_queue_the_newest_goes_first_and_nobody_waits_over_the_bound() {
    let mut load = Load::new(Rig::of(4_096));
    load.run(0..200, 20, 10, PATIENT);
    assert!(load.rig.queue.stands(Priority::Default));
    load.started.clear();
    load.run(200..400, 20, 10, PATIENT);
    assert!(load.started.iter().all(|waited| *waited == 0), "the newest");
    let oldest = load.rig.queue.oldest_waiting().unwrap();
    assert!(at(3_990).since(oldest) <= ms(1_010), "{oldest}");
    // And when less comes, it is healthy again, and the oldest first.
    load.run(400..500, 5, 10, PATIENT);
    assert!(!load.rig.queue.stands(Priority::Default) && load.rig.queue.waiting() == 0);
}

#[test]
fn critical_is_never_shed_by_load_and_expires_all_the_same() {
    let mut load = Load::new(Rig::of(8_192));
    let critical = Ask { priority: Priority::Critical, ..PATIENT };
    load.run(0..400, 20, 10, critical);
    assert!(load.rig.queue.stands(Priority::Critical));
    assert!(load.shed.iter().all(|(_, reason)| *reason == ShedReason::Expired));
    // What is behind it may not enter until it is over.
    assert_eq!(load.rig.refused(4_000, ask(5, 4_000, 900)), ShedReason::Closed);
    load.rig.wait(4_000, of(Priority::Critical, ask(5, 4_000, 900)));
}

#[test]
fn one_tenant_that_stands_takes_nothing_from_another_that_does_not() {
    let mut load = Load::new(Rig::of(4_096));
    for step in 0..300 {
        load.run(step..step + 1, 20, 0, PATIENT);
        load.run(step..step + 1, 2, 10, Ask { tenant: Tenant(2), ..PATIENT });
    }
    let of = |tenant| load.rig.queue.table.find(&load.rig.queue.flows, tenant, 1);
    let heavy = of(1).unwrap();
    assert!(load.rig.queue.flows[heavy].backlog.stands());
    assert!(!load.rig.queue.stands(Priority::Default), "the other's waits are short");
    assert!(of(2).is_none(), "nothing of it waits");
}

#[test]
fn many_tenants_of_one_request_each_are_a_standing_queue_together() {
    let mut load = Load::new(Rig::of(8_192));
    for step in 0..300_u64 {
        for n in 0..20 {
            load.run(step..step + 1, 1, 0, Ask { tenant: Tenant(step * 20 + n + 1), ..PATIENT });
        }
        load.run(step..step + 1, 0, 10, PATIENT);
    }
    assert!(load.rig.queue.stands(Priority::Default));
    let latest = &load.started[load.started.len() - 500..];
    assert!(latest.iter().all(|waited| *waited <= 1_010), "{latest:?}");
}

#[test]
fn patience_is_learned_from_those_who_hang_up() {
    let mut rig = Rig::of(1_000);
    // Nobody says how long he waits; all leave after 160 ms.
    let silent = Ask { tenant: Tenant(1), ..Ask::new(Timestamp::MAX) };
    let tickets: Vec<_> = (0..30).map(|_| rig.wait(0, silent)).collect();
    for ticket in tickets {
        assert!(!rig.cancel(160, ticket));
    }
    rig.wait(300, silent);
    let id = rig.queue.classes[1].entries.first().unwrap();
    let target = rig.queue.entries[id].target;
    assert!(
        (40_000_000..50_000_000).contains(&target),
        "{target}: a quarter of 160 ms, and a step"
    );
}

#[test]
fn a_level_of_ranks_falls_to_what_is_started_and_no_further() {
    let mut rig = Rig::of(4_096);
    let mut let_in = [0; 6];
    for now in 0..6_000_u64 {
        // Two come each millisecond, and one is started, at once if nobody waits.
        let mut has_slot = true;
        for n in now * 2..now * 2 + 2 {
            let rank = u16::try_from(n % 1_000 + 1).unwrap();
            let ask = Ask { rank, ..ask(n, now, 1_000) };
            let entered = rig.queue.enter(at(now), &rig.params, ask, has_slot);
            has_slot &= entered != Entered::Admitted;
            if !matches!(entered, Entered::Rejected(shed) if shed.reason == ShedReason::Rank) {
                let_in[usize::try_from(now / 1_000).unwrap()] += 1;
            }
        }
        if has_slot {
            let _ = rig.queue.next(at(now), &rig.params);
        }
        while let Some(ticket) = rig.queue.pop_woken() {
            let _ = rig.queue.claim(at(now), ticket);
        }
    }
    rig.queue.check();
    assert_eq!(let_in[0], 2_000);
    assert!(let_in[1..].iter().all(|count| (900..=1_100).contains(count)), "{let_in:?}");
}
