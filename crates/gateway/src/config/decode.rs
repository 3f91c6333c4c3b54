//! From the tree to the raw structs, without stopping at the first mistake.
//!
//! The raw structs derive `Deserialize`; this deserializer drives them. It knows the keys of a
//! struct when serde asks for it, so it refuses an unknown key itself, with its place and the
//! nearest name, leaves it out, and goes on. Nothing it hands to serde can fail; a mistake becomes
//! a finding and its field is marked as unusable.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::env::{self, Lookup};
use super::harmless;
use super::mask::MASK;
use super::node::{Entry, Kind, Node};
use super::report::{Finding, Place, near_name};

/// What was learned beside the values.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Of each written field, by dotted path: where its key (or, in a list, its value) stands, and
    /// where its value.
    places: BTreeMap<String, (Option<Place>, Option<Place>)>,
    /// What stands in the file, of fields with a single value; variables as they are written.
    scalars: BTreeMap<String, String>,
    /// Fields whose value cannot be used.
    failed: BTreeSet<String>,
    /// Maps with an unknown key, which may be a misspelt one.
    misspelt: BTreeSet<String>,
    pub(super) findings: Vec<Finding>,
}

impl Notes {
    /// Whether the field is in the file.
    pub(super) fn is_written(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Whether the field or what holds it was refused.
    pub(super) fn has_failed(&self, path: &str) -> bool {
        self.failed.contains(path) || parent(path).is_some_and(|parent| self.has_failed(parent))
    }

    /// Whether the field, or anything in it, was refused.
    pub(super) fn has_failed_within(&self, path: &str) -> bool {
        let within = |failed: &String| {
            failed.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        self.has_failed(path) || self.failed.iter().any(within)
    }

    /// Whether what is missing in this map may be there under a wrong name.
    pub(super) fn has_misspelt(&self, path: &str) -> bool {
        self.misspelt.contains(path)
    }

    /// Takes a finding about a field, which makes the field unusable.
    pub(super) fn refuse(&mut self, finding: Finding) {
        let written = self.scalars.get(&finding.field).map(String::as_str);
        let masked = finding.clone().masked(written);
        self.failed.insert(finding.field);
        self.findings.push(masked);
    }

    /// The place of the value, or of the key of the nearest thing around it that is written.
    pub(super) fn place(&self, path: &str) -> Option<Place> {
        match self.places.get(path) {
            Some(&(_, value)) => value,
            None => parent(path).and_then(|parent| self.key_place(parent)),
        }
    }

    /// The place of the key, likewise.
    pub(super) fn key_place(&self, path: &str) -> Option<Place> {
        match self.places.get(path) {
            Some(&(key, _)) => key,
            None => parent(path).and_then(|parent| self.key_place(parent)),
        }
    }
}

fn parent(path: &str) -> Option<&str> {
    let end = path.rfind(['.', '['])?;
    Some(&path[..end])
}

/// Reads `T` from the tree. What is wrong is in the notes.
pub(super) fn decode<'n, T: Deserialize<'n>>(
    node: &'n Node,
    lookup: &Lookup<'_>,
) -> (Result<T, Error>, Notes) {
    let mut notes = Notes::default();
    // What is no configuration at all may be anything, a key too: what it says is not ours.
    if let Kind::Scalar(text) = &node.kind {
        notes.scalars.insert(String::new(), text.clone());
    }
    let notes = RefCell::new(notes);
    let read = T::deserialize(Reader { node, path: String::new(), lookup, notes: &notes });
    (read, notes.into_inner())
}

/// Reads one value.
#[derive(Clone)]
struct Reader<'n, 'c> {
    node: &'n Node,
    path: String,
    lookup: &'c Lookup<'c>,
    notes: &'c RefCell<Notes>,
}

impl<'n, 'c> Reader<'n, 'c> {
    fn child(&self, node: &'n Node, path: String, key_place: Option<Place>) -> Self {
        // A map or a list may be long; its key stands for it.
        let long = matches!(node.kind, Kind::Map(_) | Kind::List(_));
        let place = key_place.filter(|_| long).or(node.place);
        let mut notes = self.notes.borrow_mut();
        notes.places.insert(path.clone(), (key_place, place));
        if let Kind::Scalar(text) = &node.kind {
            notes.scalars.insert(path.clone(), text.clone());
        }
        drop(notes);
        Self { node, path, lookup: self.lookup, notes: self.notes }
    }

    fn refuse(&self, finding: Finding) {
        let mut notes = self.notes.borrow_mut();
        let place = notes.place(&self.path);
        notes.refuse(finding.at(place));
    }

    /// What stands here instead of what is wanted.
    fn refuse_kind(&self, wanted: &str) {
        let found = match &self.node.kind {
            Kind::Empty => "nothing",
            Kind::Scalar(text) => {
                return self.refuse(Finding::refused(&self.path, text, wanted));
            }
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map of keys",
        };
        let message = format!("{found} is not allowed; give {wanted}");
        self.refuse(Finding::new(&self.path, message));
    }

    fn entries(&self, wanted: impl FnOnce() -> String) -> &'n [Entry] {
        match &self.node.kind {
            Kind::Map(entries) => entries,
            Kind::Empty => &[],
            Kind::Scalar(_) | Kind::List(_) => {
                self.refuse_kind(&wanted());
                &[]
            }
        }
    }

    fn scalar(&self) -> Option<String> {
        let Kind::Scalar(text) = &self.node.kind else {
            match &self.node.kind {
                Kind::Empty => self.refuse_empty(),
                _ => self.refuse_kind("a single value"),
            }
            return None;
        };
        match env::expand(text, self.lookup) {
            Ok(text) => Some(text),
            Err(message) => {
                self.refuse(Finding::new(&self.path, message));
                None
            }
        }
    }

    fn refuse_empty(&self) {
        // Under `set`, a key that has nothing may be a value whose key was forgotten.
        let field = match self.path.split_once("_headers.set.") {
            Some((begin, _)) => format!("{begin}_headers.set.***"),
            None => self.path.clone(),
        };
        self.refuse(Finding::new(field, "has no value; give one, or remove the key"));
    }

    fn refuse_key(&self, entry: &Entry, keys: &'static [&'static str]) {
        // One that has nothing may be a value whose key was forgotten.
        let is_alone = matches!(entry.value.kind, Kind::Empty);
        let near = near_name(&entry.key, keys.iter().copied());
        let shown = match is_alone && near.is_none() {
            true => MASK.to_owned(),
            false => harmless::key(&self.path, &entry.key),
        };
        let field = joined(&self.path, &shown);
        let message = match self.path.as_str() {
            "" => "is not a key of the file".to_owned(),
            path => format!("is not a key of {path}"),
        };
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the keys are {}", keys.join(", ")),
        };
        let finding = Finding::new(field, message).at(entry.key_place).help(help);
        let mut notes = self.notes.borrow_mut();
        notes.misspelt.insert(self.path.clone());
        notes.refuse(finding);
    }
}

