//! Ends of a call before its next attempt, each with its reason.

use super::{Operation, Step};
use crate::outcome::Cause;
use crate::retry::StopReason;
use crate::stack::StackParams;
use crate::stack::dependency::{Dependency, Rejection};
use crate::time::Timestamp;

impl Operation {
    /// Whether the next attempt is a retry and retries are off by now.
    pub(super) fn is_switched_off(
        &self,
        now: Timestamp,
        dependency: &Dependency,
        params: &StackParams,
    ) -> bool {
        let is_retry = self.attempts > 0 && !self.redispatching;
        is_retry && !dependency.retries_on(now, params, self.call.lane)
    }

    /// Ends the call before a retry, because retries were switched off meanwhile.
    pub(super) fn switched_off(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
    ) -> Step {
        let (reason, cause) = (StopReason::RetriesOff, Cause::DeadlinePassed);
        self.finish(now, dependency, params, reason, cause, None)
    }

    /// Ends the call before an attempt that could not be answered in time.
    pub(super) fn too_late(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
    ) -> Step {
        dependency.counters_mut().deadline_before_send += 1;
        let (reason, cause) = (StopReason::Deadline, Cause::DeadlinePassed);
        self.finish(now, dependency, params, reason, cause, None)
    }

    /// Ends the call with a refusal of ours.
    pub(super) fn rejected(
        &mut self,
        now: Timestamp,
        dependency: &mut Dependency,
        params: &StackParams,
        rejection: Rejection,
    ) -> Step {
        let Rejection { cause, retry_after } = rejection;
        let reason = match cause {
            Cause::BreakerOpen => StopReason::BreakerOpen,
            Cause::RateLimited => StopReason::RateLimited,
            Cause::QuotaExceeded => StopReason::QuotaExceeded,
            _ => StopReason::BulkheadFull,
        };
        self.finish(now, dependency, params, reason, cause, Some(retry_after))
    }
}
