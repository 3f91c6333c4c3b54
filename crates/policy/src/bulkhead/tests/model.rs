//! The bulkhead again, slowly: plain lists that are searched. Compared with the real one on random
//! scripts that also change the limits.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Waiting,
    Granted,
    Expired,
}

/// A waiter under the number it was queued as.
#[derive(Clone, Copy)]
struct Waiter {
    number: usize,
    lane: usize,
    until: Timestamp,
    fate: Fate,
}

struct Naive {
    options: BulkheadOptions,
    /// The lanes of admitted calls, one entry each.
    calls: Vec<usize>,
    /// In the order of arrival.
    waiters: Vec<Waiter>,
    woken: VecDeque<usize>,
    streams: u32,
    numbers: usize,
}

impl Naive {
    fn in_flight_of(&self, lane: usize) -> usize {
        let granted = |waiter: &&Waiter| waiter.lane == lane && waiter.fate == Fate::Granted;
        self.calls.iter().filter(|&&call| call == lane).count()
            + self.waiters.iter().filter(granted).count()
    }

    fn in_flight(&self) -> usize {
        (0..LANES).map(|lane| self.in_flight_of(lane)).sum()
    }

    fn count(&self, fate: Fate) -> usize {
        self.waiters.iter().filter(|waiter| waiter.fate == fate).count()
    }

    fn has_room(&self, lane: usize) -> bool {
        let lane_limit = self.options.lane_limit.unwrap_or(self.options.limit) as usize;
        self.in_flight() < self.options.limit as usize && self.in_flight_of(lane) < lane_limit
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let waiting = self.waiters.iter().filter(|waiter| waiter.fate == Fate::Waiting);
        waiting.map(|waiter| waiter.until).min()
    }

    fn tick(&mut self, now: Timestamp) {
        let mut due: Vec<_> = (self.waiters.iter())
            .filter(|waiter| waiter.fate == Fate::Waiting && waiter.until <= now)
            .map(|waiter| (waiter.until, waiter.number))
            .collect();
        due.sort_unstable();
        for (_, number) in due {
            self.decide(number, Fate::Expired);
        }
        while let Some(next) = (self.waiters.iter())
            .find(|waiter| waiter.fate == Fate::Waiting && self.has_room(waiter.lane))
        {
            self.decide(next.number, Fate::Granted);
        }
    }

    fn decide(&mut self, number: usize, fate: Fate) {
        self.woken.push_back(number);
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.number == number) {
            waiter.fate = fate;
        }
    }

    fn acquire(&mut self, now: Timestamp, lane: usize, until: Timestamp) -> Admission<usize> {
        self.tick(now);
        if self.has_room(lane) {
            self.calls.push(lane);
            return Admission::Admitted(0);
        }
        let until = until.min(now.after(self.options.wait));
        let (waiting, expired) = (self.count(Fate::Waiting), self.count(Fate::Expired));
        let queue = self.options.queue as usize;
        if until <= now || waiting >= queue || waiting + expired >= 2 * queue {
            return Admission::Rejected;
        }
        self.numbers += 1;
        let number = self.numbers;
        self.waiters.push(Waiter { number, lane, until, fate: Fate::Waiting });
        Admission::Queued(Ticket(number as u64), until)
    }

    fn forget(&mut self, number: usize) -> Option<Waiter> {
        self.woken.retain(|&woken| woken != number);
        let index = self.waiters.iter().position(|waiter| waiter.number == number)?;
        Some(self.waiters.remove(index))
    }

    fn claim(&mut self, now: Timestamp, number: usize) -> Claim {
        let Some(&waiter) = self.waiters.iter().find(|waiter| waiter.number == number) else {
            return Claim::Expired;
        };
        if waiter.fate == Fate::Waiting && now < waiter.until {
            return Claim::Waiting(waiter.until);
        }
        self.forget(number);
        if waiter.fate != Fate::Granted {
            return Claim::Expired;
        }
        self.calls.push(waiter.lane);
        Claim::Admitted
    }

    /// Ends one admitted call of a lane; whether there was one.
    fn end(&mut self, lane: usize) -> bool {
        let found = self.calls.iter().position(|&call| call == lane);
        found.map(|index| self.calls.remove(index)).is_some()
    }

    fn pop_woken(&mut self) -> Option<usize> {
        let number = self.woken.pop_front()?;
        self.waiters.retain(|waiter| waiter.number != number || waiter.fate != Fate::Expired);
        Some(number)
    }
}

const LANES: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Acquire(usize, u64),
    Claim(usize),
    Cancel(usize),
    Release(usize),
    ToStream(usize),
    ReleaseStream,
    Timeout,
    Drain,
    Reload(u32, Option<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20_u64).prop_map(Step::Wait),
        12 => (0..LANES, 0..80_u64).prop_map(|(lane, ms)| Step::Acquire(lane, ms)),
        4 => any::<usize>().prop_map(Step::Claim),
        2 => any::<usize>().prop_map(Step::Cancel),
        5 => (0..LANES).prop_map(Step::Release),
        1 => (0..LANES).prop_map(Step::ToStream),
        1 => Just(Step::ReleaseStream),
        1 => Just(Step::Timeout),
        3 => Just(Step::Drain),
        1 => (1..5_u32, prop::option::of(1..4_u32)).prop_map(|(limit, lane_limit)| {
            Step::Reload(limit, lane_limit.map(|lane_limit| lane_limit.min(limit)))
        }),
    ]
}

fn options(limit: u32, lane_limit: Option<u32>) -> BulkheadOptions {
    BulkheadOptions { lane_limit, queue: 4, max_streams: 2, ..BulkheadOptions::with_limit(limit) }
}

