//! A file, from its text to a scenario that was checked.
//!
//! What it says of itself, its cases and arms, the model of each combination, its thresholds, its
//! map, and then what only the whole can tell. What is wrong with one of the first three hides
//! nothing of the others.

use super::known::{self, Form};
use super::map::Atlas;
use super::mistake::Mistake;
use super::model::{Model, kind, sections};
use super::node::{Node, Value};
use super::section::{Read, Section};
use super::threshold::{MOST_NAME, Threshold};
use super::told::Told;
use super::{Arm, Cell, Role, Scenario};
use crate::models::Kind;

pub(super) fn read(text: &str) -> Result<Scenario, Vec<Mistake>> {
    let mut told = Told::default();
    let (file, about) = told.mended(&Node::parse(text)?, about);
    let kind = kind(&file);
    let base = Node { at: 0, ..file.only(&sections()) };
    let (cases, names) = cases(&mut told, &file);
    let arms = arms(&mut told, &file, &names);
    let mut cells = Vec::new();
    for (case, over) in &cases {
        let is_in = |it: &&(Option<Arm>, Node)| {
            it.0.as_ref().zip(case.as_ref()).is_none_or(|(arm, case)| arm.cases.contains(case))
        };
        for (place, (_, node)) in arms.iter().enumerate().filter(|(_, arm)| is_in(arm)) {
            let whole = Node { at: 0, ..base.under(over).under(node) };
            let model = told.read(&whole, |whole| Model::read(whole, kind));
            if let (Some(model), Some(case)) = (model, case) {
                cells.push(Cell { case: case.clone(), arm: place, model, is_asked: true });
            }
        }
    }
    let nodes: Vec<_> = arms.iter().map(|(_, node)| node.clone()).collect();
    let read = arms.into_iter().map(|(arm, _)| arm).collect::<Option<Vec<_>>>();
    // Whoever names a case or an arm cannot be told that it is none, unless all of them are known.
    let (Some(arms), true) = (read, cases.iter().all(|(case, _)| case.is_some())) else {
        return Err(told.all());
    };
    let all: Vec<_> = arms.iter().map(|arm| arm.name.clone()).collect();
    let thresholds = thresholds(&mut told, &file, &names, &arms, kind);
    if !told.is_empty() {
        return Err(told.all());
    }
    let atlas = told.read(&file, |file| {
        Atlas::read(file, &names, &all, |case, arm| {
            let (_, over) = cases.iter().find(|(name, _)| name.as_deref() == Some(case))?;
            let place = arms.iter().position(|known| known.name == arm)?;
            let is_there = arms[place].cases.iter().any(|name| name == case);
            is_there.then(|| base.under(over).under(&nodes[place]))
        })
    });
    let (Some(about), Some(atlas), true) = (about, atlas, told.is_empty()) else {
        return Err(told.all());
    };
    let scenario = Scenario { arms, cells, thresholds, atlas, text: text.to_owned(), ..about };
    check(&mut told, &file, &scenario);
    if told.is_empty() { Ok(scenario) } else { Err(told.all()) }
}

/// What a file says of itself, and that it has no other keys than it may.
fn about(file: &Node) -> Read<Scenario> {
    let section = Section::new(file, "", &keys())?;
    if section.count("schema", 1..=1)?.is_none() {
        return Err(section.missing("schema"));
    }
    let name = section.said("name", MOST_NAME)?;
    if !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
        return Err(section.refused("name", "lower-case letters, digits and dashes").alone());
    }
    Ok(Scenario {
        name,
        title: section.said("title", MOST_TITLE)?,
        shows: section.said("shows", MOST_WORDS)?,
        matters: section.said("matters", MOST_WORDS)?,
        change: section.said("change", MOST_WORDS)?,
        seeds: section.count("seeds", 1..=MOST_SEEDS)?.unwrap_or(SEEDS),
        arms: Vec::new(),
        cells: Vec::new(),
        thresholds: Vec::new(),
        atlas: None,
        text: String::new(),
    })
}

