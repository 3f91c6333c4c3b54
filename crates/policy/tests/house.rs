//! The checks of the house: what DESIGN and STYLE ask of every file, read from the files.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What each crate may name as a normal dependency among the crates of the workspace.
const ARROWS: [(&str, &[&str]); 8] = [
    ("seawall-policy", &[]),
    ("seawall", &["seawall-policy"]),
    ("seawall-stores", &["seawall-policy"]),
    ("seawall-gateway", &["seawall", "seawall-stores", "seawall-policy"]),
    ("seawall-consumer", &["seawall", "seawall-stores", "seawall-policy"]),
    ("seawall-lab", &["seawall-policy"]),
    ("seawall-audit", &["seawall-policy"]),
    (
        "seawall-cli",
        &[
            "seawall",
            "seawall-audit",
            "seawall-consumer",
            "seawall-gateway",
            "seawall-lab",
            "seawall-policy",
            "seawall-stores",
        ],
    ),
];

/// What the core may use from outside.
const POLICY_MAY_USE: [&str; 2] = ["libm", "thiserror"];

/// What must not be reachable from the core: clocks, entropy, threads, hash order, I/O, state
/// shared behind its back, floats, erased errors, and a panic for something undecided.
const FOREIGN_TO_POLICY: [&str; 21] = [
    "std::",
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "RandomState",
    "rand::",
    "getrandom",
    "thread",
    "static",
    "Mutex",
    "Atomic",
    "Cell",
    "RefCell",
    "println!",
    "unsafe",
    "f32",
    "f64",
    "Box<dyn",
    "panic!",
    "unreachable!",
];

/// Where floats are allowed all the same: sums of squares and quotients of times that differ by a
/// factor of a billion, by nothing but the four operations, which IEEE 754 rounds alike everywhere.
const STATISTICS: &str = "crates/policy/src/limit/";

/// Words of unfinished work; written in two halves so that this file may be searched too.
const UNFINISHED: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!"),
    concat!("unimple", "mented!"),
];

const MOST_LINES: usize = 400;
/// Longer all the same.
const LONGER: [(&str, usize, &str); 2] = [
    ("crates/gateway/src/pipeline.rs", 420, "the life of a request, told in one place"),
    ("crates/gateway/src/metrics/table.rs", 800, "one table, and nothing but its rows"),
];
const WIDEST_LINE: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A Rust file of the workspace.
struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

impl File {
    /// Whether all of it is tests.
    fn is_test(&self) -> bool {
        let parts: Vec<_> = self.path.split('/').collect();
        parts.iter().any(|part| matches!(*part, "tests" | "tests.rs" | "benches"))
    }

    /// Its lines up to the tests at its end.
    fn shipped(&self) -> Vec<&str> {
        let lines: Vec<_> = self.text.lines().collect();
        let is_end = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1] == "mod tests {";
        let end = lines.windows(2).position(is_end).unwrap_or(lines.len());
        lines[..end].to_vec()
    }
}

fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "the files of the workspace are found");
    found
}

/// Fails with every finding, one a line.
fn check(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// Whether `code` uses `name` as a whole word.
fn names(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        let open_end = !name.ends_with(is_word) || !after.is_some_and(is_word);
        // `'static` is a lifetime.
        !before.is_some_and(|c| is_word(c) || c == '\'') && open_end
    })
}

#[test]
fn names_finds_whole_words_only() {
    assert!(names("let x = Instant::now();", "Instant"));
    assert!(!names("let x = Instantly;", "Instant"));
    assert!(!names("fn f(x: &'static str)", "static"));
    assert!(names("std::mem::take(x)", "std::"));
}

#[test]
fn dependencies_point_down_and_the_core_uses_next_to_nothing() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() >= 4);
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            findings.push(format!("{name}: a crate without a place in the house"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let is_ours = ARROWS.iter().any(|(known, _)| *known == used);
            if is_ours && !allowed.contains(&used) {
                findings.push(format!("{name} -> {used}: an arrow that points up or aside"));
            }
            if name == "seawall-policy" && !POLICY_MAY_USE.contains(&used) {
                findings.push(format!("seawall-policy -> {used}: not for the core"));
            }
            if name != "seawall-cli" && used == "anyhow" {
                findings.push(format!("{name} -> anyhow: only the binary erases errors"));
            }
        }
    }
    check(&findings);
}

