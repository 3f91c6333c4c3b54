//! What is wrong with a configuration, and how it is shown.
//!
//! A finding names the field, the value, what is allowed, and the place; it is shown with the line
//! of the file and a caret under what is meant:
//!
//! ```text
//! error: upstreams.bridge.timeouts.attempt: `5` is not allowed; give a unit with the number
//!   --> seawall.yaml:6:16
//!    |
//!  6 |       attempt: 5
//!    |                ^
//! ```
//!
//! Errors end up in logs, so a value is shown only where it is known to be harmless (`harmless`),
//! in the message as in the line; any other is `***`.

mod line;

use std::fmt;
use std::sync::Arc;

use super::dump::Given;
use super::harmless::{self, Span};
use super::mask::MASK;
use line::Line;

/// The text of a configuration and what to call it.
#[derive(Debug)]
pub(super) struct Source {
    /// Usually the path as the user gave it.
    pub(super) name: String,
    /// The whole file; empty where there is none.
    pub(super) text: String,
    /// Its keys and values, and which of them may be shown; nothing where it is no YAML.
    pub(super) spans: Option<Vec<Span>>,
}

impl Source {
    pub(super) const fn new(name: String, text: String) -> Self {
        Self { name, text, spans: None }
    }
}

/// A range of bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// One thing to tell about a configuration.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// The field, dotted from the outermost; empty if the file as a whole is meant.
    pub(super) field: String,
    /// The refused value, which begins the message.
    refused: Option<String>,
    /// A fragment that fits after the field and a colon, or after the value.
    pub(super) message: String,
    pub(super) place: Option<Place>,
    /// Another place that belongs to it, and what stands there.
    pub(super) related: Option<(&'static str, Place)>,
    /// What to do.
    pub(super) help: Option<String>,
}

impl Finding {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            refused: None,
            message: message.into(),
            place: None,
            related: None,
            help: None,
        }
    }

    /// The one wording of a refused value.
    pub(super) fn refused(
        field: impl Into<String>,
        value: &str,
        allowed: impl fmt::Display,
    ) -> Self {
        let finding = Self::new(field, format!("is not allowed; give {allowed}"));
        Self { refused: Some(value.to_owned()), ..finding }
    }

    /// Without what may be a secret; `written` is what stands in the file.
    pub(super) fn masked(self, written: Option<&str>) -> Self {
        let refused = self.refused.map(|value| match written {
            Some(written) => harmless::value(&self.field, written),
            None if harmless::is_address(&self.field) => harmless::value(&self.field, &value),
            // Ours: a count, a sum, a default.
            None => shortened(&value),
        });
        Self { field: harmless::field(&self.field), refused, ..self }
    }

    /// Without anything that a variable gave.
    fn scrubbed(self, given: &Given) -> Self {
        let scrub = |text: String| given.scrubbed(text);
        Self { message: scrub(self.message), help: self.help.map(scrub), ..self }
    }

    /// What is wrong, on one line, without the field.
    fn what(&self) -> impl fmt::Display {
        fmt::from_fn(|f| match &self.refused {
            Some(value) => write!(f, "`{value}` {}", self.message),
            None => f.write_str(&self.message),
        })
    }

    /// What is wrong, on one line, with the field.
    fn told(&self) -> impl fmt::Display {
        let colon = if self.field.is_empty() { "" } else { ": " };
        fmt::from_fn(move |f| write!(f, "{}{colon}{}", self.field, self.what()))
    }

    /// All of it on one line.
    fn line(&self, source: &Source) -> String {
        let Source { name, .. } = source;
        let at = |place| {
            let Line { number, column, .. } = Line::of(source, place);
            format!("{name}:{number}:{column}")
        };
        let mut line = format!("{} at {}", self.told(), self.place.map_or(name.clone(), at));
        if let Some((what, place)) = self.related {
            line.push_str(&format!("; {what}: {}", at(place)));
        }
        if let Some(help) = &self.help {
            line.push_str(&format!("; help: {help}"));
        }
        line
    }

    pub(super) fn at(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }

    pub(super) fn beside(self, what: &'static str, place: Option<Place>) -> Self {
        Self { related: place.map(|place| (what, place)), ..self }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// Everything that is wrong with a configuration.
///
/// Displays as the designed text, several lines for each error; without colour unless
/// [`coloured`](Self::coloured).
#[derive(Clone, Debug)]
pub struct ConfigErrors {
    source: Arc<Source>,
    findings: Vec<Finding>,
    unreadable: bool,
}

impl ConfigErrors {
    /// `findings` is not empty.
    pub(super) fn new(source: Arc<Source>, mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.place.map(|place| place.start));
        for finding in findings.iter_mut().filter(|finding| finding.refused.is_some()) {
            // What an alias repeats may be a secret where it was written.
            let is_here = |span: &&Span| Some(span.place) == finding.place;
            if source.spans.iter().flatten().filter(is_here).count() > 1 {
                finding.refused = Some(MASK.to_owned());
            }
        }
        Self { source, findings, unreadable: false }
    }

    /// The file could not be read at all.
    pub(super) fn unreadable(
        name: String,
        why: &std::io::Error,
        help: Option<&'static str>,
    ) -> Self {
        let source = Arc::new(Source::new(name, String::new()));
        let finding = Finding::new("", format!("cannot be read: {why}"));
        let findings = vec![Finding { help: help.map(str::to_owned), ..finding }];
        Self { source, findings, unreadable: true }
    }

    /// With other names for fields, where they are found and where they are spoken of.
    pub(super) fn renamed(mut self, names: &[(impl AsRef<str>, &str)]) -> Self {
        for finding in &mut self.findings {
            for (from, to) in names.iter().map(|(from, to)| (from.as_ref(), *to)) {
                finding.field = finding.field.replace(from, to);
                finding.message = finding.message.replace(from, to);
                finding.help = finding.help.take().map(|help| help.replace(from, to));
            }
        }
        self
    }

    /// Without anything that a variable gave.
    pub(super) fn scrubbed(mut self, given: &Given) -> Self {
        self.findings = self.findings.into_iter().map(|it| it.scrubbed(given)).collect();
        self
    }

    /// Whether nothing could be judged because the file could not be read.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// The number of errors; at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.findings.len()
    }

    /// The fields that are wrong, dotted from the outermost, in the order of the file; empty where
    /// the file as a whole is meant.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().map(|finding| finding.field.as_str())
    }

    /// Each error on a line of its own, for a log: what is wrong, in the same words, and where.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.findings.iter().map(|finding| finding.line(&self.source))
    }

    /// The same text with colours, for a terminal.
    #[must_use]
    pub fn coloured(&self) -> impl fmt::Display {
        fmt::from_fn(|f| self.write(f, &COLOURED))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, paint: &Paint) -> fmt::Result {
        let shown = self.findings.iter().take(SHOWN_FINDINGS);
        for finding in shown {
            write_finding(f, &self.source, finding, "error", paint.error, paint)?;
            writeln!(f)?;
        }
        let (count, name) = (self.count(), &self.source.name);
        match count {
            1 => write!(f, "1 error in {name}"),
            _ if count > SHOWN_FINDINGS => {
                write!(f, "{count} errors in {name}, the first {SHOWN_FINDINGS} shown")
            }
            _ => write!(f, "{count} errors in {name}"),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &PLAIN)
    }
}

