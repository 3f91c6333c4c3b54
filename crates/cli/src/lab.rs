//! `seawall lab`: scenarios on a simulated fleet, from their files to a verdict.

mod check;
mod compare;
mod html;
mod map;
mod markdown;
mod new;
mod progress;
mod report;
mod run;
mod schema;
mod story;
mod svg;
mod table;

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use seawall_lab::Scenario;

use crate::args::LabCommand;

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
pub const FILES: &[(&str, &str)] = &[
    ("absurd-wait", include_str!("../../../scenarios/absurd-wait.toml")),
    ("all-errors", include_str!("../../../scenarios/all-errors.toml")),
    ("bad-shard", include_str!("../../../scenarios/bad-shard.toml")),
    ("bridges", include_str!("../../../scenarios/bridges.toml")),
    ("burst-collapse", include_str!("../../../scenarios/burst-collapse.toml")),
    ("burst-or-load", include_str!("../../../scenarios/burst-or-load.toml")),
    ("cache-flush", include_str!("../../../scenarios/cache-flush.toml")),
    ("call-chain", include_str!("../../../scenarios/call-chain.toml")),
    ("cascade", include_str!("../../../scenarios/cascade.toml")),
    ("closed-loop", include_str!("../../../scenarios/closed-loop.toml")),
    ("contention", include_str!("../../../scenarios/contention.toml")),
    ("deadlines", include_str!("../../../scenarios/deadlines.toml")),
    ("dependent-calls", include_str!("../../../scenarios/dependent-calls.toml")),
    ("expired-work", include_str!("../../../scenarios/expired-work.toml")),
    ("fair-queue", include_str!("../../../scenarios/fair-queue.toml")),
    ("flapping", include_str!("../../../scenarios/flapping.toml")),
    ("gray-server", include_str!("../../../scenarios/gray-server.toml")),
    ("hedging", include_str!("../../../scenarios/hedging.toml")),
    ("hedging-under-load", include_str!("../../../scenarios/hedging-under-load.toml")),
    ("herd", include_str!("../../../scenarios/herd.toml")),
    ("layers", include_str!("../../../scenarios/layers.toml")),
    ("leaving-callers", include_str!("../../../scenarios/leaving-callers.toml")),
    ("limits", include_str!("../../../scenarios/limits.toml")),
    ("market-open", include_str!("../../../scenarios/market-open.toml")),
    ("neighbour", include_str!("../../../scenarios/neighbour.toml")),
    ("nine-oclock", include_str!("../../../scenarios/nine-oclock.toml")),
    ("overload-step", include_str!("../../../scenarios/overload-step.toml")),
    ("pauses", include_str!("../../../scenarios/pauses.toml")),
    ("pool", include_str!("../../../scenarios/pool.toml")),
    ("queue-admission", include_str!("../../../scenarios/queue-admission.toml")),
    ("queue-discipline", include_str!("../../../scenarios/queue-discipline.toml")),
    ("reconnect-herd", include_str!("../../../scenarios/reconnect-herd.toml")),
    ("recovery-grid", include_str!("../../../scenarios/recovery-grid.toml")),
    ("refresh", include_str!("../../../scenarios/refresh.toml")),
    ("retry-budget", include_str!("../../../scenarios/retry-budget.toml")),
    ("serial-clients", include_str!("../../../scenarios/serial-clients.toml")),
    ("shuffle-sharding", include_str!("../../../scenarios/shuffle-sharding.toml")),
    ("short-of-time", include_str!("../../../scenarios/short-of-time.toml")),
    ("sidecar", include_str!("../../../scenarios/sidecar.toml")),
    ("slow-answers", include_str!("../../../scenarios/slow-answers.toml")),
    ("stability", include_str!("../../../scenarios/stability.toml")),
    ("stall-or-standing", include_str!("../../../scenarios/stall-or-standing.toml")),
    ("stalled-link", include_str!("../../../scenarios/stalled-link.toml")),
    ("tenant-storm", include_str!("../../../scenarios/tenant-storm.toml")),
    ("throttle", include_str!("../../../scenarios/throttle.toml")),
    ("told-when", include_str!("../../../scenarios/told-when.toml")),
    ("trigger-grid", include_str!("../../../scenarios/trigger-grid.toml")),
    ("unsafe-calls", include_str!("../../../scenarios/unsafe-calls.toml")),
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
        LabCommand::Run(args) => return run::run(args),
        LabCommand::Check(args) => return check::check(args),
        LabCommand::Compare(args) => return compare::compare(args),
        LabCommand::Map(args) => return map::map(args),
        LabCommand::New(args) => new::new(args)?,
        LabCommand::Schema => io::stdout().write_all(schema::schema()?.as_bytes())?,
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

/// More bytes than a scenario may have, so that what is too long is told and not cut.
const READ_MOST: u64 = 1 << 20;
