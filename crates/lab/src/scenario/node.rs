//! The tree of a file, each value with its place, and one laid over another.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistake::Mistake;

/// A value, and where in the text it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// A number, a date or a truth value, as it is written.
    Bare(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) at: usize,
    pub(crate) node: Node,
}

impl Node {
    /// Reads a file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        if text.len() > FILE_BYTES {
            let allowed = format!("at most {FILE_BYTES} bytes");
            return Err(vec![Mistake::refused(0, "", format!("{} bytes", text.len()), allowed)]);
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Self { at: 0, value: Value::Table(entries(table.get_ref())) });
        }
        let told = |error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start);
            Mistake::new(at, "", format!("not TOML: {}", error.message()))
        };
        Err(errors.into_iter().map(told).collect())
    }

    /// What the first key of a table stands for, at no place of any file.
    pub(super) fn first(self) -> Option<Self> {
        let Value::Table(entries) = self.value else { return None };
        Some(entries.into_iter().next()?.node.nowhere())
    }

    fn nowhere(self) -> Self {
        let value = match self.value {
            Value::List(nodes) => Value::List(nodes.into_iter().map(Self::nowhere).collect()),
            Value::Table(entries) => {
                let nowhere =
                    |entry: Entry| Entry { at: usize::MAX, node: entry.node.nowhere(), ..entry };
                Value::Table(entries.into_iter().map(nowhere).collect())
            }
            plain => plain,
        };
        Self { at: usize::MAX, value }
    }

    /// This, with everything that `over` says in place of what is here. Tables are joined key by
    /// key; all else, lists too, is replaced.
    pub(crate) fn under(&self, over: &Self) -> Self {
        let (Value::Table(below), Value::Table(above)) = (&self.value, &over.value) else {
            return over.clone();
        };
        let mut joined = below.clone();
        for entry in above {
            match joined.iter_mut().find(|known| known.key == entry.key) {
                Some(known) => {
                    let node = known.node.under(&entry.node);
                    *known = Entry { node, ..entry.clone() };
                }
                None => joined.push(entry.clone()),
            }
        }
        Self { at: over.at, value: Value::Table(joined) }
    }

    /// A table of some of this one's entries.
    pub(crate) fn only(&self, keys: &[&str]) -> Self {
        let Value::Table(entries) = &self.value else { return self.clone() };
        let kept = entries.iter().filter(|entry| keys.contains(&entry.key.as_str()));
        Self { at: self.at, value: Value::Table(kept.cloned().collect()) }
    }

    /// Whether it is a table with this key.
    pub(super) fn has(&self, key: &str) -> bool {
        matches!(&self.value, Value::Table(entries) if entries.iter().any(|it| it.key == key))
    }

    /// As it is shown when it is refused.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) | Value::Bare(text) => text.clone(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }
}

fn entries(table: &DeTable<'_>) -> Vec<Entry> {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let text: &std::borrow::Cow<'_, str> = key.get_ref();
        Entry { key: text.clone().into_owned(), at: key.span().start, node: node(value) }
    };
    let mut entries: Vec<_> = table.iter().map(entry).collect();
    // As written, so that what is wrong first is told first.
    entries.sort_by_key(|entry| entry.at);
    entries
}

fn node(value: &Spanned<DeValue<'_>>) -> Node {
    let read = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => Value::Bare(number.to_string()),
        DeValue::Float(number) => Value::Bare(number.to_string()),
        DeValue::Boolean(flag) => Value::Bare(flag.to_string()),
        DeValue::Datetime(time) => Value::Bare(time.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(node).collect()),
        DeValue::Table(table) => Value::Table(entries(table)),
    };
    Node { at: value.span().start, value: read }
}

/// The longest file. Source: own choice.
const FILE_BYTES: usize = 256 * 1024;
