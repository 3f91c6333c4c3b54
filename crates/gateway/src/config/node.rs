//! YAML as a tree with places.
//!
//! Scalars stay text: `8080`, `1e3` and `0x10` are what their reader makes of them, not what a
//! YAML schema guesses.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Location, Spanned};

use super::mask::MASK;
use super::report::{Finding, Place};

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) place: Option<Place>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Nothing, `~` or `null`.
    Empty,
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the file; no key twice.
    Map(Vec<Entry>),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Option<Place>,
    pub(super) value: Node,
}

impl Node {
    /// Reads one document. Bounded in depth, size and what aliases may expand to.
    pub(super) fn parse(text: &str) -> Result<Self, Box<Finding>> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: MAX_NODES,
                max_depth: MAX_DEPTH,
                max_documents: 1,
            },
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: MAX_REPLAYED,
                max_replay_stack_depth: MAX_DEPTH,
            },
            duplicate_keys: DuplicateKeyPolicy::Error,
            strict_booleans: true,
            with_snippet: false,
        };
        let parsed = serde_saphyr::from_str_with_options::<Option<Spanned<Raw>>>(text, options);
        match parsed {
            Ok(Some(raw)) => Ok(Self::of(raw, text)),
            Ok(None) => Ok(Self { kind: Kind::Empty, place: None }),
            Err(error) => Err(Box::new(refusal(text, &error))),
        }
    }

    fn of(raw: Spanned<Raw>, text: &str) -> Self {
        let place = place(text, raw.defined);
        let kind = match raw.value {
            Raw::Empty => Kind::Empty,
            Raw::Text(scalar) => Kind::Scalar(scalar),
            // What YAML takes for a number or a truth value is plain, so it is in the file as is.
            Raw::Plain(shown) => Kind::Scalar(place.map_or(shown, |place| {
                text[place.start..place.start + place.len].trim().to_owned()
            })),
            Raw::List(items) => {
                Kind::List(items.into_iter().map(|item| Self::of(item, text)).collect())
            }
            Raw::Map(entries) => {
                let entry = |(key, value): (Spanned<String>, _)| Entry {
                    key_place: self::place(text, key.defined),
                    key: key.value,
                    value: Self::of(value, text),
                };
                Kind::Map(entries.into_iter().map(entry).collect())
            }
        };
        Self { kind, place }
    }
}

/// Where it stands, if that is inside `text` and on whole characters.
fn place(text: &str, location: Location) -> Option<Place> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let len = usize::try_from(span.byte_len()?).ok()?;
    text.get(start..start.checked_add(len)?)?;
    Some(Place { start, len })
}

/// A value as the parser hands it over.
enum Raw {
    Empty,
    /// Taken for a number or a truth value, and how that is written.
    Plain(String),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Empty)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Empty)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Plain(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

/// What the parser refused, in our words where they are better.
fn refusal(text: &str, error: &Error) -> Finding {
    let mut error = error.without_snippet();
    while let Error::AliasError { error: inner, .. } = error {
        error = inner;
    }
    let place = error.location().and_then(|location| spot(text, location));
    let message = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{}` is there twice", super::harmless::key("", key))
        }
        Error::MultipleDocuments { .. }
        | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "only one document is read, and here begins another".to_owned()
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => format!(
            "the file is larger than a configuration may be: at most {MAX_NODES} values, nested \
             {MAX_DEPTH} deep, with at most {MAX_REPLAYED} repeated by aliases"
        ),
        other => {
            let message = other.to_string();
            let end = message.find(" at line ").unwrap_or(message.len());
            let message = unquoted(message[..end].trim_end_matches(['.', ',', ':']));
            format!("this is not YAML: {message}")
        }
    };
    Finding::new("", message).at(place)
}

/// The message without what it quotes of the file, but for a sign or two.
fn unquoted(message: &str) -> String {
    let mut shown = String::new();
    let mut rest = message;
    while let Some(at) = first_quote(rest) {
        let (before, quoted) = rest.split_at(at);
        let quote = &quoted[..1];
        let end = quoted[1..].find(quote).map_or(quoted.len() - 1, |end| end);
        shown.push_str(before);
        let inner = &quoted[1..=end];
        let is_sign = inner.len() <= 2 && !inner.contains(char::is_alphanumeric);
        shown.push_str(quote);
        shown.push_str(if is_sign { inner } else { MASK });
        shown.push_str(quote);
        rest = quoted.get(end + 2..).unwrap_or_default();
    }
    shown.push_str(rest);
    shown
}

/// Where something quoted begins; the apostrophe of "wasn't" begins nothing.
fn first_quote(text: &str) -> Option<usize> {
    let is_apostrophe = |at: usize| {
        text[at..].starts_with('\'') && text[..at].ends_with(|c: char| c.is_ascii_alphabetic())
    };
    let mut quotes = text.match_indices(['\'', '"', '`']).map(|(at, _)| at);
    quotes.find(|at| !is_apostrophe(*at))
}

/// The place of an error, which may be known by line and column alone.
fn spot(text: &str, location: Location) -> Option<Place> {
    if let Some(place) = place(text, location) {
        return Some(Place { len: place.len.max(1), ..place });
    }
    let line = usize::try_from(location.line()).ok()?.checked_sub(1)?;
    let column = usize::try_from(location.column()).ok()?.saturating_sub(1);
    let line_start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(line_start..)?;
    let offset = rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at);
    Some(Place { start: line_start + offset, len: 1 })
}

/// Values in a file. A full house (1,000 routes, 256 upstreams, every key) has about 30,000.
const MAX_NODES: usize = 100_000;
/// Nesting. Ours is 5 deep.
const MAX_DEPTH: usize = 32;
/// Values that aliases may repeat.
const MAX_REPLAYED: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_the_signs_that_it_quotes_and_no_words() {
        for (message, shown) in [
            ("did not find expected ',' or '}'", "did not find expected ',' or '}'"),
            ("unsupported tag `!secret`", "unsupported tag `***`"),
            ("the handle wasn't declared", "the handle wasn't declared"),
            ("that isn't 'secret', but \"x\"", "that isn't '***', but \"***\""),
            ("unexpected character: `secret", "unexpected character: `***`"),
        ] {
            assert_eq!(unquoted(message), shown);
        }
    }
}
