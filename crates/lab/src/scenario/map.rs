//! A stability map: from which loads and triggers a fleet recovers, and from which it never does.
//!
//! ```text
//! two or three axes, each a list of points ──▶ every combination, laid over an arm ──▶ recovers?
//! ```
//!
//! A point of an axis says sections of the file otherwise, as an arm does: a load is a rate of
//! calls, a trigger a fault, a budget a policy. What never recovers although its trigger is over is
//! metastable; where it does not recover without a trigger either, it is overloaded. Recovery is
//! counted from the end of the last fault, or of the warm-up where there is none, and only if it
//! lasts: the last ten seconds of calls have to be good as well.

use std::time::Duration;

use seawall_policy::{ConfigError, Timestamp};

use super::Scenario;
use super::advice::{advice, load};
use super::known::{self, Form};
use super::mistake::Mistake;
use super::model::{Model, kind, sections};
use super::node::Node;
use super::read::keys as keys_of_file;
use super::section::{Read, Section};
use super::seen::Seen;
use super::threshold::{MOST_NAME, recovery};
use super::verdict::Plan;
use crate::fleet::{Fleet, Report};
use crate::seeds::over_seeds;
use crate::stats::Interval;

/// What is to be mapped, read from a file's section `map`.
#[derive(Clone, Debug)]
pub(super) struct Atlas {
    arm: String,
    case: String,
    axes: Vec<MapAxis>,
    here: Vec<usize>,
    fleets: Vec<Fleet>,
}

/// One axis of a map.
#[derive(Clone, Debug)]
pub struct MapAxis {
    /// What varies along it.
    pub name: String,
    /// What it is at each point.
    pub points: Vec<String>,
}

/// A stability map.
#[derive(Clone, Debug)]
pub struct Map {
    /// The arm that is mapped.
    pub arm: String,
    /// The case; empty if the scenario has only one.
    pub case: String,
    /// Across, up, and, if there are three, map by map.
    pub axes: Vec<MapAxis>,
    /// Where it is run in earnest: a place on each axis.
    pub here: Vec<usize>,
    /// All combinations; the first axis varies fastest.
    pub spots: Vec<Spot>,
    /// Runs that were made.
    pub runs: usize,
    /// Events that were simulated.
    pub events: u64,
    /// A digest of every event of every run.
    pub digest: u64,
}

/// One combination.
#[derive(Clone, Debug)]
pub struct Spot {
    /// Its place on each axis.
    pub at: Vec<usize>,
    /// Seeds that were run.
    pub seeds: usize,
    /// Of these, how many never recovered.
    pub never: usize,
    /// Seconds until those that recovered had.
    pub recovery: Interval,
    /// The most calls a second, as a share of what its servers can do; `None` where that is not
    /// known.
    pub load: Option<f64>,
    /// What the rule peak load × (1 + budget) < 1 says against it.
    pub advice: Option<String>,
}

impl Spot {
    /// Whether every seed recovers.
    #[must_use]
    pub const fn recovers(&self) -> bool {
        self.never == 0
    }
}

impl Map {
    /// The spot at a place on each axis.
    #[must_use]
    pub fn spot(&self, at: &[usize]) -> Option<&Spot> {
        self.spots.iter().find(|spot| spot.at == at)
    }

    /// Where it is run in earnest.
    #[must_use]
    pub fn here(&self) -> Option<&Spot> {
        self.spot(&self.here)
    }

    /// With the other axes at these places, the last place of the first axis up to which every
    /// spot recovers; `None` if the first does not.
    #[must_use]
    pub fn reach(&self, others: &[usize]) -> Option<&Spot> {
        let along = self.spots.iter().filter(|spot| spot.at[1..] == *others);
        along.take_while(|spot| spot.recovers()).last()
    }

    /// How much more than at the operating point the load could be, as a share of it: to the last
    /// point of the first axis that recovers, all else equal. Below zero if it could not even be
    /// what it is; `None` where loads are not known.
    #[must_use]
    pub fn margin(&self) -> Option<f64> {
        let here = self.here()?.load.filter(|load| *load > 0.0)?;
        let reach = self.reach(&self.here[1..]).map_or(Some(0.0), |spot| spot.load)?;
        Some(reach / here - 1.0)
    }
}