/// The real one and the model, with the tickets that are out in both.
struct Both {
    rig: Rig,
    naive: Naive,
    tickets: Vec<(Ticket, usize)>,
    ms: u64,
}

impl Both {
    fn new() -> Self {
        let naive = Naive {
            options: options(3, Some(2)),
            calls: Vec::new(),
            waiters: Vec::new(),
            woken: VecDeque::new(),
            streams: 0,
            numbers: 0,
        };
        let rig = Rig::new(options(3, Some(2)));
        Self { rig, naive, tickets: Vec::new(), ms: 0 }
    }

    fn apply(&mut self, step: &Step) {
        let now = at(self.ms);
        match *step {
            Step::Wait(more) => self.ms += more,
            Step::Acquire(lane, ms) => self.acquire(lane, at(self.ms + ms)),
            Step::Claim(index) => {
                let Some(&(ticket, number)) = pick(&self.tickets, index) else { return };
                assert_eq!(self.rig.claim(self.ms, ticket), self.naive.claim(now, number));
            }
            Step::Cancel(index) => {
                let Some(&(ticket, number)) = pick(&self.tickets, index) else { return };
                self.rig.cancel(self.ms, ticket);
                if self.naive.forget(number).is_some() {
                    self.naive.tick(now);
                }
            }
            Step::Release(lane) => {
                self.rig.release(self.ms, lane);
                self.naive.end(lane);
                self.naive.tick(now);
            }
            Step::ToStream(lane) => {
                let moved = self.naive.streams < 2 && self.naive.end(lane);
                assert_eq!(self.rig.bulkhead.to_stream(now, &self.rig.params, lane), moved);
                if moved {
                    self.naive.streams += 1;
                    self.naive.tick(now);
                }
            }
            Step::ReleaseStream => {
                self.rig.bulkhead.release_stream();
                self.naive.streams = self.naive.streams.saturating_sub(1);
            }
            Step::Timeout => {
                self.rig.timeout(self.ms);
                self.naive.tick(now);
            }
            Step::Drain => self.drain(),
            Step::Reload(limit, lane_limit) => {
                self.rig.reload(options(limit, lane_limit));
                self.naive.options = options(limit, lane_limit);
            }
        }
    }

    fn acquire(&mut self, lane: usize, until: Timestamp) {
        let now = at(self.ms);
        let waiting_before = self.naive.count(Fate::Waiting);
        let real = self.rig.bulkhead.try_acquire(now, &self.rig.params, lane, until);
        match (real, self.naive.acquire(now, lane, until)) {
            (Admission::Admitted(()), Admission::Admitted(_)) => {
                assert!(self.naive.in_flight() <= self.naive.options.limit as usize);
            }
            (Admission::Queued(ticket, end), Admission::Queued(number, expected)) => {
                assert_eq!(end, expected);
                assert!(end <= until && end <= now.after(Duration::from_millis(50)));
                assert!(self.tickets.iter().all(|&(earlier, _)| earlier < ticket));
                self.tickets.push((ticket, usize::try_from(number.0).unwrap()));
            }
            (Admission::Rejected, Admission::Rejected) => {}
            (real, model) => panic!("{real:?} but {model:?}, {waiting_before} waiting"),
        }
    }

    fn drain(&mut self) {
        while let Some(number) = self.naive.pop_woken() {
            let ticket = self.rig.bulkhead.pop_woken();
            assert_eq!(ticket.map(|ticket| self.number_of(ticket)), Some(number));
        }
        assert_eq!(self.rig.bulkhead.pop_woken(), None);
    }

    fn number_of(&self, ticket: Ticket) -> usize {
        self.tickets.iter().find(|known| known.0 == ticket).unwrap().1
    }

    /// Compares all that can be seen.
    fn compare(&self) {
        let (real, naive) = (&self.rig.bulkhead, &self.naive);
        assert_eq!(real.in_flight() as usize, naive.in_flight());
        for lane in 0..LANES {
            assert_eq!(real.in_flight_of(lane) as usize, naive.in_flight_of(lane), "{lane}");
        }
        assert_eq!(real.waiting() as usize, naive.count(Fate::Waiting));
        assert_eq!(real.streams(), naive.streams);
        assert_eq!(real.next_deadline(), naive.next_deadline());
        assert!(real.places() <= 4 * 2 + 4, "twice the queue and the highest limit");
    }
}

fn pick<T>(items: &[T], index: usize) -> Option<&T> {
    items.get(index.checked_rem(items.len())?)
}

proptest! {
    #[test]
    fn agrees_with_a_model_made_of_lists(script in prop::collection::vec(step(), 0..200)) {
        let mut both = Both::new();
        for step in &script {
            both.apply(step);
            both.compare();
        }
    }

    #[test]
    fn no_slot_is_lost_after_any_script(script in prop::collection::vec(step(), 0..100)) {
        let mut both = Both::new();
        for step in &script {
            both.apply(step);
        }
        for (ticket, _) in core::mem::take(&mut both.tickets) {
            both.rig.cancel(both.ms, ticket);
        }
        for lane in 0..LANES {
            while both.rig.bulkhead.in_flight_of(lane) > 0 {
                let before = both.rig.bulkhead.in_flight_of(lane);
                both.rig.release(both.ms, lane);
                prop_assert!(both.rig.bulkhead.in_flight_of(lane) < before, "a slot is lost");
            }
        }
        prop_assert_eq!(both.rig.bulkhead.in_flight(), 0);
        prop_assert_eq!(both.rig.bulkhead.waiting(), 0);
        prop_assert_eq!(both.rig.woken(), []);
    }
}
