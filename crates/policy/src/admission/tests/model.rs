//! The same decisions made naively: every list is looked through, every sum is added up.

use proptest::prelude::*;
use std::collections::BTreeMap;

use super::super::backlog::Backlog;
use super::super::flows::step;
use super::super::level::Level;
use super::super::served::Served;
use super::*;

#[derive(Clone, Debug)]
struct Item {
    ticket: Ticket,
    flow: (u64, usize),
    cost: u32,
    since: Timestamp,
    until: Timestamp,
    target: u64,
}

#[derive(Clone, Debug)]
struct Share {
    weight: u32,
    since: u64,
    left: u32,
    round: u64,
    /// When it came to its place in the round, and in its size.
    in_round: u64,
    in_size: (usize, u64),
    backlog: Backlog,
}

struct Model {
    waiting: Vec<Item>,
    decided: BTreeMap<Ticket, Result<(), ShedReason>>,
    flows: BTreeMap<(u64, usize), Share>,
    rounds: [u64; 4],
    tags: [u64; 4],
    backlogs: [Backlog; 4],
    costs: [[u64; 2]; 4],
    drains: [bool; 4],
    levels: [Option<Level>; 4],
    served: Served,
    scout: ScoutPass,
    now: Timestamp,
    count: u64,
    params: AdmissionParams,
}

impl Model {
    fn new(params: AdmissionParams) -> Self {
        Self {
            waiting: Vec::new(),
            decided: BTreeMap::new(),
            flows: BTreeMap::new(),
            rounds: [0; 4],
            tags: [0; 4],
            backlogs: [Backlog::new(Timestamp::ZERO); 4],
            costs: [[0; 2]; 4],
            drains: [false; 4],
            levels: [const { None }; 4],
            served: Served::new(),
            scout: ScoutPass::new(),
            now: Timestamp::ZERO,
            count: 0,
            params,
        }
    }

    fn tick(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn strain(&self, item: &Item) -> u32 {
        u32::try_from(self.now.since(item.since).as_nanos() * 1_000 / u128::from(item.target))
            .unwrap()
    }

    fn of(&self, flow: (u64, usize)) -> Vec<Item> {
        self.waiting.iter().filter(|item| item.flow == flow).cloned().collect()
    }

    fn class(&self, class: usize) -> Vec<Item> {
        self.waiting.iter().filter(|item| item.flow.1 == class).cloned().collect()
    }

    fn newest_first(&self, flow: (u64, usize)) -> bool {
        self.flows[&flow].backlog.stands() || self.backlogs[flow.1].stands()
    }

    fn head(&self, flow: (u64, usize)) -> Item {
        let mut items = self.of(flow);
        if self.newest_first(flow) { items.pop().unwrap() } else { items.remove(0) }
    }

    fn cost(items: &[Item]) -> u64 {
        items.iter().map(|item| u64::from(item.cost)).sum()
    }

    fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        let now = self.now;
        self.served.advance(now, !self.waiting.is_empty());
        for class in 0..4 {
            let oldest = self.class(class).first().map(|item| self.strain(item));
            if self.backlogs[class].is_over(now) {
                self.backlogs[class].roll(now, oldest, true);
                let cost = Self::cost(&self.class(class));
                let [last, before_last] = self.costs[class];
                self.drains[class] = cost < last || cost < before_last;
                self.costs[class] = [cost, last];
            }
        }
        let mut expired: Vec<_> =
            self.waiting.iter().filter(|item| item.until <= now).cloned().collect();
        expired.sort_by_key(|item| item.until);
        expired.iter().for_each(|item| self.end(item, Err(ShedReason::Expired)));
    }

    fn end(&mut self, item: &Item, to: Result<(), ShedReason>) {
        self.leave(item);
        self.decided.insert(item.ticket, to);
    }

    fn leave(&mut self, item: &Item) {
        self.waiting.retain(|other| other.ticket != item.ticket);
        if self.class(item.flow.1).is_empty() {
            self.backlogs[item.flow.1].observe(self.now, 0);
        }
        if self.of(item.flow).is_empty() {
            self.flows.remove(&item.flow);
        } else {
            self.settle(item.flow);
        }
    }

