//! The library half of the binary: what its subcommands do.
//!
//! `args` is what can be said on the command line; `run`, `check`, `demo`, `lab`, `probe` and
//! `paper` are what is then done. Only `main.rs` decides an exit code: 0 fine, 1 findings, 2 could
//! not run. The parts of the demo (a scriptable upstream, an open-loop load, a gateway as a
//! process) are public for the tests that show what the gateway must do.

pub mod args;
pub mod check;
pub mod demo;
pub mod lab;
pub mod paper;
pub mod probe;
pub mod run;
pub mod terminal;
