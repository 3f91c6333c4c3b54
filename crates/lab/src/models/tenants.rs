//! Tenants that share one server: what each group of them gets, and how long it waits.
//!
//! Callers come at random whatever happens to them (an open loop), tell how long they wait, and
//! leave then. The server may stand still for a while at regular times: what was begun ends so
//! much later, and nothing is begun. The first group is looked at; the others are beside it.

mod run;

use std::sync::Arc;
use std::time::Duration;

use seawall_policy::{Priority, Timestamp};

use super::{Kind, Numbers, Setup};
use crate::draw::Draws;
use crate::engine::Engine;
use crate::scenario::{Node, Read, Section, Unit, queue, span};
use crate::server::{Queue, TenantKind};
use crate::span::Span;

use run::Run;

pub(super) const KIND: Kind = Kind {
    section: "tenants",
    beside: &[],
    numbers: &[
        ("good", Unit::Share),
        ("success", Unit::Share),
        ("p50", Unit::Time),
        ("p99", Unit::Time),
        ("beside", Unit::Share),
        ("shed", Unit::Share),
        ("shed_beside", Unit::Share),
        ("reacts", Unit::Time),
    ],
    read,
};

#[derive(Clone, Debug)]
struct Tenants {
    workers: u32,
    service: Span,
    queue: Queue,
    groups: Vec<Group>,
    stall: Option<Stall>,
    warm_up: Timestamp,
    ends: Timestamp,
}

/// So many tenants that are alike.
#[derive(Clone, Copy, Debug)]
struct Group {
    tenants: u32,
    /// Jobs a second of each.
    rate: f64,
    /// How long each job is waited for, from its coming to its end.
    patience: Duration,
    kind: TenantKind,
}

/// The server stands still for `length`, each `every`, first after one of those.
#[derive(Clone, Copy, Debug)]
struct Stall {
    length: Duration,
    every: Duration,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = ["workers", "service", "queue", "group", "stall", "warm_up", "ends"];
    let section = whole.need("tenants", &keys)?;
    let service = section.node("service").ok_or_else(|| section.missing("service"))?;
    let workers = section.needed("workers", section.count("workers", 1..=100_000)?)?;
    let groups = section.list("group")?.into_iter();
    let groups: Vec<_> = groups.map(|(path, node)| group(node, &path)).collect::<Read<_>>()?;
    let tenants: u32 = groups.iter().map(|group| group.tenants).sum();
    if tenants == 0 || tenants > MOST_TENANTS {
        return Err(section.refused("group", "one group at least, and 100000 tenants at most"));
    }
    let mut queue = queue(&section, workers)?;
    if let Queue::Admission(how) = &mut queue {
        how.tenants = tenants;
        let kinds = groups.iter().map(|group| vec![group.kind; group.tenants as usize]);
        how.kinds = kinds.flatten().collect();
    }
    let at = |key| section.point(key);
    let (warm_up, ends) = (at("warm_up")?.unwrap_or(Timestamp::ZERO), at("ends")?);
    let ends = section.needed("ends", ends)?;
    if ends <= warm_up {
        return Err(section.refused("ends", "later than warm_up"));
    }
    Ok(Arc::new(Tenants {
        workers,
        service: span(service, &section.path("service"))?,
        queue,
        groups,
        stall: section
            .inner("stall", &["length", "every"])?
            .map(|read| stall(&read))
            .transpose()?,
        warm_up,
        ends,
    }))
}

fn group(node: &Node, path: &str) -> Read<Group> {
    let keys = ["tenants", "rate", "patience", "priority", "weight", "cost"];
    let read = Section::new(node, path, &keys)?;
    let priorities = [
        ("critical", Priority::Critical),
        ("default", Priority::Default),
        ("sheddable", Priority::Sheddable),
        ("background", Priority::Background),
    ];
    let standard = TenantKind::STANDARD;
    let rate = read.needed("rate", read.per_second("rate")?)?;
    if rate <= 0.0 {
        return Err(read.refused("rate", "a rate above 0/s"));
    }
    Ok(Group {
        tenants: read.count("tenants", 1..=MOST_TENANTS)?.unwrap_or(1),
        rate,
        patience: time(&read, "patience")?,
        kind: TenantKind {
            priority: read.choice("priority", &priorities)?.unwrap_or(standard.priority),
            weight: read.count("weight", 1..=100)?.unwrap_or(standard.weight),
            cost: read.count("cost", 1..=1_000)?.unwrap_or(standard.cost),
            ..standard
        },
    })
}