impl Atlas {
    /// Reads the section; `of` gives the sections of an arm in a case, by their names.
    pub(super) fn read(
        file: &Node,
        cases: &[String],
        arms: &[String],
        of: impl Fn(&str, &str) -> Option<Node>,
    ) -> Read<Option<Self>> {
        let keys = ["arm", "case", "here", "axis"];
        let Some(section) = Section::new(file, "", &keys_of_file())?.inner("map", &keys)? else {
            return Ok(None);
        };
        let one = |key, names: &[String]| -> Read<String> {
            let named: Vec<_> = names.iter().map(|name| (name.as_str(), name.clone())).collect();
            let first = || if key == "arm" { None } else { names.first().cloned() };
            let chosen = section.choice(key, &named)?.or_else(first);
            chosen.ok_or_else(|| section.missing(key))
        };
        let (arm, case) = (one("arm", arms)?, one("case", cases)?);
        let said = || format!("“{arm}” is not run in the case “{case}”");
        let base =
            of(&case, &arm).ok_or_else(|| Mistake::new(section.at("arm"), "map.arm", said()))?;
        let mut axes = Vec::new();
        let mut overs = Vec::new();
        for (path, node) in section.list("axis")? {
            let (axis, over) = axis(node, &path)?;
            axes.push(axis);
            overs.push(over);
        }
        let count = overs.iter().map(Vec::len).product::<usize>();
        if !(2..=3).contains(&axes.len()) || count > MOST_SPOTS {
            let said = format!("needs two or three axes, of {MOST_SPOTS} combinations at most");
            return Err(Mistake::new(section.at("axis"), "map.axis", said));
        }
        let here = here(&section, &axes)?;
        let mut fleets = Vec::new();
        for number in 0..count {
            let place = places(number, &axes);
            let points = overs.iter().zip(&place).map(|(over, at)| &over[*at]);
            let whole = points.fold(base.clone(), |whole, over| whole.under(over));
            let Model::Fleet(fleet) = Model::read(&whole, kind(file))? else {
                return Err(Mistake::new(section.at(""), "map", "is of a fleet only"));
            };
            fleets.push(*fleet);
        }
        Ok(Some(Self { arm, case, axes, here, fleets }))
    }
}

/// An axis, and what each of its points says otherwise.
fn axis(node: &Node, path: &str) -> Read<(MapAxis, Vec<Node>)> {
    let section = Section::new(node, path, &["name", "points"])?;
    let (mut points, mut overs) = (Vec::new(), Vec::new());
    for (path, node) in section.list("points")? {
        let point = Section::new(node, &path, &[&["name"], &sections()[..]].concat())?;
        let name = point.said("name", MOST_NAME)?;
        if points.contains(&name) {
            return Err(point.refused("name", "each point of an axis another name"));
        }
        points.push(name);
        overs.push(node.only(&sections()));
    }
    if points.is_empty() {
        return Err(section.missing("points"));
    }
    Ok((MapAxis { name: section.said("name", MOST_NAME)?, points }, overs))
}

/// The operating point: the name of a point of each axis.
fn here(section: &Section<'_>, axes: &[MapAxis]) -> Read<Vec<usize>> {
    known::form(&section.path("here[]"), || Form::Text);
    let named = section.list("here")?;
    if named.len() != axes.len() {
        let said = "needs the name of a point of each axis, in their order";
        return Err(Mistake::new(section.at("here"), &section.path("here"), said));
    }
    let place = |((path, node), axis): (&(String, &Node), &MapAxis)| {
        let place = axis.points.iter().position(|point| *point == node.shown());
        place.ok_or_else(|| {
            let allowed = format!("one of {}", axis.points.join(", "));
            Mistake::refused(node.at, path, node.shown(), allowed)
        })
    };
    named.iter().zip(axes).map(place).collect()
}

