//! The report in a browser, at the width of a phone and of a desktop, light and dark.
//!
//! Needs `chromium`, so it is no part of `cargo test --workspace`; `./dev test` installs one where
//! there is none and runs it.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of this test, gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("seawall-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab(args: &[&str]) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_seawall")).arg("lab").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a page is once it has been opened, and what the browser had to say about it.
fn opened(scratch: &Scratch, page: &Path, is_dark: bool) -> (String, String) {
    let profile = scratch.file(&format!("profile-{}", uuid::Uuid::new_v4()));
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args([
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--window-size=1400,900",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    if is_dark {
        command.arg("--force-dark-mode");
    }
    let output = command.arg(format!("file://{}", page.display())).output();
    let output =
        output.unwrap_or_else(|error| panic!("chromium, which ./dev test installs: {error}"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    (String::from_utf8(output.stdout).unwrap(), told)
}

/// A page that holds another at a width, and tells what it finds there.
fn held(page: &str, width: u32) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    HARNESS.replace("WIDTH", &width.to_string()).replace("PAGE", &page)
}

/// One finding a line: what sticks out of the page or of its picture, or has no size.
const HARNESS: &str = r#"<!doctype html><meta charset="utf-8"><pre id="told">not measured</pre>
<iframe id="page" style="width:WIDTHpx;height:800px;border:0" srcdoc="PAGE"></iframe>
<script>
addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument;
  const root = page.documentElement;
  const told = [];
  if (root.clientWidth !== WIDTH) told.push(`width: ${root.clientWidth}`);
  if (root.scrollWidth > WIDTH) told.push(`overflow: ${root.scrollWidth}`);
  page.querySelectorAll("details").forEach(it => it.open = true);
  if (root.scrollWidth > WIDTH) told.push(`overflow when all is open: ${root.scrollWidth}`);
  for (const svg of page.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (frame.width < 8 || frame.height < 8) told.push(`no size: ${svg.outerHTML.slice(0, 90)}`);
    const texts = [...svg.querySelectorAll("text")].map(it => [it, it.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 ||
          box.bottom > frame.bottom + 1) told.push(`sticks out: ${text.textContent}`);
      for (const [other, there] of texts) {
        if (other === text) break;
        const across = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const along = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        if (across > 1 && along > 3) 
          told.push(`overlap: ${text.textContent} and ${other.textContent}`);
      }
    }
  }
  const paper = getComputedStyle(page.body).backgroundColor;
  const count = page.querySelectorAll("svg").length;
  document.getElementById("told").textContent = `${count} pictures on ${paper}\n${told.join("\n")}`;
});
</script>"#;

/// What the harness tells: how much there is on which paper, and findings.
fn measured(scratch: &Scratch, page: &str, width: u32, is_dark: bool) -> (String, Vec<String>) {
    let file = scratch.file(&format!("held-{width}-{is_dark}.html"));
    fs::write(&file, held(page, width)).unwrap();
    let (dom, _) = opened(scratch, &file, is_dark);
    let (_, told) = dom.split_once("<pre id=\"told\">").unwrap();
    let (told, _) = told.split_once("</pre>").unwrap();
    let mut lines = told.lines().map(str::to_owned);
    let first = lines.next().unwrap_or_default();
    (first, lines.filter(|line| !line.is_empty()).collect())
}

fn check(scratch: &Scratch, file: &Path) {
    let (_, told) = opened(scratch, file, false);
    let said: Vec<_> = told.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "the browser has nothing to say: {said:#?}");
    let page = fs::read_to_string(file).unwrap();
    for (is_dark, paper) in [(false, "rgb(252, 252, 251)"), (true, "rgb(20, 23, 26)")] {
        for width in [390, 1280] {
            let (first, findings) = measured(scratch, &page, width, is_dark);
            assert!(first.contains("pictures on") && !first.starts_with("0 "), "{first}");
            assert!(first.ends_with(paper), "dark: {is_dark}: {first}");
            assert!(findings.is_empty(), "{width}, dark: {is_dark}: {findings:#?}");
        }
    }
}

#[test]
fn the_report_fits_a_phone_and_a_desktop_light_and_dark() {
    let scratch = Scratch::new();
    let file = scratch.file("report.html");
    let names = ["burst-collapse", "contention", "flapping", "retry-budget", "told-when"];
    let html = ["--seeds", "2", "--html", file.to_str().unwrap()];
    lab(&[&["run"], &names[..], &html].concat());
    check(&scratch, &file);
}

#[test]
fn a_map_fits_as_well() {
    let scratch = Scratch::new();
    let [scenario, page] = ["storm.toml", "map.html"].map(|name| scratch.file(name));
    lab(&["new", "storm", "--file", scenario.to_str().unwrap()]);
    lab(&["map", scenario.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    check(&scratch, &page);
}

#[test]
fn two_runs_side_by_side_fit_as_well() {
    let scratch = Scratch::new();
    let [one, other, page] = ["1.json", "2.json", "pair.html"].map(|name| scratch.file(name));
    for (seeds, file) in [("2", &one), ("3", &other)] {
        lab(&["run", "contention", "--seeds", seeds, "--json", file.to_str().unwrap()]);
    }
    let files = [&one, &other].map(|file| file.to_str().unwrap());
    lab(&["compare", files[0], files[1], "--html", page.to_str().unwrap()]);
    check(&scratch, &page);
}

#[test]
fn the_check_finds_what_is_wrong_with_a_page() {
    let scratch = Scratch::new();
    let page = "<body style='margin:0'><div style='width:500px'>x</div><svg viewBox='0 0 10 10' \
                style='width:100px;height:100px'><text x='9' y='5'>long</text></svg>";
    let (first, findings) = measured(&scratch, page, 390, false);
    assert!(first.starts_with("1 pictures on "), "{first}");
    assert!(findings.contains(&"overflow: 500".to_owned()), "{findings:?}");
    assert!(findings.contains(&"sticks out: long".to_owned()), "{findings:?}");
    let file = scratch.file("wrong.html");
    fs::write(&file, "<script>console.error('no'); nothing();</script>").unwrap();
    let (_, told) = opened(&scratch, &file, false);
    assert!(told.contains("CONSOLE"), "what goes wrong is heard: {told}");
}
