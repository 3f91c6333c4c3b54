//! The JSON Schema of the file, made from the raw structs and the page, and held against both.
//!
//! It takes whatever the decoder takes of keys, lists and `off`, and of values as much as the
//! page's ranges say; what depends on other values is left to `seawall check`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::pages::{EXAMPLE, Form, Row, Taken, everything, forms, whole_rows};
use crate::SCHEMA;

/// What the schema is made from.
struct Sources {
    forms: BTreeMap<String, Form>,
    rows: BTreeMap<&'static str, Row>,
}

impl Sources {
    fn read() -> Self {
        let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
        let mut before = "";
        for row in whole_rows() {
            let range = if row.range == "likewise" { before } else { row.range };
            before = range;
            rows.insert(row.key, Row { range, ..row });
        }
        // What a route has in place of its upstream's is described there.
        let retry = "routes[].retry.";
        let keys: Vec<_> = rows.keys().copied().filter(|key| key.starts_with(retry)).collect();
        for key in keys {
            let of = rows[key.replace("routes[]", "upstreams.<name>").as_str()];
            rows.insert(key, Row { key, default: "–", ..of });
        }
        Self { forms: forms(), rows }
    }

    /// The schema of the value at `path`.
    fn schema(&self, path: &str) -> Value {
        let form = &self.forms[path];
        let mut schema = match &form.of {
            Taken::Text => kind(path, self.rows.get(path.trim_end_matches("[]"))),
            Taken::List => {
                json!({"type": ["array", "null"], "items": self.schema(&format!("{path}[]"))})
            }
            Taken::Names => json!({
                "type": ["object", "null"],
                "additionalProperties": self.schema(&format!("{path}.<name>")),
            }),
            Taken::Section(keys) => self.section(path, keys),
        };
        if form.switch {
            let on = std::mem::take(&mut schema);
            schema = json!({"oneOf": [{"const": "off"}, {"$ref": "#/$defs/variable"}, on]});
        }
        if let (Some(row), Some(fields)) = (self.rows.get(path), schema.as_object_mut()) {
            describe(row, fields);
        }
        schema
    }

    fn section(&self, path: &str, keys: &[&str]) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for key in keys {
            let field = crate::config::decode::joined(path, key);
            let meaning = self.rows[field.as_str()].meaning;
            if meaning.contains("; required") && !meaning.contains("; required unless") {
                required.push(*key);
            }
            properties.insert((*key).to_owned(), self.schema(&field));
        }
        let nothing = if required.is_empty() { json!(["object", "null"]) } else { json!("object") };
        let mut section = json!({
            "type": nothing,
            "additionalProperties": false,
            "properties": properties,
        });
        if !required.is_empty() {
            section["required"] = json!(required);
        }
        section
    }
}

/// What the page says of a key.
fn describe(row: &Row, fields: &mut Map<String, Value>) {
    let mut told = plain(row.meaning);
    if !row.range.is_empty() {
        told.push_str(&format!(" Allowed: {}.", plain(row.range)));
    }
    fields.insert("description".to_owned(), json!(told.trim()));
    if let Some(default) = row.default.strip_prefix('`').and_then(|it| it.strip_suffix('`')) {
        fields.insert("default".to_owned(), as_yaml(default));
    }
}

/// A sentence without the targets of its links.
fn plain(text: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let target = after.find(')').unwrap();
        told.push_str(&before.replacen('[', "", 1));
        rest = &after[target + 1..];
    }
    told + rest
}

/// A word as an editor's YAML reads it.
fn as_yaml(word: &str) -> Value {
    match word {
        "true" => json!(true),
        "false" => json!(false),
        // `1.2` is a number too.
        word => match serde_json::from_str::<Value>(word) {
            Ok(number) if number.is_number() => number,
            _ => json!(word),
        },
    }
}

/// What a single value may be, by the page's range.
fn kind(path: &str, row: Option<&Row>) -> Value {
    // Names and texts: the decoder takes a number for its digits.
    let text = json!({"type": ["string", "number", "boolean"]});
    let Some(row) = row else { return text };
    let range = row.range;
    let words: Vec<_> = range.split([' ', ',']).map(|word| word.trim_matches('`')).collect();
    let named = |name: &str| json!({"anyOf": [{"$ref": format!("#/$defs/{name}")}, {"$ref": "#/$defs/variable"}]});
    let choices: Option<Vec<_>> = range
        .split(", ")
        .map(|word| word.strip_prefix('`')?.strip_suffix('`').filter(|it| !it.contains('`')))
        .collect();
    if let Some(choices) = choices {
        let mut all: Vec<_> = choices.iter().map(|choice| json!(choice)).collect();
        all.extend(choices.iter().map(|choice| as_yaml(choice)).filter(|it| !it.is_string()));
        return json!({"anyOf": [{"enum": all}, {"$ref": "#/$defs/variable"}]});
    }
    if path.ends_with("hedge.delay") {
        return named("quantile_or_duration");
    }
    let several = range.starts_with('`') && !range.contains("` to ");
    if several
        || range.starts_with("up to")
        || range.contains("characters")
        || range.contains("letters")
    {
        text
    } else if range.contains("to 100%") {
        named("ratio")
    } else if words.iter().any(|word| crate::parse_duration(word).is_ok()) {
        named("duration")
    } else if range == "a size" || words.iter().any(|word| crate::parse_size(word).is_ok()) {
        named("size")
    } else if range.starts_with("a rate") || range.contains("/s") {
        named("rate")
    } else if range.contains("decimals") {
        named("number")
    } else if range == "as `rate.burst`" || range.contains(" to 1,000,000") || is_count(&words) {
        whole(&words)
    } else {
        text
    }
}

