use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::borrow::ToOwned;

use super::*;

mod model;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// A bulkhead and its knobs, driven at literal milliseconds.
struct Rig {
    bulkhead: Bulkhead,
    params: BulkheadParams,
}

impl Rig {
    fn new(options: BulkheadOptions) -> Self {
        Self { bulkhead: Bulkhead::new(1), params: BulkheadParams::new(options).unwrap() }
    }

    fn reload(&mut self, options: BulkheadOptions) {
        self.params = BulkheadParams::new(options).unwrap();
    }

    fn acquire(&mut self, ms: u64, lane: usize) -> Admission<()> {
        self.bulkhead.try_acquire(at(ms), &self.params, lane, Timestamp::MAX)
    }

    fn admit(&mut self, ms: u64, lane: usize) {
        assert_eq!(self.acquire(ms, lane), Admission::Admitted(()));
    }

    fn queue(&mut self, ms: u64, lane: usize) -> Ticket {
        match self.acquire(ms, lane) {
            Admission::Queued(ticket, _) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn release(&mut self, ms: u64, lane: usize) {
        self.bulkhead.release(at(ms), &self.params, lane);
    }

    fn cancel(&mut self, ms: u64, ticket: Ticket) {
        self.bulkhead.cancel(at(ms), &self.params, ticket);
    }

    fn claim(&mut self, ms: u64, ticket: Ticket) -> Claim {
        self.bulkhead.claim(at(ms), ticket)
    }

    fn timeout(&mut self, ms: u64) {
        self.bulkhead.handle_timeout(at(ms), &self.params);
    }

    fn woken(&mut self) -> Vec<Ticket> {
        core::iter::from_fn(|| self.bulkhead.pop_woken()).collect()
    }
}

fn limit(limit: u32) -> BulkheadOptions {
    BulkheadOptions::with_limit(limit)
}

fn lanes(limit: u32, lane_limit: u32) -> BulkheadOptions {
    BulkheadOptions { lane_limit: Some(lane_limit), ..BulkheadOptions::with_limit(limit) }
}

#[test]
fn admits_up_to_the_limit_then_queues_then_rejects() {
    let mut rig = Rig::new(limit(2));
    rig.admit(0, 0);
    rig.admit(0, 0);
    rig.queue(0, 0);
    rig.queue(0, 0);
    assert_eq!(rig.acquire(0, 0), Admission::Rejected);
    assert_eq!((rig.bulkhead.in_flight(), rig.bulkhead.waiting()), (2, 2));
}

#[test]
fn a_lane_stops_at_its_own_limit_and_leaves_the_rest_to_others() {
    let mut rig = Rig::new(lanes(3, 2));
    rig.admit(0, 0);
    rig.admit(0, 0);
    let waiter = rig.queue(0, 0);
    rig.admit(0, 1);
    assert_eq!((rig.bulkhead.in_flight_of(0), rig.bulkhead.in_flight_of(1)), (2, 1));
    rig.release(1, 1);
    assert_eq!(rig.woken(), [], "the lane is full, not the bulkhead");
    rig.release(2, 0);
    assert_eq!(rig.woken(), [waiter]);
    assert_eq!(rig.claim(2, waiter), Claim::Admitted);
}

#[test]
fn a_freed_slot_goes_to_the_oldest_waiter_whose_lane_has_room() {
    let mut rig = Rig::new(lanes(3, 2));
    rig.admit(0, 0);
    rig.admit(0, 0);
    rig.admit(0, 1);
    let (first, second, third) = (rig.queue(0, 0), rig.queue(1, 2), rig.queue(2, 1));
    rig.release(3, 1);
    assert_eq!(rig.woken(), [second], "lane 0 is full");
    rig.release(4, 0);
    assert_eq!(rig.woken(), [first]);
    rig.release(5, 0);
    assert_eq!(rig.woken(), [third]);
}

#[test]
fn a_newcomer_never_overtakes_a_waiter_of_its_lane() {
    let mut rig = Rig::new(limit(1));
    rig.admit(0, 0);
    let waiter = rig.queue(1, 0);
    rig.release(2, 0);
    assert!(matches!(rig.acquire(2, 0), Admission::Queued(..)), "the slot is the waiter's");
    assert_eq!(rig.claim(3, waiter), Claim::Admitted);
    assert_eq!(rig.bulkhead.in_flight(), 1);
}

#[test]
fn waits_until_the_wait_or_the_calls_own_deadline_whichever_is_first() {
    let mut rig = Rig::new(limit(1));
    rig.admit(0, 0);
    for (until, expected) in [(at(49), at(49)), (at(50), at(50)), (at(51), at(50))] {
        match rig.bulkhead.try_acquire(at(0), &rig.params, 0, until) {
            Admission::Queued(ticket, end) => {
                assert_eq!(end, expected);
                assert_eq!(rig.bulkhead.next_deadline(), Some(end));
                rig.cancel(0, ticket);
            }
            other => panic!("{other:?}"),
        }
    }
    let now = rig.bulkhead.try_acquire(at(7), &rig.params, 0, at(7));
    assert_eq!(now, Admission::Rejected, "no time left");
}

#[test]
fn zero_wait_or_a_queue_of_zero_never_waits() {
    for options in [
        BulkheadOptions { wait: Duration::ZERO, ..limit(1) },
        BulkheadOptions { queue: 0, ..limit(1) },
    ] {
        let mut rig = Rig::new(options);
        rig.admit(0, 0);
        assert_eq!(rig.acquire(0, 0), Admission::Rejected);
    }
}

#[test]
fn nobody_is_granted_at_or_after_the_end_of_the_wait() {
    for (ms, expected) in [(49, Claim::Admitted), (50, Claim::Expired)] {
        let mut rig = Rig::new(limit(1));
        rig.admit(0, 0);
        let ticket = rig.queue(0, 0);
        rig.release(ms, 0);
        assert_eq!(rig.woken(), [ticket], "told either way");
        assert_eq!(rig.claim(ms, ticket), expected);
        assert_eq!(rig.bulkhead.in_flight(), u32::from(ms == 49));
    }
}

#[test]
fn a_claim_says_waiting_until_it_is_decided() {
    let mut rig = Rig::new(limit(1));
    rig.admit(0, 0);
    let ticket = rig.queue(0, 0);
    assert_eq!(rig.claim(10, ticket), Claim::Waiting(at(50)));
    assert_eq!(rig.claim(49, ticket), Claim::Waiting(at(50)));
    assert_eq!(rig.claim(50, ticket), Claim::Expired);
    assert_eq!((rig.bulkhead.waiting(), rig.bulkhead.next_deadline()), (0, None));
    assert_eq!(rig.woken(), [], "it knows");
}

#[test]
fn a_grant_waits_for_its_claim_for_as_long_as_it_takes() {
    let mut rig = Rig::new(limit(1));
    rig.admit(0, 0);
    let ticket = rig.queue(0, 0);
    rig.release(1, 0);
    rig.queue(3_600_000, 0);
    assert_eq!(rig.claim(3_600_000, ticket), Claim::Admitted);
    assert_eq!(rig.claim(3_600_000, ticket), Claim::Expired, "used up");
}

#[test]
fn a_cancelled_grant_passes_its_slot_on() {
    let mut rig = Rig::new(BulkheadOptions { queue: 2, ..limit(1) });
    rig.admit(0, 0);
    let (first, second) = (rig.queue(0, 0), rig.queue(0, 1));
    rig.release(1, 0);
    rig.cancel(2, first);
    assert_eq!(rig.woken(), [second], "the cancelled one is not woken");
    assert_eq!(rig.claim(2, second), Claim::Admitted);
    rig.release(3, 1);
    assert_eq!(rig.bulkhead.in_flight(), 0);
}

#[test]
fn cancelling_what_is_used_up_changes_nothing() {
    let mut rig = Rig::new(limit(1));
    rig.admit(0, 0);
    let ticket = rig.queue(0, 0);
    rig.release(1, 0);
    assert_eq!(rig.claim(1, ticket), Claim::Admitted);
    rig.cancel(1, ticket);
    assert_eq!(rig.bulkhead.in_flight(), 1);
    let stale = ticket;
    let fresh = rig.queue(2, 0);
    assert!(fresh > stale);
    rig.cancel(2, stale);
    assert_eq!(rig.bulkhead.waiting(), 1, "its place has another owner now");
}

#[test]
fn a_release_too_many_frees_nobodys_slot() {
    let mut rig = Rig::new(limit(2));
    rig.release(0, 0);
    rig.release(0, 7);
    assert_eq!(rig.bulkhead.in_flight(), 0);
    rig.admit(0, 0);
    rig.admit(0, 0);
    let ticket = rig.queue(0, 0);
    for _ in 0..3 {
        rig.release(1, 0);
    }
    assert_eq!(rig.bulkhead.in_flight(), 1, "the granted one");
    assert_eq!(rig.claim(1, ticket), Claim::Admitted);
    rig.release(2, 0);
    rig.release(2, 0);
    assert_eq!(rig.bulkhead.in_flight(), 0);
}

#[test]
fn a_stream_frees_its_slot_until_the_streams_are_full() {
    let mut rig = Rig::new(BulkheadOptions { max_streams: 1, ..limit(1) });
    assert!(!rig.bulkhead.to_stream(at(0), &rig.params, 0), "no call");
    rig.admit(0, 0);
    let waiter = rig.queue(0, 0);
    assert!(rig.bulkhead.to_stream(at(1), &rig.params, 0));
    assert_eq!(rig.woken(), [waiter]);
    assert_eq!(rig.claim(1, waiter), Claim::Admitted);
    assert!(!rig.bulkhead.to_stream(at(2), &rig.params, 0), "streams are full");
    assert_eq!((rig.bulkhead.in_flight(), rig.bulkhead.streams()), (1, 1));
    rig.bulkhead.release_stream();
    assert!(rig.bulkhead.to_stream(at(3), &rig.params, 0));
    assert_eq!((rig.bulkhead.in_flight(), rig.bulkhead.streams()), (0, 1));
    rig.bulkhead.release_stream();
    rig.bulkhead.release_stream();
    assert_eq!(rig.bulkhead.streams(), 0);
}

#[test]
fn a_higher_limit_admits_the_waiters_and_a_lower_one_takes_nothing_away() {
    let mut rig = Rig::new(lanes(4, 1));
    rig.admit(0, 0);
    let (first, second) = (rig.queue(0, 0), rig.queue(0, 0));
    rig.reload(lanes(4, 2));
    rig.timeout(1);
    assert_eq!(rig.woken(), [first]);
    rig.reload(limit(4));
    rig.timeout(2);
    assert_eq!(rig.woken(), [second]);
    for ticket in [first, second] {
        assert_eq!(rig.claim(2, ticket), Claim::Admitted);
    }
    rig.reload(limit(1));
    let waiter = rig.queue(3, 0);
    assert_eq!(rig.bulkhead.in_flight(), 3);
    rig.release(4, 0);
    rig.release(4, 0);
    assert_eq!(rig.woken(), [], "still one in flight");
    rig.release(5, 0);
    assert_eq!(rig.woken(), [waiter]);
}

#[test]
fn an_edge_that_never_drains_is_rejected_instead_of_growing_the_queue() {
    let mut rig = Rig::new(limit(2));
    rig.admit(0, 0);
    rig.admit(0, 0);
    for ms in [0, 0, 50, 50] {
        rig.queue(ms, 0);
    }
    assert_eq!(rig.acquire(100, 0), Admission::Rejected);
    assert_eq!(rig.woken().len(), 4);
    rig.queue(100, 0);
}

#[test]
fn waits_that_end_together_make_room_for_newcomers_at_once() {
    let mut rig = Rig::new(limit(2));
    rig.admit(0, 0);
    rig.admit(0, 0);
    let old = vec![rig.queue(0, 0), rig.queue(0, 0)];
    rig.queue(50, 0);
    assert_eq!(rig.woken(), old);
}

#[test]
fn an_earlier_now_is_taken_for_the_latest() {
    let mut rig = Rig::new(limit(1));
    rig.admit(1_000, 0);
    match rig.acquire(0, 0) {
        Admission::Queued(ticket, until) => {
            assert_eq!(until, at(1_050));
            assert_eq!(rig.claim(0, ticket), Claim::Waiting(at(1_050)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.bulkhead.oldest_waiting(), Some(at(1_000)));
    rig.timeout(2_000);
    assert_eq!(rig.woken().len(), 1);
}

#[test]
fn spurious_timeouts_change_nothing() {
    let mut rig = Rig::new(limit(1));
    rig.timeout(0);
    rig.admit(0, 0);
    rig.queue(0, 0);
    rig.timeout(1);
    rig.timeout(1);
    assert_eq!((rig.bulkhead.in_flight(), rig.bulkhead.waiting()), (1, 1));
    assert_eq!(rig.woken(), []);
}

#[test]
fn a_warm_bulkhead_keeps_its_memory_and_makes_no_more() {
    let mut rig = Rig::new(limit(4));
    let mut sizes = Vec::new();
    for round in 0..1_000 {
        (0..4).for_each(|_| rig.admit(round, 0));
        let tickets: Vec<_> = (0..4).map(|_| rig.queue(round, 0)).collect();
        (0..4).for_each(|_| rig.release(round, 0));
        assert_eq!(rig.woken(), tickets);
        for ticket in tickets {
            assert_eq!(rig.claim(round, ticket), Claim::Admitted);
            rig.release(round, 0);
        }
        sizes.push(rig.bulkhead.places());
    }
    assert_eq!(sizes, vec![4; 1_000]);
}

#[test]
fn construction_refuses_what_can_never_work_and_names_it() {
    let check = |options: BulkheadOptions| {
        BulkheadParams::new(options).map_err(|error| error.field().to_owned())
    };
    let refused = |field: &str| Err(field.to_owned());
    assert_eq!(check(limit(0)), refused("limit"));
    assert_eq!(check(limit(1_000_001)), refused("limit"));
    assert_eq!(check(lanes(5, 0)), refused("lane_limit"));
    assert_eq!(check(lanes(5, 6)), refused("lane_limit"));
    assert_eq!(check(BulkheadOptions { queue: 65_537, ..limit(5) }), refused("queue"));
    for options in
        [limit(1), limit(1_000_000), lanes(5, 1), lanes(5, 5), BulkheadOptions::gateway()]
    {
        assert!(check(options).is_ok());
    }
    assert_eq!(check(BulkheadOptions::default()), Ok(BulkheadParams::default()));
}

impl Bulkhead {
    /// Places ever made for waiters.
    fn places(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.waiters.slots.places.len())
    }
}
