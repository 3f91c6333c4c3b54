//! Events a second of the bare engine: every entity waits, is handled, and waits again.
//!
//! `cargo bench -p seawall-lab --bench engine [ENTITIES …]`; without numbers 10⁴ to 10⁷. Rates are
//! by this thread's own time on the processor (Linux), so that a busy machine does not count.
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]
#![expect(clippy::expect_used, reason = "a benchmark may fail")]
#![expect(clippy::cast_possible_truncation, reason = "nanoseconds of a few seconds")]

use std::time::Duration;

use seawall_lab::{Draws, Engine, Entity, Event, Model, Purpose};
use seawall_policy::Timestamp;

/// State as large as a client's may be: one line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Client {
    entity: Entity,
    waits: u32,
    sums: [u64; 6],
}

struct Hold {
    clients: Vec<Client>,
    draws: Draws,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// One second on average.
    Exponential,
    /// One millisecond or one second.
    TwoPoints,
}

impl Hold {
    fn new(entities: u32, shape: Shape) -> Self {
        let client = |id| Client { entity: Entity::new(id), waits: 0, sums: [0; 6] };
        Self { clients: (0..entities).map(client).collect(), draws: Draws::new(1), shape }
    }
}

impl Model for Hold {
    fn on(&mut self, engine: &mut Engine, event: Event) {
        let client = &mut self.clients[event.entity as usize];
        let mut draw = self.draws.stream(event.entity, Purpose::Arrival).at(client.waits.into());
        let seconds = match self.shape {
            Shape::Exponential => draw.exponential(),
            Shape::TwoPoints if draw.happens(0.5) => 0.001,
            Shape::TwoPoints => 1.0,
        };
        client.waits += 1;
        client.sums[0] += event.at.as_nanos();
        let at = event.at.after(Duration::from_nanos((seconds * 1e9) as u64));
        engine.schedule(at, &mut client.entity, event.what);
    }

    fn touch(&self, entity: u32) -> u64 {
        self.clients[entity as usize].sums[0]
    }
}

/// How long this thread has run.
fn on_processor() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = stat.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.expect("the time on the processor comes first"))
}

fn main() {
    let asked: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![10_000, 100_000, 1_000_000, 10_000_000] } else { asked };
    println!(
        "{:>12} {:>12} {:>10} {:>12} {:>18}",
        "entities", "delays", "M ev/s", "events", "digest"
    );
    for shape in [Shape::Exponential, Shape::TwoPoints] {
        for entities in &sizes {
            let mut hold = Hold::new(*entities, shape);
            let mut engine = Engine::new();
            let mut draws = Draws::new(2).stream(0, Purpose::Arrival);
            for client in &mut hold.clients {
                let at = Timestamp::from_nanos((draws.unit() * 1e9) as u64);
                engine.schedule(at, &mut client.entity, 0);
            }
            // To the steady state, then at least twenty million events.
            let mut until = Timestamp::from_millis(1_500);
            engine.run_until(until, &mut hold);
            let (before, begun) = (engine.handled(), on_processor());
            while engine.handled() - before < 20_000_000 {
                until = until.after(Duration::from_millis(500));
                engine.run_until(until, &mut hold);
            }
            let events = engine.handled() - before;
            let rate = events as f64 / (on_processor() - begun).as_secs_f64() / 1e6;
            let (shape, digest) = (format!("{shape:?}"), engine.digest());
            println!("{entities:>12} {shape:>12} {rate:>10.2} {events:>12} {digest:>18x}");
        }
    }
}
