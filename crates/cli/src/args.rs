//! What can be said on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use seawall_gateway::parse_bind;

/// Keeps a service useful while everything around it fails at once.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand in front of a service and keep it useful while it fails.
    #[command(after_help = RUN_EXIT)]
    Run(RunArgs),
    /// Show a storm, met by a plain client and through the gateway, with a verdict; 35 s.
    #[command(after_help = DEMO_EXIT)]
    Demo,
    /// Tell what is wrong with a configuration file, and what it amounts to.
    #[command(after_help = CHECK_EXIT)]
    Check(CheckArgs),
    /// Try policies on a simulated fleet: scenarios with thresholds, and a verdict.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print the JSON Schema of the configuration file, for editors and other tools.
    Schema,
    /// Ask a gateway on this host whether it is ready, or alive: for the probes of an orchestrator.
    #[command(after_help = PROBE_EXIT)]
    Probe(ProbeArgs),
    /// Print what completes these commands in a shell.
    Completions(CompletionsArgs),
    /// Print the manual's page, of all or of one command, for `man -l -`.
    Man(ManArgs),
}

/// `seawall probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// What to ask.
    #[arg(value_enum, value_name = "WHAT")]
    pub what: Question,
    /// The gateway's admin address.
    #[arg(long, value_name = "ADDR", value_parser = bind, default_value = "127.0.0.1:9901")]
    pub admin: SocketAddr,
}

/// What a probe asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Question {
    /// Whether it takes requests; not while it drains.
    Ready,
    /// Whether the process works, in a drain too.
    Live,
}

/// `seawall lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// List the scenarios that are built in.
    List,
    /// Print the page of a scenario: what it shows, why it matters, what to change if it fails.
    Explain(ExplainArgs),
    /// Run scenarios and judge them.
    #[command(after_help = LAB_EXIT)]
    Run(LabRunArgs),
    /// Tell whether scenario files can be run, and what their own numbers say against them.
    #[command(after_help = LAB_CHECK_EXIT)]
    Check(LabCheckArgs),
    /// Compare two runs: what is held or missed now, and which numbers have moved.
    #[command(after_help = COMPARE_EXIT)]
    Compare(LabCompareArgs),
    /// Write a scenario to begin with, every part of it explained.
    New(LabNewArgs),
    /// Print the JSON Schema of scenario files, for editors and other tools.
    Schema,
    /// Draw the stability map of a scenario: from which loads and triggers it recovers.
    #[command(after_help = MAP_EXIT)]
    Map(LabMapArgs),
}

