//! The section `calls`: when clients call.

use std::time::Duration;

use seawall_policy::Timestamp;

use super::known::{self, Form};
use super::mistake::Mistake;
use super::model::span;
use super::section::{LONGEST_RUN, Read, Section, duration};
use crate::fleet::Calls;
use crate::rate::Rate;
use crate::span::Span;

pub(super) fn calls(section: &Section<'_>) -> Read<Calls> {
    if section.node("steps").is_some() && section.node("rate").is_none() {
        return Err(section.missing("rate"));
    }
    for key in ["again", "over", "then"] {
        if section.node(key).is_some() && section.node("once").is_none() {
            return Err(section.missing("once"));
        }
    }
    let others = ["serial", "closed", "times", "counts", "once"].map(|key| section.node(key));
    match (section.per_second("rate")?, others) {
        (Some(rate), [None, None, None, None, None]) => {
            let mut rate = Rate::constant(rate).map_err(|error| section.by(&error, "rate"))?;
            for (path, node) in section.list("steps")? {
                let step = Section::new(node, &path, &["from", "over", "rate"])?;
                let from = step.point("from")?.ok_or_else(|| step.missing("from"))?;
                let then = step.per_second("rate")?.ok_or_else(|| step.missing("rate"))?;
                let over = step.duration("over", Duration::from_millis(1)..=LONGEST_RUN)?;
                rate = match over {
                    None => rate.then(from, then),
                    Some(over) => rate.ramp(from, over, then),
                }
                .map_err(|error| step.by(&error, "from"))?;
            }
            Ok(Calls::Open(rate))
        }
        (None, [Some(node), None, None, None, None]) => {
            span(node, "calls.serial").map(Calls::Serial)
        }
        (None, [None, Some(node), None, None, None]) => {
            span(node, "calls.closed").map(Calls::Closed)
        }
        (None, [None, None, Some(_), None, None]) => times(section),
        (None, [None, None, None, Some(_), None]) => counts(section),
        (None, [None, None, None, None, Some(_)]) => {
            let at = section.point("once")?.unwrap_or(Timestamp::ZERO);
            let time = |key| {
                let path = section.path(key);
                section.node(key).map(|node| span(node, &path)).transpose()
            };
            let over = section.duration("over", Duration::ZERO..=LONGEST_RUN)?.unwrap_or_default();
            let again = time("again")?.unwrap_or(Span::fixed(Duration::from_secs(1)));
            Ok(Calls::Once { at, over, again, then: time("then")? })
        }
        _ => {
            let said = "needs one of rate, serial, closed, times, counts and once";
            Err(Mistake::new(section.at(""), "calls", said))
        }
    }
}

/// Calls at times that were recorded.
fn times(section: &Section<'_>) -> Read<Calls> {
    let mut times = Vec::new();
    for (path, node) in section.long_list("times", MOST_RECORDED)? {
        let at = Timestamp::ZERO.after(duration(node, &path)?);
        if times.last().is_some_and(|last| at < *last) {
            return Err(Mistake::refused(node.at, &path, node.shown(), "times in their order"));
        }
        times.push(at);
    }
    Ok(Calls::Recorded(times.into()))
}

/// So many calls in each second that was recorded, evenly spaced.
fn counts(section: &Section<'_>) -> Read<Calls> {
    known::form(&section.path("counts[]"), || Form::Count(0, MOST_A_SECOND));
    let mut times = Vec::new();
    for ((path, node), second) in section.long_list("counts", MOST_RECORDED)?.iter().zip(0_u64..) {
        let count = node.shown().parse::<u32>().ok().filter(|count| *count <= MOST_A_SECOND);
        let count = count.ok_or_else(|| {
            let allowed = format!("a whole number up to {MOST_A_SECOND}");
            Mistake::refused(node.at, path, node.shown(), allowed).alone()
        })?;
        let begin = Timestamp::from_millis(second * 1_000);
        times.extend((0..count).map(|n| begin.after(Duration::from_secs(1) * n / count)));
    }
    Ok(Calls::Recorded(times.into()))
}

/// Its keys.
pub(super) const KEYS: [&str; 10] =
    ["rate", "steps", "serial", "closed", "times", "counts", "once", "over", "again", "then"];
/// Entries of a record. Source: own choice.
const MOST_RECORDED: usize = 10_000;
/// Calls in a second of a record. Source: own choice.
const MOST_A_SECOND: u32 = 10_000;
