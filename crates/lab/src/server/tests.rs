use std::time::Duration;

use seawall_policy::{AdmissionParams, BulkheadOptions, Priority};

use super::*;
use crate::baselines::QueueRule;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn own(discipline: Discipline) -> Queue {
    Queue::Own(discipline)
}

/// One worker; jobs 0, 1, 2 … come at these times, which are in order. The worker begins the
/// next one at each of the other times. What it begins, and what is turned away (as `-job`).
fn served(queue: &Queue, come: &[u64], turns: &[u64]) -> Vec<i64> {
    let mut server = Server::new(1, queue);
    let mut told = Vec::new();
    let mut jobs = (0..).zip(come).peekable();
    let mut turns = turns.iter().peekable();
    loop {
        let turn = turns.peek().map_or(u64::MAX, |turn| **turn);
        let next = jobs.peek().map_or(u64::MAX, |(_, come)| **come);
        if turn == u64::MAX && next == u64::MAX {
            return told;
        }
        if next <= turn {
            let Some((job, come)) = jobs.next() else { return told };
            match server.arrive(at(*come), Coming { job, until: at(come + 50), lane: 0 }) {
                Arrived::Begun(job) => told.push(job),
                Arrived::Queued(_) => {}
                Arrived::Displaced(job) | Arrived::Refused(job) => told.push(-job),
            }
            continue;
        }
        turns.next();
        if server.busy() > 0 {
            server.finish(at(turn), 0);
        }
        while let Some(next) = server.next(at(turn)) {
            match next {
                Next::Begun(job) => told.push(job),
                Next::Dropped(job) => told.push(-job),
            }
        }
    }
}

#[test]
fn jobs_are_taken_up_in_their_order_and_refused_beyond_the_room() {
    let come = [0, 1, 2, 3, 4];
    let turns = [10, 20, 30];
    assert_eq!(served(&Queue::fifo(None), &come, &turns), [0, 1, 2, 3]);
    assert_eq!(served(&Queue::fifo(Some(2)), &come, &turns), [0, -3, -4, 1, 2]);
    assert_eq!(served(&Queue::fifo(Some(0)), &come, &[]), [0, -1, -2, -3, -4]);
    let lifo = Discipline { order: Order::Lifo, ..Discipline::FIFO };
    assert_eq!(served(&own(lifo.clone()), &come, &turns), [0, 4, 3, 2]);
    // One more takes the place of the oldest.
    let displaces = Discipline { room: Some(2), displaces: true, ..lifo };
    assert_eq!(served(&own(displaces), &come, &turns), [0, -1, -2, 4, 3]);
}

#[test]
fn adaptive_order_turns_round_once_the_queue_has_not_been_empty_for_long() {
    let adaptive = Discipline { order: Order::Adaptive(ms(10)), ..Discipline::FIFO };
    // Empty at 1 for the last time, then again at 40.
    let come = [0, 1, 2, 3, 4, 50, 51];
    let turns = [5, 11, 12, 40, 52, 53];
    assert_eq!(served(&own(adaptive), &come, &turns), [0, 1, 2, 4, 3, 5, 6]);
}

#[test]
fn who_has_no_time_left_or_too_little_for_the_work_is_dropped_at_its_turn() {
    let drop = |drop| own(Discipline { drop, ..Discipline::FIFO });
    // Everybody has 50 ms.
    let (come, turns) = ([0, 1, 2, 30], [51, 70, 79]);
    assert_eq!(served(&drop(Drop::Expired(ms(0))), &come, &turns), [0, -1, 2, 3]);
    assert_eq!(served(&drop(Drop::Expired(ms(9))), &come, &turns), [0, -1, -2, 3]);
    assert_eq!(served(&drop(Drop::Expired(ms(30))), &come, &turns), [0, -1, -2, -3]);
    assert_eq!(served(&drop(Drop::Older(ms(49))), &come, &turns), [0, -1, 2, 3]);
    assert_eq!(served(&drop(Drop::Older(ms(20))), &come, &turns), [0, -1, -2, -3]);
}

#[test]
fn other_peoples_rules_see_the_wait_and_when_the_queue_was_empty() {
    let rule = QueueRule::MAndN { m: ms(5), n: ms(10) };
    let queue = own(Discipline { drop: Drop::By(rule), ..Discipline::FIFO });
    // The queue is not empty from 1 on: who comes after 11 has 5 ms, who came before has 10.
    let come = [0, 1, 2, 3, 12, 13];
    let turns = [11, 12, 14, 18];
    assert_eq!(served(&queue, &come, &turns), [0, 1, 2, -3, 4, 5]);
}

