//! An operator's word on all breakers of a dependency, for a while.
//!
//! It takes the place of the configured mode until its time is over, whatever parameters come
//! meanwhile. The breakers' state stays: what the mode lets them learn they learn, and when it ends
//! they go on from there.

use alloc::borrow::Cow;

use super::Dependency;
use crate::breaker::{BreakerMode, BreakerParams};
use crate::stack::StackParams;
use crate::time::Timestamp;

/// A mode and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forced {
    mode: BreakerMode,
    until: Timestamp,
}

impl Dependency {
    /// Puts all breakers into `mode` until `until`, in place of what was forced before;
    /// [`Timestamp::ZERO`] ends it, and the parameters' mode is in force again.
    pub const fn force(&mut self, mode: BreakerMode, until: Timestamp) {
        self.forced = Some(Forced { mode, until });
    }

    /// The mode that is forced at `now`, and until when.
    #[must_use]
    pub fn forced(&self, now: Timestamp) -> Option<(BreakerMode, Timestamp)> {
        let Forced { mode, until } = self.forced?;
        (now < until).then_some((mode, until))
    }

    /// What the breakers obey at `now`.
    pub(super) fn knobs<'p>(
        &self,
        now: Timestamp,
        params: &'p StackParams,
    ) -> Cow<'p, BreakerParams> {
        match self.forced(now) {
            None => Cow::Borrowed(&params.breaker),
            // On the stack: no allocation.
            Some((mode, _)) => Cow::Owned(params.breaker.clone().with_mode(mode)),
        }
    }
}
