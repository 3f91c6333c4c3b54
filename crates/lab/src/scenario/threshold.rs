//! What is measured of a run, and what of it is enough.

use std::time::Duration;

use seawall_policy::units::format_duration;
use seawall_policy::{Ratio, Timestamp};

pub(super) use super::metric::Metric;
pub(crate) use super::metric::Unit;

use super::known::{self, Form};
use super::mistake::Mistake;
use super::model::Model;
use super::node::{Node, Value};
use super::section::{LONGEST_RUN, Read, Section, duration, one_of};
use super::seen::Seen;
use crate::fleet::{Calls, Fleet, MOST_APART, Report};
use crate::models::{Kind, Numbers};
use crate::stats::Interval;

/// What came of one run.
#[derive(Clone, Debug)]
pub(super) enum Came {
    Fleet(Box<Report>),
    Numbers(Numbers),
}

/// Where the number has to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    AtMost,
    AtLeast,
}

impl Side {
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "≤",
            Self::AtLeast => "≥",
        }
    }
}

/// A number, and where it has to lie.
#[derive(Clone, Debug)]
pub(super) struct Threshold {
    pub(super) id: String,
    pub(super) metric: Metric,
    /// Of all calls to this service, and not of the clients' own.
    pub(super) service: Option<String>,
    /// Seconds of a window, or only its begin.
    pub(super) from: usize,
    pub(super) until: usize,
    /// The server whose share it is.
    pub(super) server: u32,
    pub(super) side: Side,
    pub(super) limit: f64,
    /// In place of a number of its own, so many times that of this arm, of the same seed.
    pub(super) of: Option<String>,
    /// Whether the mean over seeds is held against it, and not every seed.
    pub(super) is_of_mean: bool,
    pub(super) cases: Vec<String>,
    pub(super) arms: Vec<String>,
    /// Whether no arms are said: those under test, and every baseline beside them, but the one
    /// that the limit is told by.
    pub(super) is_of_all: bool,
}

impl Threshold {
    pub(super) const KEYS: [&str; 12] = [
        "id", "metric", "service", "from", "until", "server", "at_most", "at_least", "of", "judge",
        "cases", "arms",
    ];

    /// Reads one; of the arms that are said, or if none is, of `ours` but the one it is told by.
    pub(super) fn read(
        node: &Node,
        path: &str,
        cases: &[String],
        arms: &[String],
        ours: &[String],
        kind: Option<&Kind>,
    ) -> Read<Self> {
        let section = Section::new(node, path, &Self::KEYS)?;
        // What is right or wrong by itself comes before what goes together.
        let (id, held_in) = (section.said("id", MOST_NAME)?, section.names("cases", cases)?);
        let metric = section.choice("metric", &Metric::of(kind))?;
        let metric = metric.ok_or_else(|| section.missing("metric"))?;
        let (side, key) = match (section.node("at_most"), section.node("at_least")) {
            (Some(_), None) => (Side::AtMost, "at_most"),
            (None, Some(_)) => (Side::AtLeast, "at_least"),
            _ => return Err(Mistake::new(node.at, path, "needs one of at_most and at_least")),
        };
        let of = match section.text("of")? {
            None => None,
            Some(_) => Some(one_arm(&section, arms)?),
        };
        let unit = if of.is_some() { Unit::Times } else { metric.unit() };
        let limit = section.node(key).ok_or_else(|| section.missing(key))?;
        let (from, until) = window(&section, metric)?;
        let server = section.count("server", 0..=MOST_APART - 1)?;
        if server.is_some() != (metric == Metric::Share) {
            let said = if server.is_none() { "is missing" } else { "has no effect on this metric" };
            return Err(Mistake::new(section.at("server"), &section.path("server"), said));
        }
        let held = match section.node("arms") {
            Some(_) => section.names("arms", arms)?,
            None => ours.iter().filter(|arm| Some(*arm) != of.as_ref()).cloned().collect(),
        };
        Ok(Self {
            id,
            metric,
            service: of_service(&section, metric)?,
            from,
            until,
            server: server.unwrap_or(0),
            side,
            limit: value(limit, &section.path(key), unit)?,
            of,
            is_of_mean: section
                .choice("judge", &[("each", false), ("mean", true)])?
                .unwrap_or(false),
            is_of_all: section.node("arms").is_none(),
            cases: held_in,
            arms: held,
        })
    }

