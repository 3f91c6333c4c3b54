//! The binary. The only place that decides an exit code: 0 fine, 1 findings, 2 could not run.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use seawall_cli::args::{Cli, Command};
use seawall_cli::check::{Verdict, check};
use seawall_cli::terminal::wants_colour;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Without anybody to read it, the code still tells.
            let _ = error.print();
            return if error.use_stderr() { COULD_NOT_RUN.into() } else { ExitCode::SUCCESS };
        }
    };
    match run(cli.command) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            COULD_NOT_RUN.into()
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => {
            let colour = wants_colour(&io::stderr());
            let verdict = check(&args, &mut io::stdout(), &mut io::stderr(), colour)?;
            Ok(match verdict {
                Verdict::Fine => ExitCode::SUCCESS,
                Verdict::Wrong => FINDINGS.into(),
                Verdict::Unreadable => COULD_NOT_RUN.into(),
            })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The file is wrong.
const FINDINGS: u8 = 1;
/// Nothing could be judged or done.
const COULD_NOT_RUN: u8 = 2;
