//! Scenarios: a file says what is simulated, what is enough, and what must not be.
//!
//! ```text
//! case × arm ──▶ a model, run once for each seed ──▶ numbers ──▶ thresholds ──▶ verdict
//! ```
//!
//! An **arm** is a way to make calls: one under test, a baseline to compare with, or a control,
//! which must miss the thresholds it names; a scenario whose control does not is invalid, for it
//! would pass whatever was tested. A **case** is a variation of the rest. Either may say any of the
//! sections that describe the model otherwise; every combination is built, and so checked, when the
//! file is read. Runs of one case and seed have the same calls, network and work in every arm.

mod advice;
mod calls;
mod course;
mod known;
mod map;
mod metric;
mod mistake;
mod model;
mod node;
mod page;
mod policy;
mod section;
mod seen;
mod server;
mod service;
mod threshold;
mod verdict;

pub use course::{Course, Number, Over};
pub use known::{Form as KeyForm, Known, known};
pub use map::{Map, MapAxis, Spot};
pub use mistake::ScenarioError;
pub use verdict::{Fate, Outcome, Plan, Row, Seeded, Verdict};

use seawall_policy::ConfigError;

pub(crate) use model::span;
pub(crate) use policy::{config, params, waits};
pub(crate) use section::{Read, Section};
pub(crate) use server::queue;
pub(crate) use threshold::Unit;

use map::Atlas;
use mistake::Mistake;
use model::{Model, kind, sections};
use node::{Node, Value};
use threshold::{MOST_NAME, Threshold};

use crate::models::Kind;

/// A scenario, read from its file.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: String,
    title: String,
    shows: String,
    matters: String,
    change: String,
    seeds: u32,
    arms: Vec<Arm>,
    cells: Vec<Cell>,
    thresholds: Vec<Threshold>,
    atlas: Option<Atlas>,
    text: String,
}

/// What an arm is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has to hold every threshold.
    Test,
    /// It is measured beside that.
    Baseline,
    /// It has to miss the thresholds it names.
    Control,
}

impl Role {
    /// The word of the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Baseline => "baseline",
            Self::Control => "control",
        }
    }
}

#[derive(Clone, Debug)]
struct Arm {
    name: String,
    role: Role,
    /// Of a control, the thresholds it must miss.
    misses: Vec<String>,
    cases: Vec<String>,
}

/// An arm in a case.
#[derive(Clone, Debug)]
struct Cell {
    case: String,
    /// Its place among the arms.
    arm: usize,
    model: Model,
    /// Whether it is judged; else it is run for what others are compared with.
    is_asked: bool,
}

impl Scenario {
    /// Reads the text of a file; its name is for errors.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        read(text).map_err(|mistake| mistake.of(file, text))
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is about, in a line.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What it shows.
    #[must_use]
    pub fn shows(&self) -> &str {
        &self.shows
    }