/// All keys of a file.
pub(super) fn keys() -> Vec<&'static str> {
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
    [&about[..], &sections()].concat()
}

/// The tables under a key of the file, with their paths.
fn tables(told: &mut Told, file: &Node, key: &'static str) -> Vec<(String, Node)> {
    let read = |file: &Node| {
        let list = Section::new(file, "", &keys())?.list(key)?;
        Ok(list.into_iter().map(|(path, node)| (path, node.clone())).collect())
    };
    told.read(file, read).unwrap_or_default()
}

/// The cases by name, or one without; and the names. `None` is a name that cannot be read.
fn cases(told: &mut Told, file: &Node) -> (Vec<(Option<String>, Node)>, Vec<String>) {
    let (mut cases, mut names) = (Vec::new(), Vec::new());
    for (path, node) in tables(told, file, "case") {
        let (node, name) = told.mended(&node, |node| {
            let case = Section::new(node, &path, &[&["name"], &sections()[..]].concat())?;
            let name = case.said("name", MOST_NAME)?;
            match names.contains(&name) {
                true => Err(case.refused("name", "each case another name")),
                false => Ok(name),
            }
        });
        names.extend(name.clone());
        cases.push((name, node.only(&sections())));
    }
    if cases.is_empty() {
        names.push(String::new());
        let nothing = Node { at: 0, value: Value::Table(Vec::new()) };
        cases.push((Some(String::new()), nothing));
    }
    (cases, names)
}

/// The arms, each with its sections.
fn arms(told: &mut Told, file: &Node, cases: &[String]) -> Vec<(Option<Arm>, Node)> {
    let mut arms: Vec<(Option<Arm>, Node)> = Vec::new();
    for (path, node) in tables(told, file, "arm") {
        let known: Vec<_> = arms.iter().filter_map(|(arm, _)| arm.as_ref()).cloned().collect();
        let (node, arm) = told.mended(&node, |node| arm(node, &path, cases, &known));
        arms.push((arm, node.only(&sections())));
    }
    arms
}

fn arm(node: &Node, path: &str, cases: &[String], known: &[Arm]) -> Read<Arm> {
    let arm = Section::new(node, path, &arm_keys())?;
    let name = arm.said("name", MOST_NAME)?;
    if known.iter().any(|known| known.name == name) {
        return Err(arm.refused("name", "each arm another name"));
    }
    let roles = [Role::Test, Role::Baseline, Role::Control].map(|role| (role.as_str(), role));
    let role = arm.choice("role", &roles)?.ok_or_else(|| arm.missing("role"))?;
    if (role == Role::Control) != arm.node("misses").is_some() {
        let said = "belongs to a control, and says what it must miss";
        return Err(Mistake::new(arm.at("misses"), &arm.path("misses"), said));
    }
    known::form(&arm.path("misses[]"), || Form::Text);
    let misses: Vec<_> = arm.list("misses")?.iter().map(|(_, node)| node.shown()).collect();
    if role == Role::Control && misses.is_empty() {
        let said = "is empty: a control that may hold everything controls nothing";
        return Err(Mistake::new(arm.at("misses"), &arm.path("misses"), said));
    }
    let cases = arm.names("cases", cases)?;
    Ok(Arm { name, role, misses, cases })
}

fn arm_keys() -> Vec<&'static str> {
    [&["name", "role", "misses", "cases"], &sections()[..]].concat()
}

