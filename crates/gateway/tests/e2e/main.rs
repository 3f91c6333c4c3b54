//! The gateway from end to end: in this process, over loopback, between a caller and an upstream
//! that each test plays itself. Every wait is for an event and bounded; nothing sleeps.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test binary; panics are verdicts")]

mod fields;
mod streaming;
mod support;