/// `seawall lab check`.
#[derive(Debug, Args)]
pub struct LabCheckArgs {
    /// Scenarios by name, or paths to files.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

/// `seawall lab compare`.
#[derive(Debug, Args)]
pub struct LabCompareArgs {
    /// What `seawall lab run --json` wrote of the first run.
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The same of the second.
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Write all rows side by side to this file: one page of HTML that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `seawall lab new`.
#[derive(Debug, Args)]
pub struct LabNewArgs {
    /// What it is called: a to z, 0 to 9 and -.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Where to write it; nothing that is there is written over [default: NAME.toml].
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `seawall lab map`.
#[derive(Debug, Args)]
pub struct LabMapArgs {
    /// A scenario with a section `map`, by name or path.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// How many seeds for each point, from 0 on.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub seeds: u32,
    /// How many clients, at every point [default: as the file says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub clients: Option<u32>,
    /// Threads; they change nothing of what is printed [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Write every point and the margin to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw it into this file: one page of HTML that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `seawall lab explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A scenario's name, or a path to a file.
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `seawall lab run`.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    /// Scenarios by name, or paths to files [default: all that are built in].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Of each scenario only this case.
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Of each scenario only this arm, and what it is compared with.
    #[arg(long, value_name = "NAME")]
    pub arm: Option<String>,
    /// How many seeds, from 0 on [default: as the file says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// This one seed.
    #[arg(long, value_name = "S", conflicts_with = "seeds")]
    pub seed: Option<u64>,
    /// How many clients, in every case [default: as the file says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub clients: Option<u32>,
    /// Threads; they change nothing of what is printed [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Tell what happened to one call, like 17.3: of client 17 the call 3, both from 0. Of one
    /// case, arm and seed.
    #[arg(long, value_name = "CALL", value_parser = call)]
    pub trace: Option<(u32, u32)>,
    /// Write what happened to every call of a run to this file, the first 200000 lines. Of one
    /// case, arm and seed.
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// Write all numbers to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots to this file: one page of HTML that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write tables with intervals to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the verdicts to this file, as JUnit XML.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// `seawall completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// `seawall man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The command whose page it is, like `run` or `lab run`.
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `seawall check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `seawall run`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct RunArgs {
    /// Protect this one service, with every default, like http://127.0.0.1:9000.
    #[arg(long, value_name = "URL", group = "what")]
    pub upstream: Option<String>,
    /// Protect what this file says.
    #[arg(long, value_name = "FILE", group = "what")]
    pub config: Option<PathBuf>,
    /// Listen here, whatever the file says; 127.0.0.1:8080 if neither says anything.
    #[arg(long, value_name = "ADDR", value_parser = bind)]
    pub listen: Option<SocketAddr>,
    /// Serve operators here, whatever the file says; 127.0.0.1:9901 if neither says anything.
    #[arg(long, value_name = "ADDR", value_parser = bind)]
    pub admin: Option<SocketAddr>,
    /// Threads that serve requests [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

fn bind(text: &str) -> Result<SocketAddr, String> {
    parse_bind(text).map_err(|allowed| format!("give {allowed}"))
}

fn call(text: &str) -> Result<(u32, u32), String> {
    let (client, number) = text.split_once('.').unwrap_or_default();
    match (client.parse(), number.parse()) {
        (Ok(client), Ok(number)) => Ok((client, number)),
        _ => Err("give a client and which of its calls, like 17.3".to_owned()),
    }
}

const RUN_EXIT: &str = "SIGTERM drains and then exits with 0, or with 1 if anything had to be cut; \
                        a second one hastens. Exits with 2 if it could not run.";
const DEMO_EXIT: &str = "Exits with 0 if the protected side met its bars, 1 if not, 2 if it could \
                         not run.";
const PROBE_EXIT: &str = "Exits with 0 for yes, 1 for no, 2 if nobody answers within a second.";
const LAB_EXIT: &str = "Exits with 0 if every scenario passes, 1 if one fails, 2 if one could not run \
                        or is invalid, that is, a control did not fail.";
const LAB_CHECK_EXIT: &str = "Exits with 0 if all can be run, 1 if one is wrong, 2 if one cannot be \
                              read.";
const COMPARE_EXIT: &str = "Exits with 0 if nothing that went right goes wrong or is gone, 1 if \
                            something does, 2 if a file cannot be read.";
const MAP_EXIT: &str = "Exits with 0 if it recovers at the operating point, 1 if not with every seed, \
                        2 if it could not run.";
const CHECK_EXIT: &str = "Exits with 0 if the file can be run, 1 if not, 2 if it cannot be read.";

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Result<RunArgs, String> {
        let all = ["seawall", "run"].iter().chain(args);
        match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Run(args) => Ok(args),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn run_takes_an_upstream_or_a_file_and_not_both() {
        let url = "http://127.0.0.1:9000";
        assert_eq!(run(&["--upstream", url]).unwrap().upstream.as_deref(), Some(url));
        assert_eq!(run(&["--config", "f"]).unwrap().config, Some("f".into()));
        let both = run(&["--upstream", url, "--config", "f"]).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
        let neither = run(&[]).unwrap_err();
        assert!(neither.contains("<--upstream <URL>|--config <FILE>>"), "{neither}");
    }

    #[test]
    fn run_takes_addresses_and_workers_in_their_ranges() {
        let args = run(&[
            "--config",
            "f",
            "--listen",
            "[::]:0",
            "--admin",
            "127.0.0.1:1",
            "--workers",
            "1",
        ])
        .unwrap();
        assert_eq!(args.listen, Some("[::]:0".parse().unwrap()));
        assert_eq!(args.admin, Some("127.0.0.1:1".parse().unwrap()));
        assert_eq!(args.workers, Some(1));
        let port = run(&["--config", "f", "--listen", ":80"]).unwrap_err();
        assert!(port.contains("like 127.0.0.1:80 or 0.0.0.0:80"), "{port}");
        for workers in ["0", "1025", "-1", "two"] {
            assert!(run(&["--config", "f", "--workers", workers]).is_err(), "{workers}");
        }
    }

    #[test]
    fn check_takes_one_file() {
        let command = Cli::try_parse_from(["seawall", "check", "f"]).unwrap().command;
        let Command::Check(args) = command else { panic!("{command:?}") };
        assert_eq!(args.file, PathBuf::from("f"));
        assert!(Cli::try_parse_from(["seawall", "check"]).is_err());
        assert!(Cli::try_parse_from(["seawall", "check", "f", "g"]).is_err());
    }

    #[test]
    fn lab_run_takes_many_names_and_either_seeds_or_a_seed() {
        let lab = |args: &[&str]| {
            let all = ["seawall", "lab", "run"].iter().chain(args);
            match Cli::try_parse_from(all).map_err(|error| error.to_string())?.command {
                Command::Lab(LabCommand::Run(args)) => Ok(args),
                other => Err(format!("{other:?}")),
            }
        };
        let args = lab(&["a", "b.toml", "--seeds", "3", "--threads", "2"]).unwrap();
        assert_eq!(args.names, ["a", "b.toml"]);
        assert_eq!((args.seeds, args.seed, args.threads), (Some(3), None, Some(2)));
        assert_eq!(lab(&["--seed", "18446744073709551615"]).unwrap().seed, Some(u64::MAX));
        assert!(lab(&["--seeds", "3", "--seed", "1"]).unwrap_err().contains("cannot be used with"));
        for wrong in
            [["--seeds", "0"], ["--seeds", "10001"], ["--clients", "0"], ["--threads", "0"]]
        {
            assert!(lab(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_wrong_command_line_ends_like_anything_that_could_not_run() {
        assert_eq!(Cli::try_parse_from(["seawall", "chek"]).unwrap_err().exit_code(), 2);
        assert_eq!(Cli::try_parse_from(["seawall", "--help"]).unwrap_err().exit_code(), 0);
    }
}
