//! Rules on what the answers of an upstream mean.

use std::ops::RangeInclusive;

use seawall::{HttpRule, HttpRules, Meaning};

use super::matching::{self, Asked};
use super::raw::{RawBodyTest, RawRule};
use super::scope::Scope;

/// Rules with their names in metrics, in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Of each rule; its number, from 0, where it has none of its own.
    pub names: Vec<String>,
    /// The rules.
    pub rules: HttpRules,
}

/// Reads the list of rules.
pub(super) fn rules(scope: &mut Scope<'_>, raw: &[RawRule]) -> Rules {
    if raw.len() > MAX_RULES {
        let allowed = format!("at most {MAX_RULES}");
        scope.refuse("rules", &format!("{} rules", raw.len()), allowed);
    }
    let mut names = Vec::new();
    let mut rules = Vec::new();
    for (i, raw) in raw.iter().take(MAX_RULES).enumerate() {
        let mut inner = scope.inner(&format!("rules[{i}]"));
        let name = name(&mut inner, raw).unwrap_or_else(|| i.to_string());
        if names.contains(&name) {
            inner.refuse("name", &name, "each name once");
        }
        names.push(name);
        rules.push(rule(&mut inner, raw));
    }
    // What it refuses was refused above, with its place.
    Rules { rules: HttpRules::new(rules).unwrap_or_default(), names }
}

fn name(scope: &mut Scope<'_>, raw: &RawRule) -> Option<String> {
    scope.read("name", &raw.name, |text| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        match (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(text.to_owned()),
            false => Err("1 to 64 letters, digits, `-` and `_`"),
        }
    })
}

fn rule(scope: &mut Scope<'_>, raw: &RawRule) -> HttpRule {
    if raw.means.is_none() {
        scope.missing("means", "say what such an answer means, like `means: overloaded`");
    }
    if raw.status.is_empty() && raw.headers.is_empty() && raw.body.is_none() {
        scope.missing("status", "give at least one of `status`, `headers` and `body`");
    }
    let means = scope.choice("means", &raw.means, &MEANINGS).unwrap_or(Meaning::Success);
    let mut rule = HttpRule::new(means);
    for statuses in statuses(scope, &raw.status) {
        rule = rule.status(statuses);
    }
    for condition in matching::headers(scope, &raw.headers, Asked::Answer) {
        rule = rule.header(condition);
    }
    match &raw.body {
        None => rule,
        Some(raw) => {
            let (pointer, equals) = body(&mut scope.inner("body"), raw);
            rule.json(pointer, equals)
        }
    }
}

/// Reads a list of statuses, or of classes of them.
pub(super) fn statuses(scope: &mut Scope<'_>, raw: &[String]) -> Vec<RangeInclusive<u16>> {
    let mut statuses = Vec::new();
    if raw.len() > MAX_STATUSES {
        let allowed = format!("at most {MAX_STATUSES}");
        scope.refuse("status", &format!("{} statuses", raw.len()), allowed);
    }
    for (i, text) in raw.iter().take(MAX_STATUSES).enumerate() {
        let key = format!("status[{i}]");
        let read = scope.read(&key, &Some(text.clone()), |text| {
            let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
            let class = class.filter(|class| (1..=5).contains(class));
            let status = text.parse::<u16>().ok().filter(|it| (100..=599).contains(it));
            match (class, status) {
                (Some(class), _) => Ok(class * 100..=class * 100 + 99),
                (None, Some(status)) => Ok(status..=status),
                (None, None) => Err("a status like 200, or a class of them like 2xx"),
            }
        });
        let Some(read) = read else { continue };
        if statuses.contains(&read) {
            scope.refuse(&key, text, "each once");
        }
        statuses.push(read);
    }
    statuses
}

fn body(scope: &mut Scope<'_>, raw: &RawBodyTest) -> (String, Vec<String>) {
    if raw.pointer.is_none() {
        scope.missing("pointer", "say where in the JSON the code is, like `pointer: /error/code`");
    }
    if raw.equals.is_empty() {
        scope.missing("equals", "list the values that mean it, like `equals: [5031]`");
    }
    if raw.equals.len() > MAX_VALUES {
        let allowed = format!("at most {MAX_VALUES}");
        scope.refuse("equals", &format!("{} values", raw.equals.len()), allowed);
    }
    let pointer = scope.read("pointer", &raw.pointer, |text| {
        let fits = text.len() <= MAX_POINTER && (text.is_empty() || text.starts_with('/'));
        // A tilde writes itself and the slash, and nothing else.
        let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        let allowed = "a JSON pointer, like /error/code, of at most 256 bytes";
        if fits && escapes { Ok(text.to_owned()) } else { Err(allowed) }
    });
    (pointer.unwrap_or_default(), raw.equals.iter().take(MAX_VALUES).cloned().collect())
}

pub(super) const MEANINGS: [(&str, Meaning); 5] = [
    ("success", Meaning::Success),
    ("rejected", Meaning::Rejected),
    ("overloaded", Meaning::Overloaded),
    ("not_processed", Meaning::NotProcessed),
    ("failure", Meaning::Failure),
];
/// Source: seawall-design.
const MAX_RULES: usize = 32;
/// Of one rule. Source: seawall-design.
const MAX_STATUSES: usize = 16;
/// Of one rule. Source: seawall-design.
const MAX_VALUES: usize = 64;
/// Bytes. Source: seawall-design.
const MAX_POINTER: usize = 256;
