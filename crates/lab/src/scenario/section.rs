//! Reads checked values out of a table, each under its dotted path.

use std::ops::RangeInclusive;
use std::time::Duration;

use seawall_policy::units::{format_duration, parse_duration, parse_rate};
use seawall_policy::{ConfigError, Ratio, Timestamp};

use super::known::{self, Form};
use super::mistake::{Mistake, Wrong};
use super::node::{Entry, Node, Value};

pub(crate) type Read<T> = Result<T, Mistake>;

/// A table under its path.
#[derive(Clone, Debug)]
pub(crate) struct Section<'a> {
    path: String,
    at: usize,
    entries: &'a [Entry],
}

impl<'a> Section<'a> {
    /// The table that `node` is, with no other keys than these.
    pub(crate) fn new(node: &'a Node, path: &str, keys: &[&str]) -> Read<Self> {
        known::table(path, keys);
        let Value::Table(entries) = &node.value else {
            return Err(Mistake::refused(node.at, path, node.shown(), "a table").alone());
        };
        for entry in entries {
            if !keys.contains(&entry.key.as_str()) {
                let near = near_name(&entry.key, keys);
                let help = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("there are {}", keys.join(", ")),
                };
                let said = format!("there is no such key; {help}");
                return Err(Mistake {
                    kind: Wrong::Key(near.map(str::to_owned)),
                    ..Mistake::new(entry.at, &joined(path, &entry.key), said)
                });
            }
        }
        Ok(Self { path: path.to_owned(), at: node.at, entries })
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn node(&self, key: &str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        joined(&self.path, key)
    }

    /// The place of the key, or of the table if it is not there.
    pub(crate) fn at(&self, key: &str) -> usize {
        self.entry(key).map_or(self.at, |entry| entry.node.at)
    }

    pub(crate) fn refused(&self, key: &str, allowed: impl std::fmt::Display) -> Mistake {
        let value = self.node(key).map_or_else(|| "nothing".to_owned(), Node::shown);
        Mistake::refused(self.at(key), &self.path(key), value, allowed)
    }

    pub(crate) fn missing(&self, key: &str) -> Mistake {
        let kind = Wrong::Missing;
        Mistake { kind, ..Mistake::new(self.at, &self.path(key), "is missing") }
    }

    /// What a constructor refuses; at the key of that name, or at the table.
    pub(crate) fn by(&self, error: &ConfigError, key: &str) -> Mistake {
        let key = if self.entry(error.field()).is_some() { error.field() } else { key };
        Mistake::refused(self.at(key), &self.path(key), error.value(), error.allowed())
    }

    /// The table under a key, if it is there.
    pub(crate) fn inner(&self, key: &str, keys: &[&str]) -> Read<Option<Self>> {
        self.node(key).map(|node| Section::new(node, &self.path(key), keys)).transpose()
    }

    /// The table under a key, which must be there.
    pub(crate) fn need(&self, key: &str, keys: &[&str]) -> Read<Self> {
        self.inner(key, keys)?.ok_or_else(|| self.missing(key))
    }

    /// What was read of a key that must be there.
    pub(crate) fn needed<T>(&self, key: &str, read: Option<T>) -> Read<T> {
        read.ok_or_else(|| self.missing(key))
    }

    /// The tables under a key, with their paths; none if it is not there.
    pub(crate) fn list(&self, key: &str) -> Read<Vec<(String, &'a Node)>> {
        self.long_list(key, LONGEST_LIST)
    }

    /// The same of up to so many.
    pub(crate) fn long_list(&self, key: &str, most: usize) -> Read<Vec<(String, &'a Node)>> {
        self.knows(key, || Form::List);
        let Some(node) = self.node(key) else { return Ok(Vec::new()) };
        let Value::List(nodes) = &node.value else {
            return Err(self.refused(key, format!("a list of tables, [[{key}]]")).alone());
        };
        if nodes.len() > most {
            return Err(Mistake::refused(
                node.at,
                &self.path(key),
                format!("{} entries", nodes.len()),
                format!("at most {most}"),
            )
            .alone());
        }
        let path = self.path(key);
        Ok((0..).zip(nodes).map(|(n, node)| (format!("{path}[{n}]"), node)).collect())
    }

