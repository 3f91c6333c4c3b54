//! What is shown of a configuration in force.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pages::{EXAMPLE, Folder, everything_in, raw_keys};
use super::*;

/// Keys that leave no trace of their own.
const SPENT: [&str; 3] = [
    // What it sets is shown.
    "upstreams.<name>.breaker.preset",
    // For a warning alone.
    "upstreams.<name>.capacity",
    "upstreams.<name>.peak_load",
];

fn keys_of(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = if path == "upstreams" { "<name>" } else { key };
                let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
                keys_of(value, &path, into);
                into.insert(path);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| keys_of(item, &format!("{path}[]"), into));
        }
        _ => {}
    }
}

#[test]
fn of_a_token_in_a_file_the_path_is_shown_and_of_any_other_that_there_is_one() {
    let folder = Folder::new("dump-token");
    let path = folder.0.join("token");
    std::fs::write(&path, "0123456789abcdef").unwrap();
    let up = "upstreams: {a: {endpoints: ['http://h:1']}}";
    for (admin, token, file) in [
        (format!("token_file: {}", path.display()), Value::Null, path.to_str().into()),
        ("token: 0123456789abcdef".to_owned(), "***".into(), Value::Null),
        ("address: 127.0.0.1:1".to_owned(), Value::Null, Value::Null),
    ] {
        let dump = accepted(&format!("version: 1\nadmin: {{{admin}}}\n{up}\n")).dump();
        assert_eq!((&dump["admin"]["token"], &dump["admin"]["token_file"]), (&token, &file));
        assert!(!dump.to_string().contains("0123456789abcdef"), "{dump}");
    }
}

#[test]
fn every_key_of_the_file_is_shown_and_no_secret_of_its_files() {
    let folder = Folder::new("dump");
    let (config, _) = GatewayConfig::parse(&everything_in(&folder), "f").unwrap();
    let dump = config.dump();
    let mut shown = BTreeSet::new();
    keys_of(&dump, "", &mut shown);
    let known: BTreeSet<_> = shown.into_iter().chain(SPENT.map(str::to_owned)).collect();
    let missing: Vec<_> = raw_keys().difference(&known).cloned().collect();
    assert!(missing.is_empty(), "not in the dump: {missing:?}");
    let text = dump.to_string();
    let key = std::fs::read_to_string(folder.0.join("tls.key")).unwrap();
    for secret in key.lines().chain(["0123456789abcdef", "an-orders-token"]) {
        assert!(!text.contains(secret), "{secret}");
    }
    assert!(text.contains("tls.key") && text.contains("orders.internal"), "{text}");
}

/// The dump as a file: what is nothing is left out, and what no file has.
fn as_file(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.remove("at_most");
        fields.values_mut().for_each(as_file);
        let is_nothing = |value: &Value| {
            value.is_null()
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        fields.retain(|_, value| !is_nothing(value));
    }
    if let Value::Array(items) = value {
        items.iter_mut().for_each(as_file);
    }
}

#[test]
fn what_is_shown_is_a_file_that_comes_to_the_same() {
    let folder = Folder::new("dumped");
    let text = everything_in(&folder);
    let defaults = accepted(EXAMPLE);
    let (config, _) = GatewayConfig::parse(&text, "f").unwrap();
    for config in [defaults, config] {
        let dump = config.dump();
        let mut file = dump.clone();
        as_file(&mut file);
        if let Some(token) = file.pointer_mut("/admin/token") {
            *token = "another-token-of-16".into();
        }
        let again = accepted(&file.to_string()).dump();
        assert_eq!(again, dump, "{file:#}");
    }
}

/// A secret in every place that may hold one; what is in the file in plain, what variables give.
const MARKED: &str = "version: 1
admin: {token: MARK-admin-0123456789}
kill_switch: /run/${PLACE}/switch
listeners: [{trusted_peers: ['${PEER}']}]
upstreams:
  a:
    endpoints: ['http://${HOST}:9000', 'http://127.0.0.1:9000']
    host_header: ${HOST}:90
    credentials: {file: 'CREDENTIAL', header: X-Key, scheme: '${SCHEME}'}
    health_check: {path: '/healthz?key=MARK-query'}
    rate: {per_key: {key: 'header:${FIELD}', limit: 5/s}}
    retry: {max_attempts: '${N}'}
    rules:
    - name: plain
      headers: [{name: X-A, exact: MARK-exact}, {name: X-B, prefix: MARK-begins}]
      body: {pointer: /code, equals: [MARK-equals]}
      means: failure
