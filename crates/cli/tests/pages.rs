//! The pages at the root and in `docs/` say what is there: links lead somewhere, tests that are
//! named exist, configurations can be run, every word of an answer is explained.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use seawall_policy::StopReason;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// The files below `folder` with this ending, as paths from the root.
fn below(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let from_root = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if from_root.ends_with(ending) => found.push(from_root),
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn pages() -> Vec<String> {
    let mut pages = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(str::to_owned).to_vec();
    pages.extend(below("docs", ".md"));
    pages
}

/// What stands between backticks within a line.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let after = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    after.split("\n## ").next().unwrap()
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() {
    for name in pages() {
        let text = page(&name);
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            assert!(path.is_empty() || folder.join(path).exists(), "{name}: {link}");
            let is_heading = |line: &str| {
                let words = line.trim_start_matches('#').trim().to_lowercase();
                line.starts_with('#') && words.replace(' ', "-") == anchor
            };
            let there = if path.is_empty() {
                text.clone()
            } else {
                fs::read_to_string(folder.join(path)).unwrap_or_default()
            };
            assert!(anchor.is_empty() || there.lines().any(is_heading), "{name}: {link}");
        }
    }
}

#[test]
fn every_configuration_that_is_shown_can_be_run() {
    let mut seen = 0;
    for name in pages() {
        let text = page(&name);
        let blocks = text.split("```yaml\n").skip(1);
        for block in blocks.map(|rest| rest.split("```").next().unwrap()) {
            if !block.starts_with("version:") {
                continue;
            }
            seen += 1;
            let file = std::env::temp_dir().join(format!("pages-{}-{seen}", std::process::id()));
            fs::write(&file, block).unwrap();
            let mut check = Command::new(env!("CARGO_BIN_EXE_seawall"));
            let checked = check.arg("check").arg(&file).output().unwrap();
            fs::remove_file(&file).unwrap();
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(checked.status.success() && said.is_empty(), "{name}: {said}");
        }
    }
    assert!(seen >= 2, "configurations are found");
}

#[test]
fn every_test_that_holds_an_invariant_exists() {
    let code: Vec<_> = below("crates", ".rs").iter().map(|name| page(name)).collect();
    let architecture = page("ARCHITECTURE.md");
    let named = quoted(section(&architecture, "Invariants"));
    let named: Vec<_> = named.filter(|word| word.matches('_').count() >= 3).collect();
    assert!(named.len() > 30, "tests are named");
    for name in named {
        let written = format!("fn {name}(");
        assert!(code.iter().any(|text| text.contains(&written)), "there is no test {name}");
    }
}

#[test]
fn every_stop_reason_and_flag_is_explained_to_whoever_is_paged() {
    let operations = page("docs/operations.md");
    let explained: Vec<_> = quoted(section(&operations, "Why it stopped")).collect();
    for reason in StopReason::ALL {
        assert!(explained.contains(&reason.as_str()), "{}", reason.as_str());
    }
    let log = page("docs/access-log.md");
    let flags = section(&log, "Response flags").lines().filter(|line| line.starts_with("| `"));
    let explained: Vec<_> = quoted(section(&operations, "Response flags")).collect();
    for flag in flags.map(|row| quoted(row).next().unwrap()) {
        assert!(explained.contains(&flag), "{flag}");
    }
}

#[test]
fn every_problem_code_is_explained() {
    let operations = page("docs/operations.md");
    let explained: Vec<_> = quoted(section(&operations, "Problem codes")).collect();
    let mut seen = 0;
    for file in ["answer", "conclude", "pipeline"] {
        let code = page(&format!("crates/gateway/src/{file}.rs"));
        for word in code.split('"').skip(1).step_by(2) {
            let is_code = word.contains('-')
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                && word != "idempotency-key";
            if is_code {
                seen += 1;
                assert!(explained.contains(&word), "{file}.rs: {word}");
            }
        }
    }
    assert!(seen > 15, "codes are found");
}