impl std::error::Error for ConfigErrors {}

/// Something in a configuration that works, but probably not as meant.
///
/// Displays like an error does; without colour unless [`coloured`](Self::coloured).
#[derive(Clone, Debug)]
pub struct Warning {
    source: Arc<Source>,
    finding: Finding,
}

impl Warning {
    pub(super) fn all(source: &Arc<Source>, mut findings: Vec<Finding>) -> Vec<Self> {
        findings.sort_by_key(|finding| finding.place.map(|place| place.start));
        let wrap = |finding| Self { source: Arc::clone(source), finding };
        findings.into_iter().map(wrap).collect()
    }

    /// Without anything that a variable gave.
    pub(super) fn scrubbed(self, given: &Given) -> Self {
        Self { finding: self.finding.scrubbed(given), ..self }
    }

    /// The field, dotted from the outermost.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.finding.field
    }

    /// What is doubtful about it, on one line, without the field.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.finding.message
    }

    /// The same text with colours, for a terminal.
    #[must_use]
    pub fn coloured(&self) -> impl fmt::Display {
        fmt::from_fn(|f| self.write(f, &COLOURED))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, paint: &Paint) -> fmt::Result {
        write_finding(f, &self.source, &self.finding, "warning", paint.warning, paint)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &PLAIN)
    }
}

/// Escape sequences, or nothing.
struct Paint {
    error: &'static str,
    warning: &'static str,
    strong: &'static str,
    faint: &'static str,
    end: &'static str,
}

const PLAIN: Paint = Paint { error: "", warning: "", strong: "", faint: "", end: "" };
const COLOURED: Paint = Paint {
    error: "\x1b[1;31m",
    warning: "\x1b[1;33m",
    strong: "\x1b[1m",
    faint: "\x1b[34m",
    end: "\x1b[0m",
};

fn write_finding(
    f: &mut fmt::Formatter<'_>,
    source: &Source,
    finding: &Finding,
    word: &str,
    colour: &str,
    paint: &Paint,
) -> fmt::Result {
    let Paint { strong, faint, end, .. } = paint;
    writeln!(f, "{colour}{word}{end}{strong}: {}{end}", finding.told())?;
    let line = finding.place.map(|place| Line::of(source, place));
    let related = finding.related.map(|(what, place)| (what, Line::of(source, place)));
    let number = |line: &Option<Line>| line.as_ref().map_or(0, |line| line.number);
    let widest = number(&line).max(related.as_ref().map_or(0, |(_, line)| line.number));
    let width = widest.to_string().len() + 1;
    match &line {
        Some(line) => line.write(f, &source.name, "-->", width, colour, paint)?,
        None => writeln!(f, "{:width$}{faint}-->{end} {}", "", source.name)?,
    }
    if let Some((what, line)) = related {
        writeln!(f, "{:width$} {faint}={end} {what}:", "")?;
        line.write(f, &source.name, ":::", width, faint, paint)?;
    }
    if let Some(help) = &finding.help {
        writeln!(f, "{:width$} {faint}={end} help: {help}", "")?;
    }
    Ok(())
}

/// The one of `names` that `given` most looks like, if it looks like any.
pub(super) fn near_name<'a>(
    given: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let given: String = given.chars().take(SHOWN_CHARS).collect();
    let scored = names.into_iter().map(|name| (strsim::damerau_levenshtein(&given, name), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    let longer = given.chars().count().max(name.chars().count());
    (distance * 3 <= longer).then_some(name)
}

/// The text on one line, cut to 64 characters.
pub(super) fn shortened(value: &str) -> String {
    let visible = value.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = visible.take(SHOWN_CHARS).collect();
    if value.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    shown
}

/// Errors shown in full; more are counted.
const SHOWN_FINDINGS: usize = 20;
/// Characters of a refused value that are shown.
const SHOWN_CHARS: usize = 64;
