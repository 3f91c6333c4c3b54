//! `seawall lab new`: writes a scenario to begin with, every part of it explained.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::run::quoted;
use crate::args::LabNewArgs;

pub(super) fn new(args: &LabNewArgs) -> anyhow::Result<()> {
    let name = &args.name;
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(fits) {
        bail!(
            "a scenario cannot be called `{name}`; give up to {MOST_NAME} of a to z, 0 to 9 and -"
        );
    }
    let path = args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.toml")));
    write(&path, &text(name)).with_context(|| format!("write {}", path.display()))?;
    let path = quoted(&path.display().to_string());
    writeln!(io::stdout(), "wrote {path}; try it with: seawall lab run {path}")?;
    Ok(())
}

/// The file of a scenario of that name.
fn text(name: &str) -> String {
    TEMPLATE
        .replace("name = \"NAME\"", &format!("name = \"{name}\""))
        .replace("NAME.toml", &format!("{name}.toml"))
}

/// Writes a file that is not there yet.
fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

pub(super) const TEMPLATE: &str = include_str!("new.toml");
/// Letters of a name, as the reader of scenarios has it.
const MOST_NAME: usize = 60;