    /// The number of one run.
    pub(super) fn measure(&self, came: &Came) -> f64 {
        match came {
            Came::Fleet(report) => self.of_fleet(report),
            Came::Numbers(numbers) => match self.metric {
                Metric::Of { place, .. } => numbers.values[place],
                _ => f64::NAN,
            },
        }
    }

    fn of_fleet(&self, report: &Report) -> f64 {
        let part =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let seen = Seen::of(report, self.service.as_deref());
        let window = seen.between(self.from, self.until);
        let time = |share| seen.times.quantile(share).as_secs_f64();
        let ready =
            |share| report.rush.ready_at(share).map_or(f64::INFINITY, |at| at.as_secs_f64());
        match self.metric {
            Metric::Amplification => seen.counts.amplification(),
            Metric::Success => seen.counts.success(),
            Metric::Goodput => part(window.good, window.offered),
            Metric::Attempts => part(window.attempts, window.offered),
            Metric::Wasted => part(window.wasted, window.wasted + window.worked),
            Metric::InVain => part(window.wasted, report.between(self.from, self.until).offered),
            Metric::Recovery => recovery(&seen, self.from),
            Metric::P50 => time(0.5),
            Metric::P99 => time(0.99),
            Metric::P999 => time(0.999),
            Metric::Longest => report.longest.as_secs_f64(),
            Metric::Load => part(window.attempts, (self.until - self.from) as u64),
            Metric::Arriving => part(window.arrived, report.between(self.from, self.until).offered),
            Metric::Opened => seen.opened as f64,
            Metric::Ejected => report.ejected as f64,
            Metric::Died => seen.died as f64,
            Metric::InUse => f64::from(seen.in_use),
            Metric::Waited => seen.waits.quantile(0.999).as_secs_f64(),
            Metric::Share => report.arrivals.share(self.server as usize, self.from, self.until),
            Metric::Herd => report.arrivals.herd(self.from, self.until),
            Metric::Duplicates => report.arrivals.duplicates() as f64,
            Metric::Unstarted => seen.turned.unstarted(),
            Metric::ReadyP50 => ready(0.5),
            Metric::ReadyP99 => ready(0.99),
            Metric::Tries => report.rush.mean_attempts(),
            Metric::TriesP99 => report.rush.attempts_of(0.99) as f64,
            Metric::FalseDrops => part(seen.turned.dropped_awaited, seen.counts.attempts),
            Metric::Of { .. } => f64::NAN,
        }
    }

    /// Why there is nothing to be measured in a model, if so.
    pub(super) fn unmeasured(&self, model: &Model, node: &Node, path: &str) -> Option<Mistake> {
        let Model::Fleet(fleet) = model else { return self.misnames(model, node, path) };
        let servers: u32 = fleet.services.iter().map(|service| service.servers).sum();
        let wrong = |said: &str| Some(Mistake::new(node.at, path, said));
        if let Some(mistake) = self.outlasts(fleet, node, path) {
            return Some(mistake);
        }
        match self.metric {
            Metric::ReadyP50 | Metric::ReadyP99 | Metric::Tries | Metric::TriesP99
                if !matches!(fleet.calls, Calls::Once { .. }) =>
            {
                wrong("needs calls.once: of other calls no client is ready, or tries until it is")
            }
            Metric::Duplicates if fleet.safety.is_none() => {
                wrong("needs calls.safety, without which nobody counts")
            }
            Metric::Share if self.server >= servers => {
                wrong(&format!("there is no server {}: there are {servers}", self.server))
            }
            _ => self.misnames(model, node, path),
        }
    }