    fn settle(&mut self, flow: (u64, usize)) -> bool {
        let (tick, other) = (self.tick(), self.tick());
        let head = self.head(flow);
        let cost = Self::cost(&self.of(flow));
        let present = self.rounds[flow.1];
        let share = self.flows.get_mut(&flow).unwrap();
        let size = step(cost, share.weight);
        if size != share.in_size.0 {
            share.in_size = (size, tick);
        }
        let needs = u64::from(head.cost.saturating_sub(share.left).div_ceil(share.weight));
        let round = (share.since + needs).max(present);
        if round == share.round {
            return false;
        }
        (share.round, share.in_round) = (round, other);
        true
    }

    fn tidy(&mut self, flow: (u64, usize)) -> bool {
        let items = self.of(flow);
        let Some(first) = items.first() else { return false };
        let strain = self.strain(first);
        let now = self.now;
        let share = self.flows.get_mut(&flow).unwrap();
        share.backlog.roll(now, Some(strain), !self.drains[flow.1]);
        let sheds = share.backlog.sheds(strain);
        let all = self.class(flow.1);
        if flow.1 > 0 && sheds && items.len() > 1 {
            self.end(first, Err(ShedReason::Standing));
            return true;
        }
        if flow.1 > 0 && all.len() > 1 && self.backlogs[flow.1].sheds(self.strain(&all[0])) {
            self.end(&all[0], Err(ShedReason::Standing));
            return true;
        }
        self.settle(flow)
    }

    fn enter(
        &mut self,
        now: Timestamp,
        ask: Ask,
        has_room: bool,
        ticket: Option<Ticket>,
    ) -> Entered {
        self.advance(now);
        self.served.come();
        let now = self.now;
        let until = ask.until.min(now.after(self.params.options().patience));
        if until <= now {
            return Entered::Rejected(Shed::of(ShedReason::Expired));
        }
        if ask.rank > 0 || self.levels[ask.priority.class()].is_some() {
            let level = self.levels[ask.priority.class()].get_or_insert_with(|| Level::new(now));
            if ask.priority != Priority::Critical && !level.lets_in(now, ask.rank, ask.cost) {
                return Entered::Rejected(Shed::of(ShedReason::Rank));
            }
        }
        if has_room && self.waiting.is_empty() {
            if let Some(level) = &mut self.levels[ask.priority.class()] {
                level.start(ask.cost, 0);
            }
            return Entered::Admitted;
        }
        let flow = (ask.tenant.0, ask.priority.class());
        if let Err(reason) = self.let_in(flow, &ask, until) {
            return Entered::Rejected(Shed::of(reason));
        }
        // The number of a ticket is the queue's affair.
        let Some(ticket) = ticket else { return Entered::Admitted };
        let patience = now.until(until);
        let learned = self.served.learned(now).map_or(patience, |learned| patience.min(learned));
        let target = self.params.target(learned);
        if self.class(flow.1).is_empty() {
            self.backlogs[flow.1].observe(now, 0);
        }
        self.waiting.push(Item { ticket, flow, cost: ask.cost, since: now, until, target });
        if let Some(share) = self.flows.get_mut(&flow) {
            share.weight = ask.weight;
            self.settle(flow);
            (0..4).any(|_| !self.tidy(flow));
        } else {
            let since = self.rounds[flow.1];
            let round = since + u64::from(ask.cost.div_ceil(ask.weight));
            let (in_round, in_size) = (self.tick(), self.tick());
            let size = step(ask.cost.into(), ask.weight);
            let mut backlog = Backlog::new(now);
            backlog.observe(now, 0);
            let in_size = (size, in_size);
            let weight = ask.weight;
            let share = Share { weight, since, left: 0, round, in_round, in_size, backlog };
            self.flows.insert(flow, share);
        }
        Entered::Queued(ticket, until)
    }

