//! A server that is suddenly asked for more than it can do, and many clients each of which sends
//! a little of that: how much is still answered in time, and after how long.
//!
//! Its queue is any that servers have. With `credits` a client sends only what the server has
//! allowed, by a rule of the [`baselines`](crate::baselines), and drops what has waited for a
//! credit for as long as a round trip.

mod run;

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::Timestamp;

use super::{Kind, Numbers, Setup};
use crate::draw::Draws;
use crate::engine::Engine;
use crate::rate::Rate;
use crate::scenario::{Read, Section, Unit, queue, span};
use crate::server::Queue;
use crate::span::Span;

use run::Run;

pub(super) const KIND: Kind = Kind {
    section: "overload",
    beside: &[],
    numbers: &[
        ("before", Unit::Share),
        ("done", Unit::Share),
        ("recovery", Unit::Time),
        ("p99", Unit::Time),
    ],
    read,
};

#[derive(Clone, Debug)]
struct Overload {
    clients: u32,
    /// There and back.
    trip: Duration,
    /// How long an answer is of use.
    within: Duration,
    workers: u32,
    service: Span,
    queue: Queue,
    /// What dropping a job costs a worker, as a share of the job.
    drop_cost: f64,
    /// The wait that credits aim at.
    credits: Option<Duration>,
    rate: Rate,
    /// When it becomes too much.
    from: Timestamp,
    ends: Timestamp,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = [
        "clients",
        "round_trip",
        "within",
        "workers",
        "service",
        "queue",
        "drop_cost",
        "credits",
        "rate",
        "then",
        "from",
        "ends",
    ];
    let section = whole.need("overload", &keys)?;
    let time = |key| {
        let range = Duration::from_millis(1)..=Duration::from_secs(3_600);
        section.needed(key, section.duration(key, range)?)
    };
    let second = |key| -> Read<Timestamp> {
        let time = time(key)?;
        let is_whole = time.subsec_nanos() == 0;
        let at = is_whole.then_some(Timestamp::ZERO.after(time));
        at.ok_or_else(|| section.refused(key, "whole seconds"))
    };
    let (from, ends) = (second("from")?, second("ends")?);
    if ends < from.after(LAST) {
        return Err(section.refused("ends", "20s after from, or later"));
    }
    let per_second = |key| section.needed(key, section.per_second(key)?);
    let (rate, then) = (per_second("rate")?, per_second("then")?);
    let rate = Rate::constant(rate).and_then(|rate| rate.then(from, then));
    let service = section.node("service").ok_or_else(|| section.missing("service"))?;
    let workers = section.needed("workers", section.count("workers", 1..=100_000)?)?;
    Ok(Arc::new(Overload {
        clients: section.needed("clients", section.count("clients", 1..=1_000_000)?)?,
        trip: time("round_trip")?,
        within: time("within")?,
        workers,
        service: span(service, &section.path("service"))?,
        queue: queue(&section, workers)?,
        drop_cost: section.number("drop_cost", 0.0..=10.0)?.unwrap_or(0.0),
        credits: section.node("credits").map(|_| time("credits")).transpose()?,
        rate: rate.map_err(|error| section.by(&error, "from"))?,
        from,
        ends,
    }))
}

impl Setup for Overload {
    fn run(&self, seed: u64) -> Numbers {
        let mut run = Run::new(self, Draws::new(seed));
        let mut engine = Engine::new();
        run.begin(&mut engine);
        engine.run_until(self.ends, &mut run);
        let values = self.numbers(&run);
        Numbers { values, events: engine.handled(), digest: engine.digest() }
    }
}

impl Overload {
    /// Jobs that it can do in a second.
    fn capacity(&self) -> f64 {
        f64::from(self.workers) / self.service.mean()
    }

    fn numbers(&self, run: &Run<'_>) -> Vec<f64> {
        let second = |at: Timestamp| {
            usize::try_from(at.since(Timestamp::ZERO).as_secs()).unwrap_or(usize::MAX)
        };
        let (from, ends) = (second(self.from), second(self.ends));
        let good = |window: &[(u32, u32)]| f64::from(window.iter().map(|it| it.1).sum::<u32>());
        let calm = &run.seconds[from / 2..from];
        let asked: u32 = calm.iter().map(|(asked, _)| asked).sum();
        let last = &run.seconds[ends - second(Timestamp::ZERO.after(LAST))..ends];
        let done = good(last) / (self.capacity() * last.len() as f64);
        let mut windows = run.seconds[from..ends].windows(LOOK).enumerate();
        let is_low = |window: &[(u32, u32)]| good(window) < 0.9 * self.capacity() * LOOK as f64;
        let count = windows.len();
        let recovery = windows.rfind(|(_, window)| is_low(window));
        let recovery = match recovery {
            None => 0.0,
            Some((low, _)) if low + 1 == count => f64::INFINITY,
            Some((low, _)) => (low + 1) as f64,
        };
        let p99 = run.times.quantile(0.99).as_secs_f64();
        vec![good(calm) / f64::from(asked.max(1)), done, recovery, p99]
    }
}

/// The end of a run, of which the share done and the times are. Source: own choice.
const LAST: Duration = Duration::from_secs(20);
/// Seconds that are looked at together. Source: own choice.
const LOOK: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Discipline, Drop};

    /// Ten workers that do a thousand calls a second, and as many clients.
    fn numbers(then: f64, queue: Queue, drop_cost: f64, credits: Option<Duration>) -> Vec<f64> {
        let millis = Duration::from_millis;
        let from = Timestamp::from_millis(10_000);
        let overload = Overload {
            clients: 1_000,
            trip: millis(10),
            within: millis(200),
            workers: 10,
            service: Span::exponential(millis(10)),
            queue,
            drop_cost,
            credits,
            rate: Rate::constant(500.0).unwrap().then(from, then).unwrap(),
            from,
            ends: Timestamp::from_millis(40_000),
        };
        Setup::run(&overload, 1).values
    }

    #[test]
    fn with_time_for_all_all_are_in_time() {
        let [before, done, _, p99] = numbers(500.0, Queue::fifo(None), 0.0, None)[..] else {
            panic!("four numbers")
        };
        assert!(before > 0.999 && (done - 0.5).abs() < 0.02, "{before} {done}");
        // A hundredth of exponential times takes longer than 46 ms, and there is the way.
        assert!((p99 - 0.056).abs() < 0.004, "{p99}");
    }

    #[test]
    fn too_much_is_late_for_all_and_what_drops_are_free_of_is_done() {
        let expired = |cost| {
            let drop = Drop::Expired(Duration::ZERO);
            numbers(1_400.0, Queue::Own(Discipline { drop, ..Discipline::FIFO }), cost, None)
        };
        let fifo = numbers(1_400.0, Queue::fifo(None), 0.0, None);
        assert!(fifo[1] < 0.05 && fifo[2].is_infinite(), "{fifo:?}");
        let (free, dear) = (expired(0.0), expired(1.0));
        assert!(free[1] > 0.1 && dear[1] < free[1] / 2.0, "{free:?} {dear:?}");
        let older = Drop::Older(Duration::from_millis(160));
        let queue = Queue::Own(Discipline { drop: older, ..Discipline::FIFO });
        let credits = numbers(1_400.0, queue, 0.0, Some(Duration::from_millis(80)));
        assert!(credits[1] > 0.85, "{credits:?}");
    }
}
