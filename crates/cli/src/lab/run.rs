//! `seawall lab run`: runs scenarios, tells their verdicts, and writes what is asked for.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use seawall_lab::{Outcome, Plan, Scenario, Verdict};

use super::progress::Progress;
use super::{FILES, Judged, Loaded, html, load, markdown, report, story, table};
use crate::args::LabRunArgs;
use crate::terminal::wants_colour;

/// A scenario that was run.
pub(super) struct Done {
    pub(super) scenario: Scenario,
    pub(super) plan: Plan,
    pub(super) outcome: Outcome,
    /// The command that runs it again, but for case, arm and seeds.
    pub(super) replay: String,
}

pub(super) fn run(args: &LabRunArgs) -> anyhow::Result<Judged> {
    let names: Vec<_> = match args.names.is_empty() {
        true => FILES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        false => args.names.clone(),
    };
    // All are read before the first is run.
    let loaded = names.iter().map(|name| only(args, name)).collect::<anyhow::Result<Vec<_>>>()?;
    if loaded.len() > 1 && (args.trace.is_some() || args.events.is_some()) {
        bail!("--trace and --events are of one scenario; {} are asked for", loaded.len());
    }
    let colour = wants_colour(&io::stdout());
    let mut done = Vec::new();
    for loaded in loaded {
        let replay = replay(args, &loaded);
        let Loaded { asked, scenario } = loaded;
        let plan = plan(args, &scenario);
        let progress = Progress::new(scenario.name(), scenario.runs(&plan));
        let outcome = scenario.run(&plan, |done| progress.show(done));
        progress.clear();
        let outcome = outcome.with_context(|| asked.clone())?;
        table::write(&mut io::stdout(), &scenario, &outcome, &replay, colour)?;
        if args.trace.is_some() || args.events.is_some() {
            story::write(&mut io::stdout(), args, &scenario, &plan)
                .with_context(|| asked.clone())?;
        }
        done.push(Done { scenario, plan, outcome, replay });
    }
    if let Some(path) = &args.json {
        write_file(path, report::json(&done)?)?;
    }
    if let Some(path) = &args.html {
        write_file(path, html::page(&done))?;
    }
    if let Some(path) = &args.markdown {
        write_file(path, markdown::page(&done))?;
    }
    if let Some(path) = &args.junit {
        write_file(path, report::junit(&done))?;
    }
    let verdicts: Vec<_> = done.iter().map(|done| done.outcome.verdict).collect();
    Ok(match verdicts {
        all if all.contains(&Verdict::Invalid) => Judged::Invalid,
        all if all.contains(&Verdict::Fail) => Judged::Failed,
        _ => Judged::Passed,
    })
}

/// A scenario, or of it the case and the arm that are asked for.
fn only(args: &LabRunArgs, name: &str) -> anyhow::Result<Loaded> {
    let Loaded { asked, scenario } = load(name)?;
    let scenario = scenario.only(args.case.as_deref(), args.arm.as_deref());
    Ok(Loaded { scenario: scenario.with_context(|| asked.clone())?, asked })
}

fn plan(args: &LabRunArgs, scenario: &Scenario) -> Plan {
    let seeds = args.seeds.unwrap_or(scenario.seeds());
    Plan {
        seeds: args.seed.map_or_else(|| (0..seeds.into()).collect(), |seed| vec![seed]),
        clients: args.clients,
        threads: threads(args.threads),
    }
}

/// Threads that are asked for, or one for each core.
pub(super) fn threads(asked: Option<u16>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or(cores, usize::from)
}

pub(super) fn write_file(path: &Path, text: String) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn replay(args: &LabRunArgs, loaded: &Loaded) -> String {
    let clients = args.clients.map_or_else(String::new, |clients| format!(" --clients {clients}"));
    format!("seawall lab run {}{clients}", quoted(&loaded.asked))
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_one_word() {
        assert_eq!(quoted("scenarios/a-b_1.toml"), "scenarios/a-b_1.toml");
        assert_eq!(quoted("budget of 10%"), "'budget of 10%'");
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(quoted(""), "''");
    }
}
