//! `seawall lab compare`: two runs side by side, from what `--json` wrote of each.
//!
//! A row has changed if it is held where it was not, or the other way round, or if its means differ
//! by more than both intervals together. What is in one run only is told as well.

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Judged;
use super::html::{bar, whole};
use super::report::escaped;
use super::run::write_file;
use super::table::{aligned, painted};
use crate::args::LabCompareArgs;
use crate::terminal::wants_colour;

pub(super) fn compare(args: &LabCompareArgs) -> anyhow::Result<Judged> {
    let (before, after) = (rows(&args.before)?, rows(&args.after)?);
    let pairs = pairs(&before, &after);
    terminal(&mut io::stdout(), &pairs, wants_colour(&io::stdout()))?;
    if let Some(path) = &args.html {
        write_file(path, html(&pairs))?;
    }
    let is_worse = |pair: &Pair<'_>| matches!(pair.change(), Change::Broken | Change::Gone);
    Ok(if pairs.iter().any(is_worse) { Judged::Failed } else { Judged::Passed })
}

/// A row of a run, as JSON has it.
struct Row {
    /// Scenario, case, arm and threshold.
    key: [String; 4],
    shown: String,
    mean: Option<f64>,
    /// `None` for one seed: nothing is known then of how sure the mean is.
    half: Option<f64>,
    /// `None` where it is no number, such as never less never.
    margin: Option<f64>,
    fate: String,
}

impl Row {
    fn is_wrong(&self) -> bool {
        ["missed", "control_held"].contains(&self.fate.as_str())
    }
}

/// The same row in both runs, or in one.
struct Pair<'a> {
    before: Option<&'a Row>,
    after: Option<&'a Row>,
}

/// What became of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// What went right goes wrong now.
    Broken,
    /// It is in the first run only.
    Gone,
    /// What went wrong goes right now.
    Mended,
    Worse,
    Better,
    /// It is in the second run only.
    New,
    Alike,
}

impl Change {
    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Broken => ("BROKEN", "1;31"),
            Self::Gone => ("gone", "1;31"),
            Self::Mended => ("mended", "1;32"),
            Self::Worse => ("worse", "33"),
            Self::Better => ("better", "32"),
            Self::New => ("new", "2"),
            Self::Alike => ("alike", "2"),
        }
    }
}

impl Pair<'_> {
    fn key(&self) -> [&str; 4] {
        let row = self.before.or(self.after);
        row.map_or([""; 4], |row| [0, 1, 2, 3].map(|part| row.key[part].as_str()))
    }

    fn change(&self) -> Change {
        let (before, after) = match (self.before, self.after) {
            (Some(before), Some(after)) => (before, after),
            (None, _) => return Change::New,
            (_, None) => return Change::Gone,
        };
        match (before.is_wrong(), after.is_wrong()) {
            (false, true) => return Change::Broken,
            (true, false) => return Change::Mended,
            _ => {}
        }
        let halves = before.half.zip(after.half).map(|(one, other)| one + other);
        let off = before.mean.zip(after.mean).map(|(one, other)| (one - other).abs());
        let is_beyond = match (off, halves) {
            (Some(off), Some(halves)) => off > halves,
            // A number that is none in one of the runs.
            (None, _) => before.mean.is_some() != after.mean.is_some(),
            (_, None) => false,
        };
        match before.margin.unwrap_or(f64::MIN) < after.margin.unwrap_or(f64::MIN) {
            _ if !is_beyond => Change::Alike,
            true => Change::Better,
            false => Change::Worse,
        }
    }
}

/// The rows of a file, in its order.
fn rows(path: &Path) -> anyhow::Result<Vec<Row>> {
    let mut text = String::new();
    let file = fs::File::open(path).with_context(|| format!("read {}", path.display()))?;
    file.take(READ_MOST)
        .read_to_string(&mut text)
        .with_context(|| format!("read {}", path.display()))?;
    let read = || -> anyhow::Result<Vec<Row>> {
        let whole: Value = serde_json::from_str(&text)?;
        if whole["version"] != 1 {
            bail!("version: {} is not allowed; give 1", whole["version"]);
        }
        let mut rows = Vec::new();
        let list = |value: &Value, field: &str| -> anyhow::Result<Vec<Value>> {
            value[field].as_array().cloned().with_context(|| format!("{field}: is missing"))
        };
        for scenario in list(&whole, "scenarios")? {
            let name = word(&scenario, "name")?;
            for value in list(&scenario, "rows")? {
                rows.push(row(&name, &value).with_context(|| format!("a row of {name}"))?);
            }
        }
        Ok(rows)
    };
    read().with_context(|| format!("{}: not what `lab run --json` writes", path.display()))
}

