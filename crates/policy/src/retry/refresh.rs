//! Decides whether a rejected request is worth another credential and one attempt more.

use super::{Facts, RetryParams};
use crate::grpc::GrpcCode;
use crate::outcome::{Cause, Class, Outcome};

impl Outcome {
    /// Whether the other side took nothing in but a credential it did not accept.
    #[must_use]
    pub const fn is_unauthenticated(&self) -> bool {
        matches!(self.class(), Class::Rejected)
            && matches!(self.cause(), Cause::Status(401) | Cause::Grpc(GrpcCode::Unauthenticated))
    }
}

/// Whether a rejected request may be tried once more with another credential. Neither its safety
/// nor who owns the retries matters: it was not processed, and the credential is ours.
pub(super) fn wanted(params: Option<&RetryParams>, outcome: &Outcome, facts: &Facts) -> bool {
    let told_to_stop = outcome.says_stop() && params.is_none_or(RetryParams::honour_stop);
    outcome.is_unauthenticated()
        && facts.may_refresh
        && facts.retries_on
        && facts.replayable
        && !told_to_stop
        && !facts.remaining.is_zero()
}