    /// How many seeds it asks for.
    #[must_use]
    pub const fn seeds(&self) -> u32 {
        self.seeds
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of it only this case, or this arm, or both; the arms that theirs are compared with are run
    /// as well, and not judged.
    ///
    /// # Errors
    /// A case or an arm that is not there, or not there together.
    pub fn only(mut self, case: Option<&str>, arm: Option<&str>) -> Result<Self, ConfigError> {
        let names = |field, given: Option<&str>, known: Vec<&str>| match given {
            Some(name) if !known.contains(&name) => {
                Err(ConfigError::new(field, name, format!("one of “{}”", known.join("”, “"))))
            }
            _ => Ok(()),
        };
        let mut cases: Vec<_> = self.cells.iter().map(|cell| cell.case.as_str()).collect();
        cases.dedup();
        names("case", case, cases)?;
        names("arm", arm, self.arms.iter().map(|arm| arm.name.as_str()).collect())?;
        for cell in &mut self.cells {
            let name = &self.arms[cell.arm].name;
            cell.is_asked =
                case.is_none_or(|case| case == cell.case) && arm.is_none_or(|arm| arm == name);
        }
        let mut kept = Vec::new();
        for (place, cell) in self.cells.iter().enumerate() {
            let name = &self.arms[cell.arm].name;
            let is_compared_with = self.cells.iter().any(|asked| {
                let held =
                    |it: &&Threshold| it.of.as_ref() == Some(name) && self.applies(it, asked);
                asked.is_asked
                    && asked.case == cell.case
                    && self.thresholds.iter().any(|it| held(&it))
            });
            if cell.is_asked || is_compared_with {
                kept.push(place);
            }
        }
        if kept.is_empty() {
            let allowed = "an arm that is run in that case";
            return Err(ConfigError::new("arm", arm.unwrap_or_default(), allowed));
        }
        let cells = std::mem::take(&mut self.cells).into_iter().enumerate();
        self.cells =
            cells.filter(|(place, _)| kept.contains(place)).map(|(_, cell)| cell).collect();
        Ok(self)
    }

    fn applies(&self, threshold: &Threshold, cell: &Cell) -> bool {
        let arm = &self.arms[cell.arm];
        threshold.cases.contains(&cell.case)
            && match arm.role {
                Role::Test => threshold.arms.contains(&arm.name),
                Role::Control => arm.misses.contains(&threshold.id),
                Role::Baseline if threshold.is_of_all => threshold.of.as_ref() != Some(&arm.name),
                Role::Baseline => threshold.arms.contains(&arm.name),
            }
    }
}

fn read(text: &str) -> Read<Scenario> {
    let file = Node::parse(text)?;
    let about = [
        "schema",
        "name",
        "title",
        "shows",
        "matters",
        "change",
        "seeds",
        "case",
        "arm",
        "threshold",
        "map",
    ];
    let section = Section::new(&file, "", &[&about[..], &sections()].concat())?;
    if section.count("schema", 1..=1)?.is_none() {
        return Err(section.missing("schema"));
    }
    let kind = kind(&section);
    let base = file.only(&sections());
    let cases = cases(&section)?;
    let names: Vec<_> = cases.iter().map(|(name, _)| name.clone()).collect();
    let arms = arms(&section, &names)?;
    let all: Vec<_> = arms.iter().map(|(arm, _)| arm.name.clone()).collect();
    let is_ours = |arm: &&(Arm, Node)| arm.0.role == Role::Test;
    let ours: Vec<_> = arms.iter().filter(is_ours).map(|(arm, _)| arm.name.clone()).collect();
    let mut cells = Vec::new();
    for (case, over) in &cases {
        for (place, (arm, node)) in arms.iter().enumerate() {
            if arm.cases.contains(case) {
                let model = Model::read(&base.under(over).under(node), kind)?;
                cells.push(Cell { case: case.clone(), arm: place, model, is_asked: true });
            }
        }
    }
    let thresholds = thresholds(&section, &names, &all, &ours, kind)?;
    let atlas = Atlas::read(&section, &names, &all, |case, arm| {
        let (_, over) = cases.iter().find(|(name, _)| name == case)?;
        let (arm, node) = arms.iter().find(|(known, _)| known.name == arm)?;
        arm.cases.iter().any(|name| name == case).then(|| base.under(over).under(node))
    })?;
    let name = section.said("name", MOST_NAME)?;
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Err(section.refused("name", "lower-case letters, digits and dashes"));
    }
    let scenario = Scenario {
        name,
        title: section.said("title", MOST_TITLE)?,
        shows: section.said("shows", MOST_WORDS)?,
        matters: section.said("matters", MOST_WORDS)?,
        change: section.said("change", MOST_WORDS)?,
        seeds: section.count("seeds", 1..=MOST_SEEDS)?.unwrap_or(SEEDS),
        arms: arms.into_iter().map(|(arm, _)| arm).collect(),
        cells,
        thresholds,
        atlas,
        text: text.to_owned(),
    };
    check(&section, &scenario)?;
    Ok(scenario)
}

/// The cases by name, or one without.
fn cases(section: &Section<'_>) -> Read<Vec<(String, Node)>> {
    let mut read: Vec<(String, Node)> = Vec::new();
    for (path, node) in section.list("case")? {
        let case = Section::new(node, &path, &[&["name"], &sections()[..]].concat())?;
        let name = case.said("name", MOST_NAME)?;
        if read.iter().any(|(known, _)| *known == name) {
            return Err(case.refused("name", "each case another name"));
        }
        read.push((name, node.only(&sections())));
    }
    if read.is_empty() {
        read.push((String::new(), Node { at: 0, value: Value::Table(Vec::new()) }));
    }
    Ok(read)
}