    /// What is wrong with the seconds it is of, where there are none such: what is measured in them
    /// would be nothing, which holds every `at_most`, and misses every `at_least`.
    fn outlasts(&self, fleet: &Fleet, node: &Node, path: &str) -> Option<Mistake> {
        let calls = matches!(self.metric, Metric::Goodput | Metric::Attempts);
        let (key, most, said) = match (self.metric.has_window(), calls) {
            (true, true) if whole(fleet.calls_until) <= self.from => {
                ("from", fleet.calls_until, "before which calls begin, as run.calls_until says")
            }
            (true, _) if whole(fleet.ends) < self.until => ("until", fleet.ends, "the run's end"),
            _ if whole(fleet.ends) <= self.from && self.from > 0 => {
                ("from", fleet.ends, "before the run's end")
            }
            _ => return None,
        };
        let read = Section::new(node, path, &Self::KEYS).ok()?;
        let most = format_duration(most.since(Timestamp::ZERO));
        Some(read.refused(key, format!("a time up to {most}, {said}")))
    }

    /// What is wrong with the service that it names, where a model has none of that name.
    fn misnames(&self, model: &Model, node: &Node, path: &str) -> Option<Mistake> {
        let service = self.service.as_ref()?;
        let names = model.lacks(service)?;
        let at = Section::new(node, path, &Self::KEYS).map_or(node.at, |read| read.at("service"));
        Some(Mistake::refused(at, &format!("{path}.service"), service, one_of(&names, service)))
    }

    /// How far a number lies on the right side of the limit, as a share of the limit; below zero
    /// on the wrong one.
    pub(super) fn margin(&self, number: f64, limit: f64) -> f64 {
        let off = match self.side {
            Side::AtMost => limit - number,
            Side::AtLeast => number - limit,
        };
        if limit > 0.0 { off / limit } else { off }
    }

    /// In words: what is measured, and what it has to be.
    pub(super) fn said(&self) -> String {
        let side = match self.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        };
        let limit = match &self.of {
            Some(arm) => format!("{} of “{arm}”", shown(self.limit, Unit::Times)),
            None => shown(self.limit, self.metric.unit()),
        };
        let mean = if self.is_of_mean { ", mean of the seeds" } else { "" };
        format!("{} {side} {limit}{mean}", self.measures())
    }

    /// In words, what is measured.
    pub(super) fn measures(&self) -> String {
        let name = match self.metric {
            Metric::Share => format!("share of server {}", self.server),
            _ => match &self.service {
                Some(service) => format!("{} of `{service}`", self.metric.name()),
                None => self.metric.name().to_owned(),
            },
        };
        match self.metric {
            metric if metric.has_window() => format!("{name} in {}..{} s", self.from, self.until),
            Metric::Recovery => format!("{name} from {} s", self.from),
            _ => name,
        }
    }
}

/// Seconds until then, one that has begun counts.
fn whole(at: Timestamp) -> usize {
    usize::try_from(at.since(Timestamp::ZERO).as_nanos().div_ceil(1_000_000_000)).unwrap_or(0)
}

/// The seconds that a metric is of, where it is of some.
fn window(section: &Section<'_>, metric: Metric) -> Read<(usize, usize)> {
    let second = |key| -> Read<Option<usize>> {
        let Some(at) = section.point(key)? else { return Ok(None) };
        let whole = at.since(Timestamp::ZERO);
        if whole.subsec_nanos() > 0 {
            return Err(section.refused(key, "whole seconds").alone());
        }
        Ok(usize::try_from(whole.as_secs()).ok())
    };
    let (from, until) = (second("from")?, second("until")?);
    for key in ["from", "until"] {
        let takes = metric.has_window() || (key == "from" && metric == Metric::Recovery);
        if section.node(key).is_some() != takes {
            let said = if takes { "is missing" } else { "has no effect on this metric" };
            return Err(Mistake::new(section.at(key), &section.path(key), said));
        }
    }
    if metric.has_window() && until <= from {
        return Err(section.refused("until", "a time after from"));
    }
    Ok((from.unwrap_or(0), until.unwrap_or(0)))
}

