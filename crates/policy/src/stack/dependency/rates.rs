//! What may be sent in a time: in all, and of each key.
//!
//! The rate stands between the breaker and the attempt timeout. It is asked before a call waits
//! for its slot, and taken when it has one and is about to be sent, retries and redispatches like
//! first attempts. What was never sent gives it back.

use super::{Dependency, Permit};
use crate::outcome::Cause;
use crate::rate::{KeyedRate, KeyedRateParams, Rate, RateExceeded, RateKey};
use crate::stack::{Rejection, StackParams};
use crate::time::Timestamp;

/// The state of the limits, made for the first call that has one.
#[derive(Debug, Default)]
pub(super) struct Rates {
    all: Rate,
    /// Made when the first call with a key comes.
    keyed: Option<KeyedRate>,
}

impl Rates {
    fn keyed(&mut self, params: &KeyedRateParams) -> &mut KeyedRate {
        self.keyed.get_or_insert_with(|| KeyedRate::new(params))
    }
}

/// What a permit has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    all: bool,
    key: Option<RateKey>,
}

impl Dependency {
    /// Refuses a call that could not be sent now for the rate's sake; takes nothing. Where the
    /// breakers would refuse it too, it is theirs to refuse.
    pub(in crate::stack) fn check_rate(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        lane: usize,
        key: Option<RateKey>,
    ) -> Result<(), Rejection> {
        if params.rate.is_none() && params.rate_per_key.is_none() {
            return Ok(());
        }
        if !self.would_admit(now, params, lane, |_| false) {
            return Ok(());
        }
        if let (Some(key), Some(knobs)) = (key, &params.rate_per_key) {
            let checked = self.rates_mut().keyed(knobs).check(now, knobs, key, 1);
            checked.map_err(|exceeded| self.refuse_quota(exceeded))?;
        }
        if let Some(knobs) = &params.rate {
            let checked = self.rates_mut().all.check(now, knobs, 1);
            checked.map_err(|exceeded| self.refuse_rate(exceeded))?;
        }
        Ok(())
    }

    /// Takes the rate for a call that has its permit and is about to be sent.
    pub(in crate::stack) fn take_rate(
        &mut self,
        now: Timestamp,
        params: &StackParams,
        key: Option<RateKey>,
        permit: &mut Permit,
    ) -> Result<(), Rejection> {
        if let (Some(key), Some(knobs)) = (key, &params.rate_per_key) {
            let taken = self.rates_mut().keyed(knobs).try_acquire(now, knobs, key, 1);
            taken.map_err(|exceeded| self.refuse_quota(exceeded))?;
            permit.rate.key = Some(key);
        }
        if let Some(knobs) = &params.rate {
            let taken = self.rates_mut().all.try_acquire(now, knobs, 1);
            taken.map_err(|exceeded| self.refuse_rate(exceeded))?;
            permit.rate.all = true;
        }
        Ok(())
    }

    /// Gives back what was taken for an attempt that was not sent.
    pub(super) fn give_rate_back(&mut self, params: &StackParams, permit: &mut Permit) {
        let Taken { all, key } = core::mem::take(&mut permit.rate);
        let Some(rates) = &mut self.rates else { return };
        if let (true, Some(knobs)) = (all, &params.rate) {
            rates.all.give_back(knobs, 1);
        }
        if let (Some(key), Some(knobs), Some(keyed)) = (key, &params.rate_per_key, &mut rates.keyed)
        {
            keyed.give_back(knobs, key, 1);
        }
    }

    /// How many could be sent now; `None` without a rate.
    #[must_use]
    pub fn rate_available(&self, now: Timestamp, params: &StackParams) -> Option<u32> {
        let knobs = params.rate.as_ref()?;
        let untouched = Rate::new();
        let all = self.rates.as_ref().map_or(&untouched, |rates| &rates.all);
        Some(all.available(now, knobs))
    }

    /// Keys that were forgotten while they owed something, since the start.
    #[must_use]
    pub fn rate_keys_evicted(&self) -> u64 {
        let keyed = self.rates.as_ref().and_then(|rates| rates.keyed.as_ref());
        keyed.map_or(0, KeyedRate::evicted_total)
    }

    fn rates_mut(&mut self) -> &mut Rates {
        self.rates.get_or_insert_default()
    }

    fn refuse_rate(&mut self, exceeded: RateExceeded) -> Rejection {
        self.counters.rate_rejections += 1;
        refused(Cause::RateLimited, exceeded)
    }

    fn refuse_quota(&mut self, exceeded: RateExceeded) -> Rejection {
        self.counters.quota_rejections += 1;
        refused(Cause::QuotaExceeded, exceeded)
    }
}

/// A burst is at least one, so that the wait for one call is always known.
fn refused(cause: Cause, exceeded: RateExceeded) -> Rejection {
    Rejection { cause, retry_after: exceeded.retry_after.unwrap_or_default() }
}
