//! A [`Station`] as a scenario: one server and those who come to it, beside the formula where there
//! is one.

use std::sync::Arc;
use std::time::Duration;

use super::{Kind, Numbers, Setup};
use crate::exact;
use crate::rate::Rate;
use crate::scenario::{Read, Section, Unit, span};
use crate::server::Queue;
use crate::station::{Measured, Source, Station};

pub(super) const KIND: Kind = Kind {
    section: "station",
    beside: &[],
    numbers: &[
        ("response", Unit::Time),
        ("by_formula", Unit::Times),
        ("p50", Unit::Time),
        ("p99", Unit::Time),
        ("busy", Unit::Share),
        ("inside", Unit::Count),
        ("again", Unit::Share),
    ],
    read,
};

/// A station, and its mean response by formula, in seconds.
#[derive(Clone, Debug)]
struct Known {
    station: Station,
    response: Option<f64>,
}

fn read(whole: &Section<'_>) -> Read<Arc<dyn Setup>> {
    let keys = ["open", "clients", "think", "service", "workers", "jobs", "warm_up", "patience"];
    let section = whole.need("station", &keys)?;
    let service = section.node("service").ok_or_else(|| section.missing("service"))?;
    let longest = Duration::from_secs(3_600);
    let think = section.node("think").map(|node| span(node, &section.path("think")));
    let source = match (section.per_second("open")?, section.count("clients", 1..=MOST)?) {
        (Some(rate), None) if rate > 0.0 && think.is_none() => {
            Source::Open(Rate::constant(rate).map_err(|error| section.by(&error, "open"))?)
        }
        (None, Some(clients)) => {
            Source::Closed { clients, think: section.needed("think", think)?? }
        }
        _ => return Err(section.refused("open", "a rate above 0/s, or clients that think")),
    };
    let station = Station {
        source,
        service: span(service, &section.path("service"))?,
        workers: section.count("workers", 1..=MOST)?.unwrap_or(1),
        queue: Queue::fifo(None),
        patience: section.duration("patience", Duration::from_millis(1)..=longest)?,
        warm_up: section.count("warm_up", 0..=MOST_JOBS)?.unwrap_or(0).into(),
        jobs: section.needed("jobs", section.count("jobs", 1..=MOST_JOBS)?)?.into(),
    };
    Ok(Arc::new(Known { response: by_formula(&station, &section)?, station }))
}

/// The mean from coming to the answer; with exponential times for groups and for more workers.
fn by_formula(station: &Station, section: &Section<'_>) -> Read<Option<f64>> {
    if station.patience.is_some() {
        return Ok(None);
    }
    let service = &station.service;
    let (is_random, mean) = (service.is_exponential(), service.mean());
    Ok(match &station.source {
        Source::Open(_) => {
            let rate = section.per_second("open")?.unwrap_or(0.0);
            let wait = match station.workers {
                1 => Some(exact::wait_for_one_worker(rate, service)),
                workers => is_random.then(|| exact::wait_for_workers(workers, rate, mean)),
            };
            wait.map(|wait| wait + mean)
        }
        Source::Closed { clients, think } => {
            let is_known = station.workers == 1 && is_random && think.is_exponential();
            match clients {
                1 => Some(mean),
                _ => is_known.then(|| exact::machine_repair(*clients, think.mean(), mean).1),
            }
        }
        Source::Serial { .. } => None,
    })
}

impl Setup for Known {
    fn run(&self, seed: u64) -> Numbers {
        let came: Measured = self.station.run(seed);
        let time = |share| came.sojourn.quantile(share).as_secs_f64();
        let by_formula = self.response.map_or(f64::NAN, |known| came.mean_sojourn / known);
        let again = came.again as f64 / self.station.jobs as f64;
        let (p50, p99) = (time(0.5), time(0.99));
        let values = vec![came.mean_sojourn, by_formula, p50, p99, came.busy, came.inside, again];
        Numbers { values, events: came.events, digest: came.digest }
    }
}

/// Source: own choice.
const MOST: u32 = 100_000;
/// Source: own choice.
const MOST_JOBS: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Span;

    fn station(patience: Option<Duration>) -> Station {
        Station {
            source: Source::Open(Rate::constant(80.0).unwrap()),
            service: Span::exponentials(millis(10), millis(1_000), 0.001).unwrap(),
            workers: 1,
            queue: Queue::fifo(None),
            patience,
            warm_up: 0,
            jobs: 20_000,
        }
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn answers_that_come_too_late_are_asked_for_again_and_that_is_what_makes_them_late() {
        let patient = station(None).run(1);
        let never = station(Some(Duration::from_secs(3_600))).run(1);
        assert_eq!((patient.again, never.again), (0, 0));
        assert_eq!(patient.digest, never.digest);
        let hasty = station(Some(millis(1_500))).run(1);
        assert!(hasty.again > 5_000, "{}", hasty.again);
        assert!(hasty.mean_sojourn > 10.0 * patient.mean_sojourn);
        // Each job is answered once in the end.
        assert_eq!((hasty.sojourn.n(), patient.sojourn.n()), (20_000, 20_000));
    }
}
