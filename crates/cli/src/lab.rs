//! `seawall lab`: scenarios on a simulated fleet, from their files to a verdict.

mod report;
mod table;

use std::fs;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context as _, bail};
use seawall_lab::{Outcome, Plan, Scenario, Verdict};

use crate::args::{LabCommand, LabRunArgs};
use crate::terminal::wants_colour;

/// What all scenarios of a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// All pass.
    Passed,
    /// At least one fails.
    Failed,
    /// At least one is invalid.
    Invalid,
}

/// The files that are built in.
pub const FILES: [(&str, &str); 4] = [
    ("burst-collapse", include_str!("../../../scenarios/burst-collapse.toml")),
    ("contention", include_str!("../../../scenarios/contention.toml")),
    ("retry-budget", include_str!("../../../scenarios/retry-budget.toml")),
    ("stalled-link", include_str!("../../../scenarios/stalled-link.toml")),
];

/// Does what the command says.
///
/// # Errors
/// A scenario that is not there or not valid, a file that cannot be written.
pub fn lab(command: &LabCommand) -> anyhow::Result<Judged> {
    match command {
        LabCommand::List => list(&mut io::stdout())?,
        LabCommand::Explain(args) => {
            io::stdout().write_all(load(&args.name)?.scenario.page().as_bytes())?;
        }
        LabCommand::Run(args) => return run(args),
    }
    Ok(Judged::Passed)
}

fn list(out: &mut impl Write) -> anyhow::Result<()> {
    let width = FILES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, _) in FILES {
        writeln!(out, "{name:<width$}  {}", load(name)?.scenario.title())?;
    }
    Ok(())
}

/// A scenario, and what it is asked for by.
struct Loaded {
    asked: String,
    scenario: Scenario,
}

/// By name, or from the file at that path.
fn load(asked: &str) -> anyhow::Result<Loaded> {
    let built_in = FILES.iter().find(|(name, _)| *name == asked);
    let (file, text) = match built_in {
        Some((name, text)) => (format!("scenarios/{name}.toml"), (*text).to_owned()),
        None if asked.ends_with(".toml") || Path::new(asked).exists() => {
            (asked.to_owned(), read(asked).with_context(|| format!("read {asked}"))?)
        }
        None => {
            let names: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
            bail!("there is no scenario `{asked}`; there are {}, or give a file", names.join(", "));
        }
    };
    let scenario = Scenario::parse(&file, &text)?;
    Ok(Loaded { asked: asked.to_owned(), scenario })
}

/// A file's text, of no more than can be a scenario.
fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(READ_MOST).read_to_string(&mut text)?;
    Ok(text)
}

fn run(args: &LabRunArgs) -> anyhow::Result<Judged> {
    let names: Vec<_> = match args.names.is_empty() {
        true => FILES.iter().map(|(name, _)| (*name).to_owned()).collect(),
        false => args.names.clone(),
    };
    // All are read before the first is run.
    let loaded = names.iter().map(|name| load(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let colour = wants_colour(&io::stdout());
    let mut done = Vec::new();
    for loaded in &loaded {
        let plan = plan(args, &loaded.scenario);
        let progress = Progress::new(loaded.scenario.name(), loaded.scenario.runs(&plan));
        let outcome = loaded.scenario.run(&plan, |runs| progress.show(runs));
        progress.clear();
        let outcome = outcome.with_context(|| loaded.asked.clone())?;
        table::write(&mut io::stdout(), &loaded.scenario, &outcome, &replay(args, loaded), colour)?;
        done.push((&loaded.scenario, plan, outcome));
    }
    if let Some(path) = &args.json {
        fs::write(path, report::json(&done)?)
            .with_context(|| format!("write {}", path.display()))?;
    }
    if let Some(path) = &args.junit {
        fs::write(path, report::junit(&done))
            .with_context(|| format!("write {}", path.display()))?;
    }
    let verdicts: Vec<_> = done.iter().map(|(.., outcome)| outcome.verdict).collect();
    Ok(match verdicts {
        all if all.contains(&Verdict::Invalid) => Judged::Invalid,
        all if all.contains(&Verdict::Fail) => Judged::Failed,
        _ => Judged::Passed,
    })
}

fn plan(args: &LabRunArgs, scenario: &Scenario) -> Plan {
    let seeds = args.seeds.unwrap_or(scenario.seeds());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Plan {
        seeds: args.seed.map_or_else(|| (0..seeds.into()).collect(), |seed| vec![seed]),
        clients: args.clients,
        threads: args.threads.map_or(cores, usize::from),
    }
}

/// The command that runs a scenario again, but for the seeds.
fn replay(args: &LabRunArgs, loaded: &Loaded) -> String {
    let clients = args.clients.map_or_else(String::new, |clients| format!(" --clients {clients}"));
    format!("seawall lab run {}{clients}", loaded.asked)
}

/// A line that says how far a scenario is, if somebody is there to see it.
struct Progress<'a> {
    name: &'a str,
    runs: usize,
    /// Runs that are shown; whoever comes later with fewer shows nothing.
    shown: Option<Mutex<usize>>,
}

impl<'a> Progress<'a> {
    fn new(name: &'a str, runs: usize) -> Self {
        Self { name, runs, shown: io::stderr().is_terminal().then(Mutex::default) }
    }

    fn show(&self, runs: usize) {
        let Some(Ok(mut shown)) = self.shown.as_ref().map(Mutex::lock) else { return };
        if runs > *shown {
            *shown = runs;
            // A line that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{}: {runs} of {} runs", self.name, self.runs);
        }
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// All that came of a run of scenarios.
type Done<'a> = [(&'a Scenario, Plan, Outcome)];

/// More bytes than a scenario may have, so that what is too long is told and not cut.
const READ_MOST: u64 = 1 << 20;
