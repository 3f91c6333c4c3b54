//! Runs a model on virtual time: takes the next event, sets the clock to it, hands it over.
//!
//! Events are ordered by (time, entity, the entity's own counter). No global sequence is in the
//! key, so what an entity does is ordered the same way whoever else is there, and two runs of one
//! seed agree event for event; a [digest](Engine::digest) of all that happened shows it.
//!
//! An event is never taken back. Whoever changes its mind notes what it is waiting for, and
//! ignores an event that is not that.
//!
//! An event takes 16 bytes, its time 48 bits of nanoseconds: virtual time ends after 78 hours, and
//! what is scheduled beyond never happens.

mod queue;

use seawall_policy::Timestamp;

use queue::{Queue, TIME_BITS};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// To whom.
    pub entity: u32,
    /// What, in the words of the model.
    pub what: u32,
}

/// Whoever things happen to: a name, and how many events it has scheduled (modulo 2¹⁶; events
/// further apart never meet at one instant).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entity {
    id: u32,
    scheduled: u16,
}

impl Entity {
    /// One that has scheduled nothing yet.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self { id, scheduled: 0 }
    }

    /// Its name.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }
}

/// What is simulated.
pub trait Model {
    /// An event has come. What follows from it is scheduled with the engine.
    fn on(&mut self, engine: &mut Engine, event: Event);

    /// An event for this entity comes soon: read its state, so that it is in the cache by then.
    /// Asked for a few hundred entities at once, whose states then come from memory together
    /// and not one after the other. The value has no meaning. Default: nothing; worth it where
    /// the states do not fit into the cache.
    fn touch(&self, entity: u32) -> u64 {
        let _ = entity;
        0
    }
}

/// The clock and the events to come.
#[derive(Debug, Default)]
pub struct Engine {
    now: Timestamp,
    queue: Queue,
    handled: u64,
    digest: u64,
    touched: u64,
}

impl Engine {
    /// Virtual time zero, and nothing to come.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of the event being handled.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Events handled.
    #[must_use]
    pub const fn handled(&self) -> u64 {
        self.handled
    }

    /// Events to come.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.queue.len()
    }

    /// A digest of all events handled, in their order. Equal for equal runs.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Makes something happen to an entity at `at`, or now if that has passed. After the end of
    /// time (78 hours) it never does.
    pub fn schedule(&mut self, at: Timestamp, entity: &mut Entity, what: u32) {
        let time = at.max(self.now).as_nanos();
        if time >> TIME_BITS != 0 {
            return;
        }
        let key = u128::from(time) << (u128::BITS - TIME_BITS)
            | u128::from(entity.id) << 48
            | u128::from(entity.scheduled) << 32
            | u128::from(what);
        entity.scheduled = entity.scheduled.wrapping_add(1);
        self.queue.push(key);
    }

    /// Runs until nothing is left that happens at or before `until`, and sets the clock there.
    pub fn run_until(&mut self, until: Timestamp, model: &mut impl Model) {
        while let Some(event) = self.next(until) {
            if let Some(soon) = self.queue.take_sorted() {
                let touch = |key: &u128| model.touch(event_of(*key).entity);
                self.touched ^= soon.iter().map(touch).fold(0, |all, one| all ^ one);
            }
            model.on(self, event);
        }
        self.now = self.now.max(until);
    }

    fn next(&mut self, until: Timestamp) -> Option<Event> {
        let key = self.queue.pop_until(until.as_nanos())?;
        let event = event_of(key);
        self.now = event.at;
        self.handled += 1;
        let who = u64::from(event.entity) << 32 | u64::from(event.what);
        let words = event.at.as_nanos().rotate_left(16) ^ who;
        self.digest = (self.digest.rotate_left(5) ^ words).wrapping_mul(DIGEST);
        Some(event)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of a key, each cut to its width")]
const fn event_of(key: u128) -> Event {
    Event {
        at: Timestamp::from_nanos((key >> (u128::BITS - TIME_BITS)) as u64),
        entity: (key >> 48) as u32,
        what: key as u32,
    }
}

/// An odd multiplier. Source: splitmix64.
const DIGEST: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what happens; event 9 schedules two at once, and one in the past.
    #[derive(Default)]
    struct Diary(Vec<(u64, u32, u32)>);

    impl Model for Diary {
        fn on(&mut self, engine: &mut Engine, event: Event) {
            assert_eq!(engine.now(), event.at);
            self.0.push((event.at.as_nanos(), event.entity, event.what));
            if event.what == 9 {
                let mut entity = Entity::new(event.entity);
                engine.schedule(event.at, &mut entity, 2);
                engine.schedule(event.at, &mut entity, 1);
                engine.schedule(Timestamp::ZERO, &mut entity, 3);
            }
        }
    }

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(nanos)
    }

    #[test]
    fn events_come_by_time_then_entity_then_the_order_the_entity_scheduled_them_in() {
        let mut engine = Engine::new();
        let mut entities = [Entity::new(0), Entity::new(1), Entity::new(u32::MAX)];
        for (time, entity, what) in [(5, 2, 4), (5, 1, 7), (5, 1, 6), (3, 2, 9), (5, 0, 8)] {
            engine.schedule(at(time), &mut entities[entity], what);
        }
        let mut diary = Diary::default();
        engine.run_until(at(4), &mut diary);
        let last = u32::MAX;
        assert_eq!(diary.0, [(3, last, 9), (3, last, 2), (3, last, 1), (3, last, 3)]);
        assert_eq!((engine.now(), engine.pending()), (at(4), 4));
        diary.0.clear();
        engine.run_until(at(5), &mut diary);
        assert_eq!(diary.0, [(5, 0, 8), (5, 1, 7), (5, 1, 6), (5, last, 4)]);
        assert_eq!((engine.handled(), engine.pending()), (8, 0));
    }

    #[test]
    fn an_entity_more_changes_nobody_elses_order() {
        let play = |others: u32| {
            let mut engine = Engine::new();
            for id in [3, 1, 2].into_iter().chain(10..10 + others) {
                let mut entity = Entity::new(id);
                (0..3).for_each(|what| engine.schedule(at(7), &mut entity, what));
            }
            let mut diary = Diary::default();
            engine.run_until(at(7), &mut diary);
            diary.0.retain(|(_, entity, _)| *entity < 10);
            diary.0
        };
        assert_eq!(play(0), play(5));
    }

    #[test]
    fn the_digest_tells_runs_apart() {
        let digest = |times: [u64; 2], what| {
            let mut engine = Engine::new();
            let mut entity = Entity::new(1);
            times.iter().for_each(|time| engine.schedule(at(*time), &mut entity, what));
            engine.run_until(at(100), &mut Diary::default());
            engine.digest()
        };
        assert_eq!(digest([1, 2], 0), digest([1, 2], 0));
        assert_ne!(digest([1, 2], 0), digest([1, 3], 0));
        assert_ne!(digest([1, 2], 0), digest([1, 2], 1));
    }

    #[test]
    fn what_lies_beyond_the_end_of_time_never_happens() {
        let mut engine = Engine::new();
        engine.schedule(at(1 << TIME_BITS), &mut Entity::new(0), 0);
        engine.schedule(Timestamp::MAX, &mut Entity::new(0), 0);
        assert_eq!(engine.pending(), 0);
        engine.schedule(at((1 << TIME_BITS) - 1), &mut Entity::new(0), 5);
        let mut diary = Diary::default();
        engine.run_until(Timestamp::MAX, &mut diary);
        assert_eq!(diary.0, [((1 << TIME_BITS) - 1, 0, 5)]);
    }
}
