//! No second implementation: what the lab tests is the policy, so it must not hold a copy of it.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What the policy decides. Nothing here may define a thing named after one of them, except, for
/// comparison, in the module `baselines`.
const DECISIONS: [&str; 17] = [
    "retr", "backoff", "jitter", "budget", "token", "breaker", "bulkhead", "limiter", "throttl",
    "hedg", "outlier", "eject", "shed", "balanc", "codel", "quota", "admi",
];

/// What introduces a name.
const DEFINES: [&str; 8] =
    ["fn ", "struct ", "enum ", "trait ", "mod ", "const ", "static ", "type "];

/// What the lab may be built of.
const MAY_USE: [&str; 5] = ["hdrhistogram", "libm", "seawall-policy", "strsim", "toml"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All code of the lab but its tests and the baselines.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_stem().unwrap().to_str().unwrap();
            if matches!(name, "tests" | "baselines") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((shown(&path), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 10, "the files are found");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The name of the decision that a line of code defines something of.
fn defines(line: &str) -> Option<&'static str> {
    let line = line.split("//").next().unwrap();
    let name = DEFINES.iter().find_map(|word| {
        let (before, rest) = line.split_once(word)?;
        let is_whole = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        is_whole.then(|| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
    })?;
    let words = words(name);
    let begins = |decision: &&&str| words.iter().any(|word| word.starts_with(**decision));
    DECISIONS.iter().find(begins).copied()
}

/// The words of a name, in lower case: of `RetryTimer` and `retry_timer` the same two.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        words.last_mut().unwrap().extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    words
}

/// A file's lines without its tests, which may name what they like.
fn shipped(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().enumerate()
}

#[test]
fn definitions_are_recognized() {
    assert_eq!(defines("struct RetryTimer {"), Some("retr"));
    assert_eq!(defines("    pub(crate) const fn backoff_of(n: u32) -> u64 {"), Some("backoff"));
    assert_eq!(defines("const MAX_TOKENS: u32 = 10;"), Some("token"));
    assert_eq!(defines("mod breaker;"), Some("breaker"));
    assert_eq!(defines("    bulkhead: Option<BulkheadOptions>,"), None);
    assert_eq!(defines("use seawall_policy::{Bulkhead, Retry};"), None);
    assert_eq!(defines("// fn retry()"), None);
    assert_eq!(defines("let infn retry"), None);
    assert_eq!(defines("fn finished()"), None, "`shed` is no word of it");
    assert_eq!(defines("struct LoadShedding;"), Some("shed"));
}

#[test]
fn the_lab_decides_nothing_that_the_policy_decides() {
    let mut findings = Vec::new();
    for (path, text) in files() {
        for (number, line) in shipped(&text) {
            if let Some(decision) = defines(line) {
                findings.push(format!("{path}:{}: {decision}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_call_is_driven_through_the_policys_operation_and_nothing_else() {
    // A call begins where it stays, or is moved there.
    let begins = |(_, text): &&(String, String)| {
        text.contains("Operation::new(") || text.contains("Operation::begin(")
    };
    let files = files();
    let drivers: Vec<_> = files.iter().filter(begins).map(|(path, _)| path.as_str()).collect();
    let known = ["src/fleet/caller.rs", "src/models/fanout.rs"];
    assert_eq!(BTreeSet::from_iter(drivers), BTreeSet::from(known), "of a fleet, and of a fan-out");
    // The operation asks for attempts; whoever asks a dependency itself has left it out. A server
    // whose queue is one of the policy's asks that one.
    let of_servers = ["src/server/fair.rs", "src/server/production.rs"];
    for (path, text) in files.iter().filter(|(path, _)| !of_servers.contains(&path.as_str())) {
        for (number, line) in shipped(text) {
            let asks = [".admit(", ".claim(", ".check_rate(", "decide("];
            let asked = asks.iter().find(|call| line.contains(**call));
            assert_eq!(asked, None, "{path}:{}", number + 1);
        }
    }
}

#[test]
fn the_lab_is_built_of_the_policy_and_of_next_to_nothing_else() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]\n").unwrap();
    let section = rest.split("\n[").next().unwrap();
    let used: Vec<_> = section
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()))
        .collect();
    assert_eq!(used, MAY_USE);
}

#[test]
fn nothing_in_the_lab_reads_a_clock_entropy_or_the_order_of_a_hash() {
    let foreign = ["Instant", "SystemTime", "HashMap", "HashSet", "RandomState", ".ln()", ".exp()"];
    for (path, text) in files() {
        for (number, line) in shipped(&text) {
            let code = line.split("//").next().unwrap();
            let found = foreign.iter().find(|word| code.contains(**word));
            // The platform's logarithms differ in their last bit; `libm`'s do not.
            assert_eq!(found, None, "{path}:{}", number + 1);
        }
    }
}