/// The place on each axis of a combination.
fn places(number: usize, axes: &[MapAxis]) -> Vec<usize> {
    let mut left = number;
    let place = |axis: &MapAxis| {
        let place = left % axis.points.len();
        left /= axis.points.len();
        place
    };
    axes.iter().map(place).collect()
}

impl Scenario {
    /// How many runs a map of so many seeds takes; none if the file has no section `map`.
    #[must_use]
    pub fn map_runs(&self, seeds: usize) -> usize {
        self.atlas.as_ref().map_or(0, |atlas| atlas.fleets.len() * seeds)
    }

    /// Draws the map of the file's section `map`. After each run `on_run` is told how many there
    /// have been.
    ///
    /// # Errors
    /// A file without that section, no seeds, or a number of clients that its fleet cannot have.
    pub fn map(&self, plan: &Plan, on_run: impl Fn() + Sync) -> Result<Map, ConfigError> {
        let Some(atlas) = &self.atlas else {
            return Err(ConfigError::new("map", self.name(), "a scenario with a section [map]"));
        };
        if plan.seeds.is_empty() {
            return Err(ConfigError::new("seeds", 0, "at least 1"));
        }
        let sized = |fleet: &Fleet| Fleet {
            clients: plan.clients.unwrap_or(fleet.clients),
            ..fleet.clone()
        };
        let fleets: Vec<_> = atlas.fleets.iter().map(sized).collect();
        let count = fleets.len() * plan.seeds.len();
        let numbers: Vec<u64> = (0..).take(count).collect();
        let runs = over_seeds(&numbers, plan.threads, |number| {
            let number = usize::try_from(number).unwrap_or(0);
            let fleet = &fleets[number / plan.seeds.len()];
            let report = fleet.run(plan.seeds[number % plan.seeds.len()])?;
            on_run();
            Ok((recovered(&report, fleet), report.events, report.digest))
        });
        let runs = runs.into_iter().collect::<Result<Vec<_>, ConfigError>>()?;
        let spot = |(number, fleet): (usize, &Fleet)| {
            let runs = &runs[number * plan.seeds.len()..][..plan.seeds.len()];
            let healed = runs.iter().map(|run| run.0).filter(|seconds| seconds.is_finite());
            let load = load(fleet);
            Spot {
                at: places(number, &atlas.axes),
                seeds: runs.len(),
                never: runs.len() - healed.clone().count(),
                recovery: Interval::of(healed),
                load,
                advice: load.and_then(|load| advice(fleet, load)),
            }
        };
        Ok(Map {
            arm: atlas.arm.clone(),
            case: atlas.case.clone(),
            axes: atlas.axes.clone(),
            here: atlas.here.clone(),
            spots: fleets.iter().enumerate().map(spot).collect(),
            runs: count,
            events: runs.iter().map(|run| run.1).sum(),
            digest: runs.iter().fold(0_u64, |digest, run| digest.rotate_left(7) ^ run.2),
        })
    }
}

/// Seconds from the end of the trigger until it has recovered; infinite if it never does, or not
/// to stay.
fn recovered(report: &Report, fleet: &Fleet) -> f64 {
    let seconds = |at: Timestamp| {
        let since = at.since(Timestamp::ZERO);
        let whole = if since.subsec_nanos() > 0 { since + Duration::from_secs(1) } else { since };
        usize::try_from(whole.as_secs()).unwrap_or(usize::MAX)
    };
    let trigger_ends = fleet.faults.iter().map(|fault| fault.until()).max();
    let healed = recovery(&Seen::of(report, None), seconds(trigger_ends.unwrap_or(fleet.warm_up)));
    let ends = seconds(fleet.calls_until);
    let last = report.between(ends.saturating_sub(LASTS), ends);
    if last.good * 100 >= last.offered * 95 { healed } else { f64::INFINITY }
}

/// Seconds at the end that have to be good. Source: own choice, as recovery.
const LASTS: usize = 10;
/// The most combinations of a map. Source: own choice.
const MOST_SPOTS: usize = 4_096;
