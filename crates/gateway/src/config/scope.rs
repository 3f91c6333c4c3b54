//! Reading checked values out of the raw text, under a dotted path.
//!
//! A value that is refused becomes a finding, and its default takes its place so that the rest is
//! still checked; comparisons leave refused fields out.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use seawall_policy::{ConfigError, Ratio};

use super::decode::{Notes, joined};
use super::report::{Finding, near_name};
use crate::units::{format_duration, format_size, parse_duration, parse_size};

/// What every check adds to.
#[derive(Debug, Default)]
pub(super) struct Checker {
    pub(super) notes: Notes,
    pub(super) warnings: Vec<Finding>,
}

impl Checker {
    /// The fields under `path`; the empty path is the file.
    pub(super) fn scope(&mut self, path: impl Into<String>) -> Scope<'_> {
        Scope { path: path.into(), checker: self }
    }
}

/// The fields under one dotted path.
#[derive(Debug)]
pub(super) struct Scope<'c> {
    path: String,
    checker: &'c mut Checker,
}

impl Scope<'_> {
    pub(super) fn inner(&mut self, key: &str) -> Scope<'_> {
        Scope { path: joined(&self.path, key), checker: self.checker }
    }

    pub(super) fn path(&self, key: &str) -> String {
        joined(&self.path, key)
    }

    /// The path of what holds these fields.
    pub(super) fn whole(&self) -> &str {
        &self.path
    }

    /// Refuses what holds these fields; shown at its key.
    pub(super) fn refuse_whole(&mut self, finding: Finding) {
        let notes = &mut self.checker.notes;
        let place = notes.key_place(&self.path);
        notes.refuse(finding.at(place));
    }

    pub(super) fn is_written(&self, key: &str) -> bool {
        self.checker.notes.is_written(&self.path(key))
    }

    /// Whether the field was not refused.
    pub(super) fn is_sound(&self, key: &str) -> bool {
        !self.checker.notes.has_failed(&self.path(key))
    }

    /// Refuses the value of a field, once.
    pub(super) fn refuse(&mut self, key: &str, value: &str, allowed: impl Display) {
        let finding = Finding::refused(self.path(key), value, allowed);
        self.refuse_with(key, finding);
    }

    /// Refuses a field in other words.
    pub(super) fn refuse_with(&mut self, key: &str, finding: Finding) {
        let path = self.path(key);
        let notes = &mut self.checker.notes;
        if !notes.has_failed(&path) {
            let place = finding.place.or_else(|| notes.place(&path));
            notes.refuse(finding.at(place));
        }
    }

    /// Refuses something that is not there; shown at the key of what should hold it.
    pub(super) fn missing(&mut self, key: &str, help: impl Into<String>) {
        let path = self.path(key);
        let notes = &mut self.checker.notes;
        let place = notes.key_place(&path);
        if !notes.has_failed(&path) && !notes.has_misspelt(&self.path) {
            notes.refuse(Finding::new(path, "is missing").at(place).help(help));
        }
    }

    /// Warns about a field.
    pub(super) fn warn(&mut self, key: &str, message: impl Into<String>, help: &str) {
        let path = self.path(key);
        let place = self.checker.notes.place(&path);
        self.checker.warnings.push(Finding::new(path, message).at(place).help(help));
    }

    /// The value, if the field is there and `parse`, which says what is allowed, takes it.
    pub(super) fn read<T, A: Display>(
        &mut self,
        key: &str,
        raw: &Option<String>,
        parse: impl FnOnce(&str) -> Result<T, A>,
    ) -> Option<T> {
        let text = raw.as_deref().filter(|_| self.is_sound(key))?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(allowed) => {
                self.refuse(key, text, allowed);
                None
            }
        }
    }

    pub(super) fn duration(
        &mut self,
        key: &str,
        raw: &Option<String>,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        self.read(key, raw, |text| {
            let value = parse_duration(text).map_err(|error| error.allowed().to_owned())?;
            let ends = (format_duration(*range.start()), format_duration(*range.end()));
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(format!("{} to {}", ends.0, ends.1))
            }
        })
    }

    pub(super) fn size(
        &mut self,
        key: &str,
        raw: &Option<String>,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.read(key, raw, |text| {
            let value = parse_size(text).map_err(|error| error.allowed().to_owned())?;
            let ends = (format_size(*range.start()), format_size(*range.end()));
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(format!("{} to {}", ends.0, ends.1))
            }
        })
    }

    pub(super) fn count(
        &mut self,
        key: &str,
        raw: &Option<String>,
        range: RangeInclusive<u32>,
    ) -> Option<u32> {
        self.read(key, raw, |text| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let value = text.parse().ok().filter(|value| digits && range.contains(value));
            value.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    pub(super) fn ratio(
        &mut self,
        key: &str,
        raw: &Option<String>,
        lowest: Ratio,
    ) -> Option<Ratio> {
        self.read(key, raw, |text| {
            let value = text.parse::<Ratio>().map_err(|error| error.allowed().to_owned())?;
            let fits = lowest <= value && value <= Ratio::ONE;
            let above = if lowest == Ratio::ZERO { "0% to 100%" } else { "over 0% up to 100%" };
            if fits { Ok(value) } else { Err(above.to_owned()) }
        })
    }

    pub(super) fn flag(&mut self, key: &str, raw: &Option<String>) -> Option<bool> {
        self.choice(key, raw, &[("true", true), ("false", false)])
    }

    /// One of a few words.
    pub(super) fn choice<T: Clone>(
        &mut self,
        key: &str,
        raw: &Option<String>,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let text = raw.as_deref().filter(|_| self.is_sound(key))?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(value.clone());
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let finding = Finding::refused(self.path(key), text, one_of(&words));
        let near = near_name(text, words);
        self.refuse_with(key, did_you_mean(finding, near));
        None
    }

    /// Refuses `lower` above `upper`; at the field that is written, naming the other.
    pub(super) fn at_most(&mut self, lower: (&str, Duration), upper: (&str, Duration)) {
        if lower.1 <= upper.1 || !self.is_sound(lower.0) || !self.is_sound(upper.0) {
            return;
        }
        let (key, value, word, other) = if self.is_written(lower.0) {
            (lower.0, lower.1, "at most", upper)
        } else {
            (upper.0, upper.1, "at least", lower)
        };
        let whence = if self.is_written(other.0) { "" } else { ", the default" };
        let limit = format_duration(other.1);
        let allowed = format!("{word} {} ({limit}{whence})", other.0);
        let finding = Finding::refused(self.path(key), &format_duration(value), allowed);
        let beside =
            self.is_written(other.0).then(|| self.checker.notes.place(&self.path(other.0)));
        self.refuse_with(key, finding.beside("the other field", beside.flatten()));
    }

    /// What a policy refuses where we did not, under the key it has in the file.
    pub(super) fn refuse_by_policy(&mut self, error: &ConfigError, keys: &[(&str, &str)]) {
        if self.checker.notes.has_failed_within(&self.path) {
            return;
        }
        let field = error.field();
        let key = keys.iter().find(|(name, _)| *name == field).map_or(field, |(_, key)| *key);
        self.refuse(key, error.value(), error.allowed());
    }
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The finding, with a near name if there is one.
pub(super) fn did_you_mean(finding: Finding, near: Option<&str>) -> Finding {
    match near {
        Some(near) => finding.help(format!("did you mean `{near}`?")),
        None => finding,
    }
}