fn thresholds(
    told: &mut Told,
    file: &Node,
    cases: &[String],
    arms: &[Arm],
    kind: Option<&Kind>,
) -> Vec<Threshold> {
    let names = |arms: &mut dyn Iterator<Item = &Arm>| -> Vec<String> {
        arms.map(|arm| arm.name.clone()).collect()
    };
    let all = names(&mut arms.iter());
    let ours = names(&mut arms.iter().filter(|arm| arm.role == Role::Test));
    let mut thresholds: Vec<Threshold> = Vec::new();
    for (path, node) in tables(told, file, "threshold") {
        let read = told.read(&node, |node| {
            let read = Threshold::read(node, &path, cases, &all, &ours, kind)?;
            if thresholds.iter().any(|known| known.id == read.id) {
                let said = format!("`{}` is there already; give each its own id", read.id);
                return Err(Mistake::new(node.at, &format!("{path}.id"), said));
            }
            Ok(read)
        });
        thresholds.extend(read);
    }
    thresholds
}

/// What only the whole can tell.
fn check(told: &mut Told, file: &Node, scenario: &Scenario) {
    let has = |role| scenario.arms.iter().any(|arm| arm.role == role);
    let at = |key: &str| Section::new(file, "", &keys()).map_or(0, |section| section.at(key));
    if !has(Role::Test) || !has(Role::Control) {
        let said = "needs an arm of role test, and one of role control that must fail";
        told.tell(Mistake::new(at("arm"), "arm", said));
    }
    for ((path, node), arm) in tables(told, file, "arm").iter().zip(&scenario.arms) {
        told.read(node, |node| misses(scenario, arm, node, path));
        let is_held = scenario.cells.iter().any(|cell| {
            scenario.arms[cell.arm].name == arm.name
                && scenario.thresholds.iter().any(|threshold| scenario.applies(threshold, cell))
        });
        if arm.role == Role::Test && !is_held && !scenario.thresholds.is_empty() {
            told.tell(Mistake::new(
                node.at,
                path,
                "is under test, and no threshold is held against it",
            ));
        }
    }
    if scenario.thresholds.is_empty() {
        told.tell(Mistake::new(0, "threshold", "is missing"));
    }
    for ((path, node), held) in tables(told, file, "threshold").iter().zip(&scenario.thresholds) {
        told.read(node, |node| compared(scenario, held, node, path));
    }
}

/// Whether what an arm must miss is there.
fn misses(scenario: &Scenario, arm: &Arm, node: &Node, path: &str) -> Read<()> {
    for (path, node) in Section::new(node, path, &arm_keys())?.list("misses")? {
        let is_met = scenario.thresholds.iter().any(|threshold| {
            threshold.id == node.shown()
                && threshold.cases.iter().any(|case| arm.cases.contains(case))
        });
        if !is_met {
            let allowed = "the id of a threshold that is held against one of its cases";
            return Err(Mistake::refused(node.at, &path, node.shown(), allowed).alone());
        }
    }
    Ok(())
}

/// Whether there is what a threshold is held against, and what it is told by.
fn compared(scenario: &Scenario, threshold: &Threshold, node: &Node, path: &str) -> Read<()> {
    let held = scenario.cells.iter().filter(|cell| scenario.applies(threshold, cell));
    let held: Vec<_> = held.collect();
    if held.is_empty() {
        return Err(Mistake::new(node.at, path, "is held against nothing: see cases and arms"));
    }
    let wrong = |cell: &&Cell| threshold.unmeasured(&cell.model, node, path);
    if let Some(mistake) = held.iter().find_map(wrong) {
        return Err(mistake);
    }
    let Some(of) = &threshold.of else { return Ok(()) };
    let read = Section::new(node, path, &Threshold::KEYS)?;
    let wrong = |said| Err(Mistake::new(read.at("of"), &read.path("of"), said));
    for cell in held {
        if scenario.arms[cell.arm].name == *of {
            return wrong(format!("“{of}” would be held against itself; say what it must be"));
        }
        let is_of = |other: &&Cell| scenario.arms[other.arm].name == *of;
        if !scenario.cells.iter().filter(is_of).any(|other| other.case == cell.case) {
            return wrong(format!("“{of}” is not run in the case “{}”", cell.case));
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
