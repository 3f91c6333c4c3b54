//! Runs scenario files and tells what missed, without the command line: built in seconds, for
//! trying a changed policy out (`./dev lab mutants`).
//!
//! `cargo run --release -p seawall-lab --example run -- FILE [SEEDS]`. Exit 0, 1 and 2 as
//! `seawall lab run`; every row is a line: its fate, case, arm, threshold, what was measured and
//! what is asked for, apart by tabs.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use std::process::ExitCode;

use seawall_lab::{Outcome, Plan, Scenario, Verdict};

fn run(file: &str, seeds: Option<u64>) -> Result<Outcome, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let scenario = Scenario::parse(file, &text).map_err(|error| error.to_string())?;
    let seeds = (0..seeds.unwrap_or_else(|| scenario.seeds().into())).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan { seeds, clients: None, threads };
    scenario.run(&plan, |_| ()).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(file) = args.next() else {
        eprintln!("usage: run FILE [SEEDS]");
        return ExitCode::from(2);
    };
    let seeds = args.next().and_then(|seeds| seeds.parse().ok());
    match run(&file, seeds) {
        Err(told) => {
            eprintln!("{told}");
            ExitCode::from(2)
        }
        Ok(outcome) => {
            for row in &outcome.rows {
                let (fate, limit) = (row.fate.as_str(), &row.limit_shown);
                let (case, arm, threshold) = (&row.case, &row.arm, &row.threshold);
                println!("{fate}\t{case}\t{arm}\t{threshold}\t{}\t{limit}", row.shown);
            }
            ExitCode::from(match outcome.verdict {
                Verdict::Pass => 0,
                Verdict::Fail => 1,
                Verdict::Invalid => 2,
            })
        }
    }
}