    pub(crate) fn text(&self, key: &str) -> Read<Option<&'a str>> {
        self.knows(key, || Form::Text);
        self.word(key)
    }

    fn knows(&self, key: &str, form: impl FnOnce() -> Form) {
        known::form(&self.path(key), form);
    }

    fn word(&self, key: &str) -> Read<Option<&'a str>> {
        match self.node(key).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.refused(key, "a text in quotes").alone()),
        }
    }

    /// A text of this many characters that must be there.
    pub(crate) fn said(&self, key: &str, most: usize) -> Read<String> {
        let text = self.text(key)?.ok_or_else(|| self.missing(key))?.trim();
        if text.is_empty() || text.chars().count() > most {
            return Err(self.refused(key, format!("1 to {most} characters")).alone());
        }
        Ok(text.to_owned())
    }

    /// Texts, each one of `names`; all of these if nothing is said.
    pub(crate) fn names(&self, key: &str, names: &[String]) -> Read<Vec<String>> {
        let mut read = Vec::new();
        known::form(&format!("{}[]", self.path(key)), || Form::Text);
        for (path, node) in self.list(key)? {
            let known = names.iter().find(|name| **name == node.shown());
            let known = known.ok_or_else(|| {
                Mistake::refused(node.at, &path, node.shown(), one_of(names, &node.shown())).alone()
            })?;
            read.push(known.clone());
        }
        Ok(if self.node(key).is_none() { names.to_vec() } else { read })
    }

    pub(crate) fn is_off(&self, key: &str) -> bool {
        self.knows(key, || Form::Words(vec!["off".to_owned()]));
        matches!(self.node(key).map(|node| &node.value), Some(Value::Text(text)) if text == "off")
    }

    pub(crate) fn flag(&self, key: &str) -> Read<Option<bool>> {
        self.knows(key, || Form::Flag);
        match self.node(key) {
            None => Ok(None),
            Some(node) => match (&node.value, node.shown().as_str()) {
                (Value::Bare(_), "true") => Ok(Some(true)),
                (Value::Bare(_), "false") => Ok(Some(false)),
                _ => Err(self.refused(key, "true or false").alone()),
            },
        }
    }

    pub(crate) fn count(&self, key: &str, range: RangeInclusive<u32>) -> Read<Option<u32>> {
        self.knows(key, || Form::Count(*range.start(), *range.end()));
        let Some(node) = self.node(key) else { return Ok(None) };
        let bare = matches!(node.value, Value::Bare(_)).then(|| node.shown().parse().ok());
        let value = bare.flatten().filter(|value| range.contains(value));
        let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
        value.map(Some).ok_or_else(|| self.refused(key, allowed()).alone())
    }

    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Read<Option<f64>> {
        self.knows(key, || Form::Number(*range.start(), *range.end()));
        let Some(node) = self.node(key) else { return Ok(None) };
        let bare = matches!(node.value, Value::Bare(_)).then(|| node.shown().parse().ok());
        let value = bare.flatten().filter(|value| range.contains(value));
        let allowed = || format!("a number from {} to {}", range.start(), range.end());
        value.map(Some).ok_or_else(|| self.refused(key, allowed()).alone())
    }

    pub(crate) fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Read<Option<Duration>> {
        self.knows(key, || Form::Duration);
        let Some(node) = self.node(key) else { return Ok(None) };
        let value = duration(node, &self.path(key))?;
        if range.contains(&value) {
            return Ok(Some(value));
        }
        let (least, most) = (format_duration(*range.start()), format_duration(*range.end()));
        Err(self.refused(key, format!("{least} to {most}")).alone())
    }

    /// A point in virtual time, as the time since its begin.
    pub(crate) fn point(&self, key: &str) -> Read<Option<Timestamp>> {
        let since = self.duration(key, Duration::ZERO..=LONGEST_RUN)?;
        Ok(since.map(|since| Timestamp::ZERO.after(since)))
    }

    /// How many a second.
    pub(crate) fn per_second(&self, key: &str) -> Read<Option<f64>> {
        let Some(text) = self.rate_text(key)? else { return Ok(None) };
        if text == "0/s" {
            return Ok(Some(0.0));
        }
        let rate = parse_rate(text).map_err(|error| self.refused(key, error.allowed()).alone())?;
        Ok(Some(f64::from(rate.count.get()) / rate.period.as_secs_f64()))
    }

    /// How many a second, none too, as a whole number.
    pub(crate) fn whole_per_second(&self, key: &str) -> Read<Option<u32>> {
        let Some(text) = self.rate_text(key)? else { return Ok(None) };
        match (text, parse_rate(text)) {
            ("0/s", _) => Ok(Some(0)),
            (_, Ok(rate)) if rate.period.as_secs() == 1 => Ok(Some(rate.count.get())),
            _ => Err(self.refused(key, "a rate per second, like 10/s, or 0/s").alone()),
        }
    }

    fn rate_text(&self, key: &str) -> Read<Option<&'a str>> {
        self.knows(key, || Form::Rate);
        match self.node(key).map(|node| &node.value) {
            Some(Value::Bare(_)) => {
                Err(self.refused(key, "a period with the number, like 500/s").alone())
            }
            _ => self.word(key),
        }
    }

    pub(crate) fn ratio(&self, key: &str, most: Ratio) -> Read<Option<Ratio>> {
        self.knows(key, || Form::Ratio);
        let Some(node) = self.node(key) else { return Ok(None) };
        let text = node.shown();
        let read =
            text.parse::<Ratio>().map_err(|error| self.refused(key, error.allowed()).alone())?;
        if read > most {
            let most = f64::from(most.millionths()) / 1e4;
            return Err(self.refused(key, format!("0% to {most}%")).alone());
        }
        Ok(Some(read))
    }

    /// A share of the whole.
    pub(crate) fn share(&self, key: &str) -> Read<Option<f64>> {
        let read = self.ratio(key, Ratio::ONE)?;
        Ok(read.map(|ratio| f64::from(ratio.millionths()) / 1e6))
    }

    /// One of a few words.
    pub(crate) fn choice<T: Clone>(&self, key: &str, choices: &[(&str, T)]) -> Read<Option<T>> {
        let words: Vec<_> = choices.iter().map(|(word, _)| (*word).to_owned()).collect();
        self.knows(key, || Form::Words(words.clone()));
        let Some(text) = self.word(key)? else { return Ok(None) };
        let chosen = choices.iter().find(|(word, _)| *word == text);
        let chosen = chosen.ok_or_else(|| self.refused(key, one_of(&words, text)).alone())?;
        Ok(Some(chosen.1.clone()))
    }
}

