//! `seawall completions` and `seawall man`: made of the command line's own description.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;

/// What completes the commands in a shell.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut written = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut written);
    written
}

/// The manual's page of everything, or of one command, `lab run` as well.
///
/// # Errors
/// There is no such command.
pub fn man(command: &[String]) -> anyhow::Result<Vec<u8>> {
    let mut all = Cli::command();
    all.build();
    let mut page = &all;
    for name in command {
        let one = page.find_subcommand(name);
        page = one.with_context(|| format!("there is no command {}", command.join(" ")))?;
    }
    let mut written = Vec::new();
    Man::new(page.clone()).render(&mut written).context("write the page")?;
    Ok(written)
}

const NAME: &str = "seawall";