fn stall(read: &Section<'_>) -> Read<Stall> {
    let (length, every) = (time(read, "length")?, time(read, "every")?);
    if length >= every {
        return Err(read.refused("length", "less than every"));
    }
    Ok(Stall { length, every })
}

fn time(section: &Section<'_>, key: &str) -> Read<Duration> {
    let range = Duration::from_millis(1)..=Duration::from_secs(3_600);
    section.needed(key, section.duration(key, range)?)
}

impl Setup for Tenants {
    fn run(&self, seed: u64) -> Numbers {
        let mut run = Run::new(self, Draws::new(seed));
        let mut engine = Engine::new();
        run.begin(&mut engine);
        engine.run_until(self.ends, &mut run);
        run.close();
        Numbers { values: self.numbers(&run), events: engine.handled(), digest: engine.digest() }
    }
}

impl Tenants {
    fn numbers(&self, run: &Run<'_>) -> Vec<f64> {
        let measured = self.warm_up.until(self.ends).as_secs_f64();
        let capacity = f64::from(self.workers) / self.service.mean() * measured;
        let (first, beside) = (&run.first, &run.beside);
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        let time = |of: f64| match first.times.n() {
            0 => f64::INFINITY,
            _ => first.times.quantile(of).as_secs_f64(),
        };
        vec![
            (first.good + beside.good) as f64 / capacity,
            share(first.good, first.ended),
            time(0.5),
            time(0.99),
            share(beside.good, beside.ended),
            share(first.shed, first.ended),
            share(beside.shed, beside.ended),
            run.reacts().map_or(f64::INFINITY, |time| time.as_secs_f64()),
        ]
    }
}

/// Source: own choice (each has draws of its own).
const MOST_TENANTS: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use seawall_policy::AdmissionParams;

    use crate::server::Fair;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn group(tenants: u32, rate: f64) -> Group {
        Group { tenants, rate, patience: millis(1_000), kind: TenantKind::STANDARD }
    }

    /// Ten workers that do a thousand jobs a second.
    fn shared(groups: Vec<Group>, is_fair: bool) -> Tenants {
        let tenants = groups.iter().map(|group| group.tenants).sum();
        let params = AdmissionParams::default();
        let admission = Queue::Admission(Box::new(Fair { params, tenants, kinds: vec![] }));
        Tenants {
            workers: 10,
            service: Span::exponential(millis(10)),
            queue: if is_fair { admission } else { Queue::fifo(None) },
            groups,
            stall: None,
            warm_up: Timestamp::from_millis(2_000),
            ends: Timestamp::from_millis(12_000),
        }
    }

    #[test]
    fn with_time_for_all_all_are_answered_in_time() {
        let numbers = shared(vec![group(5, 60.0), group(1, 200.0)], true).run(1).values;
        assert!((numbers[0] - 0.5).abs() < 0.03, "{numbers:?}");
        assert_eq!((numbers[1], numbers[4], numbers[5], numbers[6]), (1.0, 1.0, 0.0, 0.0));
        // A hundredth of exponential times takes longer than 46 ms.
        assert!((numbers[3] - 0.046).abs() < 0.006, "{numbers:?}");
    }

    #[test]
    fn one_that_sends_too_much_harms_the_others_only_where_all_stand_in_one_line() {
        let groups = vec![group(5, 60.0), group(1, 2_000.0)];
        let fair = shared(groups.clone(), true).run(1).values;
        let line = shared(groups, false).run(1).values;
        assert!(fair[1] > 0.999 && fair[3] < 0.06 && fair[0] > 0.97, "{fair:?}");
        assert!(line[1] < 0.2, "{line:?}");
    }

    #[test]
    fn a_stall_ends_everything_so_much_later() {
        let mut setup = shared(vec![group(1, 500.0)], true);
        setup.stall = Some(Stall { length: millis(300), every: millis(1_000) });
        let numbers = setup.run(1).values;
        // Of each second three tenths stand still; of those who come then half wait 150 ms.
        assert!(numbers[2] > 0.02 && numbers[3] > 0.29 && numbers[3] < 0.5, "{numbers:?}");
        assert!(numbers[5] < 1e-9, "{numbers:?}");
        assert!(numbers[7].is_infinite(), "no least wait was ever above 250 ms");
    }
}
