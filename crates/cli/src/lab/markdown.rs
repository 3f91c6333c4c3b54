//! What came of scenarios as a page of Markdown: a table for every case, baselines beside what is
//! under test, and where those do better.

use std::fmt::Write as _;

use seawall_lab::{Course, Fate, Outcome, Role, Row};

use super::run::Done;

/// The page. It holds no date, no commit and no path, so that equal runs give equal pages.
pub(super) fn page(done: &[Done]) -> String {
    let mut out = String::from(HEAD);
    out.push_str("\n| scenario | verdict | seeds | runs | digest |\n|---|---|---|---|---|\n");
    for Done { scenario, plan, outcome, .. } in done {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| [{0}](#{0}) | {1} | {2} | {3} | `{4:016x}` |",
            scenario.name(),
            outcome.verdict.as_str(),
            plan.seeds.len(),
            outcome.runs,
            outcome.digest,
        );
    }
    for done in done {
        let Done { scenario, outcome, .. } = done;
        let (name, title) = (scenario.name(), cell(scenario.title()));
        let _ = write!(out, "\n## {name}\n\n[{title}](../scenarios/{name}.md).\n");
        let mut rest = &outcome.courses[..];
        while let Some(first) = rest.first() {
            let until = rest.iter().position(|it| it.case != first.case).unwrap_or(rest.len());
            let (case, after) = rest.split_at(until);
            table(&mut out, case, outcome);
            rest = after;
        }
        better(&mut out, outcome);
    }
    out
}

/// The arms of one case.
fn table(out: &mut String, courses: &[Course], outcome: &Outcome) {
    let Some(first) = courses.first() else { return };
    if !first.case.is_empty() {
        let _ = write!(out, "\n### {}\n", cell(&first.case));
    }
    let names: Vec<_> = first.numbers.iter().map(|number| cell(&number.name)).collect();
    let _ = write!(
        out,
        "\n| arm | {} | |\n|---|{}---|\n",
        names.join(" | "),
        "--:|".repeat(names.len())
    );
    for course in courses {
        let numbers: Vec<_> = course
            .numbers
            .iter()
            .map(|number| format!("{} {}", number.shown, number.give_or_take).trim_end().to_owned())
            .collect();
        let arm = cell(&course.arm);
        let arm = if course.role == Role::Test { format!("**{arm}**") } else { arm };
        let _ = writeln!(
            out,
            "| {arm} | {} | {} |",
            numbers.join(" | "),
            judged(course, &outcome.rows)
        );
    }
}

/// What became of an arm in a case.
fn judged(course: &Course, rows: &[Row]) -> String {
    let mine = rows.iter().filter(|row| row.case == course.case && row.arm == course.arm);
    let mine: Vec<_> = mine.collect();
    let of = |fates: &[Fate]| {
        let some = mine.iter().filter(|row| fates.contains(&row.fate));
        some.map(|row| format!("`{}`", row.threshold)).collect::<Vec<_>>().join(", ")
    };
    let (missed, held) = (of(&[Fate::Missed, Fate::Compared(false)]), of(&[Fate::HeldWrongly]));
    let rightly = of(&[Fate::MissedRightly]);
    match course.role {
        _ if mine.is_empty() => "measured beside".to_owned(),
        _ if !missed.is_empty() => format!("misses {missed}"),
        _ if !held.is_empty() => format!("a control that holds {held}"),
        _ if !rightly.is_empty() => format!("control: misses {rightly}, as it must"),
        _ => "holds".to_owned(),
    }
}

/// The thresholds that another arm meets better than any under test, beyond both intervals.
fn better(out: &mut String, outcome: &Outcome) {
    let mut found = String::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in &outcome.rows {
        let key = (row.case.as_str(), row.threshold.as_str());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let of = |role| {
            let same = move |it: &&Row| {
                (it.case.as_str(), it.threshold.as_str()) == key && it.role == role
            };
            // The larger the better.
            let sign = if row.wants_less { -1.0 } else { 1.0 };
            let rows = outcome.rows.iter().filter(same);
            rows.max_by(|a, b| (sign * a.measured.mean).total_cmp(&(sign * b.measured.mean)))
        };
        let (Some(ours), Some(theirs)) = (of(Role::Test), of(Role::Baseline)) else { continue };
        let (least, most) = match row.wants_less {
            true => (theirs.measured, ours.measured),
            false => (ours.measured, theirs.measured),
        };
        // Of one seed nothing is known to be beyond chance.
        if least.mean + least.half < most.mean - most.half {
            let case =
                if row.case.is_empty() { String::new() } else { format!("{}, ", cell(&row.case)) };
            let _ = writeln!(
                found,
                "- {case}`{}`: {} {} with “{}”, {} {} with “{}”.",
                row.threshold,
                theirs.shown,
                theirs.give_or_take,
                cell(&theirs.arm),
                ours.shown,
                ours.give_or_take,
                cell(&ours.arm),
            );
        }
    }
    if !found.is_empty() {
        let _ = write!(
            out,
            "\nA baseline does better than every arm under test, beyond both intervals:\n\n{found}"
        );
    }
}

/// Text within a table or a line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

const HEAD: &str = "# What the scenarios came to

Written by `./dev lab --results`, which runs every scenario with its own seeds; `./dev lab` fails
where this page is not what it would write. Numbers are means over the seeds, with half of the 95 %
interval; what is under test is in bold. What a threshold measures stands first; `amplification`,
`success`, `p50` and `p99` are there for every fleet. Whoever tries once multiplies nothing and
helps nobody: one number without the others tells little.
";