fn row(scenario: &str, value: &Value) -> anyhow::Result<Row> {
    let [case, arm, threshold] =
        [word(value, "case")?, word(value, "arm")?, word(value, "threshold")?];
    let shown = format!("{} {}", word(value, "shown")?, word(value, "give_or_take")?);
    Ok(Row {
        key: [scenario.to_owned(), case, arm, threshold],
        shown: shown.trim_end().to_owned(),
        mean: value["mean"].as_f64(),
        half: value["half_interval"].as_f64(),
        margin: value["margin"].as_f64(),
        fate: word(value, "fate")?,
    })
}

fn word(value: &Value, field: &str) -> anyhow::Result<String> {
    let text = value[field].as_str().map(str::to_owned);
    text.with_context(|| format!("{field}: is missing"))
}

/// The rows of the second run, each beside that of the first, and then those of the first alone.
fn pairs<'a>(before: &'a [Row], after: &'a [Row]) -> Vec<Pair<'a>> {
    let find = |rows: &'a [Row], key: &[String; 4]| rows.iter().find(|row| row.key == *key);
    let both = after.iter().map(|row| Pair { before: find(before, &row.key), after: Some(row) });
    let gone = before.iter().filter(|row| find(after, &row.key).is_none());
    both.chain(gone.map(|row| Pair { before: Some(row), after: None })).collect()
}

fn terminal(out: &mut impl Write, pairs: &[Pair<'_>], colour: bool) -> io::Result<()> {
    let changed: Vec<_> = pairs.iter().filter(|pair| pair.change() != Change::Alike).collect();
    if !changed.is_empty() {
        let header = ["scenario", "case", "arm", "threshold", "before", "after", "margin", ""];
        let cells = |pair: &&Pair<'_>| {
            let shown = |row: Option<&Row>| row.map_or("-", |row| &row.shown).to_owned();
            let margin = |row: Option<&Row>| percent(row.and_then(|row| row.margin));
            let key = pair.key().map(str::to_owned);
            let [scenario, case, arm, threshold] = key;
            [
                scenario,
                case,
                arm,
                threshold,
                shown(pair.before),
                shown(pair.after),
                margin(pair.before),
                format!("→ {}", margin(pair.after)),
            ]
        };
        let rows = std::iter::once(header.map(str::to_owned)).chain(changed.iter().map(cells));
        for (n, line) in aligned(&rows.collect::<Vec<_>>()).iter().enumerate() {
            let (word, paint) = n.checked_sub(1).map_or(("", ""), |n| changed[n].change().row());
            writeln!(out, "{}", format!("{line}  {}", painted(word, paint, colour)).trim_end())?;
        }
    }
    let alike = pairs.len() - changed.len();
    writeln!(out, "  {} changed, {alike} alike", changed.len())
}

fn percent(margin: Option<f64>) -> String {
    margin.map_or_else(|| "-".to_owned(), |margin| format!("{:+.1}%", margin * 100.0))
}

/// All rows, their margins side by side.
fn html(pairs: &[Pair<'_>]) -> String {
    let mut body = String::from(
        "<header><h1>Seawall lab: two runs</h1></header>\n<main><section>\n\
         <p class=\"prose\">A row has changed if it is held where it was not, or the other way round, or \
         if its means differ by more than both intervals together.</p>\n",
    );
    let mut scenario = "";
    for pair in pairs {
        let [name, case, arm, threshold] = pair.key();
        if name != scenario {
            if !scenario.is_empty() {
                body.push_str("</tbody></table>\n");
            }
            body.push_str(&format!(
                "<h3>{}</h3>\n<table class=\"rows pair\"><thead><tr><th>arm</th><th>threshold</th>\
                 <th>before</th><th>margin</th><th>after</th><th>margin</th><th></th></tr></thead>\
                 <tbody>\n",
                escaped(name)
            ));
            scenario = name;
        }
        let side = |row: Option<&Row>| match row {
            None => "<td>–</td><td></td>".to_owned(),
            Some(row) => format!(
                "<td>{}</td><td class=\"margin\">{}</td>",
                escaped(&row.shown),
                bar(row.margin.unwrap_or(f64::NAN)),
            ),
        };
        let arm = [case, arm].into_iter().filter(|part| !part.is_empty());
        let (word, _) = pair.change().row();
        body.push_str(&format!(
            "<tr class=\"{}\"><td>{}</td><td>{}</td>{}{}<td>{word}</td></tr>\n",
            word.to_lowercase(),
            escaped(&arm.collect::<Vec<_>>().join(", ")),
            escaped(threshold),
            side(pair.before),
            side(pair.after),
        ));
    }
    if !scenario.is_empty() {
        body.push_str("</tbody></table>\n");
    }
    body.push_str("</section></main>\n");
    whole("Seawall lab: two runs", &body)
}

/// Bytes of a file that is read. Source: own choice.
const READ_MOST: u64 = 256 << 20;
