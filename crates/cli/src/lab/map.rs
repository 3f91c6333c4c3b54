//! `seawall lab map`: from which loads and triggers a fleet recovers, as a map.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use seawall_lab::{Map, Plan, Scenario, Spot};
use serde_json::{Value, json};

use super::html::whole;
use super::progress::Progress;
use super::report::escaped;
use super::run::{quoted, threads, write_file};
use super::svg::{Anchor, Svg};
use super::{Judged, load};
use crate::args::LabMapArgs;
use crate::terminal::wants_colour;

pub(super) fn map(args: &LabMapArgs) -> anyhow::Result<Judged> {
    let loaded = load(&args.name)?;
    let scenario = &loaded.scenario;
    let seeds = (0..u64::from(args.seeds)).collect();
    let plan = Plan { seeds, clients: args.clients, threads: threads(args.threads) };
    let progress = Progress::new(scenario.name(), scenario.map_runs(plan.seeds.len()));
    let done = AtomicUsize::new(0);
    let map =
        scenario.map(&plan, || progress.show(done.fetch_add(1, Ordering::Relaxed) as f64 + 1.0));
    progress.clear();
    let map = map.with_context(|| loaded.asked.clone())?;
    let replay = format!("seawall lab map {} --seeds {}", quoted(&loaded.asked), args.seeds);
    terminal(&mut io::stdout(), scenario, &map, wants_colour(&io::stdout()))?;
    if let Some(path) = &args.json {
        write_file(path, json(scenario, &map)?)?;
    }
    if let Some(path) = &args.html {
        write_file(path, html(scenario, &map, &replay))?;
    }
    Ok(if map.here().is_some_and(Spot::recovers) { Judged::Passed } else { Judged::Failed })
}

/// How soon a spot recovers: its sign, its name, how it is painted, and its class in the picture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    AtOnce,
    Soon,
    Late,
    Very,
    Some,
    Never,
}

impl Fate {
    const ALL: [(Self, &'static str, &'static str, &'static str); 6] = [
        (Self::AtOnce, "·", "within 1 s", "32"),
        (Self::Soon, "░", "within 10 s", "32"),
        (Self::Late, "▒", "within 60 s", "33"),
        (Self::Very, "▓", "later", "33"),
        (Self::Some, "◐", "not with every seed", "35"),
        (Self::Never, "█", "never", "31"),
    ];

    fn of(spot: &Spot) -> Self {
        match spot.never {
            0 => match spot.recovery.mean {
                seconds if seconds <= 1.0 => Self::AtOnce,
                seconds if seconds <= 10.0 => Self::Soon,
                seconds if seconds <= 60.0 => Self::Late,
                _ => Self::Very,
            },
            never if never == spot.seeds => Self::Never,
            _ => Self::Some,
        }
    }

    fn row(self) -> (&'static str, &'static str, &'static str) {
        let row = Self::ALL.iter().find(|(fate, ..)| *fate == self);
        row.map_or(("", "", ""), |(_, sign, name, paint)| (sign, name, paint))
    }

    const fn class(self) -> &'static str {
        match self {
            Self::AtOnce => "m0",
            Self::Soon => "m1",
            Self::Late => "m2",
            Self::Very => "m3",
            Self::Some => "m4",
            Self::Never => "m5",
        }
    }
}

/// The maps of the third axis, or the one map: its place on that axis, and its name.
fn panels(map: &Map) -> Vec<(Vec<usize>, String)> {
    match &map.axes[..] {
        [_, _, third] => {
            let named = third.points.iter().enumerate();
            named.map(|(at, point)| (vec![at], format!("{} {point}", third.name))).collect()
        }
        _ => vec![(Vec::new(), String::new())],
    }
}

