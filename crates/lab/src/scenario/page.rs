//! The page of a scenario, made of its file.

use std::fmt::Write as _;

use super::{Role, Scenario};

impl Scenario {
    /// What it shows, why that matters, what to change where it fails, and how it is run: a page of
    /// Markdown.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> std::fmt::Result {
        let Self { name, title, shows, matters, change, seeds, .. } = self;
        writeln!(page, "# {title}\n\n{shows}\n")?;
        writeln!(page, "## Why it matters\n\n{matters}\n")?;
        writeln!(page, "## If it fails for you\n\n{change}\n")?;
        writeln!(page, "## What must hold\n")?;
        writeln!(
            page,
            "Every number is held against each of {seeds} seeds, unless it says mean.\n"
        )?;
        writeln!(page, "| threshold | asks for | of |\n|---|---|---|")?;
        for threshold in &self.thresholds {
            let id = &threshold.id;
            let asks = threshold.said();
            writeln!(page, "| `{id}` | {asks} | {} |", threshold.arms.join(", "))?;
        }
        writeln!(page, "\n| arm | there | in |\n|---|---|---|")?;
        for arm in &self.arms {
            let there = match arm.role {
                Role::Test => "to hold the thresholds".to_owned(),
                Role::Baseline => "to compare with".to_owned(),
                Role::Control => format!("as a control: must miss {}", quoted(&arm.misses)),
            };
            let cases = arm.cases.join(", ");
            let cases = if cases.is_empty() { "the one case" } else { &cases };
            writeln!(page, "| {} | {there} | {cases} |", arm.name)?;
        }
        writeln!(page, "\n## Run it\n\n```text\nseawall lab run {name}\n```\n")?;
        writeln!(page, "## The file\n\n```toml\n{}\n```", self.text.trim_end())
    }
}

fn quoted(ids: &[String]) -> String {
    ids.iter().map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ")
}