/// `path.key`, or `key` alone at the top.
pub(super) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'de> Deserializer<'de> for Reader<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("raw structs hold only text, lists, maps, structs and switches"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.scalar().unwrap_or_default())
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items: &[Node] = match &self.node.kind {
            Kind::List(items) => items,
            Kind::Empty => &[],
            Kind::Scalar(_) | Kind::Map(_) => {
                self.refuse_kind("a list");
                &[]
            }
        };
        visitor.visit_seq(Items { items: items.iter(), index: 0, reader: self })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let entries = self.entries(|| "a map of names".to_owned()).iter();
        visitor.visit_map(Fields { entries, keys: None, value: None, reader: self })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let entries = self.entries(|| format!("a map of {}", keys.join(", "))).iter();
        visitor.visit_map(Fields { entries, keys: Some(keys), value: None, reader: self })
    }

    /// A switch: `off`, or what it holds when it is on.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(Switched(self))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit
        unit_struct newtype_struct tuple tuple_struct identifier ignored_any
    }
}

/// The items of a list.
struct Items<'n, 'c> {
    items: slice::Iter<'n, Node>,
    index: usize,
    reader: Reader<'n, 'c>,
}

impl<'n> SeqAccess<'n> for Items<'n, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let path = format!("{}[{}]", self.reader.path, self.index);
        self.index += 1;
        seed.deserialize(self.reader.child(item, path, item.place)).map(Some)
    }
}

/// The entries of a map; of a struct, only those it knows.
struct Fields<'n, 'c> {
    entries: slice::Iter<'n, Entry>,
    keys: Option<&'static [&'static str]>,
    value: Option<&'n Entry>,
    reader: Reader<'n, 'c>,
}

impl<'n> MapAccess<'n> for Fields<'n, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        for entry in self.entries.by_ref() {
            match self.keys {
                Some(keys) if !keys.contains(&entry.key.as_str()) => {
                    self.reader.refuse_key(entry, keys);
                }
                _ => {
                    self.value = Some(entry);
                    let key: StrDeserializer<'_, Error> = entry.key.as_str().into_deserializer();
                    return seed.deserialize(key).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let entry = self.value.take().ok_or_else(|| Error::custom("a value before its key"))?;
        let path = joined(&self.reader.path, &entry.key);
        seed.deserialize(self.reader.child(&entry.value, path, entry.key_place))
    }
}

/// A section that may be `off`.
struct Switched<'n, 'c>(Reader<'n, 'c>);

impl<'n, 'c> EnumAccess<'n> for Switched<'n, 'c> {
    type Error = Error;
    type Variant = Reader<'n, 'c>;

    fn variant_seed<V: DeserializeSeed<'n>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Error> {
        let is_off = match &self.0.node.kind {
            Kind::Scalar(_) => match self.0.scalar() {
                Some(text) if text == "off" => true,
                Some(_) => {
                    self.0.refuse_kind("`off`, or a map of its keys");
                    true
                }
                None => true,
            },
            _ => false,
        };
        let name: StrDeserializer<'_, Error> =
            if is_off { "off" } else { "on" }.into_deserializer();
        Ok((seed.deserialize(name)?, self.0))
    }
}

impl<'n> VariantAccess<'n> for Reader<'n, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}