#[test]
fn whatever_can_hold_work_in_the_code_is_on_the_page_of_queues() {
    let page = page("docs/queues.md");
    let rows = section(&page, "Where it is in the code").lines();
    let rows: Vec<Vec<_>> = rows.map(|row| quoted(row).collect()).collect();
    let mut findings = Vec::new();
    let mut bounds = BTreeSet::new();
    let files = ["policy", "seawall", "gateway"].map(|name| (name, format!("crates/{name}/src/")));
    for (name, src) in &files {
        for file in below(src, ".rs") {
            let short = file.replacen(src, &format!("{name}/"), 1);
            // The configuration is read once, before there is work.
            let is_read_once = short.starts_with("gateway/config");
            if is_read_once || short.split('/').any(|part| part.starts_with("test")) {
                continue;
            }
            let code = self::page(&file);
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            let row = rows.iter().find(|row| row.contains(&short.as_str()));
            for line in code {
                if row.is_none() && HOLDERS.iter().any(|holder| line.contains(holder)) {
                    findings.push(format!("{short}: {}", line.trim()));
                }
                let Some(bound) = bound_of(line) else { continue };
                bounds.insert(bound.to_owned());
                if row.is_none_or(|row| !row.contains(&bound)) {
                    findings.push(format!("{short}: {bound}"));
                }
            }
        }
    }
    let is_constant = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    for word in rows.iter().flatten().filter(|word| word.chars().all(is_constant)) {
        let is_there = bounds.contains(*word);
        findings.extend((!is_there).then(|| format!("docs/queues.md: there is no {word}")));
    }
    for word in rows.iter().flatten().filter(|word| word.ends_with(".rs")) {
        let (name, rest) = word.split_once('/').unwrap();
        let is_there = root().join(format!("crates/{name}/src/{rest}")).exists();
        findings.extend((!is_there).then(|| format!("docs/queues.md: there is no {word}")));
    }
    assert!(bounds.len() > 25, "bounds are found");
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

/// A constant of this line that bounds a number of things.
fn bound_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("const ")?;
    let (name, kind) = rest.split_once(": ")?;
    let is_count = ["usize", "u32", "u64", "i32"].iter().any(|known| kind.starts_with(known));
    let is_bound = BOUNDS.iter().any(|word| name.contains(word));
    (is_count && is_bound && !NO_BOUNDS.contains(&name)).then_some(name)
}

/// Words of what can hold something.
const HOLDERS: [&str; 10] = [
    "VecDeque<",
    "BTreeMap<",
    "BTreeSet<",
    "HashMap<",
    "HashSet<",
    "Slab<",
    "mpsc::",
    "Semaphore::new",
    "JoinSet::new",
    "spawn_blocking",
];
/// Words in the names of constants that bound it.
const BOUNDS: [&str; 11] = [
    "MOST_",
    "MAX_",
    "_MAX",
    "QUEUE",
    "LOOKUPS",
    "CONNECTIONS",
    "BACKLOG",
    "STREAMS",
    "BYTES",
    "BUFFER",
    "BATCH",
];
/// Times, and the least that hyper takes.
const NO_BOUNDS: [&str; 4] = ["MARGIN_MAX", "MILLIS_MAX", "HYPER_BUFFER_MIN", "HTTP1_BUFFER_MIN"];

#[test]
fn the_code_map_is_made_of_the_modules_own_words() {
    let architecture = page("ARCHITECTURE.md");
    let (before, rest) = architecture.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let made = format!("{before}{BEGIN}\n{}{END}{after}", code_map());
    if std::env::var_os("SEAWALL_BLESS").is_some() {
        fs::write(root().join("ARCHITECTURE.md"), made).unwrap();
    } else {
        assert!(architecture == made, "the code map is old: run this test with SEAWALL_BLESS=1");
    }
}

fn code_map() -> String {
    let mut map = String::new();
    for name in ["policy", "seawall", "gateway", "lab", "cli"] {
        writeln!(map, "\n### {name}\n\n| file | first sentence |\n|---|---|").unwrap();
        let src = format!("crates/{name}/src/");
        for file in below(&src, ".rs") {
            let short = file.strip_prefix(&src).unwrap();
            if short.split('/').any(|part| part.starts_with("test")) {
                continue;
            }
            writeln!(map, "| `{short}` | {} |", first_sentence(&page(&file))).unwrap();
        }
    }
    map.push('\n');
    map
}

/// The first sentence of a module's doc, as text of a table's cell.
fn first_sentence(code: &str) -> String {
    let doc = code.lines().map_while(|line| line.strip_prefix("//! "));
    let paragraph = doc.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    let sentence = paragraph[..end].trim_end_matches(['.', ':']);
    sentence.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}

const BEGIN: &str = "<!-- code map -->";
const END: &str = "<!-- end of code map -->";
