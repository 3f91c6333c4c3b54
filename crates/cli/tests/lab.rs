//! `seawall lab`, as a shell sees it.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn lab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seawall")).arg("lab").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A file of this test, gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("seawall-{}-{name}", uuid::Uuid::new_v4())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The names in a folder of files with this ending.
fn names(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(ending).map(str::to_owned)).collect()
}

#[test]
fn every_scenario_is_listed_and_has_its_page() {
    let listed = lab(&["list"]);
    assert!(listed.status.success());
    let listed: BTreeSet<_> = text(&listed.stdout)
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert_eq!(listed, names("scenarios", ".toml"));
    let bless = std::env::var_os("SEAWALL_BLESS").is_some();
    for name in &listed {
        let page = text(&lab(&["explain", name]).stdout);
        let path = root().join(format!("docs/scenarios/{name}.md"));
        if bless {
            fs::write(&path, page).unwrap();
        } else {
            let is_there = fs::read_to_string(&path).is_ok_and(|there| there == page);
            assert!(is_there, "{} is old: run this test with SEAWALL_BLESS=1", path.display());
        }
    }
    assert_eq!(listed, names("docs/scenarios", ".md"));
}

#[test]
fn a_run_is_the_same_to_the_last_byte_for_any_number_of_threads() {
    let files = [Scratch::new("1.json"), Scratch::new("2.json")];
    let told = [("1", &files[0]), ("2", &files[1])].map(|(threads, file)| {
        let args =
            ["run", "contention", "--seeds", "4", "--threads", threads, "--json", file.path()];
        let output = lab(&args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(output.stderr.is_empty(), "nothing but the verdict in a pipe");
        (text(&output.stdout), fs::read_to_string(&file.0).unwrap())
    });
    assert_eq!(told[0], told[1]);
    assert!(told[0].0.starts_with("PASS  contention  ") && !told[0].0.contains('\x1b'));
    let json: serde_json::Value = serde_json::from_str(&told[0].1).unwrap();
    assert_eq!(json["scenarios"][0]["verdict"], "pass");
    assert!(json["scenarios"][0]["rows"].as_array().unwrap().len() > 4);
}

#[test]
fn the_report_is_one_file_that_needs_nothing_else() {
    let files = [Scratch::new("1.html"), Scratch::new("2.html")];
    let scenario = Scratch::new("hostile.toml");
    let right = fs::read_to_string(root().join("scenarios/burst-collapse.toml")).unwrap();
    let hostile = "name = \"three at once <script>alert(1)</script>&\\\" onload='x'\"";
    fs::write(&scenario.0, right.replace("name = \"three at once\"", hostile)).unwrap();
    for (threads, file) in [("1", &files[0]), ("2", &files[1])] {
        let run = ["run", scenario.path(), "contention", "--seeds", "2", "--threads", threads];
        let output = lab(&[&run[..], &["--html", file.path()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let [page, again] = files.map(|file| fs::read_to_string(&file.0).unwrap());
    assert!(page == again, "equal runs, equal pages");
    for foreign in ["http:", "https:", "src=", "url(", "@import", "<script", "\" onload="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let links: Vec<_> =
        page.match_indices("href=\"").map(|(at, _)| &page[at + 6..at + 7]).collect();
    assert!(links.iter().all(|to| ["#", "d"].contains(to)), "to itself, and no icon: {links:?}");
    for part in [
        "prefers-color-scheme: dark",
        "three at once &lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot; onload='x'",
        "aria-label=\"Calls and attempts a second, budget of 10%\"",
        "Why not tried again",
        "<li><i class=\"stop s2\"></i> budget 100.0%</li>",
        "<summary>Seed by seed</summary>",
        "id = \"heals\"".replace('"', "&quot;").as_str(),
        &format!("seawall lab run {} --seeds 2", scenario.path()),
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.len() < 600_000, "{} bytes", page.len());
}

#[test]
fn a_new_scenario_passes_and_has_a_map() {
    let files = [Scratch::new("new.toml"), Scratch::new("map.json"), Scratch::new("map.html")];
    let [file, json, html] = [0, 1, 2].map(|place| files[place].path());
    let made = lab(&["new", "my-storm", "--file", file]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains(&format!("seawall lab run {file}")));
    assert_eq!(lab(&["new", "my-storm", "--file", file]).status.code(), Some(2), "it is there");
    assert_eq!(lab(&["new", "My storm"]).status.code(), Some(2));
    let ran = lab(&["run", file]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    assert!(text(&ran.stdout).starts_with("PASS  my-storm  "));

    let maps = ["1", "2"].map(|threads| {
        let map = lab(&["map", file, "--threads", threads, "--json", json, "--html", html]);
        assert_eq!(map.status.code(), Some(0), "{}", text(&map.stderr));
        assert!(map.stderr.is_empty());
        let written = [json, html].map(|file| fs::read_to_string(file).unwrap());
        (text(&map.stdout), written)
    });
    assert_eq!(maps[0], maps[1]);
    let (told, [json, html]) = &maps[0];
    for line in [
        "      10 s  ░    [░]    ░     █",
        "           50%   70%   90%   110%  load",
        "  slow for 10 s: recovers up to load 90%; here 70%, a margin of +28.6%",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    }
    assert!(!told.contains('\x1b') && told.lines().all(|line| line == line.trim_end()));
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["largest_load_ratio_that_recovers"], 0.9);
    assert_eq!(json["spots"].as_array().unwrap().len(), 16);
    assert!(html.contains("operating point") && !html.contains("http"));

    // A point from which it does not recover is an answer as well.
    let over = fs::read_to_string(file).unwrap().replace("\"70%\", \"10 s\"", "\"110%\", \"10 s\"");
    fs::write(file, over).unwrap();
    assert_eq!(lab(&["map", file, "--seeds", "1"]).status.code(), Some(1));
    assert_eq!(lab(&["map", "contention"]).status.code(), Some(2), "it has no map");
}

#[test]
fn two_runs_are_compared_row_by_row() {
    let files = ["1.json", "2.json", "new.toml", "pair.html"].map(Scratch::new);
    let [before, after, file, page] = [0, 1, 2, 3].map(|place| files[place].path());
    let right = fs::read_to_string(root().join("scenarios/burst-collapse.toml")).unwrap();
    fs::write(file, &right).unwrap();
    assert!(lab(&["run", file, "--seeds", "3", "--json", before]).status.success());
    let same = lab(&["compare", before, before]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert_eq!(text(&same.stdout), "  0 changed, 6 alike\n");

    let budget = r#"retry_budget = { ratio = "10%" }"#;
    let wrong =
        right.replacen(budget, r#"retry_budget = "off""#, 1).replace("a single try", "one try");
    fs::write(file, wrong).unwrap();
    assert_eq!(lab(&["run", file, "--seeds", "3", "--json", after]).status.code(), Some(1));
    let worse = lab(&["compare", before, after, "--html", page]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stderr));
    let told = text(&worse.stdout);
    let ends = |arm: &str| {
        let line = told.lines().find(|line| line.contains(&format!("  {arm}  "))).unwrap();
        line.rsplit("  ").next().unwrap().to_owned()
    };
    assert_eq!(["budget of 10%", "one try", "a single try"].map(ends), ["BROKEN", "new", "gone"]);
    assert!(told.ends_with("  3 changed, 4 alike\n"), "{told}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<tr class=\"broken\"><td>budget of 10%</td>") && !page.contains("http"));
    assert_eq!(lab(&["compare", after, before]).status.code(), Some(1), "one try is gone");

    fs::write(file, "{\"version\": 1}").unwrap();
    let output = lab(&["compare", before, file]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("not what `lab run --json` writes: scenarios: is missing"), "{told}");
}

#[test]
fn one_call_is_followed_and_all_events_are_written_on_request() {
    let file = Scratch::new("events.txt");
    let one = ["run", "burst-collapse", "--arm", "three at once", "--seed", "3"];
    let told = lab(&[&one[..], &["--trace", "4.21", "--events", file.path()]].concat());
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    let shown = text(&told.stdout);
    let call: Vec<_> = shown.lines().skip_while(|line| !line.starts_with("  call 4.21")).collect();
    assert!(call[1].ends_with("  +0.000000    begins: a call to server"), "{shown}");
    assert!(call[2].ends_with("attempt 1 at server is sent"), "{shown}");
    let events = fs::read_to_string(&file.0).unwrap();
    let mine = events.lines().filter(|line| line.contains("  4.21  ")).count();
    assert_eq!(mine, call.iter().filter(|line| line.contains("  +")).count());
    assert!(shown.contains(&format!("  {} lines in ", events.lines().count())));

    let refused = |args: &[&str]| {
        let output = lab(&[&["run"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr)
    };
    let all = ["burst-collapse", "--trace", "4.21"];
    assert!(refused(&[&all[..], &["--seeds", "2"]].concat()).contains("field `seeds`: 2"));
    assert!(refused(&[&all[..], &["--seed", "0"]].concat()).contains("field `arm`: several"));
    assert!(refused(&[&all[..], &["contention"]].concat()).contains("of one scenario"));
    assert!(refused(&[&one[1..], &["--trace", "4.99999"]].concat()).contains("never began"));
    assert!(refused(&["burst-collapse", "--trace", "17"]).contains("like 17.3"));
    let other = ["contention", "--arm", "full jitter", "--case", "10 clients", "--seed", "0"];
    assert!(refused(&[&other[..], &["--trace", "0.0"]].concat()).contains("a fleet"));
}

/// TOML as JSON, for the schema.
fn as_json(value: &toml::de::DeValue<'_>) -> serde_json::Value {
    use toml::de::DeValue;
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => number.as_str().replace('_', "").parse::<i64>().unwrap().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(list) => list.iter().map(|value| as_json(value.get_ref())).collect(),
        DeValue::Table(table) => {
            let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                (key.clone().into_owned(), as_json(value.get_ref()))
            };
            serde_json::Value::Object(table.iter().map(entry).collect())
        }
    }
}

#[test]
fn the_schema_takes_every_scenario_and_refuses_what_the_reader_refuses() {
    let schema = lab(&["schema"]);
    assert!(schema.status.success());
    assert_eq!(schema.stdout, lab(&["schema"]).stdout, "the same every time");
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let mut template = Vec::new();
    let file = Scratch::new("new.toml");
    assert!(lab(&["new", "storm", "--file", file.path()]).status.success());
    template.push(file.0.clone());
    let all = names("scenarios", ".toml").into_iter();
    let all = all.map(|name| root().join(format!("scenarios/{name}.toml")));
    for path in all.chain(template) {
        let text = fs::read_to_string(&path).unwrap();
        let table = toml::de::DeTable::parse(&text).unwrap();
        let table = toml::de::DeValue::Table(table.into_inner());
        let told: Vec<_> = validator
            .iter_errors(&as_json(&table))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        // What is read as a bare node is told to the schema by `scenario/known.rs`.
        assert!(told.is_empty(), "{}: {told:#?}", path.display());
    }
    let right = fs::read_to_string(&file.0).unwrap();
    let several = fs::read_to_string(root().join("scenarios/bridges.toml")).unwrap();
    let of_services = [
        ("workers = 70", "worker = 70"),
        ("workers = 70", "workers = 0"),
        ("to = \"gateway\"", "to = 3"),
        ("to = \"gateway\"", "to = { one_off = [\"gateway\"] }"),
        ("[{ one_of = [", "[{ any_of = ["),
        (
            "attempt = \"10s\" }\nretry = \"off\"\nbreaker = \"off\"\nbulkhead = \"off\"\n\n[service",
            "attempt = 10 }\n\n[service",
        ),
        ("[service.gateway.policy]\ntimeouts", "[service.gateway.policy]\ntimeout"),
    ];
    let of_services = of_services.map(|(from, to)| (&several, from, to));
    let of_one = [
        ("seeds = 3", "seed = 3"),
        ("seeds = 3", "seeds = 0"),
        ("title = ", "subtitle = "),
        ("warm_up = \"5s\"", "warmup = \"5s\""),
        ("warm_up = \"5s\"", "warm_up = 5"),
        ("rate = \"70/s\"", "rate = 70"),
        ("\nsharing = \"all\"", "\nsharing = \"none\""),
        ("workers = 10", "workers = \"10\""),
        ("{ exponential = \"100ms\" }", "{ exponentiel = \"100ms\" }"),
        ("do = \"slow\"", "do = \"slower\""),
        ("{ max_attempts = 3 }", "{ max_attempts = 11 }"),
        ("role = \"test\"", "role = \"tset\""),
        ("metric = \"goodput\"", "metric = \"badput\""),
        ("{ name = \"50%\", calls = { rate = \"50/s\" } }", "{ name = \"50%\", calls = 50 }"),
    ];
    let of_one = of_one.map(|(from, to)| (&right, from, to));
    for (right, from, to) in of_one.into_iter().chain(of_services) {
        assert!(right.contains(from), "{from}");
        let wrong = right.replacen(from, to, 1);
        let table = toml::de::DeTable::parse(&wrong).unwrap();
        let table = toml::de::DeValue::Table(table.into_inner());
        assert!(!validator.is_valid(&as_json(&table)), "{to} is taken by the schema");
        fs::write(&file.0, &wrong).unwrap();
        assert_eq!(lab(&["explain", file.path()]).status.code(), Some(2), "{to} is taken");
    }
}

#[test]
fn a_file_is_checked_and_advised_before_it_is_run() {
    let file = Scratch::new("new.toml");
    assert!(lab(&["new", "storm", "--file", file.path()]).status.success());
    let right = fs::read_to_string(&file.0).unwrap();
    let fine = lab(&["check", file.path(), "contention"]);
    assert_eq!(fine.status.code(), Some(0));
    assert_eq!(text(&fine.stdout).lines().count(), 2, "nothing speaks against it");
    fs::write(&file.0, right.replace("rate = \"70/s\"\n\n", "rate = \"95/s\"\n\n")).unwrap();
    let advised = lab(&["check", file.path()]);
    assert_eq!(advised.status.code(), Some(0), "{}", text(&advised.stderr));
    assert!(text(&advised.stdout).contains("  advice, ours: a peak load of 95% and"));
    fs::write(&file.0, right.replace("workers = 10\n", "workers = 0\n")).unwrap();
    let wrong = lab(&["check", "contention", file.path()]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text(&wrong.stderr).contains("server.workers: `0` is not allowed"));
    assert_eq!(lab(&["check", "no-such"]).status.code(), Some(2));
}

#[test]
fn tables_say_what_every_arm_came_to_and_where_a_baseline_is_better() {
    let files = [Scratch::new("1.md"), Scratch::new("2.md")];
    let pages = [("1", &files[0]), ("2", &files[1])].map(|(threads, file)| {
        let run = ["run", "contention", "--seeds", "9", "--threads", threads];
        let ran = lab(&[&run[..], &["--markdown", file.path()]].concat());
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        fs::read_to_string(&file.0).unwrap()
    });
    assert_eq!(pages[0], pages[1]);
    for part in [
        "| [contention](#contention) | pass | 9 | 81 | `",
        "](../scenarios/contention.md).\n\n### 10 clients\n\n| arm | writes | ended | |\n|---|--:|--:|---|\n",
        "\n| **full jitter** | ",
        " | control: misses `few-of-100`, as it must |\n",
    ] {
        assert!(pages[0].contains(part), "{part}\n{}", pages[0]);
    }
    let file = Scratch::new("3.md");
    let case = ["run", "retry-budget", "--case", "all fail", "--seeds", "2"];
    assert!(lab(&[&case[..], &["--markdown", file.path()]].concat()).status.success());
    let page = fs::read_to_string(&file.0).unwrap();
    let better = "- all fail, `bounded`: 1.000x ±0.000x with “10% of first tries”, 1.020x ±";
    assert!(page.contains(better), "{page}");
}

#[test]
fn a_failing_scenario_says_how_to_replay_it_and_the_exit_code_tells() {
    let file = Scratch::new("wrong.toml");
    let right = fs::read_to_string(root().join("scenarios/burst-collapse.toml")).unwrap();
    let budget = r#"retry_budget = { ratio = "10%" }"#;
    fs::write(&file.0, right.replace(budget, r#"retry_budget = "off""#)).unwrap();
    let junit = Scratch::new("junit.xml");
    let output = lab(&["run", file.path(), "--seeds", "2", "--junit", junit.path()]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(told.starts_with("FAIL  burst-collapse"), "{told}");
    let replay = format!("seawall lab run {} --arm 'budget of 10%' --seed ", file.path());
    let line = told.lines().find(|line| line.contains(&replay)).unwrap();
    let (_, command) = line.split_once("seawall lab ").unwrap();
    let again = format!("{} lab {command}", env!("CARGO_BIN_EXE_seawall"));
    let again = Command::new("sh").args(["-c", &again]).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "the replay fails as well");
    let again = text(&again.stdout);
    assert!(
        again.contains("  1 run, digest") && again.contains("FAIL"),
        "and it is that run: {again}"
    );
    let junit = fs::read_to_string(&junit.0).unwrap();
    assert!(junit.contains("<failure message=\"goodput in 60..80 s at least 50.0%"), "{junit}");

    // A control that heals shows that the scenario shows nothing.
    let naive = "name = \"three at once\"\n";
    let healed = format!("{naive}policy = {{ {budget} }}\n");
    fs::write(&file.0, right.replace(naive, &healed)).unwrap();
    let output = lab(&["run", file.path(), "--seeds", "2"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stdout).starts_with("INVALID"));

    fs::write(&file.0, right.replace("\"3s\"", "3000")).unwrap();
    let output = lab(&["run", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains(&format!("{}:", file.path())) && told.contains("`3000`"), "{told}");
    for args in [&["run", "no-such"][..], &["explain", "no-such"], &["run", "/nowhere.toml"], &[]] {
        assert_eq!(lab(args).status.code(), Some(2), "{args:?}");
    }
}
