//! The example file and the page of docs, held against the raw structs.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::super::node::Kind;
use super::*;

pub(super) const EXAMPLE: &str = include_str!("../../../../../seawall.example.yaml");
const PAGE: &str = include_str!("../../../../../docs/configuration.md");
const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

/// What the decoder takes at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) of: Taken,
    /// Whether `off` is taken in its place.
    pub(super) switch: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Taken {
    #[default]
    Text,
    List,
    Names,
    Section(&'static [&'static str]),
}

/// Walks the raw structs and notes what stands at every path.
struct Shape<'c> {
    path: String,
    forms: &'c mut BTreeMap<String, Form>,
}

impl Shape<'_> {
    fn note(&mut self, of: Taken) {
        self.forms.entry(self.path.clone()).or_default().of = of;
    }
}

/// By path, lists' items as `key[]` and the entries of a map as `key.<name>`.
pub(super) fn forms() -> BTreeMap<String, Form> {
    let mut forms = BTreeMap::new();
    RawConfig::deserialize(Shape { path: String::new(), forms: &mut forms }).unwrap();
    forms
}

pub(super) fn raw_keys() -> BTreeSet<String> {
    let is_key = |path: &String| !path.is_empty() && !path.ends_with(['>', ']']);
    forms().into_keys().filter(is_key).collect()
}

impl<'de> Deserializer<'de> for Shape<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        panic!("{} is of a kind that raw structs do not have", self.path)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_string<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.note(Taken::Text);
        visitor.visit_str("")
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.note(Taken::List);
        self.path.push_str("[]");
        visitor.visit_seq(Once(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.note(Taken::Names);
        visitor.visit_map(Each { keys: vec!["<name>"], next: None, shape: self })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.note(Taken::Section(keys));
        visitor.visit_map(Each { keys: keys.to_vec(), next: None, shape: self })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.forms.entry(self.path.clone()).or_default().switch = true;
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit
        unit_struct newtype_struct tuple tuple_struct identifier ignored_any
    }
}

struct Once<'c>(Option<Shape<'c>>);

impl<'de> SeqAccess<'de> for Once<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|shape| seed.deserialize(shape)).transpose()
    }
}

struct Each<'c> {
    keys: Vec<&'static str>,
    next: Option<&'static str>,
    shape: Shape<'c>,
}

impl<'de> MapAccess<'de> for Each<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next = self.keys.pop();
        let key = self.next.map(|key| -> StrDeserializer<'_, Error> { key.into_deserializer() });
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let path = decode::joined(&self.shape.path, self.next.unwrap());
        seed.deserialize(Shape { path, forms: self.shape.forms })
    }
}

impl<'de> EnumAccess<'de> for Shape<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let on: StrDeserializer<'_, Error> = "on".into_deserializer();
        Ok((seed.deserialize(on)?, self))
    }
}

impl<'de> VariantAccess<'de> for Shape<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        panic!("a switch that is on holds something")
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }
}

/// The example with its commented options switched on.
pub(super) fn everything() -> String {
    let is_option = |text: &str| {
        text.strip_prefix("- ").unwrap_or(text).starts_with(|c: char| c.is_ascii_lowercase())
    };
    let switched_on = |line: &str| {
        let bare = line.trim_start();
        match bare.strip_prefix('#') {
            Some(option) if is_option(option) => {
                format!("{}{option}\n", &line[..line.len() - bare.len()])
            }
            _ => format!("{line}\n"),
        }
    };
    EXAMPLE.lines().map(switched_on).collect()
}

/// The values under their keys, as the page writes keys.
fn values(node: &Node, path: &str, found: &mut BTreeMap<String, String>) {
    match &node.kind {
        Kind::Empty => {}
        Kind::Scalar(text) => {
            // Of several items the first is the one with the defaults.
            found.entry(path.to_owned()).or_insert_with(|| text.clone());
        }
        Kind::List(items) => {
            found.insert(path.to_owned(), String::new());
            for item in items {
                values(item, &format!("{path}[]"), found);
            }
        }
        Kind::Map(entries) => {
            found.insert(path.to_owned(), String::new());
            for entry in entries {
                let key = if path == "upstreams" { "<name>" } else { &entry.key };
                values(&entry.value, &decode::joined(path, key), found);
            }
        }
    }
}

fn values_of(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    values(&Node::parse(text).unwrap(), "", &mut found);
    found
}

/// A row of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) meaning: &'static str,
    pub(super) range: &'static str,
    pub(super) default: &'static str,
}

pub(super) fn whole_rows() -> Vec<Row> {
    let row = |line: &'static str| -> Option<Row> {
        let row: Vec<_> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let key = row[0].strip_suffix('`')?;
        Some(Row { key, meaning: row[1], range: row[2], default: row[3] })
    };
    PAGE.lines().filter_map(row).collect()
}