/// A duration with its unit.
pub(crate) fn duration(node: &Node, path: &str) -> Read<Duration> {
    known::form(path, || Form::Duration);
    match &node.value {
        Value::Text(text) | Value::Bare(text) => parse_duration(text)
            .map_err(|error| Mistake::refused(node.at, path, text, error.allowed()).alone()),
        _ => Err(Mistake::refused(node.at, path, node.shown(), "a duration, like 800ms").alone()),
    }
}

pub(super) fn one_of(names: &[String], given: &str) -> String {
    let words: Vec<_> = names.iter().map(String::as_str).collect();
    match near_name(given, &words) {
        Some(near) => format!("one of {}; did you mean `{near}`?", words.join(", ")),
        None => format!("one of {}", words.join(", ")),
    }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The one of `names` that `given` most looks like, if it looks like any.
fn near_name<'n>(given: &str, names: &[&'n str]) -> Option<&'n str> {
    let given: String = given.chars().take(64).collect();
    let scored = names.iter().map(|name| (strsim::damerau_levenshtein(&given, name), *name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance * 3 <= given.chars().count().max(name.chars().count())).then_some(name)
}

/// Virtual time of a scenario. Source: own choice.
pub(crate) const LONGEST_RUN: Duration = Duration::from_secs(3_600);
/// Entries of one list: cases, arms, thresholds, faults, steps. Source: own choice.
const LONGEST_LIST: usize = 64;
