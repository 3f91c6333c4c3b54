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
mod read;
mod section;
mod seen;
mod server;
mod service;
mod threshold;
mod told;
mod verdict;

pub use course::{Course, Number, Over};
pub use known::{Form as KeyForm, Known, known};
pub use map::{Map, MapAxis, Spot};
pub use mistake::{FileMistake, ScenarioError};
pub use verdict::{Fate, Outcome, Plan, Row, Seeded, Verdict};

use seawall_policy::ConfigError;

pub(crate) use model::span;
pub(crate) use node::Node;
pub(crate) use policy::{config, params, waits};
pub(crate) use section::{Read, Section};
pub(crate) use server::queue;
pub(crate) use threshold::Unit;

use map::Atlas;
use model::Model;
use threshold::Threshold;

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
    /// Its mistakes, each with its place: all that do not hide behind another.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        read::read(text).map_err(|mistakes| ScenarioError::new(file, text, mistakes))
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

#[cfg(test)]
mod tests;