#[test]
fn the_policys_queue_turns_away_at_the_end_of_the_wait_and_grants_by_lanes() {
    let options =
        BulkheadOptions { wait: ms(20), queue: 3, lane_limit: None, ..BulkheadOptions::default() };
    let queue = Queue::Policy(BulkheadParams::new(options).unwrap(), 1);
    let come = [0, 1, 2, 3, 4];
    assert_eq!(served(&queue, &come, &[10, 22, 22]), [0, -4, 1, -2, 3]);

    let lanes = BulkheadOptions { lane_limit: Some(1), ..options };
    let mut server = Server::new(2, &Queue::Policy(BulkheadParams::new(lanes).unwrap(), 2));
    let mut come =
        |job: u32, lane| server.arrive(at(1), Coming { job, until: Timestamp::MAX, lane });
    // Lanes are counted round: the second of lane 0 waits although a worker is free.
    assert_eq!(come(0, 0), Arrived::Begun(0));
    assert_eq!(come(1, 2), Arrived::Queued(at(21)));
    assert_eq!(come(2, 1), Arrived::Begun(2));
    assert_eq!(come(3, 3), Arrived::Queued(at(21)));
    server.finish(at(5), 1);
    assert_eq!([server.next(at(5)), server.next(at(5))], [Some(Next::Begun(3)), None]);
    assert_eq!((server.inside(), server.queued(), server.busy()), (3, 1, 2));
    // At the end of its wait it goes, whether or not a worker is free.
    assert_eq!([server.next(at(20)), server.next(at(21))], [None, Some(Next::Dropped(1))]);
    assert_eq!(server.clear(), []);
    assert_eq!(server.inside(), 0);
}

#[test]
fn the_admission_queue_serves_tenants_in_turn_and_drops_whose_time_is_up() {
    let params = AdmissionParams::default();
    let fair = Fair { params, tenants: 2, kinds: Vec::new() };
    let mut server = Server::new(1, &Queue::Admission(Box::new(fair)));
    let mut come =
        |job: u32, lane, until| server.arrive(at(1), Coming { job, until: at(until), lane });
    assert_eq!(come(0, 0, 100), Arrived::Begun(0));
    assert_eq!(come(1, 0, 100), Arrived::Queued(at(100)));
    assert_eq!(come(2, 2, 100), Arrived::Queued(at(100)), "of tenant 0 too");
    assert_eq!(come(3, 1, 100), Arrived::Queued(at(100)));
    assert_eq!(come(4, 1, 20), Arrived::Queued(at(20)));
    let mut next = |ms| {
        server.finish(at(ms), 0);
        server.next(at(ms))
    };
    assert_eq!([next(5), next(6)], [Some(Next::Begun(1)), Some(Next::Begun(3))]);
    assert_eq!([server.next(at(19)), server.next(at(20))], [None, Some(Next::Dropped(4))]);
    assert_eq!((server.inside(), server.queued(), server.busy()), (2, 1, 1));
    assert_eq!(server.clear(), [2]);
    assert_eq!(server.inside(), 0);
}

#[test]
fn what_is_known_of_tenants_says_who_is_first() {
    let kind = |priority| TenantKind { priority, ..TenantKind::STANDARD };
    let kinds = vec![kind(Priority::Sheddable), kind(Priority::Critical)];
    let fair = Fair { params: AdmissionParams::default(), tenants: 3, kinds };
    let mut server = Server::new(1, &Queue::Admission(Box::new(fair)));
    (0..4).for_each(|job| {
        let _ = server.arrive(at(0), Coming { job, until: Timestamp::MAX, lane: (job + 2) % 3 });
    });
    let order = [(); 3].map(|()| {
        server.finish(at(1), 0);
        server.next(at(1))
    });
    // Job 0 is begun; 2 is critical, 3 as usual, 1 sheddable.
    assert_eq!(order, [2, 3, 1].map(|job| Some(Next::Begun(job))));
}

#[test]
fn workers_come_and_go() {
    let options = BulkheadOptions { wait: ms(1_000), ..BulkheadOptions::default() };
    let policy = Queue::Policy(BulkheadParams::new(options).unwrap(), 1);
    let fair = Fair { params: AdmissionParams::default(), tenants: 1, kinds: vec![] };
    for queue in [Queue::fifo(None), policy, Queue::Admission(Box::new(fair))] {
        let mut server = Server::new(2, &queue);
        (1..=5).for_each(|job| {
            let _ = server.arrive(at(0), Coming::of(job));
        });
        let next = |server: &mut Server<i32>| match server.next(at(1)) {
            Some(Next::Begun(job)) => job,
            Some(Next::Dropped(job)) => -job,
            None => 0,
        };
        server.resize(at(1), 1);
        server.finish(at(1), 0);
        assert_eq!(next(&mut server), 0, "one too many goes");
        server.finish(at(1), 0);
        assert_eq!(next(&mut server), 3);
        server.resize(at(1), 3);
        assert_eq!([(); 3].map(|()| next(&mut server)), [4, 5, 0]);
        assert_eq!(server.busy(), 3);
        assert_eq!(server.arrive(at(1), Coming::of(6)), server.arrive(at(1), Coming::of(7)));
        assert_eq!(server.clear(), [6, 7]);
        assert_eq!(server.inside(), 0);
        // Whoever comes after that begins anew.
        assert_eq!(server.arrive(at(2), Coming::of(8)), Arrived::Begun(8));
    }
}

#[test]
fn a_worker_that_drops_at_a_cost_is_busy_with_it() {
    let discipline = Discipline { drop: Drop::Older(ms(5)), ..Discipline::FIFO };
    let mut server = Server::new(1, &own(discipline));
    let _ = [1, 2].map(|job| server.arrive(at(0), Coming::of(job)));
    server.finish(at(9), 0);
    assert_eq!(server.next(at(9)), Some(Next::Dropped(2)));
    assert!(server.occupy());
    assert_eq!(server.arrive(at(9), Coming::of(3)), Arrived::Queued(Timestamp::MAX));
    server.finish(at(10), 0);
    assert_eq!(server.next(at(10)), Some(Next::Begun(3)));
}
