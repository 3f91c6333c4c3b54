//! The verdict of a scenario as a table: aligned, and coloured only on a terminal.

use std::io::{self, Write};

use seawall_lab::{Fate, Outcome, Row, Scenario, Verdict};

use super::run::quoted;

/// Writes it, and for each row that went wrong the command that replays its worst seed.
pub(super) fn write(
    out: &mut impl Write,
    scenario: &Scenario,
    outcome: &Outcome,
    replay: &str,
    colour: bool,
) -> io::Result<()> {
    let verdict = outcome.verdict;
    let word = verdict.as_str().to_uppercase();
    let word = painted(&word, paint_of(verdict), colour);
    writeln!(out, "{word}  {}  {}", scenario.name(), scenario.title())?;
    let header = ["case", "arm", "threshold", "measured", "asked", "margin", ""].map(str::to_owned);
    let rows = outcome.rows.iter().map(cells);
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..7).map(|column| width(column).unwrap_or(0)).collect();
    for (n, row) in rows.iter().enumerate() {
        let fate = n.checked_sub(1).map(|n| outcome.rows[n].fate);
        let mut line = String::from(" ");
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0).take(6) {
            line.push_str(&format!(" {cell:<width$} "));
        }
        let last = painted(&row[6], fate.map_or(DIM, paint_of_fate), colour);
        writeln!(out, "{}", format!("{line} {last}").trim_end())?;
    }
    for row in outcome.rows.iter().filter(|row| is_wrong(row.fate)) {
        writeln!(out, "  {}, {}: {}", row.arm, row.threshold, command(replay, row))?;
    }
    let runs = if outcome.runs == 1 { "run" } else { "runs" };
    writeln!(out, "  {} {runs}, digest {:016x}\n", outcome.runs, outcome.digest)
}

/// The one command that replays a row.
pub(super) fn command(replay: &str, row: &Row) -> String {
    let case = match row.case.is_empty() {
        true => String::new(),
        false => format!(" --case {}", quoted(&row.case)),
    };
    let seeds = match row.is_of_mean && row.seeds.len() > 1 {
        true => format!("--seeds {}", row.seeds.len()),
        false => format!("--seed {}", row.seed),
    };
    format!("{replay}{case} --arm {} {seeds}", quoted(&row.arm))
}

pub(super) const fn is_wrong(fate: Fate) -> bool {
    matches!(fate, Fate::Missed | Fate::HeldWrongly)
}

fn cells(row: &Row) -> [String; 7] {
    let margin = match row.margin.is_finite() {
        true => format!("{:+.1}%", row.margin * 100.0),
        false => "-".to_owned(),
    };
    [
        row.case.clone(),
        row.arm.clone(),
        row.threshold.clone(),
        format!("{} {}", row.shown, row.give_or_take).trim_end().to_owned(),
        row.limit_shown.clone(),
        margin,
        row.fate.as_str().to_owned(),
    ]
}

const fn paint_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => GREEN,
        Verdict::Fail => RED,
        Verdict::Invalid => YELLOW,
    }
}

const fn paint_of_fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Held => GREEN,
        Fate::Missed => RED,
        Fate::HeldWrongly => YELLOW,
        Fate::MissedRightly | Fate::Compared(_) => DIM,
    }
}

fn painted(text: &str, paint: &str, colour: bool) -> String {
    if colour { format!("\x1b[{paint}m{text}\x1b[0m") } else { text.to_owned() }
}

const GREEN: &str = "1;32";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const DIM: &str = "2";