/// The service that a metric is of, if it can be of one.
fn of_service(section: &Section<'_>, metric: Metric) -> Read<Option<String>> {
    let service = section.text("service")?.map(str::to_owned);
    if service.is_some() && !metric.is_of_service() {
        let said = "has no effect on this metric";
        return Err(Mistake::new(section.at("service"), &section.path("service"), said));
    }
    Ok(service)
}

fn one_arm(section: &Section<'_>, arms: &[String]) -> Read<String> {
    let named: Vec<_> = arms.iter().map(|arm| (arm.as_str(), arm.clone())).collect();
    section.choice("of", &named)?.ok_or_else(|| section.missing("of"))
}

/// Seconds from `from` until ten begin whose goodput is 95 % of what is offered; infinite if none
/// do.
pub(super) fn recovery(seen: &Seen<'_>, from: usize) -> f64 {
    const LOOK: usize = 10;
    let last = seen.seconds.len().saturating_sub(LOOK);
    let healed = (from..last).find(|&second| {
        let window = seen.between(second, second + LOOK);
        window.offered > 0 && window.good * 100 >= window.offered * 95
    });
    healed.map_or(f64::INFINITY, |second| (second - from) as f64)
}

/// A limit in the unit of what it limits.
fn value(node: &Node, path: &str, unit: Unit) -> Read<f64> {
    known::form(path, || Form::Count(0, u32::MAX));
    known::form(path, || Form::Text);
    let refused = |allowed| Mistake::refused(node.at, path, node.shown(), allowed).alone();
    let text = node.shown();
    let decimal =
        |text: &str| text.parse::<Ratio>().ok().map(|it| f64::from(it.millionths()) / 1e6);
    match (unit, &node.value) {
        (Unit::Share, Value::Text(_)) if text.ends_with('%') => decimal(&text),
        (Unit::Times, Value::Text(_)) => {
            text.strip_suffix('x').filter(|text| !text.ends_with('%')).and_then(decimal)
        }
        (Unit::Time, _) => {
            let time = duration(node, path)?;
            (time <= LONGEST_RUN).then_some(time.as_secs_f64())
        }
        (Unit::Count, Value::Bare(_)) => text.parse::<u32>().ok().map(f64::from),
        _ => None,
    }
    .ok_or_else(|| {
        refused(match unit {
            Unit::Share => "a percentage in quotes, like \"95%\"",
            Unit::Times => "how many times in quotes, like \"1.1x\"",
            Unit::Time => "a duration up to 1h",
            Unit::Count => "a whole number",
        })
    })
}

/// A number as a person reads it.
pub(super) fn shown(number: f64, unit: Unit) -> String {
    if number.is_nan() {
        return "-".to_owned();
    }
    if !number.is_finite() {
        return "never".to_owned();
    }
    match unit {
        // What is next to nothing has the digits that tell it from nothing.
        Unit::Share if number > 0.0 && number < 1e-6 => format!("{:.1e}%", number * 100.0),
        Unit::Share if number > 0.0 && number < 0.001 => format!("{:.4}%", number * 100.0),
        Unit::Share => format!("{:.1}%", number * 100.0),
        Unit::Times => format!("{number:.3}x"),
        Unit::Time => format_duration(Duration::from_secs_f64(number.max(0.0))),
        Unit::Count => format!("{number:.1}").trim_end_matches(".0").to_owned(),
    }
}

/// How far a mean may be off, as a person reads it; nothing of one seed.
pub(super) fn give_or_take(measured: Interval, unit: Unit) -> String {
    let half = measured.half;
    if half.is_finite() { format!("±{}", shown(half, unit)) } else { String::new() }
}

/// Characters of a name in a file. Source: own choice.
pub(super) const MOST_NAME: usize = 60;