fn terminal(out: &mut impl Write, scenario: &Scenario, map: &Map, colour: bool) -> io::Result<()> {
    let [across, up, ..] = &map.axes[..] else { return Ok(()) };
    let width = |names: &[String]| names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = width(&up.points).max(up.name.chars().count());
    let cell = width(&across.points).max(3) + 2;
    writeln!(out, "{}: {}", scenario.name(), scenario.title())?;
    for (panel, name) in panels(map) {
        writeln!(out, "\n  {}", [&map.arm, &name].map(String::as_str).join("  ").trim_end())?;
        writeln!(out, "  {:>left$}", up.name)?;
        for (row, point) in up.points.iter().enumerate().rev() {
            let mut line = format!("  {point:>left$} ");
            for column in 0..across.points.len() {
                let at = [&[column, row], &panel[..]].concat();
                let Some(spot) = map.spot(&at) else { continue };
                let (sign, _, paint) = Fate::of(spot).row();
                let sign = match colour {
                    true => format!("\x1b[{paint}m{sign}\x1b[0m"),
                    false => sign.to_owned(),
                };
                let sign = if at == map.here { format!("[{sign}]") } else { format!(" {sign} ") };
                line.push_str(&format!("{sign}{:1$}", "", cell - 3));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        write!(out, "  {:left$} ", "")?;
        across.points.iter().try_for_each(|point| write!(out, "{point:<cell$}"))?;
        writeln!(out, "{}", across.name)?;
    }
    let signs: Vec<_> =
        Fate::ALL.iter().map(|(_, sign, name, _)| format!("{sign} {name}")).collect();
    writeln!(out, "\n  recovers: {}   [ ] here", signs.join("   "))?;
    said(map).iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    writeln!(out, "  {} runs, {} events, digest {:016x}", map.runs, map.events, map.digest)
}

/// What the map comes to, in sentences.
fn said(map: &Map) -> Vec<String> {
    let [across, ..] = &map.axes[..] else { return Vec::new() };
    let name = |axis: usize, at: usize| &map.axes[axis].points[at];
    let others: Vec<_> = (1..map.axes.len())
        .map(|axis| format!("{} {}", map.axes[axis].name, name(axis, map.here[axis])))
        .collect();
    let others = others.join(", ");
    let mut lines = Vec::new();
    let here = name(0, map.here[0]);
    lines.push(match map.reach(&map.here[1..]) {
        None => format!("{others}: does not recover at any {} shown", across.name),
        Some(reach) => {
            let margin = map.margin().map_or_else(String::new, |margin| {
                format!(", a margin of {:+.1}%", margin * 100.0)
            });
            let reach = name(0, reach.at[0]);
            format!("{others}: recovers up to {} {reach}; here {here}{margin}", across.name)
        }
    });
    if let Some(advice) = map.here().and_then(|spot| spot.advice.as_ref()) {
        lines.push(format!("advice: {advice}"));
    }
    lines
}

/// All spots, and the margin as a number.
fn json(scenario: &Scenario, map: &Map) -> serde_json::Result<String> {
    let points = |at: &[usize]| -> Value {
        let named = map.axes.iter().zip(at);
        named
            .map(|(axis, at)| (axis.name.clone(), json!(axis.points[*at])))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let spots: Vec<_> = map
        .spots
        .iter()
        .map(|spot| {
            json!({
                "at": points(&spot.at),
                "load_ratio": spot.load,
                "seeds": spot.seeds,
                "seeds_that_never_recover": spot.never,
                "recovery_seconds": (spot.never < spot.seeds).then_some(spot.recovery.mean),
                "advice": spot.advice,
            })
        })
        .collect();
    let reach = map.reach(&map.here[1..]);
    let mut text = serde_json::to_string_pretty(&json!({
        "version": 1,
        "name": scenario.name(),
        "arm": map.arm,
        "case": map.case,
        "here": points(&map.here),
        "here_recovers": map.here().is_some_and(Spot::recovers),
        "here_load_ratio": map.here().and_then(|spot| spot.load),
        "largest_load_ratio_that_recovers": reach.and_then(|spot| spot.load),
        "margin_ratio": map.margin(),
        "runs": map.runs,
        "events": map.events,
        "digest": format!("{:016x}", map.digest),
        "spots": spots,
    }))?;
    text.push('\n');
    Ok(text)
}

/// A page with a picture for each map.
fn html(scenario: &Scenario, map: &Map, replay: &str) -> String {
    let mut body = format!(
        "<header><h1>Seawall lab: stability map</h1></header>\n<main><section>\n<h2>{}</h2>\n\
         <p class=\"meta\">{} · {} · {} runs · digest {:016x}</p>\n",
        escaped(scenario.title()),
        escaped(scenario.name()),
        escaped(&map.arm),
        map.runs,
        map.digest,
    );
    said(map)
        .iter()
        .for_each(|line| body.push_str(&format!("<p class=\"prose\">{}</p>\n", escaped(line))));
    body.push_str("<p class=\"legend\">seconds until it recovers:");
    for (fate, _, name, _) in Fate::ALL {
        let mut svg = Svg::new(26.0, 10.0, "");
        svg.rect(fate.class(), [0.0, 0.0, 26.0, 10.0]);
        body.push_str(&format!("<span>{} {name}</span>", svg.done()));
    }
    body.push_str(
        "<span><i class=\"here\"></i> operating point</span></p>\n<div class=\"cards\">\n",
    );
    for (panel, name) in panels(map) {
        let heading = if name.is_empty() { &map.arm } else { &name };
        body.push_str(&format!(
            "<article class=\"card\"><h4>{}</h4><figure>{}</figure></article>\n",
            escaped(heading),
            picture(map, &panel),
        ));
    }
    body.push_str(&format!(
        "</div>\n<h3>Draw it again</h3>\n<pre><code>{}</code></pre>\n</section></main>\n",
        escaped(replay)
    ));
    whole("Seawall lab: stability map", &body)
}

fn picture(map: &Map, panel: &[usize]) -> String {
    const LEFT: f64 = 52.0;
    const WIDTH: f64 = 300.0;
    const ROW: f64 = 26.0;
    const TOP: f64 = 18.0;
    let [across, up, ..] = &map.axes[..] else { return String::new() };
    let height = up.points.len() as f64 * ROW;
    let wide = WIDTH / across.points.len() as f64;
    let said = format!("Recovery by {} and {}", across.name, up.name);
    let mut svg = Svg::new(LEFT + WIDTH + 8.0, TOP + height + 34.0, &said);
    let y = |row: usize| TOP + height - (row + 1) as f64 * ROW;
    svg.text("axis", (LEFT - 6.0, TOP - 6.0), Anchor::End, &up.name);
    for (row, point) in up.points.iter().enumerate() {
        svg.text("axis", (LEFT - 6.0, y(row) + ROW / 2.0 + 4.0), Anchor::End, point);
        for column in 0..across.points.len() {
            let Some(spot) = map.spot(&[&[column, row], panel].concat()) else { continue };
            let fate = Fate::of(spot);
            let from = LEFT + column as f64 * wide;
            svg.rect(fate.class(), [from, y(row), wide - 1.0, ROW - 1.0]);
            let text = match fate {
                Fate::Never => "never".to_owned(),
                Fate::Some => format!("{}/{}", spot.seeds - spot.never, spot.seeds),
                _ => format!("{:.0}", spot.recovery.mean),
            };
            let at = (from + wide / 2.0, y(row) + ROW / 2.0 + 4.0);
            svg.text(&format!("on {}", fate.class()), at, Anchor::Middle, &text);
        }
    }
    for (column, point) in across.points.iter().enumerate() {
        let at = (LEFT + (column as f64 + 0.5) * wide, TOP + height + 14.0);
        svg.text("axis", at, Anchor::Middle, point);
    }
    svg.text("axis", (LEFT + WIDTH, TOP + height + 29.0), Anchor::End, &across.name);
    if map.here[2..] == *panel {
        let at = [LEFT + map.here[0] as f64 * wide, y(map.here[1]), wide - 1.0, ROW - 1.0];
        svg.rect("here", at);
    }
    svg.done()
}
