//! The binary. The only place that decides an exit code: 0 fine, 1 findings, 2 could not run.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use seawall_cli::args::{Cli, Command, RunArgs};
use seawall_cli::check::{Verdict, check};
use seawall_cli::demo::demo;
use seawall_cli::lab::{Judged, lab};
use seawall_cli::probe::probe;
use seawall_cli::terminal::wants_colour;
use seawall_cli::{paper, run};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Without anybody to read it, the code still tells.
            let _ = error.print();
            return if error.use_stderr() { COULD_NOT_RUN.into() } else { ExitCode::SUCCESS };
        }
    };
    match execute(cli.command) {
        Ok(code) => code,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            COULD_NOT_RUN.into()
        }
    }
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => serve(&args),
        Command::Demo => {
            let verdict = demo(std::env::current_exe().context("find this program")?)?;
            Ok(if verdict.passed() { ExitCode::SUCCESS } else { FINDINGS.into() })
        }
        Command::Lab(command) => Ok(match lab(&command)? {
            Judged::Passed => ExitCode::SUCCESS,
            Judged::Failed => FINDINGS.into(),
            Judged::Invalid => COULD_NOT_RUN.into(),
        }),
        Command::Probe(args) => {
            let answer = probe(&args)?;
            writeln!(io::stdout(), "{}", answer.said)?;
            Ok(if answer.yes { ExitCode::SUCCESS } else { FINDINGS.into() })
        }
        Command::Completions(args) => {
            io::stdout().write_all(&paper::completions(args.shell))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Schema => {
            io::stdout().write_all(seawall_gateway::SCHEMA.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => {
            io::stdout().write_all(&paper::man(&args.command)?)?;
            Ok(ExitCode::SUCCESS)
        }
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

/// Serves until it is told to leave.
fn serve(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let colour = wants_colour(&io::stderr());
    let (config, warnings) = match run::config(args) {
        Ok(read) => read,
        // Each says `error:` itself.
        Err(errors) => {
            match colour {
                true => writeln!(io::stderr(), "{}", errors.coloured())?,
                false => writeln!(io::stderr(), "{errors}")?,
            }
            return Ok(COULD_NOT_RUN.into());
        }
    };
    for warning in &warnings {
        match colour {
            true => writeln!(io::stderr(), "{}", warning.coloured())?,
            false => writeln!(io::stderr(), "{warning}")?,
        }
    }
    let runtime = run::runtime(run::workers(args.workers))?;
    let ended = runtime.block_on(seawall_gateway::run(config))?;
    // What was abandoned to its own end is not waited for.
    runtime.shutdown_background();
    let cut = ended.connections_cut + ended.requests_cut;
    Ok(if cut == 0 { ExitCode::SUCCESS } else { FINDINGS.into() })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The file is wrong, or something had to be cut.
const FINDINGS: u8 = 1;
/// Nothing could be judged or done.
const COULD_NOT_RUN: u8 = 2;
