//! `seawall lab schema`: the JSON Schema of scenario files, of what their reader knows.
//!
//! It is made anew each time, by reading all scenarios that are built in: there is no second list
//! of keys. It knows every key of each table that any of them has; what none has may be anything.

use std::collections::BTreeMap;

use seawall_lab::{KeyForm, Known, known};
use serde_json::{Map, Value, json};

use super::FILES;
use super::new::TEMPLATE;

pub(super) fn schema() -> serde_json::Result<String> {
    let files: Vec<_> = FILES.iter().map(|(_, text)| *text).collect();
    let template = TEMPLATE.replace("\"NAME\"", "\"name\"");
    let known = known(&[&files[..], &[&template]].concat());
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
    match is_said_otherwise && known.contains_key(key) {
        true => json!({"$ref": format!("#/properties/{key}")}),
        false => at(known, &own),
    }
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

/// Tables whose sections are those of the file.
const OTHERWISE: [&str; 3] = ["case[]", "arm[]", "map.axis[].points[]"];
/// What every scenario says.
const ALWAYS: [&str; 8] =
    ["schema", "name", "title", "shows", "matters", "change", "arm", "threshold"];