#[test]
fn the_core_is_no_std_and_reaches_no_clock_entropy_thread_or_hash_order() {
    let mut findings = Vec::new();
    for file in files() {
        if !file.path.starts_with("crates/policy/src/") || file.is_test() {
            continue;
        }
        if file.path.ends_with("src/lib.rs") && !file.text.contains("\n#![no_std]\n") {
            findings.push(format!("{}: not no_std", file.path));
        }
        for (number, line) in file.shipped().iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let is_foreign = |word: &&&str| {
                let may = **word == "f64" && file.path.starts_with(STATISTICS);
                !may && names(code, word)
            };
            for foreign in FOREIGN_TO_POLICY.iter().filter(is_foreign) {
                findings.push(format!("{}:{}: {foreign}", file.path, number + 1));
            }
        }
    }
    check(&findings);
}

#[test]
fn tests_run_the_shipped_code() {
    let mut findings = Vec::new();
    for file in files().iter().filter(|file| file.path.starts_with("crates/policy/src/")) {
        let lines: Vec<_> = file.text.lines().map(str::trim).collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let is_module = pair[1].starts_with("mod tests") || pair[1] == "extern crate std;";
            let is_conditional = pair[0].starts_with("#[cfg(") || pair[0].contains("cfg!(");
            if is_conditional && !(pair[0] == "#[cfg(test)]" && is_module) {
                findings.push(format!("{}:{}: {}", file.path, number + 1, pair[0]));
            }
        }
    }
    check(&findings);
}

#[test]
fn files_are_short_lines_narrow_modules_documented_and_work_finished() {
    let mut findings = Vec::new();
    for file in files() {
        let shipped = file.shipped().len();
        let longer = LONGER.iter().find(|(path, ..)| *path == file.path);
        let most = longer.map_or(MOST_LINES, |(_, lines, _)| *lines);
        if !file.is_test() && shipped > most {
            findings.push(format!("{}: {shipped} lines, at most {most}", file.path));
        }
        if !file.is_test() && !file.text.starts_with("//! ") {
            findings.push(format!("{}: no module doc", file.path));
        }
        for (number, line) in file.text.lines().enumerate() {
            let width = line.chars().count();
            // A string and a row of a table cannot be broken.
            let is_whole = line.contains('"') || line.trim_start().starts_with("//! |");
            if width > WIDEST_LINE && !is_whole {
                findings.push(format!("{}:{}: {width} wide", file.path, number + 1));
            }
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{}: {word}", file.path, number + 1));
            }
        }
    }
    check(&findings);
}

/// A key as it is compared: `RFC 9110, section 5.6.7.` and `rfc9110` are one.
fn key(text: &str) -> String {
    let end = text.find(['.', ',', '(', ':', ';', '`', ')', '|']).unwrap_or(text.len());
    let text = text[..end].split(" section").next().unwrap_or_default();
    text.trim().trim_matches('`').to_lowercase().replace(' ', "")
}

/// The keys that comments name: after `Source:`, and in the last column of a module's table if
/// that is headed `source`.
fn keys_used() -> Vec<(String, String)> {
    let mut used = Vec::new();
    for file in files().iter().filter(|file| !file.path.ends_with("tests/house.rs")) {
        let mut in_table = false;
        for (number, line) in file.text.lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else {
                in_table = false;
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim();
            let place = format!("{}:{}", file.path, number + 1);
            for named in comment.split("ource: ").skip(1) {
                used.push((key(named), place.clone()));
            }
            let cells: Vec<_> = comment.trim_matches('|').split('|').map(str::trim).collect();
            let is_row = comment.starts_with('|');
            let last = cells.last().copied().unwrap_or_default();
            let is_key = !last.starts_with("--") && !last.starts_with('[');
            if is_row && in_table && is_key {
                used.push((key(last.split(';').next().unwrap_or_default()), place));
            }
            in_table = is_row && (in_table || last == "source");
        }
    }
    used
}

#[test]
fn every_source_key_is_explained_and_every_explanation_used() {
    let sources = fs::read_to_string(root().join("docs/sources.md")).unwrap();
    let rows = sources.lines().filter(|line| line.starts_with("| `"));
    let explained: BTreeSet<String> =
        rows.map(|row| key(row.trim_start_matches("| `").split('`').next().unwrap())).collect();
    let used = keys_used();
    let mut findings: Vec<String> = used
        .iter()
        .filter(|(key, _)| !explained.contains(key))
        .map(|(key, place)| format!("{place}: source `{key}` is not in docs/sources.md"))
        .collect();
    let named: BTreeSet<_> = used.into_iter().map(|(key, _)| key).collect();
    let unused = explained.difference(&named);
    findings.extend(unused.map(|key| format!("docs/sources.md: nothing names `{key}`")));
    check(&findings);
}
