//! What happened in one run: a call from its begin to its end, or all of them.

use std::io::{self, Write};

use anyhow::bail;
use seawall_lab::{Asked, Plan, Scenario};

use super::run::write_file;
use crate::args::LabRunArgs;

/// Tells the call that is asked for, and writes the events that are.
pub(super) fn write(
    out: &mut impl Write,
    args: &LabRunArgs,
    scenario: &Scenario,
    plan: &Plan,
) -> anyhow::Result<()> {
    if let Some((client, number)) = args.trace {
        let story = scenario.tell(plan, Asked::Call { client, number }, MOST_LINES)?;
        let Some(first) = story.told.first() else {
            bail!("call {client}.{number} never began: clients and their calls count from 0");
        };
        writeln!(out, "  call {client}.{number}, seconds since time zero and since its begin")?;
        for told in &story.told {
            let since = told.at.since(first.at).as_secs_f64();
            let at = told.at.since(seawall_policy::Timestamp::ZERO).as_secs_f64();
            writeln!(out, "  {at:>12.6}  +{since:<10.6}  {}", told.said)?;
        }
        left_out(out, story.left_out)?;
        writeln!(out)?;
    }
    if let Some(path) = &args.events {
        let story = scenario.tell(plan, Asked::All, MOST_LINES)?;
        let mut text = String::new();
        for told in &story.told {
            text.push_str(&told.to_string());
            text.push('\n');
        }
        write_file(path, text)?;
        writeln!(out, "  {} lines in {}", story.told.len(), path.display())?;
        left_out(out, story.left_out)?;
    }
    Ok(())
}

fn left_out(out: &mut impl Write, lines: u64) -> io::Result<()> {
    if lines > 0 {
        writeln!(out, "  and {lines} more, left out")?;
    }
    Ok(())
}

/// Lines that are told. Source: own choice; about 20 MB.
const MOST_LINES: usize = 200_000;
