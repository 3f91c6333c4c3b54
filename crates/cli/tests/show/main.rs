//! What the gateway must show, each claim in a module of its own: real processes over loopback,
//! judged by what arrived at the upstream.
//!
//! `./dev test` runs all of them in a short form, `./dev show N` one at full length
//! (`SEAWALL_SHOW=full`). They run one at a time: each has a small machine to itself.
#![expect(clippy::unwrap_used, reason = "a test binary; panics are verdicts")]

mod harness;
mod peers;
mod raw;
mod show_01_storm;
mod show_02_outcomes;
mod show_03_retry_after;
mod show_04_slow;
mod show_05_hang;
mod show_06_deadlines;
mod show_07_isolation;
mod show_08_layers;
mod show_09_drain;
mod show_10_malformed;
mod show_10_silence;
mod show_11_hedging;
mod show_12_outliers;
mod show_13_grpc;
mod show_14_broken;
mod show_14_reload;
mod show_15_door;
mod show_15_readers;
