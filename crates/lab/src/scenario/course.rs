//! What the runs of an arm in a case came to: second by second, and in numbers.
//!
//! A run is taken in as soon as it is over, and then forgotten, so that what is held grows with the
//! length of a run and not with the number of seeds. Sums, the least and the most are whole
//! numbers: the order in which runs end changes none of them.

use seawall_policy::StopReason;

use super::Role;
use super::threshold::{Came, Threshold, Unit, give_or_take, shown};
use crate::fault::Fault;
use crate::fleet::{Heat, Second};
use crate::stats::Interval;

/// An arm in a case, over all seeds.
#[derive(Clone, Debug)]
pub struct Course {
    /// The case; empty if the scenario has only one.
    pub case: String,
    /// The arm.
    pub arm: String,
    /// What the arm is there for.
    pub role: Role,
    /// What goes wrong, and when.
    pub faults: Vec<Fault>,
    /// The names of all services; none of a model that has no services.
    pub services: Vec<String>,
    /// How many runs.
    pub runs: u64,
    /// Every second from time zero; none of a model that has no seconds.
    pub seconds: Vec<Over>,
    /// How long calls took, by the second of their answer, summed over all runs.
    pub heat: Heat,
    /// Ended calls by [`StopReason::index`], summed over all runs.
    pub stops: [u64; StopReason::ALL.len()],
    /// What the thresholds of its case measure, and what is of interest of any fleet.
    pub numbers: Vec<Number>,
}

impl Course {
    /// A fault in a few words, as a band in a plot is labelled: with the service whose servers it
    /// hits where there are several.
    #[must_use]
    pub fn said(&self, fault: &Fault) -> String {
        match self.services.get(fault.service() as usize) {
            Some(name) if self.services.len() > 1 && !fault.is_of_clients() => {
                format!("{name} {}", fault.said())
            }
            _ => fault.said(),
        }
    }
}

/// One second, over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The sum of all runs.
    pub sum: Second,
    /// The least of any run.
    pub least: Second,
    /// The most of any run.
    pub most: Second,
}

/// A number of every run.
#[derive(Clone, Debug)]
pub struct Number {
    /// What is measured, in words.
    pub name: String,
    /// Over the seeds.
    pub measured: Interval,
    /// The mean, as a person reads it.
    pub shown: String,
    /// Half of its 95 % interval likewise; empty for one seed.
    pub give_or_take: String,
}

/// What has been taken in so far.
#[derive(Debug, Default)]
pub(super) struct Taken {
    runs: u64,
    seconds: Vec<Over>,
    heat: Heat,
    stops: [u64; StopReason::ALL.len()],
}

impl Taken {
    pub(super) fn take(&mut self, came: &Came) {
        self.runs += 1;
        let Came::Fleet(report) = came else { return };
        let is_first = self.seconds.is_empty();
        if is_first {
            let over = |second: &Second| Over { sum: *second, least: *second, most: *second };
            self.seconds = report.seconds.iter().map(over).collect();
        } else {
            for (over, second) in self.seconds.iter_mut().zip(&report.seconds) {
                over.sum = over.sum.with(*second, |sum, one| sum + one);
                over.least = over.least.with(*second, u64::min);
                over.most = over.most.with(*second, u64::max);
            }
        }
        self.heat.merge(&report.heat);
        for (sum, count) in self.stops.iter_mut().zip(report.counts.stops) {
            *sum += count;
        }
    }

    pub(super) fn course(
        self,
        (case, arm, role): (&str, &str, Role),
        (faults, services): (Vec<Fault>, Vec<String>),
        numbers: Vec<Number>,
    ) -> Course {
        let Self { runs, seconds, heat, stops } = self;
        let (case, arm) = (case.to_owned(), arm.to_owned());
        Course { case, arm, role, faults, services, runs, seconds, heat, stops, numbers }
    }
}

/// The names and units of what [`usual`] gives of a fleet.
pub(super) const USUAL: [(&str, Unit); 4] = [
    ("amplification", Unit::Times),
    ("success", Unit::Share),
    ("p50", Unit::Time),
    ("p99", Unit::Time),
];

/// What is of interest whatever the thresholds: of any fleet, or all that a model gives which is
/// none.
pub(super) fn usual(came: &Came) -> Vec<f64> {
    let report = match came {
        Came::Fleet(report) => report,
        Came::Numbers(numbers) => return numbers.values.clone(),
    };
    let time = |share| report.times.quantile(share).as_secs_f64();
    vec![report.amplification(), report.success(), time(0.5), time(0.99)]
}

/// The numbers of a case's arm: of each threshold held in that case, each once, and then the usual
/// ones that are not among them. A run has one value for each threshold and then the usual ones.
pub(super) fn numbers(
    thresholds: &[Threshold],
    usual: &[(&str, Unit)],
    case: &str,
    runs: &[&[f64]],
) -> Vec<Number> {
    let own = thresholds.iter().enumerate();
    let own = own.filter(|(_, threshold)| threshold.cases.iter().any(|known| known == case));
    let own = own.map(|(place, it)| (place, it.measures(), it.metric.unit()));
    let usual = usual.iter().zip(thresholds.len()..);
    let usual = usual.map(|((name, unit), place)| (place, (*name).to_owned(), *unit));
    let mut numbers: Vec<Number> = Vec::new();
    for (place, name, unit) in own.chain(usual) {
        let values: Option<Vec<_>> = runs.iter().map(|run| run.get(place).copied()).collect();
        let Some(values) = values.filter(|_| numbers.iter().all(|known| known.name != name)) else {
            continue;
        };
        let measured = Interval::of(values);
        let (shown, give_or_take) = (shown(measured.mean, unit), give_or_take(measured, unit));
        numbers.push(Number { name, measured, shown, give_or_take });
    }
    numbers
}
