//! What came of scenarios, for other programs: JSON and JUnit XML.

use seawall_lab::{Fate, Row};
use serde_json::{Value, json};

use super::run::Done;
use super::table::command;

/// Every row with its numbers; what is no number (never) is null.
pub(super) fn json(done: &[Done]) -> serde_json::Result<String> {
    let scenarios: Vec<_> = done
        .iter()
        .map(|Done { scenario, plan, outcome, replay }| {
            json!({
                "name": scenario.name(),
                "title": scenario.title(),
                "verdict": outcome.verdict.as_str(),
                "seeds": plan.seeds,
                "clients": plan.clients,
                "runs": outcome.runs,
                "events": outcome.events,
                "digest": format!("{:016x}", outcome.digest),
                "rows": outcome.rows.iter().map(|it| row(it, replay)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut text = serde_json::to_string_pretty(&json!({"version": 1, "scenarios": scenarios}))?;
    text.push('\n');
    Ok(text)
}

fn row(row: &Row, replay: &str) -> Value {
    json!({
        "case": row.case,
        "arm": row.arm,
        "role": row.role.as_str(),
        "threshold": row.threshold,
        "asks": row.asks,
        "mean": row.measured.mean,
        "half_interval": row.measured.half,
        "shown": row.shown,
        "give_or_take": row.give_or_take,
        "limit": row.limit,
        "margin": row.margin,
        "worst_seed": row.seed,
        "seeds_that_miss": row.misses,
        "fate": word(row.fate),
        "replay": command(replay, row),
    })
}

const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Held => "held",
        Fate::Missed => "missed",
        Fate::MissedRightly => "control_missed",
        Fate::HeldWrongly => "control_held",
        Fate::Compared(true) => "baseline_held",
        Fate::Compared(false) => "baseline_missed",
    }
}

/// One test suite a scenario, one test case a row; baselines are left out.
pub(super) fn junit(done: &[Done]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for Done { scenario, outcome, .. } in done {
        let is_judged = |row: &&Row| !matches!(row.fate, Fate::Compared(_));
        let rows: Vec<_> = outcome.rows.iter().filter(is_judged).collect();
        let count = |fate| rows.iter().filter(|row| row.fate == fate).count();
        let (failures, errors) = (count(Fate::Missed), count(Fate::HeldWrongly));
        text.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\">\n",
            escaped(scenario.name()),
            rows.len(),
        ));
        for row in rows {
            let name = [row.case.as_str(), &row.arm, &row.threshold];
            let name = name.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
            let said = format!("{}: {} (seed {})", row.asks, row.shown, row.seed);
            let inner = match row.fate {
                Fate::Missed => format!("<failure message=\"{}\"/>", escaped(&said)),
                Fate::HeldWrongly => {
                    format!("<error message=\"a control must miss this: {}\"/>", escaped(&said))
                }
                _ => String::new(),
            };
            text.push_str(&format!(
                "    <testcase classname=\"{}\" name=\"{}\">{inner}</testcase>\n",
                escaped(scenario.name()),
                escaped(&name.join(", ")),
            ));
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_an_attribute_is_escaped() {
        assert_eq!(escaped("a<b & \"c\">\n"), "a&lt;b &amp; &quot;c&quot;&gt; ");
    }
}