fn arms(section: &Section<'_>, cases: &[String]) -> Read<Vec<(Arm, Node)>> {
    let mut read: Vec<(Arm, Node)> = Vec::new();
    for (path, node) in section.list("arm")? {
        let keys = [&["name", "role", "misses", "cases"], &sections()[..]].concat();
        let arm = Section::new(node, &path, &keys)?;
        let name = arm.said("name", MOST_NAME)?;
        if read.iter().any(|(known, _)| known.name == name) {
            return Err(arm.refused("name", "each arm another name"));
        }
        let roles = [Role::Test, Role::Baseline, Role::Control].map(|role| (role.as_str(), role));
        let role = arm.choice("role", &roles)?.ok_or_else(|| arm.missing("role"))?;
        if (role == Role::Control) != arm.node("misses").is_some() {
            let said = "belongs to a control, and says what it must miss";
            return Err(Mistake::new(arm.at("misses"), &arm.path("misses"), said));
        }
        let misses = arm.list("misses")?.iter().map(|(_, node)| node.shown()).collect();
        let cases = arm.names("cases", cases)?;
        read.push((Arm { name, role, misses, cases }, node.only(&sections())));
    }
    Ok(read)
}

fn thresholds(
    section: &Section<'_>,
    cases: &[String],
    arms: &[String],
    ours: &[String],
    kind: Option<&Kind>,
) -> Read<Vec<Threshold>> {
    let mut thresholds = Vec::new();
    for (path, node) in section.list("threshold")? {
        let read = Threshold::read(node, &path, cases, arms, ours, kind)?;
        if thresholds.iter().any(|known: &Threshold| known.id == read.id) {
            let said = format!("`{}` is there already; give each its own id", read.id);
            return Err(Mistake::new(node.at, &format!("{path}.id"), said));
        }
        thresholds.push(read);
    }
    Ok(thresholds)
}

/// What only the whole can tell.
fn check(section: &Section<'_>, scenario: &Scenario) -> Read<()> {
    let has = |role| scenario.arms.iter().any(|arm| arm.role == role);
    if !has(Role::Test) || !has(Role::Control) {
        let said = "needs an arm of role test, and one of role control that must fail";
        return Err(Mistake::new(section.at("arm"), "arm", said));
    }
    for ((path, node), arm) in section.list("arm")?.iter().zip(&scenario.arms) {
        let read = Section::new(
            node,
            path,
            &[&["name", "role", "misses", "cases"], &sections()[..]].concat(),
        )?;
        for (path, node) in read.list("misses")? {
            let is_met = scenario.thresholds.iter().any(|threshold| {
                threshold.id == node.shown()
                    && threshold.cases.iter().any(|case| arm.cases.contains(case))
            });
            if !is_met {
                let allowed = "the id of a threshold that is held against one of its cases";
                return Err(Mistake::refused(node.at, &path, node.shown(), allowed));
            }
        }
    }
    if scenario.thresholds.is_empty() {
        return Err(section.missing("threshold"));
    }
    for ((path, node), threshold) in section.list("threshold")?.iter().zip(&scenario.thresholds) {
        let held = scenario.cells.iter().filter(|cell| scenario.applies(threshold, cell));
        let held: Vec<_> = held.collect();
        if held.is_empty() {
            return Err(Mistake::new(node.at, path, "is held against nothing: see cases and arms"));
        }
        let wrong = |cell: &&Cell| threshold.unmeasured(&cell.model, node, path);
        if let Some(mistake) = held.iter().find_map(wrong) {
            return Err(mistake);
        }
        let Some(of) = &threshold.of else { continue };
        let read = Section::new(node, path, &Threshold::KEYS)?;
        let wrong = |said| Mistake::new(read.at("of"), &read.path("of"), said);
        for cell in held {
            if scenario.arms[cell.arm].name == *of {
                let said = format!("“{of}” would be held against itself; say what it must be");
                return Err(wrong(said));
            }
            let is_there = scenario
                .cells
                .iter()
                .any(|other| other.case == cell.case && scenario.arms[other.arm].name == *of);
            if !is_there {
                return Err(wrong(format!("“{of}” is not run in the case “{}”", cell.case)));
            }
        }
    }
    Ok(())
}

/// Seeds of a scenario that says nothing. Source: own choice.
const SEEDS: u32 = 5;
/// The most seeds. Source: own choice.
const MOST_SEEDS: u32 = 10_000;
/// Characters of a title. Source: own choice.
const MOST_TITLE: usize = 120;
/// Characters of a text about the scenario. Source: own choice.
const MOST_WORDS: usize = 4_000;

#[cfg(test)]
mod tests;
