//! What came of scenarios, for a person: one page of HTML that needs nothing else.
//!
//! No script, no font, no picture, nothing from a network: the style and the plots are within. It
//! holds no date and no path of a machine, so equal runs give equal pages.

mod charts;
mod rows;

use std::fmt::Write as _;

use seawall_lab::{Course, Verdict};
use seawall_policy::StopReason;

use super::report::escaped;
use super::run::Done;
use super::svg::Svg;
pub(super) use rows::bar;

use charts::{LEVELS, LINES, Scale};

/// The page of a run.
pub(super) fn page(done: &[Done]) -> String {
    let verdicts: Vec<_> = done.iter().map(|done| done.outcome.verdict).collect();
    let worst = [Verdict::Invalid, Verdict::Fail].into_iter().find(|it| verdicts.contains(it));
    let worst = worst.unwrap_or(Verdict::Pass);
    let mut body = format!("<header><h1>Seawall lab {}</h1>\n", chip(worst));
    if done.len() > 1 {
        body.push_str("<nav aria-label=\"Scenarios\"><ul>\n");
        for Done { scenario, outcome, .. } in done {
            body.push_str(&format!(
                "<li><a href=\"#{0}\">{0}</a> {1} <span>{2}</span></li>\n",
                escaped(scenario.name()),
                chip(outcome.verdict),
                escaped(scenario.title()),
            ));
        }
        body.push_str("</ul></nav>\n");
    }
    body.push_str("</header>\n<main>\n");
    done.iter().for_each(|done| body.push_str(&scenario(done)));
    body.push_str("</main>\n");
    whole(&format!("Seawall lab: {}", worst.as_str()), &body)
}

/// A page with this body.
pub(super) fn whole(title: &str, body: &str) -> String {
    let (title, version) = (escaped(title), env!("CARGO_PKG_VERSION"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <footer>seawall {version}. Simulated on virtual time; equal seeds, equal bytes.</footer>\n\
         </body>\n</html>\n"
    )
}

pub(super) fn chip(verdict: Verdict) -> String {
    format!("<b class=\"chip {0}\">{0}</b>", verdict.as_str())
}

fn scenario(done: &Done) -> String {
    let Done { scenario, plan, outcome, replay } = done;
    let mut out = String::new();
    let (name, title) = (escaped(scenario.name()), escaped(scenario.title()));
    let seeds = match plan.seeds[..] {
        [seed] => format!("seed {seed}"),
        _ => format!("{} seeds", plan.seeds.len()),
    };
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<section id=\"{name}\">\n<h2>{title} {}</h2>\n<p class=\"meta\">{name} · {seeds} · {} runs · \
         digest {:016x}</p>\n<p class=\"prose\">{}</p>\n",
        chip(outcome.verdict),
        outcome.runs,
        outcome.digest,
        escaped(scenario.shows()),
    );
    out.push_str(&rows::verdicts(&outcome.rows, replay));
    let mut rest = &outcome.courses[..];
    while let Some(first) = rest.first() {
        let until = rest.iter().position(|it| it.case != first.case).unwrap_or(rest.len());
        let (case, after) = rest.split_at(until);
        out.push_str(&of_case(&case.iter().collect::<Vec<_>>()));
        rest = after;
    }
    out.push_str(&rows::seeds(&outcome.rows, &plan.seeds));
    let _ = write!(
        out,
        "<details><summary>The file</summary><pre>{}</pre></details>\n\
         <h3>Run it again</h3>\n<pre><code>{}</code></pre>\n</section>\n",
        text(scenario.text()),
        escaped(&format!("{replay} --seeds {}", plan.seeds.len())),
    );
    out
}

/// The arms of one case side by side, on one scale.
fn of_case(courses: &[&Course]) -> String {
    let scale = Scale::of(courses);
    let case = courses.first().map_or("", |course| &course.case);
    let heading = if case.is_empty() { "Arm by arm" } else { case };
    let mut out = format!("<h3>{}</h3>\n", escaped(heading));
    if scale.has_seconds() {
        out.push_str(&legend(scale.has_answers()));
    }
    out.push_str("<div class=\"cards\">\n");
    courses.iter().for_each(|course| out.push_str(&card(course, &scale)));
    out.push_str("</div>\n");
    out
}

