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
    let header = ["case", "arm", "threshold", "measured", "asked", "margin"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(outcome.rows.iter().map(cells)).collect();
    for (n, line) in aligned(&rows).iter().enumerate() {
        let fate = n.checked_sub(1).map(|n| outcome.rows[n].fate);
        let last = fate
            .map_or_else(String::new, |fate| painted(fate.as_str(), paint_of_fate(fate), colour));
        writeln!(out, "{}", format!("{line}  {last}").trim_end())?;
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

fn cells(row: &Row) -> [String; 6] {
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
    ]
}

/// Rows as lines, each column as wide as its widest cell; one without any text is left out.
pub(super) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
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

pub(super) fn painted(text: &str, paint: &str, colour: bool) -> String {
    if colour { format!("\x1b[{paint}m{text}\x1b[0m") } else { text.to_owned() }
}

const GREEN: &str = "1;32";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const DIM: &str = "2";