    fn let_in(
        &mut self,
        flow: (u64, usize),
        ask: &Ask,
        until: Timestamp,
    ) -> Result<(), ShedReason> {
        let class = flow.1;
        if self.backlogs[..class].iter().any(Backlog::stands) {
            return Err(ShedReason::Closed);
        }
        if let Some(share) = self.flows.get(&flow)
            && !self.newest_first(flow)
        {
            let in_class = self.flows.iter().filter(|(key, _)| key.1 == class);
            let weights: u64 = in_class.map(|(_, share)| u64::from(share.weight)).sum();
            let shared = Self::cost(&self.of(flow)) * weights / u64::from(share.weight);
            let critical = if class > 0 { Self::cost(&self.class(0)) } else { 0 };
            let ahead = shared.min(Self::cost(&self.class(class))) + critical;
            let late = self.served.time_for(ahead).is_some_and(|time| self.now.after(time) > until);
            if late && !self.scout.try_take(self.now) {
                return Err(ShedReason::TooLate);
            }
        }
        let queue = self.params.options().queue as usize;
        if self.waiting.len() + self.decided.len() >= 2 * queue {
            return Err(ShedReason::Full);
        }
        if self.waiting.len() < queue {
            return Ok(());
        }
        let lowest = self.waiting.iter().map(|item| item.flow.1).max().unwrap();
        if lowest < class {
            return Err(ShedReason::Full);
        }
        let flows = self.flows.iter().filter(|(key, _)| key.1 == lowest);
        let largest = |(_, share): &(&(u64, usize), &Share)| {
            (share.in_size.0, core::cmp::Reverse(share.in_size.1))
        };
        let (&victim, share) = flows.max_by_key(largest).unwrap();
        let own_size = step(Self::cost(&self.of(flow)) + u64::from(ask.cost), ask.weight);
        let is_own = lowest == class && own_size >= share.in_size.0;
        if is_own && !(self.flows.contains_key(&flow) && self.newest_first(flow)) {
            return Err(ShedReason::Full);
        }
        let victim = if is_own { flow } else { victim };
        let mut items = self.of(victim);
        let tail = if self.newest_first(victim) { items.remove(0) } else { items.pop().unwrap() };
        self.end(&tail, Err(ShedReason::Evicted));
        Ok(())
    }

    fn next(&mut self, now: Timestamp) -> Option<Ticket> {
        self.advance(now);
        loop {
            let classes: BTreeSet<_> = self.waiting.iter().map(|item| item.flow.1).collect();
            let class = *classes
                .iter()
                .min_by_key(|&&class| if class == 0 { (0, 0) } else { (1, self.tags[class]) })?;
            let flows = self.flows.iter().filter(|(key, _)| key.1 == class);
            let first = flows.min_by_key(|(_, share)| (share.round, share.in_round));
            let (&flow, share) = first.unwrap();
            self.rounds[class] = share.round;
            if self.tidy(flow) {
                continue;
            }
            let head = self.head(flow);
            let oldest = self.strain(&self.of(flow)[0]);
            let (now, round) = (self.now, self.rounds[class]);
            self.backlogs[class].observe(now, oldest);
            let share = self.flows.get_mut(&flow).unwrap();
            share.backlog.observe(now, oldest);
            let earned = head.cost.saturating_sub(share.left).div_ceil(share.weight) * share.weight;
            share.left = share.left + earned - head.cost;
            share.since = round;
            let strain = self.strain(&head);
            if let Some(level) = &mut self.levels[class] {
                level.start(head.cost, strain);
            }
            self.served.start(head.cost);
            if class > 0 {
                let start = self.tags[class];
                self.tags[1..].iter_mut().for_each(|tag| *tag = tag.saturating_sub(start));
                let weight = self.params.options().weights[class - 1];
                self.tags[class] = (u64::from(head.cost) << 16) / u64::from(weight);
            }
            self.end(&head, Ok(()));
            return Some(head.ticket);
        }
    }

    fn claim(&mut self, now: Timestamp, ticket: Ticket) -> Turn {
        self.now = self.now.max(now);
        if let Some(item) = self.waiting.iter().find(|item| item.ticket == ticket).cloned() {
            if self.now < item.until {
                return Turn::Waiting(item.until);
            }
            self.end(&item, Err(ShedReason::Expired));
        }
        match self.decided.remove(&ticket) {
            Some(Ok(())) => Turn::Admitted,
            Some(Err(reason)) => rejected(reason),
            None => rejected(ShedReason::Expired),
        }
    }