/// The rows of the page: key and default.
fn rows() -> Vec<(&'static str, &'static str)> {
    whole_rows().into_iter().map(|row| (row.key, row.default)).collect()
}

#[test]
fn the_example_is_the_defaults_it_claims() {
    let minimal = "version: 1\nupstreams: {orders: {endpoints: [http://127.0.0.1:9000]}}\n";
    assert_eq!(accepted(EXAMPLE), accepted(minimal));
    assert_eq!(warned(EXAMPLE), []);
}

#[test]
fn an_attempt_timeout_of_the_default_length_differs_only_in_what_is_slow() {
    let mut written = accepted(&EXAMPLE.replace("#attempt: 12s", "attempt: 12s"));
    let breaker = written.upstreams[0].breaker.as_mut().unwrap();
    assert_eq!(breaker.slow.take(), Some(Duration::from_secs(6)));
    assert_eq!(written, accepted(EXAMPLE));
}

#[test]
fn every_option_the_example_shows_is_accepted() {
    accepted(&everything_in(&Folder::new("example")));
}

/// The files that the example names.
pub(super) struct Folder(pub(super) std::path::PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("seawall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["orders.internal".to_owned()];
        let certificate = rcgen::CertificateParams::new(names).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        for name in ["tls", "other", "client"] {
            std::fs::write(folder.join(format!("{name}.crt")), &certificate).unwrap();
            std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        std::fs::write(folder.join("ca.crt"), &certificate).unwrap();
        std::fs::write(folder.join("admin-token"), "0123456789abcdef\n").unwrap();
        std::fs::write(folder.join("token"), "an-orders-token\n").unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The example with every option switched on, its files in `folder`.
pub(super) fn everything_in(Folder(folder): &Folder) -> String {
    everything()
        // One of the two.
        .replace("  token: ${SEAWALL_ADMIN_TOKEN}\n", "")
        .replace("/etc/seawall/admin-token", &folder.join("admin-token").display().to_string())
        .replace("/var/run/secrets/tokens/orders", &folder.join("token").display().to_string())
        .replace("/etc/seawall/tls", &folder.display().to_string())
        // The roots of the machine that tests this are none of its business.
        .replace("ca: system", &format!("ca: {}", folder.join("ca.crt").display()))
        .replace("[http://", "[https://")
        // Nobody else is asked for a client.
        .replace("trusted_peers: []", "trusted_peers: [10.0.0.0/8]")
        .replace("address: 127.0.0.1:8080", "address: unix:/run/seawall.sock")
}

#[test]
fn every_key_stands_in_the_example_and_on_the_page() {
    let keys = raw_keys();
    assert!(keys.contains("upstreams.<name>.retry.backoff.base"), "the walk goes all the way");
    let shown: BTreeSet<_> = values_of(&everything()).into_keys().collect();
    let missing: Vec<_> = keys.difference(&shown).collect();
    assert!(missing.is_empty(), "not in the example: {missing:?}");
    let documented: BTreeSet<_> = rows().into_iter().map(|(key, _)| key.to_owned()).collect();
    assert_eq!(documented.len(), rows().len(), "a key stands on the page twice");
    assert_eq!(documented, keys);
}

#[test]
fn the_page_and_the_example_give_the_same_defaults() {
    let active = values_of(EXAMPLE);
    let shown = values_of(&everything());
    for (key, default) in rows() {
        let fixed = default.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
        match fixed {
            Some(fixed) => assert_eq!(shown.get(key).map(String::as_str), Some(fixed), "{key}"),
            None => {
                let value = active.get(key).filter(|value| !value.is_empty());
                let required = ["version", "routes[].upstream"].contains(&key);
                assert!(value.is_none() || required, "{key} has the default {value:?}");
            }
        }
    }
}

#[test]
fn what_operators_are_shown_of_an_option_is_its_default() {
    let orders = "endpoints: [http://orders-1:9000, http://orders-2:9000]";
    for (heading, section, bare) in [
        ("Check endpoints", "health_check", "health_check: {path: /healthz}"),
        ("Hedge slow calls", "hedge", "hedge: {}"),
    ] {
        let (_, below) = OPERATIONS.split_once(&format!("\n## {heading}\n")).unwrap();
        let shown = below.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let bare = format!("version: 1\nupstreams: {{orders: {{{orders}, {bare}}}}}\n");
        assert_eq!(accepted(shown), accepted(&bare), "{heading}");
        let above = format!("upstreams.<name>.{section}.");
        for key in raw_keys().iter().filter_map(|key| key.strip_prefix(&above)) {
            assert!(shown.contains(&format!("{key}: ")), "{heading} does not show {key}");
        }
    }
}
