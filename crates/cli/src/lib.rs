//! The library half of the binary: what its subcommands do.

pub mod args;
pub mod check;
pub mod demo;
pub mod run;
pub mod terminal;
