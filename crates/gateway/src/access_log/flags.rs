//! The letters by which a line of the access log tells what went wrong.

use seawall_policy::{Cause, StopReason};

use crate::metrics::Refusal;

/// The flag of a refusal.
pub(super) const fn refusal_flag(refusal: Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::NoRoute => Some("NR"),
        Refusal::BadRequest | Refusal::HeadTooLarge => Some("DPE"),
        Refusal::BreakerOpen => Some("UH"),
        Refusal::BulkheadFull | Refusal::StreamsFull | Refusal::CheckoutTimeout => Some("UO"),
        Refusal::RateLimited | Refusal::QuotaExceeded | Refusal::AddressRate => Some("RL"),
        Refusal::DeadlinePassed => Some("DL"),
        Refusal::Draining => Some("DR"),
        Refusal::BodyTooLarge => Some("BL"),
    }
}

/// The flag of what ended the last attempt.
pub(super) const fn cause_flag(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::Dns => Some("DF"),
        Cause::ConnectRefused
        | Cause::ConnectFailed
        | Cause::ConnectTimeout
        | Cause::Tls
        | Cause::Unavailable => Some("UF"),
        Cause::AttemptTimeout | Cause::DeadlineCut => Some("UT"),
        Cause::Closed | Cause::HandedBack => Some("UC"),
        Cause::Reset | Cause::RefusedStream | Cause::GoAway => Some("UR"),
        Cause::Malformed => Some("UPE"),
        Cause::CallerLeft | Cause::UploadFailed => Some("DC"),
        Cause::BreakerOpen => Some("UH"),
        Cause::BulkheadFull | Cause::StreamsFull | Cause::CheckoutTimeout => Some("UO"),
        Cause::RateLimited | Cause::QuotaExceeded => Some("RL"),
        Cause::DeadlinePassed => Some("DL"),
        Cause::Status(_)
        | Cause::Grpc(_)
        | Cause::Answered
        | Cause::BusinessError
        | Cause::Conflict
        | Cause::Outrun
        | Cause::Unmatched => None,
    }
}

/// The flag of a stop reason that the cause does not tell already.
pub(super) const fn stop_flag(reason: StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Exhausted => Some("URX"),
        StopReason::Budget => Some("RB"),
        StopReason::RetriesOff => Some("RO"),
        _ => None,
    }
}
