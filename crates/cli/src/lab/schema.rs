//! `seawall lab schema`: the JSON Schema of scenario files, of what their reader knows.
//!
//! It is made anew each time, by reading all scenarios that are built in, the template, and a file
//! that has what none of these has: there is no second list of keys. What each is for is said in
//! `keys.txt`.

use std::collections::BTreeMap;

use seawall_lab::{KeyForm, Known, known};
use serde_json::{Map, Value, json};

use super::FILES;
use super::new::TEMPLATE;

pub(super) fn schema() -> serde_json::Result<String> {
    let files: Vec<_> = FILES.iter().map(|(_, text)| *text).collect();
    let template = TEMPLATE.replace("\"NAME\"", "\"name\"");
    let known = known(&[&files[..], &[&template, EVERY]].concat());
    let mut whole = at(&known, "");
    whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    whole["title"] = json!("A scenario of seawall lab");
    whole["required"] = json!(ALWAYS);
    let is_place = |path: &&String| path.starts_with('(') && path.ends_with(')');
    let places: Map<_, _> = known
        .keys()
        .filter(is_place)
        .map(|path| (bare(path).to_owned(), at(&known, path)))
        .collect();
    whole["$defs"] = places.into();
    let mut text = serde_json::to_string_pretty(&whole)?;
    text.push('\n');
    Ok(text)
}

/// The schema of a place.
fn at(known: &BTreeMap<String, Known>, path: &str) -> Value {
    let Some(here) = known.get(path) else { return json!(true) };
    if let Some(place) = here.as_in {
        return json!({"$ref": format!("#/$defs/{}", bare(place))});
    }
    let has_words = here.forms.iter().any(|form| matches!(form, KeyForm::Words(_)));
    let mut may: Vec<_> = here
        .forms
        .iter()
        // A word of a few is read as a text as well.
        .filter(|form| !(has_words && **form == KeyForm::Text))
        .map(|form| match form {
            KeyForm::List => json!({"type": "array", "items": at(known, &format!("{path}[]"))}),
            form => of_form(form),
        })
        .collect();
    if let Some(place) = here.by_name {
        let each = json!({"$ref": format!("#/$defs/{}", bare(place))});
        may.push(json!({"type": "object", "minProperties": 1, "additionalProperties": each}));
    } else if !here.keys.is_empty() {
        let keys = here.keys.iter().map(|key| (key.clone(), of_key(known, path, key)));
        let keys: Map<_, _> = keys.collect();
        may.push(json!({"type": "object", "properties": keys, "additionalProperties": false}));
    }
    match may.len() {
        0 => json!(true),
        1 => may.remove(0),
        _ => json!({"anyOf": may}),
    }
}

/// The schema of a key of a table. What a case, an arm or a point says otherwise is as in the file.
fn of_key(known: &BTreeMap<String, Known>, path: &str, key: &str) -> Value {
    let own = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let is_said_otherwise = OTHERWISE.contains(&path) && !known.contains_key(&own);
    if is_said_otherwise && known.contains_key(key) {
        return json!({"$ref": format!("#/properties/{key}")});
    }
    let mut schema = at(known, &own);
    if let (Some(schema), Some(said)) = (schema.as_object_mut(), described(&own)) {
        schema.insert("description".to_owned(), said.into());
    }
    schema
}

/// What a key is for. A service has the keys of `server`, and some more.
fn described(path: &str) -> Option<&'static str> {
    let of = |path: &str| {
        let mut keys = KEYS.lines().filter_map(|line| line.split_once(": "));
        keys.find_map(|(key, said)| (key == path).then_some(said))
    };
    of(path).or_else(|| of(&format!("server.{}", path.strip_prefix("(service).")?)))
}

fn of_form(form: &KeyForm) -> Value {
    match form {
        KeyForm::Text | KeyForm::List => json!({"type": "string"}),
        KeyForm::Words(words) => json!({"enum": words}),
        KeyForm::Flag => json!({"type": "boolean"}),
        KeyForm::Count(least, most) => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        KeyForm::Number(least, most) => {
            json!({"type": "number", "minimum": least, "maximum": most})
        }
        KeyForm::Duration => json!({"type": "string", "pattern": "^[0-9]", "examples": ["800ms"]}),
        KeyForm::Rate => {
            json!({"type": "string", "pattern": "^[0-9].*/", "examples": ["500/s"]})
        }
        KeyForm::Ratio => json!({"type": ["string", "number"], "examples": ["10%"]}),
    }
}

/// The name of a place that is in no file.
fn bare(place: &str) -> &str {
    place.trim_start_matches('(').trim_end_matches(')')
}

/// A key and what it is for, line by line.
const KEYS: &str = include_str!("keys.txt");
/// Every table that no other has.
const EVERY: &str = include_str!("every.toml");
/// Tables whose sections are those of the file.
const OTHERWISE: [&str; 3] = ["case[]", "arm[]", "map.axis[].points[]"];
/// What every scenario says.
const ALWAYS: [&str; 8] =
    ["schema", "name", "title", "shows", "matters", "change", "arm", "threshold"];

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys within a schema, and whether it is said what each is for.
    fn keys(schema: &Value, path: &str, found: &mut Vec<(String, bool)>) {
        assert!(schema.is_object(), "{path} may be anything");
        let forms = schema["anyOf"].as_array();
        for form in forms.map_or(std::slice::from_ref(schema), Vec::as_slice) {
            for (key, value) in form["properties"].as_object().into_iter().flatten() {
                let own = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let is_elsewhere = value["$ref"].as_str().is_some_and(|to| to.contains("/prop"));
                found.push((own.clone(), is_elsewhere || value["description"].is_string()));
                keys(value, &own, found);
            }
            if let Some(items) = form.get("items") {
                keys(items, &format!("{path}[]"), found);
            }
        }
    }

    #[test]
    fn every_key_is_described_and_nothing_may_be_anything() {
        let schema: Value = serde_json::from_str(&schema().unwrap()).unwrap();
        let mut found = Vec::new();
        keys(&schema, "", &mut found);
        for (place, of) in schema["$defs"].as_object().unwrap() {
            keys(of, &format!("({place})"), &mut found);
        }
        for (key, is_described) in &found {
            assert!(is_described, "{key} is in no line of keys.txt");
        }
        for (key, _) in KEYS.lines().map(|line| line.split_once(": ").unwrap()) {
            assert!(found.iter().any(|(known, _)| known == key), "there is no key {key}");
        }
    }

    #[test]
    fn what_is_read_for_the_schema_alone_is_right() {
        seawall_lab::Scenario::parse("every.toml", EVERY).unwrap();
    }
}
