//! The library half of the binary.

pub mod args;
pub mod check;
pub mod run;
pub mod terminal;