    fn cancel(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        self.advance(now);
        if let Some(item) = self.waiting.iter().find(|item| item.ticket == ticket).cloned() {
            self.served.leave(self.now, self.now.since(item.since));
            self.leave(&item);
            return false;
        }
        self.decided.remove(&ticket) == Some(Ok(()))
    }
}

#[derive(Clone, Debug)]
enum Action {
    Enter {
        class: usize,
        tenant: u64,
        rank: u16,
        weight: u32,
        cost: u32,
        patience: u64,
        room: bool,
    },
    Next,
    Claim(usize),
    Cancel(usize),
    Timeout,
}

fn action() -> impl Strategy<Value = Action> {
    let cost = prop_oneof![6 => Just(1_u32), 2 => 2..6_u32, 1 => 900..=1_000_u32];
    let patience = prop_oneof![Just(30_u64), Just(100), 40..2_000_u64, Just(90_000)];
    let who = (prop_oneof![1 => Just(0_usize), 6 => Just(1), 2 => 2..4_usize], 0..5_u64);
    let rank = prop_oneof![3 => Just(0_u16), 1 => 0..2_000_u16];
    let enter = (who, rank, 1..4_u32, cost, patience, prop::bool::ANY);
    let enter = enter.prop_map(|((class, tenant), rank, weight, cost, patience, room)| {
        Action::Enter { class, tenant, rank, weight, cost, patience, room }
    });
    prop_oneof![
        6 => enter,
        4 => Just(Action::Next),
        1 => (0..40_usize).prop_map(Action::Claim),
        1 => (0..40_usize).prop_map(Action::Cancel),
        1 => Just(Action::Timeout),
    ]
}

fn passes() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..4_u64, 1 => 0..150_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_naive_model(
        queue in 1..40_u32,
        drains in prop::bool::ANY,
        steps in prop::collection::vec((action(), passes()), 0..200),
    ) {
        let patience = ms(60_000);
        let mut rig =
            Rig::new(AdmissionOptions { queue, patience, ..AdmissionOptions::default() });
        let mut model = Model::new(rig.params);
        let (mut tickets, mut now) = (Vec::new(), 0);
        for (action, passes) in steps {
            now += passes;
            let picked = |n: usize| tickets.get(tickets.len().wrapping_sub(n + 1)).copied();
            match action {
                Action::Enter { class, tenant, rank, weight, cost, patience, room } => {
                    let priority = Priority::ALL[class];
                    let ask = Ask { priority, rank, weight, cost, ..ask(tenant, now, patience) };
                    let entry = rig.queue.enter(at(now), &rig.params, ask, room);
                    rig.queue.check();
                    let ticket = match entry {
                        Entered::Queued(ticket, _) => Some(ticket),
                        Entered::Admitted | Entered::Rejected(_) => None,
                    };
                    prop_assert_eq!(entry, model.enter(at(now), ask, room, ticket));
                    tickets.extend(ticket);
                }
                Action::Next => prop_assert_eq!(rig.next(now), model.next(at(now))),
                Action::Claim(n) => if let Some(ticket) = picked(n) {
                    prop_assert_eq!(rig.claim(now, ticket), model.claim(at(now), ticket));
                },
                Action::Cancel(n) => if let Some(ticket) = picked(n) {
                    prop_assert_eq!(rig.cancel(now, ticket), model.cancel(at(now), ticket));
                },
                Action::Timeout => {
                    rig.timeout(now);
                    model.advance(at(now));
                }
            }
            prop_assert_eq!(rig.queue.waiting() as usize, model.waiting.len());
            prop_assert_eq!(rig.queue.unclaimed(), model.decided.len());
            if drains {
                for ticket in rig.woken() {
                    prop_assert_eq!(rig.claim(now, ticket), model.claim(at(now), ticket));
                }
            }
        }
    }
}