/// A range from a number up.
fn is_count(words: &[&str]) -> bool {
    words.first().is_some_and(|first| first.parse::<u32>().is_ok()) && words.contains(&"to")
}

/// A whole number, between those of its range that are numbers.
fn whole(words: &[&str]) -> Value {
    let mut number = json!({"type": "integer", "minimum": 0});
    if let (true, Some(least)) = (is_count(words), words[0].parse::<u32>().ok()) {
        number["minimum"] = json!(least);
    }
    let at = words.iter().position(|word| *word == "to").filter(|at| words[at - 1] != "up");
    // `1,000,000` has come apart at its commas.
    let most: Option<String> = at.map(|at| words[at + 1..].concat());
    if let Some(most) = most.and_then(|most| most.parse::<u32>().ok()) {
        number["maximum"] = json!(most);
    }
    json!({"anyOf": [
        number,
        {"type": "string", "pattern": "^[0-9]+$"},
        {"$ref": "#/$defs/variable"},
    ]})
}

fn generated() -> Value {
    let mut schema = Sources::read().schema("");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration of Seawall");
    let duration = "([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?([0-9]{1,5}ms)?";
    let text = |pattern: String| json!({"type": "string", "minLength": 1, "pattern": pattern});
    schema["$defs"] = json!({
        "duration": text(format!("^{duration}$")),
        "quantile_or_duration": text(format!("^(p[0-9]+(\\.[0-9]+)?|{duration})$")),
        "size": text("^[0-9]+(B|KiB|MiB|GiB)$".to_owned()),
        "rate": text("^[0-9]+/(s|m|h)$".to_owned()),
        "ratio": {"anyOf": [
            text("^[0-9]*\\.?[0-9]+%?$".to_owned()),
            {"type": "number", "minimum": 0, "maximum": 1},
        ]},
        "number": {"anyOf": [text("^[0-9]*\\.?[0-9]+$".to_owned()), {"type": "number"}]},
        // What it holds is known where the file is run.
        "variable": {"type": "string", "pattern": "\\$\\{"},
    });
    schema
}

fn mistakes(schema: &Value, text: &str) -> Vec<String> {
    // As YAML 1.2 has it: `off` is a word.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: Value = serde_saphyr::from_str_with_options(text, options).unwrap();
    let validator = jsonschema::draft202012::new(schema).unwrap();
    validator.iter_errors(&file).map(|error| format!("{}", error.instance_path())).collect()
}

#[test]
fn the_schema_is_that_of_the_decoder_and_the_page() {
    let made = generated();
    if std::env::var_os("SEAWALL_BLESS").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../seawall.schema.json");
        let text = serde_json::to_string_pretty(&made).unwrap();
        std::fs::write(file, text + "\n").unwrap();
        return;
    }
    let committed: Value = serde_json::from_str(SCHEMA).unwrap();
    assert!(committed == made, "seawall.schema.json is old; renew it with SEAWALL_BLESS=1");
}

#[test]
fn the_schema_is_one_and_takes_what_the_example_shows() {
    let schema = generated();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    assert_eq!(mistakes(&schema, EXAMPLE), [""; 0]);
    assert_eq!(mistakes(&schema, &everything()), [""; 0]);
}

#[test]
fn the_schema_takes_switches_variables_and_what_is_left_empty() {
    let schema = generated();
    for section in [
        "retry: off",
        "retry:",
        "retry: ${RETRY:-off}",
        "hedge: {}",
        "timeouts: {total: '${TOTAL}'}",
        "hedge: {delay: 20ms}",
        "hedge: {delay: p99.9}",
        "retry: {on: [503, unknown]}",
        "retry_budget: {ratio: 0.1}",
        "bulkhead: {limit: '12'}",
        "tls: {min_version: 1.3}",
        "send_deadline: false",
    ] {
        assert_eq!(mistakes(&schema, &with(section)), [""; 0], "{section}");
    }
}

#[test]
fn the_schema_refuses_what_the_decoder_refuses() {
    let schema = generated();
    for (section, field) in [
        ("retries: {}", ""),
        ("retry: on", "/retry"),
        ("timeouts: {total: 25}", "/timeouts/total"),
        ("timeouts: {total: 25 s}", "/timeouts/total"),
        ("timeouts: {totals: 25s}", "/timeouts"),
        ("protocol: http3", "/protocol"),
        ("bulkhead: {limit: many}", "/bulkhead/limit"),
        ("bulkhead: {limit: 0}", "/bulkhead/limit"),
        ("bulkhead: {limit: 1000001}", "/bulkhead/limit"),
        ("retry: {max_attempts: 1.5}", "/retry"),
        ("rate: {limit: 500}", "/rate/limit"),
        ("retry_budget: {ratio: 10}", "/retry_budget"),
        ("send_deadline: maybe", "/send_deadline"),
        ("breaker: {window: 0.5s}", "/breaker"),
    ] {
        assert_eq!(
            mistakes(&schema, &with(section)),
            [format!("/upstreams/a{field}")],
            "{section}"
        );
        assert!(super::read(&with(section)).is_err(), "{section}");
    }
    assert_eq!(mistakes(&schema, "version: 2\nupstreams: {}\n"), ["/version"]);
    assert_eq!(mistakes(&schema, "version: 1\n"), [""]);
    assert_eq!(mistakes(&schema, "version: 1\nupstreams: {a: {}}\n"), ["/upstreams/a"]);
    let size = "version: 1\nupstreams: {a: {endpoints: ['http://h:1']}}\nlimits: {head: 64}\n";
    assert_eq!(mistakes(&schema, size), ["/limits/head"]);
}

/// A file with one section of its upstream `a`.
fn with(section: &str) -> String {
    format!("version: 1\nupstreams:\n  a:\n    endpoints: ['http://h:1']\n    {section}\n")
}
