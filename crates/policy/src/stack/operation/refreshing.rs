//! A rejected credential: one attempt more, after the credential was refreshed.
//!
//! A 401 was not processed, so any method may be sent again; but only the credential can make the
//! next answer another. At most one such attempt a call, at once, beside the attempts of the
//! retries and not paid from their budget: what bounds it is that a credential is refreshed once,
//! whoever asks, and not at all soon after a refresh. It is a second attempt nevertheless, and is
//! not made while retries are off.

use super::{Operation, Phase, Step};
use crate::outcome::Cause;
use crate::retry::StopReason;
use crate::rng::Rng;
use crate::stack::StackParams;
use crate::stack::dependency::Dependency;
use crate::time::Timestamp;

/// How far a call is with its one refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Refresh {
    /// There was no need.
    #[default]
    Unasked,
    /// It was asked for, and the attempt after it is not sent yet.
    Asked,
    /// The attempt after it was sent.
    Sent,
}

impl Operation {
    /// Whether a rejected credential can still be refreshed.
    pub(super) fn may_refresh(&self) -> bool {
        self.call.refresh.is_some() && self.refresh == Refresh::Unasked
    }

    /// Asks the edge for a refresh.
    pub(super) fn ask_refresh(&mut self, now: Timestamp) -> Step {
        let limit = self.call.refresh.unwrap_or_default();
        let until = now.after(limit).min(self.deadline);
        (self.refresh, self.redispatching) = (Refresh::Asked, false);
        self.phase = Phase::Refreshing(until);
        Step::Refresh(until)
    }

    /// The refresh has ended, or its time is up: one more attempt, or the rejection goes up.
    pub(super) fn refreshed(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        is_fresh: bool,
        rng: &mut impl Rng,
    ) -> Step {
        if is_fresh && now < self.deadline {
            return self.attempt(now, dependency, params, rng);
        }
        let (reason, cause) = (StopReason::NotRetryable, Cause::Status(401));
        self.finish(now, dependency, params, reason, cause, None)
    }

    /// Attempts that count among the retries' own.
    pub(super) fn charged(&self) -> u32 {
        self.attempts.saturating_sub(u32::from(self.refresh == Refresh::Sent))
    }
}
