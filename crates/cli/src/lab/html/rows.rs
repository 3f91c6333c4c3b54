//! The rows of a verdict: what was measured and asked, the margin as a bar, and each seed.

use seawall_lab::{Fate, Row};

use crate::lab::report::escaped;
use crate::lab::svg::Svg;
use crate::lab::table::{command, is_wrong};

/// All rows, and below what went wrong the command that replays it.
pub(super) fn verdicts(rows: &[Row], replay: &str) -> String {
    let mut out = String::from(
        "<table class=\"rows\"><thead><tr><th>arm</th><th>threshold</th><th>measured</th>\
         <th>asked</th><th>margin</th><th>verdict</th></tr></thead>\n",
    );
    let mut case = None;
    for row in rows {
        if case != Some(&row.case) {
            if case.is_some() {
                out.push_str("</tbody>\n");
            }
            out.push_str("<tbody>");
            if !row.case.is_empty() {
                let name = escaped(&row.case);
                out.push_str(&format!("<tr class=\"case\"><th colspan=\"6\">{name}</th></tr>\n"));
            }
            case = Some(&row.case);
        }
        out.push_str(&format!(
            "<tr class=\"{}\"><td>{}</td><td title=\"{}\">{}</td><td>{} <small>{}</small></td>\
             <td>{}</td><td class=\"margin\">{}</td><td>{}</td></tr>\n",
            class(row.fate),
            escaped(&row.arm),
            escaped(&row.asks),
            escaped(&row.threshold),
            escaped(&row.shown),
            escaped(&row.give_or_take),
            escaped(&row.limit_shown),
            bar(row.margin),
            row.fate.as_str(),
        ));
        if is_wrong(row.fate) {
            let command = escaped(&command(replay, row));
            out.push_str(&format!(
                "<tr class=\"replay\"><td colspan=\"6\"><code>{command}</code></td></tr>\n"
            ));
        }
    }
    out.push_str("</tbody></table>\n");
    out
}

/// How far from the limit: to the right what holds, to the left what misses, to the edge if it is
/// as far off as the limit itself or farther.
pub(in crate::lab) fn bar(margin: f64) -> String {
    const HALF: f64 = 50.0;
    let said = match margin.is_finite() {
        true => format!("{:+.1}%", margin * 100.0),
        false => "–".to_owned(),
    };
    let mut svg = Svg::new(2.0 * HALF, 12.0, &format!("margin {said}"));
    let width = if margin.is_nan() { 0.0 } else { margin.clamp(-1.0, 1.0) * HALF };
    svg.rect("track", [0.0, 4.0, 2.0 * HALF, 4.0]);
    let from = HALF + width.min(0.0);
    svg.rect(if width < 0.0 { "misses" } else { "holds" }, [from, 2.0, width.abs(), 8.0]);
    svg.line("zero", [(HALF, 0.0), (HALF, 12.0)]);
    format!("{}<span>{said}</span>", svg.done())
}

/// Every row, seed by seed.
pub(super) fn seeds(rows: &[Row], seeds: &[u64]) -> String {
    let shown = seeds.len().min(MOST_SEEDS);
    let mut out = String::from(
        "<details><summary>Seed by seed</summary><div class=\"scroll\"><table class=\"seeds\">\
         <thead><tr><th>case, arm, threshold</th>",
    );
    seeds[..shown].iter().for_each(|seed| out.push_str(&format!("<th>{seed}</th>")));
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        let name = [row.case.as_str(), &row.arm, &row.threshold];
        let name: Vec<_> = name.into_iter().filter(|part| !part.is_empty()).collect();
        out.push_str(&format!("<tr><th>{}</th>", escaped(&name.join(", "))));
        for seed in &row.seeds[..shown] {
            let misses = seed.margin.is_nan() || seed.margin < 0.0;
            let class = if misses { " class=\"misses\"" } else { "" };
            out.push_str(&format!("<td{class}>{}</td>", escaped(&seed.shown)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
    if shown < seeds.len() {
        out.push_str(&format!("<p class=\"meta\">The first {shown} of {} seeds.</p>", seeds.len()));
    }
    out.push_str("</details>\n");
    out
}

const fn class(fate: Fate) -> &'static str {
    match fate {
        Fate::Held => "held",
        Fate::Missed => "missed",
        Fate::HeldWrongly => "wrong",
        Fate::MissedRightly | Fate::Compared(_) => "beside",
    }
}

/// Seeds that are shown one by one. Source: own choice.
const MOST_SEEDS: usize = 40;