fn legend(has_answers: bool) -> String {
    let mut out = String::from("<p class=\"legend\">");
    for (class, name, _) in LINES.iter().rev() {
        let mut svg = Svg::new(26.0, 10.0, "");
        svg.line(&format!("{class} line"), [(0.0, 5.0), (26.0, 5.0)]);
        out.push_str(&format!("<span>{} {name}</span>", svg.done()));
    }
    if has_answers {
        let mut svg = Svg::new(LEVELS as f64 * 12.0, 10.0, "");
        for level in 0..LEVELS {
            svg.rect(&format!("heat h{level}"), [level as f64 * 12.0, 0.0, 12.0, 10.0]);
        }
        let swatch = svg.done();
        out.push_str(&format!("<span class=\"wide\">few {swatch} many answers</span>"));
    }
    out.push_str("<span><i class=\"band\"></i> a fault</span></p>\n");
    out
}

fn card(course: &Course, scale: &Scale) -> String {
    let mut out = format!(
        "<article class=\"card\"><h4>{} <small>{}</small></h4>\n",
        escaped(&course.arm),
        course.role.as_str(),
    );
    if scale.has_seconds() {
        let figure = |title: &str, svg: String| {
            format!("<figure><figcaption>{title}</figcaption>{svg}</figure>\n")
        };
        out.push_str(&figure("calls and attempts a second", charts::traffic(course, scale)));
        if scale.has_answers() {
            out.push_str(&figure("how long answers took", charts::heat(course, scale)));
        }
        out.push_str(&stops(course));
    }
    out.push_str("<dl>");
    for number in &course.numbers {
        out.push_str(&format!(
            "<div><dt>{}</dt><dd>{} <small>{}</small></dd></div>",
            escaped(&number.name),
            escaped(&number.shown),
            escaped(&number.give_or_take),
        ));
    }
    out.push_str("</dl></article>\n");
    out
}

/// Why calls that were not answered were not tried again.
fn stops(course: &Course) -> String {
    let all: u64 = course.stops.iter().sum();
    let is_end =
        |(reason, count): &(StopReason, u64)| *reason != StopReason::Answered && *count > 0;
    let mut ends: Vec<_> = StopReason::ALL.into_iter().zip(course.stops).filter(is_end).collect();
    ends.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let failed: u64 = ends.iter().map(|(_, count)| count).sum();
    if failed == 0 {
        return "<p class=\"stops\">Every call that ended was answered.</p>\n".to_owned();
    }
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let percent = |share: f64| match share * 100.0 {
        little if little < 0.1 => "< 0.1%".to_owned(),
        percent => format!("{percent:.1}%"),
    };
    let mut svg = Svg::new(360.0, 14.0, "Why not tried again");
    let mut from = 0.0;
    let mut items = String::new();
    for (reason, count) in ends {
        let width = 360.0 * share(count, failed);
        let class = format!("stop s{}", reason.index());
        svg.rect(&class, [from, 0.0, (width - 1.0).max(0.5), 14.0]);
        from += width;
        items.push_str(&format!(
            "<li><i class=\"{class}\"></i> {} {}</li>",
            reason.as_str().replace('_', " "),
            percent(share(count, failed)),
        ));
    }
    format!(
        "<div class=\"stops\"><p>{} of ended calls had no answer. Why not tried again:</p>{}<ul>{items}</ul></div>\n",
        percent(share(failed, all)),
        svg.done(),
    )
}

/// A text of several lines, its lines kept.
fn text(text: &str) -> String {
    text.trim_end().lines().map(escaped).collect::<Vec<_>>().join("\n")
}

const STYLE: &str = include_str!("html/style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_text_stay_lines_and_are_escaped() {
        assert_eq!(text("a <b>\n\tc & d\n\n"), "a &lt;b&gt;\n c &amp; d");
    }
}