routes:
- upstream: a
  host: ${HOST}
  path_prefix: /${PATH_OF}
  prefix_rewrite: /${PATH_OF}-2
  headers: [{name: X-Api-Key, exact: MARK-asked}, {name: X-C, prefix: MARK-prefix}]
  request_headers: {set: {Authorization: MARK-set}}
  response_headers: {set: {X-B: '${PLACE}'}}
  fallback: {on: [failure], content_type: 'text/${KIND}', body: MARK-body}
- {upstream: a, path: /plain, name: nu}
";

const GIVEN: [(&str, &str); 8] = [
    ("PLACE", "MARK-place"),
    ("PEER", "10.9.8.0/24"),
    ("HOST", "Mark-Host.internal"),
    ("SCHEME", "MARK-scheme"),
    ("FIELD", "X-Mark-Field"),
    ("PATH_OF", "MARK-path"),
    ("KIND", "mark-kind"),
    ("N", "3"),
];

#[test]
fn no_secret_is_shown_wherever_it_stands() {
    let folder = Folder::new("marked");
    let token = folder.0.join("marked");
    std::fs::write(&token, "MARK-credential").unwrap();
    let text = MARKED.replace("CREDENTIAL", &token.display().to_string());
    let lookup = |name: &str| {
        let (_, value) = GIVEN.iter().find(|(known, _)| *known == name)?;
        Some((*value).to_owned())
    };
    let parsed = parse(text.into(), "f".into(), None, &Overrides::default(), &lookup);
    let (config, _) = parsed.unwrap_or_else(|errors| panic!("{errors}"));
    assert!(!format!("{:?}", config.origin).to_lowercase().contains("mark-"));
    let dump = config.dump();
    let shown = format!("{dump:#}");
    let left: Vec<_> = shown.lines().filter(|line| line.to_lowercase().contains("mark-")).collect();
    assert!(left.is_empty(), "{left:#?}");
    for (pointer, value) in [
        ("/admin/token", "***"),
        ("/kill_switch", "***"),
        ("/listeners/0/trusted_peers/0", "***"),
        ("/upstreams/a/endpoints/0", "***"),
        ("/upstreams/a/endpoints/1", "http://127.0.0.1:9000"),
        ("/upstreams/a/credentials/header", "x-key"),
        ("/upstreams/a/credentials/scheme", "***"),
        ("/upstreams/a/health_check/path", "/healthz?***"),
        ("/upstreams/a/rules/0/body/pointer", "/code"),
        ("/upstreams/a/rules/0/body/equals/0", "***"),
        ("/upstreams/a/rate/per_key/limit", "5/s"),
        ("/routes/0/request_headers/set/authorization", "***"),
        ("/routes/0/name", "***"),
        ("/routes/1/name", "nu"),
        ("/routes/1/path", "/plain"),
    ] {
        assert_eq!(dump.pointer(pointer).unwrap(), value, "{pointer}");
    }
    assert_eq!(dump["upstreams"]["a"]["retry"]["max_attempts"], 3, "a number is no secret");
}

#[test]
fn a_short_text_from_a_variable_is_hidden_where_it_stands_alone() {
    let text = "version: 1
upstreams: {orders: {endpoints: ['http://${H}']}}
routes: [{upstream: orders, host: '${H}', name: shh, path_prefix: /h}]
";
    let lookup = |name: &str| (name == "H").then(|| "h".to_owned());
    let overrides = Overrides::default();
    let (config, _) = parse(text.into(), "f".into(), None, &overrides, &lookup).unwrap();
    let dump = config.dump();
    assert_eq!(dump["routes"][0]["host"], "***");
    assert_eq!(dump["routes"][0]["name"], "shh");
    assert_eq!(dump["routes"][0]["path_prefix"], "/h");
}
