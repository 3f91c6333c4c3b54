//! Every file of `scenarios/`, in a short form: what is under test holds, every control fails, and
//! a wrong policy turns it red.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::fs;
use std::path::PathBuf;

use seawall_lab::{Fate, Outcome, Plan, Scenario, Verdict};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap()
}

fn names() -> Vec<String> {
    names_in(folder())
}

fn names_in(folder: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names = entries.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
    names.sort();
    assert!(names.len() >= 4, "scenarios are found");
    names
}

fn run(name: &str, text: &str, seeds: u64, threads: usize) -> Outcome {
    let scenario = Scenario::parse(&format!("{name}.toml"), text).unwrap_or_else(|error| {
        panic!("{error}");
    });
    assert_eq!(scenario.name(), name, "a file is named as its scenario is");
    let plan = Plan { seeds: (0..seeds).collect(), clients: None, threads };
    scenario.run(&plan, |_| ()).unwrap()
}

fn of(outcome: &Outcome, fate: Fate) -> Vec<String> {
    let rows = outcome.rows.iter().filter(|row| row.fate == fate);
    rows.map(|row| format!("{} {} {}: {}", row.case, row.arm, row.threshold, row.shown)).collect()
}

#[test]
fn every_scenario_passes_and_its_controls_fail() {
    for name in names() {
        let outcome = run(&name, &text(&name), 1, 2);
        let wrong = [of(&outcome, Fate::Missed), of(&outcome, Fate::HeldWrongly)].concat();
        assert_eq!(outcome.verdict, Verdict::Pass, "{name}: {wrong:#?}");
        assert!(!of(&outcome, Fate::MissedRightly).is_empty(), "{name} has a control");
    }
}

/// Too large to be run here; that they can be is all.
#[test]
fn the_scenarios_in_full_size_are_right() {
    for name in names_in(folder().join("full")) {
        let text = text(&format!("full/{name}"));
        let scenario = Scenario::parse(&format!("{name}.toml"), &text);
        assert_eq!(scenario.unwrap_or_else(|error| panic!("{error}")).name(), name);
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for name in ["contention", "burst-collapse"] {
        let [one, two] = [1, 2].map(|threads| run(name, &text(name), 3, threads));
        assert_eq!(format!("{one:?}"), format!("{two:?}"), "{name}");
    }
}

/// The text of a file with one thing said otherwise.
fn changed(name: &str, from: &str, to: &str) -> String {
    let text = text(name);
    assert!(text.contains(from), "{name} says {from}");
    text.replace(from, to)
}

#[test]
fn a_wrong_policy_turns_a_scenario_red() {
    let no_budget = [r#"retry_budget = { ratio = "10%" }"#, r#"retry_budget = "off""#];
    for (name, [from, to], missed) in [
        ("retry-budget", no_budget, "budget of 10% bounded"),
        ("burst-collapse", no_budget, "budget of 10% heals"),
        ("contention", [r#"jitter = "full""#, r#"jitter = "none""#], "full jitter fewer-writes"),
    ] {
        let outcome = run(name, &changed(name, from, to), 1, 2);
        let told = of(&outcome, Fate::Missed);
        assert_eq!(outcome.verdict, Verdict::Fail, "{name}");
        assert!(told.iter().any(|row| row.contains(missed)), "{name}: {told:#?}");
    }
}

#[test]
fn a_control_that_passes_makes_a_scenario_invalid() {
    let naive = "name = \"three at once\"\n";
    let healed = format!("{naive}policy = {{ retry_budget = {{ ratio = \"10%\" }} }}\n");
    let as_control = changed("burst-collapse", naive, &healed);
    let outcome = run("burst-collapse", &as_control, 2, 2);
    assert_eq!(outcome.verdict, Verdict::Invalid);
    assert_eq!(of(&outcome, Fate::HeldWrongly).len(), 1);
}
