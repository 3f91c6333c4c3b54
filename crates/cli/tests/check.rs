//! The binary, as a shell sees it.
#![expect(clippy::unwrap_used, reason = "a helper of tests may fail them")]

use std::io::Write as _;
use std::process::{Command, Output};

fn seawall(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seawall")).args(args).output().unwrap()
}

#[test]
fn exit_codes_tell_fine_from_findings_from_could_not_run() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../seawall.example.yaml");
    let not_a_configuration = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (args, code) in [
        (&["check", example][..], 0),
        (&["--help"], 0),
        (&["--version"], 0),
        (&["check", not_a_configuration], 1),
        (&["check", "/nowhere/seawall.yaml"], 2),
        (&["check", "/"], 2),
        (&["check"], 2),
        (&["chek", example], 2),
        (&[], 2),
    ] {
        assert_eq!(seawall(args).status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn check_reads_a_pipe_and_run_says_why_it_does_not() {
    let piped = |args: &[&str]| {
        let (read, mut write) = std::io::pipe().unwrap();
        // A pipe has room for it.
        write.write_all(b"version: 1\nupstreams: {up: {endpoints: ['http://h:1']}}\n").unwrap();
        drop(write);
        Command::new(env!("CARGO_BIN_EXE_seawall")).args(args).stdin(read).output().unwrap()
    };
    let checked = piped(&["check", "/dev/stdin"]);
    assert!(checked.status.success(), "{checked:?}");
    let run = piped(&["run", "--config", "/dev/stdin"]);
    assert_eq!(run.status.code(), Some(2));
    let told = String::from_utf8(run.stderr).unwrap();
    for part in ["cannot be read: not a file", "--> /dev/stdin", "write it to a file"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[test]
fn schema_prints_the_committed_schema() {
    let output = seawall(&["schema"]);
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../seawall.schema.json");
    assert!(output.status.success());
    assert_eq!(output.stdout, std::fs::read(committed).unwrap());
}

#[test]
fn findings_go_to_standard_error_without_colours() {
    let output = seawall(&["check", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert!(output.stdout.is_empty());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("error: ") && !told.contains('\x1b'), "{told}");
}

#[test]
fn run_says_once_that_it_is_an_error_and_names_the_option() {
    let not_a_configuration = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (args, told) in [
        (["run", "--config", not_a_configuration], "error: "),
        (["run", "--upstream", "127.0.0.1:9000"], "error: --upstream: "),
    ] {
        let output = seawall(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let read = String::from_utf8(output.stderr).unwrap();
        assert!(read.starts_with(told) && !read.contains("error: error"), "{read}");
    }
}
