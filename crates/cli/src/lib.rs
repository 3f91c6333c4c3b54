//! The library half of the binary.

pub mod demo;
